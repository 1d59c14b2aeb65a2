"""The planner: which schedule is the fastest for a tensor, and which tensors to send together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy

from gemel.errors import TopologyError
from gemel.links import Topology
from gemel.machines import checked_topology
from gemel.ranges import is_finite
from gemel.spec import is_several
from gemel.topology.estimate import Estimate
from gemel.topology.explaining import SIZES, explain, table
from gemel.topology.routes import Routes
from gemel.topology.schedule import Schedule
from gemel.topology.schedules import candidates
from gemel.topology.simulator import check_bytes
from gemel.topology.units import show_bytes, show_seconds

#: If estimates differ by less than this fraction, the schedule with the fewest messages is chosen.
ALIKE = 0.01
#: The sizes at which costs are computed for buckets; between them they are interpolated linearly.
_SMALLEST, _LARGEST, _POINTS = 64.0, 2.0**36, 121


class Choice(NamedTuple):
    """The schedule for a tensor of `nbytes`, and the seconds it is predicted to take."""

    nbytes: float
    schedule: Schedule
    seconds: float


class Bucket(NamedTuple):
    """Tensors `first` to `last`, inclusive, that are sent together.

    By prediction its transfer starts after `begin` seconds and ends after `end` seconds.
    """

    first: int
    last: int
    nbytes: float
    schedule: Schedule
    begin: float
    end: float


class Planner:
    """Predicts times and chooses among `schedules` on one topology, by default among all that fit.

    Those that fit are `candidates`: the topology has their places and routes. Raises
    `TopologyError` if there is no schedule.

    >>> from gemel import topology
    >>> planner = topology.Planner(topology.named("p3"))
    >>> planner.choose(1e3).schedule.name, planner.choose(160e6).schedule.name
    ('servers', 'ring both ways')
    """

    def __init__(self, topology: Topology, schedules: Sequence[Schedule] | None = None) -> None:
        self.topology = checked_topology("planner", topology)
        self.routes = Routes(topology)
        if not (schedules is None or is_several(schedules)):
            raise TopologyError(f"planner: {schedules!r} is no list of schedules")
        chosen = candidates(topology) if schedules is None else list(schedules)
        if not chosen:
            raise TopologyError(f"planner: there is no schedule to choose for {topology.name}")
        self.estimates = [Estimate(schedule, self.routes) for schedule in chosen]
        self._curve: tuple[numpy.ndarray, numpy.ndarray] | None = None

    def choose(self, nbytes: float) -> Choice:
        """Return the schedule with the lowest estimate; of nearly equal ones the one with the
        fewest messages."""
        found = self.best(nbytes)
        return Choice(nbytes, found.schedule, found.seconds(nbytes))

    def best(self, nbytes: float) -> Estimate:
        """The estimate of the schedule that `choose` returns."""
        costs = [estimate.seconds(nbytes) for estimate in self.estimates]
        limit = min(costs) * (1 + ALIKE)
        near = [e for e, cost in zip(self.estimates, costs, strict=True) if cost <= limit]
        return min(near, key=lambda estimate: len(estimate.schedule))

    def ranges(self, low: float = 1e3, high: float = 256e6) -> list[tuple[float, Schedule]]:
        """The chosen schedules between two sizes, each with the number of bytes from which it is
        chosen. Raises `TopologyError` unless the sizes are above 0, the smaller first."""
        for size in (low, high):
            check_bytes(size)
        if not 0 < low <= high:
            raise TopologyError(
                f"ranges: from {low!r} to {high!r} bytes; give two numbers above 0, the smaller "
                "first"
            )
        sizes = numpy.geomspace(low, high, 60)
        found = [(low, self.best(low).schedule)]
        for size, before in zip(sizes[1:], sizes[:-1], strict=True):
            if self.best(size).schedule is not found[-1][1]:
                found.append(self._crossing(before, size))
        return found

    def _crossing(self, low: float, high: float) -> tuple[float, Schedule]:
        """Where the choice for the lower size ends between two sizes, and which one follows."""
        old = self.best(low).schedule
        while high > low * 1.01:
            middle = (low * high) ** 0.5
            if self.best(middle).schedule is old:
                low = middle
            else:
                high = middle
        return high, self.best(high).schedule

    def buckets(self, sizes: Sequence[float], ready: Sequence[float] | None = None) -> list[Bucket]:
        """Cut a list of tensors into buckets so that the last one arrives as early as possible.

        `sizes` are bytes in the order in which backward makes the tensors, `ready` the seconds
        after which each is ready (never decreasing; None: all at once). Buckets are sent one after
        the other. Small tensors share a message's latency, but a bucket waits for its last tensor.
        Dynamic programming finds the best of all cuts. Raises `TopologyError` for lists of
        different lengths, and for sizes or times that are not finite.
        """
        for what, given in (("sizes", sizes), ("times", ready)):
            if given is not None and not is_several(given):
                raise TopologyError(f"buckets: the {what} are {given!r}; give a list of numbers")
        times = [0.0] * len(sizes) if ready is None else list(ready)
        for moment in times:
            if not is_finite(moment):
                raise TopologyError(f"buckets: a time of {moment!r} s; give finite numbers")
        if len(times) != len(sizes) or any(b < a for a, b in zip(times, times[1:], strict=False)):
            raise TopologyError(
                f"buckets: {len(sizes)} sizes and {len(times)} times; give each tensor a time, "
                "in the order in which they are ready"
            )
        for size in sizes:
            check_bytes(size)
        total = numpy.concatenate([[0.0], numpy.cumsum(numpy.asarray(sizes, "float64"))])
        ends, cuts = numpy.zeros(len(total)), [0]
        for last in range(1, len(total)):
            begin = numpy.maximum(ends[:last], times[last - 1])
            arrived = begin + self._seconds(total[last] - total[:last])
            cuts.append(int(arrived.argmin()))
            ends[last] = arrived[cuts[last]]
        return self._cut(total, times, cuts)

    def together(self, sizes: Sequence[float]) -> str:
        """A table of which tensors, all ready at once, should be sent together."""
        rows: list[tuple[str, ...]] = [("tensors", "bytes", "schedule", "from", "to")]
        for each in self.buckets(sizes):
            which = f"{each.first}" if each.first == each.last else f"{each.first} to {each.last}"
            times = show_seconds(each.begin), show_seconds(each.end)
            rows.append((which, show_bytes(each.nbytes), each.schedule.name, *times))
        return table(rows)

    def _cut(self, total: numpy.ndarray, times: list[float], cuts: list[int]) -> list[Bucket]:
        """The buckets of the best division, found by following `cuts` back from the end."""
        marks = [len(cuts) - 1]
        while marks[-1]:
            marks.append(cuts[marks[-1]])
        marks.reverse()
        found: list[Bucket] = []
        for first, after in zip(marks, marks[1:], strict=False):
            choice = self.choose(float(total[after] - total[first]))
            begin = max(found[-1].end if found else 0.0, times[after - 1])
            end = begin + choice.seconds
            found.append(Bucket(first, after - 1, choice.nbytes, choice.schedule, begin, end))
        return found

    def _seconds(self, nbytes: numpy.ndarray) -> numpy.ndarray:
        """The least seconds for several sizes, from a curve that is computed once."""
        if self._curve is None:
            sizes = numpy.concatenate([[0], numpy.geomspace(_SMALLEST, _LARGEST, _POINTS)])
            costs = [min(e.seconds(size) for e in self.estimates) for size in sizes]
            costs[0] = costs[1]  # less than 64 bytes cost as much as 64
            self._curve = sizes, numpy.array(costs)
        found = numpy.interp(nbytes, *self._curve)
        return numpy.where(nbytes > 0, found, 0.0)

    def explain(self, sizes: Sequence[float] = SIZES) -> str:
        """A table of the choices for tensors of several sizes, with reasons and drawings.
        Raises `TopologyError` for sizes that are none."""
        if not is_several(sizes):
            raise TopologyError(f"planner: explain takes a list of numbers of bytes, not {sizes!r}")
        return explain(self.topology, self.estimates, self.best, self.ranges(), sizes)

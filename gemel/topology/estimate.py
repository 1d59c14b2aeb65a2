"""What a schedule costs, without simulating it.

Steps are grouped into rounds. In a round, a link starts to transfer once the first message's
latency has passed, and is done when the last message has arrived and all bytes are transferred. A
round takes as long as its slowest link, and starts after the previous one. So the estimate of a
ring is the closed form 2 (n - 1) (latency + bytes / n / bandwidth), and that of any schedule is a
similar sum: Hockney's model, with contention found by counting (Thakur, Rabenseifner and Gropp,
2005). Real steps do not wait at the end of a round, so the estimate is too high where rounds
overlap; docs/topology.md says by how much.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy
from numpy.typing import NDArray

from gemel.links import Topology
from gemel.topology.routes import Paths, Routes, routes_of
from gemel.topology.schedule import Schedule, rounds
from gemel.topology.simulator import check_bytes, paths_of

Array = NDArray[Any]


class Cost(NamedTuple):
    """The cost of a tensor: total seconds, seconds of latency, and the link that takes most
    time."""

    seconds: float
    latency: float
    busiest: str


class Estimate:
    """The cost of one schedule on one topology, for any number of bytes."""

    def __init__(self, schedule: Schedule, topology: Topology | Routes) -> None:
        routes = routes_of(topology)
        self.schedule = schedule
        self._topology = routes.topology
        paths, number = paths_of(schedule, routes), rounds(schedule)
        self.rounds = int(number.max(initial=-1)) + 1
        longest = numpy.zeros(self.rounds)
        numpy.maximum.at(longest, number, paths.latency)
        self._latency = float(longest.sum())
        work = _Work(schedule, routes, paths, number)
        #: Seconds on each link: for the messages, and for each byte of the tensor.
        self._links = work.per_link()
        self._entries, self._starts, self._times = _alike(*work.entries(), self.rounds)

    def seconds(self, nbytes: float) -> float:
        """How long the schedule takes for a tensor of `nbytes`."""
        check_bytes(nbytes)
        if not nbytes or not self.rounds:
            return 0.0
        fixed, moving = self._entries
        longest = numpy.maximum.reduceat(fixed + moving * nbytes, self._starts)
        return float((longest * self._times).sum())

    def cost(self, nbytes: float) -> Cost:
        """How long it takes, and which part is latency. Raises `TopologyError` for an invalid
        size."""
        seconds = self.seconds(nbytes)
        if not seconds:
            return Cost(0.0, 0.0, "")
        fixed, moving = self._links
        return Cost(seconds, self._latency, self._named(int((fixed + moving * nbytes).argmax())))

    def _named(self, link: int) -> str:
        found = self._topology.links[link // 2]
        ends = (found.one, found.other) if link % 2 == 0 else (found.other, found.one)
        return f"{ends[0]} -> {ends[1]} ({found.bandwidth:g} GB/s)"


class _Work:
    """The work of the links: an item for each link on each message's route."""

    def __init__(self, schedule: Schedule, routes: Routes, paths: Paths, number: Array) -> None:
        self._width = len(routes.capacity) - 1
        step, column = numpy.nonzero(paths.links < self._width)
        self._link = paths.links[step, column].astype("int64")
        speed = routes.capacity[self._link]
        self._fixed = (paths.overhead * paths.width)[step] / speed
        self._moving = schedule.sent()[step] / speed
        self._latencies, which = numpy.unique(paths.latency, return_inverse=True)
        self._late = len(self._latencies) - 1 - which[step]  # 0 is the longest latency
        self._round = number[step].astype("int64")

    def per_link(self) -> tuple[Array, Array]:
        """Total seconds on each link, for the messages and for each byte."""
        return (
            numpy.bincount(self._link, self._fixed, self._width),
            numpy.bincount(self._link, self._moving, self._width),
        )

    def entries(self) -> tuple[Array, Array, Array]:
        """Lower bounds for the end of rounds: (round, seconds, seconds for each byte).

        A link cannot be done before some latency has passed and then all messages with this or a
        longer latency have been transferred. There is an entry for each link and latency.
        """
        many = max(len(self._latencies), 1)
        place = self._round * self._width + self._link
        key, which = numpy.unique(place * many + self._late, return_inverse=True)
        sums = [
            numpy.cumsum(numpy.bincount(which, values, len(key)))
            for values in (self._fixed, self._moving)
        ]
        place = key // many
        begins = numpy.searchsorted(place, place)  # the position of a link's longest latency
        fixed, moving = (total - numpy.concatenate([[0.0], total])[begins] for total in sums)
        latency = self._latencies[many - 1 - key % many] if len(key) else fixed
        return place // max(self._width, 1), latency + fixed, moving


def _alike(
    number: Array, fixed: Array, moving: Array, count: int
) -> tuple[tuple[Array, Array], Array, Array]:
    """The entries of the distinct rounds, where each round begins, and how often it occurs."""
    table = numpy.stack([fixed, moving]).round(18)
    ends = numpy.searchsorted(number, numpy.arange(count + 1))
    times: dict[bytes, int] = {}
    kept: list[Array] = []
    for begin, end in zip(ends, ends[1:], strict=False):
        block = table[:, begin:end]
        key = block.tobytes()
        if key not in times:
            kept.append(numpy.unique(block, axis=1))
        times[key] = times.get(key, 0) + 1
    sizes = [block.shape[1] for block in kept]
    starts = numpy.concatenate([[0], numpy.cumsum(sizes, dtype="int64")])[:-1]
    entries = numpy.concatenate(kept, axis=1) if kept else table
    return (entries[0], entries[1]), starts, numpy.array(list(times.values()), "int64")

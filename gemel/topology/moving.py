"""Moving: runs schedules along the simulator's clock, one after the other, on the calling thread.

The simulator says when each step ends; the mover waits until then and copies its bytes to their
target. So links are shared fairly, as in `simulate`, and a step that is late because the machine
was busy does not delay later ones. It also needs no thread per channel, unlike `run`. A schedule
takes as long as was simulated, or as the copies take on this machine if that is longer.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy
from numpy.typing import NDArray

from gemel.links import Topology
from gemel.topology.execution import filled
from gemel.topology.routes import Routes
from gemel.topology.running import earlier_additions
from gemel.topology.schedule import Schedule
from gemel.topology.simulator import Simulation, simulate

Array = NDArray[Any]
#: How many simulations, by schedule and size, are kept; they are those of a network's parameters.
_KEPT = 1024


class _Timed(NamedTuple):
    """The steps in the order in which they end; for each, the additions that have to come
    before."""

    simulation: Simulation
    order: list[int]
    earlier: list[list[int]]


class Mover:
    """Runs schedules over one topology, one thread at a time, and counts the bytes on each link."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        #: The bytes transferred, with overheads, by the ends of the link: ``("gpu0", "gpu1")``.
        self.carried: dict[tuple[str, str], float] = {}
        self._routes = Routes(topology)
        self._timed: OrderedDict[tuple[str, int], _Timed] = OrderedDict()

    def move(self, schedule: Schedule, arrays: Sequence[Array]) -> list[Array]:
        """Return the sum for each rank, after the time that the links need.

        The sums have the same bits as `all_reduce`. The given arrays do not change.
        """
        begin = time.monotonic()
        buffers = filled(schedule, arrays)
        timed = self._times(schedule, buffers[0].nbytes)
        bounds = schedule.bounds(buffers[0].size).tolist()
        moments = timed.simulation.finished.tolist()
        columns = [column.tolist() for column in schedule.steps]
        late = _Late(timed.earlier)
        for step in timed.order:
            left = begin + moments[step] - time.monotonic()
            if left > 0:
                time.sleep(left)
            source, target, first, count, add, _ = (column[step] for column in columns)
            part = slice(bounds[first], bounds[first + count])
            if add:
                late.arrive(step, buffers[target][part], buffers[source][part])
            else:
                buffers[target][part] = buffers[source][part]
        self._count(timed.simulation)
        return [flat.reshape(arrays[0].shape) for flat in buffers[: schedule.ranks]]

    def _times(self, schedule: Schedule, nbytes: int) -> _Timed:
        key = schedule.name, nbytes
        found = self._timed.pop(key, None)
        if found is None:
            simulation = simulate(schedule, self._routes, nbytes)
            order = numpy.lexsort((numpy.arange(len(schedule)), simulation.finished)).tolist()
            found = _Timed(simulation, order, earlier_additions(schedule))
            if len(self._timed) >= _KEPT:
                self._timed.popitem(last=False)
        self._timed[key] = found
        return found

    def _count(self, simulation: Simulation) -> None:
        for number, nbytes in enumerate(simulation.carried.tolist()):
            if nbytes:
                link = self.topology.links[number // 2]
                ends = (link.one, link.other) if number % 2 == 0 else (link.other, link.one)
                self.carried[ends] = self.carried.get(ends, 0.0) + nbytes


class _Late:
    """Parts that arrived before earlier additions to the same pieces, and wait for those."""

    def __init__(self, earlier: list[list[int]]) -> None:
        self._earlier = earlier
        self._done = [False] * len(earlier)
        self._waiting: dict[int, tuple[Array, Array]] = {}

    def arrive(self, step: int, place: Array, part: Array) -> None:
        """A part has arrived: add it, or keep it until the additions before it are done."""
        if self._may(step):
            self._add(step, place, part)
            while ready := [other for other in self._waiting if self._may(other)]:
                self._add(ready[0], *self._waiting.pop(ready[0]))
        else:
            self._waiting[step] = place, part.copy()

    def _may(self, step: int) -> bool:
        return all(self._done[other] for other in self._earlier[step])

    def _add(self, step: int, place: Array, part: Array) -> None:
        place += part
        self._done[step] = True

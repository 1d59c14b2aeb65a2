"""How long a schedule takes: its steps as flows that share links fairly.

When a step may start, its route's latency passes first; then its bytes flow, at a rate that the
links of the route allow. Links with several flows are shared max-min fairly (Bertsekas and
Gallager, Data networks, 1992, section 6.5): no flow can get faster without slowing down one that is
not faster itself. Rates change only when a flow begins or ends, so the computed times are exact.
The two directions of a link are independent. Additions take no time.
"""

from __future__ import annotations

import heapq
from typing import Any, NamedTuple

import numpy
from numpy.typing import NDArray

from gemel.errors import TopologyError
from gemel.links import Topology
from gemel.ranges import is_finite
from gemel.topology.routes import Paths, Routes, routes_of
from gemel.topology.schedule import Progress, Schedule, checked_schedule

Array = NDArray[Any]
#: Times that differ by less than this fraction of a flow's time count as equal.
_SAME = 1e-9


class Simulation(NamedTuple):
    """The result of a simulation: its duration, the end of each step, the bytes each directed link
    carried.

    Times are in seconds, `carried` in bytes, overheads included. `capacity` is in bytes per second.
    """

    seconds: float
    finished: Array
    carried: Array
    capacity: Array

    @property
    def busiest(self) -> float:
        """The fraction of the time in which the busiest link was full."""
        if not self.seconds:
            return 0.0
        return float((self.carried / self.capacity).max() / self.seconds)


def simulate(schedule: Schedule, topology: Topology | Routes, nbytes: float) -> Simulation:
    """Simulate a schedule for a tensor of `nbytes`.

    >>> from gemel import topology
    >>> p3 = topology.named("p3")
    >>> round(topology.simulate(topology.ring(p3), p3, 160e6).seconds * 1e3, 2)  # ms
    5.21

    Raises `UnknownNameError` for a place the topology does not have, `TopologyError` where no route
    leads, or for a size that is negative or not finite.
    """
    check_bytes(nbytes)
    routes = routes_of(topology)
    paths = paths_of(schedule, routes)
    sent = schedule.sent() * nbytes
    size = numpy.where(sent > 0, sent + paths.overhead * paths.width, 0.0)
    finished = _Run(schedule, paths, size, routes.capacity).finished()
    carried = numpy.zeros(len(routes.capacity))
    for column in paths.links.T:
        carried += numpy.bincount(column, size, len(carried))
    end = float(finished.max(initial=0.0))
    return Simulation(end, finished, carried[:-1], routes.capacity[:-1])


def check_bytes(nbytes: float) -> None:
    """Raises `TopologyError` unless this is a valid number of bytes."""
    if not is_finite(nbytes) or nbytes < 0:
        raise TopologyError(f"a tensor of {nbytes!r} bytes: give a finite number, 0 or more")


def paths_of(schedule: Schedule, routes: Routes) -> Paths:
    """The route of each step."""
    nodes = numpy.array(
        [routes.topology.number(name) for name in checked_schedule(schedule).places]
    )
    return routes.between(nodes[schedule.steps.source], nodes[schedule.steps.target])


def fair_rates(links: Array, capacity: Array) -> Array:
    """The max-min fair rates of flows (flows, links of a route) over links with these capacities.

    The last link is not real: it pads short routes. If a link's fair share is the smallest on the
    routes of all its flows, it determines their rates. This is done for all such links at once, and
    then repeated for the remaining flows.
    """
    rates = numpy.full(len(links), numpy.inf)
    rest, left = numpy.arange(len(links)), capacity.copy()
    while len(rest):
        rows = links[rest]
        count = numpy.zeros(len(left), "int64")
        for column in rows.T:
            count += numpy.bincount(column, minlength=len(left))
        count[-1] = 0
        share = numpy.where(count > 0, left / numpy.maximum(count, 1), numpy.inf)
        bound = numpy.minimum.reduce([share[column] for column in rows.T])
        if bound.min() >= bound.max() * (1 - 1e-12):
            rates[rest] = bound
            break
        lowest = numpy.full(len(left), numpy.inf)
        for column in rows.T:
            numpy.minimum.at(lowest, column, bound)
        settled = (count > 0) & (lowest >= share * (1 - 1e-12))
        fixed = numpy.logical_or.reduce([settled[column] for column in rows.T])
        rates[rest[fixed]] = bound[fixed]
        for column in rows[fixed].T:
            left = left - numpy.bincount(column, bound[fixed], len(left))
        left[-1] = numpy.inf
        rest = rest[~fixed]
    return rates


class _Run:
    """The event loop: a step waits, then its latency passes, then its bytes flow."""

    def __init__(self, schedule: Schedule, paths: Paths, size: Array, capacity: Array) -> None:
        self._progress = Progress(schedule)
        self._paths, self._size, self._capacity = paths, size, capacity
        self._finished = numpy.zeros(len(schedule))
        self._arriving: list[tuple[float, int, Array]] = []
        self._now = 0.0
        self._flowing = numpy.zeros(0, "int64")
        self._left = numpy.zeros(0)
        #: The routes of the last flows, and their rates.
        self._known = paths.links[:0], self._left

    def finished(self) -> Array:
        """When each step ends."""
        self._begin(self._progress.ready())
        while self._arriving or len(self._flowing):
            done = self._advance()
            if len(done):
                self._finished[done] = self._now
                self._begin(self._progress.finish(done))
        return self._finished

    def _begin(self, ready: Array) -> None:
        """Start the latency of steps that may start. Steps without bytes end at once."""
        while len(empty := ready[self._size[ready] <= 0]):
            self._finished[empty] = self._now
            new = self._progress.finish(empty)
            ready = numpy.concatenate([ready[self._size[ready] > 0], new])
        latency = self._paths.latency[ready]
        if len(latency) and latency.min() == latency.max():
            self._arrive(latency[0], ready)
            return
        for one in numpy.unique(latency):
            self._arrive(one, ready[latency == one])

    def _arrive(self, latency: float, ready: Array) -> None:
        entry = (self._now + float(latency), int(ready[0]), ready)
        heapq.heappush(self._arriving, entry)

    def _advance(self) -> Array:
        """Advance to the next time at which a flow begins or ends; returns the steps that end
        then."""
        end = numpy.inf
        if len(self._flowing):
            rates = self._rates()
            times = self._left / rates
            end = self._now + float(times.min())
        moment = min(end, self._arriving[0][0]) if self._arriving else end
        done = numpy.zeros(0, "int64")
        if len(self._flowing):
            passed = moment - self._now
            self._left = self._left - rates * passed
            # A flow that takes less than the clock's precision ends at this moment, too.
            over = times <= passed * (1 + _SAME) + numpy.spacing(moment) + 1e-15
            done, self._flowing = self._flowing[over], self._flowing[~over]
            self._left = self._left[~over]
        self._now = moment
        new = []
        while self._arriving and self._arriving[0][0] <= moment * (1 + 1e-12):
            new.append(heapq.heappop(self._arriving)[2])
        if new:
            self._flowing = numpy.concatenate([self._flowing, *new])
            self._left = numpy.concatenate([self._left, *(self._size[one] for one in new)])
        return done

    def _rates(self) -> Array:
        """The rates of the flows. Rings have the same ones round after round."""
        links = self._paths.links[self._flowing]
        if not numpy.array_equal(links, self._known[0]):
            self._known = links, fair_rates(links, self._capacity)
        return self._known[1]

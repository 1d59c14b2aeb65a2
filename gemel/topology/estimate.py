"""What a schedule costs, without simulating it.

Steps are put into rounds; a round takes the longest latency of its routes, then what its
busiest link has to carry. Rounds with the same messages are looked at once. So the estimate of a
ring is the closed form 2 (n - 1) (latency + bytes / n / bandwidth), and that of any schedule
a sum of that kind: Hockney's, with contention by counting (Thakur, Rabenseifner and Gropp, 2005).
It waits at the end of every round, which nothing else does, and links are full from
a round's first moment: so it may be too high or too low. docs/topology.md says by how much.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy
from numpy.typing import NDArray

from gemel.topology.routes import Routes
from gemel.topology.schedule import Schedule, rounds
from gemel.topology.simulator import check_bytes, paths_of

Array = NDArray[Any]


class Cost(NamedTuple):
    """What a tensor costs: seconds in all and seconds of latency, and the link most is spent on."""

    seconds: float
    latency: float
    busiest: str


class Estimate:
    """The price of one schedule on one topology, for any number of bytes."""

    def __init__(self, schedule: Schedule, routes: Routes) -> None:
        self.schedule = schedule
        self._topology = routes.topology
        paths, number = paths_of(schedule, routes), rounds(schedule)
        count, width = int(number.max(initial=-1)) + 1, len(routes.capacity)
        latency = numpy.zeros(count)
        numpy.maximum.at(latency, number, paths.latency)
        # Seconds of each link in each round: for the messages, and for each byte of the tensor.
        fixed, moving = numpy.zeros(count * width), numpy.zeros(count * width)
        for column in paths.links.T:
            place, speed = number * numpy.int64(width) + column, routes.capacity[column]
            fixed += numpy.bincount(place, paths.overhead * paths.width / speed, len(fixed))
            moving += numpy.bincount(place, schedule.sent() / speed, len(moving))
        shape = count, width
        table = numpy.column_stack([latency, fixed.reshape(shape), moving.reshape(shape)])
        _, first, times = numpy.unique(
            table.round(15), axis=0, return_index=True, return_counts=True
        )
        self._latency, self._fixed, self._moving = numpy.split(table[first], [1, 1 + width], axis=1)
        self._times = times
        self.rounds = count

    def seconds(self, nbytes: float) -> float:
        """How long the schedule takes for a tensor of `nbytes`."""
        return self.cost(nbytes).seconds

    def cost(self, nbytes: float) -> Cost:
        """How long it takes, and what that is spent on. Raises `TopologyError` for no size."""
        check_bytes(nbytes)
        if not nbytes or not self.rounds:
            return Cost(0.0, 0.0, "")
        carried = self._fixed + self._moving * nbytes
        longest = carried.max(axis=1) * self._times
        latency = float((self._latency[:, 0] * self._times).sum())
        link = int((carried * self._times[:, None]).sum(axis=0).argmax())
        return Cost(latency + float(longest.sum()), latency, self._named(link))

    def _named(self, link: int) -> str:
        found = self._topology.links[link // 2]
        ends = (found.one, found.other) if link % 2 == 0 else (found.other, found.one)
        return f"{ends[0]} -> {ends[1]} ({found.bandwidth:g} GB/s)"

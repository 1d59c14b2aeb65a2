"""What a schedule costs, without simulating it.

Steps are put into rounds; a round takes the longest latency of its routes, then what its
busiest link has to carry. Rounds with the same messages are looked at once. So the estimate of a
ring is the closed form 2 (n - 1) (latency + bytes / n / bandwidth), and that of any schedule
a sum of that kind: Hockney's, with contention by counting (Thakur, Rabenseifner and Gropp, 2005).
It waits at the end of every round, which nothing else does, and links are full from
a round's first moment: so it may be too high or too low. docs/topology.md says by how much.
"""

from __future__ import annotations

from typing import Any

import numpy
from numpy.typing import NDArray

from gemel.topology.routes import Routes
from gemel.topology.schedule import Schedule, rounds
from gemel.topology.simulator import paths_of

Array = NDArray[Any]


class Estimate:
    """The price of one schedule on one topology, for any number of bytes."""

    def __init__(self, schedule: Schedule, routes: Routes) -> None:
        self.schedule = schedule
        paths, number = paths_of(schedule, routes), rounds(schedule)
        count, width = int(number.max(initial=-1)) + 1, len(routes.capacity)
        sent = schedule.sent()
        latency = numpy.zeros(count)
        numpy.maximum.at(latency, number, paths.latency)
        # Seconds of each link in each round: those of messages, and those of each byte.
        fixed, moving = numpy.zeros(count * width), numpy.zeros(count * width)
        for column in paths.links.T:
            place = number * numpy.int64(width) + column
            speed = routes.capacity[column]
            fixed += numpy.bincount(place, paths.overhead * paths.width / speed, len(fixed))
            moving += numpy.bincount(place, sent / speed, len(moving))
        table = numpy.column_stack(
            [latency, fixed.reshape(count, width), moving.reshape(count, width)]
        )
        _, first, times = numpy.unique(
            numpy.round(table, 15), axis=0, return_index=True, return_counts=True
        )
        self._latency = latency[first]
        self._fixed = fixed.reshape(count, width)[first]
        self._moving = moving.reshape(count, width)[first]
        self._times = times
        self.rounds = count

    def seconds(self, nbytes: float) -> float:
        """How long the schedule takes for a tensor of `nbytes`."""
        if nbytes <= 0 or not self.rounds:
            return 0.0
        carried = (self._fixed + self._moving * nbytes).max(axis=1)
        return float(((self._latency + carried) * self._times).sum())

"""Measures what each all-reduce algorithm costs between these workers, for a few sizes.

All workers do this together when they join, before anything else is sent. It takes a fraction of a
second: rank 0 checks the clock and skips large sizes where the network is slow. The costs of other
sizes are interpolated, and extrapolated linearly.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from gemel.kvstore.ways import COURIER, Table

#: The sizes in bytes that are tried, and how often each, after a first run that is not counted.
SIZES = (4 << 10, 32 << 10, 256 << 10, 1 << 20, 4 << 20)
TIMES = 3
#: A way that is slower than the best by this factor is not tried with larger sizes.
HOPELESS = 8.0
#: What rank 0 decides about a size.
_LEAVE_OUT, _TRY, _STOP = range(3)


class Wire(Protocol):
    """The part of `wire.Wire` that measuring needs."""

    rank: int

    def gathered(self, row: Any) -> Any:
        """The rows of all workers."""

    def broadcast(self, row: Any) -> Any:
        """The row of rank 0."""

    def summed(self, row: Any, way: str, lengths: Sequence[int]) -> Any:
        """The sum of the rows of all workers."""


class Courier(Protocol):
    """The part of the courier that measuring needs."""

    def summed(self, row: Any) -> Any:
        """The sum of the rows of all workers."""

    def worked(self) -> float:
        """CPU seconds of its thread."""


class Carried:
    """A wire to which the courier, if there is one, is added as one more way; `names` lists all."""

    def __init__(self, wire: Wire, names: Sequence[str], courier: Courier | None) -> None:
        self.rank = wire.rank
        self.names = list(names) if courier is None else [COURIER, *names]
        self.gathered, self.broadcast = wire.gathered, wire.broadcast
        self._wire, self._courier = wire, courier

    def summed(self, row: Any, way: str, lengths: Sequence[int]) -> Any:
        """The sum of the rows of all workers."""
        if way == COURIER and self._courier is not None:
            return self._courier.summed(row)
        return self._wire.summed(row, way, lengths)

    def worked(self) -> float:
        """CPU seconds of this thread and the courier's."""
        return time.thread_time() + (0.0 if self._courier is None else self._courier.worked())


def measure(
    wire: Wire,
    names: Sequence[str],
    limit: float,
    clock: Callable[[], float] = time.perf_counter,
    worked: Callable[[], float] = time.thread_time,
) -> Table:
    """Measure the seconds of each way for a few sizes; returns the same table on all workers.

    A time is that of the slowest worker in the best of a few tries. The part that counts as waiting
    is this time minus the CPU time of the worker that used most. (The wait of one worker would be
    too little: one that comes late to a try finds all data there already.) `worked` returns the CPU
    seconds used so far. Measuring ends after about `limit` seconds; the first ways in the list are
    tried first.
    """
    import numpy

    begin = clock()
    found: dict[str, list[tuple[float, float]]] = {}
    waiting: dict[str, list[tuple[float, float]]] = {}
    for nbytes in SIZES:
        for name in names:
            say = _decision(found, name, nbytes, limit - (clock() - begin))
            say = int(wire.broadcast(numpy.array([say], "uint8"))[0])
            if say == _STOP:
                return Table(found, waiting)
            if say == _TRY:
                mine = _tries(wire, name, nbytes // 4, clock, worked)
                tries = wire.gathered(numpy.array(mine)).reshape(-1, 2, TIMES)
                seconds, work = (float(row.max(axis=0).min()) for row in tries.swapaxes(0, 1))
                found.setdefault(name, []).append((float(nbytes), seconds))
                waits = max(seconds - work, 0.0)
                waiting.setdefault(name, []).append((float(nbytes), waits))
    return Table(found, waiting)


def _decision(
    found: dict[str, list[tuple[float, float]]], name: str, nbytes: int, left: float
) -> int:
    """Rank 0's decision on a size: whether there is time left for it, and it is worth trying."""
    if left <= 0:
        return _STOP
    if nbytes == SIZES[0]:
        return _TRY
    size = float(SIZES[SIZES.index(nbytes) - 1])
    before = {other: dict(points).get(size) for other, points in found.items()}
    mine = before.get(name)
    if mine is None or mine > HOPELESS * min(s for s in before.values() if s is not None):
        return _LEAVE_OUT
    return _TRY if mine * nbytes / size * (TIMES + 1) <= left else _LEAVE_OUT


def _tries(
    wire: Wire,
    name: str,
    count: int,
    clock: Callable[[], float],
    worked: Callable[[], float],
) -> list[float]:
    """Return the times of this worker's tries, followed by the CPU seconds of each.

    A first run, which is not counted, sets up connections and memory.
    """
    import numpy

    times = []
    for _ in range(TIMES + 1):
        row = numpy.zeros(count, "float32")
        wire.gathered(numpy.zeros(1, "uint8"))  # begin together
        start, before = clock(), worked()
        wire.summed(row, name, [count])
        seconds, work = clock() - start, worked() - before
        times.append((seconds, work))
    return [*(seconds for seconds, _ in times[1:]), *(work for _, work in times[1:])]


__all__ = ["SIZES", "Carried", "measure"]

"""What the ways to add up cost between these workers: each is tried with a few sizes.

All workers do that together when they join, before anything else is sent. It is a matter of a
fraction of a second: rank 0 looks at the clock and says whether a size is tried, so that large
ones are left out where the wires are slow; beyond what was tried, straight lines go on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from gemel.kvstore.ways import Table

#: Bytes that are tried, and how often each way is, besides a first time that does not count.
SIZES = (4 << 10, 32 << 10, 256 << 10, 1 << 20, 4 << 20)
TIMES = 3
#: A way that took so many times as long as the best is not tried with larger sizes.
HOPELESS = 8.0
#: What rank 0 says of a size.
_LEAVE_OUT, _TRY, _STOP = range(3)


class Wire(Protocol):
    """What this needs of what connects the workers."""

    rank: int

    def gathered(self, row: Any) -> Any:
        """The rows of all workers."""

    def broadcast(self, row: Any) -> Any:
        """The row of rank 0."""

    def summed(self, row: Any, way: str, lengths: Sequence[int]) -> Any:
        """The sum of the rows of all workers."""


def measure(
    wire: Wire,
    names: Sequence[str],
    limit: float,
    clock: Callable[[], float] = time.perf_counter,
) -> Table:
    """Seconds of each way for a few sizes, in about `limit` seconds; the same table on all workers.

    A time is the slowest worker's, the best of a few; how much of it was waiting, that of the
    worker who has least to wait. Ways that are first in the list are tried first.
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
                mine = _best(wire, name, nbytes // 4, clock)
                rows = wire.gathered(numpy.array(mine))
                found.setdefault(name, []).append((float(nbytes), float(rows[:, 0].max())))
                waiting.setdefault(name, []).append((float(nbytes), float(rows[:, 1].min())))
    return Table(found, waiting)


def _decision(
    found: dict[str, list[tuple[float, float]]], name: str, nbytes: int, left: float
) -> int:
    """What rank 0 says: whether the time that is left allows it, and it may be worth it."""
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


def _best(wire: Wire, name: str, count: int, clock: Callable[[], float]) -> tuple[float, float]:
    """The shortest time this worker took, after a first that made connections and memory.

    And how much of it this thread left its core to others.
    """
    import numpy

    times = []
    for _ in range(TIMES + 1):
        row = numpy.zeros(count, "float32")
        wire.gathered(numpy.zeros(1, "uint8"))  # begin together
        start, worked = clock(), time.thread_time()
        wire.summed(row, name, [count])
        worked = time.thread_time() - worked
        times.append((clock() - start, worked))
    seconds, worked = min(times[1:])
    return seconds, max(seconds - worked, 0.0)


__all__ = ["SIZES", "measure"]

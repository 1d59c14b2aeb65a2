"""Polling MPI beside threads that compute.

A worker often has a single core. A blocking MPI call polls all the time and takes that core from
the backward pass. Rare polls leave the core alone, but notice messages late. So we poll a few times
at once, since messages from workers on the same machine arrive quickly, and then after growing
pauses.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

#: How many polls are made at once (other threads may run in between); the first and the longest
#: pause in seconds, the longest one while nothing else computes, and the factor by which pauses
#: grow.
AT_ONCE = 3
FIRST, LONGEST, ALONE, GROWTH = 2e-5, 5e-4, 4e-5, 1.5


def wait_until(
    done: Callable[[], object],
    pause: Callable[[float], object] = time.sleep,
    longest: float = LONGEST,
) -> None:
    """Call `done`, which makes progress, until it is true. Pauses grow up to `longest`.

    >>> left = [False, False, True]
    >>> wait_until(lambda: left.pop(0))
    >>> left
    []
    """
    for _ in range(AT_ONCE):
        if done():
            return
        pause(0)
    seconds = FIRST
    while not done():
        pause(seconds)
        seconds = min(GROWTH * seconds, longest)


class Scratch:
    """Reusable memory for rows in transit; touching fresh pages would cost as much as a copy."""

    def __init__(self) -> None:
        self._memory: Any = None

    def take(self, size: int) -> Any:
        """Return an array of uint8 with this many bytes: the same memory each time."""
        import numpy

        if self._memory is None or self._memory.size < size:
            self._memory = numpy.empty(size, "uint8")
        return self._memory[:size]


__all__ = ["ALONE", "LONGEST", "Scratch", "wait_until"]

"""Polling MPI beside threads that compute.

A worker often has one core. A blocking call of MPI polls all the time and takes that core from the
backward pass; polling rarely leaves it alone, but notices messages late. So we poll a few times at
once, since messages from workers on the same machine come quickly, then after growing pauses.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

#: Times that are asked at once, letting others run in between; seconds of the first and the longest
#: pause, and by how much they grow. The longest is another one where nobody computes meanwhile.
AT_ONCE = 3
FIRST, LONGEST, ALONE, GROWTH = 2e-5, 5e-4, 4e-5, 1.5


def wait_until(
    done: Callable[[], object],
    pause: Callable[[float], object] = time.sleep,
    longest: float = LONGEST,
) -> None:
    """Call `done`, which makes progress, until it is true. Pauses grow up to the `longest`.

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
    """Reusable memory for rows in transit: fresh pages would cost as much as a copy."""

    def __init__(self) -> None:
        self._memory: Any = None

    def take(self, size: int) -> Any:
        """This many bytes as an array of uint8: the same memory each time."""
        import numpy

        if self._memory is None or self._memory.size < size:
            self._memory = numpy.empty(size, "uint8")
        return self._memory[:size]


__all__ = ["ALONE", "LONGEST", "Scratch", "wait_until"]

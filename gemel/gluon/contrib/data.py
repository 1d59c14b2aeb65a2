"""Samplers that MXNet 1 has under `contrib`."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

from gemel.elsewhere import module_elsewhere
from gemel.errors import ShapeError
from gemel.gluon.data.sampler import Sampler


class IntervalSampler(Sampler):
    """0, interval, 2 * interval, ... below `length`; with `rollover` then 1, 1 + interval, ...

    >>> list(IntervalSampler(7, 3))
    [0, 3, 6, 1, 4, 2, 5]
    """

    def __init__(self, length: int, interval: int, rollover: bool = True) -> None:
        if not 0 < interval <= length:
            raise ShapeError(f"IntervalSampler: interval {interval} is not within length {length}")
        self._length, self._interval, self._rollover = length, interval, rollover

    def __iter__(self) -> Iterator[int]:
        for first in range(self._interval if self._rollover else 1):
            yield from range(first, self._length, self._interval)

    def __len__(self) -> int:
        """The number of all indices, with or without `rollover`, as in MXNet."""
        return self._length


__all__ = ["IntervalSampler"]


def __getattr__(name: str) -> ModuleType:
    return module_elsewhere(__name__, name, __all__)

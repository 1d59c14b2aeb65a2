"""Layouts: where the elements of a view lie."""

from __future__ import annotations

from typing import Any

from gemel.spec import product


class Layout:
    """Where the elements of a view lie: shape, strides and offset, in elements."""

    __slots__ = ("offset", "shape", "strides")

    def __init__(self, shape: Any, strides: Any, offset: int = 0) -> None:
        self.shape: tuple[int, ...] = tuple(shape)
        self.strides: tuple[int, ...] = tuple(strides)
        self.offset = offset

    @property
    def contiguous(self) -> bool:
        """Whether the elements lie in C order without gaps."""
        if product(self.shape) <= 1:
            return True
        dense = dense_strides(self.shape)
        pairs = zip(self.shape, self.strides, dense, strict=True)
        return all(n == 1 or a == b for n, a, b in pairs)


def dense_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of an array in C order, in elements."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    return tuple(strides)


def dense(shape: tuple[int, ...]) -> Layout:
    """The layout of an array in C order."""
    return Layout(shape, dense_strides(shape))

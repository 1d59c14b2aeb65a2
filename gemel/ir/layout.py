"""Layouts: shape, strides and offset of a view, all counted in elements.

The element (i, j) lies at offset + i * strides[0] + j * strides[1] of its block of memory. Extents
and strides may be free (`Dim`); methods that end in ``for_all`` answer for all of their values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gemel.extent import same_for_all, seen
from gemel.spec import product, same_shape


class MixedStride:
    """The stride of an axis that merges several axes of memory, so that it is not one number.

    x[:, :5].reshape(-1) of an array (4, 8) has an axis of 20 elements: 4 runs of 5, 8 apart. `axes`
    are the (extent, stride) of each merged axis, the outermost first: [(4, 8), (5, 1)]. Only the
    operands of matrix products may have such strides.
    """

    __slots__ = ("axes",)

    def __init__(self, axes: list[tuple[int, int]]) -> None:
        self.axes = axes


class Layout:
    """Where the elements of a view lie: shape, strides and offset, in elements."""

    __slots__ = ("offset", "shape", "strides")

    def __init__(self, shape: Any, strides: Any, offset: int = 0) -> None:
        self.shape: tuple[int, ...] = tuple(shape)
        self.strides: tuple[Any, ...] = tuple(strides)
        self.offset = offset

    def ordered(self, axes: Sequence[int]) -> Layout:
        """The layout with its axes in this order."""
        strides = (self.strides[axis] for axis in axes)
        return Layout((self.shape[axis] for axis in axes), strides, self.offset)

    def is_same_for_all(self, other: Layout) -> bool:
        """Whether a layout of this shape puts all elements in the same places, for all sizes."""
        pairs = zip(self.shape, self.strides, other.strides, strict=True)
        where = all(same_for_all(n, 1) or same_for_all(a, b) for n, a, b in pairs)
        return where and same_for_all(self.offset, other.offset)

    def in_runs(self, least: int) -> bool:
        """Whether at least `least` elements lie side by side everywhere, for the traced sizes."""
        *_, stride = (0, *self.strides)
        along = type(stride) is int and stride == 1 and seen(self.shape[-1]) >= least
        return along or self.contiguous

    @property
    def lies_across(self) -> bool:
        """Whether elements lie side by side along an axis, but not along the last one, as in a
        transposed array. Axes of one element do not count, and windows that overlap are no such
        arrays."""
        pairs = zip(self.shape, self.strides, strict=True)
        axes = [(n, s) for n, s in pairs if not (type(n) is int and n == 1)]
        if not axes or type(axes[-1][1]) is int and axes[-1][1] in (0, 1):
            return False
        lines = [n for n, s in axes if type(s) is int and s == 1]
        steps = [s for _, s in axes if type(s) is int and s > 1]
        return any(not any(type(n) is int and n > s for s in steps) for n in lines)

    @property
    def contiguous(self) -> bool:
        """Whether the elements lie in C order without gaps."""
        if product(self.shape) <= 1:
            return True
        dense = dense_strides(self.shape)
        pairs = zip(self.shape, self.strides, dense, strict=True)
        return all(n == 1 or a == b for n, a, b in pairs)

    @property
    def expanded(self) -> Layout:
        """The same elements, with each merged axis (`MixedStride`) as several axes."""
        axes: list[tuple[int, Any]] = []
        for extent, stride in zip(self.shape, self.strides, strict=True):
            axes += stride.axes if isinstance(stride, MixedStride) else [(extent, stride)]
        return Layout((n for n, _ in axes), (s for _, s in axes), self.offset)


def dense_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of an array in C order, in elements.

    An axis of length 0 counts as one of length 1: a stride of 0 would mean that its axis repeats.
    """
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        extent = shape[axis + 1]
        strides[axis] = strides[axis + 1] * (1 if type(extent) is int and extent == 0 else extent)
    return tuple(strides)


def broadcast_strides(
    shape: tuple[int, ...], strides: tuple[Any, ...], rank: int
) -> tuple[Any, ...]:
    """Strides that broadcast an array to `rank` axes; its own axes are the last ones."""
    own = (0 if n == 1 else stride for n, stride in zip(shape, strides, strict=True))
    return (*[0] * (rank - len(shape)), *own)


def dense(shape: tuple[int, ...]) -> Layout:
    """The layout of an array in C order."""
    return Layout(shape, dense_strides(shape))


def scattered(shape: tuple[int, ...]) -> Layout:
    """A layout whose axes cannot be merged, in any order and with any steps."""
    return Layout(shape, [10**12 + 10**6 * axis + 1 for axis in range(len(shape))])


def mixed_strides(layout: Layout, shape: tuple[int, ...]) -> tuple[Any, ...] | None:
    """The strides of a reshaped view, in which axes may merge several (`MixedStride`); or None."""
    old = [(n, s) for n, s in zip(layout.shape, layout.strides, strict=True) if n != 1]
    strides: list[Any] = []
    for extent in reversed(shape):
        axes: list[tuple[int, int]] = []
        filled = 1
        while not same_shape((filled,), (extent,)):
            if not old:
                return None
            length, stride = old.pop()
            missing = _missing(extent, filled, length)
            if missing:
                old.append((length // missing, stride * missing))
                length = missing
            filled *= length
            if axes and stride == axes[0][1] * axes[0][0]:
                length, stride = length * axes[0][0], axes.pop(0)[1]
            axes.insert(0, (length, stride))
        strides.insert(0, MixedStride(axes) if len(axes) > 1 else axes[0][1] if axes else 0)
    return None if old else tuple(strides)


def _missing(extent: int, filled: int, length: int) -> int:
    """The part of an axis of this length that completes `filled` to `extent`; 0 for all, or if none
    does."""
    if type(extent) is type(filled) is type(length) is int and filled * length > extent:
        missing = extent // filled
        return missing if missing * filled == extent and length % missing == 0 else 0
    return 0

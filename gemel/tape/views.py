"""Views of recorded arrays, expressed as operations.

In imperative code a view is only (shape, strides, offset) over its base's memory. To differentiate
through it, `window` finds operations that select the same elements: x[::2].T of a dense x is a
`basic_index` and a `transpose`. `Window.take` applies them, `Window.put` applies a write through
the view to the base.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import gcd
from typing import Any, NamedTuple

from gemel.errors import TraceError
from gemel.ir.layout import dense_strides
from gemel.ops.indexing import assign, basic_index
from gemel.ops.shape import broadcast_to, reshape, transpose
from gemel.spec import Spec, product

#: Applies an operation: (operation, inputs, parameters) -> its result.
Apply = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]
#: The elements of a block of memory that an array shows: its shape, strides and offset.
Region = tuple[tuple[int, ...], tuple[int, ...], int]


class Window(NamedTuple):
    """The operations that lead from an array of shape `whole` to a view; None if not needed.

    In order: transpose to the order of axes in memory (`memory`), reshape (`refined`), index
    (`key`), transpose to the view's order (`axes`), reshape to its shape with 1 for broadcast axes
    (`shape`), broadcast (`repeated`).
    """

    whole: tuple[int, ...]
    memory: tuple[int, ...] | None
    refined: tuple[int, ...] | None
    key: tuple[Any, ...] | None
    axes: tuple[int, ...] | None
    shape: tuple[int, ...] | None
    repeated: tuple[int, ...] | None

    def take(self, x: Any, apply: Apply) -> Any:
        """The view of x."""
        x = self._part(x, apply)
        if self.axes is not None:
            x = apply(transpose, (x,), {"axes": self.axes})
        if self.shape is not None:
            x = apply(reshape, (x,), {"shape": self.shape})
        if self.repeated is not None:
            x = apply(broadcast_to, (x,), {"shape": self.repeated})
        return x

    def _in_memory_order(self, x: Any, apply: Apply) -> Any:
        """x as the key indexes it: transposed to `memory` and reshaped to `refined`."""
        if self.memory is not None:
            x = apply(transpose, (x,), {"axes": self.memory})
        if self.refined is not None:
            x = apply(reshape, (x,), {"shape": self.refined})
        return x

    def _part(self, x: Any, apply: Apply) -> Any:
        x = self._in_memory_order(x, apply)
        return x if self.key is None else apply(basic_index, (x,), {"key": self.key})

    def put(self, x: Any, value: Any, core: tuple[int, ...], apply: Apply) -> Any:
        """x with `value` in place of the elements in the view; `core`: the shape before `shape`."""
        if self.shape is not None:
            value = apply(reshape, (value,), {"shape": core})
        if self.axes is not None:
            value = apply(transpose, (value,), {"axes": inverse(self.axes)})
        if self.key is not None:
            value = apply(assign, (self._in_memory_order(x, apply), value), {"key": self.key})
        lying = self.whole if self.memory is None else tuple(self.whole[a] for a in self.memory)
        if self.refined is not None:
            value = apply(reshape, (value,), {"shape": lying})
        if self.memory is not None:
            value = apply(transpose, (value,), {"axes": inverse(self.memory)})
        return value


def inverse(axes: tuple[int, ...]) -> tuple[int, ...]:
    """The inverse permutation of axes."""
    return tuple(sorted(range(len(axes)), key=axes.__getitem__))


def repeats(region: Region) -> bool:
    """Whether an array repeats elements: an axis longer than 1 has stride 0."""
    shape, strides, _ = region
    return 0 not in shape and any(n > 1 and s == 0 for n, s in zip(shape, strides, strict=True))


@lru_cache(4096)
def window(base: Region, view: Region) -> tuple[Window, tuple[int, ...]] | None:
    """The window from a base to a view, and the view's shape without axes of length 1.

    None if no single index selects these elements; they are then gathered by their positions.
    """
    if 0 in base[0]:  # an empty base: only the shape changes
        return Window(base[0], None, None, None, None, view[0], None), base[0]
    core = [(n, s) for n, s in zip(view[0], view[1], strict=True) if n != 1 and s != 0]
    if repeats(base) or any(s < 0 for n, s in zip(base[0], base[1], strict=True) if n != 1):
        return None
    found = _all(base, view, core) or _some(base, view, core)
    if found is None:
        return None
    memory, refined, key, order = found
    if memory is None and refined is None and key is not None:
        sliced = _sliced(base, view, key, order)
        if sliced is not None:
            return Window(base[0], None, None, sliced, None, None, None), view[0]
    shape = tuple(n for n, _ in core)
    single = tuple(1 if s == 0 else n for n, s in zip(view[0], view[1], strict=True))
    return (
        Window(
            base[0],
            memory,
            refined,
            key,
            None if order == tuple(range(len(order))) else order,
            None if single == shape else single,
            None if single == view[0] else view[0],
        ),
        shape,
    )


#: `memory`, `refined`, `key` and `axes` of a `Window`.
_Found = tuple[
    "tuple[int, ...] | None", "tuple[int, ...] | None", "tuple[Any, ...] | None", "tuple[int, ...]"
]


def descending(strides: Sequence[int]) -> tuple[int, ...]:
    """The order of axes in memory: those with the largest strides first."""
    return tuple(sorted(range(len(strides)), key=lambda axis: -strides[axis]))


def _all(base: Region, view: Region, core: list[tuple[int, int]]) -> _Found | None:
    """The operations for a view of all elements of a dense base: transposed, reshaped, or both."""
    sizes = [n for n, _ in core]
    if view[2] != base[2] or product(sizes) != product(base[0]):
        return None
    memory = descending(base[1])
    lying = tuple(base[0][axis] for axis in memory)
    order = descending([s for _, s in core])
    refined = tuple(sizes[axis] for axis in order)
    ordered = [core[axis][1] for axis in order]
    pairs = [(n, base[1][a]) for n, a in zip(lying, memory, strict=True) if n != 1]
    if tuple(ordered) != dense_strides(refined):
        return None
    if tuple(s for _, s in pairs) != dense_strides(tuple(n for n, _ in pairs)):
        return None
    return (
        None if memory == tuple(range(len(memory))) else memory,
        None if refined == lying else refined,
        None,
        inverse(order),
    )


def _some(base: Region, view: Region, core: list[tuple[int, int]]) -> _Found | None:
    """The operations for a view selected by integers and slices, with its axes in any order."""
    sizes, strides, offset = base
    found = _key(list(zip(sizes, strides, strict=True)), view[2] - offset, core)
    if found is not None:
        return None, None, *found
    memory = descending(strides)
    lying = tuple(sizes[axis] for axis in memory)
    own = [(sizes[axis], strides[axis]) for axis in memory if sizes[axis] != 1]
    if tuple(s for _, s in own) != dense_strides(tuple(n for n, _ in own)):
        return None
    digits = _divided(product(sizes), [abs(s) for _, s in core])
    found = _key(digits, view[2] - offset, core)
    if found is None:
        return None
    refined = tuple(n for n, _ in digits)
    transposed = None if memory == tuple(range(len(memory))) else memory
    return transposed, None if refined == lying else refined, *found


def _divided(size: int, steps: list[int]) -> list[tuple[int, int]]:
    """Axes, each an extent and a stride, that divide `size` elements in a row so that each of these
    steps is a multiple of one stride: heads of 64 in (8, 128, 768) are in (8, 128, 12, 64)."""
    strides = []
    outer = size
    for step in [*sorted(steps, reverse=True), 1]:
        if gcd(step, outer) < outer:
            strides.append(gcd(step, outer))
            outer = strides[-1]
    return [(n // s, s) for n, s in zip((size, *strides), strides, strict=False)]


def _key(
    axes: list[tuple[int, int]], offset: int, core: list[tuple[int, int]]
) -> tuple[tuple[Any, ...], tuple[int, ...]] | None:
    """An index for axes, each an extent and a stride, and the order of what it leaves."""
    starts = _digits(axes, offset)
    if starts is None:
        return None
    items: list[Any] = [("int", start) for start in starts]
    taken: list[int] = []
    for n, stride in core:
        fitting = [
            (s, axis)
            for axis, (m, s) in enumerate(axes)
            if m != 1 and axis not in taken and s <= abs(stride)
        ]
        if not fitting:
            return None
        step, axis = max(fitting)
        step, rest = divmod(stride, step)
        if rest or not 0 <= starts[axis] + step * (n - 1) < axes[axis][0]:
            return None
        items[axis] = ("slice", starts[axis], n, step)
        taken.append(axis)
    used = sorted(taken)
    return tuple(items), tuple(used.index(axis) for axis in taken)


def _sliced(
    base: Region, view: Region, key: tuple[Any, ...], order: tuple[int, ...]
) -> tuple[Any, ...] | None:
    """The key with slices in place of its integers, if that alone selects the view; else None.

    A key has integers where the base or the view has one element along an axis.
    """
    if len(base[0]) != len(view[0]):
        return None
    kept = [axis for axis, item in enumerate(key) if item[0] == "slice"]
    longer = [axis for axis, (n, s) in enumerate(zip(*view[:2], strict=True)) if n != 1 and s != 0]
    whole = all(view[0][axis] == 1 for axis in range(len(key)) if axis not in kept)
    if not whole or longer != kept or order != tuple(range(len(order))):
        return None
    return tuple([("slice", item[1], 1, 1) if item[0] == "int" else item for item in key])


def _digits(axes: list[tuple[int, int]], offset: int) -> list[int] | None:
    """The index of the element at an offset from the first; None if there is none."""
    starts = [0] * len(axes)
    for axis in descending([stride for _, stride in axes]):
        extent, stride = axes[axis]
        if extent != 1:
            starts[axis], offset = divmod(offset, stride)
            if starts[axis] >= extent:
                return None
    return None if offset else starts


def positions(base: Region, view: Region) -> Any:
    """The positions of a view's elements in the flattened base, as a NumPy array of its shape."""
    import numpy

    lying = _offsets(base).reshape(-1)
    order = numpy.argsort(lying)
    return order[numpy.searchsorted(lying, _offsets(view), sorter=order)]


def _offsets(region: Region) -> Any:
    import numpy

    shape, strides, offset = region
    found = numpy.full(shape, offset, "int64")
    for axis, stride in enumerate(strides):
        lined = [-1 if a == axis else 1 for a in range(len(shape))]
        found += (numpy.arange(shape[axis]) * stride).reshape(lined)
    return found


def span(array: Any) -> tuple[int, int, int]:
    """The storage of an array, and the begin and end of the bytes that the array uses."""
    if not array.size:
        return 0, 0, 0
    reach = [(n - 1) * step for n, step in zip(array.shape, array._element_strides, strict=True)]
    first = array.offset + sum(r for r in reach if r < 0)
    last = array.offset + sum(r for r in reach if r > 0) + 1
    return array._storage, first * array.itemsize, last * array.itemsize


def overlap(one: Any, other: Any) -> bool:
    """Whether two arrays of the same dtype have an element in common."""
    import numpy

    (storage, first, last), (there, begin, end) = span(one), span(other)
    if storage != there or last <= begin or end <= first:
        return False
    offsets = [_offsets((a.shape, a._element_strides, a.offset)) for a in (one, other)]
    return bool(numpy.isin(*offsets).any())


def check_apart(name: str, arrays: Sequence[Any], written: Sequence[int]) -> None:
    """Raises `TraceError` if an array that is written shares elements with another one."""
    spans = list(map(span, arrays))
    for position in written:
        storage, first, last = spans[position]
        for other, (there, begin, end) in enumerate(spans):
            if other != position and there == storage and begin < last and first < end:
                one, two = (Spec(a.shape, a.dtype) for a in (arrays[position], arrays[other]))
                raise TraceError(
                    f"{name}: {one}, which the function writes to, shares memory with {two}, "
                    "another of its inputs; pass or close over only one of them, and take views "
                    "inside the function"
                )


__all__ = [
    "Region",
    "Window",
    "check_apart",
    "descending",
    "inverse",
    "overlap",
    "positions",
    "repeats",
    "window",
]

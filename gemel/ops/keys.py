"""Basic keys: ints, slices, None and Ellipsis in a canonical form.

A canonical key has one item per axis of the input, and one per new axis: ("int", position),
("slice", start, length, step), ("new",).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from gemel.dtype import bool_
from gemel.errors import ArgumentError, ArrayIndexError, ShapeError
from gemel.extent import WHOLE, Dim, maximum, minimum, seen
from gemel.ir.current import current_trace
from gemel.ir.layout import Layout
from gemel.ops import elementwise
from gemel.ops.sections import check_span

#: The last position that int64 holds.
LARGEST = 2**63 - 1


def canonical(shape: tuple[int, ...], key: Any) -> tuple[Any, ...]:
    """A basic index as a canonical key. Raises `IndexError`, as NumPy does."""
    items = list(key) if isinstance(key, tuple) else [key]
    used = sum(1 for item in items if item is not None and item is not Ellipsis)
    if used > len(shape):
        raise ArrayIndexError(f"too many indices: {used} for an array of {len(shape)} dimensions")
    ellipses = sum(item is Ellipsis for item in items)
    if ellipses > 1:
        raise ArrayIndexError("an index can only have a single ellipsis ('...')")
    if not ellipses:
        items.append(Ellipsis)
    found: list[Any] = []
    axis = 0
    for item in items:
        if item is None:
            found.append(("new",))
        elif item is Ellipsis:
            rest = len(shape) - used
            found += [("slice", 0, shape[a], 1) for a in range(axis, axis + rest)]
            axis += rest
        else:
            found.append(_axis_item(item, shape[axis], axis))
            axis += 1
    return tuple(found)


def _axis_item(item: Any, extent: int, axis: int) -> tuple[Any, ...]:
    if isinstance(item, slice):
        return _slice(item, extent)
    position = _whole(item)
    if not -extent <= position < extent:
        raise ArrayIndexError(
            f"index {position} is out of bounds for axis {axis} with size {extent}"
        )
    return ("int", position + extent if position < 0 else position)


def _whole(value: Any) -> int:
    # __index__ of a free extent would fix it to the number seen while tracing.
    return value if isinstance(value, Dim) else value.__index__()


def _slice(item: slice, extent: int) -> tuple[Any, ...]:
    """A slice in canonical form, as `slice.indices`. Comparisons with a free extent set guards,
    unless the trace leaves the extents open."""
    step = 1 if item.step is None else _whole(item.step)
    if step == 0:
        raise ArgumentError("slice step cannot be zero")
    sizes = extent, item.start, item.stop
    trace = current_trace() if Dim in map(type, sizes) else None
    stays_open = trace is not None and trace.leaves_open(sizes)
    low, high = (0, extent) if step > 0 else (-1, extent - 1)

    def bound(value: Any, default: int) -> int:
        if value is None:
            return default
        place = _whole(value)
        if stays_open:
            return minimum(place, high) if place >= 0 else maximum(place + extent, low)
        if place >= 0:
            return high if place > high else place
        return low if place + extent < low else place + extent

    first, last = (low, high) if step > 0 else (high, low)
    start, stop = bound(item.start, first), bound(item.stop, last)
    span = stop - start if step > 0 else start - stop
    count = (span + abs(step) - 1) // abs(step)
    if stays_open:
        return ("slice", start, maximum(count, 0), step)
    return ("slice", start, count if span > 0 else 0, step)


def check_key(name: str, shape: tuple[int, ...], key: tuple[Any, ...]) -> None:
    """Raises `ShapeError` unless a canonical key stays within an array of this shape."""
    items = [item for item in key if item[0] != "new"]
    if len(items) != len(shape):
        raise ShapeError(f"{name}: the key {key} must name each axis of {list(shape)} exactly once")
    for axis, (item, extent) in enumerate(zip(items, shape, strict=True)):
        _, start, length, step = item if item[0] == "slice" else (*item, 1, 1)
        check_span(name, axis, extent, start, length, step)


def key_shape(key: tuple[Any, ...]) -> tuple[int, ...]:
    """The shape of the elements that a canonical key selects."""
    return tuple(1 if item[0] == "new" else item[2] for item in key if item[0] != "int")


def key_layout(layout: Layout, key: tuple[Any, ...]) -> Layout:
    """The layout of the elements that a canonical key selects."""
    shape, strides, offset, axis = [], [], layout.offset, 0
    for item in key:
        if item[0] == "new":
            shape.append(1)
            strides.append(0)
            continue
        stride = layout.strides[axis]
        offset += item[1] * stride
        if item[0] == "slice":
            shape.append(item[2])
            strides.append(item[3] * stride)
        axis += 1
    return Layout(shape, strides, offset)


def numpy_key(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """A canonical key as an index for NumPy."""
    return tuple(_numpy_item(item) for item in key)


def _numpy_item(item: tuple[Any, ...]) -> Any:
    if item[0] == "new":
        return None
    if item[0] == "int":
        return item[1]
    _, start, length, step = item
    stop = start + length * step
    return slice(start, None if stop < 0 else stop, step)


# --- parts of keys --------------------------------------------------------------------------


def is_basic(key: Any) -> bool:
    """Whether a key has only ints, slices, None and Ellipsis."""
    items = key if isinstance(key, tuple) else (key,)
    return all(
        item is None
        or item is Ellipsis
        or isinstance(item, (*WHOLE, slice))
        and not isinstance(item, bool)
        for item in items
    )


def is_mask(item: Any) -> bool:
    """Whether an index item is a boolean array, ours or NumPy's."""
    return getattr(item, "dtype", None) == bool_


def placed(items: Sequence[Any], ndim: int) -> list[tuple[Any, int]]:
    """Each item of an index with the axis it begins at. Raises `IndexError` for too many."""
    spans = [item.ndim if is_mask(item) else 1 for item in items]
    named = [
        0 if item is None or item is Ellipsis else n for item, n in zip(items, spans, strict=True)
    ]
    used = sum(named)
    if used > ndim:
        raise ArrayIndexError(f"too many indices: {used} for an array of {ndim} dimensions")
    found, axis = [], 0
    for item, span in zip(items, named, strict=True):
        found.append((item, axis))
        axis += ndim - used if item is Ellipsis else span
    return found


def check_masks(shape: tuple[int, ...], items: Sequence[Any]) -> None:
    """Raises `IndexError` unless every mask has the shape of the axes it selects from.

    An axis of a mask may also have length 0, as in NumPy and the Array API: it selects nothing.
    """
    for item, axis in placed(items, len(shape)):
        if not is_mask(item):
            continue
        pairs = zip(item.shape, shape[axis : axis + item.ndim], strict=True)
        if not all(type(m) is int and m == 0 or m == n for m, n in pairs):
            given = [seen(n) for n in shape]
            raise ArrayIndexError(
                f"a mask of shape {list(item.shape)} does not fit an array of shape {given} from "
                f"axis {axis} on; the shapes must be equal there"
            )


def is_array(item: Any) -> bool:
    """Whether an index item selects by an array of positions."""
    return item is not None and item is not Ellipsis and not isinstance(item, (*WHOLE, slice))


def adjacent(items: list[Any]) -> bool:
    """Whether arrays and ints (which NumPy treats as arrays here) follow one another."""
    found = [i for i, item in enumerate(items) if is_array(item) or isinstance(item, WHOLE)]
    return found == list(range(found[0], found[0] + len(found)))


class Parted(NamedTuple):
    """A key with arrays: all its items, those left if arrays are replaced by whole axes, the axes
    that the arrays then index, and the axis of the result from which on their common axes are."""

    items: list[Any]
    basic: tuple[Any, ...]
    axes: list[int]
    lead: int


def parted(items: Sequence[Any], ndim: int) -> Parted:
    """The parts of a key with arrays, for an array of so many dimensions."""
    whole = [*items] if any(item is Ellipsis for item in items) else [*items, Ellipsis]
    basic = tuple(slice(None) if is_array(item) else item for item in whole)
    axes = array_axes(whole, ndim)
    # As in NumPy: unless the arrays are adjacent, their axes come first in the result.
    return Parted(whole, basic, axes, axes[0] if adjacent(whole) else 0)


def array_axes(items: list[Any], ndim: int) -> list[int]:
    """The axes that arrays index, numbered as after the basic part is taken."""
    used = sum(1 for item in items if item is not None and item is not Ellipsis)
    axes, axis = [], 0
    for item in items:
        if is_array(item):
            axes.append(axis)
        if item is Ellipsis:
            axis += ndim - used
        elif not isinstance(item, WHOLE):
            axis += 1
    return axes


def no_index(item: Any) -> ArrayIndexError:
    """The error for an item that is no valid index."""
    return ArrayIndexError(
        f"index: {item!r} cannot index an array; use whole numbers, slices, ..., None, and "
        "arrays of integers or bools"
    )


def signed(indices: Any) -> Any:
    """Positions in int64, as the extent may exceed their own dtype. Unsigned ones too large for
    int64, which are out of range for any array, become the largest int64."""
    if indices.dtype == "uint64":
        indices = elementwise.minimum(indices, LARGEST)
    return elementwise.cast(indices, dtype="int64")


def wrapped(indices: Any, extent: int) -> Any:
    """Positions in int64, wrapped around where they are out of range."""
    if indices.dtype == "uint64":  # wrap before the cast, which large values would not survive
        return elementwise.cast(indices % extent, dtype="int64")
    return elementwise.cast(indices, dtype="int64") % extent

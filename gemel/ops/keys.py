"""Basic keys: ints, slices, None and Ellipsis in a canonical form.

A canonical key has one item per axis of the input, and one per new axis: ("int", position),
("slice", start, length, step), ("new",).
"""

from __future__ import annotations

from typing import Any

from gemel.extent import Dim
from gemel.ops.shape import Layout


def canonical(shape: tuple[int, ...], key: Any) -> tuple[Any, ...]:
    """A basic index as a canonical key. Raises `IndexError`, as NumPy does."""
    items = list(key) if isinstance(key, tuple) else [key]
    used = sum(1 for item in items if item is not None and item is not Ellipsis)
    if used > len(shape):
        raise IndexError(f"too many indices: {used} for an array of {len(shape)} dimensions")
    if not any(item is Ellipsis for item in items):
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
        if item == slice(None):
            return ("slice", 0, extent, 1)
        if isinstance(extent, Dim) and item.step is None:
            return _free_slice(item, extent)
        start, stop, step = item.indices(extent)
        return ("slice", start, len(range(start, stop, step)), step)
    position = item.__index__()
    if not -extent <= position < extent:
        raise IndexError(f"index {position} is out of bounds for axis {axis} with size {extent}")
    return ("int", position + extent if position < 0 else position)


def _free_slice(item: slice, extent: Dim) -> tuple[Any, ...]:
    """A slice along a free extent: the bounds must be on the same side for every extent."""
    start = item.start or 0
    stop = extent if item.stop is None else item.stop
    start = start + extent if start < 0 else start if start < extent else extent
    stop = stop + extent if stop < 0 else stop if stop <= extent else extent
    return ("slice", start, stop - start if stop > start else 0, 1)


def key_shape(key: tuple[Any, ...]) -> tuple[int, ...]:
    """The shape of what a canonical key selects."""
    return tuple(1 if item[0] == "new" else item[2] for item in key if item[0] != "int")


def key_layout(layout: Layout, key: tuple[Any, ...]) -> Layout:
    """Where the elements a canonical key selects lie."""
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
    """A canonical key as NumPy writes it."""
    return tuple(_numpy_item(item) for item in key)


def _numpy_item(item: tuple[Any, ...]) -> Any:
    if item[0] == "new":
        return None
    if item[0] == "int":
        return item[1]
    _, start, length, step = item
    stop = start + length * step
    return slice(start, None if stop < 0 else stop, step)

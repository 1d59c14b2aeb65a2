"""Operators that move elements: shapes, axes, parts."""

from __future__ import annotations

from typing import Any

from gemel import np
from gemel.errors import ShapeError
from gemel.extent import Dim, maximum, same_for_all
from gemel.onnx.read.known import Known, shape_of
from gemel.onnx.read.table import imports
from gemel.onnx.types import dtype_of
from gemel.spec import product

# --- shapes -----------------------------------------------------------------------------------


imports("Shape")(shape_of)


@imports("Size")
def _(node: Any, x: Any) -> Any:
    return Known([product(x.shape)], (), "int64")


@imports("Reshape", known=(1,))
def _(node: Any, x: Any, shape: Any = None) -> Any:
    wanted = node.numbers(shape, "shape")
    if not node.get("allowzero", 0):
        wanted = [x.shape[i] if type(n) is int and n == 0 else n for i, n in enumerate(wanted)]
    return np.reshape(x, tuple(wanted))


@imports("Flatten")
def _(node: Any, x: Any) -> Any:
    axis = node.get("axis", 1)
    place = axis + x.ndim if axis < 0 else axis
    return np.reshape(x, (product(x.shape[:place]), product(x.shape[place:])))


@imports("Squeeze", known=(1,))
def _(node: Any, x: Any, axes: Any = None) -> Any:
    found = node.numbers(axes, "axes")
    return np.squeeze(x) if found is None else np.squeeze(x, tuple(found)) if found else x


@imports("Unsqueeze", known=(1,))
def _(node: Any, x: Any, axes: Any = None) -> Any:
    return np.expand_dims(x, tuple(node.numbers(axes, "axes")))


@imports("Expand", known=(1,))
def _(node: Any, x: Any, shape: Any) -> Any:
    wanted = node.numbers(shape)
    lead = len(wanted) - x.ndim
    own = [1] * lead + list(x.shape) if lead > 0 else list(x.shape)
    wanted = [1] * -lead + wanted if lead < 0 else wanted
    pairs = zip(own, wanted, strict=True)
    return np.broadcast_to(x, tuple(n if type(m) is int and m == 1 else m for n, m in pairs))


@imports("Transpose")
def _(node: Any, x: Any) -> Any:
    return np.transpose(x, node.get("perm"))


@imports("Concat")
def _(node: Any, *parts: Any) -> Any:
    return np.concatenate(parts, axis=node.get("axis", 0))


@imports("Split", known=(1,))
def _(node: Any, x: Any, split: Any = None) -> Any:
    axis, lengths = node.get("axis", 0) % x.ndim, node.numbers(split, "split")
    if lengths is None:
        count, extent = node.get("num_outputs", len(node.outputs)), x.shape[axis]
        if not extent % count == 0:
            each = -(-extent // count)
            lengths = [each] * (count - 1) + [extent - each * (count - 1)]
        else:
            lengths = [extent // count] * count
    if not product([1, *[1] * len(lengths)]) or len(lengths) == 1:
        return (x,)
    cuts, total = [], 0
    for length in lengths:
        total = total + length
        cuts.append(total)
    if not cuts[-1] == x.shape[axis]:
        raise ShapeError(f"parts {lengths} are not the {x.shape[axis]} elements of axis {axis}")
    return tuple(np.split(x, cuts[:-1], axis=axis))


@imports("Slice", known=(1, 2, 3, 4))
def _(
    node: Any, x: Any, starts: Any = None, ends: Any = None, axes: Any = None, steps: Any = None
) -> Any:
    first, last = node.numbers(starts, "starts"), node.numbers(ends, "ends")
    places = node.numbers(axes, "axes")
    by = node.numbers(steps)
    places = list(range(len(first))) if places is None else places
    key: list[Any] = [slice(None)] * x.ndim
    for axis, start, end, step in zip(places, first, last, by or [1] * len(first), strict=True):
        key[axis] = slice(start, end, step)
    return x[tuple(_within(part, n) for part, n in zip(key, x.shape, strict=True))]


def _within(part: slice, extent: Any) -> slice:
    """Convert a slice from ONNX's form, where a number far beyond the axis means its end on that
    side."""
    start, stop, far = part.start, part.stop, 2**31 - 1
    forwards = (part.step or 1) > 0
    ahead = far if forwards else -far  # in the direction of the step
    if type(stop) is int and abs(stop) >= far:
        stop = None if (stop > 0) == forwards else -ahead
    if isinstance(stop, Dim) and same_for_all(stop, extent):
        stop = None
    if type(start) is int and abs(start) >= far:
        start = ahead if (start > 0) == forwards else None
    if type(start) is int and start < 0 and not forwards:
        start = maximum(start, -extent)  # unlike NumPy's: before the axis means its first element
    if start == 0 and type(start) is int and forwards:
        start = None
    return slice(start, stop, part.step)


@imports("Tile", known=(1,))
def _(node: Any, x: Any, repeats: Any) -> Any:
    return np.tile(x, tuple(node.numbers(repeats)))


@imports("Pad", known=(1, 2, 3))
def _(node: Any, x: Any, pads: Any = None, value: Any = None, axes: Any = None) -> Any:
    widths = node.numbers(pads, "pads")
    widths = node.get("paddings") if widths is None else widths
    places = range(x.ndim) if axes is None else [axis % x.ndim for axis in node.numbers(axes)]
    count = len(widths) // 2
    sides = [(0, 0)] * x.ndim
    for place, axis in enumerate(places):
        sides[axis] = widths[place], widths[place + count]
    x, sides = _cropped(x, sides)
    mode = node.get("mode", "constant")
    if mode != "constant":
        return np.pad(x, sides, mode={"edge": "edge", "reflect": "reflect", "wrap": "wrap"}[mode])
    number = node.number(value, "value", 0)
    return np.pad(x, sides, constant_values=number)


def _cropped(x: Any, sides: list[Any]) -> tuple[Any, list[Any]]:
    """Crop x by the negative widths; returns it with the other widths."""
    if not any(type(n) is int and n < 0 for side in sides for n in side):
        return x, sides
    key = tuple(
        slice(max(-before, 0), n + min(after, 0))
        for n, (before, after) in zip(x.shape, sides, strict=True)
    )
    return x[key], [(max(before, 0), max(after, 0)) for before, after in sides]


@imports("Trilu", known=(1,))
def _(node: Any, x: Any, k: Any = None) -> Any:
    function = np.triu if node.get("upper", 1) else np.tril
    return function(x, node.number(k, default=0))


@imports("DepthToSpace")
def _(node: Any, x: Any) -> Any:
    size, (n, c, h, w) = node.get("blocksize"), x.shape
    rest = c // (size * size)
    if node.get("mode", "DCR") == "DCR":
        apart = np.reshape(x, (n, size, size, rest, h, w))
        turned = np.transpose(apart, (0, 3, 4, 1, 5, 2))
    else:
        apart = np.reshape(x, (n, rest, size, size, h, w))
        turned = np.transpose(apart, (0, 1, 4, 2, 5, 3))
    return np.reshape(turned, (n, rest, h * size, w * size))


@imports("SpaceToDepth")
def _(node: Any, x: Any) -> Any:
    size, (n, c, h, w) = node.get("blocksize"), x.shape
    apart = np.reshape(x, (n, c, h // size, size, w // size, size))
    order = (0, 3, 5, 1, 2, 4) if node.get("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    turned = np.transpose(apart, order)
    return np.reshape(turned, (n, c * size * size, h // size, w // size))


@imports("ReverseSequence")
def _(node: Any, x: Any, lengths: Any) -> Any:
    time, batch = node.get("time_axis", 0), node.get("batch_axis", 1)
    moved = np.moveaxis(x, (time, batch), (0, 1))
    count, rest = moved.shape[0], (1,) * (x.ndim - 1)
    places = np.reshape(np.arange(count, dtype="int64"), (count, *rest))
    until = np.reshape(lengths.astype("int64"), (1, -1, *rest[1:]))
    back = np.where(places < until, until - 1 - places, places)
    found = np.take_along_axis(moved, np.broadcast_to(back, moved.shape), 0)
    return np.moveaxis(found, (0, 1), (time, batch))


# --- made from nothing ------------------------------------------------------------------------


@imports("Constant")
def _(node: Any) -> Any:
    for name, dtype in (("value_float", "float32"), ("value_int", "int64")):
        if name in node.attributes:
            return Known([node.get(name)], (), dtype)
    for name, dtype in (("value_floats", "float32"), ("value_ints", "int64")):
        if name in node.attributes:
            return Known(node.get(name), (len(node.get(name)),), dtype)
    if "value" not in node.attributes:
        raise node.refuse(f"a constant of {', '.join(node.attributes)} is no array of numbers")
    return node.get("value")


@imports("ConstantOfShape", known=(0,))
def _(node: Any, shape: Any) -> Any:
    value = node.get("value")
    number, dtype = (0.0, "float32") if value is None else (value.item(), value.dtype)
    return np.full(tuple(node.numbers(shape)), number, dtype=dtype)


@imports("Range", known=(0, 1, 2))
def _(node: Any, start: Any, limit: Any, delta: Any) -> Any:
    first, last, step = (node.number(x) for x in (start, limit, delta))
    dtype = node.known(start).dtype
    if dtype.is_floating or not isinstance(last, Dim):
        return np.arange(first, last, step, dtype=dtype)
    count = last - first if step == 1 else -(-(last - first) // step)
    return np.arange(count, dtype=dtype) * step + first


@imports("EyeLike")
def _(node: Any, x: Any) -> Any:
    code = node.get("dtype")
    dtype = x.dtype if code is None else dtype_of(code, node.where)
    rows, columns = x.shape
    return np.eye(rows, columns, k=node.get("k", 0), dtype=dtype)


@imports("OneHot", known=(1, 2))
def _(node: Any, indices: Any, depth: Any, values: Any) -> Any:
    axis, count = node.get("axis", -1), int(node.number(depth))
    dtype = node.known(values).dtype
    off, on = node.numbers(values)
    places = indices.astype("int64")
    places = np.where(places < 0, places + count, places)
    chosen = np.expand_dims(places, -1) == np.arange(count, dtype="int64")
    found = np.where(chosen, np.array(on, dtype=dtype), np.array(off, dtype=dtype))
    return found if axis == -1 else np.moveaxis(found, -1, axis)

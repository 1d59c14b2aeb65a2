"""Picking one element of each row, as losses pick the score of a class."""

from __future__ import annotations

from typing import Any

from gemel.dtype import int64, uint64
from gemel.errors import ArrayIndexError, ShapeError, unknown_name
from gemel.ir.declare import op
from gemel.ir.public import Array
from gemel.ir.reference import numpy
from gemel.ops.elementwise import iota, limit, where
from gemel.ops.indexing import out_of_range, some_place
from gemel.ops.keys import LARGEST, signed, wrapped
from gemel.ops.shape import expand_dims, operand, reshape
from gemel.spec import Spec, normalize_axis


@op(public="npx", mxnet="_npx_pick", moves=1)
def pick(x: Any, index: Any, *, axis: int = -1, keepdims: bool = False) -> Any:
    """From each row along an axis, the element at that row's index (clipped to the range)."""
    np = numpy()
    index = np.minimum(index, np.uint64(LARGEST)) if index.dtype == "uint64" else index
    place = np.clip(np.expand_dims(index.astype("int64"), axis), 0, x.shape[axis] - 1)
    found = np.take_along_axis(x, place, axis)
    return found if keepdims else np.squeeze(found, axis)


@pick.facade
def _(data: Any, index: Any, axis: int = -1, mode: str = "clip", keepdims: bool = False) -> Array:
    """From each row along an axis, the element at that row's index.

    By `mode` an index out of range is the nearest ("clip"), one counted on from the other end
    ("wrap"), or an `IndexError`, raised when the result is waited for ("raise"). The index may have
    extent 1 along the axis.
    """
    if mode not in ("clip", "wrap", "raise"):
        raise unknown_name("mode of pick", mode, ("clip", "wrap", "raise"))
    data, index = operand(data), operand(index)
    place = normalize_axis("pick", axis, len(data.shape))
    if len(index.shape) == len(data.shape) and index.shape[place] == 1:
        index = reshape(index, shape=(*index.shape[:place], *index.shape[place + 1 :]))
    if mode == "wrap":
        index = wrapped(index, data.shape[place])
    chosen = pick_inside if mode == "raise" else pick
    return chosen(data, index, axis=axis, keepdims=keepdims)


@op(fails=True, mxnet="_npx_pick", moves=1)
def pick_inside(x: Any, index: Any, *, axis: int, keepdims: bool) -> Any:
    """`pick` that raises `IndexError` for an index below 0 or past the end."""
    np = numpy()
    place = np.expand_dims(index.astype("int64"), axis)
    if place.size and not 0 <= place.min() <= place.max() < x.shape[axis]:
        raise ArrayIndexError(f"pick: an index is out of bounds for axis {axis} of {x.shape}")
    found = np.take_along_axis(x, place, axis)
    return found if keepdims else np.squeeze(found, axis)


@pick_inside.spec
@pick.spec
def _(x: Spec, index: Spec, *, axis: int, keepdims: bool) -> Spec:
    place = normalize_axis("pick", axis, x.ndim)
    some_place("pick", x.shape, place, index)
    rows = (*x.shape[:place], *x.shape[place + 1 :])
    given = tuple(index.shape)
    same = len(rows) == len(given) and all(m == n for m, n in zip(rows, given, strict=True))
    if not same:
        raise ShapeError(f"pick: index {index} must have the shape of x {x} without axis {place}")
    return Spec((*x.shape[:place], 1, *x.shape[place + 1 :]) if keepdims else rows, x.dtype)


@pick.gradient
def _(g: Any, y: Any, x: Any, index: Any, *, axis: int, keepdims: bool) -> Any:
    return _put_back(g, x, index, axis, keepdims), None


@pick_inside.gradient
def _(g: Any, y: Any, x: Any, index: Any, *, axis: int, keepdims: bool) -> Any:
    # What reads y fails if y has; otherwise a network would learn the nearest class.
    return _put_back(where(y == y, g, g), x, index, axis, keepdims), None


def _put_back(g: Any, x: Any, index: Any, axis: int, keepdims: bool) -> Any:
    """Zeros like x, with g at each row's index (clipped)."""
    place = normalize_axis("pick", axis, x.ndim)
    extent = x.shape[place]
    chosen = expand_dims(limit(signed(index), 0, extent - 1), place)
    lanes = iota(shape=(extent, *[1] * (x.ndim - place - 1)), axis=0, dtype="int64")
    return where(chosen == lanes, g if keepdims else expand_dims(g, place), 0)


@pick.element
def _(loop: Any, at: Any, x: Any, index: Any, *, axis: int, keepdims: bool) -> Any:
    place = axis % len(x.shape)
    rows = (*at[:place], *at[place + keepdims :])
    position = loop.limited(index.at(*rows), x.shape[place])
    return x.at(*rows[:place], position, *rows[place:])


@pick_inside.element
def _(loop: Any, at: Any, x: Any, index: Any, *, axis: int, keepdims: bool) -> Any:
    place = axis % len(x.shape)
    rows = (*at[:place], *at[place + keepdims :])
    loop.failure = out_of_range("pick", (place, x.shape[place]))
    # As unsigned numbers, negative positions are out of range instead of counting from the end.
    position = loop.cast(loop.cast(index.at(*rows), int64), uint64)
    return x.at(*rows[:place], loop.checked(position, x.shape[place]), *rows[place:])

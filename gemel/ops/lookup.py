"""Embedding rows, elements at several positions at once, and slices shaped like another array."""

from __future__ import annotations

from typing import Any

from gemel.device import beside_arrays
from gemel.errors import DTypeError, ShapeError
from gemel.ir.above import above
from gemel.ir.public import Array, function, spelled
from gemel.ops.assignment import written
from gemel.ops.elementwise import add, cast, floor_divide, full, iota, multiply, where
from gemel.ops.elementwise import copy as materialized
from gemel.ops.indexing import gather
from gemel.ops.points import points, points_added
from gemel.ops.random import required
from gemel.ops.selection import take_along_axis
from gemel.ops.shape import broadcast_to, expand_dims, listed, operand, reshape
from gemel.ranges import counted
from gemel.spec import normalize_axes, normalize_axis, product


@function(public="npx")
def embedding(
    data: Any,
    weight: Any,
    input_dim: int | None = None,
    output_dim: int | None = None,
    dtype: Any = None,
    sparse_grad: bool = False,
) -> Array:
    """Look up rows of weight (input_dim, output_dim) by the indices in data: (...) to (...,
    output_dim).

    data may be floating, as MXNet's often is. An index out of range, including -1, is an
    `IndexError`, raised when the result is waited for. Gradients are dense, whatever `sparse_grad`
    says.

    >>> npx.embedding(np.array([1, 0, 1]), np.array([[1.0, 2.0], [3.0, 4.0]]))
    """
    data, weight = operand(data), operand(weight)
    shape = tuple(weight.shape)
    given = (input_dim, output_dim)
    if len(shape) != 2 or any(
        m is not None and not m == n for m, n in zip(given, shape, strict=False)
    ):
        raise ShapeError(f"embedding: weight {list(shape)} must be ({input_dim}, {output_dim})")
    if dtype is not None:
        weight = cast(weight, dtype=dtype)
    wide = data.dtype.name in ("int32", "int64") or data.dtype.kind in "ub"
    numbers = data if wide else cast(data, dtype="int64")
    if data.dtype.kind not in "ub":  # negative numbers are out of range, not counted from the end
        numbers = where(numbers < 0, -(2**31), numbers)
    return gather(weight, numbers, axis=0)


def _rows(name: str, x: Any, indices: Any) -> list[Any]:
    """The rows of indices (m, ...), one for each of the first m axes of x.

    Floating indices are accepted, because MXNet programs often have them.
    """
    count = int(indices.shape[0]) if len(indices.shape) else 0
    if not 0 < count <= len(x.shape):
        raise ShapeError(
            f"{name}: indices {list(indices.shape)} must have one row for each of the leading "
            f"axes of {list(x.shape)}"
        )
    if indices.dtype.kind == "b":
        raise DTypeError(f"{name}: indices must be whole numbers, not bools; use data[mask]")
    return [indices[axis] for axis in range(count)]


@function(public="npx")
def gather_nd(data: Any, indices: Any) -> Array:
    """data[indices[0], indices[1], ...]: indices (m, ...) say where along each of the first m axes.

    A position out of range is an `IndexError`, raised when the result is waited for.

    >>> npx.gather_nd(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[0, 1], [1, 0]]))
    """
    data, indices = operand(data), operand(indices)
    items = _rows("gather_nd", data, indices)
    return points(data, *items, axis=0, named=tuple(range(len(items))), caller="gather_nd")


@function(public="npx")
@spelled(a="data", ind="indices")
def index_add(data: Any, indices: Any, val: Any) -> Array:
    """Add val to data at `indices` (m, n), as in `gather_nd`; values at equal positions are summed.

    >>> npx.index_add(np.zeros((2, 2)), np.array([[0, 0], [1, 1]]), np.array([1.0, 2.0]))
    """
    data, indices = operand(data), operand(indices)
    items = _rows("index_add", data, indices)
    val = cast(above.as_array(val, (data,)), dtype=data.dtype)
    val = broadcast_to(val, shape=(*indices.shape[1:], *data.shape[len(items) :]))
    named = {"axis": 0, "named": tuple(range(len(items))), "caller": "index_add"}
    return add(data, points_added(val, *items, shape=data.shape, **named))


@function(public="npx")
@spelled(a="data", ind="indices")
def index_update(data: Any, indices: Any, val: Any) -> Array:
    """Set data to val at `indices` (m, n), as in `gather_nd`; at equal positions the last value
    wins.

    >>> npx.index_update(np.zeros((2, 2)), np.array([[0, 1], [1, 1]]), np.array([1.0, 2.0]))
    """
    data, indices = operand(data), operand(indices)
    items = [cast(row, dtype="int64") for row in _rows("index_update", data, indices)]
    return written(data, items, operand(val, (data,)))


@function(public="npx")
@beside_arrays
def arange_like(
    data: Any, start: float = 0.0, step: float = 1.0, repeat: int = 1, axis: int | None = None
) -> Array:
    """start, start + step, ..., each `repeat` times: in the shape of data, or along one axis of it.

    >>> npx.arange_like(np.zeros((2, 3)), axis=1)
    """
    data, repeat = operand(data), counted("arange_like", "repeat", repeat)
    place = None if axis is None else normalize_axis("arange_like", axis, len(data.shape))
    size = product(data.shape) if place is None else data.shape[place]
    number = iota(shape=(size,), axis=0, dtype="int64")
    number = floor_divide(number, repeat) if repeat != 1 else number
    found = add(multiply(cast(number, dtype=data.dtype.floating), step), start)
    return found if place is not None else reshape(found, shape=data.shape)


@function(public="npx")
def reshape_like(
    lhs: Any,
    rhs: Any,
    lhs_begin: int | None = None,
    lhs_end: int | None = None,
    rhs_begin: int | None = None,
    rhs_end: int | None = None,
) -> Array:
    """lhs in the shape of rhs; or some axes of lhs (from begin to before end) in those of rhs.

    >>> npx.reshape_like(np.arange(4), np.zeros((2, 2)))
    """
    lhs, rhs = operand(lhs), operand(rhs)
    first, last, _ = slice(lhs_begin, lhs_end).indices(len(lhs.shape))
    middle = tuple(rhs.shape)[rhs_begin:rhs_end]
    return reshape(lhs, shape=(*lhs.shape[:first], *middle, *lhs.shape[max(first, last) :]))


@function(public="npx")
def batch_flatten(data: Any) -> Array:
    """(batch, ...) to (batch, all elements of an example)."""
    data = operand(data)
    if not data.shape:
        raise ShapeError(
            "batch_flatten: a number is not a batch; the array must have at least one axis"
        )
    return reshape(data, shape=(data.shape[0], product(data.shape[1:])))


@function(public="npx")
def scatter_nd(data: Any, indices: Any, shape: Any) -> Array:
    """Zeros with data added at `indices` (m, ...), as in `gather_nd`; values at equal positions are
    summed.

    >>> npx.scatter_nd(np.array([2.0, 3.0]), np.array([[0, 1], [1, 0]]), (2, 2))
    """
    data = operand(data)
    return index_add(full(0, shape=listed(shape), dtype=data.dtype), operand(indices), data)


@function(public="npx")
def batch_take(a: Any, indices: Any) -> Array:
    """From each row of a (n, m), the element at that row's index, which must be in range.

    >>> npx.batch_take(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([1, 0]))
    """
    a, indices = operand(a), cast(operand(indices), dtype="int64")
    return take_along_axis(a, expand_dims(indices, -1), axis=1)[..., 0]


@function(public="npx")
def index_copy(old_tensor: Any, index_vector: Any, new_tensor: Any) -> Array:
    """Replace the rows of old_tensor at index_vector by those of new_tensor.

    >>> npx.index_copy(np.zeros((3, 2)), np.array([2, 0]), np.ones((2, 2)))
    """
    return index_update(old_tensor, expand_dims(operand(index_vector), 0), new_tensor)


@function(public="npx")
def broadcast_like(lhs: Any, rhs: Any, lhs_axes: Any = None, rhs_axes: Any = None) -> Array:
    """lhs broadcast to the shape of rhs; or some axes of lhs to the extents of some of rhs.

    >>> npx.broadcast_like(np.array([[1.0, 2.0]]), np.zeros((2, 2)))
    """
    lhs, rhs = operand(lhs), operand(rhs)
    if lhs_axes is None or rhs_axes is None:
        return materialized(broadcast_to(lhs, shape=tuple(rhs.shape)))
    shape = list(lhs.shape)
    pairs = listed(lhs_axes), listed(rhs_axes)
    if len(pairs[0]) != len(pairs[1]):
        raise ShapeError(
            f"broadcast_like: lhs_axes {pairs[0]} and rhs_axes {pairs[1]} must have the same length"
        )
    for mine, other in zip(*pairs, strict=True):
        place = normalize_axis("broadcast_like", mine, len(shape))
        shape[place] = rhs.shape[normalize_axis("broadcast_like", other, len(rhs.shape))]
    return materialized(broadcast_to(lhs, shape=tuple(shape)))


@function(public="npx")
def slice_axis(data: Any, axis: int, begin: int, end: int | None) -> Array:
    """data from begin to before end along an axis.

    >>> npx.slice_axis(np.arange(6).reshape(2, 3), axis=1, begin=0, end=2)
    """
    data = operand(data)
    place = normalize_axis("slice_axis", axis, len(data.shape))
    return data[(slice(None),) * place + (slice(begin, end),)]


@function(public="npx")
def slice_like(data: Any, shape_like: Any, axes: Any = ()) -> Array:
    """The first elements of data along all axes, or some, as many as shape_like has.

    >>> npx.slice_like(np.arange(6).reshape(2, 3), np.zeros((1, 2)))
    """
    data, shape_like = operand(data), operand(shape_like)
    ndim = len(data.shape)
    if not listed(axes) and ndim != len(shape_like.shape):
        raise ShapeError(f"slice_like: {list(data.shape)} and {list(shape_like.shape)}: give axes")
    chosen = set(normalize_axes("slice_like", listed(axes) or None, ndim))
    if any(axis >= len(shape_like.shape) for axis in chosen) or any(
        shape_like.shape[axis] > data.shape[axis] for axis in chosen
    ):
        raise ShapeError(f"slice_like: {list(data.shape)} is smaller than {list(shape_like.shape)}")
    stops = (shape_like.shape[axis] if axis in chosen else None for axis in range(ndim))
    return data[tuple(slice(stop) for stop in stops)]


@function(public="npx")
def constraint_check(data: Any, msg: str = "Constraint violated.") -> Array:
    """True if all elements of a bool array are true; else a `ValueError` with this message, raised
    when the result is waited for.

    >>> npx.constraint_check(np.array([True, True]), "it must be so")
    """
    data = operand(data)
    if data.dtype.kind != "b":
        raise DTypeError(f"constraint_check: {data.dtype} must be bool")
    holds = data.all()
    return required(holds, holds, message=msg)


__all__ = [
    "arange_like",
    "batch_flatten",
    "batch_take",
    "broadcast_like",
    "constraint_check",
    "embedding",
    "gather_nd",
    "index_add",
    "index_copy",
    "index_update",
    "reshape_like",
    "scatter_nd",
    "slice_axis",
    "slice_like",
]

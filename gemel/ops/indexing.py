"""Indexing: basic keys give views, integer arrays gather elements."""

from __future__ import annotations

from typing import Any

from gemel.dtype import as_dtype
from gemel.errors import (
    ArgumentError,
    ArrayIndexError,
    IndexDTypeError,
    ShapeError,
    unknown_name,
)
from gemel.extent import WHOLE
from gemel.ir.above import above
from gemel.ir.declare import op
from gemel.ir.keywords import into
from gemel.ir.layout import Layout
from gemel.ir.public import Array, function
from gemel.ir.reference import numpy
from gemel.ir.rules import Emitter
from gemel.ops.elementwise import copy as materialized
from gemel.ops.elementwise import full, limit, where
from gemel.ops.keys import (
    canonical,
    check_key,
    key_layout,
    key_shape,
    numpy_key,
    signed,
    wrapped,
)
from gemel.ops.shape import check_axis, operand, reshape
from gemel.spec import Spec, extents, normalize_axis, same_shape, same_shape_for_all

# --- basic keys -----------------------------------------------------------------------------


@op(onnx="Slice", mxnet="_npx_slice")
def basic_index(x: Any, *, key: Any) -> Any:
    """The elements that a canonical basic key selects, as a view."""
    return x[numpy_key(key)]


@basic_index.spec
def _(x: Spec, *, key: Any) -> Spec:
    check_key("basic_index", x.shape, key)
    return Spec(key_shape(key), x.dtype)


@basic_index.view
def _(layout: Layout, result: Spec, *, key: Any) -> Layout:
    return key_layout(layout, key)


@basic_index.gradient
def _(g: Any, y: Any, x: Any, *, key: Any) -> Any:
    return (place(g, key=key, shape=x.shape),)


@op()
def place(x: Any, *, key: Any, shape: Any) -> Any:
    """Zeros of the given shape with x where the canonical key selects."""
    result = numpy().zeros(shape, x.dtype)
    result[numpy_key(key)] = x
    return result


@place.spec
def _(x: Spec, *, key: Any, shape: Any) -> Spec:
    check_key("place", extents("place", shape), key)
    if not same_shape(x.shape, key_shape(key)):
        raise ShapeError(
            f"place: {x} does not have the shape that {key} selects, {list(key_shape(key))}"
        )
    return Spec(shape, x.dtype)


@place.holomorphic
def _(g: Any, y: Any, x: Any, *, key: Any, shape: Any) -> Any:
    return (basic_index(g, key=key),)


@place.pieces
def _(layout: Layout, x: Spec, *, key: Any, shape: Any) -> tuple[tuple[Layout, Any], ...]:
    return (layout, 0.0), (key_layout(layout, key), 0)


@op(moves=-1)
def assign(x: Any, value: Any, *, key: Any) -> Any:
    """x with `value` where the canonical key selects: an in-place write, as a function."""
    result = numpy().array(x)
    result[numpy_key(key)] = value
    return result


@assign.spec
def _(x: Spec, value: Spec, *, key: Any) -> Spec:
    check_key("assign", x.shape, key)
    target = Spec(key_shape(key), x.dtype)
    lead = target.ndim - value.ndim
    pairs = zip(value.shape, target.shape[max(lead, 0) :], strict=False)
    if lead < 0 or not all(m == n or m == 1 for m, n in pairs):
        raise ShapeError(f"assign: {value} does not broadcast to the selected {target} of {x}")
    return Spec(x.shape, x.dtype)


@assign.gradient
def _(g: Any, y: Any, x: Any, value: Any, *, key: Any) -> Any:
    selected = basic_index(g, key=key)
    if _selects_all(x.shape, key):
        # None instead of zeros: earlier gradients could turn zeros into NaN, as in 0 * inf.
        return None, selected
    zeros = full(0, shape=selected.shape, dtype=g.dtype)
    return assign(g, zeros, key=key), selected


def _selects_all(shape: tuple[int, ...], key: tuple[Any, ...]) -> bool:
    """Whether a canonical key selects every element of such an array, whatever the sizes."""
    counts = [item[2] if item[0] == "slice" else 1 for item in key if item[0] != "new"]
    return same_shape_for_all(shape, counts)


@assign.pieces
def _(layout: Layout, x: Spec, value: Spec, *, key: Any) -> tuple[tuple[Layout, int], ...]:
    return (layout, 0), (key_layout(layout, key), 1)


@basic_index.put
def _(x: Any, value: Any, index: int, *, key: Any) -> Any:
    return assign(x, value, key=key)


# --- integer arrays -------------------------------------------------------------------------


def integer_indices(name: str, indices: Spec) -> None:
    """Raises `IndexDTypeError` unless the positions are integers."""
    if indices.dtype.kind not in "iu":
        raise IndexDTypeError(f"{name}: indices {indices} must be integers; use astype('int64')")


def some_place(name: str, shape: tuple[int, ...], axis: int, indices: Spec) -> None:
    """Raises `IndexError` if there are positions but the axis is empty."""
    check_axis(name, axis, len(shape))
    if type(shape[axis]) is int and shape[axis] == 0 and 0 not in indices.shape:
        raise ArrayIndexError(f"{name}: {indices} index an empty axis of {list(shape)}")


@op(fails=True, onnx="Gather", mxnet="_npi_take", moves=1)
def gather(x: Any, indices: Any, *, axis: int) -> Any:
    """The slices of x at these positions along an axis; negative ones count from the end.

    A position out of range is an `IndexError`, raised when the result is waited for.
    """
    return numpy().take(x, indices, axis=axis)


@op(onnx="Gather", mxnet="_npi_take", moves=1)
def gather_inside(x: Any, indices: Any, *, axis: int) -> Any:
    """`gather` at positions from 0 that exist, which need no checks."""
    return numpy().take(x, indices, axis=axis, mode="clip")


@gather_inside.spec
@gather.spec
def _(x: Spec, indices: Spec, *, axis: int) -> Spec:
    integer_indices("take", indices)
    some_place("take", x.shape, axis, indices)
    return Spec((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]), x.dtype)


@gather_inside.gradient
@gather.gradient
def _(g: Any, y: Any, x: Any, indices: Any, *, axis: int) -> Any:
    return scatter(g, indices, axis=axis, shape=x.shape), None


@gather.element
def _(loop: Any, at: Any, x: Any, indices: Any, *, axis: int) -> Any:
    after = axis + len(indices.shape)
    loop.failure = out_of_range("take", (axis, x.shape[axis]))
    position = loop.checked(indices.at(*at[axis:after]), x.shape[axis])
    return x.at(*at[:axis], position, *at[after:])


@gather_inside.element
def _(loop: Any, at: Any, x: Any, indices: Any, *, axis: int) -> Any:
    after = axis + len(indices.shape)
    position = loop.limited(indices.at(*at[axis:after]), x.shape[axis])
    return x.at(*at[:axis], position, *at[after:])


def out_of_range(name: str, *axes: tuple[int, int]) -> tuple[Any, ...]:
    """The failure that a position out of range causes along one of some axes, each with its size.

    The kernel does not say along which of them.
    """
    places = " or ".join(f"axis {axis} with size {{}}" for axis, _ in axes)
    sizes = (size for _, size in axes)
    return "IndexError", f"{name}: an index is out of bounds for {places}", *sizes


@op(fails=True)
def scatter(g: Any, indices: Any, *, axis: int, shape: Any) -> Any:
    """Zeros of the given shape with the slices of g added at these positions along an axis.

    Sums are accumulated as `sum` does: float16 in float32. The sum of bools is whether any is true.
    """
    np = numpy()
    result = np.zeros(shape, as_dtype(g.dtype).accumulate.name)
    lead = np.moveaxis(result, axis, 0)
    slices = np.moveaxis(g, range(axis, axis + indices.ndim), range(indices.ndim))
    np.add.at(lead, indices, slices)
    return result.astype(g.dtype)


@scatter.spec
def _(g: Spec, indices: Spec, *, axis: int, shape: Any) -> Spec:
    integer_indices("scatter", indices)
    some_place("scatter", extents("scatter", shape), axis, indices)
    slices = (*shape[:axis], *indices.shape, *shape[axis + 1 :])
    if not same_shape(g.shape, slices):
        raise ShapeError(
            f"scatter: {g} must have the shape {list(slices)} of the slices that {indices} "
            f"select along axis {axis} of {list(shape)}"
        )
    return Spec(shape, g.dtype)


@scatter.holomorphic
def _(g: Any, y: Any, x: Any, indices: Any, *, axis: int, shape: Any) -> Any:
    return gather(g, indices, axis=axis), None


@scatter.lower
def _(emit: Emitter, outputs: Any, inputs: Any, *, axis: int, shape: Any) -> None:
    (result,), (g, indices) = outputs, inputs
    wide = result.dtype.accumulate
    total = result if wide is result.dtype else emit.temporary(wide, result.shape)
    emit.fill(total, 0)
    lead, middle = axis, len(indices.shape)
    # Not in parallel and not in vectors: two slices may be added to the same place.
    failure = out_of_range("take", (axis, shape[axis]))
    loop = emit.loop(g.shape, failure=failure, parallel=False)
    rest = len(g.shape) - lead - middle
    target = loop.target(total, (*total.strides[:lead], *[0] * middle, *total.strides[axis + 1 :]))
    position = loop.load(indices, (*[0] * lead, *indices.strides, *[0] * rest))
    position = loop.checked(position, total.shape[axis])
    loop.scatter_add(target, position, loop.cast(loop.load(g), total.dtype), total.strides[axis])
    loop.finish()
    if total is not result:
        emit.copy(total, result)


@function(public="np", method=True)
def take(a: Any, indices: Any, axis: Any = None, mode: str = "raise", out: Any = None) -> Array:
    """Select the elements at these positions along an axis, or of the flattened array.

    `mode` is ``"raise"``, ``"clip"`` or ``"wrap"`` for positions out of range. Along an empty axis
    there are none in range: positions raise `IndexError`, unless they are clipped or wrapped and
    the result is empty.
    """
    found = _taken(operand(a), indices, axis, mode)
    return found if out is None else into("take", out, found)


def _taken(x: Any, indices: Any, axis: Any, mode: str) -> Any:
    indices = above.index_item(indices, x)
    if axis is None:
        x, axis = (x if x.ndim == 1 else reshape(x, shape=(-1,))), 0
    else:
        axis = normalize_axis("take", axis, x.ndim)
    if isinstance(indices, WHOLE):
        if mode == "raise":
            key = canonical(x.shape, (slice(None),) * axis + (indices,))
            return materialized(basic_index(x, key=key))
        indices = full(indices, shape=(), dtype="int64")
    if mode != "raise":
        indices = _within(indices, x.shape[axis], mode)
        before, after = x.shape[:axis], x.shape[axis + 1 :]
        if 0 in (*before, *after):  # nothing is selected, so the axis may be empty, too
            return reshape(x, shape=(*before, *indices.shape, *after))
        return gather_inside(x, indices, axis=axis)
    return gather(x, indices, axis=axis)


def _within(indices: Any, extent: int, mode: str) -> Any:
    if mode == "clip":
        return limit(signed(indices), 0, extent - 1)
    if mode == "wrap":
        return wrapped(indices, extent)
    raise unknown_name("mode", mode, ("raise", "clip", "wrap"))


@op(dynamic=True, public="np", method=True, mxnet="_npx_nonzero", complex=True)
def nonzero(x: Any) -> Any:
    """The positions of elements that are not zero, one int64 array per axis.

    Its shape depends on values: the call waits for x, and it cannot be part of a trace.
    """
    return numpy().nonzero(x)


@nonzero.facade
def _(a: Any) -> tuple[Any, ...]:
    """The positions of elements that are not zero, one int64 array per axis. Waits for it."""
    found = nonzero(a)
    return found if isinstance(found, tuple) else (found,)


@where.facade
def _(condition: Any, x: Any = None, y: Any = None) -> Array:
    """x where the condition holds, else y; with one argument, `nonzero(condition)`."""
    if x is not None and y is not None:
        return where(condition, x, y)
    if x is not None or y is not None:
        raise ArgumentError("where: x and y must both be given, or neither of them")
    found = nonzero(condition)
    return found if isinstance(found, tuple) else (found,)


@op(dynamic=True, mxnet="_npi_boolean_mask", moves=1)
def boolean_index(x: Any, mask: Any) -> Any:
    """The elements of x where the mask is true. It waits for both, so it cannot be traced."""
    return x[mask]

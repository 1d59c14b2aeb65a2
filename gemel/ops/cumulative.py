"""Running sums and products along an axis."""

from __future__ import annotations

from typing import Any

from gemel.device import beside_arrays
from gemel.errors import ShapeError
from gemel.ir.declare import composite, op
from gemel.ir.interpret import spec_of
from gemel.ir.keywords import into
from gemel.ir.public import Array, function
from gemel.ir.reference import numpy
from gemel.ir.rules import Emitter
from gemel.ops.elementwise import cast, full, iota, multiply, where
from gemel.ops.logic import equal, logical_and
from gemel.ops.reduction import in_dtype, products_before, sum
from gemel.ops.shape import concatenate, expand_dims, operand, reshape, swapaxes
from gemel.spec import Spec, normalize_axis


@op(public="np", onnx="CumSum", mxnet="_npi_cumsum")
def cumsum(x: Any, *, axis: int) -> Any:
    """The cumulative sum along an axis."""
    return _running(numpy().cumsum, x, axis)


@op(public="np")
def cumprod(x: Any, *, axis: int) -> Any:
    """The cumulative product along an axis."""
    return _running(numpy().cumprod, x, axis)


def _running(function: Any, x: Any, axis: int) -> Any:
    """NumPy's running `function`, accumulated in the dtype in which `sum` accumulates."""
    dtype = sum.result_dtype(spec_of(x).dtype)
    return function(x, axis=axis, dtype=dtype.accumulate.name).astype(dtype.name)


@cumsum.spec
def _(x: Spec, *, axis: int) -> Spec:
    normalize_axis("cumsum", axis, x.ndim)
    return Spec(x.shape, sum.result_dtype(x.dtype))


@cumprod.spec
def _(x: Spec, *, axis: int) -> Spec:
    normalize_axis("cumprod", axis, x.ndim)
    return Spec(x.shape, sum.result_dtype(x.dtype))


@cumsum.lower
def _(emit: Emitter, outputs: Any, inputs: Any, *, axis: int) -> None:
    scan(emit, outputs, inputs, axis, "sum")


@cumprod.lower
def _(emit: Emitter, outputs: Any, inputs: Any, *, axis: int) -> None:
    scan(emit, outputs, inputs, axis, "prod")


def scan(emit: Emitter, outputs: Any, inputs: Any, axis: int, kind: str, wide: Any = None) -> None:
    """Write one loop that carries the result so far, in the dtype `wide` or the one in which `sum`
    accumulates; `kind` is a kind of reduction."""
    (result,), (x,) = outputs, inputs
    if result.shape[axis] == 1 or any(type(n) is int and n == 0 for n in result.shape):
        emit.copy(x, result)
        return
    x = emit.contiguous(x) if x.layout.lies_across else x  # one order of loops for both
    wide = wide or result.dtype.accumulate
    loop = emit.loop(result.shape, reduced=frozenset({axis % len(result.shape)}))
    loop.store(result, loop.scan(kind, loop.load(x).cast(wide)))
    loop.finish()


@function(method=True)
@cumsum.facade
def _(a: Any, axis: int | None = None, dtype: Any = None, out: Any = None) -> Array:
    """The sums of all elements up to each one, along an axis or of the flattened array.

    Integers and bools are summed in int64; `dtype` says otherwise.
    """
    return into("cumsum", out, along(cumsum, a, axis, dtype))


@function(method=True)
@cumprod.facade
def _(a: Any, axis: int | None = None, dtype: Any = None, out: Any = None) -> Array:
    """The products of all elements up to each one, along an axis or of the flattened array.

    Integers and bools are multiplied in int64; `dtype` says otherwise.
    """
    return into("cumprod", out, along(cumprod, a, axis, dtype))


def along(operation: Any, x: Any, axis: int | None, dtype: Any) -> Any:
    """A running operation along an axis or the flattened array, in a dtype."""
    x = in_dtype(operand(x), dtype)
    if axis is None or (not x.ndim and axis in (0, -1)):  # NumPy allows both for 0-d arrays
        x, axis = reshape(x, shape=(-1,)), 0
    return in_dtype(operation(x, axis=axis), dtype)


def backwards(x: Any, axis: int) -> Any:
    """x from its end to its beginning along an axis."""
    lead = normalize_axis("backwards", axis, x.ndim)
    return x[(slice(None),) * lead + (slice(None, None, -1),)]


def _sum_of_later(g: Any, axis: int) -> Any:
    """For each element, the sum of it and all later ones."""
    return backwards(cumsum(backwards(g, axis), axis=axis), axis)


@cumsum.holomorphic
def _(g: Any, y: Any, x: Any, *, axis: int) -> Any:
    return (_sum_of_later(g, axis),)


@cumprod.holomorphic
def _(g: Any, y: Any, x: Any, *, axis: int) -> Any:
    return (cumprod_backward(g, y, x, axis=axis),)


@composite()
def cumprod_backward(g: Any, y: Any, x: Any, *, axis: int) -> Any:
    """The gradient of `cumprod` for the gradient g of its result y: g, y and x have one shape.

    It is an operation, because the gradient of its body is wrong where an element of x is 0.
    """
    # Up to the first zero, the derivative of each product with respect to an element is the product
    # divided by that element. For the first zero it is the product of the other elements; for the
    # elements after it, it is 0.
    zero = equal(x, 0)
    zeros = cumsum(cast(zero, dtype="int64"), axis=axis)
    first = logical_and(zero, equal(zeros, 1))
    others = cumprod(where(first, 1, x), axis=axis)
    along_zero = _sum_of_later(multiply(g, others), axis)
    before = _sum_of_later(multiply(g, y), axis) / where(zero, 1, x)
    return where(equal(zeros, 0), before, where(first, along_zero, 0))


@cumprod_backward.spec
def _(g: Spec, y: Spec, x: Spec, *, axis: int) -> Spec:
    return x


@cumprod_backward.gradient
def _(h: Any, _: Any, g: Any, y: Any, x: Any, *, axis: int) -> Any:
    # Without divisions, so gradients of any order are right at zeros. y depends on x, so all of its
    # share is in the gradient of x.
    h, g, x = (swapaxes(each, axis, -1) for each in (h, g, x))
    between, later = _products_between(x)
    head = products_before(x)
    reached = multiply(h, head)
    earlier = _sum_where(later, expand_dims(reached, -1) * between, -2)
    follow = g + _sum_where(later, expand_dims(multiply(g, x), -2) * between, -1)
    beyond = _sum_where(later, expand_dims(multiply(h, follow), -2) * between, -1)
    of_g, of_x = reached + x * earlier, follow * earlier + head * beyond
    return swapaxes(of_g, axis, -1), None, swapaxes(of_x, axis, -1)


def _products_between(rows: Any) -> tuple[Any, Any]:
    """For elements i and j of a row, the product of those between them, and whether j is later.

    The product is 1 if j is not later. From (..., n) to (..., n, n) and (n, n).
    """
    n = rows.shape[-1]
    place, other = (iota(shape=(n, n), axis=axis, dtype="int64") for axis in (0, 1))
    previous = concatenate(rows[..., -1:], rows[..., :-1], axis=-1)
    factors = where(other > place + 1, expand_dims(previous, -2), 1)
    return cumprod(factors, axis=rows.ndim), other > place


def _sum_where(mask: Any, x: Any, axis: int) -> Any:
    return sum(where(mask, x, 0), axis=axis)


def _cumulative(name: str, start: int, x: Any, axis: Any, dtype: Any, initial: bool) -> Any:
    x = operand(x)
    x = x if x.ndim else reshape(x, shape=(1,))
    if axis is None:
        if x.ndim != 1:
            raise ShapeError(
                f"{name}: {x.ndim} dimensions: give axis, unless the array has one dimension"
            )
        axis = 0
    found = along(cumsum if start == 0 else cumprod, x, axis, dtype)
    if not initial:
        return found
    axis = normalize_axis(name, axis, x.ndim)
    shape = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
    return concatenate(full(start, shape=shape, dtype=found.dtype), found, axis=axis)


@function(public="np")
@beside_arrays
def cumulative_sum(
    x: Any,
    *,
    axis: int | None = None,
    dtype: Any = None,
    out: Any = None,
    include_initial: bool = False,
) -> Array:
    """`cumsum` along an axis, which is optional only for 1-d arrays; starts with 0 if
    `include_initial`."""
    found = _cumulative("cumulative_sum", 0, x, axis, dtype, include_initial)
    return into("cumulative_sum", out, found)


@function(public="np")
@beside_arrays
def cumulative_prod(
    x: Any,
    *,
    axis: int | None = None,
    dtype: Any = None,
    out: Any = None,
    include_initial: bool = False,
) -> Array:
    """`cumprod` along an axis, which is optional only for 1-d arrays; starts with 1 if
    `include_initial`."""
    found = _cumulative("cumulative_prod", 1, x, axis, dtype, include_initial)
    return into("cumulative_prod", out, found)

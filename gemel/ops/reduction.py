"""Operations that combine elements along axes."""

from __future__ import annotations

import builtins
from typing import Any

from gemel.dtype import as_dtype, float32, float64
from gemel.errors import DTypeError
from gemel.ir.declare import composite, reduction
from gemel.ir.keywords import REDUCTION
from gemel.ir.methods import call
from gemel.ir.public import Array
from gemel.ir.reference import numpy
from gemel.ops.elementwise import (
    add,
    cast,
    divide,
    iota,
    square,
    where,
)
from gemel.ops.extremes import Extreme
from gemel.ops.logic import equal
from gemel.ops.shape import broadcast_to, concatenate, operand, reshape, transpose
from gemel.spec import (
    Spec,
    is_several,
    normalize_axes,
    normalize_axis,
    product,
)


def kept(shape: tuple[int, ...], axis: Any, name: str = "sum") -> tuple[int, ...]:
    """The shape after a reduction that keeps its axes with length 1."""
    axes = normalize_axes(name, axis, len(shape))
    return tuple(1 if i in axes else n for i, n in enumerate(shape))


def spread(g: Any, x: Any, axis: Any) -> Any:
    """A reduction's gradient, repeated along the reduced axes."""
    return broadcast_to(reshape(g, shape=kept(x.shape, axis)), shape=x.shape)


def in_dtype(x: Any, dtype: Any) -> Any:
    """x converted to a dtype; x itself if it has that dtype already, or the dtype is None."""
    if dtype is None:
        return x
    x, dtype = operand(x), as_dtype(dtype)
    return x if x.dtype is dtype else cast(x, dtype=dtype)


@reduction(combine="sum", public="np", method=True, onnx="ReduceSum", mxnet="_npi_sum")
def sum(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
    """Sum over the given axes, or all. Integers and bools are summed in int64."""
    x = numpy().asarray(x)
    dtype = as_dtype(x.dtype)
    found = numpy().sum(x, axis=axis, keepdims=keepdims, dtype=dtype.accumulate.name)
    return found.astype(sum.result_dtype(dtype).name)


@sum.extended
def _(x: Any, /, axis: Any = None, dtype: Any = None, *, keepdims: bool = False) -> Array:
    """Sum over the given axes, or all. Integers and bools are summed in int64.

    With `dtype` the elements are converted first, and the result has that dtype.
    """
    found = sum(in_dtype(x, dtype), axis=axis, keepdims=keepdims)
    return in_dtype(found, dtype)


@sum.holomorphic
def _(g: Any, y: Any, x: Any, *, axis: Any, keepdims: bool) -> Any:
    return (spread(g, x, axis),)


@reduction(
    combine="prod",
    public="np",
    aliases=("product",),
    method=True,
    onnx="ReduceProd",
    mxnet="_npi_prod",
)
def prod(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
    """Product over the given axes, or all. Integers and bools are multiplied in int64."""
    x = numpy().asarray(x)
    dtype = as_dtype(x.dtype)
    found = numpy().prod(x, axis=axis, keepdims=keepdims, dtype=dtype.accumulate.name)
    return found.astype(prod.result_dtype(dtype).name)


@prod.extended
def _(x: Any, /, axis: Any = None, dtype: Any = None, *, keepdims: bool = False) -> Array:
    """Product over the given axes, or all. Integers and bools are multiplied in int64.

    With `dtype` the elements are converted first, and the result has that dtype.
    """
    found = prod(in_dtype(x, dtype), axis=axis, keepdims=keepdims)
    return in_dtype(found, dtype)


@prod.holomorphic
def _(g: Any, y: Any, x: Any, *, axis: Any, keepdims: bool) -> Any:
    return (prod_backward(g, x, axis=axis),)


@composite()
def prod_backward(g: Any, x: Any, *, axis: Any) -> Any:
    """The gradient of `prod` over some axes of x, for the gradient g of its result.

    Written as the product of those before an element and of those after it, which has right
    gradients where elements are 0.
    """
    axes = normalize_axes("prod", axis, x.ndim)
    order = (*(i for i in range(x.ndim) if i not in axes), *axes)
    turned = transpose(widened(x), axes=order)
    lead = x.ndim - len(axes)
    rows = reshape(turned, shape=(*turned.shape[:lead], product(turned.shape[lead:])))
    others = products_before(rows) * products_before(rows[..., ::-1])[..., ::-1]
    back = tuple(order.index(i) for i in range(x.ndim))
    placed = transpose(reshape(others, shape=turned.shape), axes=back)
    return cast(widened(spread(g, x, axis)) * placed, dtype=x.dtype)


@prod_backward.spec
def _(g: Spec, x: Spec, *, axis: Any) -> Spec:
    if not x.dtype.is_floating:
        raise DTypeError(f"prod_backward: {x} must be floating; use astype('float32')")
    return x


@prod_backward.planned
def _(g: Any, x: Any, *, axis: Any) -> Any:
    # The product divided by the element. Running products would overflow before it does, and go
    # through long rows one element after the other.
    zero = equal(x, 0)
    others = prod(where(zero, 1, x), axis=axis, keepdims=True)
    zeros = sum(cast(zero, dtype=x.dtype), axis=axis, keepdims=True)
    alone = where(zeros == 0, others / where(zero, 1, x), where((zeros == 1) & zero, others, 0))
    return spread(g, x, axis) * alone


def products_before(rows: Any) -> Any:
    """For each element of a row, the product of those before it."""
    first = equal(iota(shape=rows.shape[-1:], axis=0, dtype="int64"), 0)
    shifted = concatenate(rows[..., -1:], rows[..., :-1], axis=-1)
    return call("cumprod", where(first, 1, shifted), axis=rows.ndim - 1)


@reduction(
    combine="max",
    public="np",
    aliases=("amax",),
    method=True,
    onnx="ReduceMax",
    mxnet="_npi_max",
)
def max(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
    """Largest element over the given axes, or all; NaN wins."""
    return numpy().max(x, axis=axis, keepdims=keepdims)


@reduction(
    combine="min",
    public="np",
    aliases=("amin",),
    method=True,
    onnx="ReduceMin",
    mxnet="_npi_min",
)
def min(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
    """Smallest element over the given axes, or all; NaN wins."""
    return numpy().min(x, axis=axis, keepdims=keepdims)


@max.gradient
@min.gradient
def _(g: Any, y: Any, x: Any, *, axis: Any, keepdims: bool) -> Any:
    # Tied extremes share the gradient equally.
    tied = cast(x == reshape(y, shape=kept(x.shape, axis)), dtype=x.dtype)
    return (spread(g, x, axis) * tied / sum(tied, axis=axis, keepdims=True),)


@reduction(
    combine="any", public="np", aliases=("sometrue",), method=True, mxnet="_npi_any", complex=True
)
def any(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
    """Whether any element is true (not zero)."""
    return numpy().any(x, axis=axis, keepdims=keepdims)


@reduction(
    combine="all", public="np", aliases=("alltrue",), method=True, mxnet="_npi_all", complex=True
)
def all(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
    """Whether all elements are true (not zero)."""
    return numpy().all(x, axis=axis, keepdims=keepdims)


@reduction(
    combine=Extreme(largest=True), public="np", method=True, onnx="ArgMax", mxnet="_npi_argmax"
)
def argmax(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
    """Position of the largest element (the first of equals; NaN is largest), int64."""
    return numpy().argmax(x, axis=axis, keepdims=keepdims)


@reduction(
    combine=Extreme(largest=False), public="np", method=True, onnx="ArgMin", mxnet="_npi_argmin"
)
def argmin(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
    """Position of the smallest element (the first of equals; NaN is smallest), int64."""
    return numpy().argmin(x, axis=axis, keepdims=keepdims)


def count(x: Any, axis: Any, name: str) -> int:
    """How many elements each result of a reduction combines."""
    return product(x.shape[a] for a in counted(name, axis, x))


def counted(name: str, axis: Any, x: Any) -> tuple[int, ...]:
    """The axes whose elements are counted. A 0-d array has none, although `sum` accepts axis 0 for
    it, as in NumPy. Raises `AxisError`."""
    ndim = builtins.len(x.shape)
    if axis is not None and not ndim:
        for each in axis if is_several(axis) else (axis,):
            normalize_axis(name, each, ndim)
    return normalize_axes(name, axis, ndim)


def floating(x: Any) -> Any:
    """x, converted to float32 if its dtype is not floating."""
    x = operand(x)
    return in_dtype(x, x.dtype.floating)


def widened(x: Any) -> Any:
    """x in the dtype in which its sums are accumulated."""
    return in_dtype(x, x.dtype.accumulate)


def measured(x: Any) -> Any:
    """x in the dtype in which its distances from a mean are computed.

    For integers of more digits than float32 that is float64: float32 would round the differences
    of large ones away, and overflow at their squares.
    """
    x = operand(x)
    wide = x.dtype.kind in "iu" and x.dtype.digits > float32.digits
    return cast(x, dtype=float64) if wide else widened(floating(x))


def squared_size(x: Any) -> Any:
    """The square of each element's absolute value."""
    if not x.dtype.is_complex:
        return square(x)
    return add(square(call("real", x)), square(call("imag", x)))


@composite(public="np", method=True, common=REDUCTION, onnx="ReduceMean", mxnet="_npi_mean")
def mean(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
    """Mean over the given axes, or all; integers become float32, float16 is added in float32."""
    x = floating(x)
    total = sum(widened(x), axis=axis, keepdims=keepdims)
    return in_dtype(divide(total, count(x, axis, "mean")), x.dtype)


@mean.extended
def _(x: Any, /, axis: Any = None, dtype: Any = None, *, keepdims: bool = False) -> Array:
    """Mean over the given axes, or all; integers become float32, float16 is added in float32.

    With `dtype` the elements are converted first, and the result has that dtype.
    """
    return in_dtype(mean(in_dtype(x, dtype), axis=axis, keepdims=keepdims), dtype)


def selected(mask: Any, x: Any, axis: Any, keepdims: bool) -> Any:
    """The sum of the elements that a mask selects, and their number."""
    total = sum(where(mask, x, 0), axis=axis, keepdims=keepdims)
    return total, sum(cast(mask, dtype=x.dtype), axis=axis, keepdims=keepdims)


@mean.masked
def _(mask: Any, x: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Array:
    x = floating(in_dtype(x, dtype))
    return in_dtype(divide(*selected(mask, widened(x), axis, keepdims)), x.dtype)


@mean.spec
def _(x: Spec, *, axis: Any, keepdims: bool) -> Spec:
    return averaged("mean", x, axis, keepdims)


def averaged(name: str, x: Spec, axis: Any, keepdims: bool) -> Spec:
    """The spec of a mean over axes: floating. Raises `ShapeError` for a bad axis."""
    axes = counted(name, axis, x)
    (total,) = sum.infer(x, axis=axes, keepdims=keepdims)
    return Spec(total.shape, x.dtype.floating)


@mean.gradient
def _(g: Any, y: Any, x: Any, *, axis: Any, keepdims: bool) -> Any:
    return (divide(spread(g, x, axis), count(x, axis, "mean")),)

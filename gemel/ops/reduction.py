"""Operations that combine elements along axes."""

from __future__ import annotations

import builtins
from typing import Any

from gemel.dtype import as_dtype, float32, float64
from gemel.errors import DTypeError, OperandError, ShapeError
from gemel.extent import WHOLE
from gemel.extent import maximum as larger
from gemel.ir.declare import composite, reduction
from gemel.ir.keywords import REDUCTION, number
from gemel.ir.methods import call
from gemel.ir.public import Array
from gemel.ir.reference import numpy
from gemel.ops.elementwise import (
    add,
    cast,
    divide,
    iota,
    maximum,
    multiply,
    sqrt,
    square,
    subtract,
    where,
)
from gemel.ops.extremes import Extreme
from gemel.ops.logic import equal
from gemel.ops.shape import broadcast_to, concatenate, operand, reshape, transpose
from gemel.spec import (
    Spec,
    broadcast,
    is_several,
    normalize_axes,
    normalize_axis,
    product,
    same_shape,
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


@composite(public="np", method=True, common=REDUCTION, mxnet="_npi_var")
def var(x: Any, *, axis: Any = None, ddof: float = 0, keepdims: bool = False) -> Any:
    """Variance over the given axes, or all."""
    return in_dtype(_variance("var", x, axis, ddof, keepdims), x.dtype.floating.real)


def _variance(name: str, x: Any, axis: Any, ddof: float, keepdims: bool) -> Any:
    """The variance in the dtype in which distances are computed: squares of float16 numbers may
    overflow float16."""
    wide = measured(x)
    squares = squared_size(subtract(wide, mean(wide, axis=axis, keepdims=True)))
    if ddof == 0:
        return mean(squares, axis=axis, keepdims=keepdims)
    total = sum(widened(squares), axis=axis, keepdims=keepdims)
    return divide(total, freedom(x, axis, degrees_lost(name, ddof, 0), name))


def freedom(x: Any, axis: Any, ddof: float, name: str) -> Any:
    """The degrees of freedom: the number of elements minus ddof, but not below 0."""
    left = count(x, axis, name) - (int(ddof) if ddof == int(ddof) else ddof)
    return larger(left, 0) if isinstance(left, WHOLE) else builtins.max(left, 0)


@var.extended
def _(
    x: Any,
    /,
    axis: Any = None,
    dtype: Any = None,
    *,
    ddof: float | None = None,
    correction: float = 0.0,
    keepdims: bool = False,
    mean: Any = None,
) -> Array:
    """Mean squared distance from the mean, over the given axes, or all.

    The sum of squares is divided by the number of elements less `ddof`, which the Array API calls
    `correction`. With `dtype` the elements are converted first. A `mean` that is known already, of
    the shape that `np.mean` with `keepdims` gives, is not computed again.
    """
    ddof = degrees_lost("var", ddof, correction)
    if mean is not None:
        found, dtype = _squares_about("var", x, mean, axis, dtype, ddof, keepdims)
        return in_dtype(found, dtype)
    return var(in_floating("var", x, dtype), axis=axis, ddof=ddof, keepdims=keepdims)


def _squares_about(
    name: str, x: Any, middle: Any, axis: Any, dtype: Any, ddof: float, keepdims: bool
) -> tuple[Any, Any]:
    """The mean squared distance from a given mean, in the dtype in which distances are computed,
    and the dtype of the result.
    """
    x = operand(in_floating(name, x, dtype))
    middle = known_mean(name, x, middle)
    squares = squared_size(subtract(measured(x), middle))
    total = sum(squares, axis=axis, keepdims=keepdims)
    return divide(total, freedom(x, axis, ddof, name)), x.dtype.floating.real


def known_mean(name: str, x: Any, middle: Any) -> Any:
    """A given mean of x, in the dtype in which sums are accumulated. Raises `ShapeError`."""
    middle = operand(middle, (x,))
    if not same_shape(broadcast(name, x.spec, middle.spec), x.shape):
        raise ShapeError(
            f"{name}: mean has shape {list(middle.shape)} for x of {list(x.shape)}; it must have "
            "the shape of np.mean(..., keepdims=True)"
        )
    return widened(middle)


def in_floating(name: str, x: Any, dtype: Any) -> Any:
    """x converted to a dtype, unless that is None. Raises `DTypeError` for an integer dtype."""
    if dtype is not None and as_dtype(dtype).kind in "biu":
        raise DTypeError(
            f"{name}: dtype={as_dtype(dtype)} is not possible, because a mean is not a whole "
            "number; leave dtype out and convert the result with astype"
        )
    return in_dtype(x, dtype)


def degrees_lost(name: str, ddof: float | None, correction: float) -> float:
    """NumPy's `ddof` or the standard's `correction`, which mean the same. Raises `OperandError`."""
    if ddof is not None and correction != 0:
        raise OperandError(f"{name}: ddof and correction are the same; only one can be given")
    kind, lost = ("correction", correction) if ddof is None else ("ddof", ddof)
    return lost if isinstance(lost, WHOLE) else number(name, kind, lost)


@var.masked
def _(mask: Any, x: Any, *arguments: Any, **parameters: Any) -> Array:
    found, dtype = _masked_variance("var", mask, x, *arguments, **parameters)
    return in_dtype(found, dtype)


def _masked_variance(
    name: str,
    mask: Any,
    x: Any,
    axis: Any = None,
    dtype: Any = None,
    ddof: float | None = None,
    correction: float = 0.0,
    keepdims: bool = False,
    mean: Any = None,
) -> tuple[Any, Any]:
    """The variance of selected elements in the dtype of their sums, and the dtype of the result."""
    x = operand(in_floating(name, x, dtype))
    wide = measured(x)
    middle = divide(*selected(mask, wide, axis, True)) if mean is None else mean
    total, left = selected(mask, squared_size(subtract(wide, middle)), axis, keepdims)
    free = maximum(left - degrees_lost(name, ddof, correction), 0)
    return divide(total, free), x.dtype.floating.real


@var.spec
def _(x: Spec, *, axis: Any, ddof: float, keepdims: bool) -> Spec:
    return averaged("var", x, axis, keepdims)


@var.gradient
def _(g: Any, y: Any, x: Any, *, axis: Any, ddof: float, keepdims: bool) -> Any:
    distance = subtract(x, mean(x, axis=axis, keepdims=True))
    scale = divide(2, freedom(x, axis, ddof, "var"))
    return (multiply(multiply(spread(g, x, axis), distance), scale),)


def root(x: Any) -> Any:
    """The square root of real numbers; its gradient at 0, which would be infinite, is 0."""
    none = equal(x, 0)
    return where(none, 0, sqrt(where(none, 1, x)))


@composite(public="np", method=True, common=REDUCTION, mxnet="_npi_std")
def std(x: Any, *, axis: Any = None, ddof: float = 0, keepdims: bool = False) -> Any:
    """Standard deviation over the given axes, or all. Of equal elements its gradient is 0."""
    return in_dtype(sqrt(_variance("std", x, axis, ddof, keepdims)), x.dtype.floating.real)


@std.extended
def _(
    x: Any,
    /,
    axis: Any = None,
    dtype: Any = None,
    *,
    ddof: float | None = None,
    correction: float = 0.0,
    keepdims: bool = False,
    mean: Any = None,
) -> Array:
    """Square root of the variance, over the given axes, or all: see `var`.

    Where all elements are equal, the gradient is 0.
    """
    ddof = degrees_lost("std", ddof, correction)
    if mean is not None:
        found, dtype = _squares_about("std", x, mean, axis, dtype, ddof, keepdims)
        return in_dtype(root(found), dtype)
    return std(in_floating("std", x, dtype), axis=axis, ddof=ddof, keepdims=keepdims)


@std.masked
def _(mask: Any, x: Any, *arguments: Any, **parameters: Any) -> Array:
    found, dtype = _masked_variance("std", mask, x, *arguments, **parameters)
    return in_dtype(root(found), dtype)


@std.spec
def _(x: Spec, *, axis: Any, ddof: float, keepdims: bool) -> Spec:
    return averaged("std", x, axis, keepdims)


@std.gradient
def _(g: Any, y: Any, x: Any, *, axis: Any, ddof: float, keepdims: bool) -> Any:
    distance = subtract(x, mean(x, axis=axis, keepdims=True))
    spread_y = spread(y, x, axis)
    none = equal(spread_y, 0)  # all elements are equal
    slope = where(none, 0, spread(g, x, axis) * distance / where(none, 1, spread_y))
    return (slope / freedom(x, axis, ddof, "std"),)

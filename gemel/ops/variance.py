"""Variances and standard deviations: mean squared distances from a mean."""

from __future__ import annotations

import builtins
from typing import Any

from gemel.dtype import as_dtype
from gemel.errors import DTypeError, OperandError, ShapeError
from gemel.extent import WHOLE
from gemel.extent import maximum as larger
from gemel.extent import minimum as smaller
from gemel.ir.declare import composite
from gemel.ir.keywords import REDUCTION, number
from gemel.ir.op_kinds import Elementwise
from gemel.ir.public import Array
from gemel.ir.state import shows_another
from gemel.ops.elementwise import (
    add,
    divide,
    maximum,
    minimum,
    multiply,
    sqrt,
    square,
    stop_gradient,
    subtract,
    where,
)
from gemel.ops.logic import equal, isfinite, isinf, logical_and
from gemel.ops.reduction import (
    averaged,
    count,
    in_dtype,
    mean,
    measured,
    selected,
    spread,
    squared_size,
    sum,
    widened,
)
from gemel.ops.shape import narrow, operand, reshape
from gemel.spec import Spec, broadcast, normalize_axes, product, same_shape

#: From how many elements mean and variance are computed in one sweep: along rows; and along
#: columns, of matrices whose elements exceed the second-level cache.
ALONG, ACROSS, LARGE = 8192, 256, 1 << 18
#: At how many places, and from how many neighbours at each, the mean is estimated before.
PLACES, NEIGHBOURS = 3, 32


def about_mean(x: Any, axis: Any) -> tuple[Any, Any]:
    """The mean over some axes, which stay with length 1, and the sum of squared distances.

    Of many elements it is computed from the sums of the distances from a number near the mean and
    of their squares, in one sweep. What is subtracted from the squares then is about as large as
    what is left, or smaller, so however large the mean is, no digits are lost.
    """
    wide = measured(x)
    if not in_one_sweep(x, axis):
        middle = mean(wide, axis=axis, keepdims=True)
        squares = squared_size(subtract(wide, middle))
        return middle, sum(widened(squares), axis=axis, keepdims=True)
    axes = normalize_axes("var", axis, x.ndim)
    near = stop_gradient(near_mean(x, axes))
    total = sum(subtract(wide, near), axis=axes, keepdims=True)
    # Not the squares of the same differences: each of the sums can then be divided into parts by
    # itself, and no array of the differences is made (`passes/parts`).
    squares = sum(square(subtract(near, wide)), axis=axes, keepdims=True)
    middle = divide(total, count(x, axes, "var"))
    left = maximum(subtract(squares, multiply(total, middle)), 0)
    overflown = logical_and(isinf(squares), isfinite(total))
    return add(near, middle), where(overflown, squares, left)


def near_mean(x: Any, axes: tuple[int, ...]) -> Any:
    """A number between the elements, near their mean unless most of those at two places are not:
    the median of the means of a few neighbours at three places."""
    first, second, third = (_mean_at(x, axes, place) for place in range(1, PLACES + 1))
    return maximum(minimum(first, second), minimum(maximum(first, second), third))


def _mean_at(x: Any, axes: tuple[int, ...], place: int) -> Any:
    one = x
    for axis in axes:
        many = smaller(NEIGHBOURS, x.shape[axis]) if axis == max(axes) else 1
        start = (x.shape[axis] - many) * place // (PLACES + 1)
        x = narrow(x, axis=axis, start=start, length=many)
        one = narrow(one, axis=axis, start=start, length=1)
    # Only these few are converted. With distances from one of them, the mean of equal elements is
    # exact.
    x, one = measured(x), measured(one)
    return add(one, mean(subtract(x, one), axis=axes, keepdims=True))


def is_computed(x: Any) -> bool:
    """Whether elements are computed where they are read. Two sweeps do so, too; but what the mean
    is estimated from would be read from an array of all of them."""
    node = getattr(x, "node", None)
    while node is not None and shows_another(node):
        node = node.inputs[0].node
    return node is not None and isinstance(node.op, Elementwise)


def in_one_sweep(x: Any, axis: Any) -> bool:
    """Whether one sweep pays: if each result is of many elements. For free sizes this sets a guard,
    unless what is known decides."""
    axes = normalize_axes("var", axis, x.ndim)
    if x.dtype.kind == "c" or not axes or is_computed(x):
        return False
    last, many = max(axes), count(x, axes, "var")
    wanted = [(many, ALONG if last == x.ndim - 1 else ACROSS)]
    if last < x.ndim - 1:
        wanted.append((many * product(x.shape[last + 1 :]), LARGE))
    if any(type(number) is int and number < most for number, most in wanted):
        return False
    return all(bool(number >= most) for number, most in wanted)


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


@var.planned
def _(x: Any, *, axis: Any, ddof: float, keepdims: bool) -> Any:
    return in_dtype(_planned("var", x, axis, ddof, keepdims), x.dtype.floating)


def _planned(name: str, x: Any, axis: Any, ddof: float, keepdims: bool) -> Any:
    """`_variance`, of large arrays in one sweep."""
    if not in_one_sweep(x, axis):
        return _variance(name, x, axis, ddof, keepdims)
    _, squares = about_mean(x, axis)
    if not keepdims:
        squares = reshape(squares, shape=averaged(name, x.spec, axis, False).shape)
    return divide(squares, freedom(x, axis, degrees_lost(name, ddof, 0), name))


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


@std.planned
def _(x: Any, *, axis: Any, ddof: float, keepdims: bool) -> Any:
    return in_dtype(sqrt(_planned("std", x, axis, ddof, keepdims)), x.dtype.floating)


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

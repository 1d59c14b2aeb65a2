"""Reductions that ignore NaN."""

from __future__ import annotations

from typing import Any

from gemel.ir.declare import composite
from gemel.ir.keywords import REDUCTION, into
from gemel.ir.public import Array, function
from gemel.ops.cumulative import along, cumprod, cumsum
from gemel.ops.elementwise import cast, divide, subtract, where
from gemel.ops.logic import greater, isnan, logical_not
from gemel.ops.reduction import (
    all,
    floating,
    in_dtype,
    max,
    measured,
    min,
    prod,
    squared_size,
    sum,
    widened,
)
from gemel.ops.shape import operand
from gemel.ops.variance import degrees_lost, in_floating, known_mean, root


@composite(public="np", combine="sum")
def nansum(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
    """Sum over the given axes, or all; NaN counts as 0."""
    return sum(where(isnan(x), 0, x), axis=axis, keepdims=keepdims)


@composite(public="np", combine="prod")
def nanprod(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
    """Product over the given axes, or all; NaN counts as 1."""
    return prod(where(isnan(x), 1, x), axis=axis, keepdims=keepdims)


@nansum.extended
def _(x: Any, /, axis: Any = None, dtype: Any = None, *, keepdims: bool = False) -> Array:
    """Sum over the given axes, or all; NaN counts as 0.

    With `dtype` the elements are converted first, and the result has that dtype.
    """
    return in_dtype(nansum(in_dtype(x, dtype), axis=axis, keepdims=keepdims), dtype)


@nanprod.extended
def _(x: Any, /, axis: Any = None, dtype: Any = None, *, keepdims: bool = False) -> Array:
    """Product over the given axes, or all; NaN counts as 1.

    With `dtype` the elements are converted first, and the result has that dtype.
    """
    return in_dtype(nanprod(in_dtype(x, dtype), axis=axis, keepdims=keepdims), dtype)


@composite(public="np", common=REDUCTION)
def nanmean(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
    """Mean of the elements that are not NaN, over the given axes, or all; NaN if there are none."""
    x = floating(x)
    wide = widened(x)
    total = sum(where(isnan(wide), 0, wide), axis=axis, keepdims=keepdims)
    return cast(divide(total, _left(wide, axis, keepdims)), dtype=x.dtype)


@nanmean.extended
def _(x: Any, /, axis: Any = None, dtype: Any = None, *, keepdims: bool = False) -> Array:
    """Mean of the elements that are not NaN, over the given axes, or all; NaN if there are none.

    With `dtype` the elements are converted first, and the result has that dtype. Raises
    `DTypeError` if `dtype` is an integer dtype or bool and x is floating or complex.
    """
    if operand(x).dtype.is_inexact:
        x = in_floating("nanmean", x, dtype)
    found = nanmean(in_dtype(x, dtype), axis=axis, keepdims=keepdims)
    return in_dtype(found, dtype)


@nanmean.masked
def _(mask: Any, x: Any, *arguments: Any, **parameters: Any) -> Array:
    return nanmean(where(mask, floating(x), float("nan")), *arguments, **parameters)


def _left(x: Any, axis: Any, keepdims: bool) -> Any:
    """The number of elements that are not NaN, in x's dtype."""
    return sum(cast(logical_not(isnan(x)), dtype=x.dtype.real), axis=axis, keepdims=keepdims)


@composite(public="np", common=REDUCTION)
def nanvar(x: Any, *, axis: Any = None, ddof: float = 0, keepdims: bool = False) -> Any:
    """Variance of the elements that are not NaN, over the given axes, or all."""
    ddof = degrees_lost("nanvar", ddof, 0)
    wide = measured(x)
    middle = nanmean(wide, axis=axis, keepdims=True)
    return _variance(x, middle, axis, ddof, keepdims)


def _variance(x: Any, middle: Any, axis: Any, ddof: float, keepdims: bool) -> Any:
    """Mean squared distance from `middle` of elements that are not NaN, in the result's dtype."""
    wide = measured(x)
    distance = where(isnan(wide), 0, subtract(wide, middle))
    total = sum(squared_size(distance), axis=axis, keepdims=keepdims)
    freedom = subtract(_left(wide, axis, keepdims), ddof)
    found = where(greater(freedom, 0), divide(total, freedom), float("nan"))
    return cast(found, dtype=x.dtype.floating.real)


@nanvar.extended
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
    """Variance of the elements that are not NaN, over the given axes, or all; NaN if too few are.

    The sum of squared distances from the mean is divided by the number of these elements minus
    `ddof`, which the array API calls `correction`; the variance is NaN unless that is positive.
    `mean` is their mean if it is known, of the shape of `np.nanmean(..., keepdims=True)`. With
    `dtype` the elements are converted first. Raises `DTypeError` for an integer `dtype`,
    `ShapeError` for a `mean` of another shape, and `TypeError` for both `ddof` and `correction`.
    """
    ddof, x = degrees_lost("nanvar", ddof, correction), in_floating("nanvar", x, dtype)
    if mean is None:
        return nanvar(x, axis=axis, ddof=ddof, keepdims=keepdims)
    return _variance(x, known_mean("nanvar", x, mean), axis, ddof, keepdims)


@nanvar.masked
def _(mask: Any, x: Any, axis: Any = None, dtype: Any = None, **parameters: Any) -> Array:
    x = operand(in_floating("nanvar", x, dtype))
    found = nanvar(where(mask, measured(x), float("nan")), axis=axis, **parameters)
    return in_dtype(found, x.dtype.floating.real)


@function(public="np")
def nanstd(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    ddof: float | None = None,
    *,
    correction: float = 0.0,
    keepdims: bool = False,
    where: Any = True,
    mean: Any = None,
) -> Array:
    """Standard deviation of the elements that are not NaN: the square root of `nanvar`.

    Where all these are equal, the gradient is 0.
    """
    ddof = degrees_lost("nanstd", ddof, correction)
    a = operand(in_floating("nanstd", a, dtype))
    options = {"axis": axis, "ddof": ddof, "keepdims": keepdims, "where": where, "mean": mean}
    squares = nanvar(measured(a), **options)
    return into("nanstd", out, in_dtype(root(squares), a.dtype.floating.real))


@composite(public="np", combine="max")
def nanmax(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
    """Largest element that is not NaN, over the given axes, or all; NaN if there are none."""
    return _extreme(max, x, float("-inf"), axis, keepdims)


@composite(public="np", combine="min")
def nanmin(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
    """Smallest element that is not NaN, over the given axes, or all; NaN if there are none."""
    return _extreme(min, x, float("inf"), axis, keepdims)


def _extreme(kind: Any, x: Any, least: float, axis: Any, keepdims: bool) -> Any:
    if not x.dtype.is_floating:
        return kind(x, axis=axis, keepdims=keepdims)
    nothing = all(isnan(x), axis=axis, keepdims=keepdims)
    found = kind(where(isnan(x), least, x), axis=axis, keepdims=keepdims)
    return where(nothing, float("nan"), found)


@function(public="np")
def nancumsum(a: Any, axis: int | None = None, dtype: Any = None, out: Any = None) -> Array:
    """Cumulative sum along an axis, or of the flattened array; NaN counts as 0."""
    return into("nancumsum", out, along(cumsum, where(isnan(a), 0, a), axis, dtype))


@function(public="np")
def nancumprod(a: Any, axis: int | None = None, dtype: Any = None, out: Any = None) -> Array:
    """Cumulative product along an axis, or of the flattened array; NaN counts as 1."""
    return into("nancumprod", out, along(cumprod, where(isnan(a), 1, a), axis, dtype))

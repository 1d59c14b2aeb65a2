"""Variances and standard deviations: mean squared distances from a mean."""

from __future__ import annotations

import builtins
from math import inf
from typing import Any

from gemel.dtype import DType, as_dtype
from gemel.errors import DTypeError, OperandError, ShapeError
from gemel.extent import WHOLE
from gemel.extent import maximum as larger
from gemel.ir.combiner import Combiner
from gemel.ir.declare import composite, reduction
from gemel.ir.keywords import REDUCTION, number
from gemel.ir.public import Array
from gemel.ir.reference import numpy
from gemel.ops.elementwise import add, divide, maximum, multiply, sqrt, subtract, where
from gemel.ops.logic import equal
from gemel.ops.reduction import (
    averaged,
    count,
    in_dtype,
    kept,
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

#: From how many elements mean and variance are computed in one sweep, and how many of them at least
#: follow one another: along rows, and along columns.
ALONG, ACROSS = (8192, 512), (256, 64)
#: So many elements exceed the second-level cache. Columns of fewer are read twice.
LARGE = 1 << 18
#: Fewer rows of results than this, of up to this many bytes, are computed from so many parts, which
#: cores share, if there are LARGE elements.
FEW, NARROW, PARTS = 8, 2048, 32


class Distances(Combiner):
    """The number of elements, one of them, and the sums of the distances of all from it and of
    their squares.

    The one is the first of a block. So it is as near to the mean as elements are, and the sums are
    of the size of the deviations, however large the mean is: of what a block's squares are summed
    to, at most its own share is subtracted again. When blocks are combined, the new one is the mean
    of both (Chan, Golub and LeVeque, 1983), with the rest that rounding leaves as a sum.
    """

    def computed(self, dtype: DType) -> DType:
        """What distances are summed in."""
        return dtype.floating.accumulate

    def result_dtype(self, dtype: DType) -> DType:
        """A floating-point one."""
        return dtype.floating

    def initial(self, dtype: DType) -> Any:
        """No elements."""
        return ((dtype, 0),) * 4

    def update(self, xp: Any, state: Any, x: Any, position: Any) -> Any:
        """Adds the distance from the first."""
        count, first, total, squares = state
        first = xp.where(count == 0, x, first)
        distance = x - first
        squares = xp.multiply_add(distance, distance, squares)
        return count + 1, first, total + distance, squares

    def combine(self, xp: Any, a: Any, b: Any) -> Any:
        """Both blocks about the mean of all."""
        (many, first, *_), (more, other, *_) = a, b
        count = many + more
        share = more / xp.maximum(count, 1)
        (middle, own), (further, others) = self.about_mean(xp, a), self.about_mean(xp, b)
        between = (other - first) + (further - middle)
        beyond = middle + between * share
        mean = first + beyond
        rest = (first - mean) + beyond
        squares = own + others + between * (between * (many * share)) + count * rest * rest
        both = count, mean, count * rest, squares
        return tuple(
            xp.where(many == 0, y, xp.where(more == 0, x, z))
            for x, y, z in zip(a, b, both, strict=True)
        )

    def about_mean(self, xp: Any, state: Any) -> Any:
        """How far the mean is from the one element, and the sum of squared distances from it."""
        count, _, total, squares = state
        middle = total / xp.maximum(count, 1)
        overflown = (squares == inf) & (abs(total) < inf)
        return middle, xp.where(overflown, squares, xp.maximum(squares - total * middle, 0))


class Mean(Distances):
    """The mean."""

    def result(self, xp: Any, state: Any) -> Any:
        """The one element and the mean distance from it."""
        return state[1] + self.about_mean(xp, state)[0]


class Squares(Distances):
    """The sum of squared distances from the mean."""

    def result(self, xp: Any, state: Any) -> Any:
        """That sum."""
        return self.about_mean(xp, state)[1]


@reduction(combine=Mean())
def mean_in_blocks(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
    """The mean, computed in the same loops as `squared_distances`. There are elements."""
    wide = numpy().asarray(x, as_dtype(x.dtype).floating.name)
    return numpy().mean(wide, axis=axis, keepdims=keepdims)


@mean_in_blocks.gradient
def _(g: Any, y: Any, x: Any, *, axis: Any, keepdims: bool) -> Any:
    return (divide(spread(g, x, axis), count(x, axis, "mean")),)


@reduction(combine=Squares())
def squared_distances(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
    """The sum of squared distances from the mean, in one sweep. There are elements."""
    wide = numpy().asarray(x, as_dtype(x.dtype).floating.name)
    distances = wide - numpy().mean(wide, axis=axis, keepdims=True)
    return numpy().sum(distances * distances, axis=axis, keepdims=keepdims)


@squared_distances.gradient
def _(g: Any, y: Any, x: Any, *, axis: Any, keepdims: bool) -> Any:
    distance = subtract(x, mean_in_blocks(x, axis=axis, keepdims=True))
    return (multiply(spread(g, x, axis), multiply(distance, 2)),)


def about_mean(x: Any, axis: Any) -> tuple[Any, Any]:
    """The mean over some axes, which stay with length 1, and the sum of squared distances."""
    wide, axes = measured(x), normalize_axes("var", axis, x.ndim)
    one_sweep = in_one_sweep(wide, axis)
    parted = one_sweep and _in_parts(wide, axes)
    # Parts of what is converted first would be parts of an array that is written for them.
    if not one_sweep or (parted and wide.dtype is not x.dtype):
        middle = mean(wide, axis=axis, keepdims=True)
        squares = squared_size(subtract(wide, middle))
        return middle, sum(widened(squares), axis=axis, keepdims=True)
    if not parted:
        options = {"axis": axes, "keepdims": True}
        return mean_in_blocks(wide, **options), squared_distances(wide, **options)
    first, last = builtins.min(axes), builtins.max(axes)
    before, after = product(x.shape[:first]), product(x.shape[last + 1 :])
    rows = reshape(x, shape=(before, product(x.shape[first : last + 1]), after))
    middle, squares = _about_mean_of_parts(rows)
    shape = kept(x.shape, axes)
    return reshape(middle, shape=shape), reshape(squares, shape=shape)


def _in_parts(x: Any, axes: tuple[int, ...]) -> bool:
    """Whether so few results are computed that cores share the work only by parts."""
    first, last = builtins.min(axes), builtins.max(axes)
    before, after = product(x.shape[:first]), product(x.shape[last + 1 :])
    if last - first + 1 > len(axes):
        return False
    few = bool(before < FEW) and bool(after * x.dtype.itemsize <= NARROW)
    return few and bool(product(x.shape) >= LARGE)


def in_one_sweep(x: Any, axis: Any) -> bool:
    """Whether one sweep pays: if each result is of many elements. For free sizes this sets a guard,
    unless what is known decides."""
    axes = normalize_axes("var", axis, x.ndim)
    if x.dtype.kind != "f" or not axes:
        return False
    # Neighbouring axes are one loop; the last of these loops should not end too often.
    first = last = max(axes)
    while first - 1 in axes:
        first -= 1
    many, run = count(x, axes, "var"), product(x.shape[first : last + 1])
    least, shortest = ALONG if last == x.ndim - 1 else ACROSS
    wanted = [(many, least), (run, shortest)]
    if last < x.ndim - 1:
        wanted.append((many * product(x.shape[last + 1 :]), LARGE))
    if any(type(number) is int and number < most for number, most in wanted):
        return False
    return all(bool(number >= most) for number, most in wanted)


def _about_mean_of_parts(x: Any) -> tuple[Any, Any]:
    """The mean over the middle one of three axes, and the sum of squared distances from it."""
    before, size, after = x.shape
    length = size // PARTS
    done = length * PARTS
    # Means of parts are as exact as the elements' distances from one of them.
    one = narrow(x, axis=1, start=0, length=1)
    rows = narrow(x, axis=1, start=0, length=done)
    rows = reshape(rows, shape=(before, PARTS, length, after))
    rows = subtract(rows, reshape(one, shape=(before, 1, 1, after)))
    parts = [(length, mean_in_blocks(rows, axis=2), squared_distances(rows, axis=2))]
    if done < size:
        rest = subtract(narrow(x, axis=1, start=done, length=size - done), one)
        options = {"axis": 1, "keepdims": True}
        found = mean_in_blocks(rest, **options), squared_distances(rest, **options)
        parts.append((size - done, *found))
    options = {"axis": 1, "keepdims": True}
    total = builtins.sum(sum(multiply(middle, many), **options) for many, middle, _ in parts)
    middle_of_all = divide(total, size)
    squares = 0
    for many, middle, own in parts:
        apart = subtract(middle, middle_of_all)
        squares = squares + sum(add(own, multiply(multiply(apart, apart), many)), **options)
    return add(one, middle_of_all), squares


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
    wide = measured(x)
    if not in_one_sweep(wide, axis):
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

"""Statistics: averages, order statistics, covariances, differences."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Sequence
from typing import Any

from gemel.device import beside_arrays
from gemel.dtype import bool_, float64, weak
from gemel.errors import ArgumentError, DTypeError, OperandError, ShapeError, unknown_name
from gemel.ir.declare import composite, op
from gemel.ir.graph import Entry, is_number
from gemel.ir.keywords import OUT, into, static
from gemel.ir.public import Array, function
from gemel.ir.reference import numpy
from gemel.lists import leaves, packed
from gemel.ops.cumulative import cumsum
from gemel.ops.elementwise import (
    add,
    cast,
    divide,
    exp,
    full,
    log,
    multiply,
    stop_gradient,
    subtract,
    where,
)
from gemel.ops.logic import equal, isfinite, isnan, logical_and, not_equal
from gemel.ops.random import required
from gemel.ops.reduction import count, counted, floating, in_dtype, max, mean, min, sum, widened
from gemel.ops.selection import take_along_axis
from gemel.ops.shape import broadcast_to, concatenate, operand, operands, reshape, stack, transpose
from gemel.ops.sorting import argsort
from gemel.spec import Spec, normalize_axes, normalize_axis, product, promote_specs, whole

# --- reductions -----------------------------------------------------------------------------


@composite(public="np")
def count_nonzero(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
    """The number of nonzero elements, over the given axes, or all."""
    return sum(not_equal(x, 0), axis=axis, keepdims=keepdims)


@composite(public="np", common=OUT)
def ptp(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
    """The range (maximum - minimum), over the given axes, or all."""
    if x.dtype is bool_:
        raise DTypeError(
            f"ptp: {x.spec}: differences of bools are not defined; use astype('int32')"
        )
    most, least = (kind(x, axis=axis, keepdims=keepdims) for kind in (max, min))
    return subtract(most, least)


@composite(public="npx", onnx="ReduceLogSumExp")
def logsumexp(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
    """log(sum(exp(x))) over the given axes, or all, without overflow."""
    x = floating(x)
    top = stop_gradient(max(x, axis=axis, keepdims=True))
    top = where(isfinite(top), top, 0)
    found = log(sum(exp(subtract(x, top)), axis=axis, keepdims=True))
    found = add(found, top)
    return found if keepdims else _without(found, axis)


def _without(x: Any, axis: Any) -> Any:
    """x without the axes of length 1 that a reduction has kept."""
    axes = normalize_axes("logsumexp", axis, x.ndim)
    return reshape(x, shape=tuple(n for i, n in enumerate(x.shape) if i not in axes))


@function(public="np")
@beside_arrays
def average(
    a: Any, axis: Any = None, weights: Any = None, returned: bool = False, *, keepdims: bool = False
) -> Array:
    """Weighted mean over the given axes, or all; with the sum of the weights, if `returned`.

    `weights` have a's shape, or are one number for each position along `axis`.
    """
    a, weights = (operand(a), None) if weights is None else operands((a, weights))
    if weights is None:
        found = mean(a, axis=axis, keepdims=keepdims)
        total = full(count(a, axis, "average"), shape=found.shape, dtype=found.dtype)
    else:
        a, weights = floating(a), floating(weights)
        weights = broadcast_to(_lined_up("average", weights, a, axis), shape=a.shape)
        dtype, own = promote_specs(a.spec, weights.spec), weights.dtype
        a, weights = widened(a), widened(weights)
        total = sum(weights, axis=axis, keepdims=keepdims)
        found = divide(sum(multiply(a, weights), axis=axis, keepdims=keepdims), total)
        found, total = in_dtype(found, dtype), in_dtype(total, own)
    return (found, total) if returned else found


def _lined_up(name: str, weights: Any, x: Any, axis: Any) -> Any:
    """Weights with the shape of x or of some of its axes, reshaped so that they broadcast to x."""
    if tuple(weights.shape) == tuple(x.shape):
        return weights
    given = () if axis is None else axis if isinstance(axis, tuple) else (axis,)
    axes = tuple(normalize_axis(name, each, x.ndim) for each in given)
    if not axes or tuple(weights.shape) != tuple(x.shape[i] for i in axes):
        raise ShapeError(
            f"{name}: weights of shape {list(weights.shape)} must have the shape "
            f"{list(x.shape)}, or the shape of the given axes"
        )
    order = sorted(range(builtins.len(axes)), key=axes.__getitem__)
    shape = tuple(n if i in axes else 1 for i, n in enumerate(x.shape))
    return reshape(transpose(weights, axes=tuple(order)), shape=shape)


# --- order statistics -----------------------------------------------------------------------


@op()
def ranked(x: Any, *, ranks: Any) -> Any:
    """The positions of the elements of these ranks in each row; rank 0 is the smallest element."""
    found = numpy().argpartition(x, sorted(set(ranks)), axis=-1)
    return found[..., list(ranks)]


@ranked.spec
def _(x: Spec, *, ranks: Any) -> Spec:
    normalize_axis("ranked", -1, x.ndim)
    return Spec((*x.shape[:-1], builtins.len(ranks)), "int64")


#: Rules of interpolation between the elements of two neighbouring ranks: the weight of the upper
#: one, from the lower rank and the fraction of the way to the next. For numbers and for arrays.
RULES: dict[str, Callable[[Any, Any], Any]] = {
    "linear": lambda low, part: part,
    "lower": lambda low, part: part * 0,
    "higher": lambda low, part: (part > 0) * 1.0,
    "midpoint": lambda low, part: (part > 0) * 0.5,
    "averaged": lambda low, part: (part > 0) * 0.5 + 0.5,
    "nearest": lambda low, part: (part > 0.5) * 1.0 + (part == 0.5) * (low % 2),
    "even": lambda low, part: 1.0 - (part == 0) * (low % 2),
}
#: The rules that always give one of the elements.
EXACT = ("lower", "higher", "nearest", "even")
#: For NumPy's methods, the two numbers that map a share to a rank (see `placed`), and the rule.
#: R. J. Hyndman and Y. Fan, Sample quantiles in statistical packages, 1996.
METHODS: dict[str, tuple[float, float, str]] = {
    **{name: (1, 1, name) for name in ("linear", "lower", "higher", "midpoint", "nearest")},
    "inverted_cdf": (0, 1, "higher"),
    "averaged_inverted_cdf": (0, 1, "averaged"),
    "closest_observation": (-0.5, 1.5, "even"),
    "interpolated_inverted_cdf": (0, 1, "linear"),
    "hazen": (0.5, 0.5, "linear"),
    "weibull": (0, 0, "linear"),
    "median_unbiased": (1 / 3, 1 / 3, "linear"),
    "normal_unbiased": (3 / 8, 3 / 8, "linear"),
}


def placed(method: str, count: Any, share: float) -> Any:
    """The (fractional) rank of a share of `count` elements; it may lie outside of the ranks."""
    alpha, beta, _ = METHODS[method]
    return (count + (1 - alpha - beta)) * share + (alpha - 1)


@function(public="np")
@beside_arrays
def quantile(
    a: Any,
    q: Any,
    axis: Any = None,
    out: Any = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: Any = None,
    interpolation: str | None = None,
) -> Array:
    """The q-quantile (q from 0 to 1) over the given axes, or all.

    Several q give a new first axis. `method` is the interpolation between two elements, by NumPy's
    names: ``"linear"``, ``"lower"``, ``"nearest"``, ``"hazen"``, ...; `interpolation` is its old
    name. `weights` have a's shape or that of the axes, and need the method ``"inverted_cdf"``.
    Negative weights, or weights that are all 0, are a `ValueError` when the result is waited for.
    """
    found = quantiles("quantile", a, (q, 1.0), axis, interpolation or method, keepdims, weights)
    return into("quantile", out, found)


@function(public="np")
@beside_arrays
def percentile(
    a: Any,
    q: Any,
    axis: Any = None,
    out: Any = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: Any = None,
    interpolation: str | None = None,
) -> Array:
    """The q-th percentile (q from 0 to 100): see `quantile`."""
    found = quantiles("percentile", a, (q, 100.0), axis, interpolation or method, keepdims, weights)
    return into("percentile", out, found)


@function(public="np")
@beside_arrays
def median(
    a: Any,
    axis: Any = None,
    out: Any = None,
    overwrite_input: bool = False,
    keepdims: bool = False,
) -> Array:
    """The median over the given axes, or all; NaN of an empty array."""
    a = floating(operand(a))
    if not count(a, axis, "median"):
        return into("median", out, mean(a, axis=axis, keepdims=keepdims))
    return into("median", out, quantiles("median", a, (0.5, 1.0), axis, "linear", keepdims))


def _listed(value: Any) -> Any:
    """Numbers and arrays in tuples as lists of numbers."""
    if isinstance(value, tuple):
        return [_listed(item) for item in value]
    return value.tolist() if hasattr(value, "tolist") else value


def shares(name: str, q: Any, whole: float) -> tuple[list[float], tuple[int, ...]]:
    """A flat list of shares from 0 to 1, and the shape in which they were given.

    Raises `ValueError`.
    """
    found = _listed(static(q, name, "q"))
    for each in leaves(found):
        if not isinstance(each, (int, float)):
            raise OperandError(f"{name}: q {each!r} must be a number")
    parts, shape = packed(found, float64)
    scaled = [part / whole for part in parts]
    if not builtins.all(0 <= part <= 1 for part in scaled):
        raise ArgumentError(f"{name}: q {found} must lie between 0 and {whole:g}")
    return scaled, shape


#: A function that gives the quantiles of rows: (rows, their weights or None, shares, method).
Between = Callable[[Any, Any, Sequence[float], str], list[Any]]


def quantiles(
    name: str,
    x: Any,
    asked: tuple[Any, float],
    axis: Any,
    method: str,
    keepdims: bool,
    weights: Any = None,
    between: Between | None = None,
) -> Any:
    """Quantiles over the given axes. `asked`: q, and the number that stands for all elements."""
    q, lead = shares(name, *asked)
    if method not in METHODS:
        raise unknown_name(f"method of {name}", method, tuple(METHODS))
    if weights is not None and method != "inverted_cdf":
        raise ArgumentError(
            f"{name}: weights are only supported for method='inverted_cdf', not {method!r}"
        )
    x = operand(x)
    x = x if METHODS[method][2] in EXACT and x.dtype is not bool_ else floating(x)
    axes = counted(name, axis, x)
    rows, kept = as_rows(x, axes)
    if not rows.shape[-1]:
        if between is None:
            raise ShapeError(f"{name}: {list(x.shape)}: there are no elements along axis {axis}")
        x, weights = floating(x), None  # as rows that only contain NaN
        rows = full(float("nan"), shape=(*kept, 1), dtype=x.dtype)
    if weights is not None:
        weights = cast(_lined_up(name, operand(weights), x, axis), dtype="float64")
        weights = as_rows(broadcast_to(weights, shape=x.shape), axes)[0]
        least = min(weights, axis=-1, keepdims=True)
        fitting = logical_and(least >= 0, max(weights, axis=-1, keepdims=True) > 0)
        message = f"{name}: weights must not be below 0, and some must be above"
        weights = required(weights, fitting, message=message)
    chosen = between if between and x.dtype.is_floating else _between
    found = chosen(rows, weights, q, method)
    shape = tuple(1 if i in axes else n for i, n in enumerate(x.shape)) if keepdims else kept
    shaped = [reshape(each, shape=shape) for each in found]
    if not lead:
        return shaped[0]
    if not shaped:
        return full(0, shape=(*lead, *shape), dtype=x.dtype)
    return reshape(stack(shaped), shape=(*lead, *shape))


def as_rows(x: Any, axes: Sequence[int]) -> tuple[Any, tuple[int, ...]]:
    """x with these axes merged into the last one, and the shape of the other axes."""
    others = tuple(i for i in range(x.ndim) if i not in axes)
    kept = tuple(x.shape[i] for i in others)
    length = product(x.shape[i] for i in axes)
    return reshape(transpose(x, axes=(*others, *axes)), shape=(*kept, length)), kept


def _between(rows: Any, weights: Any, shares: Sequence[float], method: str) -> list[Any]:
    """The quantiles of each row: elements, or numbers between two neighbours."""
    if weights is not None:
        found, end = weighted(rows, weights, shares)
    else:
        found, end = _ranked(rows, shares, method)
    if not rows.dtype.is_floating:
        return found
    return [where(isnan(end), float("nan"), each) for each in found]  # NaN is last


def _ranked(rows: Any, shares: Sequence[float], method: str) -> tuple[list[Any], Any]:
    """The quantiles of rows without NaN, by the elements' ranks; and each row's last element."""
    last, rule = rows.shape[-1] - 1, RULES[METHODS[method][2]]
    places = []
    for share in shares:
        place = placed(method, last + 1, share)
        low = math.floor(builtins.max(builtins.min(place, last), 0))
        places.append((low, rule(low, place - low) if 0 <= place < last else 0))
    ranks = [rank for low, weight in places for rank in (low, low + (weight > 0))]
    values = _of_rank(rows, (*ranks, last))
    found = []
    for i, (_, weight) in enumerate(places):
        low, high = values[..., 2 * i], values[..., 2 * i + 1]
        if weight == 1:
            low = high
        elif weight:
            between = add(multiply(low, 1 - weight), multiply(high, weight))
            # If both are equal, rounding must not change the value.
            low = where(equal(low, high), low, between)
        found.append(low)
    return found, values[..., builtins.len(ranks)]


def _of_rank(rows: Any, ranks: tuple[int, ...]) -> Any:
    """Each row's elements of these ranks."""
    places = ranked(rows, ranks=ranks)
    return take_along_axis(rows, places, axis=rows.ndim - 1)


def weighted(rows: Any, weights: Any, shares: Sequence[float]) -> tuple[list[Any], Any]:
    """For each share, the first element at which the running sum of the weights reaches it; and the
    last element of each row.

    Elements of weight 0 are never chosen.
    """
    axis = rows.ndim - 1
    order = argsort(rows, axis=axis)
    rows, weights = (take_along_axis(x, order, axis=axis) for x in (rows, weights))
    below = cumsum(weights, axis=axis)
    below = divide(below, below[..., -1:])
    below = where(below == 0, -1.0, below)
    places = [sum(below < share, axis=axis, keepdims=True) for share in shares]
    found = [take_along_axis(rows, place, axis=axis)[..., 0] for place in places]
    return found, rows[..., -1]


# --- differences ----------------------------------------------------------------------------


def _neighbours(x: Any, axis: int) -> tuple[Any, Any]:
    """All but the first and all but the last along an axis."""
    lead = (slice(None),) * axis
    after, before = (*lead, slice(1, None)), (*lead, slice(None, -1))
    return x[after], x[before]


@function(public="np")
@beside_arrays
def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Array:
    """The differences of neighbours along an axis, n times. For bools, whether they differ."""
    if whole("diff", "n", n) < 0:
        raise ArgumentError(f"diff: n is {n}; it must be at least 0")
    a = operand(a)
    if n == 0:
        return a
    axis = normalize_axis("diff", axis, a.ndim)
    ends = [
        a if end is a else _end(end, a, axis) for end in (prepend, a, append) if end is not None
    ]
    a = concatenate(*ends, axis=axis) if len(ends) > 1 else a
    # An axis without elements has no more differences.
    for _ in range(builtins.min(n, a.shape[axis]) if type(a.shape[axis]) is int else n):
        after, before = _neighbours(a, axis)
        a = not_equal(after, before) if a.dtype == "bool" else subtract(after, before)
    return a


def _end(end: Any, x: Any, axis: int) -> Any:
    """The array to put before or after x; a number is repeated for all rows."""
    shape = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
    if is_number(end):
        own = end.dtype if isinstance(end, Entry) else weak(end)
        dtype = promote_specs(Spec((), x.dtype), Spec((), own, weak=True))
        return full(end, shape=shape, dtype=dtype)
    end = operand(end, (x,))
    return end if end.ndim else broadcast_to(end, shape=shape)


@function(public="np", aliases=("trapz",))
@beside_arrays
def trapezoid(y: Any, x: Any = None, dx: float = 1.0, axis: int = -1) -> Array:
    """The integral of y over x (or spacing dx) along an axis, by the trapezoidal rule."""
    y, x = (operand(y), None) if x is None else operands((y, x))
    axis = normalize_axis("trapezoid", axis, y.ndim)
    dtype = y.dtype if x is None else promote_specs(y.spec, x.spec)
    after, before = _neighbours(_for_sums(y), axis)
    if x is None:
        terms = multiply(add(after, before), dx / 2)
    else:
        width = diff(_for_sums(x), axis=axis if x.ndim > 1 else 0)
        if x.ndim == 1:
            width = reshape(width, shape=(-1,) + (1,) * (y.ndim - axis - 1))
        terms = multiply(multiply(width, add(after, before)), 0.5)
    found = sum(terms, axis=axis)
    return in_dtype(found, dtype) if dtype.is_floating else found


def _for_sums(x: Any) -> Any:
    """Floating numbers in the dtype of their sums; others as they are."""
    return widened(x) if x.dtype.is_floating else x

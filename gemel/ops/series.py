"""Series of numbers: convolutions, differences, slopes, interpolation, window functions."""

from __future__ import annotations

import math
from functools import reduce
from typing import Any

from gemel.device import as_device, beside_arrays
from gemel.dtype import default_float, float64, promote
from gemel.errors import ArgumentError, DTypeError, OperandError, ShapeError, unknown_name
from gemel.extent import NUMBER, WHOLE
from gemel.ir.declare import op
from gemel.ir.keywords import number
from gemel.ir.public import Array, function
from gemel.ir.reference import numpy
from gemel.ops.assignment import contents
from gemel.ops.complexes import conjugated
from gemel.ops.cumulative import cumsum
from gemel.ops.elementwise import (
    absolute,
    add,
    cast,
    cos,
    divide,
    full,
    iota,
    limit,
    multiply,
    sqrt,
    subtract,
    where,
)
from gemel.ops.indexing import gather
from gemel.ops.logic import equal, logical_and
from gemel.ops.products import sum_of_products
from gemel.ops.reduction import floating
from gemel.ops.shape import concatenate, listed, operand, operands, reshape
from gemel.ops.sorting import argsort, searchsorted
from gemel.ops.statistics import diff
from gemel.ops.windows import windows
from gemel.spec import Spec, normalize_axes, normalize_axis, same_shape

# --- convolution ----------------------------------------------------------------------------


def _row(name: str, x: Any) -> Any:
    x = operand(x)
    if x.ndim > 1 or x.size == 0:
        raise ShapeError(
            f"{name}: {list(x.shape)}: both arguments must have one dimension and not be empty"
        )
    return reshape(x, shape=(-1,))


def _slid(name: str, a: Any, v: Any, mode: str) -> Any:
    """The dot products of v with each window of a; a is not shorter than v."""
    if mode not in ("full", "same", "valid"):
        raise unknown_name(f"mode of {name}", mode, ("full", "same", "valid"))
    extra = v.shape[0] - 1
    before = {"full": extra, "same": v.shape[0] // 2, "valid": 0}[mode]
    after = {"full": extra, "same": extra - before, "valid": 0}[mode]
    ends = [full(0, shape=(count,), dtype=a.dtype) for count in (before, after)]
    longer = concatenate(ends[0], a, ends[1], axis=0) if mode != "valid" else a
    seen = windows(longer, kernel=(int(v.shape[0]),), stride=(1,), dilate=(1,))
    return sum_of_products(seen, reshape(v, shape=(-1, 1)), (0,))


@function(public="np")
@beside_arrays
def convolve(a: Any, v: Any, mode: str = "full") -> Array:
    """The discrete convolution of two 1-d arrays.

    `mode` "full" includes every shift with an overlap, "same" gives as many elements as the longer
    array has, "valid" includes only complete overlaps.

    >>> np.convolve(np.array([1.0, 2.0, 3.0]), np.array([0.0, 1.0, 0.5]))
    """
    a, v = (_row("convolve", x) for x in operands((a, v)))
    if v.shape[0] > a.shape[0]:
        a, v = v, a
    return _slid("convolve", a, v[::-1], mode)


@function(public="np")
@beside_arrays
def correlate(a: Any, v: Any, mode: str = "valid") -> Array:
    """The cross-correlation of two 1-d arrays: `convolve` without reversing the second.

    Of complex numbers the second is conjugated.

    >>> np.correlate(np.array([1.0, 2.0, 3.0]), np.array([0.0, 1.0, 0.5]))
    """
    a, v = (_row("correlate", x) for x in operands((a, v)))
    v = conjugated(v)
    if v.shape[0] > a.shape[0]:  # slide the shorter along the longer, and reverse the result
        return _slid("correlate", v, a, mode)[::-1]
    return _slid("correlate", a, v, mode)


# --- differences ----------------------------------------------------------------------------


@function(public="np")
@beside_arrays
def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Array:
    """The differences of neighbours in the flattened array, between `to_begin` and `to_end`.

    >>> np.ediff1d(np.array([1, 2, 4, 7]), to_end=[0])
    """
    row = reshape(operand(ary), shape=(-1,))
    found = diff(row)
    for end in (operand(x, (row,)) for x in (to_begin, to_end) if x is not None):
        if end.dtype.kind == "f" and not row.dtype.is_floating:
            raise DTypeError(
                f"ediff1d: {end.dtype} cannot be combined with differences of dtype {row.dtype}"
            )
    parts = (contents("ediff1d", x, row) for x in (to_begin, found, to_end) if x is not None)
    return concatenate(*(reshape(x, shape=(-1,)) for x in parts), axis=0)


@function(public="np")
@beside_arrays
def gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    """The gradient along one or more axes, by central differences and one-sided ones at the ends.

    `varargs` are the distances of the samples, one number for all axes or for each a number or a
    row of positions. Several axes give a tuple of arrays. `edge_order` (1 or 2) is how exact the
    ends are. B. Fornberg, "Generation of Finite Difference Formulas on Arbitrarily Spaced Grids"
    (1988).

    >>> np.gradient(np.array([1.0, 2.0, 4.0, 7.0]))
    """
    f = floating(operand(f))
    given = range(f.ndim) if axis is None else listed(axis)
    axes = [normalize_axis("gradient", each, f.ndim) for each in given]
    if len(set(axes)) < len(axes):
        raise ArgumentError(f"gradient: axis {axis} names an axis twice")
    if edge_order not in (1, 2):
        raise ArgumentError(f"gradient: edge_order {edge_order} must be 1 or 2")
    steps = varargs * len(axes) if len(varargs) == 1 else varargs or (1.0,) * len(axes)
    if len(steps) != len(axes):
        raise OperandError(f"gradient: {len(steps)} distances were given for {len(axes)} axes")
    found = tuple(_slope(f, h, a, edge_order) for h, a in zip(steps, axes, strict=True))
    return found[0] if len(found) == 1 else found


def _slope(f: Any, step: Any, axis: int, order: int) -> Any:
    """The slope along one axis: central differences inside, one-sided ones at both ends."""
    extent = f.shape[axis]
    if extent < order + 1:
        raise ShapeError(
            f"gradient: axis {axis} has {extent} elements; it needs at least {order + 1}"
        )

    def part(x: Any, start: int | None, stop: int | None) -> Any:
        return x[(slice(None),) * axis + (slice(start, stop),)]

    gaps = _gaps(f, step, axis)
    if gaps is None:
        one = full(1, shape=(1,) * f.ndim, dtype=f.dtype) * step
        first, second, last, last_but_one = (one,) * 4
        inner = divide(subtract(part(f, 2, None), part(f, None, -2)), 2 * one)
    else:
        before, after = part(gaps, None, -1), part(gaps, 1, None)
        first, second = part(gaps, 0, 1), part(gaps, 1, 2)
        last, last_but_one = part(gaps, -1, None), part(gaps, -2, -1)
        inner = _weighted(part(f, None, -2), part(f, 1, -1), part(f, 2, None), before, after)
    ends = [part(f, 0, 1), part(f, 1, 2), part(f, -2, -1), part(f, -1, None)]
    if order == 1:
        start = divide(subtract(ends[1], ends[0]), first)
        stop = divide(subtract(ends[3], ends[2]), last)
    else:
        start = _one_sided(ends[0], ends[1], part(f, 2, 3), first, second)
        stop = -_one_sided(ends[3], ends[2], part(f, -3, -2), last, last_but_one)
    return concatenate(start, inner, stop, axis=axis)


def _gaps(f: Any, step: Any, axis: int) -> Any:
    """The distances between positions along an axis; None if the distance is one number."""
    if isinstance(step, NUMBER):
        return None
    places = operand(step, (f,))
    if not places.ndim:
        return None
    if places.ndim != 1 or not places.shape[0] == f.shape[axis]:
        raise ShapeError(
            f"gradient: positions of {list(places.shape)} for an axis of {f.shape[axis]}"
        )
    shape = tuple(-1 if a == axis else 1 for a in range(f.ndim))
    return reshape(diff(cast(places, dtype=f.dtype)), shape=shape)


def _weighted(low: Any, middle: Any, high: Any, before: Any, after: Any) -> Any:
    """The slope at the middle one of three points, exact for parabolas."""
    both = add(before, after)
    weights = (
        divide(-after, multiply(before, both)),
        divide(subtract(after, before), multiply(before, after)),
        divide(before, multiply(after, both)),
    )
    terms = (multiply(w, x) for w, x in zip(weights, (low, middle, high), strict=True))
    first, second, third = terms
    return add(add(first, second), third)


def _one_sided(end: Any, next_: Any, third: Any, first: Any, second: Any) -> Any:
    """The slope at the first one of three points, exact for parabolas."""
    both = add(first, second)
    found = multiply(divide(-add(both, first), multiply(first, both)), end)
    found = add(found, multiply(divide(both, multiply(first, second)), next_))
    return subtract(found, multiply(divide(first, multiply(second, both)), third))


@function(public="np")
@beside_arrays
def unwrap(p: Any, discont: Any = None, axis: int = -1, *, period: Any = 2 * math.pi) -> Array:
    """Remove jumps of angles along an axis: multiples of `period` are added where neighbours differ
    by more than half a period (or `discont`).

    >>> np.unwrap(np.array([0.0, 3.0, 6.5, 0.5]))
    """
    p = operand(p)
    axis = normalize_axis("unwrap", axis, p.ndim)
    whole = isinstance(period, WHOLE) and not p.dtype.is_floating
    p = p if whole else floating(p)
    half = period // 2 if whole else period / 2
    ambiguous = not whole or period % 2 == 0
    steps = diff(p, axis=axis)
    low = -half
    wrapped = (steps - low) % period + low
    if ambiguous:
        wrapped = where(logical_and(equal(wrapped, low), steps > 0), half, wrapped)
    limit = half if discont is None else max(discont, half)
    correction = where(absolute(steps) < limit, 0, subtract(wrapped, steps))
    lead = (slice(None),) * axis
    start, after = lead + (slice(None, 1),), lead + (slice(1, None),)
    rest = add(p[after], cumsum(correction, axis=axis))
    return concatenate(p[start], cast(rest, dtype=p.dtype), axis=axis)


@function(public="np")
@beside_arrays
def trim_zeros(filt: Any, trim: str = "fb", axis: Any = None) -> Array:
    """Remove all-zero slices from the front ("f") and the back ("b") of some axes, or of all. Waits
    for the array.

    >>> np.trim_zeros(np.array([0, 0, 1, 2, 0]))
    """
    x = operand(filt)
    if not isinstance(trim, str) or set(trim.lower()) - set("fb"):
        raise ArgumentError(f"trim_zeros: trim {trim!r} may contain only 'f' and 'b'")
    axes, key = normalize_axes("trim_zeros", axis, x.ndim), [slice(None)] * x.ndim
    places = x.asnumpy().nonzero() if axes else ()
    for place in axes:
        at = places[place]
        start = int(at.min()) if at.size and "f" in trim.lower() else 0
        stop = int(at.max()) + 1 if at.size else 0
        key[place] = slice(start, stop if "b" in trim.lower() or not at.size else None)
    return x[tuple(key)]


# --- interpolation -------------------------------------------------------------------------


@function(public="np")
@beside_arrays
def interp(
    x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: float | None = None
) -> Array:
    """Linear interpolation between the points (xp, fp); xp must be ascending.

    Outside of xp the result is `left` or `right`, by default the first and last of fp. With a
    `period` xp need not be ascending, and the function repeats.
    """
    given = operands((x, xp, fp))
    dtype = reduce(promote, [v.dtype for v in given if v.dtype.is_inexact] or [default_float()])
    # Differences of unsigned integers would wrap around, and float32 would round large integers.
    x, xp, fp = (each if each.dtype.is_inexact else cast(each, dtype=float64) for each in given)
    if xp.ndim != 1 or not same_shape(xp.shape, fp.shape) or xp.shape[0] == 0:
        raise ShapeError(f"interp: {list(xp.shape)} and {list(fp.shape)} must be equal 1-d shapes")
    if type(period) in (int, float) and period == 0:
        raise ArgumentError("interp: period is 0; it must be above or below 0")
    if period is not None:
        x, xp = x % abs(period), xp % abs(period)
        order = argsort(xp, axis=0)
        xp, fp = gather(xp, order, axis=0), gather(fp, order, axis=0)
        xp = concatenate(xp[-1:] - abs(period), xp, xp[:1] + abs(period), axis=0)
        fp = concatenate(fp[-1:], fp, fp[:1], axis=0)
    last = xp.shape[0] - 1
    upper = limit(searchsorted(xp, x, side="right"), 1 if last else 0, last)
    lower = limit(upper - 1, 0, last)
    x0, x1, y0, y1 = (gather(v, at, axis=0) for v in (xp, fp) for at in (lower, upper))
    width = where(x1 == x0, 1, x1 - x0)
    found = where(x == x1, y1, y0 + (y1 - y0) * ((x - x0) / width))
    other = where((x == x0) + (y0 == y1), y0, y1 - (y1 - y0) * ((x1 - x) / width))
    found = where(found == found, found, other)  # next to infinities, computed from the other end
    left, right = fp[0] if left is None else left, fp[-1] if right is None else right
    found = where(x != x, x, where(x > xp[-1], right, where(x < xp[0], left, found)))
    return cast(found, dtype=dtype)


# --- window functions -----------------------------------------------------------------------


def _angles(name: str, count: Any) -> Any:
    """`count` angles from 0 to 2 pi."""
    if not isinstance(count, WHOLE):
        raise OperandError(f"{name}: {count!r} is not a valid number of elements")
    at = iota(shape=(max(int(count), 0),), axis=0, dtype="float64")
    return at * (2 * math.pi / max(int(count) - 1, 1))


def _window(name: str, count: Any, dtype: Any, terms: tuple[float, ...]) -> Any:
    """A window that is a sum of cosines; if it has one element, that is 1."""
    at = _angles(name, count)
    found = full(terms[0] if count != 1 else 1.0, shape=at.shape, dtype=at.dtype)
    for order, weight in enumerate(terms[1:] if count != 1 else (), 1):
        found = found + weight * cos(at * order)
    return cast(found, dtype=dtype or default_float())


@function(public="np")
def hanning(
    M: Any,  # noqa: N803 -- NumPy's name
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
) -> Array:
    """The Hann window: 0.5 - 0.5 cos(2 pi n / (M - 1)).

    >>> np.hanning(5)
    """
    with as_device(device or ctx):
        return _window("hanning", M, dtype, (0.5, -0.5))


@function(public="np")
def hamming(
    M: Any,  # noqa: N803 -- NumPy's name
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
) -> Array:
    """The Hamming window: 0.54 - 0.46 cos(2 pi n / (M - 1)).

    >>> np.hamming(5)
    """
    with as_device(device or ctx):
        return _window("hamming", M, dtype, (0.54, -0.46))


@function(public="np")
def blackman(
    M: Any,  # noqa: N803 -- NumPy's name
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
) -> Array:
    """The Blackman window: 0.42 - 0.5 cos(2 pi n / (M - 1)) + 0.08 cos(4 pi n / (M - 1)).

    >>> np.blackman(5).round(4)
    """
    with as_device(device or ctx):
        return _window("blackman", M, dtype, (0.42, -0.5, 0.08))


@function(public="np")
def bartlett(M: Any, dtype: Any = None) -> Array:  # noqa: N803
    """The Bartlett window: a triangle that is 0 at both ends.

    >>> np.bartlett(5)
    """
    at = _angles("bartlett", M) / math.pi - 1
    found = 1 - absolute(at) if M != 1 else at * 0 + 1
    return cast(found, dtype=dtype or default_float())


@op(public="np")
def i0(x: Any) -> Any:
    """The modified Bessel function of the first kind and order 0; integers become float32.

    >>> np.i0(np.array([0.0, 1.0]))
    """
    x = numpy().asarray(x)  # a number becomes a 0-d array
    return numpy().i0(x.astype("float64")).reshape(x.shape).astype(_i0_of(x.dtype.name))


def _i0_of(name: str) -> str:
    return name if name.startswith("float") else default_float().name


@i0.spec
def _(x: Spec) -> Spec:
    return Spec(x.shape, x.dtype.floating)


@function(public="np")
def kaiser(M: Any, beta: float, dtype: Any = None) -> Array:  # noqa: N803
    """The Kaiser window: i0(beta sqrt(1 - (2 n / (M - 1) - 1)^2)) / i0(beta).

    >>> np.kaiser(5, 14.0).round(4)
    """
    beta = number("kaiser", "beta", beta)
    at = _angles("kaiser", M) / math.pi - 1
    if M == 1:
        return cast(at * 0 + 1, dtype=dtype or default_float())
    inside = where(absolute(at) > 1, 0.0, 1 - at * at)
    at_beta = i0(full(beta, shape=(), dtype="float64"))
    return cast(divide(i0(beta * sqrt(inside)), at_beta), dtype=dtype or default_float())


__all__ = [
    "bartlett", "blackman", "convolve", "correlate", "ediff1d", "gradient", "hamming", "hanning",
    "i0", "kaiser", "trim_zeros", "unwrap",
]  # fmt: skip

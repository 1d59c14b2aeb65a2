"""Choosing between elements: limits, and numbers in place of NaN and infinity."""

from __future__ import annotations

from typing import Any

from gemel.dtype import DType, check_held, int64, limits, uint64
from gemel.errors import OperandError
from gemel.extent import NUMBER, Dim
from gemel.ir.above import above
from gemel.ir.declare import elementwise
from gemel.ir.keywords import into
from gemel.ir.methods import call
from gemel.ir.public import Array, function
from gemel.ops.elementwise import copy as copied
from gemel.ops.elementwise import limit, maximum, minimum, sign, where
from gemel.ops.logic import isfinite, isnan, isneginf, isposinf
from gemel.ops.shape import operand


@function(public="np", method=True)
def clip(
    a: Any,
    min: Any = None,
    max: Any = None,
    out: Any = None,
    *,
    a_min: Any = None,
    a_max: Any = None,
) -> Array:
    """Limit a to [min, max], also called a_min and a_max; None leaves that side open."""
    if (a_min is not None and min is not None) or (a_max is not None and max is not None):
        raise OperandError(
            "clip: a bound is given twice: a_min and min are the same, and so are a_max and max"
        )
    a = operand(a, (a_min, a_max, min, max))
    low, high = a_min if min is None else min, a_max if max is None else max
    return into("clip", out, _limited(a, low, high))


def _limited(x: Any, low: Any, high: Any) -> Any:
    low, high = _bounds(x.dtype, low, high)
    if low is None:
        return copied(x) if high is None else minimum(x, high)
    if high is None:
        return maximum(x, low)
    # `_bounds` has left no other whole numbers than those that the dtype holds.
    return limit(x, low, high, held=type(low) is int and type(high) is int)


def _bounds(dtype: DType, low: Any, high: Any) -> tuple[Any, Any]:
    """The bounds, with None for those that no value of an integer dtype can exceed.

    Raises `OverflowError` for bounds that leave no value the dtype can hold.
    """
    if dtype.kind not in "iu":
        return low, high
    least, most = limits(dtype)
    small, large = dtype is not int64, dtype not in (int64, uint64)  # which ends an extent can pass
    if _is_whole(low, large) and low > most:
        check_held("clip", low, dtype)
    if _is_whole(high, small) and high < least:
        check_held("clip", high, dtype)
    if large and Dim in (type(low), type(high)):
        # `limit` computes in int64, so it need not be asked whether the dtype holds the size.
        return least if low is None else low, most if high is None else high
    return (
        None if _is_whole(low, small) and low <= least else low,
        None if _is_whole(high, large) and high >= most else high,
    )


def _is_whole(bound: Any, extents: bool) -> bool:
    """Whether a bound is a whole number that may pass an end of the dtype, as `extents` may."""
    return type(bound) is int or (type(bound) is Dim and extents)


@elementwise(dtype="arithmetic", public="np", moves=1)
def positive(xp: Any, x: Any) -> Any:
    """The same numbers, in new memory."""
    return x


@positive.gradient
def _(g: Any, y: Any, x: Any) -> Any:
    return (g,)


@elementwise(dtype="floating", public="np")
def fabs(xp: Any, x: Any) -> Any:
    """Absolute value; integers become float32."""
    return xp.absolute(x)


@fabs.gradient
def _(g: Any, y: Any, x: Any) -> Any:
    return (g * sign(x),)


@elementwise(public="np", mxnet="_npi_fmax")
def fmax(xp: Any, a: Any, b: Any) -> Any:
    """The larger element; a number wins over NaN."""
    return xp.where((a >= b) | (b != b), a, b)


@fmax.gradient
def _(g: Any, y: Any, a: Any, b: Any) -> Any:
    first = (a >= b) | isnan(b)
    return where(first, g, 0), where(first, 0, g)


@elementwise(public="np", mxnet="_npi_fmin")
def fmin(xp: Any, a: Any, b: Any) -> Any:
    """The smaller element; a number wins over NaN."""
    return xp.where((a <= b) | (b != b), a, b)


@fmin.gradient
def _(g: Any, y: Any, a: Any, b: Any) -> Any:
    first = (a <= b) | isnan(b)
    return where(first, g, 0), where(first, 0, g)


@elementwise(dtype="floating", public="np")
def heaviside(xp: Any, a: Any, b: Any) -> Any:
    """0 where a is negative, 1 where it is positive, b where it is 0."""
    return xp.where(a < 0, 0, xp.where(a > 0, 1, xp.where(a == 0, b, a)))


@heaviside.gradient
def _(g: Any, y: Any, a: Any, b: Any) -> Any:
    return None, where(a == 0, g, 0)


@elementwise(dtype="floating")
def replace_special(xp: Any, x: Any, nan: Any, high: Any, low: Any) -> Any:
    """x with other numbers for NaN, inf and -inf: what nan_to_num does."""
    finite = xp.where(x == xp.inf, high, xp.where(x == -xp.inf, low, x))
    return xp.where(x != x, nan, finite)


@replace_special.gradient
def _(g: Any, y: Any, x: Any, nan: Any, high: Any, low: Any) -> Any:
    chosen = (isfinite(x), isnan(x), isposinf(x), isneginf(x))
    return tuple(where(each, g, 0) for each in chosen)


#: The largest number of each floating dtype.
LARGEST = {
    "float16": 65504.0,
    "bfloat16": 3.3895313892515355e38,
    "float32": 3.4028234663852886e38,
    "float64": 1.7976931348623157e308,
}


@function(public="np")
def nan_to_num(
    x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None
) -> Array:
    """Replace NaN by 0 and infinities by the largest finite numbers. The result is always a
    copy."""
    x = above.as_array(x)
    if isinstance(x, NUMBER):
        x = positive(x)
    if x.dtype.is_complex:
        parts = (nan_to_num(call(part, x), True, nan, posinf, neginf) for part in ("real", "imag"))
        return call("of_parts", *parts)
    if not x.dtype.is_floating:
        return copied(x)
    largest = LARGEST[x.dtype.name]
    high = largest if posinf is None else posinf
    return replace_special(x, nan, high, -largest if neginf is None else neginf)

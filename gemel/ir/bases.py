"""Powers and logarithms to the bases 2 and 10, as formulas over a namespace `xp`."""

from __future__ import annotations

from typing import Any

from gemel.dtype import float32, float64, int32, int64

LN2 = 0.6931471805599453
LN10 = 2.302585092994046


def _snapped(xp: Any, x: Any) -> Any:
    """x, rounded to an integer if it is very near one, so that logs of exact powers are exact."""
    whole = xp.rint(x)
    near = xp.absolute(x) * (2.4e-7 if x.dtype.itemsize == 4 else 4.5e-16)
    return xp.where(xp.absolute(x - whole) <= near, whole, x)


#: By item size: the floating dtype, the integer dtype of that size, its mantissa bits, its bias.
_BITS = {4: (float32, int32, 23, 127), 8: (float64, int64, 52, 1023)}


def power_of_two(xp: Any, n: Any) -> Any:
    """2 ** n, exactly, for integers n in the range of normal exponents."""
    dtype, integer, digits, bias = _BITS[n.dtype.itemsize]
    return xp.reinterpret((xp.cast(n, integer) + bias) << digits, dtype)


def exp2(xp: Any, x: Any) -> Any:
    """2 to the power of a floating-point x."""
    low, high = (-152, 129) if x.dtype.itemsize == 4 else (-1080, 1025)
    small = x < low
    x = xp.where(x > high, high, xp.where(small, low, x))
    whole = xp.where(x == x, xp.rint(x), 0)
    half = xp.floor(whole * 0.5)
    # Products that underflow take long on some processors, so what becomes 0 is 0 before them.
    part = xp.where(small, 0.0, xp.exp((x - whole) * LN2))
    # 2 ** whole alone may overflow where the result does not, so it is multiplied in two halves.
    return part * power_of_two(xp, half) * power_of_two(xp, whole - half)


def log2(xp: Any, x: Any) -> Any:
    """The logarithm to base 2, exact for powers of 2."""
    return _snapped(xp, xp.log(x) * (1 / LN2))


def log10(xp: Any, x: Any) -> Any:
    """The logarithm to base 10, exact for powers of 10."""
    return _snapped(xp, xp.log(x) * (1 / LN10))

"""Rounding, remainders, and arithmetic without error: what `mathlib` builds on.

Source: Dekker (1971) for exact products.
"""

from __future__ import annotations

from collections.abc import Callable

from gemel import dtype as dtypes
from gemel.codegen.language.lane import Lane, Recorded
from gemel.dtype import DType

#: What is added to exponents in the bits of a number.
BIAS = {dtypes.float32: 127, dtypes.float64: 1023}


def power_of_two(n: Recorded, dtype: DType) -> Recorded:
    """2**n as `dtype`, for n within the range of normal exponents."""
    return raised(n + BIAS[dtype], dtype)


def raised(bits: Recorded, dtype: DType) -> Recorded:
    """The power of two whose exponent, with its bias, is held by the low bits."""
    return Lane(bits.recorder).reinterpret(bits << (dtype.digits - 1), dtype)


def scale(x: Recorded, n: Recorded) -> Recorded:
    """x * 2**n in two steps, so that results near both ends of the range are right."""
    half = n >> 1
    return x * power_of_two(half, x.dtype) * power_of_two(n - half, x.dtype)


def exact_product(a: Recorded, b: Recorded) -> tuple[Recorded, Recorded]:
    """a * b as a sum of two values, without error (Dekker); for magnitudes below 1e290."""
    high_a, low_a = _halves_of(a)
    high_b, low_b = _halves_of(b)
    product = a * b
    rest = ((high_a * high_b - product) + high_a * low_b + low_a * high_b) + low_a * low_b
    return product, rest


def multiply_add(xp: Lane, a: Recorded, b: Recorded, c: Recorded) -> Recorded:
    """a * b + c in float32, rounded once, for processors without such an instruction.

    The product is exact in float64. The sum is rounded to odd there, because rounding to nearest
    twice can differ from rounding once (Boldo and Melquiond, 2008).
    """
    product, c = a.cast(dtypes.float64) * b.cast(dtypes.float64), c.cast(dtypes.float64)
    total = product + c
    part = total - product
    lost = (product - (total - part)) + (c - part)
    bits = xp.reinterpret(total, dtypes.int64)
    # Rounds towards zero, then sets the last bit. For infinity and NaN, `lost` is NaN.
    odd = (bits - ((lost < 0) != (total < 0)).cast(dtypes.int64)) | 1
    total = xp.where((lost < 0) | (lost > 0), xp.reinterpret(odd, dtypes.float64), total)
    return total.cast(dtypes.float32)


def _halves_of(a: Recorded) -> tuple[Recorded, Recorded]:
    scaled = a * 134217729.0
    high = scaled - (scaled - a)
    return high, a - high


def _round_with(
    xp: Lane, x: Recorded, adjust: Callable[[Recorded, Recorded], Recorded]
) -> Recorded:
    """Rounding for processors without an instruction for it."""
    limit = 2.0 ** (x.dtype.digits - 1)
    nearest = xp.copysign((abs(x) + limit) - limit, x)
    return xp.where(abs(x) < limit, xp.copysign(adjust(nearest, x), x), x)


def rint(xp: Lane, x: Recorded) -> Recorded:
    """To the nearest integer, ties to even."""
    return _round_with(xp, x, lambda t, x: t)


def floor(xp: Lane, x: Recorded) -> Recorded:
    """To the next integer below."""
    return _round_with(xp, x, lambda t, x: t - xp.where(t > x, xp.ones_like(x), 0))


def ceil(xp: Lane, x: Recorded) -> Recorded:
    """To the next integer above."""
    return _round_with(xp, x, lambda t, x: t + xp.where(t < x, xp.ones_like(x), 0))


def trunc(xp: Lane, x: Recorded) -> Recorded:
    """To the next integer towards 0."""
    return _round_with(xp, x, lambda t, x: abs(t) - xp.where(abs(t) > abs(x), xp.ones_like(x), 0))


def _significand(xp: Lane, a: Recorded, digits: int) -> tuple[Recorded, Recorded]:
    """s and e with a = s 2**e and s an integer of `digits` + 1 bits; for a > 0 in float64."""
    small = a < 2.2250738585072014e-308
    bits = xp.reinterpret(xp.where(small, a * 2.0**54, a), dtypes.int64)
    exponent = (bits >> 52) - xp.where(small, xp.constant(54, dtypes.int64), 0)
    ones = (BIAS[dtypes.float64] + digits) << 52
    whole = xp.reinterpret((bits & (2**52 - 1)) | ones, dtypes.float64)
    return whole, exponent - (BIAS[dtypes.float64] + digits)


def _times_modulo(xp: Lane, a: Recorded, b: Recorded, n: Recorded, digits: int) -> Recorded:
    """a b modulo n without error, for integers 0 <= a, b < n < 2**(digits + 1)."""
    if 2 * digits + 2 < dtypes.float64.digits:
        product = a * b
        rest = product - xp.floor(product / n) * n
    else:
        product, low = exact_product(a, b)
        taken, lost = exact_product(xp.floor(product / n), n)
        rest = (product - taken) + (low - lost)
    rest = xp.where(rest < 0, rest + n, rest)
    return xp.where(rest >= n, rest - n, rest)


def _rest(xp: Lane, x: Recorded, y: Recorded) -> tuple[Recorded, Recorded, Recorded]:
    """The exact remainder of the truncated division x / y, with the sign of x, and y itself, both
    in float64; and whether y must be added once to give the remainder the sign of y."""
    digits = x.dtype.digits - 1
    x, b = x.cast(dtypes.float64), y.cast(dtypes.float64)
    m, above = _significand(xp, abs(x), digits)
    n, exponent = _significand(xp, abs(b), digits)
    # Compute m 2**d modulo n. The bits of d except the last few give a power smaller than n; each
    # of the remaining bits squares it, and may double it.
    d = xp.maximum(above - exponent, 0)
    last = 4 if digits == 23 else 6
    power = power_of_two(d >> last, dtypes.float64)
    for digit in reversed(range(last)):
        power = _times_modulo(xp, power, power, n, digits)
        twice = power + power
        twice = xp.where(twice >= n, twice - n, twice)
        power = xp.where(((d >> digit) & 1) != 0, twice, power)
    rest = _times_modulo(xp, xp.where(m >= n, m - n, m), power, n, digits)
    rest = xp.where(abs(x) < abs(b), x, xp.copysign(scale(rest, exponent), x))
    invalid = (b == 0) | (abs(x) == float("inf")) | xp.isnan(x) | xp.isnan(b)
    rest = xp.where(invalid, xp.nan, rest)
    return rest, b, (rest != 0) & ((rest < 0) != (b < 0))


def remainder(xp: Lane, x: Recorded, y: Recorded) -> Recorded:
    """x - floor(x / y) y: the sign of y, as Python's %."""
    rest, b, wrong = _rest(xp, x, y)
    rest = xp.where(wrong, rest + b, rest)
    return xp.where(rest == 0, xp.copysign(xp.zeros_like(b), b), rest).cast(x.dtype)


def floor_divide(xp: Lane, x: Recorded, y: Recorded) -> Recorded:
    """floor(x / y), computed from the exact remainder."""
    rest, _, wrong = _rest(xp, x, y)
    quotient = (x - rest.cast(x.dtype)) / y - wrong.cast(x.dtype)
    whole = xp.floor(quotient)
    whole = xp.where(quotient - whole > 0.5, whole + 1, whole)
    whole = xp.where(quotient == 0, xp.copysign(xp.zeros_like(x), x / y), whole)
    return xp.where(y == 0, x / y, whole)


def float_to_uint64(xp: Lane, x: Recorded) -> Recorded:
    """Floating-point to uint64; values that int64 cannot hold are converted without the top bit."""
    low = x.cast(dtypes.int64).cast(dtypes.uint64)
    high = (x - 2.0**63).cast(dtypes.int64).cast(dtypes.uint64) ^ 2**63
    return xp.where(x >= 2.0**63, high, low)


_ALL = (rint, floor, ceil, trunc, remainder, floor_divide, multiply_add, float_to_uint64)
FUNCTIONS: dict[str, Callable[..., Recorded]] = {each.__name__: each for each in _ALL}

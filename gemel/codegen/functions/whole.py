"""Integer instructions that a processor or C lacks or leaves undefined.

Nothing traps, and all results wrap around; bools are integers of one bit.
"""

from __future__ import annotations

from collections.abc import Callable

from gemel import dtype as dtypes
from gemel.codegen.language.lane import Lane, Recorded


def isnan(xp: Lane, x: Recorded) -> Recorded:
    """Always false: integers have no NaN."""
    return xp.constant(False, dtypes.bool_)


def negative(xp: Lane, x: Recorded) -> Recorded:
    """-x."""
    return 0 - x


def absolute(xp: Lane, x: Recorded) -> Recorded:
    """x without its sign."""
    return xp.where(x < 0, 0 - x, x) if x.dtype.kind == "i" else x


def bit_not(xp: Lane, x: Recorded) -> Recorded:
    """All bits inverted."""
    return x ^ (True if x.dtype.kind == "b" else -1)


def multiply_high(xp: Lane, a: Recorded, b: Recorded) -> Recorded:
    """The upper half of the product of two uint32."""
    product = a.cast(dtypes.uint64) * b.cast(dtypes.uint64)
    return (product >> 32).cast(dtypes.uint32)


def divide(xp: Lane, a: Recorded, b: Recorded) -> Recorded:
    """a / b towards 0; 0 if b is 0; the smallest integer divided by -1 wraps to itself."""
    none = b == 0
    if a.dtype.kind != "i":
        return xp.where(none, 0, a.binary("quotient", xp.where(none, 1, b)))
    minus = b == -1
    safe = xp.where(none | minus, 1, b)
    return xp.where(none, 0, xp.where(minus, 0 - a, a.binary("quotient", safe)))


def _shifted(xp: Lane, name: str, x: Recorded, by: Recorded) -> tuple[Recorded, Recorded]:
    """`x` shifted by at most its bits less one, and whether `by` was within that."""
    last = 8 * x.dtype.itemsize - 1
    natural = next(d for d in dtypes.DTYPES if d.kind == "u" and d.itemsize == x.dtype.itemsize)
    fits = by.cast(natural) <= last
    return fits, x.binary(name, xp.where(fits, by, last))


def shift_left(xp: Lane, x: Recorded, by: Recorded) -> Recorded:
    """x shifted left, filled with zeros; 0 if `by` is at least the number of bits."""
    fits, shifted = _shifted(xp, "shift_left_within", x, by)
    return xp.where(fits, shifted, 0)


def shift_right(xp: Lane, x: Recorded, by: Recorded) -> Recorded:
    """x shifted right; 0, or only sign bits, if `by` is at least the number of bits."""
    fits, shifted = _shifted(xp, "shift_right_within", x, by)
    return shifted if x.dtype.kind == "i" else xp.where(fits, shifted, 0)


def _rest(xp: Lane, x: Recorded, y: Recorded) -> Recorded:
    """The remainder of truncated division; 0 if y is 0."""
    return xp.where(y == 0, 0, x - x.binary("divide", y) * y)


def _apart(rest: Recorded, y: Recorded) -> Recorded:
    """Whether the remainder is not 0 and its sign differs from that of y."""
    return ((rest ^ y) < 0) & (rest != 0)


def remainder(xp: Lane, x: Recorded, y: Recorded) -> Recorded:
    """x - floor(x / y) y: the sign of y, as Python's %."""
    rest = _rest(xp, x, y)
    return xp.where(_apart(rest, y), rest + y, rest) if x.dtype.kind == "i" else rest


def floor_divide(xp: Lane, x: Recorded, y: Recorded) -> Recorded:
    """floor(x / y), or 0 if y is 0."""
    quotient = x.binary("divide", y)
    if x.dtype.kind != "i":
        return quotient
    return xp.where(_apart(_rest(xp, x, y), y), quotient - 1, quotient)


def _squared(xp: Lane, x: Recorded, y: Recorded, bits: int) -> tuple[Recorded, Recorded]:
    """x to the power of the low bits of y by squaring, and the other bits."""
    result: Recorded = xp.full_like(x, 1)
    for _ in range(bits):
        result = xp.where((y & 1) != 0, result * x, result)
        x, y = x * x, y >> 1
    return result, y


def power(xp: Lane, x: Recorded, y: Recorded) -> Recorded:
    """x**y for y >= 0. What only exponents of 8 and more need is computed if there are any."""
    usual, rest = _squared(xp, x, y, 3)
    return x.recorder.append("seldom", x.dtype, (rest != 0, usual, x, y), "far_power")


def far_power(xp: Lane, x: Recorded, y: Recorded) -> Recorded:
    """x**y for any y >= 0."""
    return _squared(xp, x, y, x.dtype.digits)[0]


_ALL = (isnan, negative, absolute, bit_not, multiply_high, divide, shift_left, shift_right)
FUNCTIONS: dict[str, Callable[..., Recorded]] = {
    each.__name__: each for each in (*_ALL, remainder, floor_divide, power, far_power)
}

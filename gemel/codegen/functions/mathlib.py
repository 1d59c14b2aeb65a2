"""Mathematical functions as lane arithmetic: no library calls, and no branches except for large
angles. In float32, multiply-adds round once; where the processor has no such instruction they are
computed exactly by other means.

So every target and every vector width computes the same bits. Special values (NaN, infinities,
zeros, overflow, underflow) are those of NumPy. The largest relative errors, measured against x87's
extended precision (erf: against SciPy's float64), are::

             float32                    float64
    exp      0.8e-7                     1.3e-16
    log      0.8e-7                     1.5e-16
    expm1    1.1e-7                     2.0e-16
    log1p    1.3e-7                     2.4e-16
    tanh     2.9e-7                     2.9e-16
    erf      2.9e-7                     5.8e-16
    sin cos  1.3e-7                     2.6e-16
    power    1.7e-7                     1.1e-15

Angles may be as large as the dtype permits (`angles`). The remainder is exact.

Sources: Cephes (Moshier 1989) for float32 polynomials, fdlibm (Sun 1993) for float64 ones, Eigen's
rational tanh; Dekker (1971) for exact sums and products.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from gemel import dtype as dtypes
from gemel.codegen.functions import angles, halves, powers, rounding, whole
from gemel.codegen.functions.polynomials import polynomial, polynomial_after
from gemel.codegen.functions.rounding import BIAS, exact_product, power_of_two, raised, scale
from gemel.codegen.language import program
from gemel.codegen.language.lane import Lane, Recorded, Recorder
from gemel.codegen.language.program import Instruction
from gemel.dtype import DType

#: Adding and subtracting this rounds to an integer; after the addition, the low bits hold it.
MAGIC = {dtypes.float32: 12582912.0, dtypes.float64: 6755399441055744.0}
_MAGIC_BITS = {dtypes.float32: 0x4B400000, dtypes.float64: 0x4338000000000000}
#: `scaled_down` lifts by this power of two, above all subnormal numbers.
_LIFT = 65
#: As `MAGIC`, for integers that become exponents, by the instruction that multiplies by the power
#: of two: the low bits then hold the bias of exponents, too. What is added to `MAGIC` is even, so
#: that ties are rounded as they are there.
EXPONENT = {
    "scaled": {dtype: MAGIC[dtype] + 2 * bias for dtype, bias in BIAS.items()},
    "scaled_down": {dtype: MAGIC[dtype] + bias + _LIFT for dtype, bias in BIAS.items()},
}
_WHOLE = {dtypes.float32: dtypes.int32, dtypes.float64: dtypes.int64}

_LN2 = {
    dtypes.float32: (0.693359375, -2.12194440e-4),
    dtypes.float64: (6.93147180369123816490e-01, 1.90821492927058770002e-10),
}
_LOG2E = 1.4426950408889634
_INFINITY = float("inf")


def _nearest(x: Recorded) -> tuple[Recorded, Recorded]:
    """`x` rounded to an integer, as floating-point and as integer; |x| < 2**22 or 2**51."""
    return _unshifted(x + MAGIC[x.dtype])


def _unshifted(shifted: Recorded) -> tuple[Recorded, Recorded]:
    dtype = shifted.dtype
    bits = Lane(shifted.recorder).reinterpret(shifted, _WHOLE[dtype])
    return shifted - MAGIC[dtype], bits - _MAGIC_BITS[dtype]


def scaled(xp: Lane, x: Recorded, shifted: Recorded) -> Recorded:
    """x * 2**n, given n + `EXPONENT`; in two steps, so that results near both ends of the range are
    right."""
    bits = xp.reinterpret(shifted, _WHOLE[x.dtype])
    half = bits >> 1
    return x * raised(half, x.dtype) * raised(bits - half, x.dtype)


def scaled_down(xp: Lane, x: Recorded, shifted: Recorded) -> Recorded:
    """x * 2**n for n of at most 0, given n + `EXPONENT`: lifted by so much that nothing is
    subnormal, then lowered again, which rounds once."""
    lifted = x * raised(xp.reinterpret(shifted, _WHOLE[x.dtype]), x.dtype)
    return lifted * 2.0**-_LIFT


def _scaled(x: Recorded, shifted: Recorded, how: str = "scaled") -> Recorded:
    """`scaled` or `scaled_down` as an instruction, which some processors have; these occur only in
    this module."""
    return x.recorder.append(how, x.dtype, (x, shifted))


def _without_ln2(x: Recorded, magic: float) -> tuple[Recorded, Recorded]:
    """r and n + `magic` with x = n ln 2 + r, |r| <= ln(2) / 2; float32."""
    xp = Lane(x.recorder)
    shifted = xp.multiply_add(x, _LOG2E, magic)
    real = shifted - magic
    high, low = _LN2[x.dtype]
    return xp.multiply_add(real, -low, xp.multiply_add(real, -high, x)), shifted


def _reduce_exp(
    x: Recorded, magic: float, more: Recorded | None = None
) -> tuple[Recorded, Recorded]:
    """expm1(r) and n + `magic` with x (+ more) = n ln 2 + r, |r| <= ln(2) / 2."""
    xp = Lane(x.recorder)
    if x.dtype is dtypes.float32:
        r, shifted = _without_ln2(x, magic)
        p = polynomial(r, "expm1")
        return xp.multiply_add(p, r * r, r), shifted
    shifted = xp.multiply_add(x, _LOG2E, magic)
    real = shifted - magic
    high, low = _LN2[x.dtype]
    first = x - real * high
    rest = real * low if more is None else real * low - more
    r = first - rest
    c = r - r * r * polynomial(r * r, "expm1")
    return first - (rest - r * c / (2 - c)), shifted


def _clamp(xp: Lane, x: Recorded, low: float, high: float) -> Recorded:
    """`x` between `low` and `high`, by comparisons and selections, so that NaN stays."""
    x = xp.where(x < low, low, x)
    return xp.where(x > high, high, x)


def exp(xp: Lane, x: Recorded) -> Recorded:
    """e**x; overflow gives inf, underflow subnormals and 0."""
    most = 89.0 if x.dtype is dtypes.float32 else 710.0
    return _raising(xp, xp.where(x > most, most, x), "scaled")


def exp_falling(xp: Lane, x: Recorded) -> Recorded:
    """`exp` of arguments that are at most 0, or NaN."""
    return _raising(xp, x, "scaled_down")


def _raising(xp: Lane, x: Recorded, how: str) -> Recorded:
    """e**x; `how` names the instruction that multiplies by a power of two.

    What underflows to 0 is multiplied as 0: Intel's processors take a hundred cycles for a product
    that underflows, and the weights of a masked softmax would all be such products.
    """
    magic = EXPONENT[how][x.dtype]
    least = -104.0 if x.dtype is dtypes.float32 else -746.0
    small = x < least
    x = xp.where(small, least, x)
    if x.dtype is dtypes.float32:
        r, n = _without_ln2(x, magic)
        raised = polynomial(r, "exp")
    else:
        p, n = _reduce_exp(x, magic)
        raised = p + 1
    return _scaled(xp.where(small, 0.0, raised), n, how)


def expm1(xp: Lane, x: Recorded) -> Recorded:
    """e**x - 1, exact near 0."""
    low, high = (-30.0, 89.0) if x.dtype is dtypes.float32 else (-60.0, 710.0)
    p, n = _reduce_exp(_clamp(xp, x, low, high), MAGIC[x.dtype])
    # Half of 2**n (p + 1) - 1, because 2**n itself may overflow.
    half = power_of_two(_unshifted(n)[1] - 1, x.dtype)
    return xp.where(x == 0, x, (half * p + (half - 0.5)) * 2)


def _split_log(xp: Lane, x: Recorded) -> tuple[Recorded, Recorded]:
    """n and m with x = 2**n m and m between sqrt(1/2) and sqrt(2), for positive finite x."""
    dtype = x.dtype
    single = dtype is dtypes.float32
    small = x < (1.1754943508222875e-38 if single else 2.2250738585072014e-308)
    lift = 23 if single else 54
    n, m = _split_normal(xp, xp.where(small, x * 2.0**lift, x))
    return (n - xp.where(small, xp.constant(lift, n.dtype), 0)).cast(dtype), m


def _split_normal(xp: Lane, x: Recorded) -> tuple[Recorded, Recorded]:
    """As `_split_log`, for normal x; n is an integer."""
    dtype = x.dtype
    bits = xp.reinterpret(x, _WHOLE[dtype])
    half = 0x3F3504F3 if dtype is dtypes.float32 else 0x3FE6A09E667F3BCD
    n = (bits - half) >> (dtype.digits - 1)
    return n, xp.reinterpret(bits - (n << (dtype.digits - 1)), dtype)


def _log_special(xp: Lane, x: Recorded, result: Recorded) -> Recorded:
    result = xp.where(x == _INFINITY, x, result)
    result = xp.where(x == 0, -_INFINITY, result)
    return xp.where(x >= 0, result, xp.nan)


def log(xp: Lane, x: Recorded) -> Recorded:
    """The natural logarithm; -inf at 0, NaN below."""
    n, m = _split_log(xp, x)
    high, low = _LN2[x.dtype]
    f = m - 1
    square = f * f
    if x.dtype is dtypes.float32:
        y = xp.multiply_add(polynomial(f, "log") * f, square, n * low)
        y = xp.multiply_add(square, -0.5, y) + f
        return _log_special(xp, x, xp.multiply_add(n, high, y))
    half = square * 0.5
    s = f / (f + 2)
    r = polynomial(s * s, "log") * (s * s)
    return _log_special(xp, x, n * high - ((half - (s * (half + r) + n * low)) - f))


def log1p(xp: Lane, x: Recorded) -> Recorded:
    """log(1 + x), exact near 0."""
    u = x + 1
    correction = (x - (u - 1)) / u  # what rounding removed from u (Kahan)
    result = log(xp, u) + xp.where((u == 0) | (u == _INFINITY), 0, correction)
    return xp.where(u == 1, x, result)


def tanh(xp: Lane, x: Recorded) -> Recorded:
    """The hyperbolic tangent."""
    if x.dtype is dtypes.float64:
        t = expm1(xp, xp.minimum(abs(x), 22) * 2)
        return xp.copysign(t / (t + 2), x)
    c = _clamp(xp, x, -7.90531110763549805, 7.90531110763549805)
    z = c * c
    above = polynomial(z, "tanh above")
    below = polynomial(z, "tanh below")
    result = c * above / below
    result = xp.where(abs(x) > 9.02, xp.copysign(xp.ones_like(x), x), result)
    return xp.where(abs(x) < 4e-4, x, result)


def erf(xp: Lane, x: Recorded) -> Recorded:
    """The error function."""
    if x.dtype is dtypes.float64:
        return _erf_64(xp, x)
    c = _clamp(xp, x, -4.0, 4.0)
    z = c * c
    above = polynomial(z, "erf above")
    below = polynomial(z, "erf below")
    result = xp.where(abs(x) > 3.92, xp.copysign(xp.ones_like(x), x), c * above / below)
    return xp.where(abs(x) < 1e-4, x * 1.1283791670955126, result)


def _erf_64(xp: Lane, x: Recorded) -> Recorded:
    """Taylor series below 0.85; above, 1 - exp(-x*x) g, with g a polynomial in (x - 2) / (x +
    2)."""
    a = abs(x)
    small = x * polynomial(x * x, "erf small")
    b = xp.where(a > 6, 6, a)
    p, n = _reduce_exp(-(b * b), EXPONENT["scaled_down"][x.dtype])
    large = 1 - _scaled(p + 1, n, "scaled_down") * polynomial((b - 2) / (b + 2), "erf large")
    return xp.where(a < 0.85, small, xp.copysign(large, x))


def _quarter_turns(xp: Lane, x: Recorded) -> tuple[Recorded, Recorded]:
    """The remaining angle within [-pi/4, pi/4], and the number of quarter turns as int32;
    requires |x| < 2**17."""
    wide = x.cast(dtypes.float64)
    real, n = _nearest(wide * 0.6366197723675814)
    if x.dtype is dtypes.float32:
        r = wide - real * 1.57079632673412561417e00 - real * 6.07710050650619224932e-11
        r = r.cast(dtypes.float32)
    else:
        # Three parts of pi/2; the first two have 33 bits, so their products are exact.
        r = x - real * 1.57079632673412561417e00 - real * 6.07710050630396597660e-11
        r = r - real * 2.02226624879595063154e-21
    return r, n.cast(dtypes.int32)


def _sine(r: Recorded) -> Recorded:
    z = r * r
    if r.dtype is dtypes.float32:
        p = polynomial(z, "sine") * z
        return Lane(r.recorder).multiply_add(p, r, r)
    return r + r * z * polynomial(z, "sine")


def _cosine(r: Recorded) -> Recorded:
    z = r * r
    p = polynomial(z, "cosine")
    if r.dtype is dtypes.float32:
        xp = Lane(r.recorder)
        return xp.multiply_add(p, z * z, xp.multiply_add(z, -0.5, 1))
    half = z * 0.5
    w = 1 - half
    return w + (((1 - w) - half) + z * z * p)


def _circular(xp: Lane, r: Recorded, n: Recorded) -> Recorded:
    """The sine of r plus n quarter turns."""
    result = xp.where((n & 1) != 0, _cosine(r), _sine(r))
    return xp.where((n & 2) != 0, -result, result)


def _unless_far(xp: Lane, x: Recorded, turns: int, usual: Recorded) -> Recorded:
    """`far_sine` where x is large, else `usual`. It is computed only if any x is large, by the
    instruction `seldom`, which occurs only in such functions."""
    given = (abs(x) >= angles.FAR, usual, x, xp.full_like(x, turns))
    return x.recorder.append("seldom", x.dtype, given, "far_sine")


def far_sine(xp: Lane, x: Recorded, turns: Recorded) -> Recorded:
    """The sine of a large angle in radians, plus a quarter turn unless `turns` is 0."""
    r, n = angles.quarter_turns(xp, x)
    return _circular(xp, r, xp.where(turns == 0, n, n + 1)).cast(x.dtype)


def sin(xp: Lane, x: Recorded) -> Recorded:
    """The sine of an angle in radians."""
    tiny = 1e-4 if x.dtype is dtypes.float32 else 1e-8
    usual = xp.where(abs(x) < tiny, x, _circular(xp, *_quarter_turns(xp, x)))
    return _unless_far(xp, x, 0, usual)


def cos(xp: Lane, x: Recorded) -> Recorded:
    """The cosine of an angle in radians."""
    r, n = _quarter_turns(xp, x)
    return _unless_far(xp, x, 1, _circular(xp, r, n + 1))


# -- power -----------------------------------------------------------------------------------


def _precise_log(xp: Lane, a: Recorded) -> tuple[Recorded, Recorded]:
    """log(a) as a sum of two float64 values, accurate to about 65 bits."""
    n, m = _split_log(xp, a)
    high, low = _LN2[dtypes.float64]
    f = m - 1
    below = f + 2
    s = f / below
    product, rest = exact_product(s, below)
    # m + 1 is rounded, too; the lost part is m - 1 - (below - 2).
    lost = f - (below - 2)
    s_low = ((f - product) - rest - s * lost) / below
    cubic, tail = _cubic_of_log(xp, s, s_low)
    tail = tail + 2 * s_low + n * low
    first, second = n * high, 2 * s
    linear = first + second
    error = second - (linear - first)
    error = xp.where(n == 0, 0, error)
    total = linear + cubic
    tail = tail + (cubic - (total - linear)) + error
    result = total + tail
    return result, tail - (result - total)


def _cubic_of_log(xp: Lane, s: Recorded, s_low: Recorded) -> tuple[Recorded, Recorded]:
    """log((1 + s) / (1 - s)) - 2 s as a sum of two values, for |s| below 0.18.

    The term in s**3 is computed to twice the digits: near |s| = 0.17 its rounding alone, times an
    exponent of 2000, would be 20 units in the last place of a power."""
    square, lost = exact_product(s, s)
    lost = lost + 2 * s * s_low
    leading, others = polynomial_after(square, "log")
    factor, below = exact_product(square, xp.full_like(s, leading))
    below = below + lost * leading + square * square * others
    cubic, rest = exact_product(s, factor)
    return cubic, rest + s * below + s_low * factor


def _power_64(xp: Lane, a: Recorded, y: Recorded) -> Recorded:
    """exp(y log a) for positive finite a."""
    y = _clamp(xp, y, -(2.0**64), 2.0**64)
    high, low = _precise_log(xp, a)
    product, rest = exact_product(y, high)
    rest = rest + y * low
    clamped = _clamp(xp, product, -746.0, 710.0)
    rest = xp.where(clamped == product, rest, 0)
    p, n = _reduce_exp(clamped, EXPONENT["scaled"][a.dtype], rest)
    return _scaled(p + 1, n)


#: 2 / ln 2 as a float32, and the remainder.
_TWICE_LOG2E = (2.885390043258667, 3.851926e-8)


def _log2_32(xp: Lane, n: Recorded, m: Recorded) -> tuple[Recorded, Recorded]:
    """n + log2(m) as a sum of two float32 values, accurate to about 31 bits."""
    f, below = m - 1, m + 1
    lost = m - (below - 1)
    inverse = 1 / below
    s = f * inverse
    rest = xp.multiply_add(-s, lost, xp.multiply_add(-s, below, f)) * inverse
    high, low = _TWICE_LOG2E
    first = s * high
    z = s * s
    slope = xp.multiply_add(z, high, high)  # the derivative of the logarithm by s
    second = xp.multiply_add(s, high, -first) + xp.multiply_add(rest, slope, s * low)
    second = xp.multiply_add(polynomial(z, "log2 odd") * z, s, second)
    total = n + first
    second = second + (first - (total - n))
    result = total + second
    return result, second - (result - total)


def _exponent_32(xp: Lane, n: Recorded, m: Recorded, y: Recorded) -> tuple[Recorded, Recorded]:
    """y (n + log2(m)) as a sum of two values; up to eight of its bits are before the point."""
    high, low = _log2_32(xp, n, m)
    exponent = high * y
    return exponent, xp.multiply_add(low, y, xp.multiply_add(high, y, -exponent))


def _exp2_32(xp: Lane, exponent: Recorded, rest: Recorded) -> tuple[Recorded, Recorded]:
    """m and n with 2**(exponent + rest) = 2**n m, for |exponent| up to 160."""
    whole, n = _nearest(exponent)
    r = exponent - whole + rest
    return xp.multiply_add(polynomial(r, "exp2"), r, 1), n


def _power_32(xp: Lane, a: Recorded, y: Recorded) -> Recorded:
    """2**(y log2 a) for positive finite a."""
    exponent, rest = _exponent_32(xp, *_split_log(xp, a), y)
    held = _clamp(xp, exponent, -160.0, 160.0)
    return scale(*_exp2_32(xp, held, xp.where(abs(exponent) < 160.0, rest, 0)))


def power_common(xp: Lane, x: Recorded, y: Recorded) -> Recorded:
    """x**y for positive x if nothing is near the ends of the dtype's range; otherwise NaN."""
    if x.dtype is not dtypes.float32:
        usual = (x > 0) & (x < _INFINITY) & (abs(y) < _INFINITY)
        return xp.where(usual, _power_64(xp, abs(x), y), xp.nan)
    n, m = _split_normal(xp, x)
    exponent, rest = _exponent_32(xp, n.cast(x.dtype), m, y)
    p, n = _exp2_32(xp, exponent, rest)
    least = xp.reinterpret(x, dtypes.int32) - 0x00800000
    normal = xp.reinterpret(least, dtypes.uint32) < 0x7F000000
    return xp.where(normal & (abs(exponent) < 126.0), p * power_of_two(n, x.dtype), xp.nan)


def logaddexp(xp: Lane, a: Recorded, b: Recorded) -> Recorded:
    """log(exp(a) + exp(b)), without overflow: how a scan joins two values.

    The operation of this name has the same formula, but no kernel's code depends on operations.
    """
    distance = xp.where(a == b, 0, a - b)  # of equal infinities: not NaN
    return xp.maximum(a, b) + xp.log1p(xp.exp(-abs(distance)))


def power_short(xp: Lane, y: Recorded) -> Recorded:
    """Whether `powers` may have a shorter way for this exponent."""
    twice = y + y
    return (xp.trunc(twice) == twice) & (abs(y) <= 4)


def power(xp: Lane, x: Recorded, y: Recorded) -> Recorded:
    """x**y with the special cases of C (and NumPy)."""
    a = abs(x)
    result = (_power_32 if x.dtype is dtypes.float32 else _power_64)(xp, a, y)
    grows = xp.where(a > 1, y > 0, y < 0)
    ends = (a == 0) | (a == _INFINITY) | (abs(y) == _INFINITY)
    result = xp.where(ends, xp.where(grows, xp.full_like(x, _INFINITY), 0), result)
    result = xp.where(xp.isnan(x) | xp.isnan(y), xp.nan, result)
    result = xp.where((a == 1) | (y == 0), 1, result)
    whole = xp.trunc(y) == y
    half = y * 0.5
    odd = whole & (xp.trunc(half) != half)
    result = xp.where(xp.signbit(x) & odd, -result, result)
    return xp.where((x < 0) & ~whole & (a != _INFINITY), xp.nan, result)


FUNCTIONS: dict[str, Callable[..., Recorded]] = {
    **{name: globals()[name] for name in program.FUNCTIONS},
    **{f.__name__: f for f in (far_sine, exp_falling, logaddexp, power, power_common, power_short)},
    **{f.__name__: f for f in (scaled, scaled_down)},
    **powers.FUNCTIONS,
    **rounding.FUNCTIONS,
    **halves.FUNCTIONS,
}


def written(name: str, source: DType) -> Callable[..., Recorded]:
    """The Python function that writes `name`, for arguments of `source`, as instructions."""
    found = (FUNCTIONS if source.kind == "f" else whole.FUNCTIONS).get(name)
    if found is None:
        raise NotImplementedError(f"{source} has no instruction {name!r}")
    return found


@cache
def expansion(name: str, source: DType) -> tuple[tuple[Instruction, ...], int]:
    """The function `name` of arguments of `source` as code, and the position of its result.

    Positions 0 (and 1) of the code are the arguments. Expansions are cached for the process.
    """
    function, recorder = written(name, source), Recorder()
    arguments = [recorder.argument(source) for _ in range(function.__code__.co_argcount - 1)]
    result = function(Lane(recorder), *arguments)
    return tuple(recorder.code), result.position

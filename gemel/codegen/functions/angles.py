"""Range reduction of large angles: the significand times those bits of 2 / pi that matter.

The number of quarter turns is needed modulo 4 only, so earlier bits of 2 / pi are left out. Bits
after those used change no bit of the result, however near the angle is to a multiple of pi / 2.

Source: Payne and Hanek (1983).
"""

from __future__ import annotations

from gemel import dtype as dtypes
from gemel.codegen.functions.rounding import exact_product
from gemel.codegen.language.lane import Lane, Recorded

#: From this angle on, the few parts of pi / 2 in `mathlib` are not precise enough.
FAR = 2.0**17
#: 54 zeros and the first bits of 2 / pi: for angles of 2**e and above, bits from e on matter.
_DIGITS = (
    "000000000000028be60db9391054a7f09d5f47d4d377036d8a5664f10e4107f9458eaf7aef1586dc"
    "91b8e909374b801924bba827464873f877ac72c4a69cfba208d7d4baed1213a671c09ad17df904e6"
    "4758e60d4ce7d272117e2ef7e4a0ec7fe25fff7816603fbcbc462d6829b47db4d9fb3c9f2c26dd3d"
    "18fd9a797fa8b5d49eeb1faf97c5ecf41ce7de294a4ba9afed7ec47e35742158"
)
_WORDS = [int(_DIGITS[digit : digit + 16], 16) for digit in range(0, len(_DIGITS), 16)]
_LOW = 2**32 - 1


def _telling(xp: Lane, exponent: Recorded, steps: tuple[int, ...], count: int) -> list[Recorded]:
    """The `count` words of 2 / pi that matter for angles with this exponent, which is below 128
    times the first of `steps`."""
    words = [xp.constant(word, dtypes.uint64) for word in _WORDS[: count + 2 * steps[0]]]
    for step in steps:
        later = ((exponent >> 6) & step) != 0
        words = [xp.where(later, b, a) for a, b in zip(words, words[step:], strict=False)]
    first = exponent & 63
    return [(a << first) | (b >> 1 >> (63 - first)) for a, b in zip(words, words[1:], strict=False)]


def _times(xp: Lane, significand: Recorded, words: list[Recorded]) -> list[Recorded]:
    """The product in digits of 32 bits, the lowest first, without the overflow of the highest."""
    low, high = significand & _LOW, significand >> 32
    carry = xp.constant(0, dtypes.uint64)
    digits = []
    for half in (half for word in reversed(words) for half in (word & _LOW, word >> 32)):
        part = low * half + (carry & _LOW)
        carry = high * half + (part >> 32) + (carry >> 32)
        digits.append(part & _LOW)
    return digits


def quarter_turns(xp: Lane, x: Recorded) -> tuple[Recorded, Recorded]:
    """The remaining angle within [-pi/4, pi/4] as float64 (NaN where x is not finite) and the
    number of quarter turns modulo 4 as uint64. Requires |x| >= 1."""
    bits = xp.reinterpret(abs(x).cast(dtypes.float64), dtypes.uint64)
    sizes = ((1,), 2) if x.dtype is dtypes.float32 else ((8, 4, 2, 1), 3)
    words = _telling(xp, (bits >> 52) - 1023, *sizes)
    least, less, low, high = _times(xp, (bits & (2**52 - 1)) | 2**52, words)[-4:]
    top = (high << 32) | low
    n = (top + 2**61) >> 62
    # The remainder, split so that float64 holds each part exactly: their sum loses no bit.
    parts = (top - (n << 62)).cast(dtypes.int64) >> 20, ((top & (2**20 - 1)) << 32) | less, least
    a, b, c = (part.cast(dtypes.int64).cast(dtypes.float64) for part in parts)
    turns = a + b * 2.0**-52
    rest = b * 2.0**-52 - (turns - a) + c * 2.0**-84
    half_pi = xp.full_like(a, 1.5707963267948966)
    angle, lost = exact_product(turns, half_pi)
    angle = (angle + (lost + (turns * 6.123233995736766e-17 + rest * half_pi))) * 2.0**-42
    angle = xp.where(abs(x) < xp.inf, xp.where(x < 0, -angle, angle), xp.nan)
    return angle, xp.where(x < 0, 0 - n, n)

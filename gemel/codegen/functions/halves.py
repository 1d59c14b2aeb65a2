"""float16 and bfloat16 to and from float32 in integer arithmetic: not all processors convert them.

Rounding is to nearest, ties to even. Subnormals, infinities and NaN are preserved.
"""

from __future__ import annotations

from collections.abc import Iterator

from gemel import dtype as dtypes
from gemel.codegen.language.lane import Lane, Recorded
from gemel.dtype import DType


def float16_to_float32(xp: Lane, half: Recorded) -> Recorded:
    """float16 to float32: exact."""
    bits = xp.reinterpret(half, dtypes.int32)
    magnitude = (bits & 0x7FFF) << 13
    # The exponents' biases differ by 112; the multiplication also normalises subnormals.
    scaled = xp.reinterpret(xp.reinterpret(magnitude, dtypes.float32) * 2.0**112, dtypes.int32)
    special = (bits & 0x7C00) == 0x7C00
    result = xp.where(special, magnitude | 0x7F800000, scaled)
    return xp.reinterpret(result | ((bits & 0x8000) << 16), dtypes.float32)


def float32_to_float16(xp: Lane, single: Recorded) -> Recorded:
    """float32 to float16; beyond 65504 rounds to inf."""
    bits = xp.reinterpret(single, dtypes.int32)
    magnitude = bits & 0x7FFFFFFF
    sign = (bits >> 16) & 0x8000
    odd = (magnitude >> 13) & 1
    normal = (magnitude + (0xFFF - (112 << 23)) + odd) >> 13
    # Adding 0.5 shifts the bits of a subnormal result to the bottom, rounded.
    aligned = xp.reinterpret(magnitude, dtypes.float32) + 0.5
    small = xp.reinterpret(aligned, dtypes.int32) - 0x3F000000
    result = xp.where(magnitude < (113 << 23), small, normal)
    result = xp.where(magnitude >= (143 << 23), xp.constant(0x7C00, dtypes.int32), result)
    result = xp.where(magnitude > 0x7F800000, xp.constant(0x7E00, dtypes.int32), result)
    return xp.reinterpret(result | sign, dtypes.float16)


def bfloat16_to_float32(xp: Lane, half: Recorded) -> Recorded:
    """bfloat16 to float32, whose upper half it is."""
    return xp.reinterpret(xp.reinterpret(half, dtypes.int32) << 16, dtypes.float32)


def float32_to_bfloat16(xp: Lane, single: Recorded) -> Recorded:
    """float32 to bfloat16."""
    bits = xp.reinterpret(single, dtypes.int32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    nan = (bits & 0x7FFFFFFF) > 0x7F800000
    return xp.reinterpret(xp.where(nan, (bits >> 16) | 0x40, rounded), dtypes.bfloat16)


def double_to_odd_float(xp: Lane, double: Recorded) -> Recorded:
    """float64 to float32, rounded to odd: rounding that to two bytes is rounding once."""
    single = double.cast(dtypes.float32)
    back = single.cast(dtypes.float64)
    bits = xp.reinterpret(single, dtypes.int32) - (abs(back) > abs(double)).cast(dtypes.int32)
    return xp.reinterpret(bits | (back != double).cast(dtypes.int32), dtypes.float32)


_ALL = (float16_to_float32, float32_to_float16, bfloat16_to_float32, float32_to_bfloat16)
#: Conversions from and to each dtype that is only stored, by name.
FUNCTIONS = {each.__name__: each for each in (*_ALL, double_to_odd_float)}


def casts(source: DType, target: DType) -> Iterator[tuple[str, DType]]:
    """The steps of a cast: for each its function (of `FUNCTIONS` or `rounding`) and its result's
    dtype. The name is empty for a plain conversion between the two dtypes.

    A dtype that is only stored is first converted to the one it is computed in. Floating-point
    values become integers by way of a wider integer, so that they wrap as NumPy's do instead of
    saturating.
    """
    if source.compute is not source:
        yield f"{source}_to_{source.compute}", source.compute
        source = source.compute
    wide = target.compute
    if wide is not target:
        odd = source.digits > wide.digits
        yield from casts(source, dtypes.float64 if odd else wide)
        if odd:
            yield "double_to_odd_float", wide
        yield f"{wide}_to_{target}", target
    elif source.kind == "f" and target is dtypes.uint64:
        yield "float_to_uint64", target
    elif source is not target:
        if source.kind == "f" and target.kind in "iu" and target.itemsize <= 2:
            yield "", dtypes.int32
        elif source.kind == "f" and target.kind == "u":
            yield "", dtypes.int64
        yield "", target

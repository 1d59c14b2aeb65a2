"""Random numbers. A call takes the next number of the stream; the element's index is the counter.

So the same seed and the same order of calls give the same numbers, whatever runs them.
"""

from __future__ import annotations

from typing import Any

from gemel.dtype import DType, as_dtype, uint64
from gemel.errors import DTypeError
from gemel.ir.declare import elementwise
from gemel.ir.op import Op
from gemel.ops.elementwise import filled
from gemel.spec import Spec, extents


def _floating(op: Op, specs: tuple[Spec, ...], parameters: Any) -> tuple[tuple[DType, ...], DType]:
    dtype = as_dtype(parameters["dtype"])
    if not dtype.is_floating:
        raise DTypeError(f"{op.name}: dtype {dtype} must be floating; use randint for integers")
    return (dtype,) * len(specs), dtype


def _shaped(name: str, a: Spec, b: Spec, shape: Any, dtype: Any) -> Spec:
    return filled(name, Spec(extents(name, shape), dtype), a, b)


@elementwise(dtype=_floating, random=True, onnx="RandomUniform", mxnet="_npi_uniform")
def uniform(
    xp: Any, low: Any, high: Any, *, shape: Any, dtype: Any = "float32", call: Any = None
) -> Any:
    """Numbers spread evenly over [low, high)."""
    return low + (high - low) * _fraction(xp, low.dtype, dtype)


def _fraction(xp: Any, compute: Any, dtype: Any) -> Any:
    """A number in [0, 1) of as many random bits as the dtype holds: none is rounded up to 1."""
    first, second = xp.random_bits()
    wanted = as_dtype(dtype)
    if wanted.digits > 32:
        high, low = xp.cast(first >> 5, compute), xp.cast(second >> 6, compute)
        return (high * 2.0**26 + low) * 2.0**-53
    return xp.cast(first >> (32 - wanted.digits), compute) * 2.0**-wanted.digits


@uniform.spec
def _(low: Spec, high: Spec, *, shape: Any, dtype: Any, call: Any = None) -> Spec:
    return _shaped("uniform", low, high, shape, dtype)


@uniform.gradient
def _(g: Any, y: Any, low: Any, high: Any, **_: Any) -> Any:
    return None, None


@elementwise(dtype=_floating, random=True, onnx="RandomNormal", mxnet="_npi_normal")
def normal(
    xp: Any, loc: Any, scale: Any, *, shape: Any, dtype: Any = "float32", call: Any = None
) -> Any:
    """Normally distributed numbers with mean `loc` and standard deviation `scale`.

    By Box and Muller (A note on the generation of random normal deviates, 1958).
    """
    first, second = xp.random_bits()
    # (bits + 1) / 2**24 lies in (0, 1], so its logarithm is finite.
    radius = xp.sqrt(-2 * xp.log((xp.cast(first >> 8, loc.dtype) + 1) * 2.0**-24))
    angle = xp.cast(second >> 8, loc.dtype) * (2.0**-23 * 3.141592653589793)
    return loc + scale * (radius * xp.cos(angle))


@normal.spec
def _(loc: Spec, scale: Spec, *, shape: Any, dtype: Any, call: Any = None) -> Spec:
    return _shaped("normal", loc, scale, shape, dtype)


@normal.gradient
def _(g: Any, y: Any, loc: Any, scale: Any, **_: Any) -> Any:
    return g, g * ((y - loc) / scale)


def _integers(op: Op, specs: tuple[Spec, ...], parameters: Any) -> tuple[tuple[DType, ...], DType]:
    dtype = as_dtype(parameters["dtype"])
    if dtype.kind not in "iu":
        raise DTypeError(f"{op.name}: dtype {dtype} must be an integer")
    return (as_dtype("int64"),) * len(specs), dtype


@elementwise(dtype=_integers, random=True, mxnet="_npi_random_randint")
def randint(
    xp: Any, low: Any, high: Any, *, shape: Any, dtype: Any = "int64", call: Any = None
) -> Any:
    """Whole numbers from low up to and without high."""
    first, second = (xp.cast(bits, uint64) for bits in xp.random_bits())
    width = xp.cast(high - low, uint64)
    narrow = (width * (first >> 1)) >> 31  # for widths below 2**32
    wide = _upper_half(width, (first << 32) | second)
    return xp.cast(low, uint64) + xp.where(width < 2**32, narrow, wide)


def _upper_half(a: Any, b: Any) -> Any:
    """The upper 64 bits of a product of two uint64, from products of 32 bits."""
    low = 2**32 - 1
    middle = (a >> 32) * (b & low) + (((a & low) * (b & low)) >> 32)
    other = (middle & low) + (a & low) * (b >> 32)
    return (a >> 32) * (b >> 32) + (middle >> 32) + (other >> 32)


@randint.spec
def _(low: Spec, high: Spec, *, shape: Any, dtype: Any, call: Any = None) -> Spec:
    return _shaped("randint", low, high, shape, dtype)

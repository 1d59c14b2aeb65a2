"""Powers and logarithms to other bases, and sums of what only logarithms can hold."""

from __future__ import annotations

from typing import Any

from gemel.device import beside_arrays
from gemel.dtype import float32, float64, int32, int64
from gemel.ir.declare import elementwise
from gemel.ir.public import Array, function
from gemel.ops.elementwise import power, reciprocal, sigmoid, square, subtract
from gemel.ops.shape import operand

_LN2 = 0.6931471805599453
_LN10 = 2.302585092994046


def _settled(xp: Any, x: Any) -> Any:
    """x, or the whole number it misses by no more than rounding: powers of the base give those."""
    whole = xp.rint(x)
    near = xp.absolute(x) * (2.4e-7 if x.dtype.itemsize == 4 else 4.5e-16)
    return xp.where(xp.absolute(x - whole) <= near, whole, x)


#: By the size of a floating dtype: itself, the integers as wide, digits and bias of the exponent.
_BITS = {4: (float32, int32, 23, 127), 8: (float64, int64, 52, 1023)}


def power_of_two(xp: Any, n: Any) -> Any:
    """2 ** n, exact, for whole n within the exponents of normal numbers."""
    dtype, integer, digits, bias = _BITS[n.dtype.itemsize]
    return xp.reinterpret((xp.cast(n, integer) + bias) << digits, dtype)


@elementwise(dtype="floating", public="np")
def exp2(xp: Any, x: Any) -> Any:
    """2 to the power of x."""
    low, high = (-152, 129) if x.dtype.itemsize == 4 else (-1080, 1025)
    x = xp.where(x > high, high, xp.where(x < low, low, x))
    whole = xp.where(x == x, xp.rint(x), 0)
    half = xp.floor(whole * 0.5)
    # In two steps: the power of the whole part alone may leave the range.
    part = xp.exp((x - whole) * _LN2) * power_of_two(xp, half)
    return part * power_of_two(xp, whole - half)


@exp2.holomorphic
def _(g: Any, y: Any, x: Any) -> Any:
    return (g * y * _LN2,)


@elementwise(dtype="floating", public="np", mxnet="_npi_log2")
def log2(xp: Any, x: Any) -> Any:
    """Logarithm to base 2; -inf at zero, NaN below."""
    return _settled(xp, xp.log(x) * (1 / _LN2))


@log2.holomorphic
def _(g: Any, y: Any, x: Any) -> Any:
    return (g / (x * _LN2),)


@elementwise(dtype="floating", public="np", mxnet="_npi_log10")
def log10(xp: Any, x: Any) -> Any:
    """Logarithm to base 10; -inf at zero, NaN below."""
    return _settled(xp, xp.log(x) * (1 / _LN10))


@log10.holomorphic
def _(g: Any, y: Any, x: Any) -> Any:
    return (g / (x * _LN10),)


@elementwise(dtype="floating", public="np", mxnet="_npi_logaddexp")
def logaddexp(xp: Any, a: Any, b: Any) -> Any:
    """log(exp(a) + exp(b)), without overflow."""
    # Equal infinities have no distance.
    distance = xp.where(a == b, 0, a - b)
    return xp.maximum(a, b) + xp.log1p(xp.exp(-xp.absolute(distance)))


@logaddexp.gradient
def _(g: Any, y: Any, a: Any, b: Any) -> Any:
    return g * sigmoid(subtract(a, b)), g * sigmoid(subtract(b, a))


@elementwise(dtype="floating", public="np")
def logaddexp2(xp: Any, a: Any, b: Any) -> Any:
    """log2(2 ** a + 2 ** b), without overflow."""
    distance = xp.where(a == b, 0, a - b)
    less = xp.log1p(xp.exp(-xp.absolute(distance) * _LN2)) * (1 / _LN2)
    return xp.maximum(a, b) + xp.where(distance == 0, 1, less)


@logaddexp2.gradient
def _(g: Any, y: Any, a: Any, b: Any) -> Any:
    return g * sigmoid(subtract(a, b) * _LN2), g * sigmoid(subtract(b, a) * _LN2)


@elementwise(dtype="floating", public="np", mxnet="_npi_cbrt")
def cbrt(xp: Any, x: Any) -> Any:
    """Cube root, with the sign of x."""
    size = xp.absolute(x)
    plain = (size > 0) & (size < xp.inf)
    known = xp.where(plain, size, 1)
    first = xp.exp(xp.log(known) * (1 / 3))
    # One step of Newton's brings the last digits.
    root = first - (first - known / (first * first)) * (1 / 3)
    return xp.copysign(xp.where(plain, root, size), x)


@cbrt.gradient
def _(g: Any, y: Any, x: Any) -> Any:
    return (g * reciprocal(square(y) * 3),)


@function(public="np")
@beside_arrays
def float_power(
    a: Any,
    b: Any,
    /,
    out: Any = None,
    *,
    where: Any = True,
    casting: str = "same_kind",
    order: str = "K",
    dtype: Any = None,
    subok: bool = True,
) -> Array:
    """a to the power of b, in float64 or complex128."""
    x, y = operand(a), operand(b)
    wide = "complex128" if x.dtype.is_complex or y.dtype.is_complex else "float64"
    return power(x, y, out=out, where=where, casting=casting, order=order, dtype=dtype or wide)

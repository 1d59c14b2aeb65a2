"""Powers and logarithms to other bases, and sums of numbers given by their logarithms."""

from __future__ import annotations

from typing import Any

from gemel.device import beside_arrays
from gemel.dtype import float64
from gemel.ir import bases
from gemel.ir.bases import LN2, LN10
from gemel.ir.declare import elementwise
from gemel.ir.public import Array, function
from gemel.ops.elementwise import power, reciprocal, sigmoid, square, subtract
from gemel.ops.shape import operand
from gemel.spec import Spec


@elementwise(dtype="floating", public="np")
def exp2(xp: Any, x: Any) -> Any:
    """2 to the power of x."""
    return bases.exp2(xp, x)


@exp2.holomorphic
def _(g: Any, y: Any, x: Any) -> Any:
    return (g * y * LN2,)


@elementwise(dtype="floating", public="np", mxnet="_npi_log2")
def log2(xp: Any, x: Any) -> Any:
    """Logarithm to base 2; -inf at zero, NaN below."""
    return bases.log2(xp, x)


@log2.holomorphic
def _(g: Any, y: Any, x: Any) -> Any:
    return (g / (x * LN2),)


@elementwise(dtype="floating", public="np", mxnet="_npi_log10")
def log10(xp: Any, x: Any) -> Any:
    """Logarithm to base 10; -inf at zero, NaN below."""
    return bases.log10(xp, x)


@log10.holomorphic
def _(g: Any, y: Any, x: Any) -> Any:
    return (g / (x * LN10),)


@elementwise(dtype="floating", public="np", mxnet="_npi_logaddexp")
def logaddexp(xp: Any, a: Any, b: Any) -> Any:
    """log(exp(a) + exp(b)), without overflow."""
    # The difference of equal infinities would be NaN.
    distance = xp.where(a == b, 0, a - b)
    return xp.maximum(a, b) + xp.log1p(xp.exp(-xp.absolute(distance)))


@logaddexp.gradient
def _(g: Any, y: Any, a: Any, b: Any) -> Any:
    return g * sigmoid(subtract(a, b)), g * sigmoid(subtract(b, a))


@elementwise(dtype="floating", public="np")
def logaddexp2(xp: Any, a: Any, b: Any) -> Any:
    """log2(2 ** a + 2 ** b), without overflow."""
    distance = xp.where(a == b, 0, a - b)
    less = xp.log1p(xp.exp(-xp.absolute(distance) * LN2)) * (1 / LN2)
    return xp.maximum(a, b) + xp.where(distance == 0, 1, less)


@logaddexp2.gradient
def _(g: Any, y: Any, a: Any, b: Any) -> Any:
    return g * sigmoid(subtract(a, b) * LN2), g * sigmoid(subtract(b, a) * LN2)


@elementwise(dtype="floating", public="np", mxnet="_npi_cbrt")
def cbrt(xp: Any, x: Any) -> Any:
    """Cube root, with the sign of x."""
    size = xp.absolute(x)
    plain = (size > 0) & (size < xp.inf)
    known = xp.where(plain, size, 1)
    first = xp.exp(xp.log(known) * (1 / 3))
    # One step of Newton's method gives the last digits.
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
    exact = Spec((), float64)  # beside it numbers keep their digits
    x, y = operand(a, (exact,)), operand(b, (exact,))
    wide = "complex128" if x.dtype.is_complex or y.dtype.is_complex else "float64"
    return power(x, y, out=out, where=where, casting=casting, order=order, dtype=dtype or wide)

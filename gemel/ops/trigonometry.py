"""Functions of angles and their inverses, and the hyperbolic ones."""

from __future__ import annotations

from math import factorial
from typing import Any

from gemel.ir.declare import elementwise
from gemel.ops.elementwise import absolute, cos, divide, sqrt, square, subtract, where

_HALF_PI = 1.5707963267948966
_PI = 3.141592653589793
#: The rounding errors of the two constants above.
_HALF_PI_REST = 6.123233995736766e-17
_PI_REST = 1.2246467991473532e-16
#: tan(3 pi / 8), above which the inverse of the argument is used.
_STEEP = 2.414213562373095
#: arctan(x) = x + x z P(z) / Q(z) with z = x * x up to 0.66 (Cephes, Moshier 1989).
_ABOVE = (
    -8.750608600031904122785e-1, -1.615753718733365076637e1, -7.500855792314704667340e1,
    -1.228866684490136173410e2, -6.485021904942025371773e1,
)  # fmt: skip
_BELOW = (
    1.0, 2.485846490142306297962e1, 1.650270098316988542046e2, 4.328810604912902668951e2,
    4.853903996359136964868e2, 1.945506571482613964425e2,
)  # fmt: skip
#: The same for float32: a polynomial, used up to tan(pi / 8).
_SINGLE = (8.05374449538e-2, -1.38776856032e-1, 1.99777106478e-1, -3.33329491539e-1)


def polynomial(x: Any, coefficients: tuple[float, ...]) -> Any:
    """Horner's rule, the highest power first."""
    result = x * coefficients[0] + coefficients[1]
    for coefficient in coefficients[2:]:
        result = result * x + coefficient
    return result


def _angle(xp: Any, x: Any) -> Any:
    """The angle whose tangent is x, for x >= 0."""
    single = x.dtype.itemsize == 4
    steep, middle = x > _STEEP, x > (0.4142135623730950 if single else 0.66)
    # (inf - 1) / (inf + 1) would be NaN. It is not chosen, but 1 avoids computing it.
    near = xp.where(steep, 1, x)
    t = xp.where(steep, -1 / xp.where(steep, x, 1), xp.where(middle, (near - 1) / (near + 1), x))
    z = t * t
    series = z * (
        polynomial(z, _SINGLE) if single else polynomial(z, _ABOVE) / polynomial(z, _BELOW)
    )
    start = xp.where(steep, _HALF_PI, xp.where(middle, _HALF_PI / 2, x * 0))
    rest = xp.where(steep, _HALF_PI_REST, xp.where(middle, _HALF_PI_REST / 2, x * 0))
    return xp.where(steep | middle, start + (t * series + t + rest), t * series + t)


def _arctan(xp: Any, x: Any) -> Any:
    return xp.copysign(_angle(xp, xp.absolute(x)), x)


# --- angles ---------------------------------------------------------------------------------


@elementwise(dtype="floating", public="np", onnx="Tan", mxnet="_npi_tan")
def tan(xp: Any, x: Any) -> Any:
    """Tangent of x in radians."""
    return xp.tan(x)


@tan.holomorphic
def _(g: Any, y: Any, x: Any) -> Any:
    return (g * (y * y + 1),)


@elementwise(dtype="floating", public="np", aliases=("asin",), onnx="Asin", mxnet="_npi_arcsin")
def arcsin(xp: Any, x: Any) -> Any:
    """The angle from -pi/2 to pi/2 whose sine is x; NaN outside of [-1, 1]."""
    return _arctan(xp, x / xp.sqrt((1 - x) * (1 + x)))


@arcsin.holomorphic
def _(g: Any, y: Any, x: Any) -> Any:
    return (g / sqrt((1 - x) * (x + 1)),)


@elementwise(dtype="floating", public="np", aliases=("acos",), onnx="Acos", mxnet="_npi_arccos")
def arccos(xp: Any, x: Any) -> Any:
    """The angle from 0 to pi whose cosine is x; NaN outside of [-1, 1]."""
    return 2 * _arctan(xp, xp.sqrt((1 - x) / (1 + x)))


@arccos.holomorphic
def _(g: Any, y: Any, x: Any) -> Any:
    return (-(g / sqrt((1 - x) * (x + 1))),)


@elementwise(dtype="floating", public="np", aliases=("atan",), onnx="Atan", mxnet="_npi_arctan")
def arctan(xp: Any, x: Any) -> Any:
    """The angle from -pi/2 to pi/2 whose tangent is x."""
    return _arctan(xp, x)


@arctan.holomorphic
def _(g: Any, y: Any, x: Any) -> Any:
    return (g / (x * x + 1),)


@elementwise(dtype="floating", public="np", aliases=("atan2",), mxnet="_npi_arctan2")
def arctan2(xp: Any, a: Any, b: Any) -> Any:
    """The angle from -pi to pi of the point with height a and abscissa b."""
    height, width = xp.absolute(a), xp.absolute(b)
    high, low = xp.maximum(height, width), xp.minimum(height, width)
    # Two zeros have the angle 0, two infinities 45 degrees.
    infinite = low == xp.inf
    ratio = low / xp.where((high == 0) | infinite, 1, high)
    angle = _angle(xp, xp.where(infinite, 1, ratio))
    angle = xp.where(height > width, _HALF_PI - (angle - _HALF_PI_REST), angle)
    return xp.copysign(xp.where(xp.signbit(b), _PI - (angle - _PI_REST), angle), a)


@arctan2.gradient
def _(g: Any, y: Any, a: Any, b: Any) -> Any:
    scale = g / (a * a + b * b)
    return scale * b, -(scale * a)


@elementwise(dtype="floating", public="np", mxnet="_npi_hypot")
def hypot(xp: Any, a: Any, b: Any) -> Any:
    """sqrt(a * a + b * b), without overflow on the way."""
    return xp.hypot(a, b)


@hypot.gradient
def _(g: Any, y: Any, a: Any, b: Any) -> Any:
    return g * a / y, g * b / y


@elementwise(dtype="floating", public="np", aliases=("rad2deg",), mxnet="_npi_degrees")
def degrees(xp: Any, x: Any) -> Any:
    """Radians as degrees."""
    return x * (180 / _PI)


@degrees.gradient
def _(g: Any, y: Any, x: Any) -> Any:
    return (g * (180 / _PI),)


@elementwise(dtype="floating", public="np", aliases=("deg2rad",), mxnet="_npi_radians")
def radians(xp: Any, x: Any) -> Any:
    """Degrees as radians."""
    return x * (_PI / 180)


@radians.gradient
def _(g: Any, y: Any, x: Any) -> Any:
    return (g * (_PI / 180),)


@elementwise(dtype="floating", public="np")
def sinc(xp: Any, x: Any) -> Any:
    """sin(pi x) / (pi x), which is 1 at 0."""
    scaled = xp.where(x == 0, 1, x) * _PI
    return xp.where(x == 0, 1, xp.sin(scaled) / scaled)


#: The slope of `sinc` divided by x, as a power series in (pi x)**2, the last term first; up to 1
#: it is exact in float64.
_SLOPES = tuple(_PI**2 * (-1) ** k * 2 * k / factorial(2 * k + 1) for k in range(11, 0, -1))


@sinc.holomorphic
def _(g: Any, y: Any, x: Any) -> Any:
    near = absolute(x) < 1 / _PI
    small = square(where(near, x, 0) * _PI)
    slope = divide(subtract(cos(x * _PI), y), where(near, 1, x))
    return (g * where(near, polynomial(small, _SLOPES) * x, slope),)


# --- hyperbolic -----------------------------------------------------------------------------


@elementwise(dtype="floating", public="np", onnx="Sinh", mxnet="_npi_sinh")
def sinh(xp: Any, x: Any) -> Any:
    """Hyperbolic sine."""
    return xp.sinh(x)


@sinh.holomorphic
def _(g: Any, y: Any, x: Any) -> Any:
    return (g * cosh(x),)


@elementwise(dtype="floating", public="np", onnx="Cosh", mxnet="_npi_cosh")
def cosh(xp: Any, x: Any) -> Any:
    """Hyperbolic cosine."""
    return xp.cosh(x)


@cosh.holomorphic
def _(g: Any, y: Any, x: Any) -> Any:
    return (g * sinh(x),)


@elementwise(dtype="floating", public="np", aliases=("asinh",), onnx="Asinh", mxnet="_npi_arcsinh")
def arcsinh(xp: Any, x: Any) -> Any:
    """The number whose hyperbolic sine is x."""
    return xp.arcsinh(x)


@arcsinh.holomorphic
def _(g: Any, y: Any, x: Any) -> Any:
    return (g / sqrt(x * x + 1),)


@elementwise(dtype="floating", public="np", aliases=("acosh",), onnx="Acosh", mxnet="_npi_arccosh")
def arccosh(xp: Any, x: Any) -> Any:
    """The number from 0 on whose hyperbolic cosine is x; NaN below 1."""
    return xp.where(x < 1, xp.nan, xp.arccosh(x))


@arccosh.holomorphic
def _(g: Any, y: Any, x: Any) -> Any:
    if x.dtype.is_complex:  # the root of the product may be on another branch
        return (g / (sqrt(x - 1) * sqrt(x + 1)),)
    return (g / sqrt((x - 1) * (x + 1)),)


@elementwise(dtype="floating", public="np", aliases=("atanh",), onnx="Atanh", mxnet="_npi_arctanh")
def arctanh(xp: Any, x: Any) -> Any:
    """The number whose hyperbolic tangent is x; NaN outside of [-1, 1]."""
    return xp.arctanh(x)


@arctanh.holomorphic
def _(g: Any, y: Any, x: Any) -> Any:
    return (g / ((1 - x) * (x + 1)),)

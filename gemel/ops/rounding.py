"""Rounding, and the parts of floating numbers: sign, whole part, fraction, exponent."""

from __future__ import annotations

import math
from typing import Any

from gemel.dtype import DType, int32
from gemel.errors import DTypeError
from gemel.ir.bases import power_of_two
from gemel.ir.declare import elementwise, op
from gemel.ir.interpret import spec_of
from gemel.ir.keywords import UFUNC, into
from gemel.ir.methods import call
from gemel.ir.op import Op
from gemel.ir.public import Array, function
from gemel.ir.reference import numpy
from gemel.ops.elementwise import multiply, negative, where
from gemel.ops.shape import operand
from gemel.spec import Spec, broadcast, promote_specs, whole

LN2 = math.log(2)
Types = tuple[tuple[DType, ...], DType]


def floating_dtype(*specs: Spec) -> DType:
    """The floating dtype in which these are computed: float32 for integers."""
    return promote_specs(*specs).floating


def no_gradient(g: Any, y: Any, *inputs: Any, **_: Any) -> Any:
    """The gradient of step functions."""
    return (None,) * len(inputs)


# --- rounding -------------------------------------------------------------------------------


@elementwise(public="np", aliases=("fix",), mxnet="_npi_trunc")
def trunc(xp: Any, x: Any) -> Any:
    """The nearest whole number towards zero."""
    return xp.trunc(x)


@elementwise(public="np", aliases=("around", "round_"), mxnet="_npi_around", complex=True)
def round(xp: Any, x: Any, *, decimals: int = 0) -> Any:
    """Round to `decimals` decimals, ties to even; negative `decimals` round to tens, hundreds,
    ..."""
    if x.dtype.kind in "fc":
        return _rounded(xp, x, decimals)
    if decimals >= 0:
        return x
    step = 10**-decimals
    if step >= 2 ** (8 * x.dtype.itemsize - 1):
        return x * 0  # the dtype has no number that large
    low = x // step
    rest, half = x - low * step, step // 2
    return xp.where((rest > half) | ((rest == half) & (low % 2 != 0)), low + 1, low) * step


#: The powers of ten that float64 has.
MOST_DECIMALS = 308


def _rounded(xp: Any, x: Any, decimals: int) -> Any:
    if whole("round", "decimals", decimals) == 0:
        return xp.rint(x)
    if abs(decimals) > MOST_DECIMALS:  # beyond all digits that a number has
        return x * 1.0 if decimals > 0 else x * 0.0
    scale = 10.0 ** abs(decimals)
    return xp.rint(x * scale) / scale if decimals > 0 else xp.rint(x / scale) * scale


@function(method=True)
@round.facade
def _(a: Any, decimals: int = 0, out: Any = None) -> Array:
    a = operand(a)
    if a.dtype.is_complex:  # a factor would make NaN of a part beside an infinite one
        parts = (round(call(part, a), decimals=decimals) for part in ("real", "imag"))
        return into("round", out, call("of_parts", *parts))
    return into("round", out, round(a, decimals=decimals))


trunc.gradient(no_gradient)
round.gradient(no_gradient)


@elementwise(dtype="numeric", public="np", mxnet="_npi_fmod")
def fmod(xp: Any, a: Any, b: Any) -> Any:
    """Remainder with the sign of a; integers modulo zero give 0."""
    if a.dtype.kind == "f":
        return xp.copysign(xp.fmod(a, b), a)
    rest = a % b
    return rest - xp.where((rest != 0) & ((a < 0) != (b < 0)), b, 0)


@fmod.gradient
def _(g: Any, y: Any, a: Any, b: Any) -> Any:
    return g, -(g * trunc(a / b))


# --- parts of floating-point numbers --------------------------------------------------------


@elementwise(dtype="compare", public="np")
def signbit(xp: Any, x: Any) -> Any:
    """Whether x is negative, -0.0 and negative NaN included."""
    return xp.signbit(x) if x.dtype.kind == "f" else x < 0


@elementwise(dtype="floating", public="np", mxnet="_npi_copysign")
def copysign(xp: Any, a: Any, b: Any) -> Any:
    """The absolute value of a with the sign of b."""
    return xp.copysign(a, b)


@copysign.gradient
def _(g: Any, y: Any, a: Any, b: Any) -> Any:
    # sign(a) * sign(y), where -0.0 counts as negative, too.
    return where(signbit(a) == signbit(b), g, -g), None


@elementwise(dtype="floating", outputs=2, public="np")
def modf(xp: Any, x: Any) -> Any:
    """The fraction and the whole part, both with the sign of x."""
    whole = xp.trunc(x)
    rest = xp.where(xp.absolute(x) == xp.inf, 0, x - whole)
    return xp.copysign(rest, x), whole


@modf.gradient
def _(g: Any, y: Any, x: Any) -> Any:
    return (g[0],)


def _scaled_types(op: Op, specs: tuple[Spec, ...], _: Any) -> Types:
    dtype = floating_dtype(*specs if specs[1].dtype.is_floating else specs[:1])
    return (dtype, dtype), dtype


@elementwise(dtype=_scaled_types, public="np", mxnet="_npi_ldexp")
def ldexp(xp: Any, x: Any, exponent: Any) -> Any:
    """x times 2 ** exponent, exact where that is whole; floats, as MXNet has them, may be any."""
    # In three steps: 2 ** exponent may overflow even if the product does not.
    most = 300 if x.dtype.itemsize == 4 else 2100
    exponent = xp.minimum(xp.maximum(exponent, -most), most)
    whole = xp.trunc(exponent)
    third = xp.trunc(whole * (1 / 3))
    step = power_of_two(xp, third)
    scaled = x * step * step * power_of_two(xp, whole - 2 * third)
    return scaled * xp.exp((exponent - whole) * LN2)


@ldexp.gradient
def _(g: Any, y: Any, x: Any, exponent: Any) -> Any:
    slope = multiply(multiply(g, y), LN2) if exponent.dtype.is_floating else None
    return ldexp(g, exponent), slope


@op(outputs=2, public="np", common=UFUNC)
def frexp(x: Any) -> Any:
    """Mantissas from 0.5 to 1 and exponents (int32) with x = mantissa * 2 ** exponent."""
    np = numpy()
    return np.frexp(np.asarray(x, floating_dtype(spec_of(x)).name))


@frexp.spec
def _(x: Spec) -> tuple[Spec, Spec]:
    return Spec(x.shape, floating_dtype(x)), Spec(x.shape, int32)


@frexp.gradient
def _(g: Any, y: Any, x: Any) -> Any:
    return (None if g[0] is None else ldexp(g[0], negative(y[1])),)


@op(public="np", common=UFUNC)
def nextafter(a: Any, b: Any) -> Any:
    """The next representable number after a in the direction of b."""
    np, dtype = numpy(), floating_dtype(spec_of(a), spec_of(b)).name
    return np.nextafter(np.asarray(a, dtype), np.asarray(b, dtype))


def neighbours(name: str, *specs: Spec) -> DType:
    """The floating dtype in which neighbours are found. Raises `DTypeError` if NumPy lacks it."""
    dtype = floating_dtype(*specs)
    if dtype.twin is not dtype:
        given = " and ".join(map(str, specs))
        raise DTypeError(f"{name}: {given}: NumPy has no {dtype}; use astype('float32')")
    return dtype


@nextafter.spec
def _(a: Spec, b: Spec) -> Spec:
    return Spec(broadcast("nextafter", a, b), neighbours("nextafter", a, b))


@nextafter.gradient
def _(g: Any, y: Any, a: Any, b: Any) -> Any:
    return g, None


@op(public="np", common=UFUNC)
def spacing(x: Any) -> Any:
    """The distance from x to the next number away from zero."""
    np = numpy()
    return np.spacing(np.asarray(x, floating_dtype(spec_of(x)).name))


@spacing.spec
def _(x: Spec) -> Spec:
    return Spec(x.shape, neighbours("spacing", x))


spacing.gradient(no_gradient)

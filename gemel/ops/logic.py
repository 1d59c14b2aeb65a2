"""Comparisons, logic and bit operations, element by element."""

from __future__ import annotations

from typing import Any

from gemel.dtype import DType, bool_, float64, int8, uint8
from gemel.errors import DTypeError
from gemel.ir.declare import elementwise, op
from gemel.ir.interpret import spec_of
from gemel.ir.keywords import UFUNC
from gemel.ir.op import Op
from gemel.ir.public import Array
from gemel.ir.reference import numpy
from gemel.spec import Spec, broadcast, promote_specs

Types = tuple[tuple[DType, ...], DType]


@elementwise(
    dtype="compare", public="np", operator="eq", onnx="Equal", mxnet="_npi_equal", complex=True
)
def equal(xp: Any, a: Any, b: Any) -> Any:
    """a == b."""
    return a == b


@elementwise(dtype="compare", public="np", operator="ne", mxnet="_npi_not_equal", complex=True)
def not_equal(xp: Any, a: Any, b: Any) -> Any:
    """a != b; NaN differs from everything."""
    return a != b


@elementwise(dtype="compare", public="np", operator="lt", onnx="Less", mxnet="_npi_less")
def less(xp: Any, a: Any, b: Any) -> Any:
    """a < b."""
    return a < b


@elementwise(
    dtype="compare", public="np", operator="le", onnx="LessOrEqual", mxnet="_npi_less_equal"
)
def less_equal(xp: Any, a: Any, b: Any) -> Any:
    """a <= b."""
    return a <= b


@elementwise(dtype="compare", public="np", operator="gt", onnx="Greater", mxnet="_npi_greater")
def greater(xp: Any, a: Any, b: Any) -> Any:
    """a > b."""
    return a > b


@elementwise(
    dtype="compare", public="np", operator="ge", onnx="GreaterOrEqual", mxnet="_npi_greater_equal"
)
def greater_equal(xp: Any, a: Any, b: Any) -> Any:
    """a >= b."""
    return a >= b


@elementwise(dtype="compare", public="np", onnx="IsNaN", mxnet="_npi_isnan", complex=True)
def isnan(xp: Any, x: Any) -> Any:
    """Where x is not a number."""
    return x != x


@elementwise(dtype="compare", public="np", mxnet="_npi_isfinite", complex=True)
def isfinite(xp: Any, x: Any) -> Any:
    """Where x is neither infinite nor NaN."""
    return xp.absolute(x) < xp.inf if x.dtype.kind == "f" else x == x


@elementwise(dtype="compare", public="np", onnx="IsInf", mxnet="_npi_isinf", complex=True)
def isinf(xp: Any, x: Any) -> Any:
    """Where x is infinite."""
    return xp.absolute(x) == xp.inf if x.dtype.kind == "f" else x != x


@elementwise(dtype="compare", public="np", mxnet="_npi_isposinf")
def isposinf(xp: Any, x: Any) -> Any:
    """Where x is inf."""
    return x == xp.inf if x.dtype.kind == "f" else x != x


@elementwise(dtype="compare", public="np", mxnet="_npi_isneginf")
def isneginf(xp: Any, x: Any) -> Any:
    """Where x is -inf."""
    return x == -xp.inf if x.dtype.kind == "f" else x != x


def _close_types(op: Op, specs: tuple[Spec, ...], _: Any) -> Types:
    dtype = promote_specs(*specs)
    # Differences of integers may overflow, and float32 has too few digits for them.
    dtype = dtype if dtype.is_inexact else float64
    return (dtype, dtype, dtype.real, dtype.real), bool_


@elementwise(dtype=_close_types, public="np", complex=True)
def isclose(xp: Any, a: Any, b: Any, rtol: Any, atol: Any, *, equal_nan: bool = False) -> Any:
    """Where |a - b| <= atol + rtol * |b|, or both are the same infinity (or NaN: equal_nan)."""
    near = (xp.absolute(a - b) <= atol + rtol * xp.absolute(b)) & (xp.absolute(b) < xp.inf)
    close = near | (a == b)
    return close | ((a != a) & (b != b)) if equal_nan else close


@isclose.facade
def _(a: Any, b: Any, rtol: Any = 1e-5, atol: Any = 1e-8, equal_nan: bool = False) -> Array:
    return isclose(a, b, rtol, atol, equal_nan=equal_nan)


@elementwise(dtype="logical", public="np", onnx="And", mxnet="_npi_logical_and", complex=True)
def logical_and(xp: Any, a: Any, b: Any) -> Any:
    """Whether both are true (not zero)."""
    return xp.logical_and(a, b)


@elementwise(dtype="logical", public="np", onnx="Or", mxnet="_npi_logical_or", complex=True)
def logical_or(xp: Any, a: Any, b: Any) -> Any:
    """Whether either is true (not zero)."""
    return xp.logical_or(a, b)


@elementwise(dtype="logical", public="np", onnx="Xor", mxnet="_npi_logical_xor", complex=True)
def logical_xor(xp: Any, a: Any, b: Any) -> Any:
    """Whether exactly one is true (not zero)."""
    return a ^ b


@elementwise(dtype="logical", public="np", onnx="Not", mxnet="_npi_logical_not", complex=True)
def logical_not(xp: Any, x: Any) -> Any:
    """Whether x is false (zero)."""
    return xp.logical_not(x)


@elementwise(dtype="integral", public="np", operator="and", mxnet="_npi_bitwise_and")
def bitwise_and(xp: Any, a: Any, b: Any) -> Any:
    """Bits set in both."""
    return a & b


@elementwise(dtype="integral", public="np", operator="or", mxnet="_npi_bitwise_or")
def bitwise_or(xp: Any, a: Any, b: Any) -> Any:
    """Bits set in either."""
    return a | b


@elementwise(dtype="integral", public="np", operator="xor", mxnet="_npi_bitwise_xor")
def bitwise_xor(xp: Any, a: Any, b: Any) -> Any:
    """Bits set in exactly one."""
    return a ^ b


@elementwise(
    dtype="integral",
    public="np",
    aliases=("bitwise_not", "bitwise_invert"),
    operator="invert",
    mxnet="_npi_bitwise_not",
)
def invert(xp: Any, x: Any) -> Any:
    """Every bit reversed; for bools, not."""
    return ~x


@op(public="np", common=UFUNC)
def bitwise_count(x: Any) -> Any:
    """How many bits are set in the absolute value, uint8."""
    return numpy().bitwise_count(x).astype("uint8")


@bitwise_count.spec
def _(x: Spec) -> Spec:
    bitwise_and.policy(bitwise_count, (x,), {})
    return Spec(x.shape, uint8)


def _shift_types(op: Op, specs: tuple[Spec, ...], parameters: Any) -> Types:
    inputs, dtype = bitwise_and.policy(op, specs, parameters)
    return ((int8, int8), int8) if dtype is bool_ else (inputs, dtype)


def _within(a: Any, b: Any) -> Any:
    """Whether b is a valid shift for a; the machine does not define shifts by more bits."""
    return (b >= 0) & (b < 8 * a.dtype.itemsize)


@elementwise(
    dtype=_shift_types,
    public="np",
    aliases=("bitwise_left_shift",),
    operator="lshift",
    onnx="BitShift",
    mxnet="_npi_bitwise_left_shift",
)
def left_shift(xp: Any, a: Any, b: Any) -> Any:
    """The bits of a moved up by b places; 0 once all of them have left."""
    inside = _within(a, b)
    return xp.where(inside, a << xp.where(inside, b, 0), 0)


@elementwise(
    dtype=_shift_types,
    public="np",
    aliases=("bitwise_right_shift",),
    operator="rshift",
    mxnet="_npi_bitwise_right_shift",
)
def right_shift(xp: Any, a: Any, b: Any) -> Any:
    """The bits of a moved down by b places, the sign kept; 0 or -1 once all of them have left."""
    inside = _within(a, b)
    if a.dtype.kind == "i":
        return a >> xp.where(inside, b, 8 * a.dtype.itemsize - 1)
    return xp.where(inside, a >> xp.where(inside, b, 0), 0)


@op(public="np", common=UFUNC, mxnet="_npi_gcd")
def gcd(a: Any, b: Any) -> Any:
    """Greatest common divisor."""
    return _whole(numpy().gcd, a, b)


@op(public="np", common=UFUNC, mxnet="_npi_lcm")
def lcm(a: Any, b: Any) -> Any:
    """Least common multiple."""
    return _whole(numpy().lcm, a, b)


def _whole(function: Any, a: Any, b: Any) -> Any:
    np, dtype = numpy(), promote_specs(spec_of(a), spec_of(b)).name
    return function(np.asarray(a, dtype), np.asarray(b, dtype))


def _whole_spec(op: Op) -> Any:
    def spec(a: Spec, b: Spec) -> Spec:
        _, dtype = bitwise_and.policy(op, (a, b), {})
        if dtype is bool_:
            raise DTypeError(f"{op.name}: {a} and {b}: not defined for bools; use astype('int32')")
        return Spec(broadcast(op.name, a, b), dtype)

    return spec


gcd.spec(_whole_spec(gcd))
lcm.spec(_whole_spec(lcm))

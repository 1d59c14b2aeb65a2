"""Arithmetic and functions of single elements. All of them can be fused."""

from __future__ import annotations

from typing import Any

from gemel.dtype import DType, as_dtype, as_number, bool_, int64, uint64
from gemel.errors import DTypeError, ShapeError
from gemel.ir.declare import always, by_one, elementwise
from gemel.ir.methods import call
from gemel.ir.op import Op
from gemel.spec import Spec, broadcast, extents, normalize_axis, promote_specs, same_shape

# --- arithmetic -----------------------------------------------------------------------------


@elementwise(public="np", operator="add", onnx="Add", mxnet="_npi_add")
def add(xp: Any, a: Any, b: Any) -> Any:
    """Sum."""
    return a + b


@add.holomorphic
def _(g: Any, y: Any, a: Any, b: Any) -> Any:
    return g, g


@elementwise(dtype="arithmetic", public="np", operator="sub", onnx="Sub", mxnet="_npi_subtract")
def subtract(xp: Any, a: Any, b: Any) -> Any:
    """Difference."""
    return a - b


@subtract.holomorphic
def _(g: Any, y: Any, a: Any, b: Any) -> Any:
    return g, -g


@elementwise(public="np", operator="mul", onnx="Mul", mxnet="_npi_multiply", unchanged=by_one)
def multiply(xp: Any, a: Any, b: Any) -> Any:
    """Product."""
    return a * b


@multiply.holomorphic
def _(g: Any, y: Any, a: Any, b: Any) -> Any:
    return g * b, g * a


@elementwise(
    dtype="floating",
    public="np",
    aliases=("true_divide",),
    operator="truediv",
    onnx="Div",
    mxnet="_npi_true_divide",
    unchanged=by_one,
)
def divide(xp: Any, a: Any, b: Any) -> Any:
    """Quotient; integers become float32."""
    return a / b


@divide.holomorphic
def _(g: Any, y: Any, a: Any, b: Any) -> Any:
    return g / b, -(g * y / b)


@elementwise(dtype="numeric", public="np", operator="floordiv")
def floor_divide(xp: Any, a: Any, b: Any) -> Any:
    """Quotient rounded down; integers divided by zero give 0."""
    return a // b


@elementwise(dtype="numeric", public="np", aliases=("mod",), operator="mod", mxnet="_npi_mod")
def remainder(xp: Any, a: Any, b: Any) -> Any:
    """Remainder with the sign of b; integers modulo zero give 0."""
    return a % b


@remainder.gradient
def _(g: Any, y: Any, a: Any, b: Any) -> Any:
    return g, -(g * floor(a / b))


@elementwise(dtype="numeric", outputs=2, public="np")
def divmod(xp: Any, a: Any, b: Any) -> Any:
    """Quotient rounded down, and remainder."""
    return a // b, a % b


@divmod.gradient
def _(g: Any, y: Any, a: Any, b: Any) -> Any:
    return (None, None) if g[1] is None else (g[1], -(g[1] * y[0]))


@elementwise(dtype="arithmetic", public="np", operator="neg", onnx="Neg", mxnet="_npi_negative")
def negative(xp: Any, x: Any) -> Any:
    """The negative of each element."""
    return -x


@negative.holomorphic
def _(g: Any, y: Any, x: Any) -> Any:
    return (-g,)


@elementwise(
    dtype="size",
    public="np",
    aliases=("abs",),
    method="abs",
    operator="abs",
    onnx="Abs",
    mxnet="_npi_absolute",
    complex=True,
)
def absolute(xp: Any, x: Any) -> Any:
    """Absolute value."""
    return xp.absolute(x)


@absolute.gradient
def _(g: Any, y: Any, x: Any) -> Any:
    return (g * sign(x),)  # holds for complex numbers, too


@elementwise(
    dtype="arithmetic", public="np", method=True, onnx="Sign", mxnet="_npi_sign", complex=True
)
def sign(xp: Any, x: Any) -> Any:
    """-1, 0 or 1; NaN stays NaN."""
    return xp.sign(x)


@sign.gradient
def _(g: Any, y: Any, x: Any) -> Any:
    if not x.dtype.is_complex:
        return (None,)
    # x / |x| only changes when x moves across its own direction.
    along = call("real", g * call("conj", y))
    size = absolute(x)
    return (where(size == 0, 0, (g - y * along) / where(size == 0, 1, size)),)


@elementwise(dtype="numeric", public="np", method=True, mxnet="_npi_square")
def square(xp: Any, x: Any) -> Any:
    """The square of each element."""
    return x * x


@square.holomorphic
def _(g: Any, y: Any, x: Any) -> Any:
    return (g * (x * 2),)


@elementwise(dtype="floating", public="np", method=True, onnx="Reciprocal", mxnet="_npi_reciprocal")
def reciprocal(xp: Any, x: Any) -> Any:
    """1 / x; integers become float32."""
    return 1 / x


@reciprocal.holomorphic
def _(g: Any, y: Any, x: Any) -> Any:
    return (-(g * y * y),)


@elementwise(
    dtype="numeric",
    public="np",
    aliases=("pow",),
    operator="pow",
    onnx="Pow",
    mxnet="_npi_power",
    natural=(1, "integers to negative integer powers are not allowed; use a floating base"),
)
def power(xp: Any, a: Any, b: Any) -> Any:
    """a to the power of b. Integers wrap as their products do.

    Negative integer powers of integers are an `ArgumentError`: at the call where the exponent is a
    number, at the wait where it is an array.
    """
    return xp.power(a, b)


@power.holomorphic
def _(g: Any, y: Any, a: Any, b: Any) -> Any:
    slope = b * power(where(b == 0, 1, a), b - 1)  # x ** 0 has slope 0, even at x = 0
    a = cast(a, dtype=y.dtype) if y.dtype.is_complex else a
    positive = a != 0 if y.dtype.is_complex else a > 0
    logarithm = where(positive, log(where(positive, a, 1)), 0)
    return g * slope, g * y * logarithm


@elementwise(public="np", onnx="Max", mxnet="_npi_maximum")
def maximum(xp: Any, a: Any, b: Any) -> Any:
    """The larger element; NaN wins."""
    return xp.maximum(a, b)


@maximum.gradient
def _(g: Any, y: Any, a: Any, b: Any) -> Any:
    first = a >= b
    return where(first, g, 0), where(first, 0, g)


@elementwise(public="np", onnx="Min", mxnet="_npi_minimum")
def minimum(xp: Any, a: Any, b: Any) -> Any:
    """The smaller element; NaN wins."""
    return xp.minimum(a, b)


@minimum.gradient
def _(g: Any, y: Any, a: Any, b: Any) -> Any:
    first = a <= b
    return where(first, g, 0), where(first, 0, g)


def _limit_types(op: Op, specs: tuple[Spec, ...], how: Any) -> tuple[tuple[DType, ...], DType]:
    """Computes in int64, since integer bounds that are not `held` may exceed it, or in uint64."""
    dtype = promote_specs(*specs)
    far = any(spec.weak for spec in specs[1:]) and not how["held"]
    wide = int64 if far and dtype.kind in "iu" and dtype is not uint64 else dtype
    return (wide,) * len(specs), dtype


@elementwise(dtype=_limit_types, onnx="Clip", mxnet="_npi_clip")
def limit(xp: Any, x: Any, low: Any, high: Any, *, held: bool = False) -> Any:
    """x limited to [low, high]. `held`: the dtype of the result holds bounds that are numbers."""
    return xp.minimum(xp.maximum(x, low), high)


@limit.gradient
def _(g: Any, y: Any, x: Any, low: Any, high: Any, *, held: bool) -> Any:
    below, above = x < low, x > high
    # If low > high, the result is high, whatever x is.
    high_wins = above | (low > high)
    return where(below | above, 0, g), where(below & ~high_wins, g, 0), where(high_wins, g, 0)


# --- functions ------------------------------------------------------------------------------


@elementwise(dtype="floating", public="np", method=True, onnx="Sqrt", mxnet="_npi_sqrt")
def sqrt(xp: Any, x: Any) -> Any:
    """Square root; NaN for negative elements."""
    return xp.sqrt(x)


@sqrt.holomorphic
def _(g: Any, y: Any, x: Any) -> Any:
    return (g * 0.5 / y,)


@elementwise(dtype="floating", public="np", method=True, onnx="Exp", mxnet="_npi_exp")
def exp(xp: Any, x: Any) -> Any:
    """Exponential."""
    return xp.exp(x)


@exp.holomorphic
def _(g: Any, y: Any, x: Any) -> Any:
    return (g * y,)


@elementwise(dtype="floating", public="np", method=True, mxnet="_npi_expm1")
def expm1(xp: Any, x: Any) -> Any:
    """exp(x) - 1, accurate near zero."""
    return xp.expm1(x)


@expm1.holomorphic
def _(g: Any, y: Any, x: Any) -> Any:
    return (g * (y + 1),)


@elementwise(dtype="floating", public="np", method=True, onnx="Log", mxnet="_npi_log")
def log(xp: Any, x: Any) -> Any:
    """Natural logarithm; -inf at zero, NaN below."""
    return xp.log(x)


@log.holomorphic
def _(g: Any, y: Any, x: Any) -> Any:
    return (g / x,)


@elementwise(dtype="floating", public="np", method=True, mxnet="_npi_log1p")
def log1p(xp: Any, x: Any) -> Any:
    """log(1 + x), accurate near zero."""
    return xp.log1p(x)


@log1p.holomorphic
def _(g: Any, y: Any, x: Any) -> Any:
    return (g / (x + 1),)


@elementwise(dtype="floating", public="np", method=True, onnx="Tanh", mxnet="_npi_tanh")
def tanh(xp: Any, x: Any) -> Any:
    """Hyperbolic tangent."""
    return xp.tanh(x)


@tanh.holomorphic
def _(g: Any, y: Any, x: Any) -> Any:
    return (g * (1 - y * y),)


@elementwise(dtype="floating", public="np", method=True, onnx="Sin", mxnet="_npi_sin")
def sin(xp: Any, x: Any) -> Any:
    """Sine of x in radians."""
    return xp.sin(x)


@sin.holomorphic
def _(g: Any, y: Any, x: Any) -> Any:
    return (g * cos(x),)


@elementwise(dtype="floating", public="np", method=True, onnx="Cos", mxnet="_npi_cos")
def cos(xp: Any, x: Any) -> Any:
    """Cosine of x in radians."""
    return xp.cos(x)


@cos.holomorphic
def _(g: Any, y: Any, x: Any) -> Any:
    return (-(g * sin(x)),)


@elementwise(public="np", method=True, onnx="Floor", mxnet="_npi_floor")
def floor(xp: Any, x: Any) -> Any:
    """Largest whole number not above x."""
    return xp.floor(x)


@elementwise(public="np", method=True, onnx="Ceil", mxnet="_npi_ceil")
def ceil(xp: Any, x: Any) -> Any:
    """Smallest whole number not below x."""
    return xp.ceil(x)


@elementwise(public="np", method=True, onnx="Round", mxnet="_npi_rint", complex=True)
def rint(xp: Any, x: Any) -> Any:
    """Nearest whole number, ties to even."""
    return xp.rint(x)


@floor.gradient
@ceil.gradient
@rint.gradient
@floor_divide.gradient
def _(g: Any, y: Any, *inputs: Any) -> Any:
    return (None,) * len(inputs)


@elementwise(dtype="floating", public="npx", onnx="Sigmoid", mxnet="_npx_sigmoid")
def sigmoid(xp: Any, x: Any) -> Any:
    """1 / (1 + exp(-x)), without overflow on either side."""
    small = xp.exp(-xp.absolute(x))
    return xp.where(x >= 0, 1.0, small) / (1 + small)


@sigmoid.gradient
def _(g: Any, y: Any, x: Any) -> Any:
    return (g * y * (1 - y),)


@elementwise(dtype="arithmetic", public="npx", onnx="Relu", mxnet="_npx_relu")
def relu(xp: Any, x: Any) -> Any:
    """max(x, 0); NaN stays NaN."""
    return xp.maximum(x, 0)


@relu.gradient
def _(g: Any, y: Any, x: Any) -> Any:
    # Computed from y, which the next layer keeps anyway, so x need not be saved.
    return (where(y > 0, g, 0),)


# --- choice and conversion ------------------------------------------------------------------


def _where_types(op: Op, specs: tuple[Spec, ...], _: Any) -> tuple[tuple[DType, ...], DType]:
    dtype = promote_specs(*specs[1:])
    return (bool_, dtype, dtype), dtype


@elementwise(dtype=_where_types, public="np", onnx="Where", mxnet="_npi_where", moves=-1)
def where(xp: Any, condition: Any, a: Any, b: Any) -> Any:
    """a where the condition holds, else b."""
    return xp.where(condition, a, b)


@where.gradient
def _(g: Any, y: Any, condition: Any, a: Any, b: Any) -> Any:
    return None, where(condition, g, 0), where(condition, 0, g)


def _dtype_parameter(
    op: Op, specs: tuple[Spec, ...], parameters: Any
) -> tuple[tuple[DType, ...], DType]:
    dtype = as_dtype(parameters["dtype"])
    for x in specs:
        if x.dtype.is_complex and not (dtype.is_complex or dtype is bool_):
            how = "loses imaginary parts; take real(x) or absolute(x)"
            raise DTypeError(f"{op.name}: {x} to {dtype} {how}")
    return (dtype,) * len(specs), dtype


def _cast_types(
    op: Op, specs: tuple[Spec, ...], parameters: Any
) -> tuple[tuple[DType, ...], DType]:
    given = as_number(specs[0].dtype) if specs[0].weak else specs[0].dtype
    return (given,), _dtype_parameter(op, specs, parameters)[1]


@elementwise(dtype=_cast_types, onnx="Cast", mxnet="_npi_cast", unchanged=always)
def cast(xp: Any, x: Any, *, dtype: Any) -> Any:
    """The elements in another dtype; floating to integer truncates."""
    return x


@cast.spec
def _(x: Spec, *, dtype: Any) -> Spec:
    return Spec(x.shape, cast.types((x,), {"dtype": dtype})[1][0])


@cast.holomorphic
def _(g: Any, y: Any, x: Any, *, dtype: Any) -> Any:
    return (g if as_dtype(dtype).is_inexact else None,)


@elementwise(public="np", method=True, operator="copy", onnx="Identity", mxnet="_npi_copy", moves=1)
def copy(xp: Any, x: Any) -> Any:
    """A copy of the elements in new memory."""
    return x


@copy.gradient
def _(g: Any, y: Any, x: Any) -> Any:
    return (g,)


@elementwise(public="npx", mxnet="BlockGrad", moves=1, unchanged=always)
def stop_gradient(xp: Any, x: Any) -> Any:
    """The same elements; no gradient flows back."""
    return x


@stop_gradient.gradient
def _(g: Any, y: Any, x: Any) -> Any:
    return (None,)


# --- new arrays -----------------------------------------------------------------------------


@elementwise(dtype=_dtype_parameter, onnx="ConstantOfShape", mxnet="_npi_full")
def full(xp: Any, value: Any, *, shape: Any, dtype: Any) -> Any:
    """An array filled with one number."""
    return value


@full.spec
def _(value: Spec, *, shape: Any, dtype: Any) -> Spec:
    held = full.types((value,), {"dtype": dtype})[1][0]
    return filled("full", Spec(extents("full", shape), held), value)


def filled(name: str, result: Spec, *values: Spec) -> Spec:
    """`result`. Raises `ShapeError` unless the values broadcast to its shape."""
    if not same_shape(broadcast(name, *values, result), result.shape):
        given = " and ".join(map(str, values))
        raise ShapeError(f"{name}: {given} cannot fill {result}")
    return result


@full.holomorphic
def _(g: Any, y: Any, value: Any, *, shape: Any, dtype: Any) -> Any:
    return (g,)


@elementwise(dtype=_dtype_parameter, positional=True)
def iota(xp: Any, *, shape: Any, axis: int, dtype: Any) -> Any:
    """Each element's position along an axis."""
    return xp.index(axis)


@iota.spec
def _(*, shape: Any, axis: int, dtype: Any) -> Spec:
    normalize_axis("iota", axis, len(shape))
    return Spec(extents("iota", shape), dtype)


def distance(rows: int, columns: int) -> Any:
    """How far to the right of the diagonal each element of a matrix lies."""
    across = iota(shape=(1, columns), axis=1, dtype="int64")
    return across - iota(shape=(rows, 1), axis=0, dtype="int64")

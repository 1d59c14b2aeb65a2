"""Elementwise operations that have another name or another meaning in ONNX. Their inputs have the
dtype they are computed in, and so have the results of the rules, except for comparisons."""

from __future__ import annotations

import math
from functools import reduce
from typing import Any

from gemel.dtype import DType, bool_, float32, promote
from gemel.extent import Dim
from gemel.onnx.write.graph import Graph
from gemel.onnx.write.table import Call, Written, exports

#: Arithmetic on bools as logic, because ONNX has none.
OF_BOOLS = {"add": "Or", "maximum": "Or", "multiply": "And", "minimum": "And"}
ARITHMETIC = {"add": "Add", "maximum": "Max", "multiply": "Mul", "minimum": "Min"}


@exports("add", "multiply", "maximum", "minimum")
def _(graph: Graph, call: Call, a: str, b: str) -> Written:
    dtype = call.inputs[0].dtype
    if dtype is bool_:
        return graph.node(OF_BOOLS[call.name], a, b)
    if dtype.is_complex:
        return None
    return graph.node(ARITHMETIC[call.name], a, b)


@exports("copy", "stop_gradient", "detached", "positive")
def _(graph: Graph, call: Call, x: str) -> Written:
    return x


@exports("where")
def _(graph: Graph, call: Call, condition: str, a: str, b: str) -> Written:
    if call.result.dtype is bool_:  # onnxruntime has no Where of bools
        other = graph.node("And", graph.node("Not", condition), b)
        return graph.node("Or", graph.node("And", condition, a), other)
    return graph.node("Where", condition, a, b)


@exports("with_gradient")
def _(graph: Graph, call: Call, found: str, data: str, gradient: str, *, scaled: bool) -> Written:
    return found


@exports("cast")
def _(graph: Graph, call: Call, x: str, *, dtype: Any) -> Written:
    return graph.cast(x, call.inputs[0].dtype, call.result.dtype)


@exports("not_equal")
def _(graph: Graph, call: Call, a: str, b: str) -> Written:
    dtype = reduce(promote, (spec.dtype for spec in call.inputs))
    pairs = zip((a, b), call.inputs, strict=True)
    return graph.node(
        "Not", graph.node("Equal", *(graph.cast(x, s.dtype, dtype) for x, s in pairs))
    )


@exports("invert")
def _(graph: Graph, call: Call, x: str) -> Written:
    return graph.node("Not" if call.result.dtype is bool_ else "BitwiseNot", x)


@exports("bitwise_and", "bitwise_or", "bitwise_xor")
def _(graph: Graph, call: Call, a: str, b: str) -> Written:
    kind = call.name.removeprefix("bitwise_").capitalize()
    return graph.node(kind if call.result.dtype is bool_ else f"Bitwise{kind}", a, b)


@exports("left_shift", "right_shift")
def _(graph: Graph, call: Call, a: str, b: str) -> Written:
    dtype = call.result.dtype
    way = call.name.removesuffix("_shift").upper()
    if dtype.kind == "u":
        return graph.node("BitShift", a, b, direction=way)
    # ONNX shifts unsigned numbers alone. All casts here are of numbers that both dtypes hold.
    plain, most = DType(f"u{dtype.name}"), graph.constant(2**dtype.digits - 1, dtype)
    negative = graph.node("Less", a, graph.constant(0, dtype))
    count = graph.cast(b, dtype, plain)
    if way == "RIGHT":  # of a negative number: the shifted ones' complement, complemented
        a = graph.node("Where", negative, graph.node("BitwiseNot", a), a)
        found = graph.node("BitShift", graph.cast(a, dtype, plain), count, direction=way)
        found = graph.cast(found, plain, dtype)
        return graph.node("Where", negative, graph.node("BitwiseNot", found), found)
    # The bit of the sign goes in and comes out on its own.
    low = graph.cast(graph.node("BitwiseAnd", a, most), dtype, plain)
    top = graph.constant(2**dtype.digits, plain)
    place = graph.constant(dtype.digits, plain)
    sign = graph.node("BitShift", graph.cast(negative, bool_, plain), place, direction=way)
    found = graph.node("BitShift", graph.node("BitwiseOr", low, sign), count, direction=way)
    signed = graph.node("Equal", graph.node("BitwiseAnd", found, top), top)
    rest = graph.cast(graph.node("BitwiseAnd", found, graph.cast(most, dtype, plain)), plain, dtype)
    below = graph.node("BitwiseOr", rest, graph.constant(-(2**dtype.digits), dtype))
    return graph.node("Where", signed, below, rest)


@exports("isnan", "isinf")
def _(graph: Graph, call: Call, x: str) -> Written:
    floating = _as_floating(graph, call, x)
    return graph.node({"isnan": "IsNaN", "isinf": "IsInf"}[call.name], floating)


@exports("isfinite")
def _(graph: Graph, call: Call, x: str) -> Written:
    x = _as_floating(graph, call, x)
    return graph.node("Not", graph.node("Or", graph.node("IsInf", x), graph.node("IsNaN", x)))


@exports("isposinf", "isneginf")
def _(graph: Graph, call: Call, x: str) -> Written:
    other = "detect_negative" if call.name == "isposinf" else "detect_positive"
    return graph.node("IsInf", _as_floating(graph, call, x), **{other: 0})


def _as_floating(graph: Graph, call: Call, x: str) -> str:
    dtype = call.inputs[0].dtype
    return graph.cast(x, dtype, dtype if dtype.name in ("float32", "float64") else float32)


# --- rounding -------------------------------------------------------------------------------

ROUNDINGS = {"floor": "Floor", "ceil": "Ceil", "rint": "Round"}


@exports("floor", "ceil", "rint")
def _(graph: Graph, call: Call, x: str) -> Written:
    return graph.node(ROUNDINGS[call.name], x) if call.result.dtype.is_floating else x


@exports("trunc")
def _(graph: Graph, call: Call, x: str) -> Written:
    dtype = call.result.dtype
    if not dtype.is_floating:
        return x
    below = graph.node("Less", x, graph.constant(0, dtype))
    return graph.node("Where", below, graph.node("Ceil", x), graph.node("Floor", x))


@exports("remainder")
def _(graph: Graph, call: Call, a: str, b: str) -> Written:
    return _remainder(graph, call.result.dtype, a, b)


def _remainder(graph: Graph, dtype: DType, a: str, b: str) -> str:
    """The remainder with the sign of b, which ONNX's Mod has only for integers."""
    if not dtype.is_floating:
        return graph.node("Mod", a, b)
    rest, other = _rest(graph, dtype, a, b)
    return graph.node("Where", other, graph.node("Add", rest, b), rest)


def _rest(graph: Graph, dtype: DType, a: str, b: str) -> tuple[str, str]:
    """The remainder of floats with the sign of a, and whether that is not the sign of b."""
    rest = graph.node("Mod", a, b, fmod=1)
    signed = graph.node("Mul", graph.node("Sign", rest), b)  # rest * b may be rounded to 0
    return rest, graph.node("Less", signed, graph.constant(0, dtype))


@exports("fmod")
def _(graph: Graph, call: Call, a: str, b: str) -> Written:
    return graph.node("Mod", a, b, fmod=1)


@exports("floor_divide")
def _(graph: Graph, call: Call, a: str, b: str) -> Written:
    dtype, divisor = call.result.dtype, call.numbers[1]
    if not dtype.is_floating:
        return graph.node("Div", graph.node("Sub", a, _remainder(graph, dtype, a, b)), b)
    rest, other = _rest(graph, dtype, a, b)
    quotient = graph.node("Div", graph.node("Sub", a, rest), b)  # towards zero
    found = graph.node("Sub", graph.node("Round", quotient), graph.cast(other, bool_, dtype))
    if divisor is not None and (isinstance(divisor, Dim) or divisor != 0):
        return found
    zero = graph.node("Equal", b, graph.constant(0, dtype))  # it leaves no number as the remainder
    return graph.node("Where", zero, graph.node("Div", a, b), found)


# --- functions ------------------------------------------------------------------------------


@exports("square")
def _(graph: Graph, call: Call, x: str) -> Written:
    return graph.node("Mul", x, x)


@exports("log1p")
def _(graph: Graph, call: Call, x: str) -> Written:
    """log(u) / (u - 1) * x for u = 1 + x, which is as accurate as log1p (Kahan)."""
    one = graph.constant(1, call.result.dtype)
    whole = graph.node("Add", x, one)
    less = graph.node("Sub", whole, one)
    logarithm = graph.node("Log", whole)
    small = graph.node("Equal", less, graph.constant(0, call.result.dtype))
    huge = graph.node("IsInf", graph.node("Cast", whole, to=1))
    scaled = graph.node("Mul", logarithm, graph.node("Div", x, less))
    return graph.node("Where", small, x, graph.node("Where", huge, logarithm, scaled))


@exports("expm1")
def _(graph: Graph, call: Call, x: str) -> Written:
    """(u - 1) / log(u) * x for u = exp(x), which is as accurate as expm1 (Kahan)."""
    dtype = call.result.dtype
    one = graph.constant(1, dtype)
    whole = graph.node("Exp", x)
    less, logarithm = graph.node("Sub", whole, one), graph.node("Log", whole)
    scaled = graph.node("Mul", less, graph.node("Div", x, logarithm))
    same = graph.node("Equal", whole, one)
    near = graph.node("Less", graph.node("Abs", x), one)
    return graph.node("Where", same, x, graph.node("Where", near, scaled, less))


@exports("exp2")
def _(graph: Graph, call: Call, x: str) -> Written:
    return graph.node("Pow", graph.constant(2, call.result.dtype), x)


@exports("log2", "log10")
def _(graph: Graph, call: Call, x: str) -> Written:
    base = math.log(int(call.name.removeprefix("log")))
    return graph.node("Div", graph.node("Log", x), graph.constant(base, call.result.dtype))


@exports("cbrt")
def _(graph: Graph, call: Call, x: str) -> Written:
    root = graph.node("Pow", graph.node("Abs", x), graph.constant(1 / 3, call.result.dtype))
    return graph.node("Mul", graph.node("Sign", x), root)


@exports("signbit")
def _(graph: Graph, call: Call, x: str) -> Written:
    return _is_negative(graph, call.inputs[0].dtype, x)


def _is_negative(graph: Graph, dtype: DType, x: str) -> str:
    """Whether x has a negative sign, including -0.0: where x is 0, the sign of 1 / x decides."""
    if dtype is bool_:
        return graph.node("Xor", x, x)
    zero = graph.constant(0, dtype)
    below = graph.node("Less", x, zero)
    if not dtype.is_floating:
        return below
    inverse = graph.node("Less", graph.node("Reciprocal", x), zero)
    return graph.node("Or", below, graph.node("And", graph.node("Equal", x, zero), inverse))


@exports("copysign")
def _(graph: Graph, call: Call, a: str, b: str) -> Written:
    size = graph.node("Abs", a)
    negative = _is_negative(graph, call.result.dtype, b)
    return graph.node("Where", negative, graph.node("Neg", size), size)


@exports("hypot")
def _(graph: Graph, call: Call, a: str, b: str) -> Written:
    """Use the ratio of the smaller to the larger, which does not overflow."""
    dtype = call.result.dtype
    one, wide, high = graph.constant(1, dtype), graph.node("Abs", a), graph.node("Abs", b)
    least, most = graph.node("Min", wide, high), graph.node("Max", wide, high)
    alike = graph.node("Equal", least, most)  # also 0 and 0, infinity and infinity
    ratio = graph.node("Div", least, graph.node("Where", alike, one, most))
    ratio = graph.node("Where", alike, one, ratio)
    root = graph.node("Sqrt", graph.node("Add", one, graph.node("Mul", ratio, ratio)))
    return graph.node("Mul", most, root)


@exports("arctan2")
def _(graph: Graph, call: Call, y: str, x: str) -> Written:
    """The arctan of the smaller divided by the larger magnitude, moved to its quadrant."""
    dtype = call.result.dtype
    zero, half, whole = (graph.constant(n, dtype) for n in (0, math.pi / 2, math.pi))
    high, wide = graph.node("Abs", y), graph.node("Abs", x)
    steep = graph.node("Greater", high, wide)
    least, most = graph.node("Min", high, wide), graph.node("Max", high, wide)
    alike = graph.node("Equal", least, most)  # also 0 and 0, infinity and infinity
    some = graph.node("Greater", most, zero)
    ratio = graph.node("Div", least, graph.node("Where", some, most, graph.constant(1, dtype)))
    one = graph.node("Where", some, graph.constant(1, dtype), zero)
    angle = graph.node("Atan", graph.node("Where", alike, one, ratio))
    angle = graph.node("Where", steep, graph.node("Sub", half, angle), angle)
    left = _is_negative(graph, dtype, x)
    angle = graph.node("Where", left, graph.node("Sub", whole, angle), angle)
    below = _is_negative(graph, dtype, y)
    return graph.node("Where", below, graph.node("Neg", angle), angle)


@exports("limit")
def _(graph: Graph, call: Call, x: str, low: str, high: str, **_: Any) -> Written:
    if call.inputs[0].dtype is bool_:
        found = graph.node("And", graph.node("Or", x, low), high)
    elif any(spec.ndim for spec in call.inputs[1:]):
        found = graph.node("Min", graph.node("Max", x, low), high)
    else:
        found = graph.node("Clip", x, low, high)
    return graph.cast(found, call.inputs[0].dtype, call.result.dtype)


@exports("leaky_relu")
def _(graph: Graph, call: Call, x: str, slope: str) -> Written:
    number = call.numbers[1]
    if number is not None:
        return graph.node("LeakyRelu", x, alpha=float(number))
    if call.inputs[1].ndim <= call.inputs[0].ndim:
        return graph.node("PRelu", x, slope)
    return None


@exports("elu")
def _(graph: Graph, call: Call, x: str, alpha: str) -> Written:
    number = call.numbers[1]
    return None if number is None else graph.node("Elu", x, alpha=float(number))


@exports("gelu")
def _(graph: Graph, call: Call, x: str) -> Written:
    return graph.node("Gelu", x) if graph.opset >= 20 else None


# --- what is made from nothing --------------------------------------------------------------


@exports("full")
def _(graph: Graph, call: Call, value: str, *, shape: Any, dtype: Any) -> Written:
    result = call.result
    number = call.numbers[0]
    if number is not None:
        whole = graph.number(number, result.dtype)
    else:
        whole = graph.cast(value, call.inputs[0].dtype, result.dtype)
    return graph.expand(whole, (), result.shape)


@exports("iota")
def _(graph: Graph, call: Call, *, shape: Any, axis: int, dtype: Any) -> Written:
    result = call.result
    place = axis % result.ndim
    extent = result.shape[place]
    if isinstance(extent, Dim):
        count = graph.node("Range", graph.constant(0), graph.number(extent), graph.constant(1))
    else:
        count = graph.constant(list(range(extent)))
    count = graph.cast(count, DType("int64"), result.dtype)
    lined = tuple(extent if i == place else 1 for i in range(result.ndim))
    if result.ndim > 1:
        count = graph.node(
            "Unsqueeze", count, graph.constant([i for i in range(result.ndim) if i != place])
        )
    return graph.expand(count, lined, result.shape)

"""Operators on single elements."""

from __future__ import annotations

import math
from functools import reduce
from typing import Any

from gemel import np, npx
from gemel.onnx.read.table import imports
from gemel.onnx.types import dtype_of

# --- those that are gemel's -------------------------------------------------------------------

#: Operators of one array, with the equal functions of gemel.
SAME = {
    "Abs": np.absolute,
    "Acos": np.arccos,
    "Acosh": np.arccosh,
    "Asin": np.arcsin,
    "Asinh": np.arcsinh,
    "Atan": np.arctan,
    "Atanh": np.arctanh,
    "BitwiseNot": np.invert,
    "Ceil": np.ceil,
    "Cos": np.cos,
    "Cosh": np.cosh,
    "Erf": npx.erf,
    "Exp": np.exp,
    "Floor": np.floor,
    "IsNaN": np.isnan,
    "Log": np.log,
    "Mish": npx.mish,
    "Neg": np.negative,
    "Not": np.logical_not,
    "Reciprocal": np.reciprocal,
    "Relu": npx.relu,
    "Round": np.rint,
    "Sigmoid": npx.sigmoid,
    "Sign": np.sign,
    "Sin": np.sin,
    "Sinh": np.sinh,
    "Softplus": npx.softplus,
    "Softsign": npx.softsign,
    "Sqrt": np.sqrt,
    "Tan": np.tan,
    "Tanh": np.tanh,
}
#: The same for operators of two arrays.
SAME_OF_TWO = {
    "Add": np.add,
    "And": np.logical_and,
    "BitwiseAnd": np.bitwise_and,
    "BitwiseOr": np.bitwise_or,
    "BitwiseXor": np.bitwise_xor,
    "Equal": np.equal,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "Mul": np.multiply,
    "Or": np.logical_or,
    "Sub": np.subtract,
    "Xor": np.logical_xor,
}

for _name, _function in SAME.items():
    imports(_name)(lambda node, x, f=_function: f(x))
for _name, _function in SAME_OF_TWO.items():
    imports(_name, scalars=True)(lambda node, a, b, f=_function: f(a, b))


# --- arithmetic -------------------------------------------------------------------------------


@imports("Identity", "Dropout", known=(1, 2))
def _(node: Any, x: Any, ratio: Any = None, training: Any = None) -> Any:
    """Return the input: files are for inference, and the mask of the dropout is all true."""
    if node.number(training, default=False):
        raise node.refuse("it drops elements: the file is of a network in training")
    return (x, np.ones_like(x, dtype="bool")) if node.has(1) else x


@imports("Div", scalars=True)
def _(node: Any, a: Any, b: Any) -> Any:
    dtype = getattr(a, "dtype", None) or b.dtype
    if dtype.is_floating:
        return np.divide(a, b)
    quotient = np.floor_divide(a, b)
    if dtype.kind == "u":
        return quotient
    inexact = np.not_equal(quotient * b, a) & np.less(quotient, 0)
    return quotient + inexact.astype(dtype)  # towards zero


@imports("Pow", scalars=True)
def _(node: Any, x: Any, exponent: Any) -> Any:
    found = np.power(x, exponent)
    return found.astype(getattr(x, "dtype", found.dtype))


@imports("Mod")
def _(node: Any, a: Any, b: Any) -> Any:
    return np.fmod(a, b) if node.get("fmod", 0) else np.remainder(a, b)


@imports("BitShift")
def _(node: Any, a: Any, b: Any) -> Any:
    return {"LEFT": np.left_shift, "RIGHT": np.right_shift}[node.get("direction")](a, b)


#: Operators of any number of arrays.
OF_MANY = {"Max": np.maximum, "Min": np.minimum, "Sum": np.add}

for _name, _function in OF_MANY.items():
    imports(_name)(lambda node, *inputs, f=_function: reduce(f, inputs))


@imports("Mean")
def _(node: Any, *inputs: Any) -> Any:
    return reduce(np.add, inputs) / len(inputs)


@imports("Where")
def _(node: Any, condition: Any, a: Any, b: Any) -> Any:
    return np.where(condition, a, b)


@imports("IsInf")
def _(node: Any, x: Any) -> Any:
    negative, positive = node.get("detect_negative", 1), node.get("detect_positive", 1)
    if negative and positive:
        return np.isinf(x)
    if not negative and not positive:
        return np.zeros_like(x, dtype="bool")
    return np.isneginf(x) if negative else np.isposinf(x)


@imports("Clip", scalars=True)
def _(node: Any, x: Any, low: Any = None, high: Any = None) -> Any:
    low = node.get("min") if low is None else low
    high = node.get("max") if high is None else high
    if low is not None and high is not None:
        return np.clip(x, low, high)
    x = x if low is None else np.maximum(x, low)
    return x if high is None else np.minimum(x, high)


@imports("Cast")
def _(node: Any, x: Any) -> Any:
    return x.astype(dtype_of(node.get("to"), node.where))


@imports("CastLike")
def _(node: Any, x: Any, like: Any) -> Any:
    return x.astype(like.dtype)


# --- activations ------------------------------------------------------------------------------


@imports("LeakyRelu")
def _(node: Any, x: Any) -> Any:
    return npx.leaky_relu(x, slope=node.get("alpha", 0.01))


@imports("PRelu")
def _(node: Any, x: Any, slope: Any) -> Any:
    return np.where(x < 0, x * slope, x)


@imports("Elu")
def _(node: Any, x: Any) -> Any:
    return npx.leaky_relu(x, act_type="elu", slope=node.get("alpha", 1.0))


@imports("Celu")
def _(node: Any, x: Any) -> Any:
    alpha = node.get("alpha", 1.0)
    return np.maximum(x, 0) + np.minimum(alpha * np.expm1(np.minimum(x, 0) / alpha), 0)


@imports("Selu")
def _(node: Any, x: Any) -> Any:
    alpha, gamma = (
        node.get("alpha", 1.67326319217681884765625),
        node.get("gamma", 1.0507009873554805),
    )
    return gamma * npx.leaky_relu(x, act_type="elu", slope=alpha)


@imports("ThresholdedRelu")
def _(node: Any, x: Any) -> Any:
    return np.where(x > node.get("alpha", 1.0), x, 0)


@imports("Gelu")
def _(node: Any, x: Any) -> Any:
    if node.get("approximate", "none") == "none":
        return npx.gelu(x)
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)
    return 0.5 * x * (1 + np.tanh(inner))


@imports("HardSigmoid")
def _(node: Any, x: Any) -> Any:
    return np.clip(x * node.get("alpha", 0.2) + node.get("beta", 0.5), 0, 1)


@imports("HardSwish")
def _(node: Any, x: Any) -> Any:
    return x * np.clip(x / 6 + 0.5, 0, 1)


@imports("Swish")
def _(node: Any, x: Any) -> Any:
    return x * npx.sigmoid(x * node.get("alpha", 1.0))


@imports("Shrink")
def _(node: Any, x: Any) -> Any:
    limit, bias = node.get("lambd", 0.5), node.get("bias", 0.0)
    found = np.where(x < -limit, x + bias, np.where(x > limit, x - bias, 0))
    return found.astype(x.dtype)

"""Activations: functions of each element alone, with the gradients that are stable."""

from __future__ import annotations

from typing import Any

from gemel import _core
from gemel.device import beside
from gemel.errors import unknown_name
from gemel.ir.declare import elementwise
from gemel.ir.keywords import number
from gemel.ir.public import Array, function
from gemel.ops.elementwise import (
    absolute,
    exp,
    limit,
    multiply,
    negative,
    relu,
    sigmoid,
    sign,
    square,
    tanh,
    where,
)
from gemel.ops.random import drawn, uniform
from gemel.ops.shape import operand, reshape


@elementwise(dtype="floating", public="npx", onnx="Gelu", mxnet="_npx_gelu")
def gelu(xp: Any, x: Any) -> Any:
    """x times the normal distribution function of x (Hendrycks and Gimpel, 2016)."""
    return 0.5 * x * (1 + xp.erf(x * 0.7071067811865476))


@gelu.gradient
def _(g: Any, y: Any, x: Any) -> Any:
    # Further out, the density is far below the rounding of `share`, and soon subnormal, which many
    # processors multiply slowly.
    square = x * x
    density = where(square < 160, exp(square * -0.5), 0) * 0.3989422804014327
    share = erf(x * 0.7071067811865476) * 0.5 + 0.5
    return (g * (share + x * density),)


@elementwise(dtype="floating", public="npx", onnx="Erf", mxnet="_npx_erf")
def erf(xp: Any, x: Any) -> Any:
    """Gauss's error function."""
    return xp.erf(x)


@erf.gradient
def _(g: Any, y: Any, x: Any) -> Any:
    return (g * exp(x * x * -1.0) * 1.1283791670955126,)


@elementwise(dtype="floating", public="npx", onnx="Softplus", mxnet="_npx_softrelu")
def softplus(xp: Any, x: Any) -> Any:
    """log(1 + exp(x)), without overflow."""
    return xp.maximum(x, 0) + xp.log1p(xp.exp(-xp.absolute(x)))


@softplus.gradient
def _(g: Any, y: Any, x: Any) -> Any:
    return (g * sigmoid(x),)


@elementwise(dtype="floating", public="npx", onnx="Softsign", mxnet="_npx_softsign")
def softsign(xp: Any, x: Any) -> Any:
    """x / (1 + abs(x))."""
    return x / (1 + xp.absolute(x))


@softsign.gradient
def _(g: Any, y: Any, x: Any) -> Any:
    # Computed from x, because 1 - abs(y) has lost its digits where x is large.
    return (g / square(absolute(x) + 1),)


@elementwise(dtype="floating", public="npx", onnx="LeakyRelu", mxnet="_npx_leaky_relu")
def leaky_relu(xp: Any, x: Any, slope: Any) -> Any:
    """x where positive, slope * x elsewhere."""
    return xp.where(x > 0, x, x * slope)


@leaky_relu.facade
def _(
    data: Any,
    gamma: Any = None,
    act_type: str = "leaky",
    slope: float = 0.25,
    lower_bound: float = 0.125,
    upper_bound: float = 0.334,
) -> Array:
    """data where positive; elsewhere, by act_type: "leaky": slope * data, "prelu": gamma * data
    (a gamma for each channel, or one), "elu": slope * (exp(data) - 1), "rrelu": a slope drawn for
    each element from [lower_bound, upper_bound) while training, their mean otherwise. "selu" and
    "gelu" are those.
    """
    data = operand(data)
    if act_type == "rrelu":
        slopes: Any = (lower_bound + upper_bound) / 2
        if _core.training():
            bounds = (
                number("leaky_relu", "lower_bound", lower_bound),
                number("leaky_relu", "upper_bound", upper_bound),
            )
            with beside(None, (data,)):
                slopes = drawn(uniform, *bounds, shape=tuple(data.shape), dtype=data.dtype.floating)
        return leaky_relu(data, slopes)
    if act_type == "prelu" and gamma is not None:
        gamma = operand(gamma, (data,))
        wide = len(gamma.shape) == 1 and len(data.shape) > 1
        lined = (-1, *[1] * (len(data.shape) - 2)) if wide else tuple(gamma.shape)
        return leaky_relu(data, reshape(gamma, shape=lined))
    kinds: dict[str, Any] = {"leaky": leaky_relu, "elu": elu}
    if act_type in kinds:
        return kinds[act_type](data, slope)
    alone: dict[str, Any] = {"selu": selu, "gelu": gelu}
    if act_type not in alone:
        raise unknown_name(
            "kind of leaky_relu", act_type, (*kinds, *alone, "rrelu", "prelu (with gamma)")
        )
    return alone[act_type](data)


@elementwise(dtype="floating", public="npx", onnx="Elu")
def elu(xp: Any, x: Any, alpha: Any) -> Any:
    """x where positive, alpha * (exp(x) - 1) elsewhere (Clevert et al., ICLR 2016)."""
    return xp.where(x > 0, x, alpha * xp.expm1(xp.minimum(x, 0)))


@elu.facade
def _(data: Any, alpha: float = 1.0) -> Array:
    """data where positive, alpha * (exp(data) - 1) elsewhere (Clevert et al., ICLR 2016)."""
    return elu(data, alpha)


@elu.gradient
def _(g: Any, y: Any, x: Any, alpha: Any) -> Any:
    raised = exp(where(x > 0, 0, x))
    return where(x > 0, g, g * raised * alpha), where(x > 0, 0, g * (raised - 1))


@function(public="npx")
def selu(data: Any) -> Array:
    """`elu` scaled so that mean 0 and variance 1 stay (Klambauer et al., NeurIPS 2017)."""
    return multiply(elu(data, 1.6732632423543772), 1.0507009873554805)


@function(public="npx")
def silu(data: Any, beta: float = 1.0) -> Array:
    """data * sigmoid(beta * data), also called swish (Ramachandran et al., 2017)."""
    return multiply(data, sigmoid(multiply(data, beta) if beta != 1 else data))


@elementwise(dtype="floating", public="npx", mxnet="_npx_smooth_l1")
def smooth_l1(xp: Any, x: Any, scalar: Any) -> Any:
    """abs(x) - 0.5 / scalar**2, but 0.5 * (scalar * x)**2 where abs(x) < 1 / scalar**2."""
    near, scaled = 1 / (scalar * scalar), scalar * x
    size = xp.absolute(x)
    return xp.where(size < near, 0.5 * scaled * scaled, size - 0.5 * near)


@smooth_l1.facade
def _(data: Any, scalar: float = 1.0) -> Array:
    """abs(data) - 0.5 / scalar**2, but 0.5 * (scalar * data)**2 where abs(data) < 1 / scalar**2.

    Girshick, Fast R-CNN, ICCV 2015.
    """
    return smooth_l1(data, scalar)


@smooth_l1.gradient
def _(g: Any, y: Any, x: Any, scalar: Any) -> Any:
    square_of = scalar * scalar
    near = absolute(x) * square_of < 1
    slope = where(near, scalar * x * x, 1 / (square_of * scalar))
    return g * where(near, x * square_of, sign(x)), g * slope


@function(public="npx")
def log_sigmoid(data: Any) -> Array:
    """The logarithm of 1 / (1 + exp(-data)), without overflow."""
    return negative(softplus(negative(data)))


@function(public="npx")
def mish(data: Any) -> Array:
    """data * tanh(log(1 + exp(data))) (Misra, BMVC 2020)."""
    return multiply(data, tanh(softplus(data)))


@function(public="npx")
def hard_sigmoid(data: Any, alpha: float = 0.2, beta: float = 0.5) -> Array:
    """alpha * data + beta, limited to [0, 1]."""
    return limit(multiply(data, alpha) + beta, 0.0, 1.0)


#: Activations by the names that layers use for them.
ACTIVATIONS: dict[str, Any] = {
    "relu": relu,
    "sigmoid": sigmoid,
    "tanh": tanh,
    "gelu": gelu,
    "log_sigmoid": log_sigmoid,
    "mish": mish,
    "hard_sigmoid": hard_sigmoid,
    "softrelu": softplus,
    "softplus": softplus,
    "softsign": softsign,
    "elu": lambda x: elu(x, 1.0),
    "selu": selu,
    "silu": silu,
    "swish": silu,
}


@function(public="npx")
def activation(data: Any, act_type: str = "relu") -> Array:
    """An activation by its name. Raises `UnknownNameError`, suggesting the nearest."""
    known = ACTIVATIONS.get(act_type)
    if known is None:
        raise unknown_name("activation", act_type, ACTIVATIONS)
    return known(data)


@leaky_relu.gradient
def _(g: Any, y: Any, x: Any, slope: Any) -> Any:
    positive = x > 0
    return where(positive, g, g * slope), where(positive, 0, g * x)

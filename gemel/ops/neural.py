"""Compositions neural networks are made of, with the gradients that are stable."""

from __future__ import annotations

from typing import Any

from gemel.errors import DTypeError, ShapeError
from gemel.ir.op import composite, elementwise
from gemel.ops.elementwise import (
    absolute,
    cast,
    divide,
    exp,
    log,
    multiply,
    sigmoid,
    square,
    subtract,
    where,
)
from gemel.ops.random import uniform
from gemel.ops.reduction import max, sum, widened
from gemel.ops.shape import reshape
from gemel.spec import Spec, normalize_axis


def same(x: Spec, **_: Any) -> Spec:
    """The spec of its input, as floating."""
    return Spec(x.shape, x.dtype.floating)


@composite(onnx="Softmax", mxnet="_npx_softmax")
def softmax(x: Any, *, axis: int = -1) -> Any:
    """exp(x) / sum(exp(x)) along an axis, without overflow."""
    x = cast(x, dtype=same(x.spec).dtype)
    raised = exp(subtract(x, max(x, axis=axis, keepdims=True)))
    # One division a row: multiplying by the inverse costs a fraction of dividing each element.
    return multiply(raised, divide(1, sum(raised, axis=axis, keepdims=True)))


@softmax.gradient
def _(g: Any, y: Any, x: Any, *, axis: int) -> Any:
    weighted = multiply(g, y)
    return (subtract(weighted, multiply(y, sum(weighted, axis=axis, keepdims=True))),)


@composite(onnx="LogSoftmax", mxnet="_npx_log_softmax")
def log_softmax(x: Any, *, axis: int = -1) -> Any:
    """The logarithm of softmax, accurate where softmax is nearly 0 or 1."""
    x = cast(x, dtype=same(x.spec).dtype)
    shifted = subtract(x, max(x, axis=axis, keepdims=True))
    return subtract(shifted, log(sum(exp(shifted), axis=axis, keepdims=True)))


@log_softmax.gradient
def _(g: Any, y: Any, x: Any, *, axis: int) -> Any:
    return (subtract(g, multiply(exp(y), sum(g, axis=axis, keepdims=True))),)


@softmax.spec
@log_softmax.spec
def _(x: Spec, *, axis: int) -> Spec:
    normalize_axis("softmax", axis, x.ndim)
    return same(x)


@elementwise(dtype="floating", onnx="Gelu", mxnet="_npx_gelu")
def gelu(xp: Any, x: Any) -> Any:
    """x times the normal distribution function of x (Hendrycks and Gimpel, 2016)."""
    return 0.5 * x * (1 + xp.erf(x * 0.7071067811865476))


@gelu.gradient
def _(g: Any, y: Any, x: Any) -> Any:
    density = exp(x * x * -0.5) * 0.3989422804014327
    share = erf(x * 0.7071067811865476) * 0.5 + 0.5
    return (g * (share + x * density),)


@elementwise(dtype="floating", onnx="Erf", mxnet="_npx_erf")
def erf(xp: Any, x: Any) -> Any:
    """Gauss's error function."""
    return xp.erf(x)


@erf.gradient
def _(g: Any, y: Any, x: Any) -> Any:
    return (g * exp(x * x * -1.0) * 1.1283791670955126,)


@elementwise(dtype="floating", onnx="Softplus", mxnet="_npx_softrelu")
def softplus(xp: Any, x: Any) -> Any:
    """log(1 + exp(x)), without overflow."""
    return xp.maximum(x, 0) + xp.log1p(xp.exp(-xp.absolute(x)))


@softplus.gradient
def _(g: Any, y: Any, x: Any) -> Any:
    return (g * sigmoid(x),)


@elementwise(dtype="floating", onnx="Softsign", mxnet="_npx_softsign")
def softsign(xp: Any, x: Any) -> Any:
    """x / (1 + abs(x))."""
    return x / (1 + xp.absolute(x))


@softsign.gradient
def _(g: Any, y: Any, x: Any) -> Any:
    # From x: 1 - abs(y) has lost its digits where x is large.
    return (g / square(absolute(x) + 1),)


@elementwise(dtype="floating", onnx="LeakyRelu", mxnet="_npx_leaky_relu")
def leaky_relu(xp: Any, x: Any, slope: Any) -> Any:
    """x where positive, slope * x elsewhere."""
    return xp.where(x > 0, x, x * slope)


@leaky_relu.gradient
def _(g: Any, y: Any, x: Any, slope: Any) -> Any:
    positive = x > 0
    return where(positive, g, g * slope), where(positive, 0, g * x)


@composite(outputs=2, random=True, mxnet="_npx_dropout")
def dropout(x: Any, *, p: float, axes: Any = (), call: Any = None) -> Any:
    """Elements set to 0 with probability p, the others scaled by 1 / (1 - p); and the mask kept.

    Srivastava et al., 2014. Along `axes` one draw serves all elements.
    """
    shared = {normalize_axis("dropout", axis, x.ndim) for axis in axes}
    shape = tuple(1 if axis in shared else n for axis, n in enumerate(x.shape))
    kept = uniform(0.0, 1.0, shape=shape, dtype="float32", call=call) >= p
    return where(kept, multiply(x, 1.0 / (1.0 - p)), 0), kept


@dropout.spec
def _(x: Spec, *, p: float, axes: Any = (), call: Any = None) -> tuple[Spec, Spec]:
    shared = {normalize_axis("dropout", axis, x.ndim) for axis in axes}
    shape = tuple(1 if axis in shared else n for axis, n in enumerate(x.shape))
    return same(x), Spec(shape, "bool")


@dropout.gradient
def _(g: Any, y: Any, x: Any, *, p: float, **_: Any) -> Any:
    return (where(y[1], multiply(g[0], 1.0 / (1.0 - p)), 0),)


def channel_shape(x: Any, axis: int) -> tuple[int, ...]:
    """The shape that lines a vector of channels up with an axis of x."""
    place = normalize_axis("batch_norm", axis, len(x.shape))
    return tuple(x.shape[place] if i == place else 1 for i in range(len(x.shape)))


def other_axes(x: Any, axis: int) -> tuple[int, ...]:
    """All axes but one."""
    place = normalize_axis("batch_norm", axis, len(x.shape))
    return tuple(i for i in range(len(x.shape)) if i != place)


@composite(outputs=5, updates={3: 3, 4: 4}, onnx="BatchNormalization", mxnet="_npx_batch_norm")
def batch_norm(
    x: Any,
    gamma: Any,
    beta: Any,
    running_mean: Any,
    running_var: Any,
    *,
    eps: float = 1e-5,
    momentum: float = 0.9,
    axis: int = 1,
) -> Any:
    """x normalised over all axes but one, scaled by gamma and shifted by beta.

    Ioffe and Szegedy, 2015. Results: y, the batch's mean and 1 / sqrt(variance + eps); the running
    statistics become momentum * old + (1 - momentum) * batch's. float16 is computed in float32, in
    which its mean and inverse stay.
    """
    dtype, axes, lined = x.dtype, other_axes(x, axis), channel_shape(x, axis)
    x = widened(x)
    count = 1
    for place in axes:
        count = count * x.shape[place]
    mean = divide(sum(x, axis=axes), count)
    centred = subtract(x, reshape(mean, shape=lined))
    variance = divide(sum(multiply(centred, centred), axis=axes), count)
    inverse = 1.0 / (variance + eps).sqrt()
    scale = reshape(multiply(inverse, gamma), shape=lined)
    y = multiply(centred, scale) + reshape(beta, shape=lined)
    new_mean = running_mean * momentum + mean * (1.0 - momentum)
    new_var = running_var * momentum + variance * (1.0 - momentum)
    new_mean = cast(new_mean, dtype=running_mean.dtype)
    new_var = cast(new_var, dtype=running_var.dtype)
    return cast(y, dtype=dtype), mean, inverse, new_mean, new_var


@batch_norm.spec
def _(
    x: Spec,
    gamma: Spec,
    beta: Spec,
    mean: Spec,
    var: Spec,
    *,
    eps: float,
    momentum: float,
    axis: int,
) -> tuple[Spec, ...]:
    place = normalize_axis("batch_norm", axis, x.ndim)
    if not x.dtype.is_floating:
        raise DTypeError(f"batch_norm: x {x} must be floating; use astype('float32')")
    channels = (x.shape[place],)
    for name, spec in (
        ("gamma", gamma),
        ("beta", beta),
        ("running_mean", mean),
        ("running_var", var),
    ):
        if spec.ndim != 1 or not spec.shape[0] == channels[0]:
            raise ShapeError(
                f"batch_norm: {name} {spec} must have one element per channel of x {x} "
                f"(axis {place}: {channels[0]})"
            )
    vector = Spec(channels, x.dtype.accumulate)
    return x, vector, vector, mean, var


@batch_norm.gradient
def _(
    g: Any, y: Any, x: Any, gamma: Any, beta: Any, mean: Any, var: Any, *, axis: int, **_: Any
) -> Any:
    axes, lined = other_axes(x, axis), channel_shape(x, axis)
    x, g0 = widened(x), widened(g[0])
    count = 1
    for place in axes:
        count = count * x.shape[place]
    batch_mean, inverse = y[1], y[2]
    normal = multiply(subtract(x, reshape(batch_mean, shape=lined)), reshape(inverse, shape=lined))
    d_beta = sum(g0, axis=axes)
    d_gamma = sum(multiply(g0, normal), axis=axes)
    scale = reshape(multiply(gamma, inverse), shape=lined)
    mean_g = reshape(divide(d_beta, count), shape=lined)
    mean_gx = reshape(divide(d_gamma, count), shape=lined)
    dx = multiply(scale, subtract(subtract(g0, mean_g), multiply(normal, mean_gx)))
    return dx, d_gamma, d_beta, None, None

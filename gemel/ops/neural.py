"""Compositions that neural networks consist of, with numerically stable gradients."""

from __future__ import annotations

from functools import reduce
from typing import Any

from gemel import _core
from gemel.errors import ArgumentError, DTypeError, ShapeError, unknown_name
from gemel.ir.declare import composite
from gemel.ir.keywords import number
from gemel.ir.methods import call as called
from gemel.ir.public import Array, function, spelled
from gemel.ops.elementwise import (
    add,
    cast,
    divide,
    exp,
    iota,
    log,
    multiply,
    negative,
    square,
    subtract,
    where,
)
from gemel.ops.elementwise import copy as materialized
from gemel.ops.linalg import matmul, with_bias
from gemel.ops.random import uniform
from gemel.ops.reduction import in_dtype, max, sum, widened
from gemel.ops.shape import broadcast_to, expand_dims, operand, operands, reshape, transpose
from gemel.ops.variance import about_mean
from gemel.spec import Spec, normalize_axis, product, same_shape


def same(x: Spec, **_: Any) -> Spec:
    """The spec of the input, with a floating dtype."""
    return Spec(x.shape, x.dtype.floating)


@composite(public="npx", onnx="Softmax", mxnet="_npx_softmax")
def softmax(x: Any, *, axis: int = -1) -> Any:
    """exp(x) / sum(exp(x)) along an axis, without overflow."""
    x = cast(x, dtype=same(x.spec).dtype)
    if type(x.shape[axis]) is int and x.shape[axis] == 0:
        return x  # rows of nothing
    raised = exp(subtract(x, max(x, axis=axis, keepdims=True)))
    # One division per row: multiplying by the inverse is much cheaper than dividing each element.
    return multiply(raised, divide(1, sum(raised, axis=axis, keepdims=True)))


@softmax.facade
def _(
    data: Any,
    axis: int = -1,
    length: Any = None,
    temperature: float | None = None,
    use_length: bool = False,
    dtype: Any = None,
) -> Array:
    """exp(data / temperature) along an axis, divided by its sum.

    With `use_length` each row counts up to its `length` only, which has the shape of data without
    the axis; what is behind it becomes 0.
    """
    data = cooled(in_dtype(data, dtype), temperature)
    if use_length:
        mask = within_length("softmax", data, length, axis)
        return called("masked_softmax", data, mask, axis=axis)
    return softmax(data, axis=axis)


@function(public="npx")
def softmin(
    data: Any,
    axis: int = -1,
    length: Any = None,
    temperature: float | None = None,
    use_length: bool = False,
    dtype: Any = None,
) -> Array:
    """`softmax` of -data."""
    return softmax.face(negative(data), axis, length, temperature, use_length, dtype)


def within_length(name: str, x: Any, length: Any, axis: int) -> Any:
    """Whether each element of x lies before the length of its row along an axis."""
    place = normalize_axis(name, axis, len(x.shape))
    rows = (*x.shape[:place], *x.shape[place + 1 :])
    length = None if length is None else operand(length)
    if length is None or not same_shape(tuple(length.shape), rows):
        given = None if length is None else list(length.shape)
        raise ShapeError(f"{name}: length {given} must be {list(rows)}: one for each row of x")
    lanes = iota(shape=(x.shape[place], *[1] * (len(x.shape) - place - 1)), axis=0, dtype="int64")
    return lanes < expand_dims(length, place)


def cooled(data: Any, temperature: float | None) -> Any:
    """data / temperature."""
    data = operand(data)
    return data if temperature in (None, 1.0) else divide(data, temperature)


@softmax.gradient
def _(g: Any, y: Any, x: Any, *, axis: int) -> Any:
    return (of_softmax(g, y, axis),)


def of_softmax(g: Any, y: Any, axis: int) -> Any:
    """The gradient of what softmax took, from that of its result y."""
    wide = widened(y)
    weighted = multiply(widened(g), wide)
    found = subtract(weighted, multiply(wide, sum(weighted, axis=axis, keepdims=True)))
    return in_dtype(found, y.dtype)


@composite(public="npx", onnx="LogSoftmax", mxnet="_npx_log_softmax")
def log_softmax(x: Any, *, axis: int = -1) -> Any:
    """The logarithm of softmax, accurate where softmax is nearly 0 or 1."""
    x = cast(x, dtype=same(x.spec).dtype)
    if type(x.shape[axis]) is int and x.shape[axis] == 0:
        return x  # rows of nothing
    shifted = subtract(x, max(x, axis=axis, keepdims=True))
    return subtract(shifted, log(sum(exp(shifted), axis=axis, keepdims=True)))


@log_softmax.facade
def _(
    data: Any,
    axis: int = -1,
    length: Any = None,
    temperature: float | None = None,
    use_length: bool = False,
    dtype: Any = None,
) -> Array:
    """The logarithm of `softmax`, accurate where softmax is nearly 0 or 1; -inf behind a length."""
    data = cooled(in_dtype(data, dtype), temperature)
    if use_length:
        mask = within_length("log_softmax", data, length, axis)
        return called("masked_log_softmax", data, mask, axis=axis)
    return log_softmax(data, axis=axis)


@log_softmax.gradient
def _(g: Any, y: Any, x: Any, *, axis: int) -> Any:
    return (of_log_softmax(g, y, axis),)


def of_log_softmax(g: Any, y: Any, axis: int) -> Any:
    """The gradient of what log_softmax took, from that of its result y."""
    wide = widened(g)
    found = subtract(wide, multiply(exp(widened(y)), sum(wide, axis=axis, keepdims=True)))
    return in_dtype(found, y.dtype)


@softmax.spec
@log_softmax.spec
def _(x: Spec, *, axis: int) -> Spec:
    normalize_axis("softmax", axis, x.ndim)
    return same(x)


@composite(outputs=2, random=True, public="npx", mxnet="_npx_dropout")
def dropout(x: Any, *, p: float, axes: Any = (), call: Any = None) -> Any:
    """Set elements to 0 with probability p and scale the others by 1 / (1 - p); returns also the
    mask.

    Srivastava et al., 2014. Along `axes` one draw serves all elements.
    """
    shared = {normalize_axis("dropout", axis, x.ndim) for axis in axes}
    shape = tuple(1 if axis in shared else n for axis, n in enumerate(x.shape))
    kept = uniform(0.0, 1.0, shape=shape, dtype="float32", call=call) >= p
    return where(kept, multiply(x, 1.0 / (1.0 - p)), 0), kept


@dropout.facade
def _(
    data: Any, p: float = 0.5, mode: str = "training", axes: Any = (), cudnn_off: bool = False
) -> Array:
    """While training, elements set to 0 with probability p and the others scaled by 1 / (1 - p).

    `mode` "always" drops outside training too; `cudnn_off` changes nothing. Along `axes` one draw
    serves all elements. Raises `ValueError` unless 0 <= p < 1.
    """
    if not 0 <= p < 1:
        raise ArgumentError(f"dropout: p must be at least 0 and below 1, not {p!r}")
    if mode not in ("training", "always"):
        raise unknown_name("mode of dropout", mode, ("training", "always"))
    if p == 0 or not (mode == "always" or _core.training()):
        return materialized(operand(data))
    return dropout(data, p=number("dropout", "p", p), axes=tuple(axes))[0]


@dropout.spec
def _(x: Spec, *, p: float, axes: Any = (), call: Any = None) -> tuple[Spec, Spec]:
    shared = {normalize_axis("dropout", axis, x.ndim) for axis in axes}
    shape = tuple(1 if axis in shared else n for axis, n in enumerate(x.shape))
    return same(x), Spec(shape, "bool")


@dropout.gradient
def _(g: Any, y: Any, x: Any, *, p: float, **_: Any) -> Any:
    return (where(y[1], multiply(g[0], 1.0 / (1.0 - p)), 0),)


@function(public="npx")
@spelled(data="x")
def fully_connected(
    x: Any,
    weight: Any,
    bias: Any = None,
    num_hidden: int | None = None,
    no_bias: bool = False,
    flatten: bool = True,
) -> Array:
    """x @ weight.T + bias, weight (units, inputs); `flatten` joins all axes of x but the first.

    float16 and bfloat16 are multiplied and added in float32, and rounded once.
    """
    x, weight = operand(x), operand(weight)
    if flatten and len(x.shape) > 2:
        x = reshape(x, shape=(x.shape[0], product(x.shape[1:])))
    if bias is None or no_bias:
        return matmul(x, transpose(weight))
    return with_bias(x, transpose(weight), operand(bias))


def channel_shape(x: Any, axis: int) -> tuple[int, ...]:
    """The shape that aligns a vector of channels with an axis of x."""
    place = normalize_axis("batch_norm", axis, len(x.shape))
    return tuple(x.shape[place] if i == place else 1 for i in range(len(x.shape)))


def other_axes(x: Any, axis: int) -> tuple[int, ...]:
    """All axes but one."""
    place = normalize_axis("batch_norm", axis, len(x.shape))
    return tuple(i for i in range(len(x.shape)) if i != place)


@composite(
    outputs=5,
    ruled=3,
    updates={3: 3, 4: 4},
    public="npx",
    onnx="BatchNormalization",
    mxnet="_npx_batch_norm",
)
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
    """Normalize x over all axes but one, then scale by gamma and shift by beta.

    Ioffe and Szegedy, 2015. Results: y, the batch's mean and 1 / sqrt(variance + eps); the running
    statistics become momentum * old + (1 - momentum) * batch's, but stay where the batch is empty.
    float16 is computed in float32, in which its mean and inverse stay.
    """
    dtype, axes, lined = x.dtype, other_axes(x, axis), channel_shape(x, axis)
    count = 1
    for place in axes:
        count = count * x.shape[place]
    middle, squares = about_mean(x, axes)
    x = widened(x)
    centred = subtract(x, middle)
    mean, total = (reshape(found, shape=gamma.shape) for found in (middle, squares))
    variance = divide(total, count)
    inverse = 1.0 / (variance + eps).sqrt()
    scale = reshape(multiply(inverse, gamma), shape=lined)
    y = multiply(centred, scale) + reshape(beta, shape=lined)
    if type(count) is int and count == 0:  # an empty batch has no statistics
        return cast(y, dtype=dtype), mean, inverse, running_mean, running_var
    new_mean = running_mean * momentum + mean * (1.0 - momentum)
    new_var = running_var * momentum + variance * (1.0 - momentum)
    new_mean = cast(new_mean, dtype=running_mean.dtype)
    new_var = cast(new_var, dtype=running_var.dtype)
    return cast(y, dtype=dtype), mean, inverse, new_mean, new_var


@batch_norm.facade
@spelled(data="x", moving_mean="running_mean", moving_var="running_var")
def _(
    x: Any,
    gamma: Any,
    beta: Any,
    running_mean: Any,
    running_var: Any,
    eps: float = 1e-3,
    momentum: float = 0.9,
    fix_gamma: bool = True,
    use_global_stats: bool = False,
    output_mean_var: bool = False,
    axis: int = 1,
    cudnn_off: bool = False,
) -> Array | tuple[Any, ...]:
    """x normalized over all axes but one, times gamma plus beta (Ioffe and Szegedy 2015).

    While training (and not `use_global_stats`) the batch's own mean and variance are used, and the
    running ones are overwritten in place: momentum * old + (1 - momentum) * batch's; an empty batch
    leaves them as they are. With `fix_gamma`, as by default, gamma counts as 1. With
    `output_mean_var` the result is a tuple: also the mean and 1 / sqrt(variance + eps). `cudnn_off`
    changes nothing here.

    >>> ones, zeros = np.ones((2,)), np.zeros((2,))
    >>> npx.batch_norm(np.array([[1.0, 2.0], [3.0, 4.0]]), ones, zeros, zeros, ones)
    """
    name = "batch_norm"
    x, gamma, beta, running_mean, running_var = operands(
        (x, gamma, beta, running_mean, running_var)
    )
    if fix_gamma:
        gamma = gamma * 0 + 1
    if _core.training() and not use_global_stats:
        statistics = running_mean, running_var
        settings = {
            "eps": number(name, "eps", eps),
            "momentum": number(name, "momentum", momentum),
            "axis": axis,
        }
        found = batch_norm(x, gamma, beta, *statistics, **settings)
        return found[:3] if output_mean_var else found[0]
    lined = channel_shape(x, axis)
    inverse = divide(1.0, (widened(running_var) + eps).sqrt())
    scale = gamma * inverse
    shift = beta - running_mean * scale
    y = widened(x) * reshape(scale, shape=lined) + reshape(shift, shape=lined)
    y = cast(y, dtype=x.dtype)
    return (y, running_mean, inverse) if output_mean_var else y


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
    x, average, inverse = widened(x), *(reshape(each, shape=lined) for each in y[1:3])
    count = 1
    for place in axes:
        count = count * x.shape[place]
    normal = multiply(subtract(x, average), inverse)
    parts, d_gamma, d_beta = [], None, None
    if g[0] is not None:
        g0 = widened(g[0])
        d_beta = sum(g0, axis=axes)
        d_gamma = sum(multiply(g0, normal), axis=axes)
        mean_g = reshape(divide(d_beta, count), shape=lined)
        mean_gx = reshape(divide(d_gamma, count), shape=lined)
        scale = multiply(reshape(gamma, shape=lined), inverse)
        parts.append(multiply(scale, subtract(subtract(g0, mean_g), multiply(normal, mean_gx))))
    # The part above reads the mean and the inverse, so gradients of gradients arrive at these.
    if g[1] is not None:
        each = reshape(divide(g[1], count), shape=lined)
        parts.append(broadcast_to(each, shape=x.shape))
    if g[2] is not None:
        each = reshape(divide(g[2], count), shape=lined)
        parts.append(multiply(normal, multiply(negative(square(inverse)), each)))
    return reduce(add, parts), d_gamma, d_beta, None, None

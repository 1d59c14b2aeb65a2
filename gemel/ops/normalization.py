"""Normalization: mean 0 and variance 1 over some axes, then scaled and shifted."""

from __future__ import annotations

from typing import Any

from gemel.errors import DTypeError, ShapeError, unknown_name
from gemel.ir.declare import composite
from gemel.ir.keywords import number
from gemel.ir.public import Array, function
from gemel.ops.elementwise import cast, divide, multiply, sqrt, square, subtract
from gemel.ops.norms import vector_norm
from gemel.ops.reduction import in_dtype, mean, sum, widened
from gemel.ops.shape import operand, operands, reshape
from gemel.ops.variance import var
from gemel.spec import Spec, normalize_axis, same_shape


@composite(outputs=3, ruled=1)
def standardized(x: Any, *, axes: Any, eps: float) -> Any:
    """(x - mean) / sqrt(variance + eps), for the elements along these axes.

    Also the mean and 1 / sqrt(variance + eps), which are all that the gradient needs besides x.
    """
    wide = widened(x)
    average = mean(wide, axis=axes, keepdims=True)
    centred = subtract(wide, average)
    variance = mean(square(centred), axis=axes, keepdims=True)
    inverse = divide(1, sqrt(variance + eps))
    return cast(multiply(centred, inverse), dtype=x.dtype), average, inverse


@standardized.spec
def _(x: Spec, *, axes: Any, eps: float) -> tuple[Spec, Spec, Spec]:
    if not x.dtype.is_floating:
        raise DTypeError(f"standardized: {x} must be floating; use astype('float32')")
    each = Spec([1 if i in axes else n for i, n in enumerate(x.shape)], x.dtype.accumulate)
    return x, each, each


@standardized.gradient
def _(g: Any, y: Any, x: Any, *, axes: Any, eps: float) -> Any:
    g0, average, inverse = widened(g[0]), y[1], y[2]
    normal = multiply(subtract(widened(x), average), inverse)
    along = multiply(normal, mean(multiply(g0, normal), axis=axes, keepdims=True))
    level = mean(g0, axis=axes, keepdims=True)
    return (multiply(inverse, subtract(subtract(g0, level), along)),)


def scaled(x: Any, gamma: Any, beta: Any, lined: tuple[int, ...]) -> Any:
    """x * gamma + beta, in the dtype of x."""
    found = multiply(widened(x), reshape(gamma, shape=lined)) + reshape(beta, shape=lined)
    return cast(found, dtype=x.dtype)


def check_vectors(name: str, x: Spec, count: int, **vectors: Spec) -> None:
    """Raises unless x is floating and each vector has `count` elements."""
    if not x.dtype.is_floating:
        raise DTypeError(f"{name}: {x} must be floating; use astype('float32')")
    for what, vector in vectors.items():
        if not same_shape(vector.shape, (count,)):
            raise ShapeError(f"{name}: {what} {vector} must have {count} elements, for x {x}")


@composite(public="npx", onnx="LayerNormalization", mxnet="_npx_layer_norm")
def layer_norm(x: Any, gamma: Any, beta: Any, *, axis: int = -1, eps: float = 1e-5) -> Any:
    """Normalize x along one axis, then multiply by gamma and add beta.

    Ba et al., Layer normalization, 2016.

    >>> npx.layer_norm(np.array([[1.0, 2.0], [3.0, 7.0]]), np.ones(2), np.zeros(2))
    """
    place = normalize_axis("layer_norm", axis, x.ndim)
    lined = tuple(n if i == place else 1 for i, n in enumerate(x.shape))
    return scaled(standardized(x, axes=(place,), eps=eps)[0], gamma, beta, lined)


@layer_norm.spec
def _(x: Spec, gamma: Spec, beta: Spec, *, axis: int, eps: float) -> Spec:
    count = x.shape[normalize_axis("layer_norm", axis, x.ndim)]
    check_vectors("layer_norm", x, count, gamma=gamma, beta=beta)
    return x


@layer_norm.facade
def _(
    data: Any,
    gamma: Any,
    beta: Any,
    axis: int = -1,
    eps: float = 1e-5,
    output_mean_var: bool = False,
) -> Array | tuple[Any, ...]:
    eps = number("layer_norm", "eps", eps)
    data, gamma, beta = operands((data, gamma, beta))
    found = layer_norm(data, gamma, beta, axis=axis, eps=eps)
    if not output_mean_var:
        return found
    average = mean(data, axis=axis, keepdims=True)
    return found, average, sqrt(var(data, axis=axis, keepdims=True) + eps)


@composite(public="npx", mxnet="_npx_group_norm")
def group_norm(x: Any, gamma: Any, beta: Any, *, num_groups: int = 1, eps: float = 1e-3) -> Any:
    """x (N, C, ...) normalized over groups of its channels, times gamma plus beta, which have one
    element for each channel, or for each group.

    Wu and He, Group normalization, ECCV 2018.

    >>> npx.group_norm(np.arange(8.0).reshape(1, 4, 2), np.ones(4), np.zeros(4), num_groups=2)
    """
    channels = x.shape[1]
    groups = (x.shape[0], num_groups, channels // num_groups, *x.shape[2:])
    found = standardized(reshape(x, shape=groups), axes=tuple(range(2, x.ndim + 1)), eps=eps)[0]
    each = (num_groups, gamma.shape[0] // num_groups, *[1] * (x.ndim - 2))
    return reshape(scaled(found, gamma, beta, each), shape=x.shape)


@group_norm.spec
def _(x: Spec, gamma: Spec, beta: Spec, *, num_groups: int, eps: float) -> Spec:
    if x.ndim < 2 or num_groups < 1 or not x.shape[1] % num_groups == 0:
        raise ShapeError(
            f"group_norm: {x}: axis 1, the channels, must divide into {num_groups} groups"
        )
    each = num_groups if gamma.shape == (num_groups,) else x.shape[1]
    check_vectors("group_norm", x, each, gamma=gamma, beta=beta)
    return x


@group_norm.facade
def _(
    data: Any,
    gamma: Any,
    beta: Any,
    num_groups: int = 1,
    eps: float = 1e-3,
    output_mean_var: bool = False,
) -> Array | tuple[Any, ...]:
    eps = number("group_norm", "eps", eps)
    data, gamma, beta = operands((data, gamma, beta))
    found = group_norm(data, gamma, beta, num_groups=num_groups, eps=eps)
    if not output_mean_var:
        return found
    parts = reshape(data, shape=(data.shape[0], num_groups, -1))
    return found, mean(parts, axis=-1), sqrt(var(parts, axis=-1) + eps)


@composite(public="npx", onnx="InstanceNormalization", mxnet="_npx_instance_norm")
def instance_norm(x: Any, gamma: Any, beta: Any, *, eps: float = 1e-3) -> Any:
    """Each channel of each example of x (N, C, ...) normalized, times gamma plus beta.

    Ulyanov et al., Instance normalization: the missing ingredient for fast stylization, 2016.

    >>> npx.instance_norm(np.arange(8.0).reshape(1, 2, 4), np.ones(2), np.zeros(2))
    """
    found = standardized(x, axes=tuple(range(2, x.ndim)), eps=eps)[0]
    return scaled(found, gamma, beta, (x.shape[1], *[1] * (x.ndim - 2)))


@instance_norm.spec
def _(x: Spec, gamma: Spec, beta: Spec, *, eps: float) -> Spec:
    if x.ndim < 3:
        raise ShapeError(
            f"instance_norm: {x} must have at least 3 axes: N, C, and the spatial axes"
        )
    check_vectors("instance_norm", x, x.shape[1], gamma=gamma, beta=beta)
    return x


@function(public="npx")
def l2_normalization(data: Any, eps: float = 1e-10, mode: str = "instance") -> Array:
    """data / sqrt(sum(data ** 2) + eps): the sum is over an example ("instance"), its channels
    ("channel", axis 1), or each channel's space ("spatial").
    """
    data = operand(data)
    known = {"instance": range(1, data.ndim), "channel": (1,), "spatial": range(2, data.ndim)}
    if mode not in known:
        raise unknown_name("mode of l2_normalization", mode, known)
    axes = tuple(known[mode])
    # eps, and the squares of two bytes, may be outside of what two bytes hold.
    dtype = data.dtype.floating
    wide = cast(data, dtype=dtype.accumulate)
    found = divide(wide, sqrt(sum(square(wide), axis=axes, keepdims=True) + eps))
    return cast(found, dtype=dtype)


@function(public="npx")
def norm(
    data: Any, ord: int = 2, axis: Any = None, out_dtype: Any = None, keepdims: bool = False
) -> Array:
    """The sum of absolute values (`ord` 1), or the square root of that of squares (2), along axes.

    Without axes it is that of all elements, whatever the shape; computed in `out_dtype`.

    >>> npx.norm(np.array([[3.0, 4.0], [0.0, 5.0]]), axis=1)
    """
    if ord not in (1, 2):
        raise unknown_name("ord of norm", str(ord), ("1", "2"))
    return vector_norm(in_dtype(operand(data), out_dtype), axis=axis, keepdims=keepdims, ord=ord)

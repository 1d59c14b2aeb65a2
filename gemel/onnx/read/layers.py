"""Operators with parameters: normalization, and parts of attention."""

from __future__ import annotations

from typing import Any

from gemel import np, npx
from gemel.onnx.read.table import imports
from gemel.onnx.types import dtype_of
from gemel.spec import product


def _lined(x: Any, channels: Any, axis: int = 1) -> Any:
    """Reshape one number per channel so that it broadcasts along an axis of x."""
    return np.reshape(channels, tuple(-1 if i == axis else 1 for i in range(x.ndim)))


@imports("BatchNormalization", fixed=(3, 4))
def _(node: Any, x: Any, scale: Any, bias: Any, mean: Any, variance: Any) -> Any:
    epsilon, momentum = node.get("epsilon", 1e-5), node.get("momentum", 0.9)
    if not node.get("training_mode", 0):
        return npx.batch_norm(
            x, scale, bias, mean, variance, eps=epsilon, momentum=momentum, fix_gamma=False
        )
    axes = tuple(i for i in range(x.ndim) if i != 1)
    own, spread = x.mean(axis=axes), x.var(axis=axes)
    found = (x - _lined(x, own)) / np.sqrt(_lined(x, spread) + epsilon)
    found = found * _lined(x, scale) + _lined(x, bias)
    running = [a * momentum + b * (1 - momentum) for a, b in ((mean, own), (variance, spread))]
    return found, *running


@imports("InstanceNormalization")
def _(node: Any, x: Any, scale: Any, bias: Any) -> Any:
    return npx.instance_norm(x, scale, bias, eps=node.get("epsilon", 1e-5))


@imports("LayerNormalization")
def _(node: Any, x: Any, scale: Any, bias: Any = None) -> Any:
    axis, epsilon = node.get("axis", -1) % x.ndim, node.get("epsilon", 1e-5)
    axes = tuple(range(axis, x.ndim))
    if len(axes) == 1 and not node.has(1) and bias is not None and scale.ndim == bias.ndim == 1:
        return npx.layer_norm(x, scale, bias, axis=-1, eps=epsilon)
    kind = dtype_of(node.get("stash_type", 1), node.where)
    wide = x.astype(np.result_type(x.dtype, kind))
    mean = wide.mean(axis=axes, keepdims=True)
    centred = wide - mean
    inverse = 1.0 / np.sqrt(np.square(centred).mean(axis=axes, keepdims=True) + epsilon)
    found = (centred * inverse).astype(x.dtype) * scale
    found = found if bias is None else found + bias
    return found, mean.astype(kind), inverse.astype(kind)


@imports("RMSNormalization", "SimplifiedLayerNormalization")
def _(node: Any, x: Any, scale: Any) -> Any:
    """Zhang and Sennrich, Root mean square layer normalization, NeurIPS 2019."""
    axes = tuple(range(node.get("axis", -1) % x.ndim, x.ndim))
    size = np.sqrt(np.square(x).mean(axis=axes, keepdims=True) + node.get("epsilon", 1e-5))
    return x / size * scale


@imports("GroupNormalization")
def _(node: Any, x: Any, scale: Any, bias: Any) -> Any:
    groups, epsilon = node.get("num_groups"), node.get("epsilon", 1e-5)
    n, channels, *space = x.shape
    each = channels // groups
    rows = np.reshape(x, (n, groups, each * product(space)))
    centred = rows - rows.mean(axis=2, keepdims=True)
    spread = np.square(centred).mean(axis=2, keepdims=True)
    found = np.reshape(centred / np.sqrt(spread + epsilon), x.shape)
    if node.opset < 21:  # one number per group
        scale, bias = np.repeat(scale, each), np.repeat(bias, each)
    return found * _lined(x, scale) + _lined(x, bias)


@imports("MeanVarianceNormalization")
def _(node: Any, x: Any) -> Any:
    axes = tuple(node.get("axes", [0, 2, 3]))
    centred = x - x.mean(axis=axes, keepdims=True)
    spread = np.sqrt(np.square(centred).mean(axis=axes, keepdims=True))
    return centred / (spread + 1e-9)

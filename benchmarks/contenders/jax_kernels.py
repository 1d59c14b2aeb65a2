"""JAX: compiled functions that take all arrays as arguments."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy
from jax import lax

from benchmarks.cases import Single
from benchmarks.shapes import Shape

matmul = jnp.matmul
square = jnp.square
copy = jnp.copy
softmax = jax.nn.softmax


def conv(x: Any, w: Any, *, stride: int, pad: int, groups: int) -> Any:
    count = x.ndim - 2
    strides, pads = (stride,) * count, ((pad, pad),) * count
    return lax.conv_general_dilated(x, w, strides, pads, feature_group_count=groups)


def attention(q: Any, k: Any, v: Any) -> Any:
    weights = jax.nn.softmax(q @ jnp.swapaxes(k, -1, -2) * q.shape[-1] ** -0.5)
    return weights @ v


def normalized(x: Any, gamma: Any, beta: Any) -> Any:
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(variance + 1e-5) * gamma + beta


def encoder(x: Any, *weights: Any, heads: int) -> Any:
    """What torch's TransformerEncoderLayer computes, with the weights in torch's order."""
    whole, whole_bias, out, out_bias, wide, wide_bias, narrow, narrow_bias, *norms = weights
    batch, time, width = x.shape
    parts = (x @ whole.T + whole_bias).reshape(batch, time, 3, heads, width // heads)
    seen = attention(*(parts[:, :, n].swapaxes(1, 2) for n in range(3)))
    joined = seen.swapaxes(1, 2).reshape(batch, time, width)
    x = normalized(x + joined @ out.T + out_bias, *norms[:2])
    hidden = jax.nn.gelu(x @ wide.T + wide_bias, approximate=False)
    return normalized(x + hidden @ narrow.T + narrow_bias, *norms[2:])


def pool(x: Any) -> Any:
    window = (1, 1, 2, 2)
    return lax.reduce_window(x, -jnp.inf, lax.max, window, window, "VALID")


def transpose(x: Any, *, axes: list[int]) -> Any:
    return x.transpose(axes)


def take(table: Any, rows: Any) -> Any:
    return jnp.take(table, rows, axis=0, mode="clip")


def reduce(x: Any, *, how: str, axis: int) -> Any:
    return getattr(jnp, how)(x, axis)


def case(shape: Shape, threads: int) -> Single | None:
    """The compiled function of a kind, or of its gradients.

    XLA leaves out whatever the gradients do not need of the forward pass.
    """
    if shape.kind not in globals():
        return None
    data, weights = shape.operands()
    arrays = [jnp.array(each) for each in (*data, *weights)]
    function = partial(globals()[shape.kind], **shape.settings)
    if shape.gradients:
        head = jnp.array(shape.head())
        call = jax.jit(lambda arrays: jax.vjp(function, *arrays)[1](head))
    else:
        call = jax.jit(lambda arrays: (function(*arrays),))
    return Single(
        lambda _: jax.block_until_ready(call(arrays)),
        lambda found: [numpy.asarray(each) for each in found],
    )

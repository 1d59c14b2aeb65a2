"""gemel: compiled functions and blocks, and their gradients by autograd."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import gemel
from benchmarks.cases import Single
from benchmarks.shapes import KINDS, Shape
from gemel import autograd, gluon, np, npx


def conv(x: Any, w: Any, *, stride: int, pad: int, groups: int) -> Any:
    count = len(w.shape) - 2
    moves = {"kernel": w.shape[2:], "stride": (stride,) * count, "pad": (pad,) * count}
    filters = w.shape[0]
    return npx.convolution(x, w, no_bias=True, num_filter=filters, num_group=groups, **moves)


def matmul(a: Any, b: Any) -> Any:
    return np.matmul(a, b)


conv_bfloat16, matmul_bfloat16 = conv, matmul


def attention(q: Any, k: Any, v: Any) -> Any:
    return npx.attention(q, k, v)


def encoder(x: Any, *weights: Any, heads: int) -> Any:
    """What torch's TransformerEncoderLayer computes, with the weights in torch's order."""
    whole, whole_bias, out, out_bias, wide, wide_bias, narrow, narrow_bias, *norms = weights
    batch, time, width = x.shape

    def dense(x: Any, weight: Any, bias: Any) -> Any:
        return npx.fully_connected(
            x, weight, bias, num_hidden=weight.shape[0], no_bias=False, flatten=False
        )

    parts = dense(x, whole, whole_bias).reshape(batch, time, 3, heads, width // heads)
    seen = npx.attention(*(parts[:, :, n].swapaxes(1, 2) for n in range(3)))
    joined = seen.swapaxes(1, 2).reshape(batch, time, width)
    x = npx.layer_norm(x + dense(joined, out, out_bias), *norms[:2], axis=-1, eps=1e-5)
    hidden = npx.gelu(dense(x, wide, wide_bias))
    return npx.layer_norm(x + dense(hidden, narrow, narrow_bias), *norms[2:], axis=-1, eps=1e-5)


def pool(x: Any) -> Any:
    return npx.pooling(x, kernel=(2, 2), stride=(2, 2), pool_type="max")


def copy(x: Any) -> Any:
    return np.copy(x)


def square(x: Any) -> Any:
    return x**2


def softmax(x: Any) -> Any:
    return npx.softmax(x)


def transpose(x: Any, *, axes: list[int]) -> Any:
    return np.ascontiguousarray(x.transpose(axes))


def take(table: Any, rows: Any) -> Any:
    return np.take(table, rows, axis=0)


def reduce(x: Any, *, how: str, axis: int) -> Any:
    return getattr(np, how)(x, axis=axis)


class Layer(gluon.HybridBlock):
    """A block that calls a function with its inputs and its parameters."""

    def __init__(self, function: Callable[..., Any], weights: list[Any], dtype: str) -> None:
        super().__init__()
        self.function = function
        for index, weight in enumerate(weights):
            parameter = gluon.Parameter(f"weight{index}", shape=weight.shape)
            setattr(self, f"weight{index}", parameter)
            parameter.initialize()
            parameter.set_data(np.array(weight))
            parameter.cast(dtype)

    def forward(self, *data: Any) -> Any:
        return self.function(*data, *(p.data() for p in self.collect_params().values()))


def case(shape: Shape, threads: int) -> Single | None:
    """The compiled function of a kind, in a hybridized block if it has parameters.

    Gradients are a compiled function of all arrays and of the gradient with respect to the result,
    as in JAX.
    """
    given, weights = shape.operands()
    function = partial(globals()[shape.kind], **shape.settings)
    if shape.gradients:
        arrays = [np.array(each).astype(shape.dtype) for each in (*given, *weights, shape.head())]
        return Single(gradients_of(function, arrays), values)
    positions = KINDS[shape.kind].positions
    data = [np.array(each) if positions else np.array(each).astype(shape.dtype) for each in given]
    if weights:
        call: Any = Layer(function, weights, shape.dtype)
        call.hybridize()
    else:
        call = gemel.compile(function)

    def forward(_: Any) -> list[Any]:
        result = call(*data)
        result.wait_to_read()
        return [result]

    return Single(forward, values)


def gradients_of(function: Callable[..., Any], arrays: list[Any]) -> Callable[..., Any]:
    """A call that computes the gradients of a function and waits for them.

    The last of the arrays is the gradient with respect to the function's result.
    """

    @gemel.compile
    def gradients(*arrays: Any) -> Any:
        *variables, head = arrays
        with autograd.record():
            result = function(*variables)
        return autograd.grad(result, variables, head)

    def call(_: Any) -> Any:
        found = gradients(*arrays)
        for each in found:
            each.wait_to_read()
        return found

    return call


def values(found: list[Any]) -> list[Any]:
    return [each.astype("float32").asnumpy() for each in found]

"""Layers against references: results and gradients.

The ten most used layers equal references in NumPy, in float64. The references are the definitions
written as loops, and their gradients are central differences. All layers that MXNet 1.9.1 has
equal MXNet's, in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy
import pytest
from references.layers_mxnet import LAYERS as LIKE_MXNET
from references.layers_mxnet import drawn

from gemel import autograd, np
from gemel.gluon import nn

Reference = Callable[..., Any]


def dense(x: Any, weight: Any, bias: Any) -> Any:
    rows = x.reshape(len(x), -1)
    return numpy.array(
        [[sum(row * w) + b for w, b in zip(weight, bias, strict=True)] for row in rows]
    )


def padded(x: Any, pad: int, value: float = 0.0) -> Any:
    return numpy.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)), constant_values=value)


def windows(x: Any, kernel: int, stride: int) -> Any:
    """The position and the contents (N, C, kernel, kernel) of each window."""
    for i, j in product(*(range((n - kernel) // stride + 1) for n in x.shape[2:])):
        rows, columns = (
            slice(i * stride, i * stride + kernel),
            slice(j * stride, j * stride + kernel),
        )
        yield (i, j), x[:, :, rows, columns]


def conv2d(x: Any, weight: Any, bias: Any) -> Any:
    """Convolution: 3 x 3, stride 2, padding 1."""
    seen = list(windows(padded(x, 1), 3, 2))
    found = numpy.zeros((len(x), len(weight), *numpy.add(seen[-1][0], 1)))
    for (i, j), part in seen:
        for channel, kernel in enumerate(weight):
            found[:, channel, i, j] = (part * kernel).sum((1, 2, 3)) + bias[channel]
    return found


def conv2d_transpose(x: Any, weight: Any, bias: Any) -> Any:
    """Transposed convolution: 4 x 4, stride 2, padding 1."""
    found = numpy.zeros((len(x), weight.shape[1], *(2 * n + 2 for n in x.shape[2:])))
    for i, j in product(*map(range, x.shape[2:])):
        spread = numpy.einsum("nc,cokl->nokl", x[:, :, i, j], weight)
        found[:, :, 2 * i : 2 * i + 4, 2 * j : 2 * j + 4] += spread
    return found[:, :, 1:-1, 1:-1] + bias.reshape(-1, 1, 1)


def max_pool(x: Any) -> Any:
    """Windows of 3 x 3, stride 2, padding 1."""
    return pooled(padded(x, 1, -numpy.inf), 3, 2, lambda part: part.max((2, 3)))


def avg_pool(x: Any) -> Any:
    """Windows of 2 x 2."""
    return pooled(x, 2, 2, lambda part: part.mean((2, 3)))


def pooled(x: Any, kernel: int, stride: int, function: Any) -> Any:
    seen = list(windows(x, kernel, stride))
    found = numpy.zeros((*x.shape[:2], *numpy.add(seen[-1][0], 1)))
    for (i, j), part in seen:
        found[:, :, i, j] = function(part)
    return found


def batch_norm(x: Any, gamma: Any, beta: Any, mean: Any, var: Any) -> Any:
    """In training, with the statistics of the batch."""
    centred = x - x.mean((0, 2, 3), keepdims=True)
    normed = centred / numpy.sqrt(x.var((0, 2, 3), keepdims=True) + 1e-5)
    return normed * gamma.reshape(-1, 1, 1) + beta.reshape(-1, 1, 1)


def layer_norm(x: Any, gamma: Any, beta: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred / numpy.sqrt(x.var(-1, keepdims=True) + 1e-5) * gamma + beta


def embedding(x: Any, weight: Any) -> Any:
    return numpy.array([[weight[int(i)] for i in row] for row in x])


def selu(x: Any) -> Any:
    return 1.0507009873554805 * numpy.where(x > 0, x, 1.6732632423543772 * numpy.expm1(x))


#: Layer, shape of its input, and a reference, which takes the input and the parameters.
LAYERS: list[tuple[Any, tuple[int, ...], Reference]] = [
    (lambda: nn.Dense(3), (2, 2, 2), dense),
    (lambda: nn.Conv2D(3, 3, 2, 1), (2, 2, 5, 4), conv2d),
    (lambda: nn.Conv2DTranspose(3, 4, 2, 1), (2, 2, 2, 3), conv2d_transpose),
    (lambda: nn.MaxPool2D(3, 2, 1), (2, 2, 5, 4), max_pool),
    (lambda: nn.AvgPool2D(), (2, 2, 4, 5), avg_pool),
    (lambda: nn.GlobalAvgPool2D(), (2, 3, 2, 2), lambda x: x.mean((2, 3), keepdims=True)),
    (lambda: nn.BatchNorm(), (3, 2, 2, 2), batch_norm),
    (lambda: nn.LayerNorm(), (2, 3, 4), layer_norm),
    (lambda: nn.Embedding(4, 3), (2, 3), embedding),
    (lambda: nn.Activation("relu"), (3, 4), lambda x: numpy.maximum(x, 0)),
    (lambda: nn.Activation("sigmoid"), (3, 4), lambda x: 1 / (1 + numpy.exp(-x))),
    (lambda: nn.Activation("tanh"), (3, 4), numpy.tanh),
    (lambda: nn.SELU(), (3, 4), selu),
]


def differences(function: Callable[[Any], float], at: Any) -> Any:
    """The gradient of a function by central differences."""
    found = numpy.zeros_like(at)
    for place in numpy.ndindex(*at.shape):
        before, step = at[place], 1e-5
        ends = []
        for moved in (before + step, before - step):
            at[place] = moved
            ends.append(function(at))
        at[place] = before
        found[place] = (ends[0] - ends[1]) / (2 * step)
    return found


@pytest.mark.parametrize("hybrid", [False, True], ids=["imperative", "hybridized"])
@pytest.mark.parametrize(("make", "shape", "reference"), LAYERS, ids=lambda v: "")
def test_reference(make: Any, shape: Any, reference: Reference, hybrid: bool) -> None:
    draw = numpy.random.default_rng(1)
    net = make()
    whole = isinstance(net, nn.Embedding)
    x = draw.integers(0, 4, shape) if whole else draw.standard_normal(shape)
    net.initialize()
    net(np.array(x, dtype="int64" if whole else "float32"))
    net.cast("float64")
    parameters = list(net.collect_params().values())
    values = [draw.standard_normal(p.shape) for p in parameters]
    for parameter, value in zip(parameters, values, strict=True):
        parameter.set_data(np.array(value, dtype="float64"))
    if hybrid:
        net.hybridize()
    given = np.array(x, dtype="int64" if whole else "float64")
    if not whole:
        given.attach_grad()
    head = draw.standard_normal(reference(x, *values).shape)
    with autograd.record():
        found = net(given)
    found.backward(np.array(head, dtype="float64"))
    numpy.testing.assert_allclose(found.asnumpy(), reference(x, *values), rtol=1e-9, atol=1e-12)

    for place, parameter in enumerate(parameters):
        if parameter.grad_req == "null":
            continue

        def by_parameter(value: Any, place: int = place) -> float:
            return float((reference(x, *values[:place], value, *values[place + 1 :]) * head).sum())

        expected = differences(by_parameter, values[place].copy())
        numpy.testing.assert_allclose(parameter.grad().asnumpy(), expected, rtol=1e-6, atol=1e-8)
    if not whole:
        expected = differences(lambda at: float((reference(at, *values) * head).sum()), x.copy())
        numpy.testing.assert_allclose(given.grad.asnumpy(), expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("hybrid", [False, True], ids=["imperative", "hybridized"])
def test_dropout(hybrid: bool) -> None:
    """Kept elements and their gradients are scaled up; how many are kept is random."""
    net = nn.Dropout(0.4)
    if hybrid:
        net.hybridize()
    x = np.array(numpy.random.default_rng(0).standard_normal((50, 80)), dtype="float64")
    x.attach_grad()
    with autograd.record():
        y = net(x)
    y.backward()
    kept = y.asnumpy() != 0
    expected = numpy.where(kept, x.asnumpy() / 0.6, 0)
    numpy.testing.assert_allclose(y.asnumpy(), expected, rtol=1e-12)
    numpy.testing.assert_allclose(x.grad.asnumpy(), kept / 0.6, rtol=1e-12)
    assert abs(kept.mean() - 0.6) < 4 * (0.4 * 0.6 / kept.size) ** 0.5
    assert (net(x).asnumpy() == x.asnumpy()).all()


# ---- as MXNet computes them

TABLE = numpy.load(Path(__file__).parent / "references" / "layers.npz")


@pytest.mark.parametrize("hybrid", [False, True], ids=["imperative", "hybridized"])
@pytest.mark.parametrize("text", LIKE_MXNET)
def test_like_mxnet(text: str, hybrid: bool) -> None:
    """Results, gradients and running statistics equal those of MXNet 1.9.1's layers."""
    net = eval(f"nn.{text}", {"nn": nn})
    expected = {name[len(text) + 1 :]: TABLE[name] for name in TABLE if name.startswith(f"{text} ")}
    parameters = net.collect_params()
    net.load_dict({name: np.array(expected[name]) for name in parameters})
    if hybrid:
        net.hybridize()
    x = np.array(drawn(f"{text} x", LIKE_MXNET[text]))
    x.attach_grad()
    near = {"rtol": 1e-4, "atol": 1e-5}
    numpy.testing.assert_allclose(net(x).asnumpy(), expected["predicted"], **near)
    with autograd.record():
        y = net(x)
    y.backward(np.array(drawn(f"{text} head", y.shape)))
    numpy.testing.assert_allclose(y.asnumpy(), expected["trained"], **near)
    # MXNet's gradient of SELU is not its derivative; `test_reference` has the right one.
    if "dx" in expected and text != "SELU()":
        numpy.testing.assert_allclose(x.grad.asnumpy(), expected["dx"], **near)
    for name, parameter in parameters.items():
        if parameter.grad_req != "null":
            numpy.testing.assert_allclose(parameter.grad().asnumpy(), expected[f"d{name}"], **near)
        elif f"new {name}" in expected:
            numpy.testing.assert_allclose(
                parameter.data().asnumpy(), expected[f"new {name}"], **near
            )

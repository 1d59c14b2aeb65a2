"""Whole trainings against plain NumPy in float64, with gradients derived by hand: the losses of
each step, of a convolutional and of a recurrent network.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy
import pytest

from gemel import autograd, gluon, init, np
from gemel.gluon import nn, rnn

Array = numpy.ndarray[Any, Any]
Weights = dict[str, Array]
STEPS = 8


def softmax_loss(scores: Array, labels: Array) -> tuple[float, Array]:
    """The mean of -log of the softmax at the labels, and its gradient."""
    shares = numpy.exp(scores - scores.max(axis=-1, keepdims=True))
    shares /= shares.sum(axis=-1, keepdims=True)
    flat, rows = shares.reshape(-1, shares.shape[-1]), numpy.arange(labels.size)
    loss = -numpy.log(flat[rows, labels.ravel()]).mean()
    flat[rows, labels.ravel()] -= 1
    return float(loss), shares / labels.size


# --- a LeNet in small -----------------------------------------------------------------------


def windows(x: Array, size: int) -> Array:
    """(batch, rows, columns, channels * size * size) of x (batch, channels, ...)."""
    view = numpy.lib.stride_tricks.sliding_window_view(x, (size, size), axis=(2, 3))
    return view.transpose(0, 2, 3, 1, 4, 5).reshape(len(x), *view.shape[2:4], -1)


def lenet_reference(w: Weights, x: Array, labels: Array) -> tuple[float, Weights]:
    """Convolution, ReLU, maximum of 2 x 2, dense, tanh, dense; the loss and all gradients."""
    kernels = w["0.weight"].reshape(len(w["0.weight"]), -1)
    seen = windows(x, 3)
    a = seen @ kernels.T + w["0.bias"]  # batch, rows, columns, channels
    b = numpy.maximum(a, 0)
    n, rows, columns, channels = b.shape
    blocks = b.reshape(n, rows // 2, 2, columns // 2, 2, channels)
    blocks = blocks.transpose(0, 5, 1, 3, 2, 4).reshape(n, channels, rows // 2, columns // 2, 4)
    pooled = blocks.max(axis=-1)
    flat = pooled.reshape(n, -1)
    h = numpy.tanh(flat @ w["3.weight"].T + w["3.bias"])
    loss, g = softmax_loss(h @ w["4.weight"].T + w["4.bias"], labels)
    gradients = {"4.weight": g.T @ h, "4.bias": g.sum(axis=0)}
    g = (g @ w["4.weight"]) * (1 - h * h)
    gradients.update({"3.weight": g.T @ flat, "3.bias": g.sum(axis=0)})
    g = (g @ w["3.weight"]).reshape(pooled.shape)
    first = blocks.argmax(axis=-1)[..., None] == numpy.arange(4)
    g = (first * g[..., None]).reshape(n, channels, rows // 2, columns // 2, 2, 2)
    g = g.transpose(0, 2, 4, 3, 5, 1).reshape(a.shape) * (a > 0)
    gradients["0.weight"] = numpy.einsum("nrci,nrck->ki", seen, g).reshape(w["0.weight"].shape)
    gradients["0.bias"] = g.sum(axis=(0, 1, 2))
    return loss, gradients


def lenet() -> nn.HybridSequential:
    net = nn.HybridSequential()
    net.add(nn.Conv2D(4, 3, activation="relu"), nn.MaxPool2D(2), nn.Flatten())
    net.add(nn.Dense(8, activation="tanh"), nn.Dense(3))
    return net


def images(generator: Any) -> tuple[Array, Array]:
    return generator.standard_normal((6, 2, 8, 8)), generator.integers(0, 3, 6)


# --- an LSTM --------------------------------------------------------------------------------


def sigmoid(x: Array) -> Array:
    return numpy.asarray(1 / (1 + numpy.exp(-x)))


def lstm_reference(w: Weights, x: Array, labels: Array) -> tuple[float, Weights]:
    """An embedding, an LSTM over (time, batch), a dense layer; the gradient through time."""
    table, inputs, states = w["0.weight"], w["1.l0_i2h_weight"], w["1.l0_h2h_weight"]
    bias = w["1.l0_i2h_bias"] + w["1.l0_h2h_bias"]
    size = states.shape[1]
    h = c = numpy.zeros((x.shape[1], size))
    kept, outputs = [], []
    for step in x:
        gates = table[step] @ inputs.T + h @ states.T + bias
        i, f, g, o = numpy.split(gates, 4, axis=1)
        i, f, g, o = sigmoid(i), sigmoid(f), numpy.tanh(g), sigmoid(o)
        kept.append((h, c, i, f, g, o))
        c = f * c + i * g
        h = o * numpy.tanh(c)
        outputs.append(h)
    y = numpy.stack(outputs)
    loss, out = softmax_loss(y @ w["2.weight"].T + w["2.bias"], labels)
    gradients = {name: numpy.zeros_like(value) for name, value in w.items()}
    gradients["2.weight"] = numpy.einsum("tbk,tbh->kh", out, y)
    gradients["2.bias"] = out.sum(axis=(0, 1))
    dh = dc = numpy.zeros((x.shape[1], size))
    for t in reversed(range(len(x))):
        before, was, i, f, g, o = kept[t]
        top = numpy.tanh(f * was + i * g)
        dh = dh + out[t] @ w["2.weight"]
        dc = dc + dh * o * (1 - top * top)
        parts = [dc * g * i * (1 - i), dc * was * f * (1 - f), dc * i * (1 - g * g),
                 dh * top * o * (1 - o)]  # fmt: skip
        gates = numpy.concatenate(parts, axis=1)
        gradients["1.l0_i2h_weight"] += gates.T @ table[x[t]]
        gradients["1.l0_h2h_weight"] += gates.T @ before
        gradients["1.l0_i2h_bias"] += gates.sum(axis=0)
        gradients["1.l0_h2h_bias"] += gates.sum(axis=0)
        numpy.add.at(gradients["0.weight"], x[t], gates @ inputs)
        dh, dc = gates @ states, dc * f
    return loss, gradients


def lstm() -> nn.HybridSequential:
    net = nn.HybridSequential()
    net.add(nn.Embedding(7, 5), rnn.LSTM(6), nn.Dense(7, flatten=False))
    return net


def sequences(generator: Any) -> tuple[Array, Array]:
    return generator.integers(0, 7, (5, 4)), generator.integers(0, 7, (5, 4))


# --- optimizers -----------------------------------------------------------------------------


def momentum(w: Array, g: Array, state: dict[str, Any], step: int) -> None:
    state["v"] = 0.9 * state.get("v", 0) - 0.3 * g
    w += state["v"]


def adam(w: Array, g: Array, state: dict[str, Any], step: int) -> None:
    state["m"] = 0.9 * state.get("m", 0) + 0.1 * g
    state["v"] = 0.999 * state.get("v", 0) + 0.001 * g * g
    rate = 0.02 * (1 - 0.999**step) ** 0.5 / (1 - 0.9**step)
    w -= rate * state["m"] / (numpy.sqrt(state["v"]) + 1e-8)


NETWORKS = {"lenet": (lenet, lenet_reference, images), "lstm": (lstm, lstm_reference, sequences)}
RULES = {
    "sgd": (momentum, {"learning_rate": 0.3, "momentum": 0.9}),
    "adam": (adam, {"learning_rate": 0.02}),
}


@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("kind", NETWORKS)
@pytest.mark.parametrize(("dtype", "near"), [("float32", 2e-4), ("float64", 1e-9)])
def test_losses_of_a_training(kind: str, rule: str, hybrid: bool, dtype: str, near: float) -> None:
    make, reference, draw = NETWORKS[kind]
    generator = numpy.random.default_rng(4)
    x, labels = draw(generator)
    batch = numpy.array(x, dtype=dtype if x.dtype.kind == "f" else "int32")
    np.random.seed(2)
    net = make()
    net.initialize(init.Normal(0.4))
    net.cast(dtype)
    if hybrid:
        net.hybridize()
    net(np.array(batch, dtype=batch.dtype))
    weights = {n: p.data().asnumpy().astype("float64") for n, p in net.collect_params().items()}
    states: dict[str, dict[str, Any]] = {name: {} for name in weights}
    update, settings = RULES[rule]
    trainer = gluon.Trainer(net.collect_params(), rule, settings)
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    first = last = 0.0
    for step in range(1, STEPS + 1):
        with autograd.record():
            value = loss(net(np.array(batch, dtype=batch.dtype)), np.array(labels)).mean()
        value.backward()
        trainer.step(1)
        last, gradients = reference(weights, x, labels)
        first = first or last
        assert float(value) == pytest.approx(last, rel=near)
        for name, gradient in gradients.items():
            update(weights[name], gradient, states[name], step)
    assert last < first
    for name, parameter in net.collect_params().items():
        # Adam takes full steps for gradients that are only rounding errors: those may differ.
        apart = numpy.abs(parameter.data().asnumpy() - weights[name])
        assert numpy.quantile(apart, 0.8) < 20 * near * numpy.abs(weights[name]).max(), name


def test_the_transformer_of_the_examples() -> None:
    """Its gradient against differences in float64, imperative and compiled; no look ahead."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
    try:
        from transformer_lm import Transformer
    finally:
        sys.path.pop(0)
    np.random.seed(1)
    net = Transformer(11)
    net.initialize(init.Xavier())
    x = np.random.randint(0, 11, (2, 6))
    net(x)
    net.cast("float64")
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    expected = net(x)
    for _ in range(2):
        with autograd.predict_mode(), autograd.record(train_mode=False):
            value = loss(net(x), x).mean()
        value.backward()
        parameters = list(net.collect_params().values())
        moves = [np.random.normal(size=p.shape, dtype="float64") for p in parameters]
        slope = sum(float((p.grad() * m).sum()) for p, m in zip(parameters, moves, strict=True))
        sides = []
        for sign in (1, -2, 1):
            for parameter, move in zip(parameters, moves, strict=True):
                parameter.set_data(parameter.data() + sign * 1e-6 * move)
            sides.append(float(loss(net(x), x).mean()))
        assert (sides[0] - sides[1]) / 2e-6 == pytest.approx(slope, rel=1e-5)
        net.hybridize()
        assert float(np.abs(net(x) - expected).max()) < 1e-9
    changed = x.copy()
    changed[:, 4:] = (changed[:, 4:] + 1) % 11
    assert float(np.abs(net(changed)[:, :4] - expected[:, :4]).max()) < 1e-9
    assert net(x[:, :3]).shape == (2, 3, 11)

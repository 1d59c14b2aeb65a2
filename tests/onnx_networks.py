"""Networks and arrays for the tests of ONNX files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy

from gemel import np, npx
from gemel.gluon import nn, rnn
from gemel.gluon.model_zoo import vision

DRAWN = numpy.random.default_rng(7)


def drawn(*shape: int, dtype: str = "float32", low: float = -2.0, high: float = 2.0) -> Any:
    if dtype == "bool":
        return np.array(DRAWN.random(shape) < 0.5)
    if dtype.startswith(("int", "uint")):
        return np.array(DRAWN.integers(0 if dtype[0] == "u" else -4, 5, shape), dtype=dtype)
    return np.array(DRAWN.uniform(low, high, shape), dtype=dtype)


def leaves(value: Any, name: str = "result") -> list[tuple[str, Any]]:
    """The arrays in a result, with their paths as names."""
    if isinstance(value, (list, tuple)):
        value = dict(enumerate(value))
    if not isinstance(value, dict):
        return [(name, value)]
    return [found for key, inner in value.items() for found in leaves(inner, f"{name}.{key}")]


def prepared(net: Any, *inputs: Any) -> Any:
    net.initialize()
    net.hybridize()
    net(*inputs)
    return net


def stacked(*layers: Any) -> Any:
    net = nn.HybridSequential()
    net.add(*layers)
    return net


class Encoder(nn.HybridBlock):
    """An encoder layer of a transformer, for any number of texts and words."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(20, 8), nn.Embedding(30, 8)
        self.query, self.key, self.value = (nn.Dense(8, flatten=False) for _ in range(3))
        self.mixed, self.inner = nn.Dense(8, flatten=False), nn.Dense(16, flatten=False)
        self.outer, self.first, self.second = (
            nn.Dense(8, flatten=False),
            nn.LayerNorm(),
            nn.LayerNorm(),
        )

    def heads(self, x: Any) -> Any:
        batch, length, _ = x.shape
        return x.reshape(batch, length, 2, 4).transpose(0, 2, 1, 3)

    def forward(self, words: Any) -> Any:
        batch, length = words.shape
        x = self.words(words) + self.places(np.arange(length, dtype="int64"))
        heads = [self.heads(each(x)) for each in (self.query, self.key, self.value)]
        seen = npx.attention(*heads, causal=True).transpose(0, 2, 1, 3).reshape(batch, length, 8)
        x = self.first(x + self.mixed(seen))
        return self.second(x + self.outer(npx.gelu(self.inner(x)))), x.mean(axis=1)


def lenet() -> Any:
    return stacked(
        nn.Conv2D(6, 5, padding=2, activation="sigmoid"), nn.AvgPool2D(2, 2),
        nn.Conv2D(16, 5, activation="tanh"), nn.MaxPool2D(2, 2), nn.Flatten(), nn.Dense(10),
    )  # fmt: skip


class Steps(nn.HybridBlock):
    """A loop over cells, of any length."""

    def __init__(self, *cells: Any) -> None:
        super().__init__()
        self.cell, self.outer = rnn.HybridSequentialRNNCell(), nn.Dense(4)
        self.cell.add(*cells)

    def forward(self, x: Any) -> Any:
        def step(element: Any, states: Any) -> Any:
            output, states = self.cell(element, states)
            return self.outer(output), states

        return npx.foreach(step, x, self.cell.begin_state(x.shape[1]))


def recurrent() -> Any:
    return stacked(nn.Embedding(20, 6), rnn.LSTM(5, 2, layout="NTC"), nn.Dense(4, flatten=False))


#: How to make a network, the shape it is exported with, the one it is run with, its free axes.
NETWORKS: dict[str, tuple[Callable[[], Any], tuple[Any, ...], tuple[Any, ...], str]] = {
    "lenet": (lenet, (1, 1, 28, 28), (3, 1, 28, 28), "0"),
    "encoder": (Encoder, (2, 5), (3, 9), "0 1"),
    "lstm": (recurrent, (2, 4), (3, 9), "0 1"),
    "gru": (lambda: rnn.GRU(4), (4, 2, 3), (6, 3, 3), "0 1"),
    "cells": (lambda: Steps(rnn.LSTMCell(5), rnn.GRUCell(4)), (5, 2, 3), (2, 3, 3), "0 1"),
    "rnn": (lambda: rnn.RNN(4, activation="tanh"), (4, 2, 3), (6, 3, 3), "0 1"),
    "resnet": (
        lambda: stacked(
            *list(vision.resnet18_v1().features)[:6], nn.GlobalAvgPool2D(), nn.Dense(3)
        ),
        (1, 3, 32, 32),
        (2, 3, 16, 24),
        "0 2 3",
    ),
    "mobilenet": (
        lambda: stacked(*list(vision.mobilenet_v2_0_25().features)[:9]),
        (1, 3, 32, 32),
        (2, 3, 16, 32),
        "0 2 3",
    ),
    "squeezenet": (
        lambda: stacked(*list(vision.squeezenet1_1().features)[:6]),
        (1, 3, 32, 32),
        (2, 3, 24, 32),
        "0 2 3",
    ),
    "densenet": (
        lambda: stacked(*list(vision.densenet121().features)[:5]),
        (1, 3, 16, 16),
        (2, 3, 16, 16),
        "0 2 3",
    ),
}


def given(name: str) -> tuple[Any, Any]:
    """Inputs for a network in the two shapes: for the export and for the run."""
    _, *shapes, _ = NETWORKS[name]
    words = name in ("encoder", "lstm")
    one, two = (np.array(DRAWN.integers(0, 20, s)) if words else drawn(*s) for s in shapes)
    return one, two

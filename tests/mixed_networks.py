"""Networks for tests of mixed precision, and the dtypes that their products are computed in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy

import gemel
from gemel import np, npx
from gemel.gluon import nn


def products(graph: Any) -> set[tuple[str, str]]:
    """The dtypes of the two factors of every product in a graph and in its inner graphs."""
    found = set()
    for node in graph.walk():
        if node.op is not None and node.op.contracts:
            found.add((str(node.inputs[0].dtype), str(node.inputs[1].dtype)))
        for inner in node.params.values():
            found |= products(inner) if hasattr(inner, "walk") else set()
    return found


LOW, WIDE = {("bfloat16", "bfloat16")}, {("float32", "float32")}


def perceptron() -> Any:
    net = nn.HybridSequential()
    net.add(nn.Dense(16, activation="tanh", in_units=8), nn.Dense(4, in_units=16))
    return net


def begun(make: Callable[[], Any], seed: int = 4) -> Any:
    npx.random.seed(seed)
    net = make()
    net.initialize(gemel.init.Xavier())
    net.hybridize()
    return net


def drawn(shape: tuple[int, ...], seed: int = 1) -> Any:
    draw = numpy.random.default_rng(seed)
    return np.array(draw.standard_normal(shape).astype("float32"))


def apart(found: Any, wanted: Any) -> float:
    """The distance between two arrays, relative to the norm of the second."""
    a, b = found.asnumpy(), wanted.asnumpy()
    return float(numpy.linalg.norm(a - b) / numpy.linalg.norm(b))

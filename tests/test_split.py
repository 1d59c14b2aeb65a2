"""A backward in pieces computes what a backward in one plan does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest

from gemel import autograd, device, gpu, np, npx, profiler
from gemel.ir.graph import Graph, placeholder
from gemel.ir.trace import Trace
from gemel.ops.linalg import matmul
from gemel.passes.split import split
from gemel.spec import Spec
from gemel.tape import step_plans


def mlp(x: Any, w: list[Any]) -> Any:
    h = npx.relu(np.dot(x, w[0]) + w[1])
    h = np.tanh(np.dot(h, w[2]) + w[3])
    return np.square(np.dot(h, w[4]) + w[5]).sum()


def shared(x: Any, w: list[Any]) -> Any:
    h = np.dot(x, w[0]) + w[1]
    return (np.dot(np.tanh(h), np.dot(w[2], w[2])) * w[1].sum()).sum() + w[5].sum()


SHAPES = [(6, 5), (5,), (5, 5), (5,), (5, 3), (3,)]


def gradients(model: Callable[..., Any], request: str) -> list[Any]:
    np.random.seed(3)
    x = np.random.normal(size=(4, 6), dtype="float64")
    weights = [np.random.normal(size=shape, dtype="float64") for shape in SHAPES]
    for weight in weights:
        weight.attach_grad(request)
    for _ in range(2):
        with autograd.record():
            loss = model(x, weights)
        loss.backward()
    fresh_loss = None
    with autograd.record():
        fresh_loss = model(x, weights)
    fresh = autograd.grad(fresh_loss, weights)
    return [w.grad.asnumpy() for w in weights] + [g.asnumpy() for g in fresh]


@pytest.mark.parametrize("model", [mlp, shared])
@pytest.mark.parametrize("request_", ["write", "add"])
def test_the_same_gradients(model, request_, monkeypatch):
    whole = gradients(model, request_)
    monkeypatch.setattr(step_plans, "in_pieces", lambda leaves: True)
    for a, b in zip(whole, gradients(model, request_), strict=True):
        numpy.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


def test_a_piece_per_layer():
    device.simulate(1)
    try:
        x = np.ones((4, 6), device=gpu(0))
        weights = [np.ones(shape, device=gpu(0)) * 0.1 for shape in SHAPES]
        for weight in weights:
            weight.attach_grad()
        for _ in range(2):  # compiled at the second time
            with autograd.record():
                loss = mlp(x, weights)
            with profiler.graph() as g:
                loss.backward()
        assert [n.name for n in g.nodes] == ["backward"] * 3
        assert len(g.before(g.nodes[1])) == 1
    finally:
        npx.waitall()
        device.simulate(0)


def test_a_gradient_used_as_data(monkeypatch):
    def run() -> list[numpy.ndarray]:
        np.random.seed(1)
        weights = [np.random.normal(size=(4, 4), dtype="float64") for _ in range(3)]
        for weight in weights:
            weight.attach_grad()
            weight.grad[...] = np.random.normal(size=(4, 4), dtype="float64")
        with autograd.record():
            h = np.tanh(np.dot(weights[2].grad, weights[0]))
            loss = np.dot(np.tanh(np.dot(h, weights[1])), weights[2]).sum()
        loss.backward()
        return [weight.grad.asnumpy() for weight in weights]

    whole = run()
    monkeypatch.setattr(step_plans, "in_pieces", lambda leaves: True)
    for a, b in zip(whole, run(), strict=True):
        numpy.testing.assert_allclose(a, b, rtol=1e-12)


def test_nothing_is_computed_twice():
    x, a, b = (placeholder(Spec((4, 4), "float32")) for _ in range(3))
    with Trace():
        first = matmul(x, a)
        graph = Graph((x, a, b), (matmul(first, b), matmul(first, x)))
    whole, pieces = split(graph)
    assert sum(piece.graph.count("matmul") for piece in pieces) == whole.count("matmul") == 3
    assert len(pieces) == 2
    assert set(pieces[0].outputs) - set(whole.outputs) == set(pieces[1].inputs) - set(whole.inputs)


def test_an_input_as_a_result():
    x, a = (placeholder(Spec((4, 4), "float32")) for _ in range(2))
    with Trace():
        graph = Graph((x, a), (x, matmul(x, a)))
    whole, pieces = split(graph)
    given = {entry for piece in pieces for entry in piece.outputs}
    assert given == set(whole.outputs)

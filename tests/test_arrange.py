"""The order of a plan's nodes: right, and one that needs little memory."""

from __future__ import annotations

import re
from typing import Any

import numpy
import pytest
from random_graphs import random_graph

import gemel
from gemel import autograd, np, npx
from gemel.ir.graph import Entry, Graph, placeholder
from gemel.ir.trace import Trace
from gemel.passes import optimize
from gemel.passes.arrange import arranged
from gemel.passes.domain import is_view, seen_by
from gemel.spec import Spec


def readers(graph: Graph, entry: Entry) -> set[int]:
    """The ids of the nodes that read an entry or a view of it."""
    found: set[int] = set()
    for node in graph.readers().get(entry, ()):
        found.add(id(node))
        if is_view(node):
            found |= set().union(*(readers(graph, view) for view in node.entries))
    return found


@pytest.mark.parametrize("seed", range(200))
def test_nodes_follow_what_they_need_and_writers_follow_readers(seed: int) -> None:
    graph = optimize(random_graph(seed))
    walked, order = list(graph.walk()), arranged(graph)
    assert sorted(map(id, order)) == sorted(map(id, walked))
    place = {id(node): number for number, node in enumerate(order)}
    for node in order:
        for entry in node.inputs:
            assert place.get(id(entry.node), -1) < place[id(node)]
    earlier = {id(node): number for number, node in enumerate(walked)}
    for index, entry in graph.updates:
        for writer in {id(entry.node), id(seen_by(entry).node)} & place.keys():
            for reader in readers(graph, graph.inputs[index]):
                if earlier[reader] < earlier[writer]:
                    assert place[reader] < place[writer]


def workspace(function: Any, *arguments: Any) -> int:
    """The bytes of memory that a compiled function's plan needs besides its results."""
    (size,) = re.findall(r"([\d,]+) bytes of workspace", function.plan_summary(*arguments))
    return int(size.replace(",", ""))


ROWS, WIDTH = 512, 128
#: The bytes of the result of a layer.
EACH = 4 * ROWS * WIDTH


def layers(count: int) -> list[Any]:
    """The weights of a network."""
    found = [np.random.normal(0, WIDTH**-0.5, (WIDTH, WIDTH)) for _ in range(count)]
    for weight in found:
        weight.attach_grad()
    return found


def loss(x: Any, weights: list[Any]) -> Any:
    for weight in weights:
        x = np.tanh(np.matmul(x, weight))
    return x.sum()


def gradients(x: Any, weights: list[Any]) -> Any:
    with autograd.record():
        value = loss(x, weights)
    return autograd.grad(value, weights)


def test_a_gradient_does_not_keep_the_gradients_of_all_layers() -> None:
    """Between forward and backward each layer's result is there, and nothing else of that size."""
    function, x = gemel.compile(gradients), np.random.normal(0, 1, (ROWS, WIDTH))
    few, many = (workspace(function, x, layers(count)) for count in (4, 16))
    assert 12 * EACH <= many - few < 13 * EACH


def test_the_order_of_the_results_stays_where_it_needs_less() -> None:
    """Branch by branch, one array is there at a time. By depth, those of all branches would be."""
    with Trace():
        x = placeholder(Spec((ROWS, WIDTH), "float32"))
        found = []
        for number in range(4):
            first = np.cumsum(x + number, axis=0)
            found += [np.cumsum(np.cumsum(first, axis=1), axis=0).sum(), first.sum()]
        graph = optimize(Graph((x,), tuple(found)))
    assert arranged(graph) == list(graph.walk())


def step(x: Any, weights: list[Any], slopes: list[Any]) -> Any:
    """A step of gradient descent with momentum."""
    found = gradients(x, weights)
    for weight, slope, gradient in zip(weights, slopes, found, strict=True):
        slope[:] = 0.9 * slope + gradient
        weight -= 0.01 * slope
    return loss(x, weights)


def test_a_step_overwrites_weights_in_place() -> None:
    """The weights of a layer are read by the gradient behind it, which must come first."""
    x = np.random.normal(0, 1, (ROWS, WIDTH))
    function = gemel.compile(step)
    first, second = layers(8), [[np.zeros((WIDTH, WIDTH)) for _ in range(8)] for _ in range(2)]
    copies = layers(8)
    for weight, copied in zip(first, copies, strict=True):
        copied[:] = weight
    for _ in range(3):
        found, wanted = function(x, first, second[0]), step(x, copies, second[1])
        numpy.testing.assert_allclose(found.asnumpy(), wanted.asnumpy(), rtol=1e-3)
    for one, other in zip(first, copies, strict=True):
        numpy.testing.assert_allclose(one.asnumpy(), other.asnumpy(), rtol=1e-3, atol=1e-5)
    assert "copy" not in function.source(x, first, second[0])


def test_what_keeps_all_cores_busy_stays_in_line() -> None:
    """Side by side, eight products would need the memory of eight intermediate results."""

    weights = layers(8)

    def branches(x: Any) -> Any:
        found = [np.matmul(npx.relu(np.matmul(x, w)), w).sum() for w in weights]
        return sum(found[1:], found[0])

    function, rows = gemel.compile(branches), 8192
    x = np.random.normal(0, 1, (rows, WIDTH))
    assert workspace(function, x) < 4 * (4 * rows * WIDTH)

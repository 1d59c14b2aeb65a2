"""Joined work: parts along an axis, products that are summed, values computed in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest

import gemel
from gemel import np, npx
from gemel.gluon import HybridBlock, Parameter, rnn
from gemel.ops import indexing, linalg
from gemel.runtime.emission import Emission
from gemel.runtime.lower import Lowering


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[Lowering]:
    """The lowered graphs; `node_count` is the number of kernels each takes."""
    found: list[Any] = []
    run, launch = Lowering.run, Emission.launch

    def counted(self: Any, kernel: Any) -> None:
        self.node_count = getattr(self, "node_count", 0) + 1
        launch(self, kernel)

    def noted(self: Any) -> None:
        found.append(self)
        run(self)

    monkeypatch.setattr(Emission, "launch", counted)
    monkeypatch.setattr(Lowering, "run", noted)
    return found


def steps(lowering: Any, op: Any) -> int:
    """How often an operation occurs in a graph, also inside fused nodes."""
    count = 0
    for node in lowering.graph.walk():
        body = node.params.get("body")
        inside = [node] if body is None else body.walk()
        count += sum(each.op is op for each in inside)
    return count


def numbers(*shape: int) -> Any:
    return numpy.random.default_rng(sum(shape)).normal(size=shape).astype("float32")


def quarters(x: Any) -> Any:
    """Writes all of a result, part by part."""
    y = x * 0
    for part in range(4):
        y[:, part * 3 : part * 3 + 3] = x[:, 9 - part * 3 : 12 - part * 3] * part
    return y


def rows(x: Any) -> Any:
    y = x * 0
    for row in range(4):
        y[row] = x[3 - row] * row
    return y


def not_all(x: Any) -> Any:
    """Writes all but one column, which keeps its old values."""
    y = x * 2
    y[:, 0:3] = x[:, 3:6]
    y[:, 4:12] = x[:, 4:12] + 1
    return y


def twice(x: Any) -> Any:
    """The second write covers part of the first."""
    y = x * 0
    y[:, 0:8] = x[:, 4:12]
    y[:, 6:12] = x[:, 0:6] * 3
    return y


@pytest.mark.parametrize(
    ("function", "written"), [(quarters, 0), (rows, 0), (not_all, 2), (twice, 2)]
)
def test_parts_that_fill_an_axis_are_joined(
    function: Callable[[Any], Any], written: int, graphs: list[Any]
) -> None:
    x = numbers(4, 12)
    # With free sizes it is not known that the parts fill the result.
    found = gemel.compile(lambda x: function(x.reshape(4, 12)))(np.array(x)).asnumpy()
    numpy.testing.assert_allclose(found, function(x.copy()), rtol=1e-6)
    assert steps(graphs[0], indexing.assign) == written


@pytest.mark.parametrize(("terms", "products"), [(2, 2), (3, 1), (9, 1)])
def test_products_that_are_added_up_become_one(
    terms: int, products: int, graphs: list[Any]
) -> None:
    left, right = numbers(terms, 5, 40), numbers(terms, 5, 30)

    def added(a: Any, b: Any) -> Any:
        total = np.dot(a[0].T, b[0])
        for step in range(1, terms):
            total = total + np.dot(a[step].T, b[step])
        return total

    found = gemel.compile(added)(np.array(left), np.array(right)).asnumpy()
    expected = numpy.einsum("tkm,tkn->mn", left.astype("float64"), right)
    numpy.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert steps(graphs[0], linalg.matmul) == products


def test_long_products_and_those_wanted_elsewhere_stay_apart(graphs: list[Any]) -> None:
    a, b = numbers(4, 64, 8), numbers(4, 64, 9)

    def added(x: Any, y: Any) -> Any:
        first = np.dot(x[0].T, y[0])
        return first + np.dot(x[1].T, y[1]) + np.dot(x[2].T, y[2]), first

    gemel.compile(added)(np.array(a), np.array(b))[0].wait_to_read()
    assert steps(graphs[0], linalg.matmul) == 3


def test_a_parameter_written_in_part_is_written_where_it_lies(graphs: list[Any]) -> None:
    class Cache(HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            self.cache = Parameter("cache", shape=(10, 6), init="ones", grad_req="null")

        def forward(self, x: Any) -> Any:
            cache = self.cache.data()
            cache[:, 3] = x * 2
            return x + 1

    net = Cache()
    net.initialize()
    net.hybridize()
    for step in range(3):
        x = np.arange(10.0) + step
        assert (net(x) == x + 1).all()
        cache = net.cache.data()
        assert (cache[:, 3] == x * 2).all() and (cache[:, :3] == 1).all() and cache.sum() > 0
    (written,) = (each for each in graphs if each.graph.updates)
    assert written.emission.node_count == 2


def test_a_network_s_gradients_are_those_of_its_steps() -> None:
    """A long recurrence: its weights' products are joined, panels made once, states in place."""
    from gemel import autograd

    net = rnn.LSTM(24, num_layers=2)
    net.initialize(gemel.init.Normal(0.3))
    x = np.array(numbers(35, 16, 7))
    grads = []
    for hybrid in (False, True):
        net.hybridize(hybrid)
        for _ in range(2):
            with autograd.record():
                loss = (net(x) ** 2).sum()
            loss.backward()
            params = net.collect_params().values()
            grads.append([p.grad().asnumpy() for p in params])
    npx.waitall()
    for other in grads[1:]:
        for a, b in zip(grads[0], other, strict=True):
            numpy.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5 * abs(a).max())

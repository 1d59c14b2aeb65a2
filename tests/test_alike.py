"""Equal steps are written once, which changes no plan; parts are computed where they belong."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
from random_graphs import random_graph

import gemel
from gemel import np, npx
from gemel.codegen.language.body import write_loops
from gemel.device import current_device
from gemel.gluon import nn
from gemel.ir.graph import Graph, placeholder
from gemel.ir.trace import Trace
from gemel.ops import elementwise, shape
from gemel.ops.winograd import planes_of
from gemel.passes import optimize
from gemel.passes.simplify import expand, frozen
from gemel.process.forking import Helpers
from gemel.runtime import reuse
from gemel.runtime.backend import backend_of
from gemel.runtime.image import Kept
from gemel.runtime.lower import Lowering, lowered
from gemel.spec import Spec


def image_of(graph: Graph) -> bytes:
    return lowered(optimize(graph), backend_of(current_device())).write()


def test_bytes_written_while_kernels_are_compiled_are_those_of_the_plan() -> None:
    made = lowered(optimize(layers(2)), backend_of(current_device()))
    assert made.early and made.early == made.write()
    assert len(made.kernels) == len(made.keys) > 0 and all(made.kernels)


def anew(self: Any, body: Any, given: Any, outputs: Any) -> Any:
    return write_loops(body, given, outputs)


# --- loops and rounds ---------------------------------------------------------------------------


def layers(count: int) -> Graph:
    x = placeholder(Spec((8, 16), "float32"))
    weights = [placeholder(Spec((16, 16), "float32")) for _ in range(count)]
    value = x
    with Trace():
        for weight in weights:
            value = elementwise.multiply(npx.softmax(np.matmul(value, weight)), 0.5)
    return Graph((x, *weights), (value,))


def test_equal_loops_are_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = []
    for count in (3, 9):
        written: list[Any] = []
        monkeypatch.setattr(
            reuse, "write_loops", lambda *given, own=written: own.append(1) or write_loops(*given)
        )
        image_of(layers(count))
        counts.append(len(written))
    assert counts[0] == counts[1] <= 3


def test_plans_are_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = [layers(5), *map(random_graph, range(60))]
    found = [image_of(graph) for graph in graphs]
    monkeypatch.setattr(reuse.LaunchCache, "loops", anew)
    monkeypatch.setattr(reuse.OptimizedCache, "of", lambda self, graph: optimize(graph))
    assert [image_of(graph) for graph in graphs] == found


def test_loops_that_are_alike_and_some_that_are_not() -> None:
    """Loops over one graph on different arrays, and over a graph that differs in one number."""

    def rounds(x: Any, factor: float) -> Any:
        found, _ = npx.foreach(lambda row, s: (row * factor + s[0], [s[0] + row]), x, [x[0] * 0])
        return found

    @gemel.compile
    def whole(x: Any, y: Any) -> Any:
        return rounds(x, 2.0), rounds(y, 2.0), rounds(x, 3.0)

    x, y = numpy.random.default_rng(1).normal(size=(2, 12, 5)).astype("float32")
    before = [numpy.cumsum(each, 0, dtype="float32") - each for each in (x, y)]
    found = whole(np.array(x), np.array(y))
    wanted = x * 2 + before[0], y * 2 + before[1], x * 3 + before[0]
    for one, other in zip(found, wanted, strict=True):
        numpy.testing.assert_allclose(one.asnumpy(), other, rtol=1e-5, atol=1e-5)


def test_keys_tell_numbers_apart() -> None:
    values = (2, 2.0, True, 1, 1.0, 0.0, -0.0, (0.0,), (-0.0,), "2", None, 2 + 0j)
    assert len({frozen(value) for value in values}) == len(values)
    assert frozen(float("nan")) == frozen(float("nan"))


# --- composites ---------------------------------------------------------------------------------


def test_composites_of_one_entry_twice_and_of_numbers() -> None:
    @gemel.compile
    def whole(x: Any, y: Any) -> Any:
        return np.where(x > 0, x, x), np.hypot(x, x), np.hypot(x, y), np.hypot(y, x), np.hypot(x, 2)

    x, y = numpy.random.default_rng(2).normal(size=(2, 4, 3)).astype("float32")
    found = whole(np.array(x), np.array(y))
    wanted = x, numpy.hypot(x, x), numpy.hypot(x, y), numpy.hypot(y, x), numpy.hypot(x, 2)
    for one, other in zip(found, wanted, strict=True):
        numpy.testing.assert_allclose(one.asnumpy(), other, rtol=1e-6)


def test_composites_that_are_alike_keep_their_places() -> None:
    """A copied body reads its own inputs, and its nodes keep their origins."""
    inputs = [placeholder(Spec((2, 3, 5, 5), "float32")) for _ in range(3)]
    weight = placeholder(Spec((4, 3, 3, 3), "float32"))
    with Trace():
        results = [npx.convolution(x, weight, kernel=(3, 3), no_bias=True) for x in inputs]
    graph = expand(Graph((*inputs, weight), results))
    alone = expand(Graph((inputs[2], weight), results[2:]))
    told = [
        [(node.op, node.part, node.origin) for node in Graph((), (entry,)).walk() if node.op]
        for entry in graph.outputs
    ]
    assert told[0] == told[1] == told[2]
    third = Graph((inputs[2], weight), graph.outputs[2:])
    assert reuse.body_text(third) == reuse.body_text(alone)


# --- parts in their places ----------------------------------------------------------------------


def test_planes_are_computed_where_they_lie() -> None:
    x, y = (placeholder(Spec((3, 4), "float32")) for _ in range(2))
    with Trace():
        parts = elementwise.add(x, y), elementwise.multiply(x, 3.0), elementwise.subtract(x, y)
        other = shape.transpose(planes_of(*parts), axes=(0, 2, 1))
        together = np.matmul(planes_of(*parts), other)
    lowering = Lowering(optimize(Graph((x, y), (together,))), backend_of(current_device()))
    lowering.run()
    kinds = [item.program.text for item in lowering.emission.items]
    assert not any(" = store.float32(%0, 1)" in kind for kind in kinds)  # none just copies


@pytest.mark.parametrize("rows", [2, 6])
def test_parts_that_lie_over_others_are_written_later(rows: int) -> None:
    """They depend on the values of the parts they overwrite; one kernel would mix them up."""

    def function(x: Any) -> Any:
        y = x * 2.0
        y[::-1] = y * 1.0
        return (y * y * y).sum(), y.T * 3.0

    x = np.arange(rows * 3.0).reshape(rows, 3) / 5
    for found, expected in zip(gemel.compile(function)(x), function(x), strict=True):
        numpy.testing.assert_allclose(found.asnumpy(), expected.asnumpy(), rtol=1e-6)


@pytest.mark.parametrize("dtypes", [("float32",) * 2, ("float32", "float64"), ("int32", "float32")])
def test_planes_of_all_sorts(dtypes: tuple[str, str]) -> None:
    """Parts that are inputs, views, results, repeated, broadcast, or of another dtype."""

    @gemel.compile
    def whole(x: Any, y: Any) -> Any:
        a, b = x + 1, y * 2
        return a, planes_of(a, x, a, x.T.T, b, np.broadcast_to(y[:1], y.shape)) * 2, planes_of(b)

    x, y = (numpy.arange(12).reshape(4, 3).astype(dtype) for dtype in dtypes)
    found = whole(np.array(x, dtype=dtypes[0]), np.array(y, dtype=dtypes[1]))
    a, b = x + 1, y * 2
    together = numpy.stack([a, x, a, x, b, numpy.broadcast_to(y[:1], y.shape)]) * 2
    for one, other in zip(found, (a, together, b[None]), strict=True):
        numpy.testing.assert_array_equal(one.asnumpy(), other.astype(one.dtype))


def test_results_of_several_kernels_are_kept() -> None:
    """The planes of weights and everything computed from them are kept; no kernel repeats it."""
    net = nn.Conv2D(64, 3, padding=1, in_channels=64)
    net.initialize()
    net.hybridize()
    x = np.random.normal(0, 1, (1, 64, 16, 16))
    y = net(x).asnumpy()
    ((program,),) = net._own.compiled._programs.values()
    found = program.inference()
    (backend,) = found._backends.values()
    kept = found.image(program.dims([x]), backend).items[0]
    assert isinstance(kept, Kept)
    assert sum(kept.sizes) == 16 * 64 * 64 * 4  # the panels of one product
    assert (net(x).asnumpy() == y).all()
    net.weight.set_data(net.weight.data() * 2)
    bias = net.bias.data().asnumpy()[:, None, None]
    numpy.testing.assert_allclose(net(x).asnumpy() - bias, 2 * (y - bias), rtol=1e-6, atol=1e-6)


# --- order of work ------------------------------------------------------------------------------


def test_the_longest_waiting_tasks_run_first() -> None:
    done: list[int] = []
    with Helpers(done.append, 0) as helpers:
        for task, length in enumerate((3, 9, 1, 9, 5)):
            helpers.give(task, length)
        assert helpers.results() == [None] * 5
    assert done == [1, 3, 4, 0, 2]

"""Passes and lowering take time linear in the graph's size, and their results are as good."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from random import Random
from typing import Any

import numpy
import pytest
from test_graphs import drawn, same, symbol

import gemel
from gemel import autograd, gluon, np, npx
from gemel.gluon import nn
from gemel.ir.declare import composite
from gemel.ir.graph import Entry, Graph, Node, walk
from gemel.ir.interpret import interpret
from gemel.ir.trace import Trace
from gemel.ir.verify import verify
from gemel.ops.neural import batch_norm
from gemel.passes import gradient, optimize
from gemel.passes.fuse import LARGEST_BODY, cheap, fused
from gemel.passes.order import REACH, Order, Unit
from gemel.passes.split import split
from gemel.runtime import concurrent
from gemel.runtime.backend import backend_of
from gemel.runtime.concurrent import Concurrent, _knots, side_by_side
from gemel.runtime.lower import lowered
from gemel.runtime.sites import find_sites

# --- graphs of any length ---------------------------------------------------------------------


def chain(n: int) -> Graph:
    """Multiplications by one variable, and the variable's gradient, which adds up n terms."""
    x, w = symbol(8), symbol(8)
    y = x
    for _ in range(n):
        y = y * w
    return Graph((x, w), gradient([y], [np.ones(8)], [w]))


def layers(n: int) -> Graph:
    """A training step of Dense and BatchNorm: outputs, gradients and running statistics."""
    x = symbol(6, 4)
    weights, vectors = [symbol(4, 4) for _ in range(n)], [symbol(4) for _ in range(4 * n)]
    y, updates = x, []
    for i, w in enumerate(weights):
        given = vectors[4 * i : 4 * i + 4]
        found = batch_norm.node((np.matmul(y, w), *given), batch_norm.complete({})).entries
        y = npx.relu(found[0])
        updates += [(1 + n + 4 * i + 2, found[3]), (1 + n + 4 * i + 3, found[4])]
    gradients = gradient([y], [np.ones((6, 4))], weights)
    return Graph((x, *weights, *vectors), (y, *gradients), updates)


def masked(n: int) -> Graph:
    """One mask near the start of the graph, which each of n layers reads."""
    first, w = symbol(4, 4), symbol(4, 4)
    x = first
    mask = np.tanh(w) > 0
    for _ in range(n):
        x = np.where(mask, np.matmul(x, w), x)
    return Graph((first, w), (x,))


def residual(n: int) -> Graph:
    """Residual blocks: each adds its input to its output."""
    x, w = symbol(4, 4), symbol(4, 4)
    y = x
    for _ in range(n):
        y = y + np.matmul(npx.relu(np.matmul(npx.softmax(y), w)), w)
    return Graph((x, w), (y,))


def lookups(n: int) -> Graph:
    """Steps that can fail, each of which leads to a result of its own."""
    first, at = symbol(5, 3), symbol(5, dtype="int32")
    x, results = first, []
    for _ in range(n):
        x = np.tanh(x) * 2
        results.append(np.take(x, at, axis=0) + x)
    return Graph((first, at), results)


#: Each with a length at which its searches reach their longest.
BUILDERS = {chain: 240, layers: 20, masked: 240, residual: 40, lookups: 60}


def traced(build: Callable[[int], Graph], n: int) -> Graph:
    with Trace():
        return build(n)


def calls_of(function: Callable[[], Any]) -> int:
    """The number of Python calls a function makes: a measure of work that load does not change."""
    count = 0

    def seen(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += 1

    gc.disable()  # garbage collection is not part of the function's work
    sys.setprofile(seen)
    try:
        function()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


def stages(graph: Graph) -> dict[str, int]:
    """The number of calls in each stage from a graph to a plan's bytes."""
    optimized = optimize(graph)
    image = lowered(optimized, backend_of(gemel.cpu()))  # compiles the kernels in advance
    return {
        "verify": calls_of(lambda: verify(graph)),
        "passes": calls_of(lambda: optimize(graph)),
        "lowering": calls_of(lambda: lowered(optimized, backend_of(gemel.cpu()))),
        "image": calls_of(image.write),
    }


@pytest.mark.parametrize(("build", "length"), BUILDERS.items())
def test_four_times_the_graph_is_four_times_the_work(
    build: Any, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(concurrent, "FAR", 32)
    monkeypatch.setattr(concurrent, "REACH", 16)
    less, more = (stages(traced(build, n)) for n in (length, 4 * length))
    for stage, calls in more.items():
        assert calls < 4.5 * less[stage], (stage, less[stage], calls)


@pytest.mark.parametrize("build", [chain, layers])
def test_tracing_a_gradient_is_linear(build: Any) -> None:
    less, more = (calls_of(lambda n=n: traced(build, n)) for n in (60, 240))
    assert more < 4.4 * less


def test_splitting_is_linear() -> None:
    less, more = (traced(layers, n) for n in (20, 80))
    assert len(split(more)[1]) == 80
    assert calls_of(lambda: split(more)) < 4.4 * calls_of(lambda: split(less))


def test_a_trace_with_many_parameters_is_linear() -> None:
    def traces(n: int) -> int:
        net = nn.HybridSequential()
        for _ in range(n):
            net.add(nn.BatchNorm(in_channels=3))
        net.initialize()
        net.hybridize()
        x = np.ones((2, 3))
        with autograd.train_mode():
            return calls_of(lambda: net._compiled_run().graph(x))

    less, more = traces(20), traces(80)
    assert more < 4.4 * less


# --- what is fused ----------------------------------------------------------------------------


def kernels(graph: Graph) -> list[int]:
    """The number of steps in each fused node, without the cheap ones."""
    nodes = [node for node in graph.walk() if node.op is fused]
    bodies = [node.params["body"].walk() for node in nodes]
    return [sum(1 for n in body if n.op is not None and not cheap(n)) for body in bodies]


@pytest.mark.parametrize(
    ("build", "n", "count"),
    [(chain, 160, 14), (layers, 40, 198), (masked, 20, 21), (residual, 20, 60), (lookups, 20, 22)],
)
def test_long_graphs_are_few_kernels(build: Any, n: int, count: int) -> None:
    """The counts are those from when dependencies were computed anew for each step."""
    found = kernels(optimize(traced(build, n)))
    assert len(found) == count
    assert max(found) <= LARGEST_BODY


@pytest.mark.parametrize("build", BUILDERS)
def test_long_graphs_keep_their_meaning(build: Any) -> None:
    graph = traced(build, 7)
    inputs = [x if x.dtype.kind == "f" else numpy.abs(x) for x in drawn(graph)]
    plan = lowered(optimize(graph), backend_of(gemel.cpu())).plan()
    arrays = [np.array(x, dtype=str(x.dtype)) for x in inputs]
    found = [y.asnumpy() for y in plan(*arrays)]
    same(found, interpret(graph, *inputs)[: len(found)])


def test_a_product_does_not_end_in_what_waits_for_it() -> None:
    """The condition reads the product's result through an operation with its own kernel."""
    x, w, at = symbol(4, 4), symbol(4, 4), symbol(4, dtype="int32")
    with Trace():
        product = np.matmul(x, w)
        kept = np.take(product > 0, at, axis=0)
        graph = Graph((x, w, at), (np.where(kept, product, np.tanh(x)),))
        found = optimize(graph)
    inputs = [*drawn(graph)[:2], numpy.int32([1, 0, 3, 2])]
    same(interpret(verify(found), *inputs), interpret(graph, *inputs))


# --- the order --------------------------------------------------------------------------------


def units_of(results: list[Entry]) -> tuple[Order, dict[Entry, Unit]]:
    """An order in which each unit has one node."""
    order = Order()
    nodes = [node for node in walk(results) if node.op is not None]
    for node in nodes:
        order.add(Unit([node]))
    return order, {node.entries[0]: order.unit[node] for node in nodes}


def climbs(order: Order) -> bool:
    """Whether every unit has a higher level than the units it reads."""
    pairs = [(order.unit[node], unit) for node in order.unit for unit in order.read(node)]
    return all(a is b or a.level > b.level for a, b in pairs)


def test_groups_a_path_leaves_and_reenters_are_not_joined() -> None:
    x = symbol(3)
    with Trace():
        a = np.exp(x)
        b = np.take(a, np.array([0, 1, 2]), axis=0)
        c = a + b
        order, unit = units_of([c])
    assert order.joined((unit[a], unit[c])) is None
    levels = order.joined((unit[b], unit[c]))
    assert levels is not None
    order.join((unit[b], unit[c]), levels)
    assert climbs(order)
    assert order.joined((unit[a], order.unit[b.node])) is not None


def test_units_in_the_way_are_moved() -> None:
    x, y = symbol(3), symbol(3)
    with Trace():
        early = np.exp(x)
        readers = [early]
        for _ in range(20):
            readers.append(np.tanh(readers[-1]))
        late = y
        for _ in range(20):
            late = np.sqrt(late)
        order, unit = units_of([readers[-1], early + late])
        last = order.unit[next(n for n in order.unit if n.op.name == "add")]
    levels = order.joined((unit[early], last))
    assert levels is not None
    order.join((unit[early], last), levels)
    assert climbs(order)
    assert unit[readers[-1]].level > unit[late].level
    # Now a path leads from each late unit to each reader.
    assert order.joined((unit[late], unit[readers[-1]])) is None
    assert climbs(order)


def comes_back(order: Order, units: tuple[Unit, ...]) -> bool:
    """Whether a path leaves the units and returns to them, by a plain search."""
    readers: dict[Unit, set[Unit]] = {}
    for node, unit in order.unit.items():
        for read in order.read(node):
            readers.setdefault(read, set()).add(unit)
    pending = [r for unit in units for r in readers.get(unit, ()) if r not in units]
    seen = set(pending)
    while pending:
        for reader in readers.get(pending.pop(), ()):
            if reader in units:
                return True
            if reader not in seen:
                seen.add(reader)
                pending.append(reader)
    return False


def test_everything_that_no_path_forbids_is_joined() -> None:
    answers = {True: 0, False: 0}
    for seed in range(60):
        draw = Random(seed)
        values = [symbol(2), symbol(2)]
        with Trace():
            for _ in range(draw.randint(8, 30)):
                values.append(draw.choice(values[-5:]) + draw.choice(values))
            order, _ = units_of(values)
        for _ in range(40):
            known = list(order.unit.values())
            units = tuple(dict.fromkeys(draw.choices(known, k=draw.randint(2, 3))))
            levels = order.joined(units)
            assert (levels is None) == comes_back(order, units)
            answers[levels is None] += 1
            if levels is not None and draw.random() < 0.5:
                order.join(units, levels)
                assert climbs(order)
    assert min(answers.values()) > 100


@pytest.mark.parametrize("readers", [REACH - 1, REACH + 1])
def test_a_search_gives_up(readers: int) -> None:
    x, y = symbol(3), symbol(3)
    with Trace():
        early = np.exp(x)
        late = np.sqrt(np.sqrt(y))
        order, unit = units_of([*(np.tanh(early) for _ in range(readers)), late, early + late])
        last = order.unit[next(n for n in order.unit if n.op.name == "add")]
    assert (order.joined((unit[early], last)) is None) == (readers > REACH)
    assert climbs(order)


# --- gradients of composites ------------------------------------------------------------------


@composite()
def product_of_two(a: Any, b: Any) -> Any:
    """A composite without a gradient of its own."""
    return a * b


def test_a_composite_of_an_input_and_what_is_computed_from_it() -> None:
    values = numpy.float32([0.5, -1, 2])
    x = np.array(values)
    x.attach_grad()
    function = gemel.compile(lambda x: product_of_two(x, np.tanh(x)))
    with autograd.record():
        y = function(x)
    y.backward()
    t = numpy.tanh(values)
    numpy.testing.assert_allclose(x.grad.asnumpy(), t + values * (1 - t * t), 1e-5)


# --- only what is asked for is optimised ------------------------------------------------------


def test_training_makes_no_plan_for_inference(monkeypatch: pytest.MonkeyPatch) -> None:
    net = nn.HybridSequential()
    net.add(nn.Dense(3, in_units=4, activation="relu"), nn.Dense(2, in_units=3))
    net.initialize()
    net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    for _ in range(2):
        with autograd.record():
            loss = net(np.ones((5, 4))).sum()
        loss.backward()
        trainer.step(5)
    programs = [program for kept in net._own.compiled._programs.values() for program in kept]
    assert [program._plans for program in programs] == [None] * len(programs)
    assert programs and all(len(program._halves) == 1 for program in programs)
    net(np.ones((5, 4)))
    programs = [program for kept in net._own.compiled._programs.values() for program in kept]
    assert any(program._plans is not None for program in programs)


# --- side by side, and what a failure reaches -------------------------------------------------


@pytest.mark.parametrize(
    ("needs", "knots"),
    [
        ([], [0]),
        ([set()], [0, 1, 1]),
        ([set(), {0}, {1}], [0, 1, 1, 2, 2, 3, 3]),
        ([set(), {0}, {0}, {1, 2}], [0, 1, 3, 4, 4]),
        ([set(), set(), {0, 1}], [2, 3, 3]),
        ([set(), {0}, {1}, {0}], [0, 1, 4]),
        ([set(), set(), {1}], [3]),
    ],
)
def test_knots(needs: list[set[int]], knots: list[int]) -> None:
    assert list(_knots(needs)) == knots


class Item:
    """The part of an item's interface that the search for independent lists uses."""

    fills_cores = False

    def __init__(self, cost: int, reads: str, writes: str) -> None:
        self.cost = cost
        self._touches = [*((b, False) for b in reads), *((b, True) for b in writes)]

    def touches(self) -> list[tuple[str, bool]]:
        return self._touches


def test_lists_end_where_nothing_more_is_won() -> None:
    """A leaf beside a chain: only as much of the chain runs beside it as takes the leaf's time."""
    names = "abcdefghijkl"
    items = [
        Item(90_000, "", "z"),
        *(Item(40_000, a, b) for a, b in zip(names, names[1:], strict=False)),
    ]
    group, *others = side_by_side(items)
    assert isinstance(group, Concurrent)
    assert [len(part) for part in group.parts] == [1, 3]
    assert others == items[4:]


def test_what_fills_all_cores_is_in_no_list() -> None:
    long = Item(90_000, "b", "c")
    long.fills_cores = True
    items = [Item(90_000, "", "z"), Item(90_000, "a", "b"), long]
    items += [Item(90_000, "z", "y"), Item(90_000, "c", "d")]
    (first, middle, last) = side_by_side(items)
    assert middle is long
    assert [[*each.parts] for each in (first, last)] == [
        [[items[0]], [items[1]]],
        [[items[3]], [items[4]]],
    ]


def test_a_failure_reaches_what_is_computed_from_it() -> None:
    x, at = symbol(3), symbol(3, dtype="int32")
    with Trace():
        first = np.take(x, at)
        second = np.take(first * 2, at)
        graph = Graph((x, at), (second, np.exp(x), first), ((0, first + 1),))
    nodes = {node.op.name + str(i): node for i, node in enumerate(graph.walk()) if node.op}

    class Failing:
        def __init__(self, node: Node) -> None:
            self.node = node

    items = [Failing(node) for node in nodes.values()]
    sites = find_sites(graph, items, lambda item: item.node.op.fails, None, lambda i: i)
    places = {item.node: index for index, item in enumerate(items)}
    a, b = places[first.node], places[second.node]
    below = [i for i, item in enumerate(items) if i > a and first.node in walk(item.node.entries)]
    assert sites == [(a, below, [0, 2], [0]), (b, [], [0], [])]
    assert len(below) < len(items) - a - 1

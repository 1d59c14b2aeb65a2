"""Graphs: text and back, the passes, and random programs that every pass must leave the same."""

from __future__ import annotations

import random
from typing import Any

import numpy
import pytest
from random_graphs import random_graph

from gemel import _core, cpu, np, npx
from gemel.errors import GemelError
from gemel.extent import OPERATORS, Dim, Guards, evaluate, maximum, minimum, seen
from gemel.ir.graph import (
    Entry,
    Graph,
    Node,
    captured,
    constant,
    inline,
    placeholder,
    rewrite,
    walk,
)
from gemel.ir.interpret import interpret
from gemel.ir.op import find
from gemel.ir.text import parse_graph, print_graph, signature
from gemel.ir.trace import Trace
from gemel.ir.verify import InvalidGraph, verify
from gemel.passes import PIPELINE, drop, fold, merge, optimize
from gemel.passes.fuse import fused
from gemel.runtime.backend import backend_of
from gemel.runtime.lower import lowered
from gemel.spec import Spec, broadcast, same_shape

SEEDS = range(120)


def symbol(*shape: int, dtype: str = "float32", name: str = "") -> Entry:
    return placeholder(Spec(shape, dtype), name)


def drawn(graph: Graph, seed: int = 0) -> list[Any]:
    """NumPy arrays for a graph's inputs."""
    generator = numpy.random.default_rng(seed)
    return [generator.uniform(-2, 2, e.shape).astype(e.dtype.name) for e in graph.inputs]


def same(found: list[Any], wanted: list[Any], exact: bool = False) -> None:
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        tolerance = 2e-4 if a.dtype == numpy.float32 else 1e-9
        scale = max(1.0, float(numpy.abs(b).max())) if b.size else 1.0
        if exact:
            numpy.testing.assert_array_equal(a, b)
        else:
            numpy.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * scale)


# --- walking, inlining, rewriting -----------------------------------------------------------


def test_walk_gives_inputs_first_and_each_node_once() -> None:
    x, y = symbol(2), symbol(2)
    with Trace():
        a = x + y
        b = a * a
        np.exp(b)  # unused
        graph = Graph((x, y), (b, a))
    order = graph.walk()
    assert [node.op.name if node.op else "input" for node in order] == [
        "input",
        "input",
        "add",
        "multiply",
    ]
    assert len(set(order)) == len(order)
    assert tuple(walk([a])) == order[:3]


def test_walk_does_not_recurse() -> None:
    x = symbol(2)
    with Trace():
        y = x
        for _ in range(5000):
            y = y + 1
    assert Graph((x,), (y,)).count("add") == 5000


def test_inline_writes_a_call_out() -> None:
    x, y = symbol(2), symbol(2)
    with Trace():
        graph = Graph((x, y), (x - y, x))
        a, b = symbol(2), symbol(2)
        difference, first = inline(graph, (b, a))
    assert first is b
    (found,) = interpret(Graph((a, b), (difference,)), numpy.float32([1, 2]), numpy.float32([5, 7]))
    assert found.tolist() == [4, 5]
    assert graph.outputs[0].node is not difference.node


def test_rewrite_replaces_and_keeps() -> None:
    x = symbol(3)
    with Trace():
        kept = np.exp(x)
        graph = Graph((x,), (np.abs(kept) + 1, kept), ((0, np.abs(kept)),))
        found = rewrite(graph, lambda node, inputs: inputs if node.op is find("absolute") else None)
    assert found.count("absolute") == 0
    assert found.outputs[1] is kept  # nothing it depends on has changed
    assert found.updates == ((0, kept),)
    assert graph.count("absolute") == 2
    verify(found)


def test_describe_names_shared_values_and_updates() -> None:
    x, y = symbol(2, name="x"), symbol(2)
    with Trace():
        shared = x + y
        graph = Graph((x, y), (shared * shared,), ((0, shared - 1),))
    assert str(graph) == "t2 = x + x1\nt2 * t2, x := t2 - 1"


# --- verify ---------------------------------------------------------------------------------


def test_verify_finds_what_is_broken() -> None:
    x, y = symbol(2, 3), symbol(3)
    with Trace():
        z = x + y
    verify(Graph((x, y), (z,)))
    with pytest.raises(InvalidGraph, match=r"after drop.*used but is not an input"):
        verify(Graph((x,), (z,)), after="drop")
    with pytest.raises(InvalidGraph, match="listed twice"):
        verify(Graph((x, x, y), (z,)))
    with pytest.raises(InvalidGraph, match=r"update of float32\[3\] by float32\[2, 3\]"):
        verify(Graph((x, y), (), ((1, z),)))
    wrong = Node(find("add"), (x, y), {}, (Spec((3,), "float32"),))
    with pytest.raises(InvalidGraph, match="should have the specs"):
        verify(Graph((x, y), wrong.entries))


def test_verify_looks_into_bodies() -> None:
    x, inner = symbol(2), symbol(2)
    wrong = Node(find("exp"), (inner,), {}, (Spec((2,), "float64"),))
    body = Graph((inner,), wrong.entries)
    outer = Node(fused, (x,), {"body": body}, wrong.specs)
    with pytest.raises(InvalidGraph, match="should have the specs"):
        verify(Graph((x,), outer.entries))


# --- text -----------------------------------------------------------------------------------


def round_trip(graph: Graph) -> Graph:
    text = print_graph(graph)
    found = verify(parse_graph(text))
    assert print_graph(found) == text
    return found


def test_text_of_every_kind_of_graph() -> None:
    x, y = symbol(4, 6, name="weight"), symbol(dtype="int32")
    with Trace():
        first, second = np.split(x, 2, axis=1)
        chosen = npx.cond(
            x.sum() > 0, lambda a, b: (a * b, b), lambda a, b: (a, b - 1), (first, second)
        )
        noise = np.random.uniform(0, 1, (4, 3))
        graph = Graph(
            (x, y),
            (*chosen, noise.astype("float16"), y + 1, x[1:3, ::2], x),
            ((0, x * 2.5), (1, y - 1)),
            "mixed",
        )
    found = round_trip(graph)
    assert [str(e.spec) for e in found.inputs] == ["float32[4, 6]", "int32[]"]
    assert [e.node.name for e in found.inputs] == ["weight", ""]
    assert found.name == "mixed"
    inputs = drawn(graph)
    same(interpret(found, *inputs), interpret(graph, *inputs), exact=True)
    after = round_trip(optimize(graph))
    same(interpret(after, *inputs), interpret(graph, *inputs))
    assert after.count("fused") > 0


@pytest.mark.parametrize("value", [1, -2, True, 2.5, -0.0, 1e300, float("inf"), float("-inf")])
def test_text_of_numbers(value: Any) -> None:
    found = round_trip(Graph((), (constant(value),)))
    assert found.outputs[0].node.value == value
    assert type(found.outputs[0].node.value) is type(value)


def test_keys_tell_graphs_apart() -> None:
    x, y, half = symbol(4, 6), symbol(4, 6), symbol(4, 6, dtype="float16")
    free = placeholder(Spec((Dim(4, "n", Guards()), 6), "float32"))
    with Trace():
        graphs = [
            *(Graph((x, y), (found,)) for found in (x - y, y - x, x + y, x, y)),
            *(Graph((x,), (constant(number),)) for number in (1, 1.0, True, 0.0, -0.0)),
            *(Graph((x,), (x.sum(axis=axis),)) for axis in (0, 1, None)),
            *(Graph((given,), (given * 2,)) for given in (x, half, free)),
            Graph((x,), (x * 2,), name="other"),
            Graph((x, y), (x,), ((0, y),)),
            Graph((x, y), (x,), ((1, y),)),
            Graph((x, y), (x, y)),
        ]
    keys = [signature(graph) for graph in graphs]
    assert None not in keys
    assert len(set(keys)) == len(graphs)
    assert keys == [signature(graph) for graph in graphs]
    assert signature(Graph((), (captured(np.ones(2)),))) is None


def test_text_of_what_cannot_be_written_or_read() -> None:
    with pytest.raises(GemelError, match="only numbers can be printed"):
        print_graph(Graph((), (captured(np.ones(2)),)))
    x = placeholder(Spec((Dim(4, "n", Guards()), 3), "float32"))
    with pytest.raises(GemelError, match="n is free"), Trace():
        print_graph(Graph((x,), (x.reshape(x.shape[0], 3, 1),)))
    with pytest.raises(GemelError, match="ends inside a graph"):
        parse_graph("graph g\n  input %0: float32[2]\n")
    with pytest.raises(GemelError, match="cannot read"):
        parse_graph("graph g\n  nonsense\nend\n")
    with pytest.raises(GemelError, match=r"no_such.*|unknown operation"):
        parse_graph("graph g\n  input %0: float32[2]\n  %1 = no_such(%0)\n  output %1\nend\n")


# --- passes ---------------------------------------------------------------------------------


def test_fold_keeps_what_only_the_kernel_knows() -> None:
    with Trace():
        graph = Graph(
            (), (constant(1) / 0, np.log(constant(-1.0)), constant(7) // 2, constant(2) ** 3)
        )
        found = optimize(graph, (fold,))
    assert [e.node.is_number for e in found.outputs] == [False, False, True, True]
    assert [e.node.value for e in found.outputs[2:]] == [3, 8]
    same(interpret(found), interpret(graph), exact=True)


def test_drop_keeps_what_changes_the_dtype_or_shape() -> None:
    x = symbol(2, dtype="int32")
    with Trace():
        graph = Graph(
            (x,), (x * 1, x * 1.0, x / 1, x.astype("int32"), x.reshape(2), x.reshape(1, 2))
        )
        found = optimize(graph, (drop,))
    assert [entry is x for entry in found.outputs] == [True, False, False, True, True, False]


def test_drop_makes_views_of_a_repeated_number_that_number_repeated() -> None:
    x = symbol(3)
    with Trace():
        filled = np.full((4, 6), 2.5)
        views = [filled.T, filled[1:, ::-2], filled.reshape(2, 12), *np.split(filled, 2)]
        other = np.full((4, 6), 1.0).view("int32").T  # of other bits than the number's
        found = optimize(Graph((x,), (*views, other, np.full((4, 3), x).T)), (drop,))
    ops = [entry.node.op.name for entry in found.outputs]
    assert ops == ["full"] * 5 + ["transpose"] * 2
    given = numpy.arange(3, dtype="float32")
    for entry, value in zip(found.outputs, interpret(found, given), strict=True):
        assert entry.shape == value.shape
    same(interpret(found, given)[:5], [numpy.full(v.shape, 2.5, "float32") for v in views])


def test_merge_shares_equal_steps_but_not_random_ones() -> None:
    x = symbol(4)
    with Trace():
        outputs = [np.exp(x) * 2, np.exp(x) * 2, np.exp(x) * 2.0, np.exp(x) * True]
        noise = [np.random.uniform(0, 1, (4,)), np.random.uniform(0, 1, (4,))]
        found = optimize(Graph((x,), (*outputs, *noise)), (merge,))
    assert found.count("exp") == 1
    assert found.count("multiply") == 3  # 2, 2.0 and True are different numbers
    assert found.count("uniform") == 2


def test_fuse_makes_one_kernel_of_softmax() -> None:
    x = symbol(5, 7)
    with Trace():
        graph = Graph((x,), (npx.softmax(x * 2) + 1,))
    found = optimize(graph)
    assert [node.op.name for node in found.walk() if node.op] == ["fused"]


@pytest.mark.parametrize("shape", [(1,), (3, 1), (1, 3, 1), (1, 1)])
@pytest.mark.parametrize("name", ["sum", "max", "argmax", "any", "prod"])
def test_reductions_along_axes_of_length_one(shape: tuple[int, ...], name: str) -> None:
    x = symbol(*shape)
    with Trace():
        graph = Graph((x,), [find(name)(x * 2, axis=a) for a in (None, 0, -1)])
    inputs = drawn(graph)
    found = lowered(optimize(graph), backend_of(cpu())).plan()(np.array(inputs[0]))
    same([y.asnumpy() for y in found], interpret(graph, *inputs))


# --- random programs ------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_passes_keep_the_meaning(seed: int) -> None:
    graph = verify(random_graph(seed))
    inputs = drawn(graph, seed)
    wanted = interpret(graph, *inputs, stream=(7, 3))
    same(interpret(round_trip(graph), *inputs, stream=(7, 3)), wanted, exact=True)
    for step in PIPELINE:
        with Trace():
            graph = verify(step(graph), after=step.__name__)
        same(interpret(graph, *inputs, stream=(7, 3)), wanted)
    same(interpret(round_trip(graph), *inputs, stream=(7, 3)), wanted)


@pytest.mark.parametrize("seed", SEEDS)
def test_each_pass_alone_keeps_the_meaning(seed: int) -> None:
    graph = random_graph(seed)
    inputs = drawn(graph, seed)
    wanted = interpret(graph, *inputs)
    with Trace():
        plain = PIPELINE[0](graph)  # fusion needs a graph without composites
        for step in PIPELINE[1:]:
            same(interpret(verify(step(plain), after=step.__name__), *inputs), wanted)


@pytest.mark.parametrize("seed", SEEDS)
def test_plans_compute_what_the_graph_means(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMEL_VERIFY", "1")
    graph = random_graph(seed)
    inputs = drawn(graph, seed)
    np.random.seed(seed)
    stream = _core.random_state()
    wanted = interpret(graph, *inputs, stream=(stream[0], stream[1]))
    plan = lowered(optimize(graph), backend_of(cpu())).plan()
    arrays = [np.array(x, dtype=str(x.dtype)) for x in inputs]
    found = [y.asnumpy() for y in plan(*arrays)]
    found += [arrays[index].asnumpy() for index, _ in graph.updates]
    same(found, wanted)
    overwritten = {index for index, _ in graph.updates}
    for index, (array, x) in enumerate(zip(arrays, inputs, strict=True)):
        if index not in overwritten:
            numpy.testing.assert_array_equal(array.asnumpy(), x)


# --- free extents ---------------------------------------------------------------------------


def test_dims_compute() -> None:
    n = Dim(6, "n", Guards())
    forms = [n + 1, 1 + n, n - 2, 10 - n, n * 3, 3 * n, n // 2, 13 // n, n % 4, (n * 2 + 1) // 3]
    assert [seen(value) for value in forms] == [7, 7, 4, 4, 18, 18, 3, 2, 2, 4]
    assert all(isinstance(value, Dim) for value in forms)
    assert [evaluate(v, {"n": 10}) for v in forms] == [11, 11, 8, 0, 30, 30, 5, 1, 2, 7]
    assert repr(n * 2 + 1) == "2 * n + 1"
    assert n.guards == []


def test_dims_simplify_to_what_is_known() -> None:
    n = Dim(6, "n", Guards())
    assert (n * 4) // 4 is n or repr((n * 4) // 4) == "n"
    assert (n * 4) // n == 4
    assert not isinstance((n * 4) // n, Dim)
    assert [n // n, n % n, n % 1, (n * 4) % 4, (n * 4) % n] == [1, 0, 0, 0, 0]
    assert repr(n * 1) == "n"
    assert n.guards == []


def test_questions_leave_guards_unless_the_answer_is_always_the_same() -> None:
    guards = Guards()
    n = Dim(6, "n", guards)
    assert n == n
    assert n + 1 == 1 * n + 1
    assert same_shape((n, 3), (n, 3))
    assert guards == []
    assert n <= n * 2 and n != n + 1 and not n < n - 1
    assert n > 1 and bool(n) and not n == 1, "only extents above 1 are free"
    assert (n * 3) % 4 >= 0 and maximum(n, 4) >= 4 and minimum(n, 4) >= 2
    assert guards == []
    for _ in range(2):
        assert n > 4
        assert n != 7
        assert n * n <= 3 * n + 18
    texts = [str(guard) for guard in guards]
    assert texts == ["4 < n", "not n == 7", "n * n <= 3 * n + 18"]
    assert all(guard.holds({"n": 5}) for guard in guards)
    assert [guard.holds({"n": 7}) for guard in guards] == [True, False, False]


@pytest.mark.parametrize(
    "question",
    [float, int, round, lambda n: n / 2, lambda n: 1 / n, lambda n: n * 0.5, lambda n: n**2,
     lambda n: 2**n, lambda n: n << 1, lambda n: n & 3, lambda n: n < 6.5],
)  # fmt: skip
def test_numbers_a_dim_cannot_express_fix_its_value(question: Any) -> None:
    guards = Guards()
    n = Dim(6, "n", guards)
    found = question(n)
    assert found == question(6)
    if isinstance(found, Dim):
        assert evaluate(found, {"n": 9}) == question(9)
    else:
        assert [str(guard) for guard in guards] == ["n == 6"]


@pytest.mark.parametrize("seed", range(40))
def test_dims_compute_what_numbers_do(seed: int) -> None:
    """Random expressions at other sizes; an answer given without a guard holds there too."""
    draw = random.Random(seed)

    def made(depth: int) -> Any:
        if not depth:
            return draw.choice(["n", "m", "k", draw.randint(-5, 70)])
        return draw.choice(list(OPERATORS)), made(depth - 1), made(depth - 1)

    def value(made: Any, values: dict[str, int]) -> int:
        if not isinstance(made, tuple):
            return values[made] if isinstance(made, str) else made
        left, right = value(made[1], values), value(made[2], values)
        by_zero = made[0] in ("//", "%") and seen(right) == 0
        return left - left if by_zero else OPERATORS[made[0]](left, right)

    guards = Guards()
    sizes = [{name: draw.choice([2, 3, 7, 64, 65, 999]) for name in "nmk"} for _ in range(8)]
    dims: dict[str, int] = {name: Dim(n, name, guards) for name, n in sizes[0].items()}
    for _ in range(40):
        first, second = made(draw.randint(1, 4)), made(draw.randint(1, 3))
        a, b = value(first, dims), value(second, dims)
        for size in sizes:
            assert value(first, size) == evaluate(a, size) or zero_somewhere(first, sizes[0], value)
        del guards[:]
        answers = [a == b, a < b, a <= b]
        for size in sizes if not guards else ():
            x, y = evaluate(a, size), evaluate(b, size)
            assert [x == y, x < y, x <= y] == answers


def zero_somewhere(made: Any, size: dict[str, int], value: Any) -> bool:
    """Whether an expression divides by zero at the traced size, where Python would have raised."""
    if not isinstance(made, tuple):
        return False
    if made[0] in ("//", "%") and value(made[2], size) == 0:
        return True
    return any(zero_somewhere(part, size, value) for part in made[1:])


def test_broadcasting_a_dim_with_itself_or_one_keeps_it_free() -> None:
    guards = Guards()
    n = Dim(6, "n", guards)
    shape = broadcast(
        "add", Spec((n, 4), "float32"), Spec((4,), "float32"), Spec((n, 1), "float32")
    )
    assert shape[0] is n
    assert all(guard.holds({"n": 17}) for guard in guards)


def test_dims_of_two_names_are_equal_by_guard() -> None:
    guards = Guards()
    n, m = Dim(6, "n", guards), Dim(6, "m", guards)
    assert n == m
    assert guards[0].holds({"n": 3, "m": 3})
    assert not guards[0].holds({"n": 3, "m": 4})


def test_who_reads_what() -> None:
    x, y = placeholder(Spec((3,), "float32")), placeholder(Spec((3,), "float32"))
    with Trace():
        square = x * x
        total = square + y
        graph = Graph((x, y), (total, square), [(1, total)])
    assert graph.readers() == {x: [square.node] * 2, square: [total.node], y: [total.node]}
    assert graph.uses() == {x: 2, square: 2, y: 1, total: 2}
    assert Graph((x,), (x,)).readers() == {}

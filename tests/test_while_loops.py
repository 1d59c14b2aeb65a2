"""while_loop as one step of a plan that ends where its condition does: imperative, compiled, in
NumPy, with gradients; and loops that are written out instead."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
from loop_results import gathered, trained

import gemel
from gemel import autograd, gluon, np, npx
from gemel.errors import ShapeError, TraceError

MOST = 7


def by_numpy(cond: Any, func: Any, variables: Any, most: int) -> Any:
    """while_loop for NumPy arrays."""
    outputs: list[Any] = []
    while len(outputs) < most and bool(cond(*variables)):
        output, variables = func(*variables)
        outputs.append(output)
    if not outputs:
        return None, variables
    missing = [(0, most - len(outputs))]
    stacked = [numpy.stack(each) for each in zip(*outputs, strict=True)]
    return [numpy.pad(x, missing + [(0, 0)] * (x.ndim - 1)) for x in stacked], variables


REFERENCE = SimpleNamespace(np=numpy, loop=by_numpy)
GEMEL = SimpleNamespace(np=np, loop=npx.while_loop)


# --- bodies: (xp, state, free) -> what the loop gives ----------------------------------------


def growing(xp: Any, s: Any, w: Any) -> Any:
    return xp.loop(lambda v: v.sum() < 20, lambda v: ([v * w], [v * 2 + w]), [s], MOST)


def counted(xp: Any, s: Any, w: Any) -> Any:
    """An integer decides when the loop ends; one output is a bool."""

    def step(i: Any, v: Any) -> Any:
        return [v + i, v > w], [i + 1, xp.np.sin(v) * w + i]

    return xp.loop(lambda i, v: i < v.sum(), step, [xp.np.array(0), s], MOST)


def swapped(xp: Any, s: Any, w: Any) -> Any:
    def step(a: Any, b: Any, c: Any) -> Any:
        return [a - b, a], [b, a + c, c * 1.5]

    return xp.loop(lambda a, b, c: (a + c).sum() < 30, step, [s, s * 2, w], MOST)


def product(xp: Any, s: Any, w: Any) -> Any:
    """Products with arrays that are the same in all rounds, one of them transposed."""
    wide = xp.np.stack([w, w * 0.5, w - 0.1])

    def step(v: Any) -> Any:
        new = xp.np.tanh(xp.np.matmul(v, wide) + xp.np.matmul(v, wide.T)) + v * 1.2
        return [xp.np.matmul(new, wide) + w], [new + 1.0]

    return xp.loop(lambda v: v.sum() < 40, step, [xp.np.stack([s, s + 0.5])], MOST)


def nested(xp: Any, s: Any, w: Any) -> Any:
    def outer(v: Any) -> Any:
        found, (last,) = xp.loop(
            lambda u: (u * w).sum() < 5, lambda u: ([u * w], [u * 1.5 + v]), [v * 0.1], MOST - 1
        )
        if found is None:
            found = [xp.np.zeros((MOST - 1, 3))]
        return [found[0].sum(axis=0)], [last * 0.3 + v]

    return xp.loop(lambda v: v.sum() < 9, outer, [s], MOST)


def still(xp: Any, s: Any, w: Any) -> Any:
    """Values that are the same in all rounds, and a state that no round changes or reads."""
    before = xp.np.exp(w * 0.1)

    def step(v: Any, u: Any) -> Any:
        return [xp.np.cos(before) * v, u], [v + xp.np.sin(before * 2) + 1, u]

    return xp.loop(lambda v, u: v.max() < 6, step, [s, w], MOST)


def turned(xp: Any, s: Any, w: Any) -> Any:
    """Reductions and views, whose gradients are summed over axes."""

    def step(v: Any) -> Any:
        scaled = v.reshape((3, 1)) * w.reshape((1, 3))
        return [scaled.T], [v[::-1] + scaled.mean(axis=0) + xp.np.maximum(v, w)]

    return xp.loop(lambda v: abs(v).sum() < 25, step, [s], MOST)


BODIES = [growing, counted, swapped, product, nested, still, turned]
#: Starts with sums of about 0, 1, ... 100, so that all, some or no rounds run.
STARTS = [(0.01, 0.0, -0.02), (0.3, 0.5, 0.2), (1.0, 2.0, 0.5), (3.0, 2.0, 2.5), (50.0, 30.0, 20.0)]
WEIGHTS = (0.6, 0.9, 0.4)


def loops(program: Any, *arrays: Any) -> int:
    return int(program.graph(*arrays).count("loop"))


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_all_ways_agree(body: Any) -> None:
    def function(*arrays: Any) -> Any:
        return gathered(body(GEMEL, *arrays))

    program, made = gemel.compile(function), set()
    for start in STARTS:
        values = [numpy.array(start), numpy.array(WEIGHTS)]
        expected = trained(function, values)
        outputs, last = body(REFERENCE, *values)
        made.add(0 if outputs is None else int((outputs[0] != 0).any(axis=-1).sum()))
        numpy.testing.assert_allclose(expected[0], gathered((outputs, last)), rtol=1e-6)
        arrays = [np.array(x, dtype="float64") for x in values]
        numpy.testing.assert_allclose(program(*arrays).asnumpy(), expected[0], rtol=1e-9)
        for found, right in zip(trained(program, values), expected, strict=True):
            numpy.testing.assert_allclose(found, right, rtol=1e-9, atol=1e-12)
    assert loops(program, *arrays) == 1 and program.traces <= 2
    assert len(made) >= 3, made  # different numbers of rounds


def test_it_ends_where_the_condition_does() -> None:
    """Three of a million rounds run, and the outputs of the others are 0."""
    program = gemel.compile(
        lambda v: npx.while_loop(lambda v: v < 8, lambda v: (v + 0.5, v * 2), v, 10**6)
    )
    for _ in range(3):
        outputs, last = program(np.array(1.0))
        assert outputs[:4].tolist() == [1.5, 2.5, 4.5, 0] and last.item() == 8
        assert outputs.shape == (10**6,) and not outputs[3:].any()


def test_steps_that_are_not_made_do_not_fail() -> None:
    """Nor does what is the same in all steps, and is computed before the loop."""
    table = np.array([1.0, 2.0, 3.0])

    def function(i: Any, j: Any) -> Any:
        def step(i: Any) -> Any:
            return table.take(i, mode="raise") + table.take(j, mode="raise"), i + 1

        return npx.while_loop(lambda i: i < 3, step, i, 6)[0]

    program = gemel.compile(function)
    assert program(np.array(1), np.array(2)).tolist() == [5, 6, 0, 0, 0, 0]
    assert program(np.array(3), np.array(9)).tolist() == [0] * 6
    with pytest.raises(IndexError, match="out of bounds"):
        program(np.array(2), np.array(9)).wait_to_read()
    assert loops(program, np.array(1), np.array(2)) == 1


def test_a_failure_reaches_what_depends_on_it() -> None:
    table = np.array([1.0, 2.0, 3.0])

    def function(i: Any, x: Any) -> Any:
        step = lambda i: (table.take(i, mode="raise"), i + 1)  # noqa: E731
        return npx.while_loop(lambda i: i < 5, step, i, 9)[0] * 2, x * 2

    lost, right = gemel.compile(function)(np.array(1), np.ones(2))
    assert right.tolist() == [2, 2]
    with pytest.raises(IndexError, match="out of bounds"):
        lost.wait_to_read()


def test_loops_and_choices_in_each_other() -> None:
    def function(x: Any, w: Any) -> Any:
        def row(d: Any, c: Any) -> Any:
            (a, (last,)) = npx.while_loop(
                lambda v: v.sum() < 6, lambda v: (v * d, [v * 2 + c]), [d + 0.1], 5
            )
            chosen = npx.cond(last.sum() > 20, lambda v: v * w, lambda v: v - w, [last])
            return (a.sum(axis=0) if len(a) else 0) + chosen, c + 0.25

        found, last = npx.foreach(row, x, w)
        return (found * found).sum() + last.sum()

    values = [numpy.linspace(0, 8, 18).reshape(6, 3), numpy.array(WEIGHTS)]
    program = gemel.compile(function)
    for found, right in zip(trained(program, values), trained(function, values), strict=True):
        numpy.testing.assert_allclose(found, right, rtol=1e-9)
    assert loops(program, *[np.array(x, dtype="float64") for x in values]) == 1


@pytest.mark.parametrize("body", [growing, swapped, product], ids=lambda body: body.__name__)
@pytest.mark.parametrize("start", STARTS[1:3], ids=str)
def test_second_gradients(body: Any, start: Any) -> None:
    def function(*arrays: Any) -> Any:
        return gathered(body(GEMEL, *arrays))

    found = []
    for each in (function, gemel.compile(function)):
        arrays = [np.array(x, dtype="float64") for x in (start, WEIGHTS)]
        for x in arrays:
            x.attach_grad()
        with autograd.record():
            y = each(*arrays)
            first = autograd.grad(y, arrays, create_graph=True, retain_graph=True)
            z = sum((g * g).sum() for g in first)
        z.backward()
        found.append([*first, *(x.grad for x in arrays)])
    for one, other in zip(*found, strict=True):
        numpy.testing.assert_allclose(one.asnumpy(), other.asnumpy(), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int32", "int64", "uint8"])
@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 3)], ids=str)
def test_dtypes_and_shapes(dtype: str, shape: tuple[int, ...]) -> None:
    def function(v: Any) -> Any:
        return npx.while_loop(lambda v: v.max() < 9, lambda v: (v + 1, v * 2), v, 6)

    program = gemel.compile(function)
    for start in (1, 2, 9):
        v = np.full(shape, start, dtype=dtype)
        (outputs, last), (wanted, end) = program(v), function(v)
        assert outputs.dtype == last.dtype == v.dtype and outputs.shape == (6, *shape)
        assert last.astype("float64").tolist() == end.astype("float64").tolist()
        if start < 9:
            assert outputs.astype("float64").tolist() == wanted.astype("float64").tolist()
    assert loops(program, v) == 1


def test_states_without_elements_and_conditions_of_other_kinds() -> None:
    def function(n: Any, x: Any) -> Any:
        return npx.while_loop(lambda n, x: n, lambda n, x: (x, (n - 1, x + 1)), (n, x), 6)

    program = gemel.compile(function)
    for shape in ((0,), (2, 0), (2,)):
        for n in (np.array(4), np.array([4]), np.array([4.0])):
            outputs, (left, last) = program(n, np.zeros(shape))
            assert not left.any() and outputs.shape == (6, *shape)
            assert last.tolist() == (np.zeros(shape) + 4).tolist()
    with pytest.raises(ShapeError, match="one element"):
        program(np.ones((2,)), np.zeros(2))


def test_several_threads_have_their_own_states() -> None:
    program = gemel.compile(
        lambda v: npx.while_loop(lambda v: v.sum() < 500, lambda v: (v, v + 1), v, 300)[1]
    )
    program(np.zeros(3))
    found: dict[int, Any] = {}

    def run(start: int) -> None:
        for _ in range(20):
            found[start] = program(np.full((3,), float(start))).tolist()

    threads = [threading.Thread(target=run, args=(start,)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(found[start] == [167.0] * 3 for start in range(4))


# --- what is written out ---------------------------------------------------------------------


def made_differently() -> Callable[..., Any]:
    count = [0]

    def step(v: Any) -> Any:
        count[0] += 1
        return v * count[0], v + 1

    return lambda x: npx.while_loop(lambda v: v.sum() < 4, step, x, 5)[0]


def sorted_by_numpy() -> Callable[..., Any]:
    return lambda x: npx.while_loop(lambda v: v.sum() < 4, lambda v: (np.sort(v), v + 1), x, 5)[0]


def of_numbers() -> Callable[..., Any]:
    def function(x: Any) -> Any:
        test, step = lambda i, v: v.sum() < 4, lambda i, v: (v * i, (i + 1, v + 1))
        return npx.while_loop(test, step, (1, x), 5)[0]

    return function


def left_by_a_variable() -> Callable[..., Any]:
    def function(x: Any) -> Any:
        kept: list[Any] = [x]

        def step(v: Any) -> Any:
            kept[0] = kept[0] * 2  # an array from outside the loop
            return v + kept[0], v + 1

        return npx.while_loop(lambda v: v.sum() < 4, step, x, 5)[0]

    return function


def counter_is_known() -> Callable[..., Any]:
    def function(x: Any) -> Any:
        rows = [x, x * 2, x * 3, x * 4, x * 5]
        step = lambda i, v: (rows[int(i)], (i + 1, v + rows[int(i)]))  # noqa: E731
        return npx.while_loop(lambda i, v: i < 4, step, (np.array(0), x), 5)[0]

    return function


OUT = [made_differently, sorted_by_numpy, of_numbers, left_by_a_variable, counter_is_known]


@pytest.mark.parametrize("make", OUT, ids=lambda make: make.__name__)
@pytest.mark.parametrize("start", [0.0, 1.0])
def test_loops_that_cannot_be_steps_are_unrolled(make: Any, start: float) -> None:
    x = np.array([start, start + 0.5])
    expected, program = make()(x), gemel.compile(make())
    numpy.testing.assert_allclose(program(x).asnumpy(), expected.asnumpy(), rtol=1e-6)
    assert not loops(gemel.compile(make()), x)


def test_random_numbers_differ_from_round_to_round() -> None:
    program = gemel.compile(
        lambda n: npx.while_loop(
            lambda n: n > 0, lambda n: (np.random.uniform(0, 1, (3,)), n - 1), n, 6
        )[0]
    )
    found = program(np.array(4)).asnumpy()
    assert len(set(found[:4].reshape(-1).tolist())) == 12 and not found[4:].any()


def test_what_a_step_must_not_do() -> None:
    outside = lambda x: x.sum() * 0  # noqa: E731

    def writes(x: Any) -> Any:
        total = outside(x)

        def step(v: Any) -> Any:
            nonlocal total
            total += v.sum()
            return v, v + 1

        return npx.while_loop(lambda v: v.sum() < 9, step, x, 5)[1] + total

    with pytest.raises(TraceError, match="must not"):
        gemel.compile(writes)(np.ones(2))
    more = lambda v: (v, [v, v])  # noqa: E731
    wider = lambda v: (v, np.concatenate([v, v]))  # noqa: E731
    for step, match in ((more, "returned 2 variables"), (wider, "keep the shapes and dtypes")):
        with pytest.raises(ShapeError, match=match):
            gemel.compile(
                lambda x, step=step: npx.while_loop(lambda v: v.sum() < 9, step, x, 5)[0]
            )(np.ones(2))


def test_saved_networks_write_it_out(tmp_path: Any) -> None:
    class Net(gluon.HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            self.dense = gluon.nn.Dense(3, in_units=3)

        def forward(self, x: Any) -> Any:
            step = lambda v: (v, npx.relu(self.dense(v)) + v + 1)  # noqa: E731
            found, last = npx.while_loop(lambda v: v.sum() < 30, step, x, 5)
            return found * last

    net = Net()
    net.initialize()
    net.hybridize()
    x = np.array(numpy.random.default_rng(0).random((2, 3)), dtype="float32")
    expected = net(x).asnumpy()
    symbol, weights = net.export(str(tmp_path / "net"))
    loaded = gluon.SymbolBlock.imports(symbol, ["data"], weights)
    numpy.testing.assert_allclose(loaded(x).asnumpy(), expected, rtol=1e-5)
    gemel.save(net, str(tmp_path / "net.gemel"))
    again = gemel.load(str(tmp_path / "net.gemel"))
    numpy.testing.assert_allclose(again(x).asnumpy(), expected, rtol=1e-5)


def test_steps_without_an_output_are_saved(tmp_path: Any) -> None:
    """A step may return None for its output, imperatively, compiled and in files."""

    class Net(gluon.HybridBlock):
        def forward(self, x: Any) -> Any:
            step = lambda i, v: (None, (i + 1, v * 2))  # noqa: E731
            return npx.while_loop(lambda i, v: v.sum() < 30, step, (np.array(0.0), x), 9)[1][1]

    net, x = Net(), np.array([1.0, 2.0])
    expected = net(x)
    net.hybridize()
    assert net(x).tolist() == expected.tolist() == [16, 32]
    symbol, weights = net.export(str(tmp_path / "net"))
    loaded = gluon.SymbolBlock.imports(symbol, ["data"], weights)
    assert loaded(x).tolist() == expected.tolist()
    gemel.save(net, str(tmp_path / "net.gemel"))
    assert gemel.load(str(tmp_path / "net.gemel"))(x).tolist() == expected.tolist()


# --- conditions that may fail -----------------------------------------------------------------


def looked_up(x: Any, first: Any, most: int) -> Any:
    """Loops as long as the table's element at the position is above 0."""
    table = np.array([1.0, -4.0, 2.0, 3.0, 5.0, 6.0])
    return npx.while_loop(
        lambda i, v: table.take(i, mode="raise") > 0,
        lambda i, v: ([v * i, i * 2], [i + 1, v * v + x]),
        [first, x],
        most,
    )


@pytest.mark.parametrize(("start", "most"), [(2, 4), (4, 2), (-2, 8), (0, 7), (-3, 4), (5, 1)])
def test_nothing_asks_for_the_condition_after_the_last_round(start: int, most: int) -> None:
    found = []
    whole = partial(looked_up, most=most)
    for program in (whole, gemel.compile(whole)):
        x = np.array([0.5, 0.25], dtype="float64")
        x.attach_grad()
        with autograd.record():
            outputs, variables = program(x, np.array(start))
            total = outputs[0].sum() + (variables[1] * variables[1]).sum()
        total.backward()
        found.append([*outputs, *variables, x.grad])
    for a, b in zip(*found, strict=True):
        numpy.testing.assert_allclose(a.asnumpy(), b.asnumpy())


@pytest.mark.parametrize("length", [3, 4, 5, 6])
def test_the_last_round_is_the_last_place_of_a_table(length: int) -> None:
    def run(i: Any) -> Any:
        table = np.ones((length,))
        return npx.while_loop(
            lambda i: table.take(i, mode="raise") > 0, lambda i: (i * 2, i + 1), i, length
        )

    outputs, last = gemel.compile(run)(np.array(0))
    assert outputs.tolist() == [2 * i for i in range(length)] and last.item() == length
    with pytest.raises(IndexError):
        gemel.compile(run)(np.array(1))[0].tolist()


def test_a_condition_that_may_fail_is_still_one_step() -> None:
    def run(i: Any) -> Any:
        table = np.ones((9,))
        return npx.while_loop(
            lambda i: table.take(i, mode="raise") > 0, lambda i: (i * 2, i + 1), i, 9
        )[0]

    assert loops(gemel.compile(run), np.array(0)) == 1


# --- what functions must return ---------------------------------------------------------------


def looping(func: Any) -> Any:
    """A loop over a vector, as long as its sum is below 9."""
    return lambda x: npx.while_loop(lambda x: x.sum() < 9, func, [x], 3)


def each(body: Any) -> Any:
    """A loop over the elements of a vector."""
    return lambda x: npx.foreach(body, x, np.zeros(()))


#: Loops that are wrong, and what is said of them in a trace.
WRONG: list[tuple[Any, type[Exception], str]] = [
    (looping(lambda x: x + 1), TypeError, "while_loop: func must return .output, variables., not"),
    (looping(lambda x: ([], None)), TypeError, "while_loop: func must return.* of arrays"),
    (looping(lambda x: ([], [x, x])), ShapeError, "while_loop: a step returned 2 variables"),
    (looping(lambda x: ([], [x.astype("int32")])), ShapeError, "while_loop: in a trace, a step"),
    (each(lambda a, s: a + s), TypeError, "foreach: body must return .output, states., not"),
    (each(lambda a, s: (None, s)), TypeError, "foreach: body must return.* of arrays"),
    (
        lambda x: npx.while_loop(lambda x: x < 9, lambda x: ([], [x + 1]), [x], 3),
        ShapeError,
        r"while_loop: the condition bool\[2\] must have one element",
    ),
    (
        lambda x: npx.cond(x.sum() > 0, lambda x: x, lambda x: None, (x,)),
        TypeError,
        "cond: both functions must return an array or a list of arrays, not None",
    ),
]


@pytest.mark.parametrize(("program", "kind", "told"), WRONG)
def test_functions_that_return_something_else(program: Any, kind: Any, told: str) -> None:
    with pytest.raises(kind, match=told):
        gemel.compile(program)(np.ones((2,)))
    if "in a trace" not in told and kind is not ShapeError and "cond" not in told:
        with pytest.raises(kind, match=told):
            program(np.ones((2,)))


def test_no_output_may_be_none() -> None:
    program = looping(lambda x: (None, x + 1))
    for function in (program, gemel.compile(program)):
        outputs, (last,) = function(np.ones((2,)))
        assert outputs == [] and last.tolist() == [4, 4]

"""Loops as one step of a plan: imperative, unrolled, as a loop, and by NumPy, with gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
from loop_results import gathered, trained

import gemel
from gemel import autograd, gluon, np, npx
from gemel.errors import ShapeError
from gemel.ir.trace import Trace
from gemel.ops.rounds import loop
from gemel.passes import optimize
from gemel.runtime.backend import backend_of
from gemel.runtime.image import Loop
from gemel.runtime.lower import lowered


@pytest.fixture
def written_out(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """A function after whose call all loops are unrolled."""
    yield lambda: monkeypatch.setattr(Trace, "least_rounds", None)


def by_numpy(body: Any, data: Any, states: Any) -> Any:
    """foreach over lists of NumPy arrays."""
    outputs = []
    for index in range(len(data[0])):
        output, states = body([x[index] for x in data], states)
        outputs.append(output)
    return [numpy.stack(each) for each in zip(*outputs, strict=True)], states


REFERENCE = SimpleNamespace(np=numpy, foreach=by_numpy)
GEMEL = SimpleNamespace(np=np, foreach=npx.foreach)


# --- bodies: (xp, data, states, free) -> a number --------------------------------------------


def plain(xp: Any, x: Any, s: Any, w: Any) -> Any:
    return xp.foreach(lambda d, c: ([d[0] * w + c[0]], [xp.np.tanh(d[0] + c[0] * w)]), [x], [s])


def a_state_as_output(xp: Any, x: Any, s: Any, w: Any) -> Any:
    def body(d: Any, c: Any) -> Any:
        new = c[0] * w + d[0]
        return [new, c[0], d[0]], [new]

    return xp.foreach(body, [x], [s])


def swapped_states(xp: Any, x: Any, s: Any, w: Any) -> Any:
    return xp.foreach(lambda d, c: ([c[0] - d[0]], [c[1], c[0], c[0] * w]), [x], [s, s * 2, s * 3])


def unused(xp: Any, x: Any, s: Any, w: Any) -> Any:
    """An unused state, unused data, and an output that is the same in all rounds."""
    return xp.foreach(lambda d, c: ([w * 1.0, d[0] * 2], [c[0], w * 3.0]), [x, x * 2], [s, s])


def product(xp: Any, x: Any, s: Any, w: Any) -> Any:
    """Products with a state, with the data, and with a transposed weight."""
    wide = xp.np.stack([w, w * 0.5, w - 1.0])

    def body(d: Any, c: Any) -> Any:
        row = d[0].reshape((1, 3))
        new = xp.np.tanh(xp.np.matmul(c[0], wide) + xp.np.matmul(row, wide.T) + w)
        return [xp.np.matmul(new, wide)], [new]

    return xp.foreach(body, [x], [xp.np.stack([s, s + 1.0])])


def nested(xp: Any, x: Any, s: Any, w: Any) -> Any:
    def outer(d: Any, c: Any) -> Any:
        inner_data = xp.np.stack([d[0], d[0] * 2, c[0], w, w + 1])
        found, last = xp.foreach(
            lambda e, t: ([e[0] * t[0] * w], [xp.np.sin(t[0]) + d[0]]), [inner_data], [c[0]]
        )
        return [found[0].sum(axis=0)], [last[0] * 0.5]

    return xp.foreach(outer, [x], [s])


def closure_of_closure(xp: Any, x: Any, s: Any, w: Any) -> Any:
    """Values computed before the loop, and values in the loop that never change."""
    before = xp.np.exp(w * 0.1)

    def body(d: Any, c: Any) -> Any:
        return [d[0] * xp.np.cos(before) + (w * w).sum()], [c[0] * xp.np.sin(before) + d[0].sum()]

    return xp.foreach(body, [x], [s])


def turned_data(xp: Any, x: Any, s: Any, w: Any) -> Any:
    """Views of data: backwards, every second element, a broadcast row."""
    both = xp.np.concatenate([x, x * 3.0])
    data = [x[::-1], both[::2], xp.np.broadcast_to(w, x.shape)]
    return xp.foreach(lambda d, c: ([d[0] * d[1]], [c[0] * d[2] + d[1]]), data, [s])


def other_dtypes(xp: Any, x: Any, s: Any, w: Any) -> Any:
    count = xp.np.zeros((), dtype="int32")
    half = x.astype("float32")

    def body(d: Any, c: Any) -> Any:
        more = (d[1] > 0).astype("int32").sum().astype("int32")
        return [d[1] * c[0].astype("float32"), d[0] > 0], [c[0] + d[1] * w, c[1] + more]

    return xp.foreach(body, [x, half], [s, count])


def written_in_place(xp: Any, x: Any, s: Any, w: Any) -> Any:
    def body(d: Any, c: Any) -> Any:
        made = d[0] * 2
        made[1] = c[0][0]
        made[:1] += w[:1]
        return [made], [made + c[0]]

    return xp.foreach(body, [x], [s])


def sums(xp: Any, x: Any, s: Any, w: Any) -> Any:
    """Gradients that are summed over axes, or accumulated in the loop."""

    def body(d: Any, c: Any) -> Any:
        scaled = d[0].reshape((3, 1)) * w.reshape((1, 3)) + xp.np.maximum(w, 0.1)
        return [scaled], [c[0] + scaled.mean(axis=0) * w.T]

    return xp.foreach(body, [x], [s])


BODIES = [
    plain, a_state_as_output, swapped_states, unused, product, nested, closure_of_closure,
    turned_data, other_dtypes, written_in_place, sums,
]  # fmt: skip


def inputs(length: int, seed: int = 0) -> list[Any]:
    random = numpy.random.default_rng(seed)
    return [random.uniform(-1, 1, shape) for shape in ((length, 3), (3,), (3,))]


def has_loop(program: Any, *arrays: Any) -> bool:
    return program.graph(*arrays).count("loop") > 0


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_all_ways_agree(body: Any, written_out: Any) -> None:
    def function(*arrays: Any) -> Any:
        return gathered(body(GEMEL, *arrays))

    whole = gemel.compile(function)
    for length in (5, 1, 9, 2, 4):
        values = inputs(length, length)
        expected = trained(function, values)
        reference = gathered(body(REFERENCE, *values))
        numpy.testing.assert_allclose(expected[0], reference, rtol=1e-6)
        plain_call = whole(*[np.array(x, dtype="float64") for x in values])
        numpy.testing.assert_allclose(plain_call.asnumpy(), expected[0], rtol=1e-6)
        for found, right in zip(trained(whole, values), expected, strict=True):
            numpy.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-9)
    arrays = [np.array(x, dtype="float64") for x in inputs(5)]
    assert has_loop(whole, *arrays)
    assert whole.traces <= 6  # with and without recording, and one for each short length
    written_out()
    other = gemel.compile(function)
    for found, right in zip(trained(other, inputs(5)), trained(function, inputs(5)), strict=True):
        numpy.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-9)
    assert not has_loop(other, *arrays)


def test_another_length_is_no_new_trace() -> None:
    def function(x: Any, s: Any) -> Any:
        inner = lambda d, c: npx.foreach(lambda e, t: (e * t, t + e), d, c)  # noqa: E731
        return npx.foreach(lambda d, c: inner(d, c), x, s)[0]

    program = gemel.compile(function)
    for shape in ((5, 6), (40, 9), (4, 4), (7, 100)):
        x = numpy.random.default_rng(1).uniform(-0.1, 0.1, shape)
        given = np.array(x), np.array(1.0, dtype="float64")
        numpy.testing.assert_allclose(program(*given).asnumpy(), function(*given).asnumpy())
    assert program.traces == 1
    assert has_loop(program, *given)


class Steps(gluon.HybridBlock):
    """A loop whose rounds are the first to read the parameters of its blocks."""

    def __init__(self, cell: Any) -> None:
        super().__init__()
        self.cell, self.head = cell, gluon.nn.Dense(2, in_units=4)
        self.scale = np.array([1.0, 2.0, 3.0, 4.0])

    def forward(self, x: Any) -> Any:
        def step(element: Any, states: Any) -> Any:
            output, states = self.cell(element, states)
            return self.head(output * self.scale), states

        begun = self.cell.begin_state(x.shape[1])
        outputs, last = npx.foreach(step, x, begun)
        return outputs.sum() + sum((each * each).sum() for each in last)


CELLS = {
    "RNNCell": lambda: gluon.rnn.RNNCell(4, input_size=3),
    "LSTMCell": lambda: gluon.rnn.LSTMCell(4, input_size=3),
    "GRUCell": lambda: gluon.rnn.GRUCell(4, input_size=3),
    "two cells": lambda: _after_each_other(
        gluon.rnn.GRUCell(5, input_size=3), gluon.rnn.ResidualCell(gluon.rnn.RNNCell(5)),
        gluon.rnn.LSTMCell(4, input_size=5),
    ),
}  # fmt: skip


def _after_each_other(*cells: Any) -> Any:
    found = gluon.rnn.HybridSequentialRNNCell()
    for cell in cells:
        found.add(cell)
    return found


@pytest.mark.parametrize("kind", CELLS)
def test_parameters_that_a_round_reads_first_are_shared_by_all(kind: str) -> None:
    """They are inputs of the loop, which is whole, and valid for any length."""
    net = Steps(CELLS[kind]())
    net.initialize()
    draw = numpy.random.default_rng(3)
    parameters = net.collect_params().values()
    for length in (6, 9, 4):
        x = np.array(draw.uniform(-1, 1, (length, 2, 3)).astype("float32"))
        found = []
        for compiled in (False, True):
            net.hybridize(compiled)
            with autograd.record():
                y = net(x)
            y.backward()
            found.append([y.item(), *(p.grad().asnumpy() for p in parameters)])
        for one, other in zip(*found, strict=True):
            numpy.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    compiled = net._own.compiled
    assert has_loop(compiled, x) and compiled.traces <= 2  # with and without recording


@pytest.mark.parametrize("length", [6, 2])
def test_rounds_that_change_nothing(length: int) -> None:
    """What they return is what they were given, so nothing of the loop is left."""
    x = np.array(numpy.random.default_rng(0).normal(size=(length, 3)))
    for body in (lambda e, s: (e, s), lambda e, s: ([e, e], s)):
        found = gemel.compile(lambda x, body=body: npx.foreach(body, x, [])[0])(x)
        for each in found if isinstance(found, list) else [found]:
            numpy.testing.assert_array_equal(each.asnumpy(), x.asnumpy())


def test_stacked_outputs_are_not_stacked_again() -> None:
    def function(x: Any, s: Any) -> Any:
        def body(d: Any, c: Any) -> Any:
            new = np.tanh(d[0] + c[0] * 0.5)
            return [new, d[0], new.reshape(new.shape), new * 2], [new]

        outputs, states = npx.foreach(body, [x], [s])
        return (*outputs, *states)

    program = gemel.compile(function)
    values = [np.array(x, dtype="float64") for x in inputs(6)[:2]]
    graph = optimize(program.graph(*values))
    (found,) = [node for node in graph.walk() if node.op is loop]
    assert len(found.entries) == 3  # new, new * 2, and the final state
    for one, other in zip(program(*values), function(*values), strict=True):
        numpy.testing.assert_array_equal(one.asnumpy(), other.asnumpy())


@pytest.mark.parametrize("turned", [False, True], ids=["forwards", "backwards"])
def test_rounds_find_stacked_states_where_they_were_put(turned: bool) -> None:
    def function(x: Any, s: Any) -> Any:
        data = x[::-1] if turned else x
        outputs, states = npx.foreach(lambda d, c: (c * 0.5 + d, c * 0.5 + d), data, s)
        return outputs, states, (outputs * outputs).sum()

    def gradients(given: Any) -> list[Any]:
        x, s = (np.array(v, dtype="float64") for v in inputs(7)[:2])
        x.attach_grad(), s.attach_grad()
        with autograd.record():
            found = given(x, s)[2]
        found.backward()
        return [x.grad.asnumpy(), s.grad.asnumpy()]

    program = gemel.compile(function)
    values = [np.array(x, dtype="float64") for x in inputs(7)[:2]]
    image = lowered(optimize(program.graph(*values)), backend_of(gemel.cpu()))
    (loop,) = [item for item in image.items if isinstance(item, Loop)]
    assert len(loop.items) == 1  # no copy to the next round
    for one, other in zip(program(*values), function(*values), strict=True):
        numpy.testing.assert_allclose(one.asnumpy(), other.asnumpy(), rtol=1e-12)
    for one, other in zip(gradients(program), gradients(function), strict=True):
        numpy.testing.assert_allclose(one, other, rtol=1e-12)


# --- random bodies ---------------------------------------------------------------------------


def random_body(seed: int) -> Callable[..., Any]:
    """A loop with several data, states and outputs, each chosen at random."""

    def function(xp: Any, x: Any, s: Any, w: Any) -> Any:
        random = Random(seed)
        two = random.choice(([x, x * 2], [x[::-1], x], [x, xp.np.sin(x), x + w]))
        first = random.choice(([s], [s, w], [s, s * w, w * 2.0]))
        program = [random.random() for _ in range(40)]

        def body(data: Any, states: Any) -> Any:
            draw = Random(program[0])
            values = [*data, *states, w]
            for _ in range(draw.randint(1, 7)):
                a, b = draw.choice(values), draw.choice(values)
                made: list[Callable[[], Any]] = [
                    lambda a=a, b=b: a * b,
                    lambda a=a, b=b: xp.np.tanh(a) - b,
                    lambda a=a, b=b: xp.np.maximum(a, b) + a.sum(),
                    lambda a=a, b=b: xp.np.concatenate([a[1:], b[:1]]),
                    lambda a=a, b=b: xp.np.matmul(
                        a.reshape((1, 3)), (b.reshape((3, 1)) * w.reshape((1, 3))).T
                    ).reshape((3,)),
                    lambda a=a, b=b: xp.np.where(a > b, a, b * 0.5),
                    lambda a=a, b=b: (a.reshape((3, 1)) + b).mean(axis=0),
                    lambda a=a, b=b: a[::-1] * 0.9,
                ]
                values.append(draw.choice(made)())
            states = [draw.choice(values) * 0.5 if draw.random() < 0.6 else draw.choice(values)
                      for _ in states]  # fmt: skip
            return [draw.choice(values) for _ in range(draw.randint(1, 3))], states

        return xp.foreach(body, two, first)

    return function


@pytest.mark.parametrize("seed", range(16))
def test_random_bodies(seed: int) -> None:
    body = random_body(seed)

    def function(*arrays: Any) -> Any:
        return gathered(body(GEMEL, *arrays))

    values = inputs(6, seed)
    expected = trained(function, values)
    numpy.testing.assert_allclose(expected[0], gathered(body(REFERENCE, *values)), 1e-9)
    program = gemel.compile(function)
    for found, right in zip(trained(program, values), expected, strict=True):
        numpy.testing.assert_allclose(found, right, rtol=1e-8, atol=1e-12)
    arrays = [np.array(x, dtype="float64") for x in values]
    numpy.testing.assert_allclose(program(*arrays).asnumpy(), expected[0], 1e-12)
    assert has_loop(program, *arrays)


# --- what is written out ---------------------------------------------------------------------


def counted() -> Callable[..., Any]:
    count = [0]

    def body(x: Any, s: Any) -> Any:
        count[0] += 1
        return x * count[0], s

    return lambda x, s: npx.foreach(body, x, s)[0]


def written_outside(x: Any, s: Any) -> Any:
    total = x[0] * 0

    def body(d: Any, c: Any) -> Any:
        nonlocal total
        total += d
        return d + total, c

    found, _ = npx.foreach(body, x * 1, s)
    return found + total


def written_state(x: Any, s: Any) -> Any:
    def body(d: Any, c: Any) -> Any:
        c += d
        return c * 2, c

    return npx.foreach(body, x, s * 1)[0]


def wider_state(x: Any, s: Any) -> Any:
    return npx.foreach(lambda d, c: (d, c.astype("float64") + d), x, s.astype("float32"))[1]


def number_state(x: Any, s: Any) -> Any:
    return npx.foreach(lambda d, c: (d * c[0] + s, [c[0] + 1]), x, [0])[0]


def kept_outside(x: Any, s: Any) -> Any:
    kept = []

    def body(d: Any, c: Any) -> Any:
        kept.append(d + c)
        return d, c * 2

    return npx.foreach(body, x, s)[0] + sum(kept)


def left_by_the_round_before(x: Any, s: Any) -> Any:
    before: list[Any] = [s]

    def body(d: Any, c: Any) -> Any:
        found = before[0] * d + c
        before[0] = d
        return found, found

    return npx.foreach(body, x, s)[0]


OUT = [
    lambda: kept_outside,
    lambda: left_by_the_round_before,
    lambda: written_outside,
    lambda: written_state,
    lambda: wider_state,
    lambda: number_state,
]


@pytest.mark.parametrize("make", [counted, *OUT])
def test_loops_that_cannot_be_steps_are_unrolled(make: Any) -> None:
    x, s = inputs(6)[:2]
    expected = make()(np.array(x, dtype="float64"), np.array(s, dtype="float64"))
    arrays = np.array(x, dtype="float64"), np.array(s, dtype="float64")
    program = gemel.compile(make())
    numpy.testing.assert_allclose(program(*arrays).asnumpy(), expected.asnumpy(), rtol=1e-6)
    program = gemel.compile(make())
    program(*arrays)
    assert not has_loop(program, *arrays)


def test_random_numbers_differ_from_round_to_round() -> None:
    program = gemel.compile(
        lambda x: npx.foreach(lambda d, s: (d + np.random.uniform(0, 1, (3,)), s), x, [])[0]
    )
    assert len(set(program(np.zeros((6, 3))).reshape(-1).tolist())) == 18


def draws_between(x: Any) -> Any:
    begin = np.random.uniform(0, 1, (3,))
    body = lambda e, s: (e * np.random.normal(0, 1, (3,)) + s, s + np.random.uniform())  # noqa: E731
    y, last = npx.foreach(body, x, begin)
    return y + np.random.uniform(0, 1, (3,)), last


def draws_in_nested_loops(x: Any) -> Any:
    inner = lambda d, c: npx.foreach(  # noqa: E731
        lambda e, t: (npx.dropout(e, 0.5) + t, t + np.random.uniform()), d, c
    )
    rows = x.reshape(x.shape[0], 1, 3) * np.ones((1, 4, 1))
    return (*npx.foreach(inner, rows, np.zeros((3,))), np.random.randint(0, 100, (4,)))


def draws_for_nobody(x: Any) -> Any:
    def body(e: Any, s: Any) -> Any:
        np.random.uniform(0, 1, (2,))
        return e + np.random.gamma(2.0, 1.0, (3,)), s * npx.dropout(e, 0.2)

    return npx.foreach(body, x, np.ones(3))


def draws_around_what_is_drawn(x: Any) -> Any:
    """Rounds that draw, and read what was drawn before them."""
    far = np.random.uniform(0, 1, (3,))

    def outer(row: Any, s: Any) -> Any:
        near = np.random.uniform(0, 1, (3,))
        inner = lambda e, t: (e * near * far + np.random.uniform(), t + near * npx.dropout(e, 0.2))  # noqa: E731
        return npx.foreach(inner, row, s + far)

    return npx.foreach(outer, x.reshape(x.shape[0], 1, 3) * np.ones((1, 4, 1)), np.zeros(3))


@pytest.mark.parametrize("function", [
    draws_between, draws_in_nested_loops, draws_for_nobody, draws_around_what_is_drawn,
])  # fmt: skip
def test_loops_draw_what_their_rounds_draw_without_one(function: Any) -> None:
    """The same bits in every round, call and gradient, and afterwards."""
    program = gemel.compile(function)
    for length in (6, 4, 2):
        found = []
        for each in (function, program):
            np.random.seed(11)
            results: list[Any] = []
            for _ in range(2):
                x = np.arange(3.0 * length).reshape(length, 3) / 10
                x.attach_grad()
                with autograd.record():
                    outputs = each(x)
                    loss = sum((y.astype("float32") ** 2).sum() for y in outputs)
                loss.backward()
                results += [*outputs, x.grad, np.random.uniform(0, 1, (2,))]
            found.append(results)
        for one, other in zip(*found, strict=True):
            numpy.testing.assert_array_equal(one.asnumpy(), other.asnumpy())
        assert has_loop(program, x) or length < 4


def test_a_block_in_a_loop_that_updates_statistics() -> None:
    net, other = gluon.nn.BatchNorm(in_channels=3), gluon.nn.BatchNorm(in_channels=3)
    for each in (net, other):
        each.initialize()
    x = np.array(numpy.random.default_rng(0).random((6, 2, 3)))
    run = lambda block: npx.foreach(lambda d, s: (block(d), s), x, [])[0]  # noqa: E731
    with autograd.record():
        expected = run(other)
        found = gemel.compile(lambda x: npx.foreach(lambda d, s: (net(d), s), x, [])[0])(x)
    numpy.testing.assert_allclose(found.asnumpy(), expected.asnumpy(), rtol=1e-5)
    mean = other.running_mean.data()
    numpy.testing.assert_allclose(net.running_mean.data().asnumpy(), mean.asnumpy(), rtol=1e-5)


# --- edges -----------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [plain, a_state_as_output, product, nested, sums])
def test_second_gradients(body: Any) -> None:
    def function(*arrays: Any) -> Any:
        return gathered(body(GEMEL, *arrays))

    found = []
    for each in (function, gemel.compile(function)):
        arrays = [np.array(x, dtype="float64") for x in inputs(5)]
        for x in arrays:
            x.attach_grad()
        with autograd.record():
            y = each(*arrays)
            first = autograd.grad(y, arrays, create_graph=True, retain_graph=True)
            z = sum((g * g).sum() for g in first)
        z.backward()
        found.append([*first, *(x.grad for x in arrays)])
    for one, other in zip(*found, strict=True):
        numpy.testing.assert_allclose(one.asnumpy(), other.asnumpy(), rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("used", [(True, False), (False, True), (True, True)], ids=str)
def test_second_gradients_of_some_outputs(used: tuple[bool, bool]) -> None:
    def function(x: Any, s: Any) -> Any:
        return npx.foreach(lambda d, c: (np.tanh(d) * c, np.tanh(c + d)), x, s)

    found = []
    for each in (function, gemel.compile(function)):
        arrays = [np.ones((6, 3), dtype="float64"), np.full((3,), 0.5, dtype="float64")]
        for x in arrays:
            x.attach_grad()
        with autograd.record():
            ends = [(y * y).sum() for y, use in zip(each(*arrays), used, strict=True) if use]
            (first,) = autograd.grad(sum(ends), arrays[:1], create_graph=True, retain_graph=True)
            z = (first * first).sum()
        z.backward()
        found.append([first, *(x.grad for x in arrays)])
    for one, other in zip(*found, strict=True):
        numpy.testing.assert_allclose(one.asnumpy(), other.asnumpy(), rtol=1e-7, atol=1e-10)


def test_views_of_what_all_rounds_see() -> None:
    table = np.array([1.0, 2.0, 3.0])
    program = gemel.compile(
        lambda x, s: npx.foreach(lambda d, s: (table[1:] * d, s + table[:2]), x, s)
    )
    x, s = np.arange(10.0).reshape(5, 2), np.ones(2)
    outputs, last = program(x, s)
    numpy.testing.assert_allclose(outputs.asnumpy(), x.asnumpy() * [2, 3])
    assert last.tolist() == [6, 11] and has_loop(program, x, s)


def test_lengths_are_named_while_states_are_left_out() -> None:
    net = gluon.rnn.LSTM(4, input_size=3, use_sequence_length=True)
    net.initialize()
    x, lengths = np.ones((5, 2, 3)), np.array([5, 3])
    wanted = net(x, sequence_length=lengths)
    net.hybridize()
    numpy.testing.assert_allclose(net(x, sequence_length=lengths).asnumpy(), wanted.asnumpy())


def test_a_failure_in_a_loop_reaches_what_depends_on_it() -> None:
    table = np.array([1.0, 2.0, 3.0])

    def function(i: Any, x: Any) -> Any:
        found, _ = npx.foreach(lambda d, s: (table.take(d, mode="raise"), s + 1), i, x)
        return found * 2, x * 2

    program = gemel.compile(function)
    good, right = program(np.array([0, 1, 2, 1, 0]), np.ones(2))
    assert good.tolist() == [2, 4, 6, 4, 2] and right.tolist() == [2, 2]
    assert has_loop(program, np.array([0, 1, 2, 1, 0]), np.ones(2))
    for _ in range(2):
        bad, right = program(np.array([0, 1, 7, 1, 0]), np.ones(2))
        assert right.tolist() == [2, 2]
        with pytest.raises(IndexError, match="out of bounds"):
            bad.wait_to_read()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int32", "int64"])
def test_dtypes(dtype: str) -> None:
    function = lambda x, s, w: npx.foreach(  # noqa: E731
        lambda d, c: (d * c + w, c + d), x, s
    )
    x = np.array(numpy.arange(18).reshape(6, 3) % 4).astype(dtype)
    s, w = np.ones(3).astype(dtype), np.array([1, 2, 3]).astype(dtype)
    for found, right in zip(gemel.compile(function)(x, s, w), function(x, s, w), strict=True):
        assert found.dtype == right.dtype
        assert found.astype("float64").tolist() == right.astype("float64").tolist()


def test_sums_over_rounds_of_two_bytes_are_wide() -> None:
    """In bfloat16 the sum of 600 ones would stop at 256."""
    w = np.zeros((3,), dtype="bfloat16")
    w.attach_grad()
    step = gemel.compile(lambda x, w: npx.foreach(lambda e, s: (e * w, s), x, [])[0])
    with autograd.record():
        y = step(np.ones((600, 3), dtype="bfloat16"), w)
    y.backward()
    assert w.grad.dtype == "bfloat16"
    assert w.grad.astype("float32").tolist() == [600, 600, 600]


def test_choices_in_loops_and_loops_in_choices() -> None:
    def function(x: Any, s: Any, w: Any) -> Any:
        def body(d: Any, c: Any) -> Any:
            new = npx.cond(d.sum() > 0, lambda a, b: a * b, lambda a, b: a - b * w, [c, d])
            return new + d, new

        def found() -> Any:
            return npx.foreach(body, x, s)[0].sum()

        return npx.cond(x[0, 0] > 0, found, lambda: (x * s).sum())

    for seed in (1, 2, 3, 4):
        values = inputs(6, seed)
        pairs = zip(
            trained(gemel.compile(function), values), trained(function, values), strict=True
        )
        for one, other in pairs:
            numpy.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("options", [
    {}, {"bidirectional": True, "num_layers": 2}, {"use_sequence_length": True},
    {"use_sequence_length": True, "bidirectional": True}, {"layout": "NTC"},
    {"dtype": "float64", "projection_size": 3, "state_clip_min": -0.2, "state_clip_max": 0.3},
], ids=str)  # fmt: skip
@pytest.mark.parametrize("layer", ["RNN", "LSTM", "GRU"])
def test_recurrent_layers(layer: str, options: dict[str, Any]) -> None:
    if "projection_size" in options and layer != "LSTM":
        pytest.skip("only an LSTM has one")
    dtype = options.get("dtype", "float32")
    net = getattr(gluon.rnn, layer)(4, input_size=3, **options)
    net.initialize(gemel.init.Uniform(0.7))
    parameters = list(net.collect_params().values())
    runs = []
    for hybrid in (False, True):
        net.hybridize(hybrid)
        for length in (5, 8):
            shape = (2, length, 3) if "layout" in options else (length, 2, 3)
            x = np.array(numpy.random.default_rng(length).uniform(-1, 1, shape), dtype=dtype)
            lengths = [np.array([length, 3])] if "use_sequence_length" in options else []
            x.attach_grad()
            with autograd.record():
                outputs, states = net(x, net.begin_state(2, dtype=dtype), *lengths)
                y = (outputs * outputs).sum() + sum((s * s * s).sum() for s in states)
            y.backward()
            runs.append([outputs, *states, x.grad.copy(), *(p.grad().copy() for p in parameters)])
    for imperative, hybridized in ((0, 2), (1, 3)):
        for one, other in zip(runs[imperative], runs[hybridized], strict=True):
            numpy.testing.assert_allclose(one.asnumpy(), other.asnumpy(), rtol=2e-4, atol=1e-5)


def test_files_of_rounds_that_make_arrays_like_what_they_get(tmp_path: Any) -> None:
    """`ones_like` of a state is computed before the loop, where there is no such state."""

    def function(x: Any) -> Any:
        body = lambda e, s: (e * np.ones_like(s + e), np.where(np.zeros_like(s) == 0, s + e, s))  # noqa: E731
        return npx.foreach(body, x, np.zeros_like(x[0]))

    program, x = gemel.compile(function), np.arange(18.0).reshape(6, 3)
    program(x)
    gemel.save(program, tmp_path / "loop.gemel")
    loaded = gemel.load(tmp_path / "loop.gemel")
    for length in (6, 8):
        x = np.arange(3.0 * length).reshape(length, 3)
        for one, other in zip(loaded(x), function(x), strict=True):
            numpy.testing.assert_array_equal(one.asnumpy(), other.asnumpy())


def test_exports(tmp_path: Any) -> None:
    class Net(gluon.HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            self.layer = gluon.rnn.GRU(4, input_size=3)
            self.dense = gluon.nn.Dense(3, in_units=4, flatten=False)

        def forward(self, x: Any) -> Any:
            found, last = npx.foreach(
                lambda d, s: (self.dense(d) + s, np.tanh(d.sum() + s)), self.layer(x), x[0, :1] * 0
            )
            return found * last

    net = Net()
    net.initialize()
    net.hybridize()
    x = np.array(numpy.random.default_rng(0).random((6, 2, 3)), dtype="float32")
    expected = net(x).asnumpy()
    symbol, weights = net.export(str(tmp_path / "net"))
    loaded = gluon.SymbolBlock.imports(symbol, ["data"], weights)
    numpy.testing.assert_allclose(loaded(x).asnumpy(), expected, rtol=1e-5)
    gemel.save(net, str(tmp_path / "net.gemel"))
    again = gemel.load(str(tmp_path / "net.gemel"))
    numpy.testing.assert_allclose(again(x).asnumpy(), expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        ([()], "the data has no axes"),
        ([(2,), (3,)], r"first axes have lengths \[2, 3\]"),
    ],
)
def test_foreach_says_what_is_wrong_with_its_data(shapes: list[Any], words: str) -> None:
    data = [np.zeros(shape) for shape in shapes]
    with pytest.raises(ShapeError, match=words):
        npx.foreach(lambda x, s: (s, s), data, np.zeros(3))


def halved(x: Any, s: Any) -> Any:
    return npx.foreach(lambda e, c: ([e * c, (e / 2).sum()], c + e), x, s)


def test_foreach_over_an_empty_axis() -> None:
    """Nothing is computed; the outputs have the shapes and dtypes that they would have."""
    compiled, s = gemel.compile(halved), np.array([1.0, 2.0, 3.0])
    s.attach_grad()
    for length in (5, 0, 1, 0):
        for function in (halved, compiled):
            with autograd.record():
                (products, sums), last = function(np.ones((length, 3), dtype="int32"), s)
                loss = products.sum() + sums.sum() + last.sum()
            loss.backward()
            assert products.shape == (length, 3) and products.dtype == "float32"
            assert sums.shape == (length,)
            assert last.tolist() == [length + 1, length + 2, length + 3]
            assert s.grad.tolist() == [length + 1] * 3
    drawn, _ = npx.foreach(lambda e, c: (np.random.normal(size=2), c), np.ones((0, 3)), s)
    assert drawn.shape == (0, 2)


def test_foreach_over_an_empty_axis_with_a_body_that_needs_values() -> None:
    with pytest.raises(ShapeError, match="is empty"):
        npx.foreach(lambda e, c: (e if e.sum() > 0 else c, c), np.ones((0, 3)), np.zeros(3))

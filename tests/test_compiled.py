"""Compiled functions: when one program serves many calls, and when another one is made."""

from __future__ import annotations

import copy
import gc
import inspect
import threading
import weakref
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy
import pytest

import gemel
from gemel import autograd, gluon, np, npx, profiler
from gemel.errors import GradientError, TraceError
from gemel.gluon import nn
from gemel.runtime.cache import counters


def close(a: Any, b: Any, tolerance: float = 1e-5) -> None:
    numpy.testing.assert_allclose(a.asnumpy(), b.asnumpy(), rtol=tolerance, atol=tolerance)


def normal(*shape: int) -> Any:
    return np.random.normal(0, 1, shape)


# --- free batch sizes -----------------------------------------------------------------------


def made() -> int:
    """How many kernels were compiled or loaded so far."""
    return counters["compiled"] + counters["loaded"]


def test_a_free_batch_size_stays_free() -> None:
    def forward(x: Any) -> Any:
        flat = x.reshape(x.shape[0], -1)
        return npx.softmax(npx.relu(flat - flat.mean(axis=0)) * 2 + 1).max(axis=1)

    function = gemel.compile(forward)
    inputs = [normal(n, 3, 4) for n in (6, 7, 2, 3, 12, 13, 40, 100)]
    wanted = [forward(x) for x in inputs]
    kernels = []
    for x, y in zip(inputs, wanted, strict=True):
        found = function(x)
        kernels.append(made())
        close(found, y)
        assert found.shape == x.shape[:1]
    assert function.traces == 1
    assert len(function._programs) == 1
    assert kernels[1:] == [kernels[1]] * 7, "a new batch size needs no new kernel"


def test_products_of_a_free_batch_size_have_few_kernels() -> None:
    weight, bias = normal(12, 5), normal(5)

    def forward(x: Any) -> Any:
        return npx.relu(np.matmul(x.reshape(x.shape[0], -1), weight) + bias)

    function = gemel.compile(forward)
    inputs = [normal(n, 3, 4) for n in range(2, 140)]
    wanted = [np.matmul(x.reshape(-1, 12), weight) + bias for x in inputs]
    before = made()
    for x, y in zip(inputs, wanted, strict=True):
        numpy.testing.assert_allclose(
            function(x).asnumpy(), y.asnumpy().clip(0), rtol=1e-4, atol=1e-5
        )
    assert function.traces == 1
    # The rows of a micro-tile come from a short list; the choice keeps waste small.
    assert made() - before <= 14


def test_a_free_batch_size_stays_free_while_training() -> None:
    net = nn.HybridSequential()
    net.add(nn.Flatten(), nn.Dense(7, activation="relu"), nn.Dropout(0.25), nn.Dense(5))
    net.initialize()
    net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})

    def step(n: int) -> None:
        with autograd.record():
            loss = (net(normal(n, 2, 3)) ** 2).mean()
        loss.backward()
        trainer.step(1)

    for n in (64, 96, 13, 3):
        step(n)
    kernels = made()
    for n in (96, 3, 128, 13, 192, 64):
        step(n)
    npx.waitall()
    assert net._own.compiled.traces == 1
    assert made() == kernels, "a batch size seen before, or a multiple, needs no new kernel"


def test_branching_on_the_batch_size_adds_a_guard() -> None:
    def forward(x: Any) -> Any:
        return x * 2 if x.shape[0] > 10 else x + 1

    function = gemel.compile(forward)
    sizes = (4, 5, 10, 11, 12, 3, 2)
    found = [function(np.ones((n, 2)))[0, 0].item() for n in sizes]
    assert found == [2, 2, 2, 2, 2, 2, 2]
    ten, eleven = function(np.full((10, 2), 3.0)), function(np.full((11, 2), 3.0))
    assert [ten[0, 0].item(), eleven[0, 0].item()] == [4, 6]
    assert function.traces == 2


def test_arithmetic_on_the_batch_size() -> None:
    def forward(x: Any) -> Any:
        n = x.shape[0]
        halves = x.reshape(n // 2, 2, -1) if n % 2 == 0 else x.reshape(n, 1, -1)
        return halves.sum(axis=1) / n

    function = gemel.compile(forward)
    for n in (4, 6, 5, 8, 7, 12):
        x = normal(n, 3)
        close(function(x), forward(x))
    assert function.traces == 2  # one for even and one for odd sizes


def test_batch_size_one_is_a_program_of_its_own() -> None:
    net = nn.HybridSequential()
    net.add(nn.Dense(4, activation="tanh"), nn.Dense(3))
    net.initialize()
    one, many = normal(1, 6), normal(5, 6)
    wanted = net(one), net(many)
    net.hybridize()
    for _ in range(2):
        close(net(one), wanted[0])
        close(net(many), wanted[1])
    assert net(one).shape == (1, 3)
    assert net._own.compiled.traces == 2


def test_batch_size_zero() -> None:
    function = gemel.compile(lambda x: np.exp(x).sum(axis=1))
    assert function(np.ones((3, 2))).shape == (3,)
    assert function(np.zeros((0, 2))).shape == (0,)


def test_two_batches_of_one_size_or_of_two() -> None:
    function = gemel.compile(lambda x, y: (x.sum(axis=0) + y.sum(axis=0), np.concatenate([x, y])))
    for n, m in ((3, 3), (4, 4), (3, 5), (6, 2)):
        x, y = normal(n, 2), normal(m, 2)
        total, joined = function(x, y)
        close(total, x.sum(axis=0) + y.sum(axis=0))
        assert joined.shape == (n + m, 2)


def test_a_batch_size_that_meets_another_extent() -> None:
    net = nn.HybridSequential()
    net.add(nn.Dense(8, activation="relu"), nn.Dense(4))
    net.initialize()
    inputs = [normal(n, 6) for n in (5, 4, 6, 8, 16)]
    wanted = [npx.softmax(net(x)) for x in inputs]
    net.hybridize()
    for x, y in zip(inputs, wanted, strict=True):
        close(npx.softmax(net(x)), y)
    assert net._own.compiled.traces == 1


def test_other_dtypes_and_ranks_are_other_programs() -> None:
    function = gemel.compile(lambda x: x + 1)
    for dtype in ("float32", "float64", "int32"):
        assert str(function(np.ones((2, 2), dtype=dtype)).dtype) == dtype
    assert function(np.ones(3)).shape == (3,)
    assert function.traces == 4
    assert function(np.ones((5, 2))).shape == (5, 2)
    assert function.traces == 4


# --- arguments and results ------------------------------------------------------------------


class Pair(NamedTuple):
    first: Any
    second: Any


def test_nested_arguments_and_results() -> None:
    def forward(state: Any, pair: Any) -> Any:
        h, (c, name) = state["h"], state["more"]
        return {
            "sum": h + c,
            "pair": Pair(pair.second, [pair.first * 2]),
            "none": None,
            "n": (name,),
        }

    function = gemel.compile(lambda s, p: {k: v for k, v in forward(s, p).items() if k != "n"})
    a, b = np.array([1.0, 2.0]), np.array([3.0, 4.0])
    for _ in range(2):
        found = function({"h": a, "more": (b, "label")}, Pair(a, b))
        assert found["sum"].tolist() == [4, 6]
        assert type(found["pair"]) is Pair
        assert found["pair"].first.tolist() == [3, 4]
        assert found["pair"].second[0].tolist() == [2, 4]
        assert found["none"] is None
    assert function.traces == 1


@pytest.mark.parametrize(
    "form",
    [
        lambda a, b: a,
        lambda a, b: (a,),
        lambda a, b: (a, b),
        lambda a, b: [a, b],
        lambda a, b: {"a": a, "b": [b, (a,)]},
        lambda a, b: Pair(a, b),
        lambda a, b: (None, a, b),
        lambda a, b: (a, b, a),
    ],
)
def test_every_call_gives_results_of_one_form(form: Any) -> None:
    compiled = gemel.compile(lambda x: form(x + 1, x.sum(axis=0)))
    for _ in range(3):  # traced, then found by Python, then straight to the plan
        for rows in (3, 5):
            x = numpy.arange(2.0 * rows, dtype="float32").reshape(rows, 2)
            found = compiled(np.array(x))
            wanted = form(x + 1, x.sum(axis=0))
            assert repr(_plain(found)) == repr(_plain(wanted))
            again = compiled(np.array(x))
            assert found is not again
            _plain(again)


def _plain(value: Any) -> Any:
    """Nested results with plain lists in place of arrays."""
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(_plain, value))
    if isinstance(value, (list, tuple)):
        return type(value)(map(_plain, value))
    return value if value is None else value.tolist()


def test_lists_of_arrays() -> None:
    function = gemel.compile(lambda xs: [x * i for i, x in enumerate(xs)])
    found = function([np.ones(2), np.ones(3)])
    assert [x.tolist() for x in found] == [[0, 0], [1, 1, 1]]
    assert type(found) is list
    assert len(function([np.ones(2)] * 4)) == 4
    assert function.traces == 2


def test_arguments_that_cannot_be_keys() -> None:
    function = gemel.compile(lambda x, how: x)
    for how in ({1, 2}, [3, {"a": (bytearray(1),)}]):
        told = "set" if isinstance(how, set) else "bytearray"
        with pytest.raises(TraceError, match=f"arguments must be arrays, .*, not a {told}"):
            function(np.ones(2), how)


def test_slices_are_constants_of_the_program() -> None:
    """Also before Python 3.12, where they have no hash."""
    function = gemel.compile(lambda x, key: x[key])
    x = np.arange(6).reshape(2, 3)
    for key in (slice(1), slice(None, None, -1), slice(1), (..., slice(numpy.int64(1), None))):
        assert function(x, key).tolist() == x[key].tolist()
    assert function.traces == 3
    with pytest.raises(TypeError, match="integer"):
        function(x, slice(1.5))


def test_extents_as_keys_of_results_are_numbers() -> None:
    function = gemel.compile(lambda x: {x.shape[0]: x.sum()})
    for n in (2, 3, 0, 3):
        assert function(np.ones(n)) == {n: n}


def test_copies_in_a_trace() -> None:
    def function(x: Any, by: Any) -> Any:
        y, z = by(x), by(x * 2)
        y += 1
        return x, y, z

    x = np.ones(2)
    for by in (copy.copy, copy.deepcopy):
        found = gemel.compile(function)(x, by)
        assert [each.tolist() for each in found] == [[1, 1], [2, 2], [2, 2]]


def test_formats_need_values() -> None:
    assert gemel.compile(lambda x: [x, f"{x}"][0])(np.ones(2)).tolist() == [1, 1]
    with pytest.raises(TraceError, match="needs the value of <_Symbol sum>"):
        gemel.compile(lambda x: f"{x.sum():.3f}")(np.ones(2))


class Scaling:
    """An object whose method is compiled."""

    def __init__(self, by: float) -> None:
        self.by = by
        self.shift = np.ones(2) * by

    @gemel.compile
    def scaled(self, x: Any, more: float = 1.0) -> Any:
        return x * self.by * more + self.shift


def test_methods_of_objects() -> None:
    twice, thrice = Scaling(2), Scaling(3)
    x = np.ones(2)
    assert twice.scaled(x).tolist() == [4, 4] and thrice.scaled(x).tolist() == [6, 6]
    assert twice.scaled(x, more=2.0).tolist() == Scaling.scaled(twice, x, 2.0).tolist() == [6, 6]
    twice.shift.attach_grad()
    with autograd.record():
        y = twice.scaled(x)
    y.backward()
    assert twice.shift.grad.tolist() == [1, 1]
    thrice.shift[:] = 0
    assert thrice.scaled(x).tolist() == [3, 3]


def test_arguments_a_function_does_not_take_name_it() -> None:
    def scaled(x: Any, by: float = 1) -> Any:
        return x * by

    with pytest.raises(TypeError, match="scaled: got an unexpected keyword argument 'to'"):
        gemel.compile(scaled)(np.ones(2), to=3)
    with pytest.raises(TypeError, match="scaled: multiple values for argument 'x'"):
        gemel.compile(scaled)(np.ones(2), x=3)


def test_numbers_are_constants_of_the_program() -> None:
    function = gemel.compile(lambda x, k: x * k)
    x = np.array([1, 2], dtype="int32")
    found = [function(x, k) for k in (2, 2.0, True, 3, 2)]
    assert [y.tolist() for y in found] == [[2, 4], [2.0, 4.0], [1, 2], [3, 6], [2, 4]]
    assert [str(y.dtype) for y in found] == ["int32", "float32", "int32", "int32", "int32"]
    assert function.traces == 4


def test_python_control_flow_runs_while_tracing() -> None:
    seen: list[str] = []

    def forward(x: Any, steps: int, flip: bool) -> Any:
        seen.append("traced")
        for i in range(x.shape[1]):
            x = x + i
        for _ in range(int(steps)):
            x = -x if flip else x * 2
        return x

    function = gemel.compile(forward)
    ones = np.ones((2, 3))
    assert function(ones, 3, False)[0].tolist() == [32, 32, 32]
    assert function(ones, 3, True)[0].tolist() == [-4, -4, -4]
    assert function(ones, 3, False)[0].tolist() == [32, 32, 32]
    assert seen == ["traced"] * 2


@pytest.mark.parametrize(
    "forward",
    [
        lambda x: x if x.sum() > 0 else -x,
        lambda x: x * int(x[0]),
        lambda x: x * float(x.max()),
        lambda x: x.asnumpy(),
        lambda x: x.sum().item(),
        lambda x: x.tolist(),
        lambda x: numpy.asarray(x),
        lambda x: range(10)[x.argmax()],
    ],
)
def test_a_branch_on_a_traced_value_is_an_error(forward: Any) -> None:
    with pytest.raises(TraceError, match=r"known only when the program runs; use npx\.cond"):
        gemel.compile(forward)(np.ones(3))
    assert np.ones(2).sum().item() == 2  # no trace is left open


def test_an_operation_that_blocks_is_an_error_in_a_trace() -> None:
    with pytest.raises(TraceError, match="depends on values"):
        gemel.compile(lambda x: np.nonzero(x))(np.ones(3))
    with pytest.raises(TraceError, match="depends on values"):
        gemel.compile(lambda x: x[x > 0])(np.ones(3))


def test_an_error_in_the_function_leaves_no_trace_behind() -> None:
    function = gemel.compile(lambda x: np.matmul(x, x))
    with pytest.raises(gemel.errors.ShapeError, match="matmul"):
        function(np.ones((2, 3)))
    assert gemel.ir.current.current_trace() is None
    assert function(np.ones((2, 2))).tolist() == [[2, 2], [2, 2]]


def test_print_of_a_symbol_shows_its_name() -> None:
    shown: list[str] = []

    def forward(data: Any) -> Any:
        shown.append(f"{data} {data + 1!r}")
        return data

    gemel.compile(forward)(np.ones(2))
    assert shown == ["<_Symbol data> <_Symbol add>"]


# --- what a program closes over -------------------------------------------------------------


def test_captured_arrays_are_read_anew() -> None:
    table = np.array([1.0, 2.0, 3.0])
    function = gemel.compile(lambda x: x + table)
    x = np.zeros(3)
    assert function(x).tolist() == [1, 2, 3]
    table[1] = 20
    assert function(x).tolist() == [1, 20, 3]
    table += 1
    assert function(x).tolist() == [2, 21, 4]


@pytest.mark.parametrize("key", [slice(None, None, 2), slice(1, None), slice(None, None, -1), None])
def test_captured_views_are_read_anew(key: Any) -> None:
    table = np.arange(12).reshape(4, 3).astype("float32")
    view = table.T if key is None else table[key, key]
    function = gemel.compile(lambda x: x * view)
    x = np.ones(view.shape)
    assert function(x).tolist() == view.tolist()
    table += 5
    assert function(x).tolist() == view.tolist()
    repeated = np.broadcast_to(table[1], (2, 3))
    assert gemel.compile(lambda x: x + repeated)(np.zeros((2, 3))).tolist() == repeated.tolist()


def test_inputs_of_any_layout() -> None:
    function = gemel.compile(lambda x: np.matmul(x, x.T) + x.sum())
    base = normal(6, 8)
    for x in (base, base[:, ::2], base.T, base[::-1], base[1:4], np.broadcast_to(base[0], (3, 8))):
        plain = x.copy()
        close(function(x), np.matmul(plain, plain.T) + plain.sum(), 1e-4)


# --- training and inference -----------------------------------------------------------------


def test_training_and_inference_are_two_programs() -> None:
    function = gemel.compile(lambda x: npx.dropout(x, 0.5) + (1 if autograd.is_training() else 0))
    x = np.ones((4, 50))
    assert function(x).tolist() == x.tolist()
    with autograd.record():
        found = function(x)
    assert set(found.reshape(-1).tolist()) == {1.0, 3.0}
    with autograd.predict_mode():
        assert function(x).tolist() == x.tolist()
    with autograd.train_mode():
        assert set(function(x).reshape(-1).tolist()) == {1.0, 3.0}
    assert function.traces == 2


def test_dropout_draws_the_same_mask_both_ways() -> None:
    def forward(x: Any) -> Any:
        first = npx.dropout(x, 0.5)
        second = npx.dropout(first + np.random.normal(0, 1, x.shape), 0.25)
        return first, second

    x = np.ones((8, 33))
    x.attach_grad()
    function = gemel.compile(forward)
    results = []
    for call in (forward, function):
        np.random.seed(11)
        with autograd.record():
            for _ in range(2):
                found = call(x)
        found[1].backward()
        results.append([*found, x.grad.copy(), np.random.uniform(0, 1, (3,))])
    for imperative, compiled in zip(*results, strict=True):
        close(imperative, compiled, 1e-6)


def batch_norm_net() -> Any:
    np.random.seed(5)
    net = nn.HybridSequential()
    net.add(nn.Dense(6), nn.BatchNorm(), nn.Activation("relu"), nn.Dense(3))
    net.initialize()
    net(np.ones((2, 4)))
    return net


def test_running_statistics_are_updated_in_place_both_ways() -> None:
    nets = [batch_norm_net(), batch_norm_net()]
    nets[1].hybridize()
    trainers = [gluon.Trainer(n.collect_params(), "sgd", {"learning_rate": 0.05}) for n in nets]
    held = [[net[1].running_mean.data(), net[1].running_var.data()] for net in nets]
    before = [array.tolist() for array in held[1]]
    for _ in range(3):
        x = normal(16, 4)
        for net, trainer in zip(nets, trainers, strict=True):
            with autograd.record():
                loss = (net(x) ** 2).sum()
            loss.backward()
            trainer.step(16)
    with autograd.train_mode():  # statistics are updated without a gradient too
        x = normal(16, 4)
        for net in nets:
            net(x)
    for imperative, compiled in zip(*held, strict=True):
        close(imperative, compiled)
    assert [array.tolist() for array in held[1]] != before
    x = normal(7, 4)
    close(nets[0](x), nets[1](x), 1e-4)
    for a, b in zip(*(n.collect_params().values() for n in nets), strict=True):
        close(a.data(), b.data(), 1e-4)


# --- cond -----------------------------------------------------------------------------------


def choice(x: Any, y: Any) -> Any:
    return npx.cond(x.sum() > 0, lambda x, y: (x * y * 3, y), lambda x, y: (x - y * y, x), (x, y))


def test_cond_chooses_when_it_runs() -> None:
    function = gemel.compile(choice)
    y = np.array([2.0, 3.0])
    for values in ([1.0, 1.0], [-1.0, -1.0], [5.0, -1.0]):
        x = np.array(values)
        for found, wanted in zip(function(x, y), choice(x, y), strict=True):
            close(found, wanted)
    assert function.traces == 1


def test_cond_has_a_gradient() -> None:
    function = gemel.compile(choice)
    for values in ([1.0, 1.5], [-1.0, -0.5]):
        grads = []
        for call in (choice, function):
            x, y = np.array(values), np.array([2.0, 3.0])
            x.attach_grad()
            y.attach_grad()
            with autograd.record():
                first, second = call(x, y)
                loss = (first * first).sum() + second.sum()
            loss.backward()
            grads.append((x.grad.copy(), y.grad.copy()))
        for imperative, compiled in zip(*grads, strict=True):
            close(imperative, compiled)


def test_cond_within_cond_and_over_closures() -> None:
    scale = np.array([10.0])

    def forward(x: Any) -> Any:
        shifted = x + 1

        def inner(x: Any) -> Any:
            return npx.cond(x.max() > 2, lambda x: x * scale, lambda x: x + shifted, (x,))

        return npx.cond(x.sum() > 0, inner, lambda x: -shifted, (x,))

    function = gemel.compile(forward)
    for values in ([1.0, 1.0], [3.0, 1.0], [-1.0, -1.0]):
        close(function(np.array(values)), forward(np.array(values)))
    assert function.traces == 1


def test_cond_on_free_batch_sizes() -> None:
    function = gemel.compile(
        lambda x: npx.cond(
            x.sum() > 0, lambda x: x.reshape(x.shape[0], -1) * 2, lambda x: x - 1, (x,)
        )
    )
    for n in (3, 4, 9):
        assert function(np.ones((n, 2))).tolist() == [[2, 2]] * n
        assert function(-np.ones((n, 2))).tolist() == [[-2, -2]] * n
    assert function.traces == 1


# --- what belongs to whom -------------------------------------------------------------------


class Giver(nn.HybridBlock):
    """Returns its parameter, and a view of it, as results."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = gluon.Parameter("weight", shape=(2, 3), init="ones")

    def forward(self, x: Any) -> Any:
        weight = self.weight.data()
        return weight, weight.reshape(3, 2), weight[0], x


@pytest.mark.parametrize(
    "forward",
    [
        lambda x: x,
        lambda x: x.reshape(-1),
        lambda x: x.T,
        lambda x: x[0],
        lambda x: x * 1,
        lambda x: x.astype("float32"),
        lambda x: np.broadcast_to(x, (2, *x.shape)),
        lambda x: np.split(x, 2)[1],
        lambda x: x.detach(),
    ],
)
def test_results_never_alias_arguments(forward: Any) -> None:
    x = np.array([[1.0, 2.0], [3.0, 4.0]])
    kept = forward(x).tolist()
    found = gemel.compile(forward)(x)
    assert found.tolist() == kept
    x[...] = 0
    assert found.tolist() == kept
    found[...] = 9
    assert x.tolist() == [[0, 0], [0, 0]]


def test_results_never_alias_each_other() -> None:
    def forward(x: Any) -> Any:
        y = x + 1
        return y, y, y.reshape(-1), x, x

    found = gemel.compile(forward)(np.zeros((2, 2)))
    for i, array in enumerate(found):
        array[...] = 10 + i
    assert [array.reshape(-1)[0].item() for array in found] == [10, 11, 12, 13, 14]


@pytest.mark.parametrize("training", [False, True])
def test_results_never_alias_parameters(training: bool) -> None:
    net = Giver()
    net.initialize()
    net.hybridize()
    x = np.ones((2,))
    with autograd.record() if training else autograd.pause():
        found = net(x)
    for array in found:
        array[...] = 5
    assert net.weight.data().tolist() == [[1, 1, 1], [1, 1, 1]]
    assert x.tolist() == [1, 1]


def test_gradients_through_results_that_are_inputs() -> None:
    net = Giver()
    net.initialize()
    net.hybridize()
    with autograd.record():
        weight, turned, row, _ = net(np.ones(2))
        loss = weight.sum() + (turned * turned).sum() + row.sum() * 3
    loss.backward()
    assert net.weight.grad().tolist() == [[6, 6, 6], [3, 3, 3]]


def test_a_result_that_gradients_read_is_computed_once() -> None:
    function = gemel.compile(lambda x: (np.exp(x), npx.sigmoid(x), x))
    x = np.array([0.5, 1.0])
    x.attach_grad()
    profiler.set_state("run")
    with autograd.record():
        a, b, c = function(x)
        y = a * b * c
    y.backward()
    profiler.set_state("stop")
    made = {
        row.label.split()[0]: row.times for row in profiler.steps() if row.program != "backward"
    }
    assert made == {"exp": 1, "sigmoid": 1, "copy": 1}


@pytest.mark.parametrize("way", ["imperative", "compiled"])
def test_results_that_gradients_read_may_be_overwritten_where_that_is_recorded(way: str) -> None:
    function = np.exp if way == "imperative" else gemel.compile(lambda x: np.exp(x))
    x = np.array([0.0, 1.0])
    x.attach_grad()
    with autograd.record():
        y = function(x)
        y *= y
    y.backward()
    numpy.testing.assert_allclose(x.grad.asnumpy(), 2 * numpy.exp([0, 2]), rtol=1e-6)
    with autograd.record():
        y = function(x)
    y[:1] = 0
    with pytest.raises(GradientError, match="overwritten in place outside of the recording"):
        y.backward()


def test_an_input_given_twice() -> None:
    function = gemel.compile(lambda a, b: (a * 2, a + b))
    x = np.array([1.0, 2.0])
    x.attach_grad()
    with autograd.record():
        double, total = function(x, x)
        loss = (double * total).sum()
    loss.backward()
    assert total.tolist() == [2, 4]
    assert x.grad.tolist() == [8, 16]


def test_threads_share_the_plans_of_many_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gemel.tracing.compiled.SIZES", 4)
    function = gemel.compile(lambda x: x.sum(axis=0) * x + x.shape[0])
    wrong: list[Any] = []

    def work(seed: int) -> None:
        for n in range(2 + seed, 60, 3):
            x = np.ones((n, 3))
            x.attach_grad()
            with autograd.record():
                y = function(x)
            y.backward()
            if y.tolist() != [[2.0 * n] * 3] * n or function(np.zeros((n, 3))).shape != (n, 3):
                wrong.append((n, y.tolist()))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(function._bound) <= 4 + len(threads)


@pytest.mark.parametrize(
    "use",
    [
        lambda function, x: function(x).asnumpy(),
        lambda function, x: function.source(x),
        lambda function, x: function.plan_summary(x),
        lambda function, x: function.graph(x, optimized=True),
    ],
    ids=["call", "source", "plan_summary", "graph"],
)
def test_programs_that_passes_bind_to_sizes(use: Callable[[Any, Any], Any]) -> None:
    """What passes ask of sizes is known once they have run. Until then another thread may have
    traced a program that seems to fit, too."""
    others = [np.ones((3, 4)), np.ones((2, 4))]

    def bind(graph: Any) -> Any:
        int(graph.inputs[0].shape[0])  # a guard holds it from now on
        if others:
            thread = threading.Thread(target=function.graph, args=(others.pop(),))
            thread.start()
            thread.join()
        return graph

    function = gemel.compile(lambda x: x * 2, passes=[bind])
    function.graph(np.ones((7, 4)))
    use(function, np.ones((5, 4)))
    assert others == []
    assert function.traces == 4  # for 7, 3, 2 and 5
    assert function(np.ones((5, 4))).tolist() == [[2.0] * 4] * 5
    assert function.traces == 4


class Scaled:
    """An object with a compiled method."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    @gemel.compile
    def times(self, x: Any, text: str) -> Any:
        return x * self.factor


def test_programs_for_many_objects_and_constants_are_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in "KINDS", "SIZES":
        monkeypatch.setattr(f"gemel.tracing.compiled.{name}", 4)
    made = []
    for factor in range(9):
        each = Scaled(factor)
        made.append(weakref.ref(each))
        assert each.times(np.ones(2), str(factor)).tolist() == [factor, factor]
    first = Scaled(3)
    for text in map(str, range(9)):
        assert first.times(np.ones(2), text).tolist() == [3, 3]
    del each
    gc.collect()
    assert len(Scaled.times._programs) == len(Scaled.times._bound) == 4
    assert [ref() for ref in made] == [None] * 9


def test_calls_inside_calls_become_one_program() -> None:
    inner = gemel.compile(lambda x: npx.softmax(x))
    outer = gemel.compile(lambda x: inner(x * 2) + 1)
    x = normal(3, 4)
    close(outer(x), npx.softmax(x * 2) + 1)
    assert inner.traces == 0
    assert "1 kernel, 0 bytes" in outer.plan_summary(x)


def test_gradients_agree_with_imperative_ones() -> None:
    def forward(x: Any, w: Any, b: Any) -> Any:
        h = np.tanh(np.matmul(x, w) + b)
        first, second = np.split(h, 2, axis=1)
        return npx.log_softmax(first * second)[:, 0].mean(), h.max(axis=1)

    function = gemel.compile(forward)
    start = [normal(5, 4), normal(4, 6), normal(6)]
    results = []
    for call in (forward, function):
        arrays = [a.copy() for a in start]
        for a in arrays:
            a.attach_grad()
        with autograd.record():
            value, largest = call(*arrays)
            loss = value * 3 + (largest**2).sum()
        loss.backward()
        results.append([loss, *(a.grad for a in arrays)])
    for imperative, compiled in zip(*results, strict=True):
        close(imperative, compiled)


def test_zeros_of_both_signs_are_two_numbers() -> None:
    function = gemel.compile(lambda x, number: x * number)
    x = np.ones((2,))
    for number in (0.0, -0.0, 0.0):
        assert numpy.signbit(function(x, number).asnumpy()).tolist() == [number.hex()[0] == "-"] * 2


def test_parameters_replaced_while_a_plan_is_added_are_not_added() -> None:
    """As if another thread had replaced them between the lookup and the addition."""
    from gemel import _core

    double = gemel.compile(lambda x: x * 2)
    x = np.ones((2, 3))
    double(x)
    plan = double._find((x,))[0].inference([x])
    site = _core.CallSite(lambda *arguments: "by Python")
    generation = site.generation
    _core.forget_call_sites()
    site.add(generation, False, False, (x,), 0, plan, (), None)
    assert site(x) == "by Python"
    site.add(site.generation, False, False, (x,), 0, plan, (), None)
    assert site(x)[0].tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: np.dot(x, np.ones((3, 2))),
        lambda x: npx.softmax(np.dot(np.ones((2, 4)), x)),
        lambda x: npx.relu(np.dot(x, np.full((3, 4), 2.0)) + np.full((3, 4), 2.0)[0]),
        lambda x: np.dot(np.ones((4, 3)), np.ones((3, 4))) + x.sum(),
        lambda x: np.dot(x, np.ones((3, 3))) + np.ones((3, 3))[:1],
        lambda x: (np.ones((3, 2)), np.dot(x, np.ones((3, 2))))[1],
    ],
)
def test_a_product_of_what_is_made_on_the_way(function: Any) -> None:
    x = np.ones((4, 3)) * 2
    numpy.testing.assert_allclose(gemel.compile(function)(x).asnumpy(), function(x).asnumpy(), 1e-6)


SUMS_OF_NOTHING = {
    "rows and all": (lambda x, y: x.sum(axis=1) + x.sum(), ((5, 0), (1,))),
    "another's sum": (lambda x, y: y.sum() * x, ((1, 6), (0, 6))),
    "beside a product": (lambda x, y: np.matmul(x, y) + x.sum(), ((5, 0), (0, 1))),
    "products": (lambda x, y: x.prod(axis=1) + x.sum(), ((5, 0), (1,))),
    "columns": (lambda x, y: (x * y.sum(), y.sum(axis=0)), ((0, 6), (0, 6))),
}


@pytest.mark.parametrize("name", SUMS_OF_NOTHING)
def test_targets_of_empty_sums_are_written(name: str) -> None:
    function, shapes = SUMS_OF_NOTHING[name]
    x, y = (np.ones(shape) for shape in shapes)
    compiled = gemel.compile(function)
    for _ in range(3):
        garbage = [np.full(n, 7.0) for n in (1, 1, 1, 6)]
        npx.waitall()
        del garbage
        found, wanted = compiled(x, y), function(x, y)
        pairs = zip(found, wanted, strict=True) if type(found) is tuple else [(found, wanted)]
        for one, other in pairs:
            assert one.asnumpy().tolist() == other.asnumpy().tolist()


# --- extents that leave their trace ---------------------------------------------------------


def left_behind() -> tuple[Any, Any]:
    """An extent (3) of a trace that has ended, and one of its program's results."""
    kept: dict[str, Any] = {}

    def first(x: Any, y: Any) -> Any:
        kept["n"] = x.shape[0]
        return x.sum() + y.sum()

    result = gemel.compile(first)(np.ones(3), np.ones(5))
    return kept["n"], result


def test_an_extent_of_another_trace_is_a_number() -> None:
    n, _ = left_behind()
    scaled = gemel.compile(lambda x: x * n)
    assert scaled(np.ones(4)).tolist() == [3.0] * 4
    assert scaled(np.ones(6)).tolist() == [3.0] * 6
    for answer in (lambda x: x.shape[0] == n, lambda x: n == x.shape[0], lambda x: n >= x.shape[0]):
        chosen = gemel.compile(lambda x, answer=answer: x * 2 if answer(x) else x * 3)
        assert [chosen(np.ones(size)).tolist()[0] for size in (3, 4, 3, 5)] == [2.0, 3.0, 2.0, 3.0]
    longer = gemel.compile(lambda x: np.zeros((n + x.shape[0],)) + x.sum())
    assert longer(np.ones(4)).tolist() == [4.0] * 7
    assert longer(np.ones(2)).tolist() == [2.0] * 5
    with pytest.raises(gemel.errors.ShapeError):
        gemel.compile(lambda x: x + np.zeros((n,)))(np.ones(4))


def test_a_compiled_function_is_called_and_described_as_its_function() -> None:
    @gemel.compile
    def scaled(x, scale=2.0, *, shift=0.0):
        """x times a scale."""
        return x * scale + shift

    x = np.array([1.0, 2.0])
    assert scaled(x).tolist() == [2, 4]
    assert scaled(x, scale=3.0).tolist() == scaled(scale=3.0, x=x).tolist() == [3, 6]
    assert scaled.traces == 2  # a default is not an input
    assert scaled(x, shift=1.0).tolist() == scaled(x, shift=x * 0 + 1).tolist() == [3, 5]
    assert gemel.compile(lambda x: scaled(x, shift=2.0))(x).tolist() == [4, 6]
    with pytest.raises(TypeError, match="scal"):
        scaled(x, scal=1.0)
    assert scaled.__name__ == "scaled" and scaled.__doc__ == "x times a scale."
    assert str(inspect.signature(scaled)).startswith("(x, scale=2.0, *, shift=")
    x.attach_grad()
    with autograd.record():
        scaled(x, scale=5.0).sum().backward()
    assert x.grad.tolist() == [5, 5]


@pytest.mark.parametrize("function", [None, 3, "relu"])
def test_compile_refuses_other_objects_at_once(function) -> None:
    with pytest.raises(TypeError, match=f"compile: {function!r} is not a function"):
        gemel.compile(function)


def test_compile_with_options_is_a_decorator() -> None:
    @gemel.compile(script=True)
    def signed(x: Any) -> Any:
        """The double of x if its sum is positive, else three times x."""
        if x.sum() > 0:
            return x * 2
        return x * 3

    assert signed(np.ones(2)).tolist() == [2, 2] and signed(-np.ones(2)).tolist() == [-3, -3]
    assert signed.__name__ == "signed" and "double" in (signed.__doc__ or "")


class Ends(NamedTuple):
    first: Any
    second: Any


class Box(dict):  # type: ignore[type-arg]
    """A subclass of dict, like those of configurations."""


class Two(tuple):  # type: ignore[type-arg]
    """A tuple that cannot be made from an iterable of its items."""

    def __new__(cls, first: Any, second: Any) -> Two:
        return super().__new__(cls, (first, second))


CONTAINERS = [
    lambda y: OrderedDict(b=y, a=OrderedDict(c=y + 1)),
    lambda y: Box(a=[y], b=Ends(y, (y,))),
    lambda y: (Ends(y, y), {}),
]


@pytest.mark.parametrize("make", CONTAINERS)
def test_containers_stay_of_their_kind(make: Any) -> None:
    def kinds(value: Any) -> Any:
        inside = value.values() if isinstance(value, dict) else value
        if not isinstance(value, (dict, tuple, list)):
            return value.tolist()
        names = list(value) if isinstance(value, dict) else []
        return type(value), names, [kinds(each) for each in inside]

    x, met = np.arange(3), []
    results = gemel.compile(lambda x: make(x * 2))
    arguments = gemel.compile(lambda given: (met.append(type(given)), make(x * 2))[1])
    for _ in range(2):
        assert kinds(results(x)) == kinds(make(x * 2)) == kinds(arguments(make(x)))
    assert met == [type(make(x))]


def test_results_of_other_kinds_are_refused() -> None:
    x = np.arange(3)
    for kind, make in {
        "set": lambda y: {1},
        "SimpleNamespace": lambda y: [SimpleNamespace(a=y)],
        "str": lambda y: (y, "text"),
    }.items():
        with pytest.raises(TraceError, match=f"lists, tuples and dictionaries .* a {kind}"):
            gemel.compile(make)(x)
    refused = r"cannot be rebuilt from its elements: .* use a list"
    for make in (lambda y: Two(y, y), lambda y: defaultdict(list, a=y)):
        with pytest.raises(TraceError, match=refused):
            gemel.compile(lambda x, make=make: make(x))(x)
        with pytest.raises(TraceError, match=refused):
            gemel.compile(lambda given: x)(make(x))


def test_functions_of_numbers_run_on_the_current_device() -> None:
    net = nn.Dense(2, in_units=3)
    net.initialize(device=[gemel.cpu(0), gemel.cpu(1)])
    functions = [
        gemel.compile(lambda a: a * 2.0 + 1),
        gemel.compile(lambda a: np.ones(3) * a),
        gemel.compile(lambda a: np.random.normal(size=(3,)) * a),
        gemel.compile(lambda a: net.weight.data() * a),
        gemel.compile(lambda a: np.linalg.eigvals(np.eye(3) * a).real),  # computed by NumPy
    ]
    for function in functions:
        for place in (1, 1, 0, 0, 1, 0):
            with gemel.cpu(place):
                assert function(2.0).device == gemel.cpu(place)
        assert function.traces == 1


def test_results_that_depend_on_no_variable_are_no_heads() -> None:
    x, z = np.ones(3), np.ones(3)
    x.attach_grad()
    function = gemel.compile(lambda x, z: (x * 2, z * 3, x.detach() * 4))
    for _ in range(2):
        with autograd.record():
            y, other, detached = function(x, z)
        for head in (other, detached):
            with pytest.raises(GradientError, match="was not computed from a variable"):
                head.backward()
        y.backward()
        assert x.grad.tolist() == [2, 2, 2]


def nested(x: Any) -> Any:
    for _ in range(2000):
        x = [x]
    return x


CYCLE: list[Any] = []
CYCLE.append(CYCLE)
RING: dict[str, Any] = {}
RING["a"] = (RING,)


@pytest.mark.parametrize("value", [CYCLE, RING, nested(1.0), nested(np.ones(2))])
def test_what_is_nested_without_end_is_refused(value: Any) -> None:
    with pytest.raises(TraceError, match=r"first: an argument is a list, .* nested too deeply"):
        gemel.compile(first)(value)
    with pytest.raises(TraceError, match="its result is a list, tuple or dict that contai"):
        gemel.compile(lambda x: value)(np.ones(2))


def first(x: Any) -> Any:
    return np.ones(2)


def test_sizes_are_copied() -> None:
    function = gemel.compile(
        lambda x: x * copy.deepcopy({"a": x.shape})["a"][0] + copy.copy(x.shape[0])
    )
    for size in (3, 4):
        assert function(np.ones(size)).tolist() == [2 * size] * size
    assert function.traces == 1


def test_attributes_that_neither_symbols_nor_arrays_have() -> None:
    with pytest.raises(AttributeError, match=r"<_Symbol data>, .* \(float32\[2\]\), .* 'foo'$"):
        gemel.compile(lambda x: x.foo)(np.ones(2))
    assert gemel.compile(lambda x: x * hasattr(x, "foo"))(np.ones(2)).tolist() == [0, 0]

"""Arrays that compiled functions close over: reads, writes and gradients work as outside."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy
import op_table
import pytest
from op_table import Case, close, first_cases, inputs_of, on_gemel, results
from test_three_ways import dtype_of

import gemel
from gemel import autograd, device, gluon, gpu, np, npx
from gemel.errors import DeviceError, TraceError
from gemel.gluon import nn

CASES = [case for case in first_cases() if not case.op.updates]


def ones(*shape: int) -> Any:
    return np.ones(shape)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_operation_reads_them_anew(case: Case) -> None:
    """The operation is called first, so that its kernels exist and the program runs at once."""
    dtype = dtype_of(case)
    arrays = on_gemel(inputs_of(case, dtype))
    function = gemel.compile(lambda: case.op(*arrays, **case.parameters))
    for seed in (0, 50, 51):
        fresh = on_gemel(inputs_of(case, dtype, seed))
        for old, new in zip(arrays, fresh, strict=True):
            if not isinstance(old, (bool, int, float, complex)):
                old[...] = new
        # Numbers are not arrays: the function keeps the first ones.
        op_table.seeded(3)
        expected = results(case.op(*arrays, **case.parameters))
        op_table.seeded(3)
        for found, wanted in zip(results(function()), expected, strict=True):
            close(found, wanted, case.name)


def test_operations_on_them_are_part_of_the_program() -> None:
    w, x = ones(3), ones(3)
    np.exp(w)
    function = gemel.compile(lambda x: x * (np.exp(w) + 1))
    for value in (1.0, 2.0, 0.0):
        w[:] = value
        close(function(x).asnumpy(), (np.exp(w) + 1).asnumpy(), "exp")
    assert function.traces == 1
    assert str(function.graph(x)) == "data * (exp(array) + 1)"


def test_views_methods_and_operators_of_them() -> None:
    w = np.arange(12).reshape(3, 4).astype("float32")
    ways = [
        lambda x: x + w.T[1:, ::2].sum(),
        lambda x: x + sum(row.max() for row in w),
        lambda x: x + w[[0, 2]].mean() + w[-1, -1],
        lambda x: x + (-w @ w.T).detach().copy().astype("int32").sum(),
        lambda x: x + w.reshape(-1).view("int32")[3] % 7,
        lambda x: x + np.concatenate([w, w * 2]).std() + np.where(w > 3, w, 0).sum(),
    ]
    x = ones(2)
    for way in ways:
        function = gemel.compile(way)
        for _ in range(3):
            close(function(x).asnumpy(), way(x).asnumpy(), "exp", 10)
            w += 1.5
        assert function.traces == 1


def test_closed_over_generators_draw_in_every_call() -> None:
    mean = np.zeros((5,))

    def draw() -> Any:
        return np.random.normal(mean, 1.0) + npx.dropout(mean + 1, 0.5, mode="always")

    function = gemel.compile(draw)
    np.random.seed(1)
    found = [function().tolist() for _ in range(3)]
    np.random.seed(1)
    assert found == [draw().tolist() for _ in range(3)]
    assert found[0] != found[1]


# --- writes -----------------------------------------------------------------------------------


def count(state: Any, x: Any) -> Any:
    before = state * 1
    state += x
    state[0] = state[1] * 2
    state[state > 8] = -1
    return before + state


def test_writes_to_them_are_made_in_every_call() -> None:
    state, own = ones(3), ones(3)
    view = state[1:]
    function = gemel.compile(lambda x: count(state, x))
    for value in (1.0, 2.0, 3.0):
        x = np.full((3,), value)
        assert function(x).tolist() == count(own, x).tolist()
        assert state.tolist() == own.tolist()
        assert view.tolist() == own[1:].tolist()
    assert function.traces == 1


def test_arrays_made_inside_are_new_in_every_call() -> None:
    def forward(x: Any) -> Any:
        table = np.array([1.0, 2.0, 3.0])
        table += x
        table[1:] *= 2
        return table

    function = gemel.compile(forward)
    for _ in range(2):
        assert function(ones(3)).tolist() == [2, 6, 8]


def test_a_write_that_others_would_see_in_part_is_refused() -> None:
    base = np.zeros((4,))
    half = base[2:]

    def forward(x: Any) -> Any:
        half[:] = x
        return base * 2

    with pytest.raises(TraceError, match="shares memory"):
        gemel.compile(forward)(ones(2))
    assert base.tolist() == [0, 0, 0, 0]

    def written(x: Any) -> Any:
        x += 1
        return base + x

    function = gemel.compile(written)
    assert function(np.zeros((4,))).tolist() == [1] * 4
    with pytest.raises(TraceError, match="shares memory"):
        function(base)


def test_writes_to_them_are_recorded() -> None:
    found = []
    for wrap in (gemel.compile, lambda function: function):
        state, x = ones(3), np.array([1.0, 2.0, 3.0])
        x.attach_grad()

        def forward(x: Any, state: Any = state) -> Any:
            state *= x
            return state * x

        function = wrap(lambda x: forward(x))
        with autograd.record():
            y = function(x).sum() + (state * state).sum()
        y.backward()
        found.append((x.grad.tolist(), state.tolist()))
    assert found[0] == found[1]


# --- gradients --------------------------------------------------------------------------------


@pytest.mark.parametrize("request_", ["write", "add"])
def test_gradients_reach_them(request_: str) -> None:
    w, x = np.array([0.5, 1.0, 2.0]), np.array([1.0, 2.0, 3.0])
    function = gemel.compile(lambda x: (x * np.exp(w)).sum())
    plain = function(x)
    w.attach_grad(request_)
    x.attach_grad()
    for times in (1, 2):
        with autograd.record():
            y = function(x)
        y.backward()
        expected = x.asnumpy() * numpy.exp(w.asnumpy())
        close(w.grad.asnumpy(), expected * (times if request_ == "add" else 1), "exp", 10)
        close(x.grad.asnumpy(), numpy.exp(w.asnumpy()), "exp", 10)
    close(y.asnumpy(), plain.asnumpy(), "exp")
    with autograd.record():
        h = w * w  # a result on the tape that the function closes over
        loss = gemel.compile(lambda x: (h * x).sum())(x)
    w.zero_grad()
    loss.backward()
    assert w.grad.tolist() == (2 * w * x).tolist()


def test_gradients_of_gradients_reach_them() -> None:
    w, x = np.array([0.5, 1.0]), np.array([1.0, 2.0])
    w.attach_grad()
    function = gemel.compile(lambda x: (x * w**3).sum())
    with autograd.record():
        first = autograd.grad(function(x), w, create_graph=True)
        first.sum().backward()
    assert w.grad.tolist() == (6 * w * x).tolist()


# --- values -----------------------------------------------------------------------------------


def test_values_that_are_asked_for_hold_until_they_change() -> None:
    w, x = np.array([1.0, 2.0]), ones(2)

    def forward(x: Any) -> Any:
        if w.sum() > 4:
            return x * 100
        return x * float(w[0]) + w.tolist()[1] + w.asnumpy().sum() + int(w.argmax())

    function = gemel.compile(forward)
    for change in (0, 0, 1, 0, 5, -5):
        w += change
        assert function(x).tolist() == forward(x).tolist()
    assert function.traces == 3, "the earlier programs are still known"
    w[:] = w * 1  # a write that changes nothing
    function(x)
    assert function.traces == 3


def test_values_others_wrote_are_seen() -> None:
    w, x = ones(2), ones(2)
    function = gemel.compile(lambda x: x * float(w[0]))
    assert function(x).tolist() == [1, 1]
    shared = numpy.from_dlpack(w)
    shared[0] = 4
    assert function(x).tolist() == [4, 4]


def test_shapes_that_depend_on_them() -> None:
    w, x = np.array([0.0, 3.0, 0.0, 4.0]), ones(1)
    function = gemel.compile(lambda x: x * w[w > 0])
    assert function(x).tolist() == [3, 4]
    w[0] = 9
    assert function(x).tolist() == [9, 3, 4]
    with pytest.raises(TraceError, match="depends on values"):
        gemel.compile(lambda x: w[x > 0])(ones(4))


def test_values_that_depend_on_arguments_cannot_be_asked_for() -> None:
    w = ones(2)

    def forward(x: Any) -> Any:
        w[:] = x
        return x * float(w[0])

    with pytest.raises(TraceError, match="known only when"):
        gemel.compile(forward)(ones(2))
    assert w.tolist() == [1, 1], "tracing writes nothing"


# --- loops and branches -----------------------------------------------------------------------


def test_loops_and_branches_read_them_anew() -> None:
    w, x = ones(3), np.arange(15).reshape(5, 3).astype("float32")

    def scan(x: Any) -> Any:
        return npx.foreach(lambda row, s: (row * np.exp(w), s + w), x, np.zeros((3,)))[0]

    def choose(x: Any) -> Any:
        return npx.cond(x.sum() > 0, lambda: x * np.exp(w), lambda: x - np.tanh(w))

    for way in (scan, choose):
        function = gemel.compile(way)
        for value in (1.0, 2.0):
            w[:] = value
            close(function(x).asnumpy(), way(x).asnumpy(), "exp", 10)
    with pytest.raises(TraceError, match="branch must not"):
        gemel.compile(lambda x: npx.cond(x.sum() > 0, lambda: w.__iadd__(1), lambda: w))(x)


def test_writes_in_loops() -> None:
    def scan(state: Any, x: Any) -> Any:
        def body(row: Any, carried: Any) -> Any:
            state[:] += row
            return row * state, carried

        return npx.foreach(body, x, np.zeros(()))[0]

    x = np.arange(15).reshape(5, 3).astype("float32")
    mine, own = ones(3), ones(3)
    function = gemel.compile(lambda x: scan(mine, x))
    for _ in range(2):
        assert function(x).tolist() == scan(own, x).tolist()
        assert mine.tolist() == own.tolist()


# --- where they live --------------------------------------------------------------------------


def test_closed_over_arrays_without_other_references() -> None:
    w = ones(2)
    function = gemel.compile(lambda x, w=w: x + np.exp(w))
    first = function(ones(2)).tolist()
    del w
    gc.collect()
    [ones(2) * 7 for _ in range(5)]
    assert function(ones(2)).tolist() == first


def test_another_array_of_the_name_is_not_seen() -> None:
    """As documented, the array is looked up when the function is traced."""
    box = [ones(2)]
    function = gemel.compile(lambda x: x + box[0])
    assert function(ones(2)).tolist() == [2, 2]
    box[0] = ones(2) * 5
    assert function(ones(2)).tolist() == [2, 2]


def test_on_another_device() -> None:
    w = ones(2)
    device.simulate(1)
    try:
        moved = gemel.compile(lambda x: x * w.to_device(x.device) + 1)
        for value in (1.0, 3.0):
            w[:] = value
            for place in (gpu(0), gemel.cpu()):
                found = moved(np.ones(2, device=place))
                assert found.device == place
                assert found.tolist() == [value + 1] * 2
        with pytest.raises(DeviceError, match="to_device"):
            gemel.compile(lambda x: x * w)(np.ones(2, device=gpu(0)))
    finally:
        device.simulate(0)


def test_a_second_thread_is_no_part_of_a_trace() -> None:
    inside, done = threading.Event(), threading.Event()
    w, told = ones(3), []

    def other() -> None:
        inside.wait(60)
        w.__iadd__(1)
        told.append((np.exp(w) * 0 + w).tolist())
        done.set()

    def forward(x: Any) -> Any:
        inside.set()
        assert done.wait(60)
        return x + w

    thread = threading.Thread(target=other)
    thread.start()
    assert gemel.compile(forward)(ones(3)).tolist() == [3, 3, 3]
    thread.join()
    assert told == [[2, 2, 2]]


def test_empty_arrays_and_other_batches() -> None:
    w = np.zeros((0, 3))
    function = gemel.compile(lambda x: np.concatenate([x, w * 2]))
    for n in (2, 5, 1):
        assert function(ones(n, 3)).shape == (n, 3)


# --- networks ---------------------------------------------------------------------------------


class Counting(nn.HybridBlock):
    """Counts its calls, and adds a value computed from a table to its result."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = np.zeros(())
        self.table = np.arange(3).astype("float32")
        self.dense = nn.Dense(3)

    def forward(self, x: Any) -> Any:
        self.calls += 1
        return self.dense(x) + np.tanh(self.table) * self.calls


@pytest.mark.parametrize("hybrid", [False, True])
def test_a_block_counts_its_calls(hybrid: bool) -> None:
    """The first call counts too, although it only infers the shapes of parameters with symbols."""
    net = Counting()
    net.initialize()
    if hybrid:
        net.hybridize()
    x = ones(2, 4)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    for _ in range(2):
        net(x)
    with autograd.record():
        loss = net(x).sum()
    loss.backward()
    trainer.step(2)
    assert net.calls.item() == 3


def test_an_image_holds_them() -> None:
    w, x = ones(3), ones(3)
    function = gemel.compile(lambda x: x + np.exp(w))
    function(x)
    assert function.image(x)
    assert "1 kernel" in function.plan_summary(x)

    def forward(x: Any) -> Any:
        w.__iadd__(x)
        return x * 1

    with pytest.raises(TraceError, match="pass that array as an argument"):
        gemel.compile(forward).image(x)


def test_parameters_that_it_updates_are_not_given_besides() -> None:
    net = nn.BatchNorm(in_channels=2)
    net.initialize()
    mean, x = net.running_mean.data(), np.array([[1.0, 2.0], [3.0, 5.0]])
    given = gemel.compile(lambda x, m: (net(x), m * 1))
    closed = gemel.compile(lambda x: (net(x), mean * 1))
    with autograd.train_mode():
        for _ in range(3):
            before = mean.tolist()
            assert given(x, mean.copy())[1].tolist() == before != mean.tolist()
            for refused in (lambda: given(x, mean), lambda: given(x, mean[:1]), lambda: closed(x)):
                with pytest.raises(TraceError, match="shares memory"):
                    refused()

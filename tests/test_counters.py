"""What must not compile again, according to the counters of the kernel cache."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import gemel
from gemel import _core, autograd, gluon, np, npx
from gemel.gluon import nn
from gemel.ir.above import above
from gemel.runtime import prepare, single
from gemel.runtime.cache import counters
from gemel.tape import step_plans


@contextmanager
def compiling(most: int) -> Iterator[None]:
    """A block that may compile or load at most `most` kernels."""
    before = counters["compiled"] + counters["loaded"]
    yield
    made = counters["compiled"] + counters["loaded"] - before
    assert made <= most, f"{made} kernels were made"


def test_run_time_numbers_compile_nothing() -> None:
    x = np.arange(1000).astype("float32")
    total = 0.0
    with compiling(4):
        for i in range(1000):
            scaled, one, clipped = x * i, x[i], np.clip(x, 0, i)
            total += one.item() + clipped[-1].item() + scaled[1].item()
    assert total == 3 * sum(range(1000))


def test_floats_negative_and_large_numbers_compile_nothing() -> None:
    x = np.ones(7)
    x * 1.5, x * 2
    with compiling(0):
        for i in range(200):
            assert (x * (i * 0.25 - 10))[3].item() == i * 0.25 - 10
            assert (x * (i - 100))[3].item() == i - 100
    assert (x * 1e30)[0].item() == pytest.approx(1e30)


def test_exponents_compile_nothing() -> None:
    """Exponents computed by products and roots have their own code in the same kernel."""
    x = np.array([1.5, 2.0, 0.5])
    x**2, x**0.7
    with compiling(0):
        for i in range(200):
            exponent = i / 2 - 50
            for power in (exponent, int(exponent)):
                assert (x**power)[1].item() == pytest.approx(2.0**power, rel=1e-6)


def test_shapes_compile_nothing() -> None:
    np.exp(np.ones((2, 3)) + 1)
    with compiling(0):
        for n in range(2, 60):
            assert np.exp(np.ones((n, 3)) + 1).shape == (n, 3)
            assert np.exp(np.ones((n,)) + 1).shape == (n,)


@contextmanager
def lowering(most: int) -> Iterator[None]:
    """A block that may lower at most `most` calls of operations on arrays."""
    made = 0

    def counted(*call: Any) -> Any:
        nonlocal made
        made += any(isinstance(value, _core.Array) for value in call[1])
        return prepare.prepare(*call)

    above.prepare = counted
    try:
        yield
    finally:
        above.prepare = prepare.prepare
    assert made <= most, f"{made} calls were lowered"


@pytest.mark.parametrize("name", ["sum", "softmax", "concatenate", "transpose", "take", "max"])
def test_sizes_lower_nothing(name: str) -> None:
    _core.clear_tables()
    calls: dict[str, Any] = {
        "sum": lambda x: np.sum(x, axis=1),
        "softmax": lambda x: npx.softmax(x, axis=0),
        "concatenate": lambda x: np.concatenate([x, x], axis=1),
        "transpose": lambda x: np.sum(x.T, axis=0),
        "take": lambda x: np.take(x, np.zeros((x.shape[1],), dtype="int64"), axis=1),
        "max": lambda x: np.max(x, axis=(0, 1)),
    }
    with lowering(4):
        for rows, columns in [(3, 5), (2, 7), (64, 65), (100, 1000), (5, 3), (7, 7)] * 2:
            calls[name](np.ones((rows, columns))).wait_to_read()


@pytest.mark.parametrize(
    "make",
    [
        np.zeros,
        lambda shape: np.random.normal(size=shape),
        lambda shape: np.arange(shape[0]),
        np.eye,
    ],
    ids=["zeros", "normal", "arange", "eye"],
)
def test_shapes_of_new_arrays_lower_nothing(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One plan makes arrays of all shapes of a rank, or a few."""
    shapes = [(rows, rows + 3) for rows in range(2, 60)]
    made = make if make is not np.eye else lambda shape: np.eye(*shape)
    for shape in ((2, 5), (300, 303)):
        made(shape)
    lowered: list[Any] = []
    image = single.created_image
    monkeypatch.setattr(single, "created_image", lambda *call: lowered.append(call) or image(*call))
    for shape in shapes:
        assert made(shape).shape[0] == shape[0]
    assert len(lowered) < 3


def test_products_of_many_sizes_have_few_plans_and_kernels() -> None:
    """A kernel for each micro-tile; above 64, a plan for each eighth of a power of two."""
    _core.clear_tables()
    weight = np.ones((300, 200))
    with lowering(40), compiling(40):
        for rows in (*range(65, 1025, 16), *range(66, 1024, 31)):
            np.matmul(np.ones((rows, 300)), weight)
    with lowering(8):
        for depth in range(70, 400):
            np.matmul(np.ones((8, depth)), np.ones((depth, 8)))
    npx.waitall()


def test_a_compiled_function_has_few_plans_for_many_batches() -> None:
    net, _ = training()
    net.hybridize()
    net(np.ones((2, 4)))
    with compiling(60):
        for rows in range(2, 400, 7):
            net(np.ones((rows, 4)))
    npx.waitall()


def test_slices_and_positions_compile_nothing() -> None:
    x = np.arange(400).reshape(20, 20).astype("float32")
    x[1:3] + 1, x[1:3, 2:5] + 1, x[0] + 1
    with compiling(0):
        for i in range(15):
            assert (x[i] + 1)[0].item() == 20 * i + 1
            assert (x[i : i + 3] + 1)[0, 0].item() == 20 * i + 1
            assert (x[i : i + 2, i : i + 3] + 1)[0, 0].item() == 21 * i + 1


def test_parameters_given_by_position_are_the_same_call() -> None:
    x = np.arange(6).reshape(2, 3).astype("float32")
    x.attach_grad()
    np.sum(x, axis=0), np.transpose(x, axes=(1, 0)), np.broadcast_to(x, shape=(2, 2, 3))
    before = counters["found"]
    with compiling(0), autograd.record():
        for _ in range(20):
            found = np.sum(x, 0), np.transpose(x, (1, 0)), np.broadcast_to(x, (2, 2, 3))
    assert counters["found"] - before <= 3, "the plans are found again too"
    for y in found:
        y.backward(retain_graph=True)
        assert x.grad.tolist() == [[y.size / 6 if y.size > 6 else 1] * 3] * 2


def test_the_type_of_a_number_counts() -> None:
    x = np.array([1, 2], dtype="int32")
    kinds = [(2, "int32", [2, 4]), (2.0, "float32", [2.0, 4.0]), (True, "int32", [1, 2])]
    for number, dtype, values in kinds * 2:
        found = x * number
        assert (str(found.dtype), found.tolist()) == (dtype, values)
        assert type(found.tolist()[0]) is type(values[0])
        turned = number * x
        assert (str(turned.dtype), turned.tolist()) == (dtype, values)
    flags = np.array([True, False])
    for number, dtype in ((2, "int64"), (2.0, "float32"), (True, "bool")) * 2:
        assert str((flags * number).dtype) == dtype


def test_the_type_of_a_parameter_counts() -> None:
    filled = [np.full((2,), value) for value in (1, 1.0, True)]
    assert [str(x.dtype) for x in filled] == ["int64", "float32", "bool"]


def test_numbers_that_happen_to_be_equal_compile_nothing() -> None:
    """A row count of 3 and a factor of 3 are different numbers to the trace."""
    function = gemel.compile(lambda x: (x - x.mean(axis=0)) * 3 + 4)
    for n in (7, 8):
        function(np.ones((n, 5)))
    with compiling(0):
        for n in (3, 4, 5):
            assert function(np.ones((n, 5))).tolist() == [[4.0] * 5] * n


def test_an_annealed_coefficient_compiles_its_backward_once() -> None:
    x = np.arange(12).reshape(3, 4).astype("float32")
    w = np.ones((4, 2))
    w.attach_grad()

    def step(coefficient: float) -> Any:
        with autograd.record():
            y = np.tanh(np.matmul(x, w) * coefficient)
            loss = (y * y).sum() + coefficient * (w * w).sum()
        loss.backward()
        return w.grad.copy()

    first = step(0.5)
    step(0.5)  # a repeated structure is compiled
    plans = len(step_plans._plans)
    with compiling(0):
        found = [step(0.5 / (i + 1)) for i in range(50)]
    assert len(step_plans._plans) == plans
    assert found[0].tolist() == first.tolist()
    assert found[1].tolist() != first.tolist()
    # The plan reads the number: the result equals that of a step that never saw another one.
    step_plans._plans.clear()
    assert step(0.5 / 50).tolist() == found[-1].tolist()


@pytest.mark.parametrize(("calls", "met"), [(1, 1), (99, 1), (100, 2), (250, 3), (10_000, 31)])
def test_how_often_a_structure_occurs_before_it_is_compiled(calls: int, met: int) -> None:
    worth = [step_plans.worth_compiling(calls, times) for times in range(met + 2)]
    assert worth == [False] * met + [True, True]


@pytest.mark.parametrize("way", ["imperative", "compiled", "grad"])
@pytest.mark.parametrize("calls", [20, 240])
def test_a_step_is_compiled_when_that_is_worth_it(calls: int, way: str) -> None:
    """A long structure later, a compiled call at once; the gradients stay the same."""
    x = np.array([0.5, -1.0])
    x.attach_grad()
    function = gemel.compile(np.tanh) if way == "compiled" else np.tanh

    def gradient() -> list[float]:
        with autograd.record():
            y = function(x)
            for _ in range(calls - 1):
                y = y * 1.01
        if way == "grad":
            return autograd.grad(y, x, np.ones(2)).tolist()
        y.backward(np.ones(2))
        return x.grad.tolist()

    step_plans._plans.clear()
    expected, compiled = gradient(), 0
    for times in range(6):
        (found,) = step_plans._plans.values()
        assert (found.plan is not None) == (way == "compiled" or times > calls // 100)
        compiled += found.plan is not None
        assert gradient() == pytest.approx(expected, rel=1e-5)
    assert compiled >= 2


def lengths_by_turns(lengths: range, rounds: int, factor: float) -> list[int]:
    """After each round, the number of plans for gradients of products of these lengths."""
    x = np.array([0.5, -1.0, factor])
    x.attach_grad()
    found = []
    for _ in range(rounds):
        for length in lengths:
            with autograd.record():
                y = x * 1
                for _ in range(length - 1):
                    y = y * factor
            y.backward(np.ones(3))
            assert x.grad[0].item() == pytest.approx(factor ** (length - 1), rel=1e-4)
        found.append(sum(met.plan is not None for met in step_plans._plans.values()))
    return found


def test_alternating_structures_are_compiled_gradually() -> None:
    """In the second round only a few of them may be compiled; in the end all are plans."""
    step_plans._plans.clear()
    step_plans._families.clear()
    lengths = range(60, 100)
    found = lengths_by_turns(lengths, step_plans.RUNS + 1, 1.01)
    calls, run = sum(lengths), 0
    assert found[0] == 0
    run = 2 * calls
    most = step_plans.AT_ONCE + run // step_plans.RUNS
    assert 0 < found[1] <= most // lengths[0] < len(lengths) // 2
    assert found == sorted(found)
    assert found[-1] == len(lengths)


def test_another_network_is_compiled_as_if_it_were_alone() -> None:
    step_plans._plans.clear()
    step_plans._families.clear()
    lengths_by_turns(range(60, 100), 2, 1.01)
    before = set(step_plans._plans)
    w = np.ones((3, 2))
    w.attach_grad()
    for times in range(2):
        with autograd.record():
            y = (np.tanh(w) * w).sum()
        y.backward()
        (own,) = [met for key, met in step_plans._plans.items() if key not in before]
        assert (own.plan is not None) == (times == 1)


def training() -> tuple[Any, Any]:
    net = nn.HybridSequential()
    net.add(nn.Dense(5, activation="relu"), nn.Dense(3))
    net.initialize()
    return net, gluon.loss.SoftmaxCrossEntropyLoss()


@pytest.mark.parametrize("hybridize", [False, True])
@pytest.mark.parametrize(
    ("rule", "options"), [("sgd", {"momentum": 0.9, "wd": 1e-3}), ("sgd", {}), ("adam", {})]
)
def test_learning_rates_compile_nothing(rule: str, options: Any, hybridize: bool) -> None:
    net, loss = training()
    if hybridize:
        net.hybridize()
        loss.hybridize()
    trainer = gluon.Trainer(net.collect_params(), rule, {"learning_rate": 0.1, **options})
    x, label = np.random.normal(0, 1, (6, 4)), np.array([0, 1, 2, 0, 1, 2], dtype="int32")

    def step() -> None:
        with autograd.record():
            value = loss(net(x), label)
        value.backward()
        trainer.step(6)

    step()
    step()
    plans = len(step_plans._plans)
    with compiling(0):
        for i in range(20):
            trainer.set_learning_rate(0.1 / (i + 2))
            step()
        npx.waitall()
    assert len(step_plans._plans) == plans


def test_weight_decay_and_rescaling_are_read_anew() -> None:
    net, _ = training()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.0})
    x = np.ones((2, 4))
    for rate in (0.0, 0.5, 0.0):
        trainer.set_learning_rate(rate)
        with autograd.record():
            value = (net(x) ** 2).sum() + net(x).sum()
        value.backward()
        before = net[1].bias.data().tolist()
        trainer.step(1)
        assert (net[1].bias.data().tolist() != before) == (rate > 0)


def test_a_loop_of_programs_is_bounded() -> None:
    """When there are too many plans, they are dropped one by one, and made again when needed."""
    x = np.ones((2, 2))
    x.attach_grad()
    limit = step_plans._plans.limit
    step_plans._plans.limit = 4
    try:
        for n in [1, 2, *range(1, 12)]:
            with autograd.record():
                y = np.broadcast_to(x, (n, 2, 2)).sum()
            y.backward()
            assert x.grad.tolist() == [[n, n]] * 2
            assert len(step_plans._plans) <= 4 or n == 1
    finally:
        step_plans._plans.limit = limit

"""Pipelines: the order of tasks, what is kept, where stages end, layers with states."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from typing import Any

import numpy
import pytest
from programs import surroundings

from gemel import autograd, cpu, gluon, gpu, init, np, npx, profiler
from gemel.errors import ArgumentError, GradientError, ShapeError, UnknownNameError
from gemel.gluon import nn, parallel
from gemel.gluon.parallel.order import ORDERS, Task, kept, merged
from gemel.gluon.parallel.stages import balanced, costs

pytestmark = pytest.mark.usefixtures("four_gpus")

LOSS = gluon.loss.L2Loss()


def dense(count: int, units: int = 4, seed: int = 3) -> nn.HybridSequential:
    np.random.seed(seed)
    net = nn.HybridSequential()
    net.add(*(nn.Dense(units, activation="tanh", in_units=units) for _ in range(count)))
    net.initialize(init.Xavier())
    return net


def batch(size: int = 11, units: int = 4) -> tuple[Any, Any]:
    rng = numpy.random.RandomState(size)
    return tuple(np.array(rng.normal(size=(size, units)), dtype="float32") for _ in range(2))  # type: ignore[return-value]


def gradients(net: Any) -> list[Any]:
    return [p.grad(p.homes[0]).asnumpy() for p in net.collect_params().values()]


def close(found: Any, expected: Any) -> None:
    for a, b in zip(found, expected, strict=True):
        numpy.testing.assert_allclose(a, b, rtol=2e-6, atol=2e-6)


# ---- orders


def text(order: list[Task]) -> str:
    return " ".join(f"{'F' if task.forward else 'B'}{task.number}" for task in order)


def test_orders_of_tasks():
    assert text(ORDERS["gpipe"](1, 3, 3)) == "F0 F1 F2 B2 B1 B0"
    assert text(ORDERS["1f1b"](0, 3, 5)) == "F0 F1 F2 B0 F3 B1 F4 B2 B3 B4"
    assert text(ORDERS["1f1b"](2, 3, 3)) == "F0 B0 F1 B1 F2 B2"
    assert text(ORDERS["1f1b"](0, 4, 2)) == "F0 F1 B0 B1"  # fewer micro-batches than stages


@pytest.mark.parametrize("name", ORDERS)
@pytest.mark.parametrize("stages", [1, 2, 5])
@pytest.mark.parametrize("count", [1, 2, 4, 9])
def test_every_task_comes_once_and_behind_those_it_needs(name, stages, count):
    orders = [ORDERS[name](stage, stages, count) for stage in range(stages)]
    for stage, order in enumerate(orders):
        assert len(set(order)) == len(order) == 2 * count
        assert kept(order) == (count if name == "gpipe" else min(count, stages - stage))
    done: set[Any] = set()
    for stage, task in merged(orders):
        needed = stage - 1 if task.forward else stage + 1
        assert (needed, task) in done or not 0 <= needed < stages
        assert task.forward or (stage, Task(True, task.number)) in done
        done.add((stage, task))
    assert len(done) == 2 * count * stages


@pytest.mark.parametrize("order", ORDERS)
def test_the_engine_keeps_the_order_and_so_what_is_kept(order):
    """Check this with the operations each device ran, in the order in which they started."""
    net, count, stages = dense(4, 64), 6, 4
    parts = parallel.Pipeline(net, [gpu(i) for i in range(stages)], count, order, cut=[1, 2, 3])
    parts.hybridize()
    x, y = batch(96, 64)
    for _ in range(3):
        parts.backward(x, y, LOSS)
    npx.waitall()
    profiler.set_state("run")
    parts.backward(x, y, LOSS)
    profiler.set_state("stop")
    operations = [o for o in profiler.recording().finished() if not o.copies]
    for stage in range(stages):
        ran = sorted((o.started, o.name) for o in operations if o.device == gpu(stage).code)
        names = [name for _, name in ran if "_stage" in name or name == "backward"]
        pieces = names.count("backward") // count
        expected: list[str] = []
        for task in ORDERS[order](stage, stages, count):
            expected += [f"{net.prefix}stage{stage}"] if task.forward else ["backward"] * pieces
        assert names == expected
    most = [4, 3, 2, 1] if order == "1f1b" else [count] * stages
    assert parts.in_flight() == most
    assert parts.in_flight(2) == [min(2, n) for n in most]


def test_each_cut_is_sent_once_forward_and_once_backward():
    net, count, size, units = dense(3, 32), 4, 64, 32
    parts = parallel.Pipeline(net, [gpu(0), gpu(1), gpu(2)], count)
    x, y = batch(size, units)
    parts.backward(x, y, LOSS)
    npx.waitall()
    profiler.set_state("run")
    parts.backward(x, y, LOSS)
    profiler.set_state("stop")
    found = [o for o in profiler.recording().finished() if o.copies]
    whole = size * units * 4
    # x goes to the first device, y to the last one. Between two devices each micro-batch passes
    # forward and backward. A copy may carry one more element for each array it waits for.
    large = [o for o in found if o.bytes > 100]
    assert len(large) == count * (1 + 1 + 2 * 2)
    assert sum(o.bytes for o in large) == pytest.approx(6 * whole, rel=0.02)


# ---- stages


def test_balanced_stages():
    assert balanced([1, 1, 1, 1], 2) == [0, 2]
    assert balanced([5, 1, 1, 1], 3) == [0, 1, 2]
    assert balanced([1, 1, 1, 9], 2) == [0, 3]
    assert balanced([0, 0, 0], 3) == [0, 1, 2]  # each stage gets a layer, whatever the costs
    rng = numpy.random.RandomState(0)
    for _ in range(20):
        sizes = rng.randint(0, 9, size=6).tolist()
        begins = balanced(sizes, 3)
        largest = max(map(sum, (sizes[a:b] for a, b in zip(begins, [*begins[1:], 6], strict=True))))
        every = [
            max(sum(sizes[:a]), sum(sizes[a:b]), sum(sizes[b:]))
            for a in range(1, 5)
            for b in range(a + 1, 6)
        ]
        assert largest == min(every)


def test_stages_of_equal_parameters_and_of_equal_operations():
    def net() -> nn.HybridSequential:
        made = nn.HybridSequential()
        made.add(*(nn.Conv2D(8, 3, padding=1) for _ in range(3)), nn.Flatten(), nn.Dense(40))
        return made

    x = np.ones((4, 1, 12, 12))
    layers = net()
    layers.initialize()
    found = costs(list(layers), x)
    assert found[2] == found[1] > 5 * found[0] > found[3] == 0
    assert found[4] == pytest.approx(2 * 4 * 1152 * 40, rel=0.01)
    ends = {}
    for cut in ("parameters", "flops"):
        parts = parallel.Pipeline(net(), [cpu(0), cpu(1)], 2, cut=cut)
        parts.initialize()
        assert parts.stages == []  # not known before the shapes are
        assert parts(x).shape == (4, 40)
        ends[cut] = [len(stage.block) for stage in parts.stages]
    assert ends == {"parameters": [3, 2], "flops": [2, 3]}


def test_wrong_pipelines():
    two = [cpu(0), cpu(1)]
    for count in (0, -1, 2.5, np.ones((2,), dtype="int32")):
        with pytest.raises(parallel.SplitError, match="micro_batches must be a whole number of at"):
            parallel.Pipeline(dense(2), two, count)  # type: ignore[arg-type]
    with pytest.raises(parallel.SplitError, match="at least one layer"):
        parallel.Pipeline(dense(1), two)
    for cut in ([], [0], [2], [1, 1], [3]):
        with pytest.raises(parallel.SplitError, match="at least one layer each"):
            parallel.Pipeline(dense(2), two, cut=cut)
    with pytest.raises(UnknownNameError, match="parameters"):
        parallel.Pipeline(dense(2), two, cut="paramters")

    class Other(nn.HybridSequential):
        def forward(self, x: Any) -> Any:
            return x + super().forward(x)

    for net in (nn.Dense(2), Other(nn.Dense(2), nn.Dense(2))):
        with pytest.raises(parallel.SplitError, match="only these can be divided"):
            parallel.Pipeline(net, two)
    shared = dense(3)
    shared[2].weight = shared[0].weight
    with pytest.raises(parallel.SplitError, match="two stages"):
        parallel.Pipeline(shared, two, cut=[1])
    with pytest.raises(ValueError, match="Pipeline"):  # SplitError is a ValueError, too
        parallel.Pipeline(dense(2), two, 0)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"cut": ["a"]}, r"cut is \['a'\]; it must be \"parameters\", \"flops\", or a list"),
        ({"cut": [1.5]}, r"cut is \[1.5\]"),
        ({"cut": 1}, "cut is 1"),
        ({"cut": None}, "cut is None"),
        ({"order": ["1f1b"]}, "unknown order of a pipeline"),
        ({"micro_batches": 2.5}, "Pipeline: micro_batches must be a whole .* at least 1, not 2.5"),
    ],
)
def test_settings_that_are_not_those_of_a_pipeline(settings, words):
    with pytest.raises((parallel.SplitError, UnknownNameError), match=words):
        parallel.Pipeline(dense(2), [gpu(0), gpu(1)], **settings)


def test_whole_numbers_of_all_kinds():
    parts = parallel.Pipeline(dense(2), [gpu(0), gpu(1)], numpy.int64(2), cut=(numpy.int32(1),))
    assert len(parts.stages) == 2 and parts.in_flight() == [2, 1]
    for number in (-3, 0, "a"):
        with pytest.raises(ArgumentError, match="micro_batches must be a whole number"):
            parts.in_flight(number)


# ---- gradients


@pytest.mark.parametrize("order", ORDERS)
def test_gradients_are_added_where_they_are_wanted_so(order):
    net, known = dense(3), dense(3)
    parts = parallel.Pipeline(net, [gpu(0), gpu(1)], 3, order)
    for one in (net, known):
        one.collect_params().setattr("grad_req", "add")
        one[1].weight.grad_req = "write"
        one[2].bias.grad_req = "null"
    x, y = batch()
    for _ in range(2):
        parts.backward(x, y, LOSS)
        with autograd.record():
            losses = LOSS(known(x), y)
        losses.backward()
    chosen = [k for k, p in net.collect_params().items() if p.grad_req != "null"]
    for name in chosen:
        found, expected = (n.collect_params()[name] for n in (net, known))
        close([found.grad(found.homes[0]).asnumpy()], [expected.grad().asnumpy()])
    with pytest.raises(GradientError):
        net[2].bias.grad(gpu(1))


def test_within_a_recorded_block_and_after_an_error():
    net, known = dense(3), dense(3)
    parts = parallel.Pipeline(net, [gpu(0), gpu(1), gpu(2)], 4)
    x, y = batch()
    calls = []

    def loss(a: Any, b: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise ShapeError("made up")
        return LOSS(a, b)

    with pytest.raises(ShapeError, match="made up"):
        parts.backward(x, y, loss)
    with autograd.record():
        parts.backward(x, y, loss)
        losses = LOSS(known(x), y)
    losses.backward()
    close(gradients(net), gradients(known))
    with autograd.record():  # the split network can be called like any other
        other = LOSS(parts(x), y.as_in_ctx(gpu(2)))
    other.backward()
    close(gradients(net), gradients(known))


def test_several_arrays_between_stages_and_stages_without_parameters():
    class Two(nn.HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            self.dense = nn.Dense(4, in_units=4)

        def forward(self, x: Any) -> Any:
            return self.dense(x), x * 2, (x > 0).astype("int32")

    class One(nn.HybridBlock):
        def forward(self, a: Any, b: Any, c: Any) -> Any:  # b does not contribute to the gradient
            return a * c.astype("float32") + np.zeros_like(b)

    def made() -> nn.HybridSequential:
        np.random.seed(1)
        net = nn.HybridSequential()
        net.add(nn.Identity(), nn.Dense(4, in_units=4), Two(), One(), nn.Activation("tanh"))
        net.initialize(init.Xavier())
        return net

    net, known = made(), made()
    parts = parallel.Pipeline(net, [gpu(i) for i in range(4)], 3, cut=[1, 3, 4])
    parts.hybridize()
    x, y = batch()
    for _ in range(2):
        parts.backward(x, y, LOSS)
        with autograd.record():
            losses = LOSS(known(x), y)
        losses.backward()
        close(gradients(net), gradients(known))


def test_rows_of_integers_come_in():
    def made() -> nn.HybridSequential:
        np.random.seed(1)
        net = nn.HybridSequential()
        net.add(nn.Embedding(9, 4), nn.Dense(4, in_units=8), nn.Dense(4, in_units=4))
        net.initialize(init.Xavier())
        return net

    net, known = made(), made()
    parts = parallel.Pipeline(net, [gpu(0), gpu(1)], 3, "gpipe")
    x, y = np.array(numpy.arange(22).reshape(11, 2) % 9), batch()[1]
    with autograd.record():
        losses = LOSS(known(x), y)
    losses.backward()
    parts.backward(x, y, LOSS)
    close(gradients(net), gradients(known))


# ---- layers with states


@pytest.mark.parametrize("order", ORDERS)
def test_batch_norm_sees_micro_batches(order):
    """The result is that of one device that takes the same micro-batches one after another."""

    def made() -> nn.HybridSequential:
        np.random.seed(1)
        net = nn.HybridSequential()
        net.add(nn.Dense(4, in_units=4), nn.BatchNorm(in_channels=4), nn.Dense(4, in_units=4))
        net.initialize(init.Xavier())
        return net

    net, known = made(), made()
    for parameter in known.collect_params().values():
        if parameter._differentiable:
            parameter.grad_req = "add"
    parts = parallel.Pipeline(net, [gpu(0), gpu(1)], 3, order, cut=[1])
    x, y = batch(12)
    parts.backward(x, y, LOSS)
    for begin in range(0, 12, 4):
        with autograd.record():
            losses = LOSS(known(x[begin : begin + 4]), y[begin : begin + 4])
        losses.backward()
    close(
        [p.gathered().asnumpy() for p in net.collect_params().values()],
        [p.data().asnumpy() for p in known.collect_params().values()],
    )
    trained = [k for k, p in net.collect_params().items() if p._differentiable]
    for name in trained:
        found, expected = (n.collect_params()[name] for n in (net, known))
        close([found.grad(found.homes[0]).asnumpy()], [expected.grad().asnumpy()])


def test_dropout_is_repeated_by_the_seed_and_differs_between_micro_batches():
    def losses(seed: int) -> Any:
        net = dense(2)
        net.add(nn.Dropout(0.5), nn.Dense(4, in_units=4))
        net[3].initialize(init.Xavier())
        parts = parallel.Pipeline(net, [gpu(0), gpu(1)], 3)
        np.random.seed(seed)
        x = np.ones((12, 4))
        return parts.backward(x, x, LOSS).asnumpy().reshape(3, 4)

    first, again, other = losses(5), losses(5), losses(6)
    assert (first == again).all() and (first != other).any()
    assert (first[0] != first[1]).any()


# ---- edges


def test_two_threads_with_a_pipeline_each():
    x, y = batch()
    known = dense(3)
    with autograd.record():
        losses = LOSS(known(x), y)
    losses.backward()
    nets = [dense(3), dense(3)]
    failed: list[Any] = []

    def work(number: int) -> None:
        try:
            devices = [gpu(2 * number), gpu(2 * number + 1)]
            parts = parallel.Pipeline(nets[number], devices, 4)
            for _ in range(20):
                parts.backward(x, y, LOSS)
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not failed
    for net in nets:
        close(gradients(net), gradients(known))


SERIAL = """
from gemel import autograd, cpu, gluon, np
from gemel.gluon import nn, parallel
net = nn.Sequential()
net.add(nn.Dense(4, in_units=4), nn.Dense(4, in_units=4))
net.initialize("ones")
parts = parallel.Pipeline(net, [cpu(0), cpu(1)], 3)
losses = parts.backward(np.ones((7, 4)), np.ones((7, 4)), gluon.loss.L2Loss())
print([losses.tolist(), net[0].weight.grad(cpu(0)).sum().item()])
"""


def test_a_serial_engine_and_more_micro_batches_than_the_queue_holds():
    found = [
        subprocess.run(
            [sys.executable, "-c", SERIAL.replace("3)", f"{count})").replace("7,", f"{size},")],
            env={**surroundings({}), **more},
            capture_output=True,
            text=True,
            timeout=300,
        )
        for more, count, size in (({"GEMEL_ENGINE": "serial"}, 3, 7), ({}, 300, 300))
    ]
    assert [one.returncode for one in found] == [0, 0], found[0].stderr + found[1].stderr
    # Two layers of ones turn 1 into 16, and (16 - 1) ** 2 / 2 is 112.5.
    for one, size in zip(found, (7, 300), strict=True):
        losses, total = json.loads(one.stdout)
        assert losses == [112.5] * size and total == pytest.approx(size * 15 / 4 * 4 * 16)


@pytest.mark.parametrize("cut", ["parameters", "flops", [1]])
def test_layers_that_are_added_or_replaced_later_take_part(cut):
    x, y = batch()
    net, alone = dense(2), dense(2)
    pipeline = parallel.Pipeline(net, [gpu(0), gpu(1)], cut=cut)
    pipeline.backward(x, y, LOSS)
    for change in (
        lambda layers, more: layers.add(*more),
        lambda layers, more: layers.register_child(more[0], "1"),
    ):
        change(net, list(dense(2, seed=5)))
        change(alone, list(dense(2, seed=5)))
        trainer = gluon.Trainer(pipeline.collect_params(), "sgd")
        with autograd.record():
            expected = LOSS(alone(x), y)
        expected.backward()
        close([pipeline.step(trainer, x, y, LOSS).asnumpy()], [expected.asnumpy()])
        close(gradients(net), gradients(alone))
        gluon.Trainer(alone.collect_params(), "sgd").step(len(x))
        close([pipeline(x).asnumpy()], [alone(x).asnumpy()])
        assert sum(len(stage.block) for stage in pipeline.stages) == len(net)

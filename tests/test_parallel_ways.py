"""Three ways to split a network: with each, training gives the parameters of one device."""

from __future__ import annotations

import copy
import os
import pickle
import threading
from typing import Any

import numpy
import pytest

from gemel import autograd, cpu, gluon, gpu, init, lr_scheduler, np, npx
from gemel.errors import (
    ArgumentError,
    DeviceError,
    ShapeError,
    UninitializedError,
    UnknownNameError,
)
from gemel.gluon import nn, parallel

pytestmark = pytest.mark.usefixtures("four_gpus")

LOSS = gluon.loss.SoftmaxCrossEntropyLoss()
EXAMPLES, STEPS = 22, 4  # of the numbers of parts used here, only 2 divides 22

#: How far parameters may be from those of one device, because sums are in another order.
TOLERANCE = {"float32": 2e-6, "float64": 1e-13}


def devices_of(kind: str, count: int) -> list[Any]:
    return [(cpu if kind == "cpu" else gpu)(number) for number in range(count)]


def network(cut: bool = False, dtype: str = "float32") -> nn.HybridSequential:
    """A network of dense layers; with `cut`, alternately split by columns and by rows."""
    np.random.seed(3)
    wide, narrow = (parallel.ColumnDense, parallel.RowDense) if cut else (nn.Dense, nn.Dense)
    net = nn.HybridSequential()
    net.add(
        nn.Dense(16, activation="relu", dtype=dtype),
        wide(12, activation="tanh", dtype=dtype),
        narrow(8, activation="relu", dtype=dtype),
        wide(8, use_bias=False, dtype=dtype),
        narrow(3, dtype=dtype),
    )
    return net


def batch(dtype: str = "float32", size: int = EXAMPLES) -> tuple[Any, Any]:
    rng = numpy.random.RandomState(size)
    x = np.array(rng.normal(size=(size, 5)), dtype=dtype)
    return x, np.array(rng.randint(0, 3, size=(size,)))


SETTINGS = {
    "sgd": {"learning_rate": 0.1, "momentum": 0.9, "wd": 0.01},
    "adam": {"learning_rate": 0.01},
    "rmsprop": {"learning_rate": 0.01},
}


def alone(hybrid: bool, optimizer: str, dtype: str, steps: int = STEPS) -> Any:
    net = network(dtype=dtype)
    net.initialize(init.Xavier())
    if hybrid:
        net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), optimizer, SETTINGS[optimizer])
    x, y = batch(dtype)
    for _ in range(steps):
        with autograd.record():
            losses = LOSS(net(x), y)
        losses.backward()
        trainer.step(EXAMPLES)
    return net, trainer, losses


def values(net: Any) -> list[Any]:
    return [p.gathered().asnumpy() for p in net.collect_params().values()]


def close(found: Any, expected: Any, dtype: str) -> None:
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype == dtype
        numpy.testing.assert_allclose(a, b, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


def split(way: str, net: Any, devices: Any) -> parallel.Split:
    if way == "data":
        return parallel.DataParallel(net, devices)
    if way == "tensor":
        return parallel.TensorParallel(net, devices)
    return parallel.Pipeline(net, devices, micro_batches=5, order=way)


WAYS = ["data", "gpipe", "1f1b", "tensor"]


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("optimizer", SETTINGS)
@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_training_is_that_of_one_device(way, hybrid, optimizer, dtype):
    expected, _, known = alone(hybrid, optimizer, dtype)
    net = network(way == "tensor", dtype)
    net.initialize(init.Xavier())  # the first batch determines the shapes
    parts = split(way, net, devices_of("gpu", 2))
    if hybrid:
        parts.hybridize()
    trainer = gluon.Trainer(parts.collect_params(), optimizer, SETTINGS[optimizer])
    x, y = batch(dtype)
    for _ in range(STEPS):
        losses = parts.step(trainer, x, y, LOSS)
    close([losses.asnumpy()], [known.asnumpy()], dtype)
    close(values(net), values(expected), dtype)
    close([parts(x).asnumpy()], [expected(x).asnumpy()], dtype)


@pytest.mark.parametrize("kind, count", [("cpu", 1), ("cpu", 4), ("gpu", 1), ("gpu", 4)])
@pytest.mark.parametrize("way", WAYS)
def test_on_other_devices(way, kind, count):
    expected, _, _ = alone(False, "sgd", "float32")
    net = network(way == "tensor")
    parts = split(way, net, devices_of(kind, count))
    np.random.seed(3)
    parts.initialize(init.Xavier())
    trainer = gluon.Trainer(parts.collect_params(), "sgd", SETTINGS["sgd"])
    for _ in range(STEPS):
        parts.step(trainer, *batch(), LOSS)
    close(values(net), values(expected), "float32")


@pytest.mark.parametrize("way", WAYS)
def test_files_are_those_of_one_device(way, tmp_path):
    expected, trainer, _ = alone(False, "adam", "float32")
    expected.save_parameters(tmp_path / "alone.params")
    trainer.save_states(tmp_path / "alone.states")
    net = network(way == "tensor")
    parts = split(way, net, devices_of("gpu", 2))
    parts.load_parameters(tmp_path / "alone.params")  # before any parameter has a shape
    going_on = gluon.Trainer(parts.collect_params(), "adam", SETTINGS["adam"])
    going_on.load_states(tmp_path / "alone.states")
    parts.step(going_on, *batch(), LOSS)
    parts.save_parameters(tmp_path / "parts.params")
    going_on.save_states(tmp_path / "parts.states")

    x, y = batch()
    with autograd.record():
        losses = LOSS(expected(x), y)
    losses.backward()
    trainer.step(EXAMPLES)
    expected.save_parameters(tmp_path / "alone.params")
    trainer.save_states(tmp_path / "alone.states")
    for kind in ("params", "states"):
        known, found = (npx.load(tmp_path / f"{who}.{kind}") for who in ("alone", "parts"))
        assert list(known) == list(found)
        for name, array in known.items():
            numpy.testing.assert_allclose(found[name].asnumpy(), array.asnumpy(), atol=2e-6)
    back = network()
    back.load_parameters(tmp_path / "parts.params")
    close(values(back), values(net), "float32")
    parts.load_parameters(tmp_path / "alone.params")  # parameters that already have values
    going_on.load_states(tmp_path / "alone.states")
    close(values(net), values(expected), "float32")


@pytest.mark.parametrize("halves", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_a_smaller_batch_and_one_of_fewer_examples_than_parts(way, halves, tmp_path):
    net, known = network(way == "tensor"), network()
    parts = split(way, net, devices_of("gpu", 2))
    known.initialize(init.Xavier())
    known(batch()[0])
    known.save_parameters(tmp_path / "known")
    parts.load_parameters(tmp_path / "known")
    parts.hybridize()
    trainers = [gluon.Trainer(n.collect_params(), "sgd", SETTINGS["sgd"]) for n in (net, known)]
    for size in (EXAMPLES, 7, 1, 3):
        x, y = batch(size=size)
        if halves:
            losses = parts.backward(x, y, LOSS)
            trainers[0].allreduce_grads()
            trainers[0].update(size)
        else:
            losses = parts.step(trainers[0], x, y, LOSS)
        assert losses.shape == (size,) and parts(x).shape == (size, 3)
        with autograd.record():
            one = LOSS(known(x), y)
        one.backward()
        trainers[1].step(size)
        close(values(net), values(known), "float32")
    with pytest.raises(ShapeError):
        parts.backward(np.zeros((0, 5)), np.zeros((0,)), LOSS)


@pytest.mark.parametrize("way", WAYS)
def test_learning_rates_change_and_count_everywhere(way):
    found = []
    for devices in (None, devices_of("gpu", 2)):
        net = network(way == "tensor" and devices is not None)
        np.random.seed(3)
        parts: Any = split(way, net, devices) if devices else None
        (parts or net).initialize(init.Xavier())
        rates = lr_scheduler.FactorScheduler(step=1, factor=0.5, base_lr=0.2)
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"lr_scheduler": rates})
        x, y = batch()
        for _ in range(3):
            if parts:
                parts.step(trainer, x, y, LOSS)
                continue
            with autograd.record():
                losses = LOSS(net(x), y)
            losses.backward()
            trainer.step(EXAMPLES)
        assert trainer.optimizer.num_update == 3
        found.append((values(net), trainer.learning_rate))
    close(found[1][0], found[0][0], "float32")
    assert found[1][1] == found[0][1]


@pytest.mark.parametrize("way", WAYS)
def test_wrong_use(way):
    net = network(way == "tensor")
    for devices in ([], gpu(0), [gpu(0), gpu(0)], [gpu(0), gpu(5)], ["gpu"]):
        with pytest.raises(DeviceError):
            split(way, net, devices)
    parts = split(way, net, devices_of("gpu", 2))
    with pytest.raises(UninitializedError):
        parts.backward(*batch(), LOSS)
    parts.initialize()
    with pytest.raises(ShapeError, match="first axis must be the examples"):
        parts.backward(*batch(), lambda y, label: LOSS(y, label).mean())
    with pytest.raises(ShapeError):
        parts.backward(np.ones((4, 9, 2))[:, 0], np.ones((3,)), LOSS)
    parts.backward(*batch(), LOSS)  # nothing is left of the failed batch
    npx.waitall()
    with pytest.raises(parallel.SplitError, match="Dense'> is not a network"):
        split(way, nn.Dense, devices_of("gpu", 2))
    with pytest.raises(ValueError, match="int 3 is not a network"):
        split(way, 3, devices_of("gpu", 2))


def test_a_network_without_split_layers_is_not_split() -> None:
    net = nn.Sequential(nn.Dense(4), nn.Dense(2))
    with pytest.raises(
        parallel.SplitError, match=r"no layer of this network is split.*ColumnDense"
    ):
        parallel.TensorParallel(net, devices_of("gpu", 2))
    parallel.TensorParallel(net, devices_of("gpu", 1))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("examples", "labels"), [(1, 2), (2, 1), (3, 4), (4, 3), (0, 0), (2, None)]
)
def test_as_many_labels_as_examples(way, examples, labels):
    """If labels and examples differ in number, that is an error: no label is left out silently."""
    net = network(way == "tensor")
    parts = split(way, net, devices_of("cpu", 2))
    parts.initialize(init.Xavier())
    x, y = batch()
    given = np.zeros(()) if labels is None else y[:labels]
    with pytest.raises(ShapeError, match=r"empty batch|examples \[.*\] with labels \["):
        parts.backward(x[:examples], given, LOSS)


@pytest.mark.parametrize("way", WAYS)
def test_a_failure_changes_no_parameter_and_is_told(way):
    net = network(way == "tensor")
    parts = split(way, net, devices_of("cpu", 2))
    parts.initialize(init.Xavier())
    trainer = gluon.Trainer(parts.collect_params(), "sgd", SETTINGS["sgd"])
    x, y = batch()
    parts.step(trainer, x, y, LOSS)
    before = values(net)
    rows = np.arange(EXAMPLES)
    rows[3] = EXAMPLES + 5
    losses = parts.step(trainer, x[rows], y, LOSS)
    with pytest.raises(IndexError, match="out of bounds"):
        losses.asnumpy()
    npx.waitall()
    close(values(net), before, "float32")
    parts.step(trainer, x, y, LOSS)
    assert all((a != b).any() for a, b in zip(values(net), before, strict=True))


def test_the_order_of_a_pipeline_has_a_name():
    with pytest.raises(UnknownNameError, match="gpipe"):
        split("gpipes", network(), [cpu(0)])


@pytest.mark.parametrize("way", WAYS)
def test_numpy_arrays_copies_and_a_fork(way):
    net = network(way == "tensor")
    net.initialize(init.Xavier())
    parts = split(way, net, devices_of("cpu", 2))
    x, y = (part.asnumpy() for part in batch())
    losses = parts.backward(x, y, LOSS).asnumpy()
    assert parts(x).shape == (EXAMPLES, 3)
    other = copy.deepcopy(parts)
    assert (other.backward(x, y, LOSS).asnumpy() == losses).all()
    assert (pickle.loads(pickle.dumps(parts)).backward(x, y, LOSS).asnumpy() == losses).all()
    other.step(gluon.Trainer(other.collect_params(), "sgd"), x, y, LOSS)
    assert (parts.backward(x, y, LOSS).asnumpy() == losses).all()
    child = os.fork()
    if child == 0:
        same = (parts.backward(x, y, LOSS).asnumpy() == losses).all()
        os._exit(0 if same else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("way", ["data", "tensor"])
def test_threads_with_networks_of_their_own(way):
    found: dict[int, Any] = {}

    def work(number: int) -> None:
        net = network(way == "tensor")
        net.load_dict(start)
        parts = split(way, net, devices_of("gpu", 4)[2 * number : 2 * number + 2])
        for _ in range(10):
            found[number] = parts.backward(*batch(), LOSS).asnumpy()

    first = network()
    first.initialize(init.Xavier())
    first(batch()[0])
    start = {name: p.data() for name, p in first.collect_params().items()}
    threads = [threading.Thread(target=work, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert (found[0] == found[1]).all()


@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize("way", ["data", "tensor"])
def test_an_error_leaves_no_device_waiting_for_another(way, hybrid):
    """Devices meet in layers. Those that arrived before the error must not meet the next batch."""

    def made() -> nn.HybridSequential:
        np.random.seed(4)
        net = nn.HybridSequential()
        if way == "tensor":
            net.add(parallel.ColumnDense(8, in_units=5), parallel.RowDense(4, in_units=8))
        else:
            net.add(nn.Dense(4, in_units=5), nn.SyncBatchNorm(in_channels=4))
        net.add(nn.Dense(3, in_units=4))
        net.initialize(init.Xavier())
        return net

    x, y = batch(size=12)
    found = []
    for count in (1, 2, 4):
        net = made()
        parts = split(way, net, devices_of("cpu", count))
        if hybrid:
            parts.hybridize()
        for _ in range(2):  # compiled at the second time
            with pytest.raises(ValueError, match="made up"):
                parts.backward(x + 100, y, broken)
            losses = [parts.backward(part, y, LOSS).asnumpy() for part in (x, x * 2)]
        npx.waitall()
        found.append(losses)
    for losses in found[1:]:
        numpy.testing.assert_allclose(losses, found[0], rtol=1e-5, atol=1e-5)


def broken(prediction: Any, label: Any) -> Any:
    raise ValueError("made up")


class Both(nn.HybridBlock):
    """Two results: what comes in, and twice that."""

    def forward(self, x):
        return x, 2 * x


@pytest.mark.parametrize("way", WAYS)
def test_several_results(way):
    net = network(way == "tensor")
    net.add(Both())
    parts = split(way, net, devices_of("gpu", 2))
    parts.initialize(init.Xavier())
    x, y = batch()
    once, twice = parts(x)
    assert once.shape == (EXAMPLES, 3) and (twice.asnumpy() == 2 * once.asnumpy()).all()
    assert parts.backward(x, y, lambda found, label: LOSS(found[1], label)).shape == (EXAMPLES,)


class Named(gluon.Block):
    def forward(self, x):
        return {"found": x}


@pytest.mark.parametrize("way", [way for way in WAYS if way != "tensor"])
def test_results_that_have_no_parts(way):
    net = nn.Sequential()
    net.add(nn.Dense(3), Named())
    parts = split(way, net, devices_of("gpu", 2))
    parts.initialize()
    with pytest.raises(parallel.SplitError, match="returned something of type dict"):
        parts(batch()[0])


@pytest.mark.parametrize("way", WAYS)
def test_losses_and_batches_of_another_kind(way):
    parts = split(way, network(way == "tensor"), devices_of("gpu", 2))
    parts.initialize(init.Xavier())
    x, y = batch()
    for loss, text in [(None, "None is not a function"), (lambda p, y: 1.0, "returned a float"),
                       (lambda p, y: (p, y), "returned a tuple")]:  # fmt: skip
        with pytest.raises(ArgumentError, match=text):
            parts.backward(x, y, loss)
    for given, labels in [((x, x), y), (x, (y, y))]:
        with pytest.raises(ArgumentError, match="takes one array of examples, and one of labels"):
            parts.backward(given, labels, LOSS)
    with pytest.raises(ArgumentError, match="not 2 in a tuple"):
        parts((x, x))


@pytest.mark.parametrize("way", WAYS)
def test_what_is_no_trainer_computes_nothing(way):
    parts = split(way, network(way == "tensor"), devices_of("gpu", 2))
    parts.initialize(init.Xavier())
    parts(batch()[0])
    for wrong in (None, "sgd", LOSS):
        with pytest.raises(ArgumentError, match=r"step: .* is not a trainer"):
            parts.step(wrong, *batch(), LOSS)
    gradients = [p.list_grad() for p in parts.collect_params().values()]
    assert not any(each.any() for arrays in gradients for each in arrays)


def test_an_empty_batch_has_no_parts():
    parts = split("data", network(), devices_of("gpu", 2))
    with pytest.raises(ShapeError, match="leave out empty batches"):
        parts(np.ones((0, 5)))

"""Parameters on several devices, trainers over them, stores, and layers whose devices meet."""

from __future__ import annotations

import copy
import functools
import os
import pickle
import subprocess
import sys
import threading
import time
from typing import Any

import numpy
import pytest
from gates import reader
from mpi_programs import by_kind

import gemel
from gemel import _core, autograd, cpu, device, gluon, gpu, init, kvstore, np, npx
from gemel.errors import (
    ArgumentError,
    AxisError,
    DeviceError,
    DTypeError,
    GemelError,
    GradientError,
    ParameterFileError,
    ShapeError,
    UnknownNameError,
)
from gemel.gluon import Constant, Parameter, ParameterDict, nn
from gemel.gluon.utils import clip_global_norm, split_and_load, split_data
from gemel.kvstore.base import pairs

TWO = [cpu(0), cpu(1)]


@pytest.fixture(autouse=True)
def gpus():
    device.simulate(2, gigabytes_per_second=100, microseconds=0)
    yield
    npx.waitall()
    device.simulate(0)


def devices_of(text: str) -> list[Any]:
    """`c0 g1` -> [cpu(0), gpu(1)]."""
    return [(cpu if word[0] == "c" else gpu)(int(word[1:])) for word in text.split()]


def network(devices: Any, hybrid: bool = True, norm: Any = None) -> nn.HybridSequential:
    np.random.seed(3)
    net = nn.HybridSequential()
    net.add(nn.Dense(16, activation="relu", in_units=5))
    if norm is not None:
        net.add(norm())
    net.add(nn.Dense(3, in_units=16))
    net.initialize(init=init.Xavier(), ctx=devices)
    if hybrid:
        net.hybridize()
    return net


def backward(net: Any, devices: list[Any], size: int = 12) -> None:
    """Compute a loss and its gradients, with the batch split over the devices."""
    rng = numpy.random.RandomState(size)
    x, y = rng.normal(size=(size, 5)).astype("float32"), rng.randint(0, 3, size=(size,))
    parts = zip(*(split_and_load(v, devices, even_split=False) for v in (x, y)), strict=True)
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    with autograd.record():
        losses = [loss(net(a), b) for a, b in parts]
    for one in losses:
        one.backward()


def values(net: Any) -> list[Any]:
    """The parameters; checks that they have the same bits on all devices."""
    for parameter in net.collect_params().values():
        first, *others = (a.asnumpy() for a in parameter.list_data())
        assert all((first == other).all() for other in others), parameter
    return [p.gathered().asnumpy() for p in net.collect_params().values()]


def close(found: Any, expected: Any, tolerance: float = 1e-5) -> None:
    for a, b in zip(found, expected, strict=True):
        numpy.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


# ---- parameters


def test_a_parameter_lives_on_several_devices():
    made = Parameter("w", shape=(2, 3))
    made.initialize(ctx=TWO)
    first, second = made.list_data()
    assert (first.device, second.device) == tuple(TWO) == tuple(made.list_ctx())
    assert made.list_device() == TWO
    assert first.tolist() == second.tolist() != [[0.0] * 3] * 2
    assert made.data(cpu(1)) is second and made.data(ctx=cpu(0)) is first
    assert made.data() is first  # the current device's
    with cpu(1):
        assert made.data() is second
        assert made.grad() is second.grad
    with cpu(2), pytest.raises(DeviceError, match=r"w is on cpu\(0\), cpu\(1\), not on cpu"):
        made.data()
    with pytest.raises(RuntimeError, match=r"reset_device\(\[cpu\(0\), cpu\(1\), cpu\(5\)\]\)"):
        made.grad(cpu(5))
    made.set_data([[1, 2, 3], [4, 5, 6]])
    assert made.data(cpu(1)).tolist() == made.data(cpu(0)).tolist() == [[1, 2, 3], [4, 5, 6]]
    made.cast("float64")
    assert [str(a.dtype) for a in (*made.list_data(), *made.list_grad())] == ["float64"] * 4
    made.reset_ctx([gpu(0), cpu(3)])
    assert made.list_ctx() == [gpu(0), cpu(3)] and made.data(gpu(0)).tolist() == first.tolist()
    made.reset_ctx(cpu(1))
    assert made.data().device == cpu(1)  # the only device, so the current one does not matter
    with pytest.raises(GemelError, match="dense"):
        made.row_sparse_data(np.arange(2))
    assert made.var().shape == (2, 3)


def test_gradients_belong_to_a_device():
    made = Parameter("w", shape=(2,), init="ones", grad_req="add")
    made.initialize(ctx=TWO)
    for place, factor in zip(TWO, (2, 3), strict=True):
        with autograd.record(), place:
            loss = (made.data() * factor).sum()
        loss.backward()
    assert [g.tolist() for g in made.list_grad()] == [[2, 2], [3, 3]]
    made.zero_grad()
    assert [g.tolist() for g in made.list_grad()] == [[0, 0], [0, 0]]
    made.grad_req = "null"
    with pytest.raises(GradientError, match="grad_req"):
        made.list_grad()


def test_deferred_shapes_and_initializing_again():
    net = nn.HybridSequential()
    net.add(nn.Dense(16, activation="relu"), nn.Dense(3))
    net.initialize(ctx=TWO)
    assert net[0].weight.list_ctx() == TWO
    y = net(np.ones((2, 5), device=cpu(1)))
    assert y.device == cpu(1)
    arrays = net[0].weight.list_data()
    before = arrays[0].asnumpy()
    net.initialize(init=init.Xavier(), ctx=TWO, force_reinit=True)
    assert [a is b for a, b in zip(net[0].weight.list_data(), arrays, strict=True)] == [True] * 2
    assert (arrays[0].asnumpy() != before).any()
    values(net)
    net.initialize(ctx=cpu(2), force_reinit=True)
    assert net.collect_params().list_ctx() == [cpu(2)]
    assert net(np.ones((2, 5), device=cpu(2))).device == cpu(2)


def test_a_device_named_twice():
    made = Parameter("w", shape=(2,))
    with pytest.warns(UserWarning, match="names a device twice"):
        made.initialize(ctx=[cpu(1), cpu(1)])
    assert made.list_ctx() == [cpu(1)]


def test_no_devices_are_the_current_one():
    made = Parameter("w", shape=(2,))
    with gpu(1):
        made.initialize(ctx=[])
        (part,) = split_and_load(np.ones((4,)), [])
    assert made.list_ctx() == [gpu(1)] == [part.ctx] and part.shape == (4,)
    made.reset_ctx([])
    assert made.list_ctx() == [cpu()]


def test_splitting_needs_a_list_of_devices():
    for places in (None, cpu(1), "cpu"):
        with pytest.raises(ArgumentError, match="give a list of devices"):
            split_and_load(np.ones((4,)), places)
    assert [part.tolist() for part in split_data([1, 2, 3], 2, even_split=False)] == [[1, 2], [3]]


def test_gradients_behind_a_link_are_all_written():
    x, y, w = (np.random.normal(size=(3, 3), ctx=gpu(0)) for _ in range(3))
    norm = nn.BatchNorm()  # its beta's gradient is an input of its gamma's
    norm.initialize(ctx=gpu(0))
    for p in (x, y, w):
        p.attach_grad()
    for _ in range(4):
        for p in (x, y):
            p.grad[:] = -7
        with autograd.record():
            loss = (norm(np.dot(x + y, w)) ** 3).sum()
        loss.backward()
        assert (x.grad == y.grad).all() and (x.grad != -7).all()  # two variables share one result
    here = [p.as_in_ctx(cpu()) for p in (x, y, w)]
    other = nn.BatchNorm()
    other.initialize()
    here[0].attach_grad()
    with autograd.record():
        loss = (other(np.dot(here[0] + here[1], here[2])) ** 3).sum()
    loss.backward()
    numpy.testing.assert_allclose(here[0].grad, x.grad.as_in_ctx(cpu()), rtol=1e-3, atol=1e-3)
    numpy.testing.assert_allclose(other.beta.grad(), norm.beta.grad().as_in_ctx(cpu()), rtol=1e-4)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))])
def test_copies(copied):
    made = Parameter("w", shape=(2,), init="ones")
    made.initialize(ctx=TWO)
    other = copied(made)
    assert other.list_ctx() == TWO and other.grad(cpu(1)).tolist() == [0, 0]
    other.set_data(np.zeros(2))
    assert made.data(cpu(1)).tolist() == [1, 1]


def test_constants():
    made = Constant([1.0, 2.0], "c")
    made.initialize(ctx=TWO)
    assert [a.tolist() for a in made.list_data()] == [[1, 2], [1, 2]]
    assert made.grad_req == "null"


@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize("text", ["c0 c1", "c2 g0", "g0 g1"])
def test_forward_uses_the_replica_where_the_input_is(text, hybrid):
    devices = devices_of(text)
    net = network(devices, hybrid)
    x = numpy.random.RandomState(0).normal(size=(4, 5)).astype("float32")
    found = []
    for _ in range(3):
        found = [net(np.array(x, device=place)) for place in devices]
    assert [y.device for y in found] == devices
    assert found[0].tolist() == found[1].tolist()
    for number, place in enumerate(devices):  # each replica gets its own value
        net[1].bias.data(place)[...] = number + 100
    found = [net(np.array(x, device=place)).mean().item() for place in devices]
    assert found[1] - found[0] == pytest.approx(1, abs=1e-3)
    with pytest.raises(DeviceError, match=r"is on .*, not on cpu\(7\)"):
        net(np.array(x, device=cpu(7)))


def test_one_trace_and_one_plan_serve_all_devices():
    traced = []

    class Net(nn.HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            self.w = Parameter("w", shape=(5,), init="ones")

        def forward(self, x: Any) -> Any:
            traced.append(x.ctx)
            return x * self.w.data() + np.ones((5,), ctx=x.ctx)

    net = Net()
    net.initialize(ctx=[cpu(2), cpu(1)])
    net.hybridize()
    for place in (cpu(1), cpu(2), cpu(1)):
        assert net(np.ones((2, 5), device=place)).tolist() == [[2.0] * 5] * 2
    assert traced == [cpu(1)]


def test_a_custom_block_runs_on_the_device_of_its_input():
    class Shifted(nn.Block):
        def forward(self, x: Any) -> Any:
            return x + np.ones((2,))

    assert Shifted()(np.zeros((2,), device=cpu(3))).device == cpu(3)
    assert np.ones(1).device == cpu(0)


def test_files_and_device_sets(tmp_path):
    net = network(TWO, norm=nn.BatchNorm)
    with autograd.record():
        for number, place in enumerate(TWO):
            net(np.full((4, 5), number + 1.0, device=place) * np.arange(4, device=place)[:, None])
    means = [a.asnumpy() for a in net[1].running_mean.list_data()]
    assert (means[0] != means[1]).any()
    net.save_parameters(tmp_path / "net")
    other = network(cpu(0), norm=nn.BatchNorm)
    other.load_parameters(tmp_path / "net")
    close([other[1].running_mean.data().asnumpy()], [(means[0] + means[1]) / 2])
    assert other[0].weight.data().tolist() == net[0].weight.data().tolist()
    waiting = nn.HybridSequential()
    waiting.add(nn.Dense(16, activation="relu"), nn.BatchNorm(), nn.Dense(3))
    waiting.load_parameters(tmp_path / "net", ctx=[gpu(0), cpu(1)])
    assert waiting.collect_params().list_ctx() == [gpu(0), cpu(1)]
    close(values(waiting), values(other))
    with pytest.raises(ParameterFileError, match=r"on cpu\(0\), not on cpu\(1\) \(reset_ctx moves"):
        other.load_parameters(tmp_path / "net", ctx=cpu(1))


# ---- dictionaries of parameters


def test_parameter_dictionaries(tmp_path):
    made = ParameterDict("block0_")
    weight = made.get("weight", shape=(2, 0))
    assert weight.name == "block0_weight" and list(made) == ["block0_weight"]
    assert made.prefix == "block0_" and made.get("weight", shape=(2, 3)) is weight
    assert weight.shape == (2, 3)
    with pytest.raises(ShapeError):
        made.get("weight", shape=(2, 4))
    assert made.get_constant("c", [1.0]).name == "block0_c"
    with pytest.raises(UnknownNameError, match="constant 'd'"):
        made.get_constant("d")
    sharing = ParameterDict("block0_", shared=made)
    assert sharing.get("weight") is weight
    other = ParameterDict()
    other.update(made)
    with pytest.raises(GemelError, match="two parameters"):
        other.update({"block0_c": Parameter("block0_c")})
    made.initialize(ctx=TWO)
    assert made.list_ctx() == TWO
    made.setattr("lr_mult", 0.5)
    assert weight.lr_mult == 0.5
    made.save(tmp_path / "all", strip_prefix="block0_")
    assert sorted(npx.load(tmp_path / "all")) == ["c", "weight"]
    with pytest.raises(ParameterFileError, match="do not begin with"):
        made.save(tmp_path / "all", strip_prefix="block1_")
    before = weight.data().tolist()
    weight.set_data(np.zeros((2, 3)))
    made.load(tmp_path / "all", ctx=TWO, restore_prefix="block0_")
    assert weight.data(cpu(1)).tolist() == before
    made.reset_ctx(cpu(2))
    assert made.list_ctx() == [cpu(2)]
    assert network(cpu(0)).collect_params().get("nothing") is None


# ---- trainers


def trained(text: str, steps: int = 4, split: bool = False, optimizer: str = "sgd", **how: Any):
    devices = devices_of(text)
    net = network(devices)
    trainer = gluon.Trainer(net.collect_params(), optimizer, {"learning_rate": 0.05}, **how)
    for _ in range(steps):
        backward(net, devices)
        if split:
            trainer.allreduce_grads()
            trainer.update(12)
        else:
            trainer.step(12)
    return values(net)


HOW: list[dict[str, Any]] = [
    {},
    {"kvstore": "local"},
    {"split": True},
    {"kvstore": "local", "split": True},
    {"update_on_kvstore": True},
    {"kvstore": "local", "update_on_kvstore": True},
    {"kvstore": kvstore.create("device")},
    {"optimizer": "adam"},
    {"optimizer": "adam", "update_on_kvstore": True},
]


@pytest.mark.parametrize("how", HOW, ids=str)
@pytest.mark.parametrize("text", ["c0 c1", "c3 c1 c2", "g0 g1", "c0 g0"])
def test_training_is_that_of_one_device(text, how):
    alone = trained("c0", optimizer=how.get("optimizer", "sgd"))
    close(trained(text, **how), alone)


@pytest.mark.parametrize("optimizer", ["nag", "lamb", "nadam", "sgld", "rmsprop", "signum"])
def test_replicas_stay_equal(optimizer):
    trained("c0 c1", optimizer=optimizer)  # `values` compares the bits


def test_a_store_of_somebody_else_s():
    class Store:
        """The smallest interface that a trainer needs."""

        def pushpull(self, key: Any, value: Any, out: Any, priority: int) -> None:
            assert priority == -key
            total = sum(v.asnumpy() for v in value)
            for target in out:
                target[...] = total

    close(trained("c0 c1", kvstore=Store()), trained("c0"))
    for wrong in (3, Store):
        with pytest.raises(GemelError, match="it must be a name or a store"):
            gluon.Trainer([], "sgd", kvstore=wrong)


def test_a_registered_class_of_stores(monkeypatch):
    """MXNet 2's interface, by name and as an instance; what is missing is named."""
    monkeypatch.setattr(kvstore.KVStoreBase, "kv_registry", {})

    @kvstore.KVStoreBase.register
    class Mine(kvstore.KVStoreBase):
        rank, num_workers = 0, 1

        def pushpull(self, key, value, out=None, priority=0):
            total = sum(v.asnumpy() for v in value)
            for target in value if out is None else out:
                target[...] = total

    assert isinstance(kvstore.create("Mine"), Mine) and kvstore.create("mine").type == "mine"
    assert isinstance(kvstore.create("device"), kvstore.KVStoreBase)
    for given in ("mine", Mine()):
        close(trained("c0 c1", kvstore=given), trained("c0"))
    assert not Mine.is_capable("optimizer")
    calls = [
        (lambda: Mine().broadcast(0, 1, 2), "Mine has no broadcast; define it"),
        (lambda: kvstore.KVStoreBase().rank, "KVStoreBase has no rank; define it"),
        (lambda: Mine().set_optimizer(None), "Mine has no set_optimizer"),
        (lambda: kvstore.KVStoreBase.register(3), "3 is not a class of stores"),
        (lambda: kvstore.KVStoreBase.register(int), "int'> is not a class of stores; give"),
        (lambda: kvstore.create("mime"), "unknown kvstore 'mime'; did you mean 'mine'"),
        (lambda: gluon.Trainer([], "sgd", kvstore=Mine), "must be a name or a store"),
        (
            lambda: gluon.Trainer([], "sgd", kvstore="mine", update_on_kvstore=True),
            "needs a kvstore of gemel's, such",
        ),
    ]
    for call, said in calls:
        with pytest.raises(GemelError, match=said):
            call()
    Mine.num_workers, Mine.broadcast = 2, lambda *given, **settings: None
    net = network(TWO)
    trainer = gluon.Trainer(net.collect_params(), "sgd", kvstore="mine")
    with pytest.raises(GemelError, match="fit: Mine has 2 workers, but no `gathered`"):
        gluon.fit(net, [(np.ones((2, 5)), np.ones((2, 3)))], gluon.loss.L2Loss(), trainer, epochs=1)


def test_without_a_store_every_device_is_on_its_own():
    net = network(TWO)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, kvstore=None)
    backward(net, TWO)
    trainer.step(1)
    first, second = (a.asnumpy() for a in net[0].weight.list_data())
    assert (first != second).any()


def test_gradients_after_a_step():
    net = network(TWO)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    backward(net, TWO)
    own = [g.asnumpy() for g in net[0].weight.list_grad()]
    trainer.allreduce_grads()
    close([g.asnumpy() for g in net[0].weight.list_grad()], [own[0] + own[1]] * 2)
    for place in TWO:
        grads = [p.grad(place) for p in net.collect_params().values()]
        norm = clip_global_norm(grads, 1e-3, check_isfinite=False)
        assert isinstance(norm, np.ndarray) and norm.item() > 1e-3
    before = values(net)
    trainer.update(1)
    moved = sum(((a - b) ** 2).sum() for a, b in zip(values(net), before, strict=True)) ** 0.5
    assert moved == pytest.approx(0.1 * 1e-3, rel=1e-2)


def test_stale_gradients():
    net, alone = network(TWO), network(cpu(0))
    parameters = net.collect_params()
    trainer = gluon.Trainer(parameters, "sgd", {"learning_rate": 0.1})
    other = gluon.Trainer(alone.collect_params(), "sgd", {"learning_rate": 0.1})
    for one, places in ((net, TWO), (alone, [cpu(0)])):
        backward(one, places)
    trainer.step(12)
    other.step(12)
    # With one example the second device gets none, and its gradient is still the last batch's.
    backward(net, TWO, size=1)
    backward(alone, [cpu(0)], size=1)
    with pytest.raises(GradientError, match=r"dense\d+_weight on cpu\(1\).*ignore_stale_grad"):
        trainer.step(1)
    trainer.step(1, ignore_stale_grad=True)
    other.step(1)
    close(values(net), values(alone))
    with pytest.raises(GradientError, match=r"on cpu\(0\)"):
        trainer.step(1)
    trainer.step(1, ignore_stale_grad=True)  # no gradient is fresh
    close(values(net), values(alone))


def test_device_lists_that_disagree():
    net = network(TWO)
    net[1].reset_ctx([cpu(1), cpu(2)])
    trainer = gluon.Trainer(net.collect_params(), "sgd")
    with pytest.raises(DeviceError, match=r"_weight is on cpu\(0\), cpu\(1\), but"):
        trainer.step(1, ignore_stale_grad=True)


def test_two_nets_that_share_parameters_live_where_the_parameters_do():
    net = network(TWO)
    net(np.ones((1, 5)))
    sharing = nn.Dense(16, activation="relu", in_units=5, params=net[0].params)
    with pytest.warns(UserWarning, match="already hold values"):
        sharing.initialize(ctx=[cpu(3)])
    assert sharing.weight.list_ctx() == TWO
    assert sharing(np.ones((1, 5), device=cpu(1))).device == cpu(1)


def test_moving_in_the_middle(tmp_path):
    """States and counts stay with the parameters, also through files."""
    alone = trained("c0", steps=6, optimizer="adam")
    net = network(TWO)
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.05})
    for places in (TWO, [gpu(0)], [cpu(2), gpu(1), cpu(0)]):
        net.reset_ctx(places)
        for _ in range(2):
            backward(net, places)
            trainer.step(12)
    close(values(net), alone)

    net = network(TWO)
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.1})
    trainer.set_learning_rate(0.05)
    for _ in range(3):
        backward(net, TWO)
        trainer.step(12)
    net.save_parameters(tmp_path / "net")
    trainer.save_states(tmp_path / "states")
    expected = []
    for how in ({}, {"update_on_kvstore": True}):
        net = network(TWO)
        net.load_parameters(tmp_path / "net", ctx=TWO)
        trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.1}, **how)
        trainer.load_states(tmp_path / "states")
        assert trainer.learning_rate == 0.05
        for _ in range(3):
            backward(net, TWO)
            trainer.step(12)
        close(values(net), alone)
        expected.append(values(net))


def test_parameters_written_while_the_store_updates_them():
    net = network(TWO)
    trainer = gluon.Trainer(
        net.collect_params(), "sgd", {"learning_rate": 0.0}, update_on_kvstore=True
    )
    backward(net, TWO)
    trainer.step(1)
    net[1].bias.set_data(np.full((3,), 7.0))
    backward(net, TWO)
    trainer.step(1)
    assert net[1].bias.data(cpu(1)).tolist() == [7, 7, 7]
    for call in (trainer.allreduce_grads, lambda: trainer.update(1)):
        with pytest.raises(GemelError, match="update_on_kvstore=False"):
            call()
    with pytest.raises(GemelError, match="needs a kvstore"):
        gluon.Trainer([], "sgd", kvstore=None, update_on_kvstore=True)


def test_an_exception_in_one_replica_leaves_the_parameters_as_they_are():
    net = network(TWO)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    backward(net, TWO)
    trainer.step(12)
    before = values(net)
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    with autograd.record():
        losses = []
        for place in TWO:
            x = np.ones((4, 5), device=place)
            if place == cpu(1):
                x = x[np.array([9, 0, 0, 0], device=place)]
            losses.append(loss(net(x), np.zeros((4,), dtype="int64", device=place)))
    for one in losses:
        one.backward()
    trainer.step(8)
    with pytest.raises(IndexError, match="out of bounds"):
        losses[1].asnumpy()
    losses[0].asnumpy()
    close(values(net), before, 0)
    backward(net, TWO)
    trainer.step(12)
    assert any((a != b).any() for a, b in zip(values(net), before, strict=True))


def test_a_second_thread_trains_another_net():
    expected = trained("c0 c1", steps=10)
    found: list[Any] = []
    threads = [
        threading.Thread(target=lambda: found.append(trained_here("c2 c3"))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    close(trained("c0 c1", steps=10), expected, 0)
    assert len(found) == 2


def trained_here(text: str) -> None:
    """Like `trained`, but without the random numbers that all threads share."""
    net = nn.Dense(3, in_units=5)
    net.initialize(init=init.One(), ctx=devices_of(text))
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.05})
    for _ in range(10):
        backward(net, devices_of(text))
        trainer.step(12)
    values(net)


def test_each_gradient_travels_as_soon_as_it_is_there():
    """Over links a layer's sum waits only for that layer's backward, and first layers go first."""
    from gemel import profiler

    device.simulate(2)
    devices = [gpu(0), gpu(1)]
    net = network(devices)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.05})
    for _ in range(3):
        backward(net, devices)
        trainer.step(12)
    npx.waitall()
    with profiler.graph() as graph:
        backward(net, devices)
        trainer.step(12)
        npx.waitall()
    pieces = graph.named("backward")
    depends = [
        sum(other.name == "backward" for other in graph.ancestors(node)) for node in graph.copies()
    ]
    assert len(pieces) == 4
    assert {1, 2} <= set(depends)  # the last layer's copies need one piece, the first layer's two


@pytest.mark.parametrize("text", ["c0 c1", "c0 g1"])
@pytest.mark.parametrize("hybrid", [False, True])
def test_one_backward_from_the_losses_of_all_devices(text, hybrid):
    devices = devices_of(text)
    net = network(devices, hybrid)
    for _ in range(3):
        with autograd.record():
            losses = [
                (net(np.ones((2, 5), device=d)) * (n + 1)).sum() for n, d in enumerate(devices)
            ]
        autograd.backward(losses)
    first, second = (g.asnumpy() for g in net[0].weight.list_grad())
    close([2 * first], [second])
    # One device's array is used on both, and the copy's gradient travels in the same step.
    w = np.array([2.0], device=devices[0])
    w.attach_grad()
    with autograd.record():
        losses = [w * w, w.as_in_ctx(devices[1]) * 3]
    autograd.backward(losses)
    assert w.grad.item() == 7


# ---- stores


def test_a_store_sums_and_keeps():
    store = kvstore.create("device")
    assert (store.type, store.rank, store.num_workers) == ("device", 0, 1)
    store.init("a", np.ones((2,)))
    out = [np.zeros((2,), device=place) for place in TWO]
    store.pull("a", out)
    assert [o.tolist() for o in out] == [[1, 1], [1, 1]]
    store.push("a", [np.full((2,), 2.0), np.full((2,), 3.0, device=gpu(1))])
    store.pull("a", out[0])
    assert out[0].tolist() == [5, 5]
    store.init([1, 2], [np.zeros((1,)), np.ones((3,))])
    pushed = [[np.ones((1,)), np.ones((1,), device=cpu(1))], [np.full((3,), 4.0)]]
    store.pushpull([1, 2], pushed, priority=3)
    assert [a.tolist() for a in (*pushed[0], *pushed[1])] == [[2], [2], [4, 4, 4]]
    there = np.zeros((2,), device=gpu(0))
    store.broadcast("b", np.full((2,), 9.0), out=there)
    assert there.tolist() == [9, 9]


def test_a_store_updates_by_an_optimizer(tmp_path):
    store = kvstore.create("local")
    store.init(0, np.ones((2,)))
    with pytest.raises(GemelError, match="set_optimizer first"):
        store.save_optimizer_states(tmp_path / "states")
    store.set_optimizer(gemel.optimizer.SGD(learning_rate=0.5, momentum=0.5))
    out = np.zeros((2,))
    for expected in (0.0, -1.5):  # 1 - 0.5 * 2, then with momentum
        store.pushpull(0, [np.ones((2,)), np.ones((2,), device=cpu(1))], out=out)
        assert out.tolist() == [expected] * 2
    store.save_optimizer_states(tmp_path / "states")
    again = kvstore.create("local")
    again.init(0, out)
    again.set_optimizer(gemel.optimizer.SGD(learning_rate=0.5, momentum=0.5))
    again.load_optimizer_states(tmp_path / "states")
    for one in (store, again):
        one.pushpull(0, np.zeros((2,)), out=out)
        assert out.tolist() == [-2.25] * 2


def test_two_bits():
    store = kvstore.create("device")
    store.set_gradient_compression({"type": "2bit", "threshold": 0.5})
    store.init(0, np.zeros((5,)))
    out, given = np.zeros((5,)), [0.3, 0.6, -0.7, 0.0, 1.2]
    left, total = numpy.zeros(5), numpy.zeros(5)
    for _ in range(4):
        store.pushpull(0, [np.array(given), np.array(given, device=gpu(0))], out=out)
        left += given
        sent = 0.5 * ((left >= 0.5).astype(float) - (left <= -0.5))
        left -= sent
        close([out.asnumpy()], [2 * sent])
        total += sent
    close([total + left], [4 * numpy.array(given)])
    settings = {"type": "2bit", "threshold": 1e-3}
    close(trained("c0 g0", compression_params=settings, steps=1), trained("c0", steps=1), 2e-2)


def bfloat16(row):
    bits = row.view("uint32").astype("uint64")
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16 << 16).astype("uint32").view("float32")


NARROWED = {
    "fp16": lambda row: row.clip(-65504, 65504).astype("float16").astype("float32"),
    "bf16": bfloat16,
}


@pytest.mark.parametrize("kind", NARROWED)
def test_sixteen_bits(kind):
    """What 16 bits lose is added to the next gradient, by each device separately."""
    store = kvstore.create("device")
    store.set_gradient_compression({"type": kind})
    store.init("w", np.zeros((3, 4)))
    out, lost = np.zeros((3, 4)), numpy.zeros((2, 3, 4), "float32")
    draw = numpy.random.default_rng(0)
    for scale in (1.0, 1e-6, 1e5, 1.0, 1.0):
        given = (draw.normal(size=(2, 3, 4)) * scale).astype("float32")
        sent = NARROWED[kind](given + lost)
        lost = given + lost - sent
        store.pushpull("w", [np.array(given[0]), np.array(given[1], device=cpu(1))], out=out)
        assert (out.asnumpy() == sent[0] + sent[1]).all()
    halves = np.ones((2,), dtype="float16")
    store.init("h", halves)
    store.pushpull("h", [halves, halves.as_in_ctx(gpu(0))])
    assert halves.dtype == "float16" and halves.tolist() == [2, 2]
    empty = np.zeros((0, 2))
    store.init("e", empty)
    store.pushpull("e", empty)
    assert empty.tolist() == []


def stored() -> Any:
    """A store with a value of two elements under the key 0."""
    store = kvstore.create("device")
    store.init(0, np.zeros((2,)))
    return store


BAD: list[tuple[Any, type[Exception], str]] = [
    (lambda: kvstore.create("devise"), UnknownNameError, "did you mean 'device'"),
    (lambda: kvstore.create("dist_async"), GemelError, "parameter server"),
    (lambda: kvstore.create().pull("x", np.ones(1)), UnknownNameError, "call init first"),
    (lambda: kvstore.create().row_sparse_pull("x"), GemelError, "dense"),
    (lambda: kvstore.create().init([1, 2], [np.ones(1)]), ShapeError, "2 keys"),
    (lambda: kvstore.create(["local"]), UnknownNameError, "unknown kvstore"),
    (lambda: stored().init([1, 2], np.ones((2, 3))), ArgumentError, "list of 2 keys, give a list"),
    (
        lambda: stored().init(1, 2.5),
        ArgumentError,
        "float 2.5, given for key 1, is not a gemel array",
    ),
    (lambda: stored().init("a", None), ArgumentError, "NoneType None, given for key 'a'"),
    (lambda: stored().push(0, numpy.ones(2)), ArgumentError, r"ndarray of shape \(2,\), given for"),
    (lambda: stored().pull(0, out=[numpy.ones(2)]), ArgumentError, "np.array creates one"),
    (lambda: stored().push(0, np.ones((1,))), ShapeError, r"key 0 has a value of float32\[2\]"),
    (lambda: stored().pull(0, np.ones((2, 2))), ShapeError, r"float32\[2, 2\] was given"),
    (lambda: stored().init(1.5, np.ones(1)), ArgumentError, "float 1.5 is not a key"),
    (lambda: stored().init(True, np.ones(1)), ArgumentError, "bool True is not a key"),
    (lambda: stored().init([[1]], [np.ones(1)]), ArgumentError, r"list \[1\] is not a key"),
    (lambda: stored().set_updater(3), ArgumentError, "set_updater: 3 is not callable"),
    (
        lambda: stored().set_optimizer("sgd"),
        ArgumentError,
        "set_optimizer: 'sgd' is not an optimizer",
    ),
    (
        lambda: kvstore.create("local").set_gradient_compression({"type": "2bit"}),
        GemelError,
        "use 'device'",
    ),
    *(
        (
            lambda t=threshold: stored().set_gradient_compression({"type": "2bit", "threshold": t}),
            ArgumentError,
            "not a finite number above 0",
        )
        for threshold in (0, -1, 1e-60, 1e60, float("inf"), float("nan"), "much", None)
    ),
    (
        lambda: stored().set_gradient_compression("2bit"),
        ArgumentError,
        "not a dictionary of settings",
    ),
    (
        lambda: stored().set_gradient_compression({"type": ["2bit"]}),
        UnknownNameError,
        "unknown gradient compression",
    ),
    (
        lambda: kvstore.create("device").set_gradient_compression({"type": "2bits"}),
        UnknownNameError,
        "did you mean '2bit'",
    ),
    (
        lambda: kvstore.create("device").set_gradient_compression({"type": "fp61"}),
        UnknownNameError,
        "did you mean 'fp16'",
    ),
    (
        lambda: kvstore.create("device").set_gradient_compression({"treshold": 1}),
        UnknownNameError,
        "did you mean 'threshold'",
    ),
    (
        lambda: stored().set_gradient_compression({"type": "fp16", "threshold": 1}),
        ArgumentError,
        "the type 'fp16' takes no other setting",
    ),
    (
        lambda: kvstore.create("device").set_gradient_compression({"threshold": 1}),
        ArgumentError,
        "has no type, so nothing would be compressed",
    ),
    (lambda: Parameter("w", stype="row_sparse"), GemelError, "dense"),
    (lambda: split_data(np.ones((3, 2)), 4), ShapeError, "3 examples"),
    (lambda: split_data(np.ones((0, 2)), 4, even_split=False), ShapeError, "0 examples"),
    (lambda: split_data(np.ones((5, 2)), 2), ShapeError, "even_split=False"),
    *(
        (
            lambda n=number: split_data(np.ones((6, 2)), n, even_split=False),
            ArgumentError,
            r"split_data: .* parts of an array of shape \(6, 2\); give a whole number",
        )
        for number in (0, -1, 1.5, "2")
    ),
    (lambda: split_data(np.ones((6,)), 2, batch_axis=1), AxisError, "split_data: axis 1 is out"),
    (lambda: split_data(np.ones((6,)), 2, batch_axis=-2), AxisError, "split_data: axis -2 is"),
    (lambda: split_and_load(np.array(3.0), TWO), AxisError, "an array of 0 dimensions"),
    (
        lambda: stored().push("0", np.ones(2)),
        UnknownNameError,
        "there is no key '0'; there is a key 0, but 0 and '0' are different keys",
    ),
    (lambda: split_and_load(np.ones((4,))), ValueError, "give a list of devices"),
]


@pytest.mark.parametrize(("call", "error", "message"), BAD)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_pushes_of_different_shapes():
    store = stored()
    with pytest.raises(ShapeError, match="different shapes"):
        store.push(0, [np.ones((2,)), np.ones((3,), device=cpu(1))])


@pytest.mark.parametrize("places", ["c0 c1", "c0 g0"])
def test_pushes_of_different_dtypes(places):
    """They are refused, and leave no program behind that later pushes would use."""
    first, second = devices_of(places)
    store = stored()
    for dtypes in (("float32", "float16"), ("float32", "complex64")):
        with pytest.raises(DTypeError, match=f"different dtypes: {', '.join(dtypes)}"):
            store.push(0, [np.ones((2,), dtype=dtypes[0], device=first),
                           np.ones((2,), dtype=dtypes[1], device=second)])  # fmt: skip
    out = np.zeros((2,))
    store.pushpull(0, [np.ones((2,), device=first), np.ones((2,), device=second)], out=out)
    assert out.tolist() == [2, 2]


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "bfloat16", "float64", "complex64"])
@pytest.mark.parametrize("shape", [(), (0, 3), (2,)])
@pytest.mark.parametrize("compressed", ["none", "2bit", "fp16"])
def test_a_store_adds_up_every_dtype(dtype, shape, compressed):
    """Integers and complex numbers are never compressed."""
    store = kvstore.create("device")
    store.set_gradient_compression(by_kind(compressed, 1.0))
    ones = [np.ones(shape, dtype=dtype, device=place) for place in TWO]
    store.init("a", ones[0])
    out = np.zeros(shape, dtype=dtype)
    store.pushpull("a", ones, out=out)
    expected = ones[0] | ones[0] if dtype == "bool" else ones[0] + ones[0]
    assert (out.shape, out.dtype, out.tolist()) == (shape, dtype, expected.tolist())


@pytest.mark.parametrize("text", ["c0 c1", "c0 g0", "g0 g1"])
def test_complex_parameters_on_several_devices(text):
    devices = devices_of(text)
    weight = Parameter("w", shape=(3,), dtype="complex64", init="ones")
    other = Parameter("v", shape=(2,), init="ones")
    for parameter in (weight, other):
        parameter.initialize(ctx=devices)
    trainer = gluon.Trainer([weight, other], "sgd", {"learning_rate": 0.1})
    with autograd.record():
        losses = [
            (np.abs(weight.data(place)) ** 2).sum() + other.data(place).sum() for place in devices
        ]
    autograd.backward(losses)
    trainer.step(1)
    for place in devices:
        numpy.testing.assert_allclose(weight.data(place).asnumpy(), [0.6] * 3, rtol=1e-6)
        numpy.testing.assert_allclose(other.data(place).asnumpy(), [0.8] * 2, rtol=1e-6)


def test_one_thread_at_a_time_updates_a_value():
    """So an optimizer's counts and states see one push after the other."""
    store, inside, met = stored(), [], []

    def update(key: Any, pushed: Any, value: Any) -> None:
        met.extend(inside)
        inside.append(key)
        time.sleep(0.001)  # other threads arrive meanwhile
        value += pushed
        inside.pop()

    store.set_updater(update)
    ones = np.ones((2,))
    threads = [
        threading.Thread(target=lambda: [store.push(0, ones) for _ in range(10)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    out = np.zeros((2,))
    store.pull(0, out)
    assert (met, out.tolist()) == ([], [40, 40])


def test_keys_are_the_same_however_their_number_is_held():
    store = kvstore.create("device")
    store.init([numpy.int64(3), numpy.str_("a")], [np.ones((1,)), np.ones((2,))])
    out = np.zeros((1,)), np.zeros((2,))
    store.pull([3, "a"], list(out))
    assert [o.tolist() for o in out] == [[1], [1, 1]]
    assert [type(key) for key, _ in pairs([numpy.int64(3), numpy.str_("a")], list(out))] == [
        int,
        str,
    ]


# ---- splitting


@pytest.mark.parametrize("given", [numpy.arange(10.0).reshape(5, 2), [[0.0, 1.0]] * 5])
def test_splitting(given):
    parts = split_and_load(given, [cpu(0), gpu(0)], even_split=False)
    assert [p.device for p in parts] == [cpu(0), gpu(0)]
    assert numpy.concatenate([p.asnumpy() for p in parts]).tolist() == numpy.array(given).tolist()
    assert {p.shape[0] for p in parts} == {2, 3}
    columns = split_and_load(given, TWO, batch_axis=1)
    assert [c.shape for c in columns] == [(5, 1), (5, 1)]
    few = split_and_load(np.ones((1, 2)), [gpu(1), cpu(0)], even_split=False)
    assert [(one.shape, one.device) for one in few] == [((1, 2), gpu(1))]
    twice = split_and_load(np.ones((4, 2)), [cpu(1), cpu(1)])
    assert [t.device for t in twice] == [cpu(1)] * 2
    assert split_and_load(np.ones((1, 2)), ctx_list=[gpu(1)])[0].device == gpu(1)


def test_clipping_a_norm():
    arrays = [np.array([3.0]), np.array([4.0])]
    assert clip_global_norm(arrays, 1.0) == pytest.approx(5)
    assert arrays[0].item() == pytest.approx(0.6)
    assert clip_global_norm(arrays, 10.0) == pytest.approx(1)
    across = [np.array([3.0], device=gpu(0)), np.array([4.0], device=cpu(1))]
    assert clip_global_norm(across, 1.0) == pytest.approx(5)
    assert [a.item() for a in across] == pytest.approx([0.6, 0.8])
    with pytest.warns(UserWarning, match="not finite"):
        clip_global_norm([np.array([float("nan")])], 1.0)


# ---- devices that meet


def normalised(text: str, layer: Any, hybrid: bool, dtype: str, steps: int = 3) -> list[Any]:
    """Outputs, gradients of inputs, and parameters, after some steps."""
    devices = devices_of(text)
    np.random.seed(3)
    net = nn.HybridSequential()
    net.add(nn.Conv2D(4, 3, in_channels=2), layer(), nn.Dense(3, in_units=16))
    net.initialize(init=init.Xavier(), ctx=devices)
    net.cast(dtype)
    if hybrid:
        net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    rng = numpy.random.RandomState(0)
    x, w = rng.normal(3, 2, size=(11, 2, 4, 4)), rng.normal(size=(11, 3))
    for _ in range(steps):
        xs, ws = (split_and_load(v.astype(dtype), devices, even_split=False) for v in (x, w))
        xs = [one.copy() for one in xs]
        for one in xs:
            one.attach_grad()
        with autograd.record():
            ys = [net(one) for one in xs]
            losses = [(y * w).sum() for y, w in zip(ys, ws, strict=True)]
        for one in losses:
            one.backward()
        trainer.step(11)
    parts = ([a.asnumpy() for a in arrays] for arrays in (ys, [one.grad for one in xs]))
    return [*map(numpy.concatenate, parts), *values(net)]


@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize("text", ["c0 c1", "c1 c2 c3", "g0 g1", "g0 c2"])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-12), ("float32", 1e-5)])
def test_synchronized_batch_norm_is_that_of_the_whole_batch(text, hybrid, dtype, tolerance):
    whole = normalised("c0", nn.BatchNorm, hybrid, dtype)
    close(normalised(text, nn.SyncBatchNorm, hybrid, dtype), whole, tolerance)


def test_synchronized_batch_norm_predicts_alone():
    net = nn.SyncBatchNorm(in_channels=3)
    net.initialize(ctx=TWO)
    x = np.array([[1.0, 2.0, 3.0]], device=cpu(1))
    close([net(x).asnumpy()], [x.asnumpy() / numpy.sqrt(1 + 1e-5)])
    assert gluon.contrib.nn.SyncBatchNorm is nn.SyncBatchNorm


# engine.md 42
def alone(test: Any) -> Any:
    """Run the test in its own process if there are other threads here: these could still join, so
    the error would only come after a minute."""

    @functools.wraps(test)
    def wrapped() -> None:
        if len(sys._current_frames()) == 1:
            test()
            return
        command = [sys.executable, "-m", "pytest", "-q", f"{__file__}::{test.__name__}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stdout

    return wrapped


@alone
def test_a_device_that_does_not_come():
    """Waiting for a device that can no longer come is an error; the next batch works."""
    net = nn.SyncBatchNorm(in_channels=2)
    net.initialize(ctx=TWO)
    x = numpy.arange(8.0).reshape(4, 2)
    with autograd.record():
        lonely = net(np.array(x))
    with pytest.raises(DeviceError, match=r"SyncBatchNorm .*before all devices had come"):
        lonely.asnumpy()
    net.running_mean.set_data(np.zeros(2))
    net.running_var.set_data(np.ones(2))
    with autograd.record():
        parts = [net(part) for part in split_and_load(x, TWO)]
    alone = nn.BatchNorm(in_channels=2)
    alone.initialize()
    with autograd.record():
        whole = alone(np.array(x))
    close([numpy.concatenate([p.asnumpy() for p in parts])], [whole.asnumpy()])


@alone
def test_a_device_that_goes_ahead():
    net = nn.SyncBatchNorm(in_channels=2)
    net.initialize(ctx=TWO)
    net.hybridize()
    with autograd.record(), pytest.raises(DeviceError, match=r"cpu\(0\) is 1024 calls ahead"):
        for _ in range(1025):
            y = net(np.ones((2, 2)))
    with pytest.raises(DeviceError, match="before all devices had come"):
        y.asnumpy()
    with pytest.raises(DeviceError):
        npx.waitall()


# engine.md 42
def test_an_exception_before_the_meeting_reaches_all():
    net = nn.SyncBatchNorm(in_channels=2)
    net.initialize(ctx=TWO)
    before = net.running_mean.data().tolist()
    with autograd.record():
        bad = np.ones((2, 2))[np.array([7, 0])]
        parts = [net(bad), net(np.ones((2, 2), device=cpu(1)))]
    npx.synchronize(cpu(1))
    for part in parts:
        with pytest.raises(IndexError, match="out of bounds"):
            part.asnumpy()
    assert net.running_mean.data(cpu(1)).tolist() == before


# engine.md 42
def test_more_operations_than_the_queue_holds_while_others_are_to_come():
    net = nn.SyncBatchNorm(in_channels=2)
    net.initialize(ctx=TWO)
    with autograd.record():
        parts = [net(part) for part in split_and_load(np.ones((4, 2)), TWO)[:1]]
        for _ in range(1500):
            parts[0] = parts[0] + 1
        parts.append(net(np.ones((2, 2), device=cpu(1))))
    assert parts[0].tolist() == [[1500.0] * 2] * 2


# engine.md 42
def test_two_threads_wait_for_room_to_meet():
    """The first one that gets it fills the queue until the second one has come."""
    net = nn.SyncBatchNorm(in_channels=2)
    net.initialize(ctx=TWO)
    parts = [np.ones((2, 2), device=device) for device in TWO]
    with autograd.record():
        for y in [net(part) for part in parts]:  # compiles
            y.wait_to_read()
    found: dict[int, Any] = {}

    def meet(rank: int) -> None:
        with autograd.record():
            found[rank] = net(parts[rank]).tolist()

    threads = [threading.Thread(target=meet, args=(rank,)) for rank in (0, 1)]
    began = time.monotonic()
    _core.configure(queue_operations=1)
    try:
        with reader(parts[0]):
            parts[0] += 1
            for thread in threads:
                thread.start()
            time.sleep(0.2)
        for thread in threads:
            thread.join()
    finally:
        _core.configure(queue_operations=1024)
    assert time.monotonic() - began < 30
    assert set(found) == {0, 1}


def test_a_thread_for_each_device():
    net = nn.SyncBatchNorm(in_channels=2)
    net.initialize(ctx=TWO)
    x = numpy.arange(8.0).reshape(4, 2)
    found: dict[int, Any] = {}

    def work(rank: int) -> None:
        part = np.array(x[2 * rank : 2 * rank + 2], device=cpu(rank))
        for _ in range(20):
            with autograd.record():
                found[rank] = net(part).asnumpy()  # waits until the other thread arrives

    threads = [threading.Thread(target=work, args=(rank,)) for rank in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    mean, deviation = x.mean(axis=0), numpy.sqrt(x.var(axis=0) + 1e-5)
    close([numpy.concatenate([found[0], found[1]])], [(x - mean) / deviation], 1e-4)


@pytest.mark.parametrize("ending", ["", "import os; os._exit(0) if os.fork() == 0 else os.wait()"])
def test_the_end_of_a_program_with_an_open_meeting(ending):
    code = (
        "from gemel import np, cpu, autograd, gluon\n"
        "net = gluon.nn.SyncBatchNorm(in_channels=2)\n"
        "net.initialize(ctx=[cpu(0), cpu(1)])\n"
        "with autograd.record(): y = net(np.ones((2, 2)))\n" + ending
    )
    found = subprocess.run(
        [sys.executable, "-c", code], env=os.environ, capture_output=True, text=True, timeout=600
    )
    assert found.returncode == 70 and "SyncBatchNorm" in found.stderr


def test_backward_of_heads_on_several_devices():
    for _ in range(4):  # compiled from the second time on
        arrays = [np.ones(3, device=device) for device in TWO]
        for array in arrays:
            array.attach_grad()
        with autograd.record():
            heads = [np.square(array).sum() for array in arrays]
        autograd.backward(heads)
        assert [array.grad.tolist() for array in arrays] == [[2.0] * 3] * 2

"""Layers split over devices: parameters in parts, dense layers, attention, what is sent."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy
import pytest

from gemel import autograd, cpu, gluon, gpu, init, np, npx, profiler
from gemel.errors import AxisError, DeviceError, GemelError, ParameterFileError, ShapeError
from gemel.gluon import nn, parallel
from gemel.gluon.fitting import FitError

pytestmark = pytest.mark.usefixtures("four_gpus")

LOSS = gluon.loss.SoftmaxCrossEntropyLoss()
TWO = [cpu(0), cpu(1)]


def close(found: Any, expected: Any, tolerance: float = 2e-6) -> None:
    for a, b in zip(found, expected, strict=True):
        numpy.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


# ---- parameters in parts


def test_a_parameter_in_parts():
    whole = [[1.0, 2, 3, 4], [5, 6, 7, 8]]
    made = parallel.CutParameter(1, "w", shape=(2, 4))
    made.initialize("ones", device=TWO)
    made.set_data(whole)
    assert made.shape == (2, 4) and made.cut_axis == 1
    assert made.data(cpu(0)).tolist() == [[1, 2], [5, 6]]
    assert made.data(cpu(1)).tolist() == [[3, 4], [7, 8]]
    assert made.gathered().tolist() == whole
    assert [g.shape for g in made.list_grad()] == [(2, 2)] * 2
    made.reset_device([gpu(0), gpu(1), gpu(2), gpu(3)])
    assert made.data(gpu(3)).tolist() == [[4], [8]] and made.gathered().tolist() == whole
    made.cast("float64")
    assert made.data(gpu(2)).dtype == "float64"
    made.reset_device(cpu(2))
    assert made.data().tolist() == whole
    with pytest.raises(ShapeError, match=r"axis 1 of \(2, 4\) does not divide into 3 equal parts"):
        made.reset_device([cpu(0), cpu(1), cpu(2)])
    assert made.data().tolist() == whole  # the failed call changed nothing
    with pytest.raises(ShapeError, match=r"w has shape \(2, 4\)|does not fit"):
        made.set_data([[1.0]])


def test_first_values_are_those_of_one_device():
    found = []
    for devices in ([cpu(0)], TWO, [gpu(0), gpu(1)]):
        np.random.seed(7)
        made = parallel.CutParameter(0, "w", shape=(8, 3))
        made.initialize(init.Xavier(), device=devices)
        found.append(made.gathered().asnumpy())
        made.initialize(init.Xavier(), device=devices, force_reinit=True)
        assert (made.gathered().asnumpy() != found[-1]).any()
    assert (found[0] == found[1]).all() and (found[0] == found[2]).all()


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))])
def test_copies(copied):
    made = parallel.CutParameter(0, "w", shape=(4,))
    made.initialize("ones", device=TWO)
    other = copied(made)
    other.set_data([1, 2, 3, 4])
    assert other.data(cpu(1)).tolist() == [3, 4] and made.data(cpu(1)).tolist() == [1, 1]


# ---- layers


def test_layers_on_one_device_are_dense_layers():
    x = np.random.normal(size=(3, 5))
    for kind in (parallel.ColumnDense, parallel.RowDense):
        for hybrid in (False, True):
            layer, known = kind(4, activation="relu"), nn.Dense(4, activation="relu")
            for one in (layer, known):
                np.random.seed(1)
                one.initialize(init.Xavier())
                one.hybridize(hybrid)
                one(x)
            assert layer(x).tolist() == known(x).tolist()


def test_layers_in_parts_need_the_same_examples_on_all_devices():
    """By data, each device would multiply its part of a layer with other examples."""
    net = nn.HybridSequential()
    net.add(parallel.ColumnDense(4, in_units=3), parallel.RowDense(2, in_units=4))
    net.initialize()
    with pytest.raises(parallel.SplitError, match=r"DataParallel: parameter \w+weight would be"):
        parallel.DataParallel(net, TWO)
    x, y = np.ones((4, 3)), np.ones((4, 2))
    trainer = gluon.Trainer(net.collect_params(), "sgd")
    one = parallel.DataParallel(net, [cpu(0)])
    one.step(trainer, x, y, gluon.loss.L2Loss())
    parallel.TensorParallel(net, TWO).step(trainer, x, y, gluon.loss.L2Loss())
    with pytest.raises(FitError, match=r"weight is split over cpu\(0\), cpu\(1\)"):
        gluon.fit(net, [(x, y)], gluon.loss.L2Loss(), trainer, epochs=1, progress=False)
    with pytest.raises(FitError, match="TensorParallel"):
        gluon.evaluate(net, [(x, y)], gluon.loss.L2Loss())


def test_sequences_without_steps():
    heads = parallel.SelfAttention(8, 4)
    parts = parallel.TensorParallel(heads, TWO)
    parts.initialize()
    assert parts(np.ones((2, 0, 8))).shape == (2, 0, 8)


def test_units_that_do_not_divide():
    devices = [gpu(0), gpu(1), gpu(2)]
    for layer in (parallel.ColumnDense(4, in_units=6), parallel.RowDense(6, in_units=4)):
        with pytest.raises(ShapeError, match="does not divide into 3 equal parts"):
            layer.initialize(device=devices)
    late = parallel.ColumnDense(4, use_bias=False)
    parts = parallel.TensorParallel(late, devices)
    parts.initialize()
    with pytest.raises(ShapeError, match="does not divide into 3 equal parts"):
        parts(np.ones((2, 5)))
    mixed = nn.HybridSequential()
    mixed.add(nn.Dense(6, in_units=5), parallel.ColumnDense(4, in_units=6))
    mixed.initialize()
    with pytest.raises(ShapeError, match="does not divide into 3 equal parts"):
        parallel.TensorParallel(mixed, devices)
    assert mixed(np.ones((2, 5))).shape == (2, 4)  # no parameter was moved
    with pytest.raises(parallel.SplitError, match="10 units do not divide into 4 heads"):
        parallel.SelfAttention(10, 4)
    with pytest.raises(parallel.SplitError, match="10 units do not divide into '2' heads"):
        parallel.SelfAttention(10, "2")
    for axis in (2, -3, "a"):
        with pytest.raises(AxisError, match=rf"w: there is no axis {axis!r} of \(2, 2\)"):
            parallel.CutParameter(axis, "w", shape=(2, 2)).initialize(device=TWO)
    heads = parallel.SelfAttention(12, 3)  # 6 columns a device, but 1.5 heads
    parts = parallel.TensorParallel(heads, TWO)
    parts.initialize()
    with pytest.raises(parallel.SplitError, match="3 heads do not divide among 2 devices"):
        parts(np.ones((2, 5, 12)))
    one = parallel.SelfAttention(4, 2)
    one.initialize()
    with pytest.raises(ShapeError, match=r"\[2, 3, 5, 4\] has 4 axes; give \(batch, time, width\)"):
        one(np.ones((2, 3, 5, 4)))


class Encoder(nn.HybridBlock):
    """An embedding, and a layer of a transformer."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.symbols = nn.Embedding(11, 8)
        self.norm = nn.LayerNorm()
        self.attention = parallel.SelfAttention(8, 4, causal=True)
        self.last_norm = nn.LayerNorm()
        self.wide = parallel.ColumnDense(16, flatten=False, activation="relu")
        self.narrow = parallel.RowDense(8, flatten=False)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Dense(3)

    def forward(self, x: Any) -> Any:
        y = self.symbols(x)
        y = y + self.attention(self.norm(y))
        y = y + self.dropout(self.narrow(self.wide(self.last_norm(y))))
        return self.output(y)


def encoder_after(devices: Any, hybrid: bool, dtype: str = "float32", dropout: float = 0.0) -> Any:
    rng = numpy.random.RandomState(0)
    x, y = np.array(rng.randint(0, 11, size=(10, 6))), np.array(rng.randint(0, 3, size=(10,)))
    np.random.seed(1)
    net = Encoder(dropout)
    net.cast(dtype)
    net.initialize(init.Xavier())
    parts = parallel.TensorParallel(net, devices)
    if hybrid:
        parts.hybridize()
    trainer = gluon.Trainer(parts.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9})
    for _ in range(3):
        losses = parts.step(trainer, x, y, LOSS)
    # The replicas have the same bits.
    for parameter in net.collect_params().values():
        if parameter.cut_axis is None:
            first, *others = (a.asnumpy() for a in parameter.list_data())
            assert all((first == other).all() for other in others), parameter
    return [losses.asnumpy(), *(p.gathered().asnumpy() for p in net.collect_params().values())]


@pytest.mark.parametrize("dtype, tolerance", [("float32", 2e-6), ("float64", 1e-13)])
@pytest.mark.parametrize("hybrid", [False, True])
def test_a_layer_of_a_transformer(hybrid, dtype, tolerance):
    alone = encoder_after([cpu(0)], hybrid, dtype)
    for devices in (TWO, [gpu(i) for i in range(4)]):
        close(encoder_after(devices, hybrid, dtype), alone, tolerance)


@pytest.mark.parametrize("hybrid", [False, True])
def test_dropout_of_what_all_have_is_the_same_everywhere(hybrid):
    alone = encoder_after([cpu(0)], hybrid, dropout=0.5)
    close(encoder_after(TWO, hybrid, dropout=0.5), alone)


def test_batch_norm_sees_the_whole_batch():
    found = []
    for devices in ([cpu(0)], TWO):
        np.random.seed(1)
        net = nn.HybridSequential()
        net.add(parallel.ColumnDense(8), parallel.RowDense(4), nn.BatchNorm(), nn.Dense(3))
        net.initialize(init.Xavier())
        parts = parallel.TensorParallel(net, devices)
        x = np.array(numpy.arange(30.0).reshape(6, 5) % 7)
        parts.backward(x, np.zeros((6,), dtype="int64"), LOSS)
        found.append([p.gathered().asnumpy() for p in net.collect_params().values()])
    close(found[1], found[0])


def test_each_all_reduce_sends_one_array_each_way():
    net = nn.HybridSequential()
    net.add(parallel.ColumnDense(64, in_units=16), parallel.RowDense(16, in_units=64))
    parts = parallel.TensorParallel(net, [gpu(0), gpu(1), gpu(2), gpu(3)])
    parts.initialize()
    parts.hybridize()
    x, y = np.ones((32, 16)), np.zeros((32,), dtype="int64")
    parts.backward(x, y, LOSS)
    npx.waitall()
    profiler.set_state("run")
    parts.backward(x, y, LOSS)
    profiler.set_state("stop")
    array = 32 * 16 * 4
    lanes: dict[int, list[int]] = {}
    for operation in profiler.recording().finished():
        if operation.copies and operation.bytes >= array:
            lanes.setdefault(operation.lane, []).append(operation.bytes)
    # Each of four devices receives x and the sums forward and backward, and sends two parts.
    assert sorted(map(sum, lanes.values())) == [2 * array] * 4 + [3 * array] * 4


# ---- trainers and files


@pytest.mark.parametrize(
    "optimizer, how",
    [("sgd", {"update_on_kvstore": True}), ("lars", {}), ("lamb", {}), ("lans", {})],
)
def test_optimizers_that_cannot_update_parts(optimizer, how):
    net = parallel.ColumnDense(4, in_units=3)
    parts = parallel.TensorParallel(net, TWO)
    parts.initialize()
    trainer = gluon.Trainer(net.collect_params(), optimizer, **how)
    parts.backward(np.ones((2, 3)), np.zeros((2,), dtype="int64"), LOSS)
    with pytest.raises(GemelError, match="weight is split over several devices"):
        trainer.step(2)
    parts = parallel.TensorParallel(net, [cpu(0)])  # a parameter in one piece can be updated
    before = net.weight.data().tolist()
    parts.step(trainer, np.ones((2, 3)), np.zeros((2,), dtype="int64"), LOSS)
    assert net.weight.data().tolist() != before


def test_gradients_between_the_halves_of_a_step():
    found = []
    for devices in ([cpu(0)], TWO):
        np.random.seed(2)
        net = nn.HybridSequential()
        net.add(parallel.ColumnDense(8, in_units=3), parallel.RowDense(4, in_units=8))
        net.initialize(init.Xavier())
        parts = parallel.TensorParallel(net, devices)
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.5})
        parts.backward(np.ones((2, 3)), np.zeros((2,), dtype="int64"), LOSS)
        trainer.allreduce_grads()
        grads = [p.list_grad() for p in net.collect_params().values()]
        axes = [p.cut_axis for p in net.collect_params().values()]
        found.append([
            one[0].asnumpy() if axis is None or len(one) == 1
            else numpy.concatenate([g.asnumpy() for g in one], axis=axis)
            for one, axis in zip(grads, axes, strict=True)
        ])  # fmt: skip
        trainer.update(2)
        found[-1] += [p.gathered().asnumpy() for p in net.collect_params().values()]
    close(found[1], found[0])


def test_states_move_with_their_parameters(tmp_path):
    """Training continues with other numbers of devices."""
    found = []
    for places in ([[cpu(0)]] * 3, [TWO, [gpu(i) for i in range(4)], [cpu(3)]]):
        np.random.seed(2)
        net = nn.HybridSequential()
        net.add(parallel.ColumnDense(8, in_units=3), parallel.RowDense(4, in_units=8))
        net.initialize(init.Xavier())
        trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.01})
        rng = numpy.random.RandomState(0)
        for devices in places:
            parts = parallel.TensorParallel(net, devices)
            x = np.array(rng.normal(size=(6, 3)), dtype="float32")
            for _ in range(2):
                parts.step(trainer, x, np.array([0, 1, 2, 3, 0, 1]), LOSS)
        trainer.save_states(tmp_path / "states")
        found.append([p.gathered().asnumpy() for p in net.collect_params().values()])
        found[-1] += [a.asnumpy() for a in npx.load(tmp_path / "states").values()]
    close(found[1], found[0])


def test_files_of_another_shape_change_nothing(tmp_path):
    net = parallel.ColumnDense(4, in_units=3)
    parts = parallel.TensorParallel(net, TWO)
    parts.initialize()
    before = net.weight.gathered().tolist()
    npx.save(tmp_path / "file", {"weight": np.ones((2, 3)), "bias": np.ones((4,))})
    with pytest.raises(ParameterFileError, match="weight has shape"):
        parts.load_parameters(tmp_path / "file")
    assert net.weight.gathered().tolist() == before


# ---- trainers of parameters that live on different devices


@pytest.mark.parametrize("kvstore", ["device", "local"])
def test_a_trainer_of_two_groups_of_replicas(kvstore):
    """Two stages with two replicas each; and for comparison both stages on one device."""
    known, found = [], []
    for places in ([[cpu(0)], [cpu(0)]], [[cpu(0), cpu(1)], [gpu(0), gpu(1)]]):
        np.random.seed(2)
        first, last = nn.Dense(4, in_units=3), nn.Dense(2, in_units=4)
        for layer, place in zip((first, last), places, strict=True):
            layer.initialize(init.Xavier(), device=place)
        trainer = gluon.Trainer(
            [*first.collect_params().values(), *last.collect_params().values()], "adam",
            kvstore=kvstore,
        )  # fmt: skip
        x = np.array(numpy.arange(12.0).reshape(4, 3) % 5)
        for _ in range(2):
            size = 4 // len(places[0])
            with autograd.record():
                losses = [
                    last(first(x[begin : begin + size].as_in_ctx(a)).as_in_ctx(b)).sum()
                    for begin, a, b in zip((0, 2), *places, strict=False)
                ]
            for one in losses:
                one.backward()
            trainer.step(4)
        result = found if len(places[0]) > 1 else known
        result += [p.gathered().asnumpy() for p in trainer._params]
    close(found, known)


def test_a_device_belongs_to_one_group():
    first, last = nn.Dense(4, in_units=3), nn.Dense(2, in_units=4)
    first.initialize(device=TWO)
    last.initialize(device=cpu(1))
    trainer = gluon.Trainer([*first.params.values(), *last.params.values()], "sgd")
    with pytest.raises(DeviceError, match=r"is on cpu\(0\), cpu\(1\), but .* is on cpu\(1\)"):
        trainer.step(1)

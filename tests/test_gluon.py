"""Blocks, parameters, layers and losses."""

from __future__ import annotations

import gc
import io
import re
import warnings
from contextlib import redirect_stdout
from math import exp, log

import pytest

import gemel
from gemel import autograd, gluon, init, np, npx
from gemel.errors import (
    DeferredInitializationError,
    DeviceError,
    GradientError,
    ShapeError,
    UninitializedError,
    UnknownNameError,
)
from gemel.gluon import Parameter, nn
from gemel.gluon.block import BlockError

# ---- parameters


def test_parameters_before_they_have_values():
    dense = nn.Dense(4, prefix="first_")
    with pytest.raises(UninitializedError, match=r"first_weight.*initialize\(\)"):
        dense.weight.data()
    dense.initialize()
    with pytest.raises(DeferredInitializationError, match=r"first_weight.*\(4, -1\).*in_units"):
        dense.weight.data()
    assert dense.bias.data().tolist() == [0, 0, 0, 0]
    assert issubclass(DeferredInitializationError, RuntimeError)
    dense(np.ones((2, 3)))
    assert dense.weight.shape == (4, 3)
    assert dense.weight.grad().tolist() == [[0.0] * 3] * 4


@pytest.mark.parametrize("unknown", [0, -1, None])
def test_unknown_sizes(unknown):
    made = Parameter("w", shape=(2, unknown))
    made.initialize()
    assert made.shape == (2, -1)
    made.shape = (2, 5)
    assert made.data().shape == (2, 5)
    with pytest.raises(ShapeError, match=r"parameter w.*\(2, 6\).*\(2, 5\)"):
        made.shape = (2, 6)


def test_set_data_writes_in_place():
    made = Parameter("w", shape=(2,), init="ones")
    made.initialize()
    array, version = made.data(), made.data().version
    made.set_data(np.array([3.0, 4.0]))
    assert made.data() is array
    assert array.version > version
    assert array.tolist() == [3, 4]
    with pytest.raises(ShapeError, match=r"parameter w has shape \(2,\).*\(3,\)"):
        made.set_data(np.zeros(3))


def test_set_data_tells_an_unknown_shape():
    dense = nn.Dense(2)
    dense.initialize()
    dense.weight.set_data(np.ones((2, 3)))
    assert dense(np.ones((1, 3))).tolist() == [[3, 3]]


def test_a_refused_shape_changes_nothing():
    made = Parameter("w", shape=(2, -1))
    with pytest.raises(UninitializedError, match="initialize"):
        made.set_data(np.zeros((2, 3)))
    assert made.shape == (2, -1)
    for shape in ((2, 2.5), "ab"):
        with pytest.raises(ShapeError, match="shape must be whole numbers"):
            made.shape = shape
    assert made.shape == (2, -1)


def test_grad_req():
    made = Parameter("w", shape=(2,), init="ones", grad_req="add")
    made.initialize()
    for _ in range(2):
        with autograd.record():
            loss = (made.data() * 3).sum()
        loss.backward()
    assert made.grad().tolist() == [6, 6]
    made.zero_grad()
    assert made.grad().tolist() == [0, 0]
    made.grad_req = "null"
    with pytest.raises(GradientError, match="grad_req is 'null'"):
        made.grad()
    with pytest.raises(UnknownNameError, match="did you mean 'write'"):
        made.grad_req = "writ"


@pytest.mark.parametrize("request_", ["write", "add"])
def test_grad_req_of_a_network_leaves_running_statistics(request_):
    net = nn.HybridSequential()
    net.add(nn.BatchNorm(in_channels=2), nn.Dense(1, in_units=2))
    net.initialize()
    net.setattr("grad_req", "null")
    net.collect_params().setattr("grad_req", request_)
    found = {name: p.grad_req for name, p in net.collect_params().items()}
    assert found.pop("0.running_mean") == found.pop("0.running_var") == "null"
    assert set(found.values()) == {request_} and len(found) == 4


def test_devices_and_dtypes():
    made = Parameter("w", shape=(2,), init="ones")
    made.initialize(ctx=npx.cpu(0))
    assert made.list_ctx() == [npx.cpu(0)]
    with pytest.raises(DeviceError, match=r"parameter w is on cpu\(0\), not on cpu\(1\)"):
        made.data(npx.cpu(1))
    made.cast("float64")
    assert str(made.data().dtype) == "float64"
    assert str(made.grad().dtype) == "float64"
    assert repr(made) == "Parameter w (shape=(2,), dtype=float64)"


# ---- initializers


def test_initializers():
    array = np.zeros((200, 100))
    np.random.seed(0)
    init.Uniform(0.5)("weight", array)
    values = [v for row in array.tolist() for v in row]
    assert max(values) <= 0.5 and min(values) >= -0.5 and max(values) > 0.49
    init.Normal(2.0)("weight", array)
    values = [v for row in array.tolist() for v in row]
    assert abs(sum(values) / len(values)) < 0.1
    assert (sum(v * v for v in values) / len(values)) ** 0.5 == pytest.approx(2, rel=0.05)
    init.Xavier()("weight", array)
    assert np.abs(array).max().item() <= (3 / 150) ** 0.5
    init.Constant(4)("weight", array)
    assert array.min().item() == array.max().item() == 4
    init.Xavier()("bias", array)
    assert array.max().item() == 0
    init.Zero()("gamma", array)
    assert array.min().item() == 1
    with pytest.raises(ShapeError, match="at least 2 dimensions"):
        init.Xavier()("weight", np.zeros(3))
    with pytest.raises(UnknownNameError, match="did you mean 'xavier'"):
        init.create("xaviar")


def test_whose_initializer_counts():
    class Sevens(init.Initializer):
        def _init_weight(self, name, array):
            names.append(name)
            array[...] = 7

    names = []
    net = nn.Sequential()
    net.add(nn.Dense(2, in_units=3, weight_initializer=init.One()), nn.Dense(2, in_units=2))
    net.initialize(Sevens())
    assert net[0].weight.data().tolist() == [[1.0] * 3] * 2
    assert net[1].weight.data().tolist() == [[7, 7], [7, 7]]
    assert net[1].bias.data().tolist() == [0, 0]
    assert names == [net[1].weight.name]


def test_initialize_again():
    net = nn.Dense(2, in_units=2)
    net.initialize(init.One())
    with pytest.warns(UserWarning, match="weight, bias already hold values"):
        net.initialize(init.Zero())
    assert net.weight.data().sum().item() == 4
    net.initialize(init.Zero(), force_reinit=True)
    assert net.weight.data().sum().item() == 0


def test_the_seed_decides_the_weights():
    def weights():
        np.random.seed(5)
        net = nn.Sequential()
        net.add(nn.Dense(4, in_units=3), nn.Dense(2))
        net.initialize()
        net(np.ones((1, 3)))
        return [p.data().tolist() for p in net.collect_params().values()]

    assert weights() == weights()


# ---- blocks


class Pair(nn.Block):
    def __init__(self, **settings):
        super().__init__(**settings)
        self.left = nn.Dense(2, in_units=2)
        self.right = nn.Dense(2, in_units=2)
        self.scale = Parameter(shape=(1,), init="ones")

    def forward(self, x):
        return (self.left(x) + self.right(x)) * self.scale.data()


def test_structure_and_names():
    pair = Pair(prefix="pair_")
    assert list(pair.collect_params()) == [
        "scale",
        "left.weight",
        "left.bias",
        "right.weight",
        "right.bias",
    ]
    assert pair.scale.name == "pair_scale"
    assert list(pair.collect_params(".*weight")) == ["left.weight", "right.weight"]
    assert pair.collect_params()[pair.left.weight.name] is pair.left.weight
    with pytest.raises(UnknownNameError, match=r"did you mean 'left.bias'"):
        pair.collect_params()["left.bais"]
    seen = []
    pair.apply(lambda block: seen.append(block.name))
    assert seen == [pair.left.name, pair.right.name, "pair"]


def test_scopes_number_their_blocks():
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Dense(1), nn.Dense(1))
    assert [child.name for child in net] == ["net_dense0", "net_dense1"]
    assert net[1].weight.name == "net_dense1_weight"


def test_replacing_and_deleting_children():
    pair = Pair()
    pair.right = nn.Dense(1, in_units=2)
    assert pair.collect_params()["right.weight"].shape == (1, 2)
    pair.right = None
    assert "right.weight" not in pair.collect_params()
    del pair.left
    assert list(pair.collect_params()) == ["scale"]


def test_forgetting_super_init_is_named():
    class Wrong(nn.Block):
        def __init__(self):
            self.layer = nn.Dense(1)

    with pytest.raises(BlockError, match=r"super\(\).__init__\(\)"):
        Wrong()


def test_sharing_parameters():
    first = nn.Dense(3, in_units=3)
    net = nn.Sequential()
    net.add(first, nn.Dense(3, in_units=3, params=first.params), first)
    assert net[1].weight is first.weight
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        net.initialize()
    assert len(gluon.Trainer(net.collect_params(), "sgd")._params) == 2


def test_params_get_makes_parameters():
    class Scaled(nn.HybridBlock):
        def __init__(self, **settings):
            super().__init__(**settings)
            self.factor = self.params.get("weight", shape=(2,), init=init.Constant(3))
            self.shift = self.params.get_constant("shift", [1.0, 2.0])

        def hybrid_forward(self, F, x, factor, shift):
            return F.np.abs(x * factor + shift)

    net = Scaled()
    net.initialize()
    assert list(net.collect_params()) == ["factor", "shift"]
    assert net.params.get("factor") is net.factor
    assert net(np.array([[1.0, -1.0]])).tolist() == [[4, 1]]
    assert net.shift.grad_req == "null"


def test_custom_layers_need_infer_shape_for_unknown_shapes():
    class Bias(nn.Block):
        def __init__(self):
            super().__init__()
            self.offset = Parameter(shape=(0, 0))

        def forward(self, x):
            return x + self.offset.data()

    net = Bias()
    net.initialize()
    with pytest.raises(BlockError, match="infer_shape"):
        net(np.ones((1, 2)))


def test_hooks():
    seen = []
    net = nn.Dense(1, in_units=1)
    net.initialize()
    before = net.register_forward_pre_hook(lambda block, inputs: seen.append(len(inputs)))
    with net.register_forward_hook(lambda block, inputs, output: seen.append(output.shape)):
        net(np.ones((2, 1)))
    before.detach()
    net(np.ones((2, 1)))
    assert seen == [1, (2, 1)]


def test_sequential_behaves_like_a_list():
    net = nn.Sequential()
    net.add(nn.Dense(3), nn.Dropout(0.5), nn.Dense(1))
    assert len(net) == 3
    assert net[-1] is list(net)[2]
    assert [block.name for block in net[1:]] == [net[1].name, net[2].name]
    assert repr(nn.HybridSequential()) == "HybridSequential(\n)"


def test_repr():
    net = nn.HybridSequential()
    net.add(nn.Dense(256, activation="relu"), nn.Dense(2, in_units=256), nn.Dropout(0.5))
    assert repr(net) == (
        "HybridSequential(\n"
        "  (0): Dense(-1 -> 256, Activation(relu))\n"
        "  (1): Dense(256 -> 2, linear)\n"
        "  (2): Dropout(p = 0.5, axes=())\n"
        ")"
    )


def test_blocks_are_not_kept_alive():
    net = nn.HybridSequential()
    net.add(nn.Dense(2, in_units=2))
    child = net[0]
    del net
    gc.collect()
    assert child._own.parents[0]() is None


# ---- layers


def test_dense_computes_the_product():
    net = nn.Dense(2, activation="relu", in_units=3)
    net.initialize()
    net.weight.set_data(np.array([[1.0, 2.0, 3.0], [-1.0, -1.0, -1.0]]))
    net.bias.set_data(np.array([0.5, 0.0]))
    assert net(np.array([[1.0, 1.0, 2.0]])).tolist() == [[9.5, 0.0]]


def test_dense_flattens_or_not():
    flat, deep = nn.Dense(4), nn.Dense(4, flatten=False, use_bias=False)
    for net in (flat, deep):
        net.initialize()
    x = np.ones((2, 3, 5))
    assert flat(x).shape == (2, 4)
    assert flat.weight.shape == (4, 15)
    assert deep(x).shape == (2, 3, 4)
    assert list(deep.collect_params()) == ["weight"]


def test_activations():
    x = np.array([-1.0, 0.0, 2.0])
    assert nn.Activation("relu")(x).tolist() == [0, 0, 2]
    assert nn.Activation("sigmoid")(x).tolist()[2] == pytest.approx(1 / (1 + exp(-2)))
    assert nn.Activation("softrelu")(x).tolist()[1] == pytest.approx(log(2))
    assert nn.LeakyReLU(0.1)(x).tolist() == pytest.approx([-0.1, 0, 2])
    with pytest.raises(UnknownNameError, match="did you mean 'relu'"):
        nn.Dense(3, activation="rleu")


def test_dropout_only_while_training():
    net = nn.Dropout(0.5)
    x = np.ones((1000,))
    assert net(x).tolist() == x.tolist()
    with autograd.record():
        y = net(x)
    assert set(y.tolist()) == {0.0, 2.0}
    assert 300 < sum(v > 0 for v in y.tolist()) < 700
    with pytest.raises(ValueError, match="from 0 to below 1"):
        nn.Dropout(1.5)


def test_batch_norm_learns_statistics_while_training():
    net = nn.BatchNorm(momentum=0.5)
    net.initialize()
    x = np.array([[1.0, 10.0], [3.0, 30.0]])
    with autograd.record():
        y = net(x)
    assert [v for row in y.tolist() for v in row] == pytest.approx([-1, -1, 1, 1], abs=1e-3)
    assert net.running_mean.data().tolist() == pytest.approx([1.0, 10.0])
    assert net.running_var.data().tolist() == pytest.approx([1.0, 50.5])
    assert net.running_mean.grad_req == "null"
    mean = net.running_mean.data().tolist()
    net(x)
    assert net.running_mean.data().tolist() == mean


def test_small_layers():
    x = np.arange(12).reshape(2, 2, 3).astype("float32")
    assert nn.Flatten()(x).shape == (2, 6)
    assert nn.Identity()(x) is x
    assert nn.Lambda("tanh")(x).shape == x.shape
    assert nn.HybridLambda(lambda F, x: F.relu(-x))(x).sum().item() == 0
    both = nn.HybridConcatenate(axis=1)
    both.add(nn.Identity(), nn.Identity())
    assert both(x).shape == (2, 4, 3)
    assert nn.Concurrent is nn.Concatenate
    with pytest.raises(ValueError, match="tahn"):
        nn.Lambda("tahn")


# ---- losses


def test_l2_and_l1():
    pred, label = np.array([[1.0, 2.0], [3.0, 5.0]]), np.array([[1.0, 0.0], [0.0, 1.0]])
    assert gluon.loss.L2Loss()(pred, label).tolist() == [1.0, 6.25]
    assert gluon.loss.L1Loss()(pred, label).tolist() == [1.0, 3.5]
    assert gluon.loss.L1Loss(weight=2)(pred, label).tolist() == [2.0, 7.0]
    assert gluon.loss.L2Loss()(np.ones(3), np.zeros((3, 1))).tolist() == [0.5] * 3
    with pytest.raises(ShapeError, match=r"L2Loss.*\(3,\).*\(4,\)"):
        gluon.loss.L2Loss()(np.ones(3), np.ones(4))


def reference_cross_entropy(row, label):
    return log(sum(exp(v) for v in row)) - row[label]


def test_softmax_cross_entropy():
    rows, labels = [[1.0, 2.0, 3.0], [0.5, -1.0, 0.0]], [2, 0]
    expected = [reference_cross_entropy(r, n) for r, n in zip(rows, labels, strict=True)]
    pred, label = np.array(rows), np.array(labels, dtype="int32")
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    assert loss(pred, label).tolist() == pytest.approx(expected, rel=1e-5)
    assert loss(pred, label.astype("float32")).tolist() == pytest.approx(expected, rel=1e-5)
    dense = gluon.loss.SoftmaxCrossEntropyLoss(sparse_label=False)
    assert dense(pred, npx.one_hot(label, 3)).tolist() == pytest.approx(expected, rel=1e-5)
    weights = np.array([[2.0], [0.0]])
    assert loss(pred, label, weights).tolist() == pytest.approx([2 * expected[0], 0], rel=1e-5)
    logits = gluon.loss.SoftmaxCELoss(from_logits=True)
    assert logits(npx.log_softmax(pred), label).tolist() == pytest.approx(expected, rel=1e-5)


def test_softmax_cross_entropy_gradient():
    pred = np.array([[1.0, 2.0, 3.0]])
    pred.attach_grad()
    with autograd.record():
        loss = gluon.loss.SoftmaxCrossEntropyLoss()(pred, np.array([1], dtype="int32"))
    loss.backward()
    total = sum(exp(v) for v in (1, 2, 3))
    expected = [exp(1) / total, exp(2) / total - 1, exp(3) / total]
    assert pred.grad.tolist()[0] == pytest.approx(expected, rel=1e-4)


def test_sigmoid_binary_cross_entropy():
    pred, label = np.array([[0.5, -2.0, 80.0]]), np.array([[1.0, 0.0, 1.0]])
    expected = (log(1 + exp(-0.5)) + log(1 + exp(-2)) + 0) / 3
    assert gluon.loss.SigmoidBCELoss()(pred, label).tolist() == pytest.approx([expected], rel=1e-5)
    after = gluon.loss.SigmoidBinaryCrossEntropyLoss(from_sigmoid=True)
    found = after(npx.sigmoid(np.array([[0.5, -2.0]])), label[:, :2]).tolist()
    assert found == pytest.approx([(log(1 + exp(-0.5)) + log(1 + exp(-2))) / 2], rel=1e-4)


# ---- helpers


def test_utils():
    parts = gluon.utils.split_data(np.arange(6), 3)
    assert [part.tolist() for part in parts] == [[0, 1], [2, 3], [4, 5]]
    uneven = gluon.utils.split_data(np.arange(5), 2, even_split=False)
    assert [part.tolist() for part in uneven] == [[0, 1, 2], [3, 4]]  # as in MXNet 1.9
    with pytest.raises(ShapeError, match="even_split=False"):
        gluon.utils.split_data(np.arange(5), 2)
    arrays = [np.array([3.0]), np.array([4.0])]
    assert gluon.utils.clip_global_norm(arrays, 1.0) == pytest.approx(5)
    assert [a.item() for a in arrays] == pytest.approx([0.6, 0.8], rel=1e-5)
    tied, other = np.array([3.0]), np.array([4.0])
    assert gluon.utils.clip_global_norm([tied, other, tied], 1.0) == pytest.approx(5)
    assert [tied.item(), other.item()] == pytest.approx([0.6, 0.8], rel=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_global_norm_of_halves(dtype):
    # The sum of squares is a million, more than float16 can hold.
    arrays = [np.full((64,), 100.0).astype(dtype), np.full((4,), 300.0).astype(dtype)]
    assert gluon.utils.clip_global_norm(arrays, 10.0) == pytest.approx(1000)
    assert [a[0].item() for a in arrays] == pytest.approx([1, 3], rel=1e-2)
    assert {str(a.dtype) for a in arrays} == {dtype}


def test_benchmark_prints_one_line():
    out = io.StringIO()
    with redirect_stdout(out), gemel.Benchmark("Done"):
        pass
    assert re.fullmatch(r"Done: \d+\.\d{4} sec\n", out.getvalue())
    timer = gemel.Timer()
    with pytest.raises(gemel.errors.ArgumentError, match="no time has been kept"):
        timer.avg()
    timer.stop()
    timer.stop()
    assert timer.sum() == pytest.approx(sum(timer.times))
    assert timer.avg() == pytest.approx(timer.sum() / 2)
    assert timer.cumsum()[-1] == pytest.approx(timer.sum())

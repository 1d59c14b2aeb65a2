"""Blocks and compiled functions given NDArrays: their results, and what they see while traced."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
from layer_table import LAYERS, LayerCase

import gemel
from gemel import autograd, gluon, io, nd, np, operator, sym, util
from gemel.gluon import nn, rnn
from gemel.gluon.data import ArrayDataset, DataLoader, Dataset, batchify

EITHER = pytest.mark.parametrize("hybridized", [False, True])


def kinds(value: Any) -> Any:
    """The names of the classes of nested arrays."""
    if isinstance(value, (list, tuple)):
        return [kinds(each) for each in value]
    return type(value).__name__


def leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        for each in value:
            yield from leaves(each)
    else:
        yield value


def as_nd(x: Any) -> Any:
    return nd.array(x.asnumpy(), dtype=x.dtype)


def same(found: Any, want: Any) -> None:
    """Check that NDArrays have the same elements and dtypes as the plain arrays."""
    for a, b in zip(leaves(found), leaves(want), strict=True):
        assert (type(a), type(b)) == (nd.NDArray, np.ndarray)
        assert a.dtype == b.dtype
        numpy.testing.assert_allclose(a.asnumpy(), b.asnumpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("case", LAYERS, ids=str)
def test_layers(case: LayerCase) -> None:
    """Includes calls that go straight to their plan, between calls on plain arrays."""
    net = case.make()
    net.initialize()
    plain = case.inputs(3)
    given = [as_nd(x) for x in plain]
    for hybridized in (False, True):
        net.hybridize(hybridized)
        want = net(*plain)
        for _ in range(2):
            same(net(*given), want)
            assert set(leaves(kinds(net(*plain)))) == {"ndarray"}


@pytest.mark.parametrize(
    ("loss", "label"),
    [
        (gluon.loss.L2Loss(), lambda p: p * 2),
        (gluon.loss.HuberLoss(), lambda p: p * 2),
        (gluon.loss.SoftmaxCrossEntropyLoss(), lambda p: np.arange(4)),
        (gluon.loss.SigmoidBCELoss(), lambda p: (p > 0).astype("float32")),
        (gluon.loss.HingeLoss(), lambda p: np.sign(p)),
        (gluon.loss.SDMLLoss(), lambda p: p * 2),
        (gluon.loss.PoissonNLLLoss(), lambda p: np.abs(p)),
    ],
    ids=lambda x: type(x).__name__,
)
@EITHER
def test_losses(loss: Any, label: Callable[[Any], Any], hybridized: bool) -> None:
    loss.hybridize(hybridized)
    p = np.random.normal(size=(4, 4))
    want = loss(p, label(p))
    x = as_nd(p)
    x.attach_grad()
    with autograd.record():
        found = loss(x, as_nd(label(p)))
        assert type(found) is nd.NDArray
    found.backward()
    same(found, want)
    assert float(abs(x.grad).sum().asscalar()) > 0


class Old(nn.HybridBlock):
    """A network in the style of MXNet 1, which calls methods of its layers' results."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Dense(6, in_units=3)
        self.scale = self.params.get("scale", shape=(2, 3, 1))

    def hybrid_forward(self, F: Any, x: Any, scale: Any) -> Any:
        y = self.dense(x)
        z = y.reshape((0, -4, 2, -1)) * 2
        rows = F.relu(z).flatten() * (y > 0)
        return rows, [y.argmax(axis=1), scale.reshape((0, -1)), F.broadcast_add(y, y).flatten()]


def old(x: Any, net: Old) -> list[Any]:
    """What `Old` computes, in NumPy."""
    weight, bias = net.dense.weight.data().asnumpy(), net.dense.bias.data().asnumpy()
    y = x.asnumpy() @ weight.T + bias
    scale = net.scale.data().asnumpy().reshape(2, -1)
    return [y.clip(0) * 2 * (y > 0), y.argmax(1).astype("float32"), scale, y * 2]


@EITHER
def test_methods_behind_layers(hybridized: bool) -> None:
    net = Old()
    net.initialize("normal")
    net.hybridize(hybridized)
    for rows in (2, 5, 2):
        x = nd.random.normal(shape=(rows, 3))
        found = net(x)
        assert kinds(found) == ["NDArray", ["NDArray"] * 3]
        for a, b in zip(leaves(found), old(x, net), strict=True):
            numpy.testing.assert_allclose(a.asnumpy(), b, rtol=1e-5)
            assert a.dtype == "float32"
    assert type(net.scale.data()) is np.ndarray


@EITHER
def test_recorded(hybridized: bool) -> None:
    net = Old()
    net.initialize("ones")
    net.hybridize(hybridized)
    x = nd.ones((2, 3))
    x.attach_grad()
    with autograd.record():
        rows, _ = net(x)
        assert type(rows) is nd.NDArray
        total = rows.sum(axis=1, exclude=True).sum()
    total.backward()
    assert x.grad.asnumpy().tolist() == [[12.0] * 3] * 2
    assert net.dense.weight.grad().asnumpy().tolist() == [[4.0] * 3] * 6


def test_traces_by_kind() -> None:
    """The first array's class decides. Calls of one class never use the other's program."""
    compared = gemel.compile(lambda x, y: {"more": x > y, "rows": (x.flatten(),)})
    plain, legacy = (np.ones((2, 2, 1)), np.zeros((2, 2, 1))), (nd.ones((2, 2, 1)), nd.zeros((1,)))
    for _ in range(3):
        a, b = compared(*plain), compared(*legacy)
        assert (type(a["more"]), a["more"].dtype, a["rows"][0].shape) == (np.ndarray, "bool", (4,))
        assert (type(b["more"]), b["more"].dtype) == (nd.NDArray, "float32")
        assert b["rows"][0].shape == (2, 2)
        assert type(compared(legacy[0], plain[1])["more"]) is nd.NDArray
        assert type(compared(plain[0], legacy[1])["more"]) is np.ndarray
    assert compared.traces == 4, "two classes, each with two kinds of second arguments"
    assert sorted(given.is_nd for given in compared.kinds()) == [False, False, True, True]


class Inner(nn.HybridBlock):
    def forward(self, x: Any, y: Any = None) -> Any:
        return x.flatten() if y is None else x > y


class Outer(nn.HybridBlock):
    """Contains a block that has a program of its own, and writes in place."""

    def __init__(self, inner: nn.HybridBlock) -> None:
        super().__init__()
        self.inner, self.dense = inner, nn.Dense(3)

    def forward(self, x: Any) -> Any:
        y = self.dense(self.inner(x))
        w = y + 0
        w += 1
        w[:, 0] = 5
        return w, y.argmax(axis=1) + self.inner(y, y * 2)[:, 0]


@EITHER
def test_blocks_inside(hybridized: bool) -> None:
    inner = Inner()
    inner.hybridize()
    assert inner(nd.ones((2, 2, 1))).shape == (2, 2)
    assert inner(np.ones((2, 2, 1))).shape == (4,)
    assert kinds([inner(x=nd.ones((2, 1))), inner(nd.ones(2), y=nd.ones(2))]) == ["NDArray"] * 2
    net = Outer(inner)
    net.initialize("ones")
    net.hybridize(hybridized)
    w, first = net(nd.ones((2, 2, 1)))
    assert kinds([w, first]) == ["NDArray", "NDArray"]
    assert w.asnumpy().tolist() == [[5, 3, 3]] * 2
    assert first.asnumpy().tolist() == [0, 0] and first.dtype == "float32"


class Loop(nn.HybridBlock):
    def hybrid_forward(self, F: Any, x: Any) -> Any:
        def body(element: Any, states: Any) -> Any:
            total = (element > 0) + states[0]
            return total.expand_dims(0).flatten(), [total]

        outputs, states = F.contrib.foreach(body, x, [F.zeros_like(x[0])])
        return outputs.reshape((0, -1)), states[0]


@EITHER
def test_loops(hybridized: bool) -> None:
    net = Loop()
    net.hybridize(hybridized)
    x = numpy.arange(-6, 18, dtype="float32").reshape(6, 2, 2)
    outputs, state = net(nd.array(x))
    assert kinds([outputs, state]) == ["NDArray", "NDArray"]
    want = (x > 0).cumsum(0)
    assert outputs.asnumpy().tolist() == want.reshape(6, 4).tolist()
    assert state.asnumpy().tolist() == want[-1].tolist()


class Shows(nn.HybridBlock):
    """Returns its parameter's own array."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = gluon.Parameter("weight", shape=(2, 2))

    def forward(self, x: Any) -> Any:
        return self.weight.data(), self.weight.data() + x


@EITHER
def test_parameters_keep_their_class(hybridized: bool) -> None:
    net = Shows()
    net.initialize("ones")
    net.hybridize(hybridized)
    weight, total = net(nd.ones((2, 2)))
    assert kinds([weight, total, net.weight.data()]) == ["NDArray", "NDArray", "ndarray"]
    assert total.asnumpy().tolist() == [[2, 2], [2, 2]]


@EITHER
def test_arrays_of_others_keep_their_class(hybridized: bool) -> None:
    """Results that exist outside the call are shown as NDArrays, but keep their own class."""
    held, listed = np.ones(3), [np.ones(3)]

    class Net(gluon.HybridBlock):
        def forward(self, x: Any, y: Any) -> Any:
            return held, listed, y, x * y

    net = Net()
    net.hybridize(hybridized)
    plain = np.ones(3)
    for _ in range(2):
        assert kinds(net(nd.ones((3,)), plain)) == ["NDArray", ["NDArray"], "NDArray", "NDArray"]
        assert kinds([held, listed, plain]) == ["ndarray", ["ndarray"], "ndarray"]


@EITHER
def test_the_first_array_decides(hybridized: bool) -> None:
    class Net(gluon.HybridBlock):
        def forward(self, x: Any, more: Any) -> Any:
            first = x[0] if isinstance(x, list) else x
            return [first * more, {"more": more + 1}]

    net, a, b = Net(), np.ones(3), nd.ones((3,))
    net.hybridize(hybridized)
    for _ in range(2):
        for x, more, kind in ((a, b, "ndarray"), (b, a, "NDArray"), ([a], b, "ndarray")):
            first, second = net(x, more)
            assert {type(first).__name__, type(second["more"]).__name__} == {kind}
        assert kinds(net(2.0, a)[0]) == "ndarray"
        assert kinds(net(2.0, b)[0]) == "NDArray"
    made = gluon.nn.HybridLambda(lambda *_: nd.ones((2,)))
    made.hybridize(hybridized)
    assert [kinds(made()), kinds(made())] == ["NDArray"] * 2, "the result keeps its class"


def test_results_are_plain_lists_as_they_were() -> None:
    """What a block returns for plain arrays is passed on as it is, not rebuilt."""
    found = [np.ones(2), {"x": None}]
    assert gluon.nn.Lambda(lambda x: found)(np.ones(2)) is found


def test_plain_blocks_and_hooks() -> None:
    class Net(gluon.Block):
        def __init__(self) -> None:
            super().__init__()
            self.dense = nn.Dense(4)

        def forward(self, x: Any) -> Any:
            return np.exp(self.dense(x).reshape((0, 2, -1)))

    net = Net()
    net.initialize()
    seen: list[Any] = []
    net.dense.register_forward_hook(
        lambda block, given, found: seen.append(kinds([given[0], found]))
    )
    found = net(nd.ones((3, 2)))
    assert found.shape == (3, 2, 2) and type(found) is nd.NDArray
    assert seen == [["NDArray", "NDArray"]]


@pytest.mark.parametrize("cell", [rnn.LSTMCell, rnn.GRUCell, rnn.RNNCell], ids=lambda x: x.__name__)
@pytest.mark.parametrize("merge", [True, False, None])
def test_unrolled_cells(cell: Any, merge: bool | None) -> None:
    net = cell(4)
    net.initialize()
    x, lengths = np.random.normal(size=(2, 3, 5)), np.array([1, 3])
    for valid in (None, lengths):
        want = net.unroll(3, x, merge_outputs=merge, valid_length=valid)
        given = None if valid is None else as_nd(valid)
        same(net.unroll(3, as_nd(x), merge_outputs=merge, valid_length=given), want)
    same(net(as_nd(x[:, 0]), net.begin_state(2)), net(x[:, 0], net.begin_state(2)))


def test_shapes_and_symbols(tmp_path: Path) -> None:
    """Where a block runs with symbols, these have the arguments' methods; files keep this."""
    net = Old()
    net.initialize("normal")
    net.summary(nd.ones((2, 3)))
    composed = net(sym.var("data", shape=(2, 3)))[0]
    assert composed.infer_shape(data=(2, 3))[1] == [(2, 6)]
    net.hybridize()
    x = nd.random.normal(shape=(2, 3))
    want = net(x)
    net.export(tmp_path / "old")
    gemel.save(net, tmp_path / "old.gemel")
    files = [str(tmp_path / name) for name in ("old-symbol.json", "old-0000.params")]
    block = gluon.SymbolBlock.imports(files[0], ["data"], files[1])
    for again in (block, gemel.load(tmp_path / "old.gemel")):
        for hybridized in (False, True):
            again.hybridize(hybridized)
            for a, b in zip(leaves(again(x)), leaves(want), strict=True):
                assert type(a) is nd.NDArray
                numpy.testing.assert_allclose(a.asnumpy(), b.asnumpy(), rtol=1e-5)
            assert set(leaves(kinds(again(x.as_np_ndarray())))) == {"ndarray"}


def test_gradients_and_steps() -> None:
    x = nd.array([[1, 2], [3, 4]])
    x.attach_grad()

    def gradient(x: Any) -> Any:
        with autograd.record():
            y = (x * x * (x > 1)).sum()
        return autograd.grad(y, x)

    for call in (gradient, gemel.compile(gradient)):
        found = call(x)
        assert type(found) is nd.NDArray
        assert found.asnumpy().tolist() == [[0, 4], [6, 8]]
    net, loss = nn.Dense(2), gluon.loss.L2Loss()
    net.initialize()
    trainer = gluon.Trainer(net.collect_params(), "sgd")
    step = trainer.compile(lambda x, y: loss(net(x), y))
    assert type(step(nd.ones((4, 3)), nd.ones((4, 2)))) is nd.NDArray
    assert type(step(np.ones((4, 3)), np.ones((4, 2)))) is np.ndarray


class Product(autograd.Function):
    """Records what its backward is given."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def forward(self, a: Any, b: Any) -> Any:
        self.save_for_backward(a, b)
        return np.multiply(a, b)

    def backward(self, g: Any) -> Any:
        a, b = self.saved_tensors
        self.seen += [g, a, b]
        return np.multiply(g, b), np.multiply(g, a)


@pytest.mark.parametrize(("array", "kind"), [(nd.array, "NDArray"), (np.array, "ndarray")])
def test_functions(array: Any, kind: str) -> None:
    a, b = array([1.0, 2.0]), array([3.0, 4.0])
    a.attach_grad()
    assert kinds(Product()(a, b)) == kind
    product = Product()
    with autograd.record():
        y = product(a, b)
        z = y * y
    z.backward()
    assert kinds([y, z, a.grad]) == [kind] * 3 and kinds(product.seen) == [kind] * 3
    assert a.grad.asnumpy().tolist() == [18, 64]


@operator.register("shown_square")
class ShownSquare(operator.CustomOpProp):
    def create_operator(self, ctx: Any, in_shapes: Any, in_dtypes: Any) -> Any:
        return Squared()


class Squared(operator.CustomOp):
    def forward(self, is_train: Any, req: Any, in_data: Any, out_data: Any, aux: Any) -> None:
        assert kinds([*in_data, *out_data]) == ["NDArray"] * 2
        self.assign(out_data[0], req[0], in_data[0] ** 2)

    def backward(
        self, req: Any, out_grad: Any, in_data: Any, out_data: Any, in_grad: Any, aux: Any
    ) -> None:
        assert kinds([out_grad, in_data, out_data, in_grad]) == [["NDArray"]] * 4
        self.assign(in_grad[0], req[0], 2 * in_data[0] * out_grad[0])


def test_custom_operations() -> None:
    x = nd.array([1.0, 3.0])
    x.attach_grad()
    with autograd.record():
        y = nd.Custom(x, op_type="shown_square")
    y.backward()
    assert kinds(y) == "NDArray" and y.asnumpy().tolist() == [1, 9]
    assert x.grad.asnumpy().tolist() == [2, 6]


class Numbered(Dataset):
    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Any:
        return nd.ones((2,)) * index, float(index)


@pytest.mark.parametrize("settings", [{}, {"num_workers": 1}, {"shuffle": True}], ids=str)
def test_loaders(settings: dict[str, Any]) -> None:
    x, y = numpy.ones((6, 2), "float32"), numpy.arange(6)

    def first(dataset: Any) -> Any:
        return kinds(next(iter(DataLoader(dataset, 3, **settings))))

    assert first(ArrayDataset(nd.array(x), nd.array(y))) == ["NDArray", "NDArray"]
    assert first(ArrayDataset(nd.array(x), y)) == ["NDArray", "NDArray"]
    assert first(ArrayDataset(np.array(x), nd.array(y))) == ["ndarray", "ndarray"]
    assert first(Numbered()) == ["NDArray", "NDArray"]
    assert first(ArrayDataset(x, y)) == ["ndarray", "ndarray"]
    with util.np_array(False):
        assert first(ArrayDataset(x, y)) == ["NDArray", "NDArray"]


def test_batches_and_copies() -> None:
    rows = [nd.ones((2,)), nd.ones((3,))]
    assert kinds(batchify.Pad()(rows)) == "NDArray"
    assert kinds(batchify.Append()(rows)) == ["NDArray", "NDArray"]
    x = numpy.ones((4, 2), "float32")
    batch = next(iter(io.NDArrayIter(x, x[:, 0], 2)))
    assert kinds([*batch.data, *batch.label]) == ["NDArray", "NDArray"]
    given = nd.array(x)
    assert kinds([pickle.loads(pickle.dumps(given)), copy.deepcopy(given)]) == ["NDArray"] * 2
    plain = np.array(x)
    shown = plain.as_nd_ndarray()
    shown[0] = 7
    assert kinds([plain, shown]) == ["ndarray", "NDArray"] and plain[0, 0] == 7

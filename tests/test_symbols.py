"""Symbols composed by name, `F` of `hybrid_forward`, and MXNet 1's operations on arrays."""

from __future__ import annotations

import json
from typing import Any

import numpy
import pytest

import gemel
from gemel import autograd, nd, np, npx, sym
from gemel.errors import ExportError, GradientError, ShapeError, SymbolFileError, UnknownNameError
from gemel.gluon import SymbolBlock, nn


def perceptron() -> Any:
    x = sym.var("data")
    x = sym.FullyConnected(x, num_hidden=8, name="fc1")
    x = sym.Activation(data=x, act_type="relu", name="act")
    return sym.softmax(sym.FullyConnected(x, num_hidden=3, name="fc2"), name="out")


def test_names_and_shapes() -> None:
    net = perceptron()
    names = ["data", "fc1_weight", "fc1_bias", "fc2_weight", "fc2_bias"]
    assert net.list_arguments() == names and net.list_outputs() == ["out_output"]
    assert net.name == "out" and repr(net) == "<Symbol out>"
    arguments, outputs, auxiliary = net.infer_shape(data=(5, 4))
    assert dict(zip(names, arguments, strict=True))["fc1_weight"] == (8, 4)
    assert outputs == [(5, 3)] and auxiliary == []
    assert net.infer_shape() == (None, None, None)
    with pytest.raises(ShapeError, match=r"node 'fc1'"):
        net.infer_shape(data=(5, 4), fc1_weight=(8, 5))


def test_running_and_its_parts() -> None:
    net = perceptron()
    shapes = dict(zip(net.list_arguments(), net.infer_shape(data=(2, 4))[0], strict=True))
    values = {name: np.random.normal(size=shape) for name, shape in shapes.items()}
    (found,) = net.eval(**values)
    hidden = net.get_internals()["act_output"].eval(
        **{n: values[n] for n in ("data", "fc1_weight", "fc1_bias")}
    )[0]
    want = npx.relu(np.dot(values["data"], values["fc1_weight"].T) + values["fc1_bias"])
    assert np.allclose(hidden, want, rtol=1e-5)
    want = npx.softmax(np.dot(want, values["fc2_weight"].T) + values["fc2_bias"])
    assert np.allclose(found, want, rtol=1e-5)
    with pytest.raises(UnknownNameError, match="fc1_weight"):
        net.eval(data=values["data"])
    with pytest.raises(UnknownNameError, match="did you mean 'data'"):
        net.eval(dat=values["data"])
    with pytest.raises(UnknownNameError, match="act_output"):
        net.get_internals()["act_outpt"]


def test_auxiliary_states_and_groups() -> None:
    data = sym.Variable("data", shape=(2, 3))
    normal = sym.BatchNorm(data, name="norm")
    assert normal.list_auxiliary_states() == ["norm_moving_mean", "norm_moving_var"]
    assert normal.list_arguments() == ["data", "norm_gamma", "norm_beta"]
    both = sym.Group([normal, data * 2])
    assert len(both) == 2 and both.name is None
    assert both.infer_shape()[1] == [(2, 3), (2, 3)]
    assert next(iter(both)).name == "norm"
    assert data.attr("__shape__") == "(2, 3)"
    parts = sym.split(data, num_outputs=3, axis=1, name="parts")
    assert parts.list_outputs() == ["parts_output0", "parts_output1", "parts_output2"]


def test_arithmetic() -> None:
    a, b = sym.var("a"), sym.var("b")
    x, y = numpy.array([[1.0, -2.0]]), numpy.array([[3.0, 4.0]])
    for symbol, want in (
        (a + b, x + y),
        (a - 1, x - 1),
        (1 - a, 1 - x),
        (2 / b, 2 / y),
        (a * b / 2, x * y / 2),
        (-a, -x),
        (abs(a), abs(x)),
        (b**2, y**2),
        (a > b, (x > y) * 1.0),
        (a == 1, (x == 1) * 1.0),
        (a.sum(axis=1), x.sum(axis=1)),
        (a.reshape(shape=(0, -1, 1)), x.reshape(1, 2, 1)),
    ):
        names = symbol.list_arguments()
        given = {n: np.array(v, dtype="float32") for n, v in (("a", x), ("b", y)) if n in names}
        (found,) = symbol.eval(**given)
        assert np.allclose(found, np.array(want, dtype="float32"), rtol=1e-6)
    with pytest.raises(TypeError):
        a + "b"


def test_written_files_can_be_read(tmp_path: Any) -> None:
    net = perceptron()
    net.save(tmp_path / "net.json")
    read = sym.load(tmp_path / "net.json")
    assert read.tojson() == net.tojson() == sym.load_json(net.tojson()).tojson()
    assert read.list_arguments() == net.list_arguments()


def test_a_block_of_a_symbol() -> None:
    """The first input decides the parameters' shapes; the block trains like any other."""
    block = SymbolBlock(perceptron(), sym.var("data"))
    block.initialize()
    x = np.random.normal(size=(5, 4))
    assert block(x).shape == (5, 3)
    assert block.params["fc1_weight"].shape == (8, 4)
    inner = SymbolBlock(perceptron().get_internals()["act_output"], ["data"], block.params)
    assert inner(x).shape == (5, 8)
    assert inner.params["fc1_weight"] is block.params["fc1_weight"]
    with pytest.raises(ShapeError, match="takes 1 inputs"):
        block(x, x)


def test_blocks_on_symbols() -> None:
    net = nn.HybridSequential()
    net.add(nn.Dense(4, activation="relu"), nn.Dense(2))
    net.initialize()
    with pytest.raises(ExportError, match="shape"):
        net(sym.var("data"))
    symbol = net(sym.var("image", shape=(1, 3)))
    assert symbol.list_arguments()[0] == "image" and len(symbol.list_arguments()) == 5
    net.hybridize()
    x = np.random.normal(size=(2, 3))
    want = net(x)
    symbol = net(sym.var("data") * 2)
    block = SymbolBlock(
        symbol, [sym.var("data")], {p.name: p for p in net.collect_params().values()}
    )
    assert np.allclose(block(x / 2), want, rtol=1e-5)


def test_f_is_the_module_and_symbols_have_names(capsys: Any) -> None:
    class HybridNet(nn.HybridBlock):
        def __init__(self) -> None:
            super().__init__(prefix="hybridnet0_")
            self.hidden = nn.Dense(4)

        def hybrid_forward(self, F: Any, x: Any) -> Any:
            print("module F: ", F)
            print("value  x: ", x)
            x = F.npx.relu(self.hidden(x))
            print("result  : ", x)
            return F.np.tanh(x) + F.random.uniform(0, 1, size=(1,)) * F.zeros((1,))

    net = HybridNet()
    net.initialize()
    x = np.ones((1, 3))
    net(x)
    assert "<module 'gemel.ndarray'" in capsys.readouterr().out
    net.hybridize()
    net(x)
    printed = capsys.readouterr().out
    assert "<module 'gemel.symbol'" in printed
    assert "value  x:  <_Symbol data>\nresult  :  <_Symbol hybridnet0_relu0>\n" in printed
    net(x)
    assert capsys.readouterr().out == "", "Python runs once"


X = numpy.arange(24, dtype="float32").reshape(2, 3, 4) - 7


@pytest.mark.parametrize(
    ("call", "want"),
    [
        (lambda x: nd.Reshape(x, shape=(0, -1)), X.reshape(2, 12)),
        (lambda x: nd.reshape(x, shape=(-3, -2)), X.reshape(6, 4)),
        (lambda x: nd.reshape(x, shape=(-4, 1, -1, 0, 0)), X.reshape(1, 2, 3, 4)),
        (lambda x: nd.reshape(x, shape=(-1, 0), reverse=True), X.reshape(6, 4)),
        (lambda x: nd.mean(x, axis=1, exclude=True), X.mean(axis=(0, 2))),
        (lambda x: nd.sum(x, axis=(0, 1)), X.sum(axis=(0, 1))),
        (lambda x: nd.concat(x, x, dim=2), numpy.concatenate([X, X], 2)),
        (lambda x: nd.concat(*[x, x]), numpy.concatenate([X, X], 1)),
        (lambda x: nd.stack(x, x, axis=1), numpy.stack([X, X], 1)),
        (lambda x: nd.slice_axis(x, axis=2, begin=1, end=-1), X[:, :, 1:-1]),
        (lambda x: nd.SliceChannel(x, num_outputs=3, axis=1, squeeze_axis=True)[1], X[:, 1]),
        (
            lambda x: nd.broadcast_add(x, nd.mean(x, axis=2, keepdims=True)),
            X + X.mean(2)[..., None],
        ),
        (lambda x: nd.dot(x[0], x[1], transpose_b=True), X[0] @ X[1].T),
        (lambda x: nd.batch_dot(x, x, transpose_a=True), numpy.swapaxes(X, 1, 2) @ X),
        (lambda x: nd.broadcast_greater(x, x * 0), (X > 0).astype("float32")),
        (lambda x: nd.argmax(x, axis=2), X.argmax(2).astype("float32")),
        (lambda x: nd.swapaxes(x, 0, 2), X.swapaxes(0, 2)),
        (lambda x: nd.transpose(x, axes=(2, 0, 1)), X.transpose(2, 0, 1)),
        (lambda x: nd.broadcast_axis(x[:1], axis=0, size=3), numpy.repeat(X[:1], 3, 0)),
        (
            lambda x: nd.depth_to_space(nd.reshape(x, shape=(1, 4, 2, 3)), 2)[0, 0, 0, :2],
            X.ravel()[[0, 6]],
        ),
        (lambda x: nd.zeros((2, 2)) + nd.ones((2, 2)), numpy.ones((2, 2))),
        (lambda x: nd.array([1, 2]) * 2, numpy.array([2.0, 4.0])),
        (lambda x: nd.topk(x, k=2, ret_typ="value"), -numpy.sort(-X, -1)[..., :2]),
        (lambda x: nd.elemwise_sub(x, x) - 3, X * 0 - 3),
        (lambda x: nd.add_n(x, x, x), X * 3),
        (lambda x: nd.cast(x, dtype="int32"), X.astype("int32")),
        (lambda x: nd.contrib.arange_like(x, axis=1), numpy.arange(3.0)),
        (lambda x: nd.linalg.gemm2(x, x, transpose_b=True), X @ numpy.swapaxes(X, 1, 2)),
        (lambda x: nd.linalg.norm(x), numpy.linalg.norm(X)),
    ],
)
def test_legacy_operations(call: Any, want: Any) -> None:
    """The calls work on arrays and, under the same names, in a trace."""
    x = np.array(X)
    found = call(x)
    assert found.shape == want.shape
    assert numpy.allclose(found.asnumpy(), want, rtol=1e-5)
    assert numpy.allclose(gemel.compile(call)(x).asnumpy(), want, rtol=1e-5)


def test_unknown_names_and_keywords() -> None:
    with pytest.raises(AttributeError, match="did you mean 'FullyConnected'"):
        sym.FullyConected  # noqa: B018 -- asked for
    with pytest.raises(AttributeError, match="Activation"):
        nd.Activatoin  # noqa: B018 -- asked for
    with pytest.raises(TypeError, match="did you mean 'num_hidden'"):
        sym.FullyConnected(sym.var("x"), num_hiden=3)
    with pytest.raises(TypeError, match="not a Symbol"):
        sym.Concat(sym.var("x"), 3)
    with pytest.raises(TypeError, match="must be a string"):
        sym.var(3)  # type: ignore[arg-type]


A, B = sym.var("a"), sym.var("b")


@pytest.mark.parametrize(
    ("symbol", "operation", "want"),
    [
        (A + B, "elemwise_add", [3.0, 8.0]),
        (sym.broadcast_add(A, B), "broadcast_add", [3.0, 8.0]),
        (sym.maximum(A, B), "broadcast_maximum", [2.0, 5.0]),
        (sym.maximum(A, 2), "_maximum_scalar", [2.0, 5.0]),
        (sym.minimum(3, A), "_minimum_scalar", [1.0, 3.0]),
        (sym.pow(A, B), "broadcast_power", [1.0, 125.0]),
        (sym.power(2, A), "_rpower_scalar", [2.0, 32.0]),
        (sym.lesser_equal(2, A), "_greater_equal_scalar", [0.0, 1.0]),
        (sym.subtract(A, B), "broadcast_sub", [-1.0, 2.0]),
        (A == 5, "_equal_scalar", [0.0, 1.0]),
        (sym.contrib.cond(sym.sum(B) > 4, lambda: A * 2, lambda: A), "_cond", [2.0, 10.0]),
        (
            sym.contrib.foreach(lambda x, s: (x * sym.sum(B), s + x), A, sym.sum(B))[0],
            "_foreach",
            [5.0, 25.0],
        ),
        (
            sym.contrib.while_loop(lambda i, x: i < 2, lambda i, x: (x, [i + 1, x + B]),
                                   [sym.zeros((1,)), A], max_iterations=3)[1][1],
            "_while_loop",
            [5.0, 11.0],
        ),
    ],
)  # fmt: skip
def test_operations_of_symbols(symbol: Any, operation: str, want: list[float]) -> None:
    """Symbols use MXNet's names, which differ for two arrays and for an array and a number."""
    assert f'"op": "{operation}"' in symbol.tojson()
    again = sym.load_json(symbol.tojson())
    values = {"a": nd.array([1, 5]), "b": nd.array([2, 3])}
    values = {name: values[name] for name in again.list_inputs()}
    for each in (symbol, again):
        assert each.eval(**values)[0].asnumpy().tolist() == want


def test_loops_read_all_their_variables() -> None:
    with pytest.raises(ShapeError, match=r"does not read the loop's variables \[1\]"):
        sym.contrib.foreach(lambda x, s: (x, x), A, B)


# --- the recorded history of an array ------------------------------------------------------------


def test_recorded_computations_become_symbols() -> None:
    x, w = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[1.0, -1.0], [0.5, 2.0]])
    x.attach_grad()
    w.attach_grad()
    with autograd.record():
        hidden = np.exp(np.dot(x, w)) * 2
        y = npx.relu((hidden + x).sum(axis=1))
    found = autograd.get_symbol(y)
    assert found.list_arguments() == ["var0", "var1"]
    (again,) = found.eval(var0=x, var1=w)
    numpy.testing.assert_allclose(again.asnumpy(), y.asnumpy(), rtol=1e-6)
    (other,) = found.eval(var0=x[:1], var1=w)  # the batch size is free
    numpy.testing.assert_allclose(other.asnumpy(), y[:1].asnumpy(), rtol=1e-6)
    assert sym.load_json(found.tojson()).list_arguments() == ["var0", "var1"]
    y.backward()
    assert x.grad is not None


def test_only_what_was_recorded_has_a_history() -> None:
    x = np.ones((2,))
    with pytest.raises(GradientError, match="get_symbol: the array was not computed"):
        autograd.get_symbol(x)
    x.attach_grad()
    program = gemel.compile(lambda a: a * 2)
    with autograd.record():
        y = program(x)
    with pytest.raises(ExportError, match=r"get_symbol: .*record it without hybridize"):
        autograd.get_symbol(y)


def test_numbers_in_files_that_are_none() -> None:
    text = (sym.Variable("x") > 2).tojson()
    with pytest.raises(SymbolFileError, match=r"\(_greater_scalar\d+\).* scalar is 'two'"):
        sym.load_json(text.replace('"scalar": "2"', '"scalar": "two"'))
    text = sym.Variable("x", dtype="int32").tojson()
    digits = sym.load_json(text.replace('"4"', f'"{"9" * 5000}"'))
    assert digits.infer_type()[0] == sym.Variable("x", dtype="float32").infer_type()[0]


@pytest.mark.parametrize("op", ["argmax", "argmin"])
@pytest.mark.parametrize(("version", "whole"), [(None, True), (904, True), (905, False)])
def test_the_last_axis_in_files_before_0_9_5(op: str, version: int | None, whole: bool) -> None:
    """There ``axis=-1`` meant all axes."""
    data = {"op": "null", "name": "data", "inputs": []}
    node = {"op": op, "name": "m", "attrs": {"axis": "-1"}, "inputs": [[0, 0, 0]]}
    held: dict[str, Any] = {"nodes": [data, node], "arg_nodes": [0], "heads": [[1, 0, 0]]}
    if version is not None:
        held["attrs"] = {"mxnet_version": ["int", version]}
    given = gemel.nd.array([[1, 5, 2], [9, 0, 3]])
    found = gemel.sym.load_json(json.dumps(held)).eval(data=given)[0].asnumpy()
    expected = given.asnumpy() if not whole else given.asnumpy().reshape(-1)
    numpy.testing.assert_array_equal(found, getattr(numpy, op)(expected, axis=-1).reshape(-1))

"""What users' tests import from MXNet besides its arrays: `test_utils`, `operator`, scopes."""

from __future__ import annotations

import logging
import os
import warnings
from types import SimpleNamespace
from typing import Any

import numpy
import pytest

import gemel as mx
from gemel import autograd, gluon, np, npx, sym
from gemel import test_utils as tools
from gemel.errors import (
    ArgumentError,
    DeviceError,
    GemelError,
    GradientError,
    OperandError,
    ParameterFileError,
    ShapeError,
    TraceError,
    UnknownNameError,
)
from gemel.gluon import nn

x = sym.var("x")
POINT = numpy.array([[0.3, -1.2, 0.7], [1.5, 0.2, -0.4]])


@pytest.mark.parametrize(
    ("a", "b", "keywords", "close"),
    [
        (np.ones((2,)), numpy.ones(2), {}, True),
        (numpy.ones(2, "f4"), numpy.ones(2, "f4") + 5e-4, {}, True),
        (numpy.ones(2), numpy.ones(2) + 5e-4, {}, False),
        (np.ones((2,), dtype="float16"), numpy.ones(2) + 0.05, {}, True),
        (np.ones((2,), dtype="bfloat16"), numpy.ones(2) + 0.05, {}, True),
        (np.array([1, 2], dtype="int32"), numpy.array([1, 3]), {}, False),
        (numpy.ones((2, 3)), numpy.ones(3), {}, True),
        (numpy.ones((2, 3)), numpy.ones(3), {"use_broadcast": False}, False),
        (numpy.array([numpy.nan]), numpy.array([numpy.nan]), {}, False),
        (numpy.array([numpy.nan]), numpy.array([numpy.nan]), {"equal_nan": True}, True),
        (numpy.zeros((0, 3)), np.zeros((0, 3)), {}, True),
        (3.0, 3.1, {"rtol": 0.1}, True),
    ],
)
def test_comparisons(a: Any, b: Any, keywords: dict[str, Any], close: bool) -> None:
    if close:
        tools.assert_almost_equal(a, b, **keywords)
    else:
        with pytest.raises(AssertionError):
            tools.assert_almost_equal(a, b, **keywords)


def test_part_of_the_elements_may_differ() -> None:
    a, b = numpy.zeros(10), numpy.eye(10)[0]
    tools.assert_almost_equal_with_err(a, b, etol=0.1)
    with pytest.raises(AssertionError, match=r"1 of 10 elements differ[\s\S]*\(0,\): a=0.0, b=1.0"):
        tools.assert_almost_equal_with_err(a, b, etol=0.05)
    nan = numpy.array([1.0, numpy.nan])
    tools.assert_almost_equal_ignore_nan(nan, numpy.array([1.0, 2.0]))


@pytest.mark.parametrize(
    ("symbol", "location", "states"),
    [
        (sym.tanh(x) * x, [POINT], None),
        (sym.FullyConnected(x, num_hidden=2, name="f"), "f", None),
        (sym.BatchNorm(x, name="b", fix_gamma=False), "b", [numpy.zeros(3), numpy.ones(3)]),
    ],
    ids=["tanh", "dense", "batch norm"],
)
def test_gradients_of_symbols(symbol: Any, location: Any, states: Any) -> None:
    if isinstance(location, str):
        shapes, _, _ = symbol.infer_shape(x=POINT.shape)
        rest = [numpy.random.uniform(0.5, 1, shape) for shape in shapes[1:]]
        location = dict(zip(symbol.list_arguments(), [POINT, *rest], strict=True))
    tools.check_numeric_gradient(symbol, location, states, numeric_eps=1e-3, rtol=1e-2, atol=1e-3)


def test_wrong_gradients_are_found() -> None:
    tools.check_symbolic_forward(sym.square(x), [POINT], [POINT**2])
    ones = numpy.ones_like(POINT)
    for request in ("write", "add"):
        tools.check_symbolic_backward(sym.square(x), [POINT], [ones], [2 * POINT], grad_req=request)
    with pytest.raises(AssertionError, match="EXPECTED_x"):
        tools.check_symbolic_backward(sym.square(x), [POINT], [ones], [3 * POINT])
    with pytest.raises(AssertionError, match="BACKWARD_x"):
        tools.check_numeric_gradient(sym.BlockGrad(sym.square(x)) * x, [POINT], rtol=1e-2)


def test_executors() -> None:
    executor = sym.FullyConnected(x, num_hidden=2, name="f").simple_bind(x=(4, 3))
    assert [array.shape for array in executor.arg_arrays] == [(4, 3), (2, 3), (2,)]
    with pytest.raises(GradientError, match="forward"):
        executor.backward()
    executor.copy_params_from({"f_weight": numpy.ones((2, 3)), "f_bias": [1, 2]})
    assert executor.forward(is_train=True, x=numpy.ones((4, 3)))[0][0].tolist() == [4, 5]
    executor.backward()
    assert executor.grad_dict["f_bias"].tolist() == [4, 4]
    assert list(executor.output_dict) == ["f_output"]
    with pytest.raises(UnknownNameError, match="f_weight"):
        executor.copy_params_from({"f_weigth": 1})
    with pytest.raises(ShapeError):
        x.bind(None, [np.ones(1), np.ones(2)])


def test_networks_and_optimizers() -> None:
    tools.check_gluon_hybridize_consistency(
        lambda: gluon.nn.Dense(2, weight_initializer="ones"),
        [np.ones((3, 4))],
        lambda data: numpy.full((3, 2), data.sum(1)[:, None]),
    )
    shapes = [(2, 3), (4,)]
    tools.compare_optimizer(mx.optimizer.Adam(), mx.optimizer.Adam(), shapes, "float32")
    with pytest.raises(AssertionError):
        one, other = mx.optimizer.Adam(), mx.optimizer.SGD()
        tools.compare_optimizer(one, other, shapes, "float32", compare_states=False)
    specs = [{"ctx": mx.cpu(), "x": (2, 3), "type_dict": {"x": kind}} for kind in ("f4", "f8")]
    tools.check_consistency(sym.exp(x), specs)
    with pytest.raises(AssertionError):
        tools.check_consistency([sym.exp(x), sym.expm1(x)], specs)
    assert tools.check_speed(sym.exp(x), x=(2, 3), N=2) > 0


def test_generators() -> None:
    numpy.random.seed(0)
    buckets, probs = tools.gen_buckets_probs_with_ppf(lambda p: p, 4)
    uniform = numpy.random.uniform
    assert min(tools.verify_generator(lambda n: uniform(size=n), buckets, probs, 10000)) >= 0
    with pytest.raises(AssertionError, match="0 of 5"):
        tools.verify_generator(lambda n: uniform(size=n) ** 2, buckets, probs, 10000)
    coin = [0.5, 0.5]
    assert tools.chi_square_check(lambda n: [0, 1] * (n // 2), [0, 1], coin, 100)[0] == 1.0
    assert tools.mean_check(lambda n: uniform(size=n), 0.5, 12**-0.5, 10000)
    assert not tools.mean_check(lambda n: uniform(size=n), 0.6, 12**-0.5, 10000)
    assert not tools.var_check(lambda n: uniform(size=n), 1.0, 10000)


def test_values() -> None:
    matrices = tools.new_matrix_with_real_eigvals_nd((2, 3, 3))
    assert numpy.allclose(numpy.sort(numpy.linalg.eigvals(matrices).real), [1, 1.5, 2])
    symmetric = tools.new_sym_matrix_with_real_eigvals_nd((4, 4))
    assert numpy.array_equal(symmetric, symmetric.T)
    assert tools.collapse_sum_like(numpy.ones((2, 3, 4)), (3, 1)).tolist() == [[8.0]] * 3
    assert all(1 <= n <= 4 for n in tools.rand_shape_nd(5, 4))
    base = np.zeros((2, 2))
    assert tools.same_array(base, base[0]) and not tools.same_array(base, base.copy())
    assert tools.rand_ndarray((2, 3), dtype="float16").dtype == "float16"
    with pytest.raises(GemelError, match="sparse"):
        tools.rand_ndarray((2, 3), "csr")
    with pytest.raises(GemelError, match="server"):
        tools.get_mnist()


def test_around_tests() -> None:
    calls: list[int] = []

    @tools.retry(3)
    def flaky(enough: int) -> None:
        calls.append(1)
        assert len(calls) >= enough

    flaky(3)
    with pytest.raises(AssertionError):
        flaky(9)
    with tools.environment("GEMEL_NO_SUCH", "1"):
        assert os.environ["GEMEL_NO_SUCH"] == "1"
    assert "GEMEL_NO_SUCH" not in os.environ
    with mx.util.np_default_dtype():
        assert np.array([1.0]).dtype == "float64"
    assert np.array([1.0]).dtype == "float32"
    with pytest.raises(DeviceError):
        mx.util.get_cuda_compute_capability(mx.cpu())
    assert not mx.runtime.Features().is_enabled("cuda")
    with pytest.raises(RuntimeError, match="FOO"):
        mx.runtime.Features().is_enabled("FOO")


# --- operations in Python -------------------------------------------------------------------


class Scaled(mx.operator.CustomOp):
    """Multiplies its input by a factor."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def forward(self, is_train: bool, req: Any, in_data: Any, out_data: Any, aux: Any) -> None:
        self.assign(out_data[0], req[0], in_data[0] * self.factor)

    def backward(
        self, req: Any, out_grad: Any, in_data: Any, out_data: Any, in_grad: Any, aux: Any
    ) -> None:
        self.assign(in_grad[0], req[0], out_grad[0] * self.factor)


@mx.operator.register("scaled in test")
class ScaledProp(mx.operator.CustomOpProp):
    """Its settings arrive as strings."""

    def __init__(self, factor: str = "1") -> None:
        super().__init__(need_top_grad=True)
        self.factor = float(factor)

    def create_operator(self, ctx: Any, in_shapes: Any, in_dtypes: Any) -> Any:
        return Scaled(self.factor)


def test_custom_operations() -> None:
    a = np.array([1.0, 2.0])
    a.attach_grad()
    with autograd.record():
        y = mx.nd.Custom(data=a, op_type="scaled in test", factor=3)
    y.backward()
    assert (y.tolist(), a.grad.tolist()) == ([3, 6], [3, 3])
    symbol = sym.Custom(x, op_type="scaled in test", factor=2.5, name="it")
    assert (symbol.list_arguments(), symbol.list_outputs()) == (["x"], ["it_output"])
    tools.check_numeric_gradient(sym.load_json(symbol.tojson()), [POINT], rtol=1e-2)
    with pytest.raises(UnknownNameError, match="scaled in test"):
        mx.nd.Custom(a, op_type="scaled in tests")


@pytest.mark.parametrize(
    ("inputs", "named", "message"),
    [
        ((), {}, "scaled in test: data missing"),
        ((np.ones(2), np.ones(2)), {}, "2 inputs by position"),
        ((np.ones(2),), {"data": np.ones(2)}, "also by name data"),
        (([1.0, 2.0],), {}, "data is a builtins.list"),
        ((numpy.ones(2),), {}, "data is a numpy.ndarray"),
    ],
)
def test_wrong_inputs_of_custom_operations(inputs: Any, named: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        mx.nd.Custom(*inputs, **named, op_type="scaled in test")


@pytest.mark.parametrize(
    ("method", "given", "message"),
    [
        ("infer_shape", ([(2,)],), "infer_shape gave"),
        ("infer_shape", ([(2,)], [(2,), (2,)]), "one for the 1 outputs"),
        ("infer_type", (["float32"], []), "infer_type gave"),
        ("create_operator", None, "create_operator gave a NoneType"),
        ("list_outputs", None, "list_outputs gave None; it must give a list of names"),
        ("list_arguments", "data", "list_arguments gave 'data'"),
        ("list_auxiliary_states", [1], r"list_auxiliary_states gave \[1\]"),
    ],
)
def test_wrong_properties_of_custom_operations(method: str, given: Any, message: str) -> None:
    def found(self: Any, *arguments: Any) -> Any:
        return given

    found.__name__ = method
    mx.operator.register("wrong in test")(type("Wrong", (ScaledProp,), {method: found}))
    with pytest.raises(ArgumentError, match=message):
        mx.nd.Custom(np.ones(2), op_type="wrong in test")


def test_operations_are_registered_as_classes_by_name() -> None:
    with pytest.raises(OperandError, match=r"operator.register: 5 is no name"):
        mx.operator.register(5)  # type: ignore[arg-type]
    with pytest.raises(OperandError, match="is for a class, not for 5"):
        mx.operator.register("wrong in test")(5)


@mx.operator.register("labelled in test")
class LabelledProp(mx.operator.CustomOpProp):
    """Takes a label for each row."""

    def list_arguments(self) -> list[str]:
        return ["data", "label"]

    def infer_shape(self, in_shape: list[Any]) -> Any:
        return [in_shape[0], (in_shape[0][0],)], [in_shape[0], (1,)], []

    def list_outputs(self) -> list[str]:
        return ["output", "loss"]


def test_shapes_of_custom_operations() -> None:
    symbol = sym.Custom(data=x, label=sym.var("label"), op_type="labelled in test", name="it")
    assert symbol.infer_shape(x=(3, 4)) == ([(3, 4), (3,)], [(3, 4), (1,)], [])
    assert symbol.infer_shape_partial(label=(3,))[0] == [None, (3,)]
    after = sym.FullyConnected(symbol[0], num_hidden=2, name="f")
    assert after.infer_shape(x=(3, 4)) == ([(3, 4), (3,), (2, 4), (2,)], [(3, 2)], [])


class Tripled(gluon.HybridBlock):
    """A Python operation between two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.Dense(2, use_bias=False), nn.Dense(1)

    def forward(self, x: Any) -> Any:
        return self.after(npx.Custom(self.before(x), op_type="scaled in test", factor=3))


def test_a_hybridized_block_goes_round_custom_operations() -> None:
    net = nn.HybridSequential()
    net.add(nn.Dense(4, activation="tanh"), Tripled())
    net.initialize()
    x, found = np.array([[1.0, -2.0, 3.0]]), []
    for hybrid in (False, True, True):
        if hybrid:
            net.hybridize()
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            with autograd.record():
                y = net(np.concatenate([x, x]))
            y.backward()
        names = [str(each.message).split(" is not compiled")[0] for each in told]
        assert names == ([net.name, net[1].name] if hybrid else [])
        found.append([y.tolist(), *(p.grad().tolist() for p in net.collect_params().values())])
    for each in found[1:]:
        for a, b in zip(each, found[0], strict=True):
            numpy.testing.assert_allclose(a, b, rtol=1e-5)
    assert net[0]._own.compiled is not None and net[1].after._own.compiled is not None
    with pytest.raises(TraceError, match="scaled in test runs Python"):
        mx.compile(net[1])(np.ones((1, 4)))


def test_a_block_whose_trace_failed_is_run_as_python() -> None:
    net = nn.HybridLambda(lambda F, x: x * x.item())
    net.hybridize()
    with pytest.raises(TraceError):
        net(np.array(3.0))
    net.hybridize(False)
    assert net(np.array(3.0)).item() == 9


def test_checkpoints_of_symbols(tmp_path: Any) -> None:
    net = sym.BatchNorm(sym.FullyConnected(x, num_hidden=2, name="f"), name="n", fix_gamma=False)
    shapes = dict(zip(net.list_inputs(), [(4, 3), (2, 3), *[(2,)] * 5], strict=True))
    values = {name: mx.nd.ones(shape) * 2 for name, shape in shapes.items() if name != "x"}
    states = {name: values.pop(name) for name in net.list_auxiliary_states()}
    mx.callback.do_checkpoint(tmp_path / "net", 2)(0, net, values, states)
    assert not os.listdir(tmp_path)
    mx.callback.do_checkpoint(tmp_path / "net", 2)(1, net, values, states)
    assert sorted(os.listdir(tmp_path)) == ["net-0002.params", "net-symbol.json"]
    found, arguments, auxiliary = mx.model.load_checkpoint(tmp_path / "net", 2)
    assert found.tojson() == net.tojson()
    assert (sorted(arguments), sorted(auxiliary)) == (sorted(values), sorted(states))
    assert {type(array) for array in arguments.values()} == {mx.nd.NDArray}
    block = gluon.SymbolBlock.imports(
        f"{tmp_path}/net-symbol.json", ["x"], f"{tmp_path}/net-0002.params"
    )
    given = np.ones((4, 3))
    wanted = found.eval(x=given, **arguments, **auxiliary)[0]
    numpy.testing.assert_allclose(block(given).asnumpy(), wanted.asnumpy(), rtol=1e-6)


def test_small_names_of_mxnet_1() -> None:
    assert (mx.cpu(1).device_typeid, mx.Context.devtype2str[2]) == (1, "gpu")
    assert mx.Context("gpu", 0).device_typeid == 2 and mx.cpu().empty_cache() is None
    assert mx.engine.set_bulk_size(8) == 1
    assert mx.gluon.DeferredInitializationError is mx.gluon.parameter.DeferredInitializationError
    net = mx.gluon.contrib.nn.SparseEmbedding(5, 2)
    net.initialize()
    with autograd.record():
        y = net(np.array([1, 3, 1]))
    y.backward()
    assert net.weight.grad()[:, 0].tolist() == [0, 2, 0, 1, 0]
    assert str(net) == "SparseEmbedding(5 -> 2, float32)"
    parameters = net.collect_params()
    parameters.load_dict({name: np.zeros((5, 2)) for name in parameters})
    assert float(net.weight.data().sum()) == 0
    with pytest.raises(ParameterFileError, match="load_dict"):
        parameters.load_dict({})
    assert list(gluon.contrib.data.IntervalSampler(7, 3)) == [0, 3, 6, 1, 4, 2, 5]
    assert list(gluon.contrib.data.IntervalSampler(7, 3, rollover=False)) == [0, 3, 6]
    with pytest.raises(ShapeError, match="interval 8"):
        gluon.contrib.data.IntervalSampler(7, 8)


def test_scopes_of_symbols() -> None:
    with mx.name.Prefix("part_"), mx.AttrScope(__group__="1"), mx.AttrScope(__other__="2"):
        symbol = sym.FullyConnected(x, num_hidden=2, name="f")
    assert symbol.list_arguments() == ["x", "part_f_weight", "part_f_bias"]
    assert (symbol.attr("__group__"), symbol.attr("__other__")) == ("1", "2")
    with mx.name.NameManager():
        assert sym.exp(x).name == "exp0"
    with pytest.raises(ValueError, match="attributes must be strings"):
        mx.AttrScope(group=1)


def test_callbacks(caplog: Any) -> None:
    caplog.set_level(logging.INFO)
    metric = gluon.metric.MAE()
    metric.update([np.ones(2)], [np.zeros(2)])
    speed = mx.callback.Speedometer(4, 2)
    calls = [speed, mx.callback.ProgressBar(4, 8), mx.callback.log_train_metric(2)]
    for batch in range(1, 3):
        for call in calls[::-1]:
            call(SimpleNamespace(epoch=0, nbatch=batch, eval_metric=metric))
    text = caplog.text
    assert "Epoch[0] Batch [2]\tSpeed:" in text and "mae=1.0" in text
    assert "[====----] 50%" in text and "Iter[0] Batch[2] Train-mae=1.0" in text


@pytest.mark.parametrize(
    ("got", "want"),
    [
        (lambda: np.add(x1=np.ones(2), x2=1), [2, 2]),
        (lambda: np.sum(a=np.ones(2)), 2),
        (lambda: mx.npx.relu(data=np.array([-1.0, 1.0])), [0, 1]),
        (lambda: np.ones(1, dtype="f8").astype("i4", casting="unsafe", order="C"), [1]),
        (lambda: np.ones(1).as_in_ctx(ctx=mx.cpu()), [1]),
        (lambda: np.argsort(np.array([2, 1]), -1, None, None), [1, 0]),
        (lambda: np.quantile(np.arange(5), 0.3, interpolation="lower"), 1),
        (lambda: np.linalg.eigvalsh(np.array([[2.0, 9.0], [0.0, 1.0]]), upper=False), [1, 2]),
        (lambda: np.linalg.tensorsolve(np.eye(2), np.ones(2), axes=(0,)), [1, 1]),
        (lambda: np.linalg.lstsq(np.eye(2), np.ones(2), rcond="warn")[0], [1, 1]),
        (lambda: np.hamming(1, ctx=mx.cpu()), [1]),
        (lambda: np.alltrue(np.ones(2)), True),
        (lambda: np.random.gumbel(0, 1, (2,), mx.cpu(), np.zeros(2)).shape, (2,)),
        (lambda: np.random.randn(2, dtype="float64").dtype.name, "float64"),
        (lambda: mx.npx.bernoulli(prob=1.0, size=(2,)), [1, 1]),
    ],
)
def test_spellings_of_calls(got: Any, want: Any) -> None:
    found = got()
    assert (found.tolist() if isinstance(found, np.ndarray) else found) == want


def test_casts_that_are_not_allowed() -> None:
    with pytest.raises(TypeError, match="safe"):
        np.ones(1).astype("int32", casting="safe")
    with pytest.raises(TypeError, match="safe"):
        mx.compile(lambda x: x.astype("int32", casting="safe"))(np.ones(1))
    with pytest.raises(TypeError, match="unknown keyword"):
        np.add(x1=np.ones(1), x3=1)


@pytest.mark.parametrize(
    "call",
    [
        lambda: mx.callback.Speedometer(4, 0),
        lambda: mx.callback.Speedometer(4, frequent="b"),
        lambda: mx.callback.Speedometer("a"),
        lambda: mx.callback.ProgressBar(0),
        lambda: mx.callback.log_train_metric(-1),
    ],
)
def test_callbacks_for_no_batches(call: Any) -> None:
    with pytest.raises(ArgumentError, match="must be positive"):
        call()

"""ONNX files as networks: onnx's own cases, round trips, gradients, broken files."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import pkgutil
import re
import warnings
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import numpy
import pytest
from onnx_networks import NETWORKS, drawn, leaves, prepared
from onnx_networks import given as inputs_of

import gemel
from gemel import autograd, gluon, np
from gemel.errors import (
    GemelError,
    MissingFileError,
    ShapeError,
    SymbolFileError,
    TraceError,
    UnknownOperatorsError,
)

onnx = pytest.importorskip("onnx", reason="pip install gemel[onnx]")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

# --- onnx's own cases -----------------------------------------------------------------------

#: The modules of the quick tests: those that move elements, count positions or have many settings.
QUICK = """concat convtranspose gathernd gru if_ loop lstm onehot pad resize reversesequence rnn
    scatterelements scatternd slice split topk"""
#: What is not supported, by a text that the case's name or its error contains.
REASONS = {
    "gemel has no arrays of": "dtypes of less than a byte, and floats of one",
    "is for version 0 of": "operators of other domains alone",
    "is for version 1 of": "operators of versions before 7",
    "is no tensor": "sequences and optional values",
    "it drops elements": "training",
    r"node 'Y' \(GridSample\)": "cubic and volumetric samples",
    r"(antialias|tf_crop_and_resize) is not done": "parts of Resize",
    "scales of blocks": "scales of blocks",
    "its functions cannot be written out": "functions whose inputs are left out",
    "is no array of numbers": "functions whose attributes are left out, which onnx does not write",
    "positions of the largest|storage_order": "positions of the largest elements",
    r"attention\w*fp16": "one unit in the last place of float16",
}


@cache
def cases_of(module: str) -> list[Any]:
    """The cases of one of onnx's modules, which are made when it is imported."""
    node = importlib.import_module("onnx.backend.test.case.node")
    first = len(node._NodeTestCases)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importlib.import_module(f"{node.__name__}.{module}")
    return node._NodeTestCases[first:]


def as_numpy(value: Any) -> Any:
    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else numpy.asarray(value)


def as_array(value: Any) -> Any:
    found = as_numpy(value)
    twin = found.astype("float32") if found.dtype.name == "bfloat16" else found
    return np.array(twin, dtype=found.dtype.name)


def problem_of(case: Any) -> str:
    """How gemel's result differs from the case's: "" if equal, "?" for an unknown operator."""
    try:
        net = gemel.onnx.read.network.network(case.model, case.name)
        for inputs, expected in case.data_sets:
            found = net(*map(as_array, inputs))
            pairs = zip(found if isinstance(found, tuple) else (found,), expected, strict=True)
            for mine, other in pairs:
                other = as_numpy(other)
                assert (mine.dtype, tuple(mine.shape)) == (other.dtype.name, other.shape)
                # float16 and bfloat16 results are rounded at other places than onnx's.
                coarse = 0.02 if mine.dtype == "bfloat16" else case.rtol
                wide = "complex128" if other.dtype.kind == "c" else "float64"
                numpy.testing.assert_allclose(
                    mine.asnumpy().astype(wide), other.astype(wide), coarse, max(case.atol, 1e-6)
                )
    except UnknownOperatorsError:
        return "?"
    except (GemelError, AssertionError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def check_cases(modules: Iterable[str], least: int) -> list[str]:
    """Run cases; at least `least` must come out right. Returns the problems of the others."""
    cases = [case for module in modules for case in cases_of(module)]
    found = {case.name: problem_of(case) for case in cases}
    problems = [f"{name}: {problem}" for name, problem in found.items() if problem not in ("", "?")]
    assert not [each for each in problems if not re.search("|".join(REASONS), each)]
    assert sum(not problem for problem in found.values()) >= least
    return problems


def test_cases_of_onnx() -> None:
    check_cases(QUICK.split(), least=120)


@pytest.mark.slow
def test_all_cases_of_onnx() -> None:
    node = importlib.import_module("onnx.backend.test.case.node")
    modules = sorted(each.name for each in pkgutil.iter_modules(node.__path__))
    problems = check_cases(modules, least=1450)
    assert not [r for r in REASONS if not any(re.search(r, problem) for problem in problems)]


def model_of(nodes: Any, inputs: Any, outputs: Any, opset: int = 18, **constants: Any) -> Any:
    """A model of these nodes; inputs and outputs are (name, shape) or (name, shape, type)."""
    infos = [
        [
            helper.make_tensor_value_info(n, *(kind or [TensorProto.FLOAT]), s)
            for n, s, *kind in each
        ]
        for each in (inputs, outputs)
    ]
    tensors = [numpy_helper.from_array(numpy.array(v), name) for name, v in constants.items()]
    graph = helper.make_graph(nodes, "made", *infos, tensors)
    sets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=sets, ir_version=8)


def loaded(model: Any, folder: Path) -> Any:
    path = folder / "made.onnx"
    path.write_bytes(model.SerializeToString())
    return gemel.onnx.load(path)


POOLS = [
    ("MaxPool", {"kernel_shape": [3, 2], "strides": [2, 2], "ceil_mode": 1}),
    ("MaxPool", {"kernel_shape": [3, 3], "dilations": [2, 2], "pads": [1, 1, 1, 1]}),
    ("MaxPool", {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "VALID"}),
    ("AveragePool", {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [0, 1, 2, 0]}),
    ("AveragePool", {"kernel_shape": [3, 3], "auto_pad": "SAME_UPPER", "count_include_pad": 1}),
    ("AveragePool", {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    ("LpPool", {"kernel_shape": [2, 3], "strides": [2, 1], "p": 3}),
    ("GlobalAveragePool", {}),
    ("GlobalMaxPool", {}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "settings"), POOLS)
def test_pools(kind: str, settings: Any, tmp_path: Path) -> None:
    node = helper.make_node(kind, ["x"], ["y"], **settings)
    model = model_of([node], [("x", (2, 3, 7, 6))], [("y", None)])
    x = drawn(2, 3, 7, 6)
    (expected,) = ReferenceEvaluator(model).run(None, {"x": x.asnumpy()})
    numpy.testing.assert_allclose(loaded(model, tmp_path)(x).asnumpy(), expected, 1e-5, 1e-6)


@pytest.mark.parametrize("auto", ["SAME_UPPER", "SAME_LOWER", "VALID"])
def test_convolutions_that_say_no_padding(auto: str, tmp_path: Path) -> None:
    node = helper.make_node("Conv", ["x", "w"], ["y"], strides=[2, 1], auto_pad=auto)
    x, w = drawn(2, 3, 8, 7), drawn(4, 3, 4, 2)
    model = model_of([node], [("x", (2, 3, 8, 7))], [("y", None)], w=w.asnumpy())
    (expected,) = ReferenceEvaluator(model).run(None, {"x": x.asnumpy()})
    numpy.testing.assert_allclose(loaded(model, tmp_path)(x).asnumpy(), expected, 1e-4, 1e-5)


@pytest.mark.parametrize("far", [2**31 - 1, 2**40, 2**63 - 1])
def test_slices_to_and_from_far_beyond_the_axis(far: int, tmp_path: Path) -> None:
    x = np.arange(6.0)
    for start, stop in itertools.product((-far, -2, 1, far), (-far, 2, far)):
        for step in 1, 2, -1:
            given = {"s": [start], "e": [stop], "a": [0], "t": [step]}
            node = helper.make_node("Slice", ["x", *given], ["y"])
            net = loaded(model_of([node], [("x", (6,))], [("y", None)], **given), tmp_path)
            first = 0 if start == -far else start  # ONNX: also for steps backwards, unlike NumPy
            assert net(x).tolist() == list(range(6))[first:stop:step]


def test_the_corners_of_resized_pictures_stay(tmp_path: Path) -> None:
    """49 * (1 / 49) is below 1 and was rounded down."""
    how = {"mode": "nearest", "nearest_mode": "floor"}
    how["coordinate_transformation_mode"] = "align_corners"
    node = helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], **how)
    sizes = {"sizes": numpy.array([1, 1, 50])}
    net = loaded(model_of([node], [("x", (1, 1, 2))], [("y", None)], **sizes), tmp_path)
    assert net(np.array([[[3.0, 4.0]]])).tolist() == [[[3.0] * 49 + [4.0]]]


def test_whole_positions_in_resized_pictures_are_not_rounded_down(tmp_path: Path) -> None:
    """The fifth of 9 elements stands at (4 + 0.5) * 7 / 9 - 0.5, which is 3."""
    node = helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], nearest_mode="floor")
    model = model_of([node], [("x", (7,))], [("y", None)], sizes=numpy.array([9]))
    assert loaded(model, tmp_path)(np.arange(7.0)).tolist() == [0, 0, 1, 2, 3, 3, 4, 5, 6]


def test_transposed_windows_that_are_shorter_than_their_stride(tmp_path: Path) -> None:
    """As ONNX Runtime: nothing is padded; the result was cut at the wrong end."""
    weight = numpy.full((1, 1, 1), 2.0, "f")
    for auto in "SAME_UPPER", "SAME_LOWER":
        for wanted, after in ({}, []), ({"output_shape": [9]}, [0, 0]):
            how = {"strides": [3], "auto_pad": auto, **wanted}
            node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], **how)
            model = model_of([node], [("x", (1, 1, 3))], [("y", None)], w=weight)
            found = loaded(model, tmp_path)(np.array([[[1.0, 2.0, 3.0]]]))
            assert found.tolist() == [[[2, 0, 0, 4, 0, 0, 6, *after]]]


def test_zeros_are_quantized_by_a_scale_of_one(tmp_path: Path) -> None:
    node = helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "scale"])
    net = loaded(model_of([node], [("x", (2,))], [("scale", ())]), tmp_path)
    assert net(np.zeros(2)).tolist() == 1


# --- round trips ----------------------------------------------------------------------------


def same(one: Any, two: Any, tolerance: float = 1e-4) -> None:
    for (name, a), (_, b) in zip(leaves(one), leaves(two), strict=True):
        numpy.testing.assert_allclose(a.asnumpy(), b.asnumpy(), tolerance, tolerance, err_msg=name)


def gradients(net: Any, x: Any) -> dict[str, Any]:
    with autograd.record(train_mode=False):
        total = sum((value * value).sum() for _, value in leaves(net(x)))
    total.backward()
    trained = (p for p in net.collect_params().values() if p.grad_req != "null")
    return {p.name: p.grad().asnumpy() for p in trained}


@pytest.mark.parametrize("name", ["encoder", "lstm", "gru"])
def test_round_trips(name: str, tmp_path: Path) -> None:
    one, two = inputs_of(name)
    net = prepared(NETWORKS[name][0](), one)
    other = gemel.onnx.load(gemel.onnx.export(net, tmp_path / "net.onnx"))
    same(net(two), other(two))
    mine, others = gradients(net, one), gradients(other, one)
    assert mine.keys() == others.keys()
    for key, gradient in mine.items():
        scale = max(abs(gradient).max(), 1.0)
        numpy.testing.assert_allclose(others[key] / scale, gradient / scale, 1e-3, 1e-4)
    other.hybridize()
    same(net(one), other(one))
    same(net(two), other(two))
    again = gemel.onnx.load(gemel.onnx.export(other, tmp_path / "again.onnx"))
    same(net(two), again(two))
    gemel.save(other, tmp_path / "net.gemel")
    same(net(two), gemel.load(tmp_path / "net.gemel")(two))


def test_a_file_is_trained_on(tmp_path: Path) -> None:
    x, _ = inputs_of("lenet")
    net = prepared(NETWORKS["lenet"][0](), x)
    other = gemel.onnx.load(gemel.onnx.export(net, tmp_path / "net.onnx"))
    trainer = gluon.Trainer(other.collect_params(), "sgd", {"learning_rate": 0.1})
    loss, losses = gluon.loss.SoftmaxCrossEntropyLoss(), []
    for _ in range(5):
        with autograd.record():
            value = loss(other(x), np.array([3]))
        value.backward()
        trainer.step(1)
        losses.append(float(value.mean()))
    assert losses == sorted(losses, reverse=True) and losses[-1] < losses[0]


def test_what_is_a_parameter(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("BatchNormalization", ["x", "g", "b", "m", "v"], ["n"]),
        helper.make_node("Mul", ["n", "two"], ["t"]),
        helper.make_node("Clip", ["t", "low"], ["c"]),
        helper.make_node("Gather", ["table", "row"], ["r"]),
        helper.make_node("Add", ["c", "r"], ["y"]),
    ]
    ones = numpy.ones(3, "float32")
    model = model_of(
        nodes, [("x", ("n", 3))], [("y", ("n", 3))], g=ones, b=ones, m=ones, v=ones,
        two=numpy.float32(2), low=numpy.float32(0), table=numpy.eye(3, dtype="float32"),
        row=numpy.int64(1),
    )  # fmt: skip
    net = loaded(model, tmp_path)
    found = {name: p.grad_req for name, p in net.collect_params().items()}
    assert found == {"g": "write", "b": "write", "m": "null", "v": "null", "table": "write"}
    assert net(np.zeros((1, 3))).shape == (1, 3)


def test_large_weights_lie_beside_the_file(tmp_path: Path, monkeypatch: Any) -> None:
    x, _ = inputs_of("lenet")
    net = prepared(NETWORKS["lenet"][0](), x)
    monkeypatch.setattr("gemel.onnx.write.model.MOST_BYTES", 1000)
    path = tmp_path / "folder" / "net.onnx"
    gemel.onnx.export(net, path)
    beside = path.with_name("net.onnx.data")
    assert path.stat().st_size < 10_000 < beside.stat().st_size
    same(net(x), gemel.onnx.load(path)(x))
    beside.unlink()
    with pytest.raises(SymbolFileError, match="ONNX file"):
        gemel.onnx.load(path)


# --- shapes ---------------------------------------------------------------------------------


def test_the_arithmetic_of_shapes_is_done_while_tracing(tmp_path: Path) -> None:
    """What torch's exporter writes for ``x.view(n, -1)``, ``arange(n)`` and ``zeros(n, 2)``."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"]),
        helper.make_node("Unsqueeze", ["n", "axes"], ["n1"]),
        helper.make_node("Concat", ["n1", "minus"], ["target"], axis=0),
        helper.make_node("Reshape", ["x", "target"], ["rows"]),
        helper.make_node("Mul", ["n1", "two"], ["n2"]),
        helper.make_node("Concat", ["n2", "two"], ["wide"], axis=0),
        helper.make_node("ConstantOfShape", ["wide"], ["zeros"]),
        helper.make_node("Range", ["zero", "n", "one"], ["places"]),
        helper.make_node("Cast", ["places"], ["floats"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["floats", "last"], ["column"]),
        helper.make_node("Add", ["rows", "column"], ["y"]),
        helper.make_node("Slice", ["y", "axes", "n1", "axes"], ["part"]),
        helper.make_node("Expand", ["column", "target_of_column"], ["spread"]),
        helper.make_node("Concat", ["n1", "two"], ["target_of_column"], axis=0),
    ]
    nodes[-2:] = nodes[:-3:-1]
    integer = numpy.int64
    model = model_of(
        nodes, [("x", ("n", 3, 4))], [(name, None) for name in ("y", "zeros", "part", "spread")],
        zero=integer(0), one=integer(1), axes=[0], last=[1], minus=[-1], two=[2],
    )  # fmt: skip
    net = loaded(model, tmp_path)
    net.hybridize()
    for batch in (2, 5, 3):
        x = drawn(batch, 3, 4)
        y, zeros, part, spread = net(x)
        rows = x.asnumpy().reshape(batch, 12) + numpy.arange(batch)[:, None]
        numpy.testing.assert_allclose(y.asnumpy(), rows, 1e-6)
        assert (zeros.shape, part.shape, spread.shape) == ((2 * batch, 2), (batch, 12), (batch, 2))
    assert net._own.compiled.traces == 1
    again = onnx.load(gemel.onnx.export(net, tmp_path / "again.onnx"))
    dims = again.graph.input[0].type.tensor_type.shape.dim
    assert dims[0].dim_param and not dims[0].dim_value


def branches() -> Any:
    def branch(name: str, kind: str) -> Any:
        output = helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
        return helper.make_graph([helper.make_node(kind, ["x"], [name])], name, [], [output])

    return {"then_branch": branch("a", "Neg"), "else_branch": branch("b", "Abs")}


def test_branches_and_loops_that_are_known(tmp_path: Path) -> None:
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["on"]),
            helper.make_node("Mul", ["state", "x"], ["next"]),
            helper.make_node("Identity", ["next"], ["row"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("round", TensorProto.INT64, ()),
            helper.make_tensor_value_info("go", TensorProto.BOOL, ()),
            helper.make_tensor_value_info("state", TensorProto.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("on", TensorProto.BOOL, ()),
            helper.make_tensor_value_info("next", TensorProto.FLOAT, None),
            helper.make_tensor_value_info("row", TensorProto.FLOAT, None),
        ],
    )
    nodes = [
        helper.make_node("Size", ["x"], ["size"]),
        helper.make_node("Greater", ["size", "four"], ["many"]),
        helper.make_node("If", ["many"], ["chosen"], **branches()),
        helper.make_node("Loop", ["three", "", "chosen"], ["y", "rows"], body=body),
    ]
    integer = numpy.int64
    model = model_of(
        nodes, [("x", ("n",))], [("y", None), ("rows", None)], four=integer(4), three=integer(3)
    )
    net = loaded(model, tmp_path)
    for hybrid in (False, True):
        net.hybridize(hybrid)
        for x in (drawn(3), drawn(6)):
            y, rows = net(x)
            start = -x.asnumpy() if x.size > 4 else abs(x.asnumpy())
            expected = [start * x.asnumpy() ** (i + 1) for i in range(3)]
            numpy.testing.assert_allclose(rows.asnumpy(), expected, 1e-5, 1e-6)
            assert (y.asnumpy() == rows.asnumpy()[-1]).all()


def test_a_branch_by_a_value_is_for_calls_not_for_programs(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["top"], keepdims=0),
        helper.make_node("Greater", ["top", "zero"], ["some"]),
        helper.make_node("If", ["some"], ["y"], **branches()),
    ]
    model = model_of(nodes, [("x", ("n",))], [("y", None)], zero=numpy.float32(0))
    net = loaded(model, tmp_path)
    assert net(np.array([1.0, -2.0])).tolist() == [-1.0, 2.0]
    assert net(np.array([-1.0, -2.0])).tolist() == [1.0, 2.0]
    with pytest.raises(TraceError, match="If"):
        gemel.compile(net)(np.array([1.0, -2.0]))


# --- files that are broken ------------------------------------------------------------------


def test_files_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    node = helper.make_node("Relu", ["x"], ["y"])
    whole = model_of([node], [("x", (2,))], [("y", (2,))]).SerializeToString()
    for content in (b"", b"PK\x03\x04 no such thing", whole[: len(whole) // 2], whole[:-1]):
        path.write_bytes(content)
        with pytest.raises(SymbolFileError, match="ONNX file"):
            gemel.onnx.load(path)
    with pytest.raises(MissingFileError, match=r"onnx\.load: .* does not exist"):
        gemel.onnx.load(tmp_path / "nothing.onnx")


def test_files_cut_anywhere(tmp_path: Path) -> None:
    node = helper.make_node("Gemm", ["x", "w"], ["y"], transB=1)
    w = numpy.ones((3, 2), "float32")
    whole = model_of([node], [("x", (1, 2))], [("y", (1, 3))], w=w).SerializeToString()
    path = tmp_path / "net.onnx"
    for end in range(0, len(whole), 7):
        path.write_bytes(whole[:end])
        with pytest.raises(SymbolFileError):
            gemel.onnx.load(path)
    for place in range(0, len(whole), 5):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        with contextlib.suppress(GemelError):
            gemel.onnx.load(path)(np.ones((1, 2)))


def test_unknown_operators_are_listed_at_once(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Bernoulli", ["a"], ["b"], name="draw"),
        helper.make_node("Fancy", ["b"], ["c"], domain="com.example"),
        helper.make_node("Fancy", ["c"], ["y"], domain="com.example"),
    ]
    with pytest.raises(UnknownOperatorsError) as found:
        loaded(model_of(nodes, [("x", (2,))], [("y", (2,))]), tmp_path)
    message = str(found.value)
    assert "Bernoulli (1, as 'draw')" in message and "com.example.Fancy (2, as 'c')" in message


def broken(kind: str) -> Any:
    relu = helper.make_node("Relu", ["x"], ["y"])
    if kind == "a cycle":
        nodes = [helper.make_node("Add", ["x", "b"], ["a"]), helper.make_node("Neg", ["a"], ["b"])]
        return model_of(nodes, [("x", (2,))], [("b", (2,))])
    if kind == "nothing gives":
        return model_of([helper.make_node("Relu", ["z"], ["y"])], [("x", (2,))], [("y", (2,))])
    if kind == "given already":
        return model_of([relu, relu], [("x", (2,))], [("y", (2,))])
    if kind == "nothing gives it":
        return model_of([relu], [("x", (2,))], [("w", (2,))])
    if kind == "version 99":
        return model_of([relu], [("x", (2,))], [("y", (2,))], opset=99)
    if kind == "version 6":
        return model_of([relu], [("x", (2,))], [("y", (2,))], opset=6)
    if kind == "no arrays of STRING":
        return model_of([relu], [("x", (2,), TensorProto.STRING)], [("y", (2,))])
    model = model_of(
        [helper.make_node("Add", ["x", "w"], ["y"])], [("x", (2,))], [("y", (2,))],
        w=numpy.ones(2, "float32"),
    )  # fmt: skip
    model.graph.initializer[0].raw_data = b"123"
    return model


@pytest.mark.parametrize(
    "kind",
    ["a cycle", "nothing gives", "given already", "nothing gives it", "version 99", "version 6"]
    + ["no arrays of STRING", "tensor 'w'"],
)
def test_what_is_wrong_is_named(kind: str, tmp_path: Path) -> None:
    with pytest.raises(SymbolFileError, match=kind):
        loaded(broken(kind), tmp_path)


def test_wrong_calls_are_named(tmp_path: Path) -> None:
    node = helper.make_node("MatMul", ["x", "w"], ["y"], name="product")
    model = model_of([node], [("x", ("n", 2))], [("y", ("n", 3))], w=numpy.ones((2, 3), "float32"))
    net = loaded(model, tmp_path)
    with pytest.raises(ShapeError, match="takes 1 inputs"):
        net(np.ones((1, 2)), np.ones((1, 2)))
    with pytest.raises(ShapeError, match="input 'x' has 2 axes"):
        net(np.ones((2,)))
    with pytest.raises(ShapeError, match=r"node 'product' \(MatMul\)"):
        net(np.ones((1, 5)))
    assert "made: x" in repr(net)

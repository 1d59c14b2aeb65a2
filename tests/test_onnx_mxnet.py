"""MXNet's functions for ONNX files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import pytest
from onnx_networks import drawn, lenet, prepared

import gemel as mx
from gemel import gluon, np
from gemel.errors import ExportError, ShapeError
from gemel.gluon import nn

onnx = pytest.importorskip("onnx", reason="pip install gemel[onnx]")
from onnx.reference import ReferenceEvaluator  # noqa: E402

SHAPE = (1, 1, 28, 28)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, str, str]:
    """A network, and the files MXNet would have of it."""
    net = prepared(lenet(), drawn(*SHAPE))
    return net, *net.export(tmp_path_factory.mktemp("files") / "lenet")


def dims(path: Any) -> list[Any]:
    (given,) = onnx.load(path).graph.input
    return [n.dim_param or n.dim_value for n in given.type.tensor_type.shape.dim]


def evaluated(path: Any, x: Any) -> Any:
    session = ReferenceEvaluator(str(path))
    return session.run(None, {session.input_names[0]: x.asnumpy()})[0]


def test_export_model(files: Any, tmp_path: Path) -> None:
    net, symbol, params = files
    path = str(tmp_path / "lenet.onnx")
    assert mx.onnx.export_model(symbol, params, [SHAPE], "float32", path) == path
    assert dims(path) == [1, 1, 28, 28]
    x = drawn(*SHAPE)
    numpy.testing.assert_allclose(evaluated(path, x), net(x).asnumpy(), 1e-4, 1e-5)
    assert mx.onnx.get_model_metadata(path) == {
        "input_tensor_data": [("data", SHAPE)],
        "output_tensor_data": [("output", (1, 10))],
    }


def test_export_model_of_objects_for_any_batch(files: Any, tmp_path: Path) -> None:
    net, symbol, params = files
    loaded, arrays = mx.sym.load(symbol), mx.nd.load(params)
    path = tmp_path / "lenet.onnx"
    free = [(None, *SHAPE[1:])]
    for given in (arrays, [arrays, {}]):
        mx.onnx.export_model(
            loaded, given, in_shapes=[SHAPE], in_types=[numpy.float32], onnx_file_path=path,
            dynamic=True, dynamic_input_shapes=free, run_shape_inference=True,
        )  # fmt: skip
        assert dims(path) == ["data_0", *SHAPE[1:]]
    x = drawn(3, *SHAPE[1:])
    numpy.testing.assert_allclose(evaluated(path, x), net(x).asnumpy(), 1e-4, 1e-5)
    with pytest.raises(ShapeError, match=r"a shape for each of the inputs \(data\)"):
        mx.onnx.export_model(loaded, arrays, onnx_file_path=path)


def test_import_model(files: Any, tmp_path: Path) -> None:
    net = files[0]
    path = mx.contrib.onnx.export_model(*files[1:], [SHAPE], onnx_file_path=tmp_path / "net.onnx")
    symbol, arguments, auxiliary = mx.contrib.onnx.import_model(path)
    assert not auxiliary and set(arguments) == {p.name for p in net.collect_params().values()}
    block = gluon.SymbolBlock(symbol, mx.sym.var("data"))
    block.initialize()
    for name, value in arguments.items():
        block.collect_params()[name].set_data(value)
    x = drawn(*SHAPE)
    numpy.testing.assert_allclose(block(x).asnumpy(), net(x).asnumpy(), 1e-5, 1e-6)
    gluon_net = mx.contrib.onnx.import_to_gluon(path, ctx=mx.cpu())
    numpy.testing.assert_allclose(gluon_net(x).asnumpy(), net(x).asnumpy(), 1e-5, 1e-6)


def test_running_statistics_are_auxiliary(tmp_path: Path) -> None:
    net = nn.HybridSequential()
    net.add(nn.Conv2D(2, 3), nn.BatchNorm())
    prepared(net, drawn(1, 3, 8, 8))
    path = mx.onnx.export(net, tmp_path / "net.onnx", dynamic=[(None, 3, 8, 8)])
    symbol, arguments, auxiliary = mx.onnx.import_model(path)
    assert sorted(auxiliary) == sorted(symbol.list_auxiliary_states()) != []
    assert not set(arguments) & set(auxiliary)
    path = mx.onnx.export(net, tmp_path / "net.onnx")
    with pytest.raises(ExportError, match="leaves axis 2 free"):
        mx.onnx.import_model(path)
    assert mx.onnx.get_model_metadata(path)["input_tensor_data"] == [("data", (0, 3, 0, 0))]


def test_symbols_of_two_inputs(tmp_path: Path) -> None:
    a, b = mx.sym.var("a"), mx.sym.var("b")
    symbol = mx.sym.broadcast_add(mx.sym.FullyConnected(a, num_hidden=3, name="fc"), b)
    arrays = {"fc_weight": np.ones((3, 2)), "fc_bias": np.zeros((3,))}
    path = mx.onnx.export_model(
        symbol, arrays, [(4, 2), (1, 3)], ["float32", "float32"], tmp_path / "two.onnx"
    )
    session = ReferenceEvaluator(path)
    x, y = drawn(4, 2).asnumpy(), drawn(1, 3).asnumpy()
    (found,) = session.run(None, {"a": x, "b": y})
    numpy.testing.assert_allclose(found, x @ numpy.ones((2, 3)) + y, 1e-5)

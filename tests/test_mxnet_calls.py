"""Calls as MXNet 1.9.1 writes and reads them, where the same name and keywords are not enough.

The expected settings were tried with MXNet 1.9.1 itself, on the same numbers.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

import gemel
from gemel import gluon, np, npx, sym
from gemel.gluon import SymbolBlock, nn
from gemel.legacy.declare import find

X = numpy.array([[1.0, -2.0, 0.5], [3.0, 4.0, -1.5]], "float32")


def exported(function: Callable[..., Any], path: Path, *inputs: Any) -> list[dict[str, Any]]:
    """The nodes of a function's file; checks that the file gives the same numbers when read."""
    net = nn.HybridLambda(function)
    net.hybridize()
    arrays = [np.array(x, dtype=x.dtype) for x in inputs]
    want = net(*arrays)
    files = net.export(path / "net")
    names = ["data"] if len(inputs) == 1 else [f"data{i}" for i in range(len(inputs))]
    found = SymbolBlock.imports(files[0], names, files[1])(*arrays)
    assert found.dtype == want.dtype
    numpy.testing.assert_allclose(found.asnumpy(), want.asnumpy(), rtol=1e-6)
    nodes: list[dict[str, Any]] = json.loads(Path(files[0]).read_text())["nodes"]
    return nodes


@pytest.mark.parametrize(
    ("function", "operation", "settings"),
    [
        (lambda x: x.sum(axis=0), "_np_sum", {"axis": "0"}),
        (lambda x: x.mean(axis=0, keepdims=True), "_npi_mean", {"axis": "0", "keepdims": "True"}),
        (lambda x: x.max(), "_np_max", {}),
        (lambda x: x.argmax(axis=0), "_npi_argmax", {"axis": "0"}),
        (lambda x: np.cumsum(x, axis=0), "_np_cumsum", {"axis": "0"}),
        (
            np.linalg.norm,
            "_npi_norm",
            {"ord": "2", "axis": "None", "flag": "-2", "keepdims": "False"},
        ),
        (
            lambda x: np.linalg.norm(x, axis=0),
            "_npi_norm",
            {"ord": "2", "axis": "(0,)", "flag": "1", "keepdims": "False"},
        ),
        (lambda x: x[-1:], "slice", {"begin": "(-1, 0)", "end": "(None, None)", "step": "(1, 1)"}),
        (lambda x: x[:-1], "slice", {"begin": "(0, 0)", "end": "(-1, None)", "step": "(1, 1)"}),
        (
            lambda x: np.nan_to_num(x, nan=1.0, posinf=3.0, neginf=-2.0),
            "_npi_nan_to_num",
            {"copy": "True", "nan": "1.0", "posinf": "3.0", "neginf": "-2.0"},
        ),
    ],
)
def test_settings(
    function: Callable[..., Any], operation: str, settings: dict[str, str], tmp_path: Path
) -> None:
    (node,) = [n for n in exported(function, tmp_path, X) if n["op"] == operation]
    assert node.get("attrs", {}) == settings


@pytest.mark.parametrize(
    "function",
    [
        lambda x: np.logical_and(x > 0, x < 3),
        lambda x: np.logical_or(x, x > 3),
        lambda x: np.logical_xor(x > 0, x),
        lambda x: np.roll(x, 1, axis=1),
        lambda x: (x > 0) * 2.0,
        lambda x: x.astype("int32") * 5,
        lambda x: x[:, np.array([0, 2], dtype="int32")],
    ],
)
def test_operations_mxnet_has(function: Callable[..., Any], tmp_path: Path) -> None:
    """The file names no operation that MXNet 1.9.1 lacks or does not accept for these dtypes."""
    names = {node["op"] for node in exported(function, tmp_path, X)}
    assert not names & {"broadcast_logical_and", "_npi_cumsum", "narrow"}


def test_numbers_keep_the_dtype(tmp_path: Path) -> None:
    """With a float, MXNet turns integers and booleans into float64, so a cast is written first."""
    nodes = exported(lambda x: (x > 0) * 2.0, tmp_path, X)
    place = next(i for i, node in enumerate(nodes) if node["op"] == "_npi_multiply_scalar")
    assert nodes[nodes[place]["inputs"][0][0]]["attrs"] == {"dtype": "float32"}


def test_states_that_are_given(tmp_path: Path) -> None:
    """Given states need no broadcast: MXNet's broadcast_like takes states of one example only."""
    layer = gluon.rnn.LSTM(3)
    layer.initialize()
    layer.hybridize()
    x, state = np.ones((5, 2, 4)), np.ones((1, 2, 3))
    layer(x, [state, state])
    text = Path(layer.export(tmp_path / "net")[0]).read_text()
    assert '"RNN"' in text and "broadcast_like" not in text


class Unrolled(nn.HybridBlock):
    """A cell unrolled over an array."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = gluon.rnn.LSTMCell(3)

    def forward(self, x: Any) -> Any:
        return self.cell.unroll(x.shape[1], x, merge_outputs=True)[0]


def test_cells_for_any_batch(tmp_path: Path) -> None:
    net = Unrolled()
    net.initialize()
    net.hybridize()
    net(np.ones((4, 5, 2)))
    files = net.export(tmp_path / "net")
    x = np.random.normal(size=(3, 5, 2))
    found = SymbolBlock.imports(files[0], "data", files[1])(x)
    numpy.testing.assert_allclose(found.asnumpy(), net(x).asnumpy(), rtol=1e-5, atol=1e-6)


def test_parts_of_nd() -> None:
    a = np.array(X)
    assert np.all(gemel.nd.linalg.gemm2(a, a, transpose_b=True, alpha=2.0) == 2 * a @ a.T)
    chosen = gemel.nd.contrib.cond(a.sum() > 100, lambda: a, lambda: -a)
    assert np.all(chosen == -a)


@pytest.mark.parametrize("axis", [0, 1, 2, -2, -3])
@pytest.mark.parametrize(
    ("first", "second"), [((4, 5), (5, 6)), ((5, 4), (6, 5)), ((5, 4), (5, 6))]
)
def test_products_of_matrices_along_any_axis(axis: int, first: Any, second: Any) -> None:
    """In MXNet `axis` means swapaxes before and after the product; columns are the last axis."""
    draw = numpy.random.default_rng(5)
    turned_a, turned_b = first == (5, 4), second == (6, 5)
    a, b, c = (draw.normal(size=(2, 3, *s)).astype("float32") for s in (first, second, (4, 6)))
    inner_a, inner_b = (
        numpy.swapaxes(x, 2, 3) if t else x for x, t in ((a, turned_a), (b, turned_b))
    )
    expected = numpy.swapaxes(2 * inner_a @ inner_b, axis, -2)
    given = [np.array(numpy.swapaxes(x, axis, -2)) for x in (a, b, c)]
    settings = {"transpose_a": turned_a, "transpose_b": turned_b, "alpha": 2.0, "axis": axis}
    found = gemel.nd.linalg.gemm2(*given[:2], **settings)
    numpy.testing.assert_allclose(found.asnumpy(), expected, rtol=1e-5, atol=1e-5)
    added = gemel.nd.linalg.gemm(*given, beta=0.5, **settings)
    wanted = expected + 0.5 * numpy.swapaxes(c, axis, -2)
    numpy.testing.assert_allclose(added.asnumpy(), wanted, rtol=1e-5, atol=1e-5)


def test_losses_are_written(tmp_path: Path) -> None:
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    nodes = exported(lambda x, y: loss(x, y), tmp_path, X, numpy.array([0.0, 2.0], "float32"))
    assert next(node for node in nodes if node["op"] == "pick")["attrs"]["mode"] == "clip"


@pytest.mark.parametrize(
    ("operation", "count", "settings", "want"),
    [
        ("_npi_norm", 1, {"axis": "None", "flag": "-2", "ord": "2"}, numpy.linalg.norm(X)),
        ("_npi_norm", 1, {"axis": "(0,)", "flag": "1"}, numpy.linalg.norm(X, axis=0)),
        ("_npi_norm", 1, {"axis": "(0,)", "flag": "-1", "ord": "1"}, abs(X).sum(0)),
        ("_npi_norm", 1, {"flag": "2"}, numpy.linalg.norm(X, "nuc")),
        ("_npi_where_lscalar", 2, {"scalar": "0.5"}, numpy.where(X, 0.5, X)),
        ("_npi_where_rscalar", 2, {"scalar": "0.5"}, numpy.where(X, X, 0.5)),
        ("_npi_where_scalar2", 1, {"x": "0.5", "y": "2.0"}, numpy.full_like(X, 0.5)),
        ("_npi_vstack", 2, {"num_args": "2"}, numpy.vstack([X, X])),
        ("_npi_average", 1, {"axis": "1", "weighted": "False"}, X.mean(1)),
        ("_npi_percentile", 1, {"q_scalar": "30.0"}, numpy.percentile(X, 30)),
        ("diag", 1, {"k": "1"}, numpy.diagonal(X, 1)),
    ],
)
def test_reading(operation: str, count: int, settings: dict[str, str], want: Any) -> None:
    nodes: list[dict[str, Any]] = [{"op": "null", "name": "data", "inputs": []}]
    inputs = [[0, 0, 0]] * count
    nodes += [{"op": operation, "name": "it", "attrs": settings, "inputs": inputs}]
    symbol = sym.load_json(json.dumps({"nodes": nodes, "heads": [[1, 0, 0]]}))
    found = SymbolBlock(symbol, "data")(np.array(X))
    numpy.testing.assert_allclose(found.asnumpy(), want, rtol=1e-5)


def test_manners_of_mxnet_1() -> None:
    """`where` with a vector chooses rows; rint and round differ at halves; the eps of GroupNorm."""
    rows = find("where")(np.array([1.0, 0.0]), np.array(X), np.array(-X))
    assert rows.asnumpy().tolist() == [X[0].tolist(), (-X[1]).tolist()]
    halves = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 0.49999997, 8388609.0])
    assert find("rint")(halves).tolist() == [0, 1, 2, -1, -2, 0, 8388609]
    assert find("round")(halves).tolist() == [1, 2, 3, -1, -2, 0, 8388609]
    x, ones = np.array(X * 0.01).reshape(2, 3, 1), np.ones(3)
    found = find("GroupNorm")(x, ones, ones, num_groups=1)
    assert np.all(found == npx.group_norm(x, ones, ones, 1, 1e-5))

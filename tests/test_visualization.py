"""Symbols as tables and as drawings."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import gemel as mx
from gemel import sym
from gemel.errors import ArgumentError, OperandError, RenderingError, ShapeError
from gemel.gluon.model_zoo import vision

SHAPES = {"data": (2, 1, 10, 10)}


def network() -> Any:
    data = sym.var("data")
    conv = sym.Convolution(data, kernel=(3, 3), num_filter=8, name="conv")
    norm = sym.BatchNorm(conv, name="bn")
    pool = sym.Pooling(norm, kernel=(2, 2), stride=(2, 2), pool_type="max", name="pool")
    rows = sym.Flatten(sym.elemwise_add(pool, pool, name="twice"), name="rows")
    return sym.SoftmaxOutput(sym.FullyConnected(rows, num_hidden=10, name="fc"), name="softmax")


def table(capsys: Any, *arguments: Any, **settings: Any) -> list[list[str]]:
    mx.viz.print_summary(*arguments, **settings)
    lines = capsys.readouterr().out.splitlines()
    return [line.split() for line in lines if line.strip("_=")]


def test_summary(capsys: Any) -> None:
    assert table(capsys, network(), SHAPES)[1:] == [
        ["data(null)", "1x10x10", "0"],
        ["conv(Convolution)", "8x8x8", "80", "data"],
        ["bn(BatchNorm)", "8x8x8", "16", "conv"],
        ["pool(Pooling)", "8x4x4", "0", "bn"],
        ["twice(elemwise_add)", "8x4x4", "0", "pool"],
        ["pool"],
        ["rows(Flatten)", "128", "0", "twice"],
        ["fc(FullyConnected)", "10", "1290", "rows"],
        ["softmax(SoftmaxOutput)", "10", "0", "fc"],
        ["Total", "params:", "1386"],
    ]
    bare = table(capsys, network(), line_length=60, positions=[20, 40, 50, 60])
    assert bare[2] == ["conv(Convolution)", "data"] and bare[-1][-1] == "unknown"
    assert bare[9] == ["softmax(SoftmaxOutpu", "fc"]


def test_parameters_are_counted_once(capsys: Any) -> None:
    weight = sym.var("weight", shape=(4, 4))
    first = sym.FullyConnected(sym.var("data"), weight, num_hidden=4, no_bias=True, name="first")
    net = sym.FullyConnected(first, weight, num_hidden=4, no_bias=True, name="second")
    assert table(capsys, net, {"data": (1, 4)})[-1] == ["Total", "params:", "16"]
    whole = vision.squeezenet1_0()
    whole.initialize()
    shape = (1, 3, 224, 224)
    found = table(capsys, whole(sym.var("data", shape=shape)), {"data": shape})
    assert int(found[-1][-1]) == sum(p.data().size for p in whole.collect_params().values())


def test_drawing(tmp_path: Path) -> None:
    drawing = mx.visualization.plot_network(
        network(), title='a "net"', shape=SHAPES, node_attrs={"fontsize": 9}
    )
    lines = [line.strip() for line in drawing.source.splitlines()]
    assert lines[0] == 'digraph "a \\"net\\"" {' and lines[-1] == "}"
    assert 'node [shape="box", style="filled", fixedsize="false", fontsize="9"]' in lines
    assert '"conv" [label="Convolution\\n(3, 3), 8", fillcolor="salmon"]' in lines
    assert '"pool" [label="Pooling\\nmax, (2, 2), (2, 2)", fillcolor="lightblue"]' in lines
    assert lines.count('"pool" -> "twice" [label="8x4x4"]') == 2
    assert not any("conv_weight" in line for line in lines)
    path = drawing.save(tmp_path / "net.gv")
    assert Path(path).read_text() == str(drawing)
    shown = mx.viz.plot_network(network(), hide_weights=False).source
    assert '"conv_weight" -> "conv"' in shown and "8x8x8" not in shown


def test_pictures(monkeypatch: Any) -> None:
    drawing = mx.viz.plot_network(network())
    monkeypatch.setitem(sys.modules, "graphviz", None)
    for picture in (drawing.render, drawing.view, drawing.pipe):
        with pytest.raises(RenderingError, match="pip install graphviz"):
            picture()
    assert drawing._repr_mimebundle_() == {"text/plain": drawing.source}

    class ExecutableNotFound(Exception):
        pass

    class Source:
        def __init__(self, source: str, format: str) -> None:
            self.about = f"{format} of {source}"

        def pipe(self, format: str) -> bytes:
            return f"{format}: {self.about}".encode()

        def render(self, **options: Any) -> str:
            raise ExecutableNotFound

    package = SimpleNamespace(Source=Source, ExecutableNotFound=ExecutableNotFound)
    monkeypatch.setitem(sys.modules, "graphviz", package)
    assert drawing.pipe("svg").decode() == f"svg: pdf of {drawing.source}"
    with pytest.raises(RenderingError, match="dot"):
        drawing.render()


def test_refused() -> None:
    with pytest.raises(OperandError, match="HybridSequential is not a Symbol"):
        mx.viz.print_summary(mx.gluon.nn.HybridSequential())
    with pytest.raises(OperandError, match="not a Symbol"):
        mx.viz.plot_network([])
    for wrong in (
        {"positions": (0.5, 1.0)}, {"positions": "abcd"}, {"positions": (0.4, 0.6, 0.8, math.nan)},
        {"line_length": "a"}, {"shape": [(1, 2)]}, {"shape": {5: (1, 2)}},
    ):  # fmt: skip
        with pytest.raises(ArgumentError, match=f"print_summary: .*{next(iter(wrong))}"):
            mx.viz.print_summary(network(), **wrong)  # type: ignore[arg-type]
    for wrong in {"title": 5}, {"save_format": 5}, {"node_attrs": 5}, {"shape": 5}:
        with pytest.raises(ArgumentError, match=f"plot_network: {next(iter(wrong))} is 5"):
            mx.viz.plot_network(network(), **wrong)  # type: ignore[arg-type]
    for shape in (5, "ab", (1.5, 2), (-3, 2)):
        for use in mx.viz.print_summary, mx.viz.plot_network:
            with pytest.raises(ShapeError, match="variable 'data': shape"):
                use(network(), shape={"data": shape})  # type: ignore[dict-item, operator]
    with pytest.raises(ArgumentError, match="save: filename=5 is not the path of a file"):
        mx.viz.plot_network(network()).save(5)
    with pytest.raises(ShapeError, match="do not determine that of"):
        mx.viz.print_summary(network(), {})
    twice = sym.relu(sym.relu(sym.var("data"), name="same"), name="same")
    with pytest.raises(ArgumentError, match="called same"):
        mx.viz.plot_network(twice)

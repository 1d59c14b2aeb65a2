"""Networks in bfloat16 as ONNX files: most operators took no bfloat16 before operator set 22."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

import gemel
from gemel import gluon, np, npx
from gemel.gluon import nn

onnx = pytest.importorskip("onnx")


def images() -> Any:
    net = nn.HybridSequential()
    net.add(nn.Conv2D(4, 3, in_channels=3), nn.BatchNorm(in_channels=4), nn.SELU())
    net.add(nn.MaxPool2D(), nn.Conv2DTranspose(2, 3, in_channels=4), nn.AvgPool2D())
    net.add(nn.GlobalAvgPool2D(), nn.Flatten(), nn.Dense(3, in_units=2))
    return net


class Scan(nn.HybridBlock):
    """An operator that takes no bfloat16 in the body of a loop, and in those of a choice."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1D(2, 1, in_channels=2)

    def forward(self, x: Any) -> Any:
        rows, last = npx.foreach(lambda row, state: (self.conv(row) + state, state), x, x[0])
        return npx.cond(last.sum() > 0, lambda a: self.conv(a[0]), lambda a: a[0] * 2, [rows])


CASES: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "images": (images, (2, 3, 8, 8)),
    "lstm": (lambda: gluon.rnn.LSTM(3, input_size=2), (4, 1, 2)),
    "loop": (Scan, (5, 1, 2, 4)),
    "sort": (lambda: nn.HybridLambda(lambda x: np.sort(x)), (2, 5)),
    "places": (lambda: nn.HybridLambda(lambda x: np.argsort(x)), (2, 5)),
    "rint": (lambda: nn.HybridLambda(lambda x: np.rint(x * 3)), (2, 5)),
    "cumsum": (lambda: nn.HybridLambda(lambda x: np.cumsum(x, axis=1)), (2, 5)),
}


@pytest.mark.parametrize("opset", [18, 22])
@pytest.mark.parametrize("name", CASES)
def test_networks_in_bfloat16(name: str, opset: int, tmp_path: Path) -> None:
    make, shape = CASES[name]
    net = make()
    net.initialize()
    net.cast("bfloat16")
    net.hybridize()
    x = np.array(numpy.random.default_rng(2).normal(size=shape), dtype="bfloat16")
    wanted = net(x)
    path = gemel.onnx.export(net, tmp_path / "net.onnx", opset=opset)
    found = gemel.onnx.load(path)(x)
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    pair = (each.astype("float32").asnumpy() for each in (found, wanted))
    numpy.testing.assert_allclose(*pair, rtol=0.01, atol=0.01)


def test_what_takes_bfloat16_is_not_cast(tmp_path: Path) -> None:
    net = images()
    net.initialize()
    net.cast("bfloat16")
    net.hybridize()
    net(np.ones((2, 3, 8, 8), dtype="bfloat16"))
    casts = {}
    for opset in (18, 22):
        made = onnx.load(gemel.onnx.export(net, tmp_path / "net.onnx", opset=opset))
        casts[opset] = sum(node.op_type == "Cast" for node in made.graph.node)
    assert casts[18] > casts[22] == 0

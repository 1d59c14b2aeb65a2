"""The chapter's picture: a two-layer perceptron training on a CPU and two GPUs."""

from __future__ import annotations

import importlib.util
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy
import pytest

from gemel import device, gpu, np, npx, profiler

EXAMPLE = Path(__file__).parent.parent / "examples" / "async_graph.py"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def example() -> Any:
    spec = importlib.util.spec_from_file_location("async_graph", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["async_graph"] = module
    spec.loader.exec_module(module)
    device.simulate(2)
    yield module
    npx.waitall()
    device.simulate(0)


def recorded(example: Any) -> tuple[profiler.StepGraph, list[Any]]:
    """The graph of the second step, and the network's parameters after it."""
    np.random.seed(0)
    values = example.parameters()
    networks = [example.on_device(values, gpu(i)) for i in range(2)]
    x = np.random.normal(size=(example.BATCH, example.SIZES[0]))
    y = np.random.normal(size=(example.BATCH, example.SIZES[-1]))
    example.step(values, networks, x, y)
    npx.waitall()
    with profiler.graph() as graph:
        example.step(values, networks, x, y)
    for network in networks:
        for value, copy in zip(values, network.parameters, strict=True):
            assert (value.asnumpy() == copy.asnumpy()).all()
    return graph, [value.asnumpy() for value in values]


def test_the_operations_of_the_step(example):
    graph, _ = recorded(example)
    names = {name: [n.name for n in nodes] for name, nodes in graph.devices().items()}
    assert set(names) == {"cpu(0)", "gpu(0, simulated)", "gpu(1, simulated)"}
    for place in ("gpu(0, simulated)", "gpu(1, simulated)"):
        found = names[place]
        # In: the GPU's share of the examples and of the labels; later the four new parameters.
        assert found.count("copy") == 2 + 4
        assert found.count("matmul") == 2, "a product forward for each layer"
        assert found.count("backward") == 2, "a piece of the backward for each layer"
    # Home: the four gradients from each GPU; each parameter has a sum, a product and an update.
    assert names["cpu(0)"].count("copy") == 8
    assert names["cpu(0)"].count("subtract") == 4
    assert len(graph.copies()) == 8 + 12


def test_each_reduction_depends_on_its_own_layer_s_backward_only(example):
    graph, _ = recorded(example)
    pieces = graph.named("backward")
    last_layer = [
        piece
        for piece in pieces
        if not any(other.name == "backward" for other in graph.ancestors(piece))
    ]
    assert len(last_layer) == 2 and len(pieces) == 4
    home = [n for n in graph.copies() if n.device == 0]
    depends = [
        {piece.number for piece in graph.ancestors(copy) if piece.name == "backward"}
        for copy in home
    ]
    first = {piece.number for piece in last_layer}
    # The last layer's two parameters, from two GPUs: each depends on the last layer's piece only.
    assert sum(len(pieces) == 1 and pieces <= first for pieces in depends) == 4
    # The first layer's depend on its own piece and the last layer's, on the same GPU.
    assert sum(len(pieces) == 2 and len(pieces & first) == 1 for pieces in depends) == 4
    # Only the sums combine the two GPUs.
    for copy in home:
        devices = {n.device for n in graph.ancestors(copy) if n.device != 0}
        assert len(devices) == 1


def test_the_drawing_of_the_step(example, tmp_path):
    graph, _ = recorded(example)
    graph.save(tmp_path / "step.svg")
    root = ElementTree.parse(tmp_path / "step.svg").getroot()
    groups = [e.get("class") or "" for e in root.iter(f"{SVG}g")]
    edges = [e for e in root.iter(f"{SVG}path") if (e.get("class") or "").startswith("edge")]
    assert groups.count("device") == 3
    assert groups.count("node copy") == 20
    assert sum(c.split()[:1] == ["node"] for c in groups) == len(graph.nodes)
    assert len(edges) == len(graph.reduced_edges())


def test_two_gpus_train_as_one_device_does(example):
    _, parallel = recorded(example)
    np.random.seed(0)
    values = example.parameters()
    networks = [example.on_device(values, gpu(0))]
    x = np.random.normal(size=(example.BATCH, example.SIZES[0]))
    y = np.random.normal(size=(example.BATCH, example.SIZES[-1]))
    for _ in range(2):
        example.step(values, networks, x, y)
    for alone, together in zip(values, parallel, strict=True):
        numpy.testing.assert_allclose(alone.asnumpy(), together, rtol=1e-4, atol=1e-5)

"""ResNet-18 for ONNX Runtime, which folds batch normalisation into the convolutions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy
from onnx import helper, numpy_helper

from benchmarks.cases import Calls, Case
from benchmarks.contenders.onnx_contender import made, session_of
from benchmarks.residual import CLASSES, EPSILON, blocks, pictures, weights
from benchmarks.workloads import Workload


class Model:
    """A model under construction: its nodes, its constants, and the weights still to use."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self.weights: Iterator[numpy.ndarray] = iter(weights())

    def keep(self, value: numpy.ndarray) -> str:
        """Add a constant array. Returns its name."""
        name = f"weight{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(value, name))
        return name

    def add(self, kind: str, *inputs: str, result: str = "", **settings: Any) -> str:
        """Add a node. Returns the name of its result."""
        result = result or f"value{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [result], **settings))
        return result

    def conv(self, x: str, stride: int) -> str:
        """Add a convolution with the next weight, and batch normalisation."""
        kernel = next(self.weights)
        moves = {"strides": [stride] * 2, "pads": [kernel.shape[-1] // 2] * 4}
        x = self.add("Conv", x, self.keep(kernel), **moves)
        one, zero = (value(kernel.shape[0], numpy.float32) for value in (numpy.ones, numpy.zeros))
        names = map(self.keep, (one, zero, zero, one))
        return self.add("BatchNormalization", x, *names, epsilon=EPSILON)


def model(workload: Workload) -> bytes:
    """The network for the batch size of the workload."""
    net = Model()
    x = net.add("Relu", net.conv("x", 2))
    x = net.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    for block in blocks():
        y = net.conv(net.add("Relu", net.conv(x, block.stride)), 1)
        x = net.add("Relu", net.add("Add", y, net.conv(x, block.stride) if block.turned else x))
    x = net.add("Flatten", net.add("GlobalAveragePool", x))
    net.add("Gemm", x, net.keep(next(net.weights)), result="y", transB=1)
    shape = (workload.batch, *workload.sizes)
    return made("resnet", net.nodes, net.initializers, shape, (workload.batch, CLASSES))


def resnet(name: str, workload: Workload) -> Case:
    """Inference."""
    session = session_of(model(workload), workload)
    feeds = [{"x": x} for x in pictures(workload)]
    return Calls(lambda feed: session.run(None, feed), feeds, lambda result: result[0])

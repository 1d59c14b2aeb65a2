"""ResNet-18: its blocks, weights and pictures, the same for every contender.

He et al., Deep residual learning for image recognition, CVPR 2016. Each convolution is followed by
batch normalisation with scale 1 and shift 0; in inference its mean is 0 and its variance 1.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy

from benchmarks.workloads import Workload, uniform

CLASSES = 1000
CHANNELS = (64, 64, 128, 256, 512)
EPSILON = 1e-5
#: The learning rate of SGD.
RATE = 0.01


class Block(NamedTuple):
    """A residual block: two 3 x 3 convolutions, the first with `stride`, and a shortcut."""

    inputs: int
    outputs: int
    stride: int

    @property
    def turned(self) -> bool:
        """Whether the shortcut is a 1 x 1 convolution."""
        return self.stride != 1 or self.inputs != self.outputs

    @property
    def kernels(self) -> list[tuple[int, ...]]:
        """The shapes of the block's weights."""
        first, second = (self.outputs, self.inputs, 3, 3), (self.outputs, self.outputs, 3, 3)
        return [first, second, *([(self.outputs, self.inputs, 1, 1)] if self.turned else [])]


def blocks() -> list[Block]:
    """All eight blocks, in order."""
    found = []
    for stage, (inputs, outputs) in enumerate(pairwise(CHANNELS)):
        found += [Block(inputs, outputs, 1 if stage == 0 else 2), Block(outputs, outputs, 1)]
    return found


def weights() -> list[numpy.ndarray]:
    """The weights of the first convolution, the blocks and the dense layer; no biases."""
    shapes = [(64, 3, 7, 7), *(shape for block in blocks() for shape in block.kernels)]
    shapes.append((CLASSES, CHANNELS[-1]))
    found = []
    for stream, shape in enumerate(shapes):
        bound = numpy.float32((6 / numpy.prod(shape[1:])) ** 0.5 / 2)
        found.append(uniform(shape, 4000 + stream) * bound)
    return found


def pictures(workload: Workload) -> list[numpy.ndarray]:
    """Batches of pictures: (batch, 3, height, width)."""
    shape = (workload.batch, *workload.sizes)
    return [uniform(shape, 5000 + index) for index in range(workload.count)]


def labels(workload: Workload) -> list[numpy.ndarray]:
    """A class for each picture."""
    given = numpy.arange(workload.batch)
    return [(given * 37 + index * 101) % CLASSES for index in range(workload.count)]


def floor(workload: Workload, flops_per_us: float) -> float:
    """The least time of a batch in us, by its products; training has three times as many."""
    _, height, width = workload.sizes
    places = (height // 2) * (width // 2)
    products = places * 64 * 3 * 49
    places //= 4
    for block in blocks():
        places //= block.stride**2
        products += places * sum(int(numpy.prod(shape)) for shape in block.kernels)
    products += CHANNELS[-1] * CLASSES
    times = 3 if workload.kind == "resnet_train" else 1
    return times * 2 * workload.batch * products / flops_per_us


#: Inference of one picture and of eight together, and training.
INFERENCE = Workload("resnet", sizes=(3, 224, 224), count=4, tolerance=1e-3)
TOGETHER = INFERENCE._replace(batch=8, threads=2, count=2)
TRAINING = TOGETHER._replace(kind="resnet_train", count=3, tolerance=1e-2)

"""The workloads: what is computed, on which data, and in what time at best.

Every contender gets the same numbers from one small generator, weights included, so that results
can be compared from process to process and from library to library.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy

Layer = tuple[numpy.ndarray, numpy.ndarray]


class Workload(NamedTuple):
    """One thing to measure. `kind` names the function in each contender's module."""

    kind: str
    sizes: tuple[int, ...] = ()
    batch: int = 1
    threads: int = 1
    count: int = 1
    tolerance: float = 1e-4

    @property
    def layers(self) -> list[tuple[int, int]]:
        """(inputs, outputs) of each dense layer."""
        return list(pairwise(self.sizes))


def workload_from(fields: dict[str, object]) -> Workload:
    """Return the workload whose `_asdict` went through JSON."""
    sizes = fields["sizes"]
    assert isinstance(sizes, list)
    return Workload(**{**fields, "sizes": tuple(sizes)})  # type: ignore[arg-type]


def uniform(shape: tuple[int, ...], stream: int) -> numpy.ndarray:
    """Float32 numbers in [-1, 1), made from a counter by SplitMix64 (Steele et al., 2014)."""
    count = int(numpy.prod(shape))
    with numpy.errstate(over="ignore"):
        z = numpy.arange(1, count + 1, dtype=numpy.uint64) + numpy.uint64(stream << 40)
        z = z * numpy.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
        z = z ^ (z >> numpy.uint64(31))
    unit = (z >> numpy.uint64(40)).astype(numpy.float32) / numpy.float32(1 << 24)
    return (unit * 2 - 1).reshape(shape)


def parameters(workload: Workload) -> list[Layer]:
    """Weights (outputs, inputs) and biases of each layer, within 1 / sqrt(inputs)."""
    layers = []
    for index, (inputs, outputs) in enumerate(workload.layers):
        bound = numpy.float32(inputs**-0.5)
        weight = uniform((outputs, inputs), 2 * index + 1) * bound
        bias = uniform((outputs,), 2 * index + 2) * bound
        layers.append((weight, bias))
    return layers


def inputs(workload: Workload, count: int = 8) -> list[numpy.ndarray]:
    """Batches with a variance of about 1."""
    shape = (workload.batch, workload.sizes[0])
    root = numpy.float32(3**0.5)
    return [uniform(shape, 1000 + index) * root for index in range(count)]


def gates(workload: Workload) -> list[numpy.ndarray]:
    """The weights of an LSTM for its inputs and for its states, then the biases of both."""
    width, size = workload.sizes
    bound = numpy.float32(size**-0.5)
    shapes = ((4 * size, width), (4 * size, size), (4 * size,), (4 * size,))
    return [uniform(shape, 500 + index) * bound for index, shape in enumerate(shapes)]


def steps_of(workload: Workload, count: int = 4) -> list[numpy.ndarray]:
    """Inputs of an LSTM: (steps, batch, inputs)."""
    shape = (workload.count, workload.batch, workload.sizes[0])
    return [uniform(shape, 2000 + index) for index in range(count)]


def lstm_floor(workload: Workload, flops_per_us: float) -> float:
    """The least time of a call in us, by its products; training has three times as many."""
    width, size = workload.sizes
    products = 3 if workload.kind == "lstm_train" else 1
    flops = 2 * workload.count * workload.batch * 4 * size * (width + size)
    return products * flops / flops_per_us


def near_identity(size: int, stream: int) -> numpy.ndarray:
    """A square matrix whose powers neither grow nor vanish, for networks of many layers."""
    one = numpy.eye(size, dtype=numpy.float32)
    return one + uniform((size, size), stream) * numpy.float32(0.01)


def sequences(workload: Workload) -> list[list[numpy.ndarray]]:
    """`count` sequences of batches: the first has 11 steps, each later one a step more."""
    shape = (workload.batch, workload.sizes[0])
    lengths = range(11, 11 + workload.count)
    return [[uniform(shape, 100 * n + step) for step in range(n)] for n in lengths]


def mlp_floor(workload: Workload, l2_bytes_per_us: float, flops_per_us: float) -> float:
    """The least time of a call in us: each layer reads its weights or does its products."""
    total = 0.0
    for inputs_, outputs in workload.layers:
        reading = 4 * inputs_ * outputs / (l2_bytes_per_us * workload.threads)
        computing = 2 * workload.batch * inputs_ * outputs / flops_per_us
        total += max(reading, computing)
    return total


def train_floor(workload: Workload, flops_per_us: float) -> float:
    """The least time of a batch in us: forward, weight gradients, input gradients but one."""
    products = [inputs_ * outputs for inputs_, outputs in workload.layers]
    flops = 2 * workload.batch * (3 * sum(products) - products[0])
    return flops / flops_per_us


def dot_floor(workload: Workload, flops_per_us: float) -> float:
    """The least time of a product in us."""
    return 2 * workload.sizes[0] ** 3 / flops_per_us


MLP = Workload("mlp", sizes=(512, 256, 128, 2), batch=1, threads=1)
MLP_BATCH = MLP._replace(batch=32, threads=2)
ADD = Workload("add", sizes=(1, 2), count=1000, threads=2, tolerance=0.0)
DOT = Workload("dot", sizes=(1000, 1000), count=10, threads=2, tolerance=0.02)
TRAIN = Workload(
    "train", sizes=(512, 2048, 512, 1), batch=1024, count=50, threads=2, tolerance=2e-3
)
TRAIN_SMALL = TRAIN._replace(sizes=(32, 64, 64, 1), batch=16, count=200, threads=1)
#: An LSTM of 256 states over 35 steps, with a batch of 32: inference and training.
LSTM = Workload("lstm", sizes=(256, 256), batch=32, count=35, threads=2, tolerance=1e-3)
LSTM_TRAIN = LSTM._replace(kind="lstm_train", tolerance=2e-3)


def random_mlps(count: int) -> list[Workload]:
    """MLPs of random depth, width and batch size whose weights fit into an L2 cache."""
    state = 12345
    found: list[Workload] = []
    while len(found) < count:
        draws = []
        for _ in range(7):
            state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
            draws.append(state >> 33)
        depth = 2 + draws[0] % 3
        batch = (1, 1, 4, 32)[draws[1] % 4]
        sizes = tuple(8 * (4 + draw % 93) for draw in draws[2 : 3 + depth])
        workload = Workload("mlp", sizes=sizes, batch=batch)
        size = 4 * sum(a * b for a, b in workload.layers)
        if 1 << 17 <= size <= 1 << 20:
            found.append(workload)
    return found

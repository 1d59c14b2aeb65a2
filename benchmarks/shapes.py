"""Single operations on arrays of given shapes: what is computed, on which numbers, at what cost.

Each `contenders/*_kernels.py` has a function for each kind of operation that its library supports,
under the name of the kind.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import numpy

from benchmarks.machine import Machine
from benchmarks.workloads import LSTM, LSTM_TRAIN, lstm_floor, uniform

Sizes = tuple[int, ...]

#: Kinds that are also workloads, with a case in each contender's module.
WORKLOADS = {workload.kind: workload for workload in (LSTM, LSTM_TRAIN)}


#: The fewest floating-point operations of an exponential: range reduction and a polynomial.
EXPONENTIAL = 20


def places(x: Sizes, w: Sizes, stride: int, pad: int) -> Sizes:
    """The spatial extents of the result of a convolution."""
    return tuple((n + 2 * pad - k) // stride + 1 for n, k in zip(x[2:], w[2:], strict=True))


def conv_result(x: Sizes, w: Sizes, stride: int, pad: int, groups: int) -> Sizes:
    return (x[0], w[0], *places(x, w, stride, pad))


def conv_flops(x: Sizes, w: Sizes, stride: int, pad: int, groups: int) -> int:
    return 2 * x[0] * prod(w) * prod(places(x, w, stride, pad))


def attention_flops(q: Sizes, k: Sizes, v: Sizes) -> int:
    return prod(q[:-1]) * k[-2] * (2 * (q[-1] + v[-1]) + EXPONENTIAL)


def encoder_flops(x: Sizes, *weights: Sizes, heads: int) -> int:
    matrices = sum(prod(weight) for weight in weights if len(weight) == 2)
    return 2 * x[0] * x[1] * (matrices + 2 * x[1] * x[2])


def reduced(x: Sizes, how: str, axis: int) -> Sizes:
    return x[:axis] + x[axis + 1 :]


class Kind(NamedTuple):
    """A kind of operation. Its functions take the shapes of the arrays, and the settings."""

    result: Callable[..., Sizes]
    flops: Callable[..., int] = lambda *shapes, **settings: 0
    #: How many arrays are passed with each call; the others are parameters.
    data: int = 1
    #: Whether the last array holds positions along the first axis of the first.
    positions: bool = False
    #: The dtype of arrays and results.
    dtype: str = "float32"


KINDS = {
    "conv": Kind(conv_result, conv_flops),
    "matmul": Kind(lambda a, b: (*a[:-1], b[-1]), lambda a, b: 2 * prod(a) * b[-1], data=2),
    "attention": Kind(
        lambda q, k, v: (*q[:-1], v[-1]),
        attention_flops,
        data=3,
    ),
    "encoder": Kind(lambda x, *weights, heads: x, encoder_flops),
    "pool": Kind(lambda x: (*x[:2], *(n // 2 for n in x[2:]))),
    "copy": Kind(lambda x: x),
    "square": Kind(lambda x: x),
    "softmax": Kind(lambda x: x, lambda x: EXPONENTIAL * prod(x)),
    "transpose": Kind(lambda x, axes: tuple(x[axis] for axis in axes)),
    "take": Kind(lambda table, rows: (*rows, *table[1:]), data=2, positions=True),
    "reduce": Kind(reduced),
}


#: The same on arrays in bfloat16.
KINDS |= {f"{name}_bfloat16": KINDS[name]._replace(dtype="bfloat16") for name in ("matmul", "conv")}


class Shape(NamedTuple):
    """One operation on arrays of these sizes."""

    kind: str
    sizes: tuple[Sizes, ...] = ()
    settings: dict[str, Any] = {}  # noqa: RUF012 -- it is never changed
    #: Whether the gradients of all arrays are measured, instead of the forward pass.
    gradients: bool = False
    tolerance: float = 2e-3

    @property
    def dtype(self) -> str:
        """The dtype of arrays and results."""
        return "float32" if self.kind in WORKLOADS else KINDS[self.kind].dtype

    @property
    def result(self) -> Sizes:
        """The shape of the result of the forward pass."""
        return KINDS[self.kind].result(*self.sizes, **self.settings)

    def operands(self) -> tuple[list[numpy.ndarray], list[numpy.ndarray]]:
        """The data of a call and the parameters, such that results have a variance of about 1."""
        count, positions = KINDS[self.kind].data, KINDS[self.kind].positions
        found = [uniform(size, 100 + i) for i, size in enumerate(self.sizes)]
        data = [x * numpy.float32(3**0.5) for x in found[:count]]
        weights = [w * numpy.float32((3 / max(1, prod(w.shape[1:]))) ** 0.5) for w in found[count:]]
        if positions:
            data[-1] = ((found[count - 1] + 1) / 2 * self.sizes[0][0]).astype("int64")
        return data, weights

    def head(self) -> numpy.ndarray:
        """The gradient with respect to the result."""
        return uniform(self.result, 99)

    def floor_us(self, machine: Machine, threads: int) -> float:
        """The least time of a call in us: for its products, or to read and write its arrays."""
        rate = machine.flops_per_us(threads, self.dtype)
        if self.kind in WORKLOADS:
            workload = WORKLOADS[self.kind]
            return lstm_floor(workload._replace(threads=threads), rate)
        flops = KINDS[self.kind].flops(*self.sizes, **self.settings)
        size = {"float32": 4, "bfloat16": 2}[self.dtype]
        elements = sum(map(prod, self.sizes)) + prod(self.result)
        if KINDS[self.kind].positions:  # only the rows that are read, and positions of 8 bytes each
            elements = 2 * prod(self.result) + 2 * prod(self.sizes[-1])
        if self.gradients:  # as many products for each operand, and its gradient is written
            flops, elements = 2 * flops, elements + sum(map(prod, self.sizes))
        bandwidth = machine.bytes_per_us(size * elements, threads)
        return max(flops / rate, size * elements / bandwidth)


def shape_from(fields: dict[str, Any]) -> Shape:
    """The shape whose `_asdict` went through JSON."""
    return Shape(**{**fields, "sizes": tuple(map(tuple, fields["sizes"]))})


def digest(results: list[numpy.ndarray]) -> list[float]:
    """Numbers that change if any element of the results does: weighted sums of their parts."""
    found: list[float] = []
    weights = uniform((4099,), 98)
    weights += numpy.sign(weights)  # none is so small that its element would not count
    for result in results:
        flat = numpy.asarray(result, "float64").ravel()
        size = max(1.0, float(numpy.sqrt(numpy.mean(flat**2))))
        weighted = flat * numpy.resize(weights, flat.size)
        part = -(-flat.size // 64)
        sums = numpy.add.reduceat(weighted, numpy.arange(0, flat.size, part))
        found += [size, *(sums / (size * part**0.5)).tolist()]
    return found

"""Plain NumPy."""

from __future__ import annotations

import numpy

from benchmarks.cases import Added, Calls, Case, Products
from benchmarks.workloads import Workload, inputs, parameters


def mlp(name: str, workload: Workload) -> Case:
    """The network written by hand, with weights transposed beforehand."""
    layers = [(numpy.ascontiguousarray(weight.T), bias) for weight, bias in parameters(workload)]

    def forward(x: numpy.ndarray) -> numpy.ndarray:
        for weight, bias in layers[:-1]:
            x = numpy.dot(x, weight)
            x += bias
            numpy.maximum(x, 0, out=x)
        weight, bias = layers[-1]
        return numpy.dot(x, weight) + bias

    return Calls(forward, inputs(workload), numpy.asarray)


def add(name: str, workload: Workload) -> Case:
    """`y = x + 1`."""
    return Added(numpy.ones(workload.sizes, numpy.float32), workload.count, numpy.asarray)


def dot(name: str, workload: Workload) -> Case:
    """NumPy's own random generator, in float32, and a product."""
    generator = numpy.random.default_rng(0)

    def step() -> numpy.ndarray:
        a = generator.standard_normal(workload.sizes, numpy.float32)
        return numpy.dot(a, a)

    return Products(step, workload.count, numpy.asarray)

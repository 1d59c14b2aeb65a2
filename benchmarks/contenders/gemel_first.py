"""gemel: the first result of operations, networks and recorded programs."""

from __future__ import annotations

from typing import Any

from benchmarks.contenders.gemel_contender import network
from benchmarks.first import Run
from benchmarks.workloads import Workload, inputs, near_identity, sequences, uniform
from gemel import autograd, gluon, np
from gemel.runtime.cache import counters


def kernels() -> int | None:
    """How many kernels were compiled or read from disk."""
    return counters["compiled"] + counters["loaded"]


def op(name: str, workload: Workload) -> Run:
    """`x + 1`."""
    x = np.array(uniform(workload.sizes, 1))
    return lambda: [float((x + 1).sum())]


def net(name: str, workload: Workload) -> Run:
    """Inference of the MLP."""
    made, x = network(name, workload), np.array(inputs(workload, 1)[0])
    return lambda: [float(value) for value in made(x).asnumpy().ravel()]


def batches(name: str, workload: Workload) -> Run:
    """Inference with many batch sizes."""
    made = network(name, workload)
    sizes = range(1, workload.count + 1)
    given = [np.array(uniform((n, workload.sizes[0]), n)) for n in sizes]
    return lambda: [float(np.abs(made(x)).mean()) for x in given]


def chain(name: str, workload: Workload) -> Run:
    """A chain of `count` multiplications, and its gradient."""
    x, factor = (np.array(1 + uniform(workload.sizes, n) * 1e-4) for n in (1, 2))
    factor.attach_grad()

    def run() -> list[float]:
        with autograd.record():
            y = x
            for _ in range(workload.count):
                y = y * factor
            loss = y.mean()
        loss.backward()
        return [float(loss), float(factor.grad.sum())]

    return run


def norms(name: str, workload: Workload) -> Run:
    """Forward and backward of layers of Dense and BatchNorm."""
    (width,) = workload.sizes
    made = gluon.nn.HybridSequential()
    for _ in range(workload.count):
        made.add(gluon.nn.Dense(width, in_units=width), gluon.nn.BatchNorm(in_channels=width))
    made.initialize()
    for index in range(workload.count):
        made[2 * index].weight.set_data(np.array(near_identity(width, index)))
    made.hybridize()
    x, target = (np.array(uniform((workload.batch, width), n)) for n in (1, 2))

    def run() -> list[float]:
        with autograd.record():
            loss = (made(x) * target).sum()
        loss.backward()
        return [float(loss), float(np.abs(made[0].weight.grad()).sum())]

    return run


def rnn(name: str, workload: Workload) -> Run:
    """A recurrent network step by step, over sequences of many lengths."""
    steps = [[np.array(x) for x in sequence] for sequence in sequences(workload)]
    features, hidden = workload.sizes
    w, u = np.array(uniform((features, hidden), 1) / 4), np.array(near_identity(hidden, 2) / 2)
    for parameter in (w, u):
        parameter.attach_grad()
    start = np.zeros((workload.batch, hidden))

    def one(sequence: list[Any]) -> float:
        with autograd.record():
            h = start
            for x in sequence:
                h = np.tanh(np.dot(x, w) + np.dot(h, u))
            loss = (h * h).mean()
        loss.backward()
        return float(loss) + float(np.abs(u.grad).mean())

    return lambda: [one(sequence) for sequence in steps]

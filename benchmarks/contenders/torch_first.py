"""PyTorch: the first result, eager and with torch.compile."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.contenders.torch_contender import network
from benchmarks.first import Run
from benchmarks.workloads import Workload, inputs, near_identity, sequences, uniform


def kernels() -> int | None:
    """None, since torch does not count its kernels."""
    return None


def prepared(name: str, workload: Workload, function: Any) -> Any:
    """`function`, compiled if the contender compiles it."""
    torch.set_num_threads(workload.threads)
    return torch.compile(function) if name == "torch compile" else function


def op(name: str, workload: Workload) -> Run:
    """`x + 1`."""
    x = torch.from_numpy(uniform(workload.sizes, 1))
    add = prepared(name, workload, lambda x: (x + 1).sum())
    return lambda: [float(add(x))]


def net(name: str, workload: Workload) -> Run:
    """Inference of the MLP."""
    made = prepared(name, workload, network(workload).eval())
    x = torch.from_numpy(inputs(workload, 1)[0])

    def run() -> list[float]:
        with torch.inference_mode():
            return [float(value) for value in made(x).ravel()]

    return run


def batches(name: str, workload: Workload) -> Run:
    """Inference with many batch sizes."""
    made = prepared(name, workload, network(workload).eval())
    sizes = range(1, workload.count + 1)
    given = [torch.from_numpy(uniform((n, workload.sizes[0]), n)) for n in sizes]

    def run() -> list[float]:
        with torch.inference_mode():
            return [float(made(x).abs().mean()) for x in given]

    return run


def chain(name: str, workload: Workload) -> Run:
    """A chain of `count` multiplications, and its gradient."""
    torch.set_num_threads(workload.threads)
    x, factor = (torch.from_numpy(1 + uniform(workload.sizes, n) * 1e-4) for n in (1, 2))
    factor.requires_grad_()

    def run() -> list[float]:
        factor.grad = None
        y = x
        for _ in range(workload.count):
            y = y * factor
        loss = y.mean()
        loss.backward()
        return [float(loss), float(factor.grad.sum())]

    return run


def norms(name: str, workload: Workload) -> Run:
    """Forward and backward of layers of Linear and BatchNorm1d."""
    (width,) = workload.sizes
    layers: list[Any] = []
    for index in range(workload.count):
        dense = torch.nn.Linear(width, width)
        with torch.no_grad():
            dense.weight.copy_(torch.from_numpy(near_identity(width, index)))
            dense.bias.zero_()
        layers += [dense, torch.nn.BatchNorm1d(width)]
    made = torch.nn.Sequential(*layers)
    x, target = (torch.from_numpy(uniform((workload.batch, width), n)) for n in (1, 2))
    forward = prepared(name, workload, lambda x: (made(x) * target).sum())

    def run() -> list[float]:
        made.zero_grad()
        loss = forward(x)
        loss.backward()
        return [float(loss.detach()), float(layers[0].weight.grad.abs().sum())]

    return run


def rnn(name: str, workload: Workload) -> Run:
    """A recurrent network step by step, over sequences of many lengths."""
    torch.set_num_threads(workload.threads)
    steps = [[torch.from_numpy(x) for x in sequence] for sequence in sequences(workload)]
    features, hidden = workload.sizes
    w = torch.from_numpy(uniform((features, hidden), 1) / 4).requires_grad_()
    u = torch.from_numpy(near_identity(hidden, 2) / 2).requires_grad_()
    start = torch.zeros((workload.batch, hidden))

    def one(sequence: list[Any]) -> float:
        w.grad = u.grad = None
        h = start
        for x in sequence:
            h = torch.tanh(x @ w + h @ u)
        loss = (h * h).mean()
        loss.backward()
        return float(loss.detach()) + float(u.grad.abs().mean())

    return lambda: [one(sequence) for sequence in steps]

"""JAX: the first result of compiled networks, and of eager gradients of recorded programs."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.contenders.jax_contender import device_parameters, forward
from benchmarks.first import Run
from benchmarks.workloads import Workload, inputs, near_identity, sequences, uniform


def kernels() -> int | None:
    """None, since JAX does not count its kernels."""
    return None


def op(name: str, workload: Workload) -> Run:
    """`x + 1`."""
    x = jnp.array(uniform(workload.sizes, 1))
    return lambda: [float((x + 1).sum())]


def net(name: str, workload: Workload) -> Run:
    """Inference of the MLP."""
    layers, x = device_parameters(workload), jnp.array(inputs(workload, 1)[0])
    call = jax.jit(forward)
    return lambda: [float(value) for value in call(layers, x).ravel()]


def batches(name: str, workload: Workload) -> Run:
    """Inference with many batch sizes."""
    layers = device_parameters(workload)
    sizes = range(1, workload.count + 1)
    given = [jnp.array(uniform((n, workload.sizes[0]), n)) for n in sizes]
    call = jax.jit(forward)
    return lambda: [float(abs(call(layers, x)).mean()) for x in given]


def chain(name: str, workload: Workload) -> Run:
    """A chain of `count` multiplications, and its gradient."""
    x, factor = (jnp.array(1 + uniform(workload.sizes, n) * 1e-4) for n in (1, 2))

    def loss_of(factor: Any) -> Any:
        y = x
        for _ in range(workload.count):
            y = y * factor
        return y.mean()

    def run() -> list[float]:
        loss, gradient = jax.value_and_grad(loss_of)(factor)
        return [float(loss), float(gradient.sum())]

    return run


def norms(name: str, workload: Workload) -> Run:
    """Forward and backward of layers that multiply and normalise over the batch."""
    (width,) = workload.sizes
    weights = [jnp.array(near_identity(width, index)) for index in range(workload.count)]
    others = [(jnp.zeros(width), jnp.ones(width), jnp.zeros(width)) for _ in weights]
    x, target = (jnp.array(uniform((workload.batch, width), n)) for n in (1, 2))

    def loss_of(weights: Any, others: Any, x: Any) -> Any:
        statistics = []
        for weight, (bias, gamma, beta) in zip(weights, others, strict=True):
            x = x @ weight.T + bias
            mean, variance = x.mean(axis=0), x.var(axis=0)
            statistics.append((mean, variance))
            x = (x - mean) * (gamma / jnp.sqrt(variance + 1e-5)) + beta
        return (x * target).sum(), statistics

    step = jax.jit(jax.value_and_grad(loss_of, argnums=(0, 1), has_aux=True))

    def run() -> list[float]:
        (loss, _), (gradients, _) = step(weights, others, x)
        return [float(loss), float(abs(gradients[0]).sum())]

    return run


def rnn(name: str, workload: Workload) -> Run:
    """A recurrent network step by step, over sequences of many lengths."""
    steps = [[jnp.array(x) for x in sequence] for sequence in sequences(workload)]
    features, hidden = workload.sizes
    w, u = jnp.array(uniform((features, hidden), 1) / 4), jnp.array(near_identity(hidden, 2) / 2)
    start = jnp.zeros((workload.batch, hidden))

    def loss_of(u: Any, w: Any, sequence: Any) -> Any:
        h = start
        for x in sequence:
            h = jnp.tanh(x @ w + h @ u)
        return (h * h).mean()

    def one(sequence: list[Any]) -> float:
        loss, (gradient, _) = jax.value_and_grad(loss_of, argnums=(0, 1))(u, w, sequence)
        return float(loss) + float(abs(gradient).mean())

    return lambda: [one(sequence) for sequence in steps]

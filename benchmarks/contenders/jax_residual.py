"""JAX's ResNet-18: compiled functions. In inference, the weights are constants of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy

from benchmarks.cases import Calls, Case, Training
from benchmarks.residual import EPSILON, RATE, blocks, labels, pictures, weights
from benchmarks.workloads import Workload

#: The weight of a layer, and the scale and shift of its channels.
Step = tuple[Any, Any, Any]


def steps() -> list[Step]:
    """The parameters of all convolutions, then the dense layer's weight and bias."""
    *kernels, dense = map(jnp.array, weights())
    found = [(kernel, jnp.ones(len(kernel)), jnp.zeros(len(kernel))) for kernel in kernels]
    return [*found, (dense, None, jnp.zeros(len(dense)))]


def conv(x: Any, step: Step, stride: int, training: bool) -> Any:
    """A convolution and its batch normalisation, by the statistics of the batch in training."""
    kernel, scale, shift = step
    pads = [(kernel.shape[-1] // 2,) * 2] * 2
    y = jax.lax.conv_general_dilated(x, kernel, (stride, stride), pads)
    mean: Any = jnp.zeros(len(scale))
    variance: Any = jnp.ones(len(scale))
    if training:
        mean, variance = y.mean((0, 2, 3)), y.var((0, 2, 3))
    factor = scale / jnp.sqrt(variance + EPSILON)
    return y * factor[:, None, None] + (shift - mean * factor)[:, None, None]


def forward(state: list[Step], x: Any, training: bool) -> Any:
    """The scores of the classes."""
    *convolutions, (dense, _, bias) = state
    next_step: Iterator[Step] = iter(convolutions)
    relu = jax.nn.relu
    x = relu(conv(x, next(next_step), 2, training))
    pads = ((0, 0), (0, 0), (1, 1), (1, 1))
    x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, 3, 3), (1, 1, 2, 2), pads)
    for block in blocks():
        y = relu(conv(x, next(next_step), block.stride, training))
        y = conv(y, next(next_step), 1, training)
        x = relu(y + (conv(x, next(next_step), block.stride, training) if block.turned else x))
    return x.mean((2, 3)) @ dense.T + bias


def resnet(name: str, workload: Workload) -> Case:
    """Inference."""
    state = steps()
    call = jax.jit(lambda x: forward(state, x, False))
    given = list(map(jnp.array, pictures(workload)))
    return Calls(call, given, numpy.asarray, jax.block_until_ready)


def resnet_train(name: str, workload: Workload) -> Case:
    """The whole step is one compiled function, whose parameter buffers are donated."""
    state = steps()

    def loss_of(state: list[Step], x: Any, y: Any) -> Any:
        chances = jax.nn.log_softmax(forward(state, x, True))
        return -jnp.take_along_axis(chances, y[:, None], 1).mean()

    def update(state: list[Step], x: Any, y: Any) -> Any:
        loss, gradient = jax.value_and_grad(loss_of)(state, x, y)
        return jax.tree.map(lambda p, g: p - RATE * g, state, gradient), loss

    compiled = jax.jit(update, donate_argnums=0)

    def step(x: Any, y: Any) -> Any:
        nonlocal state
        state, loss = compiled(state, x, y)
        return loss

    def reset() -> None:
        nonlocal state
        state = steps()

    def wait(losses: Any) -> None:
        jax.block_until_ready((losses, state))

    pairs = zip(pictures(workload), labels(workload), strict=True)
    batches = [(jnp.array(x), jnp.array(y)) for x, y in pairs]
    return Training(batches, workload.count, reset, step, numpy.asarray, wait)

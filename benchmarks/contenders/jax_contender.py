"""JAX: compiled functions, except for `y = x + 1`, which runs eagerly."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy

from benchmarks.cases import Added, Calls, Case, Products, Training
from benchmarks.workloads import Workload, inputs, parameters


def forward(layers: Any, x: Any) -> Any:
    for weight, bias in layers[:-1]:
        x = jax.nn.relu(x @ weight.T + bias)
    weight, bias = layers[-1]
    return x @ weight.T + bias


def device_parameters(workload: Workload) -> Any:
    return [(jnp.array(weight), jnp.array(bias)) for weight, bias in parameters(workload)]


def mlp(name: str, workload: Workload) -> Case:
    """The weights are constants of the compiled function."""
    layers = device_parameters(workload)
    call = jax.jit(lambda x: forward(layers, x))
    arrays = [jnp.array(x) for x in inputs(workload)]
    return Calls(call, arrays, numpy.asarray, jax.block_until_ready)


def add(name: str, workload: Workload) -> Case:
    """`y = x + 1`."""
    x = jnp.ones(workload.sizes, jnp.float32)
    return Added(x, workload.count, numpy.asarray, jax.block_until_ready)


def dot(name: str, workload: Workload) -> Case:
    """One compiled function splits the key, draws the numbers and multiplies."""
    key = jax.random.key(0)

    @jax.jit
    def draw(key: Any) -> Any:
        key, use = jax.random.split(key)
        a = jax.random.normal(use, workload.sizes)
        return key, a @ a

    def step() -> Any:
        nonlocal key
        key, product = draw(key)
        return product

    return Products(step, workload.count, numpy.asarray, jax.block_until_ready)


def train(name: str, workload: Workload) -> Case:
    """The whole step is one compiled function, whose parameter buffers are donated."""
    state = device_parameters(workload)

    def loss_of(layers: Any, x: Any, y: Any) -> Any:
        return 0.5 * jnp.mean((forward(layers, x).reshape(-1) - y) ** 2)

    def update(layers: Any, x: Any, y: Any) -> Any:
        loss, gradient = jax.value_and_grad(loss_of)(layers, x, y)
        return jax.tree.map(lambda p, g: p - 0.01 * g, layers, gradient), loss

    compiled = jax.jit(update, donate_argnums=0)

    def step(x: Any, y: Any) -> Any:
        nonlocal state
        state, loss = compiled(state, x, y)
        return loss

    def reset() -> None:
        nonlocal state
        state = device_parameters(workload)

    def wait(losses: Any) -> None:
        jax.block_until_ready((losses, state))

    target = jnp.ones((workload.batch,))
    batches = [(jnp.array(x), target) for x in inputs(workload)]
    return Training(batches, workload.count, reset, step, numpy.asarray, wait)

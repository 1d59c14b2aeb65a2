"""Checks a call against a slow NumPy function: values, and gradients by finite differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy

import gemel
from gemel import autograd, np

Array = numpy.ndarray[Any, Any]


def drawn(*shape: int, seed: int = 0) -> Array:
    """Distinct numbers, so that no window has two equal maxima."""
    size = int(numpy.prod(shape))
    order = numpy.random.default_rng(size + seed).permutation(size)
    return ((order + 0.5) * (4.0 / size) - 2.0).reshape(shape)


def check(
    call: Callable[..., Any], slow: Callable[..., Any], inputs: list[Array], dtype: str = "float64"
) -> None:
    """Check values, and gradients by central differences, imperatively and compiled."""
    expected = slow(*inputs)
    near = {"float32": 3e-5, "float64": 1e-11}[dtype]
    head = numpy.random.default_rng(5).standard_normal(expected.shape)
    for function in (call, gemel.compile(call)):
        arrays = [np.array(x, dtype=dtype if x.dtype.kind == "f" else x.dtype.name) for x in inputs]
        numpy.testing.assert_allclose(function(*arrays).asnumpy(), expected, rtol=near, atol=near)
        variables = [i for i, x in enumerate(inputs) if x.dtype.kind == "f"]
        for position in variables:
            arrays[position].attach_grad()
        for _ in range(2):
            with autograd.record():
                y = function(*arrays)
            assert y.dtype.name == dtype
            y.backward(np.array(head, dtype=dtype))
        for position in variables:
            given = arrays[position].grad.asnumpy()
            slope, found = differences(slow, inputs, head, position, given)
            scale = 1e-6 if dtype == "float64" else 1e-3
            assert abs(slope - found) <= scale * (1 + abs(slope)), position


def differences(
    slow: Callable[..., Array], inputs: list[Array], head: Array, position: int, gradient: Array
) -> tuple[float, float]:
    """The slope along a random direction: by differences, and according to the gradient."""
    direction = numpy.random.default_rng(position).standard_normal(inputs[position].shape)
    sides = []
    for sign in (1, -1):
        moved = list(inputs)
        moved[position] = inputs[position] + sign * 1e-5 * direction
        sides.append(float((slow(*moved) * head).sum()))
    return (sides[0] - sides[1]) / 2e-5, float((gradient * direction).sum())

"""What tests of loops compare: one number computed from all results, and its gradients."""

from __future__ import annotations

from typing import Any

from gemel import autograd, np


def gathered(found: Any) -> Any:
    """One number from all outputs (None: there are none) and states, each with its own weight."""
    outputs, states = found
    total: Any = 0.0
    for weight, x in enumerate([*states, *(outputs or [])], start=1):
        if "int" not in str(x.dtype) and "bool" not in str(x.dtype):
            total = total + (x * x * weight + x).sum()
    return total


def trained(function: Any, values: list[Any]) -> list[Any]:
    """The result and the gradients with respect to all inputs."""
    arrays = [np.array(x, dtype="float64") for x in values]
    for x in arrays:
        x.attach_grad()
    with autograd.record():
        y = function(*arrays)
    y.backward()
    return [y.asnumpy(), *(x.grad.asnumpy() for x in arrays)]

"""In-place updates of many arrays by one plan, for optimizers and running statistics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gemel import autograd
from gemel.errors import ShapeError
from gemel.ir.graph import Graph, placeholder
from gemel.ir.interpret import spec_of
from gemel.ir.trace import Trace
from gemel.runtime.backend import Backend, backend_for
from gemel.runtime.plans import plan_of
from gemel.spec import Spec


class Update:
    """An in-place update of many arrays, with one plan for each kind of arrays.

    `function(arrays, scalars)` returns the new values of the first arrays. The scalars are run-time
    inputs, so another learning rate does not compile anything.

    >>> descend = Update(lambda arrays, scalars: [arrays[0] - scalars[0] * arrays[1]])
    >>> descend([weight, gradient], [0.1])
    """

    def __init__(self, function: Callable[..., Any], name: str = "update") -> None:
        self.function = function
        self.name = name
        self._plans: dict[Any, Any] = {}

    def __call__(self, arrays: Sequence[Any], scalars: Sequence[float]) -> None:
        """Run the step on these arrays, in place."""
        backend = backend_for(arrays)
        key = (backend, len(scalars), tuple((a.shape, a._code) for a in arrays))
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = self._plan(arrays, len(scalars), backend)
        with autograd.pause():
            plan(*arrays, *map(float, scalars))

    def _plan(self, arrays: Sequence[Any], count: int, backend: Backend) -> Any:
        entries = [placeholder(spec_of(array)) for array in arrays]
        numbers = [placeholder(Spec((), "float32", weak=True)) for _ in range(count)]
        with Trace():
            values = list(self.function(entries, numbers))
            pairs = list(zip(entries, values, strict=False))
            for old, new in pairs:
                if new.shape != old.shape:
                    raise ShapeError(
                        f"{self.name}: the new value of an array of shape {old.shape} has shape "
                        f"{new.shape}; it must have the same"
                    )
            news = [new if new.dtype is old.dtype else new.astype(old.dtype) for old, new in pairs]
        updates = list(enumerate(news))
        return plan_of(Graph([*entries, *numbers], (), updates, self.name), backend)


__all__ = ["Update"]

"""The table of gemel's operations in ONNX: one function for each that needs one.

A rule takes the graph being written, the call, the names of the input tensors, and the parameters.
It writes nodes with `graph.node`, and returns the name of the result, or a tuple of names. None
means that the call is to be written by its parts::

    @exports("transpose")
    def _(graph, call, x, *, axes):
        return graph.node("Transpose", x, perm=axes)

An elementwise operation that declares its name in ONNX (``onnx="Tanh"``) and has the same meaning
there needs no rule: its inputs are cast to the dtype it is computed in, and its result to its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from gemel.spec import Spec

Written = str | tuple[str, ...] | None
Rule = Callable[..., Written]

#: The rules of operations, and of calls of `npx` functions that consist of several operations.
OPERATIONS: dict[str, Rule] = {}
CALLS: dict[str, Rule] = {}


class Call(NamedTuple):
    """What is written: an operation, and the specs of its inputs and outputs."""

    name: str
    inputs: tuple[Spec, ...]
    results: tuple[Spec, ...]
    #: The values of inputs that are Python numbers.
    numbers: tuple[Any, ...] = ()
    #: For an index, the slices that the function gave, one for each item of the canonical key.
    slices: Sequence[slice | None] = ()

    @property
    def result(self) -> Spec:
        """The spec of the first result."""
        return self.results[0]


def exports(*names: str) -> Callable[[Rule], Rule]:
    """Declare how operations are written: rule(graph, call, *inputs, **parameters)."""

    def declare(rule: Rule) -> Rule:
        OPERATIONS.update(dict.fromkeys(names, rule))
        return rule

    return declare


def exports_call(name: str) -> Callable[[Rule], Rule]:
    """Declare how calls of ``npx.name`` are written: rule(graph, call, **arguments by name)."""

    def declare(rule: Rule) -> Rule:
        CALLS[name] = rule
        return rule

    return declare


__all__ = ["CALLS", "OPERATIONS", "Call", "Rule", "Written", "exports", "exports_call"]

"""Running graphs on arrays, or on the symbols of a trace."""

from __future__ import annotations

from typing import Any

from gemel.errors import GemelError, ShapeError
from gemel.ir import precision
from gemel.onnx.read.graph import Graph, Node
from gemel.onnx.read.known import MOST, Known
from gemel.onnx.read.rules import FOLDS, INSIDE, OPERATORS
from gemel.spec import product

#: The exceptions that rules raise if attributes and inputs do not fit together.
MISFITS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


def run(graph: Graph, values: dict[str, Any]) -> list[Any]:
    """Compute the outputs from values by name: arrays, symbols, or `Known` numbers.

    An error names the node.
    """
    values = {**values, **{n: k for n, k in graph.constants.items() if n not in values}}
    kept = set(graph.outputs)
    for place, node in enumerate(graph.nodes):
        with precision.part(node.outputs[0]):
            found = _applied(node, values)
        for name, value in zip(node.outputs, found, strict=False):
            values[name] = value
        for name in node.inputs:  # free it as soon as nothing reads it any more
            if graph.last.get(name) == place and name not in kept:
                values.pop(name, None)
    return [values[name] for name in graph.outputs]


def _applied(node: Node, values: dict[str, Any]) -> tuple[Any, ...]:
    inputs = [values[name] if name else None for name in node.inputs]
    try:
        found = _inside(node, inputs, values) if node.kind in INSIDE else apply(node, inputs)
    except GemelError as error:
        if not getattr(error, "_of_node", False):
            error._of_node = True  # type: ignore[attr-defined]
            error.args = (f"{node.where}: {error}", *error.args[1:])
        raise
    except MISFITS as error:
        raise ShapeError(f"{node.where}: {error}") from error
    return found if isinstance(found, tuple) else (found,)


def apply(node: Node, inputs: list[Any]) -> Any:
    """Run one node of the table: known numbers give known numbers if possible, else arrays."""
    fold = FOLDS.get(node.kind)
    arrays = any(x is not None and not isinstance(x, Known) for x in inputs)
    count = 0 if arrays else sum(product(x.shape) for x in inputs if x is not None)
    found = None if fold is None or arrays or count > MOST else fold(node, *inputs)
    if found is not None:
        return found
    operator = OPERATORS[node.kind]
    given = [
        x if place in operator.known else lifted(x, operator.scalars and arrays)
        for place, x in enumerate(inputs)
    ]
    return operator.rule(node, *given)


def lifted(x: Any, as_number: bool = False) -> Any:
    """Known numbers as an array; with `as_number`, one without axes becomes a Python number."""
    if not isinstance(x, Known):
        return x
    return x.item() if as_number and not x.shape else x.array()


def _inside(node: Node, inputs: list[Any], values: dict[str, Any]) -> Any:
    """Run a node with inner graphs, which can read the outer tensors too."""
    return INSIDE[node.kind](node, lambda graph, given: run(graph, {**values, **given}), *inputs)


__all__ = ["apply", "lifted", "run"]

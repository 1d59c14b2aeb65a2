"""Graphs as formulas, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gemel.ir.graph import Entry, Graph, Node

INFIX = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "divide": "/",
    "floor_divide": "//",
    "remainder": "%",
    "power": "**",
    "matmul": "@",
    "equal": "==",
    "not_equal": "!=",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
}


def describe(graph: Graph) -> str:
    """A graph as formulas: values used once are written in place, others get a line.

    >>> describe(graph_of_add(add(1, 2), add(3, 4)))
    '(1 + 2) + (3 + 4)'
    """
    uses: dict[Entry, int] = {}
    for node in graph.walk():
        for entry in node.inputs:
            uses[entry] = uses.get(entry, 0) + 1
    names: dict[Entry, str] = {}
    for number, entry in enumerate(graph.inputs):
        names[entry] = entry.node.name or f"x{number}"
    lines = []
    for node in graph.walk():
        if node.op is not None and (len(node.entries) > 1 or uses.get(node.entries[0], 0) > 1):
            text = _formula(node, names, top=True)
            for entry in node.entries:
                names[entry] = f"t{len(names)}"
            lines.append(f"{', '.join(names[entry] for entry in node.entries)} = {text}")
    outputs = [_written(entry, names, top=True) for entry in graph.outputs]
    for index, entry in graph.updates:
        outputs.append(f"{names[graph.inputs[index]]} := {_written(entry, names, top=True)}")
    return "\n".join([*lines, ", ".join(outputs)])


def _written(entry: Entry, names: dict[Entry, str], top: bool = False) -> str:
    if entry in names:
        return names[entry]
    node = entry.node
    if node.is_constant:
        return repr(node.value) if node.is_number else f"array{list(entry.shape)}"
    return _formula(node, names, top)


def _formula(node: Node, names: dict[Entry, str], top: bool) -> str:
    assert node.op is not None
    inputs = [_written(entry, names) for entry in node.inputs]
    sign = INFIX.get(node.op.name)
    if sign and len(inputs) == 2:
        text = f"{inputs[0]} {sign} {inputs[1]}"
        return text if top else f"({text})"
    default = node.op.defaults
    parameters = (
        f"{k}={_short(v)}" for k, v in node.params.items() if k not in default or default[k] != v
    )
    return f"{node.op.name}({', '.join([*inputs, *parameters])})"


def _short(value: Any) -> str:
    return "{...}" if hasattr(value, "walk") else str(value)


__all__ = ["describe"]

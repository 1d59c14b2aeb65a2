"""Free extents (`Dim`, symbolic sizes) in graphs: finding them, fixing them, trying questions.

A program is traced for free extents: x has the shape (n0_0, n0_1). Code that asks such an extent
for its number, or compares it, leaves a guard. The program is valid only where all guards hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from gemel.extent import Dim, Guard
from gemel.ir.graph import Graph, Node


def is_free(value: Any) -> bool:
    """Whether a parameter, a number or a graph contains a free extent."""
    if type(value) is int or value is None:
        return False
    if isinstance(value, (tuple, list)):
        return any(map(is_free, value))
    if isinstance(value, Graph):
        return any(map(_has_free, nodes_of(value)))
    return isinstance(value, Dim)


def _has_free(node: Node) -> bool:
    for spec in node.specs:
        for extent in spec.shape:
            if type(extent) is not int and isinstance(extent, Dim):
                return True
    return isinstance(node.value, Dim) or any(map(is_free, node.params.values()))


def nodes_of(graph: Graph) -> list[Node]:
    """All nodes of a graph: the inputs, used or not, then the others in order."""
    given = {entry.node: None for entry in graph.inputs}
    return [*given, *[node for node in graph.walk() if node not in given]]


def specialized(value: Any) -> Any:
    """A parameter or number with its free extents replaced by their present numbers.

    Guards make the program valid for these numbers only.
    """
    if isinstance(value, Dim):
        return int(value)
    if isinstance(value, (tuple, list)):
        found = map(specialized, value)
        return list(found) if isinstance(value, list) else tuple(found)
    return value


@contextmanager
def trial(extents: Iterable[int]) -> Iterator[list[Guard]]:
    """A block whose questions about these extents leave no guards in their trace.

    Afterwards, the list has the guards that it would have left.
    """
    asked: list[Guard] = []
    guards = {id(n.guards): n.guards for n in extents if isinstance(n, Dim)}
    counts = {key: len(each) for key, each in guards.items()}
    try:
        yield asked
    finally:
        for key, each in guards.items():
            asked += each[counts[key] :]
            del each[counts[key] :]


__all__ = ["is_free", "nodes_of", "specialized", "trial"]

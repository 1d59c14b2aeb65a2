"""Free extents in programs: where they are, and what holds on to the numbers they are now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from gemel.extent import Dim, Guard
from gemel.ir.graph import Graph, Node


def is_free(value: Any) -> bool:
    """Whether there is a free extent in a parameter, a number or a graph."""
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
    """The inputs, used or not, then everything else in order."""
    given = {entry.node: None for entry in graph.inputs}
    return [*given, *[node for node in graph.walk() if node not in given]]


def specialized(value: Any) -> Any:
    """A parameter or number with the numbers its extents are now; guards hold on to those."""
    if isinstance(value, Dim):
        return int(value)
    if isinstance(value, (tuple, list)):
        found = map(specialized, value)
        return list(found) if isinstance(value, list) else tuple(found)
    return value


@contextmanager
def trial(extents: Iterable[int]) -> Iterator[list[Guard]]:
    """A block that may ask of free extents what does not bind the trace they belong to.

    What it has asked is taken back at its end, and is in the list then.
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

"""The invariants of a graph, checked after every pass in tests and under GEMEL_VERIFY=1.

Nodes come after their inputs, placeholders are listed as inputs, specs are what the operations
infer, updates keep the spec of what they overwrite, and bodies fit the inputs of their node.
"""

from __future__ import annotations

from gemel.errors import GemelError
from gemel.ir.graph import Graph, Node
from gemel.ir.op_kinds import Elementwise


class InvalidGraph(GemelError, AssertionError):
    """A pass left a graph that breaks a rule: a defect in gemel, or in a user's pass."""


def verify(graph: Graph, after: str = "") -> Graph:
    """The graph itself. Raises `InvalidGraph` naming the node, the rule and the pass."""
    _check(graph, f"{graph.name} after {after}" if after else graph.name)
    return graph


def _check(graph: Graph, where: str) -> None:
    known = {entry.node for entry in graph.inputs}
    if len(known) != len(graph.inputs):
        raise InvalidGraph(f"{where}: an input is listed twice")
    seen: set[Node] = set()
    for node in graph.walk():
        _check_node(node, known, seen, where)
        seen.add(node)
    for index, entry in graph.updates:
        before = graph.inputs[index].spec
        if before != entry.spec:
            raise InvalidGraph(f"{where}: update of {before} by {entry.spec}")


def _check_node(node: Node, known: set[Node], seen: set[Node], where: str) -> None:
    if node.op is None:
        if node.is_input and node not in known:
            raise InvalidGraph(f"{where}: {node!r} {node.name!r} is used but is not an input")
        return
    for entry in node.inputs:
        if entry.node not in seen:
            raise InvalidGraph(f"{where}: {node!r} comes before its input {entry.node!r}")
    for value in node.params.values():
        if isinstance(value, Graph):
            _check_body(node, value, where)
    specs = node.op.infer(*(entry.spec for entry in node.inputs), **node.params)
    if tuple(specs) != tuple(node.specs):
        raise InvalidGraph(f"{where}: {node!r} should have the specs {list(map(str, specs))}")
    if node.op.random and isinstance(node.op, Elementwise) and node.params.get("call") is None:
        raise InvalidGraph(f"{where}: {node!r} has no call number")


def _check_body(node: Node, body: Graph, where: str) -> None:
    """A subgraph in a parameter (a fused body, a branch) takes the last inputs of its node."""
    given = [entry.spec for entry in node.inputs[len(node.inputs) - len(body.inputs) :]]
    # A loop's body takes elements of some inputs, a given gradient those of the results: their
    # operations check these.
    if not {"length", "backward"}.isdisjoint(node.params):
        given = [entry.spec for entry in body.inputs]
    if given != [entry.spec for entry in body.inputs]:
        raise InvalidGraph(f"{where}: {node!r} gives {body.name} {list(map(str, given))}")
    _check(body, f"{body.name} in {where}")

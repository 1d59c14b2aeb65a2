"""risk: which steps that can fail a value depends on, and which its users depend on anyway."""

from __future__ import annotations

from collections.abc import Callable

from gemel.ir.graph import Graph, Node


def exposures(
    graph: Graph, can_fail: Callable[[Node], bool] = lambda node: node.fails
) -> dict[Node, int]:
    """For each node the steps whose failure leaves nobody who wants it, as a set of bits.

    A result is lost with any step it depends on; any other value as soon as all that use it are.
    Nodes with the same exposure can share a kernel: whenever one of them is lost, all are, so a
    failure reaches no result that does not depend on it.
    """
    nodes = graph.walk()
    risks: dict[Node, int] = {}
    steps = 0
    for node in nodes:
        risk = 0
        for entry in node.inputs:
            risk |= risks[entry.node]
        if can_fail(node):
            risk |= 1 << steps
            steps += 1
        risks[node] = risk
    if not steps:
        return risks
    found = {entry.node: risks[entry.node] for entry in graph.results}
    for node in reversed(nodes):
        for entry in node.inputs:
            found[entry.node] = found.get(entry.node, found[node]) & found[node]
    return found

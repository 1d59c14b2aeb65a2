"""Exposures: by which failures a value becomes useless.

An operation can fail at run time (an index out of range). The results that depend on it are lost,
the others are not, even in one compiled program. So a value may be computed in one kernel with a
failing operation only if it would be of no use after that failure anyway.
"""

from __future__ import annotations

from collections.abc import Callable

from gemel.ir.graph import Graph, Node


def exposures(
    graph: Graph, can_fail: Callable[[Node], bool] = lambda node: node.fails
) -> dict[Node, int]:
    """For each node, a bit set of the failing nodes after whose failure its value is not needed.

    A result is lost if any node it depends on fails; any other value once all its users are lost.
    Nodes with the same exposure can share a kernel: whenever one is lost, all are.
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

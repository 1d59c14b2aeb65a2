"""The direct way to compute what can be computed in several ways, for GPUs."""

from __future__ import annotations

from gemel.ir.graph import Entry, Graph, Node, copy_node, rewrite
from gemel.ops.winograd import AUTO, NEVER


def direct(graph: Graph) -> Graph:
    """Convolutions whose scheme is left open are multiplied directly.

    Winograd's scheme is written for the caches of a processor, in many short steps.
    """
    return rewrite(graph, _rule)


def _rule(node: Node, inputs: tuple[Entry, ...]) -> tuple[Entry, ...] | None:
    if node.params.get("scheme") != AUTO:
        return None
    made = copy_node(node, inputs)
    made.params = {**node.params, "scheme": NEVER}
    return made.entries

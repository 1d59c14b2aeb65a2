"""The direct way to compute what can be computed in several ways, for GPUs."""

from __future__ import annotations

from gemel.ir.graph import Entry, Graph, Node, copy_node, rewrite
from gemel.ir.op_kinds import Composite
from gemel.ops.winograd import AUTO, NEVER
from gemel.passes.simplify import part_of


def direct(graph: Graph) -> Graph:
    """Nothing is cut into parts for the caches of a processor, in many short steps.

    Convolutions whose scheme is left open are multiplied directly, not by Winograd's scheme, and
    composites become their bodies where their `whole` rule says so.
    """
    return rewrite(graph, _rule)


def _rule(node: Node, inputs: tuple[Entry, ...]) -> tuple[Entry, ...] | None:
    op = node.op
    whole = op.rules.whole if isinstance(op, Composite) else None
    if whole is not None and whole(*(entry.spec for entry in inputs), **node.params):
        assert isinstance(op, Composite)
        with part_of(node):
            return op.written_out(inputs, node.params)
    if node.params.get("scheme") != AUTO:
        return None
    made = copy_node(node, inputs)
    made.params = {**node.params, "scheme": NEVER}
    return made.entries

"""Whether the new value of an updated input can be computed in place, over the old one.

It can if the loops that compute it are the last to read the old value, and read each element only
where they write the new one: w -= 0.1 * g qualifies, w[:] = w[::-1] does not.
"""

from __future__ import annotations

from collections.abc import Iterable

from gemel.codegen.language.body import stays_in_place
from gemel.ir.graph import Entry, Graph, Node
from gemel.ir.op_kinds import Elementwise
from gemel.passes.domain import is_view
from gemel.passes.fuse import fused


class InputReaders:
    """The readers of a graph's inputs, if its nodes run in this order."""

    def __init__(self, graph: Graph, order: Iterable[Node]) -> None:
        self.users = graph.readers()
        self.results = set(graph.results)
        self.order = {node: place for place, node in enumerate(order)}

    def can_overwrite(self, old: Entry, new: Entry) -> bool:
        """Whether the loops that compute `new` may write it over the input `old`."""
        node = new.node
        if node.op is not fused or node not in self.users.get(old, ()):
            return False
        return _reads_in_place(node, old) and not self._is_read_later(old, node)

    def _is_read_later(self, old: Entry, node: Node) -> bool:
        """Whether an input, or a view of it, is read after a node, or a view by the node itself."""
        pending = [old]
        while pending:
            entry = pending.pop()
            if entry in self.results:
                return True
            for user in self.users.get(entry, ()):
                if is_view(user):
                    pending += user.entries
                elif self.order[user] > self.order[node] or (user is node and entry is not old):
                    return True
        return False


def _reads_in_place(node: Node, old: Entry) -> bool:
    """Whether loops read each element of an input only where they write that of the result."""
    body: Graph = node.params["body"]
    inner = {b for b, e in zip(body.inputs, node.inputs, strict=True) if e is old}
    if stays_in_place(body, inner):
        return True
    steps = [n for n in body.walk() if n.op is not None]
    return all(isinstance(n.op, Elementwise) for n in steps) and all(
        n.specs[0].shape == old.shape for n in steps if any(e in inner for e in n.inputs)
    )


__all__ = ["InputReaders"]

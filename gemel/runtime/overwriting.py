"""Which new values of inputs can be computed where the old ones lie."""

from __future__ import annotations

from gemel.codegen.body import stays_in_place
from gemel.ir.graph import Entry, Graph, Node
from gemel.ir.op_kinds import Elementwise
from gemel.passes.domain import is_view
from gemel.passes.fuse import fused


class InputReaders:
    """Who reads the inputs of a graph whose nodes run in their order."""

    def __init__(self, graph: Graph) -> None:
        self.users = graph.readers()
        self.results = set(graph.results)
        self.order = {node: place for place, node in enumerate(graph.walk())}

    def can_overwrite(self, old: Entry, new: Entry) -> bool:
        """Whether the loops that compute `new` are the last to read the input `old`, each element
        where they write it: they may write it there.
        """
        node = new.node
        if node.op is not fused or node not in self.users.get(old, ()):
            return False
        return _stays(node, old) and not self._goes_on(old, node)

    def _goes_on(self, old: Entry, node: Node) -> bool:
        """Whether an input, or a view of it, is read after a node, or by it as a view."""
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


def _stays(node: Node, old: Entry) -> bool:
    """Whether loops read an input only where they write their result."""
    body: Graph = node.params["body"]
    inner = {b for b, e in zip(body.inputs, node.inputs, strict=True) if e is old}
    if stays_in_place(body, inner):
        return True
    steps = [n for n in body.walk() if n.op is not None]
    return all(isinstance(n.op, Elementwise) for n in steps) and all(
        n.specs[0].shape == old.shape for n in steps if any(e in inner for e in n.inputs)
    )


__all__ = ["InputReaders"]

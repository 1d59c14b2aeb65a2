"""What a gradient reads of the forward computation: kept, or made again where that is cheap."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gemel.ir.graph import Entry, Node, copy_node, walk
from gemel.passes.fuse import cheap


def kept(forward: Iterable[Node], gradients: Sequence[Entry]) -> list[Entry]:
    """The entries of forward nodes that gradients read; views and cheap values are made again."""
    forward = set(forward)
    found: dict[Entry, None] = {}
    pending = [e for n in walk(gradients) if n not in forward for e in n.inputs]
    pending += gradients
    seen: set[Entry] = set()
    while pending:
        entry = pending.pop()
        if entry in seen:
            continue
        seen.add(entry)
        node = entry.node
        if node not in forward or node.is_constant:
            continue
        if node.op is not None and ("view" in node.op.rules or cheap(node) or entry.spec.weak):
            pending += node.inputs
        else:
            found[entry] = None
    return list(found)


def replaced(results: Sequence[Entry], stands: dict[Entry, Entry]) -> list[Entry]:
    """The results with entries replaced by inputs that stand for them."""
    known = dict(stands)
    for node in walk(results, stands):
        if node.op is None:
            continue
        new = copy_node(node, tuple(known.get(e, e) for e in node.inputs))
        for old, entry in zip(node.entries, new.entries, strict=True):
            known.setdefault(old, entry)
    return [known.get(entry, entry) for entry in results]


__all__ = ["kept", "replaced"]

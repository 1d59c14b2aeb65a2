"""Where a plan can fail, and what each of these sites reaches.

A failing site fails the results that depend on it and no others. Steps that depend on it are
skipped, so what they would have overwritten in place stays as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gemel.ir.graph import Entry, Graph, Node

#: (item, items skipped when it fails, outputs that fail, overwritten inputs that fail).
Site = tuple[int, list[int], list[int], list[int]]


def find_sites(
    graph: Graph,
    items: Sequence[Any],
    fails: Callable[[Any], bool],
    writers: Callable[[Entry, int], set[Node]] | None,
    position: Callable[[int], int],
) -> list[Site]:
    """The sites of a plan's items, which know the node they come from.

    `writers` gives the nodes whose steps write an update's target themselves: only their failure
    fails it (without, any does). `position` gives the plan's input an input of the graph became.
    """
    failing = [index for index, item in enumerate(items) if fails(item)]
    if not failing:
        return []
    users = _users(graph)
    sites = []
    for index in failing:
        node = items[index].node
        reached = _downstream(node, users)
        skipped = [later for later in range(index + 1, len(items)) if items[later].node in reached]
        outputs = [i for i, entry in enumerate(graph.outputs) if entry.node in reached]
        updates = [
            position(target)
            for target, entry in graph.updates
            if entry.node in reached and (writers is None or node in writers(entry, target))
        ]
        sites.append((index, skipped, outputs, updates))
    return sites


def _users(graph: Graph) -> dict[Node, list[Node]]:
    users: dict[Node, list[Node]] = {}
    for node in graph.walk():
        for entry in node.inputs:
            users.setdefault(entry.node, []).append(node)
    return users


def _downstream(node: Node, users: dict[Node, list[Node]]) -> set[Node]:
    """A node and everything computed from it."""
    found = {node}
    pending = [node]
    while pending:
        for user in users.get(pending.pop(), ()):
            if user not in found:
                found.add(user)
                pending.append(user)
    return found


def located(failure: tuple[str, str] | None, node: Node) -> tuple[str, str] | None:
    """The failure of a step, naming the line of the program it comes from when that is known."""
    if failure is None or not node.origin:
        return failure
    return failure[0], f"{failure[1]} (traced at {node.origin})"


__all__ = ["Site", "find_sites", "located"]

"""Splitting a graph into pieces that become plans of their own.

One plan gives all its results when its last step is done. Where results travel on (gradients to
another device), it pays to run several plans: while the first ones' results are on the way, the
others compute. And what NumPy does lies between plans.
"""

from __future__ import annotations

from typing import NamedTuple

from gemel.ir.graph import Entry, Graph, Node, copy_node, placeholder, walk
from gemel.passes.simplify import expand


class Piece(NamedTuple):
    """A graph and what its inputs and outputs are in the graph it is a piece of."""

    graph: Graph
    inputs: tuple[Entry, ...]  # inputs of the whole, or outputs of pieces before
    outputs: tuple[Entry, ...]


def split(graph: Graph) -> tuple[Graph, list[Piece]]:
    """The graph with composites written out, and pieces in order that compute its results.

    A piece ends with a contraction no other result needs: in a backward, with a layer's weight
    gradient. What later pieces need of it are outputs of its own; nothing is computed twice.
    """
    whole = expand(graph)
    groups = _groups(whole)
    made: dict[Node, int] = {}
    for position, group in enumerate(groups):
        for node in _steps(group):
            made.setdefault(node, position)
    wanted = _wanted(whole, groups, made)
    pieces = [_piece(group, wanted[i], made, i) for i, group in enumerate(groups)]
    return whole, pieces


def cut(graph: Graph) -> tuple[Graph, list[Piece | Node]]:
    """The graph with composites written out; pieces, and nodes without a kernel, in order.

    A piece is all that can be computed before the next such node.
    """
    whole = expand(graph)
    nodes = _steps(list(whole.results))
    homes: dict[Node, int] = {}  # even: a piece, odd: nodes without kernels
    for node in nodes:
        first = max((homes[e.node] for e in node.inputs if e.node in homes), default=0)
        kernel = node.op is not None and node.op.has_kernel
        homes[node] = first + first % 2 if kernel else first + 1 - first % 2
    wanted: dict[int, dict[Entry, None]] = {}
    for entry in whole.results:
        if not entry.node.is_input:
            wanted.setdefault(homes.get(entry.node, 0), {})[entry] = None
    for node in nodes:
        for entry in node.inputs:
            home = homes.get(entry.node)
            if home is not None and home != homes[node]:
                wanted.setdefault(home, {})[entry] = None
    parts: list[Piece | Node] = []
    for place in range(max(homes.values(), default=0) + 1):
        if place % 2:
            parts += [node for node in nodes if homes[node] == place]
        elif place in wanted:
            parts.append(_piece([], wanted[place], homes, place))
    return whole, parts


def _steps(results: list[Entry]) -> list[Node]:
    return [node for node in walk(results) if node.op is not None]


def _groups(graph: Graph) -> list[list[Entry]]:
    """The results in the order they can be there, cut behind contractions of their own."""
    results = list(dict.fromkeys(graph.results))
    needs = {entry: _steps([entry]) for entry in results}
    users: dict[Node, int] = {}
    for nodes in needs.values():
        for node in nodes:
            users[node] = users.get(node, 0) + 1
    groups: list[list[Entry]] = [[]]
    for entry in sorted(results, key=lambda entry: len(needs[entry])):
        groups[-1].append(entry)
        if any(node.op and node.op.contracts and users[node] == 1 for node in needs[entry]):
            groups.append([])
    return [group for group in groups if group]


def _wanted(
    graph: Graph, groups: list[list[Entry]], made: dict[Node, int]
) -> list[dict[Entry, None]]:
    """What each piece gives: its results, and what later pieces read of its steps."""
    wanted: list[dict[Entry, None]] = [dict.fromkeys(group) for group in groups]
    for node in _steps(list(graph.results)):
        for entry in node.inputs:
            home = made.get(entry.node)
            if home is not None and home != made[node]:
                wanted[home][entry] = None
    return wanted


def _piece(
    group: list[Entry], wanted: dict[Entry, None], made: dict[Node, int], position: int
) -> Piece:
    replaced: dict[Entry, Entry] = {}
    inputs: list[Entry] = []
    places: list[Entry] = []
    for node in walk([*group, *wanted]):
        if node.is_constant:
            continue
        if made.get(node) != position:  # an input of the whole, or a step of an earlier piece
            continue
        for entry in node.inputs:
            home = made.get(entry.node, -1)
            outside = entry.node.is_input or (home >= 0 and home != position)
            if outside and entry not in replaced:
                replaced[entry] = placeholder(entry.spec)
                inputs.append(entry)
                places.append(replaced[entry])
        new = copy_node(node, tuple(replaced.get(entry, entry) for entry in node.inputs))
        replaced.update(zip(node.entries, new.entries, strict=True))
    for entry in wanted:
        if (
            entry not in replaced and not entry.node.is_constant
        ):  # an input that is a result as well
            replaced[entry] = placeholder(entry.spec)
            inputs.append(entry)
            places.append(replaced[entry])
    outputs = tuple(wanted)
    graph = Graph(places, (replaced.get(entry, entry) for entry in outputs), (), "backward")
    return Piece(graph, tuple(inputs), outputs)


__all__ = ["Piece", "cut", "split"]

"""The order in which a plan computes the nodes of a graph: one that keeps few results in memory.

Any order with each node after its inputs is right, but a result takes memory until its last reader
is done. So what is known early comes first. A training step, say, updates the weights of its last
layer as soon as the gradient of that layer's result is known. If it began with the first layer, the
gradients of all layers' results would have to wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain

from gemel.ir.graph import Entry, Graph, Node
from gemel.passes.domain import is_view, seen_by
from gemel.passes.sizes import bytes_of


def arranged(graph: Graph) -> list[Node]:
    """The nodes of a graph, depth first from its results, of which the least deep come first; or in
    the order of `walk`, if that needs less memory.

    The depth of a node is the length of the longest path to it. A node that may overwrite an input
    stays behind the nodes that read the input.
    """
    before = _before(graph)
    depths: dict[Node, int] = {}
    for node, earlier in before.items():
        depths[node] = 1 + max(map(depths.__getitem__, earlier), default=0)
    results = (entry.node for entry in graph.results if entry.node in depths)
    order = _depth_first(sorted(results, key=depths.__getitem__), before)
    walked = list(before)
    return min(order, walked, key=partial(_most_bytes, graph)) if order != walked else order


def _before(graph: Graph) -> dict[Node, list[Node]]:
    """For each node those that it must follow, in the order of `walk`, which keeps that rule."""
    places = {node: place for place, node in enumerate(graph.walk())}
    before = {node: [e.node for e in node.inputs if e.node in places] for node in places}
    for index, entry in graph.updates:
        for writer in {entry.node, seen_by(entry).node} & places.keys():
            readers = dict.fromkeys(_readers(graph, graph.inputs[index]))
            before[writer] += [node for node in readers if places[node] < places[writer]]
    return before


def _readers(graph: Graph, entry: Entry) -> Iterator[Node]:
    """The nodes that read an entry or a view of it."""
    pending = [entry]
    while pending:
        for node in graph.readers().get(pending.pop(), ()):
            yield node
            if is_view(node):
                pending += node.entries


def _depth_first(results: Iterable[Node], before: dict[Node, list[Node]]) -> list[Node]:
    """These nodes and all they must follow."""
    order: dict[Node, None] = {}
    entered: set[Node] = set()
    for result in results:
        pending = [result]
        while pending:
            node = pending[-1]
            missing = [] if node in entered else [n for n in before[node] if n not in order]
            entered.add(node)
            if missing:
                pending += reversed(missing)
            else:
                order.setdefault(pending.pop())
    return list(order)


def _most_bytes(graph: Graph, order: Iterable[Node]) -> int:
    """The most memory that the nodes' results take at a time, besides results of the graph."""
    elsewhere = {*map(seen_by, graph.results), *graph.inputs}
    reads = {node: _read(node) for node in order}
    alive: dict[Entry, int] = {}  # how often each will be read
    for entry in chain.from_iterable(reads.values()):
        alive[entry] = alive.get(entry, 0) + 1
    now = most = 0
    for node in order:
        if node.op is None or is_view(node):
            continue
        now += sum(bytes_of(entry) for entry in node.entries if entry not in elsewhere)
        most = max(most, now)
        for entry in reads[node]:
            alive[entry] -= 1
            if not alive[entry] and entry.node.op is not None and entry not in elsewhere:
                now -= bytes_of(entry)
    return most


def _read(node: Node) -> set[Entry]:
    """The arrays in memory that a node reads; a view reads none."""
    return set() if is_view(node) else set(map(seen_by, node.inputs))


__all__ = ["arranged"]

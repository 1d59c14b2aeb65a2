"""Splitting a graph into pieces that become plans of their own.

A plan returns all its results when its last kernel is done. If results are sent on (gradients to
another device), it pays to run several plans in a row: while the first results are on their way,
the others are computed (`split`). And operations without a kernel run between plans (`cut`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from gemel.ir.graph import Entry, Graph, Node, constant, copy_into, placeholder, walk
from gemel.ops.control import drawn_from, draws
from gemel.ops.elementwise import copy, subtract
from gemel.ops.random import stream_taken
from gemel.passes.simplify import drop, expand


class Piece(NamedTuple):
    """A graph, and the entries of the whole graph that its inputs and outputs stand for."""

    graph: Graph
    inputs: tuple[Entry, ...]  # inputs of the whole, or outputs of pieces before
    outputs: tuple[Entry, ...]


def split(graph: Graph, alone: Collection[int] = ()) -> tuple[Graph, list[Piece]]:
    """The graph with composites expanded, and pieces in order that compute its results.

    A piece ends with a contraction that no other result needs: in a backward pass, with the
    gradient of a layer's weight. It also outputs what later pieces need, so that nothing is
    computed twice. The updates of the inputs in `alone` get pieces of their own.
    """
    whole = drop(expand(graph))
    nodes = [node for node in whole.walk() if node.op is not None]
    groups = _groups(whole, nodes, {entry for index, entry in whole.updates if index in alone})
    numbers = _numbers(nodes)
    made = {node: position for node, position in _made(groups).items() if node not in numbers}
    wanted: list[dict[Entry, None]] = [dict.fromkeys(group) for group in groups]
    for node in nodes:
        for entry in node.inputs:
            home = made.get(entry.node)
            if home is not None and home != made[node]:
                wanted[home][entry] = None
    steps: list[list[Node]] = [[] for _ in groups]
    for node, position in made.items():
        steps[position].append(node)
    given = [_with_numbers(steps[i], wanted[i], numbers) for i in range(len(groups))]
    return whole, [_piece(given[i], wanted[i], made, i) for i in range(len(groups))]


def cut(graph: Graph, calls: int = 0) -> tuple[Graph, list[Piece | Node]]:
    """The graph with composites expanded; pieces, and nodes without a kernel, in order.

    A piece is all that can be computed before the next such node. Results that are an input, or
    equal to another result, are copied, so that no two results share memory. If draws take call
    numbers, at least `calls`, the graph has a further output, so that the first piece takes all.
    """
    whole = _apart(_on_one_stream(expand(graph), calls))
    nodes = [node for node in whole.walk() if node.op is not None]
    homes: dict[Node, int] = {}  # even: a piece, odd: nodes without kernels
    steps: dict[int, list[Node]] = {}
    wanted: dict[int, dict[Entry, None]] = {}
    numbers = _numbers(nodes)
    for node in nodes:
        if node in numbers:
            continue
        first = max((homes[e.node] for e in node.inputs if e.node in homes), default=0)
        homes[node] = first + first % 2 if node.has_kernel else first + 1 - first % 2
        steps.setdefault(homes[node], []).append(node)
        for entry in node.inputs:
            home = homes.get(entry.node)
            if home is not None and home != homes[node]:
                wanted.setdefault(home, {})[entry] = None
    for entry in whole.results:
        if not entry.node.is_input:
            wanted.setdefault(homes.get(entry.node, 0), {})[entry] = None
    parts: list[Piece | Node] = []
    for place in sorted({*steps, *wanted}):
        if place % 2:
            parts += steps[place]
        elif place in wanted:
            given = _with_numbers(steps.get(place, []), wanted[place], numbers)
            parts.append(_piece(given, wanted[place], homes, place))
    return whole, parts


def _on_one_stream(graph: Graph, calls: int) -> Graph:
    """The graph with all draws from one stream, and the number of its last call as another output.

    Plans take the call numbers of their own draws. If a graph becomes several, one has to take them
    all, at least `calls`, and others read them. A graph that takes none is returned as it is.
    """
    taken = [node.params["call"] for node in graph.walk() if draws(node)]
    calls = max([calls, *(call + 1 for call in taken)])
    if not calls:
        return graph
    seed, last = stream_taken.node((), {"call": calls - 1}).entries

    def stream(call: int) -> tuple[Entry, Entry]:
        return seed, subtract.node((last, constant(calls - 1 - call)), {}).entries[0]

    found = drawn_from(graph, stream)
    return Graph(found.inputs, (*found.outputs, last), found.updates, found.name)


def _apart(graph: Graph) -> Graph:
    """The graph, with copies of outputs that occur twice or that are inputs."""
    outputs: list[Entry] = []
    shared = set(graph.inputs)
    for entry in graph.outputs:
        outputs.append(copy.node((entry,), {}).entries[0] if entry in shared else entry)
        shared.add(entry)
    return Graph(graph.inputs, outputs, graph.updates, graph.name)


def _numbers(nodes: list[Node]) -> set[Node]:
    """Nodes computed from Python numbers alone. Plans do not return numbers, so each piece computes
    those that it needs itself."""
    read = {entry.node for node in nodes if not node.has_kernel for entry in node.inputs}
    return {n for n in nodes if n.has_kernel and n.specs[0].weak and n not in read}


def _with_numbers(steps: list[Node], wanted: Iterable[Entry], numbers: set[Node]) -> list[Node]:
    """The nodes of a piece, after the numbers they need."""
    roots = [*(entry for node in steps for entry in node.inputs), *wanted]
    before = [node for node in walk(e for e in roots if e.node in numbers) if node in numbers]
    return [*before, *steps]


def _groups(graph: Graph, nodes: list[Node], alone: set[Entry]) -> list[list[Entry]]:
    """The results in the order in which they can be finished, in groups that become pieces."""
    start = (0, 0)
    when: dict[Node, tuple[int, int]] = {}  # how many contractions and steps must come before it
    for node in nodes:
        behind = max((when.get(entry.node, start) for entry in node.inputs), default=start)
        when[node] = behind[0] + (node.op is not None and node.op.contracts), behind[1] + 1
    own = _own(graph, nodes)
    groups: list[list[Entry]] = [[]]
    for entry in sorted(dict.fromkeys(graph.results), key=lambda e: when.get(e.node, start)):
        if entry in alone:
            groups.append([])
        groups[-1].append(entry)
        if entry in own or entry in alone:
            groups.append([])
    return [group for group in groups if group]


def _own(graph: Graph, nodes: list[Node]) -> set[Entry]:
    """The results that are the only ones to need some contraction."""
    needing: dict[Node, Entry | None] = {}  # the only result that needs a node, None for several
    for entry in dict.fromkeys(graph.results):
        needing[entry.node] = None if entry.node in needing else entry
    for node in reversed(nodes):
        for source in node.inputs:
            known = needing.setdefault(source.node, needing[node])
            if known is not needing[node]:
                needing[source.node] = None
    contractions = (needing[node] for node in nodes if node.op is not None and node.op.contracts)
    return {entry for entry in contractions if entry is not None}


def _made(groups: list[list[Entry]]) -> dict[Node, int]:
    """Every node in order, with the first group that needs it."""
    first: dict[Node, int] = {}
    for position, group in enumerate(groups):
        for entry in group:
            first.setdefault(entry.node, position)
    made: dict[Node, int] = {}
    waiting: list[Node] = []
    for node in walk(entry for group in groups for entry in group):
        waiting.append(node)
        if node in first:  # new nodes before a result are computed for this result
            made.update((n, first[node]) for n in waiting if n.op is not None)
            waiting = []
    return made


def _piece(
    steps: list[Node], wanted: dict[Entry, None], made: dict[Node, int], position: int
) -> Piece:
    """The piece at this position, which takes what it reads of other pieces as inputs."""
    replaced: dict[Entry, Entry] = {}
    inputs: dict[Entry, Entry] = {}

    def take(entry: Entry) -> None:
        """Make an entry of the whole graph an input, unless it is known."""
        if entry not in replaced:
            replaced[entry] = inputs[entry] = placeholder(entry.spec)

    for node in steps:
        for entry in node.inputs:
            home = made.get(entry.node, -1)
            if entry.node.is_input or (home >= 0 and home != position):
                take(entry)
        copy_into(replaced, node)
    for entry in wanted:
        if not entry.node.is_constant:
            take(entry)  # an input that is a result as well
    outputs = (replaced.get(entry, entry) for entry in wanted)
    graph = Graph(inputs.values(), outputs, (), "backward")
    return Piece(graph, tuple(inputs), tuple(wanted))


__all__ = ["Piece", "cut", "split"]

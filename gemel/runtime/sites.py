"""Failure sites: the items of a plan that can fail, and what depends on each.

If an item fails, the results that depend on it fail, and no others. Later items that depend on it
are skipped, so that what they would have overwritten keeps its old contents.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from gemel.ir.graph import Entry, Graph, Node

#: (item, items to skip if it fails, outputs that fail, overwritten inputs that fail).
Site = tuple[int, list[int], list[int], list[int]]


def find_sites(
    graph: Graph,
    items: Sequence[Any],
    fails: Callable[[Any], bool],
    writers: Callable[[Entry, int], set[Node]] | None,
    position: Callable[[int], int],
) -> list[Site]:
    """The failure sites of a plan's items; `item.node` is the node an item comes from.

    `writers` returns the nodes whose kernels write an update's target directly; only their failure
    fails the update. Without `writers`, any failure that the update depends on does. `position`
    maps the index of an updated input in the graph to its index in the plan.
    """
    failing = [index for index, item in enumerate(items) if fails(item)]
    if not failing:
        return []
    sites: list[Site] = [(index, [], [], []) for index in failing]
    reaching = _reaching(graph, [items[index].node for index in failing])
    for later, item in enumerate(items):
        for index, skipped, _, _ in _chosen(sites, reaching.get(item.node, 0)):
            if later > index:
                skipped.append(later)
    for number, entry in enumerate(graph.outputs):
        for _, _, outputs, _ in _chosen(sites, reaching.get(entry.node, 0)):
            outputs.append(number)
    for target, entry in graph.updates:
        writing = None if writers is None else writers(entry, target)
        for index, _, _, updates in _chosen(sites, reaching.get(entry.node, 0)):
            if writing is None or items[index].node in writing:
                updates.append(position(target))
    return sites


def _reaching(graph: Graph, failing: Sequence[Node]) -> dict[Node, int]:
    """For each node a bit set of the failing nodes it depends on, including itself."""
    depends: dict[Node, int] = {}
    for number, node in enumerate(failing):
        depends[node] = depends.get(node, 0) | 1 << number
    for node in graph.walk():
        bits = depends.get(node, 0)
        for entry in node.inputs:
            bits |= depends.get(entry.node, 0)
        if bits:
            depends[node] = bits
    return depends


def _chosen(sites: Sequence[Site], bits: int) -> Iterator[Site]:
    """The sites whose bits are set."""
    while bits:
        last = bits.bit_length() - 1
        yield sites[last]
        bits ^= 1 << last


def operations_of(node: Node) -> list[Node]:
    """The operations of a node: those of its body if it is fused."""
    body = node.params.get("body")
    nodes = body.walk() if isinstance(body, Graph) else [node]
    return [inner for inner in nodes if inner.op is not None]


def label_of(node: Node) -> tuple[str, list[Any]]:
    """A label for people: the operations under their public names, and the specs of the results.

    Extents are {0}, {1}..., indices into the second result: a plan serves many sizes.
    """
    parts = [node.part or node.op.name for node in operations_of(node) if node.op is not None]
    operations = " + ".join(dict.fromkeys(parts)) or "copy"
    sizes: list[Any] = []
    specs = Counter((spec.dtype.name, spec.shape) for spec in node.specs)
    results = []
    for (dtype, shape), count in specs.items():
        places = (f"{{{number}}}" for number in range(len(sizes), len(sizes) + len(shape)))
        results.append(f"{f'{count} x ' if count > 1 else ''}{dtype}[{', '.join(places)}]")
        sizes += shape
    return f"{operations} -> {', '.join(results)}" if results else operations, sizes


def located(failure: tuple[str, str] | None, node: Node) -> tuple[str, str] | None:
    """A failure with the traced line of the program added to its message, if it is known."""
    if failure is None or not node.origin:
        return failure
    return failure[0], f"{failure[1]} (traced at {node.origin})"


__all__ = ["Site", "find_sites", "label_of", "located", "operations_of"]

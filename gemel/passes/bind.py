"""Binding: a graph with free extents to one with numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gemel.extent import concrete
from gemel.ir.graph import Entry, Graph, Node
from gemel.spec import Spec


def concrete_graph(graph: Graph, values: Mapping[str, int]) -> Graph:
    """A graph with its free extents replaced by numbers: the same steps, bound to a size."""
    replaced: dict[Entry, Entry] = {}

    def bound(spec: Spec) -> Spec:
        return Spec(concrete(spec.shape, values), spec.dtype, spec.weak)

    def parameters(params: dict[str, Any]) -> dict[str, Any]:
        return {
            name: concrete_graph(value, values)
            if isinstance(value, Graph)
            else concrete(value, values)
            for name, value in params.items()
        }

    pending = {entry.node: None for entry in graph.inputs}
    for node in [*pending, *(n for n in graph.walk() if n not in pending)]:
        specs = tuple(bound(spec) for spec in node.specs)
        value = concrete(node.value, values) if node.is_number else node.value
        inputs = tuple(replaced[entry] for entry in node.inputs)
        new = Node(node.op, inputs, parameters(node.params), specs, value, node.name, node.origin)
        replaced.update(zip(node.entries, new.entries, strict=True))
    return Graph(
        (replaced[e] for e in graph.inputs),
        (replaced[e] for e in graph.outputs),
        ((i, replaced[e]) for i, e in graph.updates),
        graph.name,
    )

"""Binding: a graph with free extents to one with numbers."""

from __future__ import annotations

from collections.abc import Mapping
from operator import is_ as is_same
from typing import Any

from gemel.extent import concrete
from gemel.ir.graph import Entry, Graph, Node
from gemel.spec import Spec


def concrete_graph(graph: Graph, values: Mapping[str, int]) -> Graph:
    """A graph with its free extents replaced by numbers: the same steps, bound to a size.

    Steps that have no free extent, on inputs that have none, are those of `graph` themselves.
    """
    replaced: dict[Entry, Entry] = {}

    def bound(spec: Spec) -> Spec:
        shape = concrete(spec.shape, values)
        return spec if shape is spec.shape else Spec(shape, spec.dtype, spec.weak)

    def parameter(value: Any) -> Any:
        return (concrete_graph if isinstance(value, Graph) else concrete)(value, values)

    pending = {entry.node: None for entry in graph.inputs}
    for node in [*pending, *(n for n in graph.walk() if n not in pending)]:
        inputs = tuple(replaced[entry] for entry in node.inputs)
        parameters = tuple(parameter(value) for value in node.params.values())
        specs = tuple(bound(spec) for spec in node.specs)
        value = concrete(node.value, values) if node.is_number else node.value
        had = (*node.inputs, *node.params.values(), *node.specs, node.value)
        # A number of the call that is traced remembers what it was asked: it is not bound.
        plain = all(type(entry) is Entry for entry in node.entries)
        if plain and all(map(is_same, had, (*inputs, *parameters, *specs, value))):
            new = node
        else:
            params = dict(zip(node.params, parameters, strict=True))
            new = Node(node.op, inputs, params, specs, value, node.name, node.origin)
        replaced.update(zip(node.entries, new.entries, strict=True))
    return Graph(
        (replaced[e] for e in graph.inputs),
        (replaced[e] for e in graph.outputs),
        ((i, replaced[e]) for i, e in graph.updates),
        graph.name,
    )

"""Binding free extents: a graph of shape (n, 3) becomes one of shape (64, 3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gemel.extent import Dim, Sizes, concrete
from gemel.ir.free import is_free, nodes_of
from gemel.ir.graph import Entry, Graph, Node
from gemel.spec import Spec


def _bound(specs: tuple[Spec, ...], values: Mapping[str, int]) -> tuple[Spec, ...]:
    for spec in specs:
        if Dim in map(type, spec.shape):
            return tuple([_bound_spec(spec, values) for spec in specs])
    return specs


def _bound_spec(spec: Spec, values: Mapping[str, int]) -> Spec:
    shape = concrete(spec.shape, values)
    return spec if shape is spec.shape else Spec(shape, spec.dtype, spec.weak)


def _parameters(params: dict[str, Any], values: Mapping[str, int]) -> dict[str, Any]:
    if not params or not any(map(is_free, params.values())):
        return params
    return {
        name: (concrete_graph if isinstance(value, Graph) else concrete)(value, values)
        for name, value in params.items()
    }


def concrete_graph(graph: Graph, values: Mapping[str, int]) -> Graph:
    """A copy of a graph with its free extents replaced by `values` (numbers or other extents)."""
    values = Sizes(values)
    replaced: dict[Entry, Entry] = {}
    for node in nodes_of(graph):
        specs = _bound(node.specs, values)
        value = concrete(node.value, values) if node.is_number else node.value
        inputs = tuple([replaced[entry] for entry in node.inputs])
        params = _parameters(node.params, values)
        own = params, specs, value, node.name, node.origin, node.part, node.precision
        new = Node(node.op, inputs, *own)
        replaced.update(zip(node.entries, new.entries, strict=True))
    return Graph(*_parts(graph, replaced), graph.name)


def concretize_in_place(graph: Graph, values: Mapping[str, int]) -> Graph:
    """As `concrete_graph`, but in place: for a graph that was just traced and has no other user.

    Float arguments (`ir.inputs.Scalar`), which tracing could ask for values, become plain entries.
    """
    values = Sizes(values)
    plain: dict[Entry, Entry] = {}
    for node in dict.fromkeys([*[entry.node for entry in graph.inputs], *graph.walk()]):
        for spec in node.specs:
            if Dim in map(type, spec.shape):
                node.specs = _bound(node.specs, values)
        if node.params:
            node.params = _parameters(node.params, values)
        if plain:
            node.inputs = tuple([plain.get(entry, entry) for entry in node.inputs])
        if node.op is None:
            if isinstance(node.value, Dim):
                node.value = concrete(node.value, values)
            if type(node.entries[0]) is not Entry:
                own = (Entry(node, 0),)
                plain[node.entries[0]] = own[0]
                node.entries = own
    if plain:
        graph.inputs, graph.outputs, graph.updates = _parts(graph, plain)
    return graph


def _parts(graph: Graph, replaced: Mapping[Entry, Entry]) -> tuple[Any, Any, Any]:
    """The inputs, outputs and updates of a graph with entries replaced."""
    inputs, outputs = (
        tuple([replaced.get(entry, entry) for entry in entries])
        for entries in (graph.inputs, graph.outputs)
    )
    return inputs, outputs, tuple([(i, replaced.get(e, e)) for i, e in graph.updates])

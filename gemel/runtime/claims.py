"""Claims: what is joined is computed in its place in the result, and joining it moves nothing."""

from __future__ import annotations

from collections import Counter
from typing import Any

from gemel.codegen.nest import Place
from gemel.ir.graph import Entry, Graph, Node
from gemel.ir.layout import Layout
from gemel.ops.shape import reshaped_strides
from gemel.passes.domain import in_pieces
from gemel.passes.fuse import fused
from gemel.runtime.image import INPUT
from gemel.spec import same_shape


def claim_parts(lowering: Any) -> None:
    """Claim places in the results of joins for what they join, outer joins first.

    A value that others read, too, is given one only where it then lies dense.
    """
    nodes = lowering.graph.walk()
    users = Counter(entry for node in nodes for entry in node.inputs)
    for node in reversed(nodes):
        joined = _join(node)
        if joined is None:
            continue
        result = node.entries[0]
        place = lowering.claimed.get(result) or lowering.temporary(result.dtype, result.shape)
        if place.buffer.space == INPUT:
            continue  # what is overwritten stays as it was until all parts are known
        lowering.claimed[result] = place
        for layout, entry in _parts(node, joined, place.layout):
            root = lowering._root(entry)
            alone = root is entry and users[entry] == 1
            if root.node.op is fused and root.dtype is place.dtype and root not in lowering.claimed:
                region = _as_shape(layout, root.shape) if alone or layout.contiguous else None
                if region is not None:
                    lowering.claimed[root] = Place(place.buffer.part(), place.dtype, region)


def _join(node: Node) -> Node | None:
    """The operation that makes a fused node's one result of parts, each from an input."""
    if node.op is not fused:
        return None
    body: Graph = node.params["body"]
    joined, result = body.outputs[0].node, node.specs[0]
    if len(body.outputs) > 1 or not in_pieces(joined):
        return None
    parts = _described(joined, Layout(result.shape, (0,) * result.ndim))
    apart = all(
        type(source) is int and not same_shape(layout.shape, result.shape)
        for layout, source in parts
    )
    return joined if apart else None


def _described(joined: Node, layout: Layout) -> list[tuple[Layout, Any]]:
    assert joined.op is not None
    specs = [entry.spec for entry in joined.inputs]
    return list(joined.op.rules["pieces"](layout, *specs, **joined.params))


def _parts(node: Node, joined: Node, layout: Layout) -> list[tuple[Layout, Entry]]:
    """Where in the result those of a fused node's inputs go that are parts as they are."""
    outside = dict(zip(node.params["body"].inputs, node.inputs, strict=True))
    pairs = [(part, joined.inputs[source]) for part, source in _described(joined, layout)]
    return [(part, outside[entry]) for part, entry in pairs if entry in outside]


def _as_shape(layout: Layout, shape: tuple[int, ...]) -> Layout | None:
    strides = reshaped_strides(layout, shape)
    return None if strides is None else Layout(shape, strides, layout.offset)

"""unite and add_up: undo patterns that gradients leave behind.

The gradient of a value that was split is a sum of zero arrays with one part written into each:
``unite`` makes it a concatenation. The gradient of a weight that an unrolled recurrent network uses
in each step is a sum of products: ``add_up`` makes it one product of the concatenated factors.
"""

from __future__ import annotations

from typing import Any

from gemel.extent import same_for_all, seen
from gemel.ir.graph import Entry, Graph, Node, rewrite
from gemel.ops import elementwise, indexing, linalg, shape
from gemel.passes.simplify import transposed_last
from gemel.spec import same_shape

# --- unite ----------------------------------------------------------------------------------


class Span:
    """A value written into start : start + length of one axis.

    `lacks`: the value lacks that axis, since an integer index wrote it (x[3] = value).
    """

    __slots__ = ("axis", "lacks", "length", "start", "value")

    def __init__(self, axis: int, start: int, length: int, value: Entry, lacks: bool) -> None:
        self.axis = axis
        self.start = start
        self.length = length
        self.value = value
        self.lacks = lacks


def unite(graph: Graph) -> Graph:
    """Replace sums and assignments of parts that together fill an axis by a concatenation."""
    builds = (elementwise.add, indexing.assign)
    readers = graph.readers()

    def united(node: Node, inputs: tuple[Entry, ...]) -> tuple[Entry, ...] | None:
        if node.op is shape.reshape and inputs[0].node.op is shape.reshape:
            source = inputs[0].node.inputs[0]
            return (source,) if source.spec == node.specs[0] else None
        read = [reader for entry in node.entries for reader in readers.get(entry, ())]
        inner = bool(read) and all(reader.op in builds for reader in read)
        if node.op not in builds or inner:
            return None
        spans = _spans(node.op, inputs, node.params, node.specs[0].shape)
        whole = spans and _whole(spans, node.specs[0].shape)
        return (_joined(spans, node),) if whole else None

    return rewrite(graph, united)


def _spans(op: Any, inputs: tuple[Entry, ...], params: Any, extents: Any) -> list[Span]:
    """The parts that a sum or a chain of assignments writes along one axis; else []."""
    found: list[Span] = []
    pending = [(op, inputs, params)]
    added = False
    while pending:
        op, inputs, params = pending.pop()
        if op is elementwise.add:
            below, added = inputs, True
        elif op is indexing.place or op is indexing.assign:
            span = _span(extents, inputs[-1], params["key"])
            if span is None or (found and span.axis != found[0].axis):
                return []
            found.append(span)
            below = inputs[:-1]
        else:  # the array written into: its contents do not matter if all of it is overwritten
            return found if found and not added and _whole(found, extents) else []
        if not all(same_shape(entry.shape, tuple(extents)) for entry in below):
            return []
        pending += [(e.node.op, e.node.inputs, e.node.params) for e in below]
    return found


def _span(extents: Any, value: Entry, key: Any) -> Span | None:
    """The span of a key that selects part of one axis and all of the others; None for other
    keys."""
    found: Span | None = None
    if len(key) != len(extents) or any(item[0] == "new" for item in key):
        return None
    for axis, (extent, item) in enumerate(zip(extents, key, strict=True)):
        alone = item[0] == "int"
        start, length, step = (item[1], 1, 1) if alone else item[1:]
        if not alone and step == 1 and same_for_all(start, 0) and same_for_all(length, extent):
            continue
        if found is not None or step != 1 or type(start) is not int or type(length) is not int:
            return None
        found = Span(axis, start, length, value, alone)
    if found is None:
        return None
    part = (*extents[: found.axis], found.length, *extents[found.axis + 1 :])
    kept = part if not found.lacks else (*part[: found.axis], *part[found.axis + 1 :])
    return found if same_shape(value.shape, kept) else None


def _whole(spans: list[Span], extents: Any) -> bool:
    """Whether spans follow each other from the beginning of their axis to its end."""
    end = 0
    for span in sorted(spans, key=lambda span: span.start):
        if span.start != end:
            return False
        end += span.length
    return same_for_all(end, extents[spans[0].axis])


def _joined(spans: list[Span], node: Node) -> Entry:
    parts, axis, result = [], spans[0].axis, node.specs[0]
    # If all lack the axis, they are joined along the next one, and the result is reshaped.
    flat = all(span.lacks for span in spans) and axis < result.ndim - 1
    for span in sorted(spans, key=lambda span: span.start):
        value = span.value
        if span.lacks and not flat:
            wide = (*value.shape[:axis], 1, *value.shape[axis:])
            value = shape.reshape(value, shape=wide)
        same = value.dtype is result.dtype
        parts.append(value if same else elementwise.cast(value, dtype=result.dtype))
    found: Entry = shape.concatenate(*parts, axis=axis)
    return shape.reshape(found, shape=result.shape) if flat else found


# --- add up ---------------------------------------------------------------------------------

#: From this many products on they become one, if the axis they sum over is this many times shorter
#: than the others: then adding up the results costs more than the products.
LEAST, SHORTER = 3, 2


def add_up(graph: Graph) -> Graph:
    """a @ b + c @ d + ... becomes one product of the concatenated factors.

    This adds the terms in another order (see `docs/internals/numbers.md`).
    """
    sums = _sums(graph)
    factors: dict[Node, tuple[Entry, ...]] = {}

    def added(node: Node, inputs: tuple[Entry, ...]) -> tuple[Entry, ...] | None:
        factors[node] = inputs
        terms = sums.get(node, ())
        if len(terms) < LEAST or not all(map(_adds_little, terms)):
            return None
        # In a backward pass the last step's product comes first. Reversed, they are in the order of
        # time, in which the factors often lie side by side already.
        pairs = [factors[term] for term in reversed(terms)]
        left = shape.concatenate(*(transposed_last(a) for a, _ in pairs), axis=0)
        right = shape.concatenate(*(b for _, b in pairs), axis=0)
        return (linalg.matmul(transposed_last(left), right),)

    return rewrite(graph, added)


def _sums(graph: Graph) -> dict[Node, tuple[Node, ...]]:
    """The largest sums whose terms are all products used nowhere else, with their terms."""
    uses = graph.uses()
    found: dict[Node, list[Node]] = {}
    for node in graph.walk():
        if node.op is not elementwise.add:
            continue
        parts = []
        for entry in node.inputs:
            # Not for float16 and bfloat16, where each term is rounded before it is added.
            product = entry.node.op is linalg.matmul and entry.dtype.compute is entry.dtype
            alone = uses[entry] == 1 and entry.spec == node.specs[0]
            parts.append([entry.node] if product else found.get(entry.node) if alone else None)
            if product and not alone:
                parts[-1] = None
        first, second = parts
        if first is None or second is None:
            continue
        for entry in node.inputs:
            found.pop(entry.node, None)
        first += second  # the chain grows in place: each term is looked at once
        found[node] = first
    return {node: tuple(terms) for node, terms in found.items()}


def _adds_little(product: Node) -> bool:
    """Whether a product of matrices sums over an axis that is short compared to the others."""
    a, b = product.inputs
    if a.ndim != 2 or b.ndim != 2:
        return False
    rows, terms, columns = map(seen, (*a.shape, b.shape[1]))
    return SHORTER * terms <= min(rows, columns)

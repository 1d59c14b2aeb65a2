"""sink: what follows elementwise is computed before a result is reshaped.

The kernel of a product also computes what follows elementwise, if that has the shape of the product
(`fuse`). But the columns of a convolution are all places of an image, and its result is reshaped to
rows and columns of the image. Here ``relu(reshape(a @ b) * scale + bias)`` becomes
``reshape(relu(a @ b * scale' + bias'))``, where scale' and bias' are reshaped instead.

A nest's loops do not run along both shapes of a reshape either. So numbers are also applied before
other results are reshaped: ``tile(a, 2) * 2`` repeats, multiplies and writes in one kernel. Only
numbers, because whether an array can be reshaped with the result may be known for some sizes and
not for all (channels in groups), and the programs of both must be the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gemel.extent import same_for_all
from gemel.ir.graph import Entry, Graph, Node, rewrite
from gemel.ir.op_kinds import Elementwise
from gemel.ops import shape
from gemel.passes.domain import is_mover, is_product, is_view
from gemel.passes.fuse import fusible, positional
from gemel.passes.simplify import part_of
from gemel.spec import Spec, product, same_shape_for_all

#: Axes of one array that become axes of another with as many elements.
Block = tuple[range, range]


def sink(graph: Graph) -> Graph:
    """Move reshapes of products behind elementwise operations, and others behind numbers."""
    uses = graph.uses()
    products = set[Node]()  # and what was moved before the reshape of one

    def moved(node: Node, inputs: tuple[Entry, ...]) -> tuple[Entry, ...] | None:
        op = node.op
        if not isinstance(op, Elementwise) or positional(op) or node.fails or len(node.specs) > 1:
            return None
        pairs = list(zip(node.inputs, inputs, strict=True))
        stored = {entry for original, entry in pairs if _is_stored(entry, uses[original])}
        for original, entry in pairs:
            source = _reshaped(entry)
            if source is None or not same_shape_for_all(entry.shape, node.specs[0].shape):
                continue
            of_product = is_product(source.node) or source.node in products
            if not of_product and not (uses[original] == 1 and _takes_numbers(inputs, source)):
                continue
            found = _applied(node, inputs, source, stored)
            if found is not None:
                if of_product:
                    products.add(found.node)
                with part_of(node):
                    return (shape.reshape(found, shape=node.specs[0].shape),)
        return None

    return rewrite(graph, moved)


def _takes_numbers(inputs: tuple[Entry, ...], source: Entry) -> bool:
    """Whether a result that is computed anyway is only combined with numbers."""
    node = source.node
    computed = fusible(node) or is_mover(node) or is_view(node)
    return computed and all(e.ndim == 0 or _reshaped(e) is source for e in inputs)


def _is_stored(entry: Entry, uses: int) -> bool:
    """Whether an entry will be in memory anyway: an array from outside, one that is computed by a
    kernel of its own, or one with several uses."""
    node = entry.node
    if is_mover(node) or is_view(node):
        return False
    return node.op is None or uses > 1 or not fusible(node)


def _reshaped(entry: Entry) -> Entry | None:
    """What a reshape shows in another shape; None for anything else."""
    return entry.node.inputs[0] if entry.node.op is shape.reshape else None


def _applied(
    node: Node, inputs: tuple[Entry, ...], source: Entry, stored: set[Entry]
) -> Entry | None:
    """An operation applied to inputs in the shape of `source`; None if one cannot be reshaped."""
    blocks = _blocks(node.specs[0].shape, source.shape)
    if blocks is None:
        return None
    with part_of(node):
        taken = [_in_shape(entry, source, blocks, entry in stored) for entry in inputs]
    known = tuple(entry for entry in taken if entry is not None)
    if len(known) < len(taken):
        return None
    spec = Spec(source.shape, node.specs[0].dtype)
    own = node.value, node.name, node.origin, node.part, node.precision
    return Node(node.op, known, node.params, (spec,), *own).entries[0]


def _blocks(shape: Sequence[Any], other: Sequence[Any]) -> list[Block] | None:
    """The smallest blocks of axes of two shapes that have as many elements for all sizes, in
    order; None if there are none."""
    found, first, second = list[Block](), 0, 0
    while first < len(shape) or second < len(other):
        ends = _end(shape, other, first, second)
        if ends is None:
            return None
        found.append((range(first, ends[0]), range(second, ends[1])))
        first, second = ends
    return found


def _end(
    shape: Sequence[Any], other: Sequence[Any], first: int, second: int
) -> tuple[int, int] | None:
    """Where the shortest block that begins at these axes ends."""
    for one in range(first, len(shape) + 1):
        for two in range(second, len(other) + 1):
            some = (one, two) != (first, second)
            if some and same_for_all(product(shape[first:one]), product(other[second:two])):
                return one, two
    return None


def _in_shape(entry: Entry, source: Entry, blocks: list[Block], stored: bool) -> Entry | None:
    """An input in the shape of `source`, or in one that is broadcast to it; None if that is no view
    of it. What is as large as `source` must be `stored`, unless it is reshaped itself."""
    before = _reshaped(entry)
    if before is not None and same_shape_for_all(before.shape, source.shape):
        return before
    if entry.ndim == 0:
        return entry
    lead, sizes = blocks[-1][0].stop - entry.ndim, [1] * len(source.shape)
    for own, others in blocks:
        extents = [entry.shape[axis - lead] for axis in own if axis >= lead]
        if all(type(n) is int and n == 1 for n in extents):
            continue
        if not same_for_all(product(extents), product(source.shape[axis] for axis in others)):
            return None
        for axis in others:
            sizes[axis] = source.shape[axis]
    if not stored and same_shape_for_all(sizes, source.shape):
        return None
    found: Entry = shape.reshape(entry, shape=tuple(sizes))
    return found


__all__ = ["sink"]

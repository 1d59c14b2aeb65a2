"""Pieces: results put together of parts (joined, bordered, written into), a kernel for each.

What follows on such a result is computed where each part is written, and what its inputs are made
of, too: nothing is kept in between.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from gemel.codegen.elements import ElementWriter
from gemel.codegen.nest import Kernel, Nest, Number, Place
from gemel.dtype import float64
from gemel.extent import same_for_all
from gemel.ir.graph import Entry, Graph, Node, walk
from gemel.ir.layout import Layout
from gemel.ir.position import far, through
from gemel.ops.shape import MOST_INTERLEAVED
from gemel.passes.domain import Domain, in_pieces, is_view
from gemel.spec import product, same_shape


def write_pieces(body: Graph, given: dict[Entry, Any], outputs: list[Place]) -> list[Kernel]:
    """The kernels of a fused body with one operation in pieces, whose shape all results have."""
    node = next(n for n in body.walk() if in_pieces(n))
    parts = _parts(node, far(node.specs[0].shape))
    regions = [[layout for layout, _ in _parts(node, place.layout)] for place in outputs]
    shared = _sharing(node, parts)
    nests: list[Nest] = []
    writer: ElementWriter | None = None
    for number, (part, source) in enumerate(parts):
        there = type(source) is int and given.get(node.inputs[source])
        if there and len(outputs) == 1 and _lies(there, outputs[0].at(regions[0][number])):
            continue
        if not (nests and _beside(regions[0], number)):
            together = writer and shared and same_shape(nests[-1].shape, part.shape)
            if not together:
                nests.append(Nest(part.shape))
                writer = None
        nest = nests[-1]
        if writer is None or not shared:
            writer = ElementWriter(nest, Domain(part.shape), given)
        here = writer.placed(part.shape, tuple(range(len(part.shape))))
        writer.ready[node.entries[0]] = _value(writer, node, source, here)
        position = through(part, node.specs[0].ndim, here, writer.nowhere)
        for entry, place, layouts in zip(body.outputs, outputs, regions, strict=True):
            nest.store(place.at(layouts[number]), writer.moved(entry, position))
    return [nest.finish() for nest in nests]


def _sharing(node: Node, parts: list[tuple[Layout, Any]]) -> bool:
    """Whether each part is made of values that another part is made of, too: one kernel computes
    them for all. Not of parts that lie over others, which are to be written later."""
    together = sum([product(layout.shape) for layout, _ in parts])
    if not same_for_all(together, product(node.specs[0].shape)):
        return False
    made: list[set[Node]] = []
    for _, source in parts:
        if type(source) is not int:
            return False
        below = walk([node.inputs[source]])
        made.append({each for each in below if each.op is not None and not is_view(each)})
    counts = Counter(each for nodes in made for each in nodes)
    return len(made) > 1 and all(any(counts[each] > 1 for each in nodes) for nodes in made)


def stays_in_place(body: Graph, inner: set[Entry]) -> bool:
    """Whether a body writes over parts of an array, one of `inner`, and does nothing else with it.

    It may then write into that array itself: the rest of it is there.
    """
    node = body.outputs[0].node
    if len(body.outputs) > 1 or not in_pieces(node) or node.inputs[0] not in inner:
        return False
    parts = _parts(node, far(node.specs[0].shape))
    whole = parts[0][1] == 0 and same_shape(parts[0][0].shape, node.specs[0].shape)
    reads = [entry for each in body.walk() for entry in each.inputs if entry in inner]
    return whole and len(reads) == 1


def _lies(source: Any, part: Place) -> bool:
    """Whether a part of the result is there already: what is written over in part."""
    if not isinstance(source, Place) or source.buffer is not part.buffer:
        return False
    axes = zip(part.shape, source.strides, part.strides, strict=True)
    same = same_for_all(source.layout.offset, part.layout.offset)
    return same and all(n == 1 or same_for_all(a, b) for n, a, b in axes)


def _parts(node: Node, layout: Layout) -> list[tuple[Layout, Any]]:
    """Where in the result each part lies, and what it is: an input's number, or a float."""
    assert node.op is not None
    specs = [entry.spec for entry in node.inputs]
    return list(node.op.rules["pieces"](layout, *specs, **node.params))


def _value(writer: ElementWriter, node: Node, source: Any, here: Any) -> Any:
    """What a part is, rounded to what the result holds."""
    dtype = node.specs[0].dtype
    if isinstance(source, float):
        value = writer.nest.scalar(Number(("constant", source), float64))
    else:
        entry = node.inputs[source]
        value = writer.moved(entry, writer.aligned(here, entry))
    return value.cast(dtype)


def _beside(parts: list[Layout], number: int) -> bool:
    """Whether a part takes turns in memory with those before it: one kernel writes all of them."""
    part = parts[number]
    along = (s for n, s in zip(reversed(part.shape), reversed(part.strides), strict=True) if n != 1)
    turns = next(along, 0)
    if type(turns) is not int or not 1 < turns <= MOST_INTERLEAVED or number % turns == 0:
        return False
    before = parts[number - 1]
    alike = same_shape(before.shape, part.shape) and before.strides == part.strides
    return alike and same_for_all(before.offset + 1, part.offset)

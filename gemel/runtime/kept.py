"""Values a plan keeps from run to run: those that depend only on inputs which rarely change.

Packing the weights of a layer for a matrix product, say, is done in the first call and again only
after the weights were written. Such items become the plan's `image.Kept`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from gemel import config
from gemel.codegen.language.launch import Launch, Place
from gemel.extent import Dim
from gemel.ir.graph import Entry, Graph
from gemel.runtime.image import CAPTURED, INPUT, KEPT, TEMPORARY, Buffer
from gemel.spec import product

#: A value may take this many times the memory of what it is computed from, or this many bytes.
GROWTH, LITTLE = 4, 1 << 20


class Split(NamedTuple):
    """The items of a plan in two parts: those that make values to keep, and the rest.

    `values` are the buffers the rest reads from the first part, `sources` the inputs and captured
    arrays the first part reads.
    """

    first: list[Any]
    rest: list[Any]
    values: list[Buffer]
    sources: list[Buffer]

    def placed(self, temporaries: list[Buffer]) -> list[Buffer]:
        """Move the values to the space `KEPT`. Returns the other temporaries, renumbered."""
        for index, buffer in enumerate(self.values):
            buffer.space, buffer.index = KEPT, index
        left = [buffer for buffer in temporaries if buffer.space == TEMPORARY]
        for index, buffer in enumerate(left):
            buffer.index = index
        return left

    def reads(self) -> tuple[list[int], list[int], list[int]]:
        """The inputs and captured arrays that the values are computed from, and the values'
        bytes."""
        inputs, captured = (
            [buffer.index for buffer in self.sources if buffer.space == space]
            for space in (INPUT, CAPTURED)
        )
        return inputs, captured, [int(buffer.size) for buffer in self.values]


def made_of(graph: Graph, stable: Sequence[int]) -> set[Entry]:
    """The entries that depend only on inputs at `stable` positions, none of them updated."""
    updated = {index for index, _ in graph.updates}
    fixed = {graph.inputs[index] for index in stable if index not in updated}
    for node in graph.walk() if fixed else ():
        if node.op is not None and node.inputs and fixed.issuperset(node.inputs):
            fixed.update(node.entries)
    return fixed


def split(items: Sequence[Any], fixed: set[Entry] | None, where: dict[Entry, Any]) -> Split:
    """Split the items of a plan. `fixed` is the result of `made_of`; with None nothing is kept.

    A value is kept if it is computed from fixed entries and captured arrays alone, has the same
    size in every call, and is not much larger than what it is computed from. Items that may fail
    stay in their place: at the front, their failure could reach results that do not depend on them.
    """
    if fixed is None:
        return Split([], list(items), [], [])
    stable = {where[entry].buffer for entry in fixed if entry.node.is_input}
    writers = _writers(items)
    refused: set[Buffer] = set()
    while True:
        parts = _tried(items, stable, refused)
        ours = _writers(parts.first)
        # A buffer that several items write is kept only if all of these can be moved.
        partly = {buffer for buffer, count in ours.items() if count < writers[buffer]}
        if not partly:
            break
        refused |= partly
    made = set(ours)
    wanted = {buffer for item in parts.rest for buffer, _ in item.touches()}
    read = {buffer for item in parts.first for buffer, _ in item.touches()}
    parts.values.extend(sorted(made & wanted, key=lambda buffer: buffer.index))
    parts.sources.extend(sorted(read - made, key=lambda buffer: (buffer.space, buffer.index)))
    return parts if parts.values else Split([], list(items), [], [])


def _tried(items: Sequence[Any], stable: set[Buffer], refused: set[Buffer]) -> Split:
    """A first attempt at the split, in which no buffer in `refused` is kept."""
    left = config.KEEP_BYTES.read()
    made: set[Buffer] = set()
    parts = Split([], [], [], [])
    for item in items:
        size = _size(item, stable | made, refused) if isinstance(item, Launch) else None
        if size is None or size > left:
            parts.rest.append(item)
            continue
        left -= size
        parts.first.append(item)
        made.update(buffer for buffer, written in item.touches() if written)
    return parts


def _writers(items: Sequence[Any]) -> dict[Buffer, int]:
    """How many items write each buffer."""
    counts: dict[Buffer, int] = {}
    for item in items:
        for buffer in {buffer for buffer, written in item.touches() if written}:
            counts[buffer] = counts.get(buffer, 0) + 1
    return counts


def _size(item: Launch, stable: set[Buffer], refused: set[Buffer]) -> int | None:
    """The bytes of a launch's results; None if they cannot be kept."""
    if item.fails or any(number.source[0] != "constant" for _, number in item.scalars):
        return None
    for buffer, written in item.touches():
        if written and (buffer.space != TEMPORARY or buffer in refused):
            return None
        if not written and buffer not in stable and buffer.space != CAPTURED:
            return None
    if any(isinstance(size, Dim) for size in _sizes(item)):
        return None
    read = made = 0
    for place, written in zip(item.places, item.written, strict=True):
        size = product(place.shape) * place.dtype.itemsize if isinstance(place, Place) else None
        if written:
            made += place.size if size is None else max(size, 1)
        elif size is not None:
            read += size
    return made if made <= max(GROWTH * read, LITTLE) else None


def _sizes(item: Launch) -> Iterator[int]:
    """All numbers of a launch that may depend on free extents."""
    yield from item.integers
    yield from (number.source[1] for _, number in item.scalars)
    yield item.extent
    for place, written in zip(item.places, item.written, strict=True):
        if isinstance(place, Place):
            yield from (place.layout.offset, *place.shape)
        if written:
            yield (place.buffer if isinstance(place, Place) else place).size

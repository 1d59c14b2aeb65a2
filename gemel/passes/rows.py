"""A result in blocks of its rows, so that the first can be sent while the last are computed.

Rows of a matrix product are the product of rows of its first factor: each element is the same sum
in the same order (docs/internals/numbers.md). A product that may sum in another order for fewer
rows stays whole. What is computed before the product is computed once, for all blocks.
"""

from __future__ import annotations

from collections.abc import Sequence

from gemel.ir.graph import Entry, Graph
from gemel.ir.op_kinds import Elementwise
from gemel.ir.trace import Trace
from gemel.ops import linalg, shape
from gemel.ops.indexing import basic_index
from gemel.ops.shape import axis_order

#: The first row of each block, and the end of the last.
Bounds = Sequence[int]
#: The most rows of which the size of a block is a multiple.
WHOLE = 32


def bounds_of(rows: int, blocks: int) -> list[int]:
    """The first rows of blocks of about equal size, and the end; no block is empty.

    The first is not the largest, because what follows waits for it. Large blocks are multiples of
    32 rows, which products compute without a rest.

    >>> bounds_of(7, 3)
    [0, 2, 4, 7]
    >>> bounds_of(1, 3)
    [0, 1]
    >>> bounds_of(256, 3)
    [0, 64, 160, 256]
    """
    blocks = max(1, min(blocks, rows))
    half = max(1, rows // blocks // 2)
    unit = min(WHOLE, 1 << (half.bit_length() - 1))
    return [*(rows * block // blocks // unit * unit for block in range(blocks)), rows]


def in_rows(graph: Graph, bounds: Bounds) -> Graph | None:
    """The graph with its last output cut into blocks of rows; None if that saves nothing.

    It pays if a product makes the rows, followed only by elementwise operations, transpositions and
    reshapes that keep rows together.
    """
    *others, result = graph.outputs
    cutting = _Cutting(graph)
    if not cutting.pays(result, 0):
        return None
    pairs = zip(bounds[:-1], bounds[1:], strict=True)
    with Trace() as trace:
        parts = [cutting.part(result, 0, start, end, trace) for start, end in pairs]
    return Graph(graph.inputs, (*others, *parts), (), graph.name)


class _Cutting:
    """Computes slices of a graph's entries from slices of their inputs."""

    def __init__(self, graph: Graph) -> None:
        self._given = frozenset(graph.inputs)
        self._known: dict[tuple[Entry, int], bool] = {}

    def pays(self, entry: Entry, axis: int) -> bool:
        """Whether a slice of an entry along an axis is less work than all of it."""
        key = entry, axis
        if key not in self._known:
            axes = {} if entry in self._given else _axes(entry, axis)
            sources = entry.node.inputs
            product = entry.node.op is linalg.matmul and bool(axes)
            self._known[key] = product or any(self.pays(sources[p], a) for p, a in axes.items())
        return self._known[key]

    def part(self, entry: Entry, axis: int, start: int, end: int, trace: Trace) -> Entry:
        """The elements of an entry from `start` to `end` along an axis."""
        node = entry.node
        if not self.pays(entry, axis):
            return _slice(entry, axis, start, end)
        chosen = list(node.inputs)
        for position, place in _axes(entry, axis).items():
            whole = node.op is linalg.matmul  # slice its operand, but compute that once
            source = chosen[position]
            chosen[position] = (
                _slice(source, place, start, end)
                if whole
                else self.part(source, place, start, end, trace)
            )
        params = dict(node.params)
        if node.op is shape.reshape:
            params["shape"] = (end - start, *entry.shape[1:])
        assert node.op is not None
        trace.line = node.origin
        return node.op.apply(tuple(chosen), params)[0]


def _axes(entry: Entry, axis: int) -> dict[int, int]:
    """The inputs, by position, of which a slice along an axis needs only a slice, and their axis.

    Empty for an entry that is computed as a whole.
    """
    node = entry.node
    if node.op is linalg.matmul:
        first, second = node.inputs
        plain = entry.ndim == first.ndim == second.ndim == 2
        # If both lie along the axis summed over, few rows are summed in vector lanes, many are not.
        lanes = not _is_turned(first) and _is_turned(second)
        return {axis: axis} if plain and not lanes else {}
    if node.op is shape.transpose:
        return {0: axis_order(entry.ndim, node.params["axes"])[axis]}
    if node.op is shape.reshape:
        (source,) = node.inputs
        kept = axis == 0 and source.ndim > 0 and source.shape[0] == entry.shape[0]
        return {0: 0} if kept else {}
    if not isinstance(node.op, Elementwise) or node.op.random or len(node.entries) > 1:
        return {}
    places = {p: axis - entry.ndim + source.ndim for p, source in enumerate(node.inputs)}
    return {
        position: place
        for position, place in places.items()
        if place >= 0 and node.inputs[position].shape[place] == entry.shape[axis]
    }


def _is_turned(entry: Entry) -> bool:
    """Whether a matrix lies column by column."""
    node = entry.node
    if node.op is not shape.transpose:
        return False
    return axis_order(2, node.params["axes"]) == (1, 0) and not _is_turned(node.inputs[0])


def _slice(entry: Entry, axis: int, start: int, end: int) -> Entry:
    key = [("slice", 0, extent, 1) for extent in entry.shape]
    key[axis] = ("slice", start, end - start, 1)
    found: Entry = basic_index(entry, key=tuple(key))
    return found


__all__ = ["bounds_of", "in_rows"]

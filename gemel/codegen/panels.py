"""Panels: what lies across the vector's loop, turned into its order a square at a time.

An operand of stride 1 along the loop above the vector's (a transposed array) would be read one
element at a time. Some rows of it are read as vectors, transposed in registers and kept in a panel,
where the loops then find them one after the other.
"""

from __future__ import annotations

from typing import Any

from gemel.codegen import memory
from gemel.codegen.access import Bases
from gemel.codegen.assembly import Builder, Value
from gemel.codegen.frame import i64
from gemel.codegen.program import ACROSS
from gemel.codegen.registers import shuffle_mask, splat

#: Columns of a panel: long enough for the loop over a row, short enough to stay in the first cache.
COLUMNS = 64


class Panels:
    """The panels of a kernel; `nest` is what prints its loops."""

    def __init__(self, nest: Any) -> None:
        self.nest = nest
        self.builder = nest.builder
        self.dimension = nest.program.outer - 2
        operands = nest.program.operands
        self.numbers = [n for n in sorted(nest._used()) if operands[n].stride == ACROSS]
        #: Rows of a panel, which are the sides of the squares, too.
        self.rows = 16
        self.places: dict[int, Value] = {}
        if self.numbers:
            widest = max(operands[n].dtype.itemsize for n in self.numbers)
            self.rows = max(2, min(16, nest.target.width // widest))
        for n in self.numbers:
            self.places[n] = memory.room(self.builder, operands[n].dtype, self.rows * COLUMNS)

    def run(self, begin: Value, end: Value, bases: Bases) -> None:
        """All loops, the outermost from `begin` to `end`."""
        if self.dimension == 0:
            self._walk(begin, end, bases)
            return
        rows = self.nest.extents[self.dimension]
        body = lambda inside: self._walk(i64(0), rows, inside)  # noqa: E731
        self.nest._walk(0, self.dimension, begin, end, bases, body)

    def _walk(self, begin: Value, end: Value, bases: Bases) -> None:
        """The rows from `begin` to `end`, all columns of each."""
        nest, minimum, add = self.nest, self.builder.minimum, self.builder.add
        columns = nest.extents[self.dimension + 1]

        def rows(first: Value) -> None:
            last = minimum(add(first, i64(self.rows)), end)

            def part(left: Value) -> None:
                right = minimum(add(left, i64(COLUMNS)), columns)
                self._part(first, last, left, right, bases)

            nest.each(0, columns, COLUMNS, part)

        nest.each(begin, end, self.rows, rows)

    def _part(self, first: Value, last: Value, left: Value, right: Value, bases: Bases) -> None:
        """Fills the panels with some columns of some rows, then runs over these."""
        nest, builder = self.nest, self.builder
        for n in self.numbers:
            self._fill(n, first, last, left, right, bases)

        def row(index: Value) -> None:
            inside = nest.advance(bases, self.dimension, index)
            before = builder.mul(builder.sub(index, first), i64(COLUMNS))
            for n in self.numbers:
                dtype = nest.program.operands[n].dtype
                offset = builder.sub(before, left)
                inside[n] = memory.element(builder, self.places[n], offset, dtype)
            nest._row(left, right, inside)

        nest.each(first, last, 1, row)

    def _fill(
        self, n: int, first: Value, last: Value, left: Value, right: Value, bases: Bases
    ) -> None:
        nest, builder = self.nest, self.builder
        dtype = nest.program.operands[n].dtype
        source = memory.element(builder, bases[n], first, dtype)
        count = builder.sub(last, first)

        def square(column: Value) -> None:
            wide = builder.sub(right, column)
            enough = builder.icmp_signed(">=", builder.minimum(count, wide), i64(self.rows))
            goal = memory.element(builder, self.places[n], builder.sub(column, left), dtype)
            if nest.masks:
                self._turn(n, self._either(n, source, column, count, wide, enough), goal)
                return
            with builder.if_else(enough) as (whole, part):
                with whole:
                    self._turn(n, self._lines(n, source, column, None, None), goal)
                with part:
                    self._singly(n, source, column, goal, count, wide)

        nest.each(left, right, self.rows, square)

    def _either(
        self, n: int, source: Value, column: Value, count: Value, wide: Value, enough: Value
    ) -> list[Value]:
        """The lines of a square, or of a part of one: what turns them is written once for both,
        since that is most of the kernel's instructions."""
        builder = self.builder
        with builder.if_else(enough) as (whole, part):
            with whole:
                lines = self._lines(n, source, column, None, None)
                first = builder.block
            with part:
                few = self._lines(n, source, column, count, wide)
                second = builder.block
        pairs = zip(lines, few, strict=True)
        return [builder.phi(a.type, (a, first), (b, second)) for a, b in pairs]

    def _lines(
        self, n: int, source: Value, column: Value, count: Value | None, wide: Value | None
    ) -> list[Value]:
        """The lines of a square; of `count` elements, `wide` of them, where these are given."""
        builder, nest, lanes = self.builder, self.nest, self.rows
        dtype = nest.program.operands[n].dtype
        stride = nest.access.strides[n, self.dimension + 1]
        mask = None if count is None else memory.first(builder, count, lanes)
        pointer = memory.element(builder, source, builder.mul(column, stride), dtype)
        lines = []
        for i in range(lanes):
            there = mask
            if wide is not None:
                inside = builder.icmp_signed(">", wide, i64(i))
                there = builder.and_(mask, splat(builder, inside, lanes))
            lines.append(memory.load(builder, pointer, dtype, lanes, there))
            pointer = memory.element(builder, pointer, stride, dtype)
        return lines

    def _turn(self, n: int, lines: list[Value], goal: Value) -> None:
        """Writes a square of these lines."""
        builder, dtype = self.builder, self.nest.program.operands[n].dtype
        for i, line in enumerate(transposed(builder, lines)):
            pointer = memory.element(builder, goal, i64(i * COLUMNS), dtype)
            memory.store(builder, line, pointer, dtype, self.rows)

    def _singly(
        self, n: int, source: Value, column: Value, goal: Value, count: Value, wide: Value
    ) -> None:
        """A part of a square, one element after the other, where there are no masks."""
        builder, nest = self.builder, self.nest
        dtype = nest.program.operands[n].dtype
        stride = nest.access.strides[n, self.dimension + 1]

        def line(i: Value) -> None:
            offset = builder.mul(builder.add(column, i), stride)
            start = memory.element(builder, source, offset, dtype)

            def one(r: Value) -> None:
                value = memory.load(builder, memory.element(builder, start, r, dtype), dtype, 1)
                place = builder.add(builder.mul(r, i64(COLUMNS)), i)
                memory.store(builder, value, memory.element(builder, goal, place, dtype), dtype, 1)

            nest.each(0, count, 1, one)

        nest.each(0, builder.minimum(wide, i64(self.rows)), 1, line)


def transposed(builder: Builder, rows: list[Value]) -> list[Value]:
    """A square of vectors, or squares side by side, transposed by exchanging ever larger blocks."""
    lanes, distance = rows[0].type.lanes, 1
    while distance < len(rows):
        low = tuple(lanes + i - distance if i & distance else i for i in range(lanes))
        high = tuple(lanes + i if i & distance else i + distance for i in range(lanes))
        exchanged = list(rows)
        for i in range(len(rows)):
            if not i & distance:
                a, b = rows[i], rows[i + distance]
                exchanged[i] = builder.shuffle_vector(a, b, shuffle_mask(low))
                exchanged[i + distance] = builder.shuffle_vector(a, b, shuffle_mask(high))
        rows = exchanged
        distance *= 2
    return rows

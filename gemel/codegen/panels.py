"""Panels: what lies across the vector's loop, turned into its order a square at a time.

An operand of stride 1 along the loop above the vector's (a transposed array) would be read one
element at a time. Some rows of it are read as vectors, transposed in registers and kept in a panel,
where the loops then find them one after the other. So it is where short rows are reduced: many of
them side by side are one vector for each place along them, and what comes of them is turned back.
"""

from __future__ import annotations

from typing import Any

from gemel.codegen import memory
from gemel.codegen.access import Bases
from gemel.codegen.assembly import Builder, Value
from gemel.codegen.frame import i64
from gemel.codegen.program import ACROSS, INPUT, OUTPUT, SHORT
from gemel.codegen.registers import shuffle_mask, splat

#: Columns of a panel: long enough for the loop over a row, short enough to stay in the first cache.
COLUMNS = 64


class Panels:
    """The panels of a kernel; `nest` is what prints its loops."""

    def __init__(self, nest: Any) -> None:
        self.nest = nest
        self.builder = nest.builder
        program = nest.program
        #: The vector's loop, and the one whose neighbours lie side by side.
        self.vector = program.outer - 1
        self.short = program.inner > 0
        self.above = program.rank - 1 if self.short else self.vector - 1
        operands = program.operands
        self.numbers = [n for n in sorted(nest._used()) if operands[n].stride == ACROSS]
        #: Rows that are turned at a time, which are the sides of the squares, too.
        widest = max((operands[n].dtype.itemsize for n in self.numbers), default=4)
        self.rows = max(2, min(16, nest.target.width // widest))
        self.places: dict[int, Value] = {}
        for n in self.numbers:
            room = (SHORT if self.short else self.rows) * COLUMNS
            self.places[n] = memory.room(self.builder, operands[n].dtype, room)
            if self.short:  # all of the loop lies in the panel
                nest.access.strides[n, self.above] = i64(COLUMNS)

    def run(self, begin: Value, end: Value, bases: Bases) -> None:
        """All loops, the outermost from `begin` to `end`."""
        extents = self.nest.extents
        if self.short:
            self._columns(begin, end, (i64(0), extents[self.above]), bases)
        elif self.above == 0:
            self._walk(begin, end, bases)
        else:
            body = lambda inside: self._walk(i64(0), extents[self.above], inside)  # noqa: E731
            self.nest._walk(0, self.above, begin, end, bases, body)

    def _walk(self, begin: Value, end: Value, bases: Bases) -> None:
        """The rows from `begin` to `end`, all columns of each."""

        def rows(first: Value) -> None:
            last = self.builder.minimum(self.builder.add(first, i64(self.rows)), end)
            self._columns(i64(0), self.nest.extents[self.vector], (first, last), bases)

        self.nest.over(begin, end, self.rows, rows)

    def _columns(self, begin: Value, end: Value, rows: tuple[Value, Value], bases: Bases) -> None:
        """Fills the panels with some columns of some rows, then runs over these; and so on."""
        nest, builder = self.nest, self.builder

        def part(left: Value) -> None:
            right = builder.minimum(builder.add(left, i64(COLUMNS)), end)
            self._turned(INPUT, rows, (left, right), bases)
            if self.short:
                nest._row(left, right, self._inside(bases, builder.sub(i64(0), left)))
                self._turned(OUTPUT, rows, (left, right), bases)
            else:
                self.nest.over(*rows, 1, lambda index: row(index, left, right))

        def row(index: Value, left: Value, right: Value) -> None:
            inside = nest.advance(bases, self.above, index)
            before = builder.mul(builder.sub(index, rows[0]), i64(COLUMNS))
            nest._row(left, right, self._inside(inside, builder.sub(before, left)))

        self.nest.over(begin, end, COLUMNS, part)

    def _inside(self, bases: Bases, offset: Value) -> Bases:
        """The bases, but those of what is in panels: so far behind the panels' starts."""
        inside = list(bases)
        for n, place in self.places.items():
            dtype = self.nest.program.operands[n].dtype
            inside[n] = memory.element(self.builder, place, offset, dtype)
        return inside

    def _turned(
        self, role: str, rows: tuple[Value, Value], columns: tuple[Value, Value], bases: Bases
    ) -> None:
        """Brings all operands of a role into their panels, or outputs from there."""
        builder = self.builder
        for n in self.numbers:
            if self.nest.program.operands[n].role == role:

                def squares(first: Value, n: int = n) -> None:
                    last = builder.minimum(builder.add(first, i64(self.rows)), rows[1])
                    down = builder.mul(builder.sub(first, rows[0]), i64(COLUMNS))
                    self._squares(n, first, last, columns, (bases[n], down))

                self.nest.over(*rows, self.rows, squares)

    def _squares(
        self,
        n: int,
        first: Value,
        last: Value,
        columns: tuple[Value, Value],
        where: tuple[Value, Value],
    ) -> None:
        """Some rows of one operand, which lies at `where[0]`, so far down in its panel."""
        nest, builder = self.nest, self.builder
        dtype = nest.program.operands[n].dtype
        source = memory.element(builder, where[0], first, dtype)
        count = builder.sub(last, first)

        def square(column: Value) -> None:
            wide = builder.sub(columns[1], column)
            enough = builder.icmp_signed(">=", builder.minimum(count, wide), i64(self.rows))
            offset = builder.add(where[1], builder.sub(column, columns[0]))
            goal = memory.element(builder, self.places[n], offset, dtype)
            with builder.if_else(enough) as (whole, part):
                with whole:
                    self._turn(n, source, column, goal, None, None)
                with part:
                    if nest.masks:
                        self._turn(n, source, column, goal, count, wide)
                    else:
                        self._singly(n, source, column, goal, count, wide)

        self.nest.over(*columns, self.rows, square)

    def _turn(
        self,
        n: int,
        source: Value,
        column: Value,
        goal: Value,
        count: Value | None,
        wide: Value | None,
    ) -> None:
        """One square; of `count` rows and `wide` columns where these are given."""
        builder, nest, lanes = self.builder, self.nest, self.rows
        operand = nest.program.operands[n]
        dtype, stride = operand.dtype, nest.access.strides[n, self.vector]
        mask = None if count is None else memory.first(builder, count, lanes)
        outside, inside = [], []
        for i in range(lanes):
            there = mask
            if wide is not None:
                exists = builder.icmp_signed(">", wide, i64(i))
                there = builder.and_(mask, splat(builder, exists, lanes))
            offset = builder.mul(builder.add(column, i64(i)), stride)
            outside.append((memory.element(builder, source, offset, dtype), there))
            inside.append((memory.element(builder, goal, i64(i * COLUMNS), dtype), None))
        ends = (inside, outside) if operand.role == OUTPUT else (outside, inside)
        lines = [memory.load(builder, where, dtype, lanes, there) for where, there in ends[0]]
        for line, (where, there) in zip(transposed(builder, lines), ends[1], strict=True):
            memory.store(builder, line, where, dtype, lanes, there)

    def _singly(
        self, n: int, source: Value, column: Value, goal: Value, count: Value, wide: Value
    ) -> None:
        """A part of a square, one element after the other, where there are no masks."""
        builder, nest = self.builder, self.nest
        operand = nest.program.operands[n]
        dtype, stride = operand.dtype, nest.access.strides[n, self.vector]

        def line(i: Value) -> None:
            start = memory.element(
                builder, source, builder.mul(builder.add(column, i), stride), dtype
            )

            def one(r: Value) -> None:
                place = builder.add(builder.mul(r, i64(COLUMNS)), i)
                ends = (
                    memory.element(builder, start, r, dtype),
                    memory.element(builder, goal, place, dtype),
                )
                source_, target = reversed(ends) if operand.role == OUTPUT else ends
                value = memory.load(builder, source_, dtype, 1)
                memory.store(builder, value, target, dtype, 1)

            self.nest.over(i64(0), count, 1, one)

        self.nest.over(i64(0), self.builder.minimum(wide, i64(self.rows)), 1, line)


def transposed(builder: Builder, rows: list[Value]) -> list[Value]:
    """A square of vectors, transposed by exchanging ever larger blocks."""
    lanes, distance = len(rows), 1
    while distance < lanes:
        low = tuple(lanes + i - distance if i & distance else i for i in range(lanes))
        high = tuple(lanes + i if i & distance else i + distance for i in range(lanes))
        exchanged = list(rows)
        for i in range(lanes):
            if not i & distance:
                a, b = rows[i], rows[i + distance]
                exchanged[i] = builder.shuffle_vector(a, b, shuffle_mask(low))
                exchanged[i + distance] = builder.shuffle_vector(a, b, shuffle_mask(high))
        rows = exchanged
        distance *= 2
    return rows

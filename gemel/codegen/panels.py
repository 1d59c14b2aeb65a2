"""Panels: what lies across the vector's loop, turned into its order a square at a time.

An operand of stride 1 along the loop above the vector's (a transposed array) would be read one
element at a time. Some rows of it are read as vectors, transposed in registers and kept in a panel,
where the loops then find them one after the other. So it is where short rows are reduced: many of
them side by side are one vector for each place along them, and what comes of them is turned back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from gemel.codegen import memory
from gemel.codegen.access import Bases
from gemel.codegen.assembly import Builder, Value
from gemel.codegen.frame import i64
from gemel.codegen.program import ACROSS, INPUT, OUTPUT, SHORT
from gemel.codegen.registers import shuffle_mask, splat

#: Columns of a panel: long enough for the loop over a row, short enough to stay in the first cache.
COLUMNS = 64

#: Where something begins and ends, or one number for rows and one for columns.
Span: TypeAlias = tuple[Value, Value]


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
        self.operands = program.operands
        numbers = [n for n in sorted(nest._used()) if self.operands[n].stride == ACROSS]
        #: Rows that are turned at a time, which are the sides of the squares, too.
        widest = max((self.operands[n].dtype.itemsize for n in numbers), default=4)
        self.rows = max(2, min(16, nest.target.width // widest))
        self.places: dict[int, Value] = {}
        for n in numbers:
            room = (SHORT if self.short else self.rows) * COLUMNS
            self.places[n] = memory.room(self.builder, self.operands[n].dtype, room)
            if self.short:  # all of the loop lies in the panel
                nest.access.strides[n, self.above] = i64(COLUMNS)

    def run(self, begin: Value, end: Value, bases: Bases) -> None:
        """All loops, the outermost from `begin` to `end`."""
        nest, extents = self.nest, self.nest.extents

        def rows(start: Value, stop: Value, inside: Bases) -> None:
            def some(first: Value) -> None:
                last = self.builder.minimum(self.builder.add(first, i64(self.rows)), stop)
                self._columns(i64(0), extents[self.vector], (first, last), inside)

            nest.over(start, stop, self.rows, some)

        if self.short:
            self._columns(begin, end, (i64(0), extents[self.above]), bases)
        elif self.above == 0:
            rows(begin, end, bases)
        else:
            body = lambda inside: rows(i64(0), extents[self.above], inside)  # noqa: E731
            nest._walk(0, self.above, begin, end, bases, body)

    def _columns(self, begin: Value, end: Value, rows: Span, bases: Bases) -> None:
        """Fills the panels with some columns of some rows, then runs over these; and so on."""
        nest, builder = self.nest, self.builder

        def part(left: Value) -> None:
            columns = left, builder.minimum(builder.add(left, i64(COLUMNS)), end)
            self._turned(INPUT, rows, columns, bases)
            if self.short:
                nest._row(*columns, self._inside(bases, builder.sub(i64(0), left)))
                self._turned(OUTPUT, rows, columns, bases)
            else:
                nest.over(*rows, 1, lambda index: row(index, columns))

        def row(index: Value, columns: Span) -> None:
            inside = nest.advance(bases, self.above, index)
            before = builder.mul(builder.sub(index, rows[0]), i64(COLUMNS))
            nest._row(*columns, self._inside(inside, builder.sub(before, columns[0])))

        nest.over(begin, end, COLUMNS, part)

    def _inside(self, bases: Bases, offset: Value) -> Bases:
        """The bases, but those of what is in panels: so far behind the panels' starts."""
        return [
            memory.element(self.builder, self.places[n], offset, self.operands[n].dtype)
            if n in self.places
            else base
            for n, base in enumerate(bases)
        ]

    def _turned(self, role: str, rows: Span, columns: Span, bases: Bases) -> None:
        """Brings all operands of a role into their panels, or outputs from there."""
        builder = self.builder
        for n in (n for n in self.places if self.operands[n].role == role):

            def some(first: Value, n: int = n) -> None:
                dtype, count = self.operands[n].dtype, builder.sub(rows[1], first)
                down = builder.mul(builder.sub(first, rows[0]), i64(COLUMNS))
                panel = builder.sub(down, columns[0])
                ends = (
                    memory.element(builder, bases[n], first, dtype),
                    memory.element(builder, self.places[n], panel, dtype),
                )

                def square(column: Value) -> None:
                    self._square(n, ends, column, (count, builder.sub(columns[1], column)))

                self.nest.over(*columns, self.rows, square)

            self.nest.over(*rows, self.rows, some)

    def _square(self, n: int, ends: Span, column: Value, sizes: Span) -> None:
        """As many rows and columns of these as there are in a square."""
        builder, dtype = self.builder, self.operands[n].dtype
        goal = memory.element(builder, ends[1], column, dtype)

        def outside(i: Value) -> Value:
            stride = self.nest.access.strides[n, self.vector]
            place = builder.mul(builder.add(column, i), stride)
            return memory.element(builder, ends[0], place, dtype)

        enough = builder.icmp_signed(">=", builder.minimum(*sizes), i64(self.rows))
        with builder.if_else(enough) as (whole, part):
            with whole:
                self._turn(n, outside, goal, None)
            with part:
                (self._turn if self.nest.masks else self._singly)(n, outside, goal, sizes)

    def _turn(
        self, n: int, outside: Callable[[Value], Value], goal: Value, sizes: Span | None
    ) -> None:
        """One square; of so many rows and columns where these are given."""
        builder, operand, lanes = self.builder, self.operands[n], self.rows
        far: list[tuple[Value, Value | None]] = []
        for i in range(lanes):
            there = None
            if sizes:
                exists = splat(builder, builder.icmp_signed(">", sizes[1], i64(i)), lanes)
                there = builder.and_(memory.first(builder, sizes[0], lanes), exists)
            far.append((outside(i64(i)), there))
        steps = (i64(i * COLUMNS) for i in range(lanes))
        near = [(memory.element(builder, goal, step, operand.dtype), None) for step in steps]
        begin, end = (near, far) if operand.role == OUTPUT else (far, near)
        lines = [memory.load(builder, p, operand.dtype, lanes, there) for p, there in begin]
        for line, (p, there) in zip(transposed(builder, lines), end, strict=True):
            memory.store(builder, line, p, operand.dtype, lanes, there)

    def _singly(self, n: int, outside: Callable[[Value], Value], goal: Value, sizes: Span) -> None:
        """A part of a square, one element after the other, where there are no masks."""
        builder, operand = self.builder, self.operands[n]
        count, wide = (builder.minimum(size, i64(self.rows)) for size in sizes)

        def line(i: Value) -> None:
            far = outside(i)

            def one(r: Value) -> None:
                place = builder.add(builder.mul(r, i64(COLUMNS)), i)
                ends = [
                    memory.element(builder, far, r, operand.dtype),
                    memory.element(builder, goal, place, operand.dtype),
                ]
                begin, end = reversed(ends) if operand.role == OUTPUT else ends
                value = memory.load(builder, begin, operand.dtype, 1)
                memory.store(builder, value, end, operand.dtype, 1)

            self.nest.over(i64(0), count, 1, one)

        self.nest.over(i64(0), wide, 1, line)


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

"""Squares: operands that lie across the vector's loop are transposed into its order, in squares.

An operand with stride 1 along the loop above the vector's (a transposed array) would be read one
element at a time. Instead, some rows of it are read as vectors, transposed in registers and stored
in a strip, where the loops find them contiguous.
"""

from __future__ import annotations

from typing import Any

from gemel.codegen import memory
from gemel.codegen.access import Bases
from gemel.codegen.assembly import Value
from gemel.codegen.frame import i64
from gemel.codegen.program import ACROSS
from gemel.codegen.registers import splat

#: The rows and columns of part of a square.
Size = tuple[Value, Value]
#: The columns of a strip: enough for the loop over a row, few enough for the first-level cache.
COLUMNS = 64


class Squares:
    """Transposes those operands of a kernel that lie across; `nest` prints the loops."""

    def __init__(self, nest: Any) -> None:
        self.nest = nest
        self.builder = nest.builder
        self.dimension = nest.program.outer - 2
        operands = nest.program.operands
        numbers = [n for n in sorted(nest._used()) if operands[n].stride_class == ACROSS]
        widest = max((operands[n].dtype.itemsize for n in numbers), default=1)
        #: The rows of a strip; also the side of a square.
        self.rows = max(2, min(16, nest.target.width // widest))
        self.strips = [_Strip(nest, n, self.rows) for n in numbers]

    def walk(self, begin: Value, end: Value, bases: Bases) -> None:
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
        """Fills the strips with some columns of some rows, then runs the loops over these."""
        nest, builder = self.nest, self.builder
        for strip in self.strips:
            source = strip.at(bases[strip.number], first)
            strip.fill(source, builder.sub(last, first), left, right)

        def row(index: Value) -> None:
            inside = nest.advance(bases, self.dimension, index)
            before = builder.mul(builder.sub(index, first), i64(COLUMNS))
            for strip in self.strips:
                inside[strip.number] = strip.at(strip.place, builder.sub(before, left))
            nest._row(left, right, inside)

        nest.each(first, last, 1, row)


class _Strip:
    """The strip of one operand, of `rows` rows."""

    def __init__(self, nest: Any, number: int, rows: int) -> None:
        self.nest, self.builder = nest, nest.builder
        self.number, self.rows = number, rows
        self.dtype = nest.program.operands[number].dtype
        self.place = memory.room(self.builder, self.dtype, rows * COLUMNS)

    def at(self, pointer: Value, index: Value) -> Value:
        """The address of an element."""
        return memory.element(self.builder, pointer, index, self.dtype)

    @property
    def stride(self) -> Value:
        """The operand's stride from column to column."""
        strides: dict[tuple[int, int], Value] = self.nest.access.strides
        return strides[self.number, self.nest.program.outer - 1]

    def fill(self, source: Value, count: Value, left: Value, right: Value) -> None:
        """Copies the columns from `left` to `right` of `count` rows, which begin at `source`."""
        builder = self.builder

        def square(column: Value) -> None:
            part = count, builder.sub(right, column)
            enough = builder.icmp_signed(">=", builder.minimum(*part), i64(self.rows))
            goal = self.at(self.place, builder.sub(column, left))
            if self.nest.masks:
                # The transposition is printed once for both cases, because it is most of the
                # kernel.
                self._write(self._either(source, column, part, enough), goal)
                return
            with builder.if_else(enough) as (whole, rest):
                with whole:
                    self._write(self._lines(source, column), goal)
                with rest:
                    self._singly(source, column, part, goal)

        self.nest.each(left, right, self.rows, square)

    def _either(self, source: Value, column: Value, part: Size, enough: Value) -> list[Value]:
        """The lines of a whole square or of part of one, chosen at run time."""
        builder = self.builder
        with builder.if_else(enough) as (whole, rest):
            with whole:
                lines = self._lines(source, column)
                first = builder.block
            with rest:
                few = self._lines(source, column, part)
                second = builder.block
        pairs = zip(lines, few, strict=True)
        return [builder.phi(a.type, (a, first), (b, second)) for a, b in pairs]

    def _lines(self, source: Value, column: Value, part: Size | None = None) -> list[Value]:
        """The lines of a whole square, or of the part of one that `part` gives."""
        builder, lanes = self.builder, self.rows
        mask = memory.first(builder, part[0], lanes) if part else None
        pointer = self.at(source, builder.mul(column, self.stride))
        lines = []
        for i in range(lanes):
            there, step = mask, self.stride
            if part:
                inside = builder.icmp_signed(">", part[1], i64(i))
                there = builder.and_(mask, splat(builder, inside, lanes))
                # A missing line gets the last line's address: masked loads from invalid addresses
                # take hundreds of cycles.
                more = builder.icmp_signed(">", part[1], i64(i + 1))
                step = builder.select(more, step, i64(0))
            lines.append(memory.load(builder, pointer, self.dtype, lanes, there))
            pointer = self.at(pointer, step)
        return lines

    def _write(self, lines: list[Value], goal: Value) -> None:
        """Transposes these lines and stores the square."""
        for i, line in enumerate(memory.transposed(self.builder, lines)):
            pointer = self.at(goal, i64(i * COLUMNS))
            memory.store(self.builder, line, pointer, self.dtype, self.rows)

    def _singly(self, source: Value, column: Value, part: Size, goal: Value) -> None:
        """Part of a square, one element after another, for targets without masks."""
        builder, nest, (count, wide) = self.builder, self.nest, part

        def line(i: Value) -> None:
            start = self.at(source, builder.mul(builder.add(column, i), self.stride))

            def one(r: Value) -> None:
                value = memory.load(builder, self.at(start, r), self.dtype, 1)
                place = builder.add(builder.mul(r, i64(COLUMNS)), i)
                memory.store(builder, value, self.at(goal, place), self.dtype, 1)

            nest.each(0, count, 1, one)

        nest.each(0, builder.minimum(wide, i64(self.rows)), 1, line)

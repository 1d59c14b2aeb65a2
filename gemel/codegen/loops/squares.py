"""Squares: operands that lie across the vector's loop are transposed into its order, in squares.

An operand with stride 1 along the loop above the vector's (a transposed array) would be read one
element at a time. Instead, some rows of it are read as vectors, transposed in registers and stored
in a strip, where the loops find them contiguous.
"""

from __future__ import annotations

from gemel.codegen.language.program import ACROSS
from gemel.codegen.llvm import memory
from gemel.codegen.llvm.access import Bases
from gemel.codegen.llvm.assembly import Value
from gemel.codegen.llvm.registers import splat
from gemel.codegen.loops.frame import i64

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gemel.codegen.loops.plain import Loops

#: The rows and columns of part of a square.
Size = tuple[Value, Value]
#: The columns of a strip: enough for the loop over a row, few enough for the first-level cache.
COLUMNS = 64


class Squares:
    """Transposes those operands of a kernel that lie across; `kernel` prints the loops."""

    def __init__(self, kernel: Loops) -> None:
        self.kernel = kernel
        self.builder = kernel.builder
        self.dimension = kernel.program.outer - 2
        operands = kernel.program.operands
        numbers = [n for n in sorted(kernel.used_operands()) if operands[n].stride_class == ACROSS]
        widest = max((operands[n].dtype.itemsize for n in numbers), default=1)
        #: The rows of a strip; also the side of a square.
        self.rows = max(2, min(16, kernel.target.width // widest))
        self.strips = [_Strip(kernel, n, self.rows) for n in numbers]

    def run(self, begin: Value, end: Value, bases: Bases) -> None:
        """The rows from `begin` to `end`, all columns of each."""
        kernel, minimum, add = self.kernel, self.builder.minimum, self.builder.add
        columns = kernel.extents[self.dimension + 1]

        def rows(first: Value) -> None:
            last = minimum(add(first, i64(self.rows)), end)

            def part(left: Value) -> None:
                right = minimum(add(left, i64(COLUMNS)), columns)
                self._part(first, last, left, right, bases)

            kernel.each(0, columns, COLUMNS, part)

        kernel.each(begin, end, self.rows, rows)

    def _part(self, first: Value, last: Value, left: Value, right: Value, bases: Bases) -> None:
        """Fills the strips with some columns of some rows, then runs the loops over these."""
        kernel, builder = self.kernel, self.builder
        for strip in self.strips:
            source = strip.at(bases[strip.number], first)
            strip.fill(source, builder.sub(last, first), left, right)

        def row(index: Value) -> None:
            inside = kernel.advance(bases, self.dimension, index)
            before = builder.mul(builder.sub(index, first), i64(COLUMNS))
            for strip in self.strips:
                inside[strip.number] = strip.at(strip.start, builder.sub(before, left))
            kernel.outer_row(left, right, inside)

        kernel.each(first, last, 1, row)


class _Strip:
    """The strip of one operand, of `rows` rows."""

    def __init__(self, kernel: Loops, number: int, rows: int) -> None:
        self.kernel, self.builder = kernel, kernel.builder
        self.number, self.rows = number, rows
        self.dtype = kernel.program.operands[number].dtype
        self.start = memory.room(self.builder, self.dtype, rows * COLUMNS)

    def at(self, pointer: Value, index: Value) -> Value:
        """The address of an element."""
        return memory.element(self.builder, pointer, index, self.dtype)

    @property
    def stride(self) -> Value:
        """The operand's stride from column to column."""
        return self.kernel.access.strides[self.number, self.kernel.program.outer - 1]

    def fill(self, source: Value, count: Value, left: Value, right: Value) -> None:
        """Copies the columns from `left` to `right` of `count` rows, which begin at `source`."""
        builder = self.builder

        def square(column: Value) -> None:
            part = count, builder.sub(right, column)
            enough = builder.icmp_signed(">=", builder.minimum(*part), i64(self.rows))
            goal = self.at(self.start, builder.sub(column, left))
            if self.kernel.masks:
                # The transposition is printed once for both cases, because it is most of the
                # kernel.
                self._write(self._either(source, column, part, enough), goal)
                return
            with builder.if_else(enough) as (whole, rest):
                with whole:
                    self._write(self._lines(source, column), goal)
                with rest:
                    self._singly(source, column, part, goal)

        self.kernel.each(left, right, self.rows, square)

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
        mask = memory.first_lanes(builder, part[0], lanes) if part else None
        pointer = self.at(source, builder.mul(column, self.stride))
        lines = []
        for i in range(lanes):
            there, step = mask, self.stride
            if part and mask:
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
        builder, kernel, (count, wide) = self.builder, self.kernel, part

        def line(i: Value) -> None:
            start = self.at(source, builder.mul(builder.add(column, i), self.stride))

            def one(r: Value) -> None:
                value = memory.load(builder, self.at(start, r), self.dtype, 1)
                offset = builder.add(builder.mul(r, i64(COLUMNS)), i)
                memory.store(builder, value, self.at(goal, offset), self.dtype, 1)

            kernel.each(0, count, 1, one)

        kernel.each(0, builder.minimum(wide, i64(self.rows)), 1, line)

"""The tiles of a sum: what the two ways to compute its rows and columns block by block share.

A micro-tile of the result is held in registers. `tiles.gemm` holds sums, side by side along the
columns; `tiles.dot` holds partial sums along k.
"""

from __future__ import annotations

from collections.abc import Iterator

from gemel.codegen.language.program import CONTIGUOUS, INPUT, ROWS, Program
from gemel.codegen.llvm import memory
from gemel.codegen.llvm.access import Bases, Site
from gemel.codegen.llvm.assembly import Value
from gemel.codegen.llvm.memory import Mask
from gemel.codegen.loops.frame import i64
from gemel.codegen.target import Target
from gemel.codegen.tiles.emit import Elements, Range, TiledKernel, sum_position
from gemel.codegen.tiles.sum import sum_of

#: The epilogue is repeated for each vector of a micro-tile up to this many instructions in all.
MOST_REPEATED = 200
#: Instructions that take about one machine instruction each.
CHEAP = frozenset(
    ("load", "scalar", "constant", "store", "cast", "select", "negative", "absolute")
    + ("add", "subtract", "multiply", "maximum", "minimum", "equal", "not_equal")
    + ("less", "less_equal", "greater", "greater_equal")
)


class SumKernel(TiledKernel):
    """One kernel; a micro-tile is `rows` x `columns`."""

    def __init__(self, program: Program, target: Target, rows: int, columns: int) -> None:
        super().__init__(program, target, program.code[sum_position(program)].dtype)
        self.rows, self.columns = rows, columns
        self.sum = sum_of(self)
        self.epilogue = Epilogue(self)
        self.left: Elements = self.sum.reader(0)
        self.right: Elements = self.sum.reader(1)
        #: The number of steps along k.
        self.depth = self.sum.depth(self.k)

    def fill(self, tile: Value, bases: Bases, rows: Range, column: Value) -> None:
        self.epilogue.enter(bases)
        columns = column, self.remaining(self.n, column, self.values["n_block"])
        self.fill_columns(tile, bases, rows, columns)

    def fill_columns(self, tile: Value, bases: Bases, rows: Range, columns: Range) -> None:
        """Computes the rows and columns of a tile."""
        raise NotImplementedError

    def panel(self, number: int, base: Value, line: Value, start: Value) -> Value:
        """The address of the panel that begins with a line, from step `start` of k on."""
        builder, width = self.builder, i64((self.rows, self.columns)[number])
        stride = self.stride(number, ROWS + number)
        dtype = self.program.operands[number].dtype
        far = builder.mul(builder.udiv(line, width), stride)
        panel = memory.element(builder, base, far, dtype)
        return (self.left, self.right)[number].at(panel, builder.mul(start, width))

    def lines(self, number: int, base: Value, first: Value, count: int) -> list[Value]:
        """The addresses of `count` lines of an operand; lines past the end repeat the last one."""
        builder = self.builder
        reader, total = ((self.left, self.m), (self.right, self.n))[number]
        stride = self.stride(number, ROWS + number)
        left = builder.sub(total, first)
        pointers = [reader.at(base, builder.mul(first, stride))]
        for i in range(1, count):  # each from the one before: cheaper than a product per line
            there = builder.icmp_signed(">", left, i64(i))
            pointers.append(reader.at(pointers[-1], builder.select(there, stride, i64(0))))
        return pointers


class Epilogue:
    """What a program does with its finished sums, one block of them at a time."""

    def __init__(self, kernel: TiledKernel) -> None:
        analysis = kernel.analysis
        self.kernel = kernel
        self.sum = sum_position(kernel.program)
        made = {*analysis.closure([self.sum]), *analysis.fixed()}
        self.steps = [p for p in sorted(analysis.live) if p not in made]
        self.bases: Bases = []

    def enter(self, bases: Bases) -> None:
        """Sets the operands' addresses; those of the product's two factors are not needed."""
        self.bases = [None, None, *bases[2:]]

    def prefetch(self, where: tuple[Value, Value], rows: int, vectors: int) -> None:
        """Prefetches what a micro-tile reads at its end."""
        kernel, builder = self.kernel, self.kernel.builder
        code = kernel.program.code
        read = {code[p].operand for p in self.steps if code[p].name == "load"}
        for n, operand in enumerate(kernel.program.operands):
            if n not in read or (operand.role, operand.stride_class) != (INPUT, CONTIGUOUS):
                continue
            for i in range(rows):
                base = self._bases(builder.add(where[0], i64(i)))[n]
                for v in range(vectors):
                    index = builder.add(where[1], i64(v * kernel.lanes))
                    kernel.prefetch(memory.element(builder, base, index, operand.dtype))

    def is_short(self, count: int) -> bool:
        """Whether the code is short enough to be repeated for `count` vectors."""
        cheap = all(self.kernel.program.code[p].name in CHEAP for p in self.steps)
        return cheap and count * (len(self.steps) + 1) <= MOST_REPEATED

    def from_registers(
        self, values: list[Value], vectors: int, where: tuple[Value, Value], columns: Value
    ) -> None:
        """Finishes whole rows held in registers, `vectors` per row. Where masks cost something, no
        column is missing."""
        lanes = self.kernel.lanes
        masks: list[Mask] = [None] * vectors
        if self.kernel.target.free_masks:
            masks = self.kernel.masks(columns, vectors, lanes)
        bases = self._bases(where[0])
        for first in range(0, len(values), vectors):
            bases = self.kernel.advance(bases, ROWS, i64(1)) if first else bases
            self._row(iter(values[first : first + vectors]), bases, where[1], masks, lanes)

    def from_memory(self, sums: Value, width: int, rows: Range, columns: Range) -> None:
        """Finishes a block of sums in memory, `width` per row. Where masks cost something, the
        columns that fill no vector are finished one by one."""
        kernel, builder = self.kernel, self.kernel.builder
        lanes = min(kernel.lanes, width)
        masks = kernel.masks(columns[1], width // lanes, lanes) if kernel.target.free_masks else []

        def vectors(line: Value, bases: Bases) -> None:
            values = (kernel.load(kernel.at(line, at), lanes) for at in range(0, width, lanes))
            self._row(values, bases, columns[0], masks, lanes)

        def parts(line: Value, bases: Bases) -> None:
            filled = builder.and_(columns[1], i64(-lanes))
            if width == lanes:  # which need not be a power of two
                whole = builder.icmp_signed("==", columns[1], i64(width))
                filled = builder.select(whole, columns[1], i64(0))
            for first, end, count in ((i64(0), filled, lanes), (filled, columns[1], 1)):

                def finish(column: Value, count: int = count) -> None:
                    value = kernel.load(kernel.at(line, column), count)
                    self._row(iter([value]), bases, builder.add(columns[0], column), [None], count)

                kernel.each(first, end, count, finish)

        def row(index: Value) -> None:
            line = kernel.at(sums, builder.mul(index, i64(width)))
            finish = vectors if masks else parts
            finish(line, self._bases(builder.add(rows[0], index)))

        kernel.each(0, rows[1], 1, row)

    def _bases(self, row: Value) -> Bases:
        """The operands' addresses in a row."""
        return self.kernel.advance(self.bases, ROWS, row)

    def _row(
        self, values: Iterator[Value], bases: Bases, column: Value, masks: list[Mask], lanes: int
    ) -> None:
        """Runs the epilogue for the sums of a row from a column on."""
        kernel = self.kernel
        for v, (value, mask) in enumerate(zip(values, masks, strict=True)):
            index = kernel.builder.add(column, i64(v * lanes))
            site = Site(kernel.access, bases, index, lanes, mask)
            kernel.access.print(self.steps, site, {**kernel.fixed, self.sum: value})

"""Reductions of short rows: lanes lie across many adjacent rows (see `either`)."""

from __future__ import annotations

from typing import Any

from gemel.codegen.analysis import Analysis
from gemel.codegen.language.program import (
    ACROSS,
    CHOOSING,
    CONTIGUOUS,
    INDEX,
    INPUT,
    OUTER,
    OUTPUT,
    STRIDED,
    Operand,
    Program,
)
from gemel.codegen.llvm import memory
from gemel.codegen.llvm.access import Access, Bases, Site, Values
from gemel.codegen.llvm.assembly import Value
from gemel.codegen.llvm.registers import shuffle_mask
from gemel.codegen.loops.frame import i64
from gemel.codegen.loops.plain import Loops
from gemel.dtype import DType

#: The longest row that is transposed: if there is one sweep over it, and if there are several, or
#: what lanes carry takes long to combine.
SHORT = (48, 96)


class ShortRows(Loops):
    """Loops with lanes across the rows.

    Operands along the rows are transposed in squares into strips, in which a vector holds one
    position of all rows; outputs along the rows are transposed back. So no lanes are wasted on
    positions that a row does not have, and nothing is combined across lanes.
    """

    has_long_rows = False

    def __init__(self, kernel: Loops, program: Program) -> None:
        super().__init__(program, kernel.target)
        self.module, self.builder = kernel.module, kernel.builder
        self.access = Access(program, kernel.target, kernel.builder)
        self.access.status, self.access.extra = kernel.access.status, kernel.access.extra
        self.extents, self.fixed = kernel.extents, kernel.fixed
        #: The rows of a strip, the side of a square, and the strips.
        self.width = self.outer_copies() * self.lanes
        self.side = min(4, self.lanes)
        several = any(len(kind.dtypes) > 1 for kind in self.reductions.values())
        self.longest = SHORT[self.analysis.last > 0 or several]
        # Shorter rows than four vectors are summed one vector after the other.
        self.longest = max(self.longest, 4 * kernel.lanes - 1)
        self.strips: dict[int, Value] = {}
        self._stop = self.end
        along = program.rank - 1
        #: Strips of inputs that outputs may use again; inputs and outputs may share memory anyway.
        spare: dict[DType, list[Value]] = {}
        for n, operand in enumerate(program.operands):
            strides = {d: kernel.access.strides.get((n, d)) for d in range(program.rank)}
            if operand.varies:
                plain = kernel.program.operands[n].stride_class  # if known without an integer
                strides[along] = strides[along] or i64(int(plain == CONTIGUOUS))
            if operand.stride_class == ACROSS and n in kernel.used_operands():
                strides[along] = i64(self.width)
                others = spare.setdefault(operand.dtype, [])
                if operand.role == OUTPUT and others:
                    self.strips[n] = others.pop()
                else:
                    self.strips[n] = memory.room(
                        self.builder, operand.dtype, self.longest * self.width
                    )
                    others += [self.strips[n]] * (operand.role == INPUT)
            self.access.strides.update({(n, d): s for d, s in strides.items() if s})

    @classmethod
    def of(cls, kernel: Loops) -> ShortRows | None:
        """Such loops for the program of `kernel`, whose beginning is written already; None if the
        program has no rows to transpose."""
        program = kernel.program
        names = {step.name for step in program.code}
        if program.vectors_along == OUTER or program.inner > 1 or names & {"scan", "scatter_add"}:
            return None
        gathered = {step.operand for step in program.code if step.name in CHOOSING}
        operands = tuple(
            o._replace(stride_class=_crosswise(o, n in gathered), interleaved=None)
            for n, o in enumerate(program.operands)
        )
        if all(operand.stride_class != ACROSS for operand in operands):
            return None
        across = program._replace(schedule=OUTER, operands=operands)
        lanes = Analysis(across).lanes(kernel.target.width)
        return cls(kernel, across) if 1 < lanes <= 16 else None

    def pays(self) -> Value:
        """Whether rows are short, and enough of them are side by side."""
        builder, (*_, rows, extent) = self.builder, self.extents
        short = builder.icmp_signed("<=", extent, i64(self.longest))
        return builder.and_(short, builder.icmp_signed(">=", rows, i64(self.lanes // 2)))

    def run(self, bases: Bases) -> None:
        """All loops."""
        self.run_rows(bases, self.outer_row, self.program.outer - 1)

    def outer_copies(self) -> int:
        return 2

    def outer_row(self, start: Value, stop: Value, bases: Bases) -> None:
        self._stop = stop
        super().outer_row(start, stop, bases)

    def vector_loop(self, start: Value, stop: Value, copies: int, *others: Any, **more: Any) -> Any:
        """All vectors under masks, if there are masks: they cost little here and halve the code."""
        if not self.masks:
            return super().vector_loop(start, stop, copies, *others, **more)
        carried, body, *_ = others
        step = i64(copies * self.lanes)
        once = lambda index, held: body(index, copies, self.lanes, stop, held)  # noqa: E731
        return self.loop(start, stop, step, carried, once)

    def block_loop(self, stop: Value, step: int, *others: Any) -> list[Value]:
        """A plain loop: short rows are a single block."""
        carried, body, *_ = others
        return self.loop(0, stop, step, carried, body)

    def _points_outer(self, sites: list[Site], row: Values) -> None:
        index, bases, builder = sites[0].index, sites[0].bases, self.builder
        most = i64(len(sites) * sites[0].lanes)
        rows = builder.minimum(builder.sub(self._stop, index), most)
        starts = self.advance(bases, self.program.outer - 1, index)
        inside = list(bases)
        for n, strip in self.strips.items():
            dtype = self.program.operands[n].dtype
            inside[n] = memory.element(builder, strip, builder.sub(i64(0), index), dtype)
        for site in sites:
            site.bases = inside
        for role in (INPUT, OUTPUT):
            for n in self.strips:
                if self.program.operands[n].role == role:
                    self._move(n, starts[n], rows, index)
            if role == INPUT:
                super()._points_outer(sites, row)

    def _move(self, n: int, start: Value, rows: Value, index: Value) -> None:
        """Copies `rows` rows of an operand, from `start` on at `index`, to its strip or back."""
        builder, extent = self.builder, self.extents[-1]
        enough = builder.icmp_signed(">=", rows, i64(self.lanes))
        wide = builder.icmp_signed(">=", extent, i64(self.side))
        if self.program.operands[n].role == INPUT:
            wide = builder.or_(wide, self._runs_on(n, rows, index))
        with builder.if_else(builder.and_(enough, wide)) as (squares, singly):
            with singly:
                self._singly(n, start, rows)
            with squares:
                # The last squares overlap the ones before, so that none reaches past the end.
                low, last = builder.sub(rows, i64(self.lanes)), builder.sub(extent, i64(self.side))
                last = builder.select(builder.icmp_signed("<", last, i64(0)), i64(0), last)

                def square(top: Value, column: Value) -> None:
                    self._prefetch_next_strip(n, start, top, column)
                    row, left = builder.minimum(top, low), builder.minimum(column, last)
                    self._square(n, self._cell(n, start, row, left), self._inside(n, row, left))

                self.each(
                    *(0, rows, self.lanes),
                    lambda row: self.each(0, extent, self.side, lambda left: square(row, left)),
                )

    def _runs_on(self, n: int, rows: Value, index: Value) -> Value:
        """Whether whole squares may be read although rows have only two or three elements: the rows
        follow one another without a gap, and more of them come after."""
        builder, extent = self.builder, self.extents[-1]
        stride = self.access.strides[n, self.program.outer - 1]
        more = builder.icmp_signed("<", builder.add(index, rows), self._stop)
        dense = builder.and_(more, builder.icmp_signed("==", stride, extent))
        return builder.and_(dense, builder.icmp_signed(">", extent, i64(1)))

    def _prefetch_next_strip(self, n: int, start: Value, row: Value, column: Value) -> None:
        """Prefetches as many lines of the strip's next rows, one after another, as a square has."""
        builder, operand = self.builder, self.program.operands[n]
        each = memory.CACHE_LINE // operand.dtype.itemsize
        with builder.if_then(self.many):
            ahead = builder.mul(column, i64(self.lanes))
            pointer = self._cell(n, start, builder.add(row, i64(self.width)), ahead)
            for line in range(0, self.side * self.lanes, each):
                there = memory.element(builder, pointer, i64(line), operand.dtype)
                self.prefetch(there, writes=operand.role == OUTPUT)

    def _cell(self, n: int, start: Value, row: Value, column: Value) -> Value:
        """The address of an element of a row."""
        offset = self.builder.mul(row, self.access.strides[n, self.program.outer - 1])
        dtype = self.program.operands[n].dtype
        return memory.element(self.builder, start, self.builder.add(offset, column), dtype)

    def _inside(self, n: int, row: Value, column: Value) -> Value:
        """The address of the same element in the strip."""
        offset = self.builder.add(self.builder.mul(column, i64(self.width)), row)
        return memory.element(self.builder, self.strips[n], offset, self.program.operands[n].dtype)

    def _singly(self, n: int, start: Value, rows: Value) -> None:
        """Copies `rows` rows, one element after another."""
        operand = self.program.operands[n]

        def one(row: Value, column: Value) -> None:
            ends = self._cell(n, start, row, column), self._inside(n, row, column)
            source, goal = ends if operand.role == INPUT else ends[::-1]
            value = memory.load(self.builder, source, operand.dtype, 1)
            memory.store(self.builder, value, goal, operand.dtype, 1)

        self.each(
            *(0, rows, 1),
            lambda row: self.each(0, self.extents[-1], 1, lambda column: one(row, column)),
        )

    def _square(self, n: int, start: Value, goal: Value) -> None:
        """Transposes `side` elements of as many rows as there are lanes: adjacent squares."""
        builder, side, operand = self.builder, self.side, self.program.operands[n]
        dtype, stride = operand.dtype, self.access.strides[n, self.program.outer - 1]
        parts = []
        for _ in range(self.lanes // side):
            parts += [
                memory.element(builder, start, builder.mul(stride, i64(i)), dtype)
                for i in range(side)
            ]
            start = memory.element(builder, start, builder.mul(stride, i64(side)), dtype)
        lines = [memory.element(builder, goal, i64(i * self.width), dtype) for i in range(side)]
        narrow, wide = (memory.memory_type(dtype, lanes) for lanes in (side, self.lanes))
        size = dtype.itemsize
        if operand.role == INPUT:
            found = [builder.load(part, narrow, size) for part in parts]
            rows = [memory.side_by_side(builder, found[i::side]) for i in range(side)]
            for line, vector in zip(lines, memory.transposed(builder, rows), strict=True):
                builder.store(vector, line, size)
            return
        rows = memory.transposed(builder, [builder.load(line, wide, size) for line in lines])
        for number, part in enumerate(parts):
            first = number // side * side
            which = shuffle_mask(tuple(range(first, first + side)))
            row = rows[number % side]
            builder.store(builder.shuffle_vector(row, row, which), part, size)


def _crosswise(operand: Operand, gathered: bool) -> int:
    """The class of an operand along the loop over the rows."""
    if operand.beside != STRIDED or operand.role == INDEX:
        return operand.beside
    across = operand.stride_class == CONTIGUOUS and operand.varies and not gathered
    return ACROSS if across else STRIDED

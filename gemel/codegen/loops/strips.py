"""Columns of large arrays that are reduced: a strip of them at a time, a few rows at a time.

Reducing a few vectors of columns from the first row to the last reads a short piece of each row.
The processor's prefetchers do not predict that, so it runs at half of the memory's rate, or less.
Here a few rows of a whole strip of columns are read before the next few rows. In between, the
states of the columns are kept in the kernel's own memory. It is one of the ways that a kernel
contains (`either`); all of them add up sums in the same order.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from gemel.codegen.language.program import CHOOSING, CONTIGUOUS, INPUT, OUTER
from gemel.codegen.llvm import memory
from gemel.codegen.llvm.access import Bases, Site, Values
from gemel.codegen.llvm.assembly import Builder, Value
from gemel.codegen.llvm.reductions import BLOCK, Accumulator, State, flatten, unflatten
from gemel.codegen.llvm.registers import splat
from gemel.codegen.loops.frame import Carried, i64
from gemel.codegen.loops.plain import MANY, Loops
from gemel.codegen.loops.vectors import Rest, SomeVectors
from gemel.dtype import DType

#: How many rows are read before the next columns: a power of two, at most a block of sums.
ROWS = 8
#: The most columns of a strip; and the most columns for which rows are not prefetched.
COLUMNS, NARROW = 2048, 512
#: How many vectors of a strip are processed at a time, counted over all reductions: as many as half
#: of the registers hold if a row costs at most CHEAP operations, else FEWER.
CHEAP, FEWER = 12, 4
#: The most reductions; the states of each take 8 to 48 KB of the stack.
MOST = 4
#: Two levels: blocks of sums, and blocks of blocks.
LEVELS = 2


class Strips:
    """The loops of such a kernel; `kernel` prints the code inside them."""

    def __init__(self, kernel: Loops) -> None:
        self.kernel, self.lanes = kernel, kernel.lanes
        self.builder: Builder = kernel.builder
        self.rows = kernel.extents[-1]
        self.copies = kernel.target.registers // 2
        self.sweep = kernel.analysis.sweeps[0]
        self.first = i64(0)  # the strip's first column
        kinds = {p: kernel.reductions[p] for p in self.sweep.reductions}
        #: How many columns a strip has at most: fewer if a reduction carries several values.
        self.columns = COLUMNS // _power_of_two(max(len(kind.dtypes) for kind in kinds.values()))
        self.states = {p: _States(self, kind) for p, kind in kinds.items()}

    @classmethod
    def of(cls, kernel: Loops) -> Strips | None:
        """Such loops for the program of `kernel`, whose beginning is written already; None
        unless the program reduces one axis in one sweep that reads whole vectors."""
        program, analysis = kernel.program, kernel.analysis
        names = {program.code[p].name for p in analysis.live}
        of_columns = program.vectors_along == OUTER and program.inner == 1
        if not of_columns or "reduce" not in names or analysis.last:
            return None
        if names & {"scan", *CHOOSING, "scatter_add", "check"} or kernel.lanes < 4:
            return None
        used = (program.operands[n] for n in kernel.used_operands())
        varying = [operand for operand in used if operand.varies]
        along = all((o.role, o.stride_class) == (INPUT, CONTIGUOUS) for o in varying)
        few = len(analysis.sweeps[0].reductions) <= MOST
        return cls(kernel) if varying and along and few else None

    def pays(self) -> Value:
        """Whether there are enough columns and rows, and together they exceed the cache."""
        builder, (elements, *others) = self.builder, self.kernel.extents
        for extent in others:
            elements = builder.mul(elements, extent)
        columns = others[-2] if len(others) > 1 else builder.sub(self.kernel.end, self.kernel.begin)
        wide = builder.icmp_signed(">=", columns, i64(self.copies * self.lanes))
        high = builder.icmp_signed(">=", self.rows, i64(2 * ROWS))
        many = builder.icmp_signed(">=", elements, i64(MANY))
        return builder.and_(many, builder.and_(wide, high))

    def run(self, bases: Bases) -> None:
        """All loops."""
        kernel = self.kernel
        before, kernel.hides_steps = kernel.hides_steps, True
        kernel.run_rows(bases, self._columns, kernel.program.outer - 1)
        kernel.hides_steps = before

    def _columns(self, start: Value, stop: Value, bases: Bases) -> None:
        """All columns of a range, at one position of the other outer dimensions."""
        kernel, builder = self.kernel, self.builder
        given = kernel.access.print(kernel.analysis.row(), Site(kernel.access, bases), kernel.fixed)
        # With few columns, one row follows the other, which prefetchers predict.
        columns = kernel.extents[kernel.program.outer - 1]
        kernel.many = builder.icmp_signed(">", columns, i64(NARROW))

        def strip(first: Value) -> None:
            self.first = first
            end = builder.minimum(builder.add(first, i64(self.columns)), stop)
            self._reduce(end, bases, given)
            self._write(end, bases, given)

        kernel.each(start, stop, self.columns, strip)

    def _reduce(self, stop: Value, bases: Bases, row: Values) -> None:
        """Reduces all rows of a strip."""
        kernel, builder, states = self.kernel, self.builder, list(self.states.values())
        cheap = kernel.analysis.cost(self.sweep.varying) <= CHEAP
        values = _power_of_two(sum(len(one.kind.dtypes) for one in states))
        copies = max(1, (self.copies if cheap else FEWER) // values)
        self._each([one.begin for one in states], stop)

        def some(begin: Value) -> None:
            end = builder.minimum(builder.add(begin, i64(ROWS)), self.rows)
            vectors = self._vectors(begin, end, bases, row)
            rest = Rest(tail=min(copies, FEWER), writes=False)
            kernel.vector_loop(self.first, stop, copies, [], vectors, rest)
            self._end_blocks([one for one in states if one.kind.blocked], stop, end)

        kernel.each(0, self.rows, ROWS, some)

    def _vectors(self, begin: Value, end: Value, bases: Bases, row: Values) -> SomeVectors:
        """Reduces some rows of some vectors of a strip."""
        kernel, analysis, sweep = self.kernel, self.kernel.analysis, self.sweep
        count, reductions = len(self.states), list(self.states.values())

        def body(index: Value, copies: int, lanes: int, stop: Value | None, _: Carried) -> Carried:
            sites = [kernel.site(bases, index, copy, lanes, stop) for copy in range(copies)]
            given = [kernel.access.print(analysis.point(0, True), site, row) for site in sites]
            states = [one.load(site) for site in sites for one in reductions]
            one_row = kernel.row_of(sweep, sites, given)

            def once(position: Value, held: Carried) -> Carried:
                inside = kernel.advance(bases, kernel.program.outer, position)
                if stop is None:
                    kernel.prefetch_ahead(sweep, inside, sites)
                return flatten(one_row(inside, position, unflatten(held, states)))

            found = unflatten(kernel.loop(begin, end, 1, flatten(states), once), states)
            for number, state in enumerate(found):
                reductions[number % count].store(state, sites[number // count])
            return []

        return body

    def _write(self, stop: Value, bases: Bases, row: Values) -> None:
        """Computes and writes what follows from the reductions."""
        kernel, analysis = self.kernel, self.kernel.analysis

        def body(index: Value, copies: int, lanes: int, end: Value | None, _: Carried) -> Carried:
            site = kernel.site(bases, index, 0, lanes, end)
            given = kernel.access.print(analysis.point(0, True), site, row)
            for p, states in self.states.items():
                given |= kernel.parts_of(p, states.result(site))
            kernel.access.print(analysis.point(1, True), site, given)
            return []

        if kernel.target.free_masks:  # one loop for whole and partial vectors: it is little work
            once = lambda index, held: body(index, 1, self.lanes, stop, held)  # noqa: E731
            kernel.loop(self.first, stop, self.lanes, [], once)
        else:
            kernel.vector_loop(self.first, stop, 1, [], body)

    def _end_blocks(self, sums: list[_States], stop: Value, end: Value, level: int = 1) -> None:
        """Where a block ends, joins its states to those of earlier blocks; where a block of blocks
        ends, joins that, too."""
        if not sums or level > LEVELS:
            return
        builder, inside = self.builder, i64(BLOCK**level - 1)
        ended = builder.icmp_signed("==", builder.and_(end, inside), i64(0))
        with builder.if_then(ended, likely=False):
            self._each([partial(one.end_block, level) for one in sums], stop)
            self._end_blocks(sums, stop, end, level + 1)

    def _each(self, tasks: list[Callable[[Site], None]], stop: Value) -> None:
        """Runs tasks for all vectors of a strip; the last is whole, too, since rooms hold it."""

        def once(index: Value) -> None:
            for task in tasks:
                task(Site(self.kernel.access, [], index, self.lanes))

        self.kernel.each(self.first, stop, self.lanes, once)


def _power_of_two(number: int) -> int:
    """The least power of two that is not less."""
    return 1 << (number - 1).bit_length()


class _States:
    """The states of one reduction for each column of a strip: one for the rows of the current block
    of sums, one for the blocks, one for the blocks of blocks."""

    def __init__(self, strips: Strips, kind: Accumulator) -> None:
        self.strips, self.builder, self.kind = strips, strips.builder, kind
        self.rooms = [
            [memory.room(self.builder, dtype, strips.columns) for dtype in kind.dtypes]
            for _ in range(1 + LEVELS * kind.blocked)
        ]

    def _pointers(self, site: Site, level: int) -> list[tuple[Value, DType]]:
        """The addresses of the parts of a site's states."""
        column = self.builder.sub(site.index, self.strips.first)
        parts = zip(self.rooms[level], self.kind.dtypes, strict=True)
        return [(memory.element(self.builder, room, column, d), d) for room, d in parts]

    def load(self, site: Site, level: int = 0) -> State:
        """Loads the states of a site's columns."""
        pointers = self._pointers(site, level)
        return [memory.load(self.builder, pointer, d, site.lanes) for pointer, d in pointers]

    def store(self, state: State, site: Site, level: int = 0) -> None:
        """Stores the states of a site's columns."""
        for (pointer, dtype), value in zip(self._pointers(site, level), state, strict=True):
            whole = splat(self.builder, value, site.lanes)
            memory.store(self.builder, whole, pointer, dtype, site.lanes)

    def begin(self, site: Site) -> None:
        """Sets the states before the first row."""
        for level in range(len(self.rooms)):
            self.store(self.kind.identity(site.lanes), site, level)

    def end_block(self, level: int, site: Site) -> None:
        """Joins a block of the level below to the earlier ones."""
        whole = self.kind.join(self.builder, self.load(site, level), self.load(site, level - 1))
        self.store(whole, site, level)
        self.store(self.kind.identity(site.lanes), site, level - 1)

    def result(self, site: Site) -> State:
        """The reduction's state at its end: all levels joined, in the order of `in_blocks`."""
        total = self.load(site)
        for level in range(1, len(self.rooms)):
            total = self.kind.join(self.builder, self.load(site, level), total)
        return total

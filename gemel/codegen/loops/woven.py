"""Reductions with few columns: a vector holds several rows.

Rows without a gap between them fill a vector together; its lanes repeat the same columns. It is one
of the ways that a kernel contains (`either`). At the end of a sweep, the lanes of each column are
joined, in the order of the lanes, and copied to all of its lanes for the next sweep.
"""

from __future__ import annotations

from gemel.codegen.analysis import Sweep
from gemel.codegen.language.program import CHOOSING, CONTIGUOUS, INPUT, OUTER, OUTPUT
from gemel.codegen.llvm import memory
from gemel.codegen.llvm.access import Bases, Site, Values
from gemel.codegen.llvm.assembly import Builder, Value
from gemel.codegen.llvm.reductions import Accumulator, State, flatten, joined, unflatten
from gemel.codegen.loops.frame import Carried, i64
from gemel.codegen.loops.plain import Loops, Reducer

#: The most vectors processed at a time.
COPIES = 2
#: From this many rows on the work at the end of a sweep pays: with one sweep, and with several.
WORTH = (12, 40)


class Woven:
    """The loops of such a kernel; `kernel` prints the code inside them."""

    def __init__(self, kernel: Loops) -> None:
        self.kernel, self.lanes = kernel, kernel.lanes
        self.builder: Builder = kernel.builder
        builder, (*_, self.columns, self.rows) = self.builder, kernel.extents
        #: How many whole rows a vector holds, and how many lanes they take.
        some = builder.select(self._few(), self.columns, i64(1))
        self.times = builder.udiv(i64(self.lanes), some)
        self.wide = builder.mul(self.times, self.columns)
        #: Memory for moving values between lanes, by the dtypes of what is carried.
        self.rooms = {
            kind.dtypes: [memory.room(builder, dtype, 2 * self.lanes) for dtype in kind.dtypes]
            for kind in kernel.reductions.values()
        }

    @classmethod
    def of(cls, kernel: Loops) -> Woven | None:
        """Such loops for the program of `kernel`, whose beginning is written already; None
        unless all it reads is contiguous along its columns and all it writes is reduced."""
        program, analysis = kernel.program, kernel.analysis
        names = {program.code[p].name for p in analysis.live}
        # The reduced axis lies between others, so that rows can follow one another without a gap.
        between = program.vectors_along == OUTER and program.outer > 1 and program.inner == 1
        if not between or "reduce" not in names or not kernel.masks:
            return None
        if names & {"scan", *CHOOSING, "scatter_add", "check"} or kernel.lanes < 4:
            return None
        if any(kind.counts for kind in kernel.reductions.values()):
            return None
        read = all(
            (o.role, o.stride_class, o.varies) == (INPUT, CONTIGUOUS, True)
            or (o.role, o.stride_class, o.varies) == (OUTPUT, CONTIGUOUS, False)
            for o in program.operands
        )
        uniform = any(sweep.uniform for sweep in analysis.sweeps)
        return cls(kernel) if read and not uniform else None

    def _few(self) -> Value:
        """Whether there are columns, but not more than a vector has lanes."""
        fewer = self.builder.sub(self.columns, i64(1))
        return self.builder.icmp_unsigned("<", fewer, i64(self.lanes))

    def pays(self) -> Value:
        """Whether there are few columns and many rows without a gap between them."""
        builder, kernel = self.builder, self.kernel
        least = i64(WORTH[kernel.analysis.last > 0])
        found = builder.and_(self._few(), builder.icmp_signed(">=", self.rows, least))
        for number, operand in enumerate(kernel.program.operands):
            stride = kernel.access.strides.get((number, kernel.program.outer))
            if operand.varies and stride is not None:
                dense = builder.icmp_signed("==", stride, self.columns)
                found = builder.and_(found, dense)
        return found

    def run(self, bases: Bases) -> None:
        """All loops."""
        self.kernel.run_rows(bases, self._columns, self.kernel.program.outer - 1)

    def _columns(self, _start: Value, _stop: Value, bases: Bases) -> None:
        """All columns, at one position of the other outer dimensions."""
        kernel, analysis = self.kernel, self.kernel.analysis
        given = kernel.access.print(analysis.row(), Site(kernel.access, bases), kernel.fixed)
        mask = kernel.first_lanes(self.columns, self.lanes)
        for stage in range(analysis.last + 2):
            site = Site(kernel.access, bases, i64(0), self.lanes, mask)
            given = kernel.access.print(analysis.point(stage, True), site, given)
            if stage <= analysis.last:
                given = self._sweep(analysis.sweeps[stage], bases, given, stage < analysis.last)

    def _sweep(self, sweep: Sweep, bases: Bases, given: Values, again: bool) -> Values:
        """One sweep over all rows."""
        kernel, builder, lanes = self.kernel, self.builder, self.lanes
        kinds: list[Accumulator] = [kernel.reductions[p] for p in sweep.reductions]
        copies = min(COPIES, kernel.outer_copies())
        reducer = Reducer(sweep, [kind.identity(lanes) for _ in range(copies) for kind in kinds])
        elements = builder.mul(self.rows, self.columns)
        step = builder.mul(self.wide, i64(copies))
        whole = builder.sdiv(elements, step)
        full = memory.first_lanes(builder, self.wide, lanes)

        def some(index: Value, masks: list[Value], held: Carried) -> Carried:
            current = unflatten(held, reducer.initial)

            def one(copy: int) -> tuple[Site, Values]:
                start = builder.add(index, builder.mul(self.wide, i64(copy)))
                site = Site(kernel.access, bases, start, lanes, masks[copy])
                found = kernel.access.print_sweep(sweep, site, given)
                kernel.accumulate(
                    sweep, found, current, copy * len(kinds), start, lanes, masks[copy]
                )
                return site, found

            kernel.at_sites(sweep, len(masks), one)
            return flatten(current)

        def all_of(number: Value, held: Carried) -> Carried:
            return some(builder.mul(number, step), [full] * copies, held)

        def last_of(index: Value, held: Carried) -> Carried:
            left = builder.minimum(builder.sub(elements, index), self.wide)
            return some(index, [memory.first_lanes(builder, left, lanes)], held)

        held = kernel.block_loop(whole, 1, flatten(reducer.initial), all_of, reducer, 2)
        held = kernel.loop(builder.mul(whole, step), elements, self.wide, held, last_of)
        ends = unflatten(held, reducer.initial)
        found = dict(given)
        for offset, p in enumerate(sweep.reductions):
            total = joined(builder, kinds[offset], ends[offset :: len(kinds)])
            found.update(kernel.parts_of(p, self._by_column(kinds[offset], total, again)))
        return found

    def _by_column(self, kind: Accumulator, state: State, again: bool) -> State:
        """The lanes of each column joined; in the first lanes only, or (`again`) in all of them."""
        kernel, builder, lanes = self.kernel, self.builder, self.lanes
        rooms = list(zip(self.rooms[kind.dtypes], kind.dtypes, strict=True))

        def loaded(time: Value) -> State:
            first = builder.mul(time, self.columns)
            places = [(memory.element(builder, room, first, d), d) for room, d in rooms]
            return [memory.load(builder, place, dtype, lanes) for place, dtype in places]

        def write(time: Value, state: State) -> None:
            first = builder.mul(time, self.columns)
            for value, (room, dtype) in zip(state, rooms, strict=True):
                place = memory.element(builder, room, first, dtype)
                memory.store(builder, value, place, dtype, lanes)

        write(i64(0), state)
        joined_to = lambda time, held: kind.join(builder, held, loaded(time))  # noqa: E731
        total: State = kernel.loop(1, self.times, 1, state, joined_to)
        if not again:
            return total
        kernel.each(0, self.times, 1, lambda time: write(time, total))
        return loaded(i64(0))

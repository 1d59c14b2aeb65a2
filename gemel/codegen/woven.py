"""Reductions with few columns: a vector holds several rows.

Rows without a gap between them fill a vector together; its lanes repeat the same columns. It is one
of the ways that a kernel contains (`either`). At the end of a pass, the lanes of each column are
joined, in the order of the lanes, and copied to all of its lanes for the next pass.
"""

from __future__ import annotations

from gemel.codegen import memory
from gemel.codegen.access import Bases, Site, Values
from gemel.codegen.analysis import Pass
from gemel.codegen.assembly import Builder, Value
from gemel.codegen.frame import Carried, i64
from gemel.codegen.loops import Course, Loops
from gemel.codegen.program import CONTIGUOUS, INPUT, OUTER, OUTPUT
from gemel.codegen.reductions import Accumulator, State, flatten, joined, unflatten

#: The most vectors processed at a time.
COPIES = 2
#: From this many rows on the work at the end of a pass pays: with one pass, and with several.
WORTH = (12, 40)


class Woven:
    """The loops of such a kernel; `nest` prints the code inside them."""

    def __init__(self, nest: Loops) -> None:
        self.nest, self.lanes = nest, nest.lanes
        self.builder: Builder = nest.builder
        builder, (*_, self.columns, self.rows) = self.builder, nest.extents
        #: How many whole rows a vector holds, and how many lanes they take.
        some = builder.select(self._few(), self.columns, i64(1))
        self.times = builder.udiv(i64(self.lanes), some)
        self.wide = builder.mul(self.times, self.columns)
        #: Memory for moving values between lanes, by dtype.
        self.rooms = {
            kind.dtype: memory.room(builder, kind.dtype, 2 * self.lanes)
            for kind in nest.reductions.values()
        }

    @classmethod
    def of(cls, nest: Loops) -> Woven | None:
        """Such loops for the program of `nest`, whose beginning is written already; None unless all
        it reads is contiguous along its columns and all it writes is reduced."""
        program, analysis = nest.program, nest.analysis
        names = {program.code[p].name for p in analysis.live}
        # The reduced axis lies between others, so that rows can follow one another without a gap.
        between = program.lanes == OUTER and program.outer > 1 and program.inner == 1
        if not between or "reduce" not in names or not nest.masks:
            return None
        if names & {"scan", "gather", "scatter_add", "check"} or nest.lanes < 4:
            return None
        if any(kind.positions for kind in nest.reductions.values()):
            return None
        read = all(
            (o.role, o.stride_class, o.varies) == (INPUT, CONTIGUOUS, True)
            or (o.role, o.stride_class, o.varies) == (OUTPUT, CONTIGUOUS, False)
            for o in program.operands
        )
        uniform = any(work.uniform for work in analysis.passes)
        return cls(nest) if read and not uniform else None

    def _few(self) -> Value:
        """Whether there are columns, but not more than a vector has lanes."""
        fewer = self.builder.sub(self.columns, i64(1))
        return self.builder.icmp_unsigned("<", fewer, i64(self.lanes))

    def pays(self) -> Value:
        """Whether there are few columns and many rows without a gap between them."""
        builder, nest = self.builder, self.nest
        least = i64(WORTH[nest.analysis.last > 0])
        found = builder.and_(self._few(), builder.icmp_signed(">=", self.rows, least))
        for number, operand in enumerate(nest.program.operands):
            stride = nest.access.strides.get((number, nest.program.outer))
            if operand.varies and stride is not None:
                dense = builder.icmp_signed("==", stride, self.columns)
                found = builder.and_(found, dense)
        return found

    def walk(self, bases: Bases) -> None:
        """All loops."""
        self.nest.run_rows(bases, self._columns, self.nest.program.outer - 1)

    def _columns(self, _start: Value, _stop: Value, bases: Bases) -> None:
        """All columns, at one position of the other outer dimensions."""
        nest, builder, analysis = self.nest, self.builder, self.nest.analysis
        given = nest.access.print(analysis.row(), Site(nest.access, bases), nest.fixed)
        mask = memory.first(builder, self.columns, self.lanes)
        for stage in range(analysis.last + 2):
            site = Site(nest.access, bases, i64(0), self.lanes, mask)
            given = nest.access.print(analysis.point(stage, True), site, given)
            if stage <= analysis.last:
                given = self._pass(analysis.passes[stage], bases, given, stage < analysis.last)

    def _pass(self, work: Pass, bases: Bases, given: Values, again: bool) -> Values:
        """One pass over all rows."""
        nest, builder, lanes = self.nest, self.builder, self.lanes
        kinds: list[Accumulator] = [nest.reductions[p] for p in work.reductions]
        copies = min(COPIES, nest._copies_outer())
        course = Course(work, [kind.identity(lanes) for _ in range(copies) for kind in kinds])
        places = builder.mul(self.rows, self.columns)
        step = builder.mul(self.wide, i64(copies))
        whole = builder.sdiv(places, step)
        full = memory.first(builder, self.wide, lanes)

        def some(index: Value, masks: list[Value], held: Carried) -> Carried:
            current = unflatten(held, course.states)

            def one(copy: int) -> tuple[Site, Values]:
                place = builder.add(index, builder.mul(self.wide, i64(copy)))
                site = Site(nest.access, bases, place, lanes, masks[copy])
                found = nest.access.print_pass(work, site, given)
                nest.take_in(work, found, current, copy * len(kinds), place, lanes, masks[copy])
                return site, found

            nest.at_sites(work, len(masks), one)
            return flatten(current)

        def all_of(number: Value, held: Carried) -> Carried:
            return some(builder.mul(number, step), [full] * copies, held)

        def last_of(index: Value, held: Carried) -> Carried:
            left = builder.minimum(builder.sub(places, index), self.wide)
            return some(index, [memory.first(builder, left, lanes)], held)

        held = nest._blocks(whole, 1, flatten(course.states), all_of, course, 2)
        held = nest.loop(builder.mul(whole, step), places, self.wide, held, last_of)
        ends = unflatten(held, course.states)
        found = dict(given)
        for offset, p in enumerate(work.reductions):
            total = joined(builder, kinds[offset], ends[offset :: len(kinds)])
            found[p] = kinds[offset].result(builder, self._by_column(kinds[offset], total, again))
        return found

    def _by_column(self, kind: Accumulator, state: State, again: bool) -> State:
        """The lanes of each column joined; in the first lanes only, or (`again`) in all of them."""
        nest, builder, lanes, dtype = self.nest, self.builder, self.lanes, kind.dtype
        room = self.rooms[dtype]

        def place(time: Value) -> Value:
            return memory.element(builder, room, builder.mul(time, self.columns), dtype)

        memory.store(builder, state[0], room, dtype, lanes)

        def joined_to(time: Value, held: Carried) -> Carried:
            return kind.join(builder, held, [memory.load(builder, place(time), dtype, lanes)])

        total: State = nest.loop(1, self.times, 1, state, joined_to)
        if not again:
            return total

        def write(time: Value) -> None:
            memory.store(builder, total[0], place(time), dtype, lanes)

        nest.each(0, self.times, 1, write)
        return [memory.load(builder, room, dtype, lanes)]

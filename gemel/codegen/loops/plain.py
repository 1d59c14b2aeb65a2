"""Loop programs to LLVM IR: the nest of loops around what `Printer` prints.

Vectors are explicit; the loop along them is in `vectors`. Reductions keep several accumulators.
Floating-point sums are computed in blocks (`reductions.in_blocks`), so that errors grow with the
number of blocks, not of elements. The order of all this depends only on the extents.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from typing import NamedTuple

from gemel.codegen.analysis import Sweep
from gemel.codegen.language.largest import spared
from gemel.codegen.language.program import (
    ACROSS,
    CONTIGUOUS,
    INDEX,
    INPUT,
    OUTER,
    OUTPUT,
    Operand,
    Program,
)
from gemel.codegen.llvm import memory
from gemel.codegen.llvm.access import Bases, Site, Values
from gemel.codegen.llvm.assembly import I1, Constant, Module, Value
from gemel.codegen.llvm.reductions import (
    State,
    accumulator,
    flatten,
    in_blocks,
    joined,
    unflatten,
)
from gemel.codegen.llvm.registers import splat
from gemel.codegen.loops.frame import Body, Carried, i64
from gemel.codegen.loops.squares import Squares
from gemel.codegen.loops.vectors import Rest, Vectors
from gemel.codegen.target import Target
from gemel.dtype import DType

#: How many rows ahead cache lines are prefetched if columns are reduced.
AHEAD = 16
#: Each sweep goes over this many rows before the next sweep does, if these rows have at most this
#: many elements: the first number is for arrays of `FAR` elements or more, the second for smaller.
GROUP, GROUP_ELEMENTS = 8, (1536, 8192)
#: If the arrays have MANY elements together, they exceed the second-level cache, and lines of
#: later rows are prefetched; if the rows have FAR elements, they exceed the third.
MANY, FAR = 1 << 18, 1 << 20

#: The body of loops that carry nothing.
Inside = Callable[[Bases], None]
#: One inner position: maps its bases, its number and the states before it to those after it.
Row = Callable[[Bases, Value, list[State]], list[State]]


class Reducer(NamedTuple):
    """A sweep, and the initial states of its reductions."""

    sweep: Sweep
    initial: list[State]


class Loops(Vectors):
    """The kernel of the schedules ``outer`` and ``inner``, without what `either` adds."""

    has_long_rows = True

    def __init__(self, program: Program, target: Target) -> None:
        super().__init__(spared(program), target)
        program = self.program
        #: Whether all arrays together have `MANY` elements, and how many rows each sweep goes over.
        self.many: Value = Constant(I1, 0)
        self._apart = i64(1)
        #: Whether columns that are far away are read by strips instead.
        self.by_strips = False
        #: Values of a group's rows that later sweeps need: their address and their dtype.
        self._rooms: dict[int, tuple[Value, DType]] = {}
        self.reductions = {
            position: accumulator(
                step.attribute,
                program.code[step.arguments[0]].dtype,
                self.target,
                self.has_long_rows,
            )
            for position, step in enumerate(program.code)
            if step.name in ("reduce", "scan")
        }
        #: The factors of products that a sum over windows adds without rounding them.
        self.factors = self._factors() if program.parsed_schedule.rows else {}

    def _factors(self) -> dict[int, tuple[int, ...]]:
        """By the position of a floating-point sum: the two factors of its terms."""
        code = self.program.code
        sums = [p for p, kind in self.reductions.items() if kind.blocked]
        terms = {position: code[code[position].arguments[0]] for position in sums}
        return {p: term.arguments for p, term in terms.items() if term.name == "multiply"}

    # -- the whole function -----------------------------------------------------------------------

    def build(self) -> Module:
        """Prints the function and returns its module."""
        bases = self.enter()
        self.run(bases)
        self.builder.ret(self.access.result())
        return self.module

    def run(self, bases: Bases) -> None:
        """All loops, in the program's schedule."""
        program = self.program
        if program.vectors_along != OUTER:
            known = sorted(set().union(*self.analysis.known_later()))
            spilled = [(p, program.code[p].dtype) for p in known]
            self._rooms = {p: (memory.room(self.builder, d, GROUP), d) for p, d in spilled}
            self.run_rows(bases, self._rows_inner, program.outer - 1)
        elif any(operand.stride_class == ACROSS for operand in program.operands):
            self.run_rows(bases, Squares(self).run, program.outer - 2)
        else:
            self.run_rows(bases, self.outer_row, program.outer - 1)

    def run_rows(
        self, bases: Bases, rows: Callable[[Value, Value, Bases], None], dimension: int
    ) -> None:
        """All loops: `rows(start, stop, bases)` prints those from this outer dimension on."""
        if dimension == 0:
            rows(self.begin, self.end, bases)
        else:
            body = lambda inside: rows(i64(0), self.extents[dimension], inside)  # noqa: E731
            self._walk(0, dimension, self.begin, self.end, bases, body)

    # -- loops ------------------------------------------------------------------------------------

    def _walk(
        self, dimension: int, stop: int, begin: Value, end: Value, bases: Bases, body: Inside
    ) -> None:
        """Nested loops over the outer dimensions from `dimension` to `stop`, the first over a
        range."""
        if dimension == stop:
            body(bases)
            return

        def once(index: Value) -> None:
            inside = self.advance(bases, dimension, index)
            extent = self.extents[dimension + 1]
            self._walk(dimension + 1, stop, i64(0), extent, inside, body)

        self.each(begin, end, 1, once)

    # -- lanes along the last outer dimension -----------------------------------------------------

    def outer_row(self, start: Value, stop: Value, bases: Bases) -> None:
        """The vector loop at one position of the other outer dimensions."""
        site = Site(self.access, bases)
        self.many = self._are_many(2 * self.outer_copies() * self.lanes)
        given = self.access.print(self.analysis.row(), site, self.fixed)

        def body(index: Value, copies: int, lanes: int, stop: Value | None, _: Carried) -> Carried:
            sites = [self.site(bases, index, copy, lanes, stop) for copy in range(copies)]
            self._points_outer(sites, given)
            return []

        copies = self.outer_copies()
        self.vector_loop(start, stop, copies, [], body, self._rest(copies))

    def _rest(self, copies: int) -> Rest:
        """How the vectors are computed that fill no whole group of `copies`."""
        if not self.program.inner:
            # If little is computed, code for pieces is shorter than for stores under masks.
            little = copies > 2 or not self.masks
            return Rest(pieces=little and not self.target.free_masks)
        writes = any(o.role == OUTPUT and o.varies for o in self.program.operands)
        if copies == 1:
            return Rest(writes=writes)
        # A sweep along columns waits for memory, so a second vector takes no extra time. But if
        # rows are written, loads in the next row would wait for what a masked store leaves out.
        return Rest(fewer=2) if writes else Rest(tail=2, writes=False)

    def _are_many(self, above: int = 0) -> Value:
        """Whether the arrays have `MANY` elements, over the last outer and all inner dimensions,
        and the extent of the last outer dimension exceeds `above`."""
        builder, rows = self.builder, self.extents[self.program.outer - 1 :]
        arrays = sum(o.varies and o.role != INDEX for o in self.program.operands)
        enough = builder.icmp_signed(">", rows[0], i64(above))
        # The conditions are combined into one number, so that loops test only one.
        elements = builder.select(enough, reduce(builder.mul, rows), i64(0))
        return builder.icmp_signed(">=", elements, i64(MANY // max(1, arrays)))

    def outer_copies(self) -> int:
        cost = self.analysis.cost(sorted(self.analysis.live))
        if self.program.inner:
            return 4 if cost <= 48 and len(self.reductions) <= 2 else 1
        return 4 if cost <= 12 else 2 if cost <= 40 else 1

    def _points_outer(self, sites: list[Site], row: Values) -> None:
        """Some vectors of outer positions, with all sweeps over the inner dimensions."""
        analysis = self.analysis
        given = [row for _ in sites]
        for stage in range(analysis.last + 2):
            positions = analysis.point(stage, True)
            given = [
                self.access.print(positions, site, values)
                for site, values in zip(sites, given, strict=True)
            ]
            if stage <= analysis.last:
                self._sweep_outer(analysis.sweeps[stage], sites, given)

    def _sweep_outer(self, sweep: Sweep, sites: list[Site], given: list[Values]) -> None:
        lanes, carrying = sites[0].lanes, [*sweep.reductions, *sweep.scans]
        states = [self.reductions[p].identity(lanes) for _ in sites for p in carrying]
        reducer = Reducer(sweep, states)
        one_row = self.row_of(sweep, sites, given)

        def body(bases: Bases, flat: Value, held: list[State]) -> list[State]:
            if not self.by_strips:
                self.prefetch_ahead(sweep, bases, sites)
            return one_row(bases, flat, held)

        finals = iter(self._inner_walk(reducer, self.program.inner, sites[0].bases, body))
        for number, values in enumerate(given):
            own = [self.parts_of(p, next(finals)) for p in carrying]
            given[number] = {**values, **{p: value for parts in own for p, value in parts.items()}}

    def parts_of(self, position: int, state: State) -> Values:
        """What is known once a reduction has ended, by the position of the instruction."""
        parts = self.analysis.parts.get(position, [])
        return {part: state[number] for part, number in parts}

    def row_of(self, sweep: Sweep, sites: list[Site], given: list[Values]) -> Row:
        """A sweep at one inner position and several sites; returns the states after it."""
        lanes, carrying = sites[0].lanes, [*sweep.reductions, *sweep.scans]
        count = len(carrying)

        def body(bases: Bases, flat: Value, held: list[State]) -> list[State]:
            shared = self.access.print(sweep.uniform, Site(self.access, bases), self.shared(given))

            def one(number: int) -> tuple[Site, Values]:
                site = sites[number]
                own = held[number * count : (number + 1) * count]

                def scan(position: int, value: Value) -> Value:
                    kind, slot = self.reductions[position], carrying.index(position)
                    next_one = [splat(self.builder, value, lanes)]
                    own[slot] = kind.join(self.builder, own[slot], next_one)
                    return own[slot][0]

                inner = Site(self.access, bases, site.index, lanes, site.mask, scan)
                values = {**given[number], **{p: shared[p] for p in sweep.uniform if p in shared}}
                found = self.access.print_sweep(sweep, inner, values)
                self.accumulate(sweep, found, own, 0, flat, lanes)
                held[number * count : (number + 1) * count] = own
                return inner, found

            self.at_sites(sweep, len(sites), one)
            return held

        return body

    def prefetch_ahead(self, sweep: Sweep, bases: Bases, sites: list[Site]) -> None:
        """Prefetches what will be read some rows later, if the arrays are large. Only part of each
        row is read at a time, so the processor's own prefetchers do not predict it."""
        builder = self.builder
        for number, operand in self._streamed(sweep):
            stride = self.access.strides[number, self.program.rank - 1]
            apart = max(1, memory.CACHE_LINE // (sites[0].lanes * operand.dtype.itemsize))
            with builder.if_then(self.many, likely=False):
                for site in sites[::apart]:
                    ahead = builder.add(builder.mul(stride, i64(AHEAD)), site.index)
                    pointer = memory.element(builder, bases[number], ahead, operand.dtype)
                    self.prefetch(pointer, 2)

    def _streamed(self, sweep: Sweep) -> list[tuple[int, Operand]]:
        """The inputs that a sweep reads contiguously."""
        code, operands = self.program.code, self.program.operands
        read = {code[p].operand for p in sweep.varying if code[p].name == "load"}
        found = ((n, o) for n, o in enumerate(operands) if n in read and o.varies)
        return [(n, o) for n, o in found if (o.role, o.stride_class) == (INPUT, CONTIGUOUS)]

    def shared(self, given: list[Values]) -> Values:
        """The values that scalar instructions may use: those that are the same in all lanes."""
        return {p: v for p, v in given[0].items() if not self.analysis.vector[p]}

    def at_sites(self, sweep: Sweep, count: int, one: Callable[[int], tuple[Site, Values]]) -> None:
        """Prints a sweep at several sites, interleaved; `one` prints it at one site and returns the
        site and the values."""
        printed = []
        with self.builder.interleaving() as part:
            for number in range(count):
                part()
                printed.append(one(number))
        for site, found in printed:
            self.access.spill(sweep, site, found)

    def accumulate(
        self,
        sweep: Sweep,
        found: Values,
        states: list[State],
        slot: int,
        where: Value,
        lanes: int,
        mask: Value | None = None,
        step: int = 0,
    ) -> None:
        """Adds the values of a sweep to the states of its reductions, from `slot` on; see
        `Accumulator.update`."""
        for own, position in enumerate(sweep.reductions, slot):
            if position in self.factors:
                states[own] = self.added(position, states[own], found, lanes)
                continue
            kind = self.reductions[position]
            value = splat(self.builder, found[self.program.code[position].arguments[0]], lanes)
            states[own] = kind.update(self.builder, states[own], value, where, mask, step)

    def added(self, position: int, total: State, found: Values, lanes: int) -> State:
        """A sum over windows, or another reduction that counts no positions, and one more term."""
        builder, (argument,) = self.builder, self.program.code[position].arguments
        if position not in self.factors:
            value = splat(builder, found[argument], lanes)
            return self.reductions[position].update(builder, total, value)
        a, b = (splat(builder, found[factor], lanes) for factor in self.factors[position])
        return [self.multiply_add(a, b, *total)]

    def _inner_walk(
        self,
        reducer: Reducer,
        stop: int,
        first: Bases,
        body: Row,
    ) -> list[State]:
        """Nested loops over the inner dimensions up to `stop`; returns the final states. `body` is
        also given the number of the position."""

        def walk(number: int, bases: Bases, flat: Value, held: Carried) -> Carried:
            if number == stop:
                return flatten(body(bases, flat, unflatten(held, reducer.initial)))
            dimension = self.program.outer + number
            extent = self.extents[dimension]

            def once(index: Value, held: Carried) -> Carried:
                inside = self.advance(bases, dimension, index)
                position = self.builder.add(self.builder.mul(flat, extent), index)
                return walk(number + 1, inside, position, held)

            # Blocks of rows, too: rows may be short, and then a block in them is not much.
            return self.block_loop(extent, 1, held, once, reducer, 2)

        return unflatten(walk(0, first, i64(0), flatten(reducer.initial)), reducer.initial)

    def block_loop(
        self, stop: Value, step: int, carried: Carried, body: Body, reducer: Reducer, levels: int
    ) -> Carried:
        """A loop from 0 in which floating-point sums are sums of the sums of blocks, nested
        `levels` deep."""
        kinds = [self.reductions[p] for p in reducer.sweep.reductions]
        if reducer.sweep.scans or not any(kind.blocked for kind in kinds):
            return self.loop(0, stop, step, carried, body)
        kinds *= len(reducer.initial) // len(kinds)
        return in_blocks(self.builder, kinds, self.loop, stop, step, carried, body, levels)

    # -- lanes along the last inner dimension -----------------------------------------------------

    def _rows_inner(self, start: Value, stop: Value, bases: Bases) -> None:
        """Outer positions in groups; each sweep goes over the whole group before the next sweep
        begins. While one row waits for the combination of its lanes, the processor works on other
        rows."""
        builder, program = self.builder, self.program
        known = self.analysis.known_later()
        size = reduce(builder.mul, self.extents[program.outer :])
        elements = builder.mul(self.extents[program.outer - 1], size)
        self.many = self._are_many()
        far = builder.icmp_signed(">=", elements, i64(FAR))
        longest = builder.select(far, *(i64(most // GROUP) for most in GROUP_ELEMENTS))
        most = builder.select(builder.icmp_signed("<=", size, longest), i64(GROUP), i64(1))
        self._apart = most = most if self._rooms else i64(GROUP)

        def one(stage: int, first: Value, row: Value) -> None:
            def pointer(p: int) -> Value:
                room, dtype = self._rooms[p]
                return memory.element(builder, room, row, dtype)

            inside = self.advance(bases, program.outer - 1, builder.add(first, row))
            before = known[stage - 1] if stage else set()
            given = {
                p: memory.load(builder, pointer(p), self._rooms[p][1], 1) for p in sorted(before)
            }
            found = self._point_inner(stage, inside, {**self.fixed, **given})
            for p in sorted(known[stage] - before) if stage < len(known) else ():
                memory.store(builder, found[p], pointer(p), self._rooms[p][1], 1)

        def some(first: Value) -> None:
            count = builder.minimum(builder.sub(stop, first), most)
            for stage in range(max(1, len(known))):
                self.each(0, count, 1, partial(one, stage, first))

        self.each(start, stop, most, some)

    def _prefetch_next_group(self, bases: Bases, index: Value, count: int) -> None:
        """Prefetches what the first sweep will read of the rows after the current group, `count`
        elements from an index on. Otherwise that sweep would wait for all of it at once."""
        builder = self.builder
        with builder.if_then(self.many):
            for number, operand in self._streamed(self.analysis.sweeps[0]):
                stride = self.access.strides[number, self.program.outer - 1]
                first = builder.add(builder.mul(stride, self._apart), index)
                for offset in range(0, count, memory.CACHE_LINE // operand.dtype.itemsize):
                    ahead = builder.add(first, i64(offset))
                    self.prefetch(memory.element(builder, bases[number], ahead, operand.dtype), 2)

    def _point_inner(self, stage: int, bases: Bases, given: Values) -> Values:
        """One sweep at one outer position, with the instructions before it and after the last
        sweep."""
        analysis = self.analysis
        site = Site(self.access, bases)
        given = self.access.print(analysis.point(stage, False), site, given)
        if stage <= analysis.last:
            given = self._sweep_inner(analysis.sweeps[stage], bases, given)
        if stage == analysis.last:
            given = self.access.print(analysis.point(stage + 1, False), site, given)
        return given

    def _copies_inner(self, sweep: Sweep) -> int:
        cost = self.analysis.cost(sweep.varying)
        if self.analysis.last > 0:  # the work of other rows is interleaved anyway
            return 2 if cost <= 80 else 1
        if sweep.reductions:
            return 4 if cost <= 12 else 2 if cost <= 80 else 1
        return 4 if cost <= 12 else 2 if cost <= 40 else 1

    def _sweep_inner(self, sweep: Sweep, bases: Bases, given: Values) -> Values:
        copies, count = self._copies_inner(sweep), len(sweep.reductions)
        kinds = [self.reductions[p] for p in sweep.reductions]
        states = [kind.identity(self.lanes) for _ in range(copies) for kind in kinds]
        tail = not self.masks and self.lanes > 1  # elements one by one, with their own states
        if tail:
            states = states + [kind.identity(1) for kind in kinds]
        reducer = Reducer(sweep, states)

        def body(inside: Bases, flat: Value, held: list[State]) -> list[State]:
            return self._line(reducer, copies, inside, flat, held, given)

        finals = self._inner_walk(reducer, self.program.inner - 1, bases, body)
        found = dict(given)
        for offset, position in enumerate(sweep.reductions):
            kind, end = kinds[offset], copies * count
            total = kind.across(self.builder, joined(self.builder, kind, finals[offset:end:count]))
            if tail:
                total = kind.join(self.builder, total, finals[end + offset])
            found.update(self.parts_of(position, total))
        return found

    def _line(
        self,
        reducer: Reducer,
        copies: int,
        bases: Bases,
        flat: Value,
        states: list[State],
        given: Values,
    ) -> list[State]:
        """The vector loop at one position of the inner dimensions before the last."""
        builder, sweep, extent = self.builder, reducer.sweep, self.extents[-1]
        row = self.access.print(sweep.uniform, Site(self.access, bases), given)
        start = builder.mul(flat, extent)

        def body(index: Value, now: int, lanes: int, stop: Value | None, held: Carried) -> Carried:
            current = unflatten(held, states)
            if sweep in self.analysis.sweeps[1:2]:
                self._prefetch_next_group(bases, index, now * lanes)

            def one(copy: int) -> tuple[Site, Values]:
                site = self.site(bases, index, copy, lanes, stop)
                found = self.access.print_sweep(sweep, site, row)
                where = builder.add(start, site.index)
                slot = (copies if lanes < self.lanes else copy) * len(sweep.reductions)
                self.accumulate(sweep, found, current, slot, where, lanes, site.mask, 1)
                return site, found

            self.at_sites(sweep, now, one)
            return flatten(current)

        held = flatten(states)
        writes = any(self.program.code[p].name == "store" for p in sweep.varying)
        whole = partial(self.block_loop, reducer=reducer, levels=1)
        rest = Rest(writes=writes)
        finals = self.vector_loop(i64(0), extent, copies, held, body, rest, whole)
        return unflatten(finals, states)

"""Loop programs to LLVM IR: the nest of loops around what `Printer` prints.

Vectors are explicit. A block of the loop along the vector is several vectors, then come single
vectors under a mask (or single elements where the target has no masks), so nothing beyond an
operand's end is touched. Reductions keep several accumulators; floating sums go by blocks of
`BLOCK` steps, so that errors grow with the number of blocks and not of elements. The order of all
this depends on the extents only.

This module imports llvmlite: import it inside the function that compiles.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from gemel import dtype as dtypes
from gemel.codegen import memory
from gemel.codegen.analysis import Analysis, Pass
from gemel.codegen.expression import I1, I32, I64, POINTER, Printer, Value, splat, widened
from gemel.codegen.program import BROADCAST, CONTIGUOUS, INDEX, OUTER, Program
from gemel.codegen.reductions import Reduction, State, joined
from gemel.codegen.target import Target

BLOCK = 48
#: Values by instruction position.
Values = dict[int, Value]
#: Where each operand is: an address, or an index operand's value; None when it is not used.
Bases = list[Any]


def _number(value: int) -> Value:
    return ir.Constant(I64, value)


class Site:
    """Where instructions are printed: the operands' bases, the place along the vector, the mask."""

    __slots__ = ("bases", "index", "lanes", "mask")

    def __init__(self, bases: Bases, index: Value | None, lanes: int, mask: Value | None) -> None:
        self.bases = bases
        self.index = index
        self.lanes = lanes
        self.mask = mask


class Nest:
    """Builds one kernel in a module."""

    def __init__(self, program: Program, target: Target, module: Any) -> None:
        self.program = program
        self.target = target
        self.analysis = Analysis(program)
        self.lanes = self.analysis.lanes(target.width)
        sizes = [o.dtype.itemsize for o in program.operands if o.role != INDEX]
        self.masks = target.masks and (target.small_masks or min(sizes, default=4) >= 4)
        self.masks = self.masks and self.lanes > 1
        kind = ir.FunctionType(I32, [POINTER, POINTER, I64, I64])
        self.function = ir.Function(module, kind, "kernel")
        self.builder = ir.IRBuilder(self.function.append_basic_block("entry"))
        self.printers = {n: Printer(self.builder, n, target) for n in (1, self.lanes)}
        self.status: Value | None = None
        self.fixed: Values = {}
        self.extents: list[Value] = []
        self.strides: dict[tuple[int, int], Value] = {}
        self.extra: list[Value] = []
        self.reductions = {
            position: Reduction(str(step.attribute), program.code[step.arguments[0]].dtype)
            for position, step in enumerate(program.code)
            if step.name == "reduce"
        }

    # -- the whole function -----------------------------------------------------------------------

    def build(self) -> None:
        """Prints the function."""
        program, builder = self.program, self.builder
        bases = self._enter()
        begin, end = self.function.args[2], self.function.args[3]
        if program.lanes != OUTER:
            self._walk(0, program.outer, begin, end, bases, self._point_inner)
        elif program.outer == 1:
            self._row(begin, end, bases)
        else:
            last = self.extents[program.outer - 1]
            body = lambda inside: self._row(_number(0), last, inside)  # noqa: E731
            self._walk(0, program.outer - 1, begin, end, bases, body)
        builder.ret(ir.Constant(I32, 0) if self.status is None else builder.load(self.status, typ=I32))

    def _enter(self) -> Bases:
        """Loads what the call gives; computes what depends on nothing else."""
        program, builder, analysis = self.program, self.builder, self.analysis
        used = self._used()
        if any(program.code[p].name == "check" for p in analysis.live):
            self.status = builder.alloca(I32)
            builder.store(ir.Constant(I32, 0), self.status)
        rank = program.outer + program.inner
        self.extents = [self._integer(dimension) for dimension in range(rank)]
        for number in used:
            for dimension in range(rank):
                if self._moves(number, dimension):
                    place = rank * (1 + number) + dimension
                    self.strides[number, dimension] = self._integer(place)
        start = rank * (1 + len(program.operands))
        self.extra = [self._integer(start + number) for number in range(program.extra)]
        printer = self.printers[1]
        values = printer.emit(program.code, scalar=self._scalar, only=analysis.fixed())
        self.fixed = {p: values[p] for p in analysis.fixed()}
        bases: Bases = [None] * len(program.operands)
        for number in used:
            bases[number] = self._base(number)
        return bases

    def _used(self) -> list[int]:
        found = set()
        for position in self.analysis.live:
            step = self.program.code[position]
            if step.name in ("load", "store"):
                found.add(step.attribute)
            elif step.name in ("gather", "scatter_add"):
                found.add(step.attribute[0])  # type: ignore[index]
        return sorted(found)  # type: ignore[type-var]

    def _moves(self, number: int, dimension: int) -> bool:
        """Whether the stride of an operand in a dimension is needed."""
        operand = self.program.operands[number]
        if dimension == self._vector_dimension:
            return operand.stride not in (BROADCAST, CONTIGUOUS) or (
                operand.role == INDEX and operand.stride != BROADCAST
            )
        return operand.varies or dimension < self.program.outer

    @property
    def _vector_dimension(self) -> int:
        outer = self.program.lanes == OUTER
        return (self.program.outer if outer else self.program.outer + self.program.inner) - 1

    def _integer(self, place: int) -> Value:
        pointer = self.builder.gep(self.function.args[1], [_number(place)], source_etype=I64)
        return self.builder.load(pointer, typ=I64, align=8)

    def _scalar(self, number: int) -> Value:
        dtype = self.program.scalars[number]
        value = self._integer(self.program.integers + number)
        if dtype.kind == "f":
            value = self.builder.bitcast(value, ir.DoubleType())
            return self.printers[1].cast(value, dtypes.float64, dtype)
        return self.printers[1].cast(value, dtypes.int64, dtype)

    def _base(self, number: int) -> Value:
        if self.program.operands[number].role == INDEX:
            return _number(0)
        # Index operands have no buffer; the others' buffers are counted without them.
        place = sum(o.role != INDEX for o in self.program.operands[:number])
        pointer = self.builder.gep(self.function.args[0], [_number(place)], source_etype=POINTER)
        return self.builder.load(pointer, typ=POINTER, align=8)

    # -- loops ------------------------------------------------------------------------------------

    def _loop(
        self,
        start: Value,
        stop: Value,
        step: Value,
        carried: list[Value],
        body: Callable[[Value, list[Value]], list[Value]],
    ) -> list[Value]:
        """Runs `body(index, carried)` for start, start + step, ... below stop; what it returns is
        carried to the next turn, and returned after the last."""
        builder = self.builder
        before = builder.block
        inside = self.function.append_basic_block()
        after = self.function.append_basic_block()
        builder.cbranch(builder.icmp_signed("<", start, stop), inside, after)
        builder.position_at_end(inside)
        index = builder.phi(I64)
        index.add_incoming(start, before)
        held = [builder.phi(value.type) for value in carried]
        for phi, value in zip(held, carried, strict=True):
            phi.add_incoming(value, before)
        results = body(index, held)
        following = builder.add(index, step)
        latch = builder.block
        index.add_incoming(following, latch)
        for phi, value in zip(held, results, strict=True):
            phi.add_incoming(value, latch)
        builder.cbranch(builder.icmp_signed("<", following, stop), inside, after)
        builder.position_at_end(after)
        ends = [builder.phi(value.type) for value in carried]
        for phi, value, result in zip(ends, carried, results, strict=True):
            phi.add_incoming(value, before)
            phi.add_incoming(result, latch)
        return ends

    def _advance(self, bases: Bases, dimension: int, index: Value) -> Bases:
        """The bases at `index` along a dimension."""
        moved = list(bases)
        for number, base in enumerate(bases):
            if base is None or (number, dimension) not in self.strides:
                continue
            offset = self.builder.mul(index, self.strides[number, dimension])
            operand = self.program.operands[number]
            moved[number] = (
                self.builder.add(base, offset)
                if operand.role == INDEX
                else memory.element(self.builder, base, offset, operand.dtype)
            )
        return moved

    def _walk(
        self,
        dimension: int,
        stop: int,
        begin: Value,
        end: Value,
        bases: Bases,
        body: Callable[[Bases], None],
    ) -> None:
        """Outer dimensions from `dimension` up to `stop`, nested; the first one's range is given."""
        if dimension == stop:
            body(bases)
            return

        def turn(index: Value, carried: list[Value]) -> list[Value]:
            inside = self._advance(bases, dimension, index)
            if dimension + 1 == stop:
                body(inside)
            else:
                extent = self.extents[dimension + 1]
                self._walk(dimension + 1, stop, _number(0), extent, inside, body)
            return []

        self._loop(begin, end, _number(1), [], turn)

    def _mask(self, index: Value, stop: Value, lanes: int) -> Value:
        """The lanes of a vector at `index` that lie before `stop`."""
        builder = self.builder
        left = builder.sub(stop, index)
        enough = builder.icmp_signed("<", left, _number(lanes))
        few = builder.trunc(builder.select(enough, left, _number(lanes)), I32)
        return builder.icmp_signed(">", splat(builder, few, lanes), memory.numbered(lanes, I32))

    def _along(
        self,
        start: Value,
        stop: Value,
        copies: int,
        carried: list[Value],
        body: Callable[[Value, int, int, Value | None, list[Value]], list[Value]],
        blocked: Callable[[Value, Value, Value, list[Value]], list[Value]] | None = None,
    ) -> list[Value]:
        """The loop along the vector: `body(index, copies, lanes, mask, carried)`.

        `blocked(start, stop, step, carried)`, if given, runs the part of whole blocks itself.
        """
        builder = self.builder

        def call(count: int, lanes: int) -> Callable[[Value, list[Value]], list[Value]]:
            return lambda index, held: body(index, count, lanes, None, held)

        def masked(index: Value, held: list[Value]) -> list[Value]:
            return body(index, 1, self.lanes, self._mask(index, stop, self.lanes), held)

        if self.lanes == 1:
            return self._loop(start, stop, _number(1), carried, call(1, 1))
        size = copies * self.lanes
        whole = builder.and_(builder.sub(stop, start), _number(-size))
        middle = builder.add(start, builder.select(builder.icmp_signed("<", stop, start), _number(0), whole))
        if blocked is not None:
            carried = blocked(start, middle, _number(size), carried)
        else:
            carried = self._loop(start, middle, _number(size), carried, call(copies, self.lanes))
        if self.masks:
            return self._loop(middle, stop, _number(self.lanes), carried, masked)
        if copies > 1:
            rest = builder.and_(builder.sub(stop, middle), _number(-self.lanes))
            end = builder.add(middle, rest)
            step = _number(self.lanes)
            carried = self._loop(middle, end, step, carried, call(1, self.lanes))
            middle = end
        return self._loop(middle, stop, _number(1), carried, call(1, 1))

    # -- printing at a site -----------------------------------------------------------------------

    def _print(self, positions: list[int], site: Site, given: Values) -> Values:
        """`given` and the values of `positions` at a site."""
        if not positions:
            return given
        values = self.printers[site.lanes].emit(
            self.program.code,
            load=lambda number: self._load(site, number),
            store=lambda number, value: self._store(site, number, value),
            gather=lambda number, extra, index: self._gather(site, number, extra, index),
            scatter=lambda number, extra, index, value: self._scatter(
                site, number, extra, index, value
            ),
            check=lambda value: self._fail(site, value),
            given=given,
            only=positions,
        )
        found = dict(given)
        for position in positions:
            if values[position] is not None:
                found[position] = values[position]
        return found

    def _print_pass(self, work: Pass, site: Site, given: Values) -> Values:
        """The varying instructions of a pass."""
        if work.finds is not None:
            position, number = work.finds
            given = {**given, position: self._load(site, number)}
        found = self._print(work.varying, site, given)
        if work.keeps is not None:
            position, number = work.keeps
            self._store(site, number, splat(self.builder, found[position], site.lanes))
        return found

    def _fetch(self, site: Site) -> None:
        import os
        n = int(os.environ.get("PF", "0"))
        if not n: return
        st = self.strides[0, self.program.outer]
        p = memory.element(self.builder, site.bases[0], self.builder.add(site.index, self.builder.mul(st, _number(n))), self.program.operands[0].dtype)
        from gemel.codegen.expression import intrinsic
        intrinsic(self.builder, "llvm.prefetch.p0", ir.VoidType(), [p, ir.Constant(I32,0), ir.Constant(I32,3), ir.Constant(I32,1)])

    def _still(self, site: Site, number: int) -> bool:
        """Whether an operand is at one element for all lanes of a site."""
        return site.index is None or self.program.operands[number].stride == BROADCAST

    def _offsets(self, site: Site, number: int) -> Value:
        """How far along the vector each lane of an operand is, in elements."""
        builder, lanes = self.builder, site.lanes
        stride = self.strides.get((number, self._vector_dimension))
        first = site.index if stride is None else builder.mul(site.index, stride)
        if lanes == 1:
            return first
        steps = memory.numbered(lanes)
        if stride is not None:
            steps = builder.mul(steps, splat(builder, stride, lanes))
        return builder.add(splat(builder, first, lanes), steps)

    def _load(self, site: Site, number: int) -> Value:
        operand, base = self.program.operands[number], site.bases[number]
        builder, lanes = self.builder, site.lanes
        if operand.role == INDEX:
            if self._still(site, number):
                return base
            offsets = self._offsets(site, number)
            return builder.add(splat(builder, base, lanes), offsets)
        if self._still(site, number):
            return memory.load(builder, base, operand.dtype, 1)
        if operand.stride == CONTIGUOUS:
            pointer = memory.element(builder, base, site.index, operand.dtype)
            return memory.load(builder, pointer, operand.dtype, lanes, site.mask)
        offsets = self._offsets(site, number)
        native = self.target.masks
        return memory.load_scattered(builder, base, offsets, operand.dtype, site.mask, native)

    def _store(self, site: Site, number: int, value: Value) -> None:
        operand, base = self.program.operands[number], site.bases[number]
        builder, lanes = self.builder, site.lanes
        if self._still(site, number):
            if lanes > 1:
                value = builder.extract_element(value, _number(0))
            memory.store(builder, value, base, operand.dtype, 1)
        elif operand.stride == CONTIGUOUS:
            pointer = memory.element(builder, base, site.index, operand.dtype)
            memory.store(builder, value, pointer, operand.dtype, lanes, site.mask)
        else:
            offsets = self._offsets(site, number)
            native = self.target.masks
            memory.store_scattered(
                builder, value, base, offsets, operand.dtype, site.mask, native
            )

    def _gathered(self, site: Site, number: int, extra: int, index: Value) -> Value:
        """The offsets of elements chosen by index."""
        builder = self.builder
        offsets = builder.mul(index, splat(builder, self.extra[extra], site.lanes))
        if self._still(site, number):
            return offsets
        return builder.add(offsets, self._offsets(site, number))

    def _gather(self, site: Site, number: int, extra: int, index: Value) -> Value:
        dtype = self.program.operands[number].dtype
        offsets = self._gathered(site, number, extra, index)
        native = self.target.masks
        return memory.load_scattered(
            self.builder, site.bases[number], offsets, dtype, site.mask, native
        )

    def _scatter(self, site: Site, number: int, extra: int, index: Value, value: Value) -> None:
        builder, dtype = self.builder, self.program.operands[number].dtype
        offsets = self._gathered(site, number, extra, index)
        pointer = memory.element(builder, site.bases[number], offsets, dtype)
        old = memory.load(builder, pointer, dtype, 1)
        add = builder.fadd if dtype.kind == "f" else builder.add
        memory.store(builder, add(old, value), pointer, dtype, 1)

    def _fail(self, site: Site, value: Value) -> None:
        """Remembers status 1 when any lane of `value` is false."""
        builder, lanes = self.builder, site.lanes
        bad = builder.xor(value, memory.full_mask(lanes))
        if site.mask is not None:
            bad = builder.and_(bad, site.mask)
        if lanes > 1:
            bits = ir.IntType(lanes)
            bad = builder.icmp_unsigned("!=", builder.bitcast(bad, bits), ir.Constant(bits, 0))
        status = builder.load(self.status, typ=I32)
        builder.store(builder.or_(status, builder.zext(bad, I32)), self.status)

    # -- lanes along the last outer dimension -----------------------------------------------------

    def _row(self, start: Value, stop: Value, bases: Bases) -> None:
        """The vector loop at one position of the other outer dimensions."""
        site = Site(bases, None, 1, None)
        given = self._print(self.analysis.row(), site, self.fixed)

        def body(
            index: Value, copies: int, lanes: int, mask: Value | None, carried: list[Value]
        ) -> list[Value]:
            sites = []
            for copy in range(copies):
                place = self.builder.add(index, _number(copy * lanes)) if copy else index
                sites.append(Site(bases, place, lanes, mask))
            self._points_outer(sites, given)
            return []

        self._along(start, stop, self._copies_outer(), [], body)

    def _copies_outer(self) -> int:
        cost = self.analysis.cost(sorted(self.analysis.live))
        if self.program.inner:
            return 4 if cost <= 48 and len(self.reductions) <= 2 else 1
        return 4 if cost <= 12 else 2 if cost <= 40 else 1

    def _points_outer(self, sites: list[Site], row: Values) -> None:
        """Some vectors of outer positions, with all passes over the inner dimensions."""
        analysis = self.analysis
        given = [row for _ in sites]
        for stage in range(analysis.last + 2):
            positions = analysis.point(stage, True)
            given = [
                self._print(positions, site, values)
                for site, values in zip(sites, given, strict=True)
            ]
            if stage <= analysis.last:
                self._pass_outer(analysis.passes[stage], sites, given)

    def _pass_outer(self, work: Pass, sites: list[Site], given: list[Values]) -> None:
        lanes = sites[0].lanes
        states = [self.reductions[p].identity(lanes) for _ in sites for p in work.reductions]
        first = sites[0].bases

        def body(bases: Bases, flat: Value, carried: list[Value]) -> list[Value]:
            shared = self._print(work.uniform, Site(bases, None, 1, None), self._shared(given))
            held = self._unflatten(carried, states)
            results = []
            for number, site in enumerate(sites):
                place = Site(bases, site.index, lanes, site.mask)
                self._fetch(place)
                values = {**given[number], **{p: shared[p] for p in work.uniform if p in shared}}
                found = self._print_pass(work, place, values)
                for offset, position in enumerate(work.reductions):
                    reduction = self.reductions[position]
                    value = found[self.program.code[position].arguments[0]]
                    value = splat(self.builder, value, lanes)
                    where = splat(self.builder, flat, lanes)
                    state = reduction.value(self.builder, value, where, None)
                    old = held[number * len(work.reductions) + offset]
                    results.append(reduction.step(self.builder, old, state))
            return [value for state in results for value in state]

        carried = [value for state in states for value in state]
        ends = self._inner_walk(0, self.program.inner, first, _number(0), carried, body, work, states)
        finals = iter(self._unflatten(ends, states))
        for values_of in range(len(sites)):
            found = dict(given[values_of])
            for position in work.reductions:
                found[position] = self.reductions[position].result(self.builder, next(finals))
            given[values_of] = found

    def _shared(self, given: list[Values]) -> Values:
        """What scalars know: values that are the same in all lanes."""
        return {p: v for p, v in given[0].items() if not self.analysis.vector[p]}

    def _unflatten(self, values: list[Value], like: list[State]) -> list[State]:
        source = iter(values)
        return [[next(source) for _ in state] for state in like]

    def _inner_walk(
        self,
        number: int,
        stop: int,
        bases: Bases,
        flat: Value,
        carried: list[Value],
        body: Callable[[Bases, Value, list[Value]], list[Value]],
        work: Pass,
        states: list[State],
    ) -> list[Value]:
        """Inner dimensions `number` to `stop`, nested; `flat` counts their positions."""
        if number == stop:
            return body(bases, flat, carried)
        dimension = self.program.outer + number
        extent = self.extents[dimension]

        def turn(index: Value, held: list[Value]) -> list[Value]:
            inside = self._advance(bases, dimension, index)
            place = self.builder.add(self.builder.mul(flat, extent), index)
            return self._inner_walk(number + 1, stop, inside, place, held, body, work, states)

        if number + 1 == self.program.inner:
            return self._blocks(_number(0), extent, _number(1), carried, turn, work, states, 2)
        return self._loop(_number(0), extent, _number(1), carried, turn)

    def _blocks(
        self,
        start: Value,
        stop: Value,
        step: Value,
        carried: list[Value],
        turn: Callable[[Value, list[Value]], list[Value]],
        work: Pass,
        states: list[State],
        levels: int,
    ) -> list[Value]:
        """A loop whose floating sums are sums of the sums of blocks (of blocks)."""
        if not levels or not any(self.reductions[p].blocked for p in work.reductions):
            return self._loop(start, stop, step, carried, turn)
        builder = self.builder
        kinds = [self.reductions[p] for p in work.reductions]
        lanes = [s[0].type.count if isinstance(s[0].type, ir.VectorType) else 1 for s in states]
        neutral = [kinds[i % len(kinds)].identity(lanes[i]) for i in range(len(states))]
        size = builder.mul(step, _number(BLOCK**levels))

        def block(index: Value, held: list[Value]) -> list[Value]:
            end = builder.add(index, size)
            end = builder.select(builder.icmp_signed("<", end, stop), end, stop)
            fresh = [value for state in neutral for value in state]
            inside = self._blocks(index, end, step, fresh, turn, work, states, levels - 1)
            sums = self._unflatten(inside, states)
            totals = self._unflatten(held, states)
            both = [
                kinds[i % len(kinds)].join(builder, total, part)
                for i, (total, part) in enumerate(zip(totals, sums, strict=True))
            ]
            return [value for state in both for value in state]

        return self._loop(start, stop, size, carried, block)

    # -- lanes along the last inner dimension -----------------------------------------------------

    def _point_inner(self, bases: Bases) -> None:
        """One outer position, with all passes over the inner dimensions."""
        analysis = self.analysis
        given = self.fixed
        site = Site(bases, None, 1, None)
        for stage in range(analysis.last + 2):
            given = self._print(analysis.point(stage, False), site, given)
            if stage <= analysis.last:
                given = self._pass_inner(analysis.passes[stage], bases, given)

    def _copies_inner(self, work: Pass) -> int:
        cost = self.analysis.cost(work.varying)
        if work.reductions:
            return 4 if cost <= 12 else 2 if cost <= 80 else 1
        return 4 if cost <= 12 else 2 if cost <= 40 else 1

    def _pass_inner(self, work: Pass, bases: Bases, given: Values) -> Values:
        copies = self._copies_inner(work)
        scalar_tail = not self.masks and self.lanes > 1
        kinds = [self.reductions[p] for p in work.reductions]
        states = [kind.identity(self.lanes) for _ in range(copies) for kind in kinds]
        tail = [kind.identity(1) for kind in kinds] if scalar_tail else []
        carried = [value for state in states + tail for value in state]

        def body(inside: Bases, flat: Value, held: list[Value]) -> list[Value]:
            return self._line(work, inside, flat, held, given, states, tail)

        last = self.program.inner - 1
        ends = self._inner_walk(0, last, bases, _number(0), carried, body, work, states + tail)
        found = dict(given)
        finals = self._unflatten(ends, states + tail)
        for offset, position in enumerate(work.reductions):
            parts = [finals[copy * len(kinds) + offset] for copy in range(copies)]
            kind = kinds[offset]
            total = kind.across(self.builder, joined(self.builder, kind, parts))
            if tail:
                total = kind.join(self.builder, total, finals[copies * len(kinds) + offset])
            found[position] = kind.result(self.builder, total)
        return found

    def _line(
        self,
        work: Pass,
        bases: Bases,
        flat: Value,
        carried: list[Value],
        given: Values,
        states: list[State],
        tail: list[State],
    ) -> list[Value]:
        """The vector loop at one position of the inner dimensions before the last."""
        builder, count = self.builder, len(work.reductions)
        extent = self.extents[-1]
        copies = len(states) // count if count else self._copies_inner(work)
        row = self._print(work.uniform, Site(bases, None, 1, None), given)
        start = builder.mul(flat, extent)

        def body(
            index: Value, now: int, lanes: int, mask: Value | None, held: list[Value]
        ) -> list[Value]:
            current = self._unflatten(held, states + tail)
            for copy in range(now):
                place = builder.add(index, _number(copy * lanes)) if copy else index
                found = self._print_pass(work, Site(bases, place, lanes, mask), row)
                where = splat(builder, builder.add(start, place), lanes)
                if lanes > 1:
                    where = builder.add(where, memory.numbered(lanes))
                slot = len(states) if tail and lanes == 1 else copy * count
                for offset, position in enumerate(work.reductions):
                    value = found[self.program.code[position].arguments[0]]
                    value = splat(builder, value, lanes)
                    kind = self.reductions[position]
                    state = kind.value(builder, value, where, mask)
                    current[slot + offset] = kind.step(builder, current[slot + offset], state)
            return [value for state in current for value in state]

        def blocked(begin: Value, end: Value, step: Value, held: list[Value]) -> list[Value]:
            turn = lambda index, inside: body(index, copies, self.lanes, None, inside)  # noqa: E731
            return self._blocks(begin, end, step, held, turn, work, states + tail, 1)

        return self._along(_number(0), extent, copies, carried, body, blocked)

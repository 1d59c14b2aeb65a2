"""Frames: how every kernel begins, and the loops it is made of.

A kernel is given buffers, run-time integers and a range. A `Frame` opens the function, loads those
that the program uses, computes what depends only on them, and moves operands along dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gemel import dtype as dtypes
from gemel.codegen.analysis import Analysis
from gemel.codegen.language.program import INDEX, OUTER, STRIDED, Program
from gemel.codegen.llvm import memory
from gemel.codegen.llvm.access import Access, Bases, Values
from gemel.codegen.llvm.assembly import F64, I32, I64, POINTER, Builder, Constant, Module, Value
from gemel.codegen.target import Target

Whole = Value | int
#: The values that a loop carries from one iteration to the next.
Carried = list[Value]
#: A loop's body: maps the index and the carried values to the values of the next iteration.
Body = Callable[[Value, Carried], Carried]


def i64(value: int) -> Value:
    """A constant int64."""
    return Constant(I64, value)


class Frame:
    """The function ``kernel`` of a program, under construction in its own module."""

    def __init__(self, program: Program, target: Target) -> None:
        self.program = program
        self.target = target
        self.analysis = Analysis(program)
        self.lanes = self.analysis.lanes(target.width)
        self.module = Module(target.triple)
        self.builder = Builder(self.module)
        self.begin, self.end = Value(I64, "%begin"), Value(I64, "%end")
        self.access = Access(program, target, self.builder)
        self.extents: list[Value] = []
        self.fixed: Values = {}
        #: Whether to hide from LLVM by how much indices grow. Otherwise it looks for the best way
        #: to step every address, which is a third of its time. That helps only loops over few
        #: reduced positions and loops that read elements one by one.
        strides = [operand.stride_class for operand in program.operands]
        reduces_vectors = program.inner > 0 and program.vectors_along == OUTER
        is_scattered = not target.free_masks and STRIDED in strides
        self.hides_steps = program.in_tiles or not (reduces_vectors or is_scattered)

    def enter(self) -> Bases:
        """Loads the kernel's arguments and computes what depends on nothing else."""
        program, analysis = self.program, self.analysis
        used = self.used_operands()
        if any(program.code[p].name == "check" for p in analysis.live):
            self.access.watch()
        self.extents = [self.integer(dimension) for dimension in range(program.rank)]
        for operand in used:
            for dimension in range(program.rank):
                if program.known_stride(operand, dimension) is None:
                    position = program.stride_at(operand, dimension)
                    self.access.strides[operand, dimension] = self.integer(position)
        self.access.extra = [self.integer(position) for position in program.extras]
        self.fixed = self.access.printer(1).emit(program.code, self, only=analysis.fixed())
        return [self._base(i) if i in used else None for i in range(len(program.operands))]

    def used_operands(self) -> set[int]:
        """The numbers of the operands that the kernel reads or writes."""
        # Kernels that work in tiles access their first two operands themselves.
        read = {0, 1} if self.program.in_tiles else set()
        steps = (self.program.code[position] for position in self.analysis.live)
        return read | {step.operand for step in steps if step.operand is not None}

    def integer(self, position: int) -> Value:
        """The run-time integer at this position."""
        pointer = self.builder.gep(Value(POINTER, "%integers"), i64(position), I64)
        return self.builder.load(pointer, I64, 8)

    def buffer(self, number: int) -> Value:
        """The address of the buffer at this number."""
        pointer = self.builder.gep(Value(POINTER, "%buffers"), i64(number), POINTER)
        return self.builder.load(pointer, POINTER, 8)

    def scalar(self, number: int) -> Value:
        """The run-time scalar of this number."""
        dtype, passed = self.program.scalars[number], dtypes.int64
        value = self.integer(self.program.first_scalar + number)
        if dtype.kind == "f":
            value, passed = self.builder.bitcast(value, F64), dtypes.float64
        return self.access.printer(1).cast(value, passed, dtype)

    def _base(self, operand: int) -> Value:
        if self.program.operands[operand].role == INDEX:
            return i64(0)
        # Index operands have no buffer, so they do not count here.
        return self.buffer(sum(o.role != INDEX for o in self.program.operands[:operand]))

    def advance(self, bases: Bases, dimension: int, index: Value) -> Bases:
        """The bases at `index` along a dimension."""
        moved = list(bases)
        for operand, base in enumerate(bases):
            if base is None or (operand, dimension) not in self.access.strides:
                continue
            offset = self.builder.mul(index, self.access.strides[operand, dimension])
            seen = self.program.operands[operand]
            moved[operand] = (
                self.builder.add(base, offset)
                if seen.role == INDEX
                else memory.element(self.builder, base, offset, seen.dtype)
            )
        return moved

    def first_lanes(self, count: Value, lanes: int) -> Value:
        """The mask of the first `count` of `lanes` lanes."""
        return memory.first_lanes(self.builder, count, lanes, parts=not self.target.free_masks)

    def multiply_add(self, a: Value, b: Value, c: Value) -> Value:
        """``a * b + c``, rounded once on targets with such an instruction."""
        if not self.target.fma:
            return self.builder.fadd(self.builder.fmul(a, b), c)
        return self.builder.intrinsic(f"llvm.fma.{a.type.suffix}", a.type, [a, b, c])

    def prefetch(self, pointer: Value, near: int = 3, writes: bool = False) -> None:
        """Prefetches a cache line for reading or for writing; the address need not be valid.
        `near`: 3 for the first-level cache, 2 for the second."""
        arguments = [pointer, *(Constant(I32, flag) for flag in (int(writes), near, 1))]  # 1: data
        self.builder.writing("llvm.prefetch.p0", arguments)

    def loop(
        self, start: Whole, stop: Whole, step: Whole, carried: Sequence[Value], body: Body
    ) -> list[Value]:
        """Runs `body(index, carried)` for start, start + step, ... below stop. What it returns is
        carried to the next iteration, and returned after the last."""
        builder = self.builder
        start, stop, step = (i64(n) if isinstance(n, int) else n for n in (start, stop, step))
        before = builder.block
        inside = builder.append_basic_block()
        after = builder.append_basic_block()
        builder.cbranch(builder.icmp_signed("<", start, stop), inside, after)
        builder.position_at_end(inside)
        index = builder.phi(I64, (start, before))
        held = [builder.phi(value.type, (value, before)) for value in carried]
        results = body(index, [*held])
        following = builder.add(index, step)
        if self.hides_steps:
            following = builder.freeze(following)
        latch = builder.block
        index.add_incoming(following, latch)
        for phi, value in zip(held, results, strict=True):
            phi.add_incoming(value, latch)
        builder.cbranch(builder.icmp_signed("<", following, stop), inside, after)
        builder.position_at_end(after)
        return [
            builder.phi(value.type, (value, before), (result, latch))
            for value, result in zip(carried, results, strict=True)
        ]

    def each(self, start: Whole, stop: Whole, step: Whole, body: Callable[[Value], object]) -> None:
        """Runs `body(index)` for start, start + step, ... below stop, carrying no values."""

        def once(index: Value, _: list[Value]) -> list[Value]:
            body(index)
            return []

        self.loop(start, stop, step, [], once)

"""Frames: what every kernel begins with, and the loops it is made of.

A kernel is given buffers, run-time integers and a range. A `Frame` opens the function, loads what
the program uses of these, computes what depends on nothing else, and moves from place to place.

This module imports llvmlite: import it inside the function that compiles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from gemel import dtype as dtypes
from gemel.codegen import memory
from gemel.codegen.access import Access, Bases, Values
from gemel.codegen.analysis import Analysis
from gemel.codegen.program import BROADCAST, CONTIGUOUS, INDEX, TILES, Program
from gemel.codegen.registers import I32, I64, POINTER, Value
from gemel.codegen.target import Target

#: A loop's body: the position and what is carried give what the next round is given.
Body = Callable[[Value, list[Value]], Sequence[Value]]


def i64(value: int) -> Value:
    """A constant int64."""
    return ir.Constant(I64, value)


class Frame:
    """The function ``kernel`` of a program, under construction in a module of its own."""

    def __init__(self, program: Program, target: Target) -> None:
        self.program = program
        self.target = target
        self.analysis = Analysis(program)
        self.lanes = self.analysis.lanes(target.width)
        self.module = ir.Module("kernel")
        self.module.triple = target.triple
        kind = ir.FunctionType(I32, [POINTER, POINTER, I64, I64])
        self.function = ir.Function(self.module, kind, "kernel")
        self.builder = ir.IRBuilder(self.function.append_basic_block("entry"))
        self.begin, self.end = self.function.args[2:]
        self.access = Access(program, target, self.builder)
        self.extents: list[Value] = []
        self.fixed: Values = {}

    def enter(self) -> Bases:
        """Loads what the call gives; computes what depends on nothing else."""
        program, analysis = self.program, self.analysis
        used = self._used()
        if any(program.code[p].name == "check" for p in analysis.live):
            self.access.watch()
        self.extents = [self.integer(dimension) for dimension in range(program.rank)]
        for operand in used:
            for dimension in range(program.rank):
                if self._moves(operand, dimension):
                    place = program.rank * (1 + operand) + dimension
                    self.access.strides[operand, dimension] = self.integer(place)
        start = program.integers - program.extra
        self.access.extra = [self.integer(start + number) for number in range(program.extra)]
        values = self.access.printer(1).emit(
            program.code, scalar=self._scalar, only=analysis.fixed()
        )
        self.fixed = {p: values[p] for p in analysis.fixed()}
        return [self._base(i) if i in used else None for i in range(len(program.operands))]

    def _used(self) -> set[int]:
        # What is done in tiles reads its first two operands by itself.
        found = {0, 1} if self.program.in_tiles else set()
        for position in self.analysis.live:
            step = self.program.code[position]
            attribute: Any = step.attribute
            if step.name in ("load", "store"):
                found.add(attribute)
            elif step.name in ("gather", "scatter_add"):
                found.add(attribute[0])
        return found

    def _moves(self, operand: int, dimension: int) -> bool:
        """Whether the stride of an operand in a dimension is needed."""
        seen = self.program.operands[operand]
        if dimension == self.program.vector and seen.panel is None:
            return seen.stride not in (BROADCAST, CONTIGUOUS) or (
                seen.role == INDEX and seen.stride != BROADCAST
            )
        return seen.varies or dimension < self.program.outer

    def integer(self, place: int) -> Value:
        """A run-time integer."""
        pointer = self.builder.gep(self.function.args[1], [i64(place)], source_etype=I64)
        return self.builder.load(pointer, typ=I64, align=8)

    def tiles(self) -> dict[str, Value]:
        """The integers of `TILES`, by name."""
        return dict(zip(TILES, self.access.extra[-len(TILES) :], strict=True))

    def buffer(self, place: int) -> Value:
        """The address of a buffer."""
        pointer = self.builder.gep(self.function.args[0], [i64(place)], source_etype=POINTER)
        return self.builder.load(pointer, typ=POINTER, align=8)

    def _scalar(self, place: int) -> Value:
        dtype = self.program.scalars[place]
        value = self.integer(self.program.integers + place)
        if dtype.kind == "f":
            value = self.builder.bitcast(value, ir.DoubleType())
            return self.access.printer(1).cast(value, dtypes.float64, dtype)
        return self.access.printer(1).cast(value, dtypes.int64, dtype)

    def _base(self, operand: int) -> Value:
        if self.program.operands[operand].role == INDEX:
            return i64(0)
        # Index operands have no buffer; the others' buffers are counted without them.
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

    def loop(
        self, start: Value, stop: Value, step: Value, carried: Sequence[Value], body: Body
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
        results = list(body(index, held))
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

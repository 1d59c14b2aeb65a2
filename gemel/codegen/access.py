"""Printing instructions at a place of a loop nest: how operands are read and written there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gemel.codegen import memory
from gemel.codegen.analysis import Pass
from gemel.codegen.assembly import I32, I64, Builder, Constant, Value, integer
from gemel.codegen.expression import Printer
from gemel.codegen.program import (
    ACROSS,
    BROADCAST,
    CONTIGUOUS,
    INDEX,
    INTERLEAVED,
    PAIRED,
    Program,
)
from gemel.codegen.registers import splat
from gemel.codegen.target import Target

#: Values by instruction position.
Values = dict[int, Value]
#: Where each operand is: an address, or an index operand's value; None when it is not used.
Bases = list[Any]


class Site:
    """Where instructions are printed: the operands' bases, the place along the vector, the mask,
    and what makes a scan's next value of its next argument."""

    __slots__ = ("bases", "index", "lanes", "mask", "scan")

    def __init__(
        self,
        bases: Bases,
        index: Any,
        lanes: int,
        mask: Value | None,
        scan: Callable[[int, Value], Value] | None = None,
    ) -> None:
        self.scan = scan
        self.bases = bases
        self.index = index
        self.lanes = lanes
        self.mask = mask


class Access:
    """The operands of one kernel. `strides` (by operand and dimension) and `extra` hold the
    run-time integers, once the kernel has loaded them."""

    def __init__(self, program: Program, target: Target, builder: Builder) -> None:
        self.program = program
        self.target = target
        self.builder = builder
        self.strides: dict[tuple[int, int], Value] = {}
        self.extra: list[Value] = []
        self._printers: dict[int, Printer] = {}
        self._status: Any = None
        #: Vectors of outputs that take turns in memory, until there is one of each.
        self.turns: dict[int, Value] = {}

    def printer(self, lanes: int) -> Printer:
        """What prints instructions of so many lanes."""
        if lanes not in self._printers:
            self._printers[lanes] = Printer(self.builder, lanes, self.target)
        return self._printers[lanes]

    def watch(self) -> None:
        """Makes room for the status of checks."""
        self._status = self.builder.alloca(I32)
        self.builder.store(Constant(I32, 0), self._status, 4)

    def result(self) -> Value:
        """The status."""
        if self._status is None:
            return Constant(I32, 0)
        return self.builder.load(self._status, I32, 4)

    def print(self, positions: list[int], site: Site, given: Values) -> Values:
        """`given` and the values of `positions` at a site."""
        if not positions:
            return given
        values = self.printer(site.lanes).emit(
            self.program.code,
            load=lambda number: self._load(site, number),
            store=lambda number, value: self._store(site, number, value),
            gather=lambda number, extra, index: self._gather(site, number, extra, index),
            scatter=lambda number, extra, index, value: self._scatter(
                site, number, extra, index, value
            ),
            check=lambda value: self._fail(site, value),
            scan=site.scan,
            given=given,
            only=positions,
        )
        found = dict(given)
        for position in positions:
            if values[position] is not None:
                found[position] = values[position]
        return found

    def print_pass(self, work: Pass, site: Site, given: Values) -> Values:
        """The varying instructions of a pass."""
        if work.finds is not None:
            position, number = work.finds
            given = {**given, position: self._load(site, number)}
        found = self.print(work.varying, site, given)
        if work.keeps is not None:
            position, number = work.keeps
            self._store(site, number, splat(self.builder, found[position], site.lanes))
        return found

    def _still(self, site: Site, number: int) -> bool:
        """Whether an operand is at one element for all lanes of a site."""
        return site.index is None or self.program.operands[number].stride == BROADCAST

    def _offsets(self, site: Site, number: int) -> Value:
        """How far along the vector each lane of an operand is, in elements."""
        builder, lanes = self.builder, site.lanes
        stride = self.strides.get((number, self.program.vector))
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
            first: Value = base
            if self._still(site, number):
                return first
            return builder.add(splat(builder, first, lanes), self._offsets(site, number))
        if self._still(site, number):
            return memory.load(builder, base, operand.dtype, 1)
        if operand.stride in (CONTIGUOUS, ACROSS):  # in its panel it runs on, too
            pointer = memory.element(builder, base, site.index, operand.dtype)
            return memory.load(builder, pointer, operand.dtype, lanes, site.mask)
        if operand.stride == PAIRED and lanes > 1:
            start = builder.mul(site.index, Constant(I64, 2))
            pointer = memory.element(builder, base, start, operand.dtype)
            return memory.load_every_other(builder, pointer, operand.dtype, lanes, site.mask)
        offsets = self._offsets(site, number)
        native = self.target.masks
        return memory.load_scattered(builder, base, offsets, operand.dtype, site.mask, native)

    def _store(self, site: Site, number: int, value: Value) -> None:
        operand, base = self.program.operands[number], site.bases[number]
        builder, lanes = self.builder, site.lanes
        if self._still(site, number):
            if lanes > 1:
                value = builder.extract_element(value, Constant(I64, 0))
            memory.store(builder, value, base, operand.dtype, 1)
        elif operand.stride == CONTIGUOUS:
            pointer = memory.element(builder, base, site.index, operand.dtype)
            memory.store(builder, value, pointer, operand.dtype, lanes, site.mask)
        elif operand.stride >= INTERLEAVED and lanes > 1:
            self._store_in_turn(site, number, value)
        else:
            offsets = self._offsets(site, number)
            native = self.target.masks
            memory.store_scattered(builder, value, base, offsets, operand.dtype, site.mask, native)

    def _store_in_turn(self, site: Site, number: int, value: Value) -> None:
        """Keep a vector until there is one of each output, then write all as whole vectors."""
        self.turns[number] = value
        count = self.program.operands[number].stride // INTERLEAVED
        if len(self.turns) < count:
            return
        first = min(self.turns)
        dtype, builder = self.program.operands[first].dtype, self.builder
        vectors = [vector for _, vector in sorted(self.turns.items())]
        start = builder.mul(site.index, Constant(I64, count))
        masks: list[Any] = [None] * count
        if site.mask is not None:
            masks = memory.interleaved(builder, [site.mask] * count)
        woven = memory.interleaved(builder, vectors)
        for i, (vector, mask) in enumerate(zip(woven, masks, strict=True)):
            offset = builder.add(start, Constant(I64, i * site.lanes))
            pointer = memory.element(builder, site.bases[first], offset, dtype)
            memory.store(builder, vector, pointer, dtype, site.lanes, mask)
        self.turns.clear()

    def _gathered(self, site: Site, number: int, extra: int, index: Value) -> Value:
        """The offsets of elements chosen by index."""
        builder, lanes = self.builder, site.lanes
        factor = splat(builder, self.extra[extra], lanes)
        offsets = builder.mul(splat(builder, index, lanes), factor)
        if self._still(site, number):
            return offsets
        return builder.add(offsets, self._offsets(site, number))

    def _gather(self, site: Site, number: int, extra: int, index: Value) -> Value:
        dtype, builder = self.program.operands[number].dtype, self.builder
        together = self.program.operands[number].stride == CONTIGUOUS and site.index is not None
        if together and index.type.lanes == 1:
            # One index for all lanes: what they read lies side by side.
            offset = builder.add(builder.mul(index, self.extra[extra]), site.index)
            pointer = memory.element(builder, site.bases[number], offset, dtype)
            return memory.load(builder, pointer, dtype, site.lanes, site.mask)
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
            bits = integer(lanes)
            bad = builder.icmp_unsigned("!=", builder.bitcast(bad, bits), Constant(bits, 0))
        status = builder.load(self._status, I32, 4)
        builder.store(builder.or_(status, builder.zext(bad, I32)), self._status, 4)

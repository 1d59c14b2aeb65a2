"""The product of bytes in groups of four along k, added up in int32: ``dot4`` and its panels.

A panel holds the lines of an operand as ``gemm``'s does, but four consecutive k of one line lie
side by side: one lane of 32 bits. So one instruction multiplies four pairs of bytes and adds them
to a lane (`vpdpbusd` of AVX-512's VNNI, of unsigned by signed bytes); elsewhere bytes are widened
to 16 bits and multiplied in pairs, or to 32. Sums wrap as int32 does, in any order.
"""

from __future__ import annotations

from gemel.codegen import memory
from gemel.codegen.assembly import (
    I8,
    I16,
    I32,
    Constant,
    Module,
    Value,
    splat_constant,
    widened,
)
from gemel.codegen.contract import FOURS
from gemel.codegen.contract_emit import Emitter, Epilogue, Tiles
from gemel.codegen.frame import i64
from gemel.codegen.program import ROWS, Program
from gemel.codegen.target import Target
from gemel.dtype import int8, int32, uint8
from gemel.errors import CompileError

#: How many k lie side by side.
TOGETHER = FOURS
#: What multiplies pairs of 16 bits and adds them, by the vector's bytes.
PAIRS = {64: "avx512.pmaddw.d.512", 32: "avx2.pmadd.wd", 16: "sse2.pmadd.wd"}


def emit(program: Program, target: Target) -> Module:
    """The kernel of the schedule ``dot4 ROWSxCOLUMNS [vnni]`` or ``pack4 WIDTH copy|turn``.

    Raises `CompileError` for operands that are no bytes.
    """
    if any(operand.dtype not in (int8, uint8) for operand in program.operands[:2]):
        raise CompileError(f"only bytes lie in groups of four\n{program.text}")
    packs = program.schedule.startswith("pack4")
    return (_Pack if packs else _Dot)(program, target).emit()


def _byte(emitter: Emitter, pointer: Value, index: Value) -> Value:
    """Where byte `index` after a pointer is."""
    return memory.element(emitter.builder, pointer, index, int8)


class _Dot:
    """A micro-tile of int32 sums stays in registers while both panels pass by."""

    def __init__(self, program: Program, target: Target) -> None:
        words = program.schedule.split()
        self.rows, self.columns = (int(word) for word in words[1].split("x"))
        self.emitter = Emitter(program, target, self.rows * self.columns, int32)
        self.tiles, self.epilogue = Tiles(self.emitter), Epilogue(self.emitter)
        self.vectors = self.columns // self.emitter.lanes
        self.signed = [operand.dtype is int8 for operand in program.operands[:2]]
        self.has_fours = "vnni" in words

    def emit(self) -> Module:
        return self.emitter.finish(self._tile)

    def _tile(self, tile: Value) -> None:
        emitter, builder, tiles = self.emitter, self.emitter.builder, self.tiles
        bases, row, column = tiles.enter(tile)
        self.epilogue.enter(bases)
        rows = tiles.left(tiles.m, row, tiles.values["m_block"])
        columns = tiles.left(tiles.n, column, tiles.values["n_block"])

        def panel(j: Value) -> None:
            first = builder.add(column, j)
            right = self._panel(bases[1], 1, first, self.columns)

            def micro(i: Value) -> None:
                line = builder.add(row, i)
                left = self._panel(bases[0], 0, line, self.rows)
                self._micro(left, right, (line, first))

            emitter.each(0, rows, self.rows, micro)

        emitter.each(0, columns, self.columns, panel)

    def _panel(self, base: Value, number: int, line: Value, width: int) -> Value:
        """Where the panel that begins with a line is."""
        builder = self.emitter.builder
        stride = self.emitter.stride(number, ROWS + number)
        return _byte(self.emitter, base, builder.mul(builder.udiv(line, i64(width)), stride))

    def _micro(self, left: Value, right: Value, where: tuple[Value, Value]) -> None:
        emitter, builder, tiles = self.emitter, self.emitter.builder, self.tiles
        zero = Constant(emitter.vector, "zeroinitializer")
        fours = builder.udiv(builder.add(tiles.k, i64(TOGETHER - 1)), i64(TOGETHER))
        # Two signed bytes: the left ones are made unsigned, and what that adds is taken off.
        shifted = self.has_fours and all(self.signed)
        count = self.rows * self.vectors

        def step(q: Value, held: list[Value]) -> list[Value]:
            a = emitter.at(left, builder.mul(q, i64(self.rows)))
            b = emitter.at(right, builder.mul(q, i64(self.columns)))
            loaded = [emitter.load(emitter.at(b, v * emitter.lanes)) for v in range(self.vectors)]
            held = list(held)
            for i in range(self.rows):
                value = emitter.load(emitter.at(a, i), 1)
                if shifted:
                    value = builder.xor(value, Constant(I32, -0x7F7F7F80))
                value = emitter.splat(value)
                for v, other in enumerate(loaded):
                    slot = i * self.vectors + v
                    held[slot] = self._added(held[slot], value, other)
            for v, other in enumerate(loaded if shifted else ()):
                held[count + v] = self._added(held[count + v], self._splat(-0x7F7F7F80), other)
            return held

        start = [zero] * (count + self.vectors * shifted)
        held = emitter.loop(0, fours, 1, start, step)
        for slot in range(count):
            value = held[slot]
            if shifted:
                value = builder.sub(value, held[count + slot % self.vectors])
            i, v = divmod(slot, self.vectors)
            emitter.store(value, emitter.at(emitter.stack, i * self.columns + v * emitter.lanes))
        rows = where[0], tiles.left(tiles.m, where[0], self.rows)
        columns = where[1], tiles.left(tiles.n, where[1], self.columns)
        self.epilogue.apply(emitter.stack, self.columns, rows, columns, emitter.lanes)

    def _splat(self, number: int) -> Value:
        return splat_constant(Constant(I32, number), self.emitter.lanes)

    def _added(self, total: Value, left: Value, right: Value) -> Value:
        """The total and, in each lane, the sum of four products."""
        emitter, target = self.emitter, self.emitter.target
        kind = emitter.vector
        if self.has_fours:
            pair = (right, left) if self.signed == [True, False] else (left, right)
            name = f"llvm.x86.avx512.vpdpbusd.{8 * target.width}"
            return emitter.builder.intrinsic(name, kind, [total, *pair])
        if target.triple.startswith("x86_64"):
            return self._by_pairs(total, left, right)
        return self._by_four(total, left, right)

    def _by_pairs(self, total: Value, left: Value, right: Value) -> Value:
        """Bytes as 16 bits: those at even places, then those at odd ones."""
        emitter, builder = self.emitter, self.emitter.builder
        kind = widened(I16, 2 * emitter.lanes)
        eight = splat_constant(Constant(I16, 8), kind.lanes)
        for odd in (False, True):
            halves = []
            for value, signed in zip((left, right), self.signed, strict=True):
                part = builder.bitcast(value, kind)
                part = part if odd else builder.shl(part, eight)
                halves.append((builder.ashr if signed else builder.lshr)(part, eight))
            name = f"llvm.x86.{PAIRS[emitter.target.width]}"
            total = builder.add(total, builder.intrinsic(name, emitter.vector, halves))
        return total

    def _by_four(self, total: Value, left: Value, right: Value) -> Value:
        """Bytes as 32 bits, one of the four after the other."""
        builder = self.emitter.builder
        for place in range(TOGETHER):
            wide = []
            for value, signed in zip((left, right), self.signed, strict=True):
                high = builder.shl(value, self._splat(24 - 8 * place))
                wide.append((builder.ashr if signed else builder.lshr)(high, self._splat(24)))
            total = builder.add(total, builder.mul(*wide))
        return total


class _Pack:
    """Panels with four k side by side; what lies past the last line or k is zero."""

    def __init__(self, program: Program, target: Target) -> None:
        _, width, way = program.schedule.split()
        self.width = int(width)
        self.turn = way == "turn"
        self.emitter = Emitter(program, target, 0, int32)
        self.tiles = Tiles(self.emitter)
        #: From line to line, or from k to k.
        self.stride = self.emitter.stride(0, ROWS if self.turn else ROWS + 1)

    def emit(self) -> Module:
        return self.emitter.finish(self._tile)

    def _tile(self, tile: Value) -> None:
        emitter, builder, tiles = self.emitter, self.emitter.builder, self.tiles
        (source, target), first, _ = tiles.enter(tile)
        count = tiles.left(tiles.m, first, tiles.values["m_block"])
        fours = builder.udiv(builder.add(tiles.k, i64(TOGETHER - 1)), i64(TOGETHER))

        def panel(i: Value) -> None:
            line = builder.add(first, i)
            there = tiles.left(tiles.m, line, self.width)
            whole = builder.icmp_signed("==", there, i64(self.width))
            place = emitter.at(target, builder.mul(line, fours))

            def four(q: Value) -> None:
                k = builder.mul(q, i64(TOGETHER))
                goal = emitter.at(place, builder.mul(q, i64(self.width)))
                left = builder.sub(tiles.k, k)
                full = builder.icmp_signed(">=", left, i64(TOGETHER))
                with builder.if_else(builder.and_(whole, full)) as (then, otherwise):
                    with then:
                        (self._turned if self.turn else self._woven)(source, line, k, goal)
                    with otherwise:
                        self._singly(source, (line, there), (k, left), goal)

            emitter.each(0, fours, 1, four)

        emitter.each(0, count, self.width, panel)

    def _at(self, source: Value, line: Value, k: Value) -> Value:
        builder = self.emitter.builder
        far, near = (line, k) if self.turn else (k, line)
        return _byte(self.emitter, source, builder.add(builder.mul(far, self.stride), near))

    def _turned(self, source: Value, line: Value, k: Value, goal: Value) -> None:
        """Four k of a line lie side by side already."""
        emitter, builder = self.emitter, self.emitter.builder

        def single(i: Value) -> None:
            place = self._at(source, builder.add(line, i), k)
            value = builder.load(place, I32, 1)
            emitter.store(value, emitter.at(goal, i))

        emitter.each(0, self.width, 1, single)

    def _woven(self, source: Value, line: Value, k: Value, goal: Value) -> None:
        """Lines lie side by side: four vectors of them take turns."""
        emitter, builder = self.emitter, self.emitter.builder
        at, lanes = 0, 16
        while at < self.width:
            while lanes > self.width - at:
                lanes //= 2
            kind = widened(I8, lanes)
            begin = builder.add(line, i64(at))
            rows = [
                builder.load(self._at(source, begin, builder.add(k, i64(j))), kind, 1)
                for j in range(TOGETHER)
            ]
            woven = memory.interleaved(builder, rows) if lanes > 1 else rows
            for j, value in enumerate(woven):
                place = _byte(emitter, emitter.at(goal, at), i64(j * lanes))
                builder.store(value, place, 1)
            at += lanes

    def _singly(
        self, source: Value, lines: tuple[Value, Value], depth: tuple[Value, Value], goal: Value
    ) -> None:
        """One byte after the other, of those there are."""
        emitter, builder = self.emitter, self.emitter.builder
        zero = Constant(I32, 0)

        def blank(i: Value) -> None:
            emitter.store(zero, emitter.at(goal, i))

        def single(i: Value) -> None:
            place = emitter.at(goal, i)

            def byte(j: Value) -> None:
                where = self._at(source, builder.add(lines[0], i), builder.add(depth[0], j))
                builder.store(builder.load(where, I8, 1), _byte(emitter, place, j), 1)

            emitter.each(0, builder.minimum(depth[1], i64(TOGETHER)), 1, byte)

        emitter.each(0, self.width, 1, blank)
        emitter.each(0, lines[1], 1, single)


__all__ = ["TOGETHER", "emit"]

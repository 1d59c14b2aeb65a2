"""Packing: a matrix copied into panels as wide as a micro-tile, one line per k.

A panel of width ``w`` holds lines ``p * w .. p * w + w - 1`` of the operand (rows of a, columns of
b) as ``k`` rows of ``w`` elements. Lines past the end repeat the last one or are
zero; their products are never stored.
"""

from __future__ import annotations

from gemel.codegen.assembly import I1, Constant, Module, Value, widened
from gemel.codegen.contract_emit import Emitter, Reader, Tiles
from gemel.codegen.frame import Body, i64
from gemel.codegen.panels import transposed
from gemel.codegen.program import ROWS, Program
from gemel.codegen.registers import constant
from gemel.codegen.target import Target


def emit(program: Program, target: Target) -> Module:
    """The kernel of the schedule ``pack WIDTH copy`` or ``pack WIDTH turn``."""
    return _Pack(program, target).emit()


class _Pack:
    def __init__(self, program: Program, target: Target) -> None:
        _, width, way = program.schedule.split()
        self.width = int(width)
        self.turn = way == "turn"
        self.emitter = Emitter(program, target)
        self.tiles, self.reader = Tiles(self.emitter), Reader(self.emitter, 0)
        #: From line to line, or from k to k.
        self.stride = self.emitter.stride(0, ROWS if self.turn else ROWS + 1)

    def emit(self) -> Module:
        return self.emitter.finish(self._tile)

    def _tile(self, tile: Value) -> None:
        emitter, builder, tiles = self.emitter, self.emitter.builder, self.tiles
        (source, target), first, _ = tiles.enter(tile)
        count = tiles.left(tiles.m, first, tiles.values["m_block"])

        def panel(i: Value) -> None:
            line = builder.add(first, i)
            place = emitter.at(target, builder.mul(line, tiles.k))
            if self.turn:
                self._turned(source, line, place)
            else:
                self._copied(
                    self.reader.at(source, line), place, tiles.left(tiles.m, line, self.width)
                )

        emitter.each(0, count, self.width, panel)

    # -- lines side by side: every k is a short copy ----------------------------------------

    def _copied(self, source: Value, place: Value, count: Value) -> None:
        emitter, builder = self.emitter, self.emitter.builder
        whole = builder.icmp_signed("==", count, i64(self.width))
        with builder.if_else(whole) as (then, otherwise):
            with then:
                emitter.loop(0, self.tiles.k, 1, [], self._whole_line(source, place))
            with otherwise:
                emitter.loop(0, self.tiles.k, 1, [], self._short_line(source, place, count))

    def _ends(self, source: Value, place: Value, k: Value) -> tuple[Value, Value]:
        emitter, builder = self.emitter, self.emitter.builder
        line = self.reader.at(source, builder.mul(k, self.stride))
        return line, emitter.at(place, builder.mul(k, i64(self.width)))

    def _whole_line(self, source: Value, place: Value) -> Body:
        emitter = self.emitter

        def body(k: Value, _: list[Value]) -> list[Value]:
            line, goal = self._ends(source, place, k)
            at = 0
            for lanes in _pieces(self.width, emitter.lanes):
                value = self.reader.load(self.reader.at(line, at), lanes)
                emitter.store(value, emitter.at(goal, at))
                at += lanes
            return []

        return body

    def _short_line(self, source: Value, place: Value, count: Value) -> Body:
        emitter = self.emitter

        def body(k: Value, _: list[Value]) -> list[Value]:
            line, goal = self._ends(source, place, k)

            def element(i: Value) -> None:
                value = self.reader.load(self.reader.at(line, i), 1)
                emitter.store(value, emitter.at(goal, i))

            emitter.each(0, count, 1, element)
            zero = constant(emitter.dtype, 0)

            def blank(i: Value, _: list[Value]) -> list[Value]:
                emitter.store(zero, emitter.at(goal, i))
                return []

            emitter.loop(count, self.width, 1, [], blank)
            return []

        return body

    # -- lines along k: squares of lanes x lanes are transposed in registers -----------------

    def _turned(self, source: Value, line: Value, place: Value) -> None:
        """All lines of a panel, as many at a time as a vector has lanes."""
        emitter, builder, lanes = self.emitter, self.emitter.builder, self.emitter.lanes

        def group(first: Value) -> None:
            self._group(source, builder.add(line, first), emitter.at(place, first), lanes)

        whole = self.width // lanes * lanes
        if whole:
            emitter.each(0, whole, lanes, group)
        if whole < self.width:
            start = builder.add(line, i64(whole))
            self._group(source, start, emitter.at(place, whole), self.width - whole)

    def _group(self, source: Value, line: Value, goal: Value, count: int) -> None:
        """`count` lines, at most as many as lanes."""
        emitter, builder = self.emitter, self.emitter.builder
        whole = builder.and_(self.tiles.k, i64(-emitter.lanes))
        last = builder.sub(self.tiles.m, i64(1))
        pointers = []
        for i in range(count):
            bounded = builder.minimum(builder.add(line, i64(i)), last)
            pointers.append(self.reader.at(source, builder.mul(bounded, self.stride)))
        emitter.loop(0, whole, emitter.lanes, [], self._square(pointers, goal))
        emitter.loop(whole, self.tiles.k, 1, [], self._single(pointers, goal))

    def _square(self, pointers: list[Value], goal: Value) -> Body:
        emitter, builder, lanes = self.emitter, self.emitter.builder, self.emitter.lanes

        def body(k: Value, _: list[Value]) -> list[Value]:
            rows = [self.reader.load(self.reader.at(p, k)) for p in pointers]
            rows += [Constant(emitter.vector, "zeroinitializer")] * (lanes - len(rows))
            line = emitter.at(goal, builder.mul(k, i64(self.width)))
            for i, column in enumerate(transposed(builder, rows)):
                self._store_head(column, emitter.at(line, i * self.width), len(pointers))
            return []

        return body

    def _store_head(self, value: Value, place: Value, count: int) -> None:
        """The first `count` lanes, in pieces no wider than what is left."""
        emitter = self.emitter
        if count < emitter.lanes and emitter.has_masks:
            bits = ", ".join(f"i1 {int(i < count)}" for i in range(emitter.lanes))
            mask = Constant(widened(I1, emitter.lanes), f"<{bits}>")
            emitter.store(value, place, mask)
            return
        at = 0
        for lanes in _pieces(count, emitter.lanes):
            part = emitter.shuffle(value, value, range(at, at + lanes))
            emitter.store(part, emitter.at(place, at))
            at += lanes

    def _single(self, pointers: list[Value], goal: Value) -> Body:
        emitter, builder = self.emitter, self.emitter.builder

        def body(k: Value, _: list[Value]) -> list[Value]:
            line = emitter.at(goal, builder.mul(k, i64(self.width)))
            for i, pointer in enumerate(pointers):
                value = self.reader.load(self.reader.at(pointer, k), 1)
                emitter.store(value, emitter.at(line, i))
            return []

        return body


def _pieces(width: int, lanes: int) -> list[int]:
    """`width` as vectors of powers of two, the widest first."""
    pieces = []
    while width:
        while lanes > width:
            lanes //= 2
        pieces.append(lanes)
        width -= lanes
    return pieces

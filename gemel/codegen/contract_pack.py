"""Packing: a matrix copied into panels as wide as a micro-tile, one line per k.

A panel of width ``w`` holds lines ``p * w .. p * w + w - 1`` of the operand (rows of a, columns of
b) as ``k`` rows of ``w`` elements. Lines past the end repeat the last one or are
zero; their products are never stored.
"""

from __future__ import annotations

from llvmlite import ir

from gemel.codegen.contract_emit import Body, Emitter
from gemel.codegen.panels import transposed
from gemel.codegen.program import Contraction
from gemel.codegen.target import Target

#: Run-time integers, in order.
HEADER = (
    "lines",
    "k",
    "batch",  # extent of the inner batch axis
    "stride",  # between lines, or between k
    "outer",  # batch strides of the source, then of the packed copy
    "inner",
    "packed_outer",
    "packed_inner",
    "panels",  # panels in one tile
    "tiles",  # tiles of one product
)


def emit(contraction: Contraction, target: Target) -> ir.Module:
    """The kernel of a contraction whose variant is ``pack WIDTH copy`` or ``pack WIDTH turn``."""
    return _Pack(contraction, target).emit()


class _Pack:
    def __init__(self, contraction: Contraction, target: Target) -> None:
        words = contraction.variant.split()
        self.width = int(words[1])
        self.turn = words[2] == "turn"
        self.emitter = Emitter(contraction.dtype, target)
        self.values = {name: self.emitter.integer(i) for i, name in enumerate(HEADER)}
        self.source, self.target = self.emitter.buffer(0), self.emitter.buffer(1)

    def emit(self) -> ir.Module:
        emitter = self.emitter
        emitter.repeat(emitter.begin, emitter.end, 1, [], self._tile)
        return emitter.finish()

    def _tile(self, tile: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
        emitter, builder, values = self.emitter, self.emitter.builder, self.values
        batch = builder.udiv(tile, values["tiles"])
        part = builder.urem(tile, values["tiles"])
        outer = builder.udiv(batch, values["batch"])
        inner = builder.urem(batch, values["batch"])
        source = emitter.at(self.source, self._offset("", outer, inner))
        target = emitter.at(self.target, self._offset("packed_", outer, inner))
        wide = emitter.number(self.width)
        span = builder.mul(values["panels"], wide)
        first = builder.mul(part, span)
        last = emitter.minimum(builder.add(first, span), values["lines"])

        def panel(line: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
            place = emitter.at(target, builder.mul(line, values["k"]))
            count = emitter.minimum(builder.sub(values["lines"], line), wide)
            if self.turn:
                self._turned(source, line, place)
            else:
                self._copied(emitter.at(source, line), place, count)
            return []

        emitter.repeat(first, last, self.width, [], panel)
        return []

    def _offset(self, prefix: str, outer: ir.Value, inner: ir.Value) -> ir.Value:
        builder, values = self.emitter.builder, self.values
        return builder.add(
            builder.mul(outer, values[prefix + "outer"]),
            builder.mul(inner, values[prefix + "inner"]),
        )

    # -- lines side by side: every k is a short copy ----------------------------------------

    def _copied(self, source: ir.Value, place: ir.Value, count: ir.Value) -> None:
        emitter, builder = self.emitter, self.emitter.builder
        whole = builder.icmp_signed("==", count, emitter.number(self.width))
        with builder.if_else(whole) as (then, otherwise):
            with then:
                emitter.repeat(0, self.values["k"], 1, [], self._whole_line(source, place))
            with otherwise:
                emitter.repeat(0, self.values["k"], 1, [], self._short_line(source, place, count))

    def _ends(self, source: ir.Value, place: ir.Value, k: ir.Value) -> tuple[ir.Value, ir.Value]:
        emitter, builder = self.emitter, self.emitter.builder
        line = emitter.at(source, builder.mul(k, self.values["stride"]))
        return line, emitter.at(place, builder.mul(k, emitter.number(self.width)))

    def _whole_line(self, source: ir.Value, place: ir.Value) -> Body:
        emitter = self.emitter

        def body(k: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
            line, goal = self._ends(source, place, k)
            at = 0
            for lanes in _pieces(self.width, emitter.lanes):
                kind = ir.VectorType(emitter.type, lanes)
                emitter.store(emitter.load(emitter.at(line, at), kind), emitter.at(goal, at))
                at += lanes
            return []

        return body

    def _short_line(self, source: ir.Value, place: ir.Value, count: ir.Value) -> Body:
        emitter = self.emitter

        def body(k: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
            line, goal = self._ends(source, place, k)

            def element(i: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
                emitter.store(emitter.load(emitter.at(line, i), emitter.type), emitter.at(goal, i))
                return []

            emitter.repeat(0, count, 1, [], element)
            zero = ir.Constant(emitter.type, 0)

            def blank(i: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
                emitter.store(zero, emitter.at(goal, i))
                return []

            emitter.repeat(count, emitter.number(self.width), 1, [], blank)
            return []

        return body

    # -- lines along k: squares of lanes x lanes are transposed in registers -----------------

    def _turned(self, source: ir.Value, line: ir.Value, place: ir.Value) -> None:
        """All lines of a panel, as many at a time as a vector has lanes."""
        emitter, builder, lanes = self.emitter, self.emitter.builder, self.emitter.lanes

        def group(first: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
            self._group(source, builder.add(line, first), emitter.at(place, first), lanes)
            return []

        whole = self.width // lanes * lanes
        if whole:
            emitter.repeat(0, emitter.number(whole), lanes, [], group)
        if whole < self.width:
            start = builder.add(line, emitter.number(whole))
            self._group(source, start, emitter.at(place, whole), self.width - whole)

    def _group(self, source: ir.Value, line: ir.Value, goal: ir.Value, count: int) -> None:
        """`count` lines, at most as many as lanes."""
        emitter, builder, values = self.emitter, self.emitter.builder, self.values
        whole = builder.and_(values["k"], emitter.number(-emitter.lanes))
        last = builder.sub(values["lines"], emitter.number(1))
        pointers = []
        for i in range(count):
            bounded = emitter.minimum(builder.add(line, emitter.number(i)), last)
            pointers.append(emitter.at(source, builder.mul(bounded, values["stride"])))
        emitter.repeat(0, whole, emitter.lanes, [], self._square(pointers, goal))
        emitter.repeat(whole, values["k"], 1, [], self._single(pointers, goal))

    def _square(self, pointers: list[ir.Value], goal: ir.Value) -> Body:
        emitter, builder, lanes = self.emitter, self.emitter.builder, self.emitter.lanes

        def body(k: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
            rows = [emitter.load(emitter.at(p, k), emitter.vector) for p in pointers]
            rows += [ir.Constant(emitter.vector, None)] * (lanes - len(rows))
            line = emitter.at(goal, builder.mul(k, emitter.number(self.width)))
            for i, column in enumerate(transposed(builder, rows)):
                self._store_head(column, emitter.at(line, i * self.width), len(pointers))
            return []

        return body

    def _store_head(self, value: ir.Value, place: ir.Value, count: int) -> None:
        """The first `count` lanes, in pieces no wider than what is left."""
        emitter = self.emitter
        if count < emitter.lanes and emitter.has_masks:
            kind = ir.VectorType(ir.IntType(1), emitter.lanes)
            mask = ir.Constant(kind, [int(i < count) for i in range(emitter.lanes)])
            emitter.masked_store(value, place, mask)
            return
        at = 0
        for lanes in _pieces(count, emitter.lanes):
            part = emitter.shuffle(value, value, list(range(at, at + lanes)))
            emitter.store(part, emitter.at(place, at))
            at += lanes

    def _single(self, pointers: list[ir.Value], goal: ir.Value) -> Body:
        emitter, builder = self.emitter, self.emitter.builder

        def body(k: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
            line = emitter.at(goal, builder.mul(k, emitter.number(self.width)))
            for i, pointer in enumerate(pointers):
                value = emitter.load(emitter.at(pointer, k), emitter.type)
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

"""The register-tiled product: a block of rows times a few vectors of columns, summed along k.

The scheme is Goto's and van de Geijn's (Anatomy of High-Performance Matrix Multiplication,
2008): one micro-tile of the result stays in registers while panels of ``a`` and ``b`` stream by.
Panels are either packed beforehand (`contract_pack`) or read where they lie.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import NamedTuple

from gemel.codegen import memory
from gemel.codegen.access import Bases
from gemel.codegen.assembly import Constant, Module, Value
from gemel.codegen.contract_emit import Reader
from gemel.codegen.contract_tile import Range, Tile
from gemel.codegen.contract_windows import Windows
from gemel.codegen.frame import Body, i64
from gemel.codegen.program import INDEX, ROWS, Program
from gemel.codegen.target import Target

#: How many steps of k ahead packed panels are asked for.
AHEAD = 16


def emit(program: Program, target: Target) -> Module:
    """The kernel of the schedule ``gemm ROWSxCOLUMNS a:FORM b:FORM [split|direct|vnni]``."""
    return _Gemm(program, target).emit()


class _Block(NamedTuple):
    """One micro-tile over one block of k: where its sums are kept, where it is, and how much of
    `depth`, `rows` and `columns` there is."""

    sums: Value
    where: tuple[Value, Value]
    depth: Range
    rows: Value
    columns: Value


class _Gemm(Tile):
    def __init__(self, program: Program, target: Target) -> None:
        words = program.schedule.split()
        rows, columns = (int(word) for word in words[1].split("x"))
        super().__init__(program, target, rows, columns)
        self.a_form, self.b_form = words[2][2:], words[3][2:].replace("-", " ")
        self.split = "split" in words
        emitter = self.emitter
        self.vectors = columns // emitter.lanes
        self.unroll = 2 if rows * self.vectors > 12 else 4
        k = program.rank - 1
        #: From line to line, or from panel to panel; and along the other axis.
        self.a_stride = emitter.stride(0, k if self.a_form == "m" else ROWS)
        self.b_stride = emitter.stride(1, k if self.b_form == "n" else ROWS + 1)
        #: Where sums are kept: for all tiles, or for one of them.
        buffers = sum(operand.role != INDEX for operand in program.operands)
        self.scratch = emitter.buffer(buffers) if self.split else emitter.reserve(rows * columns)
        #: What makes panels of b here; else they are made already, or not wanted.
        self.windows: Windows | None = None
        if self.b_form not in ("n", "packed"):
            #: Whether they are read where they lie: there are no more rows to read them for.
            self.direct = "direct" in words
            reader = Reader(emitter, 1, self.sum.factors[1])
            self.windows = Windows(emitter, reader, self.b_form, columns, self.direct)
            #: What lies where panels of b were made here are the factors.
            self.right = emitter
            self.b_form = "packed"
        #: Whether the columns past the end must not be read where b lies.
        self.guarded = self.b_form != "packed"

    def fill(self, tile: Value, bases: Bases, rows: Range, columns: Range) -> None:
        emitter, builder, values = self.emitter, self.emitter.builder, self.tiles.values
        area = builder.mul(values["m_block"], values["n_block"])
        home = emitter.at(self.scratch, builder.mul(tile, area)) if self.split else self.scratch

        def block(start: Value) -> None:
            depth = start, self.tiles.left(self.depth, start, values["k_block"])

            def micro(i: Value, j: Value, b: Value) -> None:
                place = builder.add(builder.mul(j, values["m_block"]), builder.mul(i, self._width))
                sums = emitter.at(home, place) if self.split else home
                where = builder.add(rows[0], i), builder.add(columns[0], j)
                self._micro((bases[0], b), where, depth, sums)

            def panel(j: Value) -> None:
                emitter.each(0, rows[1], self.rows, lambda i: micro(i, j, bases[1]))

            if self.windows and not self.direct:
                self._by_panels(self.windows, bases, columns, depth, rows[1], micro)
            else:
                emitter.each(0, columns[1], self.columns, panel)

        if self.split:
            emitter.each(0, self.depth, values["k_block"], block)
        else:
            block(i64(0))

    def _by_panels(
        self,
        windows: Windows,
        bases: Bases,
        columns: Range,
        depth: Range,
        rows: Value,
        micro: Callable[[Value, Value, Value], None],
    ) -> None:
        """Some panels of b are made at a time, so that each row of a is read once for all."""
        emitter, builder = self.emitter, self.emitter.builder
        together = windows.together * self.columns

        def group(j: Value) -> None:
            count = builder.minimum(builder.sub(columns[1], j), i64(together))
            first = builder.add(columns[0], j)

            def fill(w: Value) -> None:
                place = builder.add(first, w)
                windows.fill(bases[1], place, windows.at(w), depth, self.tiles.n)

            def row(i: Value) -> None:
                emitter.each(
                    0, count, self.columns, lambda w: micro(i, builder.add(j, w), windows.at(w))
                )

            emitter.each(0, count, self.columns, fill)
            emitter.each(0, rows, self.rows, row)

        emitter.each(0, columns[1], together, group)

    @property
    def _width(self) -> Value:
        return i64(self.columns)

    def _micro(
        self,
        bases: tuple[Value, Value],
        where: tuple[Value, Value],
        depth: Range,
        sums: Value,
    ) -> None:
        """One micro-tile over one block of k, then its epilogue if that was the last block."""
        emitter, builder, tiles = self.emitter, self.emitter.builder, self.tiles
        left_rows = tiles.left(tiles.m, where[0], self.rows)
        left_columns = tiles.left(tiles.n, where[1], self.columns)
        rows = self._row_pointers(bases[0], where[0], depth[0])
        panel = self._panel_pointer(bases[1], where[1], depth[0])
        block = _Block(sums, where, depth, left_rows, left_columns)
        if self.guarded and not emitter.has_masks:
            whole = builder.icmp_signed("==", left_columns, self._width)
            with builder.if_else(whole) as (then, otherwise):
                with then:
                    self._finish(self._accumulate(rows, panel, block, None), block)
                with otherwise:
                    self._finish(self._accumulate(rows, panel, block, left_columns), block)
        else:
            guard = left_columns if self.guarded else None
            self._finish(self._accumulate(rows, panel, block, guard), block)

    def _finish(self, total: list[Value], block: _Block) -> None:
        """The epilogue, or what keeps the sums until the next block of k.

        It works on registers for a whole micro-tile, if its code is short.
        """
        builder, epilogue = self.emitter.builder, self.epilogue
        if not epilogue.is_short(len(total)):
            return self._from_memory(total, block)
        whole = builder.icmp_signed("==", block.rows, i64(self.rows))
        if not self.emitter.has_masks:
            wide = builder.icmp_signed("==", block.columns, self._width)
            whole = builder.and_(whole, wide)
        if self.split:
            whole = builder.and_(whole, self._is_last(block))
        with builder.if_else(whole) as (then, other):
            with then:
                epilogue.direct(total, self.vectors, block.where, block.columns)
            with other:
                self._from_memory(total, block)

    def _is_last(self, block: _Block) -> Value:
        """Whether no further block of k follows."""
        builder = self.emitter.builder
        return builder.icmp_signed("==", builder.add(*block.depth), self.depth)

    def _from_memory(self, total: list[Value], block: _Block) -> None:
        """Stores the sums; then, if these are all, the epilogue."""
        for place, value in zip(self._places(block.sums), total, strict=True):
            self.emitter.store(value, place)
        if not self.split:
            return self._apply(block)
        with self.emitter.builder.if_then(self._is_last(block)):
            self._apply(block)

    def _apply(self, block: _Block) -> None:
        """The epilogue, of sums that are kept."""
        rows, columns = zip(block.where, (block.rows, block.columns), strict=True)
        self.epilogue.apply(block.sums, self.columns, rows, columns, self.emitter.lanes)

    def _places(self, sums: Value) -> list[Value]:
        """Addresses of a micro-tile's vectors."""
        return [
            self.emitter.at(sums, i * self.columns + v * self.emitter.lanes)
            for i in range(self.rows)
            for v in range(self.vectors)
        ]

    def _panel(self, number: int, base: Value, line: Value, start: Value) -> Value:
        """Where the panel that begins with a line is, from a step on."""
        builder, width = self.emitter.builder, i64((self.rows, self.columns)[number])
        stride = self.emitter.stride(number, ROWS + number)
        dtype = self.emitter.program.operands[number].dtype
        far = builder.mul(builder.udiv(line, width), stride)
        panel = memory.element(builder, base, far, dtype)
        return (self.left, self.right)[number].at(panel, builder.mul(start, width))

    def _row_pointers(self, a: Value, row: Value, start: Value) -> list[Value]:
        """Where each row of the micro-tile starts; rows past the end repeat the last one."""
        builder, stride = self.emitter.builder, self.a_stride
        if self.a_form == "packed":
            return [self._panel(0, a, row, start)]
        if self.a_form == "k":
            return self.lines(0, self.left.at(a, start), row, self.rows)
        base = self.left.at(a, builder.mul(start, stride))
        last = builder.sub(self.tiles.m, i64(1))
        further = (builder.minimum(builder.add(row, i64(i)), last) for i in range(1, self.rows))
        return [self.left.at(base, index) for index in (row, *further)]

    def _panel_pointer(self, b: Value, column: Value, start: Value) -> Value:
        """Where the micro-tile's columns of b start."""
        builder = self.emitter.builder
        if self.windows:
            return b
        if self.b_form == "packed":
            return self._panel(1, b, column, start)
        return self.right.at(b, builder.add(builder.mul(start, self.b_stride), column))

    def _accumulate(
        self,
        rows: list[Value],
        panel: Value,
        block: _Block,
        columns: Value | None,
    ) -> list[Value]:
        """rows x panel, added to earlier blocks of k; no more than `columns` columns are read."""
        emitter, depth = self.emitter, block.depth
        start = self._initial(self._places(block.sums), depth[0])
        if self.windows and self.direct:
            return self._walked(self.windows, rows, panel, block, start)
        masks = emitter.masks(columns, self.vectors, emitter.lanes) if columns else []

        def steps(count: int) -> Body:
            def body(k: Value, total: list[Value]) -> list[Value]:
                return self._steps(rows, panel, k, count, total, masks, columns)

            return body

        start += [Constant(emitter.vector, "zeroinitializer")] * len(self.sum.more) * self.vectors
        bulk = emitter.builder.and_(depth[1], i64(-self.unroll))
        middle = emitter.loop(0, bulk, self.unroll, start, steps(self.unroll))
        final = emitter.loop(bulk, depth[1], 1, middle, steps(1))
        return self.sum.settled(final, self.vectors)

    def _steps(
        self,
        rows: list[Value],
        panel: Value,
        k: Value,
        count: int,
        total: list[Value],
        masks: list[Value | None],
        columns: Value | None,
    ) -> list[Value]:
        """`count` lines of b, each times one column of a."""
        emitter, builder = self.emitter, self.emitter.builder
        b_stride = self._width if self.b_form == "packed" else self.b_stride
        line = self.right.at(panel, builder.mul(k, b_stride))
        left = self._left(rows, k)
        total = list(total)
        for u in range(count):
            if u and self.b_form != "packed":
                line = self.right.at(line, b_stride)
            skip = u * self.columns if self.b_form == "packed" else 0
            right = [self._right(line, skip, v, masks, columns) for v in range(self.vectors)]
            self._multiply([left(i, u) for i in range(self.rows)], right, total)
            if self.a_form == "packed":
                # A panel of b stays in the first cache; that of a changes with every micro-tile.
                emitter.prefetch(left(0, u + AHEAD))
        return total

    def _multiply(self, left: list[Value], right: list[Value], total: list[Value]) -> None:
        """One column of a times one line of b, added up."""
        rows = (self.sum.row(self.left.load(place, 1)) for place in left)
        for i, value in enumerate(chain(rows, self.sum.more)):
            for v, other in enumerate(right):
                slot = i * self.vectors + v
                total[slot] = self.sum.added(total[slot], value, other)

    def _walked(
        self,
        windows: Windows,
        rows: list[Value],
        b: Value,
        block: _Block,
        start: list[Value],
    ) -> list[Value]:
        """rows x windows, read where they lie."""

        def line(k: Value, right: list[Value], total: list[Value]) -> list[Value]:
            left, total = self._left(rows, k), list(total)
            self._multiply([left(i, 0) for i in range(self.rows)], right, total)
            return total

        column, lines = block.where[1], self.tiles.n
        return windows.walk(b, column, block.depth, lines, start, line)

    def _left(self, rows: list[Value], k: Value) -> Callable[[int, int], Value]:
        """Where the element of row i, u steps after k, lies."""
        at, builder = self.left.at, self.emitter.builder
        if self.a_form == "packed":
            start = at(rows[0], builder.mul(k, i64(self.rows)))
            return lambda i, u: at(start, u * self.rows + i)
        if self.a_form == "k":
            starts = [at(row, k) for row in rows]
            return lambda i, u: at(starts[i], u) if u else starts[i]
        stride = self.a_stride
        steps = [builder.mul(k, stride)]

        def place(i: int, u: int) -> Value:
            while len(steps) <= u:
                steps.append(builder.add(steps[-1], stride))
            return at(rows[i], steps[u])

        return place

    def _initial(self, places: list[Value], start: Value) -> list[Value]:
        """Zero in the first block of k, what the blocks before left in the later ones."""
        emitter, builder = self.emitter, self.emitter.builder
        zero = Constant(emitter.vector, "zeroinitializer")
        if not self.split:
            return [zero] * len(places)
        before = builder.block
        with builder.if_then(builder.icmp_signed(">", start, i64(0))):
            loaded = [emitter.load(place) for place in places]
            inside = builder.block
        return [builder.phi(emitter.vector, (zero, before), (value, inside)) for value in loaded]

    def _right(
        self,
        line: Value,
        skip: int,
        v: int,
        masks: list[Value | None],
        columns: Value | None,
    ) -> Value:
        """Vector `v` of the line of b `skip` elements after `line`."""
        emitter, builder, lanes = self.emitter, self.emitter.builder, self.emitter.lanes
        right = self.right
        if columns is None:
            return right.load(right.at(line, skip + v * lanes))
        if masks[v]:
            return right.load(right.at(line, v * lanes), mask=masks[v])
        last = builder.sub(columns, i64(1))
        vector: Value = Constant(emitter.vector, "zeroinitializer")
        for lane in range(lanes):
            index = builder.minimum(i64(v * lanes + lane), last)
            vector = emitter.insert(vector, right.load(right.at(line, index), 1), lane)
        return vector

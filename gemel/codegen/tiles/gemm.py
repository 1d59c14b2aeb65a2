"""The register-tiled product: a block of rows times a few vectors of columns, summed along k.

The scheme is that of Goto and van de Geijn (Anatomy of High-Performance Matrix Multiplication,
2008): one micro-tile of the result stays in registers while panels of ``a`` and ``b`` stream by.
Panels are packed beforehand (`tiles.pack`), or made by the kernel itself, or not made at all.
"""

from __future__ import annotations

from collections.abc import Callable

from gemel.codegen.contract.task import DEPTH
from gemel.codegen.contract.tilings import WIDE, panel_depth
from gemel.codegen.language.program import INDEX, ROWS, Program
from gemel.codegen.llvm.access import Bases
from gemel.codegen.llvm.assembly import Module, Value
from gemel.codegen.loops.frame import i64
from gemel.codegen.target import Target
from gemel.codegen.tiles.blocks import SumKernel
from gemel.codegen.tiles.emit import Range, sum_position
from gemel.codegen.tiles.micro import Feed, MicroTile
from gemel.codegen.tiles.windows import PanelRoom, Windows

#: Computes a micro-tile, given its first row and column, the address of its columns of b, the
#: kind of source they are read from, and where to pack what is read (or None).
Multiply = Callable[[Value, Value, Value, Feed, Value | None], None]


def emit(program: Program, target: Target) -> Module:
    """The kernel of the schedule ``gemm ROWSxCOLUMNS a:FORM b:FORM``, followed by any of ``split``,
    ``direct``, ``across``, ``vnni``, ``bf16``, ``by-rows``, ``far``, ``packs-b`` and ``narrow``."""
    return Gemm(program, target).build()


class Gemm(SumKernel):
    """One kernel: its blocks and panels, and where the rows of a lie."""

    def __init__(self, program: Program, target: Target) -> None:
        schedule = program.parsed_schedule
        rows, columns = schedule.rows, schedule.columns
        size = columns * program.code[sum_position(program)].dtype.itemsize
        # If all columns fit into one narrower vector, vectors are narrower.
        super().__init__(program, target.narrowed(size), rows, columns)
        self.a_form = schedule.a_form
        self.b_feed = {"n": Feed.LYING, "packed": Feed.PACKED}.get(schedule.b_form, Feed.WALKED)
        self.split, self.across = schedule.split, schedule.across
        self.far, self.narrow = schedule.far, schedule.narrow
        self.vectors = columns // self.lanes
        self.unroll = 2 if rows * self.vectors > 12 else 4
        k = program.rank - 1
        #: Strides from line to line or from panel to panel; of a with ``a:m`` and b with ``b:n``,
        #: along k.
        self.a_stride = self.stride(0, k if self.a_form == "m" else ROWS)
        self.b_stride = self.stride(1, k if self.b_feed is Feed.LYING else ROWS + 1)
        #: Where sums are stored: in a buffer for all tiles, or on the stack for one micro-tile.
        buffers = sum(operand.role != INDEX for operand in program.operands)
        self.scratch = self.buffer(buffers) if self.split else self.reserve(rows * columns)
        self.packs_b = schedule.packs_b
        #: Reads b if it consists of windows; and the room for panels of b that this kernel makes,
        #: if any.
        self.windows: Windows | None = None
        self.panels: PanelRoom | None = None
        if self.b_feed is Feed.WALKED:
            together = self.sum.together
            self.windows = Windows(self, self.sum.lying(1), schedule.b_form, columns, together)
            if not schedule.direct:
                least = max(1, WIDE * self.lanes // columns)
                self.panels = PanelRoom(self, columns, DEPTH, least)
        elif self.packs_b:
            self.panels = PanelRoom(self, columns, panel_depth(self.vectors))

    def fill_columns(self, tile: Value, bases: Bases, rows: Range, columns: Range) -> None:
        builder, values = self.builder, self.values
        area = builder.mul(values["m_block"], values["n_block"])
        home = self.at(self.scratch, builder.mul(tile, area)) if self.split else self.scratch

        def block(start: Value) -> None:
            depth = start, self.remaining(self.depth, start, values["k_block"])

            def micro(i: Value, j: Value, b: Value, feed: Feed, pack_to: Value | None) -> None:
                offset = builder.add(
                    builder.mul(j, values["m_block"]), builder.mul(i, i64(self.columns))
                )
                sums = self.at(home, offset) if self.split else home
                where = builder.add(rows[0], i), builder.add(columns[0], j)
                made = MicroTile(self, sums, where, depth, feed, pack_to)
                if not self.narrow or feed is Feed.WALKED:
                    return made.emit(bases[0], b)
                few = builder.icmp_signed("<=", made.columns, i64(self.lanes))
                with builder.if_else(few) as (one, all_of_them):
                    with one:
                        MicroTile(self, sums, where, depth, feed, pack_to, 1).emit(bases[0], b)
                    with all_of_them:
                        made.emit(bases[0], b)

            def plain(i: Value, j: Value) -> None:
                micro(i, j, bases[1], self.b_feed, None)

            def panel(j: Value) -> None:
                self.each(0, rows[1], self.rows, lambda i: plain(i, j))

            def row(i: Value) -> None:
                self.each(0, columns[1], self.columns, lambda j: plain(i, j))

            if self.panels:
                self._by_panels(self.panels, bases, columns, depth, rows[1], micro)
            elif self.across:
                self.each(0, rows[1], self.rows, row)
            else:
                self.each(0, columns[1], self.columns, panel)

        if self.split:
            self.each(0, self.depth, values["k_block"], block)
        else:
            block(i64(0))

    def _by_panels(
        self,
        panels: PanelRoom,
        bases: Bases,
        columns: Range,
        depth: Range,
        rows: Value,
        micro: Multiply,
    ) -> None:
        """Makes several panels of b at a time. Each row of a is then read once for all of them, and
        results are written in long runs.

        With `packs_b` the micro-tiles of the first rows make the panels from what they read:
        storing it costs no extra time beside the multiply-adds.
        """
        builder = self.builder
        together = panels.together(depth)

        def group(j: Value) -> None:
            count = builder.minimum(builder.sub(columns[1], j), together)

            def make(w: Value) -> None:
                panel = panels.at(w, depth)
                if self.packs_b:
                    micro(i64(0), builder.add(j, w), bases[1], self.b_feed, panel)
                elif self.windows:
                    column = builder.add(builder.add(columns[0], j), w)
                    self.windows.fill(bases[1], column, panel, depth)

            def made(i: Value, w: Value) -> None:
                micro(i, builder.add(j, w), panels.at(w, depth), Feed.MADE, None)

            def row(i: Value) -> None:
                self.each(0, count, self.columns, lambda w: made(i, w))

            self.each(0, count, self.columns, make)
            self.each(self.rows if self.packs_b else 0, rows, self.rows, row)

        self.each(0, columns[1], together, group)

    # -- where the operands of a micro-tile lie ----------------------------------------------

    def row_pointers(self, a: Value, row: Value, start: Value) -> list[Value]:
        """Where each row of the micro-tile starts, rows past the end repeating the last one; or, if
        rows are read from a panel or lie side by side, where the first one starts."""
        builder, stride = self.builder, self.a_stride
        if self.a_form == "packed":
            return [self.panel(0, a, row, start)]
        if self.a_form == "k":
            return self.lines(0, self.left.at(a, start), row, self.rows)
        return [self.left.at(a, builder.add(builder.mul(start, stride), row))]

    def panel_pointer(self, b: Value, column: Value, start: Value, feed: Feed) -> Value:
        """Where the micro-tile's columns of b start."""
        if feed in (Feed.MADE, Feed.WALKED):
            return b
        if feed is Feed.PACKED:
            return self.panel(1, b, column, start)
        builder = self.builder
        return self.right.at(b, builder.add(builder.mul(start, self.b_stride), column))

    def elements(
        self, rows: list[Value], k: Value, last: Value | None = None
    ) -> Callable[[int, int], Value]:
        """A function for the address of the element in row i, u steps of k after `k`. `last`: the
        last of rows that lie side by side; those past it repeat it."""
        at, builder = self.left.at, self.builder
        if self.a_form == "packed":
            start = at(rows[0], builder.mul(k, i64(self.rows)))
            return lambda i, u: at(start, u * self.rows + i)
        if self.a_form == "k":
            starts = [at(row, k) for row in rows]
            return lambda i, u: at(starts[i], u) if u else starts[i]
        columns = [at(rows[0], builder.mul(k, self.a_stride))]

        def pointer(i: int, u: int) -> Value:
            while len(columns) <= u:
                columns.append(at(columns[-1], self.a_stride))
            return at(columns[u], i if last is None else builder.minimum(i64(i), last))

        return pointer

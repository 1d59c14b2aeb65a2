"""The register-tiled product: a block of rows times a few vectors of columns, summed along k.

The scheme is Goto's and van de Geijn's (Anatomy of High-Performance Matrix Multiplication,
2008): one micro-tile of the result stays in registers while panels of ``a`` and ``b`` stream by.
Panels are either packed beforehand (`contract_pack`) or read where they lie.
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from gemel.codegen.contract_emit import Body, Emitter, Epilogue
from gemel.codegen.contract_plan import HEADER, SEVERAL
from gemel.codegen.contract_windows import Windows
from gemel.codegen.program import Contraction
from gemel.codegen.target import Target

#: How many steps of k ahead packed panels are asked for.
AHEAD = 16


class Tiles:
    """The part common to all products: run-time integers and the loop over tiles."""

    def __init__(self, emitter: Emitter, contraction: Contraction, more: int = 0) -> None:
        """There are so many `more` run-time integers before the operands' strides."""
        self.emitter = emitter
        self.values = {name: emitter.integer(i) for i, name in enumerate(HEADER)}
        self.a, self.b = emitter.buffer(0), emitter.buffer(1)
        self.epilogue = Epilogue(emitter, contraction, 2, len(HEADER) + more)

    def enter(self, tile: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value, ir.Value]:
        """Origins of a and b for the tile's product, and its first row and column."""
        builder, values = self.emitter.builder, self.values
        batch, rest = self._divide(tile, builder.mul(values["m_tiles"], values["n_tiles"]))
        n_tile, m_tile = self._divide(rest, values["m_tiles"])
        axes = self._divide(batch, values["batch"])
        self.epilogue.enter(axes)
        origins = []
        for name, base in (("a", self.a), ("b", self.b)):
            outer = builder.mul(axes[0], values[name + "_outer"])
            inner = builder.mul(axes[1], values[name + "_inner"])
            origins.append(self.emitter.at(base, builder.add(outer, inner)))
        row = builder.mul(m_tile, values["m_block"])
        column = builder.mul(n_tile, values["n_block"])
        return origins[0], origins[1], row, column

    def left(self, total: str, first: ir.Value, most: ir.Value | int) -> ir.Value:
        """How many of at most `most` remain of `total` from `first` on."""
        builder, emitter = self.emitter.builder, self.emitter
        bound = emitter.number(most) if isinstance(most, int) else most
        return emitter.minimum(builder.sub(self.values[total], first), bound)

    def _divide(self, a: ir.Value, b: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Quotient and remainder."""
        quotient = self.emitter.builder.udiv(a, b)
        return quotient, self.emitter.builder.sub(a, self.emitter.builder.mul(quotient, b))


def emit(contraction: Contraction, target: Target) -> ir.Module:
    """The kernel of the variant ``gemm ROWSxCOLUMNS a:FORM b:FORM [split|direct]``."""
    return _Gemm(contraction, target).emit()


class _Block:
    """One micro-tile over one block of k: where it is and how much of it there is."""

    def __init__(
        self,
        sums: ir.Value,
        where: tuple[ir.Value, ir.Value],
        depth: tuple[ir.Value, ir.Value],
        rows: ir.Value,
        columns: ir.Value,
    ) -> None:
        self.sums = sums
        self.where = where
        self.depth = depth
        self.rows = rows
        self.columns = columns


class _Gemm:
    def __init__(self, contraction: Contraction, target: Target) -> None:
        words = contraction.variant.split()
        self.rows, self.columns = (int(word) for word in words[1].split("x"))
        self.a_form, self.b_form = words[2][2:], words[3][2:].replace("-", " ")
        self.split = "split" in words
        stack = 0 if self.split else self.rows * self.columns
        self.emitter = Emitter(contraction.dtype, target, stack)
        self.vectors = self.columns // self.emitter.lanes
        self.unroll = 2 if self.rows * self.vectors > 12 else 4
        #: What makes panels of b here; else they are made already, or not wanted.
        self.windows: Windows | None = None
        if self.b_form not in ("n", "packed"):
            #: Whether they are read where they lie: there are no more rows to read them for.
            self.direct = "direct" in words
            form, integer = self.b_form, len(HEADER)
            self.windows = Windows(self.emitter, form, self.columns, integer, self.direct)
            self.b_form = "packed"
        self.tiles = Tiles(self.emitter, contraction, len(SEVERAL) if self.windows else 0)
        buffers = sum(operand.role != "index" for operand in contraction.operands)
        self.scratch = self.emitter.buffer(2 + buffers) if self.split else None
        #: Whether the columns past the end must not be read where b lies.
        self.guarded = self.b_form != "packed"

    def emit(self) -> ir.Module:
        emitter = self.emitter
        emitter.repeat(emitter.begin, emitter.end, 1, [], self._tile)
        return emitter.finish()

    def _tile(self, tile: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
        emitter, builder, values = self.emitter, self.emitter.builder, self.tiles.values
        a, b, row, column = self.tiles.enter(tile)
        rows = self.tiles.left("m", row, values["m_block"])
        columns = self.tiles.left("n", column, values["n_block"])
        area = builder.mul(values["m_block"], values["n_block"])
        home = emitter.at(self.scratch, builder.mul(tile, area)) if self.split else emitter.stack

        def block(start: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
            depth = self.tiles.left("k", start, values["k_block"])

            def micro(i: ir.Value, j: ir.Value, b: ir.Value) -> None:
                place = builder.add(builder.mul(j, values["m_block"]), builder.mul(i, self._width))
                sums = emitter.at(home, place) if self.split else home
                where = (builder.add(row, i), builder.add(column, j))
                self._micro((a, b), where, (start, depth), sums)

            def panel(j: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
                return emitter.each(rows, self.rows, lambda i: micro(i, j, b))

            if self.windows and not self.direct:
                self._by_panels(self.windows, b, (column, columns), (start, depth), rows, micro)
            else:
                emitter.repeat(0, columns, self.columns, [], panel)
            return []

        if self.split:
            emitter.repeat(0, values["k"], values["k_block"], [], block)
        else:
            block(emitter.number(0), [])
        return []

    def _by_panels(
        self,
        windows: Windows,
        b: ir.Value,
        columns: tuple[ir.Value, ir.Value],
        depth: tuple[ir.Value, ir.Value],
        rows: ir.Value,
        micro: Callable[[ir.Value, ir.Value, ir.Value], None],
    ) -> None:
        """Some panels of b are made at a time, so that each row of a is read once for all."""
        emitter, builder = self.emitter, self.emitter.builder
        together = windows.together * self.columns

        def group(j: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
            count = emitter.minimum(builder.sub(columns[1], j), emitter.number(together))
            first = builder.add(columns[0], j)

            def fill(w: ir.Value) -> None:
                windows.fill(b, builder.add(first, w), windows.at(w), depth, self.tiles.values["n"])

            def row(i: ir.Value) -> None:
                emitter.each(
                    count, self.columns, lambda w: micro(i, builder.add(j, w), windows.at(w))
                )

            emitter.each(count, self.columns, fill)
            return emitter.each(rows, self.rows, row)

        emitter.repeat(0, columns[1], together, [], group)

    @property
    def _width(self) -> ir.Value:
        return self.emitter.number(self.columns)

    def _micro(
        self,
        bases: tuple[ir.Value, ir.Value],
        where: tuple[ir.Value, ir.Value],
        depth: tuple[ir.Value, ir.Value],
        sums: ir.Value,
    ) -> None:
        """One micro-tile over one block of k, then its epilogue if that was the last block."""
        emitter, builder, tiles = self.emitter, self.emitter.builder, self.tiles
        left_rows = tiles.left("m", where[0], self.rows)
        left_columns = tiles.left("n", where[1], self.columns)
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

    def _finish(self, total: list[ir.Value], block: _Block) -> None:
        """The epilogue, or what keeps the sums until the next block of k."""
        if not self.split:
            return self._end(total, block)
        builder = self.emitter.builder
        last = builder.icmp_signed("==", builder.add(*block.depth), self.tiles.values["k"])
        with builder.if_else(last) as (then, otherwise):
            with then:
                self._end(total, block)
            with otherwise:
                self._keep(total, block)

    def _end(self, total: list[ir.Value], block: _Block) -> None:
        """The epilogue: from registers for a whole micro-tile, if its code is short."""
        emitter, builder, epilogue = self.emitter, self.emitter.builder, self.tiles.epilogue
        rows = (block.where[0], block.rows)
        columns = (block.where[1], block.columns)
        if not epilogue.is_short(len(total)):
            self._keep(total, block)
            return epilogue.apply(block.sums, self.columns, rows, columns, emitter.lanes)
        whole = builder.icmp_signed("==", block.rows, emitter.number(self.rows))
        if not emitter.has_masks:
            wide = builder.icmp_signed("==", block.columns, self._width)
            whole = builder.and_(whole, wide)
        with builder.if_else(whole) as (then, otherwise):
            with then:
                epilogue.direct(total, self.vectors, block.where, block.columns)
            with otherwise:
                self._keep(total, block)
                epilogue.apply(block.sums, self.columns, rows, columns, emitter.lanes)

    def _keep(self, total: list[ir.Value], block: _Block) -> None:
        """Stores the sums."""
        for place, value in zip(self._places(block.sums), total, strict=True):
            self.emitter.store(value, place)

    def _places(self, sums: ir.Value) -> list[ir.Value]:
        """Addresses of a micro-tile's vectors."""
        return [
            self.emitter.at(sums, i * self.columns + v * self.emitter.lanes)
            for i in range(self.rows)
            for v in range(self.vectors)
        ]

    def _row_pointers(self, a: ir.Value, row: ir.Value, start: ir.Value) -> list[ir.Value]:
        """Where each row of the micro-tile starts; rows past the end repeat the last one."""
        emitter, builder, values = self.emitter, self.emitter.builder, self.tiles.values
        stride = values["a_stride"]
        if self.a_form == "packed":
            number = builder.udiv(row, emitter.number(self.rows))
            begin = builder.mul(start, emitter.number(self.rows))
            base = emitter.at(a, builder.add(builder.mul(number, stride), begin))
            return [base]
        last = builder.sub(values["m"], emitter.number(1))
        along = start if self.a_form == "k" else builder.mul(start, stride)
        base = emitter.at(a, along)
        pointers = []
        for i in range(self.rows):
            index = emitter.minimum(builder.add(row, emitter.number(i)), last) if i else row
            offset = builder.mul(index, stride) if self.a_form == "k" else index
            pointers.append(emitter.at(base, offset))
        return pointers

    def _panel_pointer(self, b: ir.Value, column: ir.Value, start: ir.Value) -> ir.Value:
        """Where the micro-tile's columns of b start."""
        emitter, builder, stride = self.emitter, self.emitter.builder, self.tiles.values["b_stride"]
        if self.windows:
            return b
        if self.b_form == "packed":
            number = builder.udiv(column, self._width)
            begin = builder.mul(start, self._width)
            return emitter.at(b, builder.add(builder.mul(number, stride), begin))
        return emitter.at(b, builder.add(builder.mul(start, stride), column))

    def _accumulate(
        self,
        rows: list[ir.Value],
        panel: ir.Value,
        block: _Block,
        columns: ir.Value | None,
    ) -> list[ir.Value]:
        """rows x panel, added to earlier blocks of k; no more than `columns` columns are read."""
        emitter, depth = self.emitter, block.depth
        start = self._initial(self._places(block.sums), depth[0])
        if self.windows and self.direct:
            return self._walked(self.windows, rows, panel, block, start)
        masks = self._masks(columns)

        def steps(count: int) -> Body:
            def body(k: ir.Value, total: list[ir.Value]) -> list[ir.Value]:
                return self._steps(rows, panel, k, count, total, masks, columns)

            return body

        if self.unroll == 1:
            return emitter.repeat(0, depth[1], 1, start, steps(1))
        bulk = emitter.builder.and_(depth[1], emitter.number(-self.unroll))
        final = emitter.repeat(0, bulk, self.unroll, start, steps(self.unroll))
        return emitter.repeat(bulk, depth[1], 1, final, steps(1))

    def _steps(
        self,
        rows: list[ir.Value],
        panel: ir.Value,
        k: ir.Value,
        count: int,
        total: list[ir.Value],
        masks: list[ir.Value],
        columns: ir.Value | None,
    ) -> list[ir.Value]:
        """`count` lines of b, each times one column of a."""
        emitter, builder = self.emitter, self.emitter.builder
        b_stride = self._width if self.b_form == "packed" else self.tiles.values["b_stride"]
        line = emitter.at(panel, builder.mul(k, b_stride))
        left = self._left(rows, k)
        total = list(total)
        for u in range(count):
            if u and self.b_form != "packed":
                line = emitter.at(line, b_stride)
            skip = u * self.columns if self.b_form == "packed" else 0
            right = [self._right(line, skip, v, masks, columns) for v in range(self.vectors)]
            self._multiply([left(i, u) for i in range(self.rows)], right, total)
            if self.a_form == "packed":
                # A panel of b stays in the first cache; that of a changes with every micro-tile.
                emitter.prefetch(left(0, u + AHEAD))
        return total

    def _multiply(self, left: list[ir.Value], right: list[ir.Value], total: list[ir.Value]) -> None:
        """One column of a times one line of b, added up."""
        emitter = self.emitter
        for i, place in enumerate(left):
            value = emitter.splat(emitter.load(place, emitter.type), emitter.lanes)
            for v in range(self.vectors):
                slot = i * self.vectors + v
                total[slot] = emitter.multiply_add(value, right[v], total[slot])

    def _walked(
        self,
        windows: Windows,
        rows: list[ir.Value],
        b: ir.Value,
        block: _Block,
        start: list[ir.Value],
    ) -> list[ir.Value]:
        """rows x windows, read where they lie."""

        def line(k: ir.Value, right: list[ir.Value], total: list[ir.Value]) -> list[ir.Value]:
            left, total = self._left(rows, k), list(total)
            self._multiply([left(i, 0) for i in range(self.rows)], right, total)
            return total

        column, lines = block.where[1], self.tiles.values["n"]
        return windows.walk(b, column, block.depth, lines, start, line)

    def _left(self, rows: list[ir.Value], k: ir.Value) -> Callable[[int, int], ir.Value]:
        """Where the element of row i, u steps after k, lies."""
        emitter, builder = self.emitter, self.emitter.builder
        if self.a_form == "packed":
            start = emitter.at(rows[0], builder.mul(k, emitter.number(self.rows)))
            return lambda i, u: emitter.at(start, u * self.rows + i)
        if self.a_form == "k":
            starts = [emitter.at(row, k) for row in rows]
            return lambda i, u: emitter.at(starts[i], u) if u else starts[i]
        stride = self.tiles.values["a_stride"]
        steps = [builder.mul(k, stride)]

        def place(i: int, u: int) -> ir.Value:
            while len(steps) <= u:
                steps.append(builder.add(steps[-1], stride))
            return emitter.at(rows[i], steps[u])

        return place

    def _initial(self, places: list[ir.Value], start: ir.Value) -> list[ir.Value]:
        """Zero in the first block of k, what the blocks before left in the later ones."""
        emitter, builder = self.emitter, self.emitter.builder
        zero = ir.Constant(emitter.vector, None)
        if not self.split:
            return [zero] * len(places)
        before = builder.block
        with builder.if_then(builder.icmp_signed(">", start, emitter.number(0))):
            loaded = [emitter.load(place, emitter.vector) for place in places]
            inside = builder.block
        phis = []
        for value in loaded:
            phi = builder.phi(emitter.vector)
            phi.add_incoming(zero, before)
            phi.add_incoming(value, inside)
            phis.append(phi)
        return phis

    def _masks(self, columns: ir.Value | None) -> list[ir.Value]:
        """One mask per vector where the machine has them."""
        emitter = self.emitter
        if columns is None or not emitter.has_masks:
            return []
        return [
            emitter.mask(
                emitter.builder.sub(columns, emitter.number(v * emitter.lanes)), emitter.lanes
            )
            for v in range(self.vectors)
        ]

    def _right(
        self,
        line: ir.Value,
        skip: int,
        v: int,
        masks: list[ir.Value],
        columns: ir.Value | None,
    ) -> ir.Value:
        """Vector `v` of the line of b `skip` elements after `line`."""
        emitter, builder, lanes = self.emitter, self.emitter.builder, self.emitter.lanes
        if columns is None:
            return emitter.load(emitter.at(line, skip + v * lanes), emitter.vector)
        if masks:
            return emitter.masked_load(emitter.at(line, v * lanes), emitter.vector, masks[v])
        last = builder.sub(columns, emitter.number(1))
        vector = ir.Constant(emitter.vector, ir.Undefined)
        for lane in range(lanes):
            index = emitter.minimum(emitter.number(v * lanes + lane), last)
            value = emitter.load(emitter.at(line, index), emitter.type)
            vector = builder.insert_element(vector, value, ir.Constant(ir.IntType(32), lane))
        return vector

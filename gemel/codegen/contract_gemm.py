"""The register-tiled product: a block of rows times a few vectors of columns, summed along k.

The scheme is Goto's and van de Geijn's (Anatomy of High-Performance Matrix Multiplication, 2008):
one micro-tile of the result stays in registers while a panel of ``a`` and a panel of ``b`` stream by.
Panels are either packed beforehand (`contract_pack`) or read where they lie.
"""

from __future__ import annotations

from llvmlite import ir

from gemel.codegen.contract_emit import I64, Emitter, Epilogue
from gemel.codegen.program import Contraction
from gemel.codegen.target import Target

#: Run-time integers before the operands' strides, in order.
HEADER = (
    "m",
    "n",
    "k",
    "batch",  # extent of the inner batch axis
    "a_stride",  # between rows, or between k, or between packed panels
    "a_outer",
    "a_inner",
    "b_stride",
    "b_outer",
    "b_inner",
    "m_block",  # rows and columns of one tile, whole micro-tiles
    "n_block",
    "m_tiles",
    "n_tiles",
    "k_block",
)

#: How many steps of k ahead packed panels are asked for.
AHEAD = 16
PREFETCH_B = 8
#: How many steps of k are written out: the loop's own arithmetic takes slots from the multiply-adds.
UNROLL = 4


class Tiles:
    """The part common to all products: run-time integers and the loop over tiles."""

    def __init__(self, emitter: Emitter, contraction: Contraction) -> None:
        self.emitter = emitter
        self.values = {name: emitter.integer(i) for i, name in enumerate(HEADER)}
        self.a, self.b = emitter.buffer(0), emitter.buffer(1)
        self.epilogue = Epilogue(emitter, contraction, 2, len(HEADER))

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
    """The kernel of a contraction whose variant is ``gemm ROWSxCOLUMNS a:FORM b:FORM [split]``."""
    return _Gemm(contraction, target).emit()


class _Gemm:
    def __init__(self, contraction: Contraction, target: Target) -> None:
        words = contraction.variant.split()
        self.rows, self.columns = (int(word) for word in words[1].split("x"))
        self.a_form, self.b_form = words[2][2:], words[3][2:]
        self.split = "split" in words
        self.unroll = UNROLL
        stack = 0 if self.split else self.rows * self.columns
        self.emitter = Emitter(contraction.dtype, target, stack)
        self.vectors = self.columns // self.emitter.lanes
        self.tiles = Tiles(self.emitter, contraction)
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

            def panel(j: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
                def micro(i: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
                    place = builder.add(builder.mul(j, values["m_block"]), builder.mul(i, self._width))
                    sums = emitter.at(home, place) if self.split else home
                    where = (builder.add(row, i), builder.add(column, j))
                    self._micro((a, b), where, (start, depth), sums)
                    return []

                emitter.repeat(0, rows, self.rows, [], micro)
                return []

            emitter.repeat(0, columns, self.columns, [], panel)
            return []

        if self.split:
            emitter.repeat(0, values["k"], values["k_block"], [], block)
        else:
            block(emitter.number(0), [])
        return []

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
        if self.guarded and not emitter.has_masks:
            whole = builder.icmp_signed("==", left_columns, self._width)
            with builder.if_else(whole) as (then, otherwise):
                with then:
                    self._accumulate(rows, panel, depth, sums, None)
                with otherwise:
                    self._accumulate(rows, panel, depth, sums, left_columns)
        else:
            self._accumulate(rows, panel, depth, sums, left_columns if self.guarded else None)

        def finish() -> None:
            tiles.epilogue.apply(
                sums, self.columns, (where[0], left_rows), (where[1], left_columns), emitter.lanes
            )

        if not self.split:
            return finish()
        last = builder.icmp_signed("==", builder.add(*depth), tiles.values["k"])
        with builder.if_then(last):
            finish()

    def _row_pointers(self, a: ir.Value, row: ir.Value, start: ir.Value) -> list[ir.Value]:
        """Where each row of the micro-tile starts; rows past the end repeat the last one."""
        emitter, builder, values = self.emitter, self.emitter.builder, self.tiles.values
        stride = values["a_stride"]
        if self.a_form == "packed":
            number = builder.udiv(row, emitter.number(self.rows))
            begin = builder.mul(start, emitter.number(self.rows))
            base = emitter.at(a, builder.add(builder.mul(number, stride), begin))
            return [emitter.at(base, i) for i in range(self.rows)]
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
        if self.b_form == "packed":
            number = builder.udiv(column, self._width)
            begin = builder.mul(start, self._width)
            return emitter.at(b, builder.add(builder.mul(number, stride), begin))
        return emitter.at(b, builder.add(builder.mul(start, stride), column))

    def _accumulate(
        self,
        rows: list[ir.Value],
        panel: ir.Value,
        depth: tuple[ir.Value, ir.Value],
        sums: ir.Value,
        columns: ir.Value | None,
    ) -> None:
        """sums (+)= rows x panel; with `columns`, no more than that many columns are read."""
        emitter, lanes = self.emitter, self.emitter.lanes
        places = [
            emitter.at(sums, i * self.columns + v * lanes)
            for i in range(self.rows)
            for v in range(self.vectors)
        ]
        start = self._initial(places, depth[0])
        masks = self._masks(columns)

        def step(k: ir.Value, total: list[ir.Value]) -> list[ir.Value]:
            return self._step(rows, panel, k, total, masks, columns)

        def several(k: ir.Value, total: list[ir.Value]) -> list[ir.Value]:
            for u in range(self.unroll):
                total = step(emitter.builder.add(k, emitter.number(u)) if u else k, total)
            return total

        if self.unroll == 1:
            final = emitter.repeat(0, depth[1], 1, start, step)
        else:
            bulk = emitter.builder.and_(depth[1], emitter.number(-self.unroll))
            final = emitter.repeat(0, bulk, self.unroll, start, several)
            final = emitter.repeat(bulk, depth[1], 1, final, step)
        for place, value in zip(places, final, strict=True):
            emitter.store(value, place)

    def _step(
        self,
        rows: list[ir.Value],
        panel: ir.Value,
        k: ir.Value,
        total: list[ir.Value],
        masks: list[ir.Value],
        columns: ir.Value | None,
    ) -> list[ir.Value]:
        """One line of b times one column of a."""
        emitter = self.emitter
        if self.b_form == "packed":
            line = emitter.at(panel, emitter.builder.mul(k, self._width))
        else:
            line = emitter.at(panel, emitter.builder.mul(k, self.tiles.values["b_stride"]))
        right = [self._right(line, v, masks, columns) for v in range(self.vectors)]
        self._prefetch(line, rows[0], k)
        total = list(total)
        for i, row in enumerate(rows):
            left = emitter.splat(emitter.load(self._along(row, k), emitter.type), emitter.lanes)
            for v in range(self.vectors):
                slot = i * self.vectors + v
                total[slot] = emitter.multiply_add(left, right[v], total[slot])
        return total

    def _prefetch(self, line: ir.Value, row: ir.Value, k: ir.Value) -> None:
        """Asks for what is read some steps ahead, where the processor would not by itself.

        A packed panel of b stays in the first cache; that of a changes with every micro-tile. Lines
        of an unpacked b are far apart.
        """
        emitter, builder = self.emitter, self.emitter.builder
        if self.a_form == "packed":
            emitter.prefetch(emitter.at(self._along(row, k), AHEAD * self.rows))
        if self.b_form != "packed" and PREFETCH_B:
            ahead = emitter.at(line, builder.mul(emitter.number(PREFETCH_B), self.tiles.values["b_stride"]))
            for v in range(self.vectors):
                emitter.prefetch(emitter.at(ahead, v * emitter.lanes))

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
            emitter.mask(emitter.builder.sub(columns, emitter.number(v * emitter.lanes)), emitter.lanes)
            for v in range(self.vectors)
        ]

    def _right(
        self, line: ir.Value, v: int, masks: list[ir.Value], columns: ir.Value | None
    ) -> ir.Value:
        """Vector `v` of one line of b."""
        emitter, builder, lanes = self.emitter, self.emitter.builder, self.emitter.lanes
        if columns is None:
            return emitter.load(emitter.at(line, v * lanes), emitter.vector)
        if masks:
            return emitter.masked_load(emitter.at(line, v * lanes), emitter.vector, masks[v])
        last = builder.sub(columns, emitter.number(1))
        vector = ir.Constant(emitter.vector, ir.Undefined)
        for lane in range(lanes):
            index = emitter.minimum(emitter.number(v * lanes + lane), last)
            value = emitter.load(emitter.at(line, index), emitter.type)
            vector = builder.insert_element(vector, value, ir.Constant(ir.IntType(32), lane))
        return vector

    def _along(self, row: ir.Value, k: ir.Value) -> ir.Value:
        """Element k of a row of a."""
        emitter, builder = self.emitter, self.emitter.builder
        if self.a_form == "k":
            return emitter.at(row, k)
        if self.a_form == "packed":
            return emitter.at(row, builder.mul(k, ir.Constant(I64, self.rows)))
        return emitter.at(row, builder.mul(k, self.tiles.values["a_stride"]))

"""The register-tiled product: a block of rows times a few vectors of columns, summed along k.

The scheme is Goto's and van de Geijn's (Anatomy of High-Performance Matrix Multiplication,
2008): one micro-tile of the result stays in registers while panels of ``a`` and ``b`` stream by.
PanelRoom are either packed beforehand (`contract_pack`) or read where they lie.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from itertools import chain

from gemel.codegen import memory
from gemel.codegen.access import Bases
from gemel.codegen.assembly import Constant, Module, Value
from gemel.codegen.contract_emit import Elements, Range, sum_position
from gemel.codegen.contract_plan import WIDE, panel_depth
from gemel.codegen.contract_task import DEPTH
from gemel.codegen.contract_tile import Tile
from gemel.codegen.contract_windows import PanelRoom, Windows
from gemel.codegen.frame import Body, i64
from gemel.codegen.program import INDEX, ROWS, Program
from gemel.codegen.target import Target

#: Which lanes of each vector of a line are read; None for all of them.
Masks = list[Value | None] | None


class Feed(Enum):
    """What a micro-tile reads b from, a line of it for each k; all but the first have a whole
    number of vectors for each micro-tile, so nothing past the end is read."""

    #: Where b lies along its columns: masks keep it from what is past the last of them.
    LYING = auto()
    #: In panels that a step before has made, of what b is stored as.
    PACKED = auto()
    #: In panels that this kernel has made on its stack, of factors: they need no cast, and are
    #: near, so that nobody asks for them early.
    MADE = auto()
    #: Windows, put together of where they lie, for each k anew.
    WALKED = auto()


#: Computes a micro-tile: its first row and column, where its columns of b are, what they are read
#: from, and where what is read of them is to be packed.
Multiply = Callable[[Value, Value, Value, Feed, Value | None], None]

#: How many steps of k ahead packed panels are asked for: of a into the first cache, of a b that is
#: `far` into the second.
AHEAD, AHEAD_FAR = 16, 64
#: With more sums than these there is no room for two lines of b.
TWO_LINES = 16
#: How many lines of memory of a `far` b that is read where it lies are underway at a time.
UNDERWAY = 160


def emit(program: Program, target: Target) -> Module:
    """The kernel of the schedule ``gemm ROWSxCOLUMNS a:FORM b:FORM``, with ``split``, ``direct``,
    ``across``, ``vnni``, ``by-rows``, ``far``, ``packs-b`` or ``narrow`` behind that."""
    return _Gemm(program, target).emit()


class _Gemm(Tile):
    def __init__(self, program: Program, target: Target) -> None:
        way = program.way
        rows, columns = way.rows, way.columns
        size = columns * program.code[sum_position(program)].dtype.itemsize
        # Of few columns all are one vector, a narrower one.
        super().__init__(program, target.narrowed(size), rows, columns)
        self.a_form = way.a_form
        self.b_feed = {"n": Feed.LYING, "packed": Feed.PACKED}.get(way.b_form, Feed.WALKED)
        self.split, self.across = way.split, way.across
        self.far, self.narrow = way.far, way.narrow
        self.vectors = columns // self.lanes
        self.unroll = 2 if rows * self.vectors > 12 else 4
        k = program.rank - 1
        #: From line to line, or from panel to panel; and along the other axis.
        self.a_stride = self.stride(0, k if self.a_form == "m" else ROWS)
        self.b_stride = self.stride(1, k if self.b_feed is Feed.LYING else ROWS + 1)
        #: Where sums are stored: for all tiles, or for one of them.
        buffers = sum(operand.role != INDEX for operand in program.operands)
        self.scratch = self.buffer(buffers) if self.split else self.reserve(rows * columns)
        self.packs_b = way.packs_b
        #: What reads b that is windows; and where panels of b are made here, if they are.
        self.windows: Windows | None = None
        self.panels: PanelRoom | None = None
        if self.b_feed is Feed.WALKED:
            together = self.sum.together
            self.windows = Windows(self, self.sum.lying(1), way.b_form, columns, together)
            if not way.direct:
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
                place = builder.add(
                    builder.mul(j, values["m_block"]), builder.mul(i, i64(self.columns))
                )
                sums = self.at(home, place) if self.split else home
                where = builder.add(rows[0], i), builder.add(columns[0], j)
                made = _Micro(self, sums, where, depth, feed, pack_to)
                if not self.narrow or feed is Feed.WALKED:
                    return made.emit(bases[0], b)
                few = builder.icmp_signed("<=", made.columns, i64(self.lanes))
                with builder.if_else(few) as (one, all_of_them):
                    with one:
                        _Micro(self, sums, where, depth, feed, pack_to, 1).emit(bases[0], b)
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
        """Some panels of b are made at a time, so that each row of a is read once for all, and
        results are written in long runs.

        Where it `packs_b` what it reads the first rows make them: what is written beside
        multiply-adds takes no time of its own.
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
                    place = builder.add(builder.add(columns[0], j), w)
                    self.windows.fill(bases[1], place, panel, depth)

            def made(i: Value, w: Value) -> None:
                micro(i, builder.add(j, w), panels.at(w, depth), Feed.MADE, None)

            def row(i: Value) -> None:
                self.each(0, count, self.columns, lambda w: made(i, w))

            self.each(0, count, self.columns, make)
            self.each(self.rows if self.packs_b else 0, rows, self.rows, row)

        self.each(0, columns[1], together, group)

    # -- where the operands of a micro-tile lie ----------------------------------------------

    def _panel(self, number: int, base: Value, line: Value, start: Value) -> Value:
        """Where the panel that begins with a line is, from a step on."""
        builder, width = self.builder, i64((self.rows, self.columns)[number])
        stride = self.stride(number, ROWS + number)
        dtype = self.program.operands[number].dtype
        far = builder.mul(builder.udiv(line, width), stride)
        panel = memory.element(builder, base, far, dtype)
        return (self.left, self.right)[number].at(panel, builder.mul(start, width))

    def row_pointers(self, a: Value, row: Value, start: Value) -> list[Value]:
        """Where each row of the micro-tile starts; rows past the end repeat the last one."""
        builder, stride = self.builder, self.a_stride
        if self.a_form == "packed":
            return [self._panel(0, a, row, start)]
        if self.a_form == "k":
            return self.lines(0, self.left.at(a, start), row, self.rows)
        base = self.left.at(a, builder.mul(start, stride))
        last = builder.sub(self.m, i64(1))
        further = (builder.minimum(builder.add(row, i64(i)), last) for i in range(1, self.rows))
        return [self.left.at(base, index) for index in (row, *further)]

    def panel_pointer(self, b: Value, column: Value, start: Value, feed: Feed) -> Value:
        """Where the micro-tile's columns of b start."""
        if feed in (Feed.MADE, Feed.WALKED):
            return b
        if feed is Feed.PACKED:
            return self._panel(1, b, column, start)
        builder = self.builder
        return self.right.at(b, builder.add(builder.mul(start, self.b_stride), column))

    def elements(self, rows: list[Value], k: Value) -> Callable[[int, int], Value]:
        """Where the element of row i, u steps after k, lies."""
        at, builder = self.left.at, self.builder
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


class _Micro:
    """One micro-tile over one block of k: where it is, how much of `depth`, rows and columns there
    is, and where its sums are; what it reads b from, and where it packs what it reads.

    Of its columns only the first `vectors` are there, if that is said."""

    def __init__(
        self,
        kernel: _Gemm,
        sums: Value,
        where: tuple[Value, Value],
        depth: Range,
        feed: Feed,
        pack_to: Value | None,
        vectors: int = 0,
    ) -> None:
        self.kernel, self.builder = kernel, kernel.builder
        self.vectors = vectors or kernel.vectors
        self.where, self.depth, self.sums = where, depth, sums
        self.feed, self.pack_to = feed, pack_to
        #: What was left in panels here are the factors.
        self.right: Elements = kernel if feed is Feed.MADE else kernel.right
        #: Whether the columns past the end must not be read where b lies.
        self.guarded = feed is Feed.LYING
        # What is asked for, or left, stands between one step's lines and the next one's: of two
        # steps LLVM reads both lines before the first is used, and has too few registers.
        many = kernel.rows * kernel.vectors > TWO_LINES
        self.unroll = 1 if self.guarded and (kernel.far and many or pack_to) else kernel.unroll
        #: Whether b is asked for: what was left in panels here is near.
        self.far = kernel.far and feed is not Feed.MADE
        self.rows = kernel.remaining(kernel.m, where[0], kernel.rows)
        self.columns = kernel.remaining(kernel.n, where[1], kernel.columns)

    def emit(self, a: Value, b: Value) -> None:
        """The micro-tile, then its epilogue if that was the last block."""
        kernel, start = self.kernel, self.depth[0]
        kernel.epilogue.ask(self.where, kernel.rows, self.vectors)
        self.lines = kernel.row_pointers(a, self.where[0], start)
        self.panel = kernel.panel_pointer(b, self.where[1], start, self.feed)
        if self.far and self.guarded:
            self.below = self._below()
        elif self.far:
            self.next = self._next_panel(b, start)
        if not self.guarded or kernel.has_masks:
            return self._finish(self._sums(self.guarded))
        with self.builder.if_else(self._is_wide()) as (then, otherwise):
            with then:
                self._finish(self._sums(False))
            with otherwise:
                self._finish(self._sums(True))

    def _is_wide(self) -> Value:
        """Whether there are all columns."""
        return self.builder.icmp_signed("==", self.columns, i64(self.width))

    @property
    def width(self) -> int:
        """How many columns it computes, those past the end among them."""
        return self.vectors * self.kernel.lanes

    # -- the sums ------------------------------------------------------------------------------

    def _sums(self, guarded: bool) -> list[Value]:
        """The products, added to earlier blocks of k; of `guarded` ones no columns past the last
        are read."""
        kernel = self.kernel
        start = self._initial()
        if kernel.windows and self.feed is Feed.WALKED:
            return kernel.windows.walk(self.panel, self.where[1], self.depth, start, self._step)
        masks = kernel.masks(self.columns, self.vectors, kernel.lanes) if guarded else None

        def steps(count: int) -> Body:
            return lambda k, total: self._steps(k, count, total, masks)

        zero, more = Constant(kernel.vector, "zeroinitializer"), kernel.sum.more
        start += [zero] * len(more) * self.vectors
        bulk = self.builder.and_(self.depth[1], i64(-self.unroll))
        middle = kernel.loop(0, bulk, self.unroll, start, steps(self.unroll))
        if self.unroll > 1:
            middle = kernel.loop(bulk, self.depth[1], 1, middle, steps(1))
        return kernel.sum.settled(middle, self.vectors)

    def _initial(self) -> list[Value]:
        """Zero in the first block of k, what the blocks before left in the later ones."""
        kernel, builder, places = self.kernel, self.builder, self._places()
        zero = Constant(kernel.vector, "zeroinitializer")
        if not kernel.split:
            return [zero] * len(places)
        before = builder.block
        with builder.if_then(builder.icmp_signed(">", self.depth[0], i64(0))):
            loaded = [kernel.load(place) for place in places]
            inside = builder.block
        return [builder.phi(kernel.vector, (zero, before), (value, inside)) for value in loaded]

    def _steps(self, k: Value, count: int, total: list[Value], masks: Masks) -> list[Value]:
        """`count` lines of b, each times one column of a."""
        kernel, right = self.kernel, self.right
        packed = not self.guarded
        stride = i64(kernel.columns) if packed else kernel.b_stride
        line = right.at(self.panel, self.builder.mul(k, stride))
        left, total = kernel.elements(self.lines, k), list(total)
        for u in range(count):
            if u and not packed:
                line = right.at(line, stride)
            if self.far and not packed:
                self._ask_below(line, self.builder.add(k, i64(u)))
            vectors = self._line(line, u * kernel.columns if packed else 0, masks)
            self._multiply([left(i, u) for i in range(kernel.rows)], vectors, total)
            if self.pack_to:
                self._leave(vectors, self.pack_to, self.builder.add(k, i64(u)))
            if self.far and packed:
                self._ask(line, k, u)
            if kernel.a_form == "packed":
                # A panel of b stays in the first cache; that of a changes with every micro-tile.
                kernel.prefetch(left(0, u + AHEAD))
        return total

    def _leave(self, vectors: list[Value], panel: Value, k: Value) -> None:
        """Puts a line of b into its panel."""
        kernel = self.kernel
        line = self.builder.mul(k, i64(kernel.columns))
        for v, vector in enumerate(vectors):
            place = kernel.at(panel, self.builder.add(line, i64(v * kernel.lanes)))
            kernel.store(vector, place)

    def _below(self) -> tuple[Value, Value, Value]:
        """Up to which step of k lines below are asked for, how far below, and where from there on:
        in the next columns."""
        kernel, builder = self.kernel, self.builder
        lines = -(-kernel.columns // self.right.per_cache_line)
        steps = builder.minimum(i64(max(AHEAD, UNDERWAY // lines)), self.depth[1])
        last = builder.sub(self.depth[1], steps)
        up = builder.mul(last, kernel.b_stride)
        across = builder.sub(i64(kernel.columns), up)
        return last, builder.mul(steps, kernel.b_stride), across

    def _ask_below(self, line: Value, k: Value) -> None:
        """Asks for a piece of a page that no prefetcher of a processor foresees."""
        kernel, builder, right = self.kernel, self.builder, self.right
        last, down, across = self.below
        beyond = builder.icmp_signed(">=", k, last)
        ahead = right.at(line, builder.select(beyond, across, down))
        each = right.per_cache_line
        for end in range(each, kernel.columns + each, each):
            kernel.prefetch(right.at(ahead, min(end, kernel.columns) - 1), 2)

    def _next_panel(self, b: Value, start: Value) -> Value:
        """The lines of the next panel of b that these rows ask for: half as many as k has steps,
        other ones than the rows before, so that all are there when the panel is read."""
        kernel, builder = self.kernel, self.builder
        column = builder.add(self.where[1], i64(kernel.columns))
        panel = kernel.panel_pointer(b, column, start, self.feed)
        shares = 1 << (2 * kernel.vectors - 1).bit_length()
        share = builder.and_(builder.udiv(self.where[0], i64(kernel.rows)), i64(shares - 1))
        first = builder.mul(share, builder.udiv(self.depth[1], i64(2)))
        return kernel.right.at(panel, builder.mul(first, i64(kernel.lanes)))

    def _ask(self, line: Value, k: Value, u: int) -> None:
        """Asks for what is far: the first rows to need a panel would wait for memory."""
        kernel, builder = self.kernel, self.builder
        for v in range(self.vectors):
            ahead = (u + AHEAD_FAR) * kernel.columns + v * kernel.lanes
            kernel.prefetch(kernel.right.at(line, ahead), 2)
        if u % 2:
            half = builder.udiv(builder.add(k, i64(u)), i64(2))
            place = builder.mul(half, i64(kernel.lanes))
            kernel.prefetch(kernel.right.at(self.next, place), 2)

    def _multiply(self, left: list[Value], right: list[Value], total: list[Value]) -> None:
        """One column of a times one line of b, added up."""
        terms, load = self.kernel.sum, self.kernel.left.load
        rows = (terms.row(load(place, 1)) for place in left)
        for i, value in enumerate(chain(rows, terms.more)):
            for v, other in enumerate(right):
                slot = i * len(right) + v
                total[slot] = terms.added(total[slot], value, other)

    def _step(self, k: Value, right: list[Value], total: list[Value]) -> list[Value]:
        """One column of a times the windows at k."""
        left, total = self.kernel.elements(self.lines, k), list(total)
        self._multiply([left(i, 0) for i in range(self.kernel.rows)], right, total)
        if self.pack_to:
            self._leave(right, self.pack_to, k)
        return total

    def _line(self, line: Value, skip: int, masks: Masks) -> list[Value]:
        """The vectors of the line of b `skip` elements after `line`."""
        kernel, right, lanes = self.kernel, self.right, self.kernel.lanes
        starts = range(0, self.width, lanes)
        if masks is None:
            return [right.load(right.at(line, skip + start)) for start in starts]
        if kernel.has_masks:
            places = (right.at(line, start) for start in starts)
            return [right.load(p, mask=mask) for p, mask in zip(places, masks, strict=True)]
        return [self._one_by_one(line, start) for start in starts]

    def _one_by_one(self, line: Value, start: int) -> Value:
        """A vector of a line; columns past the end repeat the last one."""
        kernel, right = self.kernel, self.right
        last = self.builder.sub(self.columns, i64(1))
        vector: Value = Constant(kernel.vector, "zeroinitializer")
        for lane in range(kernel.lanes):
            index = self.builder.minimum(i64(start + lane), last)
            vector = kernel.insert(vector, right.load(right.at(line, index), 1), lane)
        return vector

    # -- what follows on them ------------------------------------------------------------------

    def _finish(self, total: list[Value]) -> None:
        """The epilogue, or what stores the sums until the next block of k.

        It works on registers for a whole micro-tile, if its code is short.
        """
        kernel, builder, epilogue = self.kernel, self.builder, self.kernel.epilogue
        if not epilogue.is_short(len(total)):
            return self._from_memory(total)
        whole = builder.icmp_signed("==", self.rows, i64(kernel.rows))
        if not kernel.has_masks:
            whole = builder.and_(whole, self._is_wide())
        if kernel.split:
            whole = builder.and_(whole, self._is_last())
        with builder.if_else(whole) as (then, other):
            with then:
                epilogue.from_registers(total, self.vectors, self.where, self.columns)
            with other:
                self._from_memory(total)

    def _is_last(self) -> Value:
        """Whether no further block of k follows."""
        return self.builder.icmp_signed("==", self.builder.add(*self.depth), self.kernel.depth)

    def _from_memory(self, total: list[Value]) -> None:
        """Stores the sums; then, if these are all, the epilogue."""
        for place, value in zip(self._places(), total, strict=True):
            self.kernel.store(value, place)
        if not self.kernel.split:
            return self._apply()
        with self.builder.if_then(self._is_last()):
            self._apply()

    def _apply(self) -> None:
        """The epilogue, of sums that are stored."""
        kernel, (row, column) = self.kernel, self.where
        rows, columns = (row, self.rows), (column, self.columns)
        kernel.epilogue.from_memory(self.sums, self.width, rows, columns)

    def _places(self) -> list[Value]:
        """Addresses of the sums' vectors."""
        kernel, size = self.kernel, self.kernel.rows * self.width
        return [kernel.at(self.sums, place) for place in range(0, size, kernel.lanes)]

"""A micro-tile of a product: some rows times a few vectors of columns, summed along k in registers.

`tiles.gemm` says which micro-tiles there are, and where their rows of a lie.
"""

from __future__ import annotations

from enum import Enum, auto
from itertools import chain

from gemel.codegen.contract.task import STREAMED
from gemel.codegen.llvm.assembly import Value, zeros
from gemel.codegen.loops.frame import Body, i64
from gemel.codegen.tiles.emit import Elements, Range

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gemel.codegen.tiles.gemm import Gemm

#: Which lanes of each vector of a line are read; None: all of them.
Masks = list[Value | None] | None


class Feed(Enum):
    """What a micro-tile reads b from. All but `LYING` have a whole number of vectors for each
    micro-tile, so nothing past the end is read."""

    #: From b itself, which is contiguous along its columns.
    LYING = auto()
    #: From panels that an earlier step has made, in the dtype in which they are stored.
    PACKED = auto()
    #: From panels that this kernel has made on its stack: of factors, in a near cache.
    MADE = auto()
    #: From windows, whose vectors are assembled again for each k.
    WALKED = auto()


#: How many steps of k ahead packed panels are prefetched: those of a into the first-level cache,
#: those of a `far` b into the second-level cache.
AHEAD, AHEAD_FAR = 16, 64
#: With more sums than these, no registers are left for two lines of b.
TWO_LINES = 14
#: How many cache lines are in flight at a time if a `far` b is read where it lies.
UNDERWAY = 160


class MicroTile:
    """One micro-tile over one block of k.

    `where` is its first row and column, `depth` its range of k, `sums` the address of its sums. b
    is read from a source of the kind `feed`; what is read is packed to `pack_to`, if that is not
    None. `vectors`: only so many vectors of its columns exist (0: all of them)."""

    def __init__(
        self,
        kernel: Gemm,
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
        #: Panels that this kernel has made hold the factors themselves.
        self.right: Elements = kernel if feed is Feed.MADE else kernel.right
        #: Whether columns past the end must not be read: b is read where it lies.
        self.guarded = feed is Feed.LYING
        # Prefetches and stores stand between the lines of one step and those of the next. If two
        # steps were unrolled, LLVM would read both lines first and run out of registers.
        many = kernel.rows * kernel.vectors > TWO_LINES
        self.unroll = 1 if self.guarded and (kernel.far and many or pack_to) else kernel.unroll
        #: Whether b is prefetched. Panels that this kernel has made are in a near cache.
        self.far = kernel.far and feed is not Feed.MADE
        self.rows = kernel.remaining(kernel.m, where[0], kernel.rows)
        self.columns = kernel.remaining(kernel.n, where[1], kernel.columns)

    def emit(self, a: Value, b: Value) -> None:
        """Computes the micro-tile; after the last block of k, its epilogue follows."""
        kernel, start = self.kernel, self.depth[0]
        kernel.epilogue.prefetch(self.where, kernel.rows, self.vectors)
        self.lines = kernel.row_pointers(a, self.where[0], start)
        self.panel = kernel.panel_pointer(b, self.where[1], start, self.feed)
        if self.far and self.guarded:
            self.below = self._below()
        elif self.far:
            self.next = self._next_panel(b, start)
        self._finish(self._sums())

    def _is_wide(self) -> Value:
        """Whether all columns of the micro-tile exist."""
        return self.builder.icmp_signed("==", self.columns, i64(self.width))

    @property
    def width(self) -> int:
        """How many columns are computed, including those past the end."""
        return self.vectors * self.kernel.lanes

    # -- the sums ------------------------------------------------------------------------------

    def _sums(self) -> list[Value]:
        """The sums, including those of earlier blocks of k. No element past the end of a or b is
        read: the last lines of both are read with care, b's under masks where these are not free.
        What is read past the end of another line is in rows and lanes that are not used."""
        kernel, depth = self.kernel, self.depth[1]
        start = self._initial()
        if kernel.windows and self.feed is Feed.WALKED:
            return kernel.windows.walk(self.panel, self.where[1], self.depth, start, self._step)
        masked = self.guarded and kernel.target.free_masks
        masks = self._masks() if masked else None
        bare = self.guarded and not masked

        def steps(count: int) -> Body:
            return lambda k, total: self._steps(k, count, total, masks)

        start += [zeros(kernel.vector)] * len(kernel.sum.more) * self.vectors
        stop = self._inner_lines(bare) if bare or kernel.a_form == "m" else depth
        bulk = self.builder.and_(stop, i64(-self.unroll))
        middle = kernel.loop(0, bulk, self.unroll, start, steps(self.unroll))
        if self.unroll > 1:
            middle = kernel.loop(bulk, stop, 1, middle, steps(1))
        if stop is not depth:
            middle = kernel.loop(stop, depth, 1, middle, self._last_step)
        return kernel.sum.settled(middle, self.vectors)

    def _masks(self) -> Masks:
        return self.kernel.masks(self.columns, self.vectors, self.kernel.lanes)

    def _last_step(self, k: Value, total: list[Value]) -> list[Value]:
        """A step that reads nothing past the end of a line."""
        masks = self._masks() if self.guarded else None
        return self._steps(k, 1, total, masks, self._last_row())

    def _last_row(self) -> Value | None:
        """The last row, if rows lie side by side."""
        side_by_side = self.kernel.a_form == "m"
        return self.builder.sub(self.rows, i64(1)) if side_by_side else None

    def _inner_lines(self, bare: bool) -> Value:
        """How many steps of k may read whole lines of a, if rows lie side by side, and of b if it
        is `bare`: all if these exist, else all but the last. None if what is read past the end of
        a line may reach past that of the next."""
        kernel, builder, depth = self.kernel, self.builder, self.depth[1]
        past = []
        if kernel.a_form == "m":
            past.append((builder.sub(i64(kernel.rows), self.rows), kernel.a_stride))
        if bare:
            past.append((builder.sub(i64(self.width), self.columns), kernel.b_stride))
        inner, whole = builder.sub(depth, i64(1)), depth
        for missing, stride in past:
            within = builder.icmp_signed("<=", missing, stride)
            inner = builder.select(within, inner, i64(0))
        for missing, _ in past:
            whole = builder.select(builder.icmp_signed("==", missing, i64(0)), whole, inner)
        return kernel.maximum(whole, i64(0))

    def _initial(self) -> list[Value]:
        """Zero in the first block of k; in later blocks, the sums that the earlier ones stored."""
        kernel, builder, pointers = self.kernel, self.builder, self._sum_pointers()
        zero = zeros(kernel.vector)
        if not kernel.split:
            return [zero] * len(pointers)
        before = builder.block
        with builder.if_then(builder.icmp_signed(">", self.depth[0], i64(0))):
            loaded = [kernel.load(pointer) for pointer in pointers]
            inside = builder.block
        return [builder.phi(kernel.vector, (zero, before), (value, inside)) for value in loaded]

    def _steps(
        self, k: Value, count: int, total: list[Value], masks: Masks, last: Value | None = None
    ) -> list[Value]:
        """Multiplies each of `count` lines of b with a column of a and adds the products; `last` as
        for `elements`."""
        kernel, right = self.kernel, self.right
        packed = not self.guarded
        stride = i64(kernel.columns) if packed else kernel.b_stride
        line = right.at(self.panel, self.builder.mul(k, stride))
        left, total = kernel.elements(self.lines, k, last), list(total)
        for u in range(count):
            if u and not packed:
                line = right.at(line, stride)
            if self.far and not packed:
                self._prefetch_below(line, self.builder.add(k, i64(u)))
            vectors = self._line(line, u * kernel.columns if packed else 0, masks)
            self._multiply([left(i, u) for i in range(kernel.rows)], vectors, total)
            if self.pack_to:
                self._pack_line(vectors, self.pack_to, self.builder.add(k, i64(u)))
            if self.far and packed:
                self._prefetch_panel(line, k, u)
            if kernel.a_form == "packed":
                # A panel of b stays in the first-level cache; the panel of a is new for each
                # micro-tile.
                kernel.prefetch(left(0, u + AHEAD))
        return total

    def _pack_line(self, vectors: list[Value], panel: Value, k: Value) -> None:
        """Stores a line of b in its panel."""
        kernel = self.kernel
        line = self.builder.mul(k, i64(kernel.columns))
        for v, vector in enumerate(vectors):
            pointer = kernel.at(panel, self.builder.add(line, i64(v * kernel.lanes)))
            kernel.store(vector, pointer)

    def _below(self) -> tuple[Value, Value, Value]:
        """For prefetching b where it lies: up to which step of k the lines below are prefetched,
        how far below these are, and the distance to prefetch from that step on: in the next
        columns."""
        kernel, builder = self.kernel, self.builder
        lines = -(-kernel.columns // self.right.per_cache_line)
        steps = builder.minimum(i64(max(AHEAD, UNDERWAY // lines)), self.depth[1])
        last = builder.sub(self.depth[1], steps)
        if kernel.split:  # if b streams by, the lines of the next block come next
            block = kernel.values["k_block"]
            streams = builder.icmp_signed("<=", block, i64(STREAMED))
            steps = builder.select(streams, block, steps)
            last = builder.select(streams, self.depth[1], last)
        up = builder.mul(last, kernel.b_stride)
        across = builder.sub(i64(kernel.columns), up)
        return last, builder.mul(steps, kernel.b_stride), across

    def _prefetch_below(self, line: Value, k: Value) -> None:
        """Prefetches part of a page that the processor's own prefetchers do not predict."""
        kernel, builder, right = self.kernel, self.builder, self.right
        last, down, across = self.below
        beyond = builder.icmp_signed(">=", k, last)
        ahead = right.at(line, builder.select(beyond, across, down))
        each = right.per_cache_line
        for end in range(each, kernel.columns + each, each):
            kernel.prefetch(right.at(ahead, min(end, kernel.columns) - 1), 2)

    def _next_panel(self, b: Value, start: Value) -> Value:
        """The part of the next panel of b that these rows prefetch: half as many lines as k has
        steps. Each group of rows takes another part, so the panel is cached by the time it is
        read."""
        kernel, builder = self.kernel, self.builder
        column = builder.add(self.where[1], i64(kernel.columns))
        panel = kernel.panel_pointer(b, column, start, self.feed)
        shares = 1 << (2 * kernel.vectors - 1).bit_length()
        share = builder.and_(builder.udiv(self.where[0], i64(kernel.rows)), i64(shares - 1))
        first = builder.mul(share, builder.udiv(self.depth[1], i64(2)))
        return kernel.right.at(panel, builder.mul(first, i64(kernel.lanes)))

    def _prefetch_panel(self, line: Value, k: Value, u: int) -> None:
        """Prefetches a panel that is far away; else the first rows that read it would wait for
        memory."""
        kernel, builder = self.kernel, self.builder
        for v in range(self.vectors):
            ahead = (u + AHEAD_FAR) * kernel.columns + v * kernel.lanes
            kernel.prefetch(kernel.right.at(line, ahead), 2)
        if u % 2:
            half = builder.udiv(builder.add(k, i64(u)), i64(2))
            offset = builder.mul(half, i64(kernel.lanes))
            kernel.prefetch(kernel.right.at(self.next, offset), 2)

    def _multiply(self, left: list[Value], right: list[Value], total: list[Value]) -> None:
        """Adds the products of one column of a and one line of b to the sums."""
        terms, load = self.kernel.sum, self.kernel.left.load
        rows = (terms.row(load(pointer, 1)) for pointer in left)
        for i, value in enumerate(chain(rows, terms.more)):
            for v, other in enumerate(right):
                slot = i * len(right) + v
                total[slot] = terms.added(total[slot], value, other)

    def _step(self, k: Value, right: list[Value], total: list[Value]) -> list[Value]:
        """Multiplies one column of a with the windows at k and adds the products."""
        left, total = self.kernel.elements(self.lines, k, self._last_row()), list(total)
        self._multiply([left(i, 0) for i in range(self.kernel.rows)], right, total)
        if self.pack_to:
            self._pack_line(right, self.pack_to, k)
        return total

    def _line(self, line: Value, skip: int, masks: Masks) -> list[Value]:
        """The vectors of the line of b that begins `skip` elements after `line`."""
        kernel, right, lanes = self.kernel, self.right, self.kernel.lanes
        starts = range(0, self.width, lanes)
        if masks is None:
            return [right.load(right.at(line, skip + start)) for start in starts]
        if kernel.has_masks:
            pointers = (right.at(line, start) for start in starts)
            return [right.load(p, mask=mask) for p, mask in zip(pointers, masks, strict=True)]
        return [self._one_by_one(line, start) for start in starts]

    def _one_by_one(self, line: Value, start: int) -> Value:
        """A vector of a line; columns past the end repeat the last one."""
        kernel, right = self.kernel, self.right
        last = self.builder.sub(self.columns, i64(1))
        vector = zeros(kernel.vector)
        for lane in range(kernel.lanes):
            index = self.builder.minimum(i64(start + lane), last)
            vector = kernel.insert(vector, right.load(right.at(line, index), 1), lane)
        return vector

    # -- what follows on them ------------------------------------------------------------------

    def _finish(self, total: list[Value]) -> None:
        """The epilogue; or, before the last block of k, the stores of the sums.

        If the epilogue is short, a whole micro-tile is finished straight from registers.
        """
        kernel, builder, epilogue = self.kernel, self.builder, self.kernel.epilogue
        if not epilogue.is_short(len(total)):
            return self._from_memory(total)
        whole = builder.icmp_signed("==", self.rows, i64(kernel.rows))
        if not kernel.target.free_masks:
            whole = builder.and_(whole, self._is_wide())
        if kernel.split:
            whole = builder.and_(whole, self._is_last())
        with builder.if_else(whole) as (then, other):
            with then:
                epilogue.from_registers(total, self.vectors, self.where, self.columns)
            with other:
                self._from_memory(total)

    def _is_last(self) -> Value:
        """Whether this is the last block of k."""
        return self.builder.icmp_signed("==", self.builder.add(*self.depth), self.kernel.depth)

    def _from_memory(self, total: list[Value]) -> None:
        """Stores the sums; then, after the last block of k, runs the epilogue."""
        for pointer, value in zip(self._sum_pointers(), total, strict=True):
            self.kernel.store(value, pointer)
        if not self.kernel.split:
            return self._apply()
        with self.builder.if_then(self._is_last()):
            self._apply()

    def _apply(self) -> None:
        """Runs the epilogue on stored sums."""
        kernel, (row, column) = self.kernel, self.where
        rows, columns = (row, self.rows), (column, self.columns)
        kernel.epilogue.from_memory(self.sums, self.width, rows, columns)

    def _sum_pointers(self) -> list[Value]:
        """The addresses of the vectors of sums."""
        kernel, size = self.kernel, self.kernel.rows * self.width
        return [kernel.at(self.sums, offset) for offset in range(0, size, kernel.lanes)]

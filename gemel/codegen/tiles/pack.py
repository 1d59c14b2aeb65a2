"""Packing: a matrix copied into panels as wide as a micro-tile, one line of the panel per k.

A panel of width ``w`` holds lines ``p * w .. p * w + w - 1`` of the operand (rows of a, columns of
b) as ``k`` rows of ``w`` elements. If four (or two) k of a line lie side by side, they form one
lane of 32 bits, and the panel has ``k / 4`` rows of ``w`` lanes, with zeros past the last k. Lines
past the end repeat the last line or are zero; their products are never stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest

from gemel.codegen.language.program import ANY, ROWS, Program
from gemel.codegen.llvm.access import Bases
from gemel.codegen.llvm.assembly import I1, Constant, Module, Value, widened, zeros
from gemel.codegen.llvm.memory import Mask, interleaved, transposed
from gemel.codegen.llvm.registers import constant, register_type
from gemel.codegen.loops.frame import i64
from gemel.codegen.target import Target
from gemel.codegen.tiles.emit import Elements, Range, Reader, TiledKernel
from gemel.dtype import bfloat16, int16, int32

#: The dtype that stands in for one without arithmetic: only bits are copied.
BITS = {bfloat16: int16}
#: How many elements of a line are interleaved at a time.
INTERLEAVED = 16
#: How many k ahead of the copy lines are prefetched.
AHEAD = 8


def emit(program: Program, target: Target) -> Module:
    """The kernel of the schedule ``pack WIDTH copy``, ``pack WIDTH turn`` or ``pack any turn``."""
    return _Pack(program, target).build()


class _Lanes(Elements):
    """Groups of elements that lie side by side in a line, read and written as one int32."""

    dtype = int32

    def __init__(self, kernel: TiledKernel) -> None:
        self.builder = kernel.builder
        self.lanes = kernel.target.width // self.dtype.itemsize

    def load(self, pointer: Value, lanes: int | None = None, mask: Value | None = None) -> Value:
        """Reads without assuming alignment: lines of bytes begin anywhere."""
        return self.builder.load(pointer, register_type(self.dtype, lanes or self.lanes), 1)


class _Pack(TiledKernel):
    def __init__(self, program: Program, target: Target) -> None:
        self.width, self.turn = program.parsed_schedule.width, program.parsed_schedule.turn
        made = program.operands[1]
        super().__init__(program, target, BITS.get(made.dtype, made.dtype))
        store = next(step for step in program.code if step.name == "store")
        self.reader = Reader(self, 0, store.arguments[0])
        #: How many k of a line lie side by side, and how such groups are read and written.
        self.together = made.together
        self.read: Elements = self.reader if self.together == 1 else _Lanes(self)
        self.written: Elements = self if self.together == 1 else self.read
        #: The stride from line to line, or from k to k.
        self.apart = self.stride(0, ROWS if self.turn else ROWS + 1)
        #: The end of the k that fill whole groups.
        k = self.k
        self.whole = self.builder.and_(k, i64(-self.together)) if self.together > 1 else k

    def fill(self, tile: Value, bases: Bases, rows: Range, column: Value) -> None:
        builder, (source, target) = self.builder, bases
        if self.width == ANY:
            return _AnyWidth(self, source, rows, target).fill()
        depth = builder.add(self.k, i64(self.together - 1))
        depth = builder.and_(depth, i64(-self.together)) if self.together > 1 else depth

        def panel(i: Value) -> None:
            line = builder.add(rows[0], i)
            pointer = self.at(target, builder.mul(line, depth))
            (self._transposed if self.turn else self._copied)(source, line, pointer)

        odd = self.together > 1 and self.width % 2  # single lanes have no masks
        if self.turn or odd or not self.target.free_masks:
            return self.each(0, rows[1], self.width, panel)
        rest = self.divide(rows[1], i64(self.width))[1]
        whole = builder.sub(rows[1], rest)
        line = builder.add(rows[0], whole)
        beside = self.reader.at(source, rows[0]), self.at(target, builder.mul(rows[0], depth))
        last = self.reader.at(source, line), self.at(target, builder.mul(line, depth))
        with builder.if_then(builder.icmp_signed(">", whole, i64(0))):
            if self.together > 1:
                self._groups(*beside, whole, depth)
            else:
                self._side_by_side(*beside, whole)
        with builder.if_then(builder.icmp_signed(">", rest, i64(0))):
            if self.together > 1:
                self._groups(*last, i64(self.width), depth, rest)
            else:
                self._short_panel(last[0], rest, last[1])

    def _groups(
        self, source: Value, target: Value, lines: Value, depth: Value, few: Value | None = None
    ) -> None:
        """Copies several panels, one group of k after the other. `few`: only so many lines exist;
        the others become zero."""
        builder, reader = self.builder, self.reader
        pieces = _pieces(self.width, self.target.width // reader.dtype.itemsize)

        def group(k: Value, left: Value | None = None) -> None:
            starts = self._lines(source, self._bounded(self._together(k)))
            goal = self._goal(target, k)

            def panel(i: Value) -> None:
                there = self.at(goal, builder.mul(i, depth))
                for at, lanes in pieces:
                    place, found = builder.add(i, i64(at)), []
                    for number, start in enumerate(starts):
                        mask = self._mask_of(number, left, at, few, lanes)
                        found.append(reader.load(reader.at(start, place), lanes, mask))
                    for j, value in enumerate(interleaved(builder, found)):
                        self.store(value, self.at(there, at * self.together + j * lanes))

            self.each(0, lines, self.width, panel)

        self.each(0, self.whole, self.together, group)
        left = builder.sub(self.k, self.whole)
        with builder.if_then(builder.icmp_signed(">", left, i64(0))):
            group(self.whole, left)

    def _mask_of(
        self, number: int, left: Value | None, at: int, few: Value | None, lanes: int
    ) -> Mask:
        """The mask of a line's vector at `at` for the k of this number in its group. `left` k and
        `few` lines exist, if given."""
        builder = self.builder
        count = None if few is None else builder.sub(few, i64(at))
        if left is None or number == 0:
            return None if count is None else self.mask(count, lanes)
        there = builder.icmp_signed(">", left, i64(number))
        whole = i64(lanes) if count is None else count
        return self.mask(builder.select(there, whole, i64(0)), lanes)

    def _side_by_side(self, source: Value, pointer: Value, lines: Value) -> None:
        """Copies several panels k by k: adjacent panels share cache lines, which are read only
        once."""
        builder = self.builder
        pieces = _masked(self.width, self.read.lanes)

        def line(k: Value) -> None:
            ahead = builder.minimum(builder.add(k, i64(AHEAD)), builder.sub(self.k, i64(1)))
            here, later = self._lines(source, [k, ahead])
            goal = self._goal(pointer, k)

            def panel(i: Value) -> None:
                self.prefetch(self.reader.at(later, i))
                near, there = self.reader.at(here, i), self.at(goal, builder.mul(i, self.k))
                for at, mask in pieces:
                    value = self.reader.load(self.reader.at(near, at), mask=mask)
                    self.store(value, self.at(there, at), mask)

            self.each(0, lines, self.width, panel)

        self.each(0, self.k, 1, line)

    def _goal(self, pointer: Value, k: Value) -> Value:
        """Where a panel holds the elements of one k (or of one group)."""
        return self.at(pointer, self.builder.mul(k, i64(self.width)))

    def _together(self, k: Value) -> list[Value]:
        """k and the other k of its group."""
        return [self.builder.add(k, i64(j)) for j in range(self.together)]

    def _bounded(self, steps: list[Value]) -> list[Value]:
        """The same k, with the last valid k in place of those past the end."""
        first, *others = steps
        last = (self.builder.sub(self.k, i64(1)) for _ in others)
        return [first, *map(self.builder.minimum, others, last)]

    def _elements(self, steps: list[Value], pointers: Iterable[Value]) -> list[Value]:
        """The elements at `_bounded` places, one by one; zero for k past the end."""
        builder, zero = self.builder, constant(self.dtype, 0)
        values = [self.reader.load(pointer, 1) for pointer in pointers]
        inside = (builder.icmp_signed("<", step, self.k) for step in steps[1:])
        others = zip(inside, values[1:], strict=True)
        return [values[0], *(builder.select(there, value, zero) for there, value in others)]

    # -- lines side by side: every k is a short copy ----------------------------------------

    def _copied(self, source: Value, line: Value, pointer: Value) -> None:
        builder = self.builder
        source = self.reader.at(source, line)
        count = self.remaining(self.m, line, self.width)
        whole = builder.icmp_signed("==", count, i64(self.width))

        with builder.if_else(whole) as (then, otherwise):
            with then:
                self._whole_lines(source, pointer)
            with otherwise:
                self._short_panel(source, count, pointer)
        if self.together > 1:
            self._short_lines(source, count, pointer, (self.whole, self.k))

    def _short_lines(self, source: Value, count: Value, pointer: Value, steps: Range) -> None:
        """Copies some k of a panel of `count` lines, one element after another."""

        def short(k: Value) -> None:
            self._short_line(source, k, self._goal(pointer, k), count)

        self.each(*steps, self.together, short)

    def _short_panel(self, source: Value, count: Value, pointer: Value) -> None:
        """Copies a panel that is not full, under masks if the target has them."""
        sub = self.builder.sub
        if self.together > 1 or self.width % 2 or not self.has_masks:
            return self._short_lines(source, count, pointer, (i64(0), self.whole))
        pieces = _pieces(self.width, self.lanes)
        masks = [self.mask(sub(count, i64(at)), lanes) for at, lanes in pieces]
        self._whole_lines(source, pointer, masks)

    def _lines(self, source: Value, steps: list[Value]) -> list[Value]:
        """Where lines begin at these k."""
        return [self.reader.at(source, self.builder.mul(k, self.apart)) for k in steps]

    def _whole_lines(self, source: Value, pointer: Value, masks: Sequence[Mask] = ()) -> None:
        """Copies the k that fill whole groups, for all lines or for those that the masks
        include."""
        reader, most = self.reader, self.lanes if self.together == 1 else INTERLEAVED

        def one(k: Value) -> None:
            lines, goal = self._lines(source, self._together(k)), self._goal(pointer, k)
            for (at, lanes), mask in zip_longest(_pieces(self.width, most), masks):
                rows = [reader.load(reader.at(line, at), lanes, mask) for line in lines]
                for j, value in enumerate(interleaved(self.builder, rows) if lanes > 1 else rows):
                    self.store(value, self.at(goal, at * self.together + j * lanes))

        self.each(0, self.whole, self.together, one)

    def _short_line(self, source: Value, k: Value, goal: Value, count: Value) -> None:
        """Copies one group of k of `count` lines, one by one; the rest of the width becomes
        zero."""
        builder, steps = self.builder, self._together(k)
        lines = self._lines(source, self._bounded(steps))

        def element(i: Value) -> None:
            first = builder.mul(i, i64(self.together))
            values = self._elements(steps, (self.reader.at(line, i) for line in lines))
            for j, value in enumerate(values):
                self.store(value, self.at(goal, builder.add(first, i64(j))))

        self.each(0, count, 1, element)
        zero, written = constant(self.written.dtype, 0), self.written
        self.each(count, self.width, 1, lambda i: written.store(zero, written.at(goal, i)))

    # -- lines along k: squares of lanes x lanes are transposed in registers -----------------

    def _transposed(self, source: Value, line: Value, pointer: Value) -> None:
        """Transposes all lines of a panel, as many at a time as a vector has lanes."""
        builder, lanes = self.builder, self.read.lanes
        at = self.written.at

        def group(first: Value) -> None:
            self._group(source, builder.add(line, first), at(pointer, first), lanes)

        whole = self.width // lanes * lanes
        if whole:
            self.each(0, whole, lanes, group)
        if whole < self.width:
            start = builder.add(line, i64(whole))
            self._group(source, start, at(pointer, whole), self.width - whole)

    def _group(self, source: Value, line: Value, goal: Value, count: int) -> None:
        """Transposes `count` lines, at most as many as a vector has lanes."""
        builder = self.builder
        pointers = [self.line_pointer(source, builder.add(line, i64(i))) for i in range(count)]
        # The last square ends where k does, so it may rewrite part of the square before it.
        side = self.read.lanes * self.together
        final = builder.sub(self.whole, i64(side))
        squares = builder.select(builder.icmp_signed(">=", final, i64(0)), self.whole, i64(0))

        def square(k: Value) -> None:
            first = builder.minimum(k, final)
            self._square(pointers, first, self._goal(goal, first))

        self.each(0, squares, side, square)
        few = lambda k: self._few(pointers, k, self._goal(goal, k))  # noqa: E731
        self.each(squares, self.k, self.together, few)

    def line_pointer(self, source: Value, line: Value) -> Value:
        """Where a line begins; a line past the end is the last one."""
        bounded = self.builder.minimum(line, self.builder.sub(self.m, i64(1)))
        return self.reader.at(source, self.builder.mul(bounded, self.apart))

    def _square(self, pointers: list[Value], k: Value, goal: Value) -> None:
        builder, lanes, written = self.builder, self.read.lanes, self.written
        rows = [self.read.load(self.reader.at(p, k)) for p in pointers]
        nothing = zeros(register_type(written.dtype, lanes))
        rows += [nothing] * (lanes - len(rows))
        for i, column in enumerate(transposed(builder, rows)):
            self._store_head(column, written.at(goal, i * self.width), len(pointers))

    def _store_head(self, value: Value, pointer: Value, count: int) -> None:
        """Stores the first `count` lanes, under a mask or in pieces of at most the remaining
        width."""
        written, lanes = self.written, self.read.lanes
        if count < lanes and self.target.free_masks:
            written.store(value, pointer, _first_lanes(count, lanes))
            return
        for at, few in _pieces(count, lanes):
            part = self.shuffle(value, value, range(at, at + few))
            written.store(part, written.at(pointer, at))

    def _few(self, pointers: list[Value], k: Value, goal: Value) -> None:
        """Copies one group of k, line by line."""
        steps = self._together(k)
        bounded = self._bounded(steps)
        for i, pointer in enumerate(pointers):
            values = self._elements(steps, (self.reader.at(pointer, step) for step in bounded))
            for j, value in enumerate(values):
                self.store(value, self.at(goal, i * self.together + j))


class _AnyWidth:
    """Transposes lines into panels of any width, as many at a time as a vector has lanes. These may
    belong to one panel or to several. Lines past the end repeat the last one."""

    def __init__(self, kernel: _Pack, source: Value, rows: Range, target: Value) -> None:
        self.kernel, self.builder = kernel, kernel.builder
        self.source, self.target, self.first = source, target, rows[0]
        self.width = kernel.stride(1, ROWS + 1)
        last = self.builder.sub(self.width, i64(1))
        panels = self.builder.udiv(self.builder.add(rows[1], last), self.width)
        #: The number of lines in whole panels, including those past the end.
        self.count = self.builder.mul(panels, self.width)

    def fill(self) -> None:
        """Transposes all lines."""
        self.kernel.each(0, self.count, self.kernel.lanes, self._group)

    def _group(self, first: Value) -> None:
        """Transposes as many lines as a vector has lanes, in squares; part of one if k is
        shorter."""
        kernel, builder, lanes = self.kernel, self.builder, self.kernel.lanes
        reader = kernel.reader
        lines = (builder.add(first, i64(i)) for i in range(lanes))
        pointers = [
            kernel.line_pointer(self.source, builder.add(self.first, line)) for line in lines
        ]
        final = builder.sub(kernel.k, i64(lanes))
        count = builder.minimum(builder.sub(self.count, first), i64(lanes))
        where = *self._panel_of(first), count

        def square(k: Value) -> None:
            # The last square ends where k does, so it may rewrite part of the square before.
            k = builder.minimum(k, final)
            rows = [reader.load(reader.at(pointer, k)) for pointer in pointers]
            self._write(transposed(builder, rows), k, where)

        with builder.if_else(builder.icmp_signed(">=", final, i64(0))) as (whole, part):
            with whole:
                kernel.each(0, kernel.k, lanes, square)
            with part:
                mask = kernel.mask(kernel.k)
                rows = [reader.load(pointer, mask=mask) for pointer in pointers]
                self._write(transposed(builder, rows), i64(0), where, kernel.k)

    def _panel_of(self, line: Value) -> tuple[Value, Value]:
        """The address of the panel that a line belongs to, and the lane of the panel's first line
        if this line is lane 0: 0 or negative."""
        kernel, builder = self.kernel, self.builder
        _, inside = kernel.divide(line, self.width)
        before = builder.sub(builder.add(self.first, line), inside)
        return kernel.at(self.target, builder.mul(before, kernel.k)), builder.sub(i64(0), inside)

    def _write(
        self,
        columns: list[Value],
        k: Value,
        where: tuple[Value, Value, Value],
        most: Value | None = None,
    ) -> None:
        """Writes the columns of a square (only the first `most` of them, if given) from k on. Lanes
        go to the panels they belong to. `where`: the `_panel_of` of lane 0, and the number of
        lines."""
        kernel, builder = self.kernel, self.builder
        start, before, count = where
        size = builder.mul(self.width, kernel.k)
        line = builder.mul(k, self.width)

        def write(lane: Value, carried: list[Value]) -> list[Value]:
            (panel,) = carried
            mask = kernel.between(lane, builder.minimum(builder.add(lane, self.width), count))
            goal = kernel.at(panel, builder.sub(line, lane))
            for i, column in enumerate(columns):
                if most is None:
                    kernel.store(column, goal, mask)
                else:
                    with builder.if_then(builder.icmp_signed(">", most, i64(i))):
                        kernel.store(column, goal, mask)
                goal = kernel.at(goal, self.width) if i + 1 < len(columns) else goal
            return [kernel.at(panel, size)]

        kernel.loop(before, count, self.width, [start], write)


def _masked(width: int, lanes: int) -> list[tuple[int, Value | None]]:
    """`width` as whole vectors and part of one: the start and the mask of each."""
    pieces: list[tuple[int, Value | None]] = [(at, None) for at in range(0, width, lanes)]
    rest = width % lanes
    if rest:
        pieces[-1] = width - rest, _first_lanes(rest, lanes)
    return pieces


def _first_lanes(count: int, lanes: int) -> Constant:
    """The mask of the first `count` lanes."""
    bits = ", ".join(f"i1 {int(i < count)}" for i in range(lanes))
    return Constant(widened(I1, lanes), f"<{bits}>")


def _pieces(width: int, lanes: int) -> list[tuple[int, int]]:
    """`width` as vectors of powers of two, the widest first: the start and the lanes of each."""
    pieces, at = [], 0
    while at < width:
        while lanes > width - at:
            lanes //= 2
        pieces.append((at, lanes))
        at += lanes
    return pieces

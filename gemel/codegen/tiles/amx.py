"""Products in tile registers: Intel's Advanced Matrix Extensions (AMX).

A tile register has 16 rows of 16 lanes of 32 bits. One instruction multiplies a tile of rows of a,
whose lanes run along k, with a tile of b, whose rows are lanes along k and whose lanes are columns,
and adds the products to a tile of sums: pairs of bfloat16 in float32, or four bytes in int32. The
panels of b are those of the other products (`tiles.pack`, `tiles.windows`). Rows of a that
cannot be loaded as they lie are copied to the kernel's stack first.

The instruction is described in Intel's Architecture Instruction Set Extensions Programming
Reference, chapter 3. The system has to be asked for tile registers (`target.has_extension`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from gemel.codegen.contract.amx import BLOCK
from gemel.codegen.contract.task import DEPTH
from gemel.codegen.contract.tilings import WIDE
from gemel.codegen.language.program import INDEX, ROWS, Program
from gemel.codegen.llvm import memory
from gemel.codegen.llvm.access import Bases
from gemel.codegen.llvm.assembly import I8, I32, I64, Constant, Module, Value, widened
from gemel.codegen.llvm.memory import transposed
from gemel.codegen.loops.frame import i64
from gemel.codegen.target import Target
from gemel.codegen.tiles.blocks import SumKernel
from gemel.codegen.tiles.emit import Range, Reader
from gemel.codegen.tiles.windows import PanelRoom, Windows

#: The rows of a tile register, and the lanes of each row.
TILE = 16
#: Tile registers: those before are sums; then come those of a, and those of b.
FIRST_A, FIRST_B = 4, 6
#: The configuration of all registers in words of 32 bits: the first says which table of limits
#: applies; then come the bytes of a row, two registers in a word, and the rows, four in a word.
CONFIGURATION = {0: 1, **dict.fromkeys(range(4, 8), 0x400040), 12: 0x10101010, 13: 0x10101010}


def emit(program: Program, target: Target) -> Module:
    """The kernel of the schedule ``amx ROWSxCOLUMNS a:FORM b:FORM``, with or without ``split``."""
    return _Amx(program, target).build()


class _Rows(NamedTuple):
    """The rows of a micro-tile over one block of k, as they are loaded: `TILE` lanes at a time.
    Distances are in lanes."""

    #: The first lanes of the first row.
    start: Value
    #: From there to the next `TILE` lanes along k, and to the next row.
    further: Value
    apart: Value
    #: The last lanes if they are fewer than `TILE`, filled up with zeros; rows are `TILE` apart.
    last: Value


class _Amx(SumKernel):
    """A micro-tile consists of one or two tiles of rows, times one or two tiles of columns. Depths
    and steps of k are counted in lanes."""

    def __init__(self, program: Program, target: Target) -> None:
        schedule = program.parsed_schedule
        super().__init__(program, target, schedule.rows, schedule.columns)
        self.a_form, self.split = schedule.a_form, schedule.split
        #: Elements of a where they lie.
        self.elements = Reader(self, 0, None)
        #: Rows of a and the last lines of b that cannot be loaded as they lie.
        self.copied = self.reserve(self.rows * BLOCK)
        self.last_lines = self.reserve(TILE * self.columns)
        buffers = sum(operand.role != INDEX for operand in program.operands)
        area = self.rows * self.columns
        self.scratch = self.buffer(buffers) if self.split else self.reserve(area)
        self.configuration = self.reserve(TILE)
        #: What reads b if it consists of windows, and the room for panels of them.
        self.windows: tuple[Windows, PanelRoom] | None = None
        if schedule.b_form != "packed":
            reader, together = Reader(self, 1, None), self.sum.together
            windows = Windows(self, reader, schedule.b_form, self.columns, together)
            count = WIDE * self.lanes // self.columns
            self.windows = windows, PanelRoom(self, self.columns, DEPTH, count)

    def fill_columns(self, tile: Value, bases: Bases, rows: Range, columns: Range) -> None:
        builder, values = self.builder, self.values
        home = self.scratch
        if self.split:
            area = builder.mul(values["m_block"], values["n_block"])
            home = self.at(home, builder.mul(tile, area))
        self._configure()

        def block(start: Value) -> None:
            depth = start, self.remaining(self.depth, start, values["k_block"])
            micro = _Tiles(self, home, rows, columns, depth)
            if self.windows:
                return self._by_windows(*self.windows, bases, micro)

            def panel(j: Value) -> Value:
                return self.panel(1, bases[1], builder.add(columns[0], j), start)

            def row(i: Value) -> None:
                self._row(i, bases[0], micro, (i64(0), columns[1]), panel)

            self.each(0, rows[1], self.rows, row)

        if self.split:
            self.each(0, self.depth, values["k_block"], block)
        else:
            block(i64(0))
        builder.writing("llvm.x86.tilerelease", [])

    def _configure(self) -> None:
        words = ", ".join(f"i32 {CONFIGURATION.get(word, 0)}" for word in range(TILE))
        value = Constant(widened(I32, TILE), f"<{words}>")
        self.builder.store(value, self.configuration, 64)
        self.builder.writing("llvm.x86.ldtilecfg", [self.configuration])

    def _row(
        self,
        i: Value,
        a: Value,
        micro: _Tiles,
        columns: Range,
        panel: Callable[[Value], Value],
    ) -> None:
        """The micro-tiles of the rows from `i` on. `panel` gives the address of the panel that
        begins so many columns after the first one."""
        rows = self._rows(a, self.builder.add(micro.rows[0], i), micro.depth)

        def one(j: Value) -> None:
            micro.compute(i, self.builder.add(columns[0], j), rows, panel(j))

        self.each(0, columns[1], self.columns, one)

    def _by_windows(self, windows: Windows, room: PanelRoom, bases: Bases, micro: _Tiles) -> None:
        """Makes several panels of windows at a time, each of which is used for all rows."""
        builder, depth, columns = self.builder, micro.depth, micro.columns
        together = room.together(depth)

        def panel(w: Value) -> Value:
            return room.at(w, depth)

        def group(j: Value) -> None:
            count = builder.minimum(builder.sub(columns[1], j), together)
            first = builder.add(columns[0], j)

            def make(w: Value) -> None:
                windows.fill(bases[1], builder.add(first, w), panel(w), depth)

            def row(i: Value) -> None:
                self._row(i, bases[0], micro, (j, count), panel)

            self.each(0, count, self.columns, make)
            self.each(0, micro.rows[1], self.rows, row)

        self.each(0, columns[1], together, group)

    # -- rows of a -----------------------------------------------------------------------------

    def _rows(self, a: Value, row: Value, depth: Range) -> _Rows:
        """The rows of a micro-tile from `row` on, copied to the stack where they cannot be loaded
        as they lie."""
        if self.a_form == "packed":
            return self._from_panel(a, row, depth)
        builder, reader, together = self.builder, self.elements, self.sum.together
        first = builder.mul(depth[0], i64(together))
        there = self.remaining(self.k, first, builder.mul(depth[1], i64(together)))
        whole, left = self.divide(there, i64(TILE * together))
        stride = self.stride(0, ROWS)
        lying = reader.at(a, builder.add(builder.mul(row, stride), first))
        copies = self._must_be_copied(lying, row, there)
        source = reader.at(a, first)
        with builder.if_then(copies):
            self._copy(source, row, (i64(0), whole))
        with builder.if_then(builder.icmp_signed(">", left, i64(0))):
            self._copy(source, row, (whole, builder.add(whole, i64(1))), left)
        copied = self._copied(whole)
        start = builder.select(copies, copied.start, lying)
        further = builder.select(copies, copied.further, i64(TILE))
        lanes = builder.ashr(stride, i64(together.bit_length() - 1))
        return copied._replace(
            start=start, further=further, apart=builder.select(copies, copied.apart, lanes)
        )

    def _copy(self, source: Value, row: Value, steps: Range, left: Value | None = None) -> None:
        """Copies the rows from `row` on for some steps of `TILE` lanes along k. `left`: in each row
        only so many elements exist. Rows past the end repeat the last one."""
        builder, reader, lanes = self.builder, self.elements, TILE * self.sum.together
        mask = None if left is None else self.mask(left, lanes)
        last = builder.sub(self.m, i64(1))

        def one(i: Value) -> None:
            index = builder.minimum(builder.add(row, i), last)
            line = reader.at(source, builder.mul(index, self.stride(0, ROWS)))
            goal = self.at(self.copied, builder.mul(i, i64(TILE)))

            def step(s: Value) -> None:
                value = reader.stored(reader.at(line, builder.mul(s, i64(lanes))), lanes, mask)
                reader.store(value, self.at(goal, builder.mul(s, i64(self.rows * TILE))))

            self.each(*steps, 1, step)

        self.each(0, self.rows, 1, one)

    def _must_be_copied(self, lying: Value, row: Value, there: Value) -> Value:
        """Whether rows are missing, lie across cache lines, or end inside a lane, the rest of which
        is not theirs. `there`: the elements of each row."""
        builder, size = self.builder, self.program.operands[0].dtype.itemsize
        missing = builder.icmp_signed("<", builder.sub(self.m, row), i64(self.rows))
        apart = builder.mul(self.stride(0, ROWS), i64(size))
        place = builder.or_(builder.ptrtoint(lying, I64), apart)
        across = builder.icmp_signed("!=", builder.and_(place, i64(memory.CACHE_LINE - 1)), i64(0))
        partial = builder.and_(there, i64(self.sum.together - 1))
        inside = builder.icmp_signed("!=", partial, i64(0))
        return builder.or_(builder.or_(missing, across), inside)

    def _copied(self, whole: Value) -> _Rows:
        """Rows that were copied: for each `TILE` lanes of k, these lanes of one row after the
        other."""
        further = i64(TILE * self.rows)
        last = self.at(self.copied, self.builder.mul(whole, further))
        return _Rows(self.copied, further, i64(TILE), last)

    def _from_panel(self, a: Value, row: Value, depth: Range) -> _Rows:
        """Copies a panel, whose lines are lanes along k: it is transposed in squares."""
        builder, panel = self.builder, self.panel(0, a, row, depth[0])
        whole, left = self.divide(depth[1], i64(TILE))

        def square(s: Value, lines: int | Value = TILE) -> None:
            start = self.at(panel, builder.mul(s, i64(TILE * self.rows)))
            goal = self.at(self.copied, builder.mul(s, i64(TILE * self.rows)))
            for first in range(0, self.rows, TILE):
                found = self.read_lines(self.at(start, first), self.rows, lines)
                for i, value in enumerate(transposed(builder, found)):
                    self.store(value, self.at(goal, (first + i) * TILE))

        self.each(0, whole, 1, square)
        with builder.if_then(builder.icmp_signed(">", left, i64(0))):
            square(whole, left)
        return self._copied(whole)

    def read_lines(self, start: Value, width: int, count: int | Value) -> list[Value]:
        """A vector of each of `TILE` lines that are `width` lanes apart; of zeros from line `count`
        on."""
        builder, found = self.builder, []
        for line in range(TILE):
            mask = None
            if isinstance(count, Value):
                there = builder.icmp_signed(">", count, i64(line))
                mask = self.mask(builder.select(there, i64(TILE), i64(0)))
            found.append(self.load(self.at(start, line * width), mask=mask))
        return found


class _Tiles:
    """A micro-tile over one block of k. `rows` and `columns` are those of the tile of the result,
    `home` the address of its sums."""

    def __init__(
        self, kernel: _Amx, home: Value, rows: Range, columns: Range, depth: Range
    ) -> None:
        self.kernel, self.builder = kernel, kernel.builder
        self.home, self.rows, self.columns, self.depth = home, rows, columns, depth
        self.across, self.down = kernel.columns // TILE, kernel.rows // TILE

    def compute(self, i: Value, j: Value, rows: _Rows, panel: Value) -> None:
        """Computes the micro-tile at row `i` and column `j` of the tile from rows of a and a panel
        of b."""
        kernel, builder = self.kernel, self.builder
        offset = builder.mul(j, kernel.values["m_block"])
        offset = builder.add(offset, builder.mul(i, i64(kernel.columns)))
        sums = kernel.at(self.home, offset) if kernel.split else self.home
        self._begin(sums)
        self._multiply(rows, panel)
        self._each_sum("tilestored64", sums)
        if not kernel.split:
            return self._finish(sums, i, j)
        last = builder.icmp_signed("==", builder.add(*self.depth), kernel.depth)
        with builder.if_then(last):
            self._finish(sums, i, j)

    def _begin(self, sums: Value) -> None:
        """Zero in the first block of k; in later blocks, the sums that the earlier ones stored."""
        if not self.kernel.split:
            return self._zero()
        first = self.builder.icmp_signed("==", self.depth[0], i64(0))
        with self.builder.if_else(first) as (then, other):
            with then:
                self._zero()
            with other:
                self._each_sum("tileloadd64", sums)

    def _zero(self) -> None:
        for number in range(self.down * self.across):
            self._do("tilezero", Constant(I8, number))

    def _each_sum(self, name: str, sums: Value) -> None:
        """Loads or stores all tiles of sums."""
        for number in range(self.down * self.across):
            row, column = divmod(number, self.across)
            place = row * TILE * self.kernel.columns + column * TILE
            self._move(name, number, self.kernel.at(sums, place), self.kernel.columns)

    def _multiply(self, rows: _Rows, panel: Value) -> None:
        kernel, builder = self.kernel, self.builder
        whole, left = kernel.divide(self.depth[1], i64(TILE))

        def lines(s: Value) -> Value:
            return kernel.at(panel, builder.mul(s, i64(TILE * kernel.columns)))

        def step(s: Value) -> None:
            here = kernel.at(rows.start, builder.mul(s, rows.further))
            self._step(here, rows.apart, lines(s))

        kernel.each(0, whole, 1, step)
        with builder.if_then(builder.icmp_signed(">", left, i64(0))):
            for first in range(0, kernel.columns, TILE):
                start = kernel.at(lines(whole), first)
                for line, value in enumerate(kernel.read_lines(start, kernel.columns, left)):
                    place = line * kernel.columns + first
                    kernel.store(value, kernel.at(kernel.last_lines, place))
            self._step(rows.last, i64(TILE), kernel.last_lines)

    def _step(self, a: Value, apart: Value, b: Value) -> None:
        """Adds the products of `TILE` lanes along k to the sums. Rows of a are so many lanes
        apart."""
        kernel, builder = self.kernel, self.builder
        for row in range(self.down):
            place = kernel.at(a, builder.mul(apart, i64(row * TILE)))
            self._move("tileloadd64", FIRST_A + row, place, apart)
        for column in range(self.across):
            place = kernel.at(b, column * TILE)
            self._move("tileloadd64", FIRST_B + column, place, kernel.columns)
        for number in range(self.down * self.across):
            row, column = divmod(number, self.across)
            registers = number, FIRST_A + row, FIRST_B + column
            self._do(kernel.sum.in_tiles, *(Constant(I8, register) for register in registers))

    def _move(self, name: str, register: int, place: Value, width: int | Value) -> None:
        """Loads or stores a register whose rows lie `width` lanes apart."""
        lanes = i64(width) if isinstance(width, int) else width
        self._do(name, Constant(I8, register), place, self.builder.mul(lanes, i64(4)))

    def _do(self, name: str, *arguments: Value) -> None:
        self.builder.writing(f"llvm.x86.{name}", list(arguments))

    def _finish(self, sums: Value, i: Value, j: Value) -> None:
        """Runs the epilogue on stored sums."""
        kernel, add = self.kernel, self.builder.add
        rows = add(self.rows[0], i), kernel.remaining(self.rows[1], i, kernel.rows)
        columns = add(self.columns[0], j), kernel.remaining(self.columns[1], j, kernel.columns)
        kernel.epilogue.from_memory(sums, kernel.columns, rows, columns)

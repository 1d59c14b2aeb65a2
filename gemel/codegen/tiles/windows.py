"""Panels of an operand whose lines, or whose k, run along several axes: windows over an image.

The kernel makes such a panel on its stack when it needs it, from wherever the elements lie. So the
elements that several windows of a convolution share are never copied to memory for each of them.
There are three ways:

``rows-R-S``  lines are S apart (1 or 2) along the last axis: a vector is made of up to R runs
``turned``    k is contiguous along its last axis: squares are transposed in registers
``gathered``  anything else
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gemel.codegen.contract.task import WindowForm
from gemel.codegen.contract.tilings import NEAR_ELEMENTS
from gemel.codegen.language.program import ROWS
from gemel.codegen.llvm.assembly import I32, I64, Constant, Value, splat_constant, widened
from gemel.codegen.llvm.memory import transposed
from gemel.codegen.loops.frame import Carried, i64
from gemel.codegen.tiles.emit import Range, Reader, TiledKernel

#: The address at which lane 0 of a run would lie, and the masks of the run's lanes.
Run = tuple[Value, list[Value]]
#: The body at each k, given its offset, its number and the carried values.
Walk = Callable[[Value, Value, Carried], Carried]

#: A square may write this many lines past the last k of a panel.
PAST = 16


class PanelRoom:
    """Room on the kernel's stack for panels of these many columns and k."""

    def __init__(self, kernel: TiledKernel, columns: int, depth: int, least: int = 1) -> None:
        """`least`: room for at least this many panels of the full depth."""
        self.kernel, self.columns, self.least = kernel, columns, least
        self.room = least * (depth + PAST)
        self.start = kernel.reserve(self.room * columns)

    def together(self, depth: Range) -> Value:
        """How many columns of panels are made together: with few k, as many as stay in the
        cache."""
        builder, whole = self.kernel.builder, i64(self.columns)
        near = builder.udiv(i64(NEAR_ELEMENTS), builder.mul(depth[1], whole))
        most = builder.udiv(i64(self.room), self._height(depth))
        panels = self.kernel.maximum(i64(self.least), builder.minimum(near, most))
        return builder.mul(panels, whole)

    def at(self, column: Value, depth: Range) -> Value:
        """The address of the panel that begins `column` columns after the first one."""
        return self.kernel.at(self.start, self.kernel.builder.mul(column, self._height(depth)))

    def _height(self, depth: Range) -> Value:
        return self.kernel.builder.add(depth[1], i64(PAST))


class Windows:
    """Where the elements of b lie, and how a panel of them is made."""

    def __init__(
        self, kernel: TiledKernel, reader: Reader, form: str, columns: int, together: int = 1
    ) -> None:
        """`together`: how many neighbours along an axis of k (`WindowAxes.paired`) share a lane, 1
        or 2. Depths are counted in lanes."""
        way, self.runs, self.step = WindowForm.parse(form)
        rows = self._rows if together == 1 else self._pairs
        ways = {"rows": rows, "turned": self._turned, "gathered": self._gathered}
        self.together = together
        self.kernel, self.reader = kernel, reader
        self.columns = columns
        #: The extents of the axes of k and n, and b's strides along them.
        self.values = {}
        for name, first in (("n", ROWS + 1), ("k", kernel.program.outer)):
            for i in range(3):
                self.values[f"{name}{i}"] = kernel.extents[first + i]
                self.values[f"{name}_stride{i}"] = kernel.stride(1, first + i)
        #: The stride from lane to lane along k's first axis, and the number of lanes along its
        #: last.
        self.first_stride, self.last = self.values["k_stride0"], self.values["k2"]
        if together > 1 and way == "rows":
            self.first_stride = kernel.builder.mul(self.first_stride, i64(together))
        elif together > 1:
            self.last = kernel.builder.udiv(self.last, i64(together))
        self.inner = kernel.builder.mul(self.values["k1"], self.last)
        self._fill = ways[way]

    def fill(self, b: Value, column: Value, panel: Value, depth: Range) -> None:
        """Makes the panel from `column` on, with depth[1] of k from depth[0] on.

        Both are multiples of the product of the last two extents of k.
        """
        self.panel = panel
        self._fill(b, column, depth)

    def _begin(self, b: Value, depth: Range) -> Range:
        """The address of k = depth[0], and how many steps of k's first axis depth[1] are."""
        builder = self.kernel.builder
        first = builder.udiv(depth[0], self.inner)
        start = self.reader.at(b, builder.mul(first, self.first_stride))
        return start, builder.udiv(depth[1], self.inner)

    # -- walking along k ----------------------------------------------------------------------

    def neighbours(self, count: Value, carried: Carried, body: Walk) -> Carried:
        """Runs `body` for each line of k's last axis. It is given the line's offset from the start,
        its place in k, and the carried values."""
        kernel, builder, values = self.kernel, self.kernel.builder, self.values

        def outer(i: Value, held: Carried) -> Carried:
            def inner(j: Value, held: Carried) -> Carried:
                away = builder.add(
                    builder.mul(i, self.first_stride), builder.mul(j, values["k_stride1"])
                )
                k = builder.mul(builder.add(builder.mul(i, values["k1"]), j), self.last)
                return body(away, k, held)

            return kernel.loop(0, values["k1"], 1, held, inner)

        return kernel.loop(0, count, 1, carried, outer)

    def _each(self, count: Value, carried: Carried, body: Walk) -> Carried:
        """Runs `body` for each k, given its offset from the start, its number and carried
        values."""
        kernel, builder, values = self.kernel, self.kernel.builder, self.values

        def line(away: Value, k: Value, held: Carried) -> Carried:
            def single(i: Value, held: Carried) -> Carried:
                here = builder.add(away, builder.mul(i, values["k_stride2"]))
                return body(here, builder.add(k, i), held)

            return kernel.loop(0, self.last, 1, held, single)

        return self.neighbours(count, carried, line)

    def _line(self, k: Value) -> Value:
        """The address of the panel's line for one k."""
        width = i64(self.columns)
        return self.kernel.at(self.panel, self.kernel.builder.mul(k, width))

    # -- lines side by side -------------------------------------------------------------------

    def walk(
        self,
        b: Value,
        column: Value,
        depth: Range,
        carried: Carried,
        body: Callable[[Value, list[Value], Carried], Carried],
    ) -> Carried:
        """As `fill`, but calls `body` with each k and its vectors instead of writing a panel."""
        start, count = self._begin(b, depth)
        vectors = self._vectors(start, column)

        def each(away: Value, k: Value, held: Carried) -> Carried:
            return body(k, [self._put_together(runs, away) for runs in vectors], held)

        return self._each(count, carried, each)

    def _vectors(self, start: Value, column: Value) -> list[list[Run]]:
        """The runs of each vector of a panel's line, from a column on."""
        add = self.kernel.builder.add
        firsts = range(0, self.columns, self.kernel.lanes)
        return [self._found(start, add(column, i64(first))) for first in firsts]

    def _put_together(self, runs: list[Run], away: Value) -> Value:
        """Assembles one vector from its runs."""
        kernel, reader, lanes = self.kernel, self.reader, self.kernel.lanes
        parts: list[Any] = [None] * self.step
        for start, masks in runs:
            pointer = reader.at(start, away)
            for part, mask in enumerate(masks):
                here = reader.at(pointer, part * lanes) if part else pointer
                parts[part] = reader.stored(here, mask=mask, other=parts[part])
        if self.step == 1:
            return reader.converted(parts[0])
        return reader.converted(kernel.shuffle(parts[0], parts[1], range(0, 2 * lanes, 2)))

    def _rows(self, b: Value, column: Value, depth: Range) -> None:
        kernel = self.kernel

        def each(k: Value, vectors: list[Value], _: Carried) -> Carried:
            line = self._line(k)
            for number, value in enumerate(vectors):
                kernel.store(value, kernel.at(line, number * kernel.lanes))
            return []

        self.walk(b, column, depth, [], each)

    def _pairs(self, b: Value, column: Value, depth: Range) -> None:
        """Two neighbours of two bytes each along k's first axis share a lane of four bytes."""
        kernel, builder, lanes = self.kernel, self.kernel.builder, self.kernel.lanes
        start, count = self._begin(b, depth)
        vectors = self._vectors(start, column)
        whole, half = widened(I32, lanes), splat_constant(Constant(I32, 16), lanes)

        def each(away: Value, k: Value, _: Carried) -> Carried:
            line, beside = self._line(k), builder.add(away, self.values["k_stride0"])
            for number, runs in enumerate(vectors):
                low, high = (
                    builder.zext(self._put_together(runs, offset), whole)
                    for offset in (away, beside)
                )
                pair = builder.or_(low, builder.shl(high, half))
                pointer = kernel.at(line, number * lanes)
                kernel.store(builder.bitcast(pair, kernel.vector), pointer)
            return []

        self._each(count, [], each)

    def _found(self, start: Value, first: Value) -> list[Run]:
        """The runs that make up the vector of lines from `first` on."""
        builder, length, lines = self.kernel.builder, self.values["n2"], self.kernel.n
        row = builder.udiv(first, length)
        final = builder.udiv(builder.sub(lines, i64(1)), length)
        low = builder.sub(builder.mul(row, length), first)
        left = builder.sub(lines, first)
        found = []
        for _ in range(self.runs):
            high = builder.minimum(builder.add(low, length), left)
            # Rows past the last one are masked, but their addresses must still be valid.
            ahead = builder.mul(low, i64(self.step))
            offset = builder.sub(self._row(builder.minimum(row, final)), ahead)
            found.append((self.reader.at(start, offset), self._masks(low, high)))
            row, low = builder.add(row, i64(1)), builder.add(low, length)
        return found

    def _row(self, row: Value) -> Value:
        """The offset of a row of the last axis from the first line."""
        builder, values = self.kernel.builder, self.values
        outer = builder.udiv(row, values["n1"])
        inner = builder.sub(row, builder.mul(outer, values["n1"]))
        return builder.add(
            builder.mul(outer, values["n_stride0"]), builder.mul(inner, values["n_stride1"])
        )

    def _masks(self, low: Value, high: Value) -> list[Value]:
        """The masks of a run's vectors: lanes from `low` up to `high`, and the elements between
        them."""
        kernel, builder = self.kernel, self.kernel.builder
        if self.step == 1:
            return [kernel.between(low, high)]
        first = builder.mul(low, i64(2))
        last = builder.sub(builder.mul(high, i64(2)), i64(1))
        lanes = i64(kernel.lanes)
        further = builder.sub(first, lanes), builder.sub(last, lanes)
        return [kernel.between(first, last), kernel.between(*further)]

    # -- lines anywhere -----------------------------------------------------------------------

    def offsets(self, first: Value, count: int) -> list[Value]:
        """The offsets of `count` lines from the first; those past the end equal that of the
        last."""
        builder, values = self.kernel.builder, self.values
        one, zero = i64(1), i64(0)
        last = builder.sub(self.kernel.n, one)
        line = builder.minimum(first, last)
        row = builder.udiv(line, values["n2"])
        x = builder.udiv(row, values["n1"])
        y = builder.sub(row, builder.mul(x, values["n1"]))
        z = builder.sub(line, builder.mul(row, values["n2"]))
        found = []
        for _ in range(count):
            offset = builder.mul(z, values["n_stride2"])
            offset = builder.add(offset, builder.mul(y, values["n_stride1"]))
            found.append(builder.add(offset, builder.mul(x, values["n_stride0"])))
            step = builder.zext(builder.icmp_signed("<", line, last), I64)
            line, z = builder.add(line, step), builder.add(z, step)
            full = builder.icmp_signed("==", z, values["n2"])
            z = builder.select(full, zero, z)
            y = builder.add(y, builder.zext(full, I64))
            full = builder.icmp_signed("==", y, values["n1"])
            y = builder.select(full, zero, y)
            x = builder.add(x, builder.zext(full, I64))
        return found

    def _gathered(self, b: Value, column: Value, depth: Range) -> None:
        kernel, builder, lanes = self.kernel, self.kernel.builder, self.kernel.lanes
        start, count = self._begin(b, depth)
        offsets = self.offsets(column, self.columns)
        vectors = []
        for first in range(0, self.columns, lanes):
            vector: Value = Constant(widened(I64, lanes), "undef")
            for lane in range(lanes):
                vector = builder.insert_element(vector, offsets[first + lane], Constant(I32, lane))
            vectors.append(vector)

        def each(away: Value, k: Value, _: Carried) -> Carried:
            here, line = self.reader.at(start, away), self._line(k)
            for number, vector in enumerate(vectors):
                kernel.store(self.reader.gather(here, vector), kernel.at(line, number * lanes))
            return []

        self._each(count, [], each)

    # -- k side by side -----------------------------------------------------------------------

    def _turned(self, b: Value, column: Value, depth: Range) -> None:
        """Transposes as many lines at a time as a vector has lanes; the excess of a square is
        zero."""
        kernel, builder, lanes = self.kernel, self.kernel.builder, self.kernel.lanes
        start, count = self._begin(b, depth)
        length = self.last

        def group(first: Value) -> None:
            offsets = self.offsets(builder.add(column, first), lanes)
            pointers = [self.reader.at(start, offset) for offset in offsets]

            def line(away: Value, k: Value, _: Carried) -> Carried:
                def square(i: Value) -> None:
                    rows = self._along(pointers, away, i)
                    goal = kernel.at(self._line(builder.add(k, i)), first)
                    for number, each in enumerate(transposed(builder, rows)):
                        kernel.store(each, kernel.at(goal, number * self.columns))

                kernel.each(0, length, lanes, square)
                return []

            self.neighbours(count, [], line)

        kernel.each(0, self.columns, lanes, group)

    def _along(self, pointers: list[Value], away: Value, first: Value) -> list[Value]:
        """A vector of each line along k's last axis, from its lane `first` on."""
        kernel, builder, reader = self.kernel, self.kernel.builder, self.reader
        left = builder.sub(self.last, first)
        if self.together > 1:
            lanes, left = kernel.lanes * self.together, builder.mul(left, i64(self.together))
            first = builder.mul(first, i64(self.together))
        else:
            lanes = kernel.lanes
        here, mask = builder.add(away, first), kernel.mask(left, lanes)
        rows = [reader.load(reader.at(pointer, here), lanes, mask) for pointer in pointers]
        if self.together == 1:
            return rows
        return [builder.bitcast(row, kernel.vector) for row in rows]

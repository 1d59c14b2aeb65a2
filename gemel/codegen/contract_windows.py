"""PanelRoom of an operand whose lines, or whose k, run along several axes: windows over an image.

Such a panel is made where it is used, on the stack of the kernel, from wherever its elements lie:
what the windows of a convolution hold several times is never written out. Three ways:

``rows-R-S``  lines along the last axis lie S apart (1 or 2): a vector is made of up to R runs
``turned``    k along its last axis does: squares are transposed in registers
``gathered``  anything
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gemel.codegen.assembly import I32, I64, Constant, Value, splat_constant, widened
from gemel.codegen.contract_emit import Range, Reader, Tiled
from gemel.codegen.contract_plan import NEAR_PLACES
from gemel.codegen.contract_task import Form
from gemel.codegen.frame import Carried, i64
from gemel.codegen.memory import transposed
from gemel.codegen.program import ROWS

#: Where lane 0 of a run would be, and masks of its lanes.
Run = tuple[Value, list[Value]]
#: What is done at each k, given where that is, its number and what is carried along.
Walk = Callable[[Value, Value, Carried], Carried]

#: What a square writes past the panel's last k.
PAST = 16


class PanelRoom:
    """Room for panels of so many columns and so many k, on the kernel's stack."""

    def __init__(self, kernel: Tiled, columns: int, depth: int, least: int = 1) -> None:
        """`least`: so many of the deepest ones."""
        self.kernel, self.columns, self.least = kernel, columns, least
        self.room = least * (depth + PAST)
        self.start = kernel.reserve(self.room * columns)

    def together(self, depth: Range) -> Value:
        """Columns of panels that are made together: some, and of few k as many as stay near."""
        builder, whole = self.kernel.builder, i64(self.columns)
        near = builder.udiv(i64(NEAR_PLACES), builder.mul(depth[1], whole))
        most = builder.udiv(i64(self.room), self._height(depth))
        panels = self.kernel.maximum(i64(self.least), builder.minimum(near, most))
        return builder.mul(panels, whole)

    def at(self, column: Value, depth: Range) -> Value:
        """Where the panel is that begins so many columns after the first of those together."""
        return self.kernel.at(self.start, self.kernel.builder.mul(column, self._height(depth)))

    def _height(self, depth: Range) -> Value:
        return self.kernel.builder.add(depth[1], i64(PAST))


class Windows:
    """Where the elements of b lie, and how a panel of it is made."""

    def __init__(
        self, kernel: Tiled, reader: Reader, form: str, columns: int, together: int = 1
    ) -> None:
        """`together`: how many along an axis of k (`Several.paired`) are one lane, 1 or 2; depths
        are counted in lanes."""
        way, self.runs, self.step = Form.parse(form)
        rows = self._rows if together == 1 else self._pairs
        ways = {"rows": rows, "turned": self._turned, "gathered": self._gathered}
        self.together = together
        self.kernel, self.reader = kernel, reader
        self.columns = columns
        #: Extents of the axes of k and n, and b's strides along them.
        self.values = {}
        for name, first in (("n", ROWS + 1), ("k", kernel.program.outer)):
            for i in range(3):
                self.values[f"{name}{i}"] = kernel.extents[first + i]
                self.values[f"{name}_stride{i}"] = kernel.stride(1, first + i)
        #: From lane to lane along k's first axis, and how many there are along the last.
        self.first_stride, self.last = self.values["k_stride0"], self.values["k2"]
        if together > 1 and way == "rows":
            self.first_stride = kernel.builder.mul(self.first_stride, i64(together))
        elif together > 1:
            self.last = kernel.builder.udiv(self.last, i64(together))
        self.inner = kernel.builder.mul(self.values["k1"], self.last)
        self._fill = ways[way]

    def fill(self, b: Value, column: Value, panel: Value, depth: Range) -> None:
        """The panel from `column` on, for k from depth[0] on, depth[1] of them.

        Both are whole multiples of what the last two axes of k have.
        """
        self.panel = panel
        self._fill(b, column, depth)

    def _begin(self, b: Value, depth: Range) -> Range:
        """Where k from depth[0] on lie, and how many of its first axis depth[1] are."""
        builder = self.kernel.builder
        first = builder.udiv(depth[0], self.inner)
        start = self.reader.at(b, builder.mul(first, self.first_stride))
        return start, builder.udiv(depth[1], self.inner)

    # -- walking along k ----------------------------------------------------------------------

    def neighbours(self, count: Value, carried: Carried, body: Walk) -> Carried:
        """`body` is given how far from the start the last axis of k begins, its place in k, and
        what the one before gave."""
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
        """`body` is given how far from the start each k is, its number, and what went before."""
        kernel, builder, values = self.kernel, self.kernel.builder, self.values

        def line(away: Value, k: Value, held: Carried) -> Carried:
            def single(i: Value, held: Carried) -> Carried:
                here = builder.add(away, builder.mul(i, values["k_stride2"]))
                return body(here, builder.add(k, i), held)

            return kernel.loop(0, self.last, 1, held, single)

        return self.neighbours(count, carried, line)

    def _line(self, k: Value) -> Value:
        """Where the panel's line of one k begins."""
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
        """As `fill`, but `body` is given each k and its vectors, and nothing is written."""
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
        """One vector of its runs."""
        kernel, reader, lanes = self.kernel, self.reader, self.kernel.lanes
        parts: list[Any] = [None] * self.step
        for pointer, masks in runs:
            place = reader.at(pointer, away)
            for part, mask in enumerate(masks):
                here = reader.at(place, part * lanes) if part else place
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
        """Two of k's first axis side by side: of two bytes each, in lanes of four."""
        kernel, builder, lanes = self.kernel, self.kernel.builder, self.kernel.lanes
        start, count = self._begin(b, depth)
        vectors = self._vectors(start, column)
        whole, half = widened(I32, lanes), splat_constant(Constant(I32, 16), lanes)

        def each(away: Value, k: Value, _: Carried) -> Carried:
            line, beside = self._line(k), builder.add(away, self.values["k_stride0"])
            for number, runs in enumerate(vectors):
                low, high = (
                    builder.zext(self._put_together(runs, place), whole) for place in (away, beside)
                )
                pair = builder.or_(low, builder.shl(high, half))
                place = kernel.at(line, number * lanes)
                kernel.store(builder.bitcast(pair, kernel.vector), place)
            return []

        self._each(count, [], each)

    def _found(self, start: Value, first: Value) -> list[Run]:
        """The runs that make a vector of lines from `first` on."""
        builder, length, lines = self.kernel.builder, self.values["n2"], self.kernel.n
        row = builder.udiv(first, length)
        final = builder.udiv(builder.sub(lines, i64(1)), length)
        low = builder.sub(builder.mul(row, length), first)
        left = builder.sub(lines, first)
        found = []
        for _ in range(self.runs):
            high = builder.minimum(builder.add(low, length), left)
            # A row past the last one is not read, but its address must not be nowhere.
            ahead = builder.mul(low, i64(self.step))
            offset = builder.sub(self._row(builder.minimum(row, final)), ahead)
            found.append((self.reader.at(start, offset), self._masks(low, high)))
            row, low = builder.add(row, i64(1)), builder.add(low, length)
        return found

    def _row(self, row: Value) -> Value:
        """How far from the first line a row of the last axis begins."""
        builder, values = self.kernel.builder, self.values
        outer = builder.udiv(row, values["n1"])
        inner = builder.sub(row, builder.mul(outer, values["n1"]))
        return builder.add(
            builder.mul(outer, values["n_stride0"]), builder.mul(inner, values["n_stride1"])
        )

    def _masks(self, low: Value, high: Value) -> list[Value]:
        """Which elements of a run's vectors are lanes from low on, below high, or lie between."""
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
        """How far from the first line so many lie; those past the end are where the last one is."""
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
                place = Constant(I32, lane)
                vector = builder.insert_element(vector, offsets[first + lane], place)
            vectors.append(vector)

        def each(away: Value, k: Value, _: Carried) -> Carried:
            here, line = self.reader.at(start, away), self._line(k)
            for number, vector in enumerate(vectors):
                kernel.store(self.reader.gather(here, vector), kernel.at(line, number * lanes))
            return []

        self._each(count, [], each)

    # -- k side by side -----------------------------------------------------------------------

    def _turned(self, b: Value, column: Value, depth: Range) -> None:
        """As many lines at a time as a vector has lanes; what a square has too much is zero."""
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
        """A vector of each line along k's last axis, from a lane of it on."""
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

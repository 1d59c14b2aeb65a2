"""Sums over windows that move on by one row: some rows of results at a time.

In a depthwise convolution, what one row of results reads is read again by the next row, one row of
the kernel earlier. Row by row, each vector would be loaded for every row of the kernel; and since
most of them lie across two cache lines, loads would take twice as long as the arithmetic. Here each
vector is loaded once for some rows of results (five or seven). It is one of the ways that a kernel
contains (`either`); all of them add up sums in the same order.
"""

from __future__ import annotations

from functools import partial

from gemel.codegen.language.program import is_window, operands_read
from gemel.codegen.llvm.access import Bases, Site, Values
from gemel.codegen.llvm.assembly import Builder, Value
from gemel.codegen.loops.frame import Carried, i64
from gemel.codegen.loops.plain import Loops


class OverWindows:
    """A kernel with one reduction, over the lines and columns of windows of an image; `kernel`
    prints the code inside its loops."""

    def __init__(self, kernel: Loops) -> None:
        self.kernel, self.access = kernel, kernel.access
        self.builder: Builder = kernel.builder
        program, self.analysis = kernel.program, kernel.analysis
        self.sweep = self.analysis.sweeps[0]
        (self.reduction,) = self.sweep.reductions
        self.kind = kernel.reductions[self.reduction]
        #: The dimensions of the rows of results, and of the rows and columns of a window.
        self.rows, self.high, self.wide = program.outer - 2, program.outer, program.outer + 1
        #: The operands that windows are read from.
        self.windows = {n for n, operand in enumerate(program.operands) if is_window(operand)}

    def reading(self, positions: list[int], operands: set[int]) -> list[int]:
        """Those of some instructions that depend on no other operands."""
        return [p for p in positions if operands_read(self.kernel.program.code, [p]) <= operands]


def moved(site: Site, place: Bases) -> Site:
    """The site at another place."""
    return Site(site.access, place, site.index, site.lanes, site.mask)


class Sliding(OverWindows):
    """The loops of a kernel for some rows of results at a time."""

    def __init__(self, kernel: Loops) -> None:
        super().__init__(kernel)
        self.at_once = kernel.program.parsed_schedule.rows
        #: Instructions whose values move on with the windows, and those computed for each row.
        self.moving = self.reading(self.sweep.varying, self.windows)
        self.apart = [p for p in self.sweep.varying if p not in self.moving]

    @classmethod
    def of(cls, kernel: Loops) -> Sliding | None:
        """Such loops for the program of `kernel`, whose beginning is written already; None
        unless its schedule says so."""
        slides = kernel.program.parsed_schedule.rows and kernel.lanes > 1
        return cls(kernel) if slides else None

    def pays(self) -> Value:
        """Whether there are enough rows of results."""
        kernel, count = self.kernel, self.kernel.extents[self.rows]
        if self.rows == 0:
            count = self.builder.sub(kernel.end, kernel.begin)
        return self.builder.icmp_signed(">=", count, i64(self.at_once))

    def run(self, bases: Bases) -> None:
        """All loops."""
        kernel = self.kernel
        before, kernel.hides_steps = kernel.hides_steps, True
        kernel.run_rows(bases, self._all_rows, self.rows)
        kernel.hides_steps = before

    def _all_rows(self, start: Value, stop: Value, bases: Bases) -> None:
        """All rows of a range, at one position of the dimensions before."""
        last = self.builder.sub(stop, i64(self.at_once))

        def some(first: Value) -> None:
            self._some_rows(self.builder.minimum(first, last), first, bases)

        self.kernel.each(start, stop, self.at_once, some)

    def _some_rows(self, begin: Value, fresh: Value, bases: Bases) -> None:
        """The rows that are computed at a time, from a row on. Those before the row `fresh` have
        been written: not again, since a result may be stored in place of what it was computed
        from."""
        kernel, builder, analysis = self.kernel, self.builder, self.analysis
        numbers = [builder.add(begin, i64(row)) for row in range(self.at_once)]
        new = [builder.icmp_signed(">=", number, fresh) for number in numbers]
        below = [kernel.advance(bases, self.rows, number) for number in numbers]
        once, fixed, columns = self.access.print, kernel.fixed, kernel.extents[self.rows + 1]
        given = [once(analysis.row(), Site(self.access, row), fixed) for row in below]
        before, after = analysis.point(0, True), analysis.point(1, True)

        def body(index: Value, _: int, lanes: int, stop: Value | None, held: Carried) -> Carried:
            sites = [kernel.site(row, index, 0, lanes, stop) for row in below]
            known = list(map(partial(once, before), sites, given))
            for row, total in enumerate(self._sums(sites, known)):
                with builder.if_then(new[row]):
                    once(after, sites[row], {**known[row], self.reduction: total})
            return held

        if kernel.target.free_masks:  # one loop for whole and partial vectors: half of the code
            kernel.each(0, columns, kernel.lanes, lambda i: body(i, 1, kernel.lanes, columns, []))
        else:
            kernel.vector_loop(i64(0), columns, 1, [], body)

    def _sums(self, sites: list[Site], known: list[Values]) -> Carried:
        """The reduction for each row."""
        kernel, builder, count = self.kernel, self.builder, self.at_once
        height = kernel.extents[self.high]
        held = [self.kind.identity(site.lanes)[0] for site in sites]
        line = partial(self._line, sites, known)
        for row in range(count - 1):  # the windows of later rows have not begun
            held = line(range(row + 1), i64(row), held)
        held = kernel.loop(count - 1, height, 1, held, partial(line, range(count)))
        for row in range(1, count):  # those of earlier rows have ended
            held = line(range(row, count), builder.add(height, i64(row - 1)), held)
        return held

    def _line(
        self,
        sites: list[Site],
        known: list[Values],
        rows: range,
        number: Value,
        held: Carried,
    ) -> Carried:
        """The sums after another line of the image, that of this number from the first row's window
        on; it is part of the windows of `rows`."""
        kernel, builder = self.kernel, self.builder
        lines = {
            row: kernel.advance(sites[row].bases, self.high, builder.sub(number, i64(row)))
            for row in rows
        }

        def once(index: Value, sums: Carried) -> Carried:
            places = {row: kernel.advance(lines[row], self.wide, index) for row in rows}
            site = moved(sites[rows[0]], places[rows[0]])
            shared = self.access.print(self.moving, site, kernel.fixed)
            found = list[Value]()
            for row, total in zip(rows, sums, strict=True):
                site = moved(sites[row], places[row])
                values = self._values(site, known[row], shared)
                found += kernel.added(self.reduction, [total], values, site.lanes)
            return found

        part = kernel.loop(0, kernel.extents[self.wide], 1, held[rows.start : rows.stop], once)
        return [*held[: rows.start], *part, *held[rows.stop :]]

    def _values(self, site: Site, known: Values, shared: Values) -> Values:
        """What is added to the sum of one row is computed from these, given what all rows share."""
        alike = self.kernel.shared([known])
        scalar = Site(self.access, site.bases)
        uniform = self.access.print(self.sweep.uniform, scalar, alike)
        return self.access.print(self.apart, site, {**known, **uniform, **shared})

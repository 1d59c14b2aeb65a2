"""Sums over small windows that overlap from row to row: line by line down the image.

In a depthwise convolution of 3 x 3, each line of the image is part of the windows of three rows of
results. Row by row, it would be loaded for each of them, and most of its vectors lie across two
cache lines. Here the sums of as many rows are under way as a window has lines. Each line of the
image is loaded once and added to all of them, which completes one. The places of a window are
unrolled, and each sum is added up in their order.
"""

from __future__ import annotations

from functools import partial, reduce
from itertools import chain

from gemel.codegen.language.program import BROADCAST, INDEX
from gemel.codegen.llvm.access import Bases, Masked, Site, Values
from gemel.codegen.llvm.assembly import Value, zeros
from gemel.codegen.llvm.memory import full_mask
from gemel.codegen.loops.frame import Carried, i64
from gemel.codegen.loops.plain import Loops
from gemel.codegen.loops.sliding import OverWindows, moved

#: How many vectors of columns are computed at a time, if registers hold their sums: several, since
#: lines of an image that is far away are then read from the beginning to the end, and the rest. (A
#: third number takes a third more time to compile, and gains a tenth for few sizes.) The sums that
#: are carried from line to line may take this part of all registers.
AT_ONCE, PART = (4, 1), 2
#: From so many places on, weights are read where they are used, as registers do not hold them.
MANY = 16


class Rolling(OverWindows):
    """The loops of such a kernel."""

    def __init__(self, kernel: Loops) -> None:
        super().__init__(kernel)
        program, schedule = kernel.program, kernel.program.parsed_schedule
        self.lines, self.places = range(schedule.rows), range(schedule.columns)
        #: By how many lines windows move on, and how many sums are carried from row to row.
        self.step = schedule.unroll
        self.carried = (schedule.rows - 1) // self.step
        indices = {n for n, o in enumerate(program.operands) if o.role == INDEX and o.varies}
        columns = {n for n in indices if program.operands[n].stride_class != BROADCAST}
        #: What depends only on the line of the image, and only on the column: conditions for
        #: reading a window. Then what moves on with the windows, and the rest that varies.
        self.of_line = self.reading(self.sweep.uniform, indices)
        self.of_column = self.reading(self.sweep.varying, columns)
        varying = [p for p in self.sweep.varying if p not in self.of_column]
        self.moving = self.reading(varying, self.windows | indices)
        self.apart = [p for p in varying if p not in self.moving]
        self.alike = [p for p in self.sweep.uniform if p not in self.of_line]
        chosen = [p for p in self.moving if program.code[p].name == "load_where"]
        used = {a for p in chosen for a in program.code[p].arguments}
        #: What is read under conditions; those of a line, and those of a column.
        self.chosen, self.conditions = chosen, [p for p in self.of_line if p in used]
        self.asked = [p for p in self.of_column if p in used]

    @classmethod
    def of(cls, kernel: Loops) -> Rolling | None:
        """Such loops for the program of `kernel`, whose beginning is written already; None
        unless its schedule says so."""
        return cls(kernel) if kernel.program.parsed_schedule.columns else None

    def run(self, bases: Bases) -> None:
        """All loops."""
        self.kernel.hides_steps = True
        self.kernel.run_rows(bases, self._image, self.rows)

    def _image(self, start: Value, stop: Value, bases: Bases) -> None:
        _Image(self, start, stop, bases).run()


class _Image:
    """A range of rows, at one position of the dimensions before."""

    def __init__(self, loops: Rolling, start: Value, stop: Value, bases: Bases) -> None:
        self.loops, self.rows, self.bases = loops, (start, stop), bases
        self.kernel, self.builder = loops.kernel, loops.builder
        self.weights = _Weights(loops, bases)
        self.columns, self.lanes = self.kernel.extents[loops.rows + 1], self.kernel.lanes
        most = max(1, self.kernel.target.registers // PART // max(1, loops.carried))
        #: How many vectors of columns are computed at a time.
        self.counts = [count for count in AT_ONCE if count <= most]

    def run(self) -> None:
        """All columns."""
        if self.kernel.target.free_masks:
            self._under_masks()
        else:
            self._by_borders()

    def _band(
        self, index: Value, copies: int, lanes: int, end: Value | None, whole: bool = False
    ) -> None:
        """Some vectors of columns; `whole` if no window has a column outside of the image."""
        sites = [self.kernel.site(self.bases, index, n, lanes, end) for n in range(copies)]
        _Band(self.loops, sites, self.weights, whole).run(*self.rows)

    def _under_masks(self) -> None:
        """All columns, where masks cost nothing."""
        begin, lanes = i64(0), self.lanes
        filled = self._cut(self.builder.add(self.columns, i64(lanes - 1)), 1)
        for count in self.counts:
            end = self._cut(filled, count)
            once = partial(self._band, copies=count, lanes=lanes, end=self.columns)
            self.kernel.each(begin, end, count * lanes, once)
            begin = end

    def _by_borders(self) -> None:
        """All columns, those at the borders and the last ones apart: under masks or, where there
        are none, one by one."""
        kernel, builder, columns, lanes = self.kernel, self.builder, self.columns, self.lanes
        step, limit = (lanes, columns) if kernel.masks else (1, None)
        apart = partial(self._band, copies=1, lanes=step, end=limit)
        begin, end = i64(0), columns
        if self.loops.chosen:
            first, end = self._whole_columns()
            begin = builder.and_(builder.add(first, i64(step - 1)), i64(-step))
            kernel.each(0, begin, step, apart)
        for count in dict.fromkeys((self.counts[0], 1)):
            room = builder.sub(end, builder.minimum(begin, end))
            after = builder.add(begin, self._cut(room, count))
            once = partial(self._band, copies=count, lanes=lanes, end=None, whole=True)
            kernel.each(begin, after, count * lanes, once)
            begin = after
        kernel.each(begin, columns, step, apart)

    def _cut(self, columns: Value, copies: int) -> Value:
        """So many columns, cut to whole groups of vectors."""
        return self.builder.and_(columns, i64(-copies * self.lanes))

    def _whole_columns(self) -> tuple[Value, Value]:
        """The first column of results whose windows have no column outside of the image, and the
        one after the last."""
        loops, kernel, builder, columns = self.loops, self.kernel, self.builder, self.columns
        places = [kernel.advance(self.bases, loops.wide, i64(place)) for place in loops.places]

        def column(index: Value, held: Carried) -> Carried:
            first, last = held
            sites = [Site(loops.access, place, index) for place in places]
            known = [loops.access.print(loops.of_column, site, kernel.fixed) for site in sites]
            holds = [values[p] for values in known for p in loops.asked]
            whole = reduce(builder.and_, holds, full_mask(1))
            fits = builder.select(whole, index, columns)
            after = builder.select(whole, builder.add(index, i64(1)), last)
            return [builder.minimum(first, fits), after]

        first, last = kernel.loop(0, columns, 1, [columns, i64(0)], column)
        return first, last


class _Weights:
    """What is the same for all rows and columns of results, by line and place of a window."""

    def __init__(self, loops: Rolling, bases: Bases) -> None:
        self.loops, kernel = loops, loops.kernel
        lines = [kernel.advance(bases, loops.high, i64(line)) for line in loops.lines]
        self.sites = [
            [
                Site(loops.access, kernel.advance(line, loops.wide, i64(place)))
                for place in loops.places
            ]
            for line in lines
        ]
        many = len(loops.lines) * len(loops.places) >= MANY
        self.known = [] if many else [list(map(self._read, line)) for line in self.sites]

    def _read(self, site: Site) -> Values:
        loops = self.loops
        return loops.access.print(loops.alike, site, loops.kernel.fixed)

    def at(self, line: int, place: int) -> Values:
        """The values at a place of a window."""
        return self.known[line][place] if self.known else self._read(self.sites[line][place])


class _Band:
    """Some vectors of columns of one image."""

    def __init__(self, loops: Rolling, columns: list[Site], weights: _Weights, whole: bool) -> None:
        self.loops, self.columns, self.weights = loops, columns, weights
        #: Whether no window has a column outside of the image.
        self.whole = whole
        self.kernel, self.print = loops.kernel, loops.access.print
        bases = columns[0].bases
        self.places = [self.kernel.advance(bases, loops.wide, i64(p)) for p in loops.places]
        fixed = self.kernel.fixed
        there = [[moved(column, place) for place in self.places] for column in columns]
        self.known = [[self.print(loops.of_column, site, fixed) for site in own] for own in there]
        self.masks = [*map(self._masks, chain(*there), chain(*self.known))]

    def run(self, start: Value, stop: Value) -> None:
        """All rows of a range."""
        builder, loops, count = self.kernel.builder, self.loops, self.loops.carried
        late = len(loops.lines) - loops.step  # so many lines come before those of a row's own
        sums: list[Carried] = [[] for _ in self.columns]
        above = builder.mul(start, i64(loops.step))
        for line in range(late):
            sums = self._line(builder.add(above, i64(line)), sums, line)

        def row(number: Value, held: Carried) -> Carried:
            after = [held[i * count : (i + 1) * count] for i in range(len(self.columns))]
            above = builder.mul(number, i64(loops.step))
            for line in range(late, len(loops.lines)):
                after = self._line(builder.add(above, i64(line)), after, line)
            bases = self.kernel.advance(self.columns[0].bases, loops.rows, number)
            for column, (total, *_) in zip(self.columns, after, strict=True):
                self._finish(moved(column, bases), total)
            return [total for _, *rest in after for total in rest]

        self.kernel.loop(start, stop, 1, [total for own in sums for total in own], row)

    def _line(self, number: Value, sums: list[Carried], line: int) -> list[Carried]:
        """By column: the sums of the rows whose windows contain the line of this number, the
        uppermost row first, of whose windows it is this line; `sums` are those after the line
        before."""
        loops, columns = self.loops, self.columns
        bases = [self.kernel.advance(place, loops.high, number) for place in self.places]
        seen = [[moved(column, place) for place in bases] for column in columns]
        shared = self._shared(bases[0], seen)
        own_lines = range(line, -1, -loops.step)
        first = loops.kind.identity(columns[0].lanes)
        sums = [[*own, *first][: len(own_lines)] for own in sums]
        for row, own_line in enumerate(own_lines):
            for place in loops.places:
                weight = self.weights.at(own_line, place)
                for own, sites, values in zip(sums, seen, shared, strict=True):
                    site, known = sites[place], {**weight, **values[place]}
                    known = self.print(loops.apart, site, known)
                    (own[row],) = self.kernel.added(loops.reduction, [own[row]], known, site.lanes)
        return sums

    def _shared(self, line: Bases, seen: list[list[Site]]) -> list[list[Values]]:
        """By column and place of a window: what all rows share of a line of the image."""
        loops, builder = self.loops, self.kernel.builder
        known = self.print(loops.of_line, Site(loops.access, line), self.kernel.fixed)
        holds = [known[p] for p in loops.conditions]
        if not holds:
            chosen = self._chosen(seen)
        else:  # above and below the image nothing is read
            before = builder.block
            with builder.if_then(reduce(builder.and_, holds)):
                found, inside = self._chosen(seen), builder.block
            chosen = [
                {
                    p: builder.phi(value.type, (zeros(value.type), before), (value, inside))
                    for p, value in each.items()
                }
                for each in found
            ]
        values = iter(chosen)
        return [
            [
                self.print(loops.moving, site, {**known, **own, **next(values)})
                for site, own in zip(sites, owns, strict=True)
            ]
            for sites, owns in zip(seen, self.known, strict=True)
        ]

    def _chosen(self, seen: list[list[Site]]) -> list[Values]:
        """What is read under conditions, at all columns and places of a window."""
        code, found = self.kernel.program.code, list[Values]()
        places = zip(chain(*seen), chain(*self.known), self.masks, strict=True)
        for site, known, masks in places:
            values = {}
            for p in self.loops.chosen:
                number = code[p].operand or 0
                if p in masks:
                    values[p] = site.load_masked(number, masks[p])
                else:
                    values[p] = site.load_where(number, *self._of_column(p, known))
            found.append(values)
        return found

    def _of_column(self, load: int, known: Values) -> list[Value]:
        """The conditions for the columns in which something is read."""
        arguments = self.kernel.program.code[load].arguments
        return [known[a] for a in arguments if a in self.loops.asked and not self.whole]

    def _masks(self, site: Site, known: Values) -> dict[int, Masked]:
        """What is read under a mask, which is the same for all lines, and the mask."""
        builder, code = self.kernel.builder, self.kernel.program.code
        conditions = {p: self._of_column(p, known) for p in self.loops.chosen}
        return {
            p: site.masked(code[p].operand or 0, reduce(builder.and_, each))
            for p, each in conditions.items()
            if each and site.lanes > 1
        }

    def _finish(self, site: Site, total: Value) -> None:
        """What follows the sum, at a row of results."""
        analysis = self.loops.analysis
        known = self.print(analysis.row(), Site(self.loops.access, site.bases), self.kernel.fixed)
        known = self.print(analysis.point(0, True), site, known)
        self.print(analysis.point(1, True), site, {**known, self.loops.reduction: total})

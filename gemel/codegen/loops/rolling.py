"""Sums over small windows that move on by one row: line by line down the image.

In a depthwise convolution of 3 x 3, each line of the image is part of the windows of three rows of
results. Row by row, it would be loaded for each of them, and most of its vectors lie across two
cache lines. Here the sums of as many rows are under way as a window has lines. Each line of the
image is loaded once and added to all of them, which completes one. The places of a window are
unrolled, and each sum is added up in their order.
"""

from __future__ import annotations

from functools import partial, reduce

from gemel.codegen.language.program import BROADCAST, INDEX
from gemel.codegen.language.slides import is_window
from gemel.codegen.llvm.access import Bases, Site, Values
from gemel.codegen.llvm.assembly import Builder, Value, zeros
from gemel.codegen.llvm.memory import full_mask
from gemel.codegen.llvm.registers import register_type
from gemel.codegen.loops.frame import Carried, i64
from gemel.codegen.loops.plain import Loops

#: How many vectors of columns are computed at a time, if registers hold their sums: as many as
#: possible, since a line of the image is then read from its beginning to its end. The sums that are
#: carried from line to line may take this part of all registers.
AT_ONCE, PART = (4, 2, 1), 2
#: From so many places on, weights are read where they are used, as registers do not hold them.
MANY = 16


class Rolling:
    """The loops of such a kernel; `kernel` prints the code inside them."""

    def __init__(self, kernel: Loops) -> None:
        self.kernel, self.access = kernel, kernel.access
        self.builder: Builder = kernel.builder
        program, self.analysis = kernel.program, kernel.analysis
        self.sweep = self.analysis.sweeps[0]
        (self.reduction,) = self.sweep.reductions
        #: The dimensions of the rows of results, and of the rows and columns of a window.
        self.rows, self.high, self.wide = program.outer - 2, program.outer, program.outer + 1
        schedule = program.parsed_schedule
        self.lines, self.places = range(schedule.rows), range(schedule.columns)
        numbered = list(enumerate(program.operands))
        windows = {n for n, operand in numbered if is_window(operand)}
        indices = {n for n, o in numbered if o.role == INDEX and o.varies}
        columns = {n for n in indices if program.operands[n].stride_class != BROADCAST}
        #: What depends only on the line of the image, and only on the column: conditions for
        #: reading a window. Then what moves on with the windows, and the rest that varies.
        self.of_line = self._reading(self.sweep.uniform, indices)
        self.of_column = self._reading(self.sweep.varying, columns)
        varying = [p for p in self.sweep.varying if p not in self.of_column]
        self.moving = self._reading(varying, windows | indices)
        self.apart = [p for p in varying if p not in self.moving]
        self.alike = [p for p in self.sweep.uniform if p not in self.of_line]
        chosen = [p for p in self.moving if program.code[p].name == "load_where"]
        used = {a for p in chosen for a in program.code[p].arguments}
        #: What is read under conditions, and those that hold for whole lines.
        self.chosen, self.conditions = chosen, [p for p in self.of_line if p in used]

    def _reading(self, positions: list[int], operands: set[int]) -> list[int]:
        """Those of some instructions that depend on no other operands."""
        return [p for p in positions if self.analysis.reads(p) <= operands]

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
        """A range of rows, at one position of the dimensions before."""
        kernel, builder, weights = self.kernel, self.builder, _Weights(self, bases)
        columns = kernel.extents[self.rows + 1]

        def some(
            index: Value, copies: int, lanes: int, end: Value | None, held: Carried
        ) -> Carried:
            sites = [kernel.site(bases, index, copy, lanes, end) for copy in range(copies)]
            _Band(self, sites, weights).run(start, stop)
            return held

        most = max(1, kernel.target.registers // PART // (len(self.lines) - 1))
        counts = [count for count in AT_ONCE if count <= most]
        if not kernel.target.free_masks:
            kernel.vector_loop(i64(0), columns, counts[0], [], some)
            return
        begin, lanes = i64(0), kernel.lanes
        whole = builder.and_(builder.add(columns, i64(lanes - 1)), i64(-lanes))
        for count in counts:
            end = builder.and_(whole, i64(-count * lanes))
            once = partial(some, copies=count, lanes=lanes, end=columns, held=[])
            kernel.each(begin, end, count * lanes, once)
            begin = end


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

    def __init__(self, loops: Rolling, columns: list[Site], weights: _Weights) -> None:
        self.loops, self.columns, self.weights = loops, columns, weights
        self.kernel, self.print = loops.kernel, loops.access.print
        bases = columns[0].bases
        self.places = [self.kernel.advance(bases, loops.wide, i64(p)) for p in loops.places]
        self.known = [
            [self.print(loops.of_column, _at(column, p), self.kernel.fixed) for p in self.places]
            for column in columns
        ]

    def run(self, start: Value, stop: Value) -> None:
        """All rows of a range."""
        builder, lines = self.kernel.builder, self.loops.lines
        sums: list[Carried] = [[] for _ in self.columns]
        for line in lines[:-1]:  # the windows of later rows have not begun
            sums = self._line(builder.add(start, i64(line)), sums)

        def row(number: Value, held: Carried) -> Carried:
            carried = len(lines) - 1
            before = [held[i : i + carried] for i in range(0, len(held), carried)]
            after = self._line(builder.add(number, i64(carried)), before)
            bases = self.kernel.advance(self.columns[0].bases, self.loops.rows, number)
            for column, (total, *_) in zip(self.columns, after, strict=True):
                self._finish(_at(column, bases), total)
            return [total for _, *rest in after for total in rest]

        self.kernel.loop(start, stop, 1, [total for own in sums for total in own], row)

    def _line(self, number: Value, sums: list[Carried]) -> list[Carried]:
        """By column: the sums of the rows whose windows contain the line of this number, the
        uppermost row first; `sums` are those after the line before."""
        loops = self.loops
        lines = [self.kernel.advance(place, loops.rows, number) for place in self.places]
        seen = [[_at(column, line) for line in lines] for column in self.columns]
        shared = self._shared(lines[0], seen)
        first = self.kernel.reductions[loops.reduction].identity(self.columns[0].lanes)
        sums = [[*own, *first] for own in sums]
        for row, line in enumerate(reversed(loops.lines[: len(sums[0])])):
            for place in loops.places:
                weight = self.weights.at(line, place)
                for own, sites, values in zip(sums, seen, shared, strict=True):
                    site, known = sites[place], {**weight, **values[place]}
                    known = self.print(loops.apart, site, known)
                    (own[row],) = self.kernel.added(loops.reduction, [own[row]], known, site.lanes)
        return sums

    def _shared(self, line: Bases, seen: list[list[Site]]) -> list[list[Values]]:
        """By column and place of a window: what all rows share of a line of the image. Outside of
        the image, where nothing is read, it is computed from zeros."""
        loops, builder, fixed = self.loops, self.kernel.builder, self.kernel.fixed

        def printed(given: Values) -> list[list[Values]]:
            return [
                [
                    self.print(loops.moving, site, {**own, **given})
                    for site, own in zip(*each, strict=True)
                ]
                for each in zip(seen, self.known, strict=True)
            ]

        known = self.print(loops.of_line, Site(loops.access, line), fixed)
        if not loops.conditions:
            return printed(known)
        code, lanes = self.kernel.program.code, self.columns[0].lanes
        holds = reduce(builder.and_, [known[p] for p in loops.conditions])
        nothing = {p: zeros(register_type(code[p].dtype, lanes)) for p in loops.chosen}
        with builder.if_else(holds) as (inside, outside):
            with inside:
                yes = full_mask(1)
                found = printed({**known, **dict.fromkeys(loops.conditions, yes)}), builder.block
            with outside:
                others = printed({**known, **nothing}), builder.block
        return [
            [self._either(*pair, found[1], others[1]) for pair in zip(*each, strict=True)]
            for each in zip(found[0], others[0], strict=True)
        ]

    def _either(self, first: Values, second: Values, block: str, other: str) -> Values:
        """The values of one of two blocks."""
        phi = self.kernel.builder.phi
        return {
            p: phi(first[p].type, (first[p], block), (second[p], other)) for p in self.loops.moving
        }

    def _finish(self, site: Site, total: Value) -> None:
        """What follows the sum, at a row of results."""
        analysis = self.loops.analysis
        known = self.print(analysis.row(), Site(self.loops.access, site.bases), self.kernel.fixed)
        known = self.print(analysis.point(0, True), site, known)
        self.print(analysis.point(1, True), site, {**known, self.loops.reduction: total})


def _at(site: Site, place: Bases) -> Site:
    """The site at another place."""
    return Site(site.access, place, site.index, site.lanes, site.mask)

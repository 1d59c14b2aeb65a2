"""Products with few rows whose b is contiguous along k: dot products straight from b, not packed.

Several rows of b (columns of the result) are read at once, each with a vector of partial sums along
k. A transposing tree then turns the partial sums of a block into one short vector per row of the
result.
"""

from __future__ import annotations

from collections.abc import Callable

from gemel.codegen.language.program import Program
from gemel.codegen.llvm.access import Bases
from gemel.codegen.llvm.assembly import Module, Value, zeros
from gemel.codegen.loops.frame import Body, i64
from gemel.codegen.target import Target
from gemel.codegen.tiles.blocks import SumKernel
from gemel.codegen.tiles.emit import Elements, Range, Reader
from gemel.codegen.tiles.windows import Windows
from gemel.errors import CompileError

#: How many cache lines ahead a `far` b is prefetched: one page.
AHEAD = 64
#: Reads a vector of consecutive k at an address.
Fetch = Callable[[Elements, Value], Value]


def emit(program: Program, target: Target) -> Module:
    """The kernel of the schedule ``dot ROWSxCOLUMNSxUNROLL``, with or without ``far`` after that.

    Raises `CompileError` if the sum is not one of products of floating-point values.
    """
    return _Dot(program, target).build()


class _Dot(SumKernel):
    def __init__(self, program: Program, target: Target) -> None:
        schedule = program.parsed_schedule
        self.unroll, self.far = schedule.unroll, schedule.far
        super().__init__(program, target, schedule.rows, schedule.columns)
        self.stack = self.reserve(schedule.rows * schedule.columns)
        # Lanes past the last k read zeros, which add nothing only if the terms are products.
        if not self.sum.is_of_products or self.sum.dtype.kind != "f":
            raise CompileError(f"dot products are floating\n{program.text}")
        #: The layout of b if its k and its lines run along several axes.
        self.windows: Windows | None = None
        if program.inner > 1:
            reader = Reader(self, 1, self.sum.factors[1])
            self.windows = Windows(self, reader, "turned", schedule.columns)
        #: How many k are contiguous in both operands, and the mask of the last vector's valid
        #: lanes.
        self.length = self.windows.values["k2"] if self.windows else self.depth
        self.whole = self.builder.and_(self.length, i64(-self.lanes))
        self.last = self.mask(self.builder.sub(self.length, self.whole)) if self.has_masks else None

    def fill_columns(self, tile: Value, bases: Bases, rows: Range, columns: Range) -> None:
        add = self.builder.add

        def across(j: Value) -> None:
            first = add(columns[0], j)
            if self.windows:
                offsets = self.windows.offsets(first, self.columns)
                right = [self.right.at(bases[1], offset) for offset in offsets]
            else:
                right = self.lines(1, bases[1], first, self.columns)
            self.each(
                0, rows[1], self.rows, lambda i: self._block(bases, right, add(rows[0], i), first)
            )

        self.each(0, columns[1], self.columns, across)

    def _block(self, bases: Bases, right: list[Value], row: Value, column: Value) -> None:
        """Computes, reduces and finishes rows x columns dot products."""
        left = self.lines(0, bases[0], row, self.rows)
        sums = self._partial_sums(left, right)
        for i in range(self.rows):
            own = sums[i * self.columns : (i + 1) * self.columns]
            self.store(self._reduce(own), self.at(self.stack, i * self.columns))
        rows = row, self.remaining(self.m, row, self.rows)
        columns = column, self.remaining(self.n, column, self.columns)
        self.epilogue.from_memory(self.stack, self.columns, rows, columns)

    def _partial_sums(self, left: list[Value], right: list[Value]) -> list[Value]:
        """One vector per dot product. Its lanes still have to be added up."""
        add, windows = self.builder.add, self.windows
        nothing = [zeros(self.vector)] * (self.rows * self.columns)

        def run(away: Value, first: Value, total: list[Value]) -> list[Value]:
            def step(fetch: Fetch) -> Body:
                return lambda k, sums: self._step(
                    left, right, (add(first, k), add(away, k)), sums, fetch
                )

            return self._added(total, step)

        if windows:
            return windows.neighbours(windows.values["k0"], nothing, run)
        return run(i64(0), i64(0), nothing)

    def _added(self, totals: list[Value], step: Callable[[Fetch], Body]) -> list[Value]:
        """The sums plus the products of a contiguous run of k. `step` is given a function that
        reads a vector, and returns the body that adds the products of one vector of k."""
        builder, lanes, count = self.builder, self.lanes, len(totals)
        single = step(lambda reader, pointer: reader.load(pointer))

        def several(k: Value, total: list[Value]) -> list[Value]:
            parts = [total[u : u + count] for u in range(0, len(total), count)]
            heres = (builder.add(k, i64(u * lanes)) for u in range(self.unroll))
            return [x for here, part in zip(heres, parts, strict=True) for x in single(here, part)]

        bulk = builder.and_(self.length, i64(-lanes * self.unroll))
        more = [zeros(self.vector)] * (count * (self.unroll - 1))
        sums = self.loop(0, bulk, lanes * self.unroll, totals + more, several)
        totals = sums[:count]
        for u in range(count, len(sums), count):
            totals = [builder.fadd(x, y) for x, y in zip(totals, sums[u:], strict=False)]
        if self.unroll > 1:
            totals = self.loop(bulk, self.whole, lanes, totals, single)
        # The remaining k fill only part of a vector.
        if self.has_masks:
            masked = step(lambda reader, pointer: reader.load(pointer, mask=self.last))
            return self.loop(self.whole, self.length, lanes, totals, masked)
        one = step(lambda reader, pointer: self.insert(None, reader.load(pointer, 1), 0))
        return self.loop(self.whole, self.length, 1, totals, one)

    def _step(
        self, left: list[Value], right: list[Value], k: Range, total: list[Value], fetch: Fetch
    ) -> list[Value]:
        """One vector of k for every pair of lines; `k` are its offsets from the starts of the lines
        of a and of b."""
        b = [fetch(self.right, self.right.at(pointer, k[1])) for pointer in right]
        if self.far:
            ahead = self.builder.add(k[1], i64(AHEAD * self.right.per_cache_line))
            for pointer in right:
                self.prefetch(self.right.at(pointer, ahead), 2)
        result: list[Value] = []
        for pointer in left:
            x = fetch(self.left, self.left.at(pointer, k[0]))
            for y in b:
                result.append(self.sum.added(total[len(result)], y, x))
        return result

    def _reduce(self, vectors: list[Value]) -> Value:
        """Adds up the lanes of each of 2, 4, ... vectors (at most `lanes`); the sums as one
        vector."""
        segment = self.lanes
        while segment > 1:
            # Every vector holds `lanes / segment` runs of `segment` lanes, one run per dot product.
            half = segment // 2
            paired = len(vectors) > 1
            width = vectors[0].type.lanes * (2 if paired else 1)
            low = [lane for run in range(0, width, segment) for lane in range(run, run + half)]
            high = [lane + half for lane in low]
            pairs = zip(vectors[::2], vectors[1::2], strict=True) if paired else [(vectors[0],) * 2]
            vectors = [
                self.builder.fadd(self.shuffle(x, y, low), self.shuffle(x, y, high))
                for x, y in pairs
            ]
            segment = half
        return vectors[0]

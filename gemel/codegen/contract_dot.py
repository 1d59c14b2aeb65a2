"""Products with few rows whose b runs along k: dot products straight from b, nothing packed.

Several rows of b (columns of the result) are read at once, each with a vector of partial sums along
k; a transposing tree turns the partial sums of a block into one short vector per row of the result.
"""

from __future__ import annotations

from collections.abc import Callable

from gemel.codegen.access import Bases
from gemel.codegen.assembly import Constant, Module, Value
from gemel.codegen.contract_emit import Emitter, Epilogue, Reader, Tiles
from gemel.codegen.frame import i64
from gemel.codegen.program import ROWS, Program
from gemel.codegen.target import Target


def emit(program: Program, target: Target) -> Module:
    """The kernel of the schedule ``dot ROWSxCOLUMNSxUNROLL``."""
    return _Dot(program, target).emit()


class _Dot:
    def __init__(self, program: Program, target: Target) -> None:
        shape = program.schedule.split()[1]
        self.rows, self.columns, self.unroll = (int(word) for word in shape.split("x"))
        self.emitter = Emitter(program, target, self.rows * self.columns)
        self.tiles, self.epilogue = Tiles(self.emitter), Epilogue(self.emitter)
        self.readers = Reader(self.emitter, 0), Reader(self.emitter, 1)

    def emit(self) -> Module:
        return self.emitter.finish(self._tile)

    def _tile(self, tile: Value) -> None:
        emitter, builder, tiles = self.emitter, self.emitter.builder, self.tiles
        bases, row, column = tiles.enter(tile)
        self.epilogue.enter(bases)
        rows = tiles.left(tiles.m, row, tiles.values["m_block"])
        columns = tiles.left(tiles.n, column, tiles.values["n_block"])

        def across(j: Value) -> None:
            first = builder.add(column, j)
            right = self._pointers(bases, 1, first, tiles.n, self.columns)
            emitter.each(
                0,
                rows,
                self.rows,
                lambda i: self._block(bases, right, builder.add(row, i), first),
            )

        emitter.each(0, columns, self.columns, across)

    def _pointers(
        self, bases: Bases, operand: int, first: Value, total: Value, count: int
    ) -> list[Value]:
        """Starts of `count` lines from `first` on; those past the end repeat the last one."""
        emitter, builder = self.emitter, self.emitter.builder
        stride = emitter.stride(operand, ROWS + operand)
        last = builder.sub(total, i64(1))
        pointers = []
        for i in range(count):
            index = builder.minimum(builder.add(first, i64(i)), last) if i else first
            pointers.append(self.readers[operand].at(bases[operand], builder.mul(index, stride)))
        return pointers

    def _block(self, bases: Bases, right: list[Value], row: Value, column: Value) -> None:
        """rows x columns dot products, reduced and finished."""
        emitter, tiles = self.emitter, self.tiles
        left = self._pointers(bases, 0, row, tiles.m, self.rows)
        sums = self._partial_sums(left, right)
        for i in range(self.rows):
            own = sums[i * self.columns : (i + 1) * self.columns]
            emitter.store(self._reduce(own), emitter.at(emitter.stack, i * self.columns))
        rows = tiles.left(tiles.m, row, self.rows)
        columns = tiles.left(tiles.n, column, self.columns)
        self.epilogue.apply(
            emitter.stack, self.columns, (row, rows), (column, columns), self.columns
        )

    def _partial_sums(self, left: list[Value], right: list[Value]) -> list[Value]:
        """One vector per dot product, whose lanes are still to be added up."""
        emitter, builder, depth = self.emitter, self.emitter.builder, self.tiles.k
        count, lanes = self.rows * self.columns, emitter.lanes
        zero = Constant(emitter.vector, "zeroinitializer")
        bulk = builder.and_(depth, i64(-lanes * self.unroll))
        whole = builder.and_(depth, i64(-lanes))

        def whole_vector(reader: Reader, pointer: Value, k: Value) -> Value:
            return reader.load(reader.at(pointer, k))

        def step(k: Value, total: list[Value]) -> list[Value]:
            total = list(total)
            for u in range(self.unroll):
                here = builder.add(k, i64(u * lanes))
                part = slice(u * count, (u + 1) * count)
                total[part] = self._step(left, right, here, total[part], whole_vector)
            return total

        sums = emitter.loop(0, bulk, lanes * self.unroll, [zero] * count * self.unroll, step)
        totals = sums[:count]
        for u in range(1, self.unroll):
            part = sums[u * count : (u + 1) * count]
            totals = [builder.fadd(x, y) for x, y in zip(totals, part, strict=True)]
        if self.unroll > 1:
            totals = emitter.loop(
                bulk,
                whole,
                lanes,
                totals,
                lambda k, total: self._step(left, right, k, total, whole_vector),
            )
        return self._rest(left, right, whole, totals)

    def _rest(
        self, left: list[Value], right: list[Value], whole: Value, totals: list[Value]
    ) -> list[Value]:
        """The last k, fewer than a vector."""
        emitter, builder, depth = self.emitter, self.emitter.builder, self.tiles.k
        if emitter.has_masks:
            mask = emitter.mask(builder.sub(depth, whole))

            def vector(reader: Reader, pointer: Value, k: Value) -> Value:
                return reader.load(reader.at(pointer, k), mask=mask)

            return emitter.loop(
                whole,
                depth,
                emitter.lanes,
                totals,
                lambda k, total: self._step(left, right, k, total, vector),
            )

        def single(reader: Reader, pointer: Value, k: Value) -> Value:
            return emitter.insert(None, reader.load(reader.at(pointer, k), 1), 0)

        return emitter.loop(
            whole, depth, 1, totals, lambda k, total: self._step(left, right, k, total, single)
        )

    def _step(
        self,
        left: list[Value],
        right: list[Value],
        k: Value,
        total: list[Value],
        fetch: Callable[[Reader, Value, Value], Value],
    ) -> list[Value]:
        """One vector of k for every pair."""
        b = [fetch(self.readers[1], pointer, k) for pointer in right]
        result: list[Value] = []
        for pointer in left:
            x = fetch(self.readers[0], pointer, k)
            for y in b:
                result.append(self.emitter.multiply_add(y, x, total[len(result)]))
        return result

    def _reduce(self, vectors: list[Value]) -> Value:
        """The lanes of each of 2, 4, ... vectors (at most `lanes`) added up, as one vector."""
        emitter = self.emitter
        segment = emitter.lanes
        while segment > 1:
            # Every vector holds `lanes / segment` runs of `segment` lanes, one run per dot product.
            half = segment // 2
            paired = len(vectors) > 1
            width = vectors[0].type.lanes * (2 if paired else 1)
            low = [lane for run in range(0, width, segment) for lane in range(run, run + half)]
            high = [lane + half for lane in low]
            pairs = zip(vectors[::2], vectors[1::2], strict=True) if paired else [(vectors[0],) * 2]
            vectors = [
                emitter.builder.fadd(emitter.shuffle(x, y, low), emitter.shuffle(x, y, high))
                for x, y in pairs
            ]
            segment = half
        return vectors[0]

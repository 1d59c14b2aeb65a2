"""Products with few rows whose b runs along k: dot products straight from b, nothing packed.

Several rows of b (columns of the result) are read at once, each with a vector of partial sums along
k; a transposing tree turns the partial sums of a block into one short vector per row of the result.
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from gemel.codegen.contract_emit import Emitter
from gemel.codegen.contract_gemm import Tiles
from gemel.codegen.program import Contraction
from gemel.codegen.target import Target


def emit(contraction: Contraction, target: Target) -> ir.Module:
    """The kernel of a contraction whose variant is ``dot ROWSxCOLUMNSxUNROLL``."""
    return _Dot(contraction, target).emit()


class _Dot:
    def __init__(self, contraction: Contraction, target: Target) -> None:
        shape = contraction.variant.split()[1]
        self.rows, self.columns, self.unroll = (int(word) for word in shape.split("x"))
        self.emitter = Emitter(contraction.dtype, target, self.rows * self.columns)
        self.tiles = Tiles(self.emitter, contraction)

    def emit(self) -> ir.Module:
        emitter = self.emitter
        emitter.repeat(emitter.begin, emitter.end, 1, [], self._tile)
        return emitter.finish()

    def _tile(self, tile: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
        emitter, builder, values = self.emitter, self.emitter.builder, self.tiles.values
        a, b, row, column = self.tiles.enter(tile)
        rows = self.tiles.left("m", row, values["m_block"])
        columns = self.tiles.left("n", column, values["n_block"])

        def across(j: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
            first = builder.add(column, j)
            right = self._pointers(b, first, "n", "b_stride", self.columns)

            def down(i: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
                self._block(a, right, builder.add(row, i), first)
                return []

            emitter.repeat(0, rows, self.rows, [], down)
            return []

        emitter.repeat(0, columns, self.columns, [], across)
        return []

    def _pointers(
        self, base: ir.Value, first: ir.Value, total: str, stride: str, count: int
    ) -> list[ir.Value]:
        """Starts of `count` lines from `first` on; those past the end repeat the last one."""
        emitter, builder, values = self.emitter, self.emitter.builder, self.tiles.values
        last = builder.sub(values[total], emitter.number(1))
        pointers = []
        for i in range(count):
            index = emitter.minimum(builder.add(first, emitter.number(i)), last) if i else first
            pointers.append(emitter.at(base, builder.mul(index, values[stride])))
        return pointers

    def _block(self, a: ir.Value, right: list[ir.Value], row: ir.Value, column: ir.Value) -> None:
        """rows x columns dot products, reduced and finished."""
        emitter, tiles = self.emitter, self.tiles
        left = self._pointers(a, row, "m", "a_stride", self.rows)
        sums = self._partial_sums(left, right)
        for i in range(self.rows):
            own = sums[i * self.columns : (i + 1) * self.columns]
            emitter.store(self._reduce(own), emitter.at(emitter.stack, i * self.columns))
        rows = tiles.left("m", row, self.rows)
        columns = tiles.left("n", column, self.columns)
        tiles.epilogue.apply(
            emitter.stack, self.columns, (row, rows), (column, columns), self.columns
        )

    def _partial_sums(self, left: list[ir.Value], right: list[ir.Value]) -> list[ir.Value]:
        """One vector per dot product, whose lanes are still to be added up."""
        emitter, builder, depth = self.emitter, self.emitter.builder, self.tiles.values["k"]
        count, lanes = self.rows * self.columns, emitter.lanes
        zero = ir.Constant(emitter.vector, None)
        bulk = builder.and_(depth, emitter.number(-lanes * self.unroll))
        whole = builder.and_(depth, emitter.number(-lanes))

        def whole_vector(pointer: ir.Value, k: ir.Value) -> ir.Value:
            return emitter.load(emitter.at(pointer, k), emitter.vector)

        def step(k: ir.Value, total: list[ir.Value]) -> list[ir.Value]:
            total = list(total)
            for u in range(self.unroll):
                here = builder.add(k, emitter.number(u * lanes))
                part = slice(u * count, (u + 1) * count)
                total[part] = self._step(left, right, here, total[part], whole_vector)
            return total

        sums = emitter.repeat(0, bulk, lanes * self.unroll, [zero] * count * self.unroll, step)
        totals = sums[:count]
        for u in range(1, self.unroll):
            part = sums[u * count : (u + 1) * count]
            totals = [builder.fadd(x, y) for x, y in zip(totals, part, strict=True)]
        if self.unroll > 1:
            totals = emitter.repeat(
                bulk,
                whole,
                lanes,
                totals,
                lambda k, total: self._step(left, right, k, total, whole_vector),
            )
        return self._rest(left, right, whole, totals)

    def _rest(
        self, left: list[ir.Value], right: list[ir.Value], whole: ir.Value, totals: list[ir.Value]
    ) -> list[ir.Value]:
        """The last k, fewer than a vector."""
        emitter, builder, depth = self.emitter, self.emitter.builder, self.tiles.values["k"]
        if emitter.has_masks:
            mask = emitter.mask(builder.sub(depth, whole), emitter.lanes)

            def vector(pointer: ir.Value, k: ir.Value) -> ir.Value:
                return emitter.masked_load(emitter.at(pointer, k), emitter.vector, mask)

            return emitter.repeat(
                whole,
                depth,
                emitter.lanes,
                totals,
                lambda k, total: self._step(left, right, k, total, vector),
            )

        def single(pointer: ir.Value, k: ir.Value) -> ir.Value:
            value = emitter.load(emitter.at(pointer, k), emitter.type)
            zero = ir.Constant(emitter.vector, None)
            return builder.insert_element(zero, value, ir.Constant(ir.IntType(32), 0))

        return emitter.repeat(
            whole, depth, 1, totals, lambda k, total: self._step(left, right, k, total, single)
        )

    def _step(
        self,
        left: list[ir.Value],
        right: list[ir.Value],
        k: ir.Value,
        total: list[ir.Value],
        fetch: Callable[[ir.Value, ir.Value], ir.Value],
    ) -> list[ir.Value]:
        """One vector of k for every pair."""
        b = [fetch(pointer, k) for pointer in right]
        result: list[ir.Value] = []
        for pointer in left:
            x = fetch(pointer, k)
            for y in b:
                result.append(self.emitter.multiply_add(y, x, total[len(result)]))
        return result

    def _reduce(self, vectors: list[ir.Value]) -> ir.Value:
        """The lanes of each of 2, 4, ... vectors (at most `lanes`) added up, as one vector."""
        emitter = self.emitter
        segment = emitter.lanes
        while segment > 1:
            # Every vector holds `lanes / segment` runs of `segment` lanes, one run per dot product.
            half = segment // 2
            paired = len(vectors) > 1
            width = vectors[0].type.count * (2 if paired else 1)
            low = [lane for run in range(0, width, segment) for lane in range(run, run + half)]
            high = [lane + half for lane in low]
            pairs = zip(vectors[::2], vectors[1::2], strict=True) if paired else [(vectors[0],) * 2]
            vectors = [
                emitter.builder.fadd(emitter.shuffle(x, y, low), emitter.shuffle(x, y, high))
                for x, y in pairs
            ]
            segment = half
        return vectors[0]

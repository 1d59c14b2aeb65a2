"""The tiles of a sum: what both ways to do rows and columns of it, block by block, share.

A micro-tile of the result is held in registers; `contract_gemm` holds sums, side by side along the
columns, `contract_dot` parts of sums along k.
"""

from __future__ import annotations

from gemel.codegen.access import Bases
from gemel.codegen.assembly import Module, Value
from gemel.codegen.contract_emit import (
    Elements,
    Emitter,
    Epilogue,
    Range,
    Tiles,
    sum_position,
)
from gemel.codegen.contract_sum import sum_of
from gemel.codegen.frame import i64
from gemel.codegen.program import ROWS, Program
from gemel.codegen.target import Target


class Tile:
    """One kernel; a micro-tile is `rows` x `columns`."""

    def __init__(self, program: Program, target: Target, rows: int, columns: int) -> None:
        self.rows, self.columns = rows, columns
        self.emitter = Emitter(program, target, program.code[sum_position(program)].dtype)
        self.sum = sum_of(self.emitter)
        self.tiles, self.epilogue = Tiles(self.emitter), Epilogue(self.emitter)
        self.left: Elements = self.sum.reader(0)
        self.right: Elements = self.sum.reader(1)
        #: How many steps k has.
        self.depth = self.sum.depth(self.tiles.k)

    def emit(self) -> Module:
        """The kernel."""
        return self.emitter.finish(self._tile)

    def _tile(self, tile: Value) -> None:
        tiles, values = self.tiles, self.tiles.values
        bases, row, column = tiles.enter(tile)
        self.epilogue.enter(bases)
        rows = row, tiles.left(tiles.m, row, values["m_block"])
        columns = column, tiles.left(tiles.n, column, values["n_block"])
        self.fill(tile, bases, rows, columns)

    def fill(self, tile: Value, bases: Bases, rows: Range, columns: Range) -> None:
        """Computes the rows and columns of a tile."""
        raise NotImplementedError

    def lines(self, number: int, base: Value, first: Value, count: int) -> list[Value]:
        """Where `count` lines of an operand begin; those past the end repeat the last one."""
        builder = self.emitter.builder
        reader, total = ((self.left, self.tiles.m), (self.right, self.tiles.n))[number]
        stride = self.emitter.stride(number, ROWS + number)
        last = builder.sub(total, i64(1))
        pointers = []
        for i in range(count):
            index = builder.minimum(builder.add(first, i64(i)), last) if i else first
            pointers.append(reader.at(base, builder.mul(index, stride)))
        return pointers

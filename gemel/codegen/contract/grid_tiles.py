"""Matrix products on a GPU: the tile of the result that a block of threads computes."""

from __future__ import annotations

from typing import NamedTuple

from gemel.codegen.language.program import STRIDED, Program, Schedule


class Tile(NamedTuple):
    """The rows and columns of a block's results, and how many k it goes along in a step. `tensor`:
    on tensor cores; `groups`: by groups of warps."""

    rows: int
    columns: int
    depth: int
    tensor: bool = False
    groups: bool = False

    def needed(self, batch: int, m: int, n: int) -> int:
        """How many tiles cover a result."""
        return batch * -(-m // self.rows) * -(-n // self.columns)


class Tiles(NamedTuple):
    """Tiles for results with many rows and columns, few rows, few columns, and few of both."""

    square: Tile
    wide: Tile
    high: Tile
    small: Tile


GRID_TILES = Tiles(Tile(128, 128, 8), Tile(64, 256, 8), Tile(256, 64, 8), Tile(64, 64, 16))
#: The same on tensor cores.
TENSOR_TILES = Tiles(*(Tile(*tile[:2], 32, tensor=True) for tile in GRID_TILES))
#: For groups of warps: a large one, and one for fewer results.
GROUP_TILES = Tile(128, 256, 64, True, True), Tile(128, 128, 64, True, True)
#: So many of the large tiles keep a GPU busy. Blocks that share a tile do with so many k, too.
MANY_TILES = 64
LONG_SUM = 1024


def chosen(batch: int, m: int, n: int, k: int, tensor: bool, groups: bool) -> Tile:
    """The tile for a product of these sizes."""
    tiles = TENSOR_TILES if tensor else GRID_TILES
    few = tiles.small.rows
    if groups and m > few and n > few:
        large, smaller = GROUP_TILES
        if large.needed(batch, m, n) >= MANY_TILES:
            return large
        shared = smaller.needed(batch, m, n) * max(k // LONG_SUM, 1)
        return smaller if shared >= MANY_TILES else tiles.small
    if m <= few:
        large = tiles.wide
    else:
        large = tiles.high if n <= few else tiles.square
    return large if large.needed(batch, m, n) >= MANY_TILES else tiles.small


def on_grid(program: Program, along_k: tuple[bool, bool], tile: Tile) -> Program:
    """The loops of a product as a program for a grid of threads. `along_k`: which factors are
    contiguous along k."""
    a_form, b_form = (("m", "n")[i] if not along else "k" for i, along in enumerate(along_k))
    schedule = Schedule("block", rows=tile.rows, columns=tile.columns, unroll=tile.depth)
    schedule = schedule._replace(tensor=tile.tensor, groups=tile.groups)
    schedule = schedule._replace(a_form=a_form, b_form=b_form)
    factors = (each._replace(stride_class=STRIDED) for each in program.operands[:2])
    operands = (*factors, *program.operands[2:])
    return program._replace(operands=operands, schedule=schedule.text)


__all__ = ["GRID_TILES", "GROUP_TILES", "TENSOR_TILES", "Tile", "chosen", "on_grid"]

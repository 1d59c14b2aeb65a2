"""Matrix products of two-byte dtypes as CUDA C++, on tensor cores.

A warp computes 16 x 8 sums over 16 of k with one instruction; its registers are spread over the
threads of the warp as the PTX manual says (mma.m16n8k16). The eight warps of a block have a part of
its tile each, and hold several such pieces of sums.
"""

from __future__ import annotations

from gemel.codegen.analysis import Sweep
from gemel.codegen.c.values import Functions, value_type
from gemel.codegen.cuda.places import SIDE_BY_SIDE, Move, Places
from gemel.codegen.cuda.shared import THREADS
from gemel.codegen.cuda.tiles import TileText
from gemel.codegen.language.program import CONTIGUOUS, ROWS, Program

#: Rows, columns and k of one instruction.
PIECE_ROWS, PIECE_COLUMNS, PIECE_DEPTH = 16, 8, 16
#: How the warps of a block are arranged in its tile: down and across.
WARPS_DOWN, WARPS_ACROSS = 2, 4
#: Elements between lines of shared memory, so that neighbours lie in different banks.
PADDING = 8
#: The shared memory that GPUs with these instructions give each of two blocks.
ROOM = 80 << 10
#: The type of the factors in the instruction.
TYPES = {"float16": "f16", "bfloat16": "bf16"}


class TensorText(TileText):
    """A sum of products of float16 or bfloat16 in float32, as a kernel for a grid of threads."""

    padding = PADDING
    room = ROOM

    def __init__(self, unit: Functions, program: Program, name: str) -> None:
        super().__init__(unit, program, name)
        #: The factors as they are stored; the instruction converts them.
        first, second = (program.code[factor].arguments[0] for factor in self.factors)
        self.factors = first, second
        self.type = TYPES[program.code[first].dtype.name]
        unit.functions.setdefault("matrices", MATRICES)
        unit.functions.setdefault(f"multiply_{self.type}", instruction(self.type))

    @property
    def sums(self) -> tuple[int, int]:
        """Of a piece, a thread has two sums in each of two rows."""
        rows, columns = self.rows // WARPS_DOWN, self.columns // WARPS_ACROSS
        return 2 * rows // PIECE_ROWS, 2 * columns // PIECE_COLUMNS

    def corner(self) -> None:
        """Declares the first row and column of the thread's sums in the tile."""
        rows, columns = self.rows // WARPS_DOWN, self.columns // WARPS_ACROSS
        self.add(
            "const unsigned warp = thread / 32, lane = thread % 32;",
            f"const unsigned warp_row = warp / {WARPS_ACROSS} * {rows};",
            f"const unsigned warp_column = warp % {WARPS_ACROSS} * {columns};",
            "const unsigned down = warp_row + lane / 4, right = warp_column + lane % 4 * 2;",
        )

    def row(self) -> str:
        return f"down + i / 2 * {PIECE_ROWS} + i % 2 * {PIECE_ROWS // 2}"

    def column(self) -> str:
        return f"right + j / 2 * {PIECE_COLUMNS} + j % 2"

    def k_inside(self, number: int) -> bool:
        """As in memory: the instruction that reads shared memory can turn what it reads."""
        return self.forms[number] == "k"

    def multiply(self, turn: str) -> None:
        before = self.depth
        down, right = (count // 2 for count in self.sums)
        self.add("#pragma unroll")
        self.open(f"for (int s = 0; s < {self.step_length}; s += {PIECE_DEPTH})")
        self.add(f"uint32_t a[{down}][4], b[{right // 2}][4];")
        self._pieces(0, down, "warp_row", turn)
        self._pieces(1, right // 2, "warp_column", turn)
        self.add("#pragma unroll")
        self.open(f"for (int i = 0; i < {down}; ++i)")
        self.add("#pragma unroll")
        self.open(f"for (int j = 0; j < {right}; ++j)")
        places = (f"sums[2 * i + {i}][2 * j + {j}]" for i in range(2) for j in range(2))
        self.add(f"multiply_{self.type}({', '.join(places)}, a[i], &b[j / 2][j % 2 * 2]);")
        self.close(before)

    def _pieces(self, number: int, count: int, corner: str, turn: str) -> None:
        """Reads pieces of 16 lines and 16 of k of a factor. A thread says where eight elements lie,
        of one of four quarters; the registers of the instruction are the quarters in another order
        for each factor: of a, the next quarter is further down, of b further along k."""
        name, inside = "ab"[number], self.k_inside(number)
        second, third = ("lane / 8 % 2 * 8", "lane / 16 * 8")
        lines, along = (second, third) if number == 0 else (third, second)
        if inside:
            lines += " + lane % 8"
        else:
            along += " + lane % 8"
        place = self.in_shared(number, turn, f"s + {along}", f"{corner} + i * 16 + {lines}")
        self.add("#pragma unroll")
        self.open(f"for (int i = 0; i < {count}; ++i)")
        self.add(f"read_matrices<{'false' if inside else 'true'}>({name}[i], &{place});")
        self.close(self.depth - 1)

    # --- results ----------------------------------------------------------------------------

    @property
    def has_neighbours(self) -> bool:
        return any(map(self.contiguous, self.moved()))

    def moved(self) -> list[Move]:
        """The loads and stores beside those of the factors."""
        return [m for m in super().moved() if not self.program.operands[m.operand].varies]

    def contiguous(self, move: Move) -> bool:
        return self.program.operands[move.operand].stride_class == CONTIGUOUS

    def known_before(self) -> None:
        made, apart = value_type(self.program.code[self.total].dtype), self.columns // SIDE_BY_SIDE
        place = "across + u" if self.wide else f"across + u * {apart}"
        self.add(f"const {made} v{self.total} = staged[down][{place}];")

    def results(self) -> None:
        """What follows the sums. They go through shared memory, some rows at a time, so that
        neighbours among the threads read and write neighbours in memory; elements of two bytes,
        written as the sums lie, would each take a transaction."""
        before, dtype = self.depth, self.program.code[self.total].dtype
        made, width = value_type(dtype), self.columns + SIDE_BY_SIDE
        rows = min(self.rows, 1 << (self.shared_bytes // (width * dtype.itemsize)).bit_length() - 1)
        self.add(f"{made} (*const staged)[{width}] = ({made} (*)[{width}])parts;")
        self.neighbours()
        self.add("#pragma unroll 1")
        self.open(f"for (unsigned chunk = 0; chunk < {self.rows}; chunk += {rows})")
        self.add("__syncthreads();")
        left = f"staged[{self.row()} - chunk][{self.column()}] = sums[i][j];"
        self.each_sum(f"if ({self.row()} - chunk < {rows}) {left}")
        self.add("__syncthreads();")
        inside, count = self.depth, rows * self.columns // SIDE_BY_SIDE
        for times in self.ways():
            self.open(f"for (unsigned e = thread; e < {count}; e += {THREADS})")
            self.add(f"const unsigned across = {times}(e % {self.columns // SIDE_BY_SIDE});")
            self.add(f"const unsigned down = e / {self.columns // SIDE_BY_SIDE};")
            self.add(f"const int64_t i{ROWS} = row0 + chunk + down;")
            self.add(f"if (i{ROWS} >= m || column0 + across >= n) continue;")
            self._result()
        self.close(inside)
        self.close(before)

    def _result(self) -> None:
        """What follows four sums in a row."""
        columns = range(ROWS + 1, self.program.outer)
        places = Places("column0 + across", f"{self.columns // SIDE_BY_SIDE}", "n", columns)
        self.side_by_side(places, Sweep([], self.points(), [], []))


MATRICES = """\
#ifndef GEMEL_HOST
/* Reads four matrices of 8 x 8 two-byte elements from shared memory. Each thread of a warp says
 * where a row lies, eight threads for a matrix, and gets two neighbours of each; `turned`: of its
 * transpose. */
template <bool turned>
static __device__ void read_matrices(uint32_t (&four)[4], const void *row) {
    const unsigned place = __cvta_generic_to_shared(row);
    if (turned) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(four[0]), "=r"(four[1]), "=r"(four[2]), "=r"(four[3]) : "r"(place));
    } else {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(four[0]), "=r"(four[1]), "=r"(four[2]), "=r"(four[3]) : "r"(place));
    }
}
#endif
"""


def instruction(kind: str) -> str:
    """A function for the instruction: it adds to four sums of a piece."""
    registers = "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
    return f"""\
#ifndef GEMEL_HOST
static __device__ void multiply_{kind}(float &c0, float &c1, float &c2, float &c3,
                                       const uint32_t (&a)[4], const uint32_t *b) {{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.{kind}.{kind}.f32 {registers}"
                 : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}}
#endif
"""

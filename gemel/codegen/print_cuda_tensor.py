"""Matrix products of two-byte dtypes as CUDA C++, on tensor cores.

A warp computes 16 x 8 sums over 16 of k with one instruction; its registers are spread over the
threads of the warp as the PTX manual says (mma.m16n8k16). The eight warps of a block have a part of
its tile each, and hold several such pieces of sums.
"""

from __future__ import annotations

from gemel.codegen.c_values import Functions
from gemel.codegen.print_cuda_tiles import TileText
from gemel.codegen.program import Program

#: Rows, columns and k of one instruction.
PIECE_ROWS, PIECE_COLUMNS, PIECE_DEPTH = 16, 8, 16
#: How the warps of a block are arranged in its tile: down and across.
WARPS_DOWN, WARPS_ACROSS = 2, 4
#: Elements between lines of shared memory, so that neighbours lie in different banks.
PADDING = 8
#: The type of the factors in the instruction.
TYPES = {"float16": "f16", "bfloat16": "bf16"}


class TensorText(TileText):
    """A sum of products of float16 or bfloat16 in float32, as a kernel for a grid of threads."""

    along_k = True

    def __init__(self, unit: Functions, program: Program, name: str) -> None:
        super().__init__(unit, program, name)
        #: The factors as they are stored; the instruction converts them.
        first, second = (program.code[factor].arguments[0] for factor in self.factors)
        self.factors = first, second
        self.type = TYPES[program.code[first].dtype.name]
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
            "const unsigned warp = thread / 32, group = thread % 32 / 4, inside = thread % 4 * 2;",
            f"const unsigned warp_row = warp / {WARPS_ACROSS} * {rows};",
            f"const unsigned warp_column = warp % {WARPS_ACROSS} * {columns};",
            "const unsigned down = warp_row + group, right = warp_column + inside;",
        )

    def row(self) -> str:
        return f"down + i / 2 * {PIECE_ROWS} + i % 2 * {PIECE_ROWS // 2}"

    def column(self) -> str:
        return f"right + j / 2 * {PIECE_COLUMNS} + j % 2"

    def shared(self, name: str, made: str, lines: int) -> None:
        """Declares shared memory: in it, the elements of a line along k are neighbours."""
        size = f"[2][{lines}][{self.step_length + PADDING}]"
        self.add(f"__shared__ __align__(16) {made} shared_{name}{size};")

    def in_shared(self, name: str, turn: str, along: str, line: str) -> str:
        return f"shared_{name}[{turn}][{line}][{along}]"

    def lines_first(self, count: int, at_once: int) -> str:
        """Neighbours among the threads are neighbours along k, so that they write to different
        banks."""
        if at_once == 1:
            return super().lines_first(count, at_once)
        step = self.step_length
        return f"const unsigned along = place % {step}, line = place / {step} * {at_once};"

    def multiply(self, turn: str) -> None:
        before = self.depth
        down, right = (count // 2 for count in self.sums)
        self.add("#pragma unroll")
        self.open(f"for (int s = 0; s < {self.step_length}; s += {PIECE_DEPTH})")
        self.add(f"uint32_t a[{down}][4], b[{right}][2];")
        self._pieces("a", down, f"warp_row + i * {PIECE_ROWS} + group", (0, 8), turn)
        self._pieces("b", right, f"warp_column + i * {PIECE_COLUMNS} + group", (0,), turn)
        self.add("#pragma unroll")
        self.open(f"for (int i = 0; i < {down}; ++i)")
        self.add("#pragma unroll")
        self.open(f"for (int j = 0; j < {right}; ++j)")
        places = (f"sums[2 * i + {i}][2 * j + {j}]" for i in range(2) for j in range(2))
        self.add(f"multiply_{self.type}({', '.join(places)}, a[i], b[j]);")
        self.close(before)

    def _pieces(self, name: str, count: int, line: str, below: tuple[int, ...], turn: str) -> None:
        """Reads the pieces of a factor: pairs of elements along k, in the order of registers."""
        self.add("#pragma unroll")
        self.open(f"for (int i = 0; i < {count}; ++i)")
        register = 0
        for further in (0, PIECE_DEPTH // 2):
            for lower in below:
                place = f"[{turn}][{line} + {lower}][s + inside + {further}]"
                self.add(f"{name}[i][{register}] = *(const uint32_t *)&shared_{name}{place};")
                register += 1
        self.close(self.depth - 1)


def instruction(kind: str) -> str:
    """A function for the instruction: it adds to four sums of a piece."""
    registers = "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
    return f"""\
#ifndef GEMEL_HOST
static __device__ void multiply_{kind}(float &c0, float &c1, float &c2, float &c3,
                                       const uint32_t (&a)[4], const uint32_t (&b)[2]) {{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.{kind}.{kind}.f32 {registers}"
                 : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}}
#endif
"""

"""Loops that read an operand across, as CUDA C++: a transposed copy, for example.

Neighbours along the last dimension lie far apart in such an operand, neighbours along the one
before side by side. A block computes a square of positions: its threads read the operand as it
lies, leave it in shared memory, and go on as the results lie.
"""

from __future__ import annotations

from gemel.codegen.c.values import value_type
from gemel.codegen.cuda.grid import GridText
from gemel.codegen.language.program import ACROSS, CHOOSING, Program

#: The side of a square (kSquare in src/cuda/grid.h), and the rows that the threads of a block take
#: at once.
SQUARE, ROWS_AT_ONCE = 32, 8
#: The most bytes of shared memory.
ROOM = 40 << 10


def turned_loads(program: Program) -> list[int]:
    """The loads of operands that are read across, if a program can be computed in squares."""
    code = program.code
    special = {*CHOOSING, "scatter_add", "check", "reduce", "scan"}
    if program.inner or program.outer < 2 or special.intersection(step.name for step in code):
        return []
    loads = [
        position
        for position, step in enumerate(code)
        if step.name == "load" and program.operands[step.operand or 0].stride_class == ACROSS
    ]
    size = sum(SQUARE * (SQUARE + 1) * code[position].dtype.itemsize for position in loads)
    return loads if size <= ROOM else []


class TurnedText(GridText):
    """A program as a kernel for a grid of threads; with few rows or columns, it is one as any."""

    def body(self) -> None:
        self.buffers()
        self.scalars()
        self.steps(self.analysis.fixed())
        self.open("if (given.across == 0)")
        self._square()
        self.add("return;")
        self.close(1)
        self.threads()
        self._points()
        self.close(1)

    def _square(self) -> None:
        """A square of positions along the last two dimensions."""
        code, rows = self.program.code, self.program.outer - 2
        positions = self.analysis.point(0, False)
        turned = [p for p in turned_loads(self.program) if p in positions]
        for p in turned:
            made = value_type(code[p].dtype)
            self.add(f"__shared__ {made} turned{p}[{SQUARE}][{SQUARE + 1}];")
        self.add(f"const unsigned across = threadIdx.x % {SQUARE}, down = threadIdx.x / {SQUARE};")
        self.add("int64_t rest = blockIdx.x;")
        for name, dimension in (("column", rows + 1), ("row", rows)):
            count = f"({self.extent(dimension)} + {SQUARE - 1}) / {SQUARE}"
            self.add(f"const int64_t first_{name} = split(rest, {count}) * {SQUARE};")
        if rows:
            self.coordinates(range(rows))
        self._each_row("across", "down")
        self.steps(turned)
        self.add(*(f"turned{p}[down + u][across] = v{p};" for p in turned))
        self.close(2)
        self.add("__syncthreads();")
        self._each_row("down", "across")
        self.add(
            *(
                f"const {value_type(code[p].dtype)} v{p} = turned{p}[across][down + u];"
                for p in turned
            )
        )
        self.steps(p for p in positions if p not in turned)
        self.close(2)

    def _each_row(self, row: str, column: str) -> None:
        """Opens the loop over the thread's positions in the square; `u` is added to `down`."""
        last = self.program.outer - 1
        self.add("#pragma unroll")
        self.open(f"for (unsigned u = 0; u < {SQUARE}; u += {ROWS_AT_ONCE})")
        for name, place, dimension in (("row", row, last - 1), ("column", column, last)):
            further = " + u" if place == "down" else ""
            self.add(f"const int64_t i{dimension} = first_{name} + {place}{further};")
        ends = (f"i{d} >= {self.extent(d)}" for d in (last - 1, last))
        self.add(f"if ({' || '.join(ends)}) continue;")


__all__ = ["TurnedText", "turned_loads"]

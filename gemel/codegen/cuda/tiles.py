"""Matrix products as CUDA C++: each block computes a tile of the result.

The block goes along k in steps. While it multiplies the parts of both factors that are in shared
memory, those of later steps are copied there (`cuda.parts`). Each thread holds several sums
in registers. Several blocks may share the k of a tile.
"""

from __future__ import annotations

from gemel.codegen.c.values import literal, value_type
from gemel.codegen.cuda.parts import PartText
from gemel.codegen.cuda.shared import THREADS
from gemel.codegen.language.program import ROWS

#: How many sums in a row a thread has side by side; it reads as many elements of shared memory at
#: once.
SIDE = 4


class TileText(PartText):
    """A sum of products along k, with two factors, as a kernel for a grid of threads."""

    bounds = f"{THREADS}, 2"
    #: Whether products go on in the background, so that a step begins with them; and what makes
    #: shared memory visible to them.
    multiplies_first, published = False, ""

    def body(self) -> None:
        self.buffers()
        self.scalars()
        self.steps(self.analysis.fixed())
        self._sizes()
        self._memory()
        self._lines(0)
        self._lines(1)
        self._first_steps()
        ahead, step = self.steps_ahead, self.step_length
        self.add("int turn = 0;")
        self.open(f"for (int64_t k0 = begin; k0 < end; k0 += {step})")
        self.add(f"wait_for_groups<{ahead - 1}>();", self.published, "__syncthreads();")
        self.add(f"const int64_t next = k0 + {ahead * step};")
        self.add(f"const int free = turn == 0 ? {ahead} : turn - 1;")
        if self.multiplies_first:
            self.multiply("turn")
        self._read("next", "free")
        self.add("end_group();")
        if not self.multiplies_first:
            self.multiply("turn")
        self.multiplied()
        self._share("next", "free")
        self._further_places()
        self.add(f"turn = turn == {ahead} ? 0 : turn + 1;")
        self.close(self.depth - 1)
        self._between_blocks()
        self.results()
        self.close(1)

    def _first_steps(self) -> None:
        """Copies what the first steps need."""
        ahead, step = self.steps_ahead, self.step_length
        if self._tabled():
            self._along_k("begin")
        self.add("__syncthreads();")
        self.open(f"for (int s = 0; s < {ahead}; ++s)")
        self.add(f"const int64_t first = begin + s * {step};")
        self._read("first", "s")
        self.add("end_group();")
        self._share("first", "s")
        self.close(self.depth - 1)

    # --- sizes ------------------------------------------------------------------------------

    @property
    def sums(self) -> tuple[int, int]:
        """How many rows and columns of sums a thread has: threads lie in a square."""
        across = 16
        return self.rows * across // THREADS, self.columns // across

    def _sizes(self) -> None:
        rows, columns = self.rows, self.columns
        outer, rank = self.program.outer, self.program.rank
        n = " * ".join(self.extent(d) for d in range(ROWS + 1, outer))
        k = " * ".join(self.extent(d) for d in range(outer, rank))
        m = self.extent(ROWS)
        self.add(f"const int64_t m = {m}, n = {n}, k = {k};")
        self.add("int64_t rest = blockIdx.x;")
        self.add(
            f"const int64_t column0 = split(rest, (n + {columns - 1}) / {columns}) * {columns};"
        )
        self.add(f"const int64_t row0 = split(rest, (m + {rows - 1}) / {rows}) * {rows};")
        self.coordinates(range(ROWS))
        self.add("const unsigned thread = threadIdx.x;")
        steps = f"((k + {self.step_length - 1}) / {self.step_length} + gridDim.y - 1) / gridDim.y"
        self.add(f"const int64_t share = {steps} * {self.step_length};")
        self.add("const int64_t begin = share * blockIdx.y;")
        self.add("const int64_t end = begin + share < k ? begin + share : k;")
        self.corner()

    def corner(self) -> None:
        """Declares the first row and column of the thread's sums in the tile."""
        across = self.columns // self.sums[1]
        self.add(
            f"const unsigned right = thread % {across} * {SIDE}, down = thread / {across} * {SIDE};"
        )

    def row(self) -> str:
        """The row in the tile of a thread's sums number i down."""
        return self._line(0, "i")

    def column(self) -> str:
        """The column in the tile of a thread's sums number j across."""
        return self._line(1, "j")

    def _line(self, number: int, index: str) -> str:
        """The line of a factor in the tile that a thread's sums of this index belong to."""
        _, _, lines, _ = self._factor(number)
        apart, first = lines * SIDE // self.sums[number], ("down", "right")[number]
        return f"{index} / {SIDE} * {apart} + {first} + {index} % {SIDE}"

    def _memory(self) -> None:
        """Declares shared memory, what a thread has read, and its sums."""
        steps = self.steps_ahead + 1
        self.add("DYNAMIC_SHARED(parts);")
        begin = 0
        for number in range(2):
            name, dtype, _, _ = self._factor(number)
            made, size = value_type(dtype), f"[{steps}]{self.shape(number)}"
            self.add(f"{made} (&shared_{name}){size} = *({made} (*){size})(parts + {begin});")
            begin += steps * self._part_bytes(number)
            if self._at_once(number) > 1:
                self._aligned(number)
            if self._tabled():
                self.add(f"__shared__ int64_t along_{name}[{2 * THREADS}];")
            if not self._copied(number):
                self.add(f"{made} next_{name}[{self._count(number)}];")
        down, right = self.sums
        dtype = self.program.code[self.total].dtype
        self.add(f"{value_type(dtype)} sums[{down}][{right}];")
        self.each_sum(f"sums[i][j] = {literal(dtype, 0)};")

    def each_sum(self, line: str) -> None:
        down, right = self.sums
        before = self.depth
        self.add("#pragma unroll")
        self.open(f"for (int i = 0; i < {down}; ++i)")
        self.add("#pragma unroll")
        self.open(f"for (int j = 0; j < {right}; ++j)")
        self.add(line)
        self.close(before)

    # --- a step along k ---------------------------------------------------------------------

    def multiply(self, turn: str) -> None:
        """Adds the products of a part that is in shared memory."""
        before = self.depth
        self.add("#pragma unroll")
        self.open(f"for (int s = 0; s < {self.step_length}; ++s)")
        for number, count in enumerate(self.sums):
            name, dtype, _, _ = self._factor(number)
            self.add(f"{value_type(dtype)} {name}[{count}];", "#pragma unroll")
            self.open(f"for (int i = 0; i < {count}; ++i)")
            place = self.in_shared(number, turn, "s", self._line(number, "i"))
            self.add(f"{name}[i] = {place};")
            self.close(self.depth - 1)
        self.each_sum(f"sums[i][j] = {self._sum()};")
        self.close(before)

    def multiplied(self) -> None:
        """Waits for products in the background."""

    def _sum(self) -> str:
        """A sum with the next product."""
        dtype = self.program.code[self.total].dtype
        if dtype.kind == "f":
            return self.values.computed(
                "multiply_add", dtype, ("a[i]", "b[j]", "sums[i][j]"), dtype
            )
        product = self.values.computed("multiply", dtype, ("a[i]", "b[j]"), dtype)
        return self.values.computed("add", dtype, ("sums[i][j]", f"({product})"), dtype)

    # --- results ----------------------------------------------------------------------------

    def _between_blocks(self) -> None:
        """Blocks that share a tile leave their sums; the last one adds them, in their order."""
        before, (down, right) = self.depth, self.sums
        made = value_type(self.program.code[self.total].dtype)
        slot = f"(i * {right} + j) * {THREADS} + thread"
        size = down * right * THREADS
        self.open("if (gridDim.y > 1)")
        self.add(f"{made} *const left = ({made} *)given.scratch + (int64_t)blockIdx.x * {size};")
        self.add(f"const int64_t apart = (int64_t)gridDim.x * {size};")
        self.each_sum(f"left[blockIdx.y * apart + {slot}] = sums[i][j];")
        self.end_all_but_the_last()
        dtype = self.program.code[self.total].dtype
        self.each_sum(f"sums[i][j] = {literal(dtype, 0)};")
        self.add("#pragma unroll 1")
        self.open("for (int64_t part = 0; part < gridDim.y; ++part)")
        more = self.values.computed(
            "add", dtype, ("sums[i][j]", f"left[part * apart + {slot}]"), dtype
        )
        self.each_sum(f"sums[i][j] = {more};")
        self.close(before)

    def results(self) -> None:
        """What follows the sum, for each sum of a thread."""
        before, (down, right) = self.depth, self.sums
        self.add("#pragma unroll")
        self.open(f"for (int j = 0; j < {right}; ++j)")
        self.add(f"int64_t column = column0 + {self.column()};", "if (column >= n) continue;")
        self.coordinates(range(ROWS + 1, self.program.outer), "column")
        self.add("#pragma unroll")
        self.open(f"for (int i = 0; i < {down}; ++i)")
        self.add(f"const int64_t i{ROWS} = row0 + {self.row()};", f"if (i{ROWS} >= m) continue;")
        dtype = self.program.code[self.total].dtype
        self.add(f"const {value_type(dtype)} v{self.total} = sums[i][j];")
        self.steps(self.points())
        self.close(before)

    def points(self) -> list[int]:
        """The instructions at a position of the result."""
        stages = range(self.analysis.last + 2)
        return [p for stage in stages for p in self.analysis.point(stage, False)]

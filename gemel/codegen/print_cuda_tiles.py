"""Matrix products as CUDA C++: each block computes a tile of the result.

The block goes along k in steps. In each step its threads read a part of both factors into one half
of the shared memory, while they multiply the part before, which is in the other half. Each thread
holds several sums in registers. The factors are read where they lie, whatever their strides, so
windows of a convolution need no copy. Several blocks may share the k of a tile.
"""

from __future__ import annotations

from collections.abc import Iterable

from gemel.codegen.c_values import Functions, literal, value_type
from gemel.codegen.print_cuda import THREADS, GridText
from gemel.codegen.program import ROWS, Program
from gemel.dtype import DType

#: How many sums in a row a thread has side by side; it reads as many elements of shared memory at
#: once.
SIDE = 4
#: The bytes that a thread reads at once.
VECTOR = 16
#: Elements between lines of shared memory, so that neighbours lie in different banks.
PADDING = 4


class TileText(GridText):
    """A sum of products along k, with two factors, as a kernel for a grid of threads."""

    bounds = f"{THREADS}, 2"
    #: Whether neighbours in shared memory are neighbours along k, instead of lines.
    along_k = False

    def __init__(self, unit: Functions, program: Program, name: str) -> None:
        super().__init__(unit, program, name)
        schedule = program.parsed_schedule
        #: The tile of a block, and how many k it goes along in a step.
        self.rows, self.columns, self.step_length = schedule.rows, schedule.columns, schedule.unroll
        self.forms = schedule.a_form, schedule.b_form
        #: The sum, and the values that are multiplied.
        (self.total,) = (p for p, step in enumerate(program.code) if step.name == "reduce")
        (multiplied,) = program.code[self.total].arguments
        self.factors = program.code[multiplied].arguments
        #: Where the element is that is being read of a factor; else empty.
        self.place = ""

    def body(self) -> None:
        self.buffers()
        self.scalars()
        self.steps(self.analysis.fixed())
        self._sizes()
        self._memory()
        self._lines(0)
        self._lines(1)
        self._along_k("begin", "0")
        self.add("__syncthreads();")
        self.open("if (begin < end)")
        self._read("begin", "0")
        self._share("0")
        self._along_k(f"begin + {self.step_length}", "1")
        self.close(self.depth - 1)
        self.add("__syncthreads();", "int turn = 0;")
        self.open(f"for (int64_t k0 = begin; k0 < end; k0 += {self.step_length})")
        self.add(f"const int64_t next = k0 + {self.step_length};")
        self.open("if (next < end)")
        self._read("next", "turn ^ 1")
        self.close(self.depth - 1)
        self.multiply("turn")
        self.open("if (next < end)")
        self._share("turn ^ 1")
        self._along_k(f"next + {self.step_length}", "turn")
        self.close(self.depth - 1)
        self.add("__syncthreads();", "turn ^= 1;")
        self.close(self.depth - 1)
        self._between_blocks()
        self._results()
        self.close(1)

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

    def shared(self, name: str, made: str, lines: int) -> None:
        """Declares shared memory for a factor, in two halves: in it, lines are neighbours."""
        size = f"[2][{self.step_length}][{lines + PADDING}]"
        self.add(f"__shared__ __align__(16) {made} shared_{name}{size};")

    def in_shared(self, name: str, turn: str, along: str, line: str) -> str:
        """The place in shared memory of an element of a factor."""
        return f"shared_{name}[{turn}][{along}][{line}]"

    def _factor(self, number: int) -> tuple[str, DType, int, str]:
        """The name of a factor, its dtype, how many lines of it a tile has, and the axis along
        which it is contiguous in memory."""
        dtype = self.program.code[self.factors[number]].dtype
        lines = self.rows if number == 0 else self.columns
        return "ab"[number], dtype, lines, self.forms[number]

    def at_once(self, number: int) -> int:
        """How many elements of a factor, side by side in memory, a thread reads at once: 16 bytes;
        1 if they are converted, or the axis along which they are neighbours consists of several."""
        _, dtype, lines, form = self._factor(number)
        count = VECTOR // dtype.itemsize
        inner = range(self.program.outer, self.program.rank)
        axes = inner if form == "k" else self._axes(number)
        plain = self.program.code[self.factors[number]].name == "load" and dtype.kind != "b"
        enough = lines * self.step_length >= count * THREADS
        return count if plain and enough and len(axes) == 1 else 1

    def _axes(self, number: int) -> range:
        """The dimensions along which a factor's lines follow each other."""
        return range(ROWS, ROWS + 1) if number == 0 else range(ROWS + 1, self.program.outer)

    def _memory(self) -> None:
        """Declares shared memory, what a thread has read, and its sums."""
        for number in range(2):
            name, dtype, lines, _ = self._factor(number)
            made, step, at_once = value_type(dtype), self.step_length, self.at_once(number)
            self.shared(name, made, lines)
            self.add(f"__shared__ int64_t along_{name}[2][{step}];")
            count = lines * step // THREADS // at_once
            self.add(f"{made if at_once == 1 else 'uint4'} next_{name}[{count}];")
        down, right = self.sums
        dtype = self.program.code[self.total].dtype
        self.add(f"{value_type(dtype)} sums[{down}][{right}];")
        self._each_sum(f"sums[i][j] = {literal(dtype, 0)};")

    def _each_sum(self, line: str) -> None:
        down, right = self.sums
        before = self.depth
        self.add("#pragma unroll")
        self.open(f"for (int i = 0; i < {down}; ++i)")
        self.add("#pragma unroll")
        self.open(f"for (int j = 0; j < {right}; ++j)")
        self.add(line)
        self.close(before)

    # --- a step along k ---------------------------------------------------------------------

    def _places(self, number: int) -> None:
        """Opens the loop over what a thread reads of a factor; `line` and `along` are its place in
        the tile, of several elements that of the first. Neighbours in memory are read by neighbours
        among the threads."""
        _, _, lines, form = self._factor(number)
        step, at_once = self.step_length, self.at_once(number)
        self.add("#pragma unroll")
        self.open(f"for (int e = 0; e < {lines * step // THREADS // at_once}; ++e)")
        self.add(f"const unsigned place = thread + e * {THREADS};")
        if form == "k":
            share = step // at_once
            self.add(f"const unsigned along = place % {share} * {at_once}, line = place / {share};")
        else:
            self.add(self.lines_first(lines // at_once, at_once))

    def lines_first(self, count: int, at_once: int) -> str:
        """Declares the place in the tile of elements that are neighbours along the lines."""
        return f"const unsigned line = place % {count} * {at_once}, along = place / {count};"

    def _lines(self, number: int) -> None:
        """Finds where the lines of a factor are that a thread reads, and how many there are."""
        name, _, lines, _ = self._factor(number)
        corner, extent = (("row0", "m"), ("column0", "n"))[number]
        axes, before = self._axes(number), self.depth
        self.add(
            f"const unsigned lines_{name} = {extent} - {corner} < {lines} ? {extent} - {corner} "
            f": {lines};"
        )
        count = lines * self.step_length // THREADS // self.at_once(number)
        self.add(f"int64_t line_{name}[{count}];")
        self._places(number)
        self.add(f"int64_t outside = {corner} + line;")
        self.coordinates(axes, "outside")
        self.add(f"line_{name}[e] = {self._distance(number, (*range(ROWS), *axes))};")
        self.close(before)

    def _along_k(self, first: str, turn: str) -> None:
        """Finds where the elements of the step from `first` are along k; a thread for each."""
        step, before = self.step_length, self.depth
        inner = range(self.program.outer, self.program.rank)
        self.open(f"if (thread < {step})")
        self.add(f"int64_t inside = {first} + thread;")
        self.coordinates(inner, "inside")
        for number in range(2):
            name, _, _, _ = self._factor(number)
            self.add(f"along_{name}[{turn}][thread] = {self._distance(number, inner)};")
        self.close(before)

    def _distance(self, number: int, dimensions: Iterable[int]) -> str:
        """How far an element of a factor is from its start, along some dimensions."""
        terms = []
        for d in dimensions:
            stride = self.integer(f"stride{number}_{d}", self.program.stride_at(number, d))
            terms.append(f"i{d} * {stride}")
        return " + ".join(terms)

    def _read(self, first: str, turn: str) -> None:
        """Reads a thread's elements of both factors in the step from `first`."""
        step = self.step_length
        self.add(f"const unsigned left = end - {first} < {step} ? end - {first} : {step};")
        for number in range(2):
            if self.at_once(number) == 1:
                self._read_one(number, turn)
            else:
                self._read_several(number, turn)

    def _read_several(self, number: int, turn: str) -> None:
        """Reads a thread's elements of a factor, 16 bytes at once if they lie side by side, all of
        them are there, and the address allows it."""
        name, dtype, _, form = self._factor(number)
        before, at_once, made = self.depth, self.at_once(number), value_type(dtype)
        along, line = ("along + i", "line") if form == "k" else ("along", "line + i")
        axis = self.program.outer if form == "k" else self._axes(number)[0]
        stride = self.integer(f"stride{number}_{axis}", self.program.stride_at(number, axis))
        last = f"{along} < left && {line} < lines_{name}"
        self._places(number)
        place = f"{self.array(number)} + line_{name}[e] + along_{name}[{turn}][along]"
        self.add(f"const {made} *const from = {place};", f"const int i = {at_once - 1};")
        self.open(f"if ({last} && {stride} == 1 && (uint64_t)from % {VECTOR} == 0)")
        self.add(f"next_{name}[e] = *(const uint4 *)from;", "continue;")
        self.close(self.depth - 1)
        self.add(f"{made} few[{at_once}];", "#pragma unroll")
        self.open(f"for (int i = 0; i < {at_once}; ++i)")
        self.add(f"few[i] = {literal(dtype, 0)};", f"if ({last}) few[i] = from[i * {stride}];")
        self.close(self.depth - 1)
        self.add(f"memcpy(&next_{name}[e], few, {VECTOR});")
        self.close(before)

    def _read_one(self, number: int, turn: str) -> None:
        """Reads a thread's elements of a factor; those past the end are 0."""
        name, dtype, _, _ = self._factor(number)
        before = self.depth
        self._places(number)
        self.add(f"{value_type(dtype)} value = {literal(dtype, 0)};")
        self.open(f"if (along < left && line < lines_{name})")
        self.place = f"line_{name}[e] + along_{name}[{turn}][along]"
        self.steps(sorted(self.analysis.closure([self.factors[number]], inner_only=True)))
        self.place = ""
        self.add(f"value = {self.values.of(self.factors[number])};")
        self.close(self.depth - 1)
        self.add(f"next_{name}[e] = value;")
        self.close(before)

    def offset(self, number: int) -> str:
        """As of any kernel; while a factor is read, it is known."""
        return self.place or super().offset(number)

    def _share(self, turn: str) -> None:
        """Leaves what the threads have read in shared memory, in one of its two halves."""
        for number in range(2):
            (name, dtype, _, form), before = self._factor(number), self.depth
            at_once, made = self.at_once(number), value_type(dtype)
            place = self.in_shared(name, turn, "along", "line")
            self._places(number)
            if at_once == 1:
                self.add(f"{place} = next_{name}[e];")
            elif (form == "k") == self.along_k:
                self.add(f"*(uint4 *)&{place} = next_{name}[e];")
            else:
                self.add(f"{made} few[{at_once}];", f"memcpy(few, &next_{name}[e], {VECTOR});")
                self.add("#pragma unroll")
                self.open(f"for (int i = 0; i < {at_once}; ++i)")
                where = ("along + i", "line") if form == "k" else ("along", "line + i")
                self.add(f"{self.in_shared(name, turn, *where)} = few[i];")
            self.close(before)

    def multiply(self, turn: str) -> None:
        """Adds the products of a part that is in shared memory."""
        before = self.depth
        self.add("#pragma unroll")
        self.open(f"for (int s = 0; s < {self.step_length}; ++s)")
        for number, count in enumerate(self.sums):
            name, dtype, _, _ = self._factor(number)
            self.add(f"{value_type(dtype)} {name}[{count}];", "#pragma unroll")
            self.open(f"for (int i = 0; i < {count}; ++i)")
            self.add(f"{name}[i] = {self.in_shared(name, turn, 's', self._line(number, 'i'))};")
            self.close(self.depth - 1)
        self._each_sum(f"sums[i][j] = {self._sum()};")
        self.close(before)

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
        self._each_sum(f"left[blockIdx.y * apart + {slot}] = sums[i][j];")
        self.end_all_but_the_last()
        dtype = self.program.code[self.total].dtype
        self._each_sum(f"sums[i][j] = {literal(dtype, 0)};")
        self.add("#pragma unroll 1")
        self.open("for (int64_t part = 0; part < gridDim.y; ++part)")
        more = self.values.computed(
            "add", dtype, ("sums[i][j]", f"left[part * apart + {slot}]"), dtype
        )
        self._each_sum(f"sums[i][j] = {more};")
        self.close(before)

    def _results(self) -> None:
        """What follows the sum, for each sum of a thread."""
        before, (down, right) = self.depth, self.sums
        self.add("#pragma unroll")
        self.open(f"for (int i = 0; i < {down}; ++i)")
        self.add(f"const int64_t i{ROWS} = row0 + {self.row()};")
        self.add("#pragma unroll")
        self.open(f"for (int j = 0; j < {right}; ++j)")
        self.add(f"int64_t column = column0 + {self.column()};")
        self.add(f"if (i{ROWS} >= m || column >= n) continue;")
        self.coordinates(range(ROWS + 1, self.program.outer), "column")
        dtype = self.program.code[self.total].dtype
        self.add(f"const {value_type(dtype)} v{self.total} = sums[i][j];")
        for stage in range(self.analysis.last + 2):
            self.steps(self.analysis.point(stage, False))
        self.close(before)

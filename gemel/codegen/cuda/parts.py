"""The factors of matrix products on a GPU: how the threads of a block copy their parts of a tile to
shared memory.

The parts that a step along k needs are copied some steps before, in the background: 16 bytes at a
time if the addresses allow it. They are read where they lie, whatever their strides, so windows of
a convolution need no copy. What has to be computed from the elements goes through registers.
"""

from __future__ import annotations

from collections.abc import Iterable

from gemel.codegen.c.values import Functions, literal, value_type
from gemel.codegen.cuda.grid import GridText
from gemel.codegen.cuda.places import VECTOR
from gemel.codegen.cuda.shared import THREADS
from gemel.codegen.language.program import ROWS, Program
from gemel.dtype import DType

#: Elements between lines of shared memory, so that neighbours lie in different banks.
PADDING = 4
#: For how many steps shared memory has room: one is multiplied, the others are on their way.
STEPS = 4
#: The shared memory that every GPU gives a block.
ROOM = 47 << 10
COPIES = """\
#ifndef GEMEL_HOST
#define DYNAMIC_SHARED(name) extern __shared__ __align__(1024) char name[]

/* Copies some bytes to shared memory, in the background where the GPU can; or zeros. */
template <int bytes>
static __device__ void copy_later(void *to, const void *from, bool there) {
#if __CUDA_ARCH__ >= 800
    const unsigned place = __cvta_generic_to_shared(to);
    if (bytes == 16) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::
                     "r"(place), "l"(from), "r"(there ? 16 : 0));
        return;
    }
    if (bytes >= 4) {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::
                     "r"(place), "l"(from), "n"(bytes < 4 ? 4 : bytes), "r"(there ? bytes : 0));
        return;
    }
#endif
    memset(to, 0, bytes);
    if (there) memcpy(to, from, bytes);
}

/* Ends a group of copies. */
static __device__ void end_group() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;");
#endif
}

/* Waits for this thread's copies, except for those of the last groups. */
template <int groups>
static __device__ void wait_for_groups() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory");
#endif
}
#endif
"""


class PartText(GridText):
    """A sum of products along k, with two factors, of which a block of threads computes tiles."""

    #: Elements between lines of shared memory, and the bytes there are for parts.
    padding, room = PADDING, ROOM

    def __init__(self, unit: Functions, program: Program, name: str) -> None:
        super().__init__(unit, program, name)
        unit.functions.setdefault("copy_later", COPIES)
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

    @property
    def steps_ahead(self) -> int:
        """How many steps before it is multiplied a part is copied."""
        return max(min(STEPS, self.room // self._step_bytes()), 2) - 1

    @property
    def partial_bytes(self) -> int:
        """What blocks that share a tile leave for each of its sums."""
        return 8

    @property
    def shared_bytes(self) -> int:
        """The shared memory for parts of both factors."""
        return (self.steps_ahead + 1) * self._step_bytes()

    def _step_bytes(self) -> int:
        """The shared memory for the parts of one step."""
        return sum(self._part_bytes(number) for number in range(2))

    def _part_bytes(self, number: int) -> int:
        _, dtype, _, _ = self._factor(number)
        lines, neighbours = self._part(number)
        return lines * (neighbours + self.padding) * dtype.itemsize

    def _part(self, number: int) -> tuple[int, int]:
        """The lines of a factor's part of a step in shared memory, and the elements of a line."""
        _, _, lines, _ = self._factor(number)
        inside = self.k_inside(number)
        return (lines, self.step_length) if inside else (self.step_length, lines)

    def shape(self, number: int) -> str:
        """The part of a factor as an array in shared memory."""
        lines, neighbours = self._part(number)
        return f"[{lines}][{neighbours + self.padding}]"

    def k_inside(self, number: int) -> bool:
        """Whether neighbours in shared memory are neighbours along k."""
        return False

    def in_shared(self, number: int, turn: str, along: str, line: str) -> str:
        """The place in shared memory of an element of a factor."""
        first, second = (line, along) if self.k_inside(number) else (along, line)
        return f"shared_{'ab'[number]}[{turn}][{first}][{second}]"

    def _factor(self, number: int) -> tuple[str, DType, int, str]:
        """The name of a factor, its dtype, how many lines of it a tile has, and the axis along
        which it is contiguous in memory."""
        dtype = self.program.code[self.factors[number]].dtype
        lines = self.rows if number == 0 else self.columns
        return "ab"[number], dtype, lines, self.forms[number]

    def _loaded(self, number: int) -> bool:
        """Whether a factor is multiplied as it lies in memory."""
        _, dtype, _, _ = self._factor(number)
        return self.program.code[self.factors[number]].name == "load" and dtype.kind != "b"

    def _copied(self, number: int) -> bool:
        """Whether a factor is copied to shared memory in the background; at least four bytes."""
        _, dtype, _, _ = self._factor(number)
        return self._loaded(number) and dtype.itemsize * self._at_once(number) >= 4

    def _at_once(self, number: int) -> int:
        """How many elements of a factor, side by side in memory, a thread copies at once: 16 bytes;
        1 if they do not lie side by side in shared memory, or the axis along which they are
        neighbours consists of several."""
        _, dtype, lines, form = self._factor(number)
        count, axes = VECTOR // dtype.itemsize, self._near(number)
        kept = (form == "k") == self.k_inside(number)
        enough = lines * self.step_length >= count * THREADS
        return count if self._loaded(number) and kept and enough and len(axes) == 1 else 1

    @property
    def _inner(self) -> range:
        """The dimensions along which k runs."""
        return range(self.program.outer, self.program.rank)

    def _axes(self, number: int) -> range:
        """The dimensions along which a factor's lines follow each other."""
        return range(ROWS, ROWS + 1) if number == 0 else range(ROWS + 1, self.program.outer)

    def _near(self, number: int) -> range:
        """The dimensions along which a factor's neighbours in memory follow each other."""
        return self._inner if self.forms[number] == "k" else self._axes(number)

    def _tabled(self) -> bool:
        """Whether the places along k are kept in tables, because k runs along several axes."""
        return len(self._inner) > 1

    def _count(self, number: int) -> int:
        """How often a thread copies something of a factor in a step."""
        _, _, lines, _ = self._factor(number)
        return lines * self.step_length // THREADS // self._at_once(number)

    def _places(self, number: int, unrolled: bool = True, count: int = 0) -> None:
        """Opens the loop over what a thread reads of a factor; `line` and `along` are its place in
        the tile, of several elements that of the first. Neighbours in memory are read by neighbours
        among the threads."""
        _, _, lines, form = self._factor(number)
        step, at_once = self.step_length, self._at_once(number)
        self.add("#pragma unroll" if unrolled else "#pragma unroll 1")
        self.open(f"for (int e = 0; e < {count or self._count(number)}; ++e)")
        self.add(f"const unsigned place = thread + e * {THREADS};")
        if form == "k":
            share = step // at_once
            self.add(f"const unsigned along = place % {share} * {at_once}, line = place / {share};")
        else:
            share = lines // at_once
            self.add(f"const unsigned line = place % {share} * {at_once}, along = place / {share};")

    def _lines(self, number: int) -> None:
        """Finds how many lines of a factor there are, and where the first is; or if they follow
        each other along several axes, where each is, a thread for each."""
        name, _, lines, _ = self._factor(number)
        corner, extent = (("row0", "m"), ("column0", "n"))[number]
        axes, before = self._axes(number), self.depth
        self.add(
            f"const unsigned lines_{name} = {extent} - {corner} < {lines} ? {extent} - {corner} "
            f": {lines};"
        )
        if len(axes) == 1:
            batch, stride = self._distance(number, range(ROWS)), self._stride(number, axes[0])
            self.add(f"const int64_t start_{name} = {batch} + {corner} * {stride};")
            if self._regular(number):
                self._first_place(number)
            return
        self.add(f"__shared__ int64_t line_{name}[{lines}];")
        self.open(f"for (unsigned line = thread; line < {lines}; line += {THREADS})")
        self.add(f"int64_t outside = {corner} + line;")
        self.coordinates(axes, "outside")
        self.add(f"line_{name}[line] = {self._distance(number, (*range(ROWS), *axes))};")
        self.close(before)

    def _regular(self, number: int) -> bool:
        """Whether what a thread copies of a factor lies at regular distances."""
        return len(self._axes(number)) == 1 and not self._tabled() and self._copied(number)

    def _first_place(self, number: int) -> None:
        """Declares where the first lies of what a thread copies in a step, and the distance."""
        name, dtype, lines, form = self._factor(number)
        before, at_once = self.depth, self._at_once(number)
        (line_axis,), (along_axis,) = self._axes(number), self._inner
        line, along = self._stride(number, line_axis), self._stride(number, along_axis)
        self.add(f"const {value_type(dtype)} *from_{name};")
        self._places(number, count=1)
        place = f"start_{name} + line * {line} + along * {along}"
        self.add(f"from_{name} = {self.array(number)} + {place};")
        self.close(before)
        apart = (self.step_length if form == "k" else lines) // at_once
        self.add(
            f"const int64_t jump_{name} = {THREADS // apart} * {line if form == 'k' else along};"
        )

    def _along_k(self, first: str) -> None:
        """Finds where the elements from `first` on are along k, one for each thread: those of many
        steps at once, since it takes divisions."""
        before = self.depth
        self.add(f"int64_t inside = {first} + thread;")
        self.add(f"const unsigned e = (inside - begin) % {2 * THREADS};")
        self.coordinates(self._inner, "inside")
        for number in range(2):
            self.add(f"along_{'ab'[number]}[e] = {self._distance(number, self._inner)};")
        self.close(before)

    def _stride(self, number: int, dimension: int) -> str:
        return self.integer(
            f"stride{number}_{dimension}", self.program.stride_at(number, dimension)
        )

    def _distance(self, number: int, dimensions: Iterable[int]) -> str:
        """How far an element of a factor is from its start, along some dimensions."""
        return " + ".join(f"i{d} * {self._stride(number, d)}" for d in dimensions)

    def _offset_of(self, number: int, first: str) -> str:
        """How far what a thread reads is from the factor's start."""
        name, axes = "ab"[number], self._axes(number)
        line = f"line_{name}[line]"
        if len(axes) == 1:
            line = f"start_{name} + line * {self._stride(number, axes[0])}"
        if self._tabled():
            return f"{line} + along_{name}[ring + along]"
        return f"{line} + ({first} + along) * {self._stride(number, self._inner[0])}"

    def _read(self, first: str, turn: str) -> None:
        """Reads a thread's elements of both factors in the step from `first`: begins to copy them,
        or reads them into registers. Those past the end are 0."""
        step, before = self.step_length, self.depth
        self.open(f"if ({first} < end)")
        self.add(f"const unsigned left = end - {first} < {step} ? end - {first} : {step};")
        if self._tabled():
            self.add(f"const unsigned ring = ({first} - begin) % {2 * THREADS};")
        for number in range(2):
            inside = self.depth
            if self._at_once(number) > 1:
                self.open(f"if (aligned_{'ab'[number]})")
                self._places(number)
                self._copy(number, first, turn, VECTOR)
                self.close(inside)
                self.open("else")
                self._places(number, unrolled=False)
                self._copy_apart(number, first, turn)
            else:
                self._places(number)
                if self._copied(number):
                    _, dtype, _, _ = self._factor(number)
                    self._copy(number, first, turn, dtype.itemsize)
                else:
                    self._compute(number, first)
            self.close(inside)
        self.close(before)

    def _aligned(self, number: int) -> None:
        """Declares whether all of a factor can be copied 16 bytes at a time: neighbours lie side by
        side, lines consist of whole vectors, and addresses allow it."""
        name, at_once, (axis,) = "ab"[number], self._at_once(number), self._near(number)
        dimensions = (*range(ROWS), *self._axes(number), *self._inner)
        counts = [self._stride(number, d) for d in dimensions if d != axis]
        whole = " | ".join((*counts, self.extent(axis)))
        self.add(
            f"const bool aligned_{name} = {self._stride(number, axis)} == 1 && "
            f"(({whole}) & {at_once - 1}) == 0 && (uint64_t){self.array(number)} % {VECTOR} == 0;"
        )

    def _copy(self, number: int, first: str, turn: str, size: int) -> None:
        """Begins to copy some bytes to shared memory."""
        name = "ab"[number]
        if self._regular(number):
            stride = self._stride(number, self._inner[0])
            place = f"from_{name} + ({first} * {stride} + e * jump_{name})"
        else:
            place = f"{self.array(number)} + {self._offset_of(number, first)}"
        to = self.in_shared(number, turn, "along", "line")
        self.add(f"copy_later<{size}>(&{to}, {place}, along < left && line < lines_{name});")

    def _copy_apart(self, number: int, first: str, turn: str) -> None:
        """Copies elements one by one."""
        name, dtype, _, form = self._factor(number)
        at_once, made = self._at_once(number), value_type(dtype)
        along, line = ("along + i", "line") if form == "k" else ("along", "line + i")
        (axis,) = self._near(number)
        place = f"{self.array(number)} + {self._offset_of(number, first)}"
        self.add(f"const {made} *const from = {place};", f"{made} few[{at_once}] = {{}};")
        self.add("#pragma unroll")
        self.open(f"for (int i = 0; i < {at_once}; ++i)")
        there = f"{along} < left && {line} < lines_{name}"
        self.add(f"if ({there}) few[i] = from[i * {self._stride(number, axis)}];")
        self.close(self.depth - 1)
        to = self.in_shared(number, turn, "along", "line")
        self.add(f"memcpy(&{to}, few, {VECTOR});")

    def _compute(self, number: int, first: str) -> None:
        """Computes an element from what is read."""
        name, dtype, _, _ = self._factor(number)
        self.add(f"{value_type(dtype)} value = {literal(dtype, 0)};")
        self.open(f"if (along < left && line < lines_{name})")
        self.place = self._offset_of(number, first)
        self.steps(sorted(self.analysis.closure([self.factors[number]], inner_only=True)))
        self.place = ""
        self.add(f"value = {self.values.of(self.factors[number])};")
        self.close(self.depth - 1)
        self.add(f"next_{name}[e] = value;")

    def offset(self, number: int) -> str:
        """As of any kernel; while a factor is read, it is known."""
        return self.place or super().offset(number)

    def _share(self, first: str, turn: str) -> None:
        """Leaves what the threads have computed in shared memory."""
        computed = [number for number in range(2) if not self._copied(number)]
        if not computed:
            return
        before = self.depth
        self.open(f"if ({first} < end)")
        for number in computed:
            inside = self.depth
            self._places(number)
            to = self.in_shared(number, turn, "along", "line")
            self.add(f"{to} = next_{'ab'[number]}[e];")
            self.close(inside)
        self.close(before)

    def _further_places(self) -> None:
        """Half of the places along k that are kept, in time before the other half has been read."""
        if not self._tabled():
            return
        before = self.depth
        self.open(f"if ((k0 - begin) % {THREADS} == 0)")
        self._along_k(f"k0 + {THREADS}")
        self.close(before)


__all__ = ["PartText"]

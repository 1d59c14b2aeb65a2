"""Matrix products of two-byte dtypes as CUDA C++, for GPUs whose warps multiply in groups of four.

A group of warps multiplies 64 lines of one factor with all lines of the other, over 16 of k, with
one instruction, which reads both factors from shared memory while the warps go on (PTX manual,
wgmma). There, rows of 64 neighbours in memory follow each other. The eight vectors of a row are
permuted, in another way for each of eight rows, so that the same vector of all of them lies in
different banks.
"""

from __future__ import annotations

from gemel.codegen.c.values import Functions
from gemel.codegen.cuda.shared import THREADS
from gemel.codegen.cuda.tensor import TensorText
from gemel.codegen.language.program import Program

#: The elements of a row in shared memory, and those that stay together.
ROW, TOGETHER = 64, 8
#: Rows and k of one instruction, and the warps of a group.
GROUP_ROWS, GROUP_DEPTH, GROUP_WARPS = 64, 16, 4
#: The shared memory that these GPUs give a block.
ROOM = 200 << 10


class GroupText(TensorText):
    """A sum of products of float16 or bfloat16 in float32, as a kernel for a grid of threads."""

    bounds = f"{THREADS}, 1"
    padding, room = 0, ROOM
    multiplies_first, published = True, "publish();"

    def __init__(self, unit: Functions, program: Program, name: str) -> None:
        super().__init__(unit, program, name)
        turned = not self.k_inside(0), not self.k_inside(1)
        self.instruction = f"multiply_group_{self.type}_{self.columns}_{turned[0]:d}{turned[1]:d}"
        unit.functions.setdefault("groups", GROUPS)
        unit.functions.setdefault(
            self.instruction, instruction(self.instruction, self.type, self.columns, turned)
        )

    @property
    def sums(self) -> tuple[int, int]:
        """Of every eight columns, a thread has two sums in each of two rows."""
        return 2, self.columns // 4

    def corner(self) -> None:
        """Declares the first row and column of the thread's sums in the tile."""
        self.add(
            "const unsigned warp = thread / 32, lane = thread % 32;",
            "const unsigned down = warp * 16 + lane / 4, right = lane % 4 * 2;",
        )

    def row(self) -> str:
        return "down + i * 8"

    def column(self) -> str:
        return "right + j / 2 * 8 + j % 2"

    def shape(self, number: int) -> str:
        """The part of a factor as an array: rows along k, or for each 64 lines, rows along them."""
        _, _, lines, _ = self._factor(number)
        if self.k_inside(number):
            return f"[{lines}][{ROW}]"
        return f"[{lines // ROW}][{self.step_length}][{ROW}]"

    def in_shared(self, number: int, turn: str, along: str, line: str) -> str:
        row, place = (line, along) if self.k_inside(number) else (along, f"({line}) % {ROW}")
        block = "" if self.k_inside(number) else f"[({line}) / {ROW}]"
        inside = f"(({place}) / {TOGETHER} ^ ({row}) % 8) * {TOGETHER} + ({place}) % {TOGETHER}"
        return f"shared_{'ab'[number]}[{turn}]{block}[{row}][{inside}]"

    def multiply(self, turn: str) -> None:
        before, group = self.depth, f"warp / {GROUP_WARPS}"
        places = []
        for number, first in enumerate((group, "0")):
            name = f"shared_{'ab'[number]}[{turn}]"
            if self.k_inside(number):
                places.append(f"&{name}[{first} * {GROUP_ROWS}][s]")
            else:
                places.append(f"{name}[{first}][s]")
        self.add("begin_groups();", "#pragma unroll")
        self.open(f"for (int s = 0; s < {self.step_length}; s += {GROUP_DEPTH})")
        self.add(f"{self.instruction}(sums, {', '.join(places)});")
        self.close(before)
        self.add("end_groups();")

    def multiplied(self) -> None:
        self.add("wait_for_products();")


GROUPS = """\
#ifndef GEMEL_HOST
/* Where a part of a factor lies in shared memory, as the instruction takes it: its address, how far
 * blocks of 64 lines lie apart, how far eight rows do, and the way in which rows are permuted. */
static __device__ uint64_t place_of(const void *part) {
    const uint64_t address = (unsigned)__cvta_generic_to_shared(part) >> 4 & 0x3fff;
    return address | (uint64_t)(8192 >> 4) << 16 | (uint64_t)(1024 >> 4) << 32 | 1ull << 62;
}

/* What threads have written to shared memory is seen by the instruction. */
static __device__ void begin_groups() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
static __device__ void publish() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
static __device__ void end_groups() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
static __device__ void wait_for_products() {
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}
#endif
"""


def instruction(name: str, kind: str, columns: int, turned: tuple[bool, bool]) -> str:
    """A function for the instruction: it adds to the sums of a group of warps."""
    count = columns // 2
    places = ", ".join(f"%{number}" for number in range(count))
    given = ", ".join(
        f'"+f"(sums[{number // 2 % 2}][{number // 4 * 2 + number % 2}])' for number in range(count)
    )
    ways = f"{turned[0]:d}, {turned[1]:d}"
    same = f"host::as_{kind}, {columns}, {str(turned[0]).lower()}, {str(turned[1]).lower()}"
    return f"""\
#ifndef GEMEL_HOST
static __device__ void {name}(float (&sums)[2][{columns // 4}], const void *a, const void *b) {{
    asm volatile("{{ .reg .pred p; setp.ne.b32 p, 1, 0; "
                 "wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{kind}.{kind} "
                 "{{{places}}}, %{count}, %{count + 1}, p, 1, 1, {ways}; }}"
                 : {given}
                 : "l"(place_of(a)), "l"(place_of(b)));
}}
#else
constexpr auto {name} = host::multiply_group<{same}>;
#endif
"""

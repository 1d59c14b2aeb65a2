"""Matrix products of two-byte dtypes as CUDA C++, for GPUs whose warps multiply in groups of four.

A group of warps multiplies 64 lines of one factor with all lines of the other, over 16 of k, with
one instruction, which reads both factors from shared memory while the warps go on (PTX manual,
wgmma). There, elements lie in blocks of 8 x 8; the 16 bytes of a row are neighbours in memory too.
"""

from __future__ import annotations

from gemel.codegen.c_values import Functions
from gemel.codegen.print_cuda_shared import THREADS
from gemel.codegen.print_cuda_tensor import TensorText
from gemel.codegen.program import Program

#: The side of a block in shared memory, and its bytes.
BLOCK, BLOCK_BYTES = 8, 128
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
        """The part of a factor as an array: blocks along k, blocks along its lines, and a block."""
        _, _, lines, _ = self._factor(number)
        return f"[{self.step_length // BLOCK}][{lines // BLOCK}][{BLOCK}][{BLOCK}]"

    def in_shared(self, number: int, turn: str, along: str, line: str) -> str:
        first, second = (line, along) if self.k_inside(number) else (along, line)
        place = f"[({along}) / {BLOCK}][({line}) / {BLOCK}][({first}) % {BLOCK}]"
        return f"shared_{'ab'[number]}[{turn}]{place}[({second}) % {BLOCK}]"

    def several_places(self, number: int) -> str:
        """Eight threads after each other read rows of a block, which lie in different banks."""
        _, _, lines, form = self._factor(number)
        names = ("line", "along") if form == "k" else ("along", "line")
        count = (self.step_length if form == "k" else lines) // BLOCK
        first = f"{names[0]} = place % {BLOCK} + place / {BLOCK * count} * {BLOCK}"
        return f"const unsigned {first}, {names[1]} = place / {BLOCK} % {count} * {BLOCK};"

    def multiply(self, turn: str) -> None:
        before = self.depth
        blocks = GROUP_ROWS // BLOCK
        apart = [self._factor(number)[2] // BLOCK * BLOCK_BYTES for number in range(2)]
        self.add("begin_groups();", "#pragma unroll")
        self.open(f"for (int s = 0; s < {self.step_length // BLOCK}; s += {GROUP_DEPTH // BLOCK})")
        a = f"shared_a[{turn}][s][warp / {GROUP_WARPS} * {blocks}]"
        self.add(f"{self.instruction}(sums, {a}, {apart[0]}, shared_b[{turn}][s], {apart[1]});")
        self.close(before)
        self.add("end_groups();")

    def multiplied(self) -> None:
        self.add("wait_for_products();")


GROUPS = """\
#ifndef GEMEL_HOST
/* Where a part of a factor lies in shared memory, as the instruction takes it: its address, and how
 * far blocks lie apart along k and along the lines. */
static __device__ uint64_t place_of(const void *part, unsigned apart) {
    const uint64_t address = (unsigned)__cvta_generic_to_shared(part) >> 4 & 0x3fff;
    return address | (uint64_t)(apart >> 4) << 16 | (uint64_t)(128 >> 4) << 32;
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
static __device__ void {name}(float (&sums)[2][{columns // 4}], const void *a, unsigned apart_a,
                              const void *b, unsigned apart_b) {{
    asm volatile("{{ .reg .pred p; setp.ne.b32 p, 1, 0; "
                 "wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{kind}.{kind} "
                 "{{{places}}}, %{count}, %{count + 1}, p, 1, 1, {ways}; }}"
                 : {given}
                 : "l"(place_of(a, apart_a)), "l"(place_of(b, apart_b)));
}}
#else
constexpr auto {name} = host::multiply_group<{same}>;
#endif
"""

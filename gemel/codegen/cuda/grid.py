"""Loops as CUDA C++: a program on a grid of threads.

The outer positions are divided among the threads of all blocks. The inner positions of one outer
position are divided among threads of a block, which combine what they have found, or left to one
thread; several blocks may share them if there are few outer positions. How many threads do what is
decided per call, from the sizes (src/cuda/grid.h).
"""

from __future__ import annotations

from functools import cached_property

from gemel.codegen.analysis import Sweep
from gemel.codegen.c.values import element_type, value_type
from gemel.codegen.cuda.places import SIDE_BY_SIDE, Places
from gemel.codegen.cuda.shared import THREADS, SharedText
from gemel.codegen.language.program import INDEX, INNER, OUTPUT, WRITES

#: Dtypes whose elements several threads may add to at once, and the type they do it in.
ATOMIC = {
    "float32": "float",
    "float64": "double",
    "int32": "int",
    "uint32": "unsigned int",
    "int64": "unsigned long long",
    "uint64": "unsigned long long",
}


class GridText(SharedText):
    """A program as a kernel for a grid of threads."""

    #: The threads of a block, and how many blocks should at least fit on a multiprocessor.
    bounds = f"{THREADS}"

    @property
    def shared_bytes(self) -> int:
        """The shared memory that a block asks for at the launch."""
        return 0

    @cached_property
    def partial_bytes(self) -> int:
        """What blocks leave for each other per outer position, if they may share its inner
        positions: if these are only reduced, once. Else 0."""
        code, analysis = self.program.code, self.analysis
        if not self.program.inner or {step.name for step in code} & {
            "scan",
            "check",
            "scatter_add",
        }:
            return 0
        written = (p for p, step in enumerate(code) if step.name in WRITES)
        if analysis.last != 0 or any(analysis.inner[position] for position in written):
            return 0
        return sum(8 * len(self.held(p)) for p in analysis.plain_sweep(0).reductions)

    def text(self) -> str:
        """The kernel, after the program's text as a comment."""
        self.body()
        told = self.program.text.rstrip().replace("\n", "\n * ")
        buffers = sum(operand.role != INDEX for operand in self.program.operands)
        integers = self.program.first_scalar + len(self.program.scalars)
        head = [
            f"struct {self.name}_arguments {{",
            f"    void *buffers[{buffers}];",
            f"    int64_t integers[{integers}];",
            "    char *scratch;",
            "    unsigned int *counters;",
            "    volatile int32_t *status;",
            "    int32_t across, along, shift;",
            "};",
            "",
            f"/* {told}\n */",
            f'extern "C" __global__ void __launch_bounds__({self.bounds}) {self.name}'
            f"(const __grid_constant__ {self.name}_arguments given) {{",
        ]
        given = [f"    const int64_t {n} = given.integers[{i}];" for n, i in self.integers.items()]
        return "\n".join((*head, *given, *self.lines, "}", ""))

    def body(self) -> None:
        self.buffers()
        self.scalars()
        self.steps(self.analysis.fixed())
        self.threads()
        if self.program.inner:
            self._rows()
        else:
            self._points()
        self.close(1)

    def _rows(self) -> None:
        """For each outer position of this thread, sweeps over its share of the inner ones."""
        self.open(
            "for (int64_t first = (int64_t)blockIdx.x * across; first < positions; "
            "first += (int64_t)gridDim.x * across)"
        )
        self.add("const bool there = first + row < positions;")
        self.add("int64_t rest = there ? first + row : 0;")
        self.coordinates(range(self.program.outer))
        for stage in range(self.analysis.last + 2):
            self.point(self.analysis.point(stage, False))
            if stage <= self.analysis.last:
                self.sweep(stage)

    def _points(self) -> None:
        """Some positions of this thread at a time, if there are no inner ones."""
        step = f"(int64_t)across * {SIDE_BY_SIDE}"
        places = Places("first", "across", "positions", range(self.program.outer))
        for times in self.ways():
            self.open(
                f"for (int64_t first = blockIdx.x * ({step}) + {times}row; first < positions; "
                f"first += gridDim.x * ({step}))"
            )
            self.side_by_side(places, Sweep([], self.analysis.point(0, False), [], []))

    # --- what is there ----------------------------------------------------------------------

    def buffers(self) -> None:
        arrays = [(n, o) for n, o in enumerate(self.program.operands) if o.role != INDEX]
        for buffer, (number, operand) in enumerate(arrays):
            constant = "" if operand.role == OUTPUT else "const "
            made = f"{constant}{element_type(operand.dtype)} *"
            self.add(f"{made}const {self.array(number)} = ({made})given.buffers[{buffer}];")

    def scalars(self) -> None:
        for number, dtype in enumerate(self.program.scalars):
            integer = f"given.integers[{self.program.first_scalar + number}]"
            made = value_type(dtype)
            if dtype.kind == "f":
                self.add(f"double scalar{number};")
                self.add(f"memcpy(&scalar{number}, &{integer}, 8);")
            else:
                self.add(f"const {made} scalar{number} = ({made}){integer};")

    # --- who does what ----------------------------------------------------------------------

    @property
    def cooperates(self) -> bool:
        """Whether several threads may share the inner positions of an outer one."""
        in_order = any(step.name == "scan" for step in self.program.code)
        return self.program.inner > 0 and not in_order

    def threads(self) -> None:
        """Declares which outer position of a block is this thread's, and which share of the inner
        ones."""
        self.add(
            "const int across = given.across, along = given.along;",
            "const int thread = threadIdx.x;",
        )
        # Both numbers are powers of two.
        if not self.program.inner:
            self.add("const int row = thread;")
        elif self.program.vectors_along == INNER:
            self.add("const int row = thread >> given.shift, lane = thread & along - 1;")
        else:
            self.add("const int row = thread & across - 1, lane = thread >> given.shift;")
        if self.cooperates:
            most = max((len(self.held(p)) for p in self.analysis.parts), default=1)
            self.add(f"__shared__ uint64_t shared[{most * THREADS}];")
        outer = [self.extent(d) for d in range(self.program.outer)]
        inner = [self.extent(d) for d in range(self.program.outer, self.program.rank)]
        self.add(f"const int64_t positions = {' * '.join(outer)};")
        if inner:
            self.add(f"const int64_t length = {' * '.join(inner)};")
        self.neighbours()

    # --- instructions -----------------------------------------------------------------------

    def point(self, positions: list[int]) -> None:
        """Instructions at an outer position; one thread writes."""
        code = self.program.code
        guarded = [p for p in positions if code[p].name in WRITES or code[p].name == "check"]
        self.steps(p for p in positions if p not in guarded)
        if guarded:
            self.open("if (there && lane == 0)")
            self.steps(guarded)
            self.close(self.depth - 1)

    def step(self, position: int) -> None:
        step = self.program.code[position]
        arguments = [self.values.of(argument) for argument in step.arguments]
        if step.name == "check":
            self.add(f"if (!{arguments[0]}) *given.status = 1;")
        elif step.name == "scatter_add" and step.dtype.name in ATOMIC:
            made = ATOMIC[step.dtype.name]
            element = self.element(step, arguments)
            self.add(f"atomicAdd(({made} *)&{element}, ({made}){arguments[1]});")
        else:
            super().step(position)

    def sweep(self, stage: int) -> None:
        sweep, before = self.analysis.sweeps[stage], self.depth
        for position in (*sweep.reductions, *sweep.scans):
            self.start(position)
        step = "(int64_t)along * gridDim.y" if self.cooperates else "1"
        number = "((int64_t)along * blockIdx.y + lane)" if self.cooperates else "0"
        self.add("const int64_t limit = there ? length : 0;" if stage == 0 else "")
        places = Places("j", step, "limit", range(self.program.outer, self.program.rank))
        for times in self.ways():
            begin, further = f"{times}{number}", f"{SIDE_BY_SIDE} * ({step})"
            self.open(f"for (int64_t j = {begin}; j < limit; j += {further})")
            self.side_by_side(places, sweep)
        if self.cooperates and sweep.reductions:
            self.open("if (along > 1)")
            self.in_block(sweep.reductions)
            self.close(before)
        if self.partial_bytes:
            self.between_blocks(sweep.reductions)
        self.parts(sweep.reductions)


__all__ = ["ATOMIC", "GridText"]

"""Reductions that threads of a GPU share: those of a warp, of a block, and of several blocks.

All combine what they have found in a fixed order, so that results do not vary from run to run.
"""

from __future__ import annotations

from collections.abc import Sequence

from gemel.codegen.c.values import value_type
from gemel.codegen.cuda.places import PlacesText
from gemel.codegen.language.carry import Carry
from gemel.codegen.language.program import INNER

#: The most threads of a block (kThreads in src/cuda/grid.h).
THREADS = 256
#: The threads of a warp, which read each other's registers.
WARP = 32
#: All threads of a warp.
ALL = "0xffffffffu"


class SharedText(PlacesText):
    """A program as a kernel whose threads share reductions."""

    def merge(self, position: int, values: Sequence[str]) -> None:
        """Adds what another thread has found to this thread's result of a reduction."""
        kind, _ = self.reduced(position)
        if not isinstance(kind, Carry):
            self.add_to(position, *values)
            return
        before, names = self.depth, [name for name, _ in self.held(position)]
        self.open("")
        self.assign(position, self.in_place(kind.combine, [*names, *values]))
        self.close(before)

    def in_block(self, reductions: list[int]) -> None:
        """The threads that share an outer position combine what they have found; all of them get
        the result."""
        near = self.program.vectors_along == INNER
        for position in reductions:
            if near:
                self._in_warp(position)
            self._between_warps(position, near)

    def _in_warp(self, position: int) -> None:
        """The threads of a warp, which share an outer position, combine what they have found."""
        before, held = self.depth, self.held(position)
        self.add("#pragma unroll")
        self.open(f"for (int step = {WARP // 2}; step > 0; step /= 2)")
        for i, (name, dtype) in enumerate(held):
            made = value_type(dtype)
            self.add(f"const {made} other{i} = __shfl_down_sync({ALL}, {name}, step);")
        self.merge(position, [f"other{i}" for i in range(len(held))])
        self.close(before)

    def _between_warps(self, position: int, near: bool) -> None:
        """All threads of an outer position get the result of its warps, or if they lie across the
        warps, of its threads: what is left in shared memory, in order."""
        held, before = self.held(position), self.depth
        count, slot = "along", "thread"
        part = "part * across + row"
        if near:
            count, slot = f"along / {WARP}", f"thread / {WARP}"
            part = f"row * ({count}) + part"
            self.open(f"if (along == {WARP})")
            self.add(*(f"{name} = __shfl_sync({ALL}, {name}, 0);" for name, _ in held))
            self.close(before)
            self.open("else")
        rooms = [f"room{position}_{i}" for i in range(len(held))]
        for i, (_, dtype) in enumerate(held):
            made, behind = value_type(dtype), f" + {i * THREADS}" if i else ""
            self.add(f"{made} *const {rooms[i]} = ({made} *)(shared{behind});")
        self.add("__syncthreads();")
        first = f"if (thread % {WARP} == 0) " if near else ""
        for room, (name, _) in zip(rooms, held, strict=True):
            self.add(f"{first}{room}[{slot}] = {name};")
        self.add("__syncthreads();")
        self.reset(position)
        self.open(f"for (int part = 0; part < {count}; ++part)")
        self.merge(position, [f"{room}[{part}]" for room in rooms])
        self.close(before)

    def between_blocks(self, reductions: list[int]) -> None:
        """The blocks that share outer positions leave what they have found; the last one combines
        it, in the order of the blocks."""
        depth = self.depth
        self.open("if (gridDim.y > 1)")
        self.add("const int64_t slots = (int64_t)gridDim.x * gridDim.y * across;")
        self.add("char *const partial = given.scratch;")
        mine = "((int64_t)blockIdx.y * gridDim.x + blockIdx.x) * across + row"
        offset = 0
        for position in reductions:
            for i, (name, dtype) in enumerate(self.held(position)):
                made, left = value_type(dtype), f"left{position}_{i}"
                self.add(f"{made} *const {left} = ({made} *)(partial + {offset} * slots);")
                self.add(f"if (lane == 0) {left}[{mine}] = {name};")
                offset += 8
        self.end_all_but_the_last()
        for position in reductions:
            self.reset(position)
        self.open("for (int64_t part = lane; part < gridDim.y; part += along)")
        self.add("const int64_t slot = (part * gridDim.x + blockIdx.x) * across + row;")
        for position in reductions:
            count = len(self.held(position))
            self.merge(position, [f"left{position}_{i}[slot]" for i in range(count)])
        self.close(self.depth - 1)
        self.in_block(reductions)
        self.close(depth)

    def end_all_but_the_last(self) -> None:
        """Blocks that have left their results for each other end, except for the last one, which
        sees what all have left, and sets their counter back."""
        self.add("__shared__ bool last;", "__threadfence();", "__syncthreads();")
        counted = "atomicAdd(given.counters + blockIdx.x, 1u) == gridDim.y - 1"
        self.add(f"if (thread == 0) last = {counted};", "__syncthreads();", "if (!last) return;")
        self.add("if (thread == 0) given.counters[blockIdx.x] = 0;", "__threadfence();")

    def reset(self, position: int) -> None:
        """Sets a reduction back to what it starts with."""
        for (name, _), first in zip(self.held(position), self.initial(position), strict=True):
            self.add(f"{name} = {first};")


__all__ = ["THREADS", "SharedText"]

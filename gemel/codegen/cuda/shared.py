"""Reductions that threads of a GPU share: those of a warp, of a block, and of several blocks.

All combine what they have found in a fixed order, so that results do not vary from run to run.
"""

from __future__ import annotations

from gemel.codegen.c.kernels import EXTREMES
from gemel.codegen.c.values import value_type
from gemel.codegen.cuda.places import PlacesText
from gemel.codegen.language.program import INNER
from gemel.dtype import DType

#: The most threads of a block (kThreads in src/cuda/grid.h).
THREADS = 256
#: The threads of a warp, which read each other's registers.
WARP = 32
#: All threads of a warp.
ALL = "0xffffffffu"


class SharedText(PlacesText):
    """A program as a kernel whose threads share reductions."""

    def merge(self, position: int, value: str, place: str) -> None:
        """Adds what another thread has found to this thread's result of a reduction."""
        name, dtype = self.reduced(position)
        now = f"v{position}"
        if name not in EXTREMES:
            self.add_to(position, value)
            return
        most = f"most{position}"
        better = f"{value} {EXTREMES[name]} {most}"
        same = f"{value} == {most}"
        if dtype.kind == "f":  # NaN is the extreme, and the first one wins
            better = f"{most} == {most} && ({value} != {value} || {better})"
            same = f"({same} || {most} != {most} && {value} != {value})"
        self.open(f"if ({better} || {same} && {place} < {now})")
        self.add(f"{most} = {value};", f"{now} = {place};")
        self.close(self.depth - 1)

    def kept(self, position: int) -> tuple[str, DType]:
        """The variable in which a thread has a reduction, and its dtype."""
        name, dtype = self.reduced(position)
        return (f"most{position}" if name in EXTREMES else f"v{position}"), dtype

    def in_block(self, reductions: list[int]) -> None:
        """The threads that share an outer position combine what they have found; all of them get
        the result."""
        near = self.program.vectors_along == INNER
        for position in reductions:
            if near:
                self._in_warp(position)
            self._between_warps(position, near)

    def _is_pair(self, position: int) -> bool:
        """Whether a thread has found an element and its place."""
        return self.kept(position)[0] != f"v{position}"

    def _in_warp(self, position: int) -> None:
        """The threads of a warp, which share an outer position, combine what they have found."""
        variable, dtype = self.kept(position)
        made, before = value_type(dtype), self.depth
        self.add("#pragma unroll")
        self.open(f"for (int step = {WARP // 2}; step > 0; step /= 2)")
        self.add(f"const {made} other = __shfl_down_sync({ALL}, {variable}, step);")
        if self._is_pair(position):
            self.add(f"const int64_t at = __shfl_down_sync({ALL}, v{position}, step);")
        self.merge(position, "other", "at")
        self.close(before)

    def _between_warps(self, position: int, near: bool) -> None:
        """All threads of an outer position get the result of its warps, or if they lie across the
        warps, of its threads: what is left in shared memory, in order."""
        variable, dtype = self.kept(position)
        made, values, places = value_type(dtype), f"value{position}", f"place{position}"
        pair, before = self._is_pair(position), self.depth
        count, slot = "along", "thread"
        part = "part * across + row"
        if near:
            count, slot = f"along / {WARP}", f"thread / {WARP}"
            part = f"row * ({count}) + part"
            self.open(f"if (along == {WARP})")
            self.add(f"{variable} = __shfl_sync({ALL}, {variable}, 0);")
            self.add(f"v{position} = __shfl_sync({ALL}, v{position}, 0);" if pair else "")
            self.close(before)
            self.open("else")
        self.add(f"{made} *const {values} = ({made} *)shared;")
        self.add(f"int64_t *const {places} = (int64_t *)shared + {THREADS};" if pair else "")
        self.add("__syncthreads();")
        first = f"if (thread % {WARP} == 0) " if near else ""
        self.add(f"{first}{values}[{slot}] = {variable};")
        self.add(f"{first}{places}[{slot}] = v{position};" if pair else "", "__syncthreads();")
        self.reset(position)
        self.open(f"for (int part = 0; part < {count}; ++part)")
        self.merge(position, f"{values}[{part}]", f"{places}[{part}]")
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
            variable, dtype = self.kept(position)
            made, pairs = value_type(dtype), variable != f"v{position}"
            self.add(f"{made} *const left{position} = ({made} *)(partial + {offset} * slots);")
            offset += 8
            if pairs:
                self.add(f"int64_t *const at{position} = (int64_t *)(partial + {offset} * slots);")
                offset += 8
            self.add(f"if (lane == 0) left{position}[{mine}] = {variable};")
            self.add(f"if (lane == 0) at{position}[{mine}] = v{position};" if pairs else "")
        self.end_all_but_the_last()
        for position in reductions:
            self.reset(position)
        self.open("for (int64_t part = lane; part < gridDim.y; part += along)")
        self.add("const int64_t slot = (part * gridDim.x + blockIdx.x) * across + row;")
        for position in reductions:
            self.merge(position, f"left{position}[slot]", f"at{position}[slot]")
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
        variable, _ = self.kept(position)
        self.add(f"{variable} = {self.neutral(position)};")
        if variable != f"v{position}":
            self.add(f"v{position} = 0;")


__all__ = ["THREADS", "SharedText"]

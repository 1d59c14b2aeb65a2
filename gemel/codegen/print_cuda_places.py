"""What a thread of a GPU does at several positions: all reads first, all writes last.

Positions that are neighbours in memory are read and written together, if the sizes and addresses of
a call allow it: fewer instructions then move as many bytes, and find their place once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gemel.codegen.c_values import element_type, value_type
from gemel.codegen.print_c import KernelText
from gemel.codegen.program import BROADCAST, CONTIGUOUS, INDEX, Operand

#: How many positions a thread computes at a time (kSideBySide in src/cuda/grid.h).
SIDE_BY_SIDE = 4
#: The most bytes that one instruction reads or writes.
VECTOR = 16
HEAD = """
/* Returns rest modulo extent, and divides rest by it: in 32 bits if they are enough. */
static __device__ int64_t split(int64_t &rest, int64_t extent) {
    if (((uint64_t)(rest | extent) >> 32) == 0) {
        const uint32_t whole = (uint32_t)rest / (uint32_t)extent;
        const uint32_t part = (uint32_t)rest - whole * (uint32_t)extent;
        rest = whole;
        return part;
    }
    const int64_t whole = rest / extent, part = rest - whole * extent;
    rest = whole;
    return part;
}

/* Neighbours in memory, which a thread reads or writes together. */
template <typename Value>
struct alignas(sizeof(Value) < 4 ? 4 * sizeof(Value) : 16) Side {
    Value at[4];
};
"""


class Places(NamedTuple):
    """Some of a thread's places: the first, the distance of each from the one before, their limit,
    and the dimensions whose positions they count."""

    first: str
    step: str
    limit: str
    dimensions: range


class PlacesText(KernelText):
    """A program as a kernel whose threads compute several positions at a time."""

    #: The stores whose elements are being left for `_write_neighbours`.
    late: tuple[int, ...] = ()

    def coordinates(self, dimensions: Sequence[int], rest: str = "rest") -> None:
        """Declares the positions along some dimensions, from their position in all of them."""
        for dimension, found in self._split(dimensions, rest):
            self.add(f"const int64_t i{dimension} = {found};")

    def _split(self, dimensions: Sequence[int], rest: str) -> list[tuple[int, str]]:
        """The dimensions, the last first, and how to find the position along each."""
        return [
            (d, rest if d == dimensions[0] else f"split({rest}, {self.extent(d)})")
            for d in reversed(dimensions)
        ]

    # --- neighbours ---------------------------------------------------------------------------

    @property
    def has_neighbours(self) -> bool:
        """Whether a thread's positions may be neighbours in memory."""
        looping = not self.program.inner or self.program.vector_dimension >= self.program.outer
        return looping and any(map(self._contiguous, self._moved()))

    def _moved(self) -> list[int]:
        """The loads and stores of arrays."""
        moves = (p for p in sorted(self.analysis.live) if self._is_move(p))
        return [p for p in moves if self._operand(p).role != INDEX]

    def _is_move(self, position: int) -> bool:
        return self.program.code[position].name in ("load", "store")

    def _operand(self, position: int) -> Operand:
        return self.program.operands[self.program.code[position].operand or 0]

    def _contiguous(self, position: int) -> bool:
        """Whether it reads or writes neighbours where positions are neighbours."""
        operand = self._operand(position)
        moves = operand.varies or not self.program.inner
        return moves and operand.stride_class == CONTIGUOUS

    def neighbours(self) -> None:
        """Declares `wide`: whether four positions of a thread are neighbours, in one line of every
        array that is read or written contiguously, at addresses of whole vectors."""
        program = self.program
        if not self.has_neighbours:
            return
        numbers = sorted(
            {program.code[p].operand or 0 for p in self._moved() if self._contiguous(p)}
        )
        counts = [self.extent(program.vector_dimension)]
        for number in numbers:
            for d in range(program.rank):
                if program.known_stride(number, d) is None:
                    counts.append(self.integer(f"stride{number}_{d}", program.stride_at(number, d)))
        asked = [f"(({' | '.join(counts)}) & {SIDE_BY_SIDE - 1}) == 0"]
        for number in numbers:
            size = min(VECTOR, SIDE_BY_SIDE * program.operands[number].dtype.itemsize)
            asked.append(f"(uint64_t){self.array(number)} % {size} == 0")
        self.add(f"const bool wide = {' && '.join(asked)};")

    def own(self, number: str) -> str:
        """The first of a thread's positions, from its number."""
        return f"({number}) * (wide ? {SIDE_BY_SIDE} : 1)" if self.has_neighbours else number

    # --- several positions --------------------------------------------------------------------

    def side_by_side(
        self, places: Places, positions: list[int], reductions: Sequence[int] = ()
    ) -> None:
        """Instructions at several places: all loads first, so that the thread waits for memory only
        once, and what neighbours are given last."""
        before = self.depth
        moved = [p for p in positions if self._is_move(p) and p in set(self._moved())]
        early = [p for p in moved if self.program.code[p].name == "load"]
        types = {position: value_type(self.program.code[position].dtype) for position in early}
        for position, made in types.items():
            self.add(f"{made} early{position}[{SIDE_BY_SIDE}];")
        if self.has_neighbours:
            self.late = tuple(p for p in moved if p not in types and self._contiguous(p))
            self._read_neighbours(places, early)
        if early:
            self._read_each(places, early)
        self._each_of(places)
        self.add(*(f"const {made} v{p} = early{p}[u];" for p, made in types.items()))
        self.steps(p for p in positions if p not in types)
        for position in reductions:
            self.join(position)
        self.close(before)
        if self.late:
            self._write_neighbours(places)
        self.late = ()

    def _read_neighbours(self, places: Places, early: list[int]) -> None:
        """Finds the first of four neighbours, and reads what lies side by side, or is the same for
        all."""
        before = self.depth
        self.add(f"int64_t {', '.join(f'first{d} = 0' for d in places.dimensions)};")
        for position in self.late:
            made = element_type(self._operand(position).dtype)
            self.add(f"Side<{made}> late{position};")
        self.open("if (wide)")
        self.add(f"int64_t rest = {places.first};")
        self.add(*(f"first{d} = {found};" for d, found in self._split(places.dimensions, "rest")))
        self.add(*(f"const int64_t i{d} = first{d};" for d in places.dimensions))
        for position in early:
            if self._contiguous(position):
                made = element_type(self._operand(position).dtype)
                place = self.element(self.program.code[position], [])
                self.add(f"const Side<{made}> side{position} = *(const Side<{made}> *)&{place};")
                value = f"side{position}.at[u]"
            elif self._same(position):
                self.steps([position])
                value = f"v{position}"
            else:
                continue
            whether = " != 0" if self._operand(position).dtype.kind == "b" else ""
            self.add("#pragma unroll")
            self.add(
                f"for (int u = 0; u < {SIDE_BY_SIDE}; ++u) early{position}[u] = {value}{whether};"
            )
        self.close(before)

    def _same(self, position: int) -> bool:
        """Whether neighbours read the same element."""
        return self._operand(position).stride_class == BROADCAST

    def _read_each(self, places: Places, early: list[int]) -> None:
        """Reads what has not been read by `_read_neighbours`, one element at a time."""
        before = self.depth
        apart = [p for p in early if not (self._contiguous(p) or self._same(p))]
        if self.has_neighbours and not apart:
            self.open("if (!wide)")
        self._each_of(places)
        for position in early:
            inside = self.depth
            if self.has_neighbours and apart and position not in apart:
                self.open("if (!wide)")
            self.steps([position])
            self.add(f"early{position}[u] = v{position};")
            self.close(inside)
        self.close(before)

    def _write_neighbours(self, places: Places) -> None:
        """Writes what the instructions have left."""
        before = self.depth
        self.open("if (wide)")
        self.add(*(f"const int64_t i{d} = first{d};" for d in places.dimensions))
        for position in self.late:
            made = element_type(self._operand(position).dtype)
            place = self.element(self.program.code[position], [])
            self.add(f"*(Side<{made}> *)&{place} = late{position};")
        self.close(before)

    def _each_of(self, places: Places) -> None:
        """Opens the loop over some places, with the positions along their dimensions."""
        self.add("#pragma unroll")
        self.open(f"for (int u = 0; u < {SIDE_BY_SIDE}; ++u)")
        if not self.has_neighbours:
            self.add(f"int64_t place = {places.first} + u * ({places.step});")
            self.add(f"if (place >= {places.limit}) continue;")
            self.coordinates(places.dimensions, "place")
            return
        self.add(f"int64_t place = {places.first} + u * (wide ? 1 : {places.step});")
        self.add(f"if (place >= {places.limit}) continue;")
        last = places.dimensions[-1]
        self.add(
            *(f"int64_t i{d} = first{d}{' + u' if d == last else ''};" for d in places.dimensions)
        )
        self.open("if (!wide)")
        self.add(*(f"i{d} = {found};" for d, found in self._split(places.dimensions, "place")))
        self.close(self.depth - 1)

    def step(self, position: int) -> None:
        if position not in self.late:
            super().step(position)
            return
        (argument,) = self.program.code[position].arguments
        self.add(f"if (wide) late{position}.at[u] = {self.values.of(argument)};")
        self.open("else")
        super().step(position)
        self.close(self.depth - 1)


__all__ = ["HEAD", "SIDE_BY_SIDE", "Places", "PlacesText"]

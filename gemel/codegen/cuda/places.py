"""What a thread of a GPU does at several positions: all reads first, all writes last.

Positions that are neighbours in memory are read and written together, if the sizes and addresses of
a call allow it: fewer instructions then move as many bytes, and find their place once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gemel.codegen.analysis import Sweep
from gemel.codegen.c.kernels import KernelText
from gemel.codegen.c.values import element_type, value_type
from gemel.codegen.language.program import BROADCAST, CONTIGUOUS, INDEX

#: How many positions a thread computes at a time (kSideBySide in src/cuda/grid.h).
SIDE_BY_SIDE = 4
#: The most bytes that one instruction reads, writes or copies.
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

/* Neighbours in memory, which a thread reads or writes together if they lie on whole vectors. */
template <typename Value>
struct alignas(sizeof(Value) < 4 ? 4 * sizeof(Value) : 16) Side {
    Value at[4];
};
template <typename Value>
static __device__ Side<Value> read_side(const Value *from, bool aligned) {
    if (aligned) return *(const Side<Value> *)from;
    Side<Value> side;
    for (int i = 0; i < 4; ++i) side.at[i] = from[i];
    return side;
}
template <typename Value>
static __device__ void write_side(Value *to, const Side<Value> &side, bool aligned) {
    if (aligned) *(Side<Value> *)to = side;
    else
        for (int i = 0; i < 4; ++i) to[i] = side.at[i];
}
"""


class Places(NamedTuple):
    """Some of a thread's places: the first, the distance of each from the one before, their limit,
    and the dimensions whose positions they count."""

    first: str
    step: str
    limit: str
    dimensions: range


class Move(NamedTuple):
    """An element of an operand that is read into the value at `position`, or written from it; a
    store is known by its own position."""

    position: int
    operand: int
    value: int


class PlacesText(KernelText):
    """A program as a kernel whose threads compute several positions at a time."""

    #: Whether the positions of a thread are neighbours, in the text that is being written; and the
    #: writes whose elements are left for `_write_neighbours`.
    wide = False
    late: Sequence[Move] = ()

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
        return looping and any(map(self.contiguous, self.moved()))

    def moved(self) -> list[Move]:
        """The loads and stores of arrays."""
        found = []
        for position in sorted(self.analysis.live):
            step = self.program.code[position]
            if step.name in ("load", "store") and step.operand is not None:
                value = position if step.name == "load" else step.arguments[0]
                found.append(Move(position, step.operand, value))
        return [move for move in found if self.program.operands[move.operand].role != INDEX]

    def contiguous(self, move: Move) -> bool:
        """Whether it reads or writes neighbours where positions are neighbours."""
        operand = self.program.operands[move.operand]
        moves = operand.varies or not self.program.inner
        return moves and operand.stride_class == CONTIGUOUS

    def _same(self, move: Move) -> bool:
        """Whether neighbours read the same element."""
        return self.program.operands[move.operand].stride_class == BROADCAST

    def _at(self, move: Move) -> str:
        """The element."""
        return f"{self.array(move.operand)}[{self.offset(move.operand)}]"

    def _side(self, move: Move) -> str:
        """The type of neighbours."""
        return f"Side<{element_type(self.program.operands[move.operand].dtype)}>"

    def neighbours(self) -> None:
        """Declares `wide`: whether four positions of a thread are neighbours, in one line of every
        array; and for those that are read or written contiguously, whether all lines begin at
        addresses of whole vectors."""
        program = self.program
        if not self.has_neighbours:
            return
        last = self.extent(program.vector_dimension)
        self.add(f"const bool wide = {last} % {SIDE_BY_SIDE} == 0;")
        for number in sorted({move.operand for move in self.moved() if self.contiguous(move)}):
            size = min(VECTOR, SIDE_BY_SIDE * program.operands[number].dtype.itemsize)
            strides = [
                self.integer(f"stride{number}_{d}", program.stride_at(number, d))
                for d in range(program.rank)
                if program.known_stride(number, d) is None
            ]
            whole = f"(uint64_t){self.array(number)} % {size} == 0"
            if strides:
                whole += f" && ({' | '.join(strides)}) % {SIDE_BY_SIDE} == 0"
            self.add(f"const bool aligned{number} = {whole};")

    def ways(self) -> Iterator[str]:
        """Writes something twice, for positions that are neighbours and for others, if they may be
        neighbours: the factor of a thread's number for its first position."""
        before = self.depth
        for wide in (True, False) if self.has_neighbours else (False,):
            self.wide = wide
            if self.has_neighbours:
                self.open("if (wide)" if wide else "else")
            yield f"{SIDE_BY_SIDE} * " if wide else ""
            self.close(before)
        self.wide = False

    # --- several positions --------------------------------------------------------------------

    def side_by_side(self, places: Places, sweep: Sweep) -> None:
        """Instructions at several places: all loads first, so that the thread waits for memory only
        once, and what neighbours are given last."""
        before, positions = self.depth, [*sweep.uniform, *sweep.varying]
        moved = [move for move in self.moved() if move.position in positions]
        early = [move for move in moved if move.value == move.position]
        late = [move for move in moved if move.value != move.position]
        if sweep.reloads:
            early.append(Move(*sweep.reloads, sweep.reloads[0]))
        spilled = [Move(*sweep.spills, sweep.spills[0])] if sweep.spills else []
        for move in early:
            made = value_type(self.program.code[move.value].dtype)
            self.add(f"{made} early{move.value}[{SIDE_BY_SIDE}];")
        if self.wide:
            self.late = [move for move in (*late, *spilled) if self.contiguous(move)]
            self._read_neighbours(places, early)
        apart = [m for m in early if not (self.wide and (self.contiguous(m) or self._same(m)))]
        if apart:
            self._read_each(places, apart)
        self._each_of(places)
        self.known_before()
        for move in early:
            made = value_type(self.program.code[move.value].dtype)
            self.add(f"const {made} v{move.value} = early{move.value}[u];")
        known = {move.position for move in early}
        self.steps(p for p in positions if p not in known)
        for move in spilled:
            self._write(move)
        for position in sweep.reductions:
            self.join(position)
        self.close(before)
        if self.late:
            self._write_neighbours(places)
        self.late = ()

    def known_before(self) -> None:
        """Declares values that are known before the instructions at a position."""

    def _read_neighbours(self, places: Places, early: list[Move]) -> None:
        """Finds the first of four neighbours, and reads what lies side by side, or is the same for
        all."""
        before = self.depth
        self.add(f"int64_t {', '.join(f'first{d}' for d in places.dimensions)};")
        self.add(*(f"{self._side(move)} late{move.position};" for move in self.late))
        self.open("")
        self.add(f"int64_t rest = {places.first};")
        self.add(*(f"first{d} = {found};" for d, found in self._split(places.dimensions, "rest")))
        self.add(*(f"const int64_t i{d} = first{d};" for d in places.dimensions))
        for move in early:
            name, at = f"read{move.value}", ""
            if self.contiguous(move):
                at = ".at[u]"
                self.add(
                    f"const auto {name} = read_side(&{self._at(move)}, aligned{move.operand});"
                )
            elif self._same(move):
                self.add(f"const auto {name} = {self._at(move)};")
            else:
                continue
            self.add("#pragma unroll")
            value = f"{name}{at}{self._truth(move)}"
            self.add(f"for (int u = 0; u < {SIDE_BY_SIDE}; ++u) early{move.value}[u] = {value};")
        self.close(before)

    def _truth(self, move: Move) -> str:
        """How to make a value of the byte that a bool is in memory."""
        return " != 0" if self.program.operands[move.operand].dtype.kind == "b" else ""

    def _read_each(self, places: Places, moves: list[Move]) -> None:
        """Reads one element at a time."""
        before = self.depth
        self._each_of(places)
        for move in moves:
            self.add(f"early{move.value}[u] = {self._at(move)}{self._truth(move)};")
        self.close(before)

    def _write(self, move: Move) -> None:
        """Writes an element, or leaves it for `_write_neighbours`."""
        to = f"late{move.position}.at[u]" if move in self.late else self._at(move)
        self.add(f"{to} = {self.values.of(move.value)};")

    def _write_neighbours(self, places: Places) -> None:
        """Writes what the instructions have left."""
        before = self.depth
        self.open("")
        self.add(*(f"const int64_t i{d} = first{d};" for d in places.dimensions))
        for move in self.late:
            place = f"&{self._at(move)}"
            self.add(f"write_side({place}, late{move.position}, aligned{move.operand});")
        self.close(before)

    def _each_of(self, places: Places) -> None:
        """Opens the loop over some places, with the positions along their dimensions."""
        self.add("#pragma unroll")
        self.open(f"for (int u = 0; u < {SIDE_BY_SIDE}; ++u)")
        if self.wide:
            *others, last = places.dimensions
            self.add(*(f"const int64_t i{d} = first{d};" for d in others))
            self.add(f"const int64_t i{last} = first{last} + u;")
            return
        self.add(f"int64_t place = {places.first} + u * ({places.step});")
        self.add(f"if (place >= {places.limit}) continue;")
        self.coordinates(places.dimensions, "place")

    def step(self, position: int) -> None:
        left = [move for move in self.late if move.position == position != move.value]
        if left:
            self._write(left[0])
        else:
            super().step(position)


__all__ = ["HEAD", "SIDE_BY_SIDE", "VECTOR", "Move", "Places", "PlacesText"]

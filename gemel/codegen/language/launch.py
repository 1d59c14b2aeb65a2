"""Places, where values lie, and launches: programs with all that their kernels are given."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from gemel.codegen.language.program import Program
from gemel.dtype import DType, float64, int64
from gemel.extent import Dim, seen
from gemel.ir.layout import Layout
from gemel.ops.shape import reshaped_strides

#: From so many nanoseconds on, a step whose work all cores share gains nothing by running beside
#: others. These would take memory meanwhile, and room in the caches.
LONG = 200_000


class Place(NamedTuple):
    """Where a value lies: a buffer (any object), the dtype, and the layout within the buffer."""

    buffer: Any
    dtype: DType
    layout: Layout

    @property
    def shape(self) -> tuple[int, ...]:
        return self.layout.shape

    @property
    def strides(self) -> tuple[int, ...]:
        return self.layout.strides

    def at(self, layout: Layout) -> Place:
        """The same buffer with another layout."""
        return Place(self.buffer, self.dtype, layout)

    def narrow(self, axis: int, start: int, length: int) -> Place:
        """The elements start to start + length along an axis."""
        shape = (*self.shape[:axis], length, *self.shape[axis + 1 :])
        offset = self.layout.offset + start * self.strides[axis]
        return self.at(Layout(shape, self.strides, offset))

    def reshaped(self, shape: tuple[int, ...]) -> Place:
        """The same elements in another shape; that must be possible without a copy."""
        strides = reshaped_strides(self.layout, shape)
        assert strides is not None
        return self.at(Layout(shape, strides, self.layout.offset))


class Number(NamedTuple):
    """A value that is known as a number when the plan starts: its source and its dtype.

    `source` is ("constant", value), ("argument", position), ("seed",) or ("call", number).
    """

    source: tuple[Any, ...]
    dtype: DType

    def stands_for(self, other: Number) -> bool:
        """Whether the other number always equals this one; constants may be equal by chance."""
        return self.source[0] != "constant" and self == other

    @property
    def passed(self) -> DType:
        """The dtype in which a kernel gets it: float64 or int64."""
        return float64 if self.dtype.is_floating else int64

    @property
    def bits(self) -> int:
        """A constant as the 8 bytes that a kernel takes, read as an int64."""
        value = self.source[1]
        if self.passed is not float64:
            return value if isinstance(value, Dim) else int(value)
        bits: int = struct.unpack("<q", struct.pack("<d", float(value)))[0]
        return bits

    @property
    def run_time_source(self) -> int:
        """The source as the core encodes it: arguments from 0 up, -1 the seed, calls from -2
        down."""
        kind = self.source[0]
        if kind == "argument":
            return int(self.source[1])
        return -1 if kind == "seed" else -2 - int(self.source[1])


class Launch:
    """A step of a plan: a program, and everything that its kernel is given in this step.

    `places` has a Place or a whole block of memory for each buffer of the kernel; `written` says
    which of these it writes. `scalars` are pairs (position among the integers, number).
    `nanoseconds` is the time on one core. `failure` is what a failing check raises. `packs`: the
    step does nothing but copy its first place into panels. Whoever adds the launch to a plan sets
    `node`, the node of the graph that it is a step of, and `time`, its place in the plan's order.
    """

    node: Any = None
    time = -1
    failure: tuple[str, str] | None = None

    def __init__(
        self,
        program: Program,
        places: list[Any],
        written: list[bool],
        integers: list[int],
        tiles: tuple[int, int],
        numbers: Sequence[Number],
        nanoseconds: int,
        packs: bool = False,
    ) -> None:
        self.program = program
        self.places, self.written = places, written
        self.integers = integers
        self.extent, self.chunk = tiles
        self.scalars = [
            (program.first_scalar + i, number)
            for i, number in enumerate(numbers[: len(program.scalars)])
        ]
        self.nanoseconds, self.packs = nanoseconds, packs

    @property
    def fails(self) -> bool:
        """Whether it may find values that it cannot process."""
        return self.failure is not None

    @property
    def cost(self) -> int:
        """The time on one core in nanoseconds, for the sizes seen."""
        return seen(self.nanoseconds)

    @property
    def fills_cores(self) -> bool:
        """Whether all cores share its work, and it takes long, for the sizes seen."""
        return self.cost >= LONG and seen(self.extent) >= 2 * seen(self.chunk)

    def touches(self) -> Iterator[tuple[Any, bool]]:
        """The blocks of memory it uses, and whether it writes them."""
        for place, written in zip(self.places, self.written, strict=True):
            yield (place.buffer if isinstance(place, Place) else place).root, written


__all__ = ["Launch", "Number", "Place"]

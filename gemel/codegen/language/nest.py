"""Nests: loops over places in memory, recorded step by step and turned into a `Program`.

A `Nest` collects what one kernel loads, computes and stores, then drops and merges loops until only
few are left.
"""

from __future__ import annotations

from typing import Any

from gemel.codegen.language.carry import Carry
from gemel.codegen.language.channels import by_channel, interleaved_along
from gemel.codegen.language.lane import Lane, Recorded, Recorder
from gemel.codegen.language.launch import Launch, Number, Place
from gemel.codegen.language.order import (
    Loop,
    Strides,
    merged,
    ordered,
    place_class,
    stride_class,
    suits_inner,
)
from gemel.codegen.language.program import (
    ACROSS,
    BROADCAST,
    CHOOSING,
    FUNCTIONS,
    INDEX,
    INNER,
    INPUT,
    INTERLEAVED,
    OUTER,
    OUTPUT,
    STRIDED,
    Operand,
    Program,
    Schedule,
)
from gemel.codegen.language.slides import schedule_of
from gemel.dtype import DType, bool_, int64, uint64
from gemel.extent import Dim, maximum, minimum, same_for_all
from gemel.ir.position import At
from gemel.spec import product

#: The most elements of work in one tile: some tens of microseconds of simple arithmetic.
TILE = 1 << 16
#: A tile should take at least this many nanoseconds, so that a worker which is awake takes it. A
#: kernel has up to this many tiles for such workers: for no more tiles than that, the engine does
#: not wake sleeping workers (kFewTiles in src/engine/scheduler.h).
SHARE, SHARES = 3000, 4
#: Tiles along the vectorised dimension end at multiples of this, so that vectors are whole.
TILE_MULTIPLE = 64
#: If columns are reduced and this many elements come from memory, tiles end at multiples of this
#: instead: narrower ones read half as much per second (`strips`).
STRIP_MULTIPLE, FAR = 512, 1 << 22
#: Operands of the class ACROSS are transposed this many rows at a time.
SQUARE_ROWS = 16


class Nest:
    """A loop nest being written: `shape` is the domain, `reduced` its inner dimensions."""

    def __init__(self, shape: tuple[int, ...], reduced: frozenset[int] = frozenset()) -> None:
        self.shape = shape
        self.reduced = reduced
        self.recorder = Recorder()
        self.operands: list[tuple[Place | None, str, DType, Strides]] = []
        #: Operands that later reads of the same element must not share: the factors of a product,
        #: which vary along k and may be read from panels.
        self.apart: set[int] = set()
        self.numbers: list[Number] = []
        self.extras: list[int] = []
        #: Class and message of what a failing check raises, and the sizes that each `{}` in it
        #: stands for.
        self.failure: tuple[Any, ...] | None = None
        self.parallel = True

    # --- what a kernel touches --------------------------------------------------------------

    def operand(self, place: Place | None, strides: Strides | None, role: str = INPUT) -> int:
        """The number of an operand with these strides along the domain (default: the place's
        own)."""
        own, dtype = (place.strides, place.dtype) if place else ((), int64)
        made = (place, role, dtype, tuple(own if strides is None else strides))
        for number, known in enumerate(self.operands):
            alike = known[0] is place and known[1:] == made[1:]
            if role != OUTPUT and alike and number not in self.apart:
                return number
        self.operands.append(made)
        return len(self.operands) - 1

    def factor(self, place: Place, strides: Strides) -> Any:
        """The element of a place at the loop position, read through an operand of its own
        (`apart`)."""
        number = len(self.operands)
        self.apart.add(number)
        self.operands.append((place, INPUT, place.dtype, strides))
        return self.recorder.load(number, place.dtype)

    def load(self, place: Place, strides: Strides | None = None) -> Any:
        """The element of a place at the loop position."""
        return self.recorder.load(self.operand(place, strides), place.dtype)

    def load_where(self, place: Place, strides: Strides, conditions: tuple[Any, ...]) -> Any:
        """The element of a place at the loop position if all conditions hold, else 0."""
        return self.recorder.load_where(self.operand(place, strides), place.dtype, conditions)

    def running(self, strides: Strides) -> Any:
        """The sum of position x stride over the loops (int64)."""
        return self.recorder.load(self.operand(None, strides, INDEX), int64)

    def scalar(self, number: Number) -> Any:
        """A number given at run time, in its own dtype."""
        position = self._position(number)
        value = self.recorder.scalar(position, number.passed)
        return value.cast(bool_) if number.dtype is bool_ else value

    def _position(self, number: Number) -> int:
        """The position of a number among the kernel's scalars; it is added if it is new."""
        for position, known in enumerate(self.numbers):
            if known is number or known.stands_for(number):
                return position
        self.numbers.append(number)
        return len(self.numbers) - 1

    def extra(self, value: int) -> int:
        """The number of an integer that the kernel gets besides extents and strides."""
        self.extras.append(value)
        return len(self.extras) - 1

    def store(self, place: Place, value: Any, strides: Strides | None = None) -> None:
        """Writes a value to a place at the loop position."""
        self.recorder.store(self.operand(place, strides, OUTPUT), value.cast(place.dtype))

    def scan(self, kind: str, value: Any) -> Any:
        """The values at this and all earlier reduced positions, combined as by the reduction
        `kind`."""
        return self.recorder.scan(kind, value)

    # --- positions that depend on values ----------------------------------------------------

    def constant(self, value: Any) -> Any:
        """An int64 passed at run time, so that one kernel serves all values. A value that is one
        already stays as it is."""
        if isinstance(value, Recorded):
            return value
        return self.scalar(Number(("constant", value), int64))

    def number(self, at: At) -> Any:
        """A position as an int64."""
        value = self.running(at.steps)
        if not (type(at.offset) is int and at.offset == 0):
            value = value + self.constant(at.offset)
        return value + self.sum(at.values) if at.values else value

    def sum(self, values: tuple[tuple[Any, Any], ...]) -> Any:
        """The sum of values, each multiplied by a factor."""
        total = None
        for value, factor in values:
            once = type(factor) is int and factor == 1
            term = value if once else value * self.constant(factor)
            total = term if total is None else total + term
        return total

    def cast(self, value: Any, dtype: DType) -> Any:
        """The value in another dtype."""
        return value.cast(dtype)

    def limited(self, position: Any, extent: int) -> Any:
        """A position clipped to 0 <= position < extent, in int64. Unsigned positions that exceed
        int64 count as the last."""
        xp = Lane(self.recorder)
        if position.dtype is uint64:
            position = xp.minimum(position, 2**63 - 1)
        return xp.minimum(xp.maximum(position.cast(int64), 0), self.constant(extent - 1))

    def checked(self, position: Any, extent: int) -> Any:
        """A position; negative ones count from the end. The kernel fails if it is out of range.

        Unsigned positions that exceed int64 become negative by the cast, so they are out of range,
        too.
        """
        xp = Lane(self.recorder)
        size = self.constant(extent)
        signed = position.dtype.kind != "u"
        position = position.cast(int64)
        if signed:
            position = xp.where(position < 0, position + size, position)
        inside = xp.logical_and(position >= 0, position < size)
        self.recorder.check(inside)
        return xp.where(inside, position, 0)

    def inside(self, position: Any, extent: Any) -> Any:
        """Whether 0 <= position < extent, for an int64."""
        return position.cast(uint64) < self.constant(extent).cast(uint64)

    def gather(self, operand: int, position: Any, stride: int) -> Any:
        """The element of an operand at the loop position + position x stride."""
        dtype = self.operands[operand][2]
        return self.recorder.gather(operand, self.extra(stride), position, dtype)

    def target(self, place: Place, strides: Strides) -> int:
        """An output operand that `scatter_add` adds into."""
        return self.operand(place, strides, OUTPUT)

    def scatter_add(self, operand: int, position: Any, value: Any, stride: int) -> None:
        """Adds to the element of an operand at the loop position + position x stride."""
        self.recorder.scatter_add(operand, self.extra(stride), position, value)

    def empty(self, shape: tuple[int, ...]) -> Nest:
        """A nest of this shape without operands and instructions, for the same values."""
        found = Nest(shape)
        found.numbers, found.extras, found.parallel = self.numbers, self.extras, self.parallel
        return found

    # --- the program ------------------------------------------------------------------------

    def finish(self) -> Launch:
        """The launch. Drops loops of length 1, merges adjacent loops and chooses the vector's
        loop."""
        outer = self.needed([d for d in range(len(self.shape)) if d not in self.reduced])
        inner = self.needed(sorted(self.reduced))
        once = [(1, [0] * len(self.operands))]
        rows = self.merged(outer) or once
        if len(rows) > 1 and not inner:
            channels = by_channel(self, outer)
            if channels is not None:
                return channels.finish()
        columns = self.merged(inner)
        if not columns and self.has("reduce", "scan"):
            columns = once
        roles = [role for _, role, _, _ in self.operands]
        rows, columns = ordered(rows, columns, roles, fixed=self.counts_positions)
        last = bool(inner) and max(self.reduced) == max([*outer, *inner])
        alone = bool(inner) and product(row[0] for row in rows) == 1
        along_inner = not self.has("scan") and (
            alone or (last and suits_inner(rows, columns, roles))
        )
        loops = rows + columns
        vector = len(loops) - 1 if along_inner else len(rows) - 1
        across = len(rows) > 1 and not columns and not self.has(*CHOOSING, "scatter_add")
        above = rows[-2] if across else None
        interleaved = interleaved_along(self, loops[vector][1])
        flat = along_inner and len(columns) == 1
        operands = []
        for i, (place, role, dtype, _) in enumerate(self.operands):
            found = place_class(place, role, i, loops[vector], above)
            varies = any(strides[i] for _, strides in columns)
            beside = stride_class(rows[-1][1][i]) if flat else BROADCAST
            made = Operand(dtype, role, found, varies, beside=beside)
            if i in interleaved:
                made = made._replace(stride_class=INTERLEAVED, interleaved=interleaved[i])
            operands.append(made)
        scalars = tuple(number.passed for number in self.numbers)
        code = tuple(self.recorder.code)
        schedule = Schedule(INNER)
        if not along_inner:
            schedule = schedule_of(rows, columns, operands, code)
        loop_counts, extra = (len(rows), len(columns)), len(self.extras)
        program = Program(*loop_counts, schedule.text, tuple(operands), scalars, extra, code)
        integers = [extent for extent, _ in loops]
        for i in range(len(self.operands)):
            integers += [strides[i] for _, strides in loops]
        integers += self.extras
        return self._launch(program, rows, columns, integers)

    def needed(self, dimensions: list[int]) -> list[int]:
        """The dimensions that need loops: not those of length 1, and no others beside one without
        elements, around which they would run for nothing."""
        empty = [d for d in dimensions if same_for_all(self.shape[d], 0)]
        return empty[:1] or [d for d in dimensions if self.shape[d] != 1]

    def _launch(
        self, program: Program, rows: list[Loop], columns: list[Loop], integers: list[int]
    ) -> Launch:
        extent = rows[0][0]
        elements = product(row[0] for row in rows[1:]) * product(column[0] for column in columns)
        chunk = self._chunk(program, extent, elements)
        buffers = [(place, role) for place, role, _, _ in self.operands if place is not None]
        places = [place for place, _ in buffers]
        written = [role == OUTPUT for _, role in buffers]
        integers += [0] * len(self.numbers)
        nanoseconds = estimate(program, extent * maximum(elements, 1))
        given = places, written, integers, (extent, chunk), self.numbers
        launch = Launch(program, *given, nanoseconds)
        launch.failure = self.told(launch)
        return launch

    def _chunk(self, program: Program, extent: int, elements: int) -> int:
        """The length of a tile along the first dimension, each position of which has this many
        elements."""
        if not self.parallel:
            return maximum(extent, 1)
        cuts = 1
        if program.outer == 1 and program.vectors_along == OUTER:
            far = minimum(1, extent * elements // FAR) if program.inner == 1 else 0
            cuts = TILE_MULTIPLE + (STRIP_MULTIPLE - TILE_MULTIPLE) * far
        elif any(operand.stride_class == ACROSS for operand in program.operands):
            cuts = SQUARE_ROWS
        elements = maximum(elements, 1)
        chunk, share = maximum(1, TILE // elements), SHARE * 1000 // picoseconds(program)
        if share < TILE:
            parts = minimum(SHARES, maximum(1, extent * elements // share))
            chunk = minimum(chunk, -(-extent // parts))
        return -(-chunk // cuts) * cuts

    def told(self, launch: Launch) -> tuple[str, str] | None:
        """The class and the message of what a failing check raises. Each `{}` in the message
        becomes a size, or the position of the size among the kernel's integers if it is free."""
        if self.failure is None:
            return None
        name, message, *sizes = self.failure
        if not sizes:
            return name, message
        known = [*launch.integers]
        for position, number in launch.scalars:
            known[position] = number.source[1] if number.source[0] == "constant" else 0
        return name, message.format(*(_size(each, known) for each in sizes))

    def has(self, *names: str) -> bool:
        """Whether any instruction has one of these names."""
        return any(step.name in names for step in self.recorder.code)

    @property
    def counts_positions(self) -> bool:
        """Whether the order of the reduced loops matters: for a scan, and for argmax."""
        carries = (step.attribute for step in self.recorder.code if step.name == "reduce")
        return self.has("scan") or any(isinstance(c, Carry) and c.counts for c in carries)

    def merged(self, dimensions: list[int]) -> list[Loop]:
        """The loops along some dimensions."""
        running = [strides for _, _, _, strides in self.operands]
        return merged((self.shape[d], [strides[d] for strides in running]) for d in dimensions)


def _size(size: int, known: list[Any]) -> str:
    """A size in a message; if it is free, its position among a kernel's integers: `{3}`."""
    if not isinstance(size, Dim):
        return str(size)
    return f"{{{next(i for i, n in enumerate(known) if same_for_all(n, size))}}}"


#: Instructions that take many machine instructions.
HEAVY = frozenset((*FUNCTIONS, "power", "gather", "scatter_add", "scan", "divide"))


def estimate(program: Program, elements: int) -> int:
    """The nanoseconds that a program takes for `elements` on one core."""
    return 50 + elements * picoseconds(program) // 1000


def picoseconds(program: Program) -> int:
    """The picoseconds that an element takes."""
    heavy = sum(1 for step in program.code if step.name in HEAVY)
    moved = sum(o.dtype.itemsize for o in program.operands if o.role != INDEX)
    strided = sum(1 for o in program.operands if o.stride_class == STRIDED and o.role != INDEX)
    return 8 * moved + 8 * len(program.code) + 250 * heavy + 400 * strided

"""Nests: loops over places in memory, recorded step by step and turned into a `Program`.

A `Place` is where a value lies; a `Nest` collects what one kernel loads, computes and stores, then
drops and merges loops until few are left. `BodyWriter` writes a graph's body into a nest.
"""

from __future__ import annotations

from typing import Any

from gemel.codegen.lane import Lane, Recorder
from gemel.codegen.program import (
    BROADCAST,
    CONTIGUOUS,
    INDEX,
    INNER,
    INPUT,
    OUTER,
    OUTPUT,
    STRIDED,
    Operand,
    Program,
)
from gemel.dtype import BY_CODE, DType, bool_, float32, float64, int64
from gemel.errors import CompileError
from gemel.ir.graph import Entry, Graph
from gemel.ir.op import Elementwise, Reduction
from gemel.ops.shape import Layout, dense, dense_strides, reshaped_strides
from gemel.passes.domain import Domain, Placement
from gemel.passes.fuse import cheap
from gemel.spec import Spec, product

#: Elements of work in one tile: some tens of microseconds of simple arithmetic.
TILE = 1 << 16
#: Tiles along the vectorised dimension end at multiples of this, so that vectors stay whole.
TILE_MULTIPLE = 64


class Place:
    """Where a value lies: a buffer (any object), the dtype, and the layout within the buffer."""

    __slots__ = ("buffer", "dtype", "layout")

    def __init__(self, buffer: Any, dtype: DType, layout: Layout) -> None:
        self.buffer = buffer
        self.dtype = dtype
        self.layout = layout

    @property
    def shape(self) -> tuple[int, ...]:
        return self.layout.shape

    @property
    def strides(self) -> tuple[int, ...]:
        return self.layout.strides

    def at(self, layout: Layout) -> Place:
        """The same buffer seen through another layout."""
        return Place(self.buffer, self.dtype, layout)

    def narrow(self, axis: int, start: int, length: int) -> Place:
        """The elements start to start + length along an axis."""
        shape = (*self.shape[:axis], length, *self.shape[axis + 1 :])
        offset = self.layout.offset + start * self.strides[axis]
        return self.at(Layout(shape, self.strides, offset))

    def reshaped(self, shape: tuple[int, ...]) -> Place:
        """The same elements in another shape, which must need no copy."""
        strides = reshaped_strides(self.layout, shape)
        assert strides is not None
        return self.at(Layout(shape, strides, self.layout.offset))


class Number:
    """A value known as a number when the plan starts: where it comes from, and its dtype.

    `source` is ("constant", value), ("argument", position), ("seed",) or ("call", number).
    """

    __slots__ = ("dtype", "source")

    def __init__(self, source: tuple[Any, ...], dtype: DType) -> None:
        self.source = source
        self.dtype = dtype

    def stands_for(self, other: Number) -> bool:
        """Whether another number is always this one; constants may only happen to be equal."""
        same = self.source == other.source and self.dtype is other.dtype
        return same and self.source[0] != "constant"

    @property
    def passed(self) -> DType:
        """How it is handed to a kernel: as float64 or int64."""
        return float64 if self.dtype.is_floating else int64


class Kernel:
    """One kernel launch: the program, and everything it is given."""

    __slots__ = (
        "chunk",
        "extent",
        "failure",
        "integers",
        "microseconds",
        "places",
        "program",
        "scalars",
    )

    def __init__(
        self, program: Any, places: list[Any], integers: list[int], extent: int, chunk: int
    ) -> None:
        self.program = program
        self.places = places  # (Place or buffer, offset in bytes) per buffer of the kernel
        self.integers = integers
        self.extent = extent
        self.chunk = chunk
        self.scalars: list[
            tuple[int, Number]
        ] = []  # (position among the integers, what goes there)
        self.failure: tuple[str, str] | None = None
        self.microseconds = 0.0


class Nest:
    """A loop nest being written: `shape` is the domain, `reduced` its inner dimensions."""

    def __init__(self, shape: tuple[int, ...], reduced: frozenset[int] = frozenset()) -> None:
        self.shape = shape
        self.reduced = reduced
        self.recorder = Recorder()
        self.operands: list[tuple[Place | None, str, DType, tuple[int, ...]]] = []
        self.numbers: list[Number] = []
        self.extras: list[int] = []
        self.failure: tuple[str, str] | None = None
        self.parallel = True

    # --- what a kernel touches --------------------------------------------------------------

    def operand(
        self,
        place: Place | None,
        strides: tuple[int, ...],
        role: str = INPUT,
        dtype: DType | None = None,
    ) -> int:
        """The number of an operand with these strides along the domain's dimensions."""
        dtype = dtype or (place.dtype if place else int64)
        for number, (other, kind, _, running) in enumerate(self.operands):
            if kind == role == INPUT and other is place and running == tuple(strides):
                return number
        self.operands.append((place, role, dtype, tuple(strides)))
        return len(self.operands) - 1

    def load(self, place: Place, strides: tuple[int, ...] | None = None) -> Any:
        """The element of a place at the loop position."""
        number = self.operand(place, place.strides if strides is None else strides)
        return self.recorder.load(number, place.dtype)

    def running(self, strides: tuple[int, ...]) -> Any:
        """The sum of position x stride over the loops, int64."""
        for number, (_, kind, _, known) in enumerate(self.operands):
            if kind == INDEX and known == tuple(strides):
                return self.recorder.load(number, int64)
        return self.recorder.load(self.operand(None, strides, INDEX, int64), int64)

    def scalar(self, number: Number) -> Any:
        """A number given at run time, in its own dtype."""
        position = self._position(number)
        value = self.recorder.scalar(position, number.passed)
        return value.cast(bool_) if number.dtype is bool_ else value

    def _position(self, number: Number) -> int:
        """Which scalar of the kernel a number is: one known already, or a new one."""
        for position, known in enumerate(self.numbers):
            if known is number or known.stands_for(number):
                return position
        self.numbers.append(number)
        return len(self.numbers) - 1

    def extra(self, value: int) -> int:
        """The number of an integer handed to the kernel besides extents and strides."""
        self.extras.append(value)
        return len(self.extras) - 1

    def store(self, place: Place, value: Any, strides: tuple[int, ...] | None = None) -> None:
        """Write a value to a place at the loop position."""
        number = self.operand(place, place.strides if strides is None else strides, OUTPUT)
        self.recorder.store(number, value.cast(place.dtype))

    # --- positions that depend on values ----------------------------------------------------

    def constant(self, value: int) -> Any:
        """An int64 handed over at run time, so that the kernel serves any value."""
        return self.scalar(Number(("constant", int(value)), int64))

    def cast(self, value: Any, dtype: DType) -> Any:
        """The value in another dtype."""
        return value.cast(dtype)

    def limited(self, position: Any, extent: int) -> Any:
        """A position clipped to 0 <= position < extent."""
        xp = Lane(self.recorder)
        return xp.minimum(xp.maximum(position, 0), self.constant(extent - 1))

    def checked(self, position: Any, extent: int) -> Any:
        """A position, negative ones counted from the end; out of range fails the kernel."""
        xp = Lane(self.recorder)
        size = self.constant(extent)
        position = position.cast(int64)
        position = xp.where(position < 0, position + size, position)
        inside = xp.logical_and(position >= 0, position < size)
        self.recorder.check(inside)
        return xp.where(inside, position, 0)

    def gather(self, operand: int, position: Any, stride: int) -> Any:
        """The element of an operand at the loop position + position x stride."""
        dtype = self.operands[operand][2]
        return self.recorder.gather(operand, self.extra(stride), position, dtype)

    def target(self, place: Place, strides: tuple[int, ...]) -> int:
        """An output operand that `scatter_add` adds into."""
        return self.operand(place, strides, OUTPUT)

    def scatter_add(self, operand: int, position: Any, value: Any, stride: int) -> None:
        """Add to the element of an operand at the loop position + position x stride."""
        self.recorder.scatter_add(operand, self.extra(stride), position, value)

    # --- the program ------------------------------------------------------------------------

    def finish(self) -> Kernel:
        """The kernel: loops of length 1 dropped, adjacent ones merged, the vector's loop chosen."""
        outer = [d for d, n in enumerate(self.shape) if d not in self.reduced and n != 1]
        inner = [d for d, n in enumerate(self.shape) if d in self.reduced and n != 1]
        rows = self._merged(outer) or [self._unit()]
        columns = self._merged(inner) or [self._unit()] * self._reduces()
        along_inner = bool(inner) and (
            product(row[0] for row in rows) == 1 or max(self.reduced) == max([*outer, *inner])
        )
        loops = rows + columns
        vector = len(loops) - 1 if along_inner else len(rows) - 1
        operands = tuple(
            Operand(dtype, role, stride_class(loops[vector][1][i]), any(c[1][i] for c in columns))
            for i, (_, role, dtype, _) in enumerate(self.operands)
        )
        scalars = tuple(number.passed for number in self.numbers)
        code = tuple(self.recorder.code)
        lanes = INNER if along_inner else OUTER
        program = Program(len(rows), len(columns), lanes, operands, scalars, len(self.extras), code)
        integers = [extent for extent, _ in loops]
        for i in range(len(self.operands)):
            integers += [strides[i] for _, strides in loops]
        integers += self.extras
        return self._kernel(program, rows, columns, integers)

    def _kernel(
        self, program: Program, rows: list[Any], columns: list[Any], integers: list[int]
    ) -> Kernel:
        extent = rows[0][0]
        work = product(row[0] for row in rows[1:]) * product(column[0] for column in columns)
        chunk = max(1, TILE // max(work, 1))
        if len(rows) == 1 and program.lanes == OUTER:
            chunk = -(-chunk // TILE_MULTIPLE) * TILE_MULTIPLE
        if not self.parallel:
            chunk = max(extent, 1)
        places = [(place, 0) for place, _, _, _ in self.operands if place is not None]
        kernel = Kernel(program, places, integers, extent, chunk)
        kernel.scalars = [(len(integers) + i, number) for i, number in enumerate(self.numbers)]
        integers += [0] * len(self.numbers)
        kernel.failure = self.failure
        kernel.microseconds = estimate(program, extent * max(work, 1))
        return kernel

    def _reduces(self) -> bool:
        """Whether anything is reduced, be it along loops of length 1."""
        return any(step.name == "reduce" for step in self.recorder.code)

    def _unit(self) -> tuple[int, list[int]]:
        return 1, [0] * len(self.operands)

    def _merged(self, dimensions: list[int]) -> list[tuple[int, list[int]]]:
        """(extent, stride per operand) of each loop, those that run on without a gap merged."""
        loops: list[tuple[int, list[int]]] = []
        for d in dimensions:
            extent = self.shape[d]
            strides = [running[d] for _, _, _, running in self.operands]
            if loops and all(s == t * extent for s, t in zip(loops[-1][1], strides, strict=True)):
                extent *= loops.pop()[0]
            loops.append((extent, strides))
        return loops


def stride_class(stride: int) -> int:
    """The class of a stride along the vector."""
    return BROADCAST if stride == 0 else CONTIGUOUS if stride == 1 else STRIDED


#: Instructions that take many machine instructions.
HEAVY = frozenset(
    (
        "exp",
        "log",
        "tanh",
        "sin",
        "cos",
        "erf",
        "expm1",
        "log1p",
        "power",
        "gather",
        "scatter_add",
        "divide",
    )
)


def estimate(program: Program, elements: int) -> float:
    """Microseconds a program takes on `elements`, on one core."""
    heavy = sum(1 for step in program.code if step.name in HEAVY)
    moved = sum(o.dtype.itemsize for o in program.operands if o.role != INDEX)
    strided = sum(1 for o in program.operands if o.stride == STRIDED and o.role != INDEX)
    nanoseconds = 0.008 * moved + 0.008 * len(program.code) + 0.25 * heavy + 0.4 * strided
    return 0.05 + elements * nanoseconds / 1000


def compute_dtype(dtype: DType) -> DType:
    """The dtype arithmetic is done in: float16 is only a way to keep numbers."""
    return float32 if dtype.itemsize == 2 and dtype.is_floating else dtype


class BodyWriter:
    """Writes the body of a fused node into a nest (or anything that loads and stores like one).

    `given` says where the body's inputs are, a `Place` or a `Number`; `ready` holds values that are
    there already (a product's accumulator).
    """

    def __init__(self, nest: Any, domain: Domain, given: dict[Entry, Any]) -> None:
        self.nest = nest
        self.domain = domain
        self.given = given
        self.values: dict[tuple[Entry, Placement], Any] = {}
        self.ready: dict[Entry, Any] = {}

    def value(self, entry: Entry, placement: Placement) -> Any:
        """The recorded value of an entry whose axes run along these dimensions."""
        if entry in self.ready:
            return self.ready[entry]
        placement = self.domain.placements.get(entry, placement)
        key = (entry, placement)
        if key not in self.values:
            self.values[key] = self._written(entry, placement)
        return self.values[key]

    def strides(self, place: Place, placement: Placement) -> tuple[int, ...]:
        """A place's strides along the domain's dimensions."""
        return spread(place.shape, place.strides, placement, len(self.domain.shape))

    def _written(self, entry: Entry, placement: Placement) -> Any:
        node = entry.node
        if node.is_number:
            return self.nest.scalar(Number(("constant", node.value), entry.dtype))
        if node.op is None:
            where = self.given[entry]
            if isinstance(where, Number):
                return self.nest.scalar(where)
            return self.nest.load(where, self.strides(where, placement))
        if isinstance(node.op, Elementwise):
            return self._elementwise(entry, placement)
        source = node.inputs[0]
        if isinstance(node.op, Reduction):
            value = self.value(source, tuple(range(len(self.domain.shape))))
            return self._reduced(node.op, value, source.dtype).cast(compute_dtype(entry.dtype))
        return self.value(source, aligned(placement, source))

    def _reduced(self, op: Reduction, value: Any, dtype: DType) -> Any:
        """A value combined over the reduced dimensions; itself when they all have length 1."""
        value = value.cast(op.accumulator(compute_dtype(dtype)))
        if self.domain.reduced:
            return self.nest.recorder.reduce(op.combine, value)
        if op.combine.startswith("arg"):
            return Lane(self.nest.recorder).constant(0, int64)
        return value

    def _elementwise(self, entry: Entry, placement: Placement) -> Any:
        node = entry.node
        op = node.op
        assert isinstance(op, Elementwise)
        types, _ = op.types(tuple(e.spec for e in node.inputs), node.params)
        values = [
            self.value(e, aligned(placement, e)).cast(compute_dtype(d))
            for e, d in zip(node.inputs, types, strict=True)
        ]
        lane = self._lane(entry, placement)
        parameters = node.params
        found = op.body(lane, *values, **parameters)
        result = lane.value(found) if not hasattr(found, "dtype") else found
        # Rounded to float16 between steps, as separate kernels would.
        stored = result.cast(entry.dtype)
        return stored.cast(compute_dtype(entry.dtype))

    def _lane(self, entry: Entry, placement: Placement) -> Lane:
        shape, ndim = entry.shape, len(self.domain.shape)
        unit = [1] * len(shape)

        def index(axis: int) -> Any:
            one = tuple(1 if a == axis else 0 for a in range(len(shape)))
            return self.nest.running(spread(shape, one, placement, ndim))

        op = entry.node.op
        if op is None or not op.random:
            return Lane(self.nest.recorder, index=index)
        linear = spread(shape, dense_strides(shape) or tuple(unit), placement, ndim)
        call = entry.node.params["call"]
        random = (
            self.nest.running(linear),
            self.nest.scalar(Number(("seed",), int64)),
            self.nest.scalar(Number(("call", call), int64)),
        )
        return Lane(self.nest.recorder, random=random, index=index)


def spread(
    shape: tuple[int, ...], strides: tuple[int, ...], placement: Placement, ndim: int
) -> tuple[int, ...]:
    """Strides by axis as strides by dimension of the domain: 0 where the value does not run."""
    found = [0] * ndim
    for extent, stride, dimension in zip(shape, strides, placement, strict=True):
        if dimension is not None and extent != 1:
            found[dimension] += stride
    return tuple(found)


def aligned(placement: Placement, entry: Entry) -> Placement:
    """The placement of an input, lined up from the right with its user's."""
    lead = len(placement) - entry.ndim
    return placement[lead:] if lead >= 0 else (*[None] * -lead, *placement)


def write_loops(body: Graph, given: dict[Entry, Any], outputs: list[Place]) -> Kernel:
    """The kernel of a fused body of elementwise operations and reductions."""
    results = set(body.outputs)
    nodes = [
        n for n in body.walk() if n.op is not None and (not cheap(n) or n.entries[0] in results)
    ]
    domain = Domain.of_all(nodes)
    if domain is None:
        raise CompileError(f"the steps of {body.name} do not fit the same loops:\n{body}")
    nest = Nest(domain.shape, domain.reduced or frozenset())
    writer = BodyWriter(nest, domain, given)
    for entry, place in zip(body.outputs, outputs, strict=True):
        placement = domain.placements[entry]
        nest.store(place, writer.value(entry, placement), writer.strides(place, placement))
    return nest.finish()


def write_elementwise(
    op: Elementwise,
    rank: int,
    operands: tuple[tuple[int, int], ...],
    parameters: dict[str, Any],
    target: tuple[DType, int] | None = None,
) -> tuple[Program, DType]:
    """The program of one elementwise call as the core makes it: arrays, then the result."""
    weak = {-1: bool_, -2: int64, -3: float32}
    specs = tuple(
        Spec((), weak[code], weak=True) if code < 0 else Spec((2,) * rank, BY_CODE[code])
        for code, _ in operands
    )
    types, dtype = op.types(specs, parameters)
    recorder = Recorder()
    described: list[Operand] = []
    scalars: list[DType] = []
    values = []
    for (code, stride), compute in zip(operands, types, strict=True):
        if code < 0:
            passed = float64 if code == -3 else int64
            scalars.append(passed)
            value = recorder.scalar(len(scalars) - 1, passed)
        else:
            described.append(Operand(BY_CODE[code], INPUT, stride))
            value = recorder.load(len(described) - 1, BY_CODE[code])
        values.append(value.cast(compute_dtype(compute)))
    lane = Lane(recorder)
    found = op.body(lane, *values, **parameters)
    stored, stride = target or (dtype, CONTIGUOUS)
    described.append(Operand(stored, OUTPUT, stride))
    result = found if hasattr(found, "position") else lane.value(found)
    recorder.store(len(described) - 1, result.cast(dtype).cast(stored))
    program = Program(rank, 0, OUTER, tuple(described), tuple(scalars), 0, tuple(recorder.code))
    return program, stored


__all__ = [
    "BodyWriter",
    "Kernel",
    "Nest",
    "Number",
    "Place",
    "dense",
    "write_elementwise",
    "write_loops",
]

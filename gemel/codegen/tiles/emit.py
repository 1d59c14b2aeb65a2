"""What all kernels that work in tiles share: common instructions, and the position of a tile."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from gemel.codegen.language.program import INDEX, ROWS, TILES, Program
from gemel.codegen.llvm import memory
from gemel.codegen.llvm.access import Bases
from gemel.codegen.llvm.assembly import I32, I64, Builder, Constant, Module, Value, zeros
from gemel.codegen.llvm.registers import register_type, shuffle_mask, splat
from gemel.codegen.loops.frame import Frame, i64
from gemel.codegen.target import Target
from gemel.dtype import DType
from gemel.errors import CompileError

#: The first row (or column) of a range, and the number of rows.
Range = tuple[Value, Value]


class Elements:
    """Elements of one dtype in memory; a vector has `lanes` of them."""

    builder: Builder
    dtype: DType
    lanes: int

    @property
    def per_cache_line(self) -> int:
        """How many of them a cache line holds."""
        return memory.CACHE_LINE // self.dtype.itemsize

    def at(self, pointer: Value, index: Value | int) -> Value:
        """The address of element `index` after `pointer`."""
        where = i64(index) if isinstance(index, int) else index
        return memory.element(self.builder, pointer, where, self.dtype)

    def load(self, pointer: Value, lanes: int | None = None, mask: Value | None = None) -> Value:
        """Reads `lanes` elements, a whole vector by default; those that the mask excludes are 0."""
        return self.converted(self.stored(pointer, lanes, mask))

    def converted(self, value: Value) -> Value:
        """The value computed from elements that have been read: here the elements themselves."""
        return value

    def stored(
        self,
        pointer: Value,
        lanes: int | None = None,
        mask: Value | None = None,
        other: Value | None = None,
    ) -> Value:
        """As `load`, without conversion; lanes that the mask excludes come from `other`."""
        return memory.load(self.builder, pointer, self.dtype, lanes or self.lanes, mask, other)

    def store(self, value: Value, pointer: Value, mask: Value | None = None) -> None:
        """Writes a value of any number of lanes."""
        memory.store(self.builder, value, pointer, self.dtype, value.type.lanes, mask)


class TiledKernel(Frame, Elements):
    """A kernel under construction that works tile by tile, in the program's `tile_order`. As
    `Elements` it stands for elements of the dtype it computes in."""

    def __init__(self, program: Program, target: Target, dtype: DType) -> None:
        """`dtype`: the dtype of the computation. Raises `CompileError`."""
        super().__init__(program, target)
        if dtype.kind not in "fiu" or dtype.compute is not dtype:
            raise CompileError(f"no tiles are of {dtype}\n{program.text}")
        self.dtype = dtype
        self.lanes = target.width // dtype.itemsize
        self.vector = register_type(dtype, self.lanes)
        in_memory = (operand.dtype for operand in program.operands if operand.role != INDEX)
        #: Whether loads and stores of all operands can be masked.
        self.has_masks = target.has_masks_for(in_memory)
        #: The operands' addresses.
        self.bases = self.enter()
        extents, outer = self.extents, program.outer
        self.m = extents[ROWS]
        self.n = reduce(self.builder.mul, extents[ROWS + 1 : outer])
        # A copy into panels reduces nothing: its loops are lines and k, so k takes the place of a
        # result's columns.
        self.k = reduce(self.builder.mul, extents[outer:]) if program.inner else self.n
        #: The integers of `TILES`, by name.
        self.values = dict(zip(TILES, self.access.extra[-len(TILES) :], strict=True))

    def build(self) -> Module:
        """Prints the function and returns its module."""
        found = {"rows": self.values["m_tiles"], "columns": self.values["n_tiles"]}
        found |= {"inner": self.extents[1], "outer": self.extents[0]}
        counts = {name: found[name] for name in self.program.tile_order}
        first, rest = [], self.begin
        for count in counts.values():
            rest, digit = self.divide(rest, count)
            first.append(digit)

        def body(tile: Value, coordinates: list[Value]) -> list[Value]:
            self._tile(tile, dict(zip(counts, coordinates, strict=True)))
            return self._next(coordinates, [*counts.values()])

        self.loop(self.begin, self.end, 1, first, body)
        self.builder.ret(self.access.result())
        return self.module

    def _tile(self, tile: Value, coordinates: dict[str, Value]) -> None:
        builder, values = self.builder, self.values
        bases = self.advance(
            self.advance(self.bases, 0, coordinates["outer"]), 1, coordinates["inner"]
        )
        row = builder.mul(coordinates["rows"], values["m_block"])
        column = builder.mul(coordinates["columns"], values["n_block"])
        self.fill(tile, bases, (row, self.remaining(self.m, row, values["m_block"])), column)

    def _next(self, coordinates: list[Value], counts: list[Value]) -> list[Value]:
        """The next tile's indices; the last index changes slowest. Dividing again would be
        slower."""
        builder, more = self.builder, i64(1)
        found = []
        for number, count in zip(coordinates, counts, strict=True):
            after = builder.add(number, more)
            full = builder.icmp_signed("==", after, count)
            found.append(builder.select(full, i64(0), after))
            more = builder.zext(full, I64)
        return found

    def fill(self, tile: Value, bases: Bases, rows: Range, column: Value) -> None:
        """Computes the rows of a tile from a column on; `bases` are the operands of its batch."""
        raise NotImplementedError

    def remaining(self, total: Value, first: Value, most: Value | int) -> Value:
        """How many of `total` remain from `first` on, but at most `most`."""
        bound = i64(most) if isinstance(most, int) else most
        return self.builder.minimum(self.builder.sub(total, first), bound)

    def reserve(self, elements: int) -> Value:
        """Reserves memory on the stack, aligned to a vector; to be called at the kernel's start."""
        return memory.room(self.builder, self.dtype, elements)

    def stride(self, operand: int, dimension: int) -> Value:
        """An operand's stride along a dimension."""
        return self.access.strides[operand, dimension]

    # -- values -----------------------------------------------------------------------------

    def divide(self, a: Value, b: Value) -> tuple[Value, Value]:
        """Quotient and remainder."""
        quotient = self.builder.udiv(a, b)
        return quotient, self.builder.sub(a, self.builder.mul(quotient, b))

    def maximum(self, a: Value, b: Value) -> Value:
        """The larger of two signed integers."""
        return self.builder.select(self.builder.icmp_signed(">", a, b), a, b)

    def splat(self, value: Value) -> Value:
        """`value` in every lane."""
        return splat(self.builder, value, self.lanes)

    def shuffle(self, a: Value, b: Value, lanes: Sequence[int]) -> Value:
        """These lanes of `a` followed by `b`."""
        if len(lanes) > 1:
            return self.builder.shuffle_vector(a, b, shuffle_mask(tuple(lanes)))
        further, lane = divmod(lanes[0], a.type.lanes)
        return self.builder.extract_element(b if further else a, i64(lane))

    def insert(self, vector: Value | None, value: Value, lane: int) -> Value:
        """A vector with `value` in one lane; without a vector the other lanes are 0."""
        whole = zeros(self.vector) if vector is None else vector
        return self.builder.insert_element(whole, value, Constant(I32, lane))

    # -- memory -----------------------------------------------------------------------------

    def mask(self, count: Value, lanes: int | None = None) -> Value:
        """The mask of the first `count` of `lanes` lanes, by default the lanes of a vector."""
        return self.first_lanes(count, lanes or self.lanes)

    def between(self, low: Value, high: Value) -> Value:
        """True in the lanes from `low` up to but not including `high`."""
        builder, order = self.builder, memory.lane_numbers(self.lanes, I32)

        def bound(value: Value) -> Value:
            inside = builder.minimum(self.maximum(value, i64(0)), i64(self.lanes))
            return self.splat(builder.trunc(inside, I32))

        above = builder.icmp_signed(">=", order, bound(low))
        return builder.and_(above, builder.icmp_signed("<", order, bound(high)))

    def masks(self, count: Value, vectors: int, lanes: int) -> list[Value | None]:
        """Which lanes of each of several vectors are among the first `count`; None for each vector
        on targets without masks."""
        if not self.has_masks:
            return [None] * vectors
        starts = (self.builder.sub(count, i64(v * lanes)) for v in range(vectors))
        return [self.mask(start, lanes) for start in starts]


class Reader(Elements):
    """An operand where it lies. From each element that is read, the value of the instruction `made`
    is computed, unless that is None."""

    def __init__(self, kernel: TiledKernel, number: int, made: int | None) -> None:
        code = kernel.program.code
        self.kernel = kernel
        self.builder, self.lanes = kernel.builder, kernel.lanes
        self.dtype = kernel.program.operands[number].dtype
        self.read = next(
            p for p, step in enumerate(code) if step.name == "load" and step.operand == number
        )
        self.made = self.read if made is None else made
        self.steps = sorted(kernel.analysis.closure([self.made], known=self.read))

    def gather(self, pointer: Value, offsets: Value) -> Value:
        """A vector of elements at these offsets from `pointer`."""
        kernel = self.kernel
        native = kernel.target.masks
        found = memory.Scattered(kernel.builder, pointer, offsets, self.dtype, None, native).load()
        return self.converted(found)

    def converted(self, value: Value) -> Value:
        """The value computed from elements that have been read."""
        if not self.steps:
            return value
        kernel = self.kernel
        given = {**kernel.fixed, self.read: value}
        printer = kernel.access.printer(value.type.lanes)
        return printer.emit(kernel.program.code, given=given, only=self.steps)[self.made]


def sum_position(program: Program) -> int:
    """The position of the sum of a program in tiles. Raises `CompileError` if there is none."""
    for position, step in enumerate(program.code):
        if step.name == "reduce" and step.attribute == "sum":
            return position
    raise CompileError(f"only sums are done in tiles\n{program.text}")

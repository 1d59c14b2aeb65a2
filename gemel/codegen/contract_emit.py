"""What the kernels done in tiles share: their words, where a tile is, and what follows on a sum.

Nothing here knows how a product is tiled; `contract_gemm`, `contract_dot` and `contract_pack` do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce

from gemel.codegen import memory
from gemel.codegen.access import Bases, Site
from gemel.codegen.assembly import I32, Builder, Constant, Module, Value
from gemel.codegen.frame import Frame, i64
from gemel.codegen.program import CONTIGUOUS, INPUT, ROWS, Program
from gemel.codegen.registers import register_type, shuffle_mask, splat
from gemel.codegen.target import Target
from gemel.dtype import DType
from gemel.errors import CompileError

#: The first of some rows or columns, and how many there are.
Range = tuple[Value, Value]

#: What follows is written out for every vector of a micro-tile up to this many instructions.
MOST_REPEATED = 200
#: Instructions that are about one machine instruction each.
CHEAP = frozenset(
    ("load", "scalar", "constant", "store", "cast", "select", "negative", "absolute")
    + ("add", "subtract", "multiply", "maximum", "minimum", "equal", "not_equal")
    + ("less", "less_equal", "greater", "greater_equal")
)


class Elements:
    """Elements of one dtype in memory, `lanes` of which are a vector."""

    builder: Builder
    dtype: DType
    lanes: int

    def at(self, pointer: Value, index: Value | int) -> Value:
        """Address of element `index` of what `pointer` points to."""
        where = i64(index) if isinstance(index, int) else index
        return memory.element(self.builder, pointer, where, self.dtype)

    def load(self, pointer: Value, lanes: int | None = None, mask: Value | None = None) -> Value:
        """`lanes` elements, a whole vector by default; of 0 where the mask says no."""
        return self.converted(self.kept(pointer, lanes, mask))

    def converted(self, value: Value) -> Value:
        """What is made of elements that have been read: nothing but these."""
        return value

    def kept(
        self,
        pointer: Value,
        lanes: int | None = None,
        mask: Value | None = None,
        other: Value | None = None,
    ) -> Value:
        """As `load`, but as they are kept; `other` where the mask says no."""
        return memory.load(self.builder, pointer, self.dtype, lanes or self.lanes, mask, other)

    def store(self, value: Value, pointer: Value, mask: Value | None = None) -> None:
        """Writes a value, of as many lanes as it has."""
        memory.store(self.builder, value, pointer, self.dtype, value.type.lanes, mask)


class Emitter(Frame, Elements):
    """A kernel under construction, and memory of its own; all is about the dtype its first operand
    is computed in, `lanes` at a time."""

    def __init__(self, program: Program, target: Target, dtype: DType) -> None:
        """`dtype`: what is computed in. Raises `CompileError`."""
        super().__init__(program, target)
        if dtype.kind not in "fiu" or dtype.compute is not dtype:
            raise CompileError(f"no tiles are of {dtype}\n{program.text}")
        self.dtype = dtype
        self.lanes = target.width // dtype.itemsize
        self.vector = register_type(dtype, self.lanes)
        #: Where the operands are.
        self.bases = self.enter()

    def reserve(self, elements: int) -> Value:
        """So many elements on the stack, aligned to a vector; to be asked for at the start."""
        return memory.room(self.builder, self.dtype, elements)

    @property
    def has_masks(self) -> bool:
        """Whether loads and stores take a mask at no cost, whatever their element type."""
        return self.target.small_masks

    def stride(self, operand: int, dimension: int) -> Value:
        """An operand's stride along a dimension."""
        return self.access.strides[operand, dimension]

    # -- values -----------------------------------------------------------------------------

    def product(self, values: Sequence[Value]) -> Value:
        """All values multiplied."""
        return reduce(self.builder.mul, values)

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
        """The named lanes of `a` followed by `b`."""
        if len(lanes) > 1:
            return self.builder.shuffle_vector(a, b, shuffle_mask(tuple(lanes)))
        further, lane = divmod(lanes[0], a.type.lanes)
        return self.builder.extract_element(b if further else a, i64(lane))

    def insert(self, vector: Value | None, value: Value, lane: int) -> Value:
        """`value` in one lane of a vector; of one whose other lanes are 0, where there is none."""
        whole = Constant(self.vector, "zeroinitializer") if vector is None else vector
        return self.builder.insert_element(whole, value, Constant(I32, lane))

    def multiply_add(self, a: Value, b: Value, c: Value) -> Value:
        """``a * b + c``, rounded once where the machine can."""
        if not self.target.fma:
            return self.builder.fadd(self.builder.fmul(a, b), c)
        return self.builder.intrinsic(f"llvm.fma.{a.type.suffix}", a.type, [a, b, c])

    # -- memory -----------------------------------------------------------------------------

    def mask(self, count: Value, lanes: int | None = None) -> Value:
        """True in the first `count` lanes, of as many as a vector has by default."""
        return memory.first(self.builder, count, lanes or self.lanes)

    def masks(self, count: Value, vectors: int, lanes: int) -> list[Value | None]:
        """Which lanes of each of some vectors are among the first `count`; None for all of them,
        where the machine has no masks."""
        if not self.has_masks:
            return [None] * vectors
        starts = (self.builder.sub(count, i64(v * lanes)) for v in range(vectors))
        return [self.mask(start, lanes) for start in starts]

    def finish(self, tile: Callable[[Value], object]) -> Module:
        """Does each tile of the range, and closes the function."""
        self.each(self.begin, self.end, 1, tile)
        self.builder.ret(self.access.result())
        return self.module


class Reader(Elements):
    """An operand where it lies; of each element that is read the value at `made` is computed."""

    def __init__(self, emitter: Emitter, number: int, made: int) -> None:
        code = emitter.program.code
        self.emitter = emitter
        self.builder, self.lanes = emitter.builder, emitter.lanes
        self.dtype = emitter.program.operands[number].dtype
        self.made = made
        self.read = next(
            p for p, step in enumerate(code) if step.name == "load" and step.attribute == number
        )
        self.steps = sorted(emitter.analysis.closure([made], known=self.read))

    def gather(self, pointer: Value, offsets: Value) -> Value:
        """A vector of the elements so many elements after `pointer`, from anywhere."""
        emitter = self.emitter
        native = emitter.target.masks
        found = memory.load_scattered(emitter.builder, pointer, offsets, self.dtype, None, native)
        return self.converted(found)

    def converted(self, value: Value) -> Value:
        """What is made of what was read."""
        if not self.steps:
            return value
        emitter = self.emitter
        given = {**emitter.fixed, self.read: value}
        printer = emitter.access.printer(value.type.lanes)
        return printer.emit(emitter.program.code, given=given, only=self.steps)[self.made]


def sum_position(program: Program) -> int:
    """Where the sum of a program in tiles stands. Raises `CompileError` where there is none."""
    for position, step in enumerate(program.code):
        if step.name == "reduce" and step.attribute == "sum":
            return position
    raise CompileError(f"only sums are done in tiles\n{program.text}")


class Tiles:
    """Where tiles are: batch after batch, and in each down the rows, then along the columns."""

    def __init__(self, emitter: Emitter) -> None:
        program, extents = emitter.program, emitter.extents
        self.emitter = emitter
        self.batch, self.m = extents[1], extents[ROWS]
        self.n = emitter.product(extents[ROWS + 1 : program.outer])
        self.k = emitter.product(extents[program.outer :]) if program.inner else self.n
        self.values = emitter.tiles()

    def enter(self, tile: Value) -> tuple[Bases, Value, Value]:
        """Where the operands are in the tile's batch, and the first row and column."""
        emitter, builder, values = self.emitter, self.emitter.builder, self.values
        batch, rest = emitter.divide(tile, builder.mul(values["m_tiles"], values["n_tiles"]))
        n_tile, m_tile = emitter.divide(rest, values["m_tiles"])
        bases = emitter.bases
        for dimension, index in enumerate(emitter.divide(batch, self.batch)):
            bases = emitter.advance(bases, dimension, index)
        row = builder.mul(m_tile, values["m_block"])
        return bases, row, builder.mul(n_tile, values["n_block"])

    def left(self, total: Value, first: Value, most: Value | int) -> Value:
        """How many of at most `most` remain of `total` from `first` on."""
        bound = i64(most) if isinstance(most, int) else most
        return self.emitter.builder.minimum(self.emitter.builder.sub(total, first), bound)


class Epilogue:
    """What a program does with its finished sums, a block of them at a time."""

    def __init__(self, emitter: Emitter) -> None:
        analysis = emitter.analysis
        self.emitter = emitter
        self.sum = sum_position(emitter.program)
        made = {*analysis.closure([self.sum]), *analysis.fixed()}
        self.steps = [p for p in sorted(analysis.live) if p not in made]
        self.bases: Bases = []

    def enter(self, bases: Bases) -> None:
        """Where the operands are from now on; the product's own two are not looked at."""
        self.bases = [None, None, *bases[2:]]

    def ask(self, where: tuple[Value, Value], rows: int, vectors: int) -> None:
        """Asks early for what a micro-tile reads at its end."""
        emitter, builder = self.emitter, self.emitter.builder
        code = emitter.program.code
        read = {code[p].attribute for p in self.steps if code[p].name == "load"}
        for n, operand in enumerate(emitter.program.operands):
            if n not in read or (operand.role, operand.stride) != (INPUT, CONTIGUOUS):
                continue
            for i in range(rows):
                base = self._bases(builder.add(where[0], i64(i)))[n]
                for v in range(vectors):
                    place = builder.add(where[1], i64(v * emitter.lanes))
                    emitter.prefetch(memory.element(builder, base, place, operand.dtype))

    def is_short(self, count: int) -> bool:
        """Whether the code is worth repeating for `count` vectors."""
        cheap = all(self.emitter.program.code[p].name in CHEAP for p in self.steps)
        return cheap and count * (len(self.steps) + 1) <= MOST_REPEATED

    def direct(
        self, values: list[Value], vectors: int, where: tuple[Value, Value], columns: Value
    ) -> None:
        """Finishes whole rows held in registers, `vectors` to a row."""
        lanes = self.emitter.lanes
        masks = self.emitter.masks(columns, vectors, lanes)
        for first in range(0, len(values), vectors):
            bases = self._bases(self.emitter.builder.add(where[0], i64(first // vectors)))
            self._row(iter(values[first : first + vectors]), bases, where[1], masks, lanes)

    def apply(self, sums: Value, width: int, rows: Range, columns: Range, lanes: int) -> None:
        """Finishes a block of sums, `width` a row."""
        emitter, builder = self.emitter, self.emitter.builder
        lanes = min(lanes, width)
        masks = emitter.masks(columns[1], width // lanes, lanes)

        def whole_row(index: Value) -> None:
            line = emitter.at(sums, builder.mul(index, i64(width)))
            values = (emitter.load(emitter.at(line, at), lanes) for at in range(0, width, lanes))
            bases = self._bases(builder.add(rows[0], index))
            self._row(values, bases, columns[0], masks, lanes)

        def short_row(index: Value) -> None:
            line = emitter.at(sums, builder.mul(index, i64(width)))
            bases = self._bases(builder.add(rows[0], index))

            def element(column: Value) -> None:
                value = emitter.load(emitter.at(line, column), 1)
                self._row(iter([value]), bases, builder.add(columns[0], column), [None], 1)

            emitter.each(0, columns[1], 1, element)

        if emitter.has_masks:
            return emitter.each(0, rows[1], 1, whole_row)
        whole = builder.icmp_signed("==", columns[1], i64(width))
        with builder.if_else(whole) as (then, otherwise):
            with then:
                emitter.each(0, rows[1], 1, whole_row)
            with otherwise:
                emitter.each(0, rows[1], 1, short_row)

    def _bases(self, row: Value) -> Bases:
        """Where the operands are in a row."""
        return self.emitter.advance(self.bases, ROWS, row)

    def _row(
        self,
        values: Iterator[Value],
        bases: Bases,
        column: Value,
        masks: list[Value | None],
        lanes: int,
    ) -> None:
        """What follows, for the sums of a row from a column on."""
        emitter = self.emitter
        for v, (value, mask) in enumerate(zip(values, masks, strict=True)):
            place = emitter.builder.add(column, i64(v * lanes))
            site = Site(emitter.access, bases, place, lanes, mask)
            emitter.access.print(self.steps, site, {**emitter.fixed, self.sum: value})

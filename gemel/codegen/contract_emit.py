"""What the kernels of a matrix product share: loops, vectors, masks and the fused elementwise end.

Nothing here knows how a product is tiled; `contract_gemm`, `contract_dot` and `contract_pack` do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from gemel.codegen.expression import Printer, register_type
from gemel.codegen.program import BROADCAST, CONTIGUOUS, INDEX, OUTPUT, Contraction
from gemel.codegen.target import Target
from gemel.dtype import DType

I1, I8, I32, I64 = ir.IntType(1), ir.IntType(8), ir.IntType(32), ir.IntType(64)
POINTER = ir.PointerType()

#: An epilogue is written out for every vector of a micro-tile up to this many instructions.
MOST_REPEATED = 200
#: Instructions that are about one machine instruction each.
CHEAP = frozenset(
    ("accumulator", "load", "scalar", "constant", "store", "cast", "select", "negative", "absolute")
    + ("add", "subtract", "multiply", "maximum", "minimum", "equal", "not_equal")
    + ("less", "less_equal", "greater", "greater_equal")
)

#: A loop body: the position and the carried values give the carried values of the next round.
Body = Callable[[ir.Value, list[ir.Value]], Sequence[ir.Value]]


class Emitter:
    """A function ``kernel`` under construction, with the words the products are written in."""

    def __init__(self, dtype: DType, target: Target, stack: int = 0) -> None:
        """Opens the function; `stack` elements of `dtype` are set aside, aligned to a vector."""
        self.target = target
        self.type = register_type(dtype, 1)
        self.lanes = target.width // dtype.itemsize
        self.vector = register_type(dtype, self.lanes)
        self.module = ir.Module("contract")
        signature = ir.FunctionType(I32, [POINTER, POINTER, I64, I64])
        self.function = ir.Function(self.module, signature, "kernel")
        self.buffers, self.integers, self.begin, self.end = self.function.args
        self.builder = ir.IRBuilder(self.function.append_basic_block("entry"))
        self.stack = self.reserve(stack) if stack else None

    def reserve(self, elements: int) -> ir.Value:
        """So many elements on the stack, aligned to a vector; to be asked for at the start."""
        place = self.builder.alloca(ir.ArrayType(self.type, elements))
        place.align = 64
        # llvmlite gives allocations a typed pointer, which nothing else here has.
        place.type = POINTER
        return place

    @property
    def has_masks(self) -> bool:
        """Whether loads and stores take a mask at no cost, whatever their element type."""
        return self.target.small_masks

    # -- values -----------------------------------------------------------------------------

    def number(self, value: int) -> ir.Constant:
        return ir.Constant(I64, value)

    def integer(self, position: int) -> ir.Value:
        """Run-time integer number `position`."""
        return self.builder.load(self.at(self.integers, self.number(position), I64), typ=I64)

    def buffer(self, position: int) -> ir.Value:
        """Base address of buffer number `position`."""
        place = self.at(self.buffers, self.number(position), POINTER)
        return self.builder.load(place, typ=POINTER)

    def at(self, pointer: ir.Value, index: ir.Value | int, kind: ir.Type | None = None) -> ir.Value:
        """Address of element `index` of what `pointer` points to."""
        where = self.number(index) if isinstance(index, int) else index
        return self.builder.gep(pointer, [where], source_etype=kind or self.type)

    def minimum(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """The smaller of two signed integers."""
        return self.builder.select(self.builder.icmp_signed("<", a, b), a, b)

    def maximum(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """The larger of two signed integers."""
        return self.builder.select(self.builder.icmp_signed(">", a, b), a, b)

    def register(self, lanes: int) -> ir.Type:
        """`lanes` elements in a register."""
        return self.type if lanes == 1 else ir.VectorType(self.type, lanes)

    def splat(self, value: ir.Value, lanes: int) -> ir.Value:
        """`value` in every lane."""
        kind = ir.VectorType(value.type, lanes)
        one = self.builder.insert_element(
            ir.Constant(kind, ir.Undefined), value, ir.Constant(I32, 0)
        )
        return self.shuffle(one, one, [0] * lanes)

    def shuffle(self, a: ir.Value, b: ir.Value, lanes: Sequence[int]) -> ir.Value:
        """The named lanes of `a` followed by `b`."""
        kind = ir.VectorType(I32, len(lanes))
        return self.builder.shuffle_vector(a, b, ir.Constant(kind, list(lanes)))

    def multiply_add(self, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
        """``a * b + c``, rounded once where the machine can."""
        if not self.target.fma:
            return self.builder.fadd(self.builder.fmul(a, b), c)
        return self.call("llvm.fma", [a.type], a.type, [a, b, c])

    def call(
        self, name: str, kinds: Sequence[ir.Type], result: ir.Type, arguments: list[ir.Value]
    ) -> ir.Value:
        """A call of the intrinsic `name`, declared on first use."""
        full = ".".join([name, *(_suffix(kind) for kind in kinds)])
        declared = self.module.globals.get(full)
        if declared is None:
            signature = ir.FunctionType(result, [argument.type for argument in arguments])
            declared = ir.Function(self.module, signature, full)
        return self.builder.call(declared, arguments)

    # -- memory -----------------------------------------------------------------------------

    def load(self, pointer: ir.Value, kind: ir.Type) -> ir.Value:
        """`kind` from `pointer`, aligned to its elements only."""
        return self.builder.load(pointer, typ=kind, align=_alignment(kind))

    def store(self, value: ir.Value, pointer: ir.Value) -> None:
        self.builder.store(value, pointer, align=_alignment(value.type))

    def prefetch(self, pointer: ir.Value) -> None:
        """Asks for a line of memory, which need not exist."""
        read, near, data = ir.Constant(I32, 0), ir.Constant(I32, 3), ir.Constant(I32, 1)
        self.call("llvm.prefetch", [POINTER], ir.VoidType(), [pointer, read, near, data])

    def mask(self, count: ir.Value, lanes: int) -> ir.Value:
        """True in the first `count` lanes."""
        kind = ir.VectorType(I32, lanes)
        bounded = self.builder.trunc(self.minimum(count, self.number(lanes)), I32)
        order = ir.Constant(kind, list(range(lanes)))
        return self.builder.icmp_signed("<", order, self.splat(bounded, lanes))

    def masked_load(
        self,
        pointer: ir.Value,
        kind: ir.VectorType,
        mask: ir.Value,
        other: ir.Value | None = None,
    ) -> ir.Value:
        """Lanes under `mask` from memory, where no others are touched; elsewhere `other`, or 0."""
        rest = ir.Constant(kind, None) if other is None else other
        align = ir.Constant(I32, _alignment(kind))
        return self.call("llvm.masked.load", [kind, POINTER], kind, [pointer, align, mask, rest])

    def gather(self, pointer: ir.Value, offsets: ir.Value) -> ir.Value:
        """A vector of the elements so many elements after `pointer`, from anywhere."""
        lanes = offsets.type.count
        kind, places = ir.VectorType(self.type, lanes), ir.VectorType(POINTER, lanes)
        where = self.builder.gep(self.splat(pointer, lanes), [offsets], source_etype=self.type)
        where.type = places
        every = ir.Constant(ir.VectorType(I1, lanes), [1] * lanes)
        align = ir.Constant(I32, _alignment(kind))
        rest = ir.Constant(kind, ir.Undefined)
        return self.call("llvm.masked.gather", [kind, places], kind, [where, align, every, rest])

    def masked_store(self, value: ir.Value, pointer: ir.Value, mask: ir.Value) -> None:
        align = ir.Constant(I32, _alignment(value.type))
        kinds = [value.type, POINTER]
        self.call("llvm.masked.store", kinds, ir.VoidType(), [value, pointer, align, mask])

    # -- control ----------------------------------------------------------------------------

    def repeat(
        self,
        start: ir.Value | int,
        stop: ir.Value,
        step: ir.Value | int,
        carried: Sequence[ir.Value],
        body: Body,
    ) -> list[ir.Value]:
        """Runs `body` for start, start + step, ... below stop; gives the last carried values."""
        first = self.number(start) if isinstance(start, int) else start
        width = self.number(step) if isinstance(step, int) else step
        builder, function = self.builder, self.function
        before = builder.block
        inside = function.append_basic_block()
        after = function.append_basic_block()
        builder.cbranch(builder.icmp_signed("<", first, stop), inside, after)
        builder.position_at_end(inside)
        position = builder.phi(I64)
        position.add_incoming(first, before)
        values = [builder.phi(value.type) for value in carried]
        for phi, value in zip(values, carried, strict=True):
            phi.add_incoming(value, before)
        results = list(body(position, values))
        following = builder.add(position, width)
        last = builder.block
        builder.cbranch(builder.icmp_signed("<", following, stop), inside, after)
        position.add_incoming(following, last)
        for phi, value in zip(values, results, strict=True):
            phi.add_incoming(value, last)
        builder.position_at_end(after)
        final = [builder.phi(value.type) for value in carried]
        for phi, value, result in zip(final, carried, results, strict=True):
            phi.add_incoming(value, before)
            phi.add_incoming(result, last)
        return final

    def each(self, stop: ir.Value, step: int, body: Callable[[ir.Value], object]) -> list[ir.Value]:
        """Runs `body` for 0, step, ... below stop; carries nothing."""

        def turn(position: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
            body(position)
            return []

        return self.repeat(0, stop, step, [], turn)

    def finish(self) -> ir.Module:
        """Closes the function: every product succeeds."""
        self.builder.ret(ir.Constant(I32, 0))
        return self.module


class Epilogue:
    """The elementwise end of a product, applied to blocks of finished sums kept in memory."""

    #: Integers per operand: row stride, column stride, stride of each of the two batch axes.
    INTEGERS = 4

    def __init__(
        self, emitter: Emitter, contraction: Contraction, buffer: int, integer: int
    ) -> None:
        """Operands' buffers start at number `buffer` (index operands have none), their run-time
        integers at `integer`."""
        self.emitter = emitter
        self.contraction = contraction
        self.strides = []
        self.buffers: list[ir.Value | None] = []
        for number, operand in enumerate(contraction.operands):
            first = integer + number * self.INTEGERS
            self.strides.append([emitter.integer(first + axis) for axis in range(self.INTEGERS)])
            self.buffers.append(None if operand.role == INDEX else emitter.buffer(buffer))
            buffer += operand.role != INDEX
        self.first_scalar = integer + len(contraction.operands) * self.INTEGERS
        self.offsets: list[ir.Value] = []
        self.scalars = [self._scalar(i) for i in range(len(contraction.scalars))]

    def _scalar(self, number: int) -> ir.Value:
        """Run-time scalar `number`, in its own dtype."""
        emitter, dtype = self.emitter, self.contraction.scalars[number]
        if dtype.kind == "b":
            bits = emitter.integer(self.first_scalar + number)
            return emitter.builder.icmp_signed("!=", bits, emitter.number(0))
        place = emitter.at(emitter.integers, self.first_scalar + number, I64)
        return emitter.builder.load(place, typ=register_type(dtype, 1))

    def enter(self, batch: tuple[ir.Value, ir.Value]) -> None:
        """Moves every operand to one product of the batch."""
        builder = self.emitter.builder
        self.offsets = [
            builder.add(builder.mul(batch[0], outer), builder.mul(batch[1], inner))
            for _, _, outer, inner in self.strides
        ]

    def is_short(self, count: int) -> bool:
        """Whether the code is worth repeating for `count` vectors."""
        code = self.contraction.code
        return count * len(code) <= MOST_REPEATED and all(step.name in CHEAP for step in code)

    def direct(
        self,
        values: list[ir.Value],
        vectors: int,
        where: tuple[ir.Value, ir.Value],
        columns: ir.Value,
    ) -> None:
        """Finishes whole rows held in registers, `vectors` to a row."""
        emitter, builder = self.emitter, self.emitter.builder
        lanes = emitter.lanes
        masks = self._row_masks(columns, vectors, lanes)
        for number, value in enumerate(values):
            row, v = divmod(number, vectors)
            place = (builder.add(where[0], emitter.number(row)), where[1])
            left = builder.sub(columns, emitter.number(v * lanes))
            self._element(value, _Access(self, place, v * lanes, lanes, masks[v], left))

    def _row_masks(self, columns: ir.Value, vectors: int, lanes: int) -> list[ir.Value | None]:
        """Which lanes of each vector of a row exist."""
        emitter = self.emitter
        if not emitter.has_masks:
            return [None] * vectors
        starts = [emitter.number(v * lanes) for v in range(vectors)]
        return [emitter.mask(emitter.builder.sub(columns, start), lanes) for start in starts]

    def apply(
        self,
        sums: ir.Value,
        width: int,
        rows: tuple[ir.Value, ir.Value],
        columns: tuple[ir.Value, ir.Value],
        lanes: int,
    ) -> None:
        """Finishes a block of sums, `width` a row; `rows`, `columns` are (first, how many)."""
        emitter, builder = self.emitter, self.emitter.builder
        lanes = min(lanes, width)
        masks = self._row_masks(columns[1], width // lanes, lanes)

        def whole_row(row: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
            line = emitter.at(sums, builder.mul(row, emitter.number(width)))
            for v, mask in enumerate(masks):
                value = emitter.load(emitter.at(line, v * lanes), emitter.register(lanes))
                where = (builder.add(rows[0], row), columns[0])
                left = builder.sub(columns[1], emitter.number(v * lanes))
                self._element(value, _Access(self, where, v * lanes, lanes, mask, left))
            return []

        def short_row(row: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
            line = emitter.at(sums, builder.mul(row, emitter.number(width)))

            def element(column: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
                value = emitter.load(emitter.at(line, column), emitter.type)
                where = (builder.add(rows[0], row), builder.add(columns[0], column))
                self._element(value, _Access(self, where, 0, 1, None, column))
                return []

            emitter.repeat(0, columns[1], 1, [], element)
            return []

        if emitter.has_masks:
            emitter.repeat(0, rows[1], 1, [], whole_row)
            return
        whole = builder.icmp_signed("==", columns[1], emitter.number(width))
        with builder.if_else(whole) as (then, otherwise):
            with then:
                emitter.repeat(0, rows[1], 1, [], whole_row)
            with otherwise:
                emitter.repeat(0, rows[1], 1, [], short_row)

    def _element(self, value: ir.Value, access: _Access) -> None:
        """The code of the epilogue for one vector of sums."""
        Printer(self.emitter.builder, access.lanes, self.emitter.target).emit(
            self.contraction.code,
            load=access.load,
            scalar=access.scalar,
            store=access.store,
            given={0: value},
        )


class _Access:
    """How the epilogue's expressions reach memory at one place of the result."""

    def __init__(
        self,
        epilogue: Epilogue,
        where: tuple[ir.Value, ir.Value],
        shift: int,
        lanes: int,
        mask: ir.Value | None,
        left: ir.Value,
    ) -> None:
        """Lanes start at row `where[0]`, column ``where[1] + shift``; `left` columns are left."""
        self.epilogue = epilogue
        self.emitter = epilogue.emitter
        self.where = where
        self.shift = shift
        self.lanes = lanes
        self.mask = mask
        self.left = left

    def scalar(self, number: int) -> ir.Value:
        return self.epilogue.scalars[number]

    def _index(self, number: int) -> ir.Value:
        """Element index of operand `number` at the first of the row's vectors."""
        builder = self.emitter.builder
        operand = self.epilogue.contraction.operands[number]
        row, column, _, _ = self.epilogue.strides[number]
        index = builder.add(self.epilogue.offsets[number], builder.mul(self.where[0], row))
        if operand.stride == BROADCAST:
            return index
        step = self.where[1]
        return builder.add(
            index, step if operand.stride == CONTIGUOUS else builder.mul(step, column)
        )

    def _lane_index(self, number: int, lane: int) -> ir.Value:
        """Element index of operand `number` for one lane; lanes past the end repeat the last."""
        builder, emitter = self.emitter.builder, self.emitter
        index = self._index(number)
        operand = self.epilogue.contraction.operands[number]
        if operand.stride == BROADCAST:
            return index
        place = emitter.number(self.shift + lane)
        if self.lanes > 1:
            last = builder.add(self.left, emitter.number(self.shift - 1))
            place = emitter.minimum(place, emitter.maximum(last, emitter.number(0)))
        column = self.epilogue.strides[number][1]
        return builder.add(
            index, place if operand.stride == CONTIGUOUS else builder.mul(place, column)
        )

    def _place(self, number: int, memory: ir.Type) -> ir.Value:
        """Address of a contiguous operand's lanes."""
        start = self.emitter.at(self.epilogue.buffers[number], self._index(number), memory)
        return self.emitter.at(start, self.shift, memory) if self.shift else start

    def load(self, number: int) -> ir.Value:
        operand = self.epilogue.contraction.operands[number]
        if operand.role == INDEX:
            return self._gathered(number, lambda index: index)
        pointer = self.epilogue.buffers[number]
        memory = _memory_type(operand.dtype)
        lanes = ir.VectorType(memory, self.lanes)

        def element(index: ir.Value) -> ir.Value:
            return self.emitter.load(self.emitter.at(pointer, index, memory), memory)

        if operand.stride == CONTIGUOUS and self.lanes > 1:
            place = self._place(number, memory)
            value = (
                self.emitter.load(place, lanes)
                if self.mask is None
                else self.emitter.masked_load(place, lanes, self.mask)
            )
        elif operand.stride == BROADCAST:
            value = element(self._index(number))
        else:
            value = self._gathered(number, element)
        return self._from_memory(value, operand.dtype)

    def _gathered(self, number: int, element: Callable[[ir.Value], ir.Value]) -> ir.Value:
        """One element per lane, each fetched on its own."""
        first = element(self._lane_index(number, 0))
        if self.lanes == 1:
            return first
        vector = ir.Constant(ir.VectorType(first.type, self.lanes), ir.Undefined)
        for lane in range(self.lanes):
            value = element(self._lane_index(number, lane)) if lane else first
            vector = self.emitter.builder.insert_element(vector, value, ir.Constant(I32, lane))
        return vector

    def _from_memory(self, value: ir.Value, dtype: DType) -> ir.Value:
        """Bools are bytes in memory and bits in registers."""
        if dtype.kind != "b":
            return value
        return self.emitter.builder.icmp_unsigned("!=", value, ir.Constant(value.type, None))

    def store(self, number: int, value: ir.Value) -> None:
        operand = self.epilogue.contraction.operands[number]
        if operand.role != OUTPUT or operand.stride != CONTIGUOUS:
            raise ValueError(f"operand {number} of a contraction is stored to but is {operand!r}")
        memory = _memory_type(operand.dtype)
        if operand.dtype.kind == "b":
            wide = memory if self.lanes == 1 else ir.VectorType(memory, self.lanes)
            value = self.emitter.builder.zext(value, wide)
        place = self._place(number, memory)
        if self.mask is None:
            self.emitter.store(value, place)
        else:
            self.emitter.masked_store(value, place, self.mask)


def _memory_type(dtype: DType) -> ir.Type:
    """The type `dtype` has in memory."""
    return I8 if dtype.kind == "b" else register_type(dtype, 1)


def _suffix(kind: ir.Type) -> str:
    """How an intrinsic's name spells a type."""
    if isinstance(kind, ir.VectorType):
        return f"v{kind.count}{_suffix(kind.element)}"
    if isinstance(kind, ir.PointerType):
        return "p0"
    if isinstance(kind, ir.IntType):
        return f"i{kind.width}"
    return {"half": "f16", "float": "f32", "double": "f64"}[str(kind)]


def _alignment(kind: Any) -> int:
    """Alignment that any element of `kind` has."""
    element = kind.element if isinstance(kind, ir.VectorType) else kind
    if isinstance(element, ir.IntType):
        return int(max(1, element.width // 8))
    return 4 if str(element) == "float" else 8

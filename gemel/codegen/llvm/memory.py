"""Loads and stores of vectors: contiguous or scattered, whole or under a mask.

Values are in register form (see `gemel.codegen.llvm.registers`); in memory a bool is a byte.
A mask is a vector of i1, or None for all lanes; memory of masked-out lanes is never accessed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gemel.codegen.llvm.assembly import (
    I1,
    I8,
    I32,
    I64,
    POINTER,
    Builder,
    Constant,
    Type,
    Value,
    splat_constant,
    widened,
    zeros,
)
from gemel.codegen.llvm.registers import register_type, shuffle_mask, splat
from gemel.dtype import DType

#: Bytes that the cache loads and evicts together.
CACHE_LINE = 64
#: From blocks of this size on, transposition hides from LLVM how its vectors were made.
FENCED = 4
#: The active lanes; None for all.
Mask = Value | None


class First(Value):
    """The mask of a vector's first lanes, and their number: an i32, of none if it is negative.
    Stores write these lanes in parts, without the mask."""

    __slots__ = ("count",)

    def __init__(self, mask: Value, count: Value) -> None:
        super().__init__(mask.type, mask.text)
        self.count = count


def memory_type(dtype: DType, lanes: int) -> Type:
    """The LLVM type of `lanes` values of `dtype` in memory."""
    return widened(I8, lanes) if dtype.kind == "b" else register_type(dtype, lanes)


def _to_register(builder: Builder, value: Value, dtype: DType) -> Value:
    if dtype.kind != "b":
        return value
    return builder.icmp_unsigned("!=", value, zeros(value.type))


def _to_memory(builder: Builder, value: Value, dtype: DType, lanes: int) -> Value:
    return builder.zext(value, widened(I8, lanes)) if dtype.kind == "b" else value


def load(
    builder: Builder,
    pointer: Value,
    dtype: DType,
    lanes: int,
    mask: Mask = None,
    other: Value | None = None,
) -> Value:
    """`lanes` consecutive elements; lanes that the mask excludes come from `other`, or are 0."""
    kind = memory_type(dtype, lanes)
    if mask is None:
        value = builder.load(pointer, kind, dtype.itemsize)
    else:
        rest = zeros(kind) if other is None else other
        arguments = [pointer, Constant(I32, dtype.itemsize), mask, rest]
        value = builder.reading(f"llvm.masked.load.{kind.suffix}.p0", kind, arguments)
    return _to_register(builder, value, dtype)


def load_every_other(
    builder: Builder,
    pointer: Value,
    dtype: DType,
    lanes: int,
    masks: tuple[Value | None, Value | None] = (None, None),
) -> Value:
    """`lanes` elements with stride 2; nothing is read past the last, or for lanes that a mask
    excludes (`masks_of_pairs`)."""
    further = element(builder, pointer, Constant(I64, lanes - 1), dtype)
    first = load(builder, pointer, dtype, lanes, masks[0])
    second = load(builder, further, dtype, lanes, masks[1])
    chosen = (*range(0, lanes, 2), *range(lanes + 1, 2 * lanes, 2))
    return builder.shuffle_vector(first, second, shuffle_mask(chosen))


def masks_of_pairs(builder: Builder, mask: Value) -> tuple[Value, Value]:
    """The masks of the two loads of `load_every_other`: of each pair, the first load uses the first
    element, the second load the second."""
    nobody, lanes = zeros(mask.type), mask.type.lanes
    halves = ((i // 2, lanes)[i % 2] for i in range(lanes))
    low = builder.shuffle_vector(mask, nobody, shuffle_mask(tuple(halves)))
    halves = ((lanes, (lanes + i) // 2)[i % 2] for i in range(lanes))
    return low, builder.shuffle_vector(mask, nobody, shuffle_mask(tuple(halves)))


def store(
    builder: Builder, value: Value, pointer: Value, dtype: DType, lanes: int, mask: Mask = None
) -> None:
    """Writes `lanes` consecutive elements, except those that the mask excludes."""
    value = _to_memory(builder, value, dtype, lanes)
    if mask is None:
        builder.store(value, pointer, dtype.itemsize)
    elif isinstance(mask, First):
        _store_parts(builder, value, pointer, dtype, mask)
    else:
        arguments = [value, pointer, Constant(I32, dtype.itemsize), mask]
        builder.writing(f"llvm.masked.store.{value.type.suffix}.p0", arguments)


def _store_parts(builder: Builder, value: Value, pointer: Value, dtype: DType, mask: First) -> None:
    """Writes the first lanes of a power of two: all, or a half and a quarter of them and so on, by
    the bits of their number."""
    lanes, size, none = value.type.lanes, dtype.itemsize, Constant(I32, 0)
    number = builder.select(builder.icmp_signed("<", mask.count, none), none, mask.count)

    def is_set(bit: int) -> Value:
        return builder.icmp_unsigned("!=", builder.and_(number, Constant(I32, bit)), none)

    def part(first: int, count: int) -> Value:
        if count == 1:
            return builder.extract_element(value, Constant(I64, first))
        which = shuffle_mask(tuple(range(first, first + count)))
        return builder.shuffle_vector(value, zeros(value.type), which)

    with builder.if_then(is_set(lanes)):
        builder.store(value, pointer, size)
    while lanes > 2:
        lanes //= 2
        low, high = part(0, lanes), part(lanes, lanes)
        before = builder.block
        with builder.if_then(is_set(lanes)):
            builder.store(low, pointer, size)
            ahead, inside = element(builder, pointer, Constant(I64, lanes), dtype), builder.block
        value = builder.phi(low.type, (low, before), (high, inside))
        pointer = builder.phi(POINTER, (pointer, before), (ahead, inside))
    with builder.if_then(is_set(1)):
        builder.store(part(0, 1), pointer, size)


def load_backwards(
    builder: Builder, pointer: Value, dtype: DType, lanes: int, mask: Mask = None
) -> Value:
    """`lanes` consecutive elements in reverse order: the last is in lane 0. The mask is by lane."""
    wanted = None if mask is None else _backwards(builder, mask)
    return _backwards(builder, load(builder, pointer, dtype, lanes, wanted))


def store_backwards(
    builder: Builder, value: Value, pointer: Value, dtype: DType, lanes: int, mask: Mask = None
) -> None:
    """Writes `lanes` consecutive elements in reverse order: lane 0 is the last."""
    wanted = None if mask is None else _backwards(builder, mask)
    store(builder, _backwards(builder, value), pointer, dtype, lanes, wanted)


def _backwards(builder: Builder, value: Value) -> Value:
    """A vector's lanes in reverse order."""
    order = shuffle_mask(tuple(reversed(range(value.type.lanes))))
    return builder.shuffle_vector(value, zeros(value.type), order)


def element(builder: Builder, pointer: Value, offset: Value, dtype: DType) -> Value:
    """The address `offset` elements after `pointer`."""
    return builder.gep(pointer, offset, memory_type(dtype, 1))


class Scattered(NamedTuple):
    """Elements at `offsets` (a vector of i64, or one) from an address, in elements. `native`: all
    lanes are read or written by one instruction, which is fast on this processor."""

    builder: Builder
    pointer: Value
    offsets: Value
    dtype: DType
    mask: Mask = None
    native: bool = False

    def load(self) -> Value:
        """The elements; 0 in lanes that the mask excludes."""
        builder, dtype, lanes = self.builder, self.dtype, self.offsets.type.lanes
        kind = memory_type(dtype, lanes)
        if lanes == 1:
            value = builder.load(self._pointer(self.offsets), kind, dtype.itemsize)
        elif self._is_native():
            arguments = [*self._together(), zeros(kind)]
            name = f"llvm.masked.gather.{kind.suffix}.{arguments[0].type.suffix}"
            value = builder.reading(name, kind, arguments)
        else:
            value = Constant(kind, "poison")
            for lane, pointer in self._one_by_one():
                one = builder.load(pointer, memory_type(dtype, 1), dtype.itemsize)
                value = builder.insert_element(value, one, lane)
        return _to_register(builder, value, dtype)

    def store(self, value: Value) -> None:
        """Writes the elements; if some coincide, the last lane wins."""
        builder, dtype, lanes = self.builder, self.dtype, self.offsets.type.lanes
        if lanes == 1:
            store(builder, value, self._pointer(self.offsets), dtype, 1)
            return
        value = _to_memory(builder, value, dtype, lanes)
        if self._is_native():
            arguments = [value, *self._together()]
            name = f"llvm.masked.scatter.{value.type.suffix}.{arguments[1].type.suffix}"
            builder.writing(name, arguments)
        else:
            for lane, pointer in self._one_by_one():
                builder.store(builder.extract_element(value, lane), pointer, dtype.itemsize)

    def _is_native(self) -> bool:
        return self.mask is not None or (self.native and self.dtype.itemsize >= 4)

    def _pointer(self, offset: Value) -> Value:
        return element(self.builder, self.pointer, offset, self.dtype)

    def _one_by_one(self) -> Iterator[tuple[Value, Value]]:
        """Each lane, and the address of its element."""
        for number in range(self.offsets.type.lanes):
            lane = Constant(I64, number)
            yield lane, self._pointer(self.builder.extract_element(self.offsets, lane))

    def _together(self) -> list[Value]:
        """Addresses, alignment and mask, as LLVM's intrinsics take them."""
        builder, offsets = self.builder, self.offsets
        lanes, size = offsets.type.lanes, self.dtype.itemsize
        base = splat(builder, builder.ptrtoint(self.pointer, I64), lanes)
        far = builder.mul(offsets, splat_constant(Constant(I64, size), lanes))
        addresses = builder.inttoptr(builder.add(base, far), widened(POINTER, lanes))
        return [addresses, Constant(I32, size), self.mask or full_mask(lanes)]


def interleaved(builder: Builder, vectors: list[Value]) -> list[Value]:
    """As many vectors, in which the elements of the given vectors alternate."""
    count, lanes = len(vectors), vectors[0].type.lanes
    parts = (range(start, start + lanes) for start in range(0, count * lanes, lanes))
    return [_picked(builder, vectors, [(n % count, n // count) for n in part]) for part in parts]


def separated(builder: Builder, vectors: list[Value]) -> list[Value]:
    """As many vectors, the first of which has the elements 0, n, 2n and so on of n vectors."""
    count, lanes = len(vectors), vectors[0].type.lanes
    parts = (range(turn, count * lanes, count) for turn in range(count))
    return [_picked(builder, vectors, [divmod(n, lanes) for n in part]) for part in parts]


def _picked(builder: Builder, vectors: list[Value], sources: list[tuple[int, int]]) -> Value:
    """A vector of elements of several vectors: for each lane the vector's number and its lane."""
    whole, lanes = vectors[0], len(sources)
    for number, vector in enumerate(vectors[1:], 1):
        # Elements of earlier vectors keep their places; those of the first vector get theirs
        # together with those of the second.
        mask = tuple(
            (source if number == 1 else lane) if whose < number else lanes + source
            for lane, (whose, source) in enumerate(sources)
        )
        whole = builder.shuffle_vector(whole, vector, shuffle_mask(mask))
    return whole


def interleaved_mask(builder: Builder, mask: Mask, count: int) -> list[Mask]:
    """The masks of `count` interleaved vectors that all have this mask."""
    if mask is None:
        return [None] * count
    if not isinstance(mask, First):
        return [*interleaved(builder, [mask] * count)]
    lanes = mask.type.lanes
    elements = builder.mul(builder.sext(mask.count, I64), Constant(I64, count))
    lefts = (builder.sub(elements, Constant(I64, i * lanes)) for i in range(count))
    return [first_lanes(builder, left, lanes, parts=True) for left in lefts]


def side_by_side(builder: Builder, vectors: list[Value]) -> Value:
    """Two, four, ... vectors concatenated to one."""
    while len(vectors) > 1:
        whole = shuffle_mask(tuple(range(2 * vectors[0].type.lanes)))
        pairs = zip(vectors[::2], vectors[1::2], strict=True)
        vectors = [builder.shuffle_vector(a, b, whole) for a, b in pairs]
    return vectors[0]


def transposed(builder: Builder, rows: list[Value]) -> list[Value]:
    """A square of vectors, or adjacent squares, transposed by exchanging ever larger blocks.

    LLVM tries to combine each shuffle with all the shuffles before it, which never succeeds here.
    For large squares the attempt is prevented: it takes two fifths of LLVM's time for such a
    kernel.
    """
    lanes, distance = rows[0].type.lanes, 1
    while distance < len(rows):
        if distance == FENCED:
            rows = [builder.opaque(row) for row in rows]
        low = tuple(lanes + i - distance if i & distance else i for i in range(lanes))
        high = tuple(lanes + i if i & distance else i + distance for i in range(lanes))
        exchanged = list(rows)
        for i in range(len(rows)):
            if not i & distance:
                a, b = rows[i], rows[i + distance]
                exchanged[i] = builder.shuffle_vector(a, b, shuffle_mask(low))
                exchanged[i + distance] = builder.shuffle_vector(a, b, shuffle_mask(high))
        rows = exchanged
        distance *= 2
    return rows


def room(builder: Builder, dtype: DType, count: int) -> Value:
    """Stack memory for `count` elements, for the duration of a call."""
    return builder.alloca(memory_type(dtype, 1), count, 64)


def first_lanes(builder: Builder, count: Value, lanes: int, parts: bool = False) -> Value:
    """The mask of the lanes below `count`, which may be negative. With `parts`, stores write these
    lanes in parts."""
    few = builder.trunc(builder.minimum(count, Constant(I64, lanes)), I32)
    mask = builder.icmp_signed(">", splat(builder, few, lanes), lane_numbers(lanes, I32))
    return First(mask, few) if parts else mask


def full_mask(lanes: int) -> Value:
    """The mask of all lanes."""
    one = Constant(I1, 1)
    return one if lanes == 1 else splat_constant(one, lanes)


def lane_numbers(lanes: int, kind: Type = I64) -> Value:
    """The vector 0, 1, 2, ..."""
    inside = ", ".join(f"{kind} {number}" for number in range(lanes))
    return Constant(widened(kind, lanes), f"<{inside}>")

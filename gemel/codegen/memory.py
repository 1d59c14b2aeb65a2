"""Loads and stores of vectors: contiguous or scattered, whole or under a mask.

Values are in register form (see `gemel.codegen.expression`); in memory a bool is a byte.
A mask is a vector of i1, or None for all lanes; memory under a false lane is never touched.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from gemel.codegen.registers import (
    I1,
    I8,
    I32,
    I64,
    POINTER,
    Spelled,
    Value,
    intrinsic,
    register_type,
    shuffle_mask,
    splat,
    splat_constant,
    suffix,
    widened,
)
from gemel.dtype import DType


def memory_type(dtype: DType, lanes: int) -> Any:
    """The LLVM type of `lanes` values of `dtype` in memory."""
    return widened(I8, lanes) if dtype.kind == "b" else register_type(dtype, lanes)


def _to_register(builder: Any, value: Value, dtype: DType) -> Value:
    if dtype.kind != "b":
        return value
    zero = Spelled(value.type, "zeroinitializer")
    return builder.icmp_unsigned("!=", value, ir.Constant(I8, 0) if value.type is I8 else zero)


def _to_memory(builder: Any, value: Value, dtype: DType, lanes: int) -> Value:
    return builder.zext(value, widened(I8, lanes)) if dtype.kind == "b" else value


def _nothing(kind: Any) -> Value:
    return Spelled(kind, "zeroinitializer")


def load(
    builder: Any,
    pointer: Value,
    dtype: DType,
    lanes: int,
    mask: Value | None = None,
    other: Value | None = None,
) -> Value:
    """`lanes` neighbouring elements; lanes the mask leaves out are as in `other`, or 0."""
    kind = memory_type(dtype, lanes)
    if mask is None:
        value = builder.load(pointer, typ=kind, align=dtype.itemsize)
    else:
        rest = _nothing(kind) if other is None else other
        arguments = [pointer, ir.Constant(I32, dtype.itemsize), mask, rest]
        value = intrinsic(builder, f"llvm.masked.load.{suffix(kind)}.p0", kind, arguments)
    return _to_register(builder, value, dtype)


def load_every_other(
    builder: Any, pointer: Value, dtype: DType, lanes: int, mask: Value | None = None
) -> Value:
    """`lanes` elements two apart; nothing is read behind the last, or for lanes left out."""
    further = element(builder, pointer, ir.Constant(I64, lanes - 1), dtype)
    low = high = None
    if mask is not None:
        # Of each pair one is wanted: in the first half the first, in the second the other.
        nobody = _nothing(mask.type)
        halves = ((i // 2, lanes)[i % 2] for i in range(lanes))
        low = builder.shuffle_vector(mask, nobody, shuffle_mask(tuple(halves)))
        halves = ((lanes, (lanes + i) // 2)[i % 2] for i in range(lanes))
        high = builder.shuffle_vector(mask, nobody, shuffle_mask(tuple(halves)))
    first = load(builder, pointer, dtype, lanes, low)
    second = load(builder, further, dtype, lanes, high)
    places = (*range(0, lanes, 2), *range(lanes + 1, 2 * lanes, 2))
    return builder.shuffle_vector(first, second, shuffle_mask(places))


def store(
    builder: Any, value: Value, pointer: Value, dtype: DType, lanes: int, mask: Value | None = None
) -> None:
    """Writes `lanes` neighbouring elements, but those the mask leaves out."""
    value = _to_memory(builder, value, dtype, lanes)
    if mask is None:
        builder.store(value, pointer, align=dtype.itemsize)
        return
    arguments = [value, pointer, ir.Constant(I32, dtype.itemsize), mask]
    intrinsic(builder, f"llvm.masked.store.{suffix(value.type)}.p0", ir.VoidType(), arguments)


def element(builder: Any, pointer: Value, offset: Value, dtype: DType) -> Value:
    """The address `offset` elements on."""
    return builder.gep(pointer, [offset], source_etype=memory_type(dtype, 1))


def _addresses(builder: Any, pointer: Value, offsets: Value, dtype: DType) -> Value:
    """A vector of addresses; `offsets` count elements."""
    lanes = offsets.type.count
    size = splat_constant(ir.Constant(I64, dtype.itemsize), lanes)
    base = splat(builder, builder.ptrtoint(pointer, I64), lanes)
    whole = builder.add(base, builder.mul(offsets, size))
    return builder.inttoptr(whole, widened(POINTER, lanes))


def _lane(number: int) -> Value:
    return ir.Constant(I64, number)


def load_scattered(
    builder: Any,
    pointer: Value,
    offsets: Value,
    dtype: DType,
    mask: Value | None = None,
    native: bool = False,
) -> Value:
    """The elements at `offsets` (a vector of i64, or one) from `pointer`."""
    if not isinstance(offsets.type, ir.VectorType):
        return load(builder, element(builder, pointer, offsets, dtype), dtype, 1)
    lanes = offsets.type.count
    kind = memory_type(dtype, lanes)
    if mask is None and not (native and dtype.itemsize >= 4):
        value = Spelled(kind, "poison")
        for number in range(lanes):
            offset = builder.extract_element(offsets, _lane(number))
            one = builder.load(
                element(builder, pointer, offset, dtype),
                typ=memory_type(dtype, 1),
                align=dtype.itemsize,
            )
            value = builder.insert_element(value, one, _lane(number))
        return _to_register(builder, value, dtype)
    addresses = _addresses(builder, pointer, offsets, dtype)
    arguments = [
        addresses,
        ir.Constant(I32, dtype.itemsize),
        mask or full_mask(lanes),
        _nothing(kind),
    ]
    name = f"llvm.masked.gather.{suffix(kind)}.{suffix(addresses.type)}"
    return _to_register(builder, intrinsic(builder, name, kind, arguments), dtype)


def store_scattered(
    builder: Any,
    value: Value,
    pointer: Value,
    offsets: Value,
    dtype: DType,
    mask: Value | None = None,
    native: bool = False,
) -> None:
    """Writes the elements at `offsets`, in lane order where they coincide."""
    if not isinstance(offsets.type, ir.VectorType):
        store(builder, value, element(builder, pointer, offsets, dtype), dtype, 1)
        return
    lanes = offsets.type.count
    value = _to_memory(builder, value, dtype, lanes)
    if mask is None and not (native and dtype.itemsize >= 4):
        for number in range(lanes):
            offset = builder.extract_element(offsets, _lane(number))
            one = builder.extract_element(value, _lane(number))
            builder.store(one, element(builder, pointer, offset, dtype), align=dtype.itemsize)
        return
    addresses = _addresses(builder, pointer, offsets, dtype)
    arguments = [value, addresses, ir.Constant(I32, dtype.itemsize), mask or full_mask(lanes)]
    name = f"llvm.masked.scatter.{suffix(value.type)}.{suffix(addresses.type)}"
    intrinsic(builder, name, ir.VoidType(), arguments)


def interleaved(builder: Any, vectors: list[Value]) -> list[Value]:
    """As many vectors, in which the elements of the given ones take turns."""
    count, lanes = len(vectors), vectors[0].type.count
    found = []
    for start in range(0, count * lanes, lanes):
        places = [divmod(start + lane, count) for lane in range(lanes)]
        whole = vectors[0]
        for turn, vector in enumerate(vectors):
            # What earlier vectors gave stays where it is; the first is put in order by the second.
            mask = tuple(
                (place if turn == 1 else lane) if whose < turn else lanes + place
                for lane, (place, whose) in enumerate(places)
            )
            if turn:
                whole = builder.shuffle_vector(whole, vector, shuffle_mask(mask))
        found.append(whole)
    return found


def room(builder: Any, dtype: DType, count: int) -> Value:
    """Memory of the call's own for `count` elements."""
    place = builder.alloca(ir.ArrayType(memory_type(dtype, 1), count))
    place.align = 64
    place.type = POINTER  # llvmlite makes it one to this array, which nothing else here has
    return place


def first(builder: Any, count: Value, lanes: int) -> Value:
    """The lanes before `count`."""
    fewer = builder.icmp_signed("<", count, ir.Constant(I64, lanes))
    few = builder.trunc(builder.select(fewer, count, ir.Constant(I64, lanes)), I32)
    return builder.icmp_signed(">", splat(builder, few, lanes), numbered(lanes, I32))


def full_mask(lanes: int) -> Value:
    """All lanes."""
    one = ir.Constant(I1, 1)
    return one if lanes == 1 else splat_constant(one, lanes)


def numbered(lanes: int, kind: Any = I64) -> Value:
    """The vector 0, 1, 2, ..."""
    inside = ", ".join(f"{kind} {number}" for number in range(lanes))
    return Spelled(widened(kind, lanes), f"<{inside}>")

"""How values lie in registers: LLVM types, constants, and values in all lanes.

A value has one of these LLVM types (a vector of them if there are several lanes)::

    bool i1                 float32 float, float64 double
    integers i8 ... i64     dtypes that are only stored (float16, complex): an integer of their bits
"""

from __future__ import annotations

import struct
from functools import cache
from typing import Any

from gemel import dtype as dtypes
from gemel.codegen.llvm.assembly import (
    F32,
    F64,
    I1,
    I32,
    I64,
    Builder,
    Constant,
    Type,
    Value,
    integer,
    splat_constant,
    widened,
)
from gemel.dtype import DType


def register_type(dtype: DType, lanes: int) -> Type:
    """The LLVM type of `lanes` values of `dtype` in registers."""
    scalar = I1 if dtype.kind == "b" else integer(8 * dtype.itemsize)
    if dtype.is_floating and dtype.compute is dtype:
        scalar = F32 if dtype.itemsize == 4 else F64
    return widened(scalar, lanes)


def constant(dtype: DType, value: Any, lanes: int = 1) -> Constant:
    """A constant of `dtype` in every lane."""
    scalar = register_type(dtype, 1)
    if dtype.kind == "f":
        one = Constant(scalar, float(value) if dtype is dtypes.float64 else rounded(value))
    elif dtype.kind == "b":
        one = Constant(scalar, int(bool(value)))
    else:
        bits = 8 * dtype.itemsize
        wrapped = int(value) & ((1 << bits) - 1)
        one = Constant(scalar, wrapped - (1 << bits) if wrapped >> (bits - 1) else wrapped)
    return one if lanes == 1 else splat_constant(one, lanes)


def rounded(value: float) -> float:
    """The nearest float32."""
    try:
        found: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
    return found


def splat(builder: Builder, value: Value, lanes: int) -> Value:
    """`value` in every lane; a value that is a vector already is returned unchanged."""
    if lanes == 1 or value.type.lanes > 1:
        return value
    if isinstance(value, Constant):
        return splat_constant(value, lanes)
    poison = Constant(widened(value.type, lanes), "poison")
    first = builder.insert_element(poison, value, Constant(I64, 0))
    return builder.shuffle_vector(first, poison, shuffle_mask((0,) * lanes))


@cache
def shuffle_mask(lanes: tuple[int, ...]) -> Constant:
    """The constant mask for `shufflevector`."""
    listed = f"<{', '.join([f'i32 {lane}' for lane in lanes])}>"
    return Constant(widened(I32, len(lanes)), listed if any(lanes) else "zeroinitializer")

"""How values lie in registers: LLVM types, constants, copies in all lanes, intrinsics.

A value has one of these LLVM types (a vector of them when there are several lanes)::

    bool i1                 float32 float, float64 double
    integers i8 ... i64     what is only kept (float16, complex numbers): an integer of its bits

This module imports llvmlite: import it inside the function that compiles.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from gemel import dtype as dtypes
from gemel.dtype import DType

#: LLVM values and types come from llvmlite, which has no type stubs.
Value = Any
Type = Any

I1, I8, I16, I32, I64, I128 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64, 128))
HALF, F32, F64 = ir.HalfType(), ir.FloatType(), ir.DoubleType()
POINTER = ir.PointerType()

_INTEGERS = {1: I8, 2: I16, 4: I32, 8: I64, 16: I128}
_FLOATING = {4: F32, 8: F64}
_TYPES: dict[tuple[int, int], Type] = {}
_MASKS: dict[tuple[int, ...], Value] = {}


def register_type(dtype: DType, lanes: int) -> Type:
    """The LLVM type of `lanes` values of `dtype` in registers."""
    return widened(_scalar_type(dtype), lanes)


def _scalar_type(dtype: DType) -> Type:
    if dtype.kind == "b":
        return I1
    computed = dtype.is_floating and dtype.compute is dtype
    return (_FLOATING if computed else _INTEGERS)[dtype.itemsize]


def widened(scalar: Type, lanes: int) -> Type:
    """`scalar`, or a vector of `lanes` of them (one object per type: comparing types is slow)."""
    if lanes == 1:
        return scalar
    key = (id(scalar), lanes)
    found = _TYPES.get(key)
    if found is None:
        found = _TYPES[key] = ir.VectorType(scalar, lanes)
    return found


def constant(dtype: DType, value: Any, lanes: int = 1) -> Value:
    """A constant of `dtype` in every lane."""
    scalar = _scalar_type(dtype)
    if dtype.kind == "f":
        one = _floating_constant(dtype, scalar, float(value))
    elif dtype.kind == "b":
        one = ir.Constant(scalar, int(bool(value)))
    else:
        bits = 8 * dtype.itemsize
        wrapped = int(value) & ((1 << bits) - 1)
        signed = wrapped - (1 << bits) if wrapped >> (bits - 1) else wrapped
        one = ir.Constant(scalar, signed)
    return one if lanes == 1 else splat_constant(one, lanes)


def _floating_constant(dtype: DType, scalar: Type, value: float) -> Value:
    if dtype is dtypes.float64:
        return ir.Constant(scalar, value)
    try:
        packed = struct.pack("<f", value)
    except OverflowError:
        packed = struct.pack("<f", float("inf") if value > 0 else float("-inf"))
    return ir.Constant(scalar, struct.unpack("<f", packed)[0])


class Spelled(ir.Constant):  # type: ignore[misc]
    """A constant in LLVM's own words: ``splat (float 1.0)``, ``poison``, ``zeroinitializer``."""

    def __init__(self, kind: Type, text: str) -> None:
        self.type = kind
        self.constant = text

    def _to_string(self) -> str:
        return f"{self.type} {self.constant}"

    def _get_reference(self) -> str:
        return self.constant


def splat_constant(one: Value, lanes: int) -> Value:
    """A scalar constant in every lane, in LLVM's short spelling (long vectors parse slowly)."""
    return Spelled(widened(one.type, lanes), f"splat ({one.type} {one.get_reference()})")


def splat(builder: Any, value: Value, lanes: int) -> Value:
    """`value` in every lane; a value which already has lanes is returned as it is."""
    if lanes == 1 or isinstance(value.type, ir.VectorType):
        return value
    if isinstance(value, ir.Constant):
        return splat_constant(value, lanes)
    kind = widened(value.type, lanes)
    poison = Spelled(kind, "poison")
    first = builder.insert_element(poison, value, ir.Constant(I64, 0))
    return builder.shuffle_vector(first, poison, shuffle_mask((0,) * lanes))


def shuffle_mask(places: tuple[int, ...]) -> Value:
    """The constant which tells `shufflevector` what goes where."""
    found = _MASKS.get(places)
    if found is None:
        kind = ir.VectorType(I32, len(places))
        found = _MASKS[places] = ir.Constant(kind, [ir.Constant(I32, place) for place in places])
    return found


def intrinsic(builder: Any, name: str, result: Type, arguments: Sequence[Value]) -> Value:
    """Call the LLVM intrinsic of this full name, declaring it in the module when it is new."""
    function = builder.module.globals.get(name)
    if function is None:
        kind = ir.FunctionType(result, [argument.type for argument in arguments])
        function = ir.Function(builder.module, kind, name)
    return builder.call(function, arguments)


def suffix(kind: Type) -> str:
    """How an overloaded intrinsic's name spells a type: ``f32``, ``v16f32``, ``v8i64``."""
    if isinstance(kind, ir.VectorType):
        return f"v{kind.count}{suffix(kind.element)}"
    if isinstance(kind, ir.IntType):
        return f"i{kind.width}"
    return "p0" if isinstance(kind, ir.PointerType) else "f32" if kind is F32 else "f64"

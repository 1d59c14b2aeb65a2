"""Small kernels for the tests of the core, which then do not need gemel's code generator.

They compute in double precision, which is exact for the values in these tests.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from llvmlite import binding, ir

INTEGER = ir.IntType(64)
BYTE_POINTER = ir.IntType(8).as_pointer()
DOUBLE = ir.DoubleType()
#: Memory type by dtype code (no test needs float16).
TYPES: dict[int, Any] = {
    0: ir.IntType(8),
    1: ir.IntType(8),
    2: ir.IntType(8),
    3: ir.IntType(32),
    4: ir.IntType(64),
    6: ir.FloatType(),
    7: ir.DoubleType(),
}
BOOL, UINT8, INT8, INT32, INT64, FLOAT32, FLOAT64 = 0, 1, 2, 3, 4, 6, 7

Expression = Callable[[ir.IRBuilder, list[Any]], Any]
EXPRESSIONS: dict[str, Expression] = {
    "copy": lambda b, v: v[0],
    "add": lambda b, v: b.fadd(v[0], v[1]),
    "subtract": lambda b, v: b.fsub(v[0], v[1]),
    "multiply": lambda b, v: b.fmul(v[0], v[1]),
    "negative": lambda b, v: b.fneg(v[0]),
    "less": lambda b, v: b.uitofp(b.fcmp_ordered("<", v[0], v[1]), DOUBLE),
}


def compile_module(module: ir.Module) -> bytes:
    """The module compiled to an ELF object."""
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    target = binding.Target.from_default_triple()
    machine = target.create_target_machine(opt=2, reloc="pic", codemodel="small")
    parsed = binding.parse_assembly(str(module))
    parsed.verify()
    parsed.triple = binding.get_default_triple()
    return bytes(machine.emit_object(parsed))


def begin_kernel() -> tuple[ir.Module, ir.Function, ir.IRBuilder]:
    """An empty function `kernel` with the signature that all kernels have."""
    module = ir.Module("test")
    pointers = BYTE_POINTER.as_pointer()
    signature = ir.FunctionType(ir.IntType(32), [pointers, INTEGER.as_pointer(), INTEGER, INTEGER])
    function = ir.Function(module, signature, "kernel")
    return module, function, ir.IRBuilder(function.append_basic_block("entry"))


class Loops:
    """Nested counting loops; `position` holds the current indices."""

    def __init__(self, builder: ir.IRBuilder) -> None:
        self.builder = builder
        self.position: list[Any] = []
        self._open: list[tuple[Any, Any]] = []

    def enter(self, start: Any, stop: Any) -> None:
        builder = self.builder
        before = builder.block
        head = builder.append_basic_block("head")
        body = builder.append_basic_block("body")
        after = builder.append_basic_block("after")
        builder.branch(head)
        builder.position_at_end(head)
        index = builder.phi(INTEGER)
        index.add_incoming(start, before)
        builder.cbranch(builder.icmp_signed("<", index, stop), body, after)
        builder.position_at_end(body)
        self.position.append(index)
        self._open.append((head, after))

    def leave_all(self) -> None:
        builder = self.builder
        for index, (head, after) in reversed(list(zip(self.position, self._open, strict=True))):
            index.add_incoming(builder.add(index, INTEGER(1)), builder.block)
            builder.branch(head)
            builder.position_at_end(after)


def integer_at(builder: ir.IRBuilder, function: ir.Function, position: int) -> Any:
    """The run-time integer number `position`."""
    return builder.load(builder.gep(function.args[1], [INTEGER(position)]))


def element(builder: ir.IRBuilder, function: ir.Function, operand: int, code: int, at: Any) -> Any:
    """The address of element `at` of buffer `operand`."""
    base = builder.load(builder.gep(function.args[0], [INTEGER(operand)]))
    return builder.gep(builder.bitcast(base, TYPES[code].as_pointer()), [at])


def to_double(builder: ir.IRBuilder, value: Any, code: int) -> Any:
    if code == FLOAT64:
        return value
    if code == FLOAT32:
        return builder.fpext(value, DOUBLE)
    return (builder.uitofp if code in (BOOL, UINT8) else builder.sitofp)(value, DOUBLE)


def from_double(builder: ir.IRBuilder, value: Any, code: int) -> Any:
    if code == FLOAT64:
        return value
    if code == FLOAT32:
        return builder.fptrunc(value, TYPES[code])
    return (builder.fptoui if code in (BOOL, UINT8) else builder.fptosi)(value, TYPES[code])


def offset(builder: ir.IRBuilder, function: ir.Function, loops: Loops, operand: int) -> Any:
    """The offset, in elements, from an operand's start to the loop position."""
    rank = len(loops.position)
    total = INTEGER(0)
    for axis, index in enumerate(loops.position):
        stride = integer_at(builder, function, rank * (1 + operand) + axis)
        total = builder.add(total, builder.mul(index, stride))
    return total


@cache
def elementwise(name: str, rank: int, operands: tuple[int, ...], out: int) -> bytes:
    """A loop kernel. An operand is a dtype code, or a scalar: -1 bool, -2 int, -3 float."""
    module, function, builder = begin_kernel()
    arrays = [code for code in operands if code >= 0]
    loops = Loops(builder)
    loops.enter(function.args[2], function.args[3])
    for axis in range(1, rank):
        loops.enter(INTEGER(0), integer_at(builder, function, axis))
    values, array, scalar = [], 0, rank * (2 + len(arrays))
    for code in operands:
        if code >= 0:
            at = offset(builder, function, loops, array)
            loaded = builder.load(element(builder, function, array, code, at))
            values.append(to_double(builder, loaded, code))
            array += 1
            continue
        bits = integer_at(builder, function, scalar)
        scalar += 1
        convert = builder.bitcast if code == -3 else builder.sitofp
        values.append(convert(bits, DOUBLE))
    result = from_double(builder, EXPRESSIONS[name](builder, values), out)
    at = offset(builder, function, loops, len(arrays))
    builder.store(result, element(builder, function, len(arrays), out, at))
    loops.leave_all()
    builder.ret(ir.IntType(32)(0))
    return compile_module(module)


@cache
def refuses_negative() -> bytes:
    """Copies float32 operand 0 to operand 1; returns 1 if it met a negative element."""
    module, function, builder = begin_kernel()
    status = builder.alloca(ir.IntType(32))
    builder.store(ir.IntType(32)(0), status)
    loops = Loops(builder)
    loops.enter(function.args[2], function.args[3])
    index = loops.position[0]
    value = builder.load(element(builder, function, 0, FLOAT32, index))
    builder.store(value, element(builder, function, 1, FLOAT32, index))
    negative = builder.fcmp_ordered("<", value, ir.FloatType()(0.0))
    builder.store(builder.select(negative, ir.IntType(32)(1), builder.load(status)), status)
    loops.leave_all()
    builder.ret(builder.load(status))
    return compile_module(module)


@cache
def tile_starts() -> bytes:
    """Writes the start of its range into every int64 element of the range."""
    module, function, builder = begin_kernel()
    loops = Loops(builder)
    loops.enter(function.args[2], function.args[3])
    at = element(builder, function, 0, INT64, loops.position[0])
    builder.store(function.args[2], at)
    loops.leave_all()
    builder.ret(ir.IntType(32)(0))
    return compile_module(module)


@cache
def store_integers(count: int) -> bytes:
    """Writes its first `count` run-time integers into int64 operand 0."""
    module, function, builder = begin_kernel()
    for position in range(count):
        at = element(builder, function, 0, INT64, INTEGER(position))
        builder.store(integer_at(builder, function, position), at)
    builder.ret(ir.IntType(32)(0))
    return compile_module(module)


@cache
def slow_copy(repeats: int) -> bytes:
    """Copies float64 operand 0 to operand 1 `repeats` times: work that takes a while and ends."""
    module, function, builder = begin_kernel()
    loops = Loops(builder)
    loops.enter(INTEGER(0), INTEGER(repeats))
    loops.enter(function.args[2], function.args[3])
    index = loops.position[1]
    value = builder.load(element(builder, function, 0, FLOAT64, index))
    kept = element(builder, function, 1, FLOAT64, index)
    store = builder.store(value, kept)
    store.align = 8
    builder.fence("seq_cst")
    loops.leave_all()
    builder.ret(ir.IntType(32)(0))
    return compile_module(module)


@cache
def calls_unknown() -> bytes:
    """An object that calls a function the loader does not provide."""
    module, _, builder = begin_kernel()
    unknown = ir.Function(module, ir.FunctionType(ir.IntType(32), []), "not_in_the_table")
    builder.ret(builder.call(unknown, []))
    return compile_module(module)

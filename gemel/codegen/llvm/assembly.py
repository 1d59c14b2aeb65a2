"""LLVM's assembly, written as text: types, values, and a `Builder` of one function.

Each instruction is written as a line at once. An object for each instruction, as llvmlite makes,
would take four times as long. Lines may be reordered afterwards (`Builder.interleaving`).
"""

from __future__ import annotations

import re
import struct
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TypeAlias

from gemel.errors import CompileError

#: Names of values.
_VALUE = re.compile(r"%v[0-9]+")

#: Lines written inside it belong to one branch.
Side: TypeAlias = "AbstractContextManager[None]"


class Type:
    """A type, compared by identity: there is one object for each type. A vector has `lanes` times
    `element`."""

    __slots__ = ("element", "lanes", "suffix", "text")

    def __init__(self, text: str, suffix: str, element: Type | None = None, lanes: int = 1) -> None:
        self.text = text
        self.suffix = suffix  # the spelling in the names of overloaded intrinsics: f32, v16f32
        self.element = element or self
        self.lanes = lanes

    def __str__(self) -> str:
        return self.text


_integers: dict[int, Type] = {}
_vectors: dict[tuple[Type, int], Type] = {}


def integer(bits: int) -> Type:
    """The integer type of this many bits."""
    found = _integers.get(bits)
    if found is None:
        found = _integers[bits] = Type(f"i{bits}", f"i{bits}")
    return found


def widened(scalar: Type, lanes: int) -> Type:
    """The scalar type itself for one lane, else a vector of it."""
    if lanes == 1:
        return scalar
    found = _vectors.get((scalar, lanes))
    if found is None:
        found = Type(f"<{lanes} x {scalar}>", f"v{lanes}{scalar.suffix}", scalar, lanes)
        _vectors[scalar, lanes] = found
    return found


I1, I8, I16, I32, I64 = map(integer, (1, 8, 16, 32, 64))
HALF, BF16 = Type("half", "f16"), Type("bfloat", "bf16")
F32, F64 = Type("float", "f32"), Type("double", "f64")
POINTER, VOID = Type("ptr", "p0"), Type("void", "")


class Value:
    """An argument of instructions: its type, and its name in the text."""

    __slots__ = ("text", "type")

    def __init__(self, kind: Type, text: str) -> None:
        self.type = kind
        self.text = text

    def __str__(self) -> str:
        return f"{self.type.text} {self.text}"


class Constant(Value):
    """A number, or one of LLVM's words for constants: ``poison``, ``zeroinitializer``."""

    __slots__ = ()

    def __init__(self, kind: Type, value: int | float | str) -> None:
        if isinstance(value, float):
            # LLVM writes float32 constants, too, as the bits of the double of the same value.
            value = f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016x}"
        super().__init__(kind, str(value))


def splat_constant(one: Constant, lanes: int) -> Constant:
    """A scalar constant in every lane."""
    return Constant(widened(one.type, lanes), f"splat ({one})")


def zeros(kind: Type) -> Value:
    """A constant of this type, usually a vector, all of whose bits are 0."""
    return Constant(kind, "zeroinitializer")


class Phi(Value):
    """A value that depends on the block from which control arrives."""

    __slots__ = ("ways",)

    def __init__(self, kind: Type, text: str) -> None:
        super().__init__(kind, text)
        self.ways: list[str] = []

    def add_incoming(self, value: Value, block: str) -> None:
        """Adds the value for control that arrives from `block`."""
        self.ways.append(f"[ {value.text}, %{block} ]")

    def line(self) -> str:
        """The instruction, once all incoming values are known."""
        return f"{self.text} = phi {self.type.text} {', '.join(self.ways)}"


class Module:
    """The module of the function ``kernel``: the lines of its `Builder`, and what they call."""

    def __init__(self, triple: str) -> None:
        self.triple = triple
        self.lines: list[str | Phi] = []
        #: Stack allocations: they belong to the first block, wherever they were asked for.
        self.rooms: list[str] = []
        self.declared: dict[str, str] = {}
        #: Functions that the module defines itself, by name.
        self.functions: dict[str, str] = {}

    @property
    def body(self) -> str:
        """The function's lines."""
        lines = ["entry:", *self.rooms, *self.lines]
        return "\n".join(line if isinstance(line, str) else line.line() for line in lines)

    def __str__(self) -> str:
        return "\n".join(
            (
                f'target triple = "{self.triple}"',
                *self.declared.values(),
                "define i32 @kernel(ptr %buffers, ptr %integers, i64 %begin, i64 %end) nounwind {",
                self.body,
                "}",
                *self.functions.values(),
                '!0 = !{!"branch_weights", i32 1, i32 99}',
                "",
            )
        )


_ORDERS = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
_EQUAL = {"==": "eq", "!=": "ne"}
#: The neutral second operand of instructions, with which they return the first.
_NEUTRAL = {"add": "0", "sub": "0", "mul": "1", "udiv": "1"}
_NAN = {"ord": "ord", "uno": "uno"}


def _same(name: str, a: Value, b: Value) -> None:
    if a.type is not b.type:
        raise CompileError(f"{name} of {a.type} and {b.type}")


def _binary(name: str) -> Callable[[Builder, Value, Value], Value]:
    return lambda self, a, b: self.binary(name, a, b)


def _comparison(name: str, order: str, equal: str) -> Callable[[Builder, str, Value, Value], Value]:
    names = {sign: order + found for sign, found in _ORDERS.items()}
    names |= {sign: equal + found for sign, found in _EQUAL.items()} | _NAN

    def instruction(self: Builder, sign: str, a: Value, b: Value) -> Value:
        _same(sign, a, b)
        kind = widened(I1, a.type.lanes)
        return self._value(kind, f"{name} {names[sign]} {a.type.text} {a.text}, {b.text}")

    return instruction


def _conversion(name: str) -> Callable[[Builder, Value, Type], Value]:
    def instruction(self: Builder, value: Value, kind: Type) -> Value:
        if value.type is kind:
            return value
        return self._value(kind, f"{name} {value} to {kind}")

    return instruction


class Builder:
    """Writes the function's lines, one block after another. Blocks are identified by name."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.block = "entry"
        self._lines = module.lines
        self._values = 0
        #: Values that are already computed and valid in the current block, by instruction.
        self._known: dict[str, Value] = {}
        #: By block: what is known at the end of the block that created it.
        self._above: list[dict[str, Value]] = []

    def _new(self, kind: Type, text: str) -> Value:
        """The value of an instruction that is executed at this point."""
        number = self._values
        self._values = number + 1
        name = f"%v{number}"
        self._lines.append(f"{name} = {text}")
        return Value(kind, name)

    def _value(self, kind: Type, text: str) -> Value:
        """The value of a pure instruction. If it is known already, it is not computed again."""
        found = self._known.get(text)
        if found is None:
            found = self._known[text] = self._new(kind, text)
        return found

    @contextmanager
    def interleaving(self) -> Iterator[Callable[[], None]]:
        """Interleaves the lines of several parts; each part begins where the yielded function is
        called. So while the processor waits for an instruction of one part, it finds instructions
        of others nearby. Nothing is reordered if the parts span several blocks or write to memory.
        No part may use values of later ones."""
        starts: list[int] = []
        block = self.block
        yield lambda: starts.append(len(self._lines))
        ends = [*starts[1:], len(self._lines)]
        if len(starts) < 2 or self.block != block:
            return
        if any(str(line).startswith(("store", "call")) for line in self._lines[starts[0] :]):
            return  # one part may read what another writes
        parts = [
            deque(map(str, self._lines[begin:end])) for begin, end in zip(starts, ends, strict=True)
        ]
        del self._lines[starts[0] :]
        waiting = {line.split(" ", 1)[0] for part in parts for line in part}
        while any(parts):
            for part in filter(None, parts):
                if waiting.isdisjoint(_VALUE.findall(part[0], 1 + part[0].find("="))):
                    line = part.popleft()
                    waiting.discard(line.split(" ", 1)[0])
                    self._lines.append(line)

    # -- blocks -----------------------------------------------------------------------------

    def append_basic_block(self) -> str:
        """The name of a new block. The current block must dominate it (every path to it leads
        through here), so that values known at this point are known there, too."""
        self._above.append(self._known)
        return f"b{len(self._above) - 1}"

    def position_at_end(self, block: str) -> None:
        """Begins a block; the previous one has ended with a branch."""
        self.block = block
        self._known = self._above[int(block[1:])].copy()
        self._lines.append(f"{block}:")

    def branch(self, block: str) -> None:
        self._lines.append(f"br label %{block}")

    def cbranch(self, condition: Value, block: str, other: str, likely: bool = True) -> None:
        """Jumps to `block` if the condition holds, else to `other`."""
        weights = "" if likely else ", !prof !0"
        self._lines.append(f"br i1 {condition.text}, label %{block}, label %{other}{weights}")

    def ret(self, value: Value) -> None:
        self._lines.append(f"ret {value}")

    def phi(self, kind: Type, *ways: tuple[Value, str]) -> Phi:
        """The value that depends on the preceding block; more incoming values may be added."""
        found = Phi(kind, f"%v{self._values}")
        self._values += 1
        for value, block in ways:
            found.add_incoming(value, block)
        self._lines.append(found)
        return found

    @contextmanager
    def if_then(self, condition: Value, likely: bool = True) -> Iterator[None]:
        """Code written inside runs only if the condition holds."""
        inside, after = self.append_basic_block(), self.append_basic_block()
        self.cbranch(condition, inside, after, likely)
        with self._side(inside, after):
            yield
        self.position_at_end(after)

    @contextmanager
    def if_else(self, condition: Value) -> Iterator[tuple[Side, Side]]:
        """Two branches: ``with builder.if_else(c) as (then, otherwise): with then: ...``."""
        first, other, after = (self.append_basic_block() for _ in range(3))
        self.cbranch(condition, first, other)
        yield self._side(first, after), self._side(other, after)
        self.position_at_end(after)

    @contextmanager
    def _side(self, block: str, after: str) -> Iterator[None]:
        self.position_at_end(block)
        yield
        self.branch(after)

    # -- arithmetic -------------------------------------------------------------------------

    def binary(self, name: str, a: Value, b: Value) -> Value:
        """The instruction of this name."""
        _same(name, a, b)
        if b.text == _NEUTRAL.get(name):
            return a
        if a.text == "0" and name in ("add", "mul"):
            return b if name == "add" else a
        return self._value(a.type, f"{name} {a.type.text} {a.text}, {b.text}")

    add, sub, mul = _binary("add"), _binary("sub"), _binary("mul")
    udiv, sdiv = _binary("udiv"), _binary("sdiv")
    and_, or_, xor = _binary("and"), _binary("or"), _binary("xor")
    shl, lshr, ashr = _binary("shl"), _binary("lshr"), _binary("ashr")
    fadd, fsub, fmul, fdiv = map(_binary, ("fadd", "fsub", "fmul", "fdiv"))

    def fneg(self, a: Value) -> Value:
        return self._value(a.type, f"fneg {a}")

    # `sign` is the comparison: ==, <, ... or, for floating-point values, ord and uno.
    icmp_signed, icmp_unsigned = _comparison("icmp", "s", ""), _comparison("icmp", "u", "")
    fcmp_ordered, fcmp_unordered = _comparison("fcmp", "o", "o"), _comparison("fcmp", "u", "u")

    def freeze(self, a: Value) -> Value:
        """The same value, but LLVM may assume nothing about it."""
        return self._value(a.type, f"freeze {a}")

    def opaque(self, a: Value) -> Value:
        """The same vector, but LLVM may not combine instructions that use it with those that made
        it."""
        bits = int(a.type.element.suffix[1:]) * a.type.lanes
        if bits % 32:
            return a
        words = widened(F32, bits // 32)
        kind = a.type if a.type.element in (F32, F64) else words
        fence = f"llvm.arithmetic.fence.{kind.suffix}"
        return self.bitcast(self.intrinsic(fence, kind, [self.bitcast(a, kind)]), a.type)

    def select(self, condition: Value, a: Value, b: Value) -> Value:
        _same("select", a, b)
        return self._value(a.type, f"select {condition}, {a}, {b}")

    def minimum(self, a: Value, b: Value) -> Value:
        """The smaller of two signed integers."""
        return self.select(self.icmp_signed("<", a, b), a, b)

    trunc, zext, sext = _conversion("trunc"), _conversion("zext"), _conversion("sext")
    fptrunc, fpext = _conversion("fptrunc"), _conversion("fpext")
    fptosi, fptoui = _conversion("fptosi"), _conversion("fptoui")
    sitofp, uitofp = _conversion("sitofp"), _conversion("uitofp")
    bitcast = _conversion("bitcast")
    ptrtoint, inttoptr = _conversion("ptrtoint"), _conversion("inttoptr")

    # -- lanes ------------------------------------------------------------------------------

    def any(self, condition: Value) -> Value:
        """Whether a condition holds in some lane."""
        bits = integer(condition.type.lanes)
        return self.icmp_unsigned("!=", self.bitcast(condition, bits), Constant(bits, 0))

    def where_any(
        self, condition: Value, usual: Sequence[Value], compute: Callable[[], Sequence[Value]]
    ) -> list[Value]:
        """The results of `compute` if the condition holds in any lane, which is rare; else `usual`.
        Without the branch, vector code would always compute both."""
        some, before = self.any(condition), self.block
        with self.if_then(some, likely=False):
            found, inside = compute(), self.block
        return [
            self.phi(old.type, (old, before), (new, inside))
            for old, new in zip(usual, found, strict=True)
        ]

    def extract_element(self, vector: Value, lane: Value) -> Value:
        return self._value(vector.type.element, f"extractelement {vector}, {lane}")

    def insert_element(self, vector: Value, value: Value, lane: Value) -> Value:
        return self._value(vector.type, f"insertelement {vector}, {value}, {lane}")

    def shuffle_vector(self, a: Value, b: Value, mask: Value) -> Value:
        """The lanes of a and then b that `mask`, a constant, names."""
        kind = widened(a.type.element, mask.type.lanes)
        return self._value(kind, f"shufflevector {a}, {b}, {mask}")

    # -- memory -----------------------------------------------------------------------------

    def alloca(self, kind: Type, count: int = 1, align: int = 8) -> Value:
        """Stack memory for `count` values of a type, for the whole call. It is allocated at the
        start of the function: anywhere else LLVM would take it for an allocation of unknown size
        that is repeated in each iteration of a loop, and would move the stack pointer at run
        time."""
        name = f"%v{self._values}"
        self._values += 1
        self.module.rooms.append(f"{name} = alloca [{count} x {kind}], align {align}")
        return Value(POINTER, name)

    def gep(self, pointer: Value, offset: Value, kind: Type) -> Value:
        """The address `offset` elements of this type after `pointer`."""
        if offset.text == "0":
            return pointer
        return self._value(POINTER, f"getelementptr {kind}, {pointer}, {offset}")

    def load(self, pointer: Value, kind: Type, align: int) -> Value:
        return self._new(kind, f"load {kind}, {pointer}, align {align}")

    def store(self, value: Value, pointer: Value, align: int) -> None:
        self._lines.append(f"store {value}, {pointer}, align {align}")

    def _call(self, name: str, result: Type, arguments: Sequence[Value]) -> str:
        declared = self.module.declared
        if name not in declared:
            kinds = ", ".join(argument.type.text for argument in arguments)
            declared[name] = f"declare {result} @{name}({kinds})"
        return f"call {result} @{name}({', '.join(map(str, arguments))})"

    def call(self, name: str, arguments: Sequence[Value], write: Callable[..., Value]) -> Value:
        """Calls a function that the module defines. Its arguments and its result have one type. On
        the first call of this name, `write(builder, *arguments)` writes the function."""
        kind, module = arguments[0].type, self.module
        name = f"{name}.{kind.suffix}"
        if name not in module.functions:
            inner = Module(module.triple)
            inner.declared, inner.functions = module.declared, module.functions
            builder, inside = (
                Builder(inner),
                [Value(a.type, f"%{i}") for i, a in enumerate(arguments)],
            )
            builder.ret(write(builder, *inside))
            head = f"define internal {kind} @{name}({', '.join(map(str, inside))}) nounwind {{"
            module.functions[name] = f"{head}\n{inner.body}\n}}"
        return self._value(kind, f"call {kind} @{name}({', '.join(map(str, arguments))})")

    def intrinsic(self, name: str, result: Type, arguments: Sequence[Value]) -> Value:
        """The intrinsic of this full name, which has no side effects and reads no memory."""
        return self._value(result, self._call(name, result, arguments))

    def reading(self, name: str, result: Type, arguments: Sequence[Value]) -> Value:
        """The intrinsic of this full name, which reads memory."""
        return self._new(result, self._call(name, result, arguments))

    def writing(self, name: str, arguments: Sequence[Value]) -> None:
        """The intrinsic of this full name, which writes memory and returns nothing."""
        self._lines.append(self._call(name, VOID, arguments))

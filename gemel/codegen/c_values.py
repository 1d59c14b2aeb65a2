"""Instructions as C expressions, and the functions these call.

Functions such as exp are written out from the table the machine code is made from (`mathlib`).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from typing import Any

from gemel import dtype as dtypes
from gemel.codegen import halves, mathlib, powers
from gemel.codegen.program import Instruction
from gemel.codegen.spelling import ARITHMETIC, COMPARISONS, EXACT, EXTREMES
from gemel.dtype import DType

#: C's operators of bools, by LLVM's instruction.
_SIGNS = {"or": "|", "and": "&", "xor": "^"}
_BOOLEAN = {
    **{name: _SIGNS[spelled.boolean] for name, spelled in ARITHMETIC.items()},
    **{name: ARITHMETIC[other].sign for name, other in EXTREMES.items()},
}
#: Whole numbers, where C leaves something undefined. T is the type, U an unsigned one, N its bits.
_WHOLE = {
    "divide": "return b == 0 ? 0 : b == -1 ? (T)(0 - (U)a) : (T)(a / b);",
    "shift_left": "return (U)b < N ? (T)((U)a << b) : 0;",
    "shift_right": "return (U)b < N ? (T)(a >> b) : a < 0 ? -1 : 0;",
}
_NATURAL = {
    "divide": "return b == 0 ? 0 : a / b;",
    "shift_left": _WHOLE["shift_left"],
    "shift_right": "return (U)b < N ? (T)(a >> b) : 0;",
}


def kind(dtype: DType) -> str:
    """The C type of values of a dtype."""
    if dtype.compute is not dtype or dtype.kind == "b":
        return dtype.name
    return {"float32": "float", "float64": "double"}.get(dtype.name, f"{dtype.name}_t")


def memory(dtype: DType) -> str:
    """The C type elements of a dtype have in memory: a bool is a byte that is not 0."""
    return "uint8_t" if dtype.kind == "b" else kind(dtype)


def _unsigned(dtype: DType) -> str:
    return "uint64_t" if dtype.itemsize == 8 else "uint32_t"


def literal(dtype: DType, value: Any) -> str:
    """A constant."""
    if dtype.kind == "b":
        return "true" if value else "false"
    if dtype.kind == "f":
        return _floating(dtype, float(value))
    bits = 8 * dtype.itemsize
    value = int(value) % 2**bits
    if dtype.kind == "i" and value >= 2 ** (bits - 1):
        value -= 2**bits
        if value == -(2 ** (bits - 1)):
            return f"INT{bits}_MIN"
    ending = ("u" if dtype.kind == "u" else "") + ("ll" if bits == 64 else "")
    return f"({value}{ending})" if value < 0 else f"{value}{ending}"


def _floating(dtype: DType, value: float) -> str:
    """The shortest text that is this value."""
    single = dtype is dtypes.float32
    if single and abs(value) < float("inf"):
        try:
            value = struct.unpack("<f", struct.pack("<f", value))[0]
        except OverflowError:
            value *= float("inf")
    if value != value:
        return "(float)NAN" if single else "(double)NAN"
    sign, size = "-" if str(value)[0] == "-" else "", abs(value)
    text = "INFINITY" if size == float("inf") else repr(size)
    if single and text != "INFINITY":
        digits = (f"{size:.{n}g}" for n in range(6, 10))
        text = next(t for t in digits if struct.pack("<f", float(t)) == struct.pack("<f", size))
        text += ("" if "." in text or "e" in text else ".0") + "f"
    return f"(-{text})" if sign else text


class Unit:
    """The functions that kernels of one text share, each after those it calls."""

    def __init__(self) -> None:
        self.functions: dict[str, str] = {}

    def _once(
        self, name: str, made: DType, arguments: str, lines: Callable[[], list[str]], told: str = ""
    ) -> str:
        """The name of a function, whose lines are written when it is first asked for."""
        if name not in self.functions:
            body = "".join(f"    {line}\n" for line in lines() if line)
            text = f"{told}static {kind(made)} {name}({arguments}) {{\n{body}}}\n"
            self.functions[name] = text
        return name

    def whole(self, name: str, dtype: DType) -> str:
        """The function of whole numbers of this name."""
        made = kind(dtype)
        meant = {"T": made, "U": _unsigned(dtype), "N": str(8 * dtype.itemsize)}
        body = (_WHOLE if dtype.kind == "i" else _NATURAL)[name]
        body = re.sub(r"\b[TUN]\b", lambda found: meant[found.group()], body)
        return self._once(f"{name}_{dtype}", dtype, f"{made} a, {made} b", lambda: [body])

    def expanded(self, name: str, given: DType, found: DType) -> str:
        """The function which mathlib writes out as arithmetic."""
        code, result = mathlib.expansion(name, given, found)
        count = sum(step.name == "argument" for step in code)
        values = Values(self, code)
        arguments = ", ".join(f"{kind(given)} v{i}" for i in range(count))
        told = (mathlib.FUNCTIONS[name].__doc__ or "").split("\n")[0]

        def lines() -> list[str]:
            before = [values.statement(i) for i in range(count, result + 1)]
            return [*before, f"return {values.of(result)};"]

        full = name if name in halves.FUNCTIONS else f"{name}_{given}"
        return self._once(full, found, arguments, lines, f"/* {told} */\n")

    def power(self, dtype: DType) -> str:
        """Powers: products and roots where the exponent says so."""

        def lines() -> list[str]:
            short = [
                f"if ({self.expanded(condition, dtype, dtypes.bool_)}(y)) "
                f"return {self.expanded(name, dtype, dtype)}(x, y);"
                for condition, name in powers.SHORT
            ]
            return [*short, f"return {self.expanded('power', dtype, dtype)}(x, y);"]

        made = kind(dtype)
        return self._once(f"any_power_{dtype}", dtype, f"{made} x, {made} y", lines)

    def bits(self, given: DType, found: DType) -> str:
        """The function that gives the same bits as another type."""
        lines = [f"{kind(found)} y;", "memcpy(&y, &x, sizeof y);", "return y;"]
        name = f"bits_of_{given}_as_{found}"
        return self._once(name, found, f"{kind(given)} x", lambda: lines)


class Values:
    """Instructions as expressions: each is a variable of its number, constants stand where used."""

    def __init__(self, unit: Unit, code: Sequence[Instruction]) -> None:
        self.unit = unit
        self.code = code

    def of(self, position: int) -> str:
        """What stands for a value."""
        step = self.code[position]
        return literal(step.dtype, step.attribute) if step.name == "constant" else f"v{position}"

    def statement(self, position: int) -> str:
        """The line that computes a value; nothing for a constant."""
        step = self.code[position]
        if step.name == "constant":
            return ""
        return f"const {kind(step.dtype)} v{position} = {self.expression(step)};"

    def expression(self, step: Instruction) -> str:
        """What an instruction computes from its arguments."""
        arguments = [self.of(i) for i in step.arguments]
        kinds = [self.code[i].dtype for i in step.arguments]
        if step.name == "seldom":
            seldom = self.unit.expanded(str(step.attribute), kinds[2], step.dtype)
            return f"{arguments[0]} ? {seldom}({', '.join(arguments[2:])}) : {arguments[1]}"
        return self.computed(step.name, step.dtype, arguments, kinds)

    def computed(
        self, name: str, dtype: DType, arguments: Sequence[str], kinds: Sequence[DType]
    ) -> str:
        """The instruction `name` of these arguments."""
        a, b, c = (*arguments, "", "", "")[:3]
        if name in COMPARISONS:
            return f"{a} {COMPARISONS[name]} {b}"
        if name == "select":
            return f"{a} ? {b} : {c}"
        if name == "isnan":
            return f"{a} != {a}" if kinds[0].kind == "f" else "false"
        if name == "cast":
            return self.cast(a, kinds[0], dtype)
        if name == "reinterpret":
            if kinds[0].itemsize != dtype.itemsize:
                return f"({kind(dtype)}){a}"
            return f"{self.unit.bits(kinds[0], dtype)}({a})"
        if dtype.kind == "b":
            return f"!{a}" if name == "bit_not" else f"{a} {_BOOLEAN[name]} {b}"
        if name in ("maximum", "minimum"):
            sign = ">" if name == "maximum" else "<"
            first = f"{a} {sign} {b}" + (f" || {a} != {a}" if dtype.kind == "f" else "")
            return f"{first} ? {a} : {b}"
        return (self._floating if dtype.kind == "f" else self._whole)(name, dtype, a, b, c)

    def _floating(self, name: str, dtype: DType, a: str, b: str, c: str) -> str:
        f = "f" if dtype is dtypes.float32 else ""
        if name in ARITHMETIC:
            return f"{a} {ARITHMETIC[name].sign} {b}"
        if name == "divide":
            return f"{a} / {b}"
        if name == "negative":
            return f"-{a}"
        if name == "absolute":
            return f"fabs{f}({a})"
        if name in EXACT:
            return f"{name}{f}({a})"
        if name == "multiply_add":
            return f"fma{f}({a}, {b}, {c})"
        if name == "power":
            return f"{self.unit.power(dtype)}({a}, {b})"
        function = self.unit.expanded(name, dtype, dtype)
        return f"{function}({a}{', ' + b if b else ''})"

    def _whole(self, name: str, dtype: DType, a: str, b: str, c: str) -> str:
        """Whole numbers wrap around."""
        made, wide = kind(dtype), _unsigned(dtype)
        if name.startswith("bit_") and b:
            return f"({made})({a} {ARITHMETIC[name].sign} {b})"
        if name in ARITHMETIC:
            return f"({made})(({wide}){a} {ARITHMETIC[name].sign} ({wide}){b})"
        if name == "bit_not":
            return f"({made})~{a}"
        if name == "negative":
            return f"({made})(0 - ({wide}){a})"
        if name == "absolute":
            return f"{a} < 0 ? ({made})(0 - ({wide}){a}) : {a}" if dtype.kind == "i" else a
        if name == "multiply_high":
            return f"(uint32_t)((uint64_t){a} * {b} >> 32)"
        if name in EXACT:
            return a
        number = b.rstrip("ul")
        if name.startswith("shift") and number.isdigit() and int(number) < 8 * dtype.itemsize:
            left = f"({wide}){a} << {b}"
            return f"({made})({left if name == 'shift_left' else f'{a} >> {b}'})"
        known = name in _WHOLE
        function = self.unit.whole(name, dtype) if known else self.unit.expanded(name, dtype, dtype)
        return f"{function}({a}, {b})"

    def cast(self, a: str, given: DType, found: DType) -> str:
        """As NumPy's astype; two bytes are rounded to once."""
        if given is found:
            return a
        if given.compute is not given:
            wide = given.compute
            return self.cast(
                f"{self.unit.expanded(f'{given}_to_{wide}', given, wide)}({a})", wide, found
            )
        if found.compute is not found:
            wide = found.compute
            if given.digits > wide.digits:
                odd = self.unit.expanded("double_to_odd_float", dtypes.float64, wide)
                single = f"{odd}({self.cast(a, given, dtypes.float64)})"
            else:
                single = self.cast(a, given, wide)
            return f"{self.unit.expanded(f'{wide}_to_{found}', wide, found)}({single})"
        if found.kind == "b":
            return f"{a} != 0"
        if given.kind != "f" or found.kind == "f":
            return f"({kind(found)}){a}"
        if found is dtypes.uint64:
            low, high = f"(uint64_t)(int64_t){a}", f"(uint64_t)(int64_t)({a} - 0x1p63) ^ 1ull << 63"
            return f"{a} >= 0x1p63 ? {high} : {low}"
        way = "(int32_t)" if found.itemsize <= 2 else "(int64_t)" if found.kind == "u" else ""
        return f"({kind(found)}){way}{a}"

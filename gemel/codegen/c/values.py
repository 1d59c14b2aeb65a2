"""Instructions as C expressions, and the C functions that these expressions call.

Functions such as exp are written out from the same table as the machine code (`mathlib`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

from gemel import dtype as dtypes
from gemel.codegen.functions import halves, mathlib, powers
from gemel.codegen.language.carry import Fragment
from gemel.codegen.language.program import Instruction
from gemel.codegen.language.spelling import looked_up, spelled
from gemel.codegen.llvm.registers import rounded
from gemel.dtype import DType


def value_type(dtype: DType) -> str:
    """The C type of values of a dtype."""
    if dtype.compute is not dtype or dtype.kind == "b":
        return dtype.name
    return {"float32": "float", "float64": "double"}.get(dtype.name, f"{dtype.name}_t")


def element_type(dtype: DType) -> str:
    """The C type that elements of a dtype have in memory: a bool is a byte that is 0 or not."""
    return "uint8_t" if dtype.kind == "b" else value_type(dtype)


def _unsigned(dtype: DType) -> str:
    return "uint64_t" if dtype.itemsize == 8 else "uint32_t"


def literal(dtype: DType, value: Any) -> str:
    """A constant of this dtype, as C spells it."""
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
    """The shortest C literal that has exactly this value."""
    single = dtype is dtypes.float32
    value = rounded(value) if single else value
    if value != value:
        return "(float)NAN" if single else "(double)NAN"
    sign, size = "-" if str(value)[0] == "-" else "", abs(value)
    text = "INFINITY" if size == float("inf") else repr(size)
    if single and text != "INFINITY":
        digits = (f"{size:.{n}g}" for n in range(6, 10))
        text = next(t for t in digits if struct.pack("<f", float(t)) == struct.pack("<f", size))
        text += ("" if "." in text or "e" in text else ".0") + "f"
    return f"(-{text})" if sign else text


def _needed(code: Sequence[Instruction], result: int) -> list[int]:
    """The positions, in order, of the instructions that a result depends on."""
    needed = {result}
    for position in range(result, -1, -1):
        if position in needed:
            needed.update(code[position].arguments)
    return sorted(needed)


class Functions:
    """The functions that the kernels of one C file share; each follows the functions it calls."""

    def __init__(self, qualifier: str = "static") -> None:
        self.qualifier = qualifier
        self.functions: dict[str, str] = {}

    def _once(
        self, name: str, made: DType, arguments: str, lines: Callable[[], list[str]], told: str = ""
    ) -> str:
        """The name of a function. Its lines are written when it is first asked for."""
        if name not in self.functions:
            body = "".join(f"    {line}\n" for line in lines() if line)
            head = f"{self.qualifier} {value_type(made)} {name}({arguments})"
            text = f"{told}{head} {{\n{body}}}\n"
            self.functions[name] = text
        return name

    def expanded(self, name: str, given: DType) -> str:
        """The function that `mathlib` expresses in simpler instructions."""
        code, result = mathlib.expansion(name, given)
        count = sum(step.name == "argument" for step in code)
        values = Expressions(self, code)
        arguments = ", ".join(f"{value_type(given)} v{i}" for i in range(count))
        told = (mathlib.written(name, given).__doc__ or "").split("\n")[0]

        def lines() -> list[str]:
            before = [values.statement(i) for i in _needed(code, result) if i >= count]
            return [*before, f"return {values.of(result)};"]

        full = name if name in halves.FUNCTIONS else f"{name}_{given}"
        return self._once(full, code[result].dtype, arguments, lines, f"/* {told} */\n")

    def power(self, dtype: DType) -> str:
        """Powers: for some exponents by products and roots (`powers.SHORT`)."""

        def lines() -> list[str]:
            found = []
            for condition, name in (*powers.SHORT, ("", "power")):
                asked = f"if ({self.expanded(condition, dtype)}(y)) " if condition else ""
                found.append(f"{asked}return {self.expanded(name, dtype)}(x, y);")
            return found

        made = value_type(dtype)
        return self._once(f"any_power_{dtype}", dtype, f"{made} x, {made} y", lines)

    def bits(self, given: DType, found: DType) -> str:
        """The function that reinterprets the bits of a value as another type."""
        lines = [f"{value_type(found)} y;", "memcpy(&y, &x, sizeof y);", "return y;"]
        name = f"bits_of_{given}_as_{found}"
        return self._once(name, found, f"{value_type(given)} x", lambda: lines)


class Expressions:
    """Instructions as expressions: each result is a variable; constants are written where used."""

    def __init__(self, unit: Functions, code: Sequence[Instruction]) -> None:
        self.unit = unit
        self.code = code

    def of(self, position: int) -> str:
        """The expression for a value: its variable, or the literal of a constant."""
        step = self.code[position]
        constant = step.name == "constant"
        return literal(step.dtype, step.attribute) if constant else self.variable(position)

    def variable(self, position: int) -> str:
        """The name of the variable that holds a value."""
        return f"v{position}"

    def statement(self, position: int) -> str:
        """The line that computes a value; empty for a constant."""
        step = self.code[position]
        if step.name == "constant":
            return ""
        name = self.variable(position)
        return f"const {value_type(step.dtype)} {name} = {self.expression(step)};"

    def expression(self, step: Instruction) -> str:
        """What an instruction computes from its arguments."""
        arguments = [self.of(i) for i in step.arguments]
        kinds = [self.code[i].dtype for i in step.arguments]
        if step.name == "seldom":
            seldom = self.unit.expanded(str(step.attribute), kinds[2])
            return f"{arguments[0]} ? {seldom}({', '.join(arguments[2:])}) : {arguments[1]}"
        return self.computed(looked_up(step, self.code), step.dtype, arguments, kinds[0])

    def computed(self, name: str, dtype: DType, arguments: Sequence[str], given: DType) -> str:
        """The instruction `name` of these arguments, the first of which is of the dtype `given`."""
        text = spelled(name, given.kind).c
        if text:
            f = "f" if given is dtypes.float32 else ""
            named = dict(zip("abc", arguments, strict=False))
            return text.format(T=value_type(dtype), U=_unsigned(dtype), f=f, **named)
        if name == "cast":
            return self.cast(arguments[0], given, dtype)
        if name == "reinterpret":
            if given.itemsize != dtype.itemsize:
                return f"({value_type(dtype)}){arguments[0]}"
            return f"{self.unit.bits(given, dtype)}({arguments[0]})"
        if name == "power" and given.kind == "f":
            return f"{self.unit.power(dtype)}({', '.join(arguments)})"
        return f"{self.unit.expanded(name, given)}({', '.join(arguments)})"

    def cast(self, text: str, source: DType, target: DType) -> str:
        """As NumPy's astype; a conversion to a two-byte float rounds only once."""
        for name, following in halves.casts(source, target):
            if name:
                text = f"{self.unit.expanded(name, source)}({text})"
            elif following.kind == "b":
                text = f"{text} != 0"
            else:
                text = f"({value_type(following)}){text}"
            source = following
        return text


class InPlace(Expressions):
    """A fragment of a carry as lines of C, with given expressions for its arguments."""

    def __init__(self, unit: Functions, fragment: Fragment, given: Sequence[str]) -> None:
        super().__init__(unit, fragment.code)
        self.fragment, self.given = fragment, given

    def variable(self, position: int) -> str:
        return self.given[position] if position < len(self.given) else f"w{position}"

    @property
    def lines(self) -> list[str]:
        """The lines that compute the results."""
        needed = sorted({p for result in self.fragment.results for p in _needed(self.code, result)})
        return [self.statement(p) for p in needed if p >= len(self.given)]

    @property
    def results(self) -> list[str]:
        """The expressions for the results after these lines."""
        return [self.of(position) for position in self.fragment.results]

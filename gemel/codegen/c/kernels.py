"""Kernels as C, for readers: the plain loops of a `Program`, whatever its schedule.

`source` returns text that needs only C11 and computes what the machine code computes. Functions
such as exp are written out from the same table (`mathlib`), so elementwise results have the same
bits (with ``-ffp-contract=off``). Sums add one element after another, which differs from the order
of the vectors of `loops` and those of `tiles`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any

from gemel.codegen.analysis import Analysis
from gemel.codegen.c.values import (
    Expressions,
    Functions,
    InPlace,
    element_type,
    literal,
    value_type,
)
from gemel.codegen.language.carry import Carry, Fragment
from gemel.codegen.language.program import (
    ANY,
    INDEX,
    OUTPUT,
    ROWS,
    TILES,
    WRITES,
    Instruction,
    Program,
)
from gemel.codegen.llvm.reductions import neutral
from gemel.dtype import DType

HEAD = """\
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
"""
#: Dtypes that exist in memory only and are computed in float.
STORED_ONLY = ("float16", "bfloat16")
#: Dtypes that kernels only copy, and the type of their parts.
COMPLEX = {"complex64": "float", "complex128": "double"}
#: The instructions by which reductions combine two values.
JOINED = {"sum": "add", "prod": "multiply", "max": "maximum", "min": "minimum"}
JOINED |= {"any": "bit_or", "all": "bit_and", "logsum": "logaddexp"}
SIGNATURE = "(void *const *buffers, const int64_t *integers, int64_t begin, int64_t end)"


def source(programs: Sequence[Program], name: str = "kernel") -> str:
    """C text with a function per program: `name`, or `name`0, `name`1, ... for several.

    They are called as kernels are: with the buffers, the run-time integers and a range of the first
    loop (or of tiles). They return 1 if a check failed, else 0.
    """
    return printed(programs, name, Functions(), lambda program: KernelText, HEAD)


def printed(
    programs: Sequence[Program],
    name: str,
    unit: Functions,
    kind_of: Callable[[Program], type[KernelText]],
    head: str,
) -> str:
    """A head, the types and functions that kernels need, and a kernel for each program, in the way
    that `kind_of` chooses for it."""
    several = len(programs) > 1
    texts = []
    for number, program in enumerate(programs):
        kernel = kind_of(program)(unit, program, f"{name}{number if several else ''}")
        texts.append(kernel.text())
    text = "\n".join((*unit.functions.values(), *texts))
    named = (name for name in STORED_ONLY if re.search(rf"\b{name}\b", text))
    types = "".join(f"typedef uint16_t {name};\n" for name in named)
    for name, part in COMPLEX.items():
        if f"{name}_t" in text:
            types += f"typedef struct {{ {part} real, imaginary; }} {name}_t;\n"
    return "\n".join((head + types, text))


class KernelText:
    """A program as a function: its loops; each reduction is a sweep over the inner loops."""

    def __init__(self, unit: Functions, program: Program, name: str) -> None:
        self.program = program
        self.analysis = Analysis(program)
        self.name = name
        self.values = Expressions(unit, program.code)
        self.lines: list[str] = []
        #: The number of open braces.
        self.depth = 1
        #: The run-time integers that are used: their names and positions.
        self.integers: dict[str, int] = {}

    def add(self, *lines: str) -> None:
        """Adds lines, indented."""
        self.lines += ["    " * self.depth + line for line in lines if line]

    def open(self, line: str) -> None:
        """Adds a line that opens a brace."""
        self.add(f"{line} {{".lstrip())
        self.depth += 1

    def close(self, depth: int) -> None:
        """Closes braces until `depth` remain open."""
        while self.depth > depth:
            self.depth -= 1
            self.add("}")

    def text(self) -> str:
        """The function, after the program's text as a comment."""
        self.body()
        told = self.program.text.rstrip().replace("\n", "\n * ")
        head = [f"/* {told}\n */", f"int32_t {self.name}{SIGNATURE} {{"]
        given = [
            f"{n} = integers[{i}]" for n, i in sorted(self.integers.items(), key=itemgetter(1))
        ]
        head += [
            f"    const int64_t {', '.join(given[i : i + 3])};" for i in range(0, len(given), 3)
        ]
        if not given and not any("integers[" in line for line in self.lines):
            head.append("    (void)integers;")
        return "\n".join((*head, *self.lines, "}", ""))

    def integer(self, name: str, position: int) -> str:
        """The name of a run-time integer; it is declared if it is used."""
        self.integers.setdefault(name, position)
        return name

    def body(self) -> None:
        self.buffers()
        self.scalars()
        self.steps(self.analysis.fixed())
        checks = any(step.name == "check" for step in self.program.code)
        self.add("int32_t status = 0;" if checks else "")
        (self._tiles if self.program.in_tiles else self._loops)()
        for stage in range(self.analysis.last + 2):
            self.steps(self.analysis.point(stage, False))
            if stage <= self.analysis.last:
                self.sweep(stage)
        self.close(1)
        self.add("return status;" if checks else "return 0;")

    # --- loops ------------------------------------------------------------------------------

    def _loops(self) -> None:
        """The outer loops; the first runs over the kernel's range."""
        for dimension in range(self.program.outer):
            first, last = ("begin", "end") if dimension == 0 else ("0", self.extent(dimension))
            self._for(f"i{dimension}", first, last)

    def _tiles(self) -> None:
        """The loop over tiles, and in each the loops over its rows and columns."""
        rows, columns, down, right = (
            self.integer(name, position)
            for name, position in zip(TILES[:4], self.program.extras[-len(TILES) :], strict=False)
        )
        self._for("tile", "begin", "end")
        counts = {"rows": down, "columns": right}
        counts |= {"inner": self.extent(1), "outer": self.extent(0)}
        called = {"rows": "down", "columns": "right", "inner": "i1", "outer": "i0"}
        rest, coordinates = "tile", []
        for name in self.program.tile_order:
            coordinates.append(f"{called[name]} = {rest} % {counts[name]}")
            rest += f" / {counts[name]}"
        self.add(f"const int64_t {', '.join(coordinates)};")
        self._block(f"i{ROWS}", "down", rows, self.extent(ROWS))
        dimensions = range(ROWS + 1, self.program.outer)
        if len(dimensions) == 1:
            self._block(f"i{ROWS + 1}", "right", columns, self.extent(ROWS + 1))
            return
        self._block("j", "right", columns, " * ".join(map(self.extent, dimensions)))
        rest = "j"
        for dimension in reversed(dimensions):
            first = dimension == dimensions[0]
            own = rest if first else f"{rest} % {self.extent(dimension)}"
            self.add(f"const int64_t i{dimension} = {own};")
            rest = f"{rest} / {self.extent(dimension)}"

    def _block(self, index: str, number: str, size: str, extent: str) -> None:
        """The loop over one of the blocks that an extent is cut into."""
        first = f"first_{index}"
        self.add(f"const int64_t {first} = {number} * {size};")
        self._for(index, first, f"{first} + {size} && {index} < {extent}")

    def _for(self, index: str, first: str, last: str) -> None:
        self.open(f"for (int64_t {index} = {first}; {index} < {last}; {index}++)")

    def extent(self, dimension: int) -> str:
        known = self.program.known_extent(dimension)
        return self.integer(f"n{dimension}", dimension) if known is None else str(known)

    # --- what is there ----------------------------------------------------------------------

    def buffers(self) -> None:
        """Declares the arrays in use; those that are written may share the memory of others."""
        arrays = [(n, o) for n, o in enumerate(self.program.operands) if o.role != INDEX]
        used = {self.program.code[p].operand for p in self.analysis.live}
        for buffer, (number, operand) in enumerate(arrays):
            if number not in used:
                continue
            constant = "" if operand.role == OUTPUT else "const "
            name, made = self.array(number), element_type(operand.dtype)
            self.add(f"{constant}{made} *{name} = buffers[{buffer}];")

    def array(self, number: int) -> str:
        return f"{'y' if self.program.operands[number].role == OUTPUT else 'x'}{number}"

    def scalars(self) -> None:
        """Declares the values that are given at run time and used."""
        steps = [self.program.code[p] for p in self.analysis.live]
        used = {step.attribute for step in steps if step.name == "scalar"}
        for number, dtype in enumerate(self.program.scalars):
            if number not in used:
                continue
            name, integer = f"scalar{number}", f"integers[{self.program.first_scalar + number}]"
            if dtype.kind == "f":
                self.add(f"double {name};", f"memcpy(&{name}, &{integer}, 8);")
            else:
                self.add(f"const {value_type(dtype)} {name} = {integer};")

    def offset(self, number: int) -> str:
        """The offset of an operand from its start; for an index operand, its value."""
        terms = []
        for dimension in range(self.program.rank):
            index, known = f"i{dimension}", self.program.known_stride(number, dimension)
            if known is not None:
                terms += [index] * known
                continue
            position = self.program.stride_at(number, dimension)
            stride = self.integer(f"stride{number}_{dimension}", position)
            many: int | str
            many, apart = self.program.groups(number, dimension)
            if many == ANY:
                last = self.program.rank - 1
                many = self.integer(f"stride{number}_{last}", self.program.stride_at(number, last))
            if many == 1:
                terms.append(f"{index} * {stride}")
            else:
                inside = f"{index} % {many}" + (f" * {apart}" if apart > 1 else "")
                terms += [f"{index} / {many} * {stride}", inside]
        return " + ".join(terms) or "0"

    # --- instructions -----------------------------------------------------------------------

    def step(self, position: int) -> None:
        """One instruction that is not a reduction."""
        step, values = self.program.code[position], self.values
        attribute: Any = step.attribute
        arguments = [values.of(argument) for argument in step.arguments]
        if step.name in ("load", "load_where", "gather"):
            operand = self.program.operands[step.operand or 0]
            found = (
                self.offset(attribute) if operand.role == INDEX else self.element(step, arguments)
            )
            found += " != 0" if operand.dtype.kind == "b" else ""
            if step.name == "load_where":
                found = f"{' && '.join(arguments)} ? {found} : 0"
            self.add(f"const {value_type(step.dtype)} v{position} = {found};")
        elif step.name == "scalar":
            self.add(f"const {value_type(step.dtype)} v{position} = scalar{attribute};")
        elif step.name == "store":
            self.add(f"{self.element(step, arguments)} = {arguments[0]};")
        elif step.name == "scatter_add":
            element = self.element(step, arguments)
            sum_ = values.computed("add", step.dtype, (element, arguments[1]), step.dtype)
            self.add(f"{element} = {sum_};")
        elif step.name == "check":
            self.add(f"if (!{arguments[0]}) status = 1;")
        else:
            self.add(values.statement(position))

    def element(self, step: Instruction, arguments: list[str]) -> str:
        """The element that an instruction reads or writes."""
        attribute: Any = step.attribute
        if step.name in ("load", "load_where", "store"):
            return f"{self.array(attribute)}[{self.offset(attribute)}]"
        number, extra = attribute
        far = self.integer(f"extra{extra}", self.program.extras[extra])
        return f"{self.array(number)}[{self.offset(number)} + {arguments[0]} * {far}]"

    def steps(self, positions: Iterable[int]) -> None:
        """Instructions in order, with writes last: an output may share the memory of an input."""
        code = self.program.code
        for position in sorted(positions, key=lambda p: (code[p].name in WRITES, p)):
            if code[position].name not in ("reduce", "scan"):
                self.step(position)
            elif code[position].name == "scan":
                self.join(position)

    def sweep(self, stage: int) -> None:
        """One sweep over the inner positions."""
        program, before = self.program, self.depth
        sweep = self.analysis.plain_sweep(stage)
        for position in (*sweep.reductions, *sweep.scans):
            self.start(position)
        for dimension in range(program.outer, program.rank):
            self._for(f"i{dimension}", "0", self.extent(dimension))
        self.steps((*sweep.uniform, *sweep.varying))
        for position in sweep.reductions:
            self.join(position)
        self.close(before)
        self.parts(sweep.reductions)

    def reduced(self, position: int) -> tuple[Any, DType]:
        """The kind of a reduction or scan, and the dtype of its argument."""
        step = self.program.code[position]
        return step.attribute, self.program.code[step.arguments[0]].dtype

    def held(self, position: int) -> list[tuple[str, DType]]:
        """The variables that hold the values of a reduction or scan, and their dtypes."""
        kind, dtype = self.reduced(position)
        if not isinstance(kind, Carry):
            return [(f"v{position}", dtype)]
        return [(f"held{position}_{i}", each) for i, each in enumerate(kind.dtypes)]

    def initial(self, position: int) -> list[str]:
        """What a reduction or scan starts with."""
        kind, dtype = self.reduced(position)
        if isinstance(kind, Carry):
            return [literal(*each) for each in kind.initial]
        return [literal(dtype, neutral(kind, dtype))]

    def start(self, position: int) -> None:
        for (name, dtype), first in zip(self.held(position), self.initial(position), strict=True):
            self.add(f"{value_type(dtype)} {name} = {first};")

    def join(self, position: int) -> None:
        """Adds the value at an inner position to a reduction or scan."""
        kind, _ = self.reduced(position)
        value = self.values.of(self.program.code[position].arguments[0])
        if not isinstance(kind, Carry):
            self.add_to(position, value)
            return
        before, names = self.depth, [name for name, _ in self.held(position)]
        place = self.inner_position() if kind.counts else "0"
        given = [*names, value, f"(int64_t)({place})"]
        self.open("")
        if kind.changes is not None:
            (changed,) = self.in_place(kind.changes, given)
            self.open(f"if ({changed})")
        self.assign(position, self.in_place(kind.update, given))
        self.close(before)

    def in_place(self, fragment: Fragment, given: Sequence[str]) -> list[str]:
        """Adds the lines of a fragment; returns the expressions for its results."""
        inside = InPlace(self.values.unit, fragment, given)
        self.add(*inside.lines)
        return inside.results

    def assign(self, position: int, found: Sequence[str]) -> None:
        """Sets the values of a reduction to expressions, which may contain its present values."""
        held = self.held(position)
        names = [name for name, _ in held]
        moved = [i for i, text in enumerate(found) if text in names and text != names[i]]
        texts = [f"next{i}" if i in moved else text for i, text in enumerate(found)]
        self.add(*(f"const {value_type(held[i][1])} next{i} = {found[i]};" for i in moved))
        pairs = zip(names, texts, strict=True)
        self.add(*(f"{name} = {text};" for name, text in pairs if name != text))

    def parts(self, reductions: Iterable[int]) -> None:
        """Declares the values that reductions have carried, once these have ended."""
        for position in reductions:
            kind, _ = self.reduced(position)
            held = self.held(position)
            for part, number in self.analysis.parts[position] if isinstance(kind, Carry) else ():
                name, dtype = held[number]
                self.add(f"const {value_type(dtype)} v{part} = {name};")

    def add_to(self, position: int, value: str) -> None:
        """Combines a value with a reduction that keeps no position."""
        name, dtype = self.reduced(position)
        now = f"v{position}"
        pair = (value, now) if name in ("max", "min") else (now, value)
        self.add(f"{now} = {self.values.computed(JOINED[name], dtype, pair, dtype)};")

    def inner_position(self) -> str:
        """The number of an inner position, counted over all inner loops."""
        text = f"i{self.program.outer}"
        for dimension in range(self.program.outer + 1, self.program.outer + self.program.inner):
            text = f"({text}) * {self.extent(dimension)} + i{dimension}"
        return text

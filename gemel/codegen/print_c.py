"""Kernels as C, to be read: the loops of a `Program`, or a product as three plain loops.

`source` gives one text that needs nothing but C11 and computes what the machine code computes.
Functions such as exp are written out from the same table (`mathlib`), so elementwise results have
the same bits (with ``-ffp-contract=off``); sums are added one after the other, in another order
than the vectors of `loops` and the tiles of `contract` do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Any

from gemel.codegen.analysis import Analysis
from gemel.codegen.c_values import Unit, Values, kind, literal, memory
from gemel.codegen.program import (
    BROADCAST,
    CONTIGUOUS,
    INDEX,
    OUTER,
    OUTPUT,
    Contraction,
    Operand,
    Program,
)
from gemel.dtype import DType

HEAD = """\
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
"""
#: What is only kept, and computed in float.
KEPT = ("float16", "bfloat16")
SIGNATURE = "(void *const *buffers, const int64_t *integers, int64_t begin, int64_t end)"


def source(programs: Sequence[Program | Contraction], name: str = "kernel") -> str:
    """C text with a function per program: `name`, or `name`0, `name`1, ... of several.

    They are called as kernels are: with the buffers, the run-time integers and a range of the first
    loop (or of tiles), and give 1 where a check failed, else 0.
    """
    unit = Unit()
    several = len(programs) > 1
    texts = []
    for number, program in enumerate(programs):
        printer = _Loops if isinstance(program, Program) else _Product
        texts.append(printer(unit, program, f"{name}{number if several else ''}").text())
    text = "\n".join((*unit.functions.values(), *texts))
    kept = "".join(f"typedef uint16_t {n};\n" for n in KEPT if re.search(rf"\b{n}\b", text))
    return "\n".join((HEAD + kept, text))


class _Text:
    """Lines, indented by the braces that are open."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 0

    def add(self, *lines: str) -> None:
        self.lines += ["    " * self.depth + line for line in lines if line]

    def open(self, line: str) -> None:
        self.add(f"{line} {{")
        self.depth += 1

    def close(self, count: int = 1) -> None:
        for _ in range(count):
            self.depth -= 1
            self.add("}")


class _Kernel:
    """What both kinds of kernels are printed with."""

    def __init__(self, unit: Unit, program: Any, name: str) -> None:
        self.program = program
        self.name = name
        self.values = Values(unit, program.code)
        self.out = _Text()
        #: Run-time integers that are used: how they are called, and where they are.
        self.integers: dict[str, int] = {}

    def text(self) -> str:
        """The function, behind the program's text as a comment."""
        self.out.depth = 1
        self._body()
        told = self.program.text.rstrip().replace("\n", "\n * ")
        head = [f"/* {told}\n */", f"int32_t {self.name}{SIGNATURE} {{"]
        given = [
            f"{n} = integers[{i}]" for n, i in sorted(self.integers.items(), key=itemgetter(1))
        ]
        head += [
            f"    const int64_t {', '.join(given[i : i + 3])};" for i in range(0, len(given), 3)
        ]
        return "\n".join((*head, *self.out.lines, "}", ""))

    def _body(self) -> None:
        raise NotImplementedError

    def integer(self, name: str, place: int) -> str:
        """The name of a run-time integer, declared when it is first used."""
        self.integers.setdefault(name, place)
        return name

    def _buffers(self, first: int) -> None:
        """The arrays; those that are written may be the same memory as others."""
        for number, operand in enumerate(self.program.operands):
            if operand.role != INDEX:
                constant = "" if operand.role == OUTPUT else "const "
                name, made = self.array(number), memory(operand.dtype)
                self.out.add(f"{constant}{made} *{name} = buffers[{first}];")
                first += 1

    def array(self, number: int) -> str:
        return f"{'y' if self.program.operands[number].role == OUTPUT else 'x'}{number}"

    def _scalars(self, first: int) -> None:
        for number, dtype in enumerate(self.program.scalars):
            name, place = f"scalar{number}", f"integers[{first + number}]"
            if dtype.kind == "f":
                self.out.add(f"double {name};", f"memcpy(&{name}, &{place}, 8);")
            else:
                self.out.add(f"const {kind(dtype)} {name} = {place};")

    def place(self, number: int) -> str:
        """Where an operand is, from its start; of an index operand what it is."""
        raise NotImplementedError

    def step(self, position: int) -> None:
        """One instruction that is no reduction."""
        step, values = self.program.code[position], self.values
        attribute: Any = step.attribute
        made = f"const {kind(step.dtype)} v{position} ="
        if step.name == "load":
            operand = self.program.operands[attribute]
            where = self.place(attribute)
            element = where if operand.role == INDEX else f"{self.array(attribute)}[{where}]"
            self.out.add(f"{made} {element}{' != 0' if operand.dtype.kind == 'b' else ''};")
        elif step.name == "scalar":
            self.out.add(f"{made} scalar{attribute};")
        elif step.name == "store":
            value = values.of(step.arguments[0])
            self.out.add(f"{self.array(attribute)}[{self.place(attribute)}] = {value};")
        elif step.name in ("gather", "scatter_add"):
            number, extra = attribute
            far = self.integer(f"extra{extra}", self.program.integers - self.program.extra + extra)
            where = f"{self.place(number)} + {values.of(step.arguments[0])} * {far}"
            element = f"{self.array(number)}[{where}]"
            if step.name == "gather":
                self.out.add(f"{made} {element}{' != 0' if step.dtype.kind == 'b' else ''};")
            else:
                value = values.of(step.arguments[1])
                sum_ = values.computed("add", step.dtype, (element, value), (step.dtype,) * 2)
                self.out.add(f"{element} = {sum_};")
        elif step.name == "check":
            self.out.add(f"if (!{values.of(step.arguments[0])}) status = 1;")
        else:
            self.out.add(values.statement(position))

    def steps(self, positions: Iterable[int]) -> None:
        """Instructions in order, what writes last: an output may be the same memory as an input."""
        code = self.program.code
        for position in sorted(
            positions, key=lambda p: (code[p].name in ("store", "scatter_add"), p)
        ):
            if code[position].name not in ("reduce", "scan", "accumulator"):
                self.step(position)
            elif code[position].name == "scan":
                self._join(position)

    def _join(self, position: int) -> None:
        """One more value of a reduction or scan."""
        raise NotImplementedError


def _limit(dtype: DType, least: bool) -> str:
    """The least or the greatest value of a dtype."""
    if dtype.kind in "fb":
        return literal(dtype, float("-inf" if least else "inf") if dtype.kind == "f" else not least)
    if dtype.kind == "u" and least:
        return "0"
    return f"{dtype.name.upper()}_{'MIN' if least else 'MAX'}"


class _Loops(_Kernel):
    """A `Program`: its loops, each reduction a walk over the inner ones."""

    def _body(self) -> None:
        program, out = self.program, self.out
        self.analysis = Analysis(program)
        rank = program.outer + program.inner
        self.along = program.outer - 1 if program.lanes == OUTER else rank - 1
        self._buffers(0)
        self._scalars(program.integers)
        checks = any(step.name == "check" for step in program.code)
        out.add("int32_t status = 0;" if checks else "")
        for dimension in range(program.outer):
            first, last = ("begin", "end") if dimension == 0 else ("0", self._extent(dimension))
            self._for(f"i{dimension}", first, last)
        for stage in range(self.analysis.last + 2):
            self._point(stage)
            if stage <= self.analysis.last:
                self._pass(stage)
        out.close(program.outer)
        out.add("return status;" if checks else "return 0;")

    def _for(self, index: str, first: str, last: str) -> None:
        self.out.open(f"for (int64_t {index} = {first}; {index} < {last}; {index}++)")

    def _extent(self, dimension: int) -> str:
        return self.integer(f"n{dimension}", dimension)

    def place(self, number: int) -> str:
        program = self.program
        operand: Operand = program.operands[number]
        rank = program.outer + program.inner
        terms = []
        for dimension in range(rank if operand.varies else program.outer):
            index = f"i{dimension}"
            if dimension == self.along and operand.stride == BROADCAST:
                continue
            if dimension == self.along and operand.stride == CONTIGUOUS and operand.role != INDEX:
                terms.append(index)
            else:
                stride = f"stride{number}_{dimension}"
                terms.append(f"{index} * {self.integer(stride, rank * (1 + number) + dimension)}")
        return " + ".join(terms) or "0"

    def _point(self, stage: int) -> None:
        """What is computed at an outer position once the walks before `stage` are done."""
        found, code = self.analysis, self.program.code
        writes = stage > found.last
        self.steps(
            p
            for p in found.live
            if not found.inner[p]
            and code[p].name != "reduce"
            and (writes if code[p].name in ("store", "scatter_add") else found.stage[p] == stage)
        )

    def _pass(self, stage: int) -> None:
        """A walk over the inner positions."""
        found, program, out = self.analysis, self.program, self.out
        work = found._pass(stage)
        for position in (*work.reductions, *work.scans):
            self._start(position)
        rank = program.outer + program.inner
        for dimension in range(program.outer, rank):
            self._for(f"i{dimension}", "0", self._extent(dimension))
        self.steps((*work.uniform, *work.varying))
        for position in work.reductions:
            self._join(position)
        out.close(program.inner)

    def _start(self, position: int) -> None:
        step = self.program.code[position]
        name: Any = step.attribute
        dtype = self.program.code[step.arguments[0]].dtype
        if name in ("max", "min", "argmax", "argmin"):
            first = _limit(dtype, name.endswith("max"))
        else:
            first = literal(dtype, name in ("prod", "all"))
        if name.startswith("arg"):
            self.out.add(f"{kind(dtype)} most{position} = {first};", f"int64_t v{position} = 0;")
        else:
            self.out.add(f"{kind(dtype)} v{position} = {first};")

    def _join(self, position: int) -> None:
        step = self.program.code[position]
        name: Any = step.attribute
        dtype = self.program.code[step.arguments[0]].dtype
        now, value = f"v{position}", self.values.of(step.arguments[0])
        if name.startswith("arg"):
            most, sign = f"most{position}", ">" if name == "argmax" else "<"
            better = f"{value} {sign} {most}"
            if dtype.kind == "f":
                better = f"({better} || {value} != {value}) && {most} == {most}"
            self.out.open(f"if ({better})")
            self.out.add(f"{most} = {value};", f"{now} = {self._position()};")
            self.out.close()
            return
        names = {"sum": "add", "prod": "multiply", "max": "maximum", "min": "minimum"}
        done = names.get(name, "bit_or" if name == "any" else "bit_and")
        pair = (value, now) if name in ("max", "min") else (now, value)
        self.out.add(f"{now} = {self.values.computed(done, dtype, pair, (dtype,) * 2)};")

    def _position(self) -> str:
        """The number of an inner position, counted over all inner loops."""
        text = f"i{self.program.outer}"
        for dimension in range(self.program.outer + 1, self.program.outer + self.program.inner):
            text = f"({text}) * {self._extent(dimension)} + i{dimension}"
        return text


class _Product(_Kernel):
    """A `Contraction`: for every element of a tile a sum along k, then what follows it."""

    def _body(self) -> None:
        from gemel.codegen.contract_pack import HEADER as PACK_HEADER
        from gemel.codegen.contract_plan import names_of

        packs = self.program.variant.startswith("pack")
        self.header = PACK_HEADER if packs else names_of(self.program.variant)
        self.out.open("for (int64_t tile = begin; tile < end; tile++)")
        (self._panels if packs else self._tile)()
        self.out.close()
        self.out.add("return 0;")

    def _named(self, *names: str) -> list[str]:
        return [self.integer(name, self.header.index(name)) for name in names]

    def _batch(self, tiles: str) -> None:
        (batch,) = self._named("batch")
        self.out.add(
            f"const int64_t part = tile % ({tiles}), outer = tile / ({tiles}) / {batch};",
            f"const int64_t inner = tile / ({tiles}) % {batch};",
        )

    def _tile(self) -> None:
        out, made = self.out, kind(self.program.dtype)
        m, n, k, m_block, n_block, m_tiles, n_tiles = self._named(
            "m", "n", "k", "m_block", "n_block", "m_tiles", "n_tiles"
        )
        self._batch(f"{m_tiles} * {n_tiles}")
        for number, name in enumerate("ab"):
            outer, inner = self._named(f"{name}_outer", f"{name}_inner")
            out.add(
                f"const {made} *{name} = (const {made} *)buffers[{number}]"
                f" + outer * {outer} + inner * {inner};"
            )
        self._buffers(2)
        self._scalars(len(self.header) + 4 * len(self.program.operands))
        for index, extent, block, which in (
            ("i", m, m_block, f"part % {m_tiles}"),
            ("j", n, n_block, f"part / {m_tiles}"),
        ):
            out.add(f"const int64_t {index}_first = {which} * {block};")
            out.open(
                f"for (int64_t {index} = {index}_first; "
                f"{index} < {index}_first + {block} && {index} < {extent}; {index}++)"
            )
        words = (self.program.variant or "plain 1x1").split()[1:]
        widths = words[0].split("x")
        forms = {"a": self.program.a_last, "b": self.program.b_last}
        forms |= dict(word.split(":") for word in words[1:] if ":" in word)
        a_stride, b_stride = self._named("a_stride", "b_stride")
        left = _line(forms["a"], "i", a_stride, widths[0])
        right = _line(forms["b"], "j", b_stride, widths[1])
        if "k0" in self.header:
            right = f"{self._several('n', 'j')} + {self._several('k', 'l')}"
        out.add(
            f"{made} v0 = 0;", f"for (int64_t l = 0; l < {k}; l++) v0 += a[{left}] * b[{right}];"
        )
        self.steps(range(len(self.program.code)))
        out.close(2)

    def _several(self, axis: str, index: str) -> str:
        """How far from the first an element is which several axes count together."""
        middle, inner, *strides = self._named(
            f"{axis}1", f"{axis}2", *(f"{axis}_stride{i}" for i in range(3))
        )
        outer = f"{index} / {inner} / {middle}"
        parts = (outer, f"{index} / {inner} % {middle}", f"{index} % {inner}")
        return " + ".join(f"{part} * {stride}" for part, stride in zip(parts, strides, strict=True))

    def place(self, number: int) -> str:
        operand = self.program.operands[number]
        first = len(self.header) + 4 * number
        terms = []
        for offset, index in enumerate(("i", "j", "outer", "inner")):
            if index == "j" and operand.stride == BROADCAST:
                continue
            if index == "j" and operand.stride == CONTIGUOUS and operand.role != INDEX:
                terms.append(index)
            else:
                stride = self.integer(f"stride{number}_{index}", first + offset)
                terms.append(f"{index} * {stride}")
        return " + ".join(terms)

    def _panels(self) -> None:
        """Panels of an operand, for the product to read in this order."""
        out, made = self.out, kind(self.program.dtype)
        lines, k, stride, panels, tiles, outer, inner, packed_outer, packed_inner = self._named(
            *("lines", "k", "stride", "panels", "tiles", "outer", "inner"),
            *("packed_outer", "packed_inner"),
        )
        _, width, way = self.program.variant.split()
        self.integers = {
            f"{n}_" if n in ("outer", "inner") else n: i for n, i in self.integers.items()
        }
        self._batch(tiles)
        out.add(
            f"const {made} *x = (const {made} *)buffers[0] + outer * {outer}_ + inner * {inner}_;",
            f"{made} *y = ({made} *)buffers[1] + outer * {packed_outer} + inner * {packed_inner};",
            f"const int64_t first = part * {panels} * {width};",
        )
        out.open(f"for (int64_t i = first; i < first + {panels} * {width} && i < {lines}; i++)")
        source_place = _line("k" if way == "turn" else "m", "i", stride, width)
        goal = _line("packed", "i", f"({width} * {k})", width)
        out.add(f"for (int64_t l = 0; l < {k}; l++) y[{goal}] = x[{source_place}];")
        out.close()


def _line(form: str, line: str, stride: str, width: str) -> str:
    """Where a line (a row of a, a column of b) has its element l along k."""
    if form == "packed":
        return f"{line} / {width} * {stride} + l * {width} + {line} % {width}"
    return f"{line} * {stride} + l" if form == "k" else f"l * {stride} + {line}"

"""What a program's instructions depend on, and the sweeps its reductions need.

A program with reductions sweeps over its inner dimensions several times. Sweep p computes the
reductions whose arguments need the reductions of earlier sweeps; the last sweep also stores. If a
later sweep needs a value again, it computes the value again from its loads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from gemel.codegen.functions import mathlib
from gemel.codegen.language.carry import Carry
from gemel.codegen.language.program import (
    BROADCAST,
    CONTIGUOUS,
    INDEX,
    INNER,
    INTERLEAVED,
    OUTER,
    ROOTS,
    WRITES,
    Program,
)
from gemel.dtype import DType
from gemel.errors import CompileError


class Sweep(NamedTuple):
    """One run over the inner dimensions.

    `uniform` and `varying` are the positions to compute at each step: those that stay the same
    along the vector and those that vary along it. `reductions` are the positions of the reductions
    that this sweep computes, `scans` those of the scans that it continues. `spills` and `reloads`
    name a value and the output that holds it from this sweep until the last.
    """

    uniform: list[int]
    varying: list[int]
    reductions: list[int]
    scans: list[int]
    spills: tuple[int, int] | None = None
    reloads: tuple[int, int] | None = None


class Analysis:
    """What is known about each instruction.

    Whether its value varies along the vector (`vector`) and along the inner dimensions (`inner`),
    how many sweeps must have ended before it is known (`stage`), and whether it is used (`live`).
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        count = len(program.code)
        self.vector = [False] * count
        self.inner = [False] * count
        self.stage = [0] * count
        self.loads = [False] * count
        for position in range(count):
            self._classify(position)
        self.live = self.closure([p for p, s in enumerate(program.code) if s.name in ROOTS])
        #: Of each reduction: the positions of its carried values that are used, and their numbers.
        self.parts = self._parts()
        self._check()
        self.last = self._last_sweep()
        self.sweeps = [self.plain_sweep(number) for number in range(self.last + 1)]
        spilled = self._worth_spilling()
        if spilled is not None:
            number = self.last - 1
            self.sweeps[number:] = [
                self.plain_sweep(number, also=spilled[:1])._replace(spills=spilled),
                self.plain_sweep(self.last, spilled[0])._replace(reloads=spilled),
            ]

    def _parts(self) -> dict[int, list[tuple[int, int]]]:
        parts: dict[int, list[tuple[int, int]]] = {}
        steps = [(position, self.program.code[position]) for position in sorted(self.live)]
        used = {a for _, step in steps if step.name != "carried" for a in step.arguments}
        for position, step in steps:
            number: Any = step.attribute
            if step.name == "reduce":
                parts[position] = [(position, 0)] if position in used else []
            elif step.name == "carried":
                parts[step.arguments[0]].append((position, number))
        return parts

    def _operand(self, number: int) -> tuple[bool, bool]:
        """Whether an operand varies along the vector, and along the inner dimensions."""
        operand = self.program.operands[number]
        inner = operand.varies and self.program.inner > 0
        moves = operand.stride_class != BROADCAST
        return (moves if self.program.vectors_along == OUTER else moves and inner), inner

    def _classify(self, position: int) -> None:
        step = self.program.code[position]
        arguments = step.arguments
        for known in (self.vector, self.inner, self.loads):
            known[position] = any(known[a] for a in arguments)
        self.stage[position] = max((self.stage[a] for a in arguments), default=0)
        if step.operand is not None:
            vector, inner = self._operand(step.operand)
            self.vector[position] |= vector
            if step.name in WRITES and self.inner[position] and not inner:
                self._refuse(position, "stores a varying value into an operand that does not vary")
            self.inner[position] |= inner
            self.loads[position] = True
        elif step.name == "reduce":
            self.vector[position] = self.program.vectors_along == OUTER
            self.inner[position] = False
            self.stage[position] += 1
            self.loads[position] = True
        elif step.name == "scan":
            self.vector[position] = self.inner[position] = self.loads[position] = True

    def _refuse(self, position: int, why: str) -> None:
        step = self.program.code[position]
        raise CompileError(f"instruction %{position} = {step!r} {why}\n{self.program.text}")

    def _check(self) -> None:
        program = self.program
        if program.vectors_along == INNER and not program.inner:
            raise CompileError(
                f"vectors run along inner dimensions, but there are none\n{program.text}"
            )
        if program.outer < 1:
            raise CompileError(f"a program has at least one outer dimension\n{program.text}")
        if not program.inner:
            for position, step in enumerate(program.code):
                if step.name in ("reduce", "scan"):
                    self._refuse(position, "reduces, but there is no inner dimension")

    def closure(self, roots: list[int], inner_only: bool = False, known: int = -1) -> set[int]:
        """The roots and everything they are computed from; with `inner_only`, only what varies
        along the inner dimensions. The value `known`, and what only it is computed from, is left
        out."""
        found, waiting = set[int](), list(roots)
        while waiting:
            position = waiting.pop()
            left_out = position == known or (inner_only and not self.inner[position])
            if not left_out and position not in found:
                found.add(position)
                waiting.extend(self.program.code[position].arguments)
        return found

    def _last_sweep(self) -> int:
        code = self.program.code
        reduced = [self.stage[p] - 1 for p in self.live if code[p].name == "reduce"]
        rooted = [self.stage[p] for p in self.live if self.inner[p] and code[p].name in ROOTS]
        return max([*reduced, *rooted], default=-1)

    def plain_sweep(self, number: int, known: int = -1, also: Sequence[int] = ()) -> Sweep:
        """The sweep `number`, without spills. It is given the value `known`; it computes the values
        `also` as well."""
        code, live = self.program.code, sorted(self.live)
        reductions = [p for p in live if code[p].name == "reduce" and self.stage[p] == number + 1]
        roots = [*also, *(a for p in reductions for a in code[p].arguments)]
        for position in live:
            writes = code[position].name in WRITES and number == self.last
            checks = code[position].name == "check" and self.stage[position] == number
            if self.inner[position] and (writes or checks):
                roots.append(position)
        needed = sorted(self.closure(roots, inner_only=True, known=known))
        # A write belongs to the vector, even if the value is the same in all lanes.
        varying = [p for p in needed if self.vector[p] or code[p].name in WRITES]
        uniform = [p for p in needed if p not in set(varying)]
        scans = [p for p in varying if code[p].name == "scan"]
        return Sweep(uniform, varying, reductions, scans)

    def _worth_spilling(self) -> tuple[int, int] | None:
        """An expensive value of the last sweep that the sweep before can leave in an output (the
        exponentials of a softmax), and that output. The last sweep must then read no other array,
        because the output may share the memory of any input."""
        if self.last < 1:
            return None
        best, found = 11, None
        final = self.sweeps[self.last]
        for store in final.varying:
            if self.program.code[store].name != "store":
                continue
            number = self.program.code[store].operand
            assert number is not None
            operand = self.program.operands[number]
            if operand.stride_class in (BROADCAST, INTERLEAVED):
                continue  # interleaved outputs are only written together
            # What the stored value is computed from varies no more than the output does, so the
            # output has an element for each.
            made = self.closure(list(self.program.code[store].arguments), inner_only=True)
            for position in sorted(made.intersection(final.varying)):
                step = self.program.code[position]
                if step.dtype is not operand.dtype or self.stage[position] >= self.last:
                    continue
                cost = self.cost(sorted(self.closure([position], inner_only=True)))
                if cost > best and self._reads_only(position):
                    best, found = cost, (position, number)
        return found

    def _reads_only(self, known: int) -> bool:
        """Whether the last sweep reads no array if it is given the value `known`."""
        rest, program = self.plain_sweep(self.last, known), self.program
        steps = [program.code[position] for position in rest.uniform + rest.varying]
        if any(step.name in ("gather", "scatter_add") for step in steps):
            return False
        loaded = {step.operand for step in steps if step.name == "load"}
        return all(o.role == INDEX for n, o in enumerate(program.operands) if n in loaded)

    # -- instructions outside the sweeps ----------------------------------------------------------

    def fixed(self) -> list[int]:
        """The instructions that depend on no load and no loop: they are computed once per call."""
        return [p for p in sorted(self.live) if not self._moves(p)]

    def _moves(self, position: int) -> bool:
        if self.program.code[position].name in ROOTS:
            return True
        return self.loads[position] or self.inner[position] or self.vector[position]

    def _outside(self, stage: int) -> list[int]:
        """Instructions outside the inner loops that need exactly `stage` sweeps; no writes."""
        code = self.program.code
        return [
            p
            for p in sorted(self.live)
            if self.stage[p] == stage
            and self._moves(p)
            and not self.inner[p]
            and code[p].name not in ("reduce", "carried", *WRITES)
        ]

    def row(self) -> list[int]:
        """Those that neither vary along the vector nor need a sweep; only for outer lanes."""
        return [p for p in self._outside(0) if not self.vector[p]]

    def point(self, stage: int, along_outer: bool) -> list[int]:
        """Those computed at each outer position after the sweeps before `stage` have ended."""
        skip = set(self.row()) if along_outer else set()
        found = [p for p in self._outside(stage) if p not in skip]
        if stage <= self.last:
            return found
        writes = (p for p in self.live if self.program.code[p].name in WRITES)
        return sorted([*found, *(p for p in writes if not self.inner[p])])

    def known_later(self) -> list[set[int]]:
        """For each sweep: the values per outer position that it and earlier ones have computed and
        that later ones need; only for inner lanes."""
        code = self.program.code
        made, asked = list[set[int]](), list[set[int]]()
        for stage, sweep in enumerate(self.sweeps):
            points = self.point(stage, False)
            reduced = (part for p in sweep.reductions for part, _ in self.parts[p])
            made.append({*points, *reduced}.union(*made[-1:]))
            if stage == self.last:
                points += self.point(stage + 1, False)
            users = [*points, *sweep.uniform, *sweep.varying, *sweep.reductions]
            asked.append({a for user in users for a in code[user].arguments})
        return [found & set().union(*asked[i + 1 :]) for i, found in enumerate(made)]

    # -- sizes ------------------------------------------------------------------------------------

    def cost(self, positions: list[int]) -> int:
        """About how many machine operations these instructions take."""
        total = 0
        for position in positions:
            step = self.program.code[position]
            if step.name in mathlib.FUNCTIONS and step.dtype.kind == "f":
                source: DType = self.program.code[step.arguments[0]].dtype
                total += len(mathlib.expansion(step.name, source)[0])
            elif step.name in ("gather", "scatter_add", "divide", "floor_divide", "remainder"):
                total += 8
            elif step.name not in ("constant", "scalar"):
                total += 1
        return total

    def lanes(self, width: int) -> int:
        """How many lanes fill a vector of `width` bytes, for the widest dtype that varies."""
        program = self.program
        names = {step.name for step in program.code}
        if "scatter_add" in names:
            return 1
        scans = {step.attribute for step in program.code if step.name == "scan"}
        apart = any(o.stride_class != CONTIGUOUS for o in program.operands)
        if scans and apart and "logsum" not in scans:
            return 1  # nothing is faster than one position after another
        moving = (o for o in program.operands if o.role != INDEX and o.stride_class != BROADCAST)
        sizes = [o.dtype.itemsize for o in moving]
        for position in self.live:
            step = program.code[position]
            if step.name in ("scalar", "constant"):
                continue
            kinds = step.attribute.dtypes if isinstance(step.attribute, Carry) else (step.dtype,)
            real = [dtype.itemsize for dtype in kinds if dtype.kind == "f"]
            sizes += real if self.vector[position] else [1] * len(real)
        return width // max(sizes, default=4)

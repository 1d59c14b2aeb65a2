"""What LLVM makes of micro-tiles: in the loops along k, sums stay in registers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import llvmlite
import pytest

from gemel.codegen.contract import tilings
from gemel.codegen.contract.task import Task, WindowAxes
from gemel.codegen.language.program import (
    BROADCAST,
    CONTIGUOUS,
    INPUT,
    OUTPUT,
    ROWS,
    STRIDED,
    Instruction,
    Operand,
    Program,
)
from gemel.codegen.llvm.libllvm import KNOWN
from gemel.codegen.target import TARGETS
from gemel.codegen.tiles.gemm import emit
from gemel.dtype import float32

llvm = pytest.importorskip("llvmlite.binding")
pytestmark = pytest.mark.skipif(
    not llvmlite.__version__.startswith(KNOWN), reason="another LLVM gives out registers otherwise"
)

TARGET = TARGETS["avx512"]
#: How many vectors a loop may store on the stack, or load from it, for each multiply-add. With ten
#: rows beside windows of several parts, only those of the first rows wait (8 rows were no faster).
SHARE = {"a:m": 0.1, "a:k": 0.1, "a:packed": 0.3}


def planned() -> Iterator[tuple[str, int]]:
    """Schedules of products of many sizes, and the number of loops along columns and along k."""
    sizes = product((1, 5, 8, 14, 30, 40, 100, 256), (8, 32, 40, 64, 80, 196, 4000), (4, 100, 2000))
    for (m, n, k), lasts in product(sizes, product("km", "nk")):
        choice = tilings.variants(Task(float32, lasts, TARGET, m, n, k))
        if choice.schedule.kind == "gemm":
            yield choice.schedule.text, 1


def windowed() -> Iterator[tuple[str, int]]:
    """The same for products with windows."""
    forms = ["turned", "gathered", *(f"rows-{r}-{s}" for r, s in product((1, 2, 4), (1, 2)))]
    for form, m, n in product(forms, (5, 14, 20, 48, 92, 256), (20, 196, 4000)):
        windows = WindowAxes(form, ((64, 1000), (3, 50), (3, 1)), ((1, 0), (n, 60), (1, 1)))
        choice = tilings.for_windows(Task(float32, "kn", TARGET, m, n, 576), windows, True)
        if choice.schedule.kind == "gemm":
            yield choice.schedule.text, 3


def program_of(schedule: str, loops: int) -> Program:
    """The sum of products, with a schedule."""
    _, tile, a_form, b_form, *_ = schedule.split()
    rows, columns = map(int, tile.split("x"))
    line = CONTIGUOUS if a_form == "a:m" else BROADCAST
    panel = (ROWS, rows) if a_form == "a:packed" else None
    panels = (ROWS + 1, columns) if b_form == "b:packed" else None
    beside = CONTIGUOUS if b_form == "b:n" else STRIDED
    operands = (
        Operand(float32, INPUT, line, True, panel),
        Operand(float32, INPUT, beside, True, panels),
        Operand(float32, OUTPUT, CONTIGUOUS),
    )
    code = (
        Instruction("load", float32, (), 0),
        Instruction("load", float32, (), 1),
        Instruction("multiply", float32, (0, 1)),
        Instruction("reduce", float32, (2,), "sum"),
        Instruction("store", float32, (3,), 2),
    )
    return Program(ROWS + 1 + loops, loops, schedule, operands, (), 5, code)


def is_careful(loop: str) -> bool:
    """Whether a loop computes which rows exist: that for the last line of an a that is contiguous
    along m, mostly one step. Its addresses fill the registers.
    """
    return loop.count("\tcmov") > 4


def spilled(assembly: str) -> float:
    """Vectors moved to or from the stack for each multiply-add, in the worst innermost loop."""
    worst = 0.0
    for block in re.split(r"\n(?=\.LBB)", assembly):
        label = re.escape(block.split(":")[0])
        added = len(re.findall(r"\tvfmadd", block))
        again = re.search(rf"\tj\w+\t{label}\b", block)
        if added and again and not is_careful(block):
            stack = re.findall(r"\(%rsp\), %[xyz]mm\d+\n|%[xyz]mm\d+, -?\d*\(%rsp\)", block)
            worst = max(worst, len(stack) / added)
    return worst


@pytest.fixture(scope="module")
def machine() -> Any:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm.Target.from_triple(TARGET.triple).create_target_machine(
        cpu=TARGET.cpu, features=TARGET.features, opt=TARGET.level
    )


@pytest.mark.parametrize("schedules", [planned, windowed])
def test_sums_stay_in_registers(
    schedules: Callable[[], Iterator[tuple[str, int]]], machine: Any
) -> None:
    found = dict(schedules())
    assert len(found) > 40
    spills = {}
    for schedule, loops in sorted(found.items()):
        text = str(emit(program_of(schedule, loops), TARGET))
        share = spilled(machine.emit_assembly(llvm.parse_assembly(text)))
        if share > SHARE[schedule.split()[2]]:
            spills[schedule] = share
    assert spills == {}


def test_spills_are_found(machine: Any) -> None:
    text = str(emit(program_of("gemm 14x32 a:packed b:turned", 3), TARGET))
    assert spilled(machine.emit_assembly(llvm.parse_assembly(text))) > 0.5

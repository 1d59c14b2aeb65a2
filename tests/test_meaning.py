"""Compiled kernels do what `codegen.meaning` says, to the bit: random programs, every target."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import given
from numpy_cases import examples
from random_kernels import (
    Case,
    Kernel,
    Product,
    callable_at,
    outcome,
    products,
    programs,
    same_bytes,
)

from gemel.codegen import meaning
from gemel.codegen.contract import compile_contraction
from gemel.codegen.llvm import compile_program
from gemel.codegen.program import Contraction, Program
from gemel.codegen.target import _NEEDED, MACHINE, TARGETS, _flags

binding = pytest.importorskip("llvmlite.binding")

RUNNABLE = [n for n in TARGETS if _NEEDED.get(n, set()) <= _flags()] or ["generic"]
if MACHINE not in ("x86_64", "AMD64"):
    RUNNABLE = ["generic"]


@pytest.fixture(scope="module", autouse=True)
def native() -> None:
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()


def compiled(target: str, program: Program | Contraction) -> Kernel:
    """The machine code for a target."""
    product = isinstance(program, Contraction)
    compile_it: Any = compile_contraction if product else compile_program
    code = compile_it(program, TARGETS[target])
    machine = binding.Target.from_default_triple().create_target_machine()
    engine = binding.create_mcjit_compiler(binding.parse_assembly(""), machine)
    engine.add_object_file(binding.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return callable_at(engine.get_function_address("kernel"), engine)


def meant(program: Program | Contraction) -> Kernel:
    return partial(meaning.run, program)


@pytest.mark.parametrize("target", RUNNABLE)
@examples(20)
@given(case=programs())
def test_programs(target: str, case: Case) -> None:
    status, wanted = outcome(case, meant)
    found, got = outcome(case, partial(compiled, target))
    assert found == status
    same_bytes(case, got, wanted)


@pytest.mark.parametrize("target", RUNNABLE)
@examples(8)
@given(product=products())
def test_products(target: str, product: Product) -> None:
    case = product.planned(TARGETS[target])
    _, wanted = outcome(product.plain(), meant)
    _, told = outcome(case, meant)
    same_bytes(product.plain(), told[:-1], wanted)
    _, got = outcome(case, partial(compiled, target))
    same_bytes(case, got, told)

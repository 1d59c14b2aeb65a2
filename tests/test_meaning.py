"""Compiled kernels do what `codegen.meaning` says, to the bit: random programs, every target."""

from __future__ import annotations

import doctest
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from numpy_cases import examples
from random_kernels import (
    RUNNABLE,
    Case,
    Product,
    compiled,
    meant,
    outcome,
    products,
    programs,
    same_bytes,
)

from gemel.codegen.target import TARGETS


@pytest.mark.parametrize("target", RUNNABLE)
@examples(15)
@given(case=programs())
def test_programs(target: str, case: Case) -> None:
    status, wanted = outcome(case, meant)
    found, got = outcome(case, partial(compiled, target))
    assert found == status
    same_bytes(case, got, wanted)


@pytest.mark.parametrize("target", RUNNABLE)
@examples(6)
@given(product=products())
def test_products(target: str, product: Product) -> None:
    case = product.planned(TARGETS[target])
    _, wanted = outcome(product.plain(), meant)
    _, told = outcome(case, meant)
    same_bytes(product.plain(), told[:-1], wanted)
    _, got = outcome(case, partial(compiled, target))
    same_bytes(case, got, told)


def test_the_page_shows_what_is_true() -> None:
    """What docs/internals/kernels.md prints in Python, so printed."""
    page = Path(__file__).parent.parent / "docs" / "internals" / "kernels.md"
    found = doctest.testfile(str(page), module_relative=False)
    assert found.attempted > 20 and not found.failed

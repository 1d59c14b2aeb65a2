"""Kernels printed as CUDA C++, run by the host's threads, compared with their meaning."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cuda_host import COMPILER, built
from hypothesis import given
from hypothesis import strategies as st
from numpy_cases import examples
from random_kernels import (
    RUNNABLE,
    Case,
    Kernel,
    Product,
    compiled,
    meant,
    outcome,
    products,
    programs,
    same_bytes,
    whole,
)

from gemel.codegen.product import GRID_TILES, TENSOR_TILES, on_grid
from gemel.codegen.program import FUNCTIONS
from gemel.dtype import bfloat16, float16

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Sequence[Any]], list[Kernel]]:
    folder: Path = tmp_path_factory.mktemp("cuda")
    return lambda programs: built(programs, folder)


def agree(case: Case, kernels: list[Kernel], other: Callable[[Any], Kernel] = meant) -> None:
    """Check that kernels give what another way of computing gives; by default the interpreter."""
    turns = iter(kernels)
    status, got = outcome(whole(case), lambda program: next(turns))
    found, wanted = outcome(whole(case), other)
    assert status == found
    same_bytes(case, got, wanted)


@examples(1)
@given(cases=st.lists(programs(), min_size=20, max_size=20))
def test_programs(build: Any, cases: list[Case]) -> None:
    kernels = build([case.calls[0].program for case in cases])
    for case, kernel in zip(cases, kernels, strict=True):
        agree(case, [kernel])


@examples(1)
@given(cases=st.lists(programs((*FUNCTIONS, "power")), min_size=20, max_size=20))
def test_functions_have_the_bits_of_the_machine_code(build: Any, cases: list[Case]) -> None:
    kernels = build([case.calls[0].program for case in cases])
    for case, kernel in zip(cases, kernels, strict=True):
        agree(case, [kernel], partial(compiled, RUNNABLE[0]))


@examples(1)
@given(several=st.lists(products(), min_size=10, max_size=10), tile=st.sampled_from(GRID_TILES))
def test_products(build: Any, several: list[Product], tile: tuple[int, int, int]) -> None:
    cases = []
    for product in several:
        case = product.plain()
        along_k = product.lasts[0] == "k", product.lasts[1] == "k"
        (call,) = case.calls
        made = on_grid(call.program, along_k, tile)
        cases.append(case._replace(calls=[call._replace(program=made)]))
    kernels = build([case.calls[0].program for case in cases])
    for product, case, kernel in zip(several, cases, kernels, strict=True):
        status, got = outcome(whole(case), lambda _, kernel=kernel: kernel)
        found, wanted = outcome(product.plain(), meant)
        assert status == found
        same_bytes(case, got, wanted)


@examples(1)
@given(several=st.lists(products(), min_size=16, max_size=16), tile=st.sampled_from(TENSOR_TILES))
def test_products_on_tensor_cores(
    build: Any, several: list[Product], tile: tuple[int, int, int]
) -> None:
    """Elements are small whole numbers, so that the order of sums does not matter."""
    several = [p for p in several if p.kept[0] is p.kept[1] and p.kept[0] in (float16, bfloat16)]
    cases = []
    for product in several:
        (call,) = product.plain().calls
        along_k = product.lasts[0] == "k", product.lasts[1] == "k"
        made = on_grid(call.program, along_k, tile, tensor=True)
        cases.append(product.plain()._replace(calls=[call._replace(program=made)]))
    kernels = build([case.calls[0].program for case in cases]) if cases else []
    for product, case, kernel in zip(several, cases, kernels, strict=True):
        status, got = outcome(whole(case), lambda _, kernel=kernel: kernel)
        found, wanted = outcome(product.plain(), meant)
        assert status == found
        same_bytes(case, got, wanted)

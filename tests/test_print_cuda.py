"""Kernels printed as CUDA C++, run by the host's threads, compared with their meaning."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy
import pytest
from cuda_host import COMPILER, built, cached_kernels
from hypothesis import given
from hypothesis import strategies as st
from numpy_cases import examples
from plan_runner import Memory, Run
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

from gemel import np, npx
from gemel.codegen.contract.grid_tiles import GRID_TILES, GROUP_TILES, TENSOR_TILES, Tile, on_grid
from gemel.codegen.language.program import FUNCTIONS
from gemel.codegen.target import cuda
from gemel.dtype import bfloat16, float16

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
# Each property has two examples at least: the first one that is drawn is the simplest, in which all
# seeds are 0.


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


@examples(2)
@given(cases=st.lists(programs(), min_size=20, max_size=20))
def test_programs(build: Any, cases: list[Case]) -> None:
    kernels = build([case.calls[0].program for case in cases])
    for case, kernel in zip(cases, kernels, strict=True):
        agree(case, [kernel])


@examples(2)
@given(cases=st.lists(programs(fours=True), min_size=20, max_size=20))
def test_neighbours(build: Any, cases: list[Case]) -> None:
    """Positions that are neighbours in memory are read and written together."""
    kernels = build([case.calls[0].program for case in cases])
    for case, kernel in zip(cases, kernels, strict=True):
        agree(case, [kernel])


@examples(2)
@given(cases=st.lists(programs((*FUNCTIONS, "power")), min_size=20, max_size=20))
def test_functions_have_the_bits_of_the_machine_code(build: Any, cases: list[Case]) -> None:
    kernels = build([case.calls[0].program for case in cases])
    for case, kernel in zip(cases, kernels, strict=True):
        agree(case, [kernel], partial(compiled, RUNNABLE[0]))


def products_agree(
    build: Any, several: list[Product], tile: Tile, other: Callable[[Any], Kernel] = meant
) -> None:
    """Check products by tiles against plain loops; by default as the interpreter runs them."""
    cases = []
    for product in several:
        (call,) = product.plain().calls
        along_k = product.lasts[0] == "k", product.lasts[1] == "k"
        made = on_grid(call.program, along_k, tile)
        cases.append(product.plain()._replace(calls=[call._replace(program=made)]))
    kernels = build([case.calls[0].program for case in cases]) if cases else []
    for product, case, kernel in zip(several, cases, kernels, strict=True):
        status, got = outcome(whole(case), lambda _, kernel=kernel: kernel)
        found, wanted = outcome(product.plain(), other)
        assert status == found
        same_bytes(case, got, wanted)


@examples(2)
@given(several=st.lists(products(), min_size=10, max_size=10), tile=st.sampled_from(GRID_TILES))
def test_products(build: Any, several: list[Product], tile: Tile) -> None:
    products_agree(build, several, tile)


@examples(2)
@given(several=st.lists(products(), min_size=16, max_size=16), tile=st.sampled_from(TENSOR_TILES))
def test_products_on_tensor_cores(build: Any, several: list[Product], tile: Tile) -> None:
    products_agree(build, in_two_bytes(several), tile)


@examples(2)
@given(several=st.lists(products(), min_size=12, max_size=12), tile=st.sampled_from(GROUP_TILES))
def test_products_by_groups_of_warps(build: Any, several: list[Product], tile: Tile) -> None:
    products_agree(build, in_two_bytes(several), tile)


@pytest.mark.parametrize("tiles", [GRID_TILES, TENSOR_TILES, GROUP_TILES])
@examples(2)
@given(data=st.data())
def test_products_near_the_borders_of_tiles(build: Any, tiles: Sequence[Tile], data: Any) -> None:
    """A line more or less than tiles have, and so many k that shared memory is filled again."""
    tile = data.draw(st.sampled_from(tiles))
    lines = [size + more for size in {tile.rows, tile.columns} for more in (-1, 0, 1, 4)]
    depths = [tile.depth * steps + more for steps in (1, 5, 12) for more in (-1, 0, 1)]
    drawn = products(lines=lines, depths=depths)
    count = 20 if tile.tensor else 4
    several = data.draw(st.lists(drawn, min_size=count, max_size=count))
    if tile.tensor:
        several = in_two_bytes(several)
    products_agree(build, several, tile, partial(compiled, RUNNABLE[0]))


def in_two_bytes(several: list[Product]) -> list[Product]:
    """Those that tensor cores multiply. Elements are small whole numbers, so that the order of sums
    does not matter."""
    return [p for p in several if p.kept[0] is p.kept[1] and p.kept[0] in (float16, bfloat16)]


FUNCTIONS_OF_ARRAYS = {
    "transposed": (lambda x: x.T.copy(), [(70, 45)]),
    "transposed, few": (lambda x: x.T.copy(), [(70, 3)]),
    "transposed beside others": (lambda x, y: x.T * 2 + y, [(33, 64), (64, 33)]),
    "two transposed": (lambda x, y: (x + y).T + y.T, [(40, 33), (40, 33)]),
    "planes transposed": (lambda x: x.transpose(0, 2, 1) + 1, [(3, 37, 41)]),
    "axes moved": (lambda x: x.transpose(2, 0, 1) * 3, [(9, 35, 34)]),
    "a sum by several blocks": (lambda x: x.sum(), [(50000,)]),
    "sums of rows by several blocks": (lambda x: x.sum(axis=1), [(3, 9000)]),
    "sums of many rows by several blocks": (lambda x: x.sum(axis=1), [(12, 9000)]),
    "sums of columns by several blocks": (lambda x: x.sum(axis=0), [(9000, 5)]),
    "positions by several blocks": (lambda x: x.argmax(), [(20000,)]),
    "mean and deviation": (lambda x: (x.mean(axis=1), x.std(axis=1)), [(5, 700)]),
    "softmax": (lambda x: npx.softmax(x), [(6, 333)]),
    "a product whose k blocks share": (lambda x, y: np.dot(x, y), [(10, 6000), (6000, 12)]),
    "windows whose k blocks share": (
        lambda x, w: npx.convolution(
            x, w, kernel=(3, 3), num_filter=4, no_bias=True, stride=(2, 2), pad=(1, 1)
        ),
        [(1, 300, 7, 7), (4, 300, 3, 3)],
    ),
    "attention": (lambda q, k, v: npx.attention(q, k, v), [(2, 20, 8)] * 3),
}


@pytest.fixture(scope="module")
def kernel_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Any], Kernel]:
    return cached_kernels(tmp_path_factory.mktemp("kernels"))


@pytest.mark.parametrize("name", FUNCTIONS_OF_ARRAYS)
def test_functions_of_arrays(kernel_of: Any, name: str, tmp_path: Path) -> None:
    """Plans for a GPU, kernel by kernel, beside the CPU. Elements are small whole numbers."""
    function, shapes = FUNCTIONS_OF_ARRAYS[name]
    source = numpy.random.default_rng(0)
    arrays = [np.array(source.integers(-3, 4, shape).astype("float32")) for shape in shapes]
    memory = Memory(tmp_path / "memory", 1 << 24)
    run = Run(function, arrays, kernel_of, cuda(90), memory)
    wanted = function(*arrays)
    for found, value in zip(
        run.results, wanted if isinstance(wanted, tuple) else (wanted,), strict=True
    ):
        numpy.testing.assert_allclose(found, value.asnumpy(), rtol=1e-5, atol=1e-5)

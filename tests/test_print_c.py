"""Kernels printed as C and compiled, against what they mean and against LLVM's code."""

from __future__ import annotations

import ctypes
import doctest
import shutil
import subprocess
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy_cases import examples
from random_kernels import (
    RUNNABLE,
    Case,
    Kernel,
    Product,
    callable_at,
    compiled,
    meant,
    outcome,
    products,
    programs,
    same_bytes,
)

import gemel
from gemel import gluon, np, npx
from gemel.codegen.print_c import source
from gemel.codegen.program import FUNCTIONS
from gemel.codegen.target import TARGETS
from gemel.compiled import Compiled
from gemel.errors import TraceError

COMPILER = shutil.which("cc")
OPTIONS = (
    "-std=c11",
    "-O1",
    "-ffp-contract=off",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-shared",
    "-fPIC",
)
#: What is printed is not written by hand: nothing is simplified, not all is used.
OPTIONS += (
    "-Wno-tautological-compare",
    "-Wno-type-limits",
    "-Wno-unused-parameter",
    "-Wno-unused-variable",
)
pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C compiler")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Sequence[Any]], list[Kernel]]:
    """What makes kernels of programs: one text, one call of the compiler."""
    folder: Path = tmp_path_factory.mktemp("c")

    def build(programs: Sequence[Any]) -> list[Kernel]:
        text, library = folder / "kernels.c", folder / f"kernels{len(list(folder.iterdir()))}.so"
        text.write_text(source([*programs, programs[0]]))
        command = [str(COMPILER), *OPTIONS, str(text), "-o", str(library), "-lm"]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr + text.read_text()
        loaded = ctypes.CDLL(str(library))
        return [
            callable_at(ctypes.cast(loaded[f"kernel{i}"], ctypes.c_void_p).value or 0, loaded)
            for i in range(len(programs))
        ]

    return build


def agree(case: Case, kernels: list[Kernel], other: Callable[[Any], Kernel]) -> None:
    """The C of a case does what another way of computing it does."""
    turns = iter(kernels)
    status, got = outcome(case, lambda program: next(turns))
    found, wanted = outcome(case, other)
    assert status == found
    same_bytes(case, got, wanted)


@examples(1)
@given(cases=st.lists(programs(), min_size=25, max_size=25))
def test_programs(built: Any, cases: list[Case]) -> None:
    kernels = built([case.calls[0].program for case in cases])
    for case, kernel in zip(cases, kernels, strict=True):
        agree(case, [kernel], meant)


@examples(1)
@given(cases=st.lists(programs((*FUNCTIONS, "power")), min_size=25, max_size=25))
def test_functions_have_the_bits_of_the_machine_code(built: Any, cases: list[Case]) -> None:
    kernels = built([case.calls[0].program for case in cases])
    for case, kernel in zip(cases, kernels, strict=True):
        agree(case, [kernel], partial(compiled, RUNNABLE[0]))


@examples(1)
@given(several=st.lists(products(), min_size=10, max_size=10))
def test_products(built: Any, several: list[Product]) -> None:
    cases = [product.plain() for product in several]
    cases += [product.planned(TARGETS[RUNNABLE[0]]) for product in several]
    kernels = iter(built([call.program for case in cases for call in case.calls]))
    for case in cases:
        agree(case, [next(kernels) for _ in case.calls], meant)


# --- what users read --------------------------------------------------------------------------


def dense() -> Any:
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(4, activation="relu"), gluon.nn.Dense(3))
    net.initialize()
    net.hybridize()
    return net


#: A function or net, its arguments, and what the text of its steps tells.
READ: dict[str, tuple[Callable[[], Any], tuple[Any, ...], str]] = {
    "one kernel": (lambda: gemel.compile(lambda x: x * 2), (np.ones(3),), "kernel: multiply"),
    "a net": (dense, (np.ones((2, 5)),), "kernel1: matmul add, from 0"),
    "no kernel": (
        lambda: gemel.compile(lambda x: np.linalg.svd(x)[1] + 1),
        (np.ones((3, 3)),),
        "svd, which has no kernel",
    ),
    "a choice": (
        lambda: gemel.compile(lambda x: npx.cond(x.sum() > 0, lambda: x + 1, lambda: x * 2)),
        (np.ones(3),),
        "else",
    ),
    "nothing to do": (lambda: gemel.compile(lambda x: x), (np.ones(3),), "for the sizes seen"),
    "two bytes": (
        lambda: gemel.compile(lambda x: np.exp(x)),
        (np.ones(3, dtype="bfloat16"),),
        "kernel: exp",
    ),
    "a random stream": (lambda: gemel.compile(lambda: np.random.uniform(size=3)), (), "uniform"),
}


@pytest.mark.parametrize("name", READ)
def test_source(name: str, tmp_path: Path) -> None:
    made, arguments, told = READ[name]
    read = made()
    with pytest.raises(TraceError, match="call it first"):
        read.source()
    read(*arguments)
    text = read.source()
    assert told in text[: text.index("*/")]
    assert text == (read.source(*arguments) if arguments else text)
    (tmp_path / "read.c").write_text(text)
    command = [str(COMPILER), *OPTIONS, str(tmp_path / "read.c"), "-o", str(tmp_path / "read.so")]
    subprocess.run([*command, "-lm"], check=True)


@pytest.mark.parametrize("documented", [Compiled.source, gluon.HybridBlock.source])
def test_examples(documented: Any) -> None:
    scope = {"np": np, "gluon": gluon, "compile": gemel.compile}
    runner = doctest.DocTestRunner()
    for test in doctest.DocTestFinder().find(documented, globs=scope):
        assert runner.run(test).attempted and not runner.failures

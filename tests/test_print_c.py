"""Kernels printed as C and compiled, compared with their meaning and with LLVM's code."""

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
from gemel.codegen.c.kernels import source
from gemel.codegen.language.program import FUNCTIONS
from gemel.codegen.target import TARGETS
from gemel.errors import TraceError
from gemel.runtime.plan_text import as_c
from gemel.tracing.compiled import Compiled

COMPILER = shutil.which("cc")
OPTIONS = ("-std=c11", "-O1", "-ffp-contract=off", "-shared", "-fPIC")
#: Random programs may cause warnings, as when they compare a bool with true, but not these.
OPTIONS += tuple(f"-Werror={n}" for n in ("implicit-function-declaration", "uninitialized", "vla"))
pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C compiler")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Sequence[Any]], list[Kernel]]:
    """A function that makes kernels of programs, with one C file and one call of the compiler."""
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
    """Check that the C kernels of a case give what another way of computing it gives."""
    turns = iter(kernels)
    status, got = outcome(case, lambda program: next(turns))
    found, wanted = outcome(case, other)
    assert status == found
    same_bytes(case, got, wanted)


@examples(2)
@given(cases=st.lists(programs(), min_size=20, max_size=20))
def test_programs(built: Any, cases: list[Case]) -> None:
    kernels = built([case.calls[0].program for case in cases])
    for case, kernel in zip(cases, kernels, strict=True):
        agree(case, [kernel], meant)


@examples(2)
@given(cases=st.lists(programs((*FUNCTIONS, "power")), min_size=20, max_size=20))
def test_functions_have_the_bits_of_the_machine_code(built: Any, cases: list[Case]) -> None:
    kernels = built([case.calls[0].program for case in cases])
    for case, kernel in zip(cases, kernels, strict=True):
        agree(case, [kernel], partial(compiled, RUNNABLE[0]))


@examples(2)
@given(several=st.lists(products(), min_size=10, max_size=10))
def test_products(built: Any, several: list[Product]) -> None:
    cases = [product.plain() for product in several]
    cases += [product.planned(TARGETS[RUNNABLE[0]]) for product in several]
    cases += [product.in_part(TARGETS[RUNNABLE[0]]) for product in several]
    kernels = iter(built([call.program for case in cases for call in case.calls]))
    for case in cases:
        agree(case, [next(kernels) for _ in case.calls], meant)


# --- what users read --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * x,
        lambda x: np.sin(x) + np.power(x, x),
        lambda x: np.tan(x.astype("float64")),
        lambda x: x[np.argmax(x, axis=0)].sum(axis=1),
        lambda x: np.argmax(x[:, None], axis=1),  # reads nothing
        lambda x: np.argmax((x * 2.5)[:, None], axis=1),
    ],
)
def test_a_strict_compiler_has_nothing_to_say(function: Any) -> None:
    text = gemel.compile(function).source(np.ones((3, 4)))
    command = [str(COMPILER), "-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
    done = subprocess.run([*command, "-x", "c", "-"], input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def dense() -> Any:
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(4, activation="relu"), gluon.nn.Dense(3))
    net.initialize()
    net.hybridize()
    return net


def rounds(x: Any, state: Any) -> Any:
    return npx.foreach(lambda each, s: (s[0] + each, [np.tanh(s[0] * each)]), x, [state])


def until(x: Any) -> Any:
    return npx.while_loop(lambda v: v.sum() < 9, lambda v: (v, [np.sinh(v) + 1]), [x], 5)


def apart(x: Any, state: Any) -> Any:
    def step(each: Any, states: list[Any]) -> Any:
        first, second = states
        return each, [np.tanh(first @ each), np.exp(second @ each)]

    return npx.foreach(step, x, [state, state + 1])


#: A function or network, its arguments, and a text that the printed steps contain.
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
    "a loop": (
        lambda: gemel.compile(rounds),
        (np.ones((50, 2)), np.ones(2)),
        "    kernel2: multiply tanh",
    ),
    "a loop's rounds": (lambda: gemel.compile(rounds), (np.ones((50, 2)), np.ones(2)), "50 times"),
    "until it holds no more": (
        lambda: gemel.compile(until),
        (np.ones(2),),
        "5 times (loop",
    ),
    "side by side": (
        lambda: gemel.compile(apart),
        (np.ones((50, 192, 192)), np.ones((192, 192))),
        "beside that",
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


def test_unknown_plan_items_are_refused() -> None:
    with pytest.raises(TypeError, match="'unknown' is not an item of a plan that can be printed"):
        as_c("f", ["unknown"])


@pytest.mark.parametrize(
    ("function", "shapes", "count"),
    [(rounds, [(50, 2), (2,)], 4), (until, [(2,)], 8), (apart, [(50, 256, 256), (256, 256)], 10)],
)
def test_summaries_count_what_is_inside(
    function: Callable[..., Any], shapes: list[tuple[int, ...]], count: int
) -> None:
    summary = gemel.compile(function).plan_summary(*map(np.ones, shapes))
    assert summary.split(": ")[1].startswith(f"{count} kernels")


@pytest.mark.parametrize("documented", [Compiled.source, gluon.HybridBlock.source])
def test_examples(documented: Any) -> None:
    scope = {"np": np, "gluon": gluon, "compile": gemel.compile}
    runner = doctest.DocTestRunner()
    for test in doctest.DocTestFinder().find(documented, globs=scope):
        assert runner.run(test).attempted and not runner.failures

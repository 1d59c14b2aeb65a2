"""Every instruction of every dtype: the same bits by LLVM, by C and by NumPy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy
import pytest
from random_kernels import RUNNABLE, Call, Case, Kernel, compiled, kept, meant, outcome, same_bytes
from test_print_c import COMPILER, built

from gemel.codegen.language.program import CONTIGUOUS, INPUT, OUTER, OUTPUT, Operand, Program
from gemel.codegen.language.spelling import COMPARISONS, SPELLINGS
from gemel.codegen.language.values import Recorder
from gemel.dtype import DTYPES, DType, bfloat16, bool_, float32

__all__ = ["built"]
#: Several whole vectors and a remainder.
COUNT = 131
COMPUTED = [d for d in DTYPES if d.compute is d and d.kind != "c"]
REAL = [d for d in DTYPES if d.kind != "c"]
ONE = ("negative", "absolute", "sqrt", "floor", "ceil", "rint", "trunc", "isnan", "bit_not")
#: Parts of other instructions.
PARTS = ("shift_left_within", "shift_right_within", "quotient")


def drawn(dtype: DType, seed: int) -> Any:
    """Small values, and the extremes of the dtype."""
    generator = numpy.random.default_rng(seed)
    if dtype.kind == "b":
        return generator.integers(0, 2, COUNT).astype(bool)
    if dtype.kind == "f":
        values = generator.normal(size=COUNT) * 3
        values[:9] = 0.0, -0.0, 1.0, numpy.inf, -numpy.inf, numpy.nan, 0.5, -2.5, 1e30
        generator.shuffle(values)
        return values.astype(dtype.name)
    limits = numpy.iinfo(dtype.name)
    values = generator.integers(max(limits.min, -9), 70, COUNT).astype(dtype.name)
    values[:4] = limits.min, limits.max, 0, limits.max // 2
    generator.shuffle(values)
    return values


def case(name: str, arguments: Sequence[DType], result: DType, inputs: Sequence[Any]) -> Case:
    """A kernel of one instruction."""
    record = Recorder()
    loaded = tuple(record.load(i, dtype) for i, dtype in enumerate(arguments))
    record.store(len(loaded), record.append(name, result, loaded))
    dtypes = [*arguments, result]
    operands = [Operand(d, INPUT, CONTIGUOUS) for d in arguments]
    operands.append(Operand(result, OUTPUT, CONTIGUOUS))
    program = Program(1, 0, OUTER, tuple(operands), (), 0, tuple(record.code))
    buffers = [*inputs, numpy.zeros(COUNT, kept(result))]
    places = [(number, 0) for number in range(len(dtypes))]
    return Case([Call(program, places, [COUNT, *[1] * len(dtypes)], [0, COUNT])], buffers, dtypes)


def instructions() -> Iterator[Case]:
    """One case of each name and dtype in the table."""
    for name, kind in SPELLINGS:
        for dtype in (d for d in COMPUTED if d.kind == kind):
            arguments = [dtype] * (1 if name in ONE else 2)
            if name in PARTS or (name == "multiply_high" and dtype.name != "uint32"):
                continue
            if name == "multiply_add":
                if dtype is not float32:
                    continue
                arguments = [dtype] * 3
            for chosen in COMPUTED if name == "select" else [dtype]:
                given = [bool_, chosen, chosen] if name == "select" else arguments
                asks = name in COMPARISONS or name == "isnan"
                inputs = [drawn(d, seed) for seed, d in enumerate(given)]
                yield case(name, given, bool_ if asks else chosen, inputs)


def casts() -> Iterator[Case]:
    """One case for each pair of dtypes, with values that both can hold."""
    for source in REAL:
        for target in REAL:
            values = numpy.arange(COUNT) % 100
            if source is bfloat16:
                given = (values.astype("float32").view("uint32") >> 16).astype("uint16")
            else:
                given = values != 3 if source.kind == "b" else values.astype(source.name)
            if source is not target:
                yield case("cast", [source], target, [given])


@pytest.mark.skipif(COMPILER is None, reason="no C compiler")
@pytest.mark.parametrize("cases", [instructions, casts])
def test_every_language_says_the_same(built: Any, cases: Callable[[], Iterator[Case]]) -> None:
    every = list(cases())
    kernels = built([each.calls[0].program for each in every])
    for each, kernel in zip(every, kernels, strict=True):
        _, wanted = outcome(each, meant)
        targets = {RUNNABLE[0], RUNNABLE[-1]}
        ways: list[Callable[[Any], Kernel]] = [partial(compiled, name) for name in targets]
        for way in (*ways, lambda program, kernel=kernel: kernel):
            _, got = outcome(each, way)
            same_bytes(each, got, wanted)

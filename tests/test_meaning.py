"""Compiled kernels do what `codegen.meaning` says, to the bit: random programs, every target."""

from __future__ import annotations

import doctest
import math
import re
import shutil
import subprocess
import sys
import textwrap
from functools import partial
from itertools import product as pairs
from pathlib import Path

import numpy
import pytest
from combiners import COMBINERS
from hypothesis import given
from llvmlite.binding import llvm_version_info
from numpy_cases import examples
from programs import surroundings
from random_kernels import (
    RUNNABLE,
    Call,
    Case,
    Product,
    compiled,
    meant,
    outcome,
    products,
    programs,
    same_bytes,
)

from gemel.codegen.language import meaning
from gemel.codegen.language.carry import reduced
from gemel.codegen.language.program import (
    BROADCAST,
    CONTIGUOUS,
    INDEX,
    INNER,
    INPUT,
    INTERLEAVED,
    OUTER,
    OUTPUT,
    Operand,
    Program,
    Schedule,
)
from gemel.codegen.language.values import Recorder
from gemel.codegen.target import TARGETS
from gemel.dtype import DType, float32, int32, int64, uint64

PAGE = Path(__file__).parent.parent / "docs" / "internals" / "kernels.md"
#: A line of a disassembly: its instruction, and what that works on.
INSTRUCTION = re.compile(r"^ +[0-9a-f]+:\t(\w+) *(.*)$", re.MULTILINE)


@pytest.mark.parametrize("target", RUNNABLE)
@examples(20)
@given(case=programs())
def test_programs(target: str, case: Case) -> None:
    status, wanted = outcome(case, meant)
    found, got = outcome(case, partial(compiled, target))
    assert found == status
    same_bytes(case, got, wanted)


@pytest.mark.parametrize("target", RUNNABLE)
@examples(20)
@given(case=programs(rows=True))
def test_rows_along_or_across(target: str, case: Case) -> None:
    """Short rows are turned, so that several fill a vector; long rows are not."""
    test_programs.hypothesis.inner_test(target, case)


@pytest.mark.parametrize("target", RUNNABLE)
@examples(6)
@given(product=products())
def test_products(target: str, product: Product) -> None:
    """The product in loops and in tiles: the schedule does not change the result."""
    plain, case = product.plain(), product.planned(TARGETS[target])
    _, wanted = outcome(plain, meant)
    _, looped = outcome(plain, partial(compiled, target))
    same_bytes(plain, looped, wanted)
    _, told = outcome(case, meant)
    same_bytes(plain, told[:-1], wanted)
    _, got = outcome(case, partial(compiled, target))
    same_bytes(case, got, told)


@pytest.mark.parametrize("target", RUNNABLE)
@examples(10)
@given(product=products())
def test_parts_of_products(target: str, product: Product) -> None:
    """A range of tiles is the same rows and columns for all, in whatever order the tiles are."""
    case = product.in_part(TARGETS[target])
    _, told = outcome(case, meant)
    _, got = outcome(case, partial(compiled, target))
    same_bytes(case, got, told)


@pytest.mark.parametrize("target", RUNNABLE)
def test_sweeps_do_not_spill_into_interleaved_outputs(
    target: str,
) -> None:
    """Interleaved outputs are written together, and an expensive value is computed again."""
    record = Recorder()
    x = record.load(0, int32)
    dear = x // 3 % 7 // 2
    record.store(1, dear)
    record.store(2, dear * record.reduce("max", x))
    operands = [Operand(int32, INPUT, CONTIGUOUS, True)]
    output = Operand(int32, OUTPUT, INTERLEAVED, True)
    operands += [output._replace(interleaved=(turn, 2)) for turn in (0, 1)]
    program = Program(1, 1, INNER, tuple(operands), (), 0, tuple(record.code))
    buffers = [numpy.arange(90, dtype="int32").view("uint8"), numpy.zeros(720, "uint8")]
    strides = [30, 1, 60, 2, 60, 2]
    call = Call(program, [(0, 0), (1, 0), (1, 4)], [3, 30, *strides], [0, 3])
    case = Case([call], buffers, [int32, int32])
    same_bytes(case, outcome(case, partial(compiled, target))[1], outcome(case, meant)[1])


@pytest.mark.parametrize("target", RUNNABLE)
@pytest.mark.parametrize("sweeps", (1, 2))
def test_few_columns_are_woven(target: str, sweeps: int) -> None:
    """Any number of columns and rows, with and without a gap between the rows."""
    record = Recorder()
    x = record.load(0, float32)
    found = [record.reduce("sum", x), record.reduce("max", x)]
    if sweeps == 2:
        found.append(record.reduce("sum", (x - found[1]) * (x - found[1])))
    for number, value in enumerate(found, 1):
        record.store(number, value)
    operands = [Operand(float32, INPUT, CONTIGUOUS, True)]
    operands += [Operand(float32, OUTPUT, CONTIGUOUS) for _ in found]
    program = Program(2, 1, OUTER, tuple(operands), (), 0, tuple(record.code))
    kernel = compiled(target, program)
    for columns, rows, gap in pairs((0, 1, 2, 3, 5, 7, 8, 9, 16, 17), (0, 1, 12, 40, 300), (0, 2)):
        stride = columns + gap
        values = numpy.arange(3 * rows * stride + 1) * 7 % 23 - 11  # their sums are exact
        if values.size > 40:
            values[5] = -100
        extents, written = [3, columns, rows], [columns, 1, 0] * len(found)
        integers = [*extents, rows * stride, 1, stride, *written]
        call = Call(program, [(n, 0) for n in range(len(operands))], integers, [0, 1, 3])
        results = [numpy.zeros(12 * columns + 4, "uint8") for _ in found]
        buffers = [values.astype("float32").view("uint8"), *results]
        case = Case([call], buffers, [float32] * len(operands))
        same_bytes(case, outcome(case, lambda _: kernel)[1], outcome(case, meant)[1])


@pytest.mark.parametrize("target", RUNNABLE)
@pytest.mark.parametrize("sweeps", (1, 2))
@pytest.mark.parametrize(("rows", "columns"), [(17, 2113), (131, 301), (260, 700), (4200, 260)])
def test_columns_of_large_arrays_go_by_strips(
    target: str, sweeps: int, rows: int, columns: int
) -> None:
    """Several strips, blocks of sums and blocks of such blocks; column ranges with any ends."""
    record = Recorder()
    x = record.load(0, float32)
    found = [record.reduce("sum", x), reduced(record, COMBINERS["argmax"], x)]
    if sweeps == 1:
        found.append(reduced(record, COMBINERS["moments"], x.cast(int32)))
    if sweeps == 2:
        most = record.reduce("max", x)
        found[1:] = [most, record.reduce("sum", (x - most) * (x - most))]
    for number, value in enumerate(found, 1):
        record.store(number, value)
    dtypes = [float32, *(value.dtype for value in found)]
    operands = [Operand(float32, INPUT, CONTIGUOUS, True)]
    operands += [Operand(dtype, OUTPUT, CONTIGUOUS) for dtype in dtypes[1:]]
    program = Program(1, 1, OUTER, tuple(operands), (), 0, tuple(record.code))
    stride = columns + 3
    values = (numpy.arange(rows * stride) * 7 % 23 - 11).astype("float32")  # their sums are exact
    written = [1, 0] * (len(operands) - 1)
    call = Call(
        program, [(n, 0) for n in range(len(operands))], [columns, rows, 1, stride, *written],
        [0, columns - 11, columns],
    )  # fmt: skip
    results = [numpy.zeros(columns * dtype.itemsize, "uint8") for dtype in dtypes[1:]]
    case = Case([call], [values.view("uint8"), *results], dtypes)
    same_bytes(case, outcome(case, partial(compiled, target))[1], outcome(case, meant)[1])


@pytest.mark.parametrize("target", RUNNABLE)
@pytest.mark.parametrize("size", ((5,), (7,), (3, 3), (4, 2), (5, 5), (9, 2)), ids=str)
@pytest.mark.parametrize("dtype", (float32, int32))
def test_sums_over_windows_that_slide(target: str, size: tuple[int, ...], dtype: DType) -> None:
    """Any number of rows of results, columns and, unless they are unrolled, lines of windows.
    Results are added to what was there, so no row may be written twice."""
    record = Recorder()
    x, weight, before = (record.load(n, dtype) for n in range(3))
    record.store(3, before + record.reduce("sum", x * weight))
    operands = [
        Operand(dtype, INPUT, CONTIGUOUS, True), Operand(dtype, INPUT, BROADCAST, True),
        Operand(dtype, INPUT, CONTIGUOUS), Operand(dtype, OUTPUT, CONTIGUOUS),
    ]  # fmt: skip
    program = Program(
        3, 2, Schedule(OUTER, "", *size).text, tuple(operands), (), 0, (*record.code,)
    )
    images, one = compiled(target, program), compiled(target, program._replace(outer=2))
    windows = [size] if len(size) == 2 else pairs((size[0], size[0] + 4), (1, 5, 63))
    for rows, columns, (high, wide) in pairs((1, 4, 5, 7, 8, 17), (1, 7, 16, 37, 130), windows):
        pitch, lines = columns + wide, rows - 1 + high
        plane, result = pitch * lines, rows * columns
        shape = {"x": 2 * plane, "weight": 2 * high * wide, "y": 2 * result}
        values = [numpy.arange(n) * 7 % (13 + i) - 6 for i, n in enumerate(shape.values())]
        strides = [(plane, pitch, 1, pitch, 1), (high * wide, 0, 0, wide, 1)]
        strides += [(result, columns, 1, 0, 0)] * 2
        buffers = [each.astype(dtype.name).view("uint8") for each in values]
        for first, kernel, cuts in ((0, images, [0, 1, 2]), (1, one, [0, rows // 3, rows])):
            made = program._replace(outer=3 - first)
            integers = [2, rows, columns, high, wide][first:]
            integers += [stride for each in strides for stride in each[first:]]
            call = Call(made, [(0, 0), (1, 0), (2, 0), (2, 0)], integers, cuts)
            case = Case([call], buffers, [dtype] * 3)
            found, wanted = outcome(case, lambda _, kernel=kernel: kernel), outcome(case, meant)
            same_bytes(case, found[1], wanted[1])


@pytest.mark.parametrize("target", RUNNABLE)
@pytest.mark.parametrize(
    "schedule", ("outer", "outer 3x3", "outer 2x5", "outer 5x4", "outer 3x3x2", "outer 7x2x3")
)
@pytest.mark.parametrize("dtype", (float32, int32))
def test_sums_over_windows_with_a_border(target: str, schedule: str, dtype: DType) -> None:
    """Outside of the image windows are 0, and nothing is read there: the image has no room around
    it."""
    high, wide, step = Schedule.parse(schedule)[2:5] if "x" in schedule else (3, 2, 1)
    record = Recorder()
    at = [(record.load(n, int64) - record.scalar(n, int64)).cast(uint64) for n in range(2)]
    conditions = tuple(at[n] < record.scalar(2 + n, int64).cast(uint64) for n in range(2))
    term = record.load_where(2, dtype, conditions) * record.load(3, dtype)
    record.store(4, record.reduce("sum", term))
    operands = [
        Operand(int64, INDEX, BROADCAST, True), Operand(int64, INDEX, CONTIGUOUS, True),
        Operand(dtype, INPUT, CONTIGUOUS, True), Operand(dtype, INPUT, BROADCAST, True),
        Operand(dtype, OUTPUT, CONTIGUOUS),
    ]  # fmt: skip
    program = Program(2, 2, schedule, tuple(operands), (int64,) * 4, 0, tuple(record.code))
    kernel = compiled(target, program)
    for rows, columns in pairs((1, 2, 5, 18), (1, 7, 16, 37, 130)):
        results = (rows + 2 * (high - 1) - high) // step + 1, columns + wide - 1
        values = [numpy.arange(n) * 7 % 13 - 6 for n in (rows * columns, high * wide)]
        values.append(numpy.zeros(results[0] * results[1]))
        integers = [
            *results, high, wide, step, 0, 1, 0, 0, 1, 0, 1, step * columns, 1, columns, 1,
            0, 0, wide, 1, results[1], 1, 0, 0, high - 1, wide - 1, rows, columns,
        ]  # fmt: skip
        first = -dtype.itemsize * ((high - 1) * columns + wide - 1)  # that of the border
        places = [(0, first), (1, 0), (2, 0)]
        call = Call(program, places, integers, [0, results[0] // 2, results[0]])
        buffers = [each.astype(dtype.name).view("uint8") for each in values]
        case = Case([call], buffers, [dtype] * 3)
        found, wanted = outcome(case, lambda _, kernel=kernel: kernel), outcome(case, meant)
        same_bytes(case, found[1], wanted[1])


def test_the_page_shows_what_is_true() -> None:
    """The Python examples in docs/internals/kernels.md print what the page says."""
    found = doctest.testfile(str(PAGE), module_relative=False)
    assert found.attempted > 20 and not found.failed


@pytest.mark.skipif("avx2" not in RUNNABLE, reason="the page shows code for AVX2")
def test_the_page_shows_what_is_compiled(tmp_path: Path) -> None:
    """The page's shell line prints its listing, and the object begins where the page says."""
    text = PAGE.read_text()
    line, listing = re.findall(r"python -c '\n(.*?)'\n    (gemel: compiling.*?)\n\n", text, re.S)[0]
    given = {"GEMEL_CACHE": str(tmp_path), "GEMEL_TARGET": "avx2", "GEMEL_DEBUG": "2"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(line)], env=surroundings(given), text=True,
        capture_output=True, check=True,
    )  # fmt: skip
    assert textwrap.dedent("    " + listing) in done.stderr
    (kernel,) = tmp_path.glob("*/*.kernel")
    header = re.search(r"header of (\d+) bytes", text)
    assert header and kernel.read_bytes()[int(header[1]) :].startswith(b"\x7fELF")
    assert f"tail -c +{int(header[1]) + 1} " in text
    if shutil.which("objdump"):
        (tmp_path / "kernel.o").write_bytes(kernel.read_bytes()[int(header[1]) :])
        disassemble = ["objdump", "-d", "--no-show-raw-insn", "-M", "intel", tmp_path / "kernel.o"]
        code = subprocess.run(disassemble, text=True, capture_output=True, check=True).stdout
        shown, made = (INSTRUCTION.findall(each) for each in (text, code))
        assert len(shown) == 14
        if f"LLVM {llvm_version_info[0]}." not in text:  # others may choose other registers
            shown, made = ([line[0] for line in each] for each in (shown, made))
        for sweep in shown[:7], shown[7:]:
            assert any(made[i : i + 7] == sweep for i in range(len(made)))


def test_a_sum_of_a_product_is_rounded_once() -> None:
    """In float64 these would round to a tie, above the largest float32 or below the smallest."""
    tiny, most = 2.0**-149, float(numpy.finfo("float32").max)
    cases = [
        (1 + 2.0**-12, 1 + 2.0**-12, 2.0**-60, 1 + 2.0**-11 + 2.0**-23),  # just off a tie
        (1 + 2.0**-12, 1 + 2.0**-12, -(2.0**-60), 1 + 2.0**-11),
        (1 + 2.0**-12, 1 + 2.0**-12, 0.0, 1 + 2.0**-11),  # a tie rounds to even
        (most, 1.0, 2.0**102, most),
        (most, 1.0, 2.0**103, math.inf),
        (tiny, 0.5, 0.0, 0.0),
        (tiny, -0.5, 0.0, -0.0),
        (tiny, 0.75, 0.0, tiny),
        (2.0, 3.0, -6.0, 0.0),
        (-0.0, 3.0, -0.0, -0.0),
        (math.inf, 0.0, 1.0, math.nan),
        (math.inf, 1.0, -math.inf, math.nan),
    ]
    a, b, c, wanted = numpy.array(cases, "float32").T
    with numpy.errstate(all="ignore"):
        found = meaning.computed("multiply_add", a, b, c)
    numpy.testing.assert_array_equal(found, wanted)
    numpy.testing.assert_array_equal(numpy.signbit(found[:-2]), numpy.signbit(wanted[:-2]))

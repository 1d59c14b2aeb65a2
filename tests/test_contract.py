"""Matrix products against NumPy: sizes, layouts, batches, epilogues, targets, orders of tiles."""

from __future__ import annotations

import ctypes
import itertools
import random
from pathlib import Path
from typing import Any

import numpy
import pytest
from products import Described, at_the_end, in_loops, steps

from gemel._core import load_object
from gemel.codegen import target as targets
from gemel.codegen.contract import planner, tilings
from gemel.codegen.contract.task import STREAMED, Task
from gemel.codegen.contract.tilings import SCRATCH
from gemel.codegen.language.program import (
    BROADCAST,
    CONTIGUOUS,
    INDEX,
    INPUT,
    OUTPUT,
    STRIDED,
    Instruction,
    Operand,
    Program,
    Schedule,
)
from gemel.codegen.schedules import compile_program
from gemel.dtype import DType, bfloat16, bool_, float16, float32, float64, int32, int64
from gemel.errors import CompileError, GemelError

_LEVELS = ("avx512", "avx2", "generic")
NAMES = _LEVELS[_LEVELS.index(targets._best(targets._flags())) :]
_loaded: dict[tuple[str, str], Any] = {}


def loaded(program: Program, target: targets.Target) -> Any:
    """The kernel as a callable; compiled once."""
    key = program.text, target.name
    if key not in _loaded:
        kernel = load_object(compile_program(program, target))
        pointer, integer = ctypes.c_void_p, ctypes.c_int64
        kind = ctypes.CFUNCTYPE(ctypes.c_int32, pointer, pointer, integer, integer)
        # The kernel owns the code, so it must live as long as the function.
        _loaded[key] = kernel, kind(kernel.address)
    return _loaded[key][1]


def run(
    plan: list[planner.ProductStep],
    target: targets.Target,
    arrays: dict[str, numpy.ndarray],
    scalars: tuple[int | float, ...] = (),
    seed: int = 0,
) -> None:
    """Runs the steps in order, and the tiles of each step in an order that the seed chooses."""
    # 0xff in every byte is NaN, so a read of scratch before it is written shows.
    sizes = plan[0].scratch if plan else ()
    scratch = [numpy.full(size + 4096, 255, numpy.uint8) for size in sizes]
    starts = [-each.ctypes.data % 64 for each in scratch]
    bases = [each.ctypes.data + start for each, start in zip(scratch, starts, strict=True)]
    for step in plan:
        integers = numpy.array(step.integers, numpy.int64)
        for number, value in enumerate(scalars[: len(step.program.scalars)]):
            bits = numpy.float64(value).view(numpy.int64) if isinstance(value, float) else value
            integers[step.program.first_scalar + number] = bits
        addresses = [
            bases[SCRATCH - whose] if whose < 0 else arrays[named(whose)].ctypes.data
            for whose in step.buffers
        ]
        pointers = numpy.array(addresses, numpy.uint64)
        tiles = list(range(0, step.extent, step.chunk))
        random.Random(seed).shuffle(tiles)
        kernel = loaded(step.program, target)
        for tile in tiles:
            last = min(step.extent, tile + step.chunk)
            assert kernel(pointers.ctypes.data, integers.ctypes.data, tile, last) == 0
    for each, start, size in zip(scratch, starts, sizes, strict=True):
        assert (each[start + size :] == 255).all(), "scratch past its end was written"


def named(operand: int) -> str:
    """The name of an operand in `arrays`."""
    return ("a", "b")[operand] if operand < 2 else f"operand {operand - 2}"


def plain(dtype: DType, a_last: str = "k", b_last: str = "n") -> Described:
    """A product without an epilogue."""
    code = (Instruction("sum", dtype), Instruction("store", dtype, (0,), 0))
    return Described(dtype, (a_last, b_last), (Operand(dtype, OUTPUT, CONTIGUOUS),), (), code)


def filled(generator: numpy.random.Generator, shape: tuple[int, ...], dtype: DType) -> Any:
    return generator.standard_normal(shape).astype(dtype.name)


def kept_as(array: Any, dtype: DType) -> tuple[Any, Any]:
    """The array rounded to a dtype, and as it is stored: bfloat16 as its bits."""
    if dtype is not bfloat16:
        found = array.astype(dtype.name)
        return found.astype(array.dtype), found
    bits = (array.view("uint32") + numpy.uint32(0x8000)) >> numpy.uint32(16)
    return (bits << numpy.uint32(16)).view("float32"), bits.astype("uint16")


def laid_out(array: Any, turn: bool, pad: int) -> tuple[Any, int]:
    """The matrices, perhaps transposed, in rows with `pad` more elements; and their stride."""
    stored = array.swapaxes(-1, -2) if turn else array
    nothing = numpy.nan if array.dtype.kind == "f" else 0x7FC0  # the bits of NaN in bfloat16
    wide = numpy.full((*stored.shape[:-1], stored.shape[-1] + pad), nothing, array.dtype)
    wide[..., : stored.shape[-1]] = stored
    return wide, wide.shape[-1]


def check_product(
    dtype: DType,
    name: str,
    sizes: tuple[int, int, int],
    lasts: tuple[str, str],
    seed: int = 0,
    pad: int = 3,
    kept: tuple[DType, DType] | None = None,
) -> Any:
    m, n, k = sizes
    target = targets.TARGETS[name]
    generator = numpy.random.default_rng(seed)
    kinds = kept or (dtype, dtype)
    shapes = (m, k), (k, n)
    (a, a_kept), (b, b_kept) = (
        kept_as(filled(generator, shape, dtype), kind)
        for shape, kind in zip(shapes, kinds, strict=True)
    )
    a_stored, a_stride = laid_out(a_kept, lasts[0] == "m", pad)
    b_stored, b_stride = laid_out(b_kept, lasts[1] == "k", pad)
    out = numpy.full((m, n + pad), 7, dtype.name)
    contraction = plain(dtype, *lasts)._replace(kept=kept)
    plan = steps(
        contraction, target, m, n, k, (a_stride, 0, 0), (b_stride, 0, 0), [(n + pad, 1, 0, 0)]
    )
    run(plan, target, {"a": a_stored, "b": b_stored, "operand 0": out}, seed=seed)
    wanted = a.astype("float64") @ b.astype("float64")
    tolerance = (2e-6 if dtype is float32 else 1e-14) * (k + 1)
    assert numpy.abs(out[:, :n] - wanted).max(initial=0) <= tolerance, plan
    assert (out[:, n:] == 7).all(), "columns past the end were written"
    return out


LAYOUTS = [("k", "n"), ("k", "k"), ("m", "n"), ("m", "k")]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("lasts", LAYOUTS)
@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
def test_random_sizes(dtype: DType, lasts: tuple[str, str], name: str) -> None:
    sizes = random.Random(f"{dtype}{lasts}{name}")
    for seed in range(25):
        m, n, k = (sizes.randint(0, 70) for _ in range(3))
        check_product(dtype, name, (m, n, k), lasts, seed, pad=seed % 4)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("b_kept", [float32, float64, float16, bfloat16], ids=str)
def test_nothing_past_the_end_of_b_is_read(b_kept: DType, name: str) -> None:
    """Lines other than the last may be read past their ends, but not past the end of b."""
    dtype = float64 if b_kept is float64 else float32
    target, generator = targets.TARGETS[name], numpy.random.default_rng(0)
    for columns in range(1, 36):
        m, k, pad = (5, 16, 40)[columns % 3], (1, 2, 7, 33)[columns % 4], columns % 5
        a = filled(generator, (m, k), dtype)
        b, b_stored = kept_as(filled(generator, (k, columns), dtype), b_kept)
        stride = columns + pad
        placed = at_the_end((k - 1) * stride + columns, b_kept)
        lines = numpy.lib.stride_tricks.as_strided(
            placed, (k, columns), (stride * placed.itemsize, placed.itemsize)
        )
        placed[:], lines[:] = 0x7FC0 if b_kept is bfloat16 else numpy.nan, b_stored
        out = numpy.empty((m, columns), dtype.name)
        contraction = plain(dtype)._replace(kept=(dtype, b_kept))
        plan = steps(
            contraction, target, m, columns, k, (k, 0, 0), (stride, 0, 0), [(columns, 1, 0, 0)]
        )
        run(plan, target, {"a": a, "b": placed, "operand 0": out})
        numpy.testing.assert_allclose(out, a @ b, rtol=1e-4, atol=1e-5, err_msg=str(plan))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("a_kept", [float32, float64, float16, bfloat16], ids=str)
def test_nothing_past_the_end_of_a_is_read(a_kept: DType, name: str) -> None:
    """The same for an a that is contiguous along m. Its lines may overlap, or be one line."""
    dtype = float64 if a_kept is float64 else float32
    target, generator = targets.TARGETS[name], numpy.random.default_rng(0)
    for rows in range(1, 36):
        n, k, stride = (5, 16, 40)[rows % 3], (1, 2, 7, 33)[rows % 4], (rows + rows % 5, 3, 0)
        for between in stride:
            a, a_stored = kept_as(filled(generator, ((k - 1) * between + rows,), dtype), a_kept)
            placed = at_the_end(a_stored.size, a_kept)
            placed[:] = a_stored
            lines = numpy.lib.stride_tricks.as_strided(
                a, (k, rows), (between * a.itemsize, a.itemsize)
            )
            b, out = filled(generator, (k, n), dtype), numpy.empty((rows, n), dtype.name)
            contraction = plain(dtype, "m", "n")._replace(kept=(a_kept, dtype))
            plan = steps(
                contraction, target, rows, n, k, (between, 0, 0), (n, 0, 0), [(n, 1, 0, 0)]
            )
            run(plan, target, {"a": placed, "b": b, "operand 0": out})
            numpy.testing.assert_allclose(out, lines.T @ b, rtol=1e-4, atol=1e-5, err_msg=str(plan))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("lasts", LAYOUTS)
def test_packed_panels_and_blocks_of_k(lasts: tuple[str, str], name: str) -> None:
    check_product(float32, name, (150, 203, 1300), lasts)
    check_product(float64, name, (90, 131, 700), lasts)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("a_last", ["k", "m"])
def test_few_rows_without_panels_in_blocks_of_k(a_last: str, name: str) -> None:
    """Several rows of micro-tiles read the same part of b while it is near."""
    for m, n, k in ((20, 100, 1700), (32, 33, 3333), (15, 7, 2100)):
        task = Task(float32, (a_last, "n"), targets.TARGETS[name], m, n, k)
        choice = tilings.variants(task)
        if choice.schedule.b_form == "n":  # without masks an incomplete panel is packed
            assert choice.schedule.split and not choice.schedule.packs_b
        assert 512 <= choice.k_block <= tilings.K_BLOCK
        check_product(float32, name, (m, n, k), (a_last, "n"), seed=m, pad=m % 4)
    one = Task(float32, (a_last, "n"), targets.TARGETS[name], 1, 100, 1700)
    assert tilings.variants(one).k_block == 0  # b is read once


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("a_last", ["k", "m"])
def test_few_rows_read_a_large_factor_a_few_lines_at_a_time(a_last: str, name: str) -> None:
    """If a pass over few columns would touch too many pages, or lines lie in the same sets."""

    def is_streamed(dtype: DType, m: int, n: int, k: int) -> bool:
        task = Task(dtype, (a_last, "n"), targets.TARGETS[name], m, n, k)
        return tilings.variants(task).k_block == STREAMED

    for dtype, m, n, k in (
        (float32, 1, 1100, 1100),
        (float32, 3, 700, 1701),
        (float32, 32, 1024, 515),
        (float64, 2, 515, 1033),
        (float64, 20, 513, 1029),
    ):
        assert is_streamed(dtype, m, n, k)
        check_product(dtype, name, (m, n, k), (a_last, "n"), seed=m, pad=m % 4)
    assert not is_streamed(float32, 32, 1000, 515), "lines in other sets"
    assert not is_streamed(float32, 1, 1024, 515), "each line is read once"
    assert not is_streamed(float32, 40, 1024, 2048), "the first rows make panels"


@pytest.mark.parametrize("name", NAMES)
def test_panels_that_share_lines_of_memory(name: str) -> None:
    """Whole panels are packed in the order of k, several at a time; a shorter last one alone."""
    for m, n in ((14 * 9, 160), (14 * 9 + 5, 163), (3, 1), (57, 32), (71, 31)):
        for dtype in (float32, float64):
            check_product(dtype, name, (m, n, 530), ("m", "n"), seed=m, pad=m % 4)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("a_last", ["k", "m"])
@pytest.mark.parametrize("b_kept", [float32, float64, float16, bfloat16], ids=str)
def test_first_rows_leave_panels_for_the_others(b_kept: DType, a_last: str, name: str) -> None:
    """With any remainder of rows, columns and k. No step packs b before; the first rows do it."""
    dtype = float64 if b_kept is float64 else float32
    deep = 6800 // dtype.itemsize
    for m, n, k in ((33, 300, 40), (40, 131, 700), (36, 33, deep), (150, 5000, 2), (41, 8200, 1)):
        check_product(dtype, name, (m, n, k), (a_last, "n"), seed=m, kept=(dtype, b_kept))
        task = Task(dtype, (a_last, "n"), targets.TARGETS[name], m, n, k)
        choice = tilings.variants(task)
        schedule = choice.schedule
        assert schedule.packs_b and "packs-b" in schedule.text.split() and schedule.b_form == "n"
        often = tilings.variants(task._replace(often=True))
        assert often.schedule.b_form == "packed"
        # A panel has room for all of a tile's k.
        room = tilings.panel_depth(schedule.columns // task.lanes)
        assert (choice.k_block or k) <= room
        assert room == (1536 if schedule.columns <= 3 * task.lanes else tilings.SHALLOW)


def test_tilings_that_leave_too_much_of_k_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = Task(float32, ("k", "n"), targets.TARGETS["avx512"], 40, 131, 700)
    monkeypatch.setattr(tilings, "PANEL_DEPTH", 600)
    with pytest.raises(CompileError, match="room"):
        tilings.variants(task)


KEPT = [(float16, float16), (bfloat16, bfloat16), (float16, float32), (float32, bfloat16)]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("lasts", LAYOUTS)
@pytest.mark.parametrize("kept", KEPT, ids=str)
def test_two_bytes_are_converted_where_they_are_read(
    kept: tuple[DType, DType], lasts: tuple[str, str], name: str
) -> None:
    """The sums are as exact as those of the same numbers in float32."""
    sizes = random.Random(f"{kept}{lasts}{name}")
    found = [tuple(sizes.randint(0, 70) for _ in range(3)) for _ in range(8)]
    for seed, (m, n, k) in enumerate([*found, (1, 90, 150), (2, 33, 400), (90, 70, 1700)]):
        check_product(float32, name, (m, n, k), lasts, seed, pad=seed % 3, kept=kept)


@pytest.mark.parametrize("kept", KEPT, ids=str)
def test_no_array_is_converted_as_a_whole(kept: tuple[DType, DType]) -> None:
    """Panels hold float32, except that products of pairs keep the stored dtype; so does everything
    that is read in place."""
    target = targets.TARGETS[NAMES[0]]
    for sizes in ((1, 500, 300), (20, 500, 300), (300, 300, 300), (4, 4, 4)):
        for lasts in LAYOUTS:
            program, integers = in_loops(
                plain(float32, *lasts)._replace(kept=kept), sizes, (999, 0, 0), (999, 0, 0),
                [(sizes[1], 1, 0, 0)],
            )  # fmt: skip
            plan = planner.steps(program, integers, lasts, target)
            pairs = {"bf16", "amx"} & set(plan[-1].program.schedule.split())
            for step in plan:
                operands = step.program.operands
                if step.packs >= 0:
                    kind = kept[step.packs]
                    assert [o.dtype for o in operands] == [kind, kind if pairs else float32]
                else:
                    for operand, kind in zip(operands, kept, strict=False):
                        as_kept = operand.panel is None or pairs
                        assert operand.dtype is (kind if as_kept else float32)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("lasts", LAYOUTS)
def test_few_rows(lasts: tuple[str, str], name: str) -> None:
    for m in (1, 2, 3, 5, 8):
        for n, k in ((1, 1), (2, 128), (256, 67), (33, 5)):
            check_product(float32, name, (m, n, k), lasts)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("lasts", LAYOUTS)
def test_short_k(lasts: tuple[str, str], name: str) -> None:
    for n in (5, 16, 72, 120, 205):
        for m, k in ((29, 4), (50, 130)):
            check_product(float32, name, (m, n, k), lasts)


def variants(b_last: str, target: targets.Target, m: int, n: int, k: int) -> Schedule:
    """The schedule of a product whose first factor runs along k."""
    return tilings.variants(Task(float32, ("k", b_last), target, m, n, k)).schedule


def test_tiles_of_short_k_waste_little_and_follow_the_rows() -> None:
    target = targets.TARGETS["avx512"]
    for n in (72, 112, 205, 256):
        choice = variants("n", target, 206, n, 19)
        padded = -(-n // choice.columns) * choice.columns
        assert padded - n < 48 and choice.across == (n > choice.columns)
        assert choice.columns > 32 and choice.rows * choice.columns <= 28 * 16
        assert not variants("n", target, 206, n, 500).across
    narrow = variants("n", target, 206, 8, 19)
    assert narrow.columns == 8, "the tile is half a vector wide"


def test_rows_along_k_are_packed_where_higher_micro_tiles_make_up_for_it() -> None:
    target = targets.TARGETS["avx512"]
    for sizes in ((14, 491, 119), (42, 733, 166), (26, 1534, 241)):
        packed = variants("n", target, *sizes)
        assert (packed.a_form, packed.rows) == ("packed", 14)
    for sizes in ((38, 88, 66), (64, 64, 64), (1, 500, 500), (8, 256, 256)):
        assert variants("n", target, *sizes).a_form == "k", "packing takes longer than it saves"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("lasts", LAYOUTS)
def test_prefetched_lines_are_the_ones_that_are_read(
    lasts: tuple[str, str], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tilings, "NEAR_BYTES", 0)
    monkeypatch.setattr(tilings, "FORESEEN", 0)
    monkeypatch.setattr(tilings, "FEW_LINES", 0)
    monkeypatch.setattr(tilings, "LARGEST_BYTES", 0)
    for m, n, k in ((2, 300, 7), (5, 80, 575), (20, 700, 33), (40, 300, 1600), (70, 45, 1)):
        choice = tilings.variants(Task(float32, lasts, targets.TARGETS[name], m, n, k))
        assert choice.schedule.far
        check_product(float32, name, (m, n, k), lasts)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("lasts", LAYOUTS)
@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
def test_half_a_panel_at_the_end(dtype: DType, lasts: tuple[str, str], name: str) -> None:
    lanes = targets.TARGETS[name].width // dtype.itemsize
    for vectors, past, m, k in ((3, 3, 50, 40), (5, 0, 67, 1700), (13, 1, 90, 31), (5, 2, 12, 300)):
        n = vectors * lanes - min(past, lanes - 1)
        check_product(dtype, name, (m, n, k), lasts, seed=n)


def test_few_panels_may_end_with_half_of_one() -> None:
    target = targets.TARGETS["avx512"]
    for n, narrow in (
        (196, True),
        (208, True),
        (209, False),
        (192, False),
        (80, True),
        (500, False),
    ):
        choice = variants("n", target, 256, n, 1152)
        assert (choice.columns, choice.narrow) == (32, narrow)


def test_large_factors_of_few_rows_are_asked_for_early() -> None:
    target = targets.TARGETS["avx512"]
    far = [(2, 1764, 2030), (6, 8192, 128), (32, 8192, 128), (64, 3136, 576)]
    for sizes in far:
        assert variants("n", target, *sizes).far
    near, foreseen, used_often = (6, 512, 128), (6, 200, 4096), (300, 8192, 128)
    for sizes in (near, foreseen, (6, 65536, 31), (2, 1764, 1030), used_often):
        assert not variants("n", target, *sizes).far
    assert variants("k", target, 2, 4096, 4096).text.endswith(" far")
    assert not variants("k", target, 2, 2048, 1024).far, "it stays in the third cache"
    assert not variants("k", target, 1, 4096, 4096).far, "the processor foresees these lines"


def test_the_order_of_tiles_does_not_matter() -> None:
    for sizes in ((150, 203, 900), (1, 2048, 512), (32, 256, 512)):
        for lasts in LAYOUTS:
            results = []
            for shuffle in range(3):
                generator = numpy.random.default_rng(5)
                m, n, k = sizes
                a, b = filled(generator, (m, k), float32), filled(generator, (k, n), float32)
                stored = laid_out(a, lasts[0] == "m", 0), laid_out(b, lasts[1] == "k", 0)
                out = numpy.empty((m, n), "float32")
                target = targets.TARGETS[NAMES[0]]
                strides = [(stride, 0, 0) for _, stride in stored]
                plan = steps(plain(float32, *lasts), target, m, n, k, *strides, [(n, 1, 0, 0)])
                arrays = {"a": stored[0][0], "b": stored[1][0], "operand 0": out}
                run(plan, target, arrays, seed=shuffle)
                results.append(out.tobytes())
            assert len(set(results)) == 1


def test_each_core_keeps_to_rows_where_it_can_keep_the_second_factor() -> None:
    """Half of the tiles write some rows of every product, and read these rows of a only."""
    batch, m, n, k = (1, 2), 60, 256, 256
    target = targets.TARGETS[NAMES[0]]
    generator = numpy.random.default_rng(6)
    a, b = filled(generator, (*batch, m, k), float32), filled(generator, (*batch, k, n), float32)
    inside = (k, 0, m * k), (n, 0, k * n), [(n, 1, 0, m * n)]
    plan = steps(plain(float32), target, m, n, k, *inside, batch, often=True)
    *packs, main = plan
    assert main.program.schedule.endswith(" by-rows")
    m_block, _, m_tiles, n_tiles, _ = main.integers[-5:]
    half = m_tiles // 2
    out = numpy.full((*batch, m, n), -1, "float32")
    arrays = {"a": a, "b": b, "operand 0": out}
    run([*packs, main._replace(extent=half * n_tiles * 2)], target, arrays)
    written = [row for row in range(m) if (out[:, :, row] != -1).any()]
    assert written == [*range(half * m_block)] and 0 < len(written) < m
    numpy.testing.assert_allclose(out[:, :, written], (a @ b)[:, :, written], rtol=1e-4, atol=1e-4)


def dense(dtype: DType) -> Described:
    """Two outputs: maximum(sum * scale + bias + residual, 0), and whether it is positive."""
    operands = (
        Operand(dtype, INPUT, CONTIGUOUS),
        Operand(dtype, INPUT, CONTIGUOUS),
        Operand(dtype, OUTPUT, CONTIGUOUS),
        Operand(bool_, OUTPUT, CONTIGUOUS),
    )
    code = (
        Instruction("sum", dtype),
        Instruction("scalar", float64, (), 0),
        Instruction("cast", dtype, (1,)),
        Instruction("multiply", dtype, (0, 2)),
        Instruction("load", dtype, (), 0),
        Instruction("add", dtype, (3, 4)),
        Instruction("load", dtype, (), 1),
        Instruction("add", dtype, (5, 6)),
        Instruction("constant", dtype, (), 0.0),
        Instruction("maximum", dtype, (7, 8)),
        Instruction("store", dtype, (9,), 2),
        Instruction("greater", bool_, (7, 8)),
        Instruction("store", bool_, (11,), 3),
    )
    return Described(dtype, ("k", "k"), operands, (float64,), code)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
@pytest.mark.parametrize("sizes", [(1, 37, 20), (7, 64, 0), (45, 70, 33), (40, 32, 1700)])
def test_epilogue(sizes: tuple[int, int, int], dtype: DType, name: str) -> None:
    m, n, k = sizes
    target = targets.TARGETS[name]
    generator = numpy.random.default_rng(1)
    x, weight = filled(generator, (m, k), dtype), filled(generator, (n, k), dtype)
    bias, residual = filled(generator, (n,), dtype), filled(generator, (m, n), dtype)
    out, positive = numpy.empty((m, n), dtype.name), numpy.empty((m, n), "bool")
    strides = [(0, 1, 0, 0), (n, 1, 0, 0), (n, 1, 0, 0), (n, 1, 0, 0)]
    plan = steps(dense(dtype), target, m, n, k, (k, 0, 0), (k, 0, 0), strides)
    arrays = {"a": x, "b": weight, "operand 0": bias, "operand 1": residual}
    run(plan, target, {**arrays, "operand 2": out, "operand 3": positive}, (0.5,))
    wanted = numpy.maximum(x @ weight.T * 0.5 + bias + residual, 0)
    tolerance = (2e-6 if dtype is float32 else 1e-14) * (k + 2)
    numpy.testing.assert_allclose(out, wanted, atol=tolerance, rtol=0)
    assert (positive == (out > 0)).all()


@pytest.mark.parametrize("name", NAMES)
def test_strided_broadcast_and_index_operands(name: str) -> None:
    """out = sum + column[m] + turned[n, m] + index, where index is 100 m + n."""
    target = targets.TARGETS[name]
    operands = (
        Operand(float32, INPUT, BROADCAST),
        Operand(float32, INPUT, STRIDED),
        Operand(int64, INDEX, STRIDED),
        Operand(float32, OUTPUT, CONTIGUOUS),
    )
    code = (
        Instruction("sum", float32),
        Instruction("load", float32, (), 0),
        Instruction("add", float32, (0, 1)),
        Instruction("load", float32, (), 1),
        Instruction("add", float32, (2, 3)),
        Instruction("load", int64, (), 2),
        Instruction("cast", float32, (5,)),
        Instruction("add", float32, (4, 6)),
        Instruction("store", float32, (7,), 3),
    )
    for m, n, k in ((3, 5, 4), (40, 50, 8), (1, 33, 9)):
        for lasts in (("k", "n"), ("k", "k")):
            generator = numpy.random.default_rng(2)
            a, b = filled(generator, (m, k), float32), filled(generator, (k, n), float32)
            column, turned = filled(generator, (m,), float32), filled(generator, (n, m), float32)
            stored, stride = laid_out(b, lasts[1] == "k", 0)
            out = numpy.empty((m, n), "float32")
            contraction = Described(float32, lasts, operands, (), code)
            strides = [(1, 0, 0, 0), (1, m, 0, 0), (100, 1, 0, 0), (n, 1, 0, 0)]
            plan = steps(contraction, target, m, n, k, (k, 0, 0), (stride, 0, 0), strides)
            arrays = {"a": a, "b": stored, "operand 0": column, "operand 1": turned}
            run(plan, target, {**arrays, "operand 3": out})
            index = 100 * numpy.arange(m)[:, None] + numpy.arange(n)
            wanted = a @ b + column[:, None] + turned.T + index
            numpy.testing.assert_allclose(out, wanted, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("sizes", [(6, 9, 5), (40, 33, 20), (64, 64, 64), (64, 96, 900)])
def test_batches_broadcast(sizes: tuple[int, int, int], name: str) -> None:
    """(3, 1, m, k) times (1, 2, k, n), each in every layout."""
    m, n, k = sizes
    target = targets.TARGETS[name]
    generator = numpy.random.default_rng(3)
    a, b = filled(generator, (3, 1, m, k), float32), filled(generator, (1, 2, k, n), float32)
    for lasts in LAYOUTS:
        a_stored, a_stride = laid_out(a, lasts[0] == "m", 1)
        b_stored, b_stride = laid_out(b, lasts[1] == "k", 2)
        out = numpy.empty((3, 2, m, n), "float32")
        plan = steps(
            plain(float32, *lasts),
            target,
            m,
            n,
            k,
            (a_stride, a_stored[0, 0].size, 0),
            (b_stride, 0, b_stored[0, 0].size),
            [(n, 1, 2 * m * n, m * n)],
            (3, 2),
        )
        run(plan, target, {"a": a_stored, "b": b_stored, "operand 0": out})
        numpy.testing.assert_allclose(out, a @ b, atol=2e-6 * (k + 1), rtol=1e-5)


def test_infinities_and_nans_stay_where_they_belong() -> None:
    """Memory past the end of a row or of a matrix never reaches a result."""
    target = targets.TARGETS[NAMES[0]]
    a, b = numpy.ones((5, 7), "float32"), numpy.ones((9, 7), "float32")
    a[2, 3], b[4, 6] = numpy.inf, numpy.nan
    out = numpy.empty((5, 9), "float32")
    plan = steps(plain(float32, "k", "k"), target, 5, 9, 7, (7, 0, 0), (7, 0, 0), [(9, 1, 0, 0)])
    run(plan, target, {"a": a, "b": b, "operand 0": out})
    numpy.testing.assert_array_equal(out, a @ b.T)


def test_empty_products_have_no_steps() -> None:
    target = targets.TARGETS[NAMES[0]]
    for sizes in ((0, 4, 4), (4, 0, 4)):
        assert not steps(plain(float32), target, *sizes, (4, 0, 0), (4, 0, 0), [(4, 1, 0, 0)])


def test_large_products_are_cut_for_several_cores() -> None:
    target = targets.TARGETS["avx512"]
    for m, n, k in ((1024, 1024, 1024), (2048, 64, 512), (64, 4096, 576), (1, 8192, 4096)):
        for b_last in "nk":
            choice = tilings.variants(Task(float32, ("k", b_last), target, m, n, k))
            rows, columns = choice.schedule.rows, choice.schedule.columns
            tiles = -(-m // choice.m_block) * -(-n // choice.n_block)
            assert tiles >= 4
            assert choice.m_block % rows == choice.n_block % columns == 0
            assert columns * rows <= 14 * 32
    small = tilings.variants(Task(float32, ("k", "k"), target, 1, 128, 256))
    assert (small.m_block, small.chunk) == (1, 1) and small.n_block >= 128


def test_unknown_schedules_are_refused() -> None:
    for dtype, told in ((float32, "guess"), (bool_, "of bool")):
        product, _ = in_loops(plain(dtype), (1, 1, 1), (1, 0, 0), (1, 0, 0), [(1, 1, 0, 0)])
        schedule = "guess 6" if dtype is float32 else "gemm 1x4 a:k b:n"
        with pytest.raises(GemelError, match=told):
            bad = product._replace(schedule=schedule, extra=5)
            compile_program(bad, targets.TARGETS["generic"])


@pytest.mark.parametrize(
    ("schedule", "told"),
    [
        ("gemm 4x16 a:k b:n acros", "acros.*across"),
        ("gemm 4x16 a:kk b:n", "kk"),
        ("gemm 4x16 a:k b:row-1-1", "row"),
        ("dot 2x4x1 near", "near"),
        ("pack 16 turned", "turned.*turn"),
        ("gemm 4x16 a:k", "gemm 4x16 a:k"),
        ("gemm 4 a:k b:n", "gemm 4 a:k b:n"),
        ("gemm 4x16 a:k b:n far split", "far split"),  # only in one order, since texts are keys
        ("pack wide copy", "pack wide copy"),
        ("outer this that", "outer this that"),
    ],
)
def test_a_misspelt_schedule_is_refused(schedule: str, told: str) -> None:
    with pytest.raises(GemelError, match=told):
        Schedule.parse(schedule)


def test_schedules_are_read_as_they_are_written() -> None:
    for text in (
        "outer",
        "inner other",
        "gemm 6x32 a:packed b:rows-2-1 split across by-rows packs-b",
        "gemm 4x16 a:m b:n direct vnni far narrow",
        "gemm 14x32 a:packed b:rows-2-1 split bf16",
        "amx 32x16 a:k b:turned split",
        "dot 4x4x1 far",
        "pack any turn",
        "pack 32 copy",
    ):
        assert Schedule.parse(text).text == text


def test_cost_grows_with_work() -> None:
    task = Task(float32, ("k", "n"), targets.TARGETS["avx512"], 64, 64, 64)
    assert task.cost < task._replace(k=640).cost
    assert task._replace(batch=4).cost > 3 * task.cost
    large = task._replace(m=512, n=512, k=512)
    assert large._replace(dtype=float64).cost > large.cost


def test_panels_of_one_factor_are_made_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Several products in a row with the same matrix, as in a recurrent network."""
    import gemel
    from gemel import np
    from gemel.runtime.emission import Emission

    launched = []
    launch = Emission.launch

    def counted(self: Emission, kernel: object) -> None:
        launched.append(kernel.program.schedule)  # type: ignore[attr-defined]
        launch(self, kernel)  # type: ignore[arg-type]

    monkeypatch.setattr(Emission, "launch", counted)
    monkeypatch.setenv("GEMEL_CACHE", str(tmp_path))  # a cache without a plan for it

    def steps(h: object, w: object) -> object:
        for _ in range(5):
            h = np.tanh(np.dot(h, w.T))  # type: ignore[attr-defined]
        return h

    h, w = numpy.ones((20, 130), "float32"), numpy.eye(130, dtype="float32") * 0.5
    found = gemel.compile(steps)(np.array(h), np.array(w)).asnumpy()
    for _ in range(5):
        h = numpy.tanh(h @ w.T)
    numpy.testing.assert_allclose(found, h, rtol=1e-5)
    assert sum(name.startswith("pack") for name in launched) == 1
    assert sum(name.startswith("gemm") for name in launched) == 5


def other_terms(name: str, dtype: DType) -> tuple[Instruction, ...]:
    """A sum of terms computed from two factors, and its store."""
    made = {
        "product": [("multiply", (0, 1))],
        "distance": [("subtract", (0, 1)), ("multiply", (2, 2))],
        "larger": [("negative", (1,)), ("maximum", (0, 2))],
    }[name]
    code = [Instruction("load", dtype, (), 0), Instruction("load", dtype, (), 1)]
    code += [Instruction(each, dtype, arguments) for each, arguments in made]
    code.append(Instruction("reduce", dtype, (len(code) - 1,), "sum"))
    return (*code, Instruction("store", dtype, (len(code) - 1,), 2))


@pytest.mark.parametrize("dtype", [float32, float64, int32, int64], ids=str)
@pytest.mark.parametrize("name", ["product", "distance", "larger"])
def test_other_terms_in_tiles(name: str, dtype: DType) -> None:
    """The tiles sum whatever the instructions compute, not only products."""
    for target, lasts in itertools.product(NAMES, (("k", "n"), ("m", "k"), ("m", "n"))):
        for m, n, k in ((3, 7, 5), (20, 33, 40), (70, 65, 9)):
            strides = (k if lasts[0] == "k" else m, 0, 0), (n if lasts[1] == "n" else k, 0, 0)
            product, integers = in_loops(plain(dtype, *lasts), (m, n, k), *strides, [(n, 1, 0, 0)])
            program = product._replace(code=other_terms(name, dtype))
            generator = numpy.random.default_rng(k)
            a, b = (generator.integers(-9, 9, size).astype(dtype.name) for size in ((m, k), (k, n)))
            pairs = a[:, :, None], b[None]
            terms = {
                "product": lambda x, y: x * y,
                "distance": lambda x, y: (x - y) ** 2,
                "larger": lambda x, y: numpy.maximum(x, -y),
            }
            out = numpy.zeros((m, n), dtype.name)
            stored = [x.T.copy() if turn else x for x, turn in
                      ((a, lasts[0] == "m"), (b, lasts[1] == "k"))]  # fmt: skip
            arrays = {"a": stored[0], "b": stored[1], "operand 0": out}
            run(planner.steps(program, integers, lasts, targets.TARGETS[target]),
                targets.TARGETS[target], arrays)  # fmt: skip
            numpy.testing.assert_array_equal(out, terms[name](*pairs).sum(1))


def test_dot_products_are_of_products() -> None:
    product, _ = in_loops(plain(float32, "k", "k"), (1, 1, 1), (1, 0, 0), (1, 0, 0), [(1, 1, 0, 0)])
    bad = product._replace(schedule="dot 1x4x1", extra=5, code=other_terms("larger", float32))
    with pytest.raises(CompileError, match="products"):
        compile_program(bad, targets.TARGETS["generic"])

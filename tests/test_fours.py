"""Products of bytes summed in int32, four at a time along k: signs, layouts, sizes, targets."""

from __future__ import annotations

import random
from typing import Any

import numpy
import pytest
from products import Described, in_loops
from test_contract import LAYOUTS, NAMES, run

import gemel
from gemel import np
from gemel.codegen import target as targets
from gemel.codegen.c import kernels
from gemel.codegen.contract import planner
from gemel.codegen.language import meaning
from gemel.codegen.language.program import CONTIGUOUS, INPUT, OUTPUT, Instruction, Operand
from gemel.codegen.schedules import compile_program
from gemel.dtype import DType, float32, int8, int32, uint8
from gemel.errors import CompileError
from gemel.ops.linalg import matmul_of_bytes
from gemel.runtime.backend import Backend

SIGNS = [(int8, int8), (uint8, int8), (int8, uint8), (uint8, uint8)]


def described(kept: tuple[DType, DType], lasts: tuple[str, str], scaled: bool = False) -> Described:
    """The sum itself; or with `scaled` also maximum(sum + bias, 0) as float32."""
    store = Instruction("store", int32, (0,), 0)
    operands = (Operand(int32, OUTPUT, CONTIGUOUS),)
    code = (Instruction("sum", int32), store)
    if scaled:
        operands += (Operand(float32, INPUT, CONTIGUOUS), Operand(float32, OUTPUT, CONTIGUOUS))
        code += (
            Instruction("cast", float32, (0,)),
            Instruction("load", float32, (), 1),
            Instruction("add", float32, (2, 3)),
            Instruction("constant", float32, (), 0.0),
            Instruction("maximum", float32, (4, 5)),
            Instruction("store", float32, (6,), 2),
        )
    return Described(int32, lasts, operands, (), code, kept)


def drawn(source: numpy.random.Generator, shape: tuple[int, ...], dtype: DType) -> Any:
    """Bytes of any value, often the largest or smallest."""
    limits = numpy.iinfo(dtype.name)
    some = source.integers(limits.min, limits.max + 1, shape).astype(dtype.name)
    ends = source.choice(numpy.array([limits.min, limits.max], dtype.name), shape)
    return numpy.where(source.random(shape) < 0.3, ends, some)


def laid_out(array: Any, turn: bool, pad: int) -> tuple[Any, int]:
    stored = array.swapaxes(-1, -2) if turn else array
    wide = numpy.full((*stored.shape[:-1], stored.shape[-1] + pad), 77, array.dtype)
    wide[..., : stored.shape[-1]] = stored
    return wide, wide.shape[-1]


def check(
    kept: tuple[DType, DType],
    lasts: tuple[str, str],
    sizes: tuple[int, int, int],
    target: targets.Target,
    seed: int = 0,
    batch: tuple[int, int] = (1, 1),
) -> list[planner.ProductStep]:
    m, n, k = sizes
    source = numpy.random.default_rng(seed)
    a, b = drawn(source, (*batch, m, k), kept[0]), drawn(source, (batch[1], k, n), kept[1])
    a_stored, a_row = laid_out(a, lasts[0] == "m", seed % 3)
    b_stored, b_row = laid_out(b, lasts[1] == "k", seed % 2)
    out = numpy.full((*batch, m, n + 2), 7, "int32")
    bias, scaled = source.standard_normal(n).astype("float32"), numpy.empty((*batch, m, n), "f4")
    a_size, b_size = (x[0].size if batch == (1, 1) else x.size for x in (a_stored, b_stored))
    strides = [
        (a_row, a_stored[0].size, a_stored[0, 0].size), (b_row, 0, b_stored[0].size),
        [(n + 2, 1, out[0].size, out[0, 0].size), (0, 1, 0, 0), (n, 1, batch[1] * m * n, m * n)],
    ]  # fmt: skip
    assert a_size and b_size
    program, integers = in_loops(described(kept, lasts, True), sizes, *strides, batch)
    plan = planner.steps(program, integers, lasts, target)
    arrays = {"a": a_stored, "b": b_stored, "operand 0": out, "operand 1": bias}
    run(plan, target, {**arrays, "operand 2": scaled}, seed=seed)
    wanted = numpy.matmul(a.astype("int64"), b.astype("int64"))
    numpy.testing.assert_array_equal(out[..., :n], wanted)
    assert (out[..., n:] == 7).all()
    numpy.testing.assert_array_equal(scaled, numpy.maximum(wanted.astype("f4") + bias, 0))
    return plan


@pytest.fixture(params=[*NAMES, "without", "vnni", "amx"])
def target(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> targets.Target:
    """Each target, and the best one with one of the instructions that sum four products, or with
    none."""
    if request.param in targets.TARGETS:
        return targets.TARGETS[request.param]
    best = targets.TARGETS[NAMES[0]]
    if request.param != "without" and not targets.has_extension(best, request.param):
        pytest.skip(f"this processor lacks {' '.join(targets.EXTENSIONS[request.param].flags)}")
    monkeypatch.setattr(planner, "has_extension", lambda _, name: name == request.param)
    return best


@pytest.mark.parametrize("lasts", LAYOUTS, ids="".join)
@pytest.mark.parametrize("kept", SIGNS, ids=str)
def test_sizes(kept: tuple[DType, DType], lasts: tuple[str, str], target: targets.Target) -> None:
    draw = random.Random(f"{kept}{lasts}{target.name}")
    sizes = [tuple(draw.randint(1, 70) for _ in range(3)) for _ in range(6)]
    for seed, each in enumerate([*sizes, (1, 1, 1), (3, 40, 4), (90, 130, 515), (9, 20, 4133)]):
        *packs, last = check(kept, lasts, each, target, seed)
        kinds = [step.program.schedule.split()[0] for step in packs]
        in_tiles = last.program.parsed_schedule.kind == "amx"
        assert kinds == ["pack"] * (1 if in_tiles and lasts[0] == "k" else 2)


@pytest.mark.parametrize("kept", SIGNS, ids=str)
def test_batches(kept: tuple[DType, DType], target: targets.Target) -> None:
    for lasts in LAYOUTS:
        check(kept, lasts, (9, 20, 11), target, 3, (2, 3))


def test_the_instruction_is_used_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    target = targets.TARGETS["avx512"]
    for there in (True, False):
        monkeypatch.setattr(planner, "has_extension", lambda _, n, t=there: t and n == "vnni")
        for kept in SIGNS:
            program, integers = in_loops(
                described(kept, ("k", "n")), (8, 64, 64), (64, 0, 0), (64, 0, 0), [(64, 1, 0, 0)]
            )
            *_, step = planner.steps(program, integers, ("k", "n"), target)
            used = there and int8 in kept
            assert step.program.schedule.endswith("vnni") == used
            needed = Backend(target, compile_program, bytes).needs(step.program)
            assert needed == target.with_extension("vnni" if used else "")
            code = compile_program(step.program, target)
            assert code[:4] == b"\x7fELF"
    assert targets.has_extension(targets.TARGETS["generic"], "vnni") is False


def test_sums_wrap_and_empty_ones_are_zero(target: targets.Target) -> None:
    k = 140_000  # 255 * 255 * k exceeds int32
    a, b = numpy.full((1, k), 255, "uint8"), numpy.full((k, 1), 255, "uint8")
    out = numpy.zeros((1, 1), "int32")
    kept = uint8, uint8
    program, integers = in_loops(
        described(kept, ("k", "n")), (1, 1, k), (k, 0, 0), (1, 0, 0), [(1, 1, 0, 0)]
    )
    plan = planner.steps(program, integers, ("k", "n"), target)
    run(plan, target, {"a": a, "b": b, "operand 0": out})
    assert out.item() == numpy.array(255 * 255 * k).astype("int32").item()
    program, integers = in_loops(
        described(kept, ("k", "n")), (2, 3, 0), (0, 0, 0), (3, 0, 0), [(3, 1, 0, 0)]
    )
    out = numpy.full((2, 3), 5, "int32")
    run(planner.steps(program, integers, ("k", "n"), target), target,
        {"a": a, "b": b, "operand 0": out})  # fmt: skip
    assert not out.any()
    program, integers = in_loops(
        described(kept, ("k", "n")), (0, 3, 2), (2, 0, 0), (3, 0, 0), [(3, 1, 0, 0)]
    )
    assert planner.steps(program, integers, ("k", "n"), target) == []


@pytest.mark.parametrize("kept", SIGNS, ids=str)
def test_what_it_means(kept: tuple[DType, DType]) -> None:
    """The interpreter reads the panels too, and gets the same sums."""
    m, n, k = 7, 19, 10
    source, target = numpy.random.default_rng(0), targets.TARGETS[NAMES[0]]
    a, b = drawn(source, (m, k), kept[0]), drawn(source, (k, n), kept[1])
    out = numpy.zeros((m, n), "int32")
    program, integers = in_loops(
        described(kept, ("k", "n")), (m, n, k), (k, 0, 0), (n, 0, 0), [(n, 1, 0, 0)]
    )
    plan = planner.steps(program, integers, ("k", "n"), target)
    room = [numpy.zeros(size + 64, "uint8") for size in plan[0].scratch]
    known = {0: a, 1: b, 2: out, **{-1 - i: each for i, each in enumerate(room)}}
    for step in plan:
        places = [known[whose].ctypes.data for whose in step.buffers]
        assert meaning.run(step.program, places, step.integers, 0, step.extent) == 0
    numpy.testing.assert_array_equal(out, a.astype("int32") @ b.astype("int32"))
    text = kernels.source([step.program for step in plan])
    assert "% 4" in text and "/ 4" in text


@pytest.mark.parametrize("wide", ["int32", "int16", "uint32", ""])
@pytest.mark.parametrize("kept", SIGNS, ids=str)
def test_calls_use_them(kept: tuple[DType, DType], wide: str) -> None:
    """`matmul` of bytes, also of ones that are cast before, writes no wider copies of them."""
    source = numpy.random.default_rng(7)
    a, b = drawn(source, (2, 9, 300), kept[0]), drawn(source, (300, 20), kept[1])
    exact = not wide.startswith("u") or int8 not in kept

    def product(a: Any, b: Any) -> Any:
        return np.matmul(a.astype(wide), b.astype(wide)) if wide else np.matmul(a, b)

    given, program = [np.array(each) for each in (a, b)], gemel.compile(product)
    known = [x.astype(wide) for x in (a, b)] if wide else [a, b]
    wanted = numpy.matmul(*known)
    for found in (product(*given), program(*given)):
        assert found.dtype == wanted.dtype
        numpy.testing.assert_array_equal(found, wanted)
    view = program(given[0][:1, ::2], given[1])
    numpy.testing.assert_array_equal(view, wanted[:1, ::2])
    fused = [node.params.get("body") for node in program.graph(*given, optimized=True).walk()]
    used = any(node.op is matmul_of_bytes for body in fused if body for node in body.walk())
    assert used == exact


def test_calls_with_other_factors_do_not_use_them() -> None:
    """A cast that changes values, a result of eight bytes, and vectors, which are one sum."""
    a, b = np.array([[-1, 127]], dtype="int8"), np.array([[200], [255]], dtype="uint8")
    for first, second in [("uint8", "int16"), ("int64", "int32"), ("int8", "int8")]:
        program = gemel.compile(lambda a, b, f=first, s=second: a.astype(f) @ b.astype(s))
        wanted = numpy.matmul(a.asnumpy().astype(first), b.asnumpy().astype(second))
        assert program(a, b).dtype == wanted.dtype
        numpy.testing.assert_array_equal(program(a, b), wanted)
    big = np.full((1, 140_000), 255, dtype="uint8")
    assert (big.astype("int64") @ big.astype("int64").T).item() == 255 * 255 * 140_000
    assert (big[0, :9] @ big[0, :9]).item() == 255 * 255 * 9 % 256


def test_values_that_are_not_bytes_are_refused() -> None:
    program, _ = in_loops(
        described((int8, int8), ("k", "n")), (4, 4, 4), (4, 0, 0), (4, 0, 0), [(4, 1, 0, 0)]
    )
    operands = tuple(
        Operand(float32, o.role, o.stride_class, o.varies, (2 + i, 4), (4, 4))
        for i, o in enumerate(program.operands)
    )
    bad = program._replace(schedule="gemm 4x16 a:packed b:packed", operands=operands, extra=5)
    with pytest.raises(CompileError, match="only bytes"):
        compile_program(bad, targets.TARGETS[NAMES[0]])

"""bfloat16 products by pairs along k: all layouts and remainders, windows, meaning, selection."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy
import pytest
from products import in_loops
from products import steps as planned
from test_contract import LAYOUTS, check_product, filled, kept_as, plain, run
from test_contract_windows import WAYS, Axes, at_the_end, by_places, laid_out

import gemel
from gemel import autograd, gluon, np, npx
from gemel.codegen import target as targets
from gemel.codegen.c import kernels
from gemel.codegen.contract import even, planner
from gemel.codegen.contract.task import PAIRS, Task, WindowAxes, windows_pay_in_pairs
from gemel.codegen.language import meaning
from gemel.codegen.language.program import CONTIGUOUS, OUTPUT, Operand
from gemel.codegen.schedules import compile_program
from gemel.dtype import bfloat16, float16, float32
from gemel.errors import CompileError
from gemel.runtime.backend import Backend

AVX512 = targets.TARGETS["avx512"]
PAIR = bfloat16, bfloat16
#: The extensions that multiply pairs: in vectors, and in tile registers.
WORDS = "bf16", "amx"


def only(monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    """Plan products for these extensions alone, even if this processor lacks them."""
    monkeypatch.setattr(planner, "has_extension", lambda _, name: name in words)


@pytest.fixture(params=WORDS)
def word(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The one extension that products are planned for, in turn; skipped on other processors."""
    word: str = request.param
    if not targets.has_extension(AVX512, word):
        pytest.skip(f"this processor lacks {' '.join(targets.EXTENSIONS[word].flags)}")
    only(monkeypatch, word)
    return word


@pytest.fixture(params=WORDS)
def planned_for(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """As `word`, on any processor."""
    word: str = request.param
    only(monkeypatch, word)
    return word


def plan_of(m: int, n: int, k: int, **given: Any) -> list[planner.ProductStep]:
    lasts = given.get("lasts", ("k", "n"))
    kept = given.get("kept", PAIR)
    described = plain(float32, *lasts)._replace(kept=kept)
    rows = (k if lasts[0] == "k" else m, 0, 0), (n if lasts[1] == "n" else k, 0, 0)
    program, integers = in_loops(described, (m, n, k), *rows, [(n, 1, 0, 0)])
    return planner.steps(program, integers, lasts, AVX512, given.get("often", False))


def words(plan: list[planner.ProductStep]) -> list[str]:
    return plan[-1].program.schedule.split()


@pytest.mark.parametrize("lasts", LAYOUTS, ids="".join)
def test_sizes(lasts: tuple[str, str], word: str) -> None:
    """All remainders of rows, columns and k; k may be odd, and is split where it is long."""
    draw = random.Random("".join(lasts))
    sizes = [(draw.randint(12, 90), draw.randint(16, 90), draw.randint(32, 99)) for _ in range(12)]
    large = (29, 33, 4099), (300, 500, 700), (70, 40, 2112)
    for seed, (m, n, k) in enumerate([*sizes, (14, 32, 64), (64, 64, 128), *large]):
        assert word in words(plan_of(m, n, k, lasts=lasts))
        check_product(float32, "avx512", (m, n, k), lasts, seed, pad=seed % 3, kept=PAIR)


@pytest.mark.parametrize("k", [63, 127, 2047])
def test_rows_that_end_inside_a_lane(k: int, word: str) -> None:
    """Rows that lie on cache lines are loaded from there, but nothing that follows them is."""
    m, n = 64, 48
    source = numpy.random.default_rng(k)
    a, kept_a = kept_as(filled(source, (m, k), float32), bfloat16)
    b, kept_b = kept_as(filled(source, (k, n), float32), bfloat16)
    stored = at_the_end(m * (k + 1), bfloat16)
    wide = stored.reshape(m, k + 1)
    wide[:, :k], wide[:, k] = kept_a, 0x7FC0  # the bits of NaN
    out = numpy.zeros((m, n), "float32")
    described = plain(float32)._replace(kept=PAIR)
    rows = (k + 1, 0, 0), (n, 0, 0), [(n, 1, 0, 0)]
    plan = planned(described, AVX512, m, n, k, *rows)
    assert word in words(plan)
    run(plan, AVX512, {"a": stored, "b": kept_b, "operand 0": out})
    assert numpy.abs(out - a.astype("float64") @ b).max() <= 2e-6 * (k + 1)


@pytest.mark.parametrize("way", [name for name, (*_, form) in WAYS.items() if form != "gathered"])
def test_windows(way: str, word: str) -> None:
    """A lane holds two channels of windows, in any number of runs, or two neighbours."""
    k, n, _ = WAYS[way]
    if any(stride < 0 for _, stride in k):
        return
    for channels in (2, 6, 300):
        for m in (17, 40):
            check_windows(word, m, [(channels, k[0][1]), *k[1:]], n)


def check_windows(word: str, m: int, k: Axes, n: Axes, batch: int = 2) -> None:
    windows = WindowAxes.of(k, n, AVX512.width // 4)
    assert windows is not None
    windows = windows._replace(together=PAIRS)
    generator = numpy.random.default_rng(m)
    depth = int(numpy.prod([extent for extent, _ in k]))
    columns = int(numpy.prod([extent for extent, _ in n]))
    span = laid_out([*k, *n])
    whole, kept = kept_as(filled(generator, (batch * span,), float32), bfloat16)
    stored = at_the_end(batch * span, bfloat16)
    stored[:] = kept
    extents, strides = zip(*k, *n, strict=True)
    seen = numpy.lib.stride_tricks.as_strided(
        whole, (batch, *extents), (4 * span, *(4 * s for s in strides))
    )
    a, kept_a = kept_as(filled(generator, (m, depth), float32), bfloat16)
    # Copied as the planner's caller would: neighbours along k's first axis lie side by side.
    beside = kept_a
    if windows.paired == 0:
        beside = kept_a.reshape(m, k[0][0] // 2, 2, -1).swapaxes(-1, -2).copy()
    out = numpy.full((batch, m, columns + 3), 7, "float32")
    place = [(columns + 3, 1, 0, m * (columns + 3))]
    plan = planned(
        plain(float32)._replace(kept=PAIR), AVX512, m, columns, depth, (depth, 0, 0),
        (0, 0, span), place, (1, batch), windows=windows,
    )  # fmt: skip
    assert word in words(plan) and ("split" in words(plan)) == (depth > 2 * 576)
    arrays = {"a": beside, "b": stored, "operand 0": out}
    run(plan, AVX512, arrays, seed=m)
    wanted = a.astype("float64") @ seen.reshape(batch, depth, columns).astype("float64")
    assert numpy.abs(out[..., :columns] - wanted).max() <= 2e-6 * (depth + 1)
    assert (out[..., columns:] == 7).all(), "columns past the end were written"
    if depth < 200:
        said = numpy.full_like(out, 7)
        interpreted(plan, {0: beside, 1: stored, 2: said})
        assert numpy.abs(said - out).max() <= 2e-6 * (depth + 1)


def interpreted(plan: list[planner.ProductStep], known: dict[int, Any]) -> None:
    """Run the steps in the interpreter."""
    room = [numpy.zeros(size + 64, "uint8") for size in plan[0].scratch]
    known = {**known, **{-1 - i: each for i, each in enumerate(room)}}
    for step in plan:
        places = [known[whose].ctypes.data for whose in step.buffers]
        assert meaning.run(step.program, places, step.integers, 0, step.extent) == 0


def test_what_it_means(planned_for: str) -> None:
    """The interpreter and C read the panels as the kernel does, on any processor."""
    m, n, k = 13, 19, 35
    source = numpy.random.default_rng(0)
    (a, kept_a), (b, kept_b) = (
        kept_as(filled(source, shape, float32), bfloat16) for shape in ((m, k), (k, n))
    )
    out = numpy.zeros((m, n), "float32")
    plan = plan_of(m, n, k)
    interpreted(plan, {0: kept_a, 1: kept_b, 2: out})
    assert numpy.abs(out - a.astype("float64") @ b).max() < 1e-4
    text = kernels.source([step.program for step in plan])
    assert "% 2" in text and "/ 2" in text


def test_when_pairs_are_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, "bf16")
    for m, n, k, often, chosen in (
        (12, 16, 32, False, True), (11, 16, 32, False, False), (12, 15, 32, False, False),
        (12, 16, 31, False, False), (4, 16, 32, True, True), (3, 16, 32, True, False),
        (1, 4096, 4096, False, False), (2000, 3000, 1000, False, True),
    ):  # fmt: skip
        assert ("bf16" in words(plan_of(m, n, k, often=often))) == chosen, (m, n, k)
    for kept in ((bfloat16, float32), (float32, bfloat16), (float16, float16)):
        assert "bf16" not in words(plan_of(64, 64, 64, kept=kept))
    only(monkeypatch)
    assert words(plan_of(64, 64, 64))[0] == "gemm" and "bf16" not in words(plan_of(64, 64, 64))


def test_when_tile_registers_are_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there are any, vectors do not multiply pairs."""
    only(monkeypatch, *WORDS)
    for m, n, k, often, chosen in (
        (6, 8, 32, False, True), (5, 8, 32, False, False), (6, 7, 32, False, False),
        (6, 8, 31, False, False), (1, 8, 32, True, True), (2000, 3000, 1000, False, True),
    ):  # fmt: skip
        found = words(plan_of(m, n, k, often=often))
        assert (found[0] == "amx") == chosen and "bf16" not in found, (m, n, k)
    for m, n, shape in ((16, 16, "16x16"), (17, 16, "32x16"), (16, 17, "16x32"), (99, 99, "32x32")):
        assert words(plan_of(m, n, 64))[1] == shape
    for lasts, forms in ((("k", "n"), "a:k"), (("m", "n"), "a:packed")):
        assert words(plan_of(64, 64, 64, lasts=lasts))[2] == forms
    for kept in ((bfloat16, float32), (float32, bfloat16), (float16, float16)):
        assert words(plan_of(64, 64, 64, kept=kept))[0] != "amx"


def test_what_a_kernel_needs(planned_for: str) -> None:
    step = plan_of(64, 64, 64)[-1]
    needed = Backend(AVX512, compile_program, bytes).needs(step.program)
    assert needed == AVX512.with_extension(planned_for) != AVX512


@pytest.mark.parametrize("allowed", [True, False])
def test_the_system_is_asked_for_tile_registers(
    monkeypatch: pytest.MonkeyPatch, allowed: bool
) -> None:
    extension = targets.EXTENSIONS["amx"]._replace(allowed=lambda: allowed)
    monkeypatch.setitem(targets.EXTENSIONS, "amx", extension)
    monkeypatch.setattr(targets, "_flags", lambda: extension.flags)
    assert targets.has_extension(AVX512, "amx") is allowed
    assert not targets.has_extension(targets.TARGETS["avx2"], "amx")
    monkeypatch.setattr(targets, "_flags", lambda: extension.flags - {"amx_bf16"})
    assert not targets.has_extension(AVX512, "amx")


def test_the_system_s_first_answer_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """All plans of a process agree, even if the system later says otherwise."""
    answers = iter([False, True])
    extension = targets.EXTENSIONS["amx"]._replace(allowed=lambda: next(answers))
    monkeypatch.setitem(targets.EXTENSIONS, "amx", extension)
    monkeypatch.setattr(targets, "_flags", lambda: extension.flags)
    assert [targets.has_extension(AVX512, "amx") for _ in range(3)] == [False] * 3


def test_which_windows_are_read_by_pairs() -> None:
    (k, n, _), task = WAYS["one run"], Task(float32, ("k", "n"), AVX512, 64, 68, 0)
    for channels, m, pays in ((4, 64, True), (5, 64, False), (4, 16, False)):
        windows = WindowAxes.of([(channels, k[0][1]), *k[1:]], n, 16)
        assert windows is not None
        found = windows_pay_in_pairs(task._replace(m=m), windows, True)
        assert found == pays
        # If the first factor has to be copied in each call, pairs only pay with many columns.
        assert not windows_pay_in_pairs(task._replace(m=m), windows, False)
        many = task._replace(m=m, batch=64)
        assert windows_pay_in_pairs(many, windows, False) == pays
    for way, pays in (("turned", True), ("very short", False)):
        windows = WindowAxes.of(*WAYS[way][:2], 16)
        assert windows is not None
        assert windows_pay_in_pairs(task, windows, False) == pays


def test_only_bfloat16_is_accepted_in_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, "bf16")
    program = plan_of(64, 64, 64)[-1].program
    operands = tuple(
        each._replace(dtype=float16) if each.panel else each for each in program.operands
    )
    with pytest.raises(CompileError, match="only bfloat16"):
        compile_program(program._replace(operands=operands), AVX512)
    assert operands[2] == Operand(float32, OUTPUT, CONTIGUOUS)


# --- what users call ------------------------------------------------------------------------------


def rounded(*shape: int, seed: int) -> tuple[Any, Any]:
    """A bfloat16 array, and its values in float64."""
    x = np.array(numpy.random.default_rng(seed).standard_normal(shape).astype("float32"))
    x = x.astype("bfloat16")
    return x, x.astype("float32").asnumpy().astype("float64")


def near(found: Any, wanted: Any) -> None:
    """Check the result to the precision of bfloat16."""
    found = found.astype("float32").asnumpy()
    assert numpy.abs(found - wanted).max() <= numpy.abs(wanted).max() / 128


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(
    ("channels", "size", "stride"), [(4, 9, 1), (12, 20, 2), (6, 33, 1), (10, 21, 2)]
)
def test_convolutions(channels: int, size: int, stride: int, groups: int) -> None:
    """Forward and both gradients, whether or not the processor has the instruction. In two groups,
    the last two have an odd number of channels each."""
    check_convolution(channels, size, stride, groups)


@pytest.mark.parametrize("filters", [24, 35])
@pytest.mark.parametrize(("channels", "size", "stride"), [(1, 20, 1), (3, 21, 2), (7, 18, 1)])
def test_convolutions_of_odd_numbers(channels: int, size: int, stride: int, filters: int) -> None:
    """A first layer, and one whose gradient has an odd number of channels."""
    check_convolution(channels, size, stride, 1, filters)


@pytest.mark.parametrize(("channels", "gets_one"), [(1, False), (2, False), (3, True), (5, True)])
def test_which_images_get_a_channel_of_zeros(
    word: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, channels: int, gets_one: bool
) -> None:
    done, evened = [], even.evened
    monkeypatch.setattr(even, "evened", lambda *given: done.append(given) or evened(*given))
    monkeypatch.setenv("GEMEL_CACHE", str(tmp_path))
    x, x64 = rounded(3, channels, 19, 23, seed=1)
    w, w64 = rounded(31, channels, 3, 3, seed=2)
    how = {"kernel": (3, 3), "no_bias": True, "num_filter": 31}
    found = gemel.compile(lambda x, w: npx.convolution(x, w, **how))(x, w)
    near(found, by_places(x64, w64, numpy.zeros(found.shape), (1, 0, 1, 1))[0])
    assert bool(done) == gets_one


def test_a_channel_of_zeros_is_no_neighbour() -> None:
    """What lies behind an odd number of channels is not read: neither NaN nor the next image."""
    x, _ = rounded(2, 3, 20, 20, seed=1)
    w, _ = rounded(32, 3, 3, 3, seed=2)
    whole = np.concatenate([x, np.full((2, 1, 20, 20), numpy.nan, "bfloat16")], axis=1)
    layer = gemel.compile(
        lambda x, w: npx.convolution(x, w, kernel=(3, 3), no_bias=True, num_filter=32)
    )
    wanted = layer(x, w).tolist()
    assert layer(whole[:, :3], w).tolist() == wanted
    infinite = x.copy()
    infinite[1, 1, 5, 5] = numpy.inf
    found = numpy.array(layer(infinite, w).astype("float32").tolist())
    assert not numpy.isnan(found[0]).any() and numpy.isinf(found[1]).sum() == 9 * 32
    assert numpy.isfinite(found[1]).sum() == found[1].size - 9 * 32


def check_convolution(
    channels: int, size: int, stride: int, groups: int, filters: int = 40
) -> None:
    pad = 1
    x, x64 = rounded(2, channels, size, size, seed=1)
    w, w64 = rounded(filters, channels // groups, 3, 3, seed=2)
    how = {"kernel": (3, 3), "stride": (stride,) * 2, "pad": (pad, pad), "num_filter": filters}

    @gemel.compile
    def function(x: Any, w: Any, head: Any) -> Any:
        with autograd.record():
            y = npx.convolution(x, w, no_bias=True, num_group=groups, **how)
        return y, *autograd.grad(y, [x, w], head)

    places = (size + 2 * pad - 3) // stride + 1
    head, head64 = rounded(2, filters, places, places, seed=3)
    wanted = by_places(x64, w64, head64, (stride, pad, 1, groups))
    for found, each in zip(function(x, w, head), wanted, strict=True):
        near(found, each)


def test_a_network_is_trained_in_bfloat16() -> None:
    """Layers wide enough for pairs, forward and backward: the losses are close to float32's."""
    losses = {}
    for dtype in ("float32", "bfloat16"):
        gemel.random.seed(3)
        net = gluon.nn.HybridSequential()
        net.add(gluon.nn.Dense(64, "relu", in_units=48), gluon.nn.Dense(32, in_units=64))
        net.initialize(gemel.init.Xavier())
        net.cast(dtype)
        net.hybridize()
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.05})
        x, _ = rounded(40, 48, seed=5)
        x, found = x.astype(dtype), []
        for _ in range(10):
            with autograd.record():
                loss = ((net(x) - 1) ** 2).mean()
            loss.backward()
            trainer.step(1)
            found.append(float(loss.astype("float32")))
        losses[dtype] = found
    assert losses["bfloat16"] == pytest.approx(losses["float32"], rel=0.05)
    assert losses["bfloat16"][-1] < losses["bfloat16"][0]

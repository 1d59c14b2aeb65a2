"""Products whose second operand's k or columns run along several axes, against NumPy."""

from __future__ import annotations

import random
from typing import Any

import numpy
import pytest
from products import at_the_end, steps
from test_contract import NAMES, filled, kept_as, plain, run

import gemel
from gemel import autograd, gluon, np, npx
from gemel.codegen import target as targets
from gemel.codegen.contract import planner
from gemel.codegen.contract.task import WindowAxes
from gemel.dtype import DType, bfloat16, float16, float32, float64
from gemel.ir.layout import Layout, MixedStride, mixed_strides

Axes = list[tuple[int, int]]


def laid_out(axes: Axes) -> int:
    """The number of elements from the first to the last of these axes, both included."""
    return 1 + sum((n - 1) * s for n, s in axes)


def check(
    m: int,
    k: Axes,
    n: Axes,
    dtype: DType,
    name: str,
    seed: int = 0,
    batch: int = 2,
    kept: tuple[DType, DType] | None = None,
) -> planner.ProductStep:
    target = targets.TARGETS[name]
    lanes = target.width // dtype.itemsize
    windows = WindowAxes.of(k, n, lanes)
    assert windows is not None
    generator = numpy.random.default_rng(seed)
    depth = int(numpy.prod([extent for extent, _ in k]))
    columns = int(numpy.prod([extent for extent, _ in n]))
    span = laid_out([*k, *n])
    kinds = kept or (dtype, dtype)
    whole, kept_b = kept_as(generator.standard_normal(batch * span).astype(dtype.name), kinds[1])
    stored = at_the_end(batch * span, kinds[1])
    stored[:] = kept_b
    extents, strides = zip(*k, *n, strict=True)
    bytes_ = (span * dtype.itemsize, *(s * dtype.itemsize for s in strides))
    seen = numpy.lib.stride_tricks.as_strided(whole, (batch, *extents), bytes_)
    b = seen.reshape(batch, depth, columns)
    a, kept_a = kept_as(filled(generator, (m, depth), dtype), kinds[0])
    out = numpy.full((batch, m, columns + 3), 7, dtype.name)
    plan = steps(
        plain(dtype)._replace(kept=kept),
        target,
        m,
        columns,
        depth,
        (depth, 0, 0),
        (0, 0, span),
        [(columns + 3, 1, 0, m * (columns + 3))],
        (1, batch),
        windows=windows,
    )
    run(plan, target, {"a": kept_a, "b": stored, "operand 0": out}, seed=seed)
    wanted = a.astype("float64") @ b.astype("float64")
    tolerance = (2e-6 if dtype is float32 else 1e-14) * (depth + 1)
    assert numpy.abs(out[..., :columns] - wanted).max(initial=0) <= tolerance, plan
    assert (out[..., columns:] == 7).all(), "columns past the end were written"
    return plan[-1]


#: k, columns, and how panels are made with 16 lanes.
WAYS: dict[str, tuple[Axes, Axes, str]] = {
    "one run": ([(5, 70), (3, 1)], [(68, 1)], "rows-1-1"),
    "two runs": ([(4, 400), (3, 20), (3, 1)], [(18, 20), (18, 1)], "rows-2-1"),
    "three runs": ([(4, 256), (3, 16), (3, 1)], [(14, 16), (14, 1)], "rows-3-1"),
    "four runs": ([(4, 81), (3, 9), (3, 1)], [(7, 9), (7, 1)], "rows-4-1"),
    "two apart": ([(3, 1600), (5, 40), (5, 1)], [(18, 80), (17, 2)], "rows-2-2"),
    "two apart, short": ([(3, 400), (3, 20), (3, 1)], [(9, 40), (8, 2)], "rows-3-2"),
    "backwards": ([(4, 400), (3, -20), (3, -1)], [(18, 20), (18, 1)], "rows-2-1"),
    "images side by side": ([(4, 81), (3, 9), (3, 1)], [(3, 324), (7, 9), (7, 1)], "rows-4-1"),
    "turned": ([(12, 14), (12, 1)], [(5, 196), (3, 14), (3, 1)], "turned"),
    "short": ([(12, 6), (4, 1)], [(5, 196), (3, 6), (3, 1)], "turned"),
    "very short": ([(12, 6), (2, 1)], [(5, 196), (3, 6), (3, 1)], "gathered"),
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
@pytest.mark.parametrize("way", WAYS)
def test_ways_to_make_panels(way: str, dtype: DType, name: str) -> None:
    k, n, _ = WAYS[way]
    if any(stride < 0 for _, stride in k):
        return  # the layout says where they begin: see the convolutions below
    for m in (1, 17, 40):
        check(m, k, n, dtype, name)


#: k and columns; the runs along k are long relative to the number of products.
ALONG: list[tuple[Axes, Axes]] = [
    ([(7, 30), (26, 1)], [(3, 270), (3, 30), (3, 1)]),  # the gradient of weights
    ([(3, 600), (7, 30), (26, 1)], [(2, 270), (5, 30), (5, 1)]),  # images side by side
    ([(5, 40), (16, 1)], [(9, 200), (4, 1)]),
    ([(2, 40), (33, 1)], [(2, 90), (2, 40), (2, 2)]),
    ([(4, 50), (24, 1)], [(5, 300), (4, 3)]),
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kept", [float32, float64, float16], ids=str)
def test_sums_along_k(kept: DType, name: str) -> None:
    dtype = kept.compute
    heights = (1, 2, 3, 5, 6, 11)
    chosen = [
        check(m, k, n, dtype, name, kept=(kept, kept)).program.schedule
        for k, n in ALONG
        for m in heights
    ]
    assert sum(schedule.startswith("dot") for schedule in chosen) >= 4, chosen


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [float16, bfloat16], ids=str)
@pytest.mark.parametrize("way", WAYS)
def test_panels_of_two_bytes(way: str, dtype: DType, name: str) -> None:
    k, n, form = WAYS[way]
    if any(stride < 0 for _, stride in k):
        return
    for m in (1, 7, 40):
        step = check(m, k, n, float32, name, kept=(dtype, dtype))
        assert step.program.operands[1].dtype is dtype
        if not targets.TARGETS[name].free_masks:
            assert "gathered" in step.program.schedule or "dot" in step.program.schedule, form


def test_the_way_is_chosen_by_what_lies_side_by_side() -> None:
    assert WindowAxes.of([(12, 14), (12, 1)], [(5, 196), (3, 14), (3, 1)], 16) == (
        "turned",
        ((12, 14), (1, 0), (12, 1)),
        ((5, 196), (3, 14), (3, 1)),
        1,
    )
    for way, (k, n, form) in WAYS.items():
        found = WindowAxes.of(k, n, 16)
        assert found is not None
        assert found.form == form, way
    assert WindowAxes.of([(2, 9), (30, 30), (30, 1)], [(4, 1)], 16) is None


@pytest.mark.parametrize("name", NAMES)
def test_random_axes(name: str) -> None:
    chance = random.Random(name)
    for seed in range(25):
        k = [(chance.randint(1, 9), chance.randint(1, 60)) for _ in range(chance.randint(1, 3))]
        n = [(chance.randint(1, 20), chance.randint(1, 60)) for _ in range(chance.randint(1, 3))]
        if chance.random() < 0.7:
            side = chance.choice((k, n))
            side[-1] = (side[-1][0], chance.choice((1, 1, 2)))
        check(chance.choice((1, 2, 7, 16, 30)), k, n, float32, name, seed)


TWO_BYTES = bfloat16, bfloat16


@pytest.mark.parametrize("name", NAMES)
def test_long_sums_in_blocks(name: str) -> None:
    step = check(50, [(300, 100), (3, 10), (3, 1)], [(8, 10), (8, 1)], float32, name)
    assert {"split", "packs-b"} <= {*step.program.schedule.split()}
    check(150, [(300, 900), (3, 30), (3, 1)], [(28, 30), (28, 1)], float32, name, batch=1)
    # With few rows, panels of converted two-byte numbers are as deep as others.
    few = check(8, [(300, 100), (3, 10), (3, 1)], [(8, 10), (8, 1)], float32, name, kept=TWO_BYTES)
    assert ("split" in few.program.schedule) == (not targets.TARGETS[name].free_masks)


def test_the_order_of_tiles_does_not_matter() -> None:
    target, k, n = targets.TARGETS[NAMES[0]], [(100, 81), (3, 9), (3, 1)], [(7, 9), (7, 1)]
    windows = WindowAxes.of(k, n, target.width // 4)
    generator = numpy.random.default_rng(0)
    a, b = filled(generator, (200, 900), float32), filled(generator, (8, 8100), float32)
    results = set()
    for seed in range(3):
        out = numpy.empty((8, 200, 49), "float32")
        layout = [(49, 1, 0, 200 * 49)]
        sizes = (200, 49, 900, (900, 0, 0), (0, 0, 8100))
        plan = steps(plain(float32), target, *sizes, layout, (1, 8), windows=windows)
        run(plan, target, {"a": a, "b": b, "operand 0": out}, seed=seed)
        results.add(out.tobytes())
    assert len(results) == 1


@pytest.mark.parametrize(
    ("layout", "shape", "strides"),
    [
        (Layout((4, 3, 5), (30, 10, 2)), (12, 5), (10, 2)),
        (Layout((4, 3, 5), (40, 10, 2)), (12, 5), ([(4, 40), (3, 10)], 2)),
        (Layout((4, 3, 5), (40, 10, 1)), (60,), ([(4, 40), (3, 10), (5, 1)],)),
        (Layout((2, 6, 3), (90, 3, 20)), (2, 2, 9), (90, 9, [(3, 3), (3, 20)])),
        (Layout((4, 3), (1, 4)), (6, 2), None),
        (Layout((4, 3), (1, 4)), (1, 12, 1), (0, [(4, 1), (3, 4)], 0)),
        (Layout((4, 3), (1, 4)), (2, 6), (2, [(2, 1), (3, 4)])),
    ],
)
def test_axes_that_count_several(layout: Layout, shape: Any, strides: Any) -> None:
    found = mixed_strides(layout, shape)
    if found is None or strides is None:
        assert found is strides
        return
    axes = [each.axes if isinstance(each, MixedStride) else each for each in found]
    assert repr(axes) == repr(list(strides))
    assert Layout(shape, found).expanded.shape.__len__() >= len(shape)


# --- convolutions through them ----------------------------------------------------------------


def by_places(x: Any, w: Any, r: Any, how: tuple[int, int, int, int]) -> tuple[Any, Any, Any]:
    """The result and both gradients in NumPy: one product for each position of the kernel."""
    stride, pad, dilate, groups = how
    wide = numpy.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    kernel, (rows, columns) = w.shape[2], r.shape[2:]
    y, dx, dw = numpy.zeros(r.shape), numpy.zeros_like(wide), numpy.zeros_like(w)
    into, out = x.shape[1] // groups, w.shape[0] // groups
    for group in range(groups):
        own = slice(group * out, (group + 1) * out)
        for i in range(kernel):
            for j in range(kernel):
                across = slice(j * dilate, j * dilate + (columns - 1) * stride + 1, stride)
                down = slice(i * dilate, i * dilate + (rows - 1) * stride + 1, stride)
                key = slice(None), slice(group * into, (group + 1) * into), down, across
                y[:, own] += numpy.einsum("ncyz,oc->noyz", wide[key], w[own, :, i, j])
                dw[own, :, i, j] += numpy.einsum("ncyz,noyz->oc", wide[key], r[:, own])
                dx[key] += numpy.einsum("noyz,oc->ncyz", r[:, own], w[own, :, i, j])
    return y, dx[:, :, pad : pad + x.shape[2], pad : pad + x.shape[3]], dw


#: Channels, filters, kernel, stride, pad, dilate, groups; (images, size) of calls in turn.
CASES = [
    (4, 6, 3, 1, 1, 1, 1, [(2, 9), (3, 20), (1, 7)]),
    (4, 6, 3, 1, 1, 1, 2, [(2, 9), (3, 14), (2, 14)]),
    (33, 40, 3, 1, 1, 1, 1, [(2, 20), (3, 7)]),
    (6, 5, 5, 1, 0, 1, 1, [(2, 14), (2, 28)]),
    (8, 6, 3, 1, 3, 1, 1, [(2, 9)]),  # more padding than the kernel reaches over
    (16, 20, 5, 2, 2, 1, 1, [(2, 17), (1, 40)]),
    (3, 20, 7, 2, 3, 1, 1, [(1, 48)]),
    (70, 18, 3, 1, 1, 2, 1, [(2, 8), (1, 19)]),
    (70, 18, 3, 2, 1, 2, 1, [(2, 12)]),
    (5, 7, 1, 2, 0, 1, 1, [(2, 30)]),
    (5, 7, 2, 3, 1, 1, 1, [(2, 11), (2, 12)]),
    (600, 9, 1, 1, 1, 1, 1, [(1, 6)]),
    (8, 8, 3, 1, 1, 1, 8, [(2, 10), (1, 30)]),
    (8, 16, 3, 2, 1, 1, 8, [(2, 10)]),
    (6, 6, 5, 2, 2, 1, 6, [(2, 21), (1, 16)]),
    (6, 6, 7, 1, 3, 1, 6, [(1, 12)]),
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_convolutions(case: Any, dtype: str) -> None:
    channels, filters, kernel, stride, pad, dilate, groups, images = case
    chance = numpy.random.default_rng(0)
    w = chance.normal(size=(filters, channels // groups, kernel, kernel))

    def convolution(x: Any, w: Any) -> Any:
        return npx.convolution(
            x,
            w,
            kernel=(kernel, kernel),
            num_filter=filters,
            stride=(stride, stride),
            pad=(pad, pad),
            dilate=(dilate, dilate),
            num_group=groups,
            no_bias=True,
        )

    for run_ in (convolution, gemel.compile(convolution)):
        for count, size in images:
            x = chance.normal(size=(count, channels, size, size))
            given = [np.array(each, dtype=dtype) for each in (x, w)]
            for each in given:
                each.attach_grad()
            with autograd.record():
                y = run_(*given)
            r = chance.normal(size=y.shape)
            y.backward(np.array(r, dtype=dtype))
            wanted = by_places(x, w, r, (stride, pad, dilate, groups))
            for found, right in zip((y, given[0].grad, given[1].grad), wanted, strict=True):
                room = (1e-11 if dtype == "float64" else 3e-5) * max(1, numpy.abs(right).max())
                assert numpy.abs(found.asnumpy() - right).max() < room


def trained(net: Any, *shape: int) -> None:
    """A hybridized step gives the same result and gradients as an imperative one."""
    net.initialize()
    x = np.array(numpy.random.default_rng(1).normal(size=shape))
    found = []
    for hybrid in (False, True):
        net.hybridize(hybrid)
        with autograd.record():
            y = net(x)
        y.backward()
        found.append([y.asnumpy(), *(p.grad().asnumpy() for p in net.collect_params().values())])
    for one, other in zip(*found, strict=True):
        numpy.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("net", "shape"),
    [
        (lambda nn: nn.Conv1D(16, 3, padding=1), (2, 8, 700)),
        (lambda nn: nn.Conv1D(16, 3, groups=2), (2, 8, 1000)),
        (lambda nn: nn.Conv1DTranspose(16, 3), (2, 8, 1000)),
        (lambda nn: nn.Conv2D(16, (3, 1)), (2, 8, 33, 33)),
        (lambda nn: nn.Conv2D(1, (4, 1)), (2, 64, 33, 33)),
        (lambda nn: nn.Conv2D(4, (1, 3)), (1, 1, 9, 700)),
        (lambda nn: nn.Conv2D(4, 1, strides=2), (2, 1, 9, 9)),
        (lambda nn: nn.Conv3D(6, 3, strides=3), (1, 4, 5, 5, 5)),
        (lambda nn: nn.Conv2D(6, 25, strides=9), (1, 2, 30, 30)),
    ],
)
def test_layers_whose_windows_are_no_panels(net: Any, shape: tuple[int, ...]) -> None:
    """Channels that do not fit, more than three axes, a single position, a single channel."""
    trained(net(gluon.nn), *shape)


def test_other_views_in_products() -> None:
    chance = numpy.random.default_rng(2)
    a, x = chance.normal(size=(2, 1800)), chance.normal(size=(3, 700, 5))
    rows = gemel.compile(lambda a, x: np.matmul(a, x[:, :600].reshape(1800, 5)))
    found = rows(np.array(a, dtype="float64"), np.array(x, dtype="float64"))
    numpy.testing.assert_allclose(found.asnumpy(), a @ x[:, :600].reshape(1800, 5))
    b, y = chance.normal(size=(6, 12)), chance.normal(size=(3, 4))
    vector = gemel.compile(lambda b, y: np.matmul(b, y.T.reshape(-1)))
    found = vector(np.array(b, dtype="float64"), np.array(y, dtype="float64"))
    numpy.testing.assert_allclose(found.asnumpy(), b @ y.T.reshape(-1))

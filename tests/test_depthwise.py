"""Depthwise convolutions of many kernels: their results, gradients, and which loops they have."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy
import pytest

import gemel
from gemel import autograd, np, npx
from gemel.ops.windows import bordered_windows, windows

#: Kernel, strides and dilation.
MOVES = [
    ((3, 3), (1, 1), (1, 1)), ((3, 3), (2, 2), (1, 1)), ((3, 3), (1, 1), (1, 2)),
    ((4, 2), (1, 1), (1, 1)), ((3, 5), (2, 1), (1, 1)), ((5, 3), (1, 2), (1, 1)),
    ((3, 1), (1, 1), (1, 1)), ((1, 3), (1, 1), (1, 1)),
    ((7, 7), (1, 1), (1, 1)), ((5, 5), (1, 1), (1, 1)), ((5, 5), (2, 2), (1, 1)),
    ((9, 3), (1, 2), (1, 1)), ((6, 9), (1, 1), (1, 2)), ((7, 7), (1, 1), (2, 1)),
    ((7, 7), (2, 1), (1, 1)), ((3, 11), (1, 1), (1, 1)), ((31, 31), (1, 1), (1, 1)),
]  # fmt: skip
SHAPES = [
    (2, 3, 14, 14),
    (1, 2, 5, 130),
    (1, 4, 7, 7),
    (1, 1, 40, 19),
    (3, 2, 1, 33),
    (1, 2, 23, 1),
]


def reference(x: Any, weight: Any, moves: Any) -> Any:
    """The convolution with a border of half of the kernel, in float64."""
    kernel, stride, dilate = moves
    pads = [k // 2 * d for k, d in zip(kernel, dilate, strict=True)]
    padded = numpy.pad(x.astype("float64"), [(0, 0), (0, 0), *((p, p) for p in pads)])
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilate, strict=True)]
    seen = numpy.lib.stride_tricks.sliding_window_view(padded, spans, (2, 3))
    seen = seen[:, :, :: stride[0], :: stride[1], :: dilate[0], :: dilate[1]]
    return numpy.einsum("nchwij,cij->nchw", seen, weight[:, 0].astype("float64"))


def convolution(x: Any, weight: Any, moves: Any) -> Any:
    kernel, stride, dilate = moves
    pad = tuple(k // 2 * d for k, d in zip(kernel, dilate, strict=True))
    how: dict[str, Any] = {"kernel": kernel, "stride": stride, "dilate": dilate, "pad": pad}
    channels = weight.shape[0]
    return npx.convolution(x, weight, num_filter=channels, num_group=channels, no_bias=True, **how)


def given(shape: tuple[int, ...], kernel: tuple[int, int], dtype: str) -> tuple[Any, Any]:
    draw = numpy.random.default_rng(len(kernel) + shape[-1])
    x = draw.normal(size=shape).astype(dtype)
    return x, draw.normal(size=(shape[1], 1, *kernel)).astype(dtype)


@pytest.mark.parametrize("moves", MOVES, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_results_for_all_sizes_of_one_program(moves: Any, dtype: str) -> None:
    compiled = gemel.compile(lambda x, weight: convolution(x, weight, moves))
    bound = {"float64": 1e-11, "float32": 2e-4, "float16": 0.05}[dtype]
    for shape in SHAPES:
        x, weight = given(shape, moves[0], dtype)
        wanted = reference(x, weight, moves)
        for run in (compiled, lambda x, weight: convolution(x, weight, moves)):
            found = run(np.array(x), np.array(weight)).asnumpy()
            numpy.testing.assert_allclose(found, wanted, rtol=bound / 10, atol=bound)


@pytest.mark.parametrize("moves", MOVES[:14], ids=str)
def test_gradients(moves: Any) -> None:
    x, weight = (np.array(each) for each in given((2, 3, 12, 9), moves[0], "float64"))
    for each in (x, weight):
        each.attach_grad()
    with autograd.record():
        found = convolution(x, weight, moves)
        factor = np.array(numpy.random.default_rng(1).normal(size=found.shape))
        total = (found * factor).sum()
    total.backward()
    for number, each in enumerate((x, weight)):
        step = numpy.random.default_rng(2).normal(size=each.shape)
        values = [x.asnumpy(), weight.asnumpy()]
        ends = []
        for sign in (1, -1):
            moved = [*values]
            moved[number] = values[number] + sign * step
            ends.append((reference(*moved, moves) * factor.asnumpy()).sum())
        slope = (each.grad.asnumpy() * step).sum()  # the convolution is linear in each
        assert slope == pytest.approx((ends[0] - ends[1]) / 2, rel=1e-10)


@pytest.mark.parametrize("moves", MOVES, ids=str)
def test_rows_are_computed_together_where_windows_slide(
    moves: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is, where they overlap from row to row, and lines are read without gaps. Small windows
    are unrolled; of larger ones, those of five or more rows that move on by one are meant."""
    monkeypatch.setenv("GEMEL_CACHE", str(tmp_path))
    (high, wide), stride, dilate = moves
    x, weight = (np.array(each) for each in given((2, 3, 20, 20), (high, wide), "float32"))
    source = gemel.compile(lambda x, weight: convolution(x, weight, moves)).source(x, weight)
    slides = min(high, wide) > 1 and stride[0] < high and dilate[0] == 1
    words = []
    if slides and high * wide <= 25:
        words = [f"{high}x{wide}" + (f"x{stride[0]}" if stride[0] > 1 else "")]
    elif slides and stride == (1, 1) and high >= 5:
        words = ["7" if high >= 7 else "5"]
    assert re.findall(r"loops outer=\d inner=2 extra=0: outer (\S+)\n", source) == words


@pytest.mark.parametrize("moves", [MOVES[0], MOVES[3], MOVES[8], MOVES[9]], ids=str)
def test_the_same_bits_for_any_number_of_rows(moves: Any) -> None:
    """Also for fewer rows than are computed together."""
    high = moves[0][0]
    x, weight = (np.array(each) for each in given((1, 1, 300, 500), moves[0], "float32"))
    whole, half = convolution(x, weight, moves), high // 2
    for rows in (1, 2, 30):
        for first in (0, 150):
            lines = x[:, :, max(0, first - half) : first + rows + half]
            part = convolution(lines, weight, moves)[:, :, min(first, half) :]
            assert (part[:, :, :rows] == whole[:, :, first : first + rows]).all()


@pytest.mark.parametrize("dtype", ["bool", "int8", "float16", "float64"])
def test_windows_of_computed_arrays_with_a_border(dtype: str) -> None:
    """Also where the array is not in memory: it is computed in the kernel that reads windows."""
    how: dict[str, Any] = {"kernel": (2, 3), "stride": (2, 1), "dilate": (1, 1)}
    how |= {"before": (1, 2), "after": (1, 2)}
    where = numpy.array([3, 0, 1])

    def seen(x: Any) -> Any:
        return bordered_windows((x + x)[:, where], **how) * 1

    x = numpy.random.default_rng(3).integers(0, 2, size=(4, 5, 9)).astype(dtype)
    padded = numpy.pad((x + x)[:, where], [(0, 0), (1, 1), (2, 2)])
    wanted = numpy.lib.stride_tricks.sliding_window_view(padded, (2, 3), (1, 2))[:, ::2]
    wanted = numpy.moveaxis(wanted, (3, 4), (1, 2)) * 1
    for run in (seen, gemel.compile(seen)):
        numpy.testing.assert_array_equal(run(np.array(x)).asnumpy(), wanted)


#: Reductions over windows, given windows of an array and numbers for each of their elements.
REDUCTIONS: dict[str, Any] = {
    "what is computed from windows": lambda seen, w: ((seen * 2.5 + 1) * w).sum(axis=(1, 2)),
    "the largest": lambda seen, w: (np.exp(seen) * w).max(axis=(1, 2)),
    "numbers known at run time": lambda seen, w: ((seen + w.sum()) * w).sum(axis=(1, 2)),
    "a choice, in other dtypes": lambda seen, w: (
        np.where(seen > 0, w, -w).astype("int32").sum(axis=(1, 2))
    ),
    "any": lambda seen, w: (seen > w).any(axis=(1, 2)),
    "positions": lambda seen, w: (seen * w).reshape(2, -1, *seen.shape[3:]).argmax(axis=1),
    "one axis": lambda seen, w: (seen * w).sum(axis=2),
    "two bytes": lambda seen, w: (seen * w).astype("float16").sum(axis=(1, 2)),
}


@pytest.mark.parametrize("case", REDUCTIONS)
@pytest.mark.parametrize("size", (3, 7))
@pytest.mark.parametrize("border", (False, True))
def test_reductions_over_windows_are_the_same_compiled(case: str, size: int, border: bool) -> None:
    how = {"kernel": (size, size), "stride": (1, 1), "dilate": (1, 1)}

    def function(x: Any, w: Any) -> Any:
        sides = {"before": (1, 1), "after": (0, 2)}
        return REDUCTIONS[case](
            bordered_windows(x, **how, **sides) if border else windows(x, **how), w
        )

    draw = numpy.random.default_rng(size)
    x = np.array(draw.normal(size=(2, 20, 30)).astype("float32"))
    w = np.array(draw.normal(size=(1, size, size, 1, 1)).astype("float32"))
    wanted, found = function(x, w).asnumpy(), gemel.compile(function)(x, w).asnumpy()
    bound = 0.05 if found.dtype == "float16" else 1e-5
    numpy.testing.assert_allclose(found, wanted, rtol=bound, atol=bound)


@pytest.mark.parametrize("stride", (1, 2))
def test_images_with_channels_last_are_copied_first(stride: int) -> None:
    """Windows would be read element by element."""
    moves = ((3, 3), (stride, stride), (1, 1))
    x, weight = given((2, 6, 12, 11), (3, 3), "float32")
    seen = np.array(x.transpose(0, 2, 3, 1))

    def function(x: Any, weight: Any) -> Any:
        return convolution(x.transpose(0, 3, 1, 2), weight, moves)

    compiled = gemel.compile(function)
    found = compiled(seen, np.array(weight)).asnumpy()
    numpy.testing.assert_allclose(found, reference(x, weight, moves), rtol=1e-4, atol=1e-4)
    assert compiled.plan_summary(seen, np.array(weight)).startswith("function: 2 kernels")

"""Deformable convolutions, and attention within a sliding window, compared with loops."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy
import pytest

from gemel import autograd, np, npx
from gemel.errors import ShapeError
from gemel.gluon import nn

MOVES: dict[str, Any] = {"kernel": (3, 2), "stride": (2, 1), "dilate": (1, 2), "pad": (1, 1)}
PLACES = (3, 5)


def drawn(*shape: int, scale: float = 1.0, seed: int = 0) -> Any:
    return numpy.random.default_rng(seed).normal(size=shape) * scale


X, W, B = drawn(2, 4, 6, 5), drawn(6, 2, 3, 2, seed=1), drawn(6, seed=2)
OFFSET = drawn(2, 24, *PLACES, scale=1.5, seed=3)
MASK = numpy.abs(drawn(2, 12, *PLACES, seed=4))


def pixel(image: Any, y: float, x: float, edge: bool) -> float:
    """A pixel interpolated from its four neighbours; outside the image it is 0."""
    high, wide = image.shape
    if edge:
        if not (0 <= y < high and 0 <= x < wide):
            return 0.0
        y, x = min(y, high - 1), min(x, wide - 1)
    top, left = int(numpy.floor(y)), int(numpy.floor(x))
    return sum(
        image[row, column] * (1 - abs(y - row)) * (1 - abs(x - column))
        for row, column in product((top, top + 1), (left, left + 1))
        if 0 <= row < high and 0 <= column < wide
    )


def by_loops(offset: Any, mask: Any, edge: bool) -> Any:
    """The convolution in loops, with two groups of channels and two groups of shifts."""
    found = numpy.zeros((2, 6, *PLACES)) + B[:, None, None]
    points = [*product(range(3), range(2))]
    for n, filters, row, column in product(range(2), range(6), *map(range, PLACES)):
        for inner, (point, (i, j)) in product(range(2), enumerate(points)):
            channel = filters // 3 * 2 + inner
            at = channel // 2 * 6 + point
            y = row * 2 - 1 + i + offset[n, 2 * at, row, column]
            x = column - 1 + 2 * j + offset[n, 2 * at + 1, row, column]
            read = pixel(X[n, channel], y, x, edge) * mask[n, at, row, column]
            found[n, filters, row, column] += W[filters, inner, i, j] * read
    return found


def given(*arrays: Any) -> list[Any]:
    return [np.array(each, dtype="float64") for each in arrays]


SETTINGS: dict[str, Any] = {**MOVES, "num_filter": 6, "num_group": 2, "num_deformable_group": 2}


def test_shifted_pixels() -> None:
    found = npx.deformable_convolution(*given(X, OFFSET, W, B), **SETTINGS)
    numpy.testing.assert_allclose(found, by_loops(OFFSET, numpy.ones_like(MASK), True), rtol=1e-9)


def test_modulated() -> None:
    found = npx.modulated_deformable_convolution(*given(X, OFFSET, MASK, W, B), **SETTINGS)
    numpy.testing.assert_allclose(found, by_loops(OFFSET, MASK, False), rtol=1e-9)


def test_without_shifts_it_is_a_convolution() -> None:
    want = npx.convolution(*given(X, W, B), **MOVES, num_filter=6, num_group=2)
    found = npx.deformable_convolution(*given(X, OFFSET * 0, W, B), **SETTINGS)
    numpy.testing.assert_allclose(found, want, rtol=1e-9)
    layer = nn.DeformableConvolution(4, 3, padding=1, in_channels=4, num_deformable_group=2)
    layer.initialize()
    x, weight = np.array(X.astype("float32")), layer.deformable_conv_weight.data()
    want = npx.convolution(x, weight, kernel=(3, 3), pad=(1, 1), num_filter=4, no_bias=True)
    numpy.testing.assert_allclose(layer(x), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("modulated", [False, True])
def test_gradients(modulated: bool) -> None:
    function = npx.modulated_deformable_convolution if modulated else npx.deformable_convolution
    arrays = given(X, OFFSET, *([MASK] if modulated else []), W, B)
    for each in arrays:
        each.attach_grad()
    head = np.array(drawn(2, 6, *PLACES, seed=5), dtype="float64")
    with autograd.record():
        total = (function(*arrays, **SETTINGS) * head).sum()
    total.backward()
    for place, each in enumerate(arrays):
        step = drawn(*each.shape, scale=1e-6, seed=6 + place)
        ends = []
        for sign in (1, -1):
            moved = [*arrays]
            moved[place] = np.array(each.asnumpy() + sign * step, dtype="float64")
            ends.append(float((function(*moved, **SETTINGS) * head).sum()))
        want = (ends[0] - ends[1]) / 2
        assert float((each.grad.asnumpy() * step).sum()) == pytest.approx(want, rel=1e-4, abs=1e-9)


def test_arrays_that_do_not_fit() -> None:
    with pytest.raises(ShapeError, match="offset"):
        npx.deformable_convolution(*given(X, OFFSET[:, :12], W, B), **SETTINGS)
    with pytest.raises(ShapeError, match="weight"):
        npx.deformable_convolution(*given(X, OFFSET, W[:, :1], B), **SETTINGS)
    with pytest.raises(ShapeError, match="NCHW"):
        npx.deformable_convolution(*given(X, OFFSET, W, B), **SETTINGS, layout="NHWC")


# --- attention within a sliding window --------------------------------------------------------

DILATION = numpy.array([1, 2], dtype="int32")


def sees(symmetric: bool) -> list[tuple[int, int, int, int]]:
    """(row, head, column of the window, row seen) for 7 rows, 2 heads and w = 2."""
    window = range(-2, 3 if symmetric else 1)
    every = product(range(7), range(2), enumerate(window))
    found = [(i, h, column, i + int(DILATION[h]) * step) for i, h, (column, step) in every]
    return [each for each in found if 0 <= each[3] < 7]


@pytest.mark.parametrize("symmetric", [True, False])
def test_sliding_windows(symmetric: bool) -> None:
    query, key, value = (drawn(3, 7, 2, 4, seed=seed) for seed in range(3))
    columns = 5 if symmetric else 3
    score, mask = numpy.zeros((3, 7, 2, columns)), numpy.zeros((3, 7, 2, columns))
    context, lengths = numpy.zeros((3, 7, 2, 4)), [7, 4, 0]
    for i, h, column, place in sees(symmetric):
        score[:, i, h, column] = (query[:, i, h] * key[:, place, h]).sum(-1)
        mask[:, i, h, column] = [max(i, place) < length for length in lengths]
    for i, h, column, place in sees(symmetric):
        context[:, i, h] += score[:, i, h, column, None] * value[:, place, h]
    q, k, v = given(query, key, value)
    dilation = np.array(DILATION)
    settings = {"w": 2, "symmetric": symmetric}
    found = npx.sldwin_atten_score(q, k, dilation, **settings)
    numpy.testing.assert_allclose(found, score, rtol=1e-9)
    masked = npx.sldwin_atten_mask_like(
        found, dilation, np.array(lengths, dtype="int32"), **settings
    )
    assert masked.dtype == "float64" and (masked.asnumpy() == mask).all()
    found = npx.sldwin_atten_context(found, v, dilation, **settings)
    numpy.testing.assert_allclose(found, context, rtol=1e-9)


def test_gradients_of_sliding_windows() -> None:
    q, k, v = given(*(drawn(1, 5, 2, 3, seed=seed) for seed in range(3)))
    dilation = np.array(DILATION)

    def attended(q: Any, k: Any, v: Any) -> Any:
        score = npx.sldwin_atten_score(q, k, dilation, w=1)
        return (npx.sldwin_atten_context(np.tanh(score), v, dilation, w=1) ** 2).sum()

    for each in (q, k, v):
        each.attach_grad()
    with autograd.record():
        total = attended(q, k, v)
    total.backward()
    for place, each in enumerate((q, k, v)):
        step = np.array(drawn(*each.shape, scale=1e-6, seed=9), dtype="float64")
        moved, back = [q, k, v], [q, k, v]
        moved[place], back[place] = each + step, each - step
        want = float(attended(*moved) - attended(*back)) / 2
        assert float((each.grad * step).sum()) == pytest.approx(want, rel=1e-5)

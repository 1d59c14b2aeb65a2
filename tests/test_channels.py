"""Between images with channels first and images with channels last."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import pytest

import gemel
from gemel import autograd, np
from gemel.codegen.language import nest

DTYPES = ("float32", "float64", "float16", "uint8", "int64", "bool")
#: Batch, height and width.
SIZES = ((2, 11, 9), (1, 5, 7), (3, 1, 9), (2, 33, 1), (1, 1, 1), (0, 4, 4), (4, 6, 43))
LAST, FIRST = (0, 2, 3, 1), (0, 3, 1, 2)


def images(channels: int, size: tuple[int, int, int], dtype: str) -> Any:
    """Images with channels first."""
    batch, height, width = size
    source = numpy.random.default_rng(channels + 10 * height)
    return (source.standard_normal((batch, channels, height, width)) * 9).astype(dtype)


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[bool]:
    """Whether each nest was written again by channel."""
    found: list[bool] = []
    by_channel = nest.by_channel

    def spied(*arguments: Any) -> Any:
        made = by_channel(*arguments)
        found.append(made is not None)
        return made

    monkeypatch.setattr(nest, "by_channel", spied)
    monkeypatch.setenv("GEMEL_CACHE", str(tmp_path))
    return found


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("channels", (1, 2, 3, 4, 5))
def test_copies_in_both_directions(dtype: str, channels: int) -> None:
    last = gemel.compile(lambda x: np.copy(x.transpose(LAST)))
    first = gemel.compile(lambda x: np.copy(x.transpose(FIRST)))
    for size in SIZES:
        x = images(channels, size, dtype)
        found = last(np.array(x, dtype=dtype))
        numpy.testing.assert_array_equal(found.asnumpy(), x.transpose(LAST))
        numpy.testing.assert_array_equal(first(found).asnumpy(), x)


@pytest.mark.parametrize("channels", (2, 3, 4))
@pytest.mark.parametrize("target", ("last", "first"))
def test_they_are_written_by_channel(written: list[bool], channels: int, target: str) -> None:
    x = images(channels, (2, 11, 9), "float32")
    axes = LAST if target == "last" else FIRST
    x = x if target == "last" else numpy.ascontiguousarray(x.transpose(LAST))
    found = gemel.compile(lambda x: np.copy(x.transpose(axes)))(np.array(x))
    numpy.testing.assert_array_equal(found.asnumpy(), x.transpose(axes))
    assert True in written


@pytest.mark.parametrize("dtype", DTYPES)
def test_small_planes_in_reverse(written: list[bool], dtype: str) -> None:
    """The weights of a convolution's gradient: two filters side by side, each from its end."""
    for height, width in ((3, 3), (2, 4), (5, 1), (1, 9)):
        x = images(2, (6, height, width), dtype)
        flipped = gemel.compile(lambda x: np.copy(x[..., ::-1, ::-1].transpose(LAST)))
        found = flipped(np.array(x, dtype=dtype))
        numpy.testing.assert_array_equal(found.asnumpy(), x[..., ::-1, ::-1].transpose(LAST))
    assert True in written


def test_one_plan_serves_images_of_all_sizes(written: list[bool]) -> None:
    last = gemel.compile(lambda x: np.copy(x.transpose(LAST)))
    for size in ((2, 11, 9), (3, 6, 43), (7, 33, 2), (5, 64, 64)):
        x = images(3, size, "float32")
        numpy.testing.assert_array_equal(last(np.array(x)).asnumpy(), x.transpose(LAST))
    assert written.count(True) == 1


def test_what_lies_alike_is_not_written_by_channel(written: list[bool]) -> None:
    x = np.ones((2, 5, 7, 3))
    gemel.compile(lambda x, y: x + y)(x, np.ones(3)).wait_to_read()
    gemel.compile(lambda x: np.copy(x.transpose(LAST)))(np.ones((2, 64, 7, 9))).wait_to_read()
    assert True not in written


@pytest.mark.parametrize("channels", (3, 4, 6))
def test_one_function_for_several_numbers_of_channels(channels: int) -> None:
    last = gemel.compile(lambda x: x.transpose(LAST) * 2)
    for count in (channels, 3, channels, 5, 2):
        for size in SIZES[:2]:
            x = images(count, size, "float32")
            numpy.testing.assert_array_equal(last(np.array(x)).asnumpy(), x.transpose(LAST) * 2)


@pytest.mark.parametrize("size", SIZES)
def test_scales_and_shifts_for_each_channel(size: tuple[int, int, int]) -> None:
    """Pixels of bytes become planes of floats, as networks take them, and back."""
    pixels = numpy.ascontiguousarray(images(3, size, "uint8").transpose(LAST))
    mean, deviation = numpy.float32([9, 5, 7]), numpy.float32([2, 3, 4])

    @gemel.compile
    def planes(x: Any, mean: Any, deviation: Any) -> Any:
        return np.copy(((x.astype("float32") - mean) / deviation).transpose(FIRST))

    @gemel.compile
    def back(x: Any, mean: Any, deviation: Any) -> Any:
        return np.rint(x.transpose(LAST) * deviation + mean).astype("uint8")

    given = np.array(mean), np.array(deviation)
    found = planes(np.array(pixels, dtype="uint8"), *given)
    wanted = ((pixels.astype("float32") - mean) / deviation).transpose(FIRST)
    numpy.testing.assert_array_equal(found.asnumpy(), wanted)
    numpy.testing.assert_array_equal(back(found, *given).asnumpy(), pixels)


@pytest.mark.parametrize("size", SIZES)
def test_planes_and_pixels_together(size: tuple[int, int, int]) -> None:
    x, y = images(3, size, "float32"), images(3, size, "float32").transpose(LAST) + 1
    y = numpy.ascontiguousarray(y)
    one, other = x[:, :1], y[:1, :1, :1]

    @gemel.compile
    def pixels(x: Any, y: Any, one: Any, other: Any) -> Any:
        moved = x.transpose(LAST)
        return moved * y + one.transpose(LAST) - other, np.maximum(moved, y)

    found = pixels(*map(np.array, (x, y, one, other)))
    moved = x.transpose(LAST)
    wanted = moved * y + one.transpose(LAST) - other, numpy.maximum(moved, y)
    for got, each in zip(found, wanted, strict=True):
        numpy.testing.assert_allclose(got.asnumpy(), each, rtol=1e-6)


def test_gradients() -> None:
    x = images(3, (2, 11, 9), "float64") / 9
    head = x.transpose(LAST)
    a, weights = np.array(x, dtype="float64"), np.array(numpy.ascontiguousarray(head))
    a.attach_grad()
    with autograd.record():
        y = (np.tanh(a.transpose(LAST)) * weights).sum()
    y.backward()
    wanted = (1 - numpy.tanh(x) ** 2) * head.transpose(FIRST)
    numpy.testing.assert_allclose(a.grad.asnumpy(), wanted, rtol=1e-12, atol=1e-15)


def test_written_over() -> None:
    """The pixels of an image are replaced by what is computed from them."""
    x = images(4, (1, 8, 4), "float32").reshape(1, 4, 4, 8)
    a = np.array(x)
    a[:] = a.transpose(0, 2, 1, 3) + a
    numpy.testing.assert_array_equal(a.asnumpy(), x.transpose(0, 2, 1, 3) + x)
    square = numpy.arange(9, dtype="float32").reshape(3, 3)
    b = np.array(square)
    b[:] = b.T + 0
    numpy.testing.assert_array_equal(b.asnumpy(), square.T)


@pytest.mark.parametrize("dtype", ("float32", "int8", "float64"))
@pytest.mark.parametrize("length", (2, 14, 64, 130))
def test_every_other_element(dtype: str, length: int) -> None:
    x = (numpy.arange(5 * length).reshape(5, length) % 50).astype(dtype)

    def halves(x: Any) -> Any:
        return x[:, ::2] * 3 - x[:, 1::2]

    found = gemel.compile(halves)(np.array(x, dtype=dtype))
    numpy.testing.assert_array_equal(found.asnumpy(), halves(x))


def test_two_arrays_in_different_orders() -> None:
    x, y = (numpy.arange(60).reshape(3, 20) + n for n in (0.0, 100.0))

    def mixed(x: Any, y: Any) -> Any:
        return x[:, ::2] + 2 * y[:, ::2] + 4 * y[:, 1::2] + 8 * x[:, 1::2]

    found = gemel.compile(mixed)(np.array(x, dtype="float64"), np.array(y, dtype="float64"))
    numpy.testing.assert_array_equal(found.asnumpy(), mixed(x, y))


def test_groups_of_several_sizes_in_different_orders() -> None:
    p = numpy.tile(numpy.arange(8.0).reshape(2, 4), (1, 40))
    x = numpy.tile(numpy.arange(12.0).reshape(2, 6), (1, 40))

    def mixed(p: Any, x: Any, y: Any) -> Any:
        total = p[:, ::2] + p[:, 1::2] + x[:, ::3] + x[:, 1::3] + y[:, ::3] + y[:, 1::3]
        return total + 2 * y[:, 2::3] + 4 * x[:, 2::3]

    given = p, x, x + 100
    found = gemel.compile(mixed)(*(np.array(each, dtype="float64") for each in given))
    numpy.testing.assert_array_equal(found.asnumpy(), mixed(*given))


@pytest.mark.parametrize(
    "shapes", [((0, 5), (0, 1)), ((5, 0), (1, 0)), ((40, 0), (1, 1)), ((0, 40), (1, 1))]
)
def test_no_channels(shapes: tuple[tuple[int, ...], ...]) -> None:
    found = gemel.compile(lambda x, y: np.copy((x + y).T))(*map(np.zeros, shapes))
    assert found.shape == (numpy.zeros(shapes[0]) + numpy.zeros(shapes[1])).T.shape

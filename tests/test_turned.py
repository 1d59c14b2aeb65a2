"""Transposed reads, results whose columns are interleaved in memory, reductions of rows."""

from __future__ import annotations

import numpy
import pytest

import gemel
from gemel import np

DTYPES = ("float32", "float64", "int8", "bool", "float16", "complex64", "int64")
#: Whole squares, parts of squares, several panels, and too few rows to be transposed.
SHAPES = ((16, 16), (31, 31), (17, 65), (130, 9), (3, 200), (2, 40, 70), (2, 3, 24, 33))
TURNED = {
    "copy": lambda x: x.swapaxes(-1, -2).copy(),
    "stepped": lambda x: x.swapaxes(-1, -2)[..., ::2].copy(),
    "part": lambda x: x[..., 1:].swapaxes(-1, -2).copy(),
    "two": lambda x: x.swapaxes(-1, -2) == x.swapaxes(-1, -2)[..., :1],
    "beside": lambda x: x.swapaxes(-1, -2)[..., :8, :8] == x[..., :8, :8],
}


def numbers(shape: tuple[int, ...], dtype: str) -> numpy.ndarray:
    return (numpy.random.default_rng(len(shape)).normal(size=shape) * 50).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", TURNED)
def test_transposed_reads_match_numpy(name: str, dtype: str) -> None:
    for shape in SHAPES:
        given = numbers(shape, dtype)
        if name == "beside" and min(given.shape[-2:]) < 8:
            continue
        expected = TURNED[name](given)
        for function in (TURNED[name], gemel.compile(TURNED[name])):
            found = function(np.array(given)).asnumpy()
            numpy.testing.assert_array_equal(found, expected, err_msg=str(shape))


@pytest.mark.parametrize("dtype", DTYPES)
def test_columns_take_turns(dtype: str) -> None:
    for size in (0, 1, 5, 16, 100, 1000):
        for count in (2, 3, 4, 7, 8, 9):
            given = [numbers((size,), dtype)[::-1] + numbers((1,), dtype) for _ in range(count)]
            arrays = [np.array(each) for each in given]
            numpy.testing.assert_array_equal(
                np.stack(arrays, axis=-1).asnumpy(), numpy.stack(given, axis=-1)
            )
            numpy.testing.assert_array_equal(
                np.repeat(arrays[0], count).asnumpy(), numpy.repeat(given[0], count)
            )


#: Functions that go along each row once, or several times with results of earlier passes.
ALONG = {
    "sum": lambda xp, x: x.sum(axis=-1),
    "max": lambda xp, x: x.max(axis=-1),
    "var": lambda xp, x: x.var(axis=-1),
    "softmax": lambda xp, x: (
        xp.exp(x - x.max(-1, keepdims=True))
        / xp.exp(x - x.max(-1, keepdims=True)).sum(-1, keepdims=True)
    ),
    "chosen": lambda xp, x: xp.where(
        x.max(-1, keepdims=True) > 2, x - x.mean(-1, keepdims=True), x * x.argmax(-1, keepdims=True)
    ),
    "steps": lambda xp, x: ((x - x.mean(-1, keepdims=True)) ** 2).max(-1) - x.min(-1),
}
#: Row lengths: very short, whole squares and remainders, and too long to be transposed.
PLACES = (1, 2, 3, 4, 5, 16, 39, 96, 97, 130, 600, 1100)


@pytest.mark.parametrize("name", ALONG)
@pytest.mark.parametrize("places", PLACES)
def test_rows_of_any_length_and_number(name: str, places: int) -> None:
    function = ALONG[name]
    made = gemel.compile(lambda x: function(np, x))
    for shape in ((1,), (7,), (9,), (16,), (17,), (70,), (3, 21)):
        wide = numpy.random.default_rng(places).normal(size=(*shape, places + 3)).astype("float32")
        for given in (wide[..., :places], wide[..., 2 : places + 2].copy()):
            whole = np.array(wide)[..., :places] if given.base is not None else np.array(given)
            found = made(whole).asnumpy()
            expected = function(numpy, given.astype("float64"))
            numpy.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("places", (3, 40, 100, 200, 1500))
def test_a_row_does_not_depend_on_those_beside_it(places: int) -> None:
    given = numpy.random.default_rng(1).normal(size=(45, places)).astype("float32")
    made = {name: gemel.compile(lambda x, f=f: f(np, x)) for name, f in ALONG.items()}
    for name, function in made.items():
        whole = function(np.array(given)).asnumpy()
        for part in (slice(0, 16), slice(5, 24), slice(12, 45)):
            found = function(np.array(given[part])).asnumpy()
            numpy.testing.assert_array_equal(found, whole[part], err_msg=name)


def test_nan_anywhere_in_a_row_wins() -> None:
    for places in (1, 2, 15, 16, 17, 40, 97, 150):
        given = numpy.random.default_rng(2).normal(size=(places + 9, places)).astype("float32")
        for place in range(places):
            given[place + 3, place] = numpy.nan
        given[0, 0], given[1, -1] = -numpy.inf, numpy.inf
        array = np.array(given)
        numpy.testing.assert_array_equal(array.max(axis=1).asnumpy(), given.max(axis=1))
        numpy.testing.assert_array_equal(array.min(axis=1).asnumpy(), given.min(axis=1))
        numpy.testing.assert_array_equal(array.max(axis=0).asnumpy(), given.max(axis=0))

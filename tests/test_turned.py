"""Arrays that lie across the loops, and results whose columns take turns in memory."""

from __future__ import annotations

import numpy
import pytest

import gemel
from gemel import np

DTYPES = ("float32", "float64", "int8", "bool", "float16", "complex64", "int64")
#: Whole squares, parts of squares, several panels, and too few rows to be turned.
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
def test_what_lies_across_is_what_numpy_reads(name: str, dtype: str) -> None:
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

"""Sorting along each axis of arrays of many shapes: NumPy's results, element by element."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

from gemel import np

#: Rows whose elements lie between each other's, in whole and partial cache lines; more of them
#: than NumPy sorts; rows that keys are counted for, that have buckets, and that are shifted.
SHAPES = [(37, 50), (5, 130, 40), (700, 19), (300, 64, 2), (5000, 9), (1, 1), (0, 5), (5, 0)]


def elements(shape: tuple[int, ...], dtype: str) -> numpy.ndarray[Any, Any]:
    found = (numpy.random.default_rng(3).normal(size=shape) * 20).astype(dtype)
    if found.dtype.kind == "f":
        found.flat[::5] *= 0  # with zeros of both signs
        found.flat[::7], found.flat[::11] = numpy.nan, -numpy.inf
    return found


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "uint16", "int64"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_sorted_along_each_axis(shape: tuple[int, ...], dtype: str, descending: bool) -> None:
    x = elements(shape, dtype)
    mine = np.array(x)
    for axis in range(len(shape)):
        order = numpy.argsort(x, axis=axis, kind="stable")
        if descending:
            back = numpy.argsort(numpy.flip(x, axis), axis=axis, kind="stable")
            order = shape[axis] - 1 - numpy.flip(back, axis)
        found = np.argsort(mine, axis=axis, descending=descending)
        numpy.testing.assert_array_equal(found.asnumpy(), order)
        found = np.sort(mine, axis=axis, descending=descending)
        numpy.testing.assert_array_equal(found.asnumpy(), numpy.take_along_axis(x, order, axis))

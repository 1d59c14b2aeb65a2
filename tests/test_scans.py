"""Running sums and products by kernels: every dtype, axis and layout against NumPy."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

import gemel
from gemel import np

SHAPES = [(1000,), (7,), (1,), (0,), (5, 33), (3, 40, 5), (2, 0, 3), (4, 1, 5)]
VIEWS = {
    "whole": lambda x: x,
    "reversed": lambda x: x[::-1],
    "turned": lambda x: x.T,
    "stepped": lambda x: x[..., ::2],
}


def right(x: Any, name: str, axis: int) -> Any:
    """NumPy's result, added up as `sum` does: float16 in float32."""
    half = x.dtype == "float16"
    found = getattr(numpy, name)(x, axis=axis, dtype="float32" if half else None)
    return found.astype("float16") if half else found


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "uint16", "int64"])
@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
def test_along_every_axis(name: str, dtype: str, shape: tuple[int, ...]) -> None:
    x = (numpy.random.default_rng(1).random(shape) * 2).astype(dtype)
    tolerance = {"float16": 2e-3, "float32": 2e-5}.get(dtype, 1e-12)
    for view in VIEWS.values():
        for axis in range(-len(shape), len(shape)):
            found = getattr(np, name)(view(np.array(x)), axis=axis)
            expected = right(view(x), name, axis)
            assert found.dtype == expected.dtype
            numpy.testing.assert_allclose(found.asnumpy(), expected, rtol=tolerance, atol=1e-30)


def test_a_scan_of_something_repeated() -> None:
    ones = np.broadcast_to(np.array([2.0]), (3, 4))
    assert np.cumsum(ones, axis=0)[:, 0].tolist() == [2, 4, 6]
    assert np.cumsum(ones, axis=1)[0].tolist() == [2, 4, 6, 8]


def test_nan_and_infinity_run_on() -> None:
    x = np.array([1.0, numpy.inf, -numpy.inf, 2.0])
    numpy.testing.assert_array_equal(np.cumsum(x).asnumpy(), numpy.cumsum(x.asnumpy()))
    y = np.array([[1.0, numpy.nan], [2.0, 3.0]])
    numpy.testing.assert_array_equal(np.cumsum(y, 0).asnumpy(), numpy.cumsum(y.asnumpy(), 0))


def test_in_a_program_of_any_size() -> None:
    shares = gemel.compile(lambda x: np.cumsum(x * 2, axis=0) / np.sum(x, axis=0))
    for rows in (9, 5, 1, 300):
        x = 1 + numpy.random.default_rng(rows).random((rows, 3)).astype("float32")
        expected = numpy.cumsum(x * 2, axis=0) / x.sum(axis=0)
        numpy.testing.assert_allclose(shares(np.array(x)).asnumpy(), expected, rtol=1e-5)
    assert shares.traces <= 2

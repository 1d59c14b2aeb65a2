"""Scans by kernels: every dtype, axis and layout against NumPy."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

import gemel
from gemel import autograd, np, npx
from gemel.errors import DTypeError

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


EXTREMES = {
    "maximum": (npx.cummax, numpy.maximum),
    "minimum": (npx.cummin, numpy.minimum),
    "logaddexp": (npx.logcumsumexp, numpy.logaddexp),
}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "uint16", "bool"])
@pytest.mark.parametrize("name", EXTREMES)
def test_extremes_and_logarithms_of_sums(name: str, dtype: str, shape: tuple[int, ...]) -> None:
    function, expected = EXTREMES[name]
    x = (numpy.random.default_rng(1).random(shape) * 20 - 5).astype(dtype)
    if dtype.startswith("float") and x.size > 20:
        x.flat[3], x.flat[7], x.flat[19] = -numpy.inf, numpy.inf, numpy.nan
    wide = "float64" if name == "logaddexp" else dtype
    for view in VIEWS.values():
        for axis in range(-len(shape), len(shape)):
            found = function(view(np.array(x, dtype=dtype)), axis=axis)
            same = getattr(np, name).accumulate(view(np.array(x, dtype=dtype)), axis=axis)
            numpy.testing.assert_array_equal(found.asnumpy(), same.asnumpy())
            with numpy.errstate(invalid="ignore"):
                wanted = expected.accumulate(view(x).astype(wide), axis=axis)
            if name == "logaddexp":
                close = {"float16": 3e-3, "float32": 1e-5, "float64": 1e-12}[found.dtype.name]
                numpy.testing.assert_allclose(found.asnumpy(), wanted, rtol=close, atol=close)
            else:
                assert found.dtype == wanted.dtype
                numpy.testing.assert_array_equal(found.asnumpy(), wanted)


def test_logarithms_of_sums_do_not_overflow() -> None:
    x = np.array([-2000.0, -1999.0, 800.0, -numpy.inf, 801.0], dtype="float64")
    wanted = numpy.logaddexp.accumulate(x.asnumpy())
    numpy.testing.assert_allclose(npx.logcumsumexp(x).asnumpy(), wanted, rtol=1e-15)
    x.attach_grad()
    with autograd.record():
        loss = (npx.logcumsumexp(x) * np.array([1.0, 2.0, -3.0, 0.0, 4.0])).sum()
    loss.backward()
    e = 1 / (1 + numpy.exp(1.0))
    wanted = [1 + 2 * e, 2 * (1 - e), -3 + 4 * e, 0, 4 * (1 - e)]
    numpy.testing.assert_allclose(x.grad.asnumpy(), wanted, rtol=1e-12)


def test_logarithms_of_long_sums_are_exact() -> None:
    x = numpy.random.default_rng(0).standard_normal((2, 100_000)).astype("float32") * 3
    wanted = numpy.logaddexp.accumulate(x.astype("float64"), axis=1)
    for found in (npx.logcumsumexp(np.array(x)), npx.logcumsumexp(np.array(x).T, axis=0).T):
        numpy.testing.assert_allclose(found.asnumpy(), wanted, atol=2e-6)


def test_the_gradient_of_logarithms_of_sums_has_gradients_everywhere() -> None:
    """Also where its own gradient is 0, beside elements that add nothing, and it keeps NaN."""
    x = np.array([-numpy.inf, 0.0, 1.0, -numpy.inf, 2.0], dtype="float64")
    x.attach_grad()
    with autograd.record():
        y = npx.logcumsumexp(x)[1:]
        (first,) = autograd.grad((y * y).sum() / 2, [x], create_graph=True)
        first[1].backward()
    y, e = numpy.logaddexp.accumulate([0.0, 1.0, -numpy.inf, 2.0]), numpy.exp([0.0, 1.0, 0.0, 2.0])
    shares = numpy.triu(e[:, None] / numpy.exp(y))  # of element i in the sum j
    shares[2] = 0
    wanted = (shares[0] * (1 - y) * shares).sum(1)
    wanted[0] += (y * shares[0]).sum()
    numpy.testing.assert_allclose(first.asnumpy(), [0, *shares @ y], rtol=1e-12)
    numpy.testing.assert_allclose(x.grad.asnumpy(), [0, *wanted], rtol=1e-12, atol=1e-15)
    with autograd.record():
        y = npx.logcumsumexp(x)
    y.backward(np.array([1.0, 1.0, numpy.nan, 1.0, 1.0], dtype="float64"))
    assert numpy.isnan(x.grad.asnumpy()[1:3]).all() and not np.isnan(x.grad[-1])


def test_the_gradient_of_extremes_goes_to_the_last_of_equal_ones() -> None:
    x = np.array([[1.0, 3.0, 3.0, 2.0, 4.0]])
    x.attach_grad()
    with autograd.record():
        loss = (np.maximum.accumulate(x, axis=1) * np.array([1.0, 10.0, 100.0, 1000.0, 0.5])).sum()
    loss.backward()
    assert x.grad.tolist() == [[1, 10, 1100, 0, 0.5]]
    with autograd.record():
        loss = npx.cummin(-x).sum()
    loss.backward()
    assert x.grad.tolist() == [[-1, -1, -2, 0, -1]]


def test_there_are_no_extremes_of_complex_numbers() -> None:
    x = np.array([1 + 2j, 1 - 2j, 3j])
    for function in (np.maximum.accumulate, npx.cummin, npx.logcumsumexp):
        with pytest.raises(DTypeError, match="complex"):
            function(x)


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

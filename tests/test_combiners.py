"""Reductions that carry several values along (`ir.combiner`), and what gemel computes by them."""

from __future__ import annotations

import re
from typing import Any

import numpy
import pytest
from combiners import Moments, Range

import gemel
from gemel import np
from gemel.dtype import DType
from gemel.errors import FormulaError, ShapeError
from gemel.ir.combiner import Combiner
from gemel.ir.declare import reduction

SOURCE = numpy.random.default_rng(7)


@reduction(combine=Range())
def range_of(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
    """The largest element minus the smallest."""
    return numpy.ptp(x, axis=axis, keepdims=keepdims)


@reduction(combine=Moments())
def moments_of(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
    """The number of elements x the sum of squares - the square of the sum."""
    kept = x.size // max(numpy.sum(x, axis=axis, keepdims=True).size, 1)
    squares = numpy.sum(x * x, axis=axis, keepdims=keepdims, dtype=x.dtype)
    return kept * squares - numpy.sum(x, axis=axis, keepdims=keepdims, dtype=x.dtype) ** 2


SHAPES = ((3, 5), (1, 4), (4, 1), (17, 33), (2, 3, 70), (300, 4), (5, 2000))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "int64", "uint8"])
@pytest.mark.parametrize("keepdims", [False, True])
def test_three_ways(shape: tuple[int, ...], dtype: str, keepdims: bool) -> None:
    """Imperative, compiled with what is before and after, and views: the same as the reference."""
    x = SOURCE.integers(-3 if dtype != "uint8" else 0, 4, shape).astype(dtype)
    for axis in (None, 0, -1, (0, len(shape) - 1)):
        wanted = numpy.ptp(x, axis=axis, keepdims=keepdims)
        a = np.array(x, dtype=dtype)
        program = gemel.compile(lambda a, axis=axis: range_of(a * 2, axis=axis, keepdims=keepdims))
        views = np.array(x.T.copy(), dtype=dtype).T, np.flip(np.array(x[..., ::-1].copy()), -1)
        for found in (*(range_of(v, axis=axis, keepdims=keepdims) for v in (a, *views)),):
            assert found.dtype == dtype
            numpy.testing.assert_array_equal(found.asnumpy(), wanted)
        numpy.testing.assert_array_equal(program(a).asnumpy(), wanted * 2)


class Mean(Moments):
    """The mean, from the same values."""

    def result(self, xp: Any, state: Any) -> Any:
        return state[1] / state[0].cast(state[1].dtype)


@reduction(combine=Mean())
def mean_of(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
    """The mean."""
    return numpy.mean(x, axis=axis, keepdims=keepdims)


def test_they_fuse_and_share_what_they_carry() -> None:
    """One kernel, one sweep: both results are computed from the same carried values."""
    x = np.array(SOURCE.normal(size=(64, 200)), dtype="float32")

    def both(x: Any) -> Any:
        y = np.exp(x) - 1
        return mean_of(y, axis=1) * 2, np.sqrt(moments_of(y, axis=1))

    program = gemel.compile(both)
    program(x)
    assert "1 kernel, 0 bytes" in str(program.plan_summary(x))
    assert len(re.findall("float held[0-9_]* = ", program.source(x))) == 2
    y = numpy.exp(x.asnumpy().astype("float64")) - 1
    mean, distance = program(x)
    numpy.testing.assert_allclose(mean.asnumpy(), 2 * y.mean(1), rtol=1e-5, atol=1e-6)
    numpy.testing.assert_allclose(distance.asnumpy(), y.std(1) * 200, rtol=1e-5)


def test_whole_numbers_wrap_in_any_order() -> None:
    x = SOURCE.integers(-(2**31), 2**31, (3, 5000)).astype("int32")
    with numpy.errstate(over="ignore"):
        wanted = numpy.int32(5000) * (x * x).sum(1, dtype="int32") - x.sum(1, dtype="int32") ** 2
    numpy.testing.assert_array_equal(moments_of(np.array(x), axis=1).asnumpy(), wanted)


class _Wrong(Combiner):
    def __init__(self, **methods: Any) -> None:
        self.__dict__.update(methods)

    def initial(self, dtype: DType) -> Any:
        return (dtype, 0), (dtype, 0)

    def update(self, xp: Any, state: Any, x: Any, position: Any) -> Any:
        return state

    combine = update  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("method", "said"),
    [
        (lambda xp, state, x, position: (x,), "returns 1 values, but there are 2"),
        (lambda xp, state, x, position: x, "must return a tuple"),
        (lambda xp, state, x, position: (x if x > 0 else 0, 0), "xp.where instead of if"),
        (lambda xp, state, x, position: (x, xp.nothing(x)), "xp has no 'nothing'"),
    ],
)
def test_wrong_formulas_say_what_is_wrong(method: Any, said: str) -> None:
    def wrong(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
        return x

    wrong.__name__ = "wrong_" + "".join(filter(str.isalpha, said))
    declared = reduction(combine=_Wrong(update=method))(wrong)
    with pytest.raises(FormulaError, match=said) as caught:
        declared(np.ones((3, 4))).asnumpy()
    assert declared.name in str(caught.value)


def test_nothing_is_an_error() -> None:
    with pytest.raises(ShapeError, match=r"range_of.*axis 1 is empty"):
        range_of(np.ones((3, 0)), axis=1)

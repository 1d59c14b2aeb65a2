"""Reductions that carry several values along (`ir.combiner`), and what gemel computes by them."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import numpy
import pytest
from combiners import Moments, Range

import gemel
from gemel import autograd, np, npx
from gemel.dtype import DType
from gemel.errors import FormulaError, ShapeError
from gemel.ir.combiner import Combiner
from gemel.ir.declare import reduction
from gemel.ops.variance import mean_in_blocks, squared_distances

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


def test_they_fuse_and_share_what_they_carry() -> None:
    """One kernel, one sweep: both results are computed from the same carried values."""
    x = np.array(SOURCE.normal(size=(64, 200)), dtype="float32")

    def both(x: Any) -> Any:
        y = np.exp(x) - 1
        return mean_in_blocks(y, axis=1) * 2, np.sqrt(squared_distances(y, axis=1))

    program = gemel.compile(both)
    program(x)
    assert "1 kernel, 0 bytes" in str(program.plan_summary(x))
    assert program.source(x).count("float held") == 4
    y = numpy.exp(x.asnumpy().astype("float64")) - 1
    mean, distance = program(x)
    numpy.testing.assert_allclose(mean.asnumpy(), 2 * y.mean(1), rtol=1e-5, atol=1e-6)
    numpy.testing.assert_allclose(distance.asnumpy(), y.std(1) * 200**0.5, rtol=1e-5)


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


# --- variances --------------------------------------------------------------------------------

#: Shapes and axes for which mean and variance are computed in one sweep.
LARGE = [
    ((300007,), None), ((700, 700), None), ((5, 60000), 1), ((70000, 5), 0), ((1000, 300), 0),
    ((9, 40, 1000), (0, 2)), ((300, 10, 100), (0, 1)), ((3, 200, 500), (0, 1, 2)),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "axis"), LARGE, ids=str)
@pytest.mark.parametrize("mean", [0.0, 3.0, 1e5])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_variances_of_large_arrays(
    shape: tuple[int, ...], axis: Any, mean: float, dtype: str
) -> None:
    """However large the mean is beside the deviations, which two sweeps in float32 do not reach."""
    x = (SOURCE.normal(size=shape) + mean).astype(dtype)
    exact = x.astype("longdouble")
    a, near = np.array(x, dtype=dtype), 3e-6 if dtype == "float32" else 1e-12
    for options in ({"ddof": 0, "keepdims": False}, {"ddof": 1, "keepdims": True}):
        wanted = exact.var(axis=axis, **options).astype("float64")
        for function, power in ((np.var, 1.0), (np.std, 0.5)):
            imperative = partial(function, axis=axis, **options)
            for way in (imperative, gemel.compile(lambda a, f=imperative: f(a * 1))):
                found = way(a)
                assert found.dtype == dtype and found.shape == wanted.shape
                numpy.testing.assert_allclose(found.asnumpy(), wanted**power, rtol=near)


def test_variances_of_views_of_many_short_rows() -> None:
    """Blocks consist of rows where these are short: otherwise rounding errors add up along all."""
    x = SOURCE.integers(0, 100, (120000, 4)).astype("float32")
    for places in (numpy.s_[::2, ::2], numpy.s_[:100000:2, :3], numpy.s_[::-2, 1:3]):
        view, exact = np.array(x)[places], x[places].astype("float64")
        numpy.testing.assert_allclose(view.var().asnumpy(), exact.var(), rtol=1e-6)
        numpy.testing.assert_allclose((view * 0.1).sum().asnumpy(), exact.sum() / 10, rtol=1e-6)


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_variances_of_special_values(axis: Any) -> None:
    """Equal elements, outliers, infinities, NaN, and squares that overflow."""
    shape = (600, 9000)
    ones = numpy.full(shape, 0.1, "float32")
    assert not np.array(ones).var(axis=axis).asnumpy().any()
    for place in ((0, 0), (17, 4000), (599, 8999)):
        one = SOURCE.normal(size=shape).astype("float32")
        one[place] = 1e6
        found = np.array(one).var(axis=axis).asnumpy()
        # A block of 64 that begins with an outlier subtracts 63 of its 64 parts again.
        numpy.testing.assert_allclose(found, one.astype("float64").var(axis=axis), rtol=2e-5)
    for special in (numpy.inf, -numpy.inf, numpy.nan, 3e38):
        one[17, 4000] = special
        with numpy.errstate(all="ignore"):
            wanted = one.astype("float32").var(axis=axis)
        found = np.array(one).var(axis=axis).asnumpy()
        numpy.testing.assert_array_equal(numpy.isnan(found), numpy.isnan(wanted))
        numpy.testing.assert_array_equal(numpy.isinf(found), numpy.isinf(wanted))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8", "uint16"])
def test_variances_of_converted_columns_write_no_converted_array(dtype: str) -> None:
    """Not even where the elements of few columns are divided into parts."""
    x = np.array(SOURCE.integers(0, 100, (32, 16, 16, 64))).astype(dtype)
    program = gemel.compile(lambda x: np.var(x, axis=(0, 1, 2)))
    (workspace,) = re.findall(r"(\d+) bytes of workspace", str(program.plan_summary(x)))
    assert int(workspace) < 100_000
    wanted = x.asnumpy().astype("float64").var(axis=(0, 1, 2))
    numpy.testing.assert_allclose(program(x).astype("float64").asnumpy(), wanted, rtol=4e-3)


def test_gradients_of_large_variances() -> None:
    x = SOURCE.normal(size=(20, 30000))
    a = np.array(x, dtype="float64")
    w = np.array(SOURCE.normal(size=20), dtype="float64")
    a.attach_grad()
    with autograd.record():
        y = (a.var(axis=1) * w).sum() + (squared_distances(a, axis=1) * w).sum()
        y = y + (mean_in_blocks(a, axis=1) * w).sum()
    y.backward()
    apart = x - x.mean(1, keepdims=True)
    wanted = w.asnumpy()[:, None] * (2 * apart / 30000 + 2 * apart + 1 / 30000)
    numpy.testing.assert_allclose(a.grad.asnumpy(), wanted, rtol=1e-9, atol=1e-12)


def test_batch_norm_of_large_batches() -> None:
    """The statistics in one sweep: as exact as in float64, also if the mean is large."""
    x = SOURCE.normal(2000, 3, (16, 20, 40, 40)).astype("float32")
    a = np.array(x)
    ones, zeros = np.ones(20), np.zeros(20)
    running = np.zeros(20), np.ones(20)
    with autograd.record():
        y = npx.batch_norm(a, ones, zeros, *running, eps=0.0, momentum=0.0, fix_gamma=False)
    exact = x.astype("float64")
    mean, var = exact.mean((0, 2, 3)), exact.var((0, 2, 3))
    numpy.testing.assert_allclose(running[0].asnumpy(), mean, rtol=1e-6)
    numpy.testing.assert_allclose(running[1].asnumpy(), var, rtol=1e-5)
    wanted = (exact - mean[:, None, None]) / var[:, None, None] ** 0.5
    numpy.testing.assert_allclose(y.asnumpy(), wanted, atol=2e-4)


def test_the_number_of_workers_does_not_change_variances(tmp_path: Any) -> None:
    import os
    import subprocess
    import sys

    text = (
        "import numpy; from gemel import np\n"
        "x = np.array(numpy.random.default_rng(0).normal(9, 1, (700, 1100)).astype('float32'))\n"
        "print([x.var(axis=a).asnumpy().tobytes().hex()[:4000] for a in (None, 0)])\n"
    )
    said = []
    for workers in ("0", "1", "3"):
        settings = {**os.environ, "GEMEL_WORKERS": workers, "GEMEL_CACHE": str(tmp_path)}
        done = subprocess.run([sys.executable, "-c", text], env=settings, capture_output=True)
        assert done.returncode == 0, done.stderr
        said.append(done.stdout)
    assert len(set(said)) == 1

"""Variances, standard deviations and batch statistics, in one sweep where there is much data."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import partial
from typing import Any

import numpy
import pytest

import gemel
from gemel import autograd, np, npx

SOURCE = numpy.random.default_rng(7)

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
    """However large the mean is beside the deviations: two sweeps in float32 round the mean."""
    x = (SOURCE.normal(size=shape) + mean).astype(dtype)
    exact = x.astype("longdouble")
    a, near = np.array(x, dtype=dtype), 3e-6 if dtype == "float32" else 1e-12
    for options in ({"ddof": 0, "keepdims": False}, {"ddof": 1, "keepdims": True}):
        wanted = exact.var(axis=axis, **options).astype("float64")
        for function, power in ((np.var, 1.0), (np.std, 0.5)):
            imperative = partial(function, axis=axis, **options)
            for way in (imperative, gemel.compile(lambda a, f=imperative: f(a))):
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
    # At the first place, at one that the mean is estimated from, and at the last one.
    for place in ((0, 0), (17, 4000), (142, 2242), (599, 8999)):
        one = SOURCE.normal(size=shape).astype("float32")
        one[place] = 1e6
        found = np.array(one).var(axis=axis).asnumpy()
        numpy.testing.assert_allclose(found, one.astype("float64").var(axis=axis), rtol=3e-6)
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
        y = (a.var(axis=1) * w).sum()
    y.backward()
    apart = x - x.mean(1, keepdims=True)
    wanted = w.asnumpy()[:, None] * 2 * apart / 30000
    numpy.testing.assert_allclose(a.grad.asnumpy(), wanted, rtol=1e-9, atol=1e-12)


def test_second_gradients_of_batch_norm_are_those_of_two_sweeps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = np.array(SOURCE.normal(3, 2, (32, 30, 300)), dtype="float64")
    g, h = (np.array(SOURCE.normal(size=x.shape), dtype="float64") for _ in range(2))
    vectors = [np.array(SOURCE.normal(size=30) ** 2, dtype="float64") for _ in range(4)]

    def second(x: Any) -> Any:
        with autograd.record():
            y = npx.batch_norm(x, *vectors, fix_gamma=False)
            (slope,) = autograd.grad((y * g).sum(), [x], create_graph=True)
            z = (slope * h).sum()
        return autograd.grad(z, x)

    x.attach_grad()
    one = second(x).asnumpy()
    monkeypatch.setattr("gemel.ops.variance.ALONG", 10**9)
    two = gemel.compile(second)(x).asnumpy()
    numpy.testing.assert_allclose(one, two, rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("function", [lambda x: x * 2 + 1, np.exp, lambda x: x[1:, :, ::2]])
@pytest.mark.parametrize("axis", [(0, 1, 2), (0, 2), None])
def test_variances_of_what_is_computed(function: Any, axis: Any) -> None:
    x = SOURCE.normal(size=(24, 18, 20, 66)).astype("float32")
    found = gemel.compile(lambda x: np.var(function(x), axis=axis))(np.array(x))
    wanted = function(np.array(x)).asnumpy().astype("float64").var(axis=axis)
    numpy.testing.assert_allclose(found.asnumpy(), wanted, rtol=3e-6)


def test_one_function_of_any_size() -> None:
    """Sizes on both sides of those from which one sweep pays."""
    function = gemel.compile(lambda x: (np.var(x, axis=0), np.std(x, axis=1), x.var()))
    for shape in ((2, 3), (255, 1100), (256, 1100), (257, 1030), (40, 8191), (40, 8192), (1, 9000),
                  (9000, 1), (700, 400)):  # fmt: skip
        x = SOURCE.normal(5, 1, shape).astype("float32")
        exact = x.astype("float64")
        for found, wanted in zip(
            function(np.array(x)), (exact.var(0), exact.std(1), exact.var()), strict=True
        ):
            numpy.testing.assert_allclose(found.asnumpy(), wanted, rtol=3e-6, atol=1e-7)


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

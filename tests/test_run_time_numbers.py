"""Floats passed to compiled functions: inputs, unless the function asks for their values."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy
import pytest

import gemel
from gemel import autograd, np
from gemel.gluon import nn


def test_two_hundred_values_are_one_trace() -> None:
    function = gemel.compile(lambda x, rate: x - rate * x.sum(axis=0))
    x = np.array(numpy.arange(6).reshape(3, 2), dtype="float64")
    values = x.asnumpy()
    for rate in numpy.linspace(-1, 1, 200).tolist():
        expected = values - rate * values.sum(axis=0)
        numpy.testing.assert_allclose(function(x, rate).asnumpy(), expected, rtol=1e-15)
    assert function.traces == 1


#: Functions of an array and a float that only array operations use; exact in float64.
EXACT: dict[str, Callable[[Any, float], Any]] = {
    "x * r": lambda x, r: x * r,
    "x * (r * 0.1)": lambda x, r: x * (r * 0.1),
    "x + r / 3": lambda x, r: x + r / 3,
    "x * (1 - r) ** 2": lambda x, r: x * (1 - r) ** 2,
    "x // r": lambda x, r: x // r,
    "where": lambda x, r: np.where(x > r, x, r),
    "maximum": lambda x, r: np.maximum(x, r * 2),
    "full": lambda x, r: np.full((3, 2), 1.0, dtype="float64") * r + x,
    "x[0] = r": lambda x, r: with_first(x, r),
    "x[0] = [r / 3, 0.1]": lambda x, r: with_first(x, [r / 3, 0.1]),
    "[r]": lambda x, r: x + np.array([r / 3, 0.1], dtype="float64"),
    "x + [r]": lambda x, r: x + [r / 3, 0.1],
    "append": lambda x, r: np.append(x, r / 3),
    "outer": lambda x, r: np.outer(x, [r / 3, 0.1]),
    "einsum": lambda x, r: np.einsum("ij,->ij", x, r / 3),
    "array": lambda x, r: x + np.array(r / 3, dtype="float64"),
    "normal": lambda x, r: x + drawn(np.random.normal, 0, abs(r)),
    "triangular": lambda x, r: x + drawn(np.random.triangular, r, r + 1, r + 2),
    "exponential": lambda x, r: x + drawn(np.random.exponential, abs(r)),
}


def drawn(distribution: Any, *parameters: Any) -> Any:
    """A random number in float64 for each column."""
    return distribution(*parameters, size=(2,), dtype="float64")


def with_first(x: Any, value: Any) -> Any:
    """A copy of x with another first row."""
    x = x * 1
    x[0] = value
    return x


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_same_numbers_as_imperatively(name: str, dtype: str) -> None:
    function = gemel.compile(EXACT[name])
    x = np.array([[0.1, -2.3], [3.7, 0.0], [-0.0, 5.5]], dtype=dtype)
    for rate in (0.1, 0.3, -2.7, 1e-9, 3.0):
        np.random.seed(3)
        wanted = EXACT[name](x, rate)
        np.random.seed(3)
        got = function(x, rate)
        assert got.dtype == wanted.dtype
        numpy.testing.assert_allclose(
            got.asnumpy(), wanted.asnumpy(), rtol=1e-15 if dtype == "float64" else 2e-7
        )
    assert function.traces == 1


#: Functions that ask for the float's value: each answer has its own trace, and the right one runs.
ASKING: dict[str, Callable[[Any, float], Any]] = {
    "branch": lambda x, r: x * 2 if r > 0.5 else x * 3,
    "branch on what is computed": lambda x, r: x * 2 if r * 2 - 1 > 0 else x * 3,
    "bool": lambda x, r: x if r else -x,
    "sqrt": lambda x, r: x * math.sqrt(r),
    "float": lambda x, r: x * float(r),
    "int": lambda x, r: x[: int(r)],
    "range": lambda x, r: sum(x[i] for i in range(1 + int(r))),
    "keyword": lambda x, r: np.full((2,), float(r)) + x.sum(),
    "text": lambda x, r: x * len(f"{float(r):.3f}"),
}


@pytest.mark.parametrize("name", ASKING)
def test_a_value_asked_for_is_held(name: str) -> None:
    function = gemel.compile(ASKING[name])
    x = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    for rate in (1.0, 0.25, 2.0, 1.0, 0.25, 1.5):
        got, wanted = (f(x, rate) for f in (function, ASKING[name]))
        if isinstance(wanted, int):
            wanted = np.array(float(wanted))
        numpy.testing.assert_allclose(got.asnumpy(), wanted.asnumpy(), rtol=1e-6)


def test_traces_for_values_asked_for_are_bounded() -> None:
    function = gemel.compile(lambda x, r: x * math.sqrt(r))
    for number in range(100):
        function(np.ones((2,)), float(number))
    assert sum(map(len, function._programs.values())) <= 64
    assert function(np.ones((2,)), 4.0).tolist() == [2.0, 2.0]


@pytest.mark.parametrize("rate", [0.0, -0.0, math.inf, -math.inf, math.nan, 1e300, 5e-324])
def test_every_float(rate: float) -> None:
    function = gemel.compile(lambda x, r: x * r)
    for number in (1.0, rate, 2.0, rate):
        got = function(np.ones((2,), dtype="float64"), number).asnumpy()
        numpy.testing.assert_array_equal(got, numpy.full(2, number))
        assert (numpy.signbit(got) == numpy.signbit(number)).all()


def test_gradients_through_a_call_with_numbers() -> None:
    function = gemel.compile(lambda x, r, pair: ((x * r) ** 2 * pair["b"]).sum() + (r * x).sum())
    for rate, other in ((0.5, 2.0), (-1.5, 3.0), (0.5, 0.25)):
        x = np.array([1.0, -2.0, 3.0])
        x.attach_grad()
        with autograd.record():
            y = function(x, rate, {"b": other})
        y.backward()
        wanted = 2 * x.asnumpy() * rate**2 * other + rate
        numpy.testing.assert_allclose(x.grad.asnumpy(), wanted, rtol=1e-6)
    assert function.traces == 1


def test_a_block_called_with_a_number() -> None:
    class Scaled(nn.HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            self.dense = nn.Dense(2, in_units=3)

        def forward(self, x: Any, temperature: float) -> Any:
            return self.dense(x) / temperature

    net = Scaled()
    net.initialize()
    x = np.ones((4, 3))
    wanted = [net(x, t).asnumpy() for t in (0.5, 2.0)]
    net.hybridize()
    for found, expected in zip((net(x, t) for t in (0.5, 2.0)), wanted, strict=True):
        numpy.testing.assert_allclose(found.asnumpy(), expected, rtol=1e-6)


def test_integers_and_bools_stay_constants() -> None:
    function = gemel.compile(lambda x, n, flag: x.reshape(n, -1) if flag else x)
    x = np.ones((2, 6))
    assert function(x, 3, True).shape == (3, 4)
    assert function(x, 4, True).shape == (4, 3)
    assert function(x, 4, False).shape == (2, 6)
    assert function(x, 4.0, False).shape == (2, 6)


@pytest.mark.parametrize("make", [np.array, np.asarray])
def test_arrays_made_of_numbers_are_no_numbers(make: Any) -> None:
    """They have a dtype of their own, as outside of compiled functions."""
    x = np.ones(2, dtype="float16")

    def function(x: Any, rate: float) -> Any:
        return x + make(rate)

    assert gemel.compile(function)(x, 0.5).dtype == function(x, 0.5).dtype == "float32"


#: Functions of an array and a number, in which the dtype of arrays decides.
BESIDE: dict[str, Callable[[Any, Any], Any]] = {
    "select": lambda x, n: np.select([x > 1], [x], n),
    "diff": lambda x, n: np.diff(x, prepend=n, append=n),
    "linspace": lambda x, n: np.linspace(x, n, 3),
    "logspace": lambda x, n: np.logspace(x, n, 3, base=n),
    "geomspace": lambda x, n: np.geomspace(x, n, 3),
    "add.outer": lambda x, n: np.add.outer(x, n),
    "inner": lambda x, n: np.inner(n, x),
    "einsum": lambda x, n: np.einsum(",i", n, x),
    "bincount": lambda x, n: np.bincount(np.array([0, 1], dtype="int64"), weights=[n, 1]),
}


@pytest.mark.parametrize("dtype", ["int64", "uint8", "bool", "float64"])
def test_initial_numbers_give_the_dtype_they_give_outside(dtype: str) -> None:
    function = gemel.compile(lambda x, n: (x.sum(initial=n), x.max(initial=n)))
    x = np.array([1, 2, 0]).astype(dtype)
    for number in (2.5, 0.3):
        for found, array in zip(function(x, number), (x.sum, x.max), strict=True):
            wanted = array(initial=number)
            assert found.dtype == wanted.dtype
            assert found.item() == wanted.item()


@pytest.mark.parametrize("name", BESIDE)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_numbers_beside_arrays_give_the_dtype_they_give_outside(name: str, dtype: str) -> None:
    x = np.array([1, 2, 3.5]).astype(dtype)
    found, wanted = gemel.compile(BESIDE[name])(x, 0.3), BESIDE[name](x, 0.3)
    assert found.dtype == wanted.dtype
    numpy.testing.assert_allclose(found.asnumpy(), wanted.asnumpy(), rtol=1e-12)


def test_rows_of_numbers_from_number_arguments_keep_their_digits() -> None:
    function = gemel.compile(lambda n: np.linspace(n, 5, 3, dtype="float64"))
    assert function(0.1).tolist() == np.linspace(0.1, 5, 3, dtype="float64").tolist()

"""Sizes as numbers beside arrays, and functions of numbers only: the same as imperatively."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import gemel
from gemel import np, npx
from gemel.errors import ArgumentError, TraceError
from gemel.extent import Dim

Function = Callable[..., Any]


def outcome(function: Function, *arguments: Any) -> Any:
    """The dtype and value of a call's result, or that the call overflows."""
    try:
        found = function(*arguments)
    except OverflowError:
        return OverflowError
    return found.dtype.name, found.tolist()


def is_the_same(function: Function, x: Any, *sizes: int) -> None:
    """Check that a compiled function agrees with the plain one for arrays of each of these
    lengths, whichever comes first."""
    for order in (sizes, sizes[::-1]):
        compiled = gemel.compile(function)
        for size in order:
            y = np.ones(size)
            assert outcome(compiled, x, y) == outcome(function, x, y)


def written(x: Any, key: Any, value: Any) -> Any:
    x = x.copy()
    x[key] = value
    return x


# --- what a narrow integer does not hold ----------------------------------------------------


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: x + y.shape[0],
        lambda x, y: y.shape[0] - x,
        lambda x, y: x % y.shape[0],
        lambda x, y: x // y.shape[0],
        lambda x, y: x & y.size,
        lambda x, y: x == y.shape[0],
        lambda x, y: x + 250 - y.shape[0],
        lambda x, y: x + (250 - y.shape[0]),
        lambda x, y: np.maximum(x, y.shape[0]),
        lambda x, y: np.where(x > 6, y.shape[0], x),
        lambda x, y: np.add(x, y.shape[0], dtype="uint8"),
        lambda x, y: np.full((2,), y.shape[0], dtype="uint8"),
        lambda x, y: np.full_like(x, y.shape[0]),
        lambda x, y: written(x, slice(1, 2), y.shape[0]),
        lambda x, y: written(x, x > 6, y.shape[0]),
        lambda x, y: np.clip(x, 0, y.shape[0]),
        lambda x, y: np.clip(x, y.shape[0], None),
        lambda x, y: np.clip(x, 250 - y.shape[0], y.shape[0]),
        lambda x, y: x.astype("int8") * (y.shape[0] - 200),
        lambda x, y: x.astype("uint64") + (250 - y.shape[0]),
        lambda x, y: x.astype("int32") * (y.size * 10_000_000),
        lambda x, y: x.astype("int64") * (y.size * 10_000_000),
        lambda x, y: x * 0.5 + y.size * 10_000_000,
    ],
)
def test_a_size_that_an_integer_does_not_hold(function: Function) -> None:
    is_the_same(function, np.array([1, 5, 7, 100], dtype="uint8"), 3, 150, 255, 300)


def test_an_integer_to_the_power_of_a_size() -> None:
    x = np.array([1, 2], dtype="int32")
    function = gemel.compile(lambda x, y: x ** (4 - y.shape[0]))
    assert function(x, np.ones(2)).tolist() == [1, 4]
    with pytest.raises(ArgumentError, match="negative integer powers"):
        function(x, np.ones(5))


@pytest.mark.parametrize("dtype", ["float16", "float32", "int64"])
def test_dtypes_that_hold_every_size_need_no_guard(dtype: str) -> None:
    function = gemel.compile(lambda x: np.clip(x * x.shape[0], 0, x.size))
    for size in (3, 300, 3000):
        x = np.ones(size, dtype=dtype)
        assert function(x).tolist() == [size] * size
    assert function.traces == 1
    ((program,),) = function._programs.values()
    assert not program.guards
    assert len(program.inference()._made) == 1


def test_one_plan_serves_the_sizes_that_an_integer_holds() -> None:
    function = gemel.compile(lambda x: x * x.shape[0])
    for size in (3, 300, 3000):
        assert set(function(np.ones(size, dtype="int32")).tolist()) == {size}
    ((program,),) = function._programs.values()
    assert function.traces == len(program.inference()._made) == 1


# --- functions of numbers alone -------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["uint8", "int32", "float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: x / np.sqrt(y.shape[0]),
        lambda x, y: x * np.sqrt(3),
        lambda x, y: x + np.exp(1.5),
        lambda x, y: x + np.maximum(y.shape[0], 2),
        lambda x, y: x + np.add(True, y.shape[0]),
        lambda x, y: x + np.square(y.shape[0]),
        lambda x, y: x + np.where(True, y.shape[0], 3),
        lambda x, y: x * np.modf(2.5)[0],
        lambda x, y: x * npx.relu(2.5),
        lambda x, y: x * np.round(y.shape[0] / 7),
        lambda x, y: x + float(np.sqrt(y.shape[0])),
        lambda x, y: x + int(np.maximum(y.shape[0], 3)),
        lambda x, y: x if np.greater(y.shape[0], 3) else -x,
        lambda x, y: x[: np.minimum(y.shape[0], 2)],
        lambda x, y: x * y.shape[0] ** 0.5,
        lambda x, y: x + y.shape[0],
    ],
)
def test_functions_of_numbers_give_arrays(function: Function, dtype: str) -> None:
    is_the_same(function, np.array([1, 2, 3], dtype=dtype), 2, 5, 9)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, number: np.add(number, 1) + x,
        lambda x, number: np.subtract(1, number) + x,
        lambda x, number: np.power(number, 2) + x,
        lambda x, number: np.negative(number) + x,
        lambda x, number: np.absolute(number) + x,
        lambda x, number: np.mod(number, 2) + x,
        lambda x, number: np.copy(number) + x,
        lambda x, number: np.divmod(number, 2)[1] + x,
        lambda x, number: (1 - number) ** 2 / 3 // 1 % 5 + x,
        lambda x, number: abs(-number) + +number + x,
        lambda x, number: divmod(number, 2)[1] + divmod(7, number)[0] + x,
        lambda x, number: round(number, 1) + x,
        lambda x, number: x if number == 2.25 else -x,
    ],
)
def test_functions_give_arrays_and_operators_numbers(function: Function) -> None:
    x = np.array([1, 2, 3], dtype="float16")
    for number in (2.25, -1.5):
        assert outcome(gemel.compile(function), x, number) == outcome(function, x, number)


def test_functions_of_numbers_given_at_run_time_give_arrays() -> None:
    x = np.ones(2, dtype="float16")
    function = gemel.compile(lambda x, number: x * np.sqrt(number))
    for number in (4.0, 9.0):
        assert outcome(function, x, number) == ("float32", [number**0.5] * 2)
    assert function.traces == 1


def test_numbers_made_by_operators_adapt_to_arrays() -> None:
    x = np.ones(2, dtype="float16")
    function = gemel.compile(lambda x, number: x * (2 * number - x.shape[0] / 2))
    assert outcome(function, x, 4.0) == ("float16", [7.0, 7.0])


def test_a_scale_that_sizes_decide_takes_no_kernel() -> None:
    function = gemel.compile(lambda x: np.matmul(x, x) / np.sqrt(x.shape[-1]))
    x = np.ones((8, 8))
    function(x)
    assert function.plan_summary(x).startswith("<lambda>: 1 kernel")


# --- values that sizes decide ---------------------------------------------------------------


@pytest.mark.parametrize(
    "function",
    [
        lambda x: np.arange(x.shape[0])[np.arange(x.shape[0]) > 1],
        lambda x: np.nonzero(np.zeros(x.shape) + 1)[0],
        lambda x: np.unique(np.arange(x.shape[0]) // 2),
        lambda x: written(np.zeros_like(x), np.zeros_like(x) > 0, 2),
        lambda x: x * float(np.ones(x.shape[0]).sum()),
    ],
)
def test_values_that_sizes_decide_are_known(function: Function) -> None:
    compiled = gemel.compile(function)
    for size in (3, 5, 3):
        x = np.ones((size, 2))
        assert compiled(x).tolist() == function(x).tolist()


def test_values_that_arguments_decide_are_not_known() -> None:
    with pytest.raises(TraceError):
        gemel.compile(lambda x: np.nonzero(x * x.shape[0])[0])(np.ones(3))


def test_values_that_depend_on_sizes_are_computed_from_numbers() -> None:
    seen: list[Any] = []
    gemel.compile(lambda x: seen.append(np.arange(x.shape[0]).asnumpy()) or x)(np.ones(3))
    assert seen[0].tolist() == [0, 1, 2]
    assert not isinstance(seen[0].shape[0], Dim)

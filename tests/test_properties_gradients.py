"""Gradients of reading and writing by any key, against finite differences in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy_cases import (
    Refused,
    basic_keys,
    examples,
    is_given,
    keys,
    on_gemel,
    outcome,
    view,
    views,
)

import gemel
from gemel import autograd, np

SHAPES = st.lists(st.sampled_from([1, 2, 3, 3]), min_size=1, max_size=3).map(tuple)
Function = Callable[..., Any]


def values(shape: Any, seed: int) -> Any:
    return numpy.random.default_rng(seed).normal(size=shape)


def slopes(function: Function, arrays: list[Any]) -> list[Any]:
    """The derivatives of a function of NumPy arrays, by central differences."""
    found = []
    for place, array in enumerate(arrays):
        slope = numpy.zeros_like(array)
        for spot in numpy.ndindex(array.shape):
            ends = []
            for step in (1e-6, -1e-6):
                moved = [a.copy() for a in arrays]
                moved[place][spot] += step
                ends.append(function(*moved))
            slope[spot] = (ends[0] - ends[1]) / 2e-6
        found.append(slope)
    return found


def gradients(function: Function, arrays: list[Any]) -> list[Any]:
    """The derivatives by backward."""
    given = [np.array(a, dtype="float64") for a in arrays]
    for array in given:
        array.attach_grad()
    with autograd.record():
        total = function(*given)
    total.backward()
    return [array.grad.asnumpy() for array in given]


def check(function: Function, arrays: list[Any], about: Any) -> None:
    expected = slopes(lambda *xs: float(function(*xs)), arrays)
    for found, slope in zip(gradients(function, arrays), expected, strict=True):
        numpy.testing.assert_allclose(found, slope, rtol=1e-5, atol=1e-6, err_msg=str(about))


def weighted(y: Any) -> Any:
    """A scalar to which each element contributes differently, and not linearly."""
    flat = y.reshape(-1)
    factors = numpy.arange(1.0, flat.shape[0] + 1) / (flat.shape[0] + 1)
    return (flat * flat * (factors if isinstance(y, numpy.ndarray) else on_gemel(factors))).sum()


def on_both(x: Any, key: Any) -> Any:
    """The key for a NumPy array, or with gemel arrays in it for a gemel array."""
    return key if isinstance(x, numpy.ndarray) else on_gemel(key)


@examples(20)
@given(st.data())
def test_reading_by_any_key(data: Any) -> None:
    base = values(data.draw(SHAPES), 0)
    steps = data.draw(views(base))
    key = data.draw(keys(view(base, steps).shape))
    part = outcome(lambda: view(base, steps)[key])
    assume(not isinstance(part, Refused) and numpy.size(part))

    def function(x: Any) -> Any:
        return weighted(numpy.asarray(view(x, steps)[key]) if isinstance(x, numpy.ndarray)
                        else view(x, steps)[on_gemel(key)])  # fmt: skip

    check(function, [base], (base.shape, steps, key))


@examples(20)
@given(st.data())
def test_writing_by_any_key(data: Any) -> None:
    """Writes are recorded, through views of computed arrays; the value has a gradient, too.

    Where positions coincide, NumPy keeps the last value, and the other values get no gradient.
    """
    base = values(data.draw(SHAPES), 0)
    steps = data.draw(views(base))
    key = data.draw(keys(view(base, steps).shape))
    part = outcome(lambda: view(base, steps)[key])
    assume(not isinstance(part, Refused) and numpy.size(part))
    kept = [n if data.draw(st.integers(0, 3)) else 1 for n in numpy.shape(part)]
    value = values(kept[data.draw(st.integers(0, len(kept))) :], 1)
    again = data.draw(st.booleans())

    def function(x: Any, value: Any) -> Any:
        y = x * x
        part = view(y, steps)
        part[on_both(x, key)] = value * value
        if again:
            part[on_both(x, key)] *= 3.0
        return weighted(y) + (part * 0.5).sum()

    check(function, [base, value], (base.shape, steps, key, value.shape, again))


def step_of(draw: Any, shape: tuple[int, ...]) -> tuple[str, Any]:
    """One line of a program: what it does, and its key."""
    kind = draw(st.sampled_from(["write", "add", "scale", "swap", "gather", "mask", "view"]))
    if kind == "mask":
        return kind, draw(st.lists(st.booleans(), min_size=shape[0], max_size=shape[0]))
    if kind == "gather":
        place = st.integers(-shape[0], shape[0] - 1)
        return kind, numpy.array(draw(st.lists(place, min_size=1, max_size=4)))
    return kind, draw(basic_keys(shape))


@examples(12)
@given(st.data())
def test_random_programs_that_write(data: Any) -> None:
    """Several writes, reads and views in turn: imperatively, and as a compiled function."""
    shape = data.draw(st.sampled_from([(3,), (2, 3), (3, 2, 2)]))
    program = [step_of(data.draw, shape) for _ in range(data.draw(st.integers(1, 5)))]
    base = values(shape, 0)
    assume(not any(isinstance(outcome(lambda key=key: base[key]), Refused)
                   for kind, key in program if not is_given(key) and kind != "mask"))  # fmt: skip

    def function(x: Any) -> Any:
        y = x * 2.0
        seen = y.T
        total = weighted(x)
        for kind, key in program:
            if kind == "write":
                y[key] = x[key] * x[key]
            elif kind == "add":
                y[key] += x[key]
            elif kind == "scale":
                y[key] *= 0.5
            elif kind == "swap":
                y[::-1] = y * 1.0
            elif kind == "gather":
                total = total + (y[on_both(x, (key,))] * y[on_both(x, (key,))]).sum()
            elif kind == "mask":
                y[on_both(x, (numpy.array(key, bool),))] = x[0]
            else:
                part = y[key]
                total = total + (part * part).sum()
        return total + weighted(seen * 1.0) + (y * y * y).sum()

    check(function, [base], program)
    expected = slopes(lambda x: float(function(x)), [base])[0]
    found = gradients(gemel.compile(function), [base])[0]
    numpy.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6, err_msg=str(program))


PLACES = numpy.array([[0, 2, 0], [1, 1, 2]])
NAMED: dict[str, Function] = {
    "take": lambda np, x, at: np.take(x, at, axis=1),
    "take, flattened": lambda np, x, at: np.take(x, at),
    "take, wrapped": lambda np, x, at: np.take(x, at + 4, axis=1, mode="wrap"),
    "take, clipped": lambda np, x, at: np.take(x, at * 3, axis=0, mode="clip"),
    "take_along_axis": lambda np, x, at: np.take_along_axis(x, at, 1),
    "choose": lambda np, x, at: np.choose(at, [x, x * x, x * 3.0]),
    "compress": lambda np, x, at: np.compress(at[1] > 1, x, axis=1),
    "extract": lambda np, x, at: np.extract(at > 0, x),
    "where": lambda np, x, at: np.where(at > 0, x, x * x),
    "select": lambda np, x, at: np.select([at > 1, at > 0], [x, x * x], 2.0),
    "repeat": lambda np, x, at: np.repeat(x, 3, axis=1),
    "tile": lambda np, x, at: np.tile(x, (2, 1, 2)),
    "diagonal": lambda np, x, at: np.diagonal(x, 1),
    "tril": lambda np, x, at: np.tril(x),
    "roll": lambda np, x, at: np.roll(x, 2, axis=1),
    "sort": lambda np, x, at: np.sort(x, axis=1),
    "delete": lambda np, x, at: np.delete(x, 1, axis=1),
    "insert": lambda np, x, at: np.insert(x, 1, x[:, 0], axis=1),
    "append": lambda np, x, at: np.append(x, x * x, axis=0),
}


@pytest.mark.parametrize("name", NAMED)
def test_functions_that_take_elements(name: str) -> None:
    call = NAMED[name]

    def function(x: Any) -> Any:
        plain = isinstance(x, numpy.ndarray)
        return weighted(call(numpy if plain else np, x, PLACES if plain else on_gemel(PLACES)))

    check(function, [values((2, 3), 3)], name)


def test_put_along_axis() -> None:
    """If several values are put in one place, the last one stays and gets the gradient."""

    def function(x: Any, value: Any) -> Any:
        plain = isinstance(x, numpy.ndarray)
        y = x * x
        (numpy if plain else np).put_along_axis(
            y, PLACES if plain else on_gemel(PLACES), value * 2.0, 1
        )
        return weighted(y)

    check(function, [values((2, 3), 0), values((2, 3), 1)], "put_along_axis")

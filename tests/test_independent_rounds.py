"""Loops without states run in two halves side by side: which ones, their results and their bits."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
from programs import run

import gemel
from gemel import autograd, np, npx
from gemel.passes import optimize
from gemel.runtime.backend import backend_of
from gemel.runtime.image import Loop, Parallel, Step
from gemel.runtime.lower import lowered

ROWS, TAKEN, GIVEN = 70, 50, 60


def body(row: Any, weight: Any) -> Any:
    """A round with a shared factor, and a product that cannot leave the loop."""
    return np.tanh(np.matmul(npx.softmax(row), weight)) + np.matmul(row, row.T).sum()


def rounds(x: Any, weight: Any) -> Any:
    return npx.foreach(lambda row, states: (body(row, weight), states), x, [])[0]


def slowly(x: Any, weight: Any) -> Any:
    def softmax(row: Any) -> Any:
        powers = numpy.exp(row - row.max(-1, keepdims=True))
        return powers / powers.sum(-1, keepdims=True)

    return numpy.stack([numpy.tanh(softmax(row) @ weight) + (row @ row.T).sum() for row in x])


def drawn(length: int, dtype: str = "float64") -> list[Any]:
    chance = numpy.random.default_rng(length)
    shapes = (length, ROWS, TAKEN), (TAKEN, GIVEN)
    return [chance.normal(size=shape).astype(dtype) for shape in shapes]


def items_of(program: Any, *arrays: Any) -> list[Any]:
    graph = optimize(program.graph(*arrays))
    return list(lowered(graph, backend_of(gemel.cpu())).items)


def halves(items: list[Any]) -> list[Loop]:
    """The loops that run side by side."""
    groups = [item for item in items if isinstance(item, Parallel)]
    inside = [item for group in groups for part in group.parts for item in part]
    return [item for item in inside if isinstance(item, Loop)]


def steps(loop: Loop) -> list[Step]:
    return [item for item in loop.items if isinstance(item, Step)]


@pytest.mark.parametrize("length", [4, 5, 7, 16, 33])
def test_halves(length: int) -> None:
    arrays = drawn(length)
    given = [np.array(each, dtype="float64") for each in arrays]
    program = gemel.compile(rounds)
    found = halves(items_of(program, *given))
    assert [loop.rounds for loop in found] == [(length + 1) // 2, length // 2]
    assert not any(isinstance(item, Parallel) for loop in found for item in loop.items)
    for _ in range(2):
        numpy.testing.assert_allclose(program(*given).asnumpy(), slowly(*arrays), rtol=1e-11)


def test_any_length() -> None:
    """One plan serves all lengths, also one round or none in a half."""
    program = gemel.compile(rounds)
    for length in (16, 4, 5, 9, 31, 64):
        arrays = drawn(length)
        given = [np.array(each, dtype="float64") for each in arrays]
        numpy.testing.assert_allclose(program(*given).asnumpy(), slowly(*arrays), rtol=1e-11)


@pytest.mark.parametrize("length", [1, 2, 6, 9])
@pytest.mark.parametrize(("rows", "columns"), [(ROWS, TAKEN), (3, 2)])
def test_gradients(length: int, rows: int, columns: int) -> None:
    """The gradient's loop goes the other way; the sums for the weight make it one after another.
    With a constant weight it is a loop without states, in halves or, with little work, whole.
    """
    x, weight = drawn(length)
    x, weight = x[:, :rows, :columns], np.array(weight[:columns], dtype="float64")
    for constant in (False, True):
        found = []
        for function in (rounds, gemel.compile(rounds)):
            given = [np.array(x, dtype="float64"), weight.copy()]
            for each in given[: 1 if constant else 2]:
                each.attach_grad()
            with autograd.record():
                y = (function(*given) ** 2).sum()
            y.backward()
            found.append([each.grad.asnumpy() for each in given if each.grad is not None])
        for one, other in zip(*found, strict=True):
            numpy.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


def test_panels_of_shared_factors_are_made_once() -> None:
    x = np.array(numpy.ones((8, 1, 512, 300), "float32"))
    weight = np.array(numpy.ones((300, 700), "float32"))

    def function(x: Any, weight: Any) -> Any:
        def step(row: Any, states: Any) -> Any:
            return np.matmul(npx.softmax(row), weight), states

        return npx.foreach(step, x, [])[0]

    items = items_of(gemel.compile(function), x, weight)
    assert len(halves(items)) == 2
    used = [[place for step in steps(loop) for place in step.buffers] for loop in halves(items)]
    packed = [item for item in items if isinstance(item, Step)]
    assert len(packed) == 1
    # Both halves read the panels where the one step before them wrote them.
    assert all(packed[0].buffers[-1] in places for places in used)


def little(x: Any) -> Any:
    return npx.foreach(lambda row, states: (npx.softmax(row), states), x, [])[0]


def carrying(x: Any) -> Any:
    def step(row: Any, sums: Any) -> Any:
        return npx.softmax(row), sums + row

    return npx.foreach(step, x, x[0])[0]


def checking(x: Any) -> Any:
    def step(row: Any, states: Any) -> Any:
        return npx.softmax(row.take((row[0] * 0).astype("int64"), axis=0, mode="raise")), states

    return npx.foreach(step, x, [])[0]


@pytest.mark.parametrize(
    ("function", "shape"),
    [(little, (4, 2, 3)), (carrying, (16, 300, 300)), (checking, (16, 300, 300))],
)
def test_other_loops_stay_whole(function: Any, shape: tuple[int, ...]) -> None:
    """Little work, rounds that need earlier ones, and rounds that may fail."""
    x = np.array(numpy.random.default_rng(0).random(shape))
    program = gemel.compile(function)
    items = items_of(program, x)
    assert any(isinstance(item, Loop) for item in items) and not halves(items)
    numpy.testing.assert_allclose(program(x).asnumpy(), function(x).asnumpy(), rtol=1e-6)


def test_loops_in_loops() -> None:
    """Only the outer loop is divided."""
    chance = numpy.random.default_rng(0)
    x, w = chance.normal(size=(6, 5, 40, 40)), chance.normal(size=(40, 40))

    def function(x: Any, w: Any) -> Any:
        return npx.foreach(lambda rows, states: (rounds(rows, w), states), x, [])[0]

    program, given = gemel.compile(function), [np.array(each, dtype="float64") for each in (x, w)]
    found = halves(items_of(program, *given))
    assert [loop.rounds for loop in found] == [3, 3]
    inside = [item for loop in found for item in loop.items]
    assert any(isinstance(item, Loop) for item in inside)
    assert not any(isinstance(item, Parallel) for item in inside)
    wanted = numpy.stack([slowly(rows, w) for rows in x])
    numpy.testing.assert_allclose(program(*given).asnumpy(), wanted, rtol=1e-11)


PROGRAM = """
import hashlib
import numpy
import gemel
from gemel import np, npx

chance = numpy.random.default_rng(0)
x, w = (np.array(chance.normal(size=s), dtype="float32") for s in ((9, 64, 80), (80, 40)))
def function(x, w):
    def step(row, states):
        return np.matmul(npx.softmax(row), w) + np.matmul(row, row.T).sum(), states
    return npx.foreach(step, x, [])[0]
image, weight = (np.array(chance.normal(size=s), dtype="float32")
                 for s in ((5, 64, 56, 56), (64, 64, 3, 3)))
def convolution(image, weight):
    return npx.convolution(image, weight, kernel=(3, 3), pad=(1, 1), no_bias=True)
bits = hashlib.sha256()
for _ in range(3):
    bits.update(gemel.compile(function)(x, w).asnumpy().tobytes())
    bits.update(gemel.compile(convolution)(image, weight).asnumpy().tobytes())
tell(bits=bits.hexdigest())
"""


def test_bits_do_not_depend_on_threads() -> None:
    bits = {run(PROGRAM, GEMEL_WORKERS=count)["bits"] for count in ("0", "1", "5")}
    assert len(bits) == 1

"""Random programs with views and in-place writes: NumPy's values, and gradients of two orders."""

from __future__ import annotations

import os
import random
from functools import partial
from typing import Any

import numpy
import pytest

import gemel
from gemel import autograd, np

#: How many programs of each length.
PROGRAMS = int(os.environ.get("GEMEL_TEST_PROGRAMS", "6")) * 5
SIDE, SLOTS = 3, 4


class Program:
    """Actions drawn from a seed, the same for NumPy and gemel; `xp` is the namespace in use."""

    def __init__(self, seed: int, length: int, actions: Any = None) -> None:
        own = random.Random(seed)
        self.actions = [
            (
                own.choice(actions or ACTIONS),
                own.randrange(SLOTS),
                own.randrange(SLOTS),
                own.randrange(99),
            )
            for _ in range(length)
        ]

    def __call__(self, xp: Any, x: Any) -> Any:
        """A number computed from a matrix."""
        self.xp = xp
        self.slots = [x * 1, xp.tanh(x), x * x, x + 0.5]
        for action, a, b, n in self.actions:
            getattr(self, action)(a, b, n)
        return sum((value * (i + 1)).sum() for i, value in enumerate(self.slots))

    def compute(self, a: int, b: int, n: int) -> None:
        x, y = self.slots[a], self.slots[b]
        made = (x * y, x + y * 0.5, self.xp.tanh(x), self.xp.sin(x) - y, x * x * 0.25)[n % 5]
        self.slots[a] = self.dense(self.xp.tanh(made))

    def dense(self, made: Any) -> Any:
        """NumPy's results keep their inputs' order, but what shares memory depends on the order."""
        return numpy.ascontiguousarray(made) if self.xp is numpy else made

    def alias(self, a: int, b: int, n: int) -> None:
        x = self.slots[b]
        self.slots[a] = (x, x.T, x[::-1], x[:, ::-1], x.reshape(1, SIDE, SIDE)[0])[n % 5]

    def in_place(self, a: int, b: int, n: int) -> None:
        x, y = self.slots[a], self.slots[b]
        if n % 3 == 0:
            x += y * 0.3
        elif n % 3 == 1:
            x *= self.xp.tanh(y)
        else:
            x -= 0.25

    def part(self, a: int, b: int, n: int) -> None:
        x, y, i = self.slots[a], self.slots[b], n % SIDE
        if n % 5 == 0:
            x[i] = y[:, i] * 0.5
        elif n % 5 == 1:
            x[:, i] *= y[i]
        elif n % 5 == 2:
            x[1:] += x[:-1] * 1
        elif n % 5 == 3:
            x[i, ::2] = 0.75
        else:
            x.T[i][1:] = y[0, :1]

    def flat(self, a: int, b: int, n: int) -> None:
        """Through another shape; what shares memory with it depends on the layout."""
        x = self.slots[a].reshape(SIDE * SIDE)
        x[n % 4 : n % 4 + 4] *= self.slots[b][0, 0]
        self.slots[b] = self.dense(x[1:].reshape(2, 4)[:, 1:].T[:SIDE, :1] + self.slots[b])

    def positions(self, a: int, b: int, n: int) -> None:
        rows = numpy.array([n % SIDE, (n + 1) % SIDE])
        key = rows if self.xp is numpy else np.array(rows)
        self.slots[a][key] = self.slots[b][:2] * 0.5

    def mask(self, a: int, b: int, n: int) -> None:
        x, y = self.slots[a], self.slots[b]
        chosen = numpy.arange(SIDE * SIDE).reshape(SIDE, SIDE) % (2 + n % 3) == 0
        x[chosen if self.xp is numpy else np.array(chosen)] = y[0, 0] * 0.9


ACTIONS = ["compute"] * 3 + ["alias", "in_place", "part"] * 2 + ["flat", "positions", "mask"]


def first(program: Any, x: Any, again: bool = False) -> tuple[Any, Any]:
    """The value, and the gradient."""
    x.attach_grad()
    with autograd.record():
        y = program(np, x)
    if again:
        with autograd.record():
            return y, autograd.grad(y, x, create_graph=True)
    y.backward()
    return y, x.grad


#: Actions that a traced function may contain.
WRITTEN_IN_TRACES = [action for action in ACTIONS if action != "positions"]


def weighted(program: Program, weights: Any, start: Any) -> Any:
    """The weighted sum of the gradient."""
    return (first(program, np.array(start, dtype="float64"))[1].asnumpy() * weights).sum()


#: Lengths of programs; `make slow` runs the longest.
LENGTHS = [4, 12, pytest.param(30, marks=pytest.mark.slow)]


def slope(function: Any, start: Any, direction: Any) -> float:
    ends = [function(start + step * direction) for step in (1e-6, -1e-6)]
    return float((ends[0] - ends[1]) / 2e-6)


@pytest.mark.parametrize("length", LENGTHS)
def test_compiled_programs_are_the_same(length: int) -> None:
    """Writes in a traced function have the same effect as imperative ones."""
    for seed in range(PROGRAMS // 3):
        program = Program(seed + 1000 * length, length, WRITTEN_IN_TRACES)
        draws = numpy.random.default_rng(seed)
        start = draws.random((SIDE, SIDE)) - 0.5
        compiled = gemel.compile(lambda x, program=program: program(np, x))
        found = []
        for call in (program, lambda _, x, call=compiled: call(x)):
            for again in (False, True):
                x = np.array(start, dtype="float64")
                value, gradient = first(call, x, again)
                found.append([value.asnumpy(), gradient.asnumpy()])
            with autograd.record():
                # The gradient of a linear program depends on nothing, so the loss needs x itself.
                turned = (gradient * gradient).sum() + (x * x).sum()
            turned.backward()
            found[-1].append(x.grad.asnumpy())
            assert x.tolist() == start.tolist()
        for imperative, other in zip(found[:2], found[2:], strict=True):
            for a, b in zip(imperative, other, strict=True):
                numpy.testing.assert_allclose(a, b, 1e-10, 1e-12, err_msg=f"seed {seed}")


@pytest.mark.parametrize("length", LENGTHS)
def test_gradients_of_programs(length: int) -> None:
    for seed in range(PROGRAMS):
        program = Program(seed + 1000 * length, length)
        draws = numpy.random.default_rng(seed)
        start, direction, weights = draws.random((3, SIDE, SIDE)) - 0.5
        about = f"seed {seed}"
        wanted = program(numpy, start.copy())
        expected = slope(partial(program, numpy), start, direction)
        found = []
        for _ in range(2):  # first call by call, then as a plan
            value, gradient = first(program, np.array(start, dtype="float64"))
            numpy.testing.assert_allclose(value.item(), wanted, rtol=1e-12, err_msg=about)
            found.append(gradient.asnumpy())
            total = (found[-1] * direction).sum()
            numpy.testing.assert_allclose(total, expected, 1e-5, 1e-7, err_msg=about)
        numpy.testing.assert_allclose(*found, rtol=1e-11, atol=1e-13, err_msg=about)
        x = np.array(start, dtype="float64")
        _, gradient = first(program, x, again=True)
        numpy.testing.assert_allclose(gradient.asnumpy(), found[0], rtol=1e-11, atol=1e-13)
        with autograd.record():
            turned = (gradient * np.array(weights, dtype="float64")).sum()
        turned.backward()
        second = (x.grad.asnumpy() * direction).sum()

        moved = partial(weighted, program, weights)
        expected = slope(moved, start, direction)
        numpy.testing.assert_allclose(second, expected, 1e-4, 1e-6, err_msg=about)

"""Branches and loops with an operation that has no kernel: what has kernels is compiled there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest

import gemel
from gemel import autograd, np, npx


def ranked(x: Any) -> Any:
    """A product, and a sort, which NumPy does."""
    return np.sort(np.dot(x, x.T), axis=1)[:, :3] * x.sum()


def branched(x: Any) -> Any:
    return npx.cond(x.sum() > 0, ranked, lambda v: v[:, :3] * 2.0, x)


def nested(x: Any) -> Any:
    inner = lambda v: npx.cond(v[0, 0] > 0, ranked, lambda u: u[:, :3] - 1.0, v)  # noqa: E731
    return npx.cond(x.sum() > 0, inner, lambda v: v[:, :3] * 2.0, x)


def random_side(x: Any) -> Any:
    side = lambda v: np.sort(npx.dropout(v, p=0.5), axis=1)[:, :3]  # noqa: E731
    return npx.cond(x.sum() > 0, side, lambda v: v[:, :3], x)


def repeated(x: Any) -> Any:
    body = lambda t, v: (None, (t + 1, np.sort(v * 1.5, axis=1)))  # noqa: E731
    start = (np.array(0.0, dtype=x.dtype), x)
    return npx.while_loop(lambda t, v: t < abs(v).sum(), body, start, max_iterations=4)[1][1]


def scripted(x: Any) -> Any:
    while x.sum() * x.sum() < 1000:
        x = np.sort(x * 1.5, axis=1)
    return x


FUNCTIONS = [branched, nested, repeated, scripted]


def both(function: Callable[[Any], Any], x: Any) -> tuple[Any, Any]:
    """A function's result, and its gradient."""
    x.attach_grad()
    with autograd.record():
        y = function(x)
    y.backward(y.detach())
    return y.asnumpy(), x.grad.asnumpy()


@pytest.mark.parametrize("sign", (1, -1))
@pytest.mark.parametrize("dtype", ("float32", "float64", "bfloat16"))
@pytest.mark.parametrize("function", FUNCTIONS)
def test_the_compiled_function_equals_the_imperative_one(
    function: Callable[[Any], Any], dtype: str, sign: int
) -> None:
    compiled = gemel.compile(function, script=True)
    for rows in (4, 5, 4):
        draw = numpy.random.default_rng(rows).uniform(0.5, 2, (rows, 6)) * sign
        x = np.array(draw, dtype=dtype)
        for found, wanted in zip(both(compiled, x), both(function, x), strict=True):
            bound = 0.05 if dtype == "bfloat16" else 1e-5
            numpy.testing.assert_allclose(found, wanted, rtol=bound, atol=bound * abs(wanted).max())


def test_a_side_draws_the_numbers_of_the_imperative_function() -> None:
    x = np.ones((4, 6))
    compiled = gemel.compile(random_side)
    with autograd.train_mode():
        np.random.seed(3)
        wanted = random_side(x).asnumpy()
        np.random.seed(3)
        found = compiled(x).asnumpy()
    assert numpy.array_equal(found, wanted)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_numpy_does_not_compute_the_graphs(
    function: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It computed all operations of a side or step, products too."""
    monkeypatch.setattr("gemel.ops.control.interpret", None)
    compiled = gemel.compile(function, script=True)
    both(compiled, np.ones((5, 6)))

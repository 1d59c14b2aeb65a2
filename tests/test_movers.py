"""Values read at other positions than they are computed at: through views, gathers, picks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest

import gemel
from gemel import autograd, np, npx
from gemel.passes import optimize
from gemel.passes.fuse import fused

SQUARE, COLUMN, ROWS = (4, 4), (4, 1), (1, 2, 4)


def numbers(*shape: int) -> Any:
    return np.array(numpy.random.default_rng(len(shape)).normal(size=shape))


def places(*given: int) -> Any:
    return np.array(numpy.array(given, "int64"))


def raised(a: Any, b: Any) -> tuple[Any, ...]:
    found = np.where(a > 0, a, 1 - a)
    return found, np.maximum(found, b), b * b + found


def deep(a: Any, i: Any) -> Any:
    highest = a.max(axis=1)
    return np.maximum(np.take_along_axis(highest, i, axis=1) * 2, highest)


#: Function, arguments, number of kernels.
CHAINS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], int]] = {
    "turned": (lambda a, b: (a * 2).T + b, (numbers(5, 4), numbers(4, 5)), 1),
    "taken": (lambda a, i: np.take(a * 2, i, axis=0) + 1, (numbers(5, 4), places(3, -1)), 1),
    "picked": (
        lambda a, j: npx.pick(npx.log_softmax(a), j),
        (numbers(*SQUARE), places(3, 0, 1, 1)),
        1,
    ),
    "shifted": (
        lambda a: npx.relu(a)[:, 1:] - npx.relu(a * 2)[:, :-1],
        (numbers(*SQUARE),),
        1,
    ),
    "one element": (lambda a, b: (a + a)[-1, 0] - b, (numbers(*SQUARE), numbers(3)), 1),
    "of a reduction over one": (
        lambda a, i: np.take(a.sum(axis=0, keepdims=True), i, axis=0) * 2,
        (numbers(1, 4), places(0, 0)),
        2,
    ),
    "turned, of a reduction over one": (
        lambda a: np.exp(a.min(axis=0, keepdims=True)[::-1, None]),
        (numbers(1),),
        2,
    ),
    "beside what it reads": (deep, (numbers(*ROWS), places(2).reshape(1, 1)), 3),
    "of one, beside other results": (
        lambda a, i: ((np.tanh(a) * 0.5).T, npx.pick(np.tanh(a).max(axis=0), i)),
        (numbers(3, 1), places(0).reshape(())),
        2,
    ),
    "many times over, by a view": (
        lambda x: npx.pooling(npx.sigmoid(x), (3, 3), pool_type="max", stride=(1, 1)),
        (numbers(1, 1, 9, 9),),
        2,
    ),
    "many times over, by a reader": (
        lambda a, b: np.tanh(a).T + b,
        (numbers(4, 1), numbers(5, 4)),
        2,
    ),
    "many times over, by positions": (
        lambda a, i: np.take(np.tanh(a), i, axis=0) + 1,
        (numbers(1, 4), places(0, 0, 0)),
        2,
    ),
    "of what is read in place, too": (
        lambda a, i: np.take(np.tanh(a), i, axis=0) + np.tanh(a),
        (numbers(4), places(2, 1, 0, 0)),
        2,
    ),
}


@pytest.mark.parametrize("name", CHAINS)
def test_chains(name: str) -> None:
    function, given, count = CHAINS[name]
    program = gemel.compile(function)
    found, expected = program(*given), function(*given)
    for a, b in zip(*(x if type(x) is tuple else (x,) for x in (found, expected)), strict=True):
        numpy.testing.assert_allclose(a.asnumpy(), b.asnumpy(), rtol=1e-12)
    nodes = optimize(program.graph(*given)).walk()
    assert sum(node.op is fused for node in nodes) == count


FAILING: dict[str, Callable[..., Any]] = {
    "nobody reads the place": lambda a, i: np.take(a, i, axis=0)[1:] * 2,
    "nobody reads anything": lambda a, i: np.take(a, i, axis=0)[:0],
    "an axis of one": lambda a, i: np.take(a[:1] * 2, i, axis=0) + 1,
    "turned": lambda a, i: (np.take(a, i, axis=0) * 3).T + 1,
    "taken again": lambda a, i: np.take(np.take(a, i, axis=0) * 2, places(1), axis=0),
}


@pytest.mark.parametrize("name", FAILING)
def test_an_index_out_of_range_fails_what_depends_on_it(name: str) -> None:
    program = gemel.compile(lambda a, i: (FAILING[name](a, i), a + 1))
    lost, kept = program(numbers(*SQUARE), places(9, 0))
    kept.asnumpy()
    with pytest.raises(IndexError, match="take: an index is out of bounds for axis 0"):
        lost.asnumpy()


def test_results_that_run_along_no_empty_loop_are_written() -> None:
    program = gemel.compile(raised)
    for extent in (5, 7, 0):
        a = numbers(4, 4, 1) + extent
        found = program(a, numbers(4, 4, extent))[0]
        numpy.testing.assert_array_equal(found.asnumpy(), raised(a, a)[0].asnumpy())


def test_an_operand_across_that_nobody_needs() -> None:
    x = numbers(17, 17, 1)
    program = gemel.compile(lambda x: x.transpose(1, 0, 2).argmin(axis=-1))
    numpy.testing.assert_array_equal(program(x).asnumpy(), numpy.zeros((17, 17)))


def transposed(x: Any) -> tuple[Any, Any]:
    y = npx.sigmoid(x.transpose(1, 2, 0))
    return y, y - x.mean()


def repeated(x: Any) -> tuple[Any, Any]:
    y = np.tile(x.reshape(2, 4), (2, 1))
    return y, y - x.reshape(2, 4).mean(axis=0, keepdims=True).sum(axis=-1)


@pytest.mark.parametrize("function", [transposed, repeated])
def test_kernels_keep_only_parts_of_their_outputs(function: Any) -> None:
    gradients = []
    for called in (function, gemel.compile(function)):
        x = numbers(2, 2, 2)
        x.attach_grad()
        with autograd.record():
            a, b = called(x)
            loss = (a * a * 0.25 + a).sum() + (b * b * 0.5 + b).sum()
        loss.backward()
        gradients.append(x.grad.asnumpy())
    numpy.testing.assert_allclose(*gradients, rtol=1e-12)

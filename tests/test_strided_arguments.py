"""Compiled functions that write through `reshape`, which is a copy of some strided arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import gemel
from gemel import np
from gemel.gluon import nn


def row_of_all(x: Any) -> Any:
    part = x.reshape(-1)
    part[0] = 9
    return x * 1


def seen_later(x: Any) -> Any:
    part = x.reshape(-1)
    x += 1
    return part * 1


def turned(x: Any) -> Any:
    part = x.T.reshape(-1)
    part[:2] = -5
    return x * 1


def after_a_write(x: Any) -> Any:
    x *= 2
    part = x.reshape(-1)
    part -= 1
    return part + x.reshape(-1)


def split(x: Any) -> Any:
    part = x.reshape(*x.shape, 1)
    part[1] = 7
    return x + 0


FUNCTIONS = [row_of_all, seen_later, turned, after_a_write, split]


def dense() -> Any:
    return np.arange(6.0).reshape(2, 3)


#: Arrays of one shape that lie in memory in different ways.
ARRAYS: dict[str, Callable[[], Any]] = {
    "dense": dense,
    "backwards": lambda: dense()[:, ::-1],
    "upside down": lambda: dense()[::-1],
    "transposed": lambda: np.arange(6.0).reshape(3, 2).T,
    "columns": lambda: np.arange(10.0).reshape(2, 5)[:, 1:4],
    "every other row": lambda: np.arange(12.0).reshape(4, 3)[::2],
}


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("first", ARRAYS)
def test_arrays_of_all_layouts(function: Any, first: str) -> None:
    compiled = gemel.compile(function)
    for name in (first, *ARRAYS, first, *ARRAYS):
        mine, other = ARRAYS[name](), ARRAYS[name]()
        wanted = function(other)
        assert compiled(mine).tolist() == wanted.tolist(), name
        assert mine.tolist() == other.tolist(), name


def test_a_trace_for_each_layout_and_no_more() -> None:
    compiled = gemel.compile(row_of_all)
    for _ in range(3):
        compiled(dense())
        compiled(dense()[:, ::-1])
    assert compiled.traces == 2
    compiled(np.ones((4, 5)))
    assert compiled.traces == 2, "one trace is for dense arrays of any size"


def test_one_trace_where_the_layout_does_not_matter() -> None:
    def function(x: Any, y: Any) -> Any:
        y += x.reshape(-1)
        x[0] = 4
        return x.T.reshape(x.shape) + y.sum()

    compiled = gemel.compile(lambda x: function(x * 2, x[0, 0] * np.ones(6)) + x.reshape(3, 2).T)
    for make in ARRAYS.values():
        compiled(make())
    assert compiled.traces == 1


def test_a_closed_over_array() -> None:
    table, other = dense()[:, ::-1], dense()[:, ::-1]

    def written(into: Any) -> Callable[[Any], Any]:
        def function(x: Any) -> Any:
            part = into.reshape(-1)
            part[0] = 9
            return x + into

        return function

    x = np.ones((2, 3))
    assert gemel.compile(written(table))(x).tolist() == written(other)(x).tolist()
    assert table.tolist() == other.tolist()


def test_a_hybridized_block() -> None:
    net = nn.HybridLambda(row_of_all)
    net.hybridize()
    for make in (dense, ARRAYS["backwards"], dense):
        mine, other = make(), make()
        assert net(mine).tolist() == row_of_all(other).tolist()
        assert mine.tolist() == other.tolist()


def test_with_a_gradient() -> None:
    def weighed(x: Any, w: Any) -> Any:
        part = x.reshape(-1)
        part[0] = 9
        return (x * w).sum()

    compiled = gemel.compile(weighed)
    for make in (dense, ARRAYS["transposed"], dense):
        gradients = []
        for function in (weighed, compiled):
            x, w = make(), np.ones((2, 3))
            w.attach_grad()
            with gemel.autograd.record():
                y = function(x, w)
            y.backward()
            gradients.append(w.grad.tolist())
        assert gradients[0] == gradients[1]

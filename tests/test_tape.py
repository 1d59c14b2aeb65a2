"""The tape: gradients through views, in-place writes, and gradients of gradients."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy
import pytest

import gemel
from gemel import autograd, device, gpu, np, npx
from gemel.errors import GradientError, ShapeError

Function = Callable[..., Any]


def array(values: Any) -> Any:
    return np.array(values, dtype="float64")


def slopes(function: Function, values: list[Any]) -> list[Any]:
    """The gradients by central differences."""
    found = []
    for position, value in enumerate(values):
        slope = numpy.zeros(numpy.shape(value))
        for place in numpy.ndindex(*slope.shape):
            ends = []
            for step in (1e-6, -1e-6):
                moved = [numpy.array(v, "float64") for v in values]
                moved[position][place] += step
                ends.append(function(*map(array, moved)).asnumpy().sum())
            slope[place] = (ends[0] - ends[1]) / 2e-6
        found.append(slope)
    return found


def gradients(function: Function, values: list[Any], times: int = 3) -> list[list[Any]]:
    """The gradients of a first backward, which is not compiled, and of others, which are."""
    arrays = [array(value) for value in values]
    for x in arrays:
        x.attach_grad()
    found = []
    for _ in range(times):
        inputs = [x.copy() for x in arrays]
        with autograd.record():
            y = function(*arrays)
        y.backward()
        found.append([x.grad.asnumpy() for x in arrays])
        for x, before in zip(arrays, inputs, strict=True):
            with autograd.pause():
                x[...] = before
    return found


def check(function: Function, values: list[Any]) -> None:
    expected = slopes(function, values)
    for found in gradients(function, values):
        for g, wanted in zip(found, expected, strict=True):
            numpy.testing.assert_allclose(g, wanted, rtol=1e-6, atol=1e-7)


# --- views and writes -------------------------------------------------------------------------


def written_behind_a_view(a: Any) -> Any:
    b = a * 1
    v = b[0:1]
    b *= 3
    return (v * v).sum()


def written_through_a_view(a: Any) -> Any:
    b = a * 1
    v = b[1:]
    v *= a[0]
    v[1] = a[1] * a[2]
    return (b * b).sum()


def written_through_a_view_of_a_view(a: Any) -> Any:
    b = (a * 2).reshape(1, 3)
    column = b.T[1:]
    column[0] += a[0] * column[1]
    return (b * b).sum() + column.sum()


def a_view_made_before_anything_was_recorded(a: Any) -> Any:
    with autograd.pause():
        b = np.zeros((3,), dtype="float64")
        v = b[::-1]
    b[:] = a * a
    v[0] *= a[0]
    return (v * a).sum()


def the_array_is_gone_but_the_view_stays(a: Any) -> Any:
    with autograd.pause():
        b = np.zeros((3,), dtype="float64")
        v = b[0:2]
    b[:] = a * 3
    del b
    return (v * v).sum()


def a_mask(a: Any) -> Any:
    b = a * 1
    b[a > 1.5] = a[0] * 10
    return (b * b).sum()


def a_mask_of_a_view(a: Any) -> Any:
    b = np.concatenate([a, a * 2])
    v = b[::2]
    v[v > 2] *= a[1]
    return (b * b).sum()


def positions_which_repeat(a: Any) -> Any:
    b = a * 1
    b[np.array([0, 2, 0])] = a * a  # the last one stays
    return (b * a).sum()


def pairs_of_positions(a: Any) -> Any:
    b = np.zeros((2, 2), dtype="float64")
    b[np.array([0, 1]), np.array([1, 0])] = a[:2] * a[1:]
    return (b * b).sum() + b[0, 1]


def a_number_over_everything(a: Any) -> Any:
    b = a * 2
    b[:] = 5.0
    return (b * a).sum()


def a_number_through_a_view(a: Any) -> Any:
    b = a * 2
    b[1:2] = 7
    return (b * b).sum()


def written_over_what_was_saved(a: Any) -> Any:
    b = a * 2
    c = b * b
    b *= b
    b[0] = c[1]
    d = np.tanh(b)
    d += d * d
    return (c * d).sum()


def a_constant_that_was_used(a: Any) -> Any:
    w = np.ones((3,), dtype="float64")
    y = a * w
    w += a
    w[0] = 4.0
    return (y * w).sum()


def row_by_row(a: Any) -> Any:
    b = np.zeros((4, 3), dtype="float64")
    b[0] = a
    for i in range(1, 4):
        b[i] = b[i - 1] * a + i
    return (b * b).mean()


def a_variable_is_overwritten(a: Any) -> Any:
    y = a * a
    a[0] = a[1] * 3
    return (y * a).sum()


def reshaped_and_turned(a: Any) -> Any:
    b = np.concatenate([a, a * a]).reshape(2, 3).T
    b[1:, ::-1] += a[:2].reshape(2, 1)
    flat = b.reshape(-1)  # a copy: its elements lie elsewhere
    flat *= 2
    return (flat * flat).sum() + (b * b * b).sum()


def split_parts(a: Any) -> Any:
    b = np.concatenate([a, a])
    first, second = np.split(b, 2)
    first *= second
    return (b * b).sum()


def more_than_one_key(a: Any) -> Any:
    """Rows and columns in one axis of the view: no key of the base selects these."""
    b = np.concatenate([a, a * 2, a * 3, a * 4]).reshape(2, 6)
    v = b[:, 1:5].reshape(2, 2, 2)[:, :, 0]
    w = b.reshape(4, 3)[1:3].reshape(6)[1:5].reshape(2, 2).T[::-1]
    w *= a[0]
    return (v * v).sum() + (w * a[1]).sum() + (b * b).sum()


def broadcast_and_read(a: Any) -> Any:
    b = a * 1
    wide = np.broadcast_to(b, (2, 3))
    b[1:] *= a[0]
    return (wide * wide).sum()


def steps_and_signs(a: Any) -> Any:
    b = np.concatenate([a, a * a])
    v = b[-1:0:-2]
    v += v[::-1] * a
    return (b * b).sum()


def all_but_floating(a: Any) -> Any:
    count = np.zeros((3,), dtype="int64")
    count[:] = a
    count += 1
    return (a * count).sum()


def mixed_dtypes(a: Any) -> Any:
    b = np.zeros((3,), dtype="float64")
    b[1:] = a[:2] * a[1:]
    b += a.astype("float64") * 2
    return (b * b).sum()


WRITES = [value for name, value in list(globals().items()) if name not in ("gradients", "array")
          and callable(value) and getattr(value, "__code__", None) is not None
          and value.__code__.co_varnames[:1] == ("a",) and value.__code__.co_argcount == 1]


@pytest.mark.parametrize("function", WRITES, ids=lambda f: f.__name__)
def test_views_and_writes(function: Function) -> None:
    assert len(WRITES) > 20
    check(function, [[1.25, 2.1, 3.5]])


def test_the_example_of_the_issue() -> None:
    found = gradients(written_behind_a_view, [[1.0, 2.0]])
    assert [g[0].tolist() for g in found] == [[18, 0]] * 3

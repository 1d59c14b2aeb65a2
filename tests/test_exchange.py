"""What arrays are to NumPy's functions, to pickling and copying, to notebooks."""

from __future__ import annotations

import copy
import operator
import pickle
import weakref
from typing import Any

import numpy
import pytest

import gemel
from gemel import autograd, cpu, np, npx
from gemel.errors import GradientError, TraceError

VALUES = numpy.array([[1.5, -2.0, 0.25], [4.0, 0.5, -1.0]], "float32")


def is_gemel(found: Any) -> bool:
    return isinstance(found, np.ndarray)


def same(found: Any, expected: Any) -> None:
    """gemel arrays (or numbers) with NumPy's values."""
    if isinstance(expected, (tuple, list)):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            same(one, other)
        return
    assert is_gemel(found) or not isinstance(expected, numpy.ndarray)
    numpy.testing.assert_allclose(numpy.asarray(found), expected, rtol=1e-6)


#: Calls of NumPy's functions: gemel has those of the first list, NumPy alone those of the second.
OURS: list[Any] = [
    numpy.exp,
    numpy.negative,
    numpy.sum,
    lambda x: numpy.add(x, 1),
    lambda x: numpy.add(VALUES, x),
    lambda x: numpy.matmul(x, x.T),
    lambda x: numpy.sum(x, axis=1, keepdims=True),
    lambda x: numpy.add.reduce(x),
    lambda x: numpy.maximum.reduce(x, axis=1),
    lambda x: numpy.concatenate([x, x], axis=1),
    lambda x: numpy.stack((x, x)),
    lambda x: numpy.where(x > 0, x, 0),
    lambda x: numpy.reshape(x, (3, 2)),
    lambda x: numpy.split(x, 3, axis=1),
    lambda x: numpy.divmod(x, 2),
    lambda x: numpy.argmax(x, axis=0),
    lambda x: numpy.full_like(x, 3),
    lambda x: numpy.clip(x, -1, 1),
]
NUMPYS: list[Any] = [
    lambda x: numpy.spacing(x),
    lambda x: numpy.add.accumulate(x, axis=1),
    lambda x: numpy.multiply.outer(x, x),
    lambda x: numpy.add(x, 1, dtype="float64"),
    lambda x: numpy.apply_along_axis(lambda row: row * 2, 1, x),
    lambda x: numpy.nanpercentile(x, 50, axis=0),
    lambda x: numpy.linalg.eigvalsh(x @ x.T),
]


@pytest.mark.parametrize("place", range(len(OURS)))
def test_functions_gemel_has(place: int) -> None:
    call, x = OURS[place], np.array(VALUES)
    same(call(x), call(VALUES))
    x.attach_grad()
    with autograd.record():
        found = call(x)
    first = found[0] if isinstance(found, (tuple, list)) else found
    assert first._is_tracked == (first.dtype == "float32" and call is not OURS[16])


@pytest.mark.parametrize("place", range(len(NUMPYS)))
def test_functions_numpy_does(place: int) -> None:
    call = NUMPYS[place]
    same(call(np.array(VALUES)), call(VALUES))


def test_results_gemel_has_no_dtype_for_stay_numpys() -> None:
    found = numpy.array2string(np.array([1.0, 2.0]))
    assert found == "[1. 2.]"
    assert numpy.shape(np.zeros((2, 3))) == (2, 3)
    assert numpy.array_equal(np.array([1, 2]), [1, 2]) is True


def test_results_into_arrays_that_are_given() -> None:
    x, target = np.array(VALUES), np.zeros((2, 3))
    assert numpy.exp(x, out=target) is target
    same(target, numpy.exp(VALUES))
    assert numpy.sum(x, axis=0, out=target[0]) is not None
    same(target[0], VALUES.sum(axis=0))
    quotient, rest = np.zeros((2, 3)), np.zeros((2, 3))
    numpy.divmod(x, 2, out=(quotient, rest))
    same((quotient, rest), numpy.divmod(VALUES, 2))
    theirs = VALUES.copy()
    theirs += x
    assert not is_gemel(theirs)
    numpy.testing.assert_array_equal(theirs, VALUES * 2)
    numpy.exp(x, out=theirs)
    numpy.testing.assert_allclose(theirs, numpy.exp(VALUES), rtol=1e-6)


def test_elements_where_nothing_is_computed_stay() -> None:
    mask = numpy.array([[True, False, True], [False, True, False]])
    target, theirs = np.full((2, 3), 9.0), numpy.full((2, 3), 9.0, "float32")
    numpy.add(np.array(VALUES), 1, where=mask, out=target)
    numpy.add(VALUES, 1, where=mask, out=theirs)
    same(target, theirs)


@pytest.mark.parametrize(
    "write",
    [
        lambda a: numpy.add.at(a, [0, 0], 2),
        lambda a: numpy.copyto(a, 5),
        lambda a: numpy.put(a, [1, 4], [7, 8]),
        lambda a: numpy.putmask(a, VALUES > 0, 3),
        lambda a: numpy.fill_diagonal(a, 6),
    ],
)
def test_functions_that_write_into_their_argument(write: Any) -> None:
    ours, theirs = np.array(VALUES), VALUES.copy()
    write(ours)
    write(theirs)
    same(ours, theirs)


def test_no_gradient_is_lost_in_numpy() -> None:
    x = np.array(VALUES)
    x.attach_grad()
    with autograd.record(), pytest.raises(GradientError, match="done by NumPy here"):
        numpy.apply_over_axes(numpy.sum, x, [0])
    with autograd.record():
        numpy.apply_over_axes(numpy.sum, x.detach(), [0])


@pytest.mark.parametrize(
    "call",
    [
        lambda x: numpy.float64(2) * x,
        lambda x: numpy.sqrt(numpy.float32(3.0)) * x,
        lambda x: VALUES + x,
        lambda x: numpy.exp(x),
        lambda x: numpy.concatenate([x, x]),
    ],
)
def test_numpy_inside_compiled_functions(call: Any) -> None:
    same(gemel.compile(call)(np.array(VALUES)), call(VALUES))


def test_what_numpy_alone_does_cannot_be_traced() -> None:
    with pytest.raises(TraceError, match="needs the value"):
        gemel.compile(lambda x: numpy.apply_over_axes(numpy.sum, x, [0]))(np.array(VALUES))


@pytest.mark.parametrize("name", ["add", "sub", "mul", "truediv", "pow", "lt", "eq"])
def test_numpy_arrays_and_numbers_on_either_side(name: str) -> None:
    theirs, ours = abs(VALUES), np.array(VALUES)
    method = getattr(operator, name)
    same(method(theirs, ours), method(theirs, VALUES))
    with numpy.errstate(invalid="ignore"):
        numpy.testing.assert_allclose(method(ours, theirs).asnumpy(), method(VALUES, theirs), 1e-6)
    found = method(numpy.float64(2.0), ours)
    assert is_gemel(found) and found.dtype in ("float32", "bool"), "numbers are weak"
    same(numpy.ones((2, 2), "float32") @ ours, numpy.ones((2, 2), "float32") @ VALUES)


@pytest.mark.parametrize("function", [np.exp, np.sum, np.where, npx.softmax, np.divmod])
def test_functions_are_copied_and_pickled_as_what_they_are(function: Any) -> None:
    assert copy.copy(function) is copy.deepcopy([function])[0] is function
    assert pickle.loads(pickle.dumps(function)) is function


# --- Python's modules -----------------------------------------------------------------------


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickling(protocol: int) -> None:
    x = np.array(VALUES, device=cpu(1))
    for array in (x, x.T, x[:, 1], x[:0], x.astype("int8")):
        found = pickle.loads(pickle.dumps(array, protocol))
        assert found.dtype is array.dtype and found.device == array.device
        numpy.testing.assert_array_equal(found.asnumpy(), array.asnumpy())


def test_elements_beside_the_pickle() -> None:
    buffers: list[Any] = []
    data = pickle.dumps(np.ones((1000,)), 5, buffer_callback=buffers.append)
    assert len(data) < 500 and [len(b.raw()) for b in buffers] == [4000]
    assert pickle.loads(data, buffers=buffers).sum().item() == 1000


def test_copies_are_apart() -> None:
    x = np.array(VALUES)
    for found in (copy.copy(x), copy.deepcopy(x), copy.deepcopy([x])[0]):
        found += 1
        same(x, VALUES)


def test_arrays_are_keys_by_identity_and_weakly_referenced() -> None:
    x, y = np.ones(2), np.ones(2)
    assert {x: 1, y: 2}[y] == 2 and hash(x) != hash(y)
    seen = weakref.ref(x)
    assert seen() is x
    del x
    assert seen() is None


def test_notebooks_show_what_it_is() -> None:
    shown = np.zeros((2, 3), dtype="int8")._repr_html_()
    assert "2 x 3, int8, cpu(0)" in shown and "[[0 0 0]" in shown
    assert "0-d, float32" in np.array(1.5)._repr_html_()

"""gemel arrays in NumPy's functions, in pickles and copies, and in notebooks."""

from __future__ import annotations

import copy
import gc
import math
import operator
import pickle
import weakref
from typing import Any

import numpy
import pytest

import gemel
from gemel import autograd, cpu, device, gluon, gpu, np, npx
from gemel.errors import GradientError, OperandError, TraceError

VALUES = numpy.array([[1.5, -2.0, 0.25], [4.0, 0.5, -1.0]], "float32")


def is_gemel(found: Any) -> bool:
    return isinstance(found, np.ndarray)


def same(found: Any, expected: Any) -> None:
    """Check for gemel arrays (or numbers) with NumPy's values."""
    if isinstance(expected, (tuple, list)):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            same(one, other)
        return
    assert is_gemel(found) or not isinstance(expected, numpy.ndarray)
    numpy.testing.assert_allclose(numpy.asarray(found), expected, rtol=1e-6)


#: Calls of NumPy's functions that gemel implements; a second list has those only NumPy has.
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
    with autograd.record(), pytest.raises(GradientError, match="computed by NumPy here"):
        numpy.histogram2d(x[0], x[1])
    with autograd.record():
        numpy.histogram2d(x[0].detach(), x[1].detach())


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


def test_functions_only_numpy_has_cannot_be_traced() -> None:
    with pytest.raises(TraceError, match="needs the value"):
        gemel.compile(lambda x: numpy.histogram2d(x[0], x[1]))(np.array(VALUES))


@pytest.mark.parametrize("name", ["add", "sub", "mul", "truediv", "pow", "lt", "eq"])
def test_numpy_arrays_and_numbers_on_either_side(name: str) -> None:
    theirs, ours = abs(VALUES), np.array(VALUES)
    method = getattr(operator, name)
    same(method(theirs, ours), method(theirs, VALUES))
    with numpy.errstate(invalid="ignore"):
        numpy.testing.assert_allclose(method(ours, theirs).asnumpy(), method(VALUES, theirs), 1e-6)
    found = method(numpy.float64(2.0), ours)
    assert is_gemel(found) and found.dtype in ("float32", "bool"), "Python numbers do not promote"
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


def test_nothing_is_converted_unsafely_into_out() -> None:
    """NumPy's rule "same_kind" applies: a conversion must not change the kind of numbers."""
    x, counts = np.array(VALUES), np.zeros((2, 3), dtype="int32")
    refused: list[Any] = [
        lambda: numpy.exp(x, out=counts),
        lambda: numpy.add(x, 1, out=counts),
        lambda: numpy.divmod(x, 2, out=(np.zeros((2, 3)), counts)),
        lambda: numpy.add.reduce(x, axis=None, out=np.zeros((), dtype="int64")),
        lambda: numpy.sum(x, axis=0, out=np.zeros(3, dtype="int8")),
        lambda: numpy.add(counts, counts, out=np.zeros((2, 3), dtype="bool")),
        lambda: numpy.sum(x, axis=0, out=numpy.zeros(3, "int32")),
        lambda: numpy.exp(x, where=x > 0, out=counts),
        lambda: numpy.spacing(x, out=counts),
    ]
    for call in refused:
        with pytest.raises(TypeError, match=r"(?i)cast|cannot be stored in out"):
            call()
    assert counts.tolist() == [[0, 0, 0], [0, 0, 0]]
    numpy.add(x, 0, out=counts, casting="unsafe")
    same(counts, VALUES.astype("int32"))
    half, double = np.zeros((2, 3), dtype="float16"), np.zeros((2, 3), dtype="float64")
    same(numpy.exp(x, out=half).astype("float32"), numpy.exp(VALUES).astype("float16"))
    same(numpy.add(counts, counts, out=double), VALUES.astype("int32") * 2)
    assert numpy.add(True, np.array([True]), out=np.zeros(1)).tolist() == [1]


@pytest.mark.parametrize("ufunc", [numpy.add, numpy.multiply, numpy.maximum, numpy.logical_or])
def test_methods_of_universal_functions(ufunc: Any) -> None:
    x = np.array(VALUES)
    for keywords in ({}, {"axis": 1}, {"axis": None}, {"axis": 0, "keepdims": True}):
        same(ufunc.reduce(x, **keywords), ufunc.reduce(VALUES, **keywords))
    same(ufunc.accumulate(x, axis=1), ufunc.accumulate(VALUES, axis=1))
    same(ufunc.outer(x, x[0]), ufunc.outer(VALUES, VALUES[0]))
    same(ufunc.reduceat(x, [0, 1], axis=1), ufunc.reduceat(VALUES, [0, 1], axis=1))
    if ufunc is not numpy.logical_or:
        ours, theirs = x.copy(), VALUES.copy()
        ufunc.at(ours, ([0, 0], [1, 1]), 3.0)
        ufunc.at(theirs, ([0, 0], [1, 1]), 3.0)
        same(ours, theirs)


def test_together_with_dtypes_gemel_has_no_arrays_of() -> None:
    """NumPy computes the call; its result stays a NumPy array if gemel lacks the dtype."""
    mask, days = np.array([True, False]), numpy.array(["2026-01-01", "2026-01-02"], "M8[D]")
    assert numpy.where(mask, days, days[0]).tolist() == days[[0, 0]].tolist()
    assert numpy.concatenate([np.array([1, 2]), ["a"]]).tolist() == ["1", "2", "a"]
    assert numpy.add(np.array([1, 2]), numpy.array([0.5, 3], dtype=object)).tolist() == [1.5, 5]
    assert numpy.char.add(numpy.array(["a", "b"]), "x")[np.array(1)] == "bx"
    with pytest.raises(TypeError):
        numpy.exp(np.array([1.0]), "no number")


@pytest.mark.parametrize("name", ["iadd", "isub", "imul", "itruediv", "ipow", "imatmul"])
def test_in_place_with_numpy_on_the_left(name: str) -> None:
    ours, theirs = abs(VALUES)[:, :2].copy(), abs(VALUES)[:, :2].copy()
    method, other = getattr(operator, name), numpy.array([[1.5, 2.0], [0.5, 1.0]], "float32")
    found = method(ours, np.array(other))
    assert found is ours, "`out` itself is returned"
    numpy.testing.assert_allclose(found, method(theirs, other), rtol=1e-6)


@pytest.mark.parametrize("kind", ["float16", "float32", "float64", "int64", "uint8", "bool_"])
def test_numpy_scalars_on_the_left(kind: str) -> None:
    number = getattr(numpy, kind)(1)
    for dtype in ("float32", "float64", "int64"):
        x = np.array([1, 2, 3], dtype=dtype)
        for method in (operator.add, operator.mul, operator.truediv, operator.lt, operator.eq):
            found = method(number, x)
            assert is_gemel(found)
            same(found, method(number, numpy.asarray(x)).astype(found.dtype.name))
            assert found.dtype is method(number.item(), x).dtype, "a Python number does not promote"


def test_dtypes_answer_for_numpys() -> None:
    for dtype in (np.float32, np.int8, np.bool_, np.bfloat16):
        twin = numpy.dtype(dtype.twin.name)
        for name in ("char", "str", "num", "type", "isnative", "names", "byteorder", "alignment"):
            assert getattr(dtype, name) == getattr(twin, name)
        assert not hasattr(dtype, "shape") and not hasattr(dtype, "no_such_thing")
    assert copy.deepcopy(np.float32) is pickle.loads(pickle.dumps(np.float32)) is np.float32


def test_functions_that_copy_only_what_they_share() -> None:
    """Before writing, NumPy's functions ask whether `asarray` gave them the array's own memory."""
    x = np.array([1, 2, 3, 4])
    theirs = numpy.asarray(x)
    for share in (numpy.shares_memory, numpy.may_share_memory, np.shares_memory):
        assert share(theirs, x) and share(x, theirs[1:]) and not share(x, theirs.copy())
        assert not share(theirs[:2], x[2:]) and not share(x, [1, 2]) and share(x, x[1:])
    lent = np.from_dlpack(theirs)
    assert np.shares_memory(lent, x) and np.shares_memory(lent[1:], theirs)
    assert not np.shares_memory(x, np.ones(3, dtype="bfloat16"))
    assert sorted(numpy.random.default_rng(0).permutation(x)) == [1, 2, 3, 4]
    assert x.tolist() == [1, 2, 3, 4]


# --- what Python's functions make of arrays -------------------------------------------------


@pytest.mark.parametrize("value", [2.5, -3.5, 7, -1, 0.1])
def test_an_array_without_dimensions_is_like_a_number(value: Any) -> None:
    x = np.array(value, dtype="float64" if isinstance(value, float) else "int64")
    for function in (float, int, bool, complex, math.floor, math.ceil, math.trunc, round, abs):
        assert function(x) == function(value)
    assert round(x, 1).item() == round(value, 1) and is_gemel(round(x, 1))
    assert [part.item() for part in divmod(x, 2)] == list(divmod(value, 2))
    assert [part.item() for part in divmod(100, x)] == pytest.approx(list(divmod(100, value)))
    if isinstance(value, int):
        assert operator.index(x) == value and range(10)[x] == range(10)[value]


def test_round_in_programs() -> None:
    x = np.array([1.26, -2.5, 3.5])
    same(round(x, 1), numpy.array([1.3, -2.5, 3.5], "float32"))
    same(round(x), numpy.array([1, -2, 4], "float32"))
    same(gemel.compile(lambda a: round(a, 1))(x), round(x, 1).asnumpy())
    with pytest.raises(TraceError, match="needs the value"):
        gemel.compile(lambda a: round(a[0]))(x)


def test_more_than_one_element_is_no_number() -> None:
    x = np.array([1.0, 2.0])
    for function in (float, int, complex, operator.index, math.floor):
        with pytest.raises(TypeError):
            function(x)
    for function in (bool, lambda a: a.item()):
        with pytest.raises(ValueError):
            function(x)
    for wrong in (np.array([1]), np.array(1.0), np.array(True)):
        with pytest.raises(TypeError, match="only an integer array without dimensions"):
            operator.index(wrong)
    assert float(np.array([[2.5]])) == 2.5 and bool(np.array([0])) is False
    for function in (len, iter, list):
        with pytest.raises(TypeError, match="0-d"):
            function(np.array(1))


def test_arrays_as_sequences() -> None:
    x = np.array(VALUES)
    first, second = x
    same(first, VALUES[0])
    assert [row.tolist() for row in reversed(x)] == VALUES[::-1].tolist() and len(x) == 2
    assert 4.0 in x and 9.0 not in x and None not in x and "a" not in x
    assert sum(second).item() == VALUES[1].sum() and max(second).item() == 4.0
    assert dict(zip("ab", x, strict=True))["b"].tolist() == VALUES[1].tolist()
    assert sorted(second.tolist()) == [element.item() for element in sorted(second)]


def test_unpickling_on_a_missing_device() -> None:
    device.simulate(1)
    try:
        data = pickle.dumps(np.array(VALUES, device=gpu(0)))
        assert pickle.loads(data).device == gpu(0)
    finally:
        npx.waitall()
        gc.collect()
        device.simulate(0)
    found = pickle.loads(data)
    assert found.device == cpu()
    same(found, VALUES)


def test_buffers_beside_pickles_of_views() -> None:
    x = np.array(VALUES)
    views = [x, x.T, x[::-1, ::2], x[0, 0], x[:0], x.astype("bfloat16"), x.astype("bool")]
    buffers: list[Any] = []
    data = pickle.dumps(views, 5, buffer_callback=buffers.append)
    assert [len(b.raw()) for b in buffers] == [v.size * v.dtype.itemsize for v in views]
    x[...] = 0
    for found, view in zip(pickle.loads(data, buffers=buffers), views, strict=True):
        assert found.dtype is view.dtype and found.shape == view.shape
    same(pickle.loads(data, buffers=buffers)[1], VALUES.T)


def test_copies_know_each_other_and_keep_gradients() -> None:
    x = np.array(VALUES)
    one, same_one, view = copy.deepcopy([x, x, x[0]])
    assert one is same_one and one is not x and not np.shares_memory(one, view)
    x.attach_grad()
    for duplicate in (copy.copy, copy.deepcopy):
        with autograd.record():
            y = duplicate(x) * 3
        y.backward()
        assert x.grad.tolist() == [[3, 3, 3], [3, 3, 3]]
    assert copy.copy(x.T).shape == (3, 2) and copy.copy(np.ones(1, device=cpu(1))).device == cpu(1)


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, pickle.dumps])
def test_trainers_are_not_copied(way: Any) -> None:
    net = gluon.nn.Dense(2, in_units=2)
    net.initialize()
    trainer = gluon.Trainer(net.collect_params(), "adam")
    with pytest.raises(OperandError, match=r"Trainer: it belongs .* save_states"):
        way(trainer)


def test_what_shares_no_capsule_is_refused() -> None:
    class Other:
        def __dlpack__(self, **keywords: Any) -> None: ...

        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

    with pytest.raises(OperandError, match="from_dlpack: __dlpack__ of Other returned NoneType"):
        np.from_dlpack(Other())

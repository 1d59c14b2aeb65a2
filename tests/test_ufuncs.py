"""`reduce`, `accumulate`, `reduceat`, `outer` and `at` of binary functions, against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest

import gemel
from gemel import autograd, np
from gemel.errors import ArgumentError, AxisError, DTypeError, GemelError, ShapeError

NAMES = (
    *("add", "multiply", "subtract", "divide", "maximum", "minimum", "fmax", "fmin", "hypot"),
    *("logaddexp", "logical_and", "logical_or", "logical_xor", "power", "arctan2"),
)
INTEGRAL = ("bitwise_and", "bitwise_or", "bitwise_xor", "add", "multiply", "maximum")
WAYS: dict[str, Callable[..., Any]] = {
    "reduce": lambda f, x: f.reduce(x),
    "reduce keepdims": lambda f, x: f.reduce(x, axis=1, keepdims=True),
    "reduce last": lambda f, x: f.reduce(x, axis=-1),
    "accumulate": lambda f, x: f.accumulate(x, axis=1),
    "reduceat": lambda f, x: f.reduceat(x, [0, 2, 1]),
    "outer": lambda f, x: f.outer(x, x[0]),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", NAMES)
def test_as_numpys(name: str, way: str) -> None:
    x = numpy.random.default_rng(0).uniform(0.5, 2, (3, 4)).astype("float32")
    wanted = WAYS[way](getattr(numpy, name), x)
    found = WAYS[way](getattr(np, name), np.array(x))
    assert found.shape == wanted.shape and found.dtype == wanted.dtype
    numpy.testing.assert_allclose(found.asnumpy(), wanted, rtol=1e-5)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", INTEGRAL)
def test_of_integers(name: str, way: str) -> None:
    x = numpy.random.default_rng(0).integers(0, 9, (3, 4)).astype("int32")
    wanted = WAYS[way](getattr(numpy, name), x)
    found = WAYS[way](getattr(np, name), np.array(x, dtype="int32"))
    assert found.dtype == wanted.dtype
    numpy.testing.assert_array_equal(found.asnumpy(), wanted)


def test_the_keywords_of_reductions() -> None:
    x = np.array([[1.0, 2.0], [3.0, 4.0]])
    assert float(np.add.reduce(x, axis=None)) == 10
    assert np.add.reduce(x, initial=10).tolist() == [14, 16]
    assert np.add.reduce(x, where=x > 1).tolist() == [3, 6]
    assert np.add.reduce(x, dtype="int32").dtype == "int32"
    assert np.fmax.reduce(x, initial=3.5).tolist() == [3.5, 4]
    out = np.zeros(2)
    assert np.maximum.reduce(x, out=out) is out and out.tolist() == [3, 4]
    assert np.fmin.reduce(x, axis=(0, 1)).tolist() == 1


INDICES: tuple[Any, ...] = (
    [0, 0, 2],
    numpy.array([True, False, True]),
    (slice(None), [1, 1]),
    (1, 2),
    (slice(None, None, 2), 0),
    Ellipsis,
    numpy.zeros(0, "int64"),
    numpy.array([0, -1, 0]),
    numpy.array([[0, 1], [-3, 0]], "int8"),
)


@pytest.mark.parametrize("key", INDICES, ids=str)
@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "maximum", "divide"])
def test_at(name: str, key: Any) -> None:
    x = numpy.arange(12, dtype="float32").reshape(3, 4)
    ours = np.array(x)
    getattr(numpy, name).at(x, key, numpy.float32(3))
    getattr(np, name).at(ours, key, 3)
    numpy.testing.assert_allclose(ours.asnumpy(), x, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "float64", "int32", "uint8", "bool"])
@pytest.mark.parametrize("shape", [(2, 2, 4), (4,), (2, 1, 1), ()])
def test_add_at_rows(shape: tuple[int, ...], dtype: str) -> None:
    """Positions along the first axis, which have a kernel of their own; values broadcast."""
    rows = numpy.array([[0, -1], [2, 0]])
    x, value = numpy.arange(12).reshape(3, 4).astype(dtype), numpy.ones(shape).astype(dtype)
    ours = np.array(x)
    numpy.add.at(x, rows, value)
    np.add.at(ours, np.array(rows), np.array(value))
    assert ours.dtype == dtype and numpy.array_equal(ours.asnumpy(), x)


def test_at_a_view_and_of_one_array() -> None:
    x = np.zeros((2, 3))
    np.add.at(x[:, 1], [0, 0], np.array([1.0, 2.0]))
    assert x.tolist() == [[0, 3, 0], [0, 0, 0]]
    np.negative.at(x, (0, [1, 1, 1]))
    assert x[0].tolist() == [0, -3, 0]


def test_gradients_of_at() -> None:
    w, v = np.ones(3), np.array([1.0, 2.0, 3.0])
    w.attach_grad()
    v.attach_grad()
    with autograd.record():
        y = w * 2
        np.add.at(y, np.array([0, 0, 2]), v)
        np.subtract.at(y, [1], v[:1])
        loss = (y * np.array([1.0, 2.0, 3.0])).sum()
    loss.backward()
    assert y.tolist() == [5, 1, 5]
    assert w.grad.tolist() == [2, 4, 6] and v.grad.tolist() == [-1, 1, 3]


@pytest.mark.parametrize("name", ["maximum", "minimum", "fmax", "fmin"])
def test_gradients_of_extremes_at_positions(name: str) -> None:
    """They go to the extremes, in equal shares where several are tied, as those of `max` do."""
    sign = 1 if name.endswith("max") or name == "maximum" else -1

    def program(w: Any, v: Any) -> Any:
        y = w * sign
        getattr(np, name).at(y, np.array([0, 0, 2, 2, 1]), v * sign)
        return y * np.array([1.0, 2.0, 4.0])

    results = []
    for way in (program, gemel.compile(program)):
        w, v = np.array([0.0, 5.0, 3.0]), np.array([1.0, 2.0, 3.0, 3.0, 4.0])
        w.attach_grad()
        v.attach_grad()
        with autograd.record():
            loss = way(w, v).sum()
            (slope,) = autograd.grad(loss, [v], create_graph=True)
        loss.backward()
        results.append([w.grad * sign, v.grad * sign, slope * sign])
    for w_slope, v_slope, slope in results:
        numpy.testing.assert_allclose(w_slope.asnumpy(), [0, 2, 4 / 3], rtol=1e-6)
        for found in (v_slope, slope):
            numpy.testing.assert_allclose(found.asnumpy(), [0, 1, 4 / 3, 4 / 3, 0], rtol=1e-6)


def test_in_a_compiled_function() -> None:
    def program(x: Any, v: Any) -> Any:
        y = x * 1
        np.add.at(y, np.array([1, 1]), v)
        return np.multiply.outer(np.fmax.accumulate(y), np.add.reduce(v.reshape(1, 2)))

    x, v = np.array([1.0, 2.0, 0.0]), np.array([3.0, 4.0])
    assert gemel.compile(program)(x, v).tolist() == program(x, v).tolist()


def test_invalid_combinations_are_refused() -> None:
    x = np.array([1.0, 2.0])
    with pytest.raises(ArgumentError, match="exp"):
        np.exp.reduce(x)
    with pytest.raises(ArgumentError, match="takes 2 arrays, not 1"):
        np.add.at(x, [0])
    with pytest.raises(DTypeError, match="unsafe cast"):
        np.divide.at(np.array([1, 2]), [0], 2)
    with pytest.raises(ShapeError):
        np.add.at(x, [0, 1], np.ones(3))
    with pytest.raises(IndexError):
        np.add.at(x, [5], 1)
        x.wait_to_read()
    with pytest.raises(AxisError):
        np.fmax.reduce(x, axis=1)
    with pytest.raises(ShapeError, match="empty"):
        np.fmax.reduce(np.zeros((0, 2)))
    with pytest.raises(IndexError):
        np.add.reduceat(x, [3]).wait_to_read()


# --- arrays without dimensions, indices that are none ----------------------------------------

COMBINING = ("sum", "prod", "max", "min", "any", "all", "argmax", "argmin", "ptp", "nansum")


@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("name", COMBINING)
def test_the_axis_of_an_array_without_dimensions(name: str, axis: int) -> None:
    wanted = getattr(numpy, name)(numpy.array(3.0), axis=axis)
    x = np.array(3.0)
    assert getattr(np, name)(x, axis=axis).item() == wanted
    assert gemel.compile(lambda x: getattr(np, name)(x, axis=axis))(x).item() == wanted
    with pytest.raises(AxisError):
        getattr(np, name)(x, axis=1)
    with pytest.raises(ShapeError):
        getattr(np, name)(x, axis=(0,))


def test_gradients_and_running_sums_without_dimensions() -> None:
    x = np.array(3.0)
    x.attach_grad()
    with autograd.record():
        loss = np.sum(x, axis=0) * np.max(x, axis=-1) * np.prod(x, axis=0)
    loss.backward()
    assert float(x.grad) == 27
    assert np.cumsum(x, axis=0).tolist() == [3] and np.cumprod(x, axis=-1).tolist() == [3]
    with pytest.raises(AxisError):
        np.flip(x, 0)


@pytest.mark.parametrize("key", [1.5, (0, 1.5), [1.5], 1j, {}, object(), numpy.float32(1), {0}])
def test_invalid_indices_are_index_errors(key: Any) -> None:
    x = np.arange(6).reshape(2, 3)
    for use in (lambda: x[key], lambda: x.__setitem__(key, 0)):
        with pytest.raises(IndexError) as found:
            use().wait_to_read()
        assert isinstance(found.value, GemelError)


def test_argpartition_is_a_method() -> None:
    x = np.array([[3.0, 1.0, 2.0], [9.0, 8.0, 7.0]])
    assert x.argpartition(1)[:, 1].tolist() == [2, 1]
    assert x.argpartition(0, axis=0)[0].tolist() == [0, 0, 0]


def test_the_dtype_of_nanmean() -> None:
    x = np.array([1.5, float("nan"), 2.0])
    assert np.nanmean(x, dtype="float64").dtype == "float64"
    with pytest.raises(DTypeError):
        np.nanmean(x, dtype="int8")
    assert np.nanmean(np.array([1, 4]), dtype="int8").dtype == "int8"


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min"])
def test_a_reduction_of_integers_begins_with_an_integer(name: str) -> None:
    x = numpy.array([[3, -1], [1, 2]], "int16")
    wanted = getattr(numpy, name)(x, axis=0, initial=1.5)
    found = getattr(np, name)(np.array(x), axis=0, initial=1.5)
    assert found.dtype == wanted.dtype and found.tolist() == wanted.tolist()


def test_numbers_and_ranges_are_arrays() -> None:
    assert np.broadcast_to(2.0, (2, 3)).tolist() == [[2, 2, 2]] * 2
    assert np.broadcast_to([1, 2], 2).tolist() == [1, 2]
    assert np.broadcast_to(array=np.ones(2), shape=(2, 2)).shape == (2, 2)
    assert np.sum(range(4)).item() == 6 and np.exp(range(2))[0].item() == 1
    assert np.add(np.ones(3), range(3)).tolist() == [1, 2, 3]
    assert np.argsort(2.0).tolist() == [0] and np.argsort(np.array(3), axis=0).shape == (1,)


def test_ravel_takes_all_orders() -> None:
    x = np.arange(6).reshape(2, 3)
    assert x.flatten("K").tolist() == x.ravel("A").tolist() == [0, 1, 2, 3, 4, 5]
    assert np.ravel(x, "F").tolist() == [0, 3, 1, 4, 2, 5]
    assert np.ravel(x, order="K").tolist() == numpy.ravel(x.asnumpy(), order="K").tolist()


def test_names_numpy_had_and_mxnet_has() -> None:
    x = np.array([[3, 1], [2, 4]])
    assert np.in1d(x, [2, 4]).tolist() == [False, False, True, True]
    assert np.in1d(x, [2, 4], invert=True).tolist() == [True, True, False, False]
    assert np.msort(x).tolist() == [[2, 1], [3, 4]]


@pytest.mark.parametrize("name", ["mean", "var", "std", "median", "average"])
def test_there_is_no_axis_to_count_along_without_dimensions(name: str) -> None:
    for module, x in ((numpy, numpy.array(3.0)), (np, np.array(3.0))):
        with pytest.raises(IndexError):
            getattr(module, name)(x, axis=0)
    assert np.flip(np.array(3.0), ()).item() == 3

"""The first few of each row, in one pass if they are few, against NumPy's stable sort."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

import gemel
from gemel import autograd, np, npx
from gemel.errors import DTypeError, ShapeError, UnknownNameError

DTYPES = [
    "bool", "uint8", "int8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
    "float16", "float32", "float64", "bfloat16",
]  # fmt: skip
#: Shapes, axes, and how many are wanted: few, many, all, also along strided rows.
CASES: list[tuple[tuple[int, ...], int, tuple[int, ...]]] = [
    ((1000,), 0, (1, 5, 32, 33, 400, 1000)),
    ((7, 130), -1, (1, 2, 31, 32, 33, 130)),
    ((130, 7), 0, (1, 5, 32, 40)),
    ((3, 129, 4), 1, (1, 8, 32)),
    ((8000,), 0, (20, 33, 60, 125, 126)),
    ((3, 4500, 2), 1, (17, 33, 70)),
    ((5, 4), 1, (1, 2, 4)),
    ((2, 33), 1, (1, 8)),
    ((1, 1), 1, (1,)),
    ((0, 9), 1, (2,)),
    ((9, 0), 0, (2,)),
]


def rows(shape: tuple[int, ...], dtype: str, seed: int = 0) -> Any:
    """Many equal elements; floating ones include NaN, infinities and both zeros."""
    random = numpy.random.default_rng(seed)
    if dtype == "bool":
        return random.random(shape) > 0.5
    low = 0 if dtype[0] == "u" else -40
    values = random.integers(low, 40, shape).astype("float32" if "float" in dtype else dtype)
    if "float" in dtype and values.size > 20:
        special = [numpy.nan, -numpy.nan, numpy.inf, -numpy.inf, 0.0, -0.0, 0.0]
        values.flat[3:24:3] = special
    return values if dtype == "bfloat16" else values.astype(dtype)


def order(x: Any, axis: int, descending: bool, count: int) -> Any:
    """The positions that come first; equal elements keep their order, and NaN is the largest."""
    if descending:
        last = x.shape[axis] - 1
        back = numpy.argsort(numpy.flip(x, axis), axis=axis, kind="stable")
        found = last - numpy.flip(back, axis)
    else:
        found = numpy.argsort(x, axis=axis, kind="stable")
    return numpy.moveaxis(numpy.moveaxis(found, axis, 0)[:count], 0, axis)


@pytest.mark.parametrize("ascending", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_positions(dtype: str, ascending: bool) -> None:
    for seed, (shape, axis, counts) in enumerate(CASES):
        x = rows(shape, dtype, seed)
        array = np.array(x, dtype=dtype)
        for count in counts:
            found = npx.topk(array, count, axis, is_ascend=ascending)
            wanted = order(x, axis, not ascending, count)
            numpy.testing.assert_array_equal(found.asnumpy(), wanted)
            assert found.dtype == "int64"


@pytest.mark.parametrize("way", ["rising", "falling", "equal"])
@pytest.mark.parametrize("ascending", [False, True])
def test_rows_in_order(way: str, ascending: bool) -> None:
    """Each element is better than all before it, or none is."""
    n = 5000
    x = {"rising": numpy.arange(n), "falling": -numpy.arange(n), "equal": numpy.ones(n)}[way]
    for count in (1, 31, 32, 33, 78):
        found = npx.topk(np.array(x), count, is_ascend=ascending).asnumpy()
        numpy.testing.assert_array_equal(found, order(x, 0, not ascending, count))


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
def test_all_results_and_the_gradient(compiled: bool, axis: int) -> None:
    x = numpy.random.default_rng(0).standard_normal((60, 70))
    places = order(x, axis, True, 5)
    values = numpy.take_along_axis(x, places, axis)
    mask = numpy.zeros_like(x)
    numpy.put_along_axis(mask, places, 1, axis)

    def run(given: Any, **options: Any) -> Any:
        call = lambda v: npx.topk(v, 5, axis, **options)  # noqa: E731
        return (gemel.compile(call) if compiled else call)(given)

    array = np.array(x, dtype="float64")
    assert run(array).tolist() == places.tolist()
    assert run(array * 2, dtype="float32").astype("int64").tolist() == places.tolist()
    numpy.testing.assert_array_equal(run(array, ret_typ="value").asnumpy(), values)
    numpy.testing.assert_array_equal(run(array, ret_typ="mask").asnumpy(), mask)
    both = run(array, ret_typ="both")
    assert both[0].tolist() == values.tolist() and both[1].tolist() == places.tolist()
    array.attach_grad()
    with autograd.record():
        y = (run(array, ret_typ="value") ** 2).sum()
    y.backward()
    numpy.testing.assert_allclose(array.grad.asnumpy(), 2 * x * mask)


def test_one_program_for_many_sizes_and_what_is_not_there_yet() -> None:
    program = gemel.compile(lambda v: npx.topk(v * 2, 3, ret_typ="value"))
    for shape in ((4, 50), (2, 300), (5, 6), (3, 3)):
        x = numpy.random.default_rng(1).standard_normal(shape)
        found = program(np.array(x, dtype="float64")).asnumpy()
        numpy.testing.assert_allclose(found, -numpy.sort(-2 * x, 1)[:, :3])
    y = np.zeros(200_000)
    for _ in range(20):
        y = y + np.arange(200_000)
    assert npx.topk(y.reshape(2, -1)[:, ::-1], 2).tolist() == [[0, 1], [0, 1]]


def test_what_it_refuses() -> None:
    x = np.arange(6.0).reshape(2, 3)
    for k in (4, -1):
        with pytest.raises(ShapeError, match=r"k is -?[14], but axis 1 has 3 elements"):
            npx.topk(x, k)
    assert npx.topk(x, 0).shape == (2, 3)
    with pytest.raises(UnknownNameError, match="ret_typ"):
        npx.topk(x, 1, ret_typ="all")
    with pytest.raises(DTypeError, match="complex"):
        npx.topk(x.astype("complex64"), 1)

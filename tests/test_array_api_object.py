"""The standard's array object: attributes, conversions, operations with numbers, and keys."""

from __future__ import annotations

import operator
from typing import Any

import numpy
import pytest
from array_api_draws import KINDS, arrays, check, elements, numbers
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as drawn
from numpy_cases import examples

import gemel
from gemel import np
from gemel.errors import ArgumentError, DTypeError

# --- attributes -----------------------------------------------------------------------------


@examples(15)
@given(arrays(KINDS["all"]))
def test_attributes(x: Any) -> None:
    own = np.asarray(x)
    assert own.dtype is getattr(np, x.dtype.name)
    assert (own.ndim, own.shape, own.size) == (x.ndim, x.shape, x.size)
    assert type(own.shape) is tuple and {type(n) for n in own.shape} <= {int}
    assert own.device in np.__array_namespace_info__().devices()
    assert own.to_device(own.device) is own
    assert own.to_device(own.device, stream=None) is own
    check(np.from_dlpack(own), x)
    check(np.from_dlpack(own, copy=True, device=own.device), x)
    check(np.from_dlpack(x), x)
    if x.ndim >= 2:
        check(own.mT, numpy.swapaxes(x, -1, -2))
        assert own.mT.shape == (*x.shape[:-2], x.shape[-1], x.shape[-2])


def test_one_axis_is_no_matrix() -> None:
    with pytest.raises(ValueError, match="axis -2"):
        _ = np.ones(3).mT
    with pytest.raises(ValueError, match="matrix"):
        np.matrix_transpose(np.ones(3))


# --- as Python numbers ----------------------------------------------------------------------


@examples(40)
@given(st.data())
def test_as_a_number(data: Any) -> None:
    dtype = data.draw(st.sampled_from(KINDS["all"]))
    value = data.draw(elements(dtype))
    x, own = numpy.asarray(value, dtype), np.asarray(numpy.asarray(value, dtype))
    for kind in (bool, complex) if x.dtype.kind == "c" else (bool, int, float, complex):
        try:
            expected = kind(x)
        except (ValueError, OverflowError) as error:
            with pytest.raises(type(error)):
                kind(own)
            continue
        found = kind(own)
        assert type(found) is type(expected)
        assert found == expected or (found != found and expected != expected)
    if x.dtype.kind in "iu":
        assert operator.index(own) == int(x)
    elif x.dtype.kind != "b":
        with pytest.raises(TypeError):
            operator.index(own)


@pytest.mark.parametrize("shape", [(2,), (0,), (2, 2)])
def test_several_elements_are_no_number(shape: Any) -> None:
    x = np.zeros(shape)
    for convert in (bool, int, float, complex):
        with pytest.raises((ValueError, TypeError)):
            convert(x)
    with pytest.raises(TypeError):
        operator.index(np.zeros(shape, dtype=np.int64))


# --- numbers beside arrays ------------------------------------------------------------------


@pytest.mark.parametrize("dtype", KINDS["all"])
def test_a_number_takes_the_arrays_dtype(dtype: str) -> None:
    own = np.ones(2, dtype=getattr(np, dtype))
    allowed = {"b": (True,), "i": (True, 1), "u": (True, 1), "f": (True, 1, 1.5)}
    for number in allowed.get(own.dtype.kind, (True, 1, 1.5, 1.5j)):
        for found in (own == number, number == own):
            assert found.dtype is np.bool
        if dtype != "bool":
            assert (own + number).dtype is own.dtype
            assert (number * own).dtype is own.dtype
            assert np.where(np.asarray([True, False]), own, number).dtype is own.dtype


@pytest.mark.parametrize("dtype", KINDS["any floating"])
def test_a_complex_number_makes_real_arrays_complex(dtype: str) -> None:
    x = numpy.asarray([1.5, -2.0], dtype)
    for call in (operator.add, operator.sub, operator.mul, operator.truediv, operator.pow):
        check(call(np.asarray(x), 1 - 2j), call(x, 1 - 2j), call)
        check(call(1 - 2j, np.asarray(x)), call(1 - 2j, x), call)
    assert (np.asarray(x) == 1.5 + 0j).tolist() == [True, False]


def test_complex_numbers_keep_their_digits() -> None:
    x = np.zeros(2, dtype=np.complex128)
    x[0], x[1] = 0.1 + 0.3j, 2**70
    assert x.tolist() == [0.1 + 0.3j, 2.0**70]
    assert (x - (0.1 - 0.7j)).tolist() == [n - (0.1 - 0.7j) for n in x.tolist()]


@pytest.mark.parametrize("dtype", KINDS["integer"])
def test_numbers_a_dtype_cannot_hold(dtype: str) -> None:
    own, info = np.ones(2, dtype=getattr(np, dtype)), np.iinfo(getattr(np, dtype))
    for number in (info.max + 1, info.min - 1, 2**70, -(2**70)):
        for call in (operator.add, operator.mul, operator.xor, np.maximum, np.subtract):
            with pytest.raises(OverflowError, match="out of bounds"):
                call(own, number)
        above = number > 0
        for compared in (
            [own < number, own <= number, number > own, own > number, own == number, own != number],
            gemel.compile(lambda x, n=number: [x < n, x <= n, n > x, x > n, x == n, x != n])(own),
        ):
            wanted = [above, above, above, not above, False, True]
            assert [found.tolist() for found in compared] == [[each] * 2 for each in wanted]


@examples(30)
@given(arrays(KINDS["integer"]), st.integers(-(2**66), 2**66), st.sampled_from(["lt", "ge", "eq"]))
def test_comparisons_are_exact(x: Any, number: int, name: str) -> None:
    call = getattr(operator, name)
    expected = numpy.array([call(int(n), number) for n in x.reshape(-1)], bool).reshape(x.shape)
    check(call(np.asarray(x), number), expected)


@pytest.mark.parametrize("number", [2**64, -(2**64)])
def test_arrays_of_one_number_that_no_integer_holds(number: int) -> None:
    for dtype in (np.float64, np.float32, np.complex64, np.bool):
        wanted = [numpy.dtype(dtype.name).type(number)] * 2
        held = np.zeros(2, dtype=dtype)
        assert np.full(2, number, dtype=dtype).tolist() == wanted
        assert np.full_like(held, number).tolist() == wanted
        held[:] = number
        assert held.tolist() == wanted
    for dtype in (np.uint64, np.float64):
        with pytest.raises(OverflowError, match=f"full_like: .*{dtype}"):
            np.full_like(held, 10**400, dtype=dtype)


def test_integers_from_lists_are_no_nan() -> None:
    with pytest.raises(ArgumentError, match="array: int8 cannot hold NaN"):
        np.array([1, float("nan")], dtype=np.int8)


def test_large_whole_numbers() -> None:
    assert np.array([2**63, 1]).dtype is np.uint64
    assert np.array([2**63, 1]).tolist() == [2**63, 1]
    assert np.full(2, 2**63).tolist() == [2**63] * 2
    assert np.arange(0, 2**64, 2**63, dtype=np.uint64).tolist() == [0, 2**63]
    assert np.full(1, 2**64, dtype=np.float64).tolist() == [2.0**64]
    for refused in ([2**64], [-1, 2**63], 2**64, -(2**63) - 1):
        with pytest.raises(OverflowError, match="cannot hold"):
            np.array(refused)
    row = np.asarray([1.5])
    assert (row + 2**64).tolist() == [float(2**64)]
    assert (row < -(2**70)).tolist() == [False]
    unsigned = np.asarray([1], dtype=np.uint64)
    assert gemel.compile(lambda x, n: x + n)(unsigned, 2**63).tolist() == [2**63 + 1]
    assert gemel.compile(lambda x, n: x * n)(row, 2**64).tolist() == [1.5 * 2**64]
    with pytest.raises(OverflowError, match="out of bounds"):
        gemel.compile(lambda x, n: x + n)(unsigned, 2**64)


@pytest.mark.parametrize("name", ["var", "std", "nanvar", "nanstd"])
def test_no_variance_in_whole_numbers(name: str) -> None:
    with pytest.raises(DTypeError, match=rf"{name}: dtype=int32 is not possible"):
        getattr(np, name)(np.arange(3), dtype="int32")
    assert getattr(np, name)(np.arange(3), dtype="float64").dtype is np.float64


def test_a_mean_in_whole_numbers_is_cut_off() -> None:
    found = np.mean(np.arange(4), dtype=numpy.dtype("int32"))
    assert (found.item(), found.dtype) == (1, np.int32)


# --- keys -----------------------------------------------------------------------------------


@st.composite
def keys(draw: Any, shape: tuple[int, ...]) -> Any:
    """Keys that the standard allows: integers, slices, None, one Ellipsis."""
    items = [
        draw(st.one_of(st.integers(-n, n - 1), plain_slices(n)) if n else plain_slices(n))
        for n in shape
    ]
    if draw(st.booleans()):
        place = draw(st.integers(0, len(items)))
        items[place : draw(st.integers(place, len(items)))] = [Ellipsis]
    for _ in range(draw(st.integers(0, 2))):
        items.insert(draw(st.integers(0, len(items))), None)
    return tuple(items) if len(items) != 1 or draw(st.booleans()) else items[0]


def plain_slices(extent: int) -> Any:
    """Slices with bounds inside the axis, forwards and backwards."""
    inside = st.integers(0, extent)
    step = st.sampled_from([1, 2, 3, None])
    forwards = st.builds(lambda a, b, s: slice(min(a, b), max(a, b), s), inside, inside, step)
    last = max(extent - 1, 0)
    low = st.integers(0, last)
    backwards = st.builds(
        lambda a, b, s: slice(max(a, b), min(a, b), -s), low, low, st.integers(1, 3)
    )
    return forwards if extent == 0 else st.one_of(forwards, backwards, st.just(slice(None)))


@examples(40)
@given(arrays(KINDS["all"]), st.data())
def test_getting_and_setting(x: Any, data: Any) -> None:
    key = data.draw(keys(x.shape))
    own = np.asarray(x)
    expected = numpy.asarray(x[key])
    check(own[key], expected, (x, key))
    value = data.draw(
        st.one_of(
            numbers(x.dtype.name),
            arrays(x.dtype.name, expected.shape),
            arrays(x.dtype.name, drawn.array_shapes(min_dims=0, max_dims=0)),
        )
    )
    target = x.copy()
    target[key] = value
    own[key] = np.asarray(value) if isinstance(value, numpy.ndarray) else value
    check(own, target, (x, key, value))


@examples(20)
@given(arrays(KINDS["all"], drawn.array_shapes(min_dims=0, max_dims=0)), st.booleans())
def test_a_mask_of_no_axes(x: Any, mask: bool) -> None:
    own = np.asarray(x)
    check(own[np.asarray(mask)], x[numpy.asarray(mask)])
    own[np.asarray(mask)] = np.asarray(x)
    check(own, x)


def test_keys_that_are_refused() -> None:
    x = np.ones((2, 3))
    for key in ((2, 0), (0, -4), (0, 0, 0), (Ellipsis, Ellipsis)):
        with pytest.raises(IndexError):
            x[key]

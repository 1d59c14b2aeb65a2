"""The standard's functions that create and convert arrays, and those that describe dtypes."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
from array_api_draws import (
    FLOATING,
    INTEGER,
    KINDS,
    SHAPES,
    arrays,
    check,
    elements,
    promotable,
    same,
)
from hypothesis import given
from hypothesis import strategies as st
from numpy_cases import examples

from gemel import np
from gemel.errors import DTypeError

DEFAULTS = np.__array_namespace_info__().default_dtypes()
DTYPES = [*KINDS["all"], None]


def as_default(x: Any) -> Any:
    """What NumPy makes of Python numbers (float64, complex128), in gemel's default dtype."""
    kinds = {"f": "real floating", "c": "complex floating"}
    return x.astype(DEFAULTS[kinds[x.dtype.kind]].name) if x.dtype.kind in kinds else x


# --- creation -------------------------------------------------------------------------------


@examples(15)
@given(st.sampled_from(["zeros", "ones", "empty"]), SHAPES, st.sampled_from(DTYPES))
def test_filled_with_zeros_and_ones(name: str, shape: Any, dtype: Any) -> None:
    found = getattr(np, name)(shape, dtype=dtype and getattr(np, dtype))
    wanted = dtype or DEFAULTS["real floating"].name
    if name == "empty":
        assert (found.shape, found.dtype) == (shape, wanted)
    else:
        check(found, getattr(numpy, name)(shape, wanted))


@examples(15)
@given(st.sampled_from(["zeros_like", "ones_like", "empty_like"]), arrays(KINDS["all"]), st.data())
def test_filled_like(name: str, like: Any, data: Any) -> None:
    dtype = data.draw(st.sampled_from(DTYPES))
    found = getattr(np, name)(np.asarray(like), dtype=dtype and getattr(np, dtype))
    wanted = dtype or like.dtype
    if name == "empty_like":
        assert (found.shape, found.dtype) == (like.shape, wanted)
    else:
        check(found, getattr(numpy, name)(like, wanted))


@examples(20)
@given(SHAPES, st.sampled_from(KINDS["all"]), st.data())
def test_full(shape: Any, dtype: str, data: Any) -> None:
    value = data.draw(elements(dtype))
    check(np.full(shape, value, dtype=getattr(np, dtype)), numpy.full(shape, value, dtype))
    like = data.draw(arrays(dtype, shape))
    check(np.full_like(np.asarray(like), value), numpy.full_like(like, value))


@pytest.mark.parametrize("value", [True, 3, -2, 2.5, float("nan")])
def test_full_of_a_number_has_the_default_dtype(value: Any) -> None:
    check(np.full((2,), value), as_default(numpy.full((2,), value)))
    check(np.asarray(value), as_default(numpy.asarray(value)))
    check(np.asarray([[value]]), as_default(numpy.asarray([[value]])))


@examples(30)
@given(st.integers(-50, 50), st.integers(-50, 50), st.integers(-9, 9).filter(bool), st.data())
def test_arange_of_integers(start: int, stop: int, step: int, data: Any) -> None:
    dtype = data.draw(st.sampled_from([None, "int32", "int64", "float32", "float64"]))
    own = dtype and getattr(np, dtype)
    check(np.arange(start, dtype=own), numpy.arange(start, dtype=dtype))
    check(np.arange(start, stop, step, dtype=own), numpy.arange(start, stop, step, dtype=dtype))


@examples(30)
@given(
    st.floats(-50, 50), st.floats(-50, 50), st.floats(0.5, 9), st.sampled_from([None, *FLOATING])
)
def test_arange_of_floats(start: float, stop: float, step: float, dtype: Any) -> None:
    found = np.arange(start, stop, step, dtype=dtype and getattr(np, dtype))
    expected = numpy.arange(start, stop, step)
    check(found, expected.astype(dtype or DEFAULTS["real floating"].name), tolerance=1e-4)


@examples(30)
@given(st.data())
def test_linspace(data: Any) -> None:
    dtype = data.draw(st.sampled_from([*FLOATING, None]))
    start, stop = (data.draw(st.floats(-1e6, 1e6, width=32)) for _ in range(2))
    num, endpoint = data.draw(st.integers(0, 20)), data.draw(st.booleans())
    found = np.linspace(start, stop, num, dtype=dtype and getattr(np, dtype), endpoint=endpoint)
    wanted = dtype or DEFAULTS["real floating"].name
    check(found, numpy.linspace(start, stop, num, endpoint=endpoint).astype(wanted), tolerance=1e-4)
    if num:
        assert float(found[0]) == numpy.asarray(start, wanted)
    if num > 1 and endpoint:
        assert float(found[-1]) == numpy.asarray(stop, wanted)


@examples(20)
@given(
    st.integers(0, 6), st.integers(0, 6) | st.none(), st.integers(-8, 8), st.sampled_from(DTYPES)
)
def test_eye(rows: int, columns: int | None, k: int, dtype: Any) -> None:
    found = np.eye(rows, columns, k=k, dtype=dtype and getattr(np, dtype))
    check(found, numpy.eye(rows, columns, k, dtype or DEFAULTS["real floating"].name))


@examples(20)
@given(st.data())
def test_triangles(data: Any) -> None:
    shape = (*data.draw(SHAPES)[:2], data.draw(st.integers(0, 4)), data.draw(st.integers(0, 4)))
    x, k = data.draw(arrays(KINDS["all"], shape)), data.draw(st.integers(-6, 6))
    same("tril", x, k=k)
    same("triu", x, k=k)


@examples(15)
@given(st.data())
def test_meshgrid(data: Any) -> None:
    dtype = data.draw(st.sampled_from(KINDS["all"]))
    rows = [
        data.draw(arrays(dtype, (data.draw(st.integers(0, 3)),)))
        for _ in range(data.draw(st.integers(1, 4)))
    ]
    same("meshgrid", *rows, indexing=data.draw(st.sampled_from(["xy", "ij"])))


@examples(40)
@given(st.integers(0, 40), st.sampled_from([0.1, 0.2, 0.3, 0.7, 0.01]), st.integers(-30, 30))
def test_length_of_arange(count: int, step: float, start: int) -> None:
    for stop in (start / 10 + count * step, round(start / 10 + count * step, 10)):
        expected = numpy.arange(start / 10, stop, step)
        assert np.arange(start / 10, stop, step).shape == expected.shape


@pytest.mark.parametrize("ends", [(float("nan"),), (0, float("inf")), (0, 1, 1e-320)])
def test_rows_there_are_not(ends: Any) -> None:
    with pytest.raises(ValueError, match="there are no numbers"):
        np.arange(*ends)
    assert np.arange(numpy.int64(3)).dtype is np.int64


# --- asarray --------------------------------------------------------------------------------


@examples(25)
@given(arrays(KINDS["all"]), st.data())
def test_asarray(x: Any, data: Any) -> None:
    own = np.asarray(x)
    check(own, x)
    assert np.asarray(own) is own
    assert np.asarray(own, copy=False) is own
    assert np.asarray(own, dtype=own.dtype, device=own.device) is own
    copied = np.asarray(own, copy=True)
    assert copied is not own
    check(copied, x)
    to = [b for a, b in promotable(KINDS["all"]) if a == x.dtype and (a, b) in CASTS]
    dtype = data.draw(st.sampled_from(to))
    with numpy.errstate(all="ignore"):
        check(np.asarray(own, dtype=getattr(np, dtype)), x.astype(dtype), (x, dtype))


@examples(25)
@given(st.sampled_from(KINDS["all"]), st.data())
def test_asarray_of_nested_lists(dtype: str, data: Any) -> None:
    x = data.draw(arrays(dtype))
    listed = x.tolist()
    check(np.asarray(listed, dtype=getattr(np, dtype)), numpy.asarray(listed, dtype))


def test_asarray_of_a_buffer() -> None:
    check(np.asarray(memoryview(b"abc")), numpy.frombuffer(b"abc", "uint8"))


def test_asarray_refuses_to_share_what_has_to_be_copied() -> None:
    own = np.ones(3)
    for call in (
        lambda: np.asarray(own, dtype=np.float64, copy=False),
        lambda: np.asarray([1, 2], copy=False),
        lambda: np.asarray(3.0, copy=False),
    ):
        with pytest.raises(ValueError, match="copy=False"):
            call()


def test_a_copy_is_one() -> None:
    own = np.zeros(3)
    copied = np.asarray(own, copy=True)
    own[0] = 1
    assert copied.tolist() == [0, 0, 0]


# --- dtypes ---------------------------------------------------------------------------------


@examples(30)
@given(st.data())
def test_astype(data: Any) -> None:
    source, target = data.draw(st.sampled_from(CASTS))
    x = data.draw(arrays(source, small=True))
    if numpy.dtype(target).kind == "u":
        x = numpy.abs(x) if x.dtype.kind != "b" else x
    own = np.asarray(x)
    check(np.astype(own, getattr(np, target)), x.astype(target))
    assert np.astype(own, own.dtype, copy=False) is own
    assert np.astype(own, own.dtype) is not own
    assert np.astype(own, own.dtype, device=own.device, copy=False) is own


#: Casts that the standard allows: complex numbers only become complex numbers.
CASTS = [
    (a, b)
    for a in KINDS["all"]
    for b in KINDS["all"]
    if numpy.dtype(a).kind != "c" or numpy.dtype(b).kind == "c"
]


@pytest.mark.parametrize(("a", "b"), promotable(KINDS["all"]))
def test_promotion(a: str, b: str) -> None:
    one, two = getattr(np, a), getattr(np, b)
    wanted = numpy.promote_types(a, b)
    assert np.result_type(one, two) == wanted
    assert np.result_type(np.ones((), dtype=one), two) == wanted
    assert np.result_type(np.ones(2, dtype=one), np.ones((), dtype=two)) == wanted
    assert np.can_cast(one, two) == numpy.can_cast(a, b)
    assert np.can_cast(np.ones(2, dtype=one), two) == numpy.can_cast(a, b)


@pytest.mark.parametrize("dtype", KINDS["all"])
def test_promotion_of_numbers(dtype: str) -> None:
    own = getattr(np, dtype)
    kind = own.kind
    for number in (True, 1, 1.0, 1j):
        ranks = {bool: "biufc", int: "iufc", float: "fc", complex: "c"}
        if kind in ranks[type(number)]:
            assert np.result_type(own, number) == dtype
            assert np.result_type(number, np.ones(1, dtype=own)) == dtype


@pytest.mark.parametrize("dtype", [*FLOATING, *KINDS["complex"]])
def test_finfo(dtype: str) -> None:
    found, expected = np.finfo(getattr(np, dtype)), numpy.finfo(dtype)
    for name in ("bits", "eps", "max", "min", "smallest_normal"):
        assert getattr(found, name) == getattr(expected, name), name
        assert type(getattr(found, name)) in (int, float)
    assert found.dtype == expected.dtype
    assert np.finfo(np.ones(1, dtype=getattr(np, dtype))) == found


@pytest.mark.parametrize("dtype", INTEGER)
def test_iinfo(dtype: str) -> None:
    found, expected = np.iinfo(getattr(np, dtype)), numpy.iinfo(dtype)
    assert (found.bits, found.max, found.min) == (expected.bits, expected.max, expected.min)
    assert found.dtype == dtype
    assert np.iinfo(np.ones(1, dtype=getattr(np, dtype))) == found


def test_finfo_and_iinfo_refuse_other_dtypes() -> None:
    with pytest.raises(DTypeError, match="use iinfo"):
        np.finfo(np.int32)
    with pytest.raises(DTypeError, match="use finfo"):
        np.iinfo(np.float32)


@pytest.mark.parametrize("dtype", KINDS["all"])
def test_isdtype(dtype: str) -> None:
    own = getattr(np, dtype)
    kinds = ["bool", "signed integer", "unsigned integer", "integral", "real floating"]
    for kind in [*kinds, "complex floating", "numeric", ("bool", "integral")]:
        assert np.isdtype(own, kind) is numpy.isdtype(numpy.dtype(dtype), kind)
    for other in KINDS["all"]:
        assert np.isdtype(own, getattr(np, other)) is (dtype == other)
        assert (own == getattr(np, other)) is (dtype == other)


# --- inspection -----------------------------------------------------------------------------


def test_the_namespace_describes_itself() -> None:
    info = np.__array_namespace_info__()
    assert np.ones(1).__array_namespace__() is np
    assert np.ones(1).__array_namespace__(api_version="2024.12") is np
    assert np.__array_api_version__ == "2024.12"
    with pytest.raises(ValueError, match=r"2024\.12"):
        np.ones(1).__array_namespace__(api_version="1999.01")
    assert set(info.capabilities()) == {
        "boolean indexing",
        "data-dependent shapes",
        "max dimensions",
    }
    assert np.zeros((1,) * info.capabilities()["max dimensions"]).sum() == 0
    assert info.default_device() == np.zeros(1).device
    assert info.default_device() in info.devices()
    assert list(info.dtypes()) == list(info.dtypes(device=info.default_device()))
    assert set(info.dtypes()) == set(KINDS["all"])
    for kind in ("bool", "integral", "real floating", "numeric", ("bool", "signed integer")):
        wanted = {name for name in KINDS["all"] if numpy.isdtype(numpy.dtype(name), kind)}
        assert set(info.dtypes(kind=kind)) == wanted
    assert DEFAULTS["real floating"] is np.zeros(1).dtype
    assert DEFAULTS["integral"] is np.asarray(1).dtype
    assert DEFAULTS["indexing"] is np.argmax(np.zeros(1)).dtype
    for device in info.devices():
        assert np.zeros(1, device=device).device == device

"""Creation functions, and queries about dtypes and memory, compared with NumPy."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

import gemel
from gemel import np, npx
from gemel.dtype import DTYPES
from gemel.errors import DTypeError, ShapeError, UnknownNameError

CREATED: dict[str, Any] = {
    "tri": lambda np: np.tri(3, 4, 1, dtype="int32"),
    "tri square": lambda np: np.tri(3, k=-1, dtype="float64"),
    "eye": lambda np: np.eye(3, 5, 1, dtype="int64"),
    "eye below": lambda np: np.eye(3, k=-2, dtype=bool),
    "identity": lambda np: np.identity(3, dtype="int32"),
    "arange of bools": lambda np: np.arange(0, 4, 3, dtype=bool),
    "linspace": lambda np: np.linspace(-1, 0.7, 7, dtype="float64"),
    "linspace open": lambda np: np.linspace(2, 5, 4, endpoint=False, dtype="float64"),
    "linspace of integers": lambda np: np.linspace(-3, 3, 5, dtype="int32"),
    "linspace of one": lambda np: np.linspace(4, 5, 1, dtype="float64"),
    "linspace of none": lambda np: np.linspace(4, 5, 0, dtype="float64"),
    "logspace": lambda np: np.logspace(0, 3, 7, dtype="float64"),
    "logspace base": lambda np: np.logspace(0, 3, 4, base=2, endpoint=False, dtype="float64"),
    "geomspace": lambda np: np.geomspace(1, 256, 9, dtype="float64"),
    "geomspace below 0": lambda np: np.geomspace(-1, -1000, 4, dtype="float64"),
    "vander": lambda np: np.vander(np.asarray([1, 2, 3])),
    "vander rising": lambda np: np.vander(np.asarray([2, 3]), 4, increasing=True),
    "fromfunction": lambda np: np.fromfunction(lambda i, j: i * 2 + j, (2, 3), dtype="int64"),
    "frombuffer": lambda np: np.frombuffer(bytes(range(16)), "int32", 2, 4),
    "zeros_like": lambda np: np.zeros_like(np.asarray([1, 2]), shape=(2, 2)),
    "ones_like": lambda np: np.ones_like(np.asarray([[1, 2]]), dtype="float64"),
    "full_like": lambda np: np.full_like(np.asarray([1, 2]), 7),
    "asanyarray": lambda np: np.asanyarray([1, 2]),
    "ascontiguousarray": lambda np: np.ascontiguousarray(np.asarray([[1, 2], [3, 4]]).T),
    "ascontiguousarray of one": lambda np: np.ascontiguousarray(3),
    "ndmin": lambda np: np.array([1, 2], ndmin=3),
}


@pytest.mark.parametrize("name", CREATED)
def test_as_numpy_makes_them(name: str) -> None:
    found, wanted = CREATED[name](np), CREATED[name](numpy)
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    numpy.testing.assert_allclose(found.asnumpy(), wanted, rtol=1e-13)


def test_float32_is_the_default() -> None:
    for found in (
        np.tri(2), np.eye(2), np.identity(2), np.linspace(0, 1), np.logspace(0, 1),
        np.geomspace(1, 2), np.frombuffer(bytes(8)),
    ):  # fmt: skip
        assert found.dtype == "float32"


def test_ends_are_exact() -> None:
    assert np.linspace(0.1, 0.7, 11, dtype="float64")[-1].item() == 0.7
    found, step = np.linspace(0, 1, 5, retstep=True)
    assert step == 0.25 and found.tolist() == [0, 0.25, 0.5, 0.75, 1]


def test_on_a_device() -> None:
    place, x = gemel.cpu(1), np.array([1.0])
    for found in (
        np.tri(2, device=place), np.identity(2, ctx=place), np.logspace(0, 1, device=place),
        np.geomspace(1, 2, ctx=place), np.empty_like(x, device=place),
        np.zeros_like(x, ctx=place), np.ones_like(x, device=place),
        np.full_like(x, 2, device=place), np.frombuffer(bytes(4), ctx=place),
        np.indices((2, 2), device=place), np.eye(2, ctx=place), np.linspace(0, 1, ctx=place),
    ):  # fmt: skip
        assert found.device == place
    assert np.zeros_like(np.ones(2, device=place)).device == place


def test_asarray_copies_when_told() -> None:
    x = np.array([1, 2])
    assert np.asarray(x) is x and np.asarray(x, copy=False) is x
    assert np.asarray(x, copy=True) is not x
    assert np.array(x, copy=False) is x
    for value in ([1, 2], numpy.array([1, 2])):
        with pytest.raises(ValueError, match="copy=False"):
            np.asarray(value, copy=False)
    with pytest.raises(ValueError, match="copy=False"):
        np.asarray(x, dtype="float32", copy=False)


def test_wrong_calls() -> None:
    with pytest.raises(ValueError, match="geomspace"):
        np.geomspace(-1, 1)
    for dtype in ("float16", "float32", "float64", "complex64"):  # floating arrays give their dtype
        ends = np.array(0.1, dtype=dtype), np.array([0.7, 2], dtype=dtype)
        for made in (np.linspace, np.logspace, np.geomspace):
            assert made(*ends, 3).dtype == made(0.1, ends[1], 3).dtype == dtype
    assert np.linspace(np.array(1), 2, 3).dtype == np.linspace(0.1, [1, 2], 3).dtype == "float32"
    exact = np.array(0.1, dtype="float64")
    assert np.linspace(exact, 1, 3)[0].item() == np.arange(exact, 1)[0].item() == 0.1
    with pytest.raises(ShapeError, match="linspace"):
        np.linspace(0, 1, -1)
    with pytest.raises(ShapeError, match="vander"):
        np.vander(np.ones((2, 2)))
    with pytest.raises(ShapeError, match="negative extent"):
        np.tri(-1)


# --- dtypes ---------------------------------------------------------------------------------

#: The dtypes that NumPy has, too.
NAMES = [d.name for d in DTYPES if hasattr(numpy, d.name)]
FLOATS = [n for n in ("float16", "float32", "float64") if n in NAMES]
WHOLE = [n for n in NAMES if "int" in n]


@pytest.mark.parametrize("name", FLOATS)
def test_finfo(name: str) -> None:
    found, wanted = np.finfo(name), numpy.finfo(name)
    for field in ("bits", "eps", "max", "min", "smallest_normal", "smallest_subnormal", "tiny"):
        assert getattr(found, field) == getattr(wanted, field), field
        assert type(getattr(found, field)) in (int, float)
    assert found.precision == wanted.precision
    assert found.resolution == pytest.approx(float(wanted.resolution), rel=1e-3)
    assert found.dtype == name and np.finfo(np.zeros(2, name)) == found


@pytest.mark.parametrize("name", WHOLE)
def test_iinfo(name: str) -> None:
    found, wanted = np.iinfo(name), numpy.iinfo(name)
    assert (found.bits, found.min, found.max) == (wanted.bits, wanted.min, wanted.max)
    assert found.dtype == name and np.iinfo(np.zeros(2, name)) == found


def test_dtype_functions_refuse_invalid_arguments() -> None:
    with pytest.raises(DTypeError, match="use iinfo"):
        np.finfo("int32")
    with pytest.raises(DTypeError, match="use finfo"):
        np.iinfo("float32")
    with pytest.raises(UnknownNameError, match="did you mean 'integral'"):
        np.isdtype("int32", "integrals")
    with pytest.raises(UnknownNameError, match="casting"):
        np.can_cast("int32", "int64", "safely")
    with pytest.raises(TypeError, match="at least one"):
        np.result_type()


@pytest.mark.parametrize("name", NAMES)
def test_kinds(name: str) -> None:
    dtype = numpy.dtype(name)
    for kind in (
        "bool", "signed integer", "unsigned integer", "integral", "real floating",
        "complex floating", "numeric",
    ):  # fmt: skip
        assert np.isdtype(name, kind) is numpy.isdtype(dtype, kind)
    assert np.isdtype(name, ("bool", np.float32)) is numpy.isdtype(dtype, ("bool", numpy.float32))
    for family in (numpy.integer, numpy.floating, numpy.number, numpy.generic, "float32", np.int32):
        plain = getattr(family, "dtype", family) if family is np.int32 else family
        assert np.issubdtype(name, family) == numpy.issubdtype(name, plain)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("casting", ["safe", "same_kind", "equiv", "no", "unsafe"])
def test_can_cast(name: str, casting: Any) -> None:
    for target in NAMES:
        assert np.can_cast(name, target, casting) is numpy.can_cast(name, target, casting), target
    assert np.can_cast(np.zeros(1, name), name)


def test_result_types() -> None:
    x = np.zeros(2, "int32")
    assert np.result_type(x, 2.5) == "float32"
    assert np.result_type("float16", 2.5, True) == "float16"
    assert np.result_type(x, numpy.zeros(2, "int64")) == "int64"
    assert np.result_type(np.uint8, "int8") == np.promote_types("uint8", np.int8)
    assert np.result_type(3) == "int64"
    for a in NAMES:
        for b in NAMES:
            assert np.promote_types(a, b) == np.result_type(np.zeros(1, a), np.zeros(1, b))
            assert np.promote_types(a, b) == (np.zeros(1, a) + np.zeros(1, b)).dtype


def test_isscalar() -> None:
    for value in (1, 2.5, True, 3j, "text", numpy.float32(2), numpy.int64(1), None, [1], ()):
        assert np.isscalar(value) is numpy.isscalar(value)
    assert not np.isscalar(np.array(1)) and not np.isscalar(numpy.array(1))


def test_shared_memory() -> None:
    x, y = np.arange(12).reshape(3, 4), np.zeros((3, 4))
    pairs = (
        (x, x, True, True), (x, y, False, False), (x, x.copy(), False, False),
        (x[0], x[1], False, False), (x[0], x[:, 1], True, True), (x.T, x[1:2], True, True),
        (x.reshape(-1)[::2], x.reshape(-1)[1::2], False, True), (x[:0], x, False, False),
        (x, numpy.zeros(3), False, False),
    )  # fmt: skip
    for a, b, shared, may in pairs:
        assert np.shares_memory(a, b) is shared
        assert np.may_share_memory(a, b) is may


def test_objects_and_lists_of_others():
    table = numpy.array([[1, True, 2.5]], dtype=object)
    assert np.array(table, dtype=np.float32).tolist() == [[1, 1, 2.5]]
    with pytest.raises(DTypeError, match="give the dtype"):
        np.array(table)
    with pytest.raises(DTypeError, match="not all objects can become float32"):
        np.array(numpy.array(["a", None], dtype=object), dtype="float32")
    rows = [numpy.ones(2), numpy.ones(2)]
    assert np.array(rows).dtype == "float64"
    npx.set_np()
    try:  # lists are float32, whatever is in them
        for given in (rows, [numpy.arange(2)], [np.array(1, dtype="int32")], (numpy.int64(3), 1)):
            assert np.array(given).dtype == "float32"
        assert np.array(rows[0]).dtype == "float64" and np.array([True]).dtype == "bool"
    finally:
        npx.reset_np()


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64"])
def test_unsigned_numbers_downwards(dtype: str) -> None:
    """The step is none that the dtype holds; the numbers are."""
    top = numpy.iinfo(dtype).max
    for given in ((7, 1, -2), (top, top - 9, -3), (0, -1, -1), (2.5, 0, -1)):
        wanted = numpy.arange(*given, dtype=dtype) if isinstance(given[0], int) else [2, 1, 0]
        assert np.arange(*given, dtype=dtype).tolist() == list(wanted)
    with pytest.raises(OverflowError):
        np.arange(1, -3, -1, dtype=dtype)

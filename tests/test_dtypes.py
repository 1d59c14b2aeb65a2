"""Dtypes as data: what each is computed in and adds up in, and what follows from that alone."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy
import pytest
from op_table import FLOATING, OPS, on_gemel

import gemel
from gemel import np, npx
from gemel.dtype import DTYPES, DType
from gemel.errors import DTypeError

#: What a dtype is computed in, and what adds up in another one.
COMPUTED = {"float16": "float32"}
ADDED = {
    **dict.fromkeys(("bool", "int8", "int16", "int32"), "int64"),
    **dict.fromkeys(("uint8", "uint16", "uint32"), "uint64"),
    "float16": "float32",
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_a_dtype_carries(dtype: DType) -> None:
    name = dtype.name
    assert dtype.compute == COMPUTED.get(name, name)
    assert dtype.accumulate == ADDED.get(name, name)
    assert dtype.compute.compute is dtype.compute, "what is computed in is computed in itself"
    assert dtype.accumulate.compute is dtype.accumulate
    assert dtype.accumulate.accumulate is dtype.accumulate


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_digits_are_numpy_s(dtype: DType) -> None:
    if dtype.kind == "f":
        assert dtype.digits == numpy.finfo(dtype).nmant + 1
    elif dtype.kind != "b":
        assert 2**dtype.digits - 1 == numpy.iinfo(dtype).max


#: Sums of ones beyond what a small dtype counts to: 2048 in float16, 127 in int8.
ADDING: dict[str, Any] = {
    "sum": lambda x: x.sum(),
    "mean": lambda x: x.mean() * 4096,
    "matmul": lambda x: np.dot(x, x),
    "scatter": lambda x: OPS["scatter"](x, np.zeros(4096, dtype="int64"), axis=0, shape=(1,)),
}


@pytest.mark.parametrize("name", ADDING)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_adds_up_does_so_in_accumulate(name: str, dtype: DType) -> None:
    found = ADDING[name](np.ones(4096, dtype=dtype))
    integer = dtype.name not in FLOATING
    # A product of matrices and what meets in a place is stored in the operands' own dtype.
    expected = (
        numpy.int64(4096).astype(dtype) if integer and name in ("matmul", "scatter") else 4096
    )
    assert found.item() == expected


def test_a_dtype_computed_in_another_has_no_constants() -> None:
    """They are numbers in float64, rounded once."""
    from gemel.codegen.values import Recorder

    for dtype in DTYPES:
        recorder = Recorder()
        recorder.constant(1, dtype)
        names = [step.name for step in recorder.code]
        assert names == (["constant"] if dtype.compute is dtype else ["constant", "cast"])


# --- integers without a sign, and of two bytes ----------------------------------------------

UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
SIGNED = ("int8", "int16", "int32", "int64")
NEW = ("int16", "uint16", "uint32", "uint64")


def extremes(dtype: str) -> Any:
    """Small numbers, and those at both ends of a dtype."""
    limits = numpy.iinfo(dtype)
    ends = [limits.min, limits.min + 1, limits.max - 1, limits.max, limits.max // 2 + 1]
    return numpy.array([*ends, 0, 1, 2, 100], dtype)


@pytest.mark.parametrize("way", ["imperative", "compiled"])
@pytest.mark.parametrize("signed", SIGNED)
@pytest.mark.parametrize("unsigned", UNSIGNED)
def test_comparisons_across_signs_are_exact(unsigned: str, signed: str, way: str) -> None:
    """NumPy's are, though uint64 meets int64 in float64, where many numbers are one."""
    a, b = numpy.meshgrid(extremes(unsigned), extremes(signed))
    for name in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"):
        ours, theirs = getattr(np, name), getattr(numpy, name)
        ours = ours if way == "imperative" else gemel.compile(ours)
        for pair in ((a, b), (b, a)):
            assert ours(*on_gemel(pair)).tolist() == theirs(*pair).tolist(), name


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "argmax", "argmin", "any", "all"])
@pytest.mark.parametrize("dtype", UNSIGNED + SIGNED)
def test_reductions_at_the_ends(dtype: str, name: str) -> None:
    x = numpy.stack([extremes(dtype), extremes(dtype)[::-1]])
    for axis in (None, 0, 1):
        found, expected = getattr(np.array(x), name)(axis=axis), getattr(x, name)(axis=axis)
        assert found.dtype == expected.dtype
        assert found.tolist() == expected.tolist()


def test_sums_of_unsigned_integers_are_uint64() -> None:
    for dtype in UNSIGNED:
        assert np.ones(3, dtype=dtype).sum().dtype == "uint64"
    assert np.array([2**63, 2**62], dtype="uint64").sum().item() == 2**63 + 2**62


@pytest.mark.parametrize("dtype", NEW)
def test_arrays_of_the_new_integers(dtype: str) -> None:
    x = extremes(dtype)
    array = np.array(x)
    assert array.dtype == dtype and array.tolist() == x.tolist()
    assert np.array(x.tolist(), dtype=dtype).tolist() == x.tolist()
    assert [array[i].item() for i in range(len(x))] == x.tolist()
    assert pickle.loads(pickle.dumps(array)).tolist() == x.tolist()
    assert copy.deepcopy(array).dtype == dtype
    assert numpy.from_dlpack(array).dtype == dtype
    assert np.from_dlpack(x).tolist() == x.tolist()
    assert memoryview(array).tolist() == x.tolist()
    assert repr(array).endswith(f"dtype={dtype})")
    assert np.arange(3, 300, 7, dtype=dtype).tolist() == numpy.arange(3, 300, 7, dtype).tolist()
    assert np.eye(2, dtype=dtype).dtype == np.zeros(1, dtype=dtype).dtype == dtype
    drawn = np.random.randint(3, 60_000 if dtype != "int16" else 300, (50,), dtype=dtype)
    assert drawn.dtype == dtype and drawn.min().item() >= 3 and drawn.max().item() < 60_000
    assert np.array(numpy.array([1, 2], numpy.dtype(dtype).newbyteorder())).tolist() == [1, 2]


@pytest.mark.parametrize("dtype", NEW)
def test_files_have_the_new_integers(dtype: str, tmp_path: Any) -> None:
    x = np.array(extremes(dtype))
    npx.save(str(tmp_path / "x.params"), {"x": x})
    found = npx.load(str(tmp_path / "x.params"))["x"]
    assert found.dtype == dtype and found.tolist() == x.tolist()


@pytest.mark.parametrize("dtype", NEW)
def test_positions_of_any_integer_dtype(dtype: str) -> None:
    x = np.arange(5)
    places = numpy.array([4, 0, 3], dtype)
    assert x[np.array(places)].tolist() == x.take(np.array(places)).tolist() == [4, 0, 3]
    y = np.zeros(5)
    y[np.array(places)] = 1
    assert y.tolist() == [1, 0, 0, 1, 1]
    with pytest.raises(IndexError, match="out of bounds"):
        x.take(np.array(numpy.array([numpy.iinfo(dtype).max], dtype))).wait_to_read()


def test_whole_numbers_beyond_int64_are_of_uint64() -> None:
    """As for NumPy; what even uint64 cannot hold is an error."""
    x = np.array([1, 2**63], dtype="uint64")
    assert (x + (2**63 - 1)).tolist() == [2**63, 2**64 - 1]
    assert (x == 2**63).tolist() == (x >= 2**63).tolist() == [False, True]
    assert gemel.compile(lambda v: v + 2**63)(x).tolist() == [2**63 + 1, 0]
    assert np.full((2,), 2**64 - 1).tolist() == [2**64 - 1] * 2
    assert np.full((2,), 2**63, dtype="uint64").dtype == np.array(2**63).dtype == "uint64"
    x[0] = 2**64 - 1
    x[1:] += 2**63 + 4
    assert x.tolist() == [2**64 - 1, 4]
    with pytest.raises(OverflowError, match="uint64 cannot hold"):
        x + 2**64


def test_an_integer_holds_no_floating_result_in_place() -> None:
    """uint64 and a signed integer meet in float64."""
    pairs = [("uint64", "int8"), ("int64", "uint64"), ("int16", "uint64")]
    for a, b in pairs:
        x, y = np.ones(2, dtype=a), np.ones(2, dtype=b)
        with pytest.raises(DTypeError, match=f"in place, {a} cannot hold float64"):
            x += y
        with pytest.raises(DTypeError, match=f"{a} cannot hold float64"):
            gemel.compile(lambda x, y: x.__iadd__(y))(x, y)
        assert x.tolist() == [1, 1]
    x = np.ones(2, dtype="uint32")
    x += np.ones(2, dtype="uint64")
    assert (x.dtype, x.tolist()) == ("uint32", [2, 2])


def test_every_dtype_is_a_target_of_its_own() -> None:
    """Codes of operands and targets do not run into each other in the keys of prepared calls."""
    for target in DTYPES:
        for source in DTYPES:
            x, place = np.full((3,), 3, dtype=source), np.zeros(3, dtype=target)
            place[...] = x
            expected = numpy.full(3, 3).astype(source.name).astype(target.name)
            assert place.dtype is target and place.tolist() == expected.tolist()


def test_what_gemel_has_no_arrays_of_is_refused() -> None:
    for value in (numpy.ones(2, "complex64"), numpy.array(["a"]), numpy.array(1, "M8[s]")):
        with pytest.raises(DTypeError, match="is not a dtype gemel has arrays of"):
            np.array(value)
    assert np.array(numpy.ones(2, numpy.longdouble)).dtype == "float64"

"""Dtypes as data: the dtypes each computes and accumulates in, and what follows from that."""

from __future__ import annotations

import copy
import functools
import pickle
from collections.abc import Callable
from typing import Any

import numpy
import pytest
from op_table import OPS, on_gemel
from test_codegen import RUNNABLE as TARGETS
from test_codegen import apply

import gemel
from gemel import _core, autograd, gluon, np, npx, profiler
from gemel.dtype import DTYPES, DType, as_dtype, bfloat16, float32
from gemel.errors import DTypeError
from gemel.gluon import nn

#: The dtypes that are computed in another dtype, and those that accumulate in another one.
COMPUTED = {"float16": "float32", "bfloat16": "float32"}
ADDED = {
    **dict.fromkeys(("bool", "int8", "int16", "int32"), "int64"),
    **dict.fromkeys(("uint8", "uint16", "uint32"), "uint64"),
    **COMPUTED,
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_attributes_of_a_dtype(dtype: DType) -> None:
    name = dtype.name
    assert dtype.compute == COMPUTED.get(name, name)
    assert dtype.accumulate == ADDED.get(name, name)
    assert dtype.compute.compute is dtype.compute, "a compute dtype computes in itself"
    assert dtype.accumulate.compute is dtype.accumulate
    assert dtype.accumulate.accumulate is dtype.accumulate


def test_names_are_numpy_s() -> None:
    for name in (int, float, bool, complex, "int", "float", "f4", "<f4", "i8", "u1", "?", "double"):
        assert as_dtype(name).name == numpy.dtype(name).name
    for name in ("O", "M8", "f4,f4", "flaot32"):
        with pytest.raises(DTypeError, match="not a dtype"):
            as_dtype(name)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_digits_are_numpy_s(dtype: DType) -> None:
    if dtype.is_inexact:
        kept = 8 if dtype.name == "bfloat16" else numpy.finfo(dtype).nmant + 1
        assert dtype.digits == kept
    elif dtype.kind != "b":
        assert 2**dtype.digits - 1 == numpy.iinfo(dtype).max


def test_the_core_has_the_same_table() -> None:
    for code, dtype in enumerate(DTYPES):
        x = np.zeros(3, dtype=dtype)
        assert dtype.code == x._code == code and x.dtype is dtype
        assert x.itemsize == dtype.itemsize and x.nbytes == 3 * dtype.itemsize
    with pytest.raises(ValueError, match="unknown dtype code"):
        _core.empty((2,), len(DTYPES))


#: Sums of more ones than a small dtype can count: 2048 in float16, 127 in int8.
ADDING: dict[str, Any] = {
    "sum": lambda x: x.sum(),
    "mean": lambda x: x.mean() * 4096,
    "matmul": lambda x: np.dot(x, x),
    "scatter": lambda x: OPS["scatter"](x, np.zeros(4096, dtype="int64"), axis=0, shape=(1,)),
}


@pytest.mark.parametrize("name", ADDING)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_sums_use_the_accumulation_dtype(name: str, dtype: DType) -> None:
    found = ADDING[name](np.ones(4096, dtype=dtype))
    integer = dtype.kind != "f"
    # A matrix product, and a sum in a scatter, is stored in the operands' own dtype.
    expected = (
        numpy.int64(4096).astype(dtype) if integer and name in ("matmul", "scatter") else 4096
    )
    assert found.item() == expected


def test_a_dtype_computed_in_another_has_no_constants() -> None:
    """Its constants are float64 numbers that are rounded once."""
    from gemel.codegen.language.values import Recorder

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
    """Small numbers, and those at both ends of a dtype's range."""
    limits = numpy.iinfo(dtype)
    ends = [limits.min, limits.min + 1, limits.max - 1, limits.max, limits.max // 2 + 1]
    return numpy.array([*ends, 0, 1, 2, 100], dtype)


@pytest.mark.parametrize("way", ["imperative", "compiled"])
@pytest.mark.parametrize("signed", SIGNED)
@pytest.mark.parametrize("unsigned", UNSIGNED)
def test_comparisons_across_signs_are_exact(unsigned: str, signed: str, way: str) -> None:
    """As in NumPy, although uint64 and int64 promote to float64, which merges many numbers."""
    a, b = numpy.meshgrid(extremes(unsigned), extremes(signed))
    for name in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"):
        ours, theirs = getattr(np, name), getattr(numpy, name)
        ours = ours if way == "imperative" else gemel.compile(ours)
        for pair in ((a, b), (b, a)):
            assert ours(*on_gemel(pair)).tolist() == theirs(*pair).tolist(), name


@pytest.mark.parametrize("way", ["imperative", "compiled"])
@pytest.mark.parametrize("dtype", UNSIGNED + SIGNED)
def test_numbers_beyond_a_dtype_compare_as_they_are(dtype: str, way: str) -> None:
    """A number that the dtype cannot hold is below or above every element."""
    x = extremes(dtype)
    numbers = (-(2**40), -200, -129, -128, -1, 0, 1, 127, 128, 255, 256, 300, 70000, 2**31, 2**40)
    for name in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"):
        ours, theirs = getattr(np, name), getattr(numpy, name)
        for n in numbers:
            if way == "imperative":
                found = ours(np.array(x), n), ours(n, np.array(x))
            else:
                found = gemel.compile(lambda v, n=n, f=ours: (f(v, n), f(n, v)))(np.array(x))
            expected = theirs(x, n), theirs(n, x)
            assert [f.tolist() for f in found] == [e.tolist() for e in expected], (name, n)


@pytest.mark.parametrize("way", ["imperative", "compiled"])
@pytest.mark.parametrize("dtype", UNSIGNED + SIGNED)
def test_numbers_beyond_a_dtype_are_no_operands(dtype: str, way: str) -> None:
    """`uint8 + 300` is an error, as in NumPy 2; a number that the dtype can hold is not."""
    limits = numpy.iinfo(dtype)
    x = extremes(dtype)
    calls = [lambda v, n: v + n, lambda v, n: n - v, np.maximum, lambda v, n: np.where(v > 0, v, n)]
    for call in calls:
        for n in (limits.min, limits.max):
            whole = numpy.array(n, dtype)
            run = call if way == "imperative" else gemel.compile(lambda v, n=n, f=call: f(v, n))
            found = run(np.array(x), int(n)) if way == "imperative" else run(np.array(x))
            kind = np.array(whole)
            assert found.dtype == dtype
            assert found.tolist() == call(np.array(x), kind).tolist()
        for n in (limits.min - 1, limits.max + 1):
            run = call if way == "imperative" else gemel.compile(lambda v, n=n, f=call: f(v, n))
            given = (np.array(x), int(n)) if way == "imperative" else (np.array(x),)
            if not -(2**63) <= n < 2**63:
                continue  # beyond 64 bits, or it would become an array of uint64
            with pytest.raises(OverflowError, match=f"{n} is out of bounds for {dtype}"):
                run(*given)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int32"])
def test_bounds_beyond_a_dtype_leave_a_side_open(dtype: str) -> None:
    x = extremes(dtype)
    for low, high in ((-(2**40), 2**40), (-1, 300), (3, 2**33), (-200, 100)):
        assert np.clip(np.array(x), low, high).tolist() == numpy.clip(x, low, high).tolist()


def test_numbers_written_must_fit() -> None:
    x = np.zeros(3, dtype="uint8")
    with pytest.raises(OverflowError, match="300 is out of bounds for uint8"):
        x[...] = 300
    with pytest.raises(OverflowError, match="-1 is out of bounds for uint8"):
        x += -1
    with pytest.raises(OverflowError, match="300 is out of bounds for uint8"):
        np.full((2,), 300, dtype="uint8")
    x[1:] = 255
    x += 1
    assert x.tolist() == [1, 0, 0]
    wide = np.arange(1000)
    assert np.take(wide, np.array([200], dtype="uint8"), mode="clip").tolist() == [200]
    assert np.take(wide, np.array([-1], dtype="int8"), mode="wrap").tolist() == [999]


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
    """As in NumPy; a number that even uint64 cannot hold is an error."""
    x = np.array([1, 2**63], dtype="uint64")
    assert (x + (2**63 - 1)).tolist() == [2**63, 2**64 - 1]
    assert (x == 2**63).tolist() == (x >= 2**63).tolist() == [False, True]
    assert gemel.compile(lambda v: v + 2**63)(x).tolist() == [2**63 + 1, 0]
    assert np.full((2,), 2**64 - 1).tolist() == [2**64 - 1] * 2
    assert np.full((2,), 2**63, dtype="uint64").dtype == np.array(2**63).dtype == "uint64"
    x[0] = 2**64 - 1
    x[1:] += 2**63 + 4
    assert x.tolist() == [2**64 - 1, 4]
    with pytest.raises(OverflowError, match="uint64"):
        x + 2**64


def test_an_integer_holds_no_floating_result_in_place() -> None:
    """uint64 and a signed integer promote to float64."""
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
    """In the keys of prepared calls, codes of operands and targets are not confused."""
    for target in DTYPES:
        for source in DTYPES:
            x, place = np.full((3,), 3, dtype=source), np.zeros(3, dtype=target)
            if source.is_complex and not target.is_complex:
                with pytest.raises(DTypeError, match=f"assign: {target} cannot hold {source}"):
                    place[...] = x
                continue
            place[...] = x
            expected = numpy.full(3, 3).astype(source.twin.name).astype(target.twin.name)
            assert place.dtype is target and place.tolist() == expected.tolist()


def test_dtypes_gemel_has_no_arrays_of_are_refused() -> None:
    for value in (numpy.ones(2, "clongdouble"), numpy.array(["a"]), numpy.array(1, "M8[s]")):
        with pytest.raises(DTypeError, match="is not a dtype of gemel arrays"):
            np.array(value)
    assert np.array(numpy.ones(2, numpy.longdouble)).dtype == "float64"


# --- bfloat16 -------------------------------------------------------------------------------


def rounded(x: Any) -> Any:
    """Numbers rounded to bfloat16 (to nearest, ties to even), as float32."""
    x = numpy.asarray(x)
    wide = x.astype("float64")
    with numpy.errstate(all="ignore"):
        exponent = numpy.maximum(numpy.frexp(wide)[1] - 8, -133)
        kept = numpy.ldexp(numpy.rint(numpy.ldexp(wide, -exponent)), exponent)
    kept = numpy.where(numpy.isfinite(wide), kept, wide)
    return numpy.where(numpy.abs(kept) >= 2.0**128, numpy.copysign(numpy.inf, kept), kept).astype(
        "float32"
    )


def bits_of(array: Any) -> Any:
    return numpy.frombuffer(_core.to_bytes(array), "uint16").reshape(array.shape)


def all_of_them() -> Any:
    """Every bfloat16, as float32."""
    return (numpy.arange(65536, dtype="uint32") << 16).view("float32")


@pytest.mark.parametrize("target", TARGETS)
def test_bfloat16_exhaustively(target: str) -> None:
    """Every bfloat16 there and back; numbers in between are rounded to nearest, or to even."""
    with numpy.errstate(all="ignore"):
        every = all_of_them()
        numbers = every[~numpy.isnan(every)]
        finite = numpy.unique(every[numpy.isfinite(every)]).astype("float64")
        middle = (finite[1:] + finite[:-1]) / 2
        beside = [numpy.nextafter(middle, s * numpy.inf) for s in (-1, 1)]
        ends = [3.3961775292304601e38, 3.3961775292304597e38, 1e300, -1e-300, 2.0**-134, 0.0]
        wide = numpy.concatenate([middle, *beside, ends])
        for x in (numbers, wide.astype("float32"), wide, wide.astype("float16")):
            kind = as_dtype(x.dtype)
            there = apply(lambda xp, v: xp.cast(xp.cast(v, bfloat16), float32), target, x)
            numpy.testing.assert_array_equal(there, rounded(x), err_msg=str(kind))
    whole = numpy.array([2**24 + 2**16 + 1, 2**31 - 1, 257, -259, 2**30 + 2**22 + 1], "int32")
    there = apply(lambda xp, v: xp.cast(xp.cast(v, bfloat16), float32), target, whole)
    numpy.testing.assert_array_equal(there, rounded(whole))


def test_bfloat16_keeps_nan_and_signs() -> None:
    x = np.array([numpy.nan, -numpy.inf, -0.0, 1.0], dtype="bfloat16")
    assert bits_of(x).tolist() == [0x7FC0, 0xFF80, 0x8000, 0x3F80]
    assert numpy.isnan((x + 1).asnumpy()[0])


UNARY = ("exp", "tanh", "sqrt", "negative", "absolute", "rint", "square", "sin")
BINARY = ("add", "subtract", "multiply", "divide", "maximum", "remainder")


@pytest.mark.parametrize("way", ["imperative", "compiled"])
def test_bfloat16_is_computed_in_float32_and_rounded_once_a_step(way: str) -> None:
    generator = numpy.random.default_rng(5)
    a, b = (rounded(generator.uniform(0.1, 9, (5, 7))) for _ in range(2))
    for name in (*UNARY, *BINARY):
        function = getattr(np, name)
        function = function if way == "imperative" else gemel.compile(function)
        values = (a,) if name in UNARY else (a, b)
        found = function(*(np.array(v, dtype="bfloat16") for v in values))
        assert found.dtype == "bfloat16"
        exact = getattr(np, name)(*map(np.array, values)).asnumpy()
        numpy.testing.assert_array_equal(found.asnumpy(), rounded(exact), err_msg=name)


def test_sums_of_bfloat16_add_up_in_float32() -> None:
    """Only the final result is rounded; the terms are not."""
    generator = numpy.random.default_rng(6)
    a, b = (rounded(generator.uniform(-1, 1, shape)) for shape in ((40, 300), (300, 20)))
    x, y = np.array(a, dtype="bfloat16"), np.array(b, dtype="bfloat16")
    wide = np.array(a), np.array(b)
    assert (x.sum(axis=1).asnumpy() == rounded(wide[0].sum(axis=1).asnumpy())).all()
    assert (x.mean(axis=0).asnumpy() == rounded(wide[0].mean(axis=0).asnumpy())).all()
    product = np.dot(x, y)
    assert product.dtype == "bfloat16"
    assert (product.asnumpy() == rounded(np.dot(*wide).asnumpy())).all()
    assert x.max(axis=1).dtype == "bfloat16" and x.argmax().item() == a.argmax()


def test_bfloat16_meets_other_dtypes() -> None:
    x = np.ones(2, dtype="bfloat16")
    for other in DTYPES:
        expected = "float32" if other.name == "float16" else other.name
        expected = expected if other.is_inexact else "bfloat16"
        assert (x + np.ones(2, dtype=other)).dtype == expected
        assert (np.ones(2, dtype=other) + x).dtype == expected
    assert (x + 1).dtype == (x * 1.5).dtype == "bfloat16"
    assert (x < 1.5).dtype == "bool"


def test_gradients_in_bfloat16() -> None:
    x = np.array([1.0, 2.0, 3.0], dtype="bfloat16")
    x.attach_grad()
    for _ in range(2):
        with autograd.record():
            y = (x * x).sum()
        y.backward()
        assert x.grad.dtype == "bfloat16" and x.grad.tolist() == [2.0, 4.0, 6.0]


def test_bfloat16_outside() -> None:
    """NumPy has no bfloat16, so it gets float32. DLPack has it; files and pickles keep it."""
    x = np.array([1.0, 1.00390625, 3.0], dtype="bfloat16")
    assert x.tolist() == [1.0, 1.0, 3.0] and x[2].item() == 3.0
    assert x.asnumpy().dtype == "float32" and numpy.asarray(x).dtype == "float32"
    assert repr(x) == "array([1., 1., 3.], dtype=bfloat16)"
    assert numpy.zeros(2, np.bfloat16).dtype == "float32"
    again = np.from_dlpack(x)
    assert again.dtype == "bfloat16" and again.tolist() == x.tolist()
    assert pickle.loads(pickle.dumps(x)).dtype == "bfloat16"
    with pytest.raises(BufferError, match="a buffer has no bfloat16"):
        memoryview(x)
    drawn = np.random.uniform(size=(1000,), dtype="bfloat16")
    assert drawn.dtype == "bfloat16" and 0 <= drawn.min().item() <= drawn.max().item() < 1


def test_numpy_s_part_with_bfloat16(tmp_path: Any) -> None:
    """Operations that NumPy runs get float32 and return the dtype they were given."""
    x = np.array([3.0, 1.0, 2.0], dtype="bfloat16")
    x[np.array([0, 2])] = np.array([5.0, 7.0], dtype="bfloat16")
    assert (x.dtype, x.tolist()) == ("bfloat16", [5.0, 1.0, 7.0])
    x[x > 6] = 257.0
    assert x.tolist() == [5.0, 1.0, 256.0], "rounded to even"
    masked = x[x > 2]
    assert (masked.dtype, masked.tolist()) == ("bfloat16", [5.0, 256.0])
    found = npx.callback(lambda a: a * 2, x, outputs=(x.shape, x.dtype))
    assert (found.dtype, found.tolist()) == ("bfloat16", [10.0, 2.0, 512.0])
    npx.save(str(tmp_path / "x.params"), {"x": x})
    kept = npx.load(str(tmp_path / "x.params"))["x"]
    assert (kept.dtype, kept.tolist()) == ("bfloat16", x.tolist())


def test_a_network_in_bfloat16() -> None:
    np.random.seed(3)
    net = nn.Sequential()
    net.add(nn.Dense(8, activation="relu"), nn.BatchNorm(), nn.Dense(2))
    net.initialize()
    net.cast("bfloat16")
    x = np.array(numpy.linspace(-1, 1, 12).reshape(4, 3), dtype="bfloat16")
    loss = gluon.loss.L2Loss()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.125})
    losses = []
    for _ in range(6):
        with autograd.record():
            y = net(x)
            value = loss(y, np.zeros((4, 2), dtype="bfloat16")).mean()
        value.backward()
        trainer.step(1)
        losses.append(value.item())
    assert y.dtype == "bfloat16"
    assert losses[-1] < losses[0] / 2


@pytest.mark.parametrize("number", [2**63, 2**64 - 1])
def test_numbers_only_uint64_holds(number: int) -> None:
    """In arithmetic with narrower integers they are errors; comparisons are exact."""
    x = np.array([1, 255], dtype="uint8")
    for call in (lambda: x + number, lambda: np.maximum(x, number), lambda: x.__iadd__(number)):
        with pytest.raises(OverflowError, match="out of bounds for uint8"):
            call()
    assert x.tolist() == [1, 255]
    assert (x < number).tolist() == [True, True]
    assert (np.array([1.0]) + number).tolist() == [float(number)]
    assert (np.array([0], dtype="uint64") + number).tolist() == [number]


#: Calls that put a number into x, a row of uint8, or beside its elements.
PUTTING: dict[str, Any] = {
    "add.at": lambda x, n: np.add.at(x, [0], n),
    "copyto": lambda x, n: np.copyto(x, n, where=np.array([True, False, True])),
    "ediff1d": lambda x, n: np.ediff1d(x, to_begin=n),
    "insert": lambda x, n: np.insert(x, 1, [n]),
    "piecewise": lambda x, n: np.piecewise(x, [x > 1], [lambda _: n, 0]),
    "place": lambda x, n: np.place(x, x > 1, n),
    "put": lambda x, n: np.put(x, [0, 2], [1, n]),
    "put_along_axis": lambda x, n: np.put_along_axis(x, np.array([1]), n, 0),
    "putmask": lambda x, n: np.putmask(x, x > 1, n),
}


@pytest.mark.parametrize("name", PUTTING)
def test_numbers_put_beside_elements_must_fit(name: str) -> None:
    call = PUTTING[name]
    for number in (300, -1):
        x = np.array([1, 2, 3], dtype="uint8")
        with pytest.raises(OverflowError, match=f"{name}: {number} is out of bounds for uint8"):
            call(x, number)
        assert x.tolist() == [1, 2, 3]
    found = call(x, 7)
    assert (x if found is None else found).dtype == "uint8"
    assert 7 in (x if found is None else found).tolist() or name == "add.at"


@pytest.mark.parametrize("number", [300, -1])
def test_both_results_of_divmod_have_the_bounds_of_each(number: int) -> None:
    x = np.array([1, 2, 200], dtype="uint8")
    np.divmod(x, 7)  # so that such a call has a kernel already
    for call in (np.divmod, divmod, lambda a, b: np.divmod(b, a), gemel.compile(np.divmod)):
        with pytest.raises(OverflowError, match=f"divmod: {number} is out of bounds for uint8"):
            call(x, number)
    found = np.divmod(x, 7)
    assert [each.tolist() for each in found] == [[0, 0, 28], [1, 2, 4]]
    assert [each.dtype for each in found] == ["uint8"] * 2


def test_large_numbers_fill_what_can_hold_them() -> None:
    for make in (
        lambda n: np.full((2,), n, dtype="uint8"),
        lambda n: np.full_like(np.ones(2, "int8"), n),
    ):
        with pytest.raises(OverflowError, match=r"full.*: .* is out of bounds"):
            make(2**63)
    x = np.array([1.0, 2.0])
    x[0], x[1] = 2**70, -(2**63) - 1
    assert x.tolist() == [2.0**70, -(2.0**63)]
    with pytest.raises(OverflowError, match=r"assign: .* out of bounds for int64"):
        np.array([1])[0] = 2**63
    y = np.array([1, 2, 3])
    y[np.array([2**64 - 1], dtype="uint64")] = 9
    with pytest.raises(IndexError, match="18446744073709551615 is out of bounds"):
        y.wait_to_read()


def test_bounds_that_leave_nothing_a_dtype_can_hold() -> None:
    x = np.array([1, 5], dtype="uint8")
    for bounds in ((0, 300), (-5, 2**40), (-5, None), (None, 256)):
        assert np.clip(x, *bounds).tolist() == [1, 5]
    for bounds in ((0, -1), (300, None), (256, 400)):
        with pytest.raises(OverflowError, match=r"clip: .* is out of bounds"):
            np.clip(x, *bounds)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("f4", "float32"), ("<i8", "int64"), ("?", "bool"), ("int", "int64"), ("float", "float64"),
        ("double", "float64"), ("half", "float16"), ("complex", "complex128"), (float, "float64"),
    ],
)  # fmt: skip
def test_other_names(name: Any, meant: str) -> None:
    x = np.ones((2,)).astype(name)
    assert x.dtype == meant
    assert np.dtype(name) is x.dtype
    assert isinstance(x.dtype, np.dtype)
    assert np.dtype(x.dtype.str) is x.dtype


@pytest.mark.parametrize("name", ["U3", "object", "f4,f4", "garbage", "float128", None])
def test_names_of_no_dtype(name: Any) -> None:
    with pytest.raises(DTypeError, match="not a dtype"):
        np.dtype(name)
    assert np.ones((2,)).dtype != name


#: Calls with the dtype that they compute in anyway.
IN_ITS_DTYPE: dict[str, Callable[[Any], Any]] = {
    **{
        name: functools.partial(getattr(np, name), dtype="float32")
        for name in ("sum", "prod", "mean", "var", "std", "nansum", "cumsum", "trace")
    },
    "softmax": lambda x: npx.softmax(x, dtype="float32"),
    "norm": lambda x: npx.norm(x, out_dtype="float32"),
    "add.reduce": lambda x: np.add.reduce(x, dtype="float32"),
    "normal": lambda x: np.random.normal(size=(2,)),
    "uniform": lambda x: np.random.uniform(size=(2,), dtype="float32"),
    "exponential": lambda x: np.random.exponential(size=(2,)),
    "dirichlet": lambda x: np.random.dirichlet(np.array([1.0, 2.0]), size=2),
}


@pytest.mark.parametrize("name", IN_ITS_DTYPE)
def test_nothing_is_converted_to_the_dtype_it_has(name: str) -> None:
    """A conversion is a copy; imperatively it costs memory, and the time to fill it."""
    call, x = IN_ITS_DTYPE[name], np.ones((2, 2))
    assert call(x).dtype == "float32"
    with profiler.graph() as graph:
        call(x)
    assert graph.nodes and not graph.named("cast")
    assert call(x.astype("float16")).dtype == "float32"

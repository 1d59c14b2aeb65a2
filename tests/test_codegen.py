"""Loop programs as machine code, against NumPy: each instruction, loop form and target."""

from __future__ import annotations

import ctypes
import itertools
import math
from fractions import Fraction
from typing import Any

import numpy
import pytest
from combiners import record
from products import at_the_end

from gemel import dtype as dtypes
from gemel._core import load_object
from gemel.codegen.language.lane import OPERATORS, Lane, Recorder
from gemel.codegen.language.program import (
    BROADCAST,
    CONTIGUOUS,
    INDEX,
    INNER,
    INPUT,
    OUTER,
    OUTPUT,
    STRIDED,
    Operand,
    Program,
)
from gemel.codegen.schedules import compile_program
from gemel.codegen.target import _NEEDED, MACHINE, TARGETS, _flags
from gemel.errors import CompileError
from gemel.ir import philox

RUNNABLE = [n for n in TARGETS if _NEEDED.get(n, set()) <= _flags()] or ["generic"]
if MACHINE not in ("x86_64", "AMD64"):
    RUNNABLE = ["generic"]

F32, F64, F16 = dtypes.float32, dtypes.float64, dtypes.float16
I8, U8, I32, I64, BOOL = dtypes.int8, dtypes.uint8, dtypes.int32, dtypes.int64, dtypes.bool_
I16, U16, U32, U64 = dtypes.int16, dtypes.uint16, dtypes.uint32, dtypes.uint64
INTEGERS = (U8, I8, U16, I16, U32, I32, U64, I64)

_loaded: list[Any] = []
_kernels: dict[tuple[str, str], Any] = {}


def kernel(program: Program, target: str) -> Any:
    """The program as a callable; compiled once."""
    found = _kernels.get((program.text, target))
    if found is None:
        loaded = load_object(compile_program(program, TARGETS[target]))
        _loaded.append(loaded)  # it owns the code
        word, whole = ctypes.c_void_p, ctypes.c_int64
        kind = ctypes.CFUNCTYPE(ctypes.c_int32, word, word, whole, whole)
        found = _kernels[program.text, target] = kind(loaded.address)
    return found


def twin(dtype: Any) -> Any:
    return numpy.dtype(dtype.name)


def run(
    program: Program,
    target: str,
    extents: tuple[int, ...],
    arrays: list[Any],
    strides: list[tuple[int, ...]],
    extra: tuple[int, ...] = (),
    scalars: tuple[Any, ...] = (),
    span: tuple[int, int] | None = None,
) -> int:
    """Calls the kernel. `arrays` has None for index operands; strides are in elements."""
    integers: list[int] = list(extents)
    for of_operand in strides:
        integers.extend(of_operand)
    integers.extend(extra)
    for dtype, value in zip(program.scalars, scalars, strict=True):
        bits = numpy.float64(value).view(numpy.int64) if dtype.kind == "f" else int(value)
        integers.append(int(bits))
    buffers = [a.ctypes.data for a in arrays if a is not None]
    begin, end = span if span is not None else (0, extents[0])
    return kernel(program, target)(
        (ctypes.c_void_p * max(1, len(buffers)))(*buffers),
        (ctypes.c_int64 * len(integers))(*integers),
        begin,
        end,
    )


def elementwise(function: Any, *kinds: Any, out: Any = None) -> tuple[Program, Any]:
    """A one-dimensional program computing `function(xp, *inputs)`."""
    recorder = Recorder()
    xp = Lane(recorder)
    values = [recorder.load(number, kind) for number, kind in enumerate(kinds)]
    result = xp.value(function(xp, *values))
    recorder.store(len(kinds), result)
    operands = [Operand(kind, INPUT, CONTIGUOUS) for kind in kinds]
    operands.append(Operand(result.dtype, OUTPUT, CONTIGUOUS))
    return Program(1, 0, OUTER, tuple(operands), (), 0, tuple(recorder.code)), result.dtype


GUARD = 64


def guarded(array: Any) -> tuple[Any, Any]:
    """A copy of the array between guard bytes, which show writes outside it."""
    raw = numpy.full(array.nbytes + 2 * GUARD, 0xA5, numpy.uint8)
    inside = raw[GUARD : GUARD + array.nbytes].view(array.dtype)
    inside[...] = array
    return raw, inside


def apply(function: Any, target: str, *arrays: Any) -> Any:
    kinds = [dtypes.as_dtype(str(a.dtype)) for a in arrays]
    program, kind = elementwise(function, *kinds)
    size = arrays[0].size
    raw, out = guarded(numpy.zeros(size, twin(kind)))
    status = run(program, target, (size,), [*arrays, out], [(1,)] * (len(arrays) + 1))
    assert status == 0
    assert (raw[:GUARD] == 0xA5).all()
    assert (raw[GUARD + out.nbytes :] == 0xA5).all()
    return out


def values(kind: Any, size: int, seed: int = 0) -> Any:
    """Arbitrary values, the first of them special."""
    source = numpy.random.default_rng(seed)
    if kind.kind == "b":
        return source.integers(0, 2, size).astype(bool)
    if kind.kind == "f":
        array = (source.standard_normal(size) * 10).astype(kind.name)
        awkward = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 0.5, -0.5, 2.5, -3.5]
    else:
        limits = numpy.iinfo(kind.name)
        array = source.integers(limits.min, limits.max, size, dtype=kind.name, endpoint=True)
        awkward = [0, 1, limits.max, limits.min, 2, 3, 5]
    source.shuffle(awkward)
    count = min(size // 2, len(awkward))
    array[:count] = awkward[:count]
    return array


def same(got: Any, expected: Any) -> None:
    """Check for the same bits, except that any NaN equals any other."""
    assert got.dtype == expected.dtype
    numpy.testing.assert_array_equal(got, expected)
    if got.dtype.kind == "f":
        real = ~numpy.isnan(expected)
        signs = numpy.signbit(got[real]), numpy.signbit(expected[real])
        numpy.testing.assert_array_equal(*signs)


@pytest.mark.parametrize("name", [name for name in OPERATORS if hasattr(numpy, name)])
def test_numpys_names_of_operators(name: str) -> None:
    function = getattr(numpy, name)
    a, b = numpy.array([7, -3, 5, 1], "int32"), numpy.array([2, 3, 3, 2], "int32")
    inputs = (a, b)[: function.nin]
    got = apply(lambda xp, *x: getattr(xp, name)(*x), RUNNABLE[0], *inputs)
    numpy.testing.assert_allclose(got, function(*inputs), rtol=1e-6)


SIZES = (0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 100, 1000)
NUMBERS = (*INTEGERS, F32, F64)
EXACT = ("add", "subtract", "multiply", "maximum", "minimum", "negative", "absolute", "square")
EXACT += ("sign",)


@pytest.mark.parametrize("target", RUNNABLE)
@pytest.mark.parametrize("kind", NUMBERS, ids=str)
@pytest.mark.parametrize("name", EXACT)
def test_exact_arithmetic(name: str, kind: Any, target: str) -> None:
    two = name in ("add", "subtract", "multiply", "maximum", "minimum")
    with numpy.errstate(all="ignore"):
        for size in SIZES:
            inputs = [values(kind, size, size + i) for i in range(2 if two else 1)]
            got = apply(lambda xp, *x, name=name: getattr(xp, name)(*x), target, *inputs)
            expected = getattr(numpy, name)(*inputs)
            if name in ("maximum", "minimum", "sign"):
                numpy.testing.assert_array_equal(got, expected)  # NumPy returns either sign of zero
            else:
                same(got, expected)


@pytest.mark.parametrize("target", RUNNABLE)
@pytest.mark.parametrize("kind", (BOOL, *NUMBERS), ids=str)
def test_comparisons_and_select(kind: Any, target: str) -> None:
    names = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
    for size in (1, 17, 100):
        a, b = values(kind, size, 1), values(kind, size, 2)
        b[: size // 3] = a[: size // 3]
        for name in names:
            same(
                apply(lambda xp, *x, name=name: getattr(xp, name)(*x), target, a, b),
                getattr(numpy, name)(a, b),
            )
        got = apply(lambda xp, a, b: xp.where(a == b, b, a), target, a, b)
        same(got, numpy.where(a == b, b, a))
        if kind.kind != "b":
            same(apply(lambda xp, x: xp.isnan(x), target, a), numpy.isnan(a))


@pytest.mark.parametrize("target", RUNNABLE)
@pytest.mark.parametrize("kind", (BOOL, *INTEGERS), ids=str)
def test_bits(kind: Any, target: str) -> None:
    for size in (1, 17, 100):
        a, b = values(kind, size, 1), values(kind, size, 2)
        for name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
            same(
                apply(lambda xp, *x, name=name: getattr(xp, name)(*x), target, a, b),
                getattr(numpy, name)(a, b),
            )
        same(apply(lambda xp, x: ~x, target, a), ~a)
        if kind is not BOOL:
            n = (values(U8, size, 3) % 70).astype(a.dtype)
            same(apply(lambda xp, a, n: a << n, target, a, n), a << n)
            same(apply(lambda xp, a, n: a >> n, target, a, n), a >> n)
            same(apply(lambda xp, a: a >> 3, target, a), a >> 3)


@pytest.mark.parametrize("target", RUNNABLE)
@pytest.mark.parametrize("kind", NUMBERS, ids=str)
def test_division_has_pythons_signs(kind: Any, target: str) -> None:
    with numpy.errstate(all="ignore"):
        for size in (1, 17, 1000):
            a, b = values(kind, size, 1), values(kind, size, 2)
            if kind.kind != "f":
                b[size // 2 :] %= 7
                a[0], b[0] = numpy.iinfo(kind.name).min, 0
                if size > 1 and kind.kind == "i":
                    a[1], b[1] = numpy.iinfo(kind.name).min, -1
            for name in ("floor_divide", "remainder"):
                expected = getattr(numpy, name)(a, b)
                got = apply(lambda xp, *x, name=name: getattr(xp, name)(*x), target, a, b)
                if kind.kind == "f" and name == "remainder":
                    # If the signs differ, x % inf is inf in NumPy; otherwise it is x.
                    same(got, expected)
                else:
                    numpy.testing.assert_array_equal(got, expected)
            if kind.kind == "f":
                same(apply(lambda xp, a, b: a / b, target, a, b), a / b)


@pytest.mark.parametrize("target", RUNNABLE)
@pytest.mark.parametrize("kind", (F32, F64), ids=str)
def test_rounding_and_root(kind: Any, target: str) -> None:
    x = numpy.concatenate(
        [values(kind, 100), numpy.arange(-20, 20, dtype=kind.name) / 4]
        + [numpy.array([1e10, -1e10, 1e30, -0.2, 8388607.5, 4503599627370495.5], kind.name)]
    )
    for name in ("floor", "ceil", "rint", "trunc", "sqrt"):
        with numpy.errstate(all="ignore"):
            same(
                apply(lambda xp, x, name=name: getattr(xp, name)(x), target, x),
                getattr(numpy, name)(x),
            )


CASTS = (BOOL, *INTEGERS, F16, F32, F64)


@pytest.mark.parametrize("target", RUNNABLE)
@pytest.mark.parametrize("source", CASTS, ids=str)
def test_casts(source: Any, target: str) -> None:
    with numpy.errstate(all="ignore"):
        for size in (1, 17, 100):
            x = values(source, size)
            for kind in CASTS:
                y = x
                if source.kind == "f" and kind.kind in "iu":
                    y = numpy.nan_to_num(x, posinf=3, neginf=4)
                    y = numpy.abs(y) if kind.kind == "u" else y
                same(
                    apply(lambda xp, v, kind=kind: xp.cast(v, kind), target, y), y.astype(kind.name)
                )


@pytest.mark.parametrize("target", RUNNABLE)
@pytest.mark.parametrize("kind", INTEGERS, ids=str)
def test_floats_beyond_an_integer_wrap(kind: Any, target: str) -> None:
    """Every target converts through the same wider integer, in which such values wrap."""
    bits = 32 if kind.itemsize <= 2 else 64
    if kind is I32:
        return  # the result depends on the processor
    most = 2.0 ** (bits - 1)
    some = [0.0, 2.9, -2.9, 255.5, 256.0, -129.0, 40000.0, 65535.9, -32769.0, 0.99 * most, -most]
    some += [2.0**63, 2.0**63 + 2048, 2.0**64 - 2048] if kind is U64 else []
    for source in (F32, F64):
        x = numpy.array(some * 3, source.name)
        expected = [int(value) % 2 ** (8 * kind.itemsize) for value in x]
        whole = numpy.array(expected, "uint64").astype(kind.name)
        same(apply(lambda xp, v: xp.cast(v, kind), target, x), whole)


@pytest.mark.parametrize("target", RUNNABLE)
def test_halves_exhaustively(target: str) -> None:
    half = numpy.arange(65536, dtype=numpy.uint16).view(numpy.float16)
    single = apply(lambda xp, x: xp.cast(x, F32), target, half)
    same(single, half.astype(numpy.float32))
    same(apply(lambda xp, x: xp.cast(x, F16), target, single), half)
    with numpy.errstate(all="ignore"):
        source = numpy.random.default_rng(1)
        bits = source.integers(0, 1 << 32, 200000, dtype=numpy.uint64).astype(numpy.uint32)
        # The midpoints of neighbours, which are ties, and the numbers just beside them.
        finite = single[numpy.isfinite(single)]
        middle = (numpy.sort(finite)[:-1].astype(numpy.float64) + numpy.sort(finite)[1:]) / 2
        beside = [numpy.nextafter(middle, s * numpy.inf) for s in (-1, 1)]
        wide = numpy.concatenate([middle, *beside, [65519.999, 65520, 65520.001, 1e300, 1e-300]])
        for x in (bits.view(numpy.float32), wide.astype(numpy.float32), wide):
            same(apply(lambda xp, v: xp.cast(v, F16), target, x), x.astype(numpy.float16))


# -- functions ------------------------------------------------------------------------------------


def error(got: Any, expected: Any) -> float:
    """The largest relative error where the expected value is normal; the rest is checked here."""
    info = numpy.finfo(got.dtype)
    wide = expected.astype(got.dtype)
    normal = numpy.isfinite(wide) & (numpy.abs(wide) >= info.tiny) & numpy.isfinite(got)
    special = ~numpy.isfinite(wide)
    # At the end of the range the last bit may decide whether a result is infinite.
    edge = numpy.abs(expected) > 0.9999 * float(info.max)
    numpy.testing.assert_array_equal(got[special & ~edge], wide[special & ~edge])
    small = numpy.abs(wide) < info.tiny
    assert (
        numpy.abs(got[small].astype(numpy.longdouble) - expected[small])
        <= 2 * info.smallest_subnormal
    ).all()
    with numpy.errstate(all="ignore"):
        ratio = numpy.abs(got[normal].astype(numpy.longdouble) / expected[normal] - 1)
    return float(ratio.max()) if ratio.size else 0.0


def arguments(kind: Any, low: float, high: float) -> Any:
    source = numpy.random.default_rng(7)
    span = source.uniform(low, high, 40000)
    tiny = numpy.exp(source.uniform(-80, 0, 4000)) * source.choice([-1, 1], 4000)
    big = numpy.exp(source.uniform(0, 88, 4000)) * source.choice([-1, 1], 4000)
    awkward = [
        0.0,
        -0.0,
        1,
        -1,
        2,
        math.inf,
        -math.inf,
        math.nan,
        1e-40,
        -1e-40,
        0.5,
        -0.5,
        1000,
        -1000,
    ]
    return numpy.concatenate([span, tiny, big, awkward]).astype(kind.name)


def longdouble(name: str) -> Any:
    if name != "erf":
        return getattr(numpy, name)
    special = pytest.importorskip("scipy.special")
    return lambda x: special.erf(x.astype(numpy.float64)).astype(numpy.longdouble)


FUNCTIONS = {
    "exp": (-110.0, 100.0, 2e-7, 4e-16),
    "log": (0.0, 10.0, 2.5e-7, 4e-16),
    "tanh": (-12.0, 12.0, 4.5e-7, 1e-15),
    "sin": (-100.0, 100.0, 2e-7, 4e-16),
    "cos": (-100.0, 100.0, 2e-7, 4e-16),
    "erf": (-5.0, 5.0, 4.5e-7, 1e-15),
    "expm1": (-20.0, 90.0, 4e-7, 8e-16),
    "log1p": (-1.0, 10.0, 4e-7, 8e-16),
}


@pytest.mark.parametrize("target", RUNNABLE)
@pytest.mark.parametrize("kind", (F32, F64), ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str, kind: Any, target: str) -> None:
    low, high, single, double = FUNCTIONS[name]
    x = arguments(kind, low, high)
    if kind is F64 and name in ("exp", "expm1"):
        x = numpy.concatenate([x, numpy.random.default_rng(1).uniform(-750, 712, 40000)])
    with numpy.errstate(all="ignore"):
        expected = longdouble(name)(x.astype(numpy.longdouble))
        got = apply(lambda xp, v, name=name: getattr(xp, name)(v), target, x)
        plain = expected.astype(kind.name)
    worst = error(got, expected)
    assert worst <= (single if kind is F32 else double), worst
    zero = x == 0
    numpy.testing.assert_array_equal(numpy.signbit(got[zero]), numpy.signbit(plain[zero]))


@pytest.mark.parametrize("target", RUNNABLE)
@pytest.mark.parametrize("kind", (F32, F64), ids=str)
def test_powers_near_the_ends_of_the_range(kind: Any, target: str) -> None:
    """The polynomial of the logarithm is least exact near the root of one half."""
    source = numpy.random.default_rng(3)
    x = source.uniform(0.69, 0.72, 40000).astype(kind.name)
    y = (source.uniform(-1, 1, 40000) * (1900 if kind is F64 else 220)).astype(kind.name)
    expected = numpy.power(x.astype(numpy.longdouble), y)
    worst = error(apply(lambda xp, a, b: xp.power(a, b), target, x, y), expected)
    assert worst <= (1.7e-7 if kind is F32 else 1.2e-15), worst


@pytest.mark.parametrize("target", RUNNABLE)
@pytest.mark.parametrize("kind", (F32, F64), ids=str)
def test_power(kind: Any, target: str) -> None:
    source = numpy.random.default_rng(3)
    x = numpy.exp(source.uniform(-8, 8, 40000)).astype(kind.name)
    y = source.uniform(-12, 12, 40000).astype(kind.name)
    x[:10000] = numpy.exp(source.uniform(-0.01, 0.01, 10000))
    y[:10000] = source.uniform(-40000, 40000, 10000)
    x[10000:20000] = source.uniform(0.5, 2, 10000)
    y[10000:20000] = source.uniform(-126, 126, 10000)
    with numpy.errstate(all="ignore"):
        expected = numpy.power(x.astype(numpy.longdouble), y)
    worst = error(apply(lambda xp, a, b: xp.power(a, b), target, x, y), expected)
    assert worst <= (1.3e-7 if kind is F32 else 1.2e-15), worst
    awkward = [0.0, -0.0, 1, -1, 2, -2, 3, -3, 0.5, -0.5, 1.5, -1.5, math.inf, -math.inf, math.nan]
    awkward += [1e30, -1e30, 1e-30, 7, -7, 100, -100]
    pairs = numpy.array(list(itertools.product(awkward, awkward)), kind.name)
    a, b = pairs[:, 0].copy(), pairs[:, 1].copy()
    with numpy.errstate(all="ignore"):
        expected = numpy.power(a, b)
    got = apply(lambda xp, a, b: xp.power(a, b), target, a, b)
    numpy.testing.assert_allclose(got, expected, rtol=3e-7 if kind is F32 else 2e-15)
    real = ~numpy.isnan(expected)
    numpy.testing.assert_array_equal(numpy.signbit(got[real]), numpy.signbit(expected[real]))


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("name", ["exp2", "log2", "log10"])
def test_functions_to_other_bases_are_numpys(name: str, dtype: Any) -> None:
    """In formulas from outside too, whole powers are exact, as those of `np` are."""
    most = {"exp2": 60, "log2": 60, "log10": 20}[name]
    whole = numpy.arange(-most, most + 1, dtype=dtype.name)
    given = whole if name == "exp2" else ({"log2": 2.0, "log10": 10.0}[name] ** whole)
    wanted = numpy.exp2(given) if name == "exp2" else whole
    given = given.astype(dtype.name)
    for target in RUNNABLE:
        found = apply(lambda xp, x: getattr(xp, name)(x), target, given)
        numpy.testing.assert_array_equal(found, wanted.astype(dtype.name))


@pytest.mark.parametrize("target", RUNNABLE)
def test_multiply_add_rounds_once(target: str) -> None:
    source = numpy.random.default_rng(4)
    bits = source.integers(0, 2**32, (3, 40000), dtype="uint32").view("float32")
    a, b, c = bits
    c[:20000] = -(a[:20000] * b[:20000])  # leaves only the rounding error of the product
    c[20000:30000] = a[20000:30000] * b[20000:30000] * numpy.float32(2.0**-24)
    found = apply(lambda xp, a, b, c: xp.multiply_add(a, b, c), target, a, b, c)
    for x, y, z, got in zip(a[::7], b[::7], c[::7], found[::7], strict=True):
        if not numpy.isfinite((x, y, z)).all():
            with numpy.errstate(all="ignore"):
                wanted = numpy.float64(x) * numpy.float64(y) + numpy.float64(z)
            assert numpy.array_equal(got, numpy.float32(wanted), equal_nan=True)
            continue
        exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
        assert _nearest(exact) == got


def _nearest(exact: Fraction) -> float:
    """The float32 nearest to a fraction; ties go to even, and the range ends in infinity."""
    double = numpy.float32(numpy.clip(float(exact), -3.5e38, 3.5e38) if exact else 0.0)
    around = [
        numpy.nextafter(double, d, dtype="float32") for d in numpy.float32([-numpy.inf, numpy.inf])
    ]
    held = [v for v in (double, *around) if numpy.isfinite(v)]
    if abs(exact) >= Fraction(float(numpy.finfo("float32").max)) + Fraction(2) ** 103:
        return float("inf") if exact > 0 else -float("inf")
    even = lambda v: int(numpy.float32(v).view("uint32")) & 1  # noqa: E731
    return float(min(held, key=lambda v: (abs(Fraction(float(v)) - exact), even(v))))


@pytest.mark.parametrize("kind", (F32, F64), ids=str)
def test_same_bits_on_every_target(kind: Any) -> None:
    x = arguments(kind, -20, 20)
    for name in (*FUNCTIONS, "sinh", "cosh", "tan", "arcsinh", "reciprocal"):
        results = [apply(lambda xp, v, name=name: getattr(xp, name)(v), t, x) for t in RUNNABLE]
        for other in results[1:]:
            same(other, results[0])


@pytest.mark.parametrize("target", RUNNABLE)
def test_composite_functions(target: str) -> None:
    x = arguments(F64, -20, 20)
    with numpy.errstate(all="ignore"):
        for name in ("sinh", "cosh", "arcsinh", "exp2", "log2", "log10", "reciprocal"):
            got = apply(lambda xp, v, name=name: getattr(xp, name)(v), target, x)
            numpy.testing.assert_allclose(got, getattr(numpy, name)(x), rtol=2e-14, atol=1e-300)
        a, b = values(I32, 100, 1), values(I32, 100, 2) % 9 - 2
        got = apply(lambda xp, a, b: a**b, target, a, b)
        positive = b >= 0
        same(got[positive], a[positive] ** b[positive])


# -- loops ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", RUNNABLE)
@pytest.mark.parametrize("kinds", ((F32, F32), (U8, F32), (F64, BOOL), (F16, F32)), ids=str)
@pytest.mark.parametrize("layout", list(itertools.product((0, 1, 2), repeat=2)), ids=str)
def test_three_dimensions(layout: tuple[int, int], kinds: Any, target: str) -> None:
    """Broadcast, contiguous and strided operands, and a strided output."""
    shape = (3, 5, 37)
    arrays, strides = [], []
    for number, (kind, inner) in enumerate(zip(kinds, layout, strict=True)):
        step = (0, 1, 3)[inner]
        whole = values(kind, 3 * 5 * 37 * 3 + 100, number)
        whole = numpy.nan_to_num(whole) if kind.kind == "f" else whole
        plan = (400, 0, step) if number else (0, 120, step)
        arrays.append(whole)
        strides.append(plan)
    views = [
        numpy.lib.stride_tricks.as_strided(a, shape, [s * a.itemsize for s in plan])
        for a, plan in zip(arrays, strides, strict=True)
    ]
    recorder = Recorder()
    a = recorder.load(0, kinds[0]).cast(F32)
    b = recorder.load(1, kinds[1]).cast(F32)
    recorder.store(2, a * 2 + b)
    recorder.store(3, a > b)
    operands = [Operand(k, INPUT, c) for k, c in zip(kinds, layout, strict=True)]
    operands += [Operand(F32, OUTPUT, STRIDED), Operand(BOOL, OUTPUT, CONTIGUOUS)]
    program = Program(3, 0, OUTER, tuple(operands), (), 0, tuple(recorder.code))
    out = numpy.zeros((3, 5, 74), numpy.float32)
    flags = numpy.zeros(shape, bool)
    strides += [(370, 74, 2), (185, 37, 1)]
    for span in ((0, 1), (1, 3)):
        run(program, target, shape, [*arrays, out, flags], strides, span=span)
    x, y = views[0].astype(numpy.float32), views[1].astype(numpy.float32)
    same(out[:, :, ::2], x * numpy.float32(2) + y)
    assert not out[:, :, 1::2].any()
    same(flags, x > y)


@pytest.mark.parametrize("target", RUNNABLE)
def test_in_place_scalars_and_ranges(target: str) -> None:
    recorder = Recorder()
    x = recorder.load(0, F32)
    first, second = recorder.scalar(0, F64).cast(F32), recorder.scalar(1, I64).cast(F32)
    recorder.store(1, x * first + second)
    recorder.store(2, x)
    operands = (
        Operand(F32, INPUT, CONTIGUOUS),
        Operand(F32, OUTPUT, CONTIGUOUS),
        Operand(F32, OUTPUT, CONTIGUOUS),
    )
    program = Program(1, 0, OUTER, operands, (F64, I64), 0, tuple(recorder.code))
    for size in SIZES:
        source = numpy.random.default_rng(size).random(size, dtype=numpy.float32)
        data, old = source.copy(), numpy.zeros(size, numpy.float32)
        for span in ((0, size // 3), (size // 3, size)):
            run(program, target, (size,), [data, data, old], [(1,)] * 3, (), (2.5, 7), span)
        same(data, source * numpy.float32(2.5) + numpy.float32(7))
        same(old, source)


def reduced(
    body: Any, kind: Any, lanes: str, shape: tuple[int, ...], outer: int, **more: Any
) -> tuple[Program, list[Any]]:
    """A program over `shape` with `outer` outer dimensions. `body(recorder, x)` returns the stores,
    each a (value, varies). The array lies in memory so that lanes are contiguous."""
    recorder = Recorder()
    stores = body(recorder, recorder.load(0, kind))
    inner = len(shape) - outer
    operands = [Operand(kind, INPUT, more.get("stride", CONTIGUOUS), varies=True)]
    kinds = []
    for number, (value, varies) in enumerate(stores):
        value = value.cast(more["out"]) if "out" in more else value
        recorder.store(number + 1, value)
        moves = CONTIGUOUS if varies or lanes == OUTER else BROADCAST
        operands.append(Operand(value.dtype, OUTPUT, moves, varies=varies))
        kinds.append(value.dtype)
    return Program(outer, inner, lanes, tuple(operands), (), 0, tuple(recorder.code)), kinds


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


def reduce_run(body: Any, x: Any, lanes: str, outer: int, target: str) -> list[Any]:
    """Reduce the array x, whose outer dimensions come first. It is copied to memory so that the
    vector dimension is contiguous."""
    kind = dtypes.as_dtype(str(x.dtype))
    shape = x.shape
    program, kinds = reduced(body, kind, lanes, shape, outer)
    rank = len(shape)
    if lanes == OUTER:
        order = [d for d in range(rank) if d != outer - 1] + [outer - 1]
    else:
        order = list(range(rank))
    memory = numpy.ascontiguousarray(x.transpose(order))
    moved = memory.transpose(numpy.argsort(order))
    steps = tuple(s // x.itemsize for s in moved.strides)
    arrays, strides = [memory], [steps]
    outputs = []
    for number, made in enumerate(kinds):
        operand = program.operands[number + 1]
        if operand.varies:
            out = numpy.zeros(memory.shape, twin(made))
            outputs.append(out.transpose(numpy.argsort(order)))
            strides.append(steps)
        else:
            out = numpy.zeros(shape[:outer], twin(made))
            outputs.append(out)
            strides.append(row_major(shape[:outer]) + (0,) * (rank - outer))
        arrays.append(out)
    for begin in range(0, shape[0], 5):
        span = (begin, min(begin + 5, shape[0]))
        assert run(program, target, shape, arrays, strides, span=span) == 0
    return outputs


SHAPES = [((3, n), 1) for n in (0, 1, 7, 16, 17, 64, 65, 130, 1000)]
SHAPES += [((n, 9), 1) for n in (1, 15, 16, 17, 70, 130)]
SHAPES += [((2, 5, 3, 7), 2), ((3, 2, 4, 70), 1), ((2, 33, 4), 2), ((7, 2, 2, 2, 19), 2)]


@pytest.mark.parametrize("target", RUNNABLE)
@pytest.mark.parametrize("lanes", (OUTER, INNER))
@pytest.mark.parametrize("kind", (F32, F64, *INTEGERS), ids=str)
def test_reductions(kind: Any, lanes: str, target: str) -> None:
    for shape, outer in SHAPES:
        x = values(kind, math.prod(shape), 5).reshape(shape)
        axes = tuple(range(outer, len(shape)))
        flat = x.reshape(*shape[:outer], -1)
        calm = numpy.nan_to_num(x, posinf=1, neginf=2) if kind.kind == "f" else x

        def body(recorder: Any, v: Any) -> Any:
            names = ("max", "min", "argmax", "argmin")
            return [(record(recorder, name, v), False) for name in names]

        got = reduce_run(body, x, lanes, outer, target)
        if math.prod(shape[outer:]):
            numpy.testing.assert_array_equal(got[0], x.max(axes))
            numpy.testing.assert_array_equal(got[1], x.min(axes))
            numpy.testing.assert_array_equal(got[2], flat.argmax(-1))
            numpy.testing.assert_array_equal(got[3], flat.argmin(-1))
        (total,) = reduce_run(
            lambda r, v: [(r.reduce("sum", v), False)], calm, lanes, outer, target
        )
        near = numpy.clip(calm, -1.25, 1.25) if kind.kind == "f" else calm
        (product,) = reduce_run(
            lambda r, v: [(r.reduce("prod", v), False)], near, lanes, outer, target
        )
        if kind.kind == "f":
            size = numpy.abs(calm.astype(numpy.float64)).sum(axes)
            exact = calm.astype(numpy.float64).sum(axes)
            assert (numpy.abs(total - exact) <= 1e-6 * size).all()
            with numpy.errstate(all="ignore"):
                numpy.testing.assert_allclose(product, near.prod(axes), rtol=1e-3)
        else:
            same(total, calm.sum(axes, dtype=x.dtype))
            same(product, calm.prod(axes, dtype=x.dtype))


@pytest.mark.parametrize("target", RUNNABLE)
@pytest.mark.parametrize("lanes", (OUTER, INNER))
def test_truth_and_ties(lanes: str, target: str) -> None:
    for shape, outer in SHAPES:
        source = numpy.random.default_rng(1)
        axes = tuple(range(outer, len(shape)))
        for share in (0.0, 0.02, 0.5, 0.98, 1.0):
            x = source.random(shape) < share
            names = ("any", "all") + (("argmax", "argmin") if math.prod(shape[outer:]) else ())
            got = reduce_run(
                lambda r, v, names=names: [(record(r, name, v), False) for name in names],
                x,
                lanes,
                outer,
                target,
            )
            same(got[0], x.any(axes))
            same(got[1], x.all(axes))
            flat = x.reshape(*shape[:outer], -1)
            if len(names) == 4:
                numpy.testing.assert_array_equal(got[2], flat.argmax(-1))
                numpy.testing.assert_array_equal(got[3], flat.argmin(-1))
        if not math.prod(shape[outer:]):
            continue
        # Few different values, so many ties; and some NaN, which wins.
        y = source.integers(0, 3, shape).astype(numpy.float32)
        for number in range(3):
            y[source.random(shape) < 0.02 * number] = numpy.nan
            y[source.random(shape) < 0.3 * number] = -numpy.inf
            flat = y.reshape(*shape[:outer], -1)
            got = reduce_run(
                lambda r, v: [(record(r, name, v), False) for name in ("argmax", "argmin")],
                y,
                lanes,
                outer,
                target,
            )
            numpy.testing.assert_array_equal(got[0], flat.argmax(-1))
            numpy.testing.assert_array_equal(got[1], flat.argmin(-1))


@pytest.mark.parametrize("target", RUNNABLE)
@pytest.mark.parametrize("lanes", (OUTER, INNER))
def test_softmax_and_norm(lanes: str, target: str) -> None:
    def softmax(r: Recorder, x: Any) -> Any:
        e = Lane(r).exp(x - r.reduce("max", x))
        return [(e / r.reduce("sum", e), True), (r.reduce("sum", e), False)]

    def norm(r: Recorder, x: Any) -> Any:
        count = r.reduce("sum", r.constant(1, F32))
        mean = r.reduce("sum", x) / count
        variance = r.reduce("sum", (x - mean) * (x - mean)) / count
        return [((x - mean) / Lane(r).sqrt(variance + 1e-5), True), (mean, False)]

    for shape, outer in SHAPES:
        if not math.prod(shape):
            continue
        x = numpy.random.default_rng(2).standard_normal(shape, dtype=numpy.float32)
        axes = tuple(range(outer, len(shape)))
        wide = x.astype(numpy.float64)
        got, total = reduce_run(softmax, x, lanes, outer, target)
        e = numpy.exp(wide - wide.max(axes, keepdims=True))
        numpy.testing.assert_allclose(got, e / e.sum(axes, keepdims=True), rtol=2e-6)
        numpy.testing.assert_allclose(total, e.sum(axes), rtol=2e-6)
        got, mean = reduce_run(norm, x, lanes, outer, target)
        center = wide - wide.mean(axes, keepdims=True)
        expected = center / numpy.sqrt((center**2).mean(axes, keepdims=True) + 1e-5)
        numpy.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
        numpy.testing.assert_allclose(mean, wide.mean(axes), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("target", RUNNABLE)
def test_softmax_in_place(target: str) -> None:
    def softmax(r: Recorder, x: Any) -> Any:
        e = Lane(r).exp(x - r.reduce("max", x))
        return [(e / r.reduce("sum", e), True)]

    for lanes, steps in ((INNER, (50, 1)), (OUTER, (1, 9))):
        program, _ = reduced(softmax, F32, lanes, (9, 50), 1)
        x = numpy.random.default_rng(2).standard_normal(450, dtype=numpy.float32)
        view = numpy.lib.stride_tricks.as_strided(x, (9, 50), [4 * s for s in steps])
        e = numpy.exp(view.astype(numpy.float64))
        expected = e / e.sum(1, keepdims=True)
        run(program, target, (9, 50), [x, x], [steps, steps])
        numpy.testing.assert_allclose(view, expected, rtol=2e-6)


@pytest.mark.parametrize("target", RUNNABLE)
def test_long_sums_are_accurate(target: str) -> None:
    x = numpy.random.default_rng(2).random((1, 1000000), dtype=numpy.float32)
    exact = math.fsum(x[0])
    pairwise = abs(float(x.sum()) / exact - 1)
    for lanes in (INNER, OUTER):
        (got,) = reduce_run(lambda r, v: [(r.reduce("sum", v), False)], x, lanes, 1, target)
        assert abs(float(got[0]) / exact - 1) <= max(2 * pairwise, 3e-7)


# -- gather, scatter, check, random ----------------------------------------------------------------


@pytest.mark.parametrize("target", RUNNABLE)
@pytest.mark.parametrize("kind", (F32, U8, F64, F16), ids=str)
def test_gather_and_check(kind: Any, target: str) -> None:
    """y[i, j] = table[ids[i], j] with checked ids, and picking x[i, ids[i]]."""
    recorder = Recorder()
    xp = Lane(recorder)
    index, size = recorder.load(1, I64), None
    size = recorder.scalar(0, I64)
    index = xp.where(index < 0, index + size, index)
    good = (index >= 0) & (index < size)
    recorder.check(good)
    recorder.store(2, recorder.gather(0, 0, xp.where(good, index, 0), kind))
    for layout in (CONTIGUOUS, BROADCAST):
        operands = (
            Operand(kind, INPUT, layout),
            Operand(I64, INPUT, BROADCAST if layout else CONTIGUOUS),
            Operand(kind, OUTPUT, CONTIGUOUS),
        )
        program = Program(2, 0, OUTER, operands, (I64,), 1, tuple(recorder.code))
        table = values(kind, 7 * 21, 1).reshape(7, 21)
        if layout:
            ids = numpy.array([0, 6, -1, -7, 3])
            out = numpy.zeros((5, 21), twin(kind))
            strides = [(0, 1), (1, 0), (21, 1)]
            assert run(program, target, (5, 21), [table, ids, out], strides, (21,), (7,)) == 0
            same(out, table[ids])
            for bad in (7, -8, 1 << 40):
                ids[2] = bad
                assert run(program, target, (5, 21), [table, ids, out], strides, (21,), (7,)) == 1
        else:
            for columns in (1, 16, 21, 50):
                ids = numpy.random.default_rng(1).integers(-7, 7, (3, columns))
                out = numpy.zeros((3, columns), twin(kind))
                strides = [(1, 0), (columns, 1), (columns, 1)]
                extents = (3, columns)
                assert run(program, target, extents, [table, ids, out], strides, (21,), (7,)) == 0
                same(out, table[ids, numpy.arange(3)[:, None]])
                ids[1, columns // 2] = 99
                assert run(program, target, extents, [table, ids, out], strides, (21,), (7,)) == 1


@pytest.mark.parametrize("target", RUNNABLE)
def test_check_among_reductions(target: str) -> None:
    for lanes in (INNER, OUTER):

        def body(r: Recorder, x: Any) -> Any:
            r.check(x < 10)
            return [(r.reduce("sum", x), False)]

        x = numpy.ones((3, 40), numpy.float32)
        reduce_run(body, x, lanes, 1, target)
        x[1, 39] = 11
        with pytest.raises(AssertionError):
            reduce_run(body, x, lanes, 1, target)


@pytest.mark.parametrize("target", RUNNABLE)
@pytest.mark.parametrize("kind", (F32, F64, I32), ids=str)
def test_scatter_add(kind: Any, target: str) -> None:
    """out[ids[i], j] += x[i, j]."""
    recorder = Recorder()
    recorder.scatter_add(2, 0, recorder.load(1, I64), recorder.load(0, kind))
    operands = (
        Operand(kind, INPUT, CONTIGUOUS),
        Operand(I64, INPUT, BROADCAST),
        Operand(kind, OUTPUT, CONTIGUOUS),
    )
    program = Program(2, 0, OUTER, operands, (), 1, tuple(recorder.code))
    x = numpy.random.default_rng(1).integers(0, 9, (50, 11)).astype(kind.name)
    ids = numpy.random.default_rng(1).integers(0, 4, 50)
    out = numpy.zeros((4, 11), kind.name)
    run(program, target, (50, 11), [x, ids, out], [(11, 1), (1, 0), (0, 1)], (11,))
    expected = numpy.zeros_like(out)
    numpy.add.at(expected, ids, x)
    same(out, expected)


@pytest.mark.parametrize("target", RUNNABLE)
def test_index_operands(target: str) -> None:
    recorder = Recorder()
    recorder.store(1, recorder.load(0, I64))
    operands = (Operand(I64, INDEX, STRIDED), Operand(I64, OUTPUT, CONTIGUOUS))
    program = Program(2, 0, OUTER, operands, (), 0, tuple(recorder.code))
    out = numpy.zeros((4, 37), numpy.int64)
    run(program, target, (4, 37), [None, out], [(1000, 3), (37, 1)])
    i, j = numpy.indices((4, 37))
    same(out, 1000 * i + 3 * j)


@pytest.mark.parametrize("target", RUNNABLE)
@pytest.mark.parametrize("seed", (0, 1, -1, 12345678901234567))
def test_random_bits(seed: int, target: str) -> None:
    recorder = Recorder()
    given = recorder.load(0, I64), recorder.scalar(0, I64), recorder.scalar(1, I64)
    low, high = Lane(recorder, random=lambda: given).random_bits()
    recorder.store(1, low.cast(I32))
    recorder.store(2, high.cast(I32))
    operands = (
        Operand(I64, INDEX, CONTIGUOUS),
        Operand(I32, OUTPUT, CONTIGUOUS),
        Operand(I32, OUTPUT, CONTIGUOUS),
    )
    program = Program(2, 0, OUTER, operands, (I64, I64), 0, tuple(recorder.code))
    a, b = numpy.zeros((5, 41), numpy.int32), numpy.zeros((5, 41), numpy.int32)
    for number in (0, 1, 77):
        strides = [(41, 1)] * 3
        run(program, target, (5, 41), [None, a, b], strides, (), (seed, number))
        first, second = philox.random_bits((5, 41), seed, number)
        same(a.view(numpy.uint32), first)
        same(b.view(numpy.uint32), second)
    assert len(numpy.unique(a)) == a.size


def test_philox_known_answer() -> None:
    """The vector that Random123 publishes for philox2x32-10: counter and key all ones."""
    key, counter = 0xFFFFFFFF, [0xFFFFFFFF, 0xFFFFFFFF]
    for _ in range(10):
        product = 0xD256D193 * counter[0]
        counter = [(product >> 32) ^ key ^ counter[1], product & 0xFFFFFFFF]
        key = (key + 0x9E3779B9) & 0xFFFFFFFF
    assert counter == [0x2C3F628B, 0xAB4FD7AD]


def test_memory_beyond_the_end_is_not_touched(tmp_path: Any) -> None:
    """Arrays end where an unreadable page begins."""
    program, _ = elementwise(lambda xp, x, y: x + y.cast(F32), F32, BOOL)
    for target in RUNNABLE:
        for size in (1, 5, 16, 17, 63, 100):
            arrays = [at_the_end(size, dtype) for dtype in (F32, BOOL, F32)]
            buffers = (ctypes.c_void_p * 3)(*(array.ctypes.data for array in arrays))
            integers = (ctypes.c_int64 * 4)(size, 1, 1, 1)
            assert kernel(program, target)(buffers, integers, 0, size) == 0


def test_mistakes_are_refused() -> None:
    recorder = Recorder()
    recorder.store(1, recorder.reduce("sum", recorder.load(0, F32)))
    operands = (Operand(F32, INPUT, CONTIGUOUS), Operand(F32, OUTPUT, CONTIGUOUS))
    with pytest.raises(CompileError, match="no inner dimension"):
        compile_program(
            Program(1, 0, OUTER, operands, (), 0, tuple(recorder.code)), TARGETS["generic"]
        )
    recorder = Recorder()
    recorder.store(1, recorder.load(0, F32))
    operands = (Operand(F32, INPUT, CONTIGUOUS, True), Operand(F32, OUTPUT, BROADCAST))
    with pytest.raises(CompileError, match="varying value"):
        compile_program(
            Program(1, 1, INNER, operands, (), 0, tuple(recorder.code)), TARGETS["generic"]
        )
    with pytest.raises(TypeError, match=r"xp\.where"):
        bool(recorder.load(0, F32) > 0)

"""Sine and cosine of every finite angle, checked with integers: pi to 1400 binary digits."""

from __future__ import annotations

import ctypes
import math
import shutil
import subprocess
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy
import pytest
from test_codegen import RUNNABLE, apply, elementwise

import gemel
from gemel import np
from gemel.codegen.c.kernels import source
from gemel.codegen.functions import angles
from gemel.dtype import as_dtype

#: Binary digits after the point: of pi, and in the series.
DIGITS, ENOUGH = 1400, 220
#: The errors that `mathlib` promises, and the number of bits of a significand.
BOUND = {"float32": 1.3e-7, "float64": 2.6e-16}
SIGNIFICAND = {"float32": 24, "float64": 53}
#: The floats that are nearest to a multiple of pi / 2.
NEAREST = {"float32": 16367173 * 2.0**72, "float64": 6381956970095103 * 2.0**797}


def _arctangent(inverse: int) -> int:
    """arctan(1 / inverse), with 64 digits to spare."""
    power = total = (1 << DIGITS + 64) // inverse
    number, sign = 3, -1
    while power:
        power //= inverse * inverse
        total += sign * (power // number)
        number, sign = number + 2, -sign
    return total


PI = 4 * (4 * _arctangent(5) - _arctangent(239)) >> 64  # Machin's formula


def _series(angle: int, first: int, number: int) -> int:
    """The sum of the series of a sine or cosine, from the term `first` on."""
    total, sign = 0, 1
    while first:
        total += sign * first
        first = (first * angle >> ENOUGH) * angle >> ENOUGH
        first //= (number + 1) * (number + 2)
        number, sign = number + 2, -sign
    return total


def exact(x: float) -> tuple[Fraction, Fraction]:
    """Sine and cosine of a float, with many more digits than the float has."""
    above, below = abs(x).as_integer_ratio()
    turns, rest = divmod(2 * ((above << DIGITS) // below) + PI // 2, PI)
    rest = (rest - PI // 2) >> (DIGITS + 1 - ENOUGH)
    sine, cosine = _series(abs(rest), abs(rest), 1), _series(abs(rest), 1 << ENOUGH, 0)
    sine = sine if rest > 0 else -sine
    for _ in range(turns % 4):
        sine, cosine = cosine, -sine
    return Fraction(sine if x > 0 else -sine, 1 << ENOUGH), Fraction(cosine, 1 << ENOUGH)


def nearest(dtype: str, exponent: int) -> list[float]:
    """Floats between 2**exponent and twice that, very near to a multiple of pi / 2: they are
    multiples of the denominators of continued fractions."""
    digits = SIGNIFICAND[dtype]
    place = exponent - digits + 1
    above, below = 2 << (DIGITS + max(place, 0)), PI << max(-place, 0)
    before, now, found = 1, 0, []
    while now < 1 << digits:
        if now and (times := -(-(1 << digits - 1) // now)) * now < 1 << digits:
            found.append(math.ldexp(times * now, place))
        whole, left = divmod(above, below)
        above, below = below, left
        before, now = now, whole * now + before
    return found[-2:]


def cases(dtype: str, most: float = math.inf) -> Any:
    """Floats of all exponents and both signs, some as near to multiples of pi / 2 as possible."""
    digits, numbers = SIGNIFICAND[dtype], numpy.random.default_rng(5)
    found = [NEAREST[dtype], angles.FAR, numpy.nextafter(numpy.array(angles.FAR, dtype), 0)]
    found += [numpy.finfo(dtype).max, 1e20, 1e22]
    for exponent in range(-3, numpy.finfo(dtype).maxexp):
        drawn = numbers.integers(1 << digits - 1, 1 << digits, 2)
        found += [math.ldexp(int(m), exponent - digits + 1) for m in drawn]
        found += nearest(dtype, exponent)
    x = numpy.array(found, dtype)
    x = x[x <= most]
    return numpy.concatenate([x, -x])


def farthest(found: Any, wanted: list[Fraction]) -> float:
    """The largest relative error."""
    pairs = zip(found.tolist(), wanted, strict=True)
    return max(abs(float((Fraction(value) - right) / right)) for value, right in pairs)


WANTED = {dtype: list(zip(*map(exact, cases(dtype).tolist()), strict=True)) for dtype in BOUND}


def test_the_reference_is_right() -> None:
    for x in (0.3, 1.0, 2.0, 3.0, 4.0, 5.0, 6.5, -2.5, 1e5):
        assert [float(v) for v in exact(x)] == pytest.approx([math.sin(x), math.cos(x)], 1e-15)
    assert float(exact(1e22)[0]) == pytest.approx(-0.8522008497671888018, 1e-15)
    # The distance of the nearest one from a multiple of pi / 2, according to Muller et al. (2010).
    assert min(abs(float(v)) for v in exact(NEAREST["float64"])) == pytest.approx(4.687e-19, 1e-3)
    assert min(abs(float(v)) for v in exact(NEAREST["float32"])) == pytest.approx(1.6148e-9, 1e-3)


def test_the_digits_of_two_by_pi() -> None:
    digits = (2 << DIGITS + 64 * len(angles._WORDS) - 54) // PI
    assert int(angles._DIGITS, 16) == digits


@pytest.mark.parametrize("target", RUNNABLE)
@pytest.mark.parametrize("dtype", BOUND)
def test_all_exponents(dtype: str, target: str) -> None:
    x = cases(dtype)
    for name, wanted in zip(("sin", "cos"), WANTED[dtype], strict=True):
        found = apply(lambda xp, v, name=name: getattr(xp, name)(v), target, x)
        assert farthest(found, wanted) <= BOUND[dtype], name


@pytest.mark.parametrize("dtype", BOUND)
def test_arrays_imperative_and_compiled(dtype: str) -> None:
    x = cases(dtype)
    sines, cosines = WANTED[dtype]
    ratios = [s / c for s, c in zip(sines, cosines, strict=True)]
    for function, wanted in ((np.sin, sines), (np.cos, cosines), (np.tan, ratios)):
        found = function(np.array(x)).asnumpy()
        bound = (3 if function is np.tan else 1) * BOUND[dtype]
        assert farthest(found, wanted) <= bound, function
        again = gemel.compile(lambda v, function=function: function(v))(np.array(x)).asnumpy()
        numpy.testing.assert_array_equal(again, found)


def test_what_was_wrong() -> None:
    assert float(np.cos(np.array(1e20, dtype="float64"))) == pytest.approx(0.7639704044417283)
    assert float(np.cos(np.array(1e20, dtype="float32"))) == pytest.approx(
        math.cos(float(numpy.float32(1e20)))
    )
    assert float(np.cos(np.array(-1e20))) == float(np.cos(np.array(1e20)))


@pytest.mark.parametrize("kind, digits", [("bfloat16", 8), ("float16", 11)])
def test_values_kept_in_two_bytes(kind: str, digits: int) -> None:
    x = cases("float32", 3e38 if kind == "bfloat16" else 65504)
    kept = np.array(x).astype(kind)
    values = kept.astype("float32").asnumpy().tolist()
    # Half a unit in the last place, and half of the smallest subnormal.
    near, least = Fraction(1.001 * 2.0**-digits), Fraction(1, 2**25)
    for function, which in ((np.sin, 0), (np.cos, 1)):
        found = function(kept).astype("float32").asnumpy().tolist()
        for value, result in zip(values, found, strict=True):
            wanted = exact(value)[which]
            assert abs(Fraction(result) - wanted) <= abs(wanted) * near + least, value


@pytest.mark.parametrize("target", RUNNABLE)
@pytest.mark.parametrize("dtype", BOUND)
def test_symmetry_and_neighbours(dtype: str, target: str) -> None:
    """Other lanes have no effect, not even at the ends of vectors; signs are kept."""
    sine, cosine = (lambda xp, v: xp.sin(v)), (lambda xp, v: xp.cos(v))
    x = cases(dtype)
    x = numpy.random.default_rng(1).permutation(x)
    for function, sign in ((sine, -1), (cosine, 1)):
        whole = apply(function, target, x)
        numpy.testing.assert_array_equal(apply(function, target, -x), sign * whole)
        for size in (1, 2, 7, 8, 9, 15, 16, 17, 31, 33):
            numpy.testing.assert_array_equal(apply(function, target, x[:size].copy()), whole[:size])
        usual = numpy.array([0.5, -0.0, 3, math.nan, math.inf, 1e-30] * 6, dtype)
        alone, mixed = apply(function, target, usual[:4].copy()), usual.copy()
        mixed[5::6] = numpy.finfo(dtype).max
        found = apply(function, target, mixed)
        numpy.testing.assert_array_equal(found.reshape(6, 6)[:, :4], [alone] * 6)
        assert (numpy.signbit(found[1::6]) == (sign < 0)).all()


@pytest.mark.parametrize("dtype", [*BOUND, "float16", "bfloat16"])
def test_values_that_are_not_finite(dtype: str) -> None:
    x = np.array([math.inf, -math.inf, math.nan] * 7).astype(dtype)
    for function in (np.sin, np.cos, np.tan):
        assert numpy.isnan(function(x).astype("float32").asnumpy()).all()


def test_gradients() -> None:
    x = np.array([1e20, -1e20, 3.0], dtype="float64")
    x.attach_grad()
    with gemel.autograd.record():
        y = np.sin(x)
    y.backward()
    numpy.testing.assert_array_equal(x.grad.asnumpy(), np.cos(x).asnumpy())


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
@pytest.mark.parametrize("dtype", BOUND)
def test_printed_as_c(dtype: str, tmp_path: Path) -> None:
    """The printed C has the same bits as the machine code."""
    x = cases(dtype)
    functions = [lambda xp, v: xp.sin(v), lambda xp, v: xp.cos(v)]
    text, library = tmp_path / "kernels.c", tmp_path / "kernels.so"
    text.write_text(source([elementwise(f, as_dtype(dtype))[0] for f in functions]))
    options = ("-std=c11", "-O1", "-ffp-contract=off", "-shared", "-fPIC")
    subprocess.run(["cc", *options, str(text), "-o", str(library), "-lm"], check=True)
    for number, function in enumerate(functions):
        found = numpy.empty_like(x)
        buffers = (ctypes.c_void_p * 2)(x.ctypes.data, found.ctypes.data)
        integers = (ctypes.c_int64 * 3)(x.size, 1, 1)
        kernel = ctypes.CDLL(str(library))[f"kernel{number}"]
        kernel.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64]
        assert kernel(buffers, integers, 0, x.size) == 0
        numpy.testing.assert_array_equal(found, apply(function, RUNNABLE[0], x))

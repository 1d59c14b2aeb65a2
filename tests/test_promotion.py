"""Dtypes that meet: promotion, mixed operands, and Python numbers, which give way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import op_table
import pytest
from op_table import FLOATING, NAMES, OPS, Case, accepts, check, first_cases, inputs_of, on_gemel

import gemel
from gemel import np
from gemel.dtype import as_dtype, promote
from gemel.errors import DTypeError
from gemel.ir.op_kinds import Elementwise

COMPLEX = ("complex64", "complex128")
INEXACT = (*FLOATING, *COMPLEX)

# --- dtypes that meet -----------------------------------------------------------------------

MIXED = [
    ("bool", "uint8"),
    ("uint8", "int8"),
    ("uint16", "int16"),
    ("uint64", "int32"),
    ("uint32", "uint64"),
    ("int8", "int64"),
    ("int64", "float16"),
    ("int32", "float32"),
    ("bool", "float64"),
    ("float16", "float32"),
    ("float64", "float32"),
]
BINARY = [
    case
    for case in first_cases()
    if isinstance(case.op, Elementwise) and len(case.draws) == 2 and not case.parameters
]


def numpy_promotes(a: str, b: str) -> str:
    """NumPy's promotion, except that floating and complex dtypes win unchanged."""
    if (a in INEXACT) != (b in INEXACT):
        return a if a in INEXACT else b
    return numpy.result_type(a, b).name


@pytest.mark.parametrize("a", NAMES)
@pytest.mark.parametrize("b", NAMES)
def test_promotion(a: str, b: str) -> None:
    assert promote(as_dtype(a), as_dtype(b)).name == numpy_promotes(a, b)


@pytest.mark.parametrize("a", NAMES)
def test_all_pairs_of_dtypes(a: str) -> None:
    for name in ("add", "less"):
        case = next(c for c in BINARY if c.name == name)
        for b in NAMES:
            x, _ = inputs_of(case, a)
            _, y = inputs_of(case, b)
            if not accepts(case, [x, y]):
                assert name == "less" and (a in COMPLEX or b in COMPLEX)
                continue
            check(case, [x, y])
            if name == "add":
                assert OPS["add"](*on_gemel([x, y])).dtype.name == numpy_promotes(a, b)


@pytest.mark.parametrize("case", BINARY, ids=lambda c: c.name)
def test_pairs_of_dtypes(case: Case) -> None:
    for a, b in MIXED:
        x, _ = inputs_of(case, a)
        _, y = inputs_of(case, b)
        if accepts(case, [x, y]):
            check(case, [x, y])
        else:
            with pytest.raises(DTypeError, match=case.name):
                case.op(*on_gemel([x, y]))


@pytest.mark.parametrize(("a", "b"), MIXED)
def test_pairs_in_other_operations(a: str, b: str) -> None:
    first, second = (op_table.draw(op_table.Draw((3, 3), "positive"), d, 1) for d in (a, b))
    mask = numpy.eye(3, dtype=bool)
    check(Case("where", (), {}), [mask, first, second])
    check(Case("matmul", (), {}), [first, second])
    check(Case("concatenate", (), {"axis": 0}), [first, second])
    check(Case("limit", (), {}), [first, second, first])


# --- Python numbers -------------------------------------------------------------------------

NUMBERS = (True, 3, 1.5)


@pytest.mark.parametrize("dtype", NAMES)
@pytest.mark.parametrize("name", ["add", "less", "equal"])
def test_numbers_give_way(name: str, dtype: str) -> None:
    x = op_table.draw(op_table.Draw((5,), "positive"), dtype, 2)
    if not accepts(Case(name, (), {}), [x, x]):
        return
    for number in (*NUMBERS, 1.5j) if name != "less" else NUMBERS:
        for inputs in ([x, number], [number, x]):
            check(Case(name, (), {}), inputs)
    if name == "add":
        array = np.array(x, dtype=dtype)
        floating = dtype if dtype in INEXACT else "float32"
        assert (array + 1.5).dtype == floating
        assert (array + 1j).dtype == numpy.result_type(floating, "complex64")
        assert (array + 1).dtype == (dtype if dtype != "bool" else "int64")


@pytest.mark.parametrize("case", BINARY, ids=lambda c: c.name)
def test_numbers_on_either_side(case: Case) -> None:
    for dtype in ("int32", "float16", "float32"):
        x = op_table.draw(op_table.Draw((5,), "positive"), dtype, 2)
        for number in (2, 2.5):
            for inputs in ([x, number], [number, x]):
                if accepts(case, inputs):
                    check(case, inputs)


def test_a_number_is_no_part_of_a_kernel() -> None:
    """Loops over numbers compile nothing new."""
    from gemel.runtime.cache import counters

    x = np.arange(6, dtype="float32")
    (x * 1 + 2.0).wait_to_read()
    before = counters["compiled"] + counters["loaded"]
    for i in range(50):
        numpy.testing.assert_array_equal((x * i + 0.5 * i).asnumpy(), numpy.arange(6) * i + 0.5 * i)
    assert counters["compiled"] + counters["loaded"] == before


def test_numpy_numbers_and_lists_are_operands() -> None:
    x = np.array([1.0, 2.0])
    assert (x + numpy.float64(1)).dtype == "float32"
    assert (x * numpy.int64(2)).tolist() == [2.0, 4.0]
    assert (numpy.float32(1) + x).tolist() == [2.0, 3.0]
    assert (x + [1, 2]).tolist() == [2.0, 4.0]
    assert (numpy.array([1.0, 2.0], "float32") + x).tolist() == [2.0, 4.0]


# --- Python floats beside arrays of float64 -------------------------------------------------


def written(write: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A function of (namespace, x) that writes to a copy of x."""

    def function(xp: Any, x: Any) -> Any:
        y = x * 1
        write(xp, y)
        return y

    return function


TENTHS = [0.1, 0.3, 0.7, 0.9]
#: What becomes an array beside x, or is written into it, is as exact as x.
EXACT: dict[str, Callable[[Any, Any], Any]] = {
    "x[0] =": written(lambda xp, y: y.__setitem__(0, 0.1)),
    "x[mask] =": written(lambda xp, y: y.__setitem__(y > 1, 0.1)),
    "x[0] = 1e300": written(lambda xp, y: y.__setitem__(0, 1e300)),
    "fill": written(lambda xp, y: y.fill(0.1)),
    "copyto": written(lambda xp, y: xp.copyto(y, 0.1)),
    "put": written(lambda xp, y: xp.put(y, [0], 0.1)),
    "putmask": written(lambda xp, y: xp.putmask(y, y > 1, 0.1)),
    "put_along_axis": written(lambda xp, y: xp.put_along_axis(y, xp.array([0]), 0.1, 0)),
    "fill_diagonal": written(lambda xp, y: xp.fill_diagonal(y.reshape(2, 2), 0.1)),
    "add.at": written(lambda xp, y: xp.add.at(y, [0, 0], 0.1)),
    "add.outer": lambda xp, x: xp.add.outer(x, [0.1, 0.3]),
    "insert": lambda xp, x: xp.insert(x, 1, 0.1),
    "append": lambda xp, x: xp.append(x, 0.1),
    "ediff1d": lambda xp, x: xp.ediff1d(x, to_begin=0.1),
    "diff": lambda xp, x: xp.diff(x, prepend=[0.1, 0.3]),
    "select": lambda xp, x: xp.select([x > 1], [x], 0.1),
    "choose": lambda xp, x: xp.choose(xp.array([0, 1, 0, 1]), [x, 0.1]),
    "piecewise": lambda xp, x: xp.piecewise(x, [x > 1], [0.1, 0.3]),
    "searchsorted": lambda xp, x: xp.searchsorted(x * 0.1, 0.1),
    "float_power": lambda xp, x: xp.float_power(0.1, x) + xp.float_power(x, TENTHS),
    "polyval": lambda xp, x: xp.polyval(TENTHS, x),
    "polyadd": lambda xp, x: xp.polyadd(x, TENTHS),
    "polysub": lambda xp, x: xp.polysub(TENTHS, x),
    "polymul": lambda xp, x: xp.polymul(x, TENTHS),
    "convolve": lambda xp, x: xp.convolve(x, TENTHS),
    "correlate": lambda xp, x: xp.correlate(TENTHS, x),
    "average": lambda xp, x: xp.average(x, weights=TENTHS),
    "cov": lambda xp, x: xp.cov(x, TENTHS, aweights=TENTHS),
    "corrcoef": lambda xp, x: xp.corrcoef(TENTHS, x),
    "histogram": lambda xp, x: xp.histogram(x, bins=3, weights=TENTHS)[0],
    "trapezoid": lambda xp, x: xp.trapezoid(TENTHS, x),
    "gradient": lambda xp, x: xp.gradient(x, TENTHS),
    "full_like": lambda xp, x: xp.full_like(x, TENTHS),
    "linspace": lambda xp, x: xp.linspace(x, TENTHS, 3),
    "logspace": lambda xp, x: xp.logspace(x, 0.1, 3),
    "geomspace": lambda xp, x: xp.geomspace(x + 1, 0.1, 3),
    "linalg.outer": lambda xp, x: xp.linalg.outer(x, TENTHS),
    "linalg.cross": lambda xp, x: xp.linalg.cross(x[1:], TENTHS[1:]),
    "linalg.multi_dot": lambda xp, x: xp.linalg.multi_dot([x[None], [[n] for n in TENTHS]]),
}


@pytest.mark.parametrize("name", EXACT)
def test_floats_beside_float64_keep_their_digits(name: str) -> None:
    function = EXACT[name]
    x = numpy.array([0.2, 1.0, 2.0, 3.5])
    wanted = function(numpy, x)
    for run in (function, gemel.compile(lambda y: function(np, y))):
        given = np.array(x)
        found = run(np, given) if run is function else run(given)
        numpy.testing.assert_allclose(found.asnumpy(), wanted, rtol=1e-12, atol=1e-14)


def test_floats_written_into_whole_numbers_are_cut_off_from_all_their_digits() -> None:
    def function(x: Any) -> Any:
        x = x * 1
        x[0] = 16777217.5
        return x

    x = np.array([0, 1])
    assert gemel.compile(function)(x).tolist() == function(x).tolist() == [16777217, 1]


def test_numbers_to_a_power_in_float64_keep_their_digits() -> None:
    x = np.array([2.0], dtype="float32")
    assert np.float_power(x, 0.1).item() == pytest.approx(2**0.1, rel=1e-15)
    assert np.float_power(0.1, x).item() == pytest.approx(0.1**2, rel=1e-15)
    assert np.float_power(x, [0.1]).item() == pytest.approx(2**0.1, rel=1e-15)
    assert np.float_power(x, 1j).dtype == "complex128"

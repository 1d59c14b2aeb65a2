"""Dtypes that meet: promotion, mixed operands, and Python numbers, which give way."""

from __future__ import annotations

import numpy
import op_table
import pytest
from op_table import FLOATING, NAMES, OPS, Case, accepts, check, first_cases, inputs_of, on_gemel

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

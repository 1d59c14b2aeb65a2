"""The standard's elementwise functions and operators, against NumPy's and the standard's tables."""

from __future__ import annotations

import operator
from typing import Any

import numpy
import pytest
from array_api_draws import KINDS, arrays, check, elements, gemels, numbers, pairs, same
from hypothesis import given
from hypothesis import strategies as st
from numpy_cases import examples

from gemel import np

#: The dtypes that each function takes.
UNARY = {
    "abs": "numeric",
    "acos": "any floating",
    "acosh": "any floating",
    "asin": "any floating",
    "asinh": "any floating",
    "atan": "any floating",
    "atanh": "any floating",
    "bitwise_invert": "integer or bool",
    "ceil": "real",
    "conj": "numeric",
    "cos": "any floating",
    "cosh": "any floating",
    "exp": "any floating",
    "expm1": "any floating",
    "floor": "real",
    "imag": "complex",
    "isfinite": "numeric",
    "isinf": "numeric",
    "isnan": "numeric",
    "log": "any floating",
    "log1p": "any floating",
    "log2": "any floating",
    "log10": "any floating",
    "logical_not": "bool",
    "negative": "numeric",
    "positive": "numeric",
    "real": "numeric",
    "reciprocal": "any floating",
    "round": "numeric",
    "sign": "numeric",
    "signbit": "floating",
    "sin": "any floating",
    "sinh": "any floating",
    "sqrt": "any floating",
    "square": "numeric",
    "tan": "any floating",
    "tanh": "any floating",
    "trunc": "real",
}
BINARY = {
    "add": "numeric",
    "atan2": "floating",
    "bitwise_and": "integer or bool",
    "bitwise_or": "integer or bool",
    "bitwise_xor": "integer or bool",
    "copysign": "floating",
    "divide": "any floating",
    "equal": "all",
    "floor_divide": "real",
    "greater": "real",
    "greater_equal": "real",
    "hypot": "floating",
    "less": "real",
    "less_equal": "real",
    "logaddexp": "floating",
    "logical_and": "bool",
    "logical_or": "bool",
    "logical_xor": "bool",
    "maximum": "real",
    "minimum": "real",
    "multiply": "numeric",
    "nextafter": "floating",
    "not_equal": "all",
    "pow": "numeric",
    "remainder": "real",
    "subtract": "numeric",
}
OPERATORS = {
    "__add__": "add",
    "__and__": "bitwise_and",
    "__eq__": "equal",
    "__floordiv__": "floor_divide",
    "__ge__": "greater_equal",
    "__gt__": "greater",
    "__le__": "less_equal",
    "__lt__": "less",
    "__mod__": "remainder",
    "__mul__": "multiply",
    "__ne__": "not_equal",
    "__or__": "bitwise_or",
    "__pow__": "pow",
    "__sub__": "subtract",
    "__truediv__": "divide",
    "__xor__": "bitwise_xor",
}
BITS = ("bool", "integer", "integer or bool")
#: Of numbers far from zero these are as exact as the machine's pi.
TURNING = ("sin", "cos", "tan")
#: Wider tolerances, for the rounding of intermediate results.
LOOSE = {"pow": 1e-4, "expm1": 1e-4}


@pytest.mark.parametrize("name", UNARY)
@examples(6)
@given(data=st.data())
def test_of_one_array(name: str, data: Any) -> None:
    turning = name in TURNING
    same(name, data.draw(arrays(KINDS[UNARY[name]], small=turning)), tolerance=LOOSE.get(name))


def comparable(name: str, *operands: Any) -> bool:
    """Whether NumPy follows the standard here; the tables below test the other cases."""
    if name == "pow":  # integers to negative powers have no rule; NumPy's ** 0.5 is sqrt
        negative = integral(operands[1]) and numpy.any(numpy.asarray(operands[1]) < 0)
        return not negative and not (type(operands[1]) is float and operands[1] == 0.5)
    if name in ("floor_divide", "remainder"):  # nor has division of integers by zero
        return not (all(map(integral, operands)) and numpy.any(numpy.asarray(operands[1]) == 0))
    return True


def integral(x: Any) -> bool:
    return numpy.asarray(x).dtype.kind in "iu"


@pytest.mark.parametrize("name", BINARY)
@examples(6)
@given(data=st.data())
def test_of_two_arrays(name: str, data: Any) -> None:
    first, second = data.draw(pairs(KINDS[BINARY[name]]))
    if comparable(name, first, second):
        same(name, first, second, tolerance=LOOSE.get(name))


@pytest.mark.parametrize("name", BINARY)
@examples(6)
@given(data=st.data())
def test_of_an_array_and_a_number(name: str, data: Any) -> None:
    array = data.draw(arrays(KINDS[BINARY[name]]))
    given_ = [array, data.draw(numbers(array.dtype.name))]
    if data.draw(st.booleans()):
        given_.reverse()
    if comparable(name, *given_):
        same(name, *given_, tolerance=LOOSE.get(name))


@pytest.mark.parametrize("name", ["bitwise_left_shift", "bitwise_right_shift"])
@examples(10)
@given(data=st.data())
def test_shifts(name: str, data: Any) -> None:
    first, second = data.draw(pairs(KINDS["integer"]))
    bits = 8 * numpy.result_type(first, second).itemsize
    second = numpy.abs(second.astype("int64")) % bits
    same(name, first, second.astype(numpy.result_type(first).name))
    bits = 8 * first.dtype.itemsize - (first.dtype.kind == "i")
    same(name, first, data.draw(st.integers(0, bits - 1)))
    same(name, 1, numpy.asarray(numpy.abs(first) % bits).astype(first.dtype))


@pytest.mark.parametrize("name", OPERATORS)
@examples(6)
@given(data=st.data())
def test_operators(name: str, data: Any) -> None:
    kind = KINDS[BINARY[OPERATORS[name]]]
    first, second = data.draw(pairs(kind))
    if data.draw(st.booleans()):
        second = data.draw(numbers(first.dtype.name))
    if not comparable(OPERATORS[name], first, second):
        return
    call = getattr(operator, name)
    with numpy.errstate(all="ignore"):
        expected = call(first, second)
    check(call(*gemels([first, second])), expected, (name, first, second), LOOSE.get("pow"))
    if isinstance(second, numpy.ndarray) or name in ("__eq__", "__ne__", "__lt__", "__le__"):
        return
    with numpy.errstate(all="ignore"):
        expected = call(second, first) if comparable(OPERATORS[name], second, first) else None
    if expected is not None:
        check(call(second, np.asarray(first)), expected, (name, second, first), LOOSE.get("pow"))


INPLACE = ["iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "iand", "ior", "ixor"]


@pytest.mark.parametrize("name", INPLACE)
@examples(6)
@given(data=st.data())
def test_in_place(name: str, data: Any) -> None:
    plain = {
        "itruediv": "divide",
        "iand": "bitwise_and",
        "ior": "bitwise_or",
        "ixor": "bitwise_xor",
    }
    plain |= {"iadd": "add", "isub": "subtract", "imul": "multiply", "ifloordiv": "floor_divide"}
    plain |= {"imod": "remainder", "ipow": "pow"}
    array, other = data.draw(pairs(KINDS[BINARY[plain[name]]]))
    if data.draw(st.booleans()):
        other = data.draw(numbers(array.dtype.name))
    elif numpy.result_type(array, other) != array.dtype:
        other = other.astype(array.dtype)
    if isinstance(other, numpy.ndarray):
        shape = numpy.broadcast_shapes(array.shape, other.shape)
        array = numpy.broadcast_to(array, shape).copy()
    if not comparable(plain[name], array, other):
        return
    call = getattr(operator, name)
    own = np.array(array)
    result = call(own, gemels(other))
    with numpy.errstate(all="ignore"):
        expected = call(array.copy(), other)
    assert result is own
    check(own, expected, (name, array, other), LOOSE.get("pow"))


@examples(20)
@given(data=st.data())
def test_clip(data: Any) -> None:
    x = data.draw(arrays(KINDS["real"]))
    name = x.dtype.name

    def bound() -> Any:
        plain = elements(name, finite=True)
        inner = x.shape[data.draw(st.integers(0, x.ndim)) :]
        return data.draw(st.one_of(st.none(), plain, arrays(name, inner, finite=True)))

    low, high = bound(), bound()
    if low is None and high is None:
        assert np.clip(np.asarray(x)).dtype == x.dtype
        return
    if low is not None and high is not None and numpy.any(numpy.asarray(low) > high):
        return
    same("clip", x, low, high)


# --- special cases --------------------------------------------------------------------------

#: Values that the standard's tables of special cases distinguish.
SPECIAL = [0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 8.0, 1e30, float("inf")]
SPECIAL = [*SPECIAL, *(-x for x in SPECIAL), float("nan")]


@pytest.mark.parametrize("dtype", KINDS["floating"])
@pytest.mark.parametrize("name", [n for n, kind in UNARY.items() if kind not in BITS])
def test_special_cases_of_one_array(name: str, dtype: str) -> None:
    found = [x for x in SPECIAL if name not in TURNING or abs(x) != 1e30]
    same(name, numpy.array(found, dtype), tolerance=LOOSE.get(name))


@pytest.mark.parametrize("dtype", KINDS["floating"])
@pytest.mark.parametrize("name", [n for n, kind in BINARY.items() if kind not in BITS])
def test_special_cases_of_two_arrays(name: str, dtype: str) -> None:
    values = numpy.array(SPECIAL, dtype)
    with numpy.errstate(all="ignore"):
        expected = getattr(numpy, name)(values[:, None], values)
    ours, own = getattr(np, name), np.asarray(values)
    loose = LOOSE.get(name)
    check(ours(own[:, None], own), expected, name, loose)
    for at, number in enumerate(SPECIAL):
        check(ours(own, number), expected[:, at], (name, number), loose)
        check(ours(number, own), expected[at], (name, number), loose)

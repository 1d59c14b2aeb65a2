"""Every operation, called imperatively, compared with its NumPy reference."""

from __future__ import annotations

import zlib
from typing import Any

import numpy
import op_table
import pytest
from op_table import (
    CASES,
    ELSEWHERE,
    FLOATING,
    FUNCTIONS,
    NAMES,
    OPS,
    SEED,
    TOLERANCE,
    Case,
    accepts,
    check,
    close,
    expected_of,
    first_cases,
    inputs_of,
    on_gemel,
    results,
)

import gemel
from gemel import np
from gemel.errors import DTypeError
from gemel.ir.op_kinds import Elementwise

INTEGERS = tuple(name for name in NAMES if "int" in name)

#: These cases have no random inputs whose dtype could vary, so they run once.
ONCE = frozenset(("iota", "one_hot", "randint"))


def dtypes_of(case: Case) -> tuple[str, ...]:
    """The dtypes in which a case is run."""
    varies = any(not d.dtype and d.kind != "number" for d in case.draws)
    return NAMES if varies else ("float32",)


def test_every_operation_has_a_case() -> None:
    covered = {case.name for case in CASES}
    missing = set(OPS) - covered - set(ELSEWHERE)
    assert not missing, f"no case for {sorted(missing)}"
    assert not covered & set(ELSEWHERE)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_against_reference_in_float32(case: Case) -> None:
    """Every case once; in int32 if the operation refuses float32."""
    inputs = inputs_of(case, "float32")
    if not accepts(case, inputs):
        inputs = inputs_of(case, "int32")
    check(case, inputs)


@pytest.mark.parametrize(
    "case, dtype",
    [(c, name) for c in first_cases() for name in dtypes_of(c) if name != "float32"],
    ids=str,
)
def test_against_reference_in_every_dtype(case: Case, dtype: str) -> None:
    """One case of every operation in every dtype; a call refuses what `infer` refuses."""
    inputs = inputs_of(case, dtype)
    # The limits are -1 and 2, and no integer dtype holds both -1 and all of uint64.
    if case.name == "limit" and dtype == "uint64":
        with pytest.raises(OverflowError, match="-1 is out of bounds for uint64"):
            check(case, inputs)
    elif accepts(case, inputs):
        check(case, inputs)
    else:
        # An operation that combines elements by another one is refused under the other's name.
        known = case.parameters.get("by", "take" if case.name == "gather" else case.name)
        with pytest.raises(DTypeError, match=known):
            case.op(*on_gemel(inputs), **case.parameters)


# --- where the elements lie -----------------------------------------------------------------


def transposed(x: Any, lib: Any) -> Any:
    return x.T


def sliced(x: Any, lib: Any) -> Any:
    """Every second element along each axis, starting at the second."""
    return x[tuple(slice(1, None, 2) for _ in x.shape)]


def turned(x: Any, lib: Any) -> Any:
    """Reversed along every axis."""
    return x[tuple(slice(None, None, -1) for _ in x.shape)]


def repeated(x: Any, lib: Any) -> Any:
    """The first element, repeated along the last axis with stride zero."""
    shape = tuple(x.shape)
    return lib.broadcast_to(x[..., :1], shape)


def laid_out(value: Any, view: Any) -> tuple[Any, Any]:
    """The same array in NumPy and in gemel, both as a view of other memory."""
    if not isinstance(value, numpy.ndarray) or value.ndim == 0:
        return value, on_gemel([value])[0]
    if view is transposed:
        base = numpy.ascontiguousarray(value.T)
    elif view is sliced:
        base = numpy.zeros(tuple(2 * n + 1 for n in value.shape), value.dtype)
        base[tuple(slice(1, None, 2) for _ in value.shape)] = value
    else:
        base = value
    return view(base, numpy), view(np.array(base, dtype=base.dtype.name), np)


#: Reductions that share loops with others: only some of their axes are tried in every layout.
KEPT_SMALL = frozenset(["prod", "min", "any", "all", "argmin", "var", "std"])


def seen_through_views(case: Case) -> bool:
    """Whether a case has arrays with axes; for KEPT_SMALL, one axis of each kind is enough."""
    axis = case.parameters.get("axis", 0)
    if case.name in KEPT_SMALL and axis not in (0, 1, None):
        return False
    return any(d.kind != "number" and d.shape for d in case.draws)


VIEWS = [transposed, sliced, turned, repeated]


def views_of(case: Case) -> list[Any]:
    """All views; elementwise operations share their loops, so each gets every second view."""
    if not isinstance(case.op, Elementwise):
        return VIEWS
    turn = zlib.crc32(case.name.encode()) % 2
    return VIEWS[turn::2]


@pytest.mark.parametrize(
    "case, view",
    [
        pytest.param(case, view, id=f"{case}-{view.__name__}")
        for case in CASES
        if seen_through_views(case)
        for view in views_of(case)
    ],
)
def test_views_as_inputs(case: Case, view: Any) -> None:
    """Inputs with strides of every kind: another order, gaps, negative, zero."""
    dtype = "float32" if accepts(case, inputs_of(case, "float32")) else "int32"
    # Sorted rows must stay sorted, and definite matrices definite, so these are only sliced.
    ways = [sliced if d.kind in ("sorted", "definite") else view for d in case.draws]
    drawn = zip(inputs_of(case, dtype), ways, strict=True)
    pairs = [laid_out(value, way) for value, way in drawn]
    inputs = [numpy.asarray(a) if isinstance(a, numpy.ndarray) else a for a, _ in pairs]
    if case.op.updates:
        inputs[3:] = inputs_of(case, dtype)[3:]
        arrays = [b for _, b in pairs[:3]] + on_gemel(inputs[3:])
    else:
        arrays = [b for _, b in pairs]
    check(case, inputs, arrays)


def test_views_of_views_write_and_read_the_right_elements() -> None:
    base = numpy.arange(120, dtype="float32").reshape(4, 5, 6)
    x = np.array(base)
    view, twin = x[1:, ::-2].transpose(2, 0, 1)[::2], base[1:, ::-2].transpose(2, 0, 1)[::2]
    numpy.testing.assert_array_equal(view.asnumpy(), twin)
    view[1] = -1
    twin[1] = -1
    numpy.testing.assert_array_equal(x.asnumpy(), base)
    numpy.testing.assert_array_equal((view + view.sum(axis=0)).asnumpy(), twin + twin.sum(axis=0))


# --- sizes ----------------------------------------------------------------------------------

ELEMENTWISE = [c for c in first_cases() if isinstance(c.op, Elementwise) and c.name in OPS]
PLAIN = [c for c in ELEMENTWISE if not {"shape", "dtype"} & set(c.parameters)]


def resized(case: Case, *shapes: tuple[int, ...]) -> Case:
    """The case with inputs of other shapes; the last shape is used for all that follow."""
    padded = [*shapes, *[shapes[-1]] * len(case.draws)]
    draws = tuple(
        d if d.kind == "number" else d._replace(shape=s)
        for d, s in zip(case.draws, padded, strict=False)
    )
    return case._replace(draws=draws)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0, 4)], ids=str)
@pytest.mark.parametrize("case", PLAIN, ids=lambda c: c.name)
def test_elementwise_of_nothing(case: Case, shape: tuple[int, ...]) -> None:
    case = resized(case, shape)
    dtype = "float32" if accepts(case, inputs_of(case, "float32")) else "int32"
    check(case, inputs_of(case, dtype))


@pytest.mark.parametrize("case", PLAIN, ids=lambda c: c.name)
def test_elementwise_of_one(case: Case) -> None:
    """Arrays without axes."""
    case = resized(case, ())
    dtype = "float32" if accepts(case, inputs_of(case, "float32")) else "int32"
    check(case, inputs_of(case, dtype))


EMPTY = [
    ("sum", [(0,)], {}),
    ("sum", [(0, 3)], {"axis": 0}),
    ("sum", [(0, 3)], {"axis": 1}),
    ("prod", [(2, 0)], {"axis": 1, "keepdims": True}),
    ("any", [(2, 0)], {"axis": 1}),
    ("all", [(2, 0)], {"axis": 1}),
    ("max", [(0, 3)], {"axis": 1}),
    ("argmax", [(0, 3)], {"axis": 1}),
    ("mean", [(0, 3)], {"axis": 1}),
    ("mean", [(0, 3)], {"axis": 0}),
    ("softmax", [(0, 3)], {"axis": -1}),
    ("log_softmax", [(0, 3)], {"axis": -1}),
    ("matmul", [(0, 3), (3, 2)], {}),
    ("matmul", [(2, 3), (3, 0)], {}),
    ("matmul", [(2, 0), (0, 3)], {}),
    ("matmul", [(0,), (0,)], {}),
    ("matmul", [(0, 2, 3), (3, 2)], {}),
    ("concatenate", [(0, 3), (2, 3), (0, 3)], {"axis": 0}),
    ("concatenate", [(0, 3), (0, 3)], {"axis": 0}),
    ("reshape", [(0, 3)], {"shape": (3, 0)}),
    ("transpose", [(0, 3)], {"axes": None}),
    ("split", [(0, 3)], {"sections": 3, "axis": 1}),
    ("broadcast_to", [(1, 3)], {"shape": (0, 3)}),
    ("place", [(0,)], {"key": (("slice", 0, 0, 1),), "shape": (3,)}),
    ("assign", [(3,), (0,)], {"key": (("slice", 0, 0, 1),)}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "shapes", "parameters"), EMPTY, ids=str)
def test_other_operations_on_nothing(name: str, shapes: Any, parameters: Any) -> None:
    draws = tuple(op_table.Draw(shape) for shape in shapes)
    case = Case(name, draws, parameters)
    check(case, inputs_of(case, "float32"))


def test_indexing_with_nothing() -> None:
    x = np.ones((3, 2))
    none = np.array(numpy.zeros(0, "int64"))
    assert x.take(none, axis=0).shape == (0, 2)
    assert x[none].shape == (0, 2)
    assert np.zeros((0, 2))[none].shape == (0, 2)


LARGE = [
    ("add", [(70001,), (70001,)], {}),
    ("add", [(301, 301), (301,)], {}),
    ("add", [(300, 1), (301,)], {}),
    ("exp", [(3, 70001)], {}),
    ("where", [(70001,), (70001,), (70001,)], {}),
    ("sum", [(200003,)], {}),
    ("sum", [(3, 70001)], {"axis": 1}),
    ("sum", [(70001, 3)], {"axis": 0}),
    ("sum", [(70001, 3)], {"axis": 1}),
    ("max", [(70001, 3)], {"axis": 1}),
    ("argmax", [(200003,)], {}),
    ("mean", [(20, 70, 70)], {"axis": (0, 2)}),
    ("softmax", [(3, 70001)], {"axis": -1}),
    ("softmax", [(70001, 3)], {"axis": 0}),
    ("softmax", [(70001, 3)], {"axis": -1}),
    ("log_softmax", [(700, 101)], {"axis": -1}),
    ("concatenate", [(70001,), (70002,)], {"axis": 0}),
    ("concatenate", [(30001, 2), (30001, 3)], {"axis": 1}),
    ("copy", [(301, 301)], {}),
    ("matmul", [(301, 257), (257, 129)], {}),
    ("uniform", [], {"shape": (70001, 3)}),
    ("normal", [], {"shape": (70001,)}),
    ("dropout", [(301, 301)], {"p": 0.3}),
]


@pytest.mark.parametrize(("name", "shapes", "parameters"), LARGE, ids=str)
def test_large_enough_to_be_tiled(name: str, shapes: Any, parameters: Any) -> None:
    if name in ("uniform", "normal"):
        draws = tuple(op_table.Draw((), "number", number=n) for n in (0.0, 1.0))
    else:
        draws = tuple(op_table.Draw(shape) for shape in shapes)
    case = Case(name, draws, parameters)
    inputs = inputs_of(case, "float32")
    if name == "sum" or name == "mean":
        # Integers, so that sums are exact in any order.
        inputs = [numpy.rint(x) for x in inputs]
    if name == "matmul":
        inputs = [numpy.rint(x) for x in inputs]
    op_table.seeded(SEED)
    expected = expected_of(case, inputs, stream=(SEED, 0))
    found = results(case.op(*on_gemel(inputs), **parameters))
    for value, wanted in zip(found, expected, strict=True):
        close(value, wanted, name, scale=4.0)


def test_large_transposed_and_gathered() -> None:
    base = numpy.random.default_rng(0).random((400, 300), dtype="float32")
    x = np.array(base)
    numpy.testing.assert_array_equal((x.T + x.T).asnumpy(), base.T + base.T)
    order = numpy.random.default_rng(1).integers(-400, 400, 500)
    numpy.testing.assert_array_equal(x.take(np.array(order), axis=0).asnumpy(), base[order])
    numpy.testing.assert_array_equal(x.astype("float64").asnumpy(), base.astype("float64"))


# --- special values -------------------------------------------------------------------------

SPECIAL = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    numpy.inf,
    -numpy.inf,
    numpy.nan,
    0.5,
    -2.5,
    3.5,
    1e-4,
    6e4,
    -100.0,
]


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("case", [c for c in PLAIN if len(c.draws) == 1], ids=lambda c: c.name)
def test_special_values_of_one_input(case: Case, dtype: str) -> None:
    x = numpy.array(SPECIAL, dtype)
    if accepts(case, [x]):
        check(case, [x])


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("case", [c for c in PLAIN if len(c.draws) == 2], ids=lambda c: c.name)
def test_special_values_of_two_inputs(case: Case, dtype: str) -> None:
    a, b = (
        numpy.array(side, dtype).ravel() for side in numpy.meshgrid(SPECIAL, SPECIAL, indexing="ij")
    )
    if not accepts(case, [a, b]):
        return
    if case.name in ("floor_divide", "remainder", "divmod"):
        # NumPy's results for infinities differ between versions; gemel keeps Python's rules.
        keep = numpy.isfinite(a) & numpy.isfinite(b) & (b != 0)
        a, b = a[keep], b[keep]
    check(case, [a, b])


@pytest.mark.parametrize("name", ["max", "min", "argmax", "argmin", "sum", "any", "all", "prod"])
@pytest.mark.parametrize("axis", [0, 1])
def test_special_values_in_reductions(name: str, axis: int) -> None:
    x = numpy.array(
        [[1, 2, 3], [numpy.nan, 1, 2], [numpy.inf, 0, 5], [-numpy.inf, 0.5, 0.0], [0.0, 0.0, 1]],
        "float32",
    )
    check(Case(name, (), {"axis": axis}), [x])


@pytest.mark.parametrize("name", ["argmax", "argmin", "max", "min"])
@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_the_first_of_equals_wins(name: str, dtype: str) -> None:
    x = numpy.array([3, 1, 3, 1, 2] * 40, dtype)
    check(Case(name, (), {}), [x])
    check(Case(name, (), {"axis": 0}), [numpy.stack([x, x[::-1]], 1)])


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
@pytest.mark.parametrize("dtype", FLOATING)
def test_softmax_of_extremes(name: str, dtype: str) -> None:
    big = 6e4
    rows = [[big, -big, 0], [-big, -big, -big], [-numpy.inf, 0, 0], [1, numpy.nan, 1]]
    x = numpy.array(rows, dtype)
    found = OPS[name](np.array(x, dtype=dtype)).asnumpy()
    with numpy.errstate(all="ignore"):
        wide = x.astype("float64")
        shifted = wide - wide.max(axis=1, keepdims=True)
        wanted = shifted - numpy.log(numpy.exp(shifted).sum(axis=1, keepdims=True))
        wanted = (numpy.exp(wanted) if name == "softmax" else wanted).astype(dtype)
    near = TOLERANCE[dtype]
    numpy.testing.assert_allclose(found, wanted, rtol=near, atol=near)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("name", ["floor_divide", "remainder"])
def test_integer_division_at_its_limits(name: str, dtype: str) -> None:
    """x / 0 is 0, the smallest integer / -1 wraps around, and neither ends the process."""
    low, high = numpy.iinfo(dtype).min, numpy.iinfo(dtype).max
    pairs = ((low, -1), (low, 0), (high, 0), (7, 0), (-7, 2), (7, -2), (-7, -2), (0, -1))
    bits = numpy.array([[n % 2**64 for n in pair] for pair in pairs * 9], "uint64")
    a, b = bits.astype(dtype).T.copy()
    check(Case(name, (), {}), [a, b])


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "negative", "absolute", "square"])
def test_integers_wrap(name: str, dtype: str) -> None:
    low, high = numpy.iinfo(dtype).min, numpy.iinfo(dtype).max
    a = numpy.array([low, high, high - 1, 1, 0, high // 2 + 3], dtype)
    inputs = [a, a[::-1].copy()] if len(OPS[name].input_names) == 2 else [a]
    check(Case(name, (), {}), inputs)


def test_powers_of_integers_are_exact() -> None:
    a = numpy.array([0, 1, 2, 3, 7, -2, -3, 10], "int64")
    b = numpy.array([0, 9, 40, 30, 13, 5, 3, 15], "int64")
    found = np.power(np.array(a), np.array(b)).asnumpy()
    numpy.testing.assert_array_equal(found, a**b)
    numpy.testing.assert_array_equal((np.array(a) ** 2).asnumpy(), a**2)


def test_functions_are_listed() -> None:
    assert set(OPS) >= FUNCTIONS


@pytest.mark.parametrize("run", [lambda f: f, gemel.compile], ids=["called", "compiled"])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"])
def test_powers_of_whole_numbers_wrap(dtype: str, run: Any) -> None:
    """For exponents below 8, and above 7 in a few lanes, many or all."""
    chance = numpy.random.default_rng(0)
    x = chance.integers(0 if dtype[0] == "u" else -100, 100, (37, 41)).astype(dtype)
    power = run(lambda x, y: x**y)
    for most in (8, 9, 70):
        y = chance.integers(0, most, x.shape).astype(dtype)
        numpy.testing.assert_array_equal(power(np.array(x), np.array(y)).asnumpy(), x**y)
    few = numpy.where(chance.random(x.shape) < 0.02, 31, 3).astype(dtype)
    numpy.testing.assert_array_equal(power(np.array(x), np.array(few)).asnumpy(), x**few)
    for number in (0, 1, 2, 5, 7, 8, 64):
        wanted = x ** x.dtype.type(number)
        numpy.testing.assert_array_equal(run(lambda x, n=number: x**n)(np.array(x)), wanted)

"""Every ufunc that NumPy has, too: dtypes, broadcasting, Python numbers, odd values."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy_cases import (
    NAMES,
    Refused,
    agree,
    compiled,
    elements,
    examples,
    numbered,
    on_gemel,
    outcome,
    promoted_as_ours,
)

from gemel import np

UFUNCS = {
    name: ufunc
    for name, ufunc in vars(numpy).items()
    if isinstance(ufunc, numpy.ufunc) and hasattr(np, name)
}
#: NumPy's result has another dtype. In gemel reciprocal is floating, as quotients are, ldexp
#: accepts any integers, and the others leave integers as they are.
OTHERWISE = {"reciprocal", "ldexp", "rint", "conj", "conjugate"}
MATRICES = {"matmul", "matvec", "vecmat", "vecdot"}
#: Functions whose results are floating for integers, too.
FLOATING = {name for name, f in UFUNCS.items() if not any(t.startswith("l") for t in f.types)}
#: Functions that are exact to the last digit in every dtype.
EXACT = {
    *("add", "subtract", "multiply", "negative", "positive", "absolute", "abs", "sign", "fabs"),
    *("maximum", "minimum", "fmax", "fmin", "floor", "ceil", "trunc", "rint", "copysign"),
    *("signbit", "heaviside", "square", "logical_and", "logical_or", "logical_xor", "isnan"),
    *("equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "divide"),
}


@pytest.mark.parametrize("name", sorted(UFUNCS))
def test_dtypes_of_results(name: str) -> None:
    """For all dtypes and pairs of them; if an integer meets a float, the result is floating.

    Only for shifts does the order of the two dtypes matter, so other functions see each pair once.
    """
    ufunc, ours = UFUNCS[name], getattr(np, name)
    shape = (2, 2) if name in MATRICES else (2,)
    for place, first in enumerate(NAMES):
        seconds = NAMES if "shift" in name else NAMES[place:]
        for second in seconds if ufunc.nin == 2 else [None]:
            arrays = tuple(numbered(shape, d, 1) for d in (first, second) if d is not None)
            if not promoted_as_ours(*arrays) or name in OTHERWISE:
                continue
            expected = outcome(lambda arrays=arrays: ufunc(*arrays))
            found = outcome(lambda arrays=arrays: ours(*on_gemel(arrays)))
            if isinstance(expected, Refused) or isinstance(found, Refused):
                agree(found, expected, (name, first, second))
                continue
            pairs = [(found, expected)] if ufunc.nout == 1 else zip(found, expected, strict=True)
            for mine, twin in pairs:
                floats = twin.dtype.kind == "f" and arrays[0].dtype.kind in "bui"
                wanted = "float32" if floats and "float64" not in (first, second) else twin.dtype
                assert mine.dtype == wanted or (floats and mine.dtype.kind == "f"), (
                    name,
                    first,
                    second,
                    mine.dtype,
                )


@st.composite
def operands(draw: Any, count: int) -> Any:
    """Arrays that mostly broadcast, dense or not; one may be a Python number."""
    shape = draw(st.lists(st.sampled_from([0, 1, 2, 3, 4]), max_size=3))
    found: list[Any] = []
    for _ in range(count):
        kept = [n if draw(st.integers(0, 3)) else 1 for n in shape]
        kept = kept[draw(st.integers(0, len(kept))) if draw(st.booleans()) else 0 :]
        if kept and not draw(st.integers(0, 19)):
            kept[0] += 1
        found.append(draw(elements(tuple(kept), draw(st.sampled_from(NAMES)))))
    if count == 2 and not draw(st.integers(0, 3)):
        number = draw(st.sampled_from([True, 0, 1, 2, 3, 7, 100, 300, 70000, 0.5, 2.0, -1.5]))
        found[draw(st.integers(0, 1))] = number
    return found


def laid_out(array: Any, way: int) -> Any:
    """The array in one of four layouts: as it is, transposed, reversed, every second element."""
    if not getattr(array, "ndim", 0) or way == 0:
        return array
    if way == 1:
        return array.T
    return array[::-1] if way == 2 else array[..., ::2]


def twins(name: str, arrays: list[Any]) -> list[Any]:
    """The operands for NumPy: integers that meet floats get the floats' dtype."""
    given = [a.dtype for a in arrays if hasattr(a, "dtype")]
    floating = [dtype for dtype in given if dtype.kind == "f"]
    numbers = any(type(a) is float for a in arrays)
    if not floating and (numbers or name in FLOATING):
        floating = [numpy.dtype("float32")]
    if not floating:
        return arrays
    dtype = max(floating, key=lambda dtype: dtype.itemsize)
    return [a.astype(dtype) if hasattr(a, "dtype") else a for a in arrays]


def tolerance(name: str, arrays: list[Any]) -> float:
    """How far results may differ: more in float16, in which NumPy also sums matrix products."""
    kinds = [a.dtype.name for a in arrays if hasattr(a, "dtype")]
    if name in EXACT and "f" in {numpy.dtype(kind).kind for kind in kinds}:
        return 0.0
    return 5e-3 if "float16" in kinds else 2e-5


@examples(400)
@given(st.data())
def test_numbers_of_any_dtype_and_layout(data: Any) -> None:
    name = data.draw(st.sampled_from(sorted(set(UFUNCS) - MATRICES - OTHERWISE)))
    ufunc, ours = UFUNCS[name], getattr(np, name)
    ways = data.draw(st.tuples(st.integers(0, 3), st.integers(0, 3)))
    bases = data.draw(operands(ufunc.nin))
    arrays = [laid_out(base, way) for base, way in zip(bases, ways, strict=False)]
    if not any(isinstance(a, numpy.ndarray) for a in arrays):
        return
    given = [laid_out(on_gemel(base), way) for base, way in zip(bases, ways, strict=False)]
    if undecided(name, arrays):
        return
    arrays = twins(name, arrays)
    about = (name, [getattr(a, "dtype", type(a)) for a in arrays], arrays)
    expected = outcome(lambda: ufunc(*arrays))
    found = outcome(lambda: ours(*given))
    agree(found, expected, about, tolerance(name, arrays))
    # Also in a compiled function that may have seen another size before.
    function = compiled(lambda *xs: ours(*xs))
    size = [a.ndim and a[:1] for a in given if isinstance(a, np.ndarray)]
    if data.draw(st.booleans()) and len(size) == len(given) and all(len(a.shape) for a in given):
        outcome(lambda: function(*size))
    agree(outcome(lambda: function(*given)), expected, about, tolerance(name, arrays))


def undecided(name: str, arrays: list[Any]) -> bool:
    """Whether NumPy's answer depends on the machine, or gemel documents another answer."""
    whole = all(getattr(a, "dtype", numpy.asarray(a).dtype).kind in "bui" for a in arrays)
    if name in ("power", "pow") and whole:
        return bool((numpy.asarray(arrays[1]) < 0).any())  # NumPy refuses negative powers
    least = any(
        a.dtype.kind == "i" and (a == numpy.iinfo(a.dtype).min).any()
        for a in arrays
        if hasattr(a, "dtype")
    )
    return name in ("gcd", "lcm") and least


@examples(80)
@given(st.data())
def test_products_of_matrices(data: Any) -> None:
    """matmul of stacks, vectors and empty matrices, over pairs of dtypes."""
    lead = [data.draw(st.lists(st.sampled_from([1, 2, 3]), max_size=2)) for _ in range(2)]
    m, k, n = data.draw(st.tuples(*[st.sampled_from([0, 1, 2, 3, 9])] * 3))
    shapes = [[*lead[0], m, k], [*lead[1], k, n]]
    if data.draw(st.booleans()):
        shapes[0] = [k]
    if data.draw(st.booleans()):
        shapes[1] = [k + (data.draw(st.integers(0, 9)) == 0)]
    dtypes = data.draw(st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)))
    a, b = (numbered(tuple(s), d) for s, d in zip(shapes, dtypes, strict=True))
    expected = outcome(lambda: numpy.matmul(*twins("matmul", [a, b])))
    about = (shapes, dtypes)
    agree(outcome(lambda: np.matmul(*on_gemel((a, b)))), expected, about, tolerance("", [a, b]))
    function = compiled(lambda a, b: a @ b)
    found = outcome(lambda: function(*on_gemel((a, b))))
    agree(found, expected, about, tolerance("", [a, b]))

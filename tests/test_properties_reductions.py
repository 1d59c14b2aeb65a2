"""Reductions, running sums and sorts against NumPy: axes, empty ones, NaN, dtypes, compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy_cases import NAMES, SHAPES, agree, compiled, elements, examples, on_gemel, outcome, views
from numpy_cases import view as viewed

from gemel import np

#: Functions over one axis, several axes or all.
OVER_AXES = (
    *("sum", "prod", "max", "min", "any", "all", "mean", "var", "std", "count_nonzero"),
    *("nansum", "nanprod", "nanmax", "nanmin", "nanmean", "nanvar", "nanstd", "ptp", "median"),
    *("nanmedian", "amax", "amin"),
)
#: Functions over one axis, or over the flattened array.
OVER_ONE = ("argmax", "argmin", "nanargmax", "nanargmin")
#: Functions along one axis, or along the flattened array.
ALONG = ("cumsum", "cumprod", "sort", "argsort", "nancumsum", "nancumprod", "flip", "roll", "diff")
FLOATING = ("mean", "var", "std", "nanmean", "nanvar", "nanstd", "median", "nanmedian")


@st.composite
def axes(draw: Any, ndim: int, several: bool) -> Any:
    """None, an axis counted from either end, several axes or none; now and then an invalid one.

    Numbers never get the axes 0 and -1, because NumPy accepts these.
    """
    one = st.integers(-ndim, ndim - 1) if ndim else st.none()
    kinds = [st.none(), one, one]
    if several:
        places = st.permutations(range(ndim)).map(lambda p: tuple(p[: draw(st.integers(0, ndim))]))
        kinds += [places, places]
        if ndim > 1:
            kinds.append(st.sampled_from([(0, 0), (0, -ndim), (0, ndim)]))
    kinds.append(st.sampled_from([ndim, -ndim - 1] if ndim else [1, -2]))
    return draw(st.one_of(*kinds))


def options(draw: Any, name: str, ndim: int) -> dict[str, Any]:
    """Keywords for a call."""
    found: dict[str, Any] = {}
    if draw(st.booleans()) or name not in OVER_AXES:
        found["axis"] = draw(axes(ndim, name in OVER_AXES))
    if name in OVER_AXES and draw(st.booleans()):
        found["keepdims"] = True
    if name in ("var", "std", "nanvar", "nanstd") and draw(st.booleans()):
        found["ddof"] = draw(st.sampled_from([0, 1, 2, 0.5]))
    if name in ("sum", "prod", "mean", "cumsum", "cumprod") and not draw(st.integers(0, 2)):
        found["dtype"] = draw(st.sampled_from(["float32", "float64", "int32", "uint8"]))
    if name == "argsort":
        found["kind"] = "stable"
    if name == "roll":
        found["shift"] = draw(st.integers(-4, 4))
    if name == "diff":
        found["axis"] = -1 if found["axis"] is None else found["axis"]
        found["n"] = draw(st.integers(1, 3))
    return found


def tolerance(name: str, dtype: str) -> float:
    """Sums of floats are added in another order; quotients of integers are float32."""
    loose = {"float16": 5e-3, "float32": 2e-5, "float64": 1e-12}
    if name in FLOATING:
        return loose.get(dtype, 2e-5)
    return loose.get(dtype, 0.0) if "sum" in name or "prod" in name or name == "diff" else 0.0


def twin_of(name: str, array: Any) -> Any:
    """The array for NumPy: float32 instead of integers, as gemel takes their mean in float32."""
    return array.astype("float32") if name in FLOATING and array.dtype.kind in "bui" else array


@pytest.mark.parametrize(
    "name", [name for name in (*OVER_AXES, *OVER_ONE, *ALONG) if hasattr(np, name)]
)
@examples(15)
@given(st.data())
def test_any_reduction(name: str, data: Any) -> None:
    dtype = data.draw(st.sampled_from(NAMES))
    base = data.draw(elements(data.draw(SHAPES), dtype))
    if name in FLOATING or "prod" in name:
        base = base % base.dtype.type(4) if dtype != "bool" else base
    steps = data.draw(views(base))
    array = twin_of(name, viewed(base, steps))
    given = options(data.draw, name, array.ndim)
    about = (name, base.shape, dtype, steps, given, array)
    close = tolerance(name, given.get("dtype", dtype))
    if "int" in given.get("dtype", "") and (array.dtype.kind == "f" or name == "mean"):
        return  # what NaN and large floats become depends on the machine
    if name == "median" and given.get("axis") == () and not array.size:
        return
    expected = outcome(lambda: getattr(numpy, name)(array, **given))
    x = viewed(on_gemel(base), steps)
    agree(outcome(lambda: getattr(np, name)(x, **given)), expected, about, close)
    function = compiled(lambda x: getattr(np, name)(x, **given))
    if x.ndim and data.draw(st.booleans()):
        outcome(lambda: function(np.concatenate([x, x])))
    agree(outcome(lambda: function(x)), expected, about, close)


METHODS = [
    *("sum", "prod", "max", "min", "any", "all", "mean", "var", "std", "argmax", "argmin"),
    *("cumsum", "cumprod", "argsort"),
]


@pytest.mark.parametrize("name", METHODS)
def test_methods_do_the_same(name: str) -> None:
    base = numpy.arange(12.0, dtype="float32").reshape(3, 4)[:, ::-1] / 12
    x = on_gemel(base)
    for how in ({}, {"axis": 0}, {"axis": -1}):
        expected = outcome(lambda how=how: getattr(base, name)(**how))
        agree(outcome(lambda how=how: getattr(x, name)(**how)), expected, how, 1e-5)


BY_VALUE: dict[str, Callable[..., Any]] = {
    "unique": lambda np, x: np.unique(x),
    "unique_counts": lambda np, x: np.unique(x, return_counts=True, return_inverse=True),
    "bincount": lambda np, x: np.bincount(abs(x).astype("int64").reshape(-1) % 7),
    "searchsorted": lambda np, x: np.searchsorted(np.sort(x.reshape(-1)), x),
    "histogram": lambda np, x: np.histogram(np.nan_to_num(x) % 5, bins=4, range=(0, 5))[0],
    "nonzero": lambda np, x: list(np.nonzero(x)),
    "argwhere": lambda np, x: np.argwhere(x),
    "isin": lambda np, x: np.isin(x, x.reshape(-1)[:2]),
    "partition": lambda np, x: np.sort(np.partition(x.reshape(-1), 0)),
    "digitize": lambda np, x: np.digitize(x, np.sort(x.reshape(-1)[:3])),
    "quantile": lambda np, x: np.quantile(x.reshape(-1), 0.3),
    "sort": lambda np, x: np.sort(x, axis=None),
    "trapezoid": lambda np, x: np.trapezoid(x),
    "average": lambda np, x: np.average(x, axis=0),
}


@pytest.mark.parametrize("name", sorted(BY_VALUE))
@examples(15)
@given(st.data())
def test_functions_that_look_at_values(name: str, data: Any) -> None:
    dtype = data.draw(st.sampled_from(["float32", "float64", "int64", "uint8", "bool"]))
    array = data.draw(elements(data.draw(SHAPES), dtype))
    if name in ("trapezoid", "average", "quantile"):
        array = numpy.nan_to_num(array.astype("float64") % 8)
    if name in ("digitize", "histogram", "bincount"):
        array = numpy.nan_to_num(array.astype("float64"), posinf=9, neginf=-9)
    if name in ("average", "partition") and not array.size:
        return  # on empty arrays NumPy raises for only one of the two
    expected = outcome(lambda: BY_VALUE[name](numpy, array))
    found = outcome(lambda: BY_VALUE[name](np, on_gemel(array)))
    agree(found, expected, (name, array), 1e-6)


#: Lengths of rows that are sorted by comparisons, by buckets of their values, and by digits.
LENGTHS = (48, 49, 700, 4096, 4097)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint32", "int64", "uint64"])
@pytest.mark.parametrize("length", LENGTHS)
def test_sorting_rows_of_every_length(dtype: str, length: int) -> None:
    for row in _rows_to_sort(numpy.dtype(dtype), length, numpy.random.default_rng(length)):
        x = np.array(row)
        assert x.dtype == dtype
        wanted = numpy.sort(row)
        for found, expected in [
            (np.sort(x), wanted),
            (np.sort(x, descending=True), wanted[::-1]),
            (np.argsort(x), numpy.argsort(row, kind="stable")),
            (
                np.argsort(x, descending=True),
                length - 1 - numpy.argsort(row[::-1], kind="stable")[::-1],
            ),
        ]:
            numpy.testing.assert_array_equal(found.asnumpy(), expected)


def _rows_to_sort(dtype: Any, length: int, draw: numpy.random.Generator) -> list[Any]:
    """Uniform and uneven rows, few and many distinct elements, NaN, infinity, both zeros."""
    if dtype.kind == "f":
        rows = [
            draw.random(length),
            draw.standard_normal(length),
            numpy.where(draw.random(length) < 0.1, numpy.nan, draw.random(length)),
            numpy.where(draw.random(length) < 0.1, -numpy.inf, draw.random(length)),
            draw.integers(0, 5, length) * -0.0,
            10.0 ** draw.uniform(-37, 37, length),
            numpy.append(draw.random(length - 1), 1e30),
            numpy.append(draw.random(length - 2) * 1e-45, [-3e38, 3e38]),
        ]
        return [row.astype(dtype) for row in rows]
    limits = numpy.iinfo(dtype)
    extremes = numpy.array([limits.min, limits.max], dtype)
    return [
        draw.integers(limits.min, limits.max, length, dtype, endpoint=True),
        draw.integers(0, 10, length).astype(dtype),
        numpy.arange(length)[::-1].astype(dtype),
        numpy.full(length, 7, dtype),
        extremes[draw.integers(0, 2, length)],
        numpy.append(draw.integers(0, 100, length - 2).astype(dtype), extremes),
    ]


@pytest.mark.parametrize("shape", [(8200, 300), (3, 333, 777), (20, 2100, 7)])
@pytest.mark.parametrize("name", ["sum", "var", "argmax"])
def test_columns_of_a_large_array_give_what_those_of_a_part_give(
    shape: tuple[int, ...], name: str
) -> None:
    """To the bit, although a large array's columns go by strips and a part's do not."""
    x = numpy.random.default_rng(5).normal(size=shape).astype("float32")
    axis = len(shape) - 2
    reduced = compiled(lambda array: getattr(np, name)(array, axis=axis))
    whole = reduced(np.array(x)).asnumpy()
    for first in range(0, shape[-1], 50):
        part = reduced(np.array(x[..., first : first + 50])).asnumpy()
        numpy.testing.assert_array_equal(whole[..., first : first + 50], part)
    reference = getattr(numpy, name)(x.astype("float64"), axis=axis)
    numpy.testing.assert_allclose(whole, reference, rtol=1e-4, atol=1e-2)

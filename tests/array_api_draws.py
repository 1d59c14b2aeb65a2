"""Hypothesis strategies for the Array API standard, and the comparison with NumPy's results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
from hypothesis import strategies as st
from hypothesis.extra import numpy as drawn

from gemel import np
from gemel.dtype import DTYPES

#: The standard's dtypes by the names of its categories.
FLOATING = ["float32", "float64"]
COMPLEX = [dtype.name for dtype in DTYPES if dtype.kind == "c"]
SIGNED = ["int8", "int16", "int32", "int64"]
UNSIGNED = ["uint8", "uint16", "uint32", "uint64"]
INTEGER = [*SIGNED, *UNSIGNED]
KINDS = {
    "bool": ["bool"],
    "integer": INTEGER,
    "integer or bool": ["bool", *INTEGER],
    "floating": FLOATING,
    "complex": COMPLEX,
    "real": [*INTEGER, *FLOATING],
    "any floating": [*FLOATING, *COMPLEX],
    "numeric": [*INTEGER, *FLOATING, *COMPLEX],
    "all": ["bool", *INTEGER, *FLOATING, *COMPLEX],
}
#: Up to four dimensions, 32 elements.
SHAPES = drawn.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4).filter(
    lambda shape: int(numpy.prod(shape)) <= 32
)

Array = Any


# --- values ---------------------------------------------------------------------------------


def elements(dtype: str, finite: bool = False, small: bool = False) -> Any:
    """Numbers of a dtype, with infinities, NaN, both zeros and its limits; or `small` numbers."""
    kind = numpy.dtype(dtype).kind
    if kind == "b":
        return st.booleans()
    if kind in "iu":
        info = numpy.iinfo(dtype)
        most = min(100, info.max) if small else info.max
        least = max(-100, info.min) if small else info.min
        return st.one_of(st.integers(least, most), st.sampled_from([least, 0, 1, most]))
    if kind == "c":
        part = elements("float32" if dtype == "complex64" else "float64", finite, small)
        return st.builds(complex, part, part)
    width = 8 * numpy.dtype(dtype).itemsize
    if small:
        return st.floats(-10, 10, width=width, allow_subnormal=False)
    return st.one_of(
        st.floats(width=width, allow_nan=not finite, allow_infinity=not finite),
        st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5, *([] if finite else NOT_FINITE)]),
    )


NOT_FINITE = [float("inf"), -float("inf"), float("nan")]


def arrays(dtype: Any, shape: Any = SHAPES, **options: Any) -> Any:
    """Arrays of a dtype (or of any dtype in a list of names)."""
    if isinstance(dtype, list):
        return st.sampled_from(dtype).flatmap(lambda name: arrays(name, shape, **options))
    return drawn.arrays(dtype, shape, elements=elements(dtype, **options))


def promotable(names: list[str]) -> list[tuple[str, str]]:
    """The pairs of dtypes for which the standard defines a promotion."""
    return [(a, b) for a in names for b in names if promotes(a, b)]


def promotes(a: str, b: str) -> bool:
    """Whether the standard defines the promotion of two dtypes."""
    kinds = {numpy.dtype(name).kind for name in (a, b)}
    if kinds <= set("fc") or len(kinds) == 1:
        return True
    return kinds == set("iu") and numpy.result_type(a, b).kind in "iu"


@st.composite
def pairs(draw: Any, names: list[str], **options: Any) -> tuple[Array, Array]:
    """Two arrays whose dtypes promote and whose shapes broadcast."""
    a, b = draw(st.sampled_from(promotable(names)))
    shapes = drawn.mutually_broadcastable_shapes(num_shapes=2, max_dims=4, max_side=3, min_side=0)
    first, second = draw(shapes).input_shapes
    return draw(arrays(a, first, **options)), draw(arrays(b, second, **options))


def numbers(dtype: str) -> Any:
    """Python numbers that may be combined with an array of a dtype."""
    kind = numpy.dtype(dtype).kind
    if kind == "b":
        return st.booleans()
    if kind in "iu":
        info = numpy.iinfo(dtype)
        return st.integers(int(info.min), int(info.max))
    floats = elements("float64" if dtype in ("float64", "complex128") else "float32")
    whole = st.integers(-100, 100)
    return st.one_of(floats, whole, elements(dtype)) if kind == "c" else st.one_of(floats, whole)


@st.composite
def axes(draw: Any, ndim: int) -> Any:
    """None, an axis, or a tuple of axes; some are negative."""
    if ndim == 0 or not draw(st.integers(0, 3)):
        return None
    one = st.integers(-ndim, ndim - 1)
    if draw(st.booleans()):
        return draw(one)
    return tuple(draw(st.lists(one, max_size=ndim, unique_by=lambda axis: axis % ndim)))


# --- comparing ------------------------------------------------------------------------------


def gemels(value: Any) -> Any:
    """NumPy arrays converted to gemel arrays, also in lists and tuples."""
    if isinstance(value, numpy.ndarray):
        return np.asarray(value)
    return type(value)(map(gemels, value)) if type(value) in (list, tuple) else value


#: Relative tolerance against NumPy, by the number of bytes of a real (or imaginary) part.
TOLERANCES = {4: 2e-5, 8: 1e-12}


def check(
    found: Any,
    expected: Any,
    about: Any = "",
    tolerance: float | None = None,
    slack: float | None = None,
) -> None:
    """Check for the same dtype, shape and elements; zeros must have the same sign.

    Floating-point elements may differ by a relative `tolerance`. With an absolute `slack` the signs
    of zeros are not compared.
    """
    expected = numpy.asarray(expected)
    assert isinstance(found, np.ndarray), about
    assert found.dtype == expected.dtype, f"{about}: {found.dtype}, not {expected.dtype}"
    assert found.shape == expected.shape, f"{about}: {found.shape}, not {expected.shape}"
    own = found.asnumpy()
    for part in ("real", "imag") if expected.dtype.kind == "c" else ("",):
        a, b = (getattr(x, part) if part else x for x in (own, expected))
        assert equal(a, b, tolerance, slack), f"{about}\nfound {own!r}\nexpected {expected!r}"


def equal(a: Array, b: Array, tolerance: float | None, slack: float | None) -> bool:
    """Whether all elements are equal; floating-point ones within the tolerance."""
    if b.dtype.kind != "f":
        return bool(numpy.array_equal(a, b))
    limit = TOLERANCES[b.dtype.itemsize] if tolerance is None else tolerance
    tiny = float(numpy.finfo(b.dtype).tiny) * 4
    with numpy.errstate(all="ignore"):
        close = numpy.isclose(a, b, limit, tiny if slack is None else slack, equal_nan=True)
    if slack is not None:
        return bool(numpy.all(close))
    zeros = (a == 0) & (b == 0)
    signs = numpy.signbit(a) == numpy.signbit(b)
    return bool(numpy.all(close & (signs | ~zeros)))


def same(
    function: str,
    *given: Any,
    tolerance: float | None = None,
    slack: float | None = None,
    **keywords: Any,
) -> None:
    """Check that a function of `np` (such as "linalg.det") gives the same as NumPy's function."""
    ours, theirs = attribute(np, function), attribute(numpy, function)
    with numpy.errstate(all="ignore"):
        expected = theirs(*given, **keywords)
    found = ours(*gemels(list(given)), **gemels_of(keywords))
    about = f"{function}({', '.join(map(repr, given))}, {keywords})"
    if isinstance(expected, (tuple, list)):
        assert len(found) == len(expected), about
        for a, b in zip(found, expected, strict=True):
            check(a, b, about, tolerance, slack)
    else:
        check(found, expected, about, tolerance, slack)


def gemels_of(keywords: dict[str, Any]) -> dict[str, Any]:
    """Keywords with NumPy arrays converted to gemel arrays."""
    return {name: gemels(value) for name, value in keywords.items()}


def attribute(module: Any, path: str) -> Callable[..., Any]:
    """The attribute at a dotted path."""
    for name in path.split("."):
        module = getattr(module, name)
    found: Callable[..., Any] = module
    return found

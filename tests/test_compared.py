"""Differences that a call-by-call comparison with NumPy has found, each with related calls."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gemel
from gemel import autograd, gluon, np, npx
from gemel.errors import ArrayIndexError, DTypeError, ShapeError


@pytest.fixture
def float64_by_default() -> Iterator[None]:
    npx.set_np(dtype=True)
    yield
    npx.reset_np()


def agrees(found: Any, expected: Any) -> None:
    assert found.shape == numpy.shape(expected)
    numpy.testing.assert_allclose(found.asnumpy(), expected, rtol=1e-6)


# --- ends of differences --------------------------------------------------------------------

ENDS = [True, False, 0, 1, -3, 0.5]


@pytest.mark.parametrize("row", [[True, False, True], [3, 1, 2], [0.5, 2.0, 8.0]])
@pytest.mark.parametrize(("before", "after"), [*itertools.product(ENDS, ENDS)])
def test_differences_with_numbers_at_the_ends(row: Any, before: Any, after: Any) -> None:
    x = numpy.array(row)
    expected = numpy.diff(x, prepend=before, append=after)
    found = np.diff(np.array(row), prepend=before, append=after)
    assert found.dtype.kind == expected.dtype.kind
    agrees(found, expected)


# --- positions out of range -----------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    index=st.one_of(st.integers(-30, 30), st.lists(st.integers(-30, 30), max_size=4)),
    axis=st.sampled_from([None, 0, 1, -1]),
    mode=st.sampled_from(["wrap", "clip"]),
)
def test_positions_that_are_clipped_or_wrapped(index: Any, axis: Any, mode: Any) -> None:
    x = numpy.arange(12.0).reshape(3, 4)
    positions = numpy.array(index, dtype="int64")
    expected = numpy.take(x, positions, axis=axis, mode=mode)
    agrees(np.take(np.array(x), index, axis=axis, mode=mode), expected)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("mode", ["clip", "wrap"])
@pytest.mark.parametrize(
    ("shape", "index", "axis", "expected"),
    [
        ((0, 0), [0, 1], 0, (2, 0)),  # NumPy's, of mode="clip"; with "wrap" it never ends
        ((2, 0, 0), [[-1], [9]], 1, (2, 2, 1, 0)),
        ((0, 0), 5, 0, (0,)),
        ((3, 0), [7], 0, (1, 0)),
    ],
)
def test_positions_along_an_empty_axis(
    shape: Any, index: Any, axis: int, expected: Any, mode: str, compiled: bool
) -> None:
    def take(x: Any) -> Any:
        return np.take(x, index, axis=axis, mode=mode)

    x = np.zeros(shape)
    x.attach_grad()
    with autograd.record():
        found = (gemel.compile(take) if compiled else take)(x)
    found.backward()
    assert (found.shape, found.tolist()) == (expected, numpy.zeros(expected).tolist())
    assert x.grad.shape == shape


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (0,)])
def test_positions_that_an_empty_axis_does_not_have(shape: Any) -> None:
    x = np.zeros(shape)
    for index in ([0, 1], 0):
        with pytest.raises(ArrayIndexError):
            np.take(x, index, axis=0)
        with pytest.raises(ArrayIndexError):
            x[np.array(index)]
        for mode in ("clip", "wrap") if shape != (0, 0) else ():
            with pytest.raises(ArrayIndexError, match="index an empty axis"):
                np.take(x, index, axis=0, mode=mode)


def test_an_index_that_is_no_index() -> None:
    with pytest.raises(ArrayIndexError, match="'a' cannot index"):
        np.ones(3)["a"]
    with pytest.raises(IndexError, match="'a' cannot index"):
        np.ones(3)["a"] = 1


# --- reductions, shares, conditions ---------------------------------------------------------


@pytest.mark.parametrize("name", ["max", "min"])
@pytest.mark.parametrize("initial", [0, 1, True])
@pytest.mark.parametrize("mask", [[True, False], [False, False]])
def test_the_largest_bool_is_a_bool(name: str, initial: Any, mask: list[bool]) -> None:
    found = getattr(np, name)(np.array([False, True]), where=np.array(mask), initial=initial)
    expected = getattr(numpy, name)(
        numpy.array([False, True]), where=numpy.array(mask), initial=bool(initial)
    )
    assert (found.dtype, bool(found)) == ("bool", bool(expected))


@pytest.mark.parametrize("q", [0.3, [], [0.5], [[0.1, 0.2], [0.3, 0.9]]])
@pytest.mark.parametrize("name", ["quantile", "nanquantile"])
@pytest.mark.parametrize("options", [{}, {"axis": 0}, {"axis": 1, "keepdims": True}])
def test_shares_keep_their_shape(name: str, q: Any, options: dict[str, Any]) -> None:
    x = numpy.arange(12.0).reshape(3, 4) ** 1.5
    expected = getattr(numpy, name)(x, numpy.array(q), **options)
    agrees(getattr(np, name)(np.array(x), q, **options), expected)
    agrees(getattr(np, name)(np.array(x), np.array(q), **options), expected)


def test_shares_in_ragged_lists() -> None:
    with pytest.raises(ShapeError, match="different"):
        np.quantile(np.arange(4.0), [[0.1], [0.2, 0.3]])


INF, NAN = float("inf"), float("nan")
SINGULAR, REGULAR = [[1.0, 2.0], [2.0, 4.0]], [[2.0, 0.0], [0.0, 1.0]]
UNKNOWN, INFINITE = [[NAN, 1.0], [1.0, 1.0]], [[INF, 1.0], [1.0, 1.0]]
ZEROS, UNIT = [[0.0, 0.0], [0.0, 0.0]], [[1.0, 0.0], [0.0, 0.0]]


@pytest.mark.parametrize("p", [None, 2, -2])
@pytest.mark.parametrize("rows", [ZEROS, UNIT, REGULAR, INFINITE, [ZEROS, REGULAR]])
def test_conditions_of_matrices(rows: Any, p: Any) -> None:
    agrees(np.linalg.cond(np.array(rows), p), numpy.linalg.cond(numpy.array(rows), p))


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("p", [1, -1, INF, -INF, "fro"])
def test_conditions_of_matrices_without_an_inverse(p: Any) -> None:
    """inf for singular ones, NaN for NaN; the others of a batch have theirs."""
    each = [SINGULAR, REGULAR, UNKNOWN, ZEROS, INFINITE]
    for rows in (*each, each, [[UNIT, REGULAR], [REGULAR, ZEROS]]):
        expected = numpy.linalg.cond(numpy.array(rows), p)
        for cond in (np.linalg.cond, gemel.compile(np.linalg.cond)):
            agrees(cond(np.array(rows), p), expected)


def test_conditions_of_singular_matrices_leave_the_gradient_of_others() -> None:
    x = np.array([SINGULAR, REGULAR])
    x.attach_grad()
    with autograd.record():
        y = np.linalg.cond(x, "fro")
    y.backward()
    assert numpy.isfinite(x.grad.asnumpy()[1]).all()
    with pytest.raises(numpy.linalg.LinAlgError):
        np.linalg.cond(x, "nuc").wait_to_read()


def test_there_is_no_condition_of_nothing() -> None:
    with pytest.raises(ShapeError, match="cond"):
        np.linalg.cond(np.zeros((0, 0)))
    assert np.linalg.cond(np.zeros((0, 2, 2)), 1).shape == (0,)


@pytest.mark.parametrize("name", ["inv", "cholesky", "det", "eigh", "solve"])
@pytest.mark.parametrize("shape", [(2, 3), (3,)])
def test_arrays_that_are_not_matrices(name: str, shape: tuple[int, ...]) -> None:
    others = (np.ones(2),) if name == "solve" else ()
    with pytest.raises(numpy.linalg.LinAlgError) as caught:
        getattr(np.linalg, name)(np.ones(shape), *others)
    assert isinstance(caught.value, ShapeError)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_powers_of_matrices_are_whole() -> None:
    half: Any = 1.5
    with pytest.raises(TypeError, match=r"matrix_power: n 1.5"):
        np.linalg.matrix_power(np.eye(2), half)
    assert np.linalg.matrix_power(np.eye(2) * 2, numpy.int64(3)).tolist() == [[8, 0], [0, 8]]


def test_pieces_of_a_number() -> None:
    for conditions in ([True], [False, True], [numpy.array(True)], True):
        x, pieces = 2.0, [1.0, 5.0]
        expected = numpy.piecewise(numpy.array(x), conditions, pieces)
        agrees(np.piecewise(np.array(x), conditions, pieces), expected)


def test_places_in_common_of_different_dtypes() -> None:
    a, b = [3, 1, 2], [2.0, 5.0, 3.0]
    found = np.intersect1d(np.array(a), np.array(b), return_indices=True)
    expected = numpy.intersect1d(a, b, return_indices=True)
    assert found[0].dtype.is_floating
    for mine, theirs in zip(found, expected, strict=True):
        agrees(mine, theirs)


def test_seeds_of_generators_are_whole() -> None:
    for seed in ("a", 1.5, [1, 2]):
        with pytest.raises(TypeError, match="default_rng: the seed"):
            np.random.default_rng(seed)


# --- with float64 by default ----------------------------------------------------------------


@pytest.mark.usefixtures("float64_by_default")
def test_repr_where_float64_is_the_default() -> None:
    for x in (numpy.zeros(2), numpy.array(1j), numpy.array([1, 2]), numpy.array([True])):
        assert repr(np.array(x)) == repr(x)
    assert repr(np.zeros(2, dtype="float32")) == "array([0., 0.], dtype=float32)"


@pytest.mark.usefixtures("float64_by_default")
def test_large_integers_do_not_wrap() -> None:
    assert np.array([1, 2**63]).tolist() == [1, 2**63]
    assert np.array([1, 2**62]).dtype == "int64"


# --- messages -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: ~np.ones((5, 7)), r"invert: float32\[5, 7\]"),
        (lambda: -(np.ones((5, 7)) > 0), r"negative: bool\[5, 7\]"),
        (lambda: np.ones((4, 5, 6)) << 1, r"left_shift: float32\[4, 5, 6\]"),
        (lambda: np.ones((5, 7)) & np.ones((5, 1)), r"float32\[5, 7\] and float32\[5, 1\]"),
        (lambda: np.subtract(np.ones(3) > 0, np.ones(3) > 0), r"bool\[3\] and bool\[3\]"),
    ],
)
def test_errors_of_dtypes_name_the_shapes_given(call: Callable[[], Any], says: str) -> None:
    with pytest.raises(DTypeError, match=says):
        call()


# --- programs in files ----------------------------------------------------------------------


@pytest.mark.parametrize("width", [1, (1,), (2, 1), ((2, 0),), {0: (1, 2)}])
def test_borders_of_rows_in_files(width: Any, tmp_path: Path) -> None:
    class Padded(gluon.HybridBlock):
        def forward(self, x: Any) -> Any:
            return np.pad(x, width) * 2

    net, x = Padded(), np.array([1.0, 2.0, 3.0])
    net.hybridize()
    expected = net(x).tolist()
    net.export(str(tmp_path / "padded"))
    read = gluon.SymbolBlock.imports(str(tmp_path / "padded-symbol.json"), ["data"])
    assert read(x).tolist() == expected


# --- random numbers behind a condition ------------------------------------------------------


def either(x: Any) -> Any:
    first = np.random.uniform(0, 1, (2,))
    drawn = npx.cond(
        x.sum() > 0,
        lambda: x * np.random.uniform(0, 1, (2,)),
        lambda: x * np.random.normal(0, 1, (2,)),
    )
    return first + drawn * np.random.uniform(0, 1, (2,))


def nested(x: Any) -> Any:
    def inner() -> Any:
        return npx.cond(
            x[0] > 1,
            lambda: x * np.random.uniform(0, 1, (2,)),
            lambda: x + np.random.gamma(2.0, 1.0, size=(2,)),
        )

    drawn = npx.cond(x.sum() > 0, inner, lambda: x * np.random.uniform(2, 3, (2,)))
    return drawn + np.random.uniform(0, 1, (2,))


def other_side_draws_more(x: Any) -> Any:
    def twice() -> Any:
        return x * np.random.uniform(0, 1, (2,)) + np.random.uniform(0, 1, (2,))

    return npx.cond(x.sum() > 0, twice, lambda: x * np.random.uniform(0, 1, (2,)))


@pytest.mark.parametrize("function", [either, nested, other_side_draws_more])
@pytest.mark.parametrize("row", [[2.0, 1.0], [0.5, 0.25], [-1.0, -2.0]])
def test_each_side_of_a_condition_draws_what_it_would_alone(
    function: Callable[[Any], Any], row: list[float]
) -> None:
    compiled, found = gemel.compile(function), []
    for run in (function, compiled, compiled):
        x = np.array(row)
        x.attach_grad()
        np.random.seed(5)
        with autograd.record():
            y = run(x)
        y.backward()
        found.append((y.tolist(), x.grad.tolist()))
    assert found[0] == found[1] == found[2]

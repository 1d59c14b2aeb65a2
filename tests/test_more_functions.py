"""NumPy's everyday functions that the array API standard lacks: values, gradients, errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest

import gemel
from gemel import autograd, np
from gemel.errors import DTypeError, GradientError, ShapeError

RANDOM = numpy.random.default_rng(3)
ROW = RANDOM.standard_normal(7)
GRID = RANDOM.standard_normal((4, 5))
TURNING = numpy.array([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 2.0]])
HOLES = numpy.where(RANDOM.random((4, 5)) < 0.4, numpy.nan, GRID)
HOLES[2] = numpy.nan
WHOLE = RANDOM.integers(-5, 9, (6,))
PLACES = numpy.sort(RANDOM.random(5)) * 3

Call = Callable[[Any, Callable[[Any], Any]], Any]
#: Calls that mean the same in both namespaces: n is a namespace, a(x) makes one of its arrays.
CALLS: dict[str, Call] = {
    **{
        f"convolve {mode} {first} {second}": lambda n, a, m=mode, f=first, s=second: n.convolve(
            a(ROW[:f]), a(ROW[2 : 2 + s]), m
        )
        for mode in ("full", "same", "valid") for first, second in ((7, 3), (3, 5), (6, 2), (1, 1))
    },
    **{
        f"correlate {mode} {first} {second}": lambda n, a, m=mode, f=first, s=second: n.correlate(
            a(ROW[:f]), a(ROW[2 : 2 + s]), m
        )
        for mode in ("full", "same", "valid") for first, second in ((7, 3), (3, 5), (6, 2), (2, 2))
    },
    "convolve whole": lambda n, a: n.convolve(a(WHOLE), a(WHOLE[:3])),
    "ediff1d": lambda n, a: n.ediff1d(a(GRID)),
    "ediff1d ends": lambda n, a: n.ediff1d(a(ROW), to_end=a(ROW[:2]), to_begin=a(ROW[:1])),
    "gradient": lambda n, a: n.gradient(a(ROW)),
    "gradient step": lambda n, a: n.gradient(a(ROW), 0.5, edge_order=2),
    "gradient places": lambda n, a: n.gradient(a(GRID), a(PLACES), axis=1),
    "gradient places 2": lambda n, a: n.gradient(a(GRID), a(PLACES), axis=-1, edge_order=2),
    "gradient all": lambda n, a: n.gradient(a(GRID), 2.0, a(PLACES)),
    "gradient axes": lambda n, a: n.gradient(a(GRID), axis=(1, 0)),
    "unwrap": lambda n, a: n.unwrap(a(GRID * 6)),
    "unwrap axis": lambda n, a: n.unwrap(a(GRID * 6), axis=0, discont=4.0),
    "unwrap period": lambda n, a: n.unwrap(a(WHOLE), period=6),
    "unwrap odd period": lambda n, a: n.unwrap(a(WHOLE), period=5),
    "trim_zeros": lambda n, a: n.trim_zeros(a(numpy.array([0, 0, 3, 0, 2, 0]))),
    "trim_zeros front": lambda n, a: n.trim_zeros(a(numpy.array([0, 3, 0])), "f"),
    "trim_zeros all": lambda n, a: n.trim_zeros(a(numpy.zeros(3))),
    **{
        f"{name} {count}": lambda n, a, f=name, c=count: getattr(n, f)(c)
        for name in ("hanning", "hamming", "blackman", "bartlett") for count in (0, 1, 2, 5, 8)
    },
    **{f"kaiser {count}": lambda n, a, c=count: n.kaiser(c, 8.6) for count in (0, 1, 2, 7)},
    "i0": lambda n, a: n.i0(a(GRID * 4)),
    "polyval": lambda n, a: n.polyval(a(ROW[:4]), a(GRID)),
    "polyval whole": lambda n, a: n.polyval(a(WHOLE[:3]), a(WHOLE)),
    "polyadd": lambda n, a: n.polyadd(a(ROW[:4]), a(ROW[:2])),
    "polysub": lambda n, a: n.polysub(a(ROW[:2]), a(ROW[:4])),
    "polymul": lambda n, a: n.polymul(a(ROW[:3]), a(ROW[3:])),
    "polymul of zeros": lambda n, a: [
        n.polymul(a(numpy.array(first)), a(numpy.array(second)))
        for first in ([0, 0, 1], [0, 0], [1, 0], [0, 2, 0, 3]) for second in ([2], [0, 4])
    ],
    "polydiv": lambda n, a: n.polydiv(a(ROW), a(ROW[:3])),
    "polyder": lambda n, a: n.polyder(a(ROW), 2),
    "polyder of a number": lambda n, a: n.polyder(a(ROW[:1])),
    "polyint": lambda n, a: n.polyint(a(ROW[:4]), 2, [1.0, 2.0]),
    "poly": lambda n, a: n.poly(a(ROW[:3])),
    "poly of a matrix": lambda n, a: n.poly(a(GRID[:3, :3])),
    "poly of turning ones": lambda n, a: n.poly(a(TURNING)),
    "roots": lambda n, a: numpy.sort(numpy.asarray(n.roots(a(numpy.poly([1.0, 2.0, 3.0]))))),
    "polyfit": lambda n, a: n.polyfit(a(ROW), a(ROW**2), 2),
    "nanmedian": lambda n, a: n.nanmedian(a(HOLES), axis=1),
    "nanmedian all": lambda n, a: n.nanmedian(a(HOLES)),
    "nanmedian kept": lambda n, a: n.nanmedian(a(HOLES), 0, keepdims=True),
    "nanpercentile": lambda n, a: n.nanpercentile(a(HOLES), [10, 50, 95], axis=0),
    **{
        f"nanquantile {method}": lambda n, a, m=method: n.nanquantile(a(HOLES), 0.3, 1, method=m)
        for method in ("linear", "lower", "higher", "midpoint", "nearest")
    },
    "nanargmax": lambda n, a: n.nanargmax(a(HOLES[:2]), axis=1),
    "nanargmin": lambda n, a: n.nanargmin(a(HOLES), axis=0),
    "nanargmin all": lambda n, a: n.nanargmin(a(HOLES)),
    "apply_along_axis": lambda n, a: n.apply_along_axis(lambda r: r * 2 + r.sum(), 0, a(GRID)),
    "apply_along_axis number": lambda n, a: n.apply_along_axis(lambda r: r.max(), 1, a(GRID)),
    "apply_along_axis matrix": lambda n, a: n.apply_along_axis(
        lambda r: n.outer(r, r), 0, a(GRID.reshape(4, 5, 1))
    ),
    "apply_over_axes": lambda n, a: n.apply_over_axes(n.sum, a(GRID), [0, -1]),
    "piecewise": lambda n, a: n.piecewise(a(ROW), [a(ROW < 0), a(ROW > 1)], [lambda v: -v, 3, 7]),
    "piecewise one": lambda n, a: n.piecewise(a(ROW), a(ROW < 0), [lambda v: v * 2]),
    "vectorize": lambda n, a: n.vectorize(lambda x, y: x if x > y else y)(a(GRID), 0.5),
    "block": lambda n, a: n.block([[a(GRID), a(GRID[:, :2])], [a(ROW)]]),
    "block flat": lambda n, a: n.block([a(ROW), 5.0, a(ROW[:2])]),
    "ix_": lambda n, a: n.ix_(a(numpy.array([0, 2])), a(numpy.array([True, False, True]))),
    "mgrid": lambda n, a: n.mgrid[0:3, 1:7:2],
    "mgrid row": lambda n, a: n.mgrid[-1:1:5j],
    "ogrid": lambda n, a: n.ogrid[0:3, 0:2],
    "r_": lambda n, a: n.r_[a(ROW), 0:3, 5],
    "c_": lambda n, a: n.c_[a(ROW), a(ROW * 2)],
    "mask_indices": lambda n, a: n.mask_indices(3, n.triu, 1),
    "lexsort": lambda n, a: n.lexsort((a(WHOLE), a(WHOLE % 2))),
    "lexsort axis": lambda n, a: n.lexsort((a(GRID), a(numpy.round(GRID))), axis=0),
    "packbits": lambda n, a: n.packbits(a(GRID > 0), axis=1),
    "unpackbits": lambda n, a: n.unpackbits(a(numpy.array([5, 200], "uint8")), count=11),
    "histogram2d": lambda n, a: n.histogram2d(a(ROW), a(ROW[::-1].copy()), bins=3),
    "histogramdd": lambda n, a: n.histogramdd(a(GRID[:, :2]), bins=[2, 3])[0],
    "loadtxt": lambda n, a: n.loadtxt(["1 2", "3 4.5"]),
    "genfromtxt": lambda n, a: n.genfromtxt(["1,,3", "4,5,6"], delimiter=","),
    "fromiter": lambda n, a: n.fromiter(iter(range(4)), "int32"),
    "fromstring": lambda n, a: n.fromstring("1,2.5,3", sep=","),
    "require": lambda n, a: n.require(a(GRID.T), "float64", ["C"]),
    "broadcast": lambda n, a: numpy.array(list(n.broadcast(a(ROW[:3]), a(GRID[:, :1])))),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", CALLS)
def test_as_numpy(name: str, dtype: str) -> None:
    def given(x: Any) -> Any:
        return x.astype(dtype) if x.dtype.kind == "f" else x

    with numpy.errstate(all="ignore"):
        expected = CALLS[name](numpy, given)
    found = CALLS[name](np, lambda x: np.array(given(x)))
    many = isinstance(expected, (tuple, list))
    assert isinstance(found, (tuple, list)) == many
    pairs = zip(found, expected, strict=True) if many else [(found, expected)]
    for mine, theirs in pairs:
        if isinstance(mine, list):
            mine, theirs = mine[0], theirs[0]
        wanted = numpy.asarray(theirs)
        got = mine if isinstance(mine, numpy.ndarray) else mine.asnumpy()
        assert got.shape == wanted.shape
        assert got.dtype.kind == wanted.dtype.kind
        near = 1e-4 if "float32" in (dtype, str(got.dtype)) else 1e-9
        numpy.testing.assert_allclose(got, wanted, rtol=near, atol=near, equal_nan=True)


#: Functions of one or two arrays, to be compiled, recorded and differentiated.
SMOOTH: dict[str, Call] = {
    "convolve": lambda n, x: n.convolve(x[0], x[1][:3]),
    "correlate": lambda n, x: n.correlate(x[0], x[1][:3], "same"),
    "gradient": lambda n, x: n.gradient(x, n.array(PLACES), axis=1, edge_order=2),
    "gradient first": lambda n, x: n.gradient(x, axis=0),
    "ediff1d": lambda n, x: n.ediff1d(x, to_end=x[0]),
    "unwrap": lambda n, x: n.unwrap(x * 3),
    "polyval": lambda n, x: n.polyval(x[0], x[1]),
    "polymul": lambda n, x: n.polymul(x[0], x[1]),
    "polyint": lambda n, x: n.polyint(x[0], 2),
    "poly": lambda n, x: n.poly(x[0]),
    "poly of a matrix": lambda n, x: n.poly(x[:2, :2]),
    "nanquantile": lambda n, x: n.nanquantile(x, [0.2, 0.7], axis=1),
    "nanmedian": lambda n, x: n.nanmedian(n.where(x > 0.5, float("nan"), x)),
    "piecewise": lambda n, x: n.piecewise(x, [x < 0, x > 0.3], [lambda v: v * v, 2.0, lambda v: v]),
    "block": lambda n, x: n.block([[x, x * x], [x * 2, x]]),
    "apply_along_axis": lambda n, x: n.apply_along_axis(lambda r: r * r.sum(), 0, x),
    "r_": lambda n, x: n.r_[x[0], 1.0, x[1]],
}  # fmt: skip


@pytest.mark.parametrize("name", SMOOTH)
def test_compiled_and_differentiated(name: str) -> None:
    function = SMOOTH[name]
    x = np.array(GRID[:3])
    plain = function(np, x)
    compiled = gemel.compile(lambda v: function(np, v))(x)
    numpy.testing.assert_allclose(compiled.asnumpy(), plain.asnumpy(), rtol=1e-12)
    weight = RANDOM.standard_normal(plain.shape)
    x.attach_grad()
    with autograd.record():
        total = (function(np, x) * np.array(weight)).sum()
    total.backward()
    step = 1e-6
    expected = numpy.zeros(x.shape)
    for at in numpy.ndindex(x.shape):
        ends = []
        for sign in (1, -1):
            moved = GRID[:3].copy()
            moved[at] += sign * step
            ends.append((function(np, np.array(moved)).asnumpy() * weight).sum())
        expected[at] = (ends[0] - ends[1]) / (2 * step)
    numpy.testing.assert_allclose(x.grad.asnumpy(), expected, rtol=1e-6, atol=1e-6)


# --- functions that write -------------------------------------------------------------------

WRITES: dict[str, Callable[[Any, Any, Callable[[Any], Any]], None]] = {
    "copyto": lambda n, x, a: n.copyto(x, a(GRID[0, :4])),
    "copyto where": lambda n, x, a: n.copyto(x, 5, where=a(GRID[:3, :4] > 0)),
    "put": lambda n, x, a: n.put(x, a(numpy.array([0, -1, 5])), a(ROW[:2])),
    "put wrap": lambda n, x, a: n.put(x, [13, -14], [7, 8], mode="wrap"),
    "put clip": lambda n, x, a: n.put(x, [40, -3], [7, 8], mode="clip"),
    "put nothing": lambda n, x, a: n.put(x, a(numpy.zeros(0, int)), [7]),
    "putmask": lambda n, x, a: n.putmask(x, a(GRID[:3, :4] > 0), a(ROW[:5])),
    "fill_diagonal": lambda n, x, a: n.fill_diagonal(x, 5),
    "fill_diagonal of several": lambda n, x, a: n.fill_diagonal(x, [5, 6]),
    "place": lambda n, x, a: n.place(x, a(GRID[:3, :4] > 0), a(ROW[:3])),
}


@pytest.mark.parametrize("name", WRITES)
def test_functions_that_write(name: str) -> None:
    theirs = GRID[:3, :4].copy()
    WRITES[name](numpy, theirs, lambda v: v)
    base = np.zeros((4, 3), "float64")
    for mine in (np.array(GRID[:3, :4]), base.T):
        mine[...] = np.array(GRID[:3, :4])
        WRITES[name](np, mine, np.array)
        numpy.testing.assert_allclose(mine.asnumpy(), theirs)

    def program(x: Any) -> Any:
        x = x.copy()
        WRITES[name](np, x, np.array)
        return x

    found = gemel.compile(program)(np.array(GRID[:3, :4]))
    numpy.testing.assert_allclose(found.asnumpy(), theirs)


@pytest.mark.parametrize("shape", [(5, 2), (7, 3), (3, 3), (2, 4)])
def test_diagonals_that_wrap(shape: tuple[int, int]) -> None:
    mine, theirs = np.zeros(shape), numpy.zeros(shape)
    np.fill_diagonal(mine, [4, 5], wrap=True)
    numpy.fill_diagonal(theirs, [4, 5], wrap=True)
    assert mine.tolist() == theirs.tolist()


def test_written_values_have_a_gradient() -> None:
    values = np.array([1.0, 2.0])
    values.attach_grad()
    with autograd.record():
        x = np.zeros(5)
        np.place(x, np.array([True, False, True, True, False]), values)
        total = (x * np.arange(1.0, 6.0)).sum()
    total.backward()
    assert values.grad.tolist() == [1 + 4, 3]


# --- indices and questions ------------------------------------------------------------------


def test_positions() -> None:
    assert list(np.ndindex(2, 2)) == list(np.ndindex((2, 2))) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert list(np.ndenumerate(np.array([[1, 2]]))) == [((0, 0), 1), ((0, 1), 2)]
    assert np.s_[1:3, 0] == (slice(1, 3), 0)
    assert np.index_exp[2] == (2,)
    x = np.arange(12).reshape(3, 4)
    assert x[np.ix_([0, 2], [1, 3])].tolist() == [[1, 3], [9, 11]]
    both = np.broadcast(np.ones((2, 1)), np.ones(3))
    assert (both.shape, both.size, both.nd, both.numiter) == ((2, 3), 6, 2, 2)


def test_questions() -> None:
    assert np.array_equiv([1, 1], [[1, 1]])
    assert not np.array_equiv([1, 2], [1, 2, 3])
    assert np.iterable([1])
    assert not np.iterable(3)
    assert np.size(np.ones((2, 3)), 1) == 3
    assert np.dtype("int32") is np.int32
    assert np.intp == numpy.intp


def test_constants() -> None:
    for name in ("pi", "e", "euler_gamma", "inf", "newaxis", "True_", "False_"):
        assert getattr(np, name) == getattr(numpy, name)


# --- errors ---------------------------------------------------------------------------------


def test_errors() -> None:
    row = np.array(ROW)
    with pytest.raises(ShapeError, match="must have one dimension and not be empty"):
        np.convolve(row, [])
    with pytest.raises(ValueError, match="'half'"):
        np.convolve(row, row, "half")
    with pytest.raises(ShapeError, match="it needs at least 3"):
        np.gradient(row[:2], edge_order=2)
    with pytest.raises(ShapeError, match="positions of"):
        np.gradient(row, row[:3])
    with pytest.raises(TypeError, match="2 distances were given for 1 axes"):
        np.gradient(row, 1.0, 2.0)
    with pytest.raises(ValueError, match=r"NaN|nan"):
        np.nanargmax(np.array([[1.0], [float("nan")]]), axis=1).wait_to_read()
    with pytest.raises(ValueError, match="nested to the same depth"):
        np.block([row, [row]])
    with pytest.raises(ValueError, match="as many functions, or one more"):
        np.piecewise(row, [row > 0], [1, 2, 3])
    with pytest.raises(DTypeError, match="unsafe cast"):
        np.copyto(np.zeros(3, "int32"), np.ones(3))
    with pytest.raises(ShapeError, match="cannot be stored"):
        np.copyto(np.zeros(3), np.ones(4))
    with pytest.raises(IndexError):
        x = np.zeros(3)
        np.put(x, [3], [1])
        x.wait_to_read()
    with pytest.raises(ShapeError, match="a mask of"):
        np.place(np.zeros(3), np.zeros(2), [1])
    with pytest.raises(ShapeError, match="one dimension"):
        np.polyval(np.ones((2, 2)), 1.0)
    row.attach_grad()
    with autograd.record(), pytest.raises(GradientError, match="no gradient"):
        np.roots(row)


# --- forms of other functions ---------------------------------------------------------------

FORMS: dict[str, Call] = {
    "linspace rows": lambda n, a: n.linspace([0.0, 1.0], [1.0, 5.0], 4, dtype="float64"),
    "linspace axis": lambda n, a: n.linspace(a(ROW[:3]), 2.0, 4, axis=-1, dtype="float64"),
    "linspace step": lambda n, a: n.linspace(0.0, 1.0, 5, retstep=True)[1] * n.ones(1),
    "logspace rows": lambda n, a: n.logspace([0.0, 1.0], [1.0, 2.0], 3, axis=1, dtype="float64"),
    "logspace base": lambda n, a: n.logspace(0, 3, 4, base=2, dtype="float64"),
    "geomspace rows": lambda n, a: n.geomspace([1.0, -2.0], [8.0, -16.0], 4, dtype="float64"),
    "geomspace open": lambda n, a: n.geomspace(1, 256, 8, endpoint=False, dtype="float64"),
    **{
        f"pad {mode} {kind}": lambda n, a, m=mode, k=kind: n.pad(
            a(GRID if k == "float" else numpy.round(GRID * 9).astype("int32")), ((2, 1), (0, 3)), m
        )
        for mode in ("linear_ramp", "median", "mean", "maximum") for kind in ("float", "whole")
    },
    "pad ramp ends": lambda n, a: n.pad(a(ROW), (3, 2), "linear_ramp", end_values=(1, -2)),
    "pad stat": lambda n, a: n.pad(a(GRID), 2, "mean", stat_length=((1, 2), (3, 9))),
    "pad function": lambda n, a: n.pad(a(ROW), 2, ends_of_seven),
    "eye": lambda n, a: n.eye(N=2, M=4, k=1),
    "intersect1d places": lambda n, a: n.intersect1d(
        a(numpy.array([1, 3, 4, 3])), a(numpy.array([3, 1, 2, 1])), return_indices=True
    ),
    "clip out": lambda n, a: n.clip(a(GRID), 0, None),
}  # fmt: skip
CALLS.update(FORMS)


def ends_of_seven(row: Any, widths: Any, axis: int, options: Any) -> None:
    row[: widths[0]], row[-widths[1] :] = 7, 7


@pytest.mark.parametrize("name", FORMS)
def test_forms_as_numpys(name: str) -> None:
    test_as_numpy(name, "float64")


def test_pad_refuses_invalid_arguments() -> None:
    x = np.array(ROW)
    with pytest.raises(ValueError, match="mode of pad"):
        np.pad(x, 1, "sideways")
    for mode, kind in (("wrap", "odd"), ("reflect", "strange")):
        with pytest.raises(TypeError, match=f"{mode!r} takes no reflect_type={kind!r}"):
            np.pad(x, 1, mode, reflect_type=kind)
    with pytest.raises(ShapeError, match="stat_length is 0"):
        np.pad(x, 1, "mean", stat_length=0)


@pytest.mark.parametrize("kth", [[0, 2], numpy.array([2, 0]), -2, "array"])
def test_places_that_partition(kth: Any) -> None:
    row = numpy.array([5, 3, 1, 4])
    plain, given = ([2, 0], np.array([2, 0])) if isinstance(kth, str) else (kth, kth)
    wanted = numpy.partition(row, plain)
    assert np.partition(np.array(row), given)[plain].tolist() == wanted[plain].tolist()
    assert np.partition(np.zeros((3, 0)), given).shape == (3, 0)
    assert np.argpartition(np.zeros((0, 3)), 7).shape == (0, 3)
    with pytest.raises(TypeError, match=r"argpartition: kth 1\.5 must be a whole number"):
        np.partition(np.array(row), 1.5)


def test_the_place_in_an_array_without_axes() -> None:
    x = np.array(4.0)
    assert np.unravel_index(np.argmax(x), x.shape) == ()
    assert gemel.compile(lambda i: np.unravel_index(i, ()))(np.array(0)) == ()
    with pytest.raises(ShapeError, match="without axes"):
        np.unravel_index(np.array([0]), ())


def test_elements_of_one_set_keep_their_dtype() -> None:
    """Promoted together, int32 and uint64 are floats, which cannot tell large integers apart."""
    whole, signed = numpy.array([7, 2**64 - 1, 0, 7], "uint64"), numpy.array([-1, 0], "int32")
    assert np.setdiff1d(np.array(whole), np.array(signed)).tolist() == [7, 2**64 - 1]
    near = numpy.array([2**53, 2**53 + 1])
    found = np.setdiff1d(np.array(near), np.array(near[1:].astype("uint64")))
    assert found.tolist() == [2**53]


def test_products_of_polynomials_with_leading_zeros() -> None:
    """They are left out, but not in compiled functions, whose shapes depend on no values."""
    first, second = np.array([0.0, 0.0, 1.0]), np.array([0.0, 2.0])
    first.attach_grad()
    with autograd.record():
        found = np.polymul(first, second)
    found.backward()
    assert (found.tolist(), first.grad.tolist()) == ([2], [0, 0, 2])
    assert gemel.compile(np.polymul)(first, second).tolist() == [0, 0, 0, 2]
    assert np.polymul([0], first).tolist() == [0] == np.polymul([], first).tolist()
    assert np.polyadd(first, first).tolist() == [0, 0, 2]  # as NumPy's


@pytest.mark.parametrize(
    "zeros", [[1j, -1j], [1j, 2], [[1j, 0], [0, -1j]], [[1j, 0], [0, 2]], [[1j]]]
)
def test_polynomials_with_complex_zeros(zeros: Any) -> None:
    """Real if the zeros are conjugate pairs; in compiled functions always complex."""
    given = numpy.array(zeros)
    wanted = numpy.poly(given)
    found, compiled = np.poly(np.array(given)), gemel.compile(np.poly)(np.array(given))
    assert found.dtype == wanted.dtype and compiled.dtype == "complex128"
    for each in (found, compiled):
        numpy.testing.assert_allclose(each, wanted, atol=1e-12)


def test_matrices_without_a_characteristic_polynomial() -> None:
    for shape in ((2, 3), (2, 2, 2)):
        with pytest.raises(ShapeError, match="poly"):
            np.poly(np.ones(shape))


@pytest.mark.parametrize(("u", "v"), [("float64", "uint64"), ("float32", "float64")])
def test_quotients_of_polynomials_of_two_dtypes(u: str, v: str) -> None:
    given = numpy.array([4.0, 1.0], u), numpy.array([9], v)
    for found, wanted in zip(np.polydiv(*map(np.array, given)), numpy.polydiv(*given), strict=True):
        assert found.dtype == "float64"
        numpy.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    ("x", "fp"),
    [
        ([0.0, 1.0], [0.0, 5.0, numpy.inf]),  # at the given points
        ([0.5, 1.5], [0.0, numpy.inf, numpy.inf]),  # between two equal values
        ([0.5, 1.0], [-numpy.inf, 2.0, 3.0]),  # computed from the interval's other end
        ([0.5, 1.5], [-numpy.inf, numpy.inf, numpy.nan]),
        ([0.0, 1.0], [1.0, 2.0, numpy.nan]),
    ],
)
def test_interpolation_next_to_infinite_values(x: Any, fp: Any) -> None:
    given = (numpy.array(x), numpy.array([0.0, 1.0, 2.0]), numpy.array(fp))
    wanted = numpy.interp(*given)
    for call in (np.interp, gemel.compile(np.interp)):
        numpy.testing.assert_array_equal(call(*map(np.array, given)).asnumpy(), wanted)


def test_means_refuse_integer_dtypes() -> None:
    for name in ("nanmean", "var"):
        with pytest.raises(
            DTypeError, match=rf"^{name}: dtype=int32 is not possible, because a mean is not"
        ):
            getattr(np, name)(np.ones(3), dtype="int32")

"""The functions known from NumPy and the Array API: names, keywords, values, gradients.

The table of operations (op_table) checks kernels against the operations' bodies. Here the public
names are called like NumPy's, and compared with NumPy's results.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import numpy
import pytest

import gemel
from gemel import autograd, np, npx
from gemel.errors import DTypeError, ShapeError

INF, NAN = float("inf"), float("nan")
RANDOM = numpy.random.default_rng(5)
#: The argument of most calls below: no ties, some negative numbers.
X = RANDOM.normal(size=(3, 4, 5)).astype("float32")
M = X[0]
HOLES = numpy.where(X > 1, numpy.float32(NAN), X)
WHOLE = RANDOM.integers(-9, 10, (3, 4, 5)).astype("int32")

#: Names in the Array API standard and NumPy, and gemel's names for the same functions.
ALIASES = {
    "acos": "arccos", "acosh": "arccosh", "asin": "arcsin", "asinh": "arcsinh", "atan": "arctan",
    "atan2": "arctan2", "atanh": "arctanh", "pow": "power", "bitwise_invert": "invert",
    "bitwise_not": "invert", "bitwise_left_shift": "left_shift", "fix": "trunc",
    "bitwise_right_shift": "right_shift", "rad2deg": "degrees", "deg2rad": "radians",
    "around": "round", "amax": "max", "amin": "min", "trapz": "trapezoid", "abs": "absolute",
    "true_divide": "divide", "mod": "remainder",
}  # fmt: skip

#: Elementwise functions and statistics of the standard, except those of complex numbers.
STANDARD = (
    "abs", "acos", "acosh", "add", "asin", "asinh", "atan", "atan2", "atanh", "bitwise_and",
    "bitwise_left_shift", "bitwise_invert", "bitwise_or", "bitwise_right_shift", "bitwise_xor",
    "ceil", "clip", "copysign", "cos", "cosh", "divide", "equal", "exp", "expm1", "floor",
    "floor_divide", "greater", "greater_equal", "hypot", "isfinite", "isinf", "isnan", "less",
    "less_equal", "log", "log1p", "log2", "log10", "logaddexp", "logical_and", "logical_not",
    "logical_or", "logical_xor", "maximum", "minimum", "multiply", "negative", "nextafter",
    "not_equal", "positive", "pow", "reciprocal", "remainder", "round", "sign", "signbit",
    "sin", "sinh", "square", "sqrt", "subtract", "tan", "tanh", "trunc", "cumulative_prod",
    "cumulative_sum", "max", "mean", "min", "prod", "std", "sum", "var", "all", "any", "diff",
    "count_nonzero", "argmax", "argmin",
)  # fmt: skip


@pytest.mark.parametrize("alias", ALIASES)
def test_aliases_are_the_same_function(alias: str) -> None:
    assert getattr(np, alias) is getattr(np, ALIASES[alias])


def test_the_standard_names_are_there() -> None:
    missing = [name for name in STANDARD if not callable(getattr(np, name, None))]
    assert not missing


def test_keywords_are_those_of_numpy() -> None:
    for name in ("quantile", "percentile", "median", "cov", "diff", "trapezoid", "nan_to_num"):
        theirs = inspect.signature(getattr(numpy, name)).parameters
        ours = inspect.signature(getattr(np, name)).parameters
        # MXNet calls `method` "interpolation".
        assert set(ours) - {"x", "interpolation"} <= set(theirs), name


# --- values ---------------------------------------------------------------------------------

Call = Callable[[Any], Any]
#: Calls with the same meaning in both namespaces; `n` is the namespace, `n.array` makes arrays.
CALLS: dict[str, Call] = {
    "sum dtype": lambda n: n.sum(n.array(WHOLE), axis=1, dtype="float64"),
    "sum to int8": lambda n: n.sum(n.array(WHOLE), dtype="int8"),
    "sum keepdims": lambda n: n.sum(n.array(X), axis=(0, 2), keepdims=True),
    "prod dtype": lambda n: n.prod(n.array(WHOLE[0]), 1, "float64"),
    "mean dtype": lambda n: n.mean(n.array(WHOLE), axis=0, dtype="float64"),
    "var ddof": lambda n: n.var(n.array(X), axis=1, ddof=1),
    "var correction": lambda n: n.var(n.array(X), axis=1, correction=1),
    "var half of one": lambda n: n.var(n.array(X), axis=1, ddof=0.5),
    "var dtype": lambda n: n.var(n.array(WHOLE), dtype="float64"),
    "var of too few": lambda n: n.var(n.array(X[:1]), axis=0, ddof=1),
    "std ddof": lambda n: n.std(n.array(X), axis=(0, 2), ddof=2, keepdims=True),
    "std correction": lambda n: n.std(n.array(X), correction=1),
    "cumsum": lambda n: n.cumsum(n.array(X)),
    "cumsum axis": lambda n: n.cumsum(n.array(X), 1),
    "cumsum integers": lambda n: n.cumsum(n.array(WHOLE), axis=-1),
    "cumsum dtype": lambda n: n.cumsum(n.array(WHOLE), axis=0, dtype="float64"),
    "cumprod": lambda n: n.cumprod(n.array(X), axis=2),
    "cumsum method": lambda n: n.array(X).cumsum(axis=1),
    "cumprod method": lambda n: n.array(X).cumprod(),
    "sum method": lambda n: n.array(WHOLE).sum(1, "float64"),
    "cumulative_sum": lambda n: n.cumulative_sum(n.array(X[0, 0])),
    "cumulative_sum from 0": lambda n: n.cumulative_sum(
        n.array(X), axis=-2, include_initial=True
    ),
    "cumulative_prod from 1": lambda n: n.cumulative_prod(
        n.array(X), axis=0, dtype="float64", include_initial=True
    ),
    "nansum": lambda n: n.nansum(n.array(HOLES), axis=1),
    "nansum integers": lambda n: n.nansum(n.array(WHOLE)),
    "nanprod": lambda n: n.nanprod(n.array(HOLES), axis=(0, 1)),
    "nanmean": lambda n: n.nanmean(n.array(HOLES), axis=0, keepdims=True),
    "nanmax": lambda n: n.nanmax(n.array(HOLES), axis=2),
    "nanmin": lambda n: n.nanmin(n.array(HOLES)),
    "nanmax of nothing else": lambda n: n.nanmax(n.array([[NAN, NAN], [1.0, NAN]], "float32"), 1),
    "nanmean of nothing else": lambda n: n.nanmean(n.array([[NAN, NAN]], "float32"), 1),
    "nanmin integers": lambda n: n.nanmin(n.array(WHOLE), axis=1),
    "nanvar": lambda n: n.nanvar(n.array(HOLES), axis=1, ddof=1),
    "nanvar of too few": lambda n: n.nanvar(
        n.array([[NAN, 1.0], [NAN, NAN]], "float32"), 1, ddof=1
    ),
    "nanstd": lambda n: n.nanstd(n.array(HOLES), axis=(0, 2), keepdims=True),
    "nancumsum": lambda n: n.nancumsum(n.array(HOLES), axis=1),
    "nancumprod": lambda n: n.nancumprod(n.array(HOLES)),
    "bitwise_count": lambda n: n.bitwise_count(n.array([0, 1, 255, -1, -7])),
    "ptp": lambda n: n.ptp(n.array(X), axis=1),
    "count_nonzero": lambda n: n.count_nonzero(n.array(WHOLE), axis=(0, 2)),
    "count_nonzero all": lambda n: n.count_nonzero(n.array(HOLES)),
    "median": lambda n: n.median(n.array(X)),
    "median of even": lambda n: n.median(n.array(X), axis=1, keepdims=True),
    "median with NaN": lambda n: n.median(n.array(HOLES), axis=2),
    "median of infinities": lambda n: n.median(
        n.array([[INF, INF], [1, INF], [-INF, 1]], "float32"), axis=1
    ),
    "quantile": lambda n: n.quantile(n.array(X), 0.3, axis=(0, 2)),
    "quantiles": lambda n: n.quantile(n.array(X), [0.0, 0.25, 1.0], axis=-1, keepdims=True),
    "quantiles in an array": lambda n: n.quantile(n.array(X), n.array([[0.25, 1.0], [0.5, 0.75]])),
    "quantiles in a list of arrays": lambda n: n.quantile(n.array(X), [n.array(0.25), 0.5]),
    "percentile": lambda n: n.percentile(n.array(X), [10, 50], axis=0),
    **{
        f"quantile {how}": lambda n, how=how: n.quantile(n.array(X), [0.2, 0.5], 1, method=how)
        for how in ("lower", "higher", "midpoint", "nearest")
    },
    "average": lambda n: n.average(n.array(X), axis=1),
    "average weights": lambda n: n.average(n.array(X), axis=1, weights=n.array(X[0, :, 0])),
    "average all": lambda n: n.average(n.array(X), weights=n.array(abs(X))),
    "average returned": lambda n: n.average(
        n.array(X), axis=2, weights=n.array(abs(X)), returned=True
    ),
    "average sum of ones": lambda n: n.average(n.array(X), axis=2, returned=True)[1],
    "cov": lambda n: n.cov(n.array(M)),
    "cov of columns": lambda n: n.cov(n.array(M), rowvar=False, bias=True),
    "cov of two": lambda n: n.cov(n.array(M[0]), n.array(M[1])),
    "cov of one": lambda n: n.cov(n.array(M[0]), ddof=0),
    "cov fweights": lambda n: n.cov(n.array(M), fweights=n.array([1, 2, 0, 3, 1])),
    "cov aweights": lambda n: n.cov(n.array(M), aweights=n.array(abs(M[0]))),
    "cov both": lambda n: n.cov(
        n.array(M), fweights=n.array([1, 2, 1, 3, 1]), aweights=n.array(abs(M[0]))
    ),
    "corrcoef": lambda n: n.corrcoef(n.array(M)),
    "corrcoef of two": lambda n: n.corrcoef(n.array(M[0]), n.array(M[1])),
    "corrcoef of one": lambda n: n.corrcoef(n.array(M[0])),
    "corrcoef of nothing": lambda n: n.corrcoef(n.array(M[:, :0])),
    "interp of unsigned": lambda n: n.interp(
        n.array([0.5, 1.5, 9]), n.array([0, 1, 2]), n.array([100, 5, 70], "uint8"), left=-1
    ),
    "interp among unsigned": lambda n: n.interp(
        *(n.array(row, "uint64") for row in ([7, 60, 99], [90, 50, 0], [5, 3, 1])), period=95
    ),
    "correlate of complex": lambda n: [
        part(n.correlate(n.array([1j, 2, 3 - 1j]), n.array([1, 1j]), "full"))
        for part in (n.real, n.imag)
    ],
    **{
        f"correlate along a longer one, {mode}": lambda n, mode=mode: n.correlate(
            n.array([1, 2]), n.array([1, 2, 3, 5]), mode
        )
        for mode in ("full", "same", "valid")
    },
    "arange in whole numbers": lambda n: [
        n.arange(0, 0.3, 0.1, dtype="int64"),
        n.arange(-3, 3, 0.5, dtype="int32"),
        n.arange(0, 5, 1.5, dtype="uint8"),
        n.arange(0.5, 3, dtype="int64"),
        n.arange(2.5, dtype="int64"),
    ],
    "linspace without a step": lambda n: [
        n.linspace(0, 1, num, retstep=True)[1] for num in (0, 1, 2)
    ],
    "logspace of bases": lambda n: [
        n.logspace(0, 2, 3, base=[2, 3]),
        n.logspace([[0], [1]], 2, 3, base=[2, 3], axis=-1),
    ],
    **{
        f"{name} of complex": lambda n, call=call: [
            part(call(n, n.array(M + 1j * X[1]))) for part in (n.real, n.imag)
        ]
        for name, call in {
            "add.reduceat": lambda n, z: n.add.reduceat(z, [0, 2]),
            "geomspace": lambda n, z: n.geomspace(1j, 16j, 3),
            "linspace": lambda n, z: n.linspace(z[0], z[1], 3),
            "logspace": lambda n, z: n.logspace(z[0], 1j, 3),
            "pad mean": lambda n, z: n.pad(z, 1, mode="mean"),
            "pad ramp": lambda n, z: n.pad(z, 2, mode="linear_ramp", end_values=1j),
            "subtract.reduce": lambda n, z: n.subtract.reduce(z, 1),
        }.items()
    },
    "pad ramp of whole numbers": lambda n: n.pad(
        n.array([[2, -4], [3, 1]]), 3, mode="linear_ramp", end_values=(-3, 9)
    ),
    **{
        f"pad {mode}, odd": lambda n, mode=mode: [
            n.pad(n.array(M), ((1, 9), (2, 0)), mode=mode, reflect_type="odd"),
            n.pad(n.array([5, 9, 4], "uint8"), 7, mode=mode, reflect_type="odd"),
            n.pad(n.array([5]), 3, mode=mode, reflect_type="odd"),
            n.pad(n.array([1, 3, NAN]), (2, 1), mode=mode, reflect_type="odd"),
        ]
        for mode in ("reflect", "symmetric")
    },
    "choose by bools": lambda n: n.choose(n.array(M > 0), [n.array(M), n.array(-M)]),
    "diff": lambda n: n.diff(n.array(X)),
    "diff of a number": lambda n: n.diff(n.array(1.5), n=0),
    "diff twice": lambda n: n.diff(n.array(X), 2, 1),
    "diff none": lambda n: n.diff(n.array(X), n=0),
    "diff ends": lambda n: n.diff(n.array(X), axis=1, prepend=0.0, append=n.array(X[:, :2])),
    "diff ends of halves": lambda n: n.diff(
        n.array(X.astype("float16")), append=n.array(X[:, :, 0:1])
    ),
    "diff whole ends": lambda n: n.diff(n.array([5, 3, 9], "int64"), prepend=0, append=n.array(1)),
    "diff bools": lambda n: n.diff(n.array(X > 0)),
    "trapezoid": lambda n: n.trapezoid(n.array(X), dx=0.5, axis=1),
    "trapezoid at": lambda n: n.trapezoid(n.array(X), n.array(M[:, 0]), axis=1),
    "trapezoid at each": lambda n: n.trapezoid(n.array(X), n.array(X * X), axis=-1),
    "clip": lambda n: n.clip(n.array(X), -0.5, 0.5),
    "clip named": lambda n: n.clip(n.array(X), min=-0.5, max=n.array(X[0])),
    "clip one side": lambda n: n.clip(n.array(X), max=0.5),
    "clip a_min": lambda n: n.clip(n.array(X), a_min=0.0, a_max=None),
    "round": lambda n: n.round(n.array(X), 2),
    "round keyword": lambda n: n.around(n.array(X * 100), decimals=-1),
    "round method": lambda n: n.array(X).round(1),
    "round integers": lambda n: n.round(n.array([5, 15, 25, -5, -15, 34, 36]), -1),
    "round to more than there is": lambda n: n.round(n.array([5, 127, -128], "int8"), -3),
    "nan_to_num of a number": lambda n: n.nan_to_num(NAN),
    "nan_to_num": lambda n: n.nan_to_num(n.array([NAN, INF, -INF, 1.5], "float32")),
    "nan_to_num given": lambda n: n.nan_to_num(
        n.array([NAN, INF, -INF], "float64"), nan=1.0, posinf=2.0, neginf=-2.0
    ),
    "nan_to_num halves": lambda n: n.nan_to_num(n.array([NAN, INF, -INF], "float16")),
    "nan_to_num integers": lambda n: n.nan_to_num(n.array(WHOLE)),
    "isclose": lambda n: n.isclose(
        n.array([1.0, NAN, INF, INF, 1.0]), n.array([1.0 + 1e-6, NAN, INF, -INF, INF])
    ),
    "isclose equal_nan": lambda n: n.isclose(
        n.array([1.0, NAN, 2.0]), n.array([1.1, NAN, NAN]), rtol=0.2, atol=0.0, equal_nan=True
    ),
    "isclose integers": lambda n: n.isclose(n.array([2**53 + 1, 3]), n.array([2**53, 4]), rtol=0),
    "float_power": lambda n: n.float_power(n.array([2, 3, 4]), -2),
    "modf": lambda n: n.modf(n.array([1.5, -0.0, -2.25, INF, -INF, NAN], "float32")),
    "frexp": lambda n: n.frexp(n.array([1.5, -0.0, -2.25, 1e-40, 0.0], "float32")),
    "ldexp": lambda n: n.ldexp(n.array([1.5, 0.0, 1e-300, 1e300, -1.0], "float64"),
                               n.array([3, 5000, 2000, 5000, -1074])),
    "shift by array": lambda n: n.array([1, -8, 7, 7]) << n.array([3, 1, 70, -1]),
    "shift right": lambda n: n.array([256, -8, -7, 7]) >> n.array([3, 1, 70, 64]),
    "shift by number": lambda n: n.array(WHOLE) << 2,
    "shift of bytes": lambda n: n.left_shift(n.array([200, 1], "uint8"), n.array([1, 8], "uint8")),
    "gcd of numbers": lambda n: n.gcd(n.array([12, 18, 0]), 8),
    "lcm": lambda n: n.lcm(n.array([[4], [6]]), n.array([6, 10])),
    "nextafter": lambda n: n.nextafter(n.array([1.0, 0.0], "float32"), 2.0),
    "spacing": lambda n: n.spacing(n.array([1.0, 1e10], "float64")),
    "heaviside": lambda n: n.heaviside(n.array([-1.0, 0.0, 2.0, NAN]), 0.5),
    "copysign of number": lambda n: n.copysign(n.array([1.0, -2.0]), -0.0),
    "positive": lambda n: +n.array(X),
    "hypot of number": lambda n: n.hypot(n.array([3.0, 1e300], "float64"), 4.0),
}  # fmt: skip


def answers(call: Call, namespace: Any) -> list[Any]:
    with numpy.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        found = call(namespace)
    several = found if isinstance(found, (tuple, list)) else (found,)
    return [v.asnumpy() if isinstance(v, np.ndarray) else numpy.asarray(v) for v in several]


@pytest.mark.parametrize("name", CALLS)
def test_as_numpy_does(name: str) -> None:
    for found, expected in zip(answers(CALLS[name], np), answers(CALLS[name], numpy), strict=True):
        assert found.shape == expected.shape
        if expected.dtype.kind == "f":
            # NumPy's literals are float64 and gemel's are float32, so NumPy's result may be wider.
            near = 1e-14 if found.dtype == "float64" == expected.dtype else 1e-5
            assert found.dtype.kind == "f"
            numpy.testing.assert_allclose(found, expected, rtol=near, atol=near)
            same = expected == 0
            numpy.testing.assert_array_equal(
                numpy.signbit(found[same]), numpy.signbit(expected[same])
            )
        else:
            assert found.dtype == expected.dtype
            numpy.testing.assert_array_equal(found, expected)


#: Where functions composed of elementary ones, which have no other reference, are checked.
SPECIAL = numpy.array([0.0, -0.0, 1, -1, INF, -INF, NAN, 0.3, -0.7, 2.5, 1e-5, -40, 1e30, 8, 1000])
SERIES = (
    "tan", "arcsin", "arccos", "arctan", "sinh", "cosh", "arcsinh", "arccosh", "arctanh",
    "degrees", "radians", "sinc", "exp2", "log2", "log10", "cbrt", "arctan2", "hypot",
    "logaddexp", "logaddexp2",
)  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", SERIES)
def test_close_to_the_last_digit(name: str, dtype: str) -> None:
    """Within a few units in the last place of NumPy's result in longdouble."""
    values = numpy.concatenate([SPECIAL, RANDOM.uniform(-3, 3, 500)]).astype(dtype)
    both = getattr(np, name).arity == 2
    sides = numpy.meshgrid(values[:60], values[:60]) if both else [values]
    with numpy.errstate(all="ignore"):
        expected = getattr(numpy, name)(*(v.astype(numpy.longdouble) for v in sides)).astype(dtype)
    found = getattr(np, name)(*(np.array(v) for v in sides)).asnumpy()
    assert found.dtype == dtype
    unit = numpy.finfo(dtype).eps
    # Near a zero that is not at 0, only the absolute error is small.
    absolute = 4 * unit if name in ("logaddexp", "logaddexp2", "sinc") else 0
    numpy.testing.assert_allclose(found, expected, rtol=4 * unit, atol=absolute)
    numpy.testing.assert_array_equal(
        numpy.signbit(found[expected == 0]), numpy.signbit(expected[expected == 0])
    )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_whole_powers_have_whole_logarithms(dtype: str) -> None:
    powers = numpy.arange(-37, 38)
    two, ten = numpy.exp2(powers).astype(dtype), (10.0**powers).astype(dtype)
    numpy.testing.assert_array_equal(np.log2(np.array(two)).asnumpy(), powers)
    numpy.testing.assert_array_equal(np.log10(np.array(ten)).asnumpy(), powers)
    numpy.testing.assert_array_equal(np.exp2(np.array(powers.astype(dtype))).asnumpy(), two)
    cubes = numpy.arange(-50, 50, dtype=dtype)
    numpy.testing.assert_array_equal(np.cbrt(np.array(cubes**3)).asnumpy(), cubes)


def test_equality_with_nan() -> None:
    a, b = np.array([1.0, NAN]), np.array([1.0, NAN])
    assert not np.array_equal(a, b)
    assert np.array_equal(a, b, equal_nan=True)
    assert not np.array_equal(a, np.array([NAN, NAN]), equal_nan=True)
    assert not np.allclose(a, b)
    assert np.allclose(a, b + 1e-7, equal_nan=True)


def test_logsumexp() -> None:
    found = npx.logsumexp(np.array([[1e4, 1e4], [-1e4, -1e4], [-INF, -INF], [INF, 1.0]]), axis=1)
    ln2 = numpy.log(2)
    numpy.testing.assert_allclose(found.asnumpy(), [1e4 + ln2, -1e4 + ln2, -INF, INF], rtol=1e-6)
    expected = numpy.log(numpy.exp(X).sum())
    numpy.testing.assert_allclose(npx.logsumexp(np.array(X)).asnumpy(), expected, rtol=1e-6)


# --- what is refused ------------------------------------------------------------------------

REFUSED: dict[str, tuple[Any, type[Exception], str]] = {
    "clip twice": (lambda: np.clip(np.ones(3), 0, a_min=1), TypeError, "given twice"),
    "shift of floats": (lambda: np.ones(3) << 1, DTypeError, "left_shift"),
    "gcd of floats": (lambda: np.gcd(np.ones(3), 2), DTypeError, "gcd"),
    "gcd of bools": (lambda: np.gcd(np.ones(3, "bool"), np.ones(3, "bool")), DTypeError, "gcd"),
    "ldexp by complex": (lambda: np.ldexp(np.ones(3), np.ones(3) * 1j), DTypeError, "no ldexp"),
    "positive bools": (lambda: np.positive(np.ones(3, "bool")), DTypeError, "positive"),
    "ptp of bools": (lambda: np.ptp(np.ones(3, "bool")), DTypeError, "ptp"),
    "ddof twice": (lambda: np.var(np.ones(3), ddof=1, correction=1), TypeError, "ddof"),
    "q above 1": (lambda: np.quantile(np.ones(3), 1.5), ValueError, "between 0 and 1"),
    "q above 100": (lambda: np.percentile(np.ones(3), [101]), ValueError, "between 0 and 100"),
    "q is traced": (
        lambda: gemel.compile(np.quantile)(np.ones(3), np.ones(2)),
        Exception,
        "tolist",
    ),
    "unknown method": (lambda: np.quantile(np.ones(3), 0.5, method="liner"), Exception, "linear"),
    "quantile of nothing": (lambda: np.quantile(np.ones((0, 2)), 0.5, 0), ShapeError, "quantile"),
    "cumulative_sum axis": (
        lambda: np.cumulative_sum(np.ones((2, 2))),
        ShapeError,
        "one dimension",
    ),
    "cumsum axis": (lambda: np.cumsum(np.ones(3), axis=1), ShapeError, "cumsum"),
    "cumprod axis": (lambda: np.cumprod(np.ones(3), axis=1), ShapeError, "cumprod"),
    "diff backwards": (lambda: np.diff(np.ones(3), n=-1), ValueError, "diff"),
    "weights": (lambda: np.average(np.ones((2, 3)), 0, np.ones(3)), ShapeError, "average"),
    "cov of three": (lambda: np.cov(np.ones((2, 2, 2))), ShapeError, "cov"),
    "cov weights": (lambda: np.cov(np.ones((2, 3)), fweights=np.ones(2)), ShapeError, "cov"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    call, error, message = REFUSED[name]
    with pytest.raises(error, match=message):
        call()


# --- gradients ------------------------------------------------------------------------------

WEIGHTS = RANDOM.uniform(0.5, 2, (3, 4, 5))
#: Functions that are composed, or whose gradient is not a formula of one element.
SMOOTH: dict[str, Callable[[Any], Any]] = {
    "cumsum": lambda x: np.cumsum(x) * np.arange(60.0),
    "cumprod of zeros": lambda x: np.cumprod(np.where(np.array(X) > 0.9, x * 0, x), axis=1),
    "cumprod at zeros": lambda x: np.cumprod(x - np.array(X.astype("float64")), axis=1),
    "cumulative_sum": lambda x: np.cumulative_sum(x, axis=1, include_initial=True) ** 2,
    "nansum": lambda x: np.nansum(np.where(np.array(X) > 1, NAN, x) ** 2, axis=1),
    "nanmean": lambda x: np.nanmean(x * x, axis=0),
    "nanstd": lambda x: np.nanstd(np.where(np.array(X) > 1, NAN, x), axis=(0, 1), ddof=1),
    "nanmax": lambda x: np.nanmax(x * x, axis=2),
    "ptp": lambda x: np.ptp(x, axis=1) ** 2,
    "logsumexp": lambda x: npx.logsumexp(x, axis=(0, 2)),
    "median": lambda x: np.median(x, axis=1) ** 2,
    "quantile": lambda x: np.quantile(x, [0.3, 0.9], axis=(0, 1)) ** 2,
    "var": lambda x: np.var(x, axis=0, ddof=1),
    "std": lambda x: np.std(x, correction=1),
    "average": lambda x: np.average(x * x, weights=np.array(WEIGHTS)),
    "average by": lambda x: np.average(np.array(WEIGHTS), weights=x * x),
    "cov": lambda x: np.cov(x[0]),
    "cov weighted": lambda x: np.cov(x[0], aweights=np.array(WEIGHTS[0, 0])),
    "corrcoef": lambda x: np.corrcoef(x[0], rowvar=False) * np.array(WEIGHTS[0, 0]),
    "diff": lambda x: np.diff(x, 2, axis=1) ** 2,
    "trapezoid": lambda x: np.trapezoid(x * x, x, axis=1),
    "mean dtype": lambda x: np.mean(x, axis=0, dtype="float64") ** 2,
    "nan_to_num": lambda x: np.nan_to_num(x * x),
    "modf": lambda x: np.modf(x)[0] * np.modf(x * 3)[0],
    "frexp": lambda x: np.frexp(x)[0] ** 2,
    "clip": lambda x: np.clip(x, min=-0.5, max=0.7) ** 2,
}


def slope(function: Any, start: Any) -> Any:
    """The gradient of the function's sum."""
    x = np.array(start, dtype="float64")
    x.attach_grad()
    with autograd.record():
        y = function(x)
    y.backward()
    return x.grad.asnumpy()


@pytest.mark.parametrize("name", SMOOTH)
def test_gradients(name: str) -> None:
    """In float64, along a direction, imperatively and compiled."""
    function, start = SMOOTH[name], X.astype("float64")
    found = slope(function, start)
    numpy.testing.assert_allclose(slope(gemel.compile(function), start), found, rtol=1e-12)
    direction, step = numpy.random.default_rng(1).normal(size=start.shape), 1e-6
    sides = [
        function(np.array(start + sign * step * direction)).asnumpy().sum() for sign in (1, -1)
    ]
    expected = (sides[0] - sides[1]) / (2 * step)
    numpy.testing.assert_allclose((found * direction).sum(), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "name",
    ["cumsum axis", "quantiles", "cov", "corrcoef", "average weights", "diff ends", "nanmax"],
)
def test_of_other_sizes_in_one_program(name: str) -> None:
    """A hybridized function serves arrays of other sizes."""
    calls: dict[str, Any] = {
        "cumsum axis": lambda n, x: n.cumsum(x, axis=1),
        "quantiles": lambda n, x: n.quantile(x, [0.1, 0.5], axis=1),
        "cov": lambda n, x: n.cov(x),
        "corrcoef": lambda n, x: n.corrcoef(x),
        "average weights": lambda n, x: n.average(x, axis=1, weights=x[0]),
        "diff ends": lambda n, x: n.diff(x, axis=0, prepend=1.0),
        "nanmax": lambda n, x: n.nanmax(x, axis=0),
    }
    program = gemel.compile(lambda x: calls[name](np, x))
    for size in ((3, 4), (3, 6), (5, 4)):
        x = RANDOM.normal(size=size)
        found = program(np.array(x, dtype="float64")).asnumpy()
        numpy.testing.assert_allclose(found, calls[name](numpy, x), rtol=1e-12, atol=1e-12)


def test_arccosh_below_one() -> None:
    for dtype in ("float32", "float64"):
        x = np.array([-1e30, -1.0, 0.0, 0.999, 1.0, numpy.nan, numpy.inf], dtype=dtype)
        numpy.testing.assert_array_equal(
            np.arccosh(x).asnumpy(), [numpy.nan] * 4 + [0, numpy.nan, numpy.inf]
        )


def test_numbers_between_arrays() -> None:
    start, stop = numpy.array([0.0, 1.0]), numpy.array([[1.0], [3.0]])
    for axis in (0, -1):
        found = np.linspace(np.array(start), np.array(stop), 5, axis=axis)
        numpy.testing.assert_allclose(found.asnumpy(), numpy.linspace(start, stop, 5, axis=axis))
    assert np.cumulative_sum([1, 2, 3]).tolist() == [1, 3, 6]
    assert np.nan_to_num(np.array([True, False])).tolist() == [True, False]


def test_a_position_fused_behind_a_product() -> None:
    a, b = numpy.ones((3, 4), "float32"), numpy.ones((4, 5), "float32")

    @gemel.compile
    def function(x: Any, y: Any) -> Any:
        return np.where(np.arange(5) == 1, x @ y, 0)

    expected = numpy.where(numpy.arange(5) == 1, a @ b, 0)
    numpy.testing.assert_array_equal(function(np.array(a), np.array(b)).asnumpy(), expected)


def test_weighted_means_of_integers() -> None:
    x, weights = numpy.array([200, 100, 250], "uint8"), numpy.array([100, 50, 200], "uint8")
    found = np.average(np.array(x), weights=np.array(weights))
    assert found.item() == pytest.approx(numpy.average(x, weights=weights), rel=1e-6)


def test_a_power_of_zero_has_no_second_gradient() -> None:
    x = np.array([0.0, 2.0])
    x.attach_grad()
    with autograd.record():
        first = autograd.grad((x**0 + x**2).sum(), [x], create_graph=True)[0]
        first.sum().backward()
    assert x.grad.tolist() == [2, 2]


@pytest.mark.parametrize("name", ["cov", "corrcoef"])
def test_covariances_of_complex_numbers(name: str) -> None:
    variables = (M + 1j * X[1]).astype("complex64")
    found = getattr(np, name)(np.array(variables))
    assert found.dtype == "complex64"
    numpy.testing.assert_allclose(found.asnumpy(), getattr(numpy, name)(variables), atol=1e-6)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint32", "int64", "uint64"])
def test_clip_of_whole_numbers(dtype: str) -> None:
    """Bounds inside, at the ends and outside of the dtype, also in the wrong order."""
    x = numpy.arange(-300, 300).astype(dtype)
    least, most = numpy.iinfo(dtype).min, numpy.iinfo(dtype).max
    inside = (max(least, -50), 50)
    for low, high in (inside, (3, 3), (50, 3), (least, 5), (3, most), (-(10**20), 7), (1, 10**20)):
        for run in (lambda f: f, gemel.compile):
            found = run(lambda a, low=low, high=high: np.clip(a, low, high))(np.array(x))
            assert found.dtype == x.dtype
            numpy.testing.assert_array_equal(
                found.asnumpy(), numpy.clip(x, max(low, least), min(high, most))
            )

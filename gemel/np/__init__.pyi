"""`np`: NumPy's names on gemel's arrays.

Written by `make stubs`: change what is declared instead.
"""

import builtins
from typing import Any

from gemel.device import Device
from gemel.dtype import DType as DType
from gemel.ndarray import ndarray as ndarray
from gemel.np import random as random

def abs(x: Any, /) -> ndarray:
    """Absolute value."""

def absolute(x: Any, /) -> ndarray:
    """Absolute value."""

def acos(x: Any, /) -> ndarray:
    """The angle from 0 to pi whose cosine is x; NaN outside of [-1, 1]."""

def acosh(x: Any, /) -> ndarray:
    """The number from 0 on whose hyperbolic cosine is x; NaN below 1."""

def add(a: Any, b: Any, /) -> ndarray:
    """Sum."""

def all(x: Any, /, axis: Any = None, keepdims: builtins.bool = False) -> ndarray:
    """Whether all elements are true (not zero)."""

def allclose(
    a: Any, b: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: builtins.bool = False
) -> builtins.bool:
    """Whether all elements are close, as `isclose` says. Waits for both."""

def amax(x: Any, /, axis: Any = None, keepdims: builtins.bool = False) -> ndarray:
    """Largest element over the given axes, or all; NaN wins."""

def amin(x: Any, /, axis: Any = None, keepdims: builtins.bool = False) -> ndarray:
    """Smallest element over the given axes, or all; NaN wins."""

def any(x: Any, /, axis: Any = None, keepdims: builtins.bool = False) -> ndarray:
    """Whether any element is true (not zero)."""

def arange(
    start: Any,
    stop: Any = None,
    step: Any = 1,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
) -> ndarray:
    """Numbers from start up to and without stop. MXNet's dtype is float32 after `npx.set_np()`."""

def arccos(x: Any, /) -> ndarray:
    """The angle from 0 to pi whose cosine is x; NaN outside of [-1, 1]."""

def arccosh(x: Any, /) -> ndarray:
    """The number from 0 on whose hyperbolic cosine is x; NaN below 1."""

def arcsin(x: Any, /) -> ndarray:
    """The angle from -pi/2 to pi/2 whose sine is x; NaN outside of [-1, 1]."""

def arcsinh(x: Any, /) -> ndarray:
    """The number whose hyperbolic sine is x."""

def arctan(x: Any, /) -> ndarray:
    """The angle from -pi/2 to pi/2 whose tangent is x."""

def arctan2(a: Any, b: Any, /) -> ndarray:
    """The angle from -pi to pi of the point with height a and abscissa b."""

def arctanh(x: Any, /) -> ndarray:
    """The number whose hyperbolic tangent is x; NaN outside of [-1, 1]."""

def argmax(x: Any, /, axis: Any = None, keepdims: builtins.bool = False) -> ndarray:
    """Position of the largest element (the first of equals; NaN is largest), int64."""

def argmin(x: Any, /, axis: Any = None, keepdims: builtins.bool = False) -> ndarray:
    """Position of the smallest element (the first of equals; NaN is smallest), int64."""

def around(x: Any, decimals: int = 0) -> ndarray:
    """Rounded to so many decimals, ties to even; a negative number of them rounds to tens."""

def array(value: Any, dtype: Any = None, device: Any = None, ctx: Any = None) -> ndarray:
    """An array with a copy of the elements: of an array, a NumPy array, a number or nested lists."""

def array_equal(a: Any, b: Any, equal_nan: builtins.bool = False) -> builtins.bool:
    """Whether shapes and all elements are equal. Waits for both."""

def asarray(value: Any, dtype: Any = None, device: Any = None, ctx: Any = None) -> ndarray:
    """The array itself when it is one of that dtype and on that device, else `array(value)`."""

def asin(x: Any, /) -> ndarray:
    """The angle from -pi/2 to pi/2 whose sine is x; NaN outside of [-1, 1]."""

def asinh(x: Any, /) -> ndarray:
    """The number whose hyperbolic sine is x."""

def atan(x: Any, /) -> ndarray:
    """The angle from -pi/2 to pi/2 whose tangent is x."""

def atan2(a: Any, b: Any, /) -> ndarray:
    """The angle from -pi to pi of the point with height a and abscissa b."""

def atanh(x: Any, /) -> ndarray:
    """The number whose hyperbolic tangent is x; NaN outside of [-1, 1]."""

def average(
    x: Any,
    axis: Any = None,
    weights: Any = None,
    returned: builtins.bool = False,
    *,
    keepdims: builtins.bool = False,
) -> ndarray:
    """Weighted mean over the given axes, or all; with the sum of the weights, if `returned`."""

bfloat16: DType

def bitwise_and(a: Any, b: Any, /) -> ndarray:
    """Bits set in both."""

def bitwise_count(x: Any, /) -> ndarray:
    """How many bits are set in the absolute value, uint8."""

def bitwise_invert(x: Any, /) -> ndarray:
    """Every bit reversed; for bools, not."""

def bitwise_left_shift(a: Any, b: Any, /) -> ndarray:
    """The bits of a moved up by b places; 0 once all of them have left."""

def bitwise_not(x: Any, /) -> ndarray:
    """Every bit reversed; for bools, not."""

def bitwise_or(a: Any, b: Any, /) -> ndarray:
    """Bits set in either."""

def bitwise_right_shift(a: Any, b: Any, /) -> ndarray:
    """The bits of a moved down by b places, the sign kept; 0 or -1 once all of them have left."""

def bitwise_xor(a: Any, b: Any, /) -> ndarray:
    """Bits set in exactly one."""

bool: DType
bool_: DType

def broadcast_to(x: Any, /, shape: Any) -> ndarray:
    """Repeated along new axes and axes of length 1, until it has the given shape."""

def cbrt(x: Any, /) -> ndarray:
    """Cube root, with the sign of x."""

def ceil(x: Any, /) -> ndarray:
    """Smallest whole number not below x."""

def clip(
    x: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None
) -> ndarray:
    """x limited to [a_min, a_max], also called min and max; None leaves that side open."""

def concatenate(arrays: Any, axis: int | None = 0) -> ndarray:
    """The arrays one after another along an axis; None flattens them first."""

def copy(x: Any, /) -> ndarray:
    """The same elements in memory of their own."""

def copysign(a: Any, b: Any, /) -> ndarray:
    """The size of a with the sign of b."""

def corrcoef(x: Any, y: Any = None, rowvar: builtins.bool = True, *, dtype: Any = None) -> ndarray:
    """The correlations of variables: rows of x (and y), or columns if not `rowvar`."""

def cos(x: Any, /) -> ndarray:
    """Cosine of x in radians."""

def cosh(x: Any, /) -> ndarray:
    """Hyperbolic cosine."""

def count_nonzero(x: Any, /, axis: Any = None, keepdims: builtins.bool = False) -> ndarray:
    """How many elements are not zero, over the given axes, or all."""

def cov(
    m: Any,
    y: Any = None,
    rowvar: builtins.bool = True,
    bias: builtins.bool = False,
    ddof: int | None = None,
    fweights: Any = None,
    aweights: Any = None,
    *,
    dtype: Any = None,
) -> ndarray:
    """The covariances of variables: rows of m (and y), or columns if not `rowvar`."""

def cumprod(x: Any, axis: int | None = None, dtype: Any = None) -> ndarray:
    """The products of all elements up to each one, along an axis or of the flattened array."""

def cumsum(x: Any, axis: int | None = None, dtype: Any = None) -> ndarray:
    """The sums of all elements up to each one, along an axis or of the flattened array."""

def cumulative_prod(
    x: Any, *, axis: int | None = None, dtype: Any = None, include_initial: builtins.bool = False
) -> ndarray:
    """`cumprod` along an axis, which only 1-d arrays may leave out; beginning with 1 if asked."""

def cumulative_sum(
    x: Any, *, axis: int | None = None, dtype: Any = None, include_initial: builtins.bool = False
) -> ndarray:
    """`cumsum` along an axis, which only 1-d arrays may leave out; beginning with 0 if asked."""

def deg2rad(x: Any, /) -> ndarray:
    """Degrees as radians."""

def degrees(x: Any, /) -> ndarray:
    """Radians as degrees."""

def diff(x: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> ndarray:
    """The differences of neighbours along an axis, n times. Bools differ or do not."""

def divide(a: Any, b: Any, /) -> ndarray:
    """Quotient; integers become float32."""

def divmod(a: Any, b: Any, /) -> tuple[ndarray, ...]:
    """Quotient rounded down, and remainder."""

def dot(a: Any, b: Any) -> ndarray:
    """`np.dot`: the product of a's last axis with b's second last (or only) one."""

e: float

def empty(shape: Any, dtype: Any = "float32", device: Any = None, ctx: Any = None) -> ndarray:
    """An array whose elements nobody has set; zeros, so that no garbage is ever read."""

def equal(a: Any, b: Any, /) -> ndarray:
    """a == b."""

def exp(x: Any, /) -> ndarray:
    """Exponential."""

def exp2(x: Any, /) -> ndarray:
    """2 to the power of x."""

def expand_dims(x: Any, axis: Any) -> ndarray:
    """A new axis (or several) of length 1."""

def expm1(x: Any, /) -> ndarray:
    """exp(x) - 1, accurate near zero."""

def eye(
    n: int, m: int | None = None, dtype: Any = "float32", device: Any = None, ctx: Any = None
) -> ndarray:
    """Ones on the diagonal, zeros elsewhere."""

def fabs(x: Any, /) -> ndarray:
    """Absolute value; integers become float32."""

def fix(x: Any, /) -> ndarray:
    """The nearest whole number towards zero."""

float16: DType
float32: DType
float64: DType

def float_power(a: Any, b: Any) -> ndarray:
    """a to the power of b, in float64."""

def floor(x: Any, /) -> ndarray:
    """Largest whole number not above x."""

def floor_divide(a: Any, b: Any, /) -> ndarray:
    """Quotient rounded down; integers divided by zero give 0."""

def fmax(a: Any, b: Any, /) -> ndarray:
    """The larger; a number wins over NaN."""

def fmin(a: Any, b: Any, /) -> ndarray:
    """The smaller; a number wins over NaN."""

def fmod(a: Any, b: Any, /) -> ndarray:
    """Remainder with the sign of a; integers modulo zero give 0."""

def frexp(x: Any, /) -> tuple[ndarray, ...]:
    """Mantissas from 0.5 to 1 and exponents (int32) with x = mantissa * 2 ** exponent."""

def from_dlpack(value: Any, device: Device | None = None) -> Any:
    """An array with a copy of another library's array, taken over through DLPack."""

def from_numpy(value: Any, device: Device | None = None) -> Any:
    """An array with a copy of a NumPy array's elements; long floats become float64."""

def full(
    shape: Any, fill_value: Any, dtype: Any = None, device: Any = None, ctx: Any = None
) -> ndarray:
    """An array filled with one number; its dtype decides where none is given."""

def full_like(x: Any, fill_value: Any, dtype: Any = None) -> ndarray:
    """One number in the shape, dtype and device of another array."""

def gcd(a: Any, b: Any, /) -> ndarray:
    """Greatest common divisor."""

def greater(a: Any, b: Any, /) -> ndarray:
    """a > b."""

def greater_equal(a: Any, b: Any, /) -> ndarray:
    """a >= b."""

def heaviside(a: Any, b: Any, /) -> ndarray:
    """0 where a is negative, 1 where it is positive, b where it is 0."""

def hypot(a: Any, b: Any, /) -> ndarray:
    """sqrt(a * a + b * b), without overflow on the way."""

inf: float
int16: DType
int32: DType
int64: DType
int8: DType

def invert(x: Any, /) -> ndarray:
    """Every bit reversed; for bools, not."""

def isclose(
    a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: builtins.bool = False
) -> ndarray:
    """Where |a - b| <= atol + rtol * |b|, or both are the same infinity (or NaN: equal_nan)."""

def isfinite(x: Any, /) -> ndarray:
    """Where x is neither infinite nor NaN."""

def isinf(x: Any, /) -> ndarray:
    """Where x is infinite."""

def isnan(x: Any, /) -> ndarray:
    """Where x is not a number."""

def isneginf(x: Any, /) -> ndarray:
    """Where x is -inf."""

def isposinf(x: Any, /) -> ndarray:
    """Where x is inf."""

def lcm(a: Any, b: Any, /) -> ndarray:
    """Least common multiple."""

def ldexp(x: Any, exponent: Any, /) -> ndarray:
    """x times 2 ** exponent."""

def left_shift(a: Any, b: Any, /) -> ndarray:
    """The bits of a moved up by b places; 0 once all of them have left."""

def less(a: Any, b: Any, /) -> ndarray:
    """a < b."""

def less_equal(a: Any, b: Any, /) -> ndarray:
    """a <= b."""

def linspace(
    start: float,
    stop: float,
    num: int = 50,
    endpoint: Any = True,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
) -> ndarray:
    """Evenly spaced numbers from start to stop."""

def log(x: Any, /) -> ndarray:
    """Natural logarithm; -inf at zero, NaN below."""

def log10(x: Any, /) -> ndarray:
    """Logarithm to base 10; -inf at zero, NaN below."""

def log1p(x: Any, /) -> ndarray:
    """log(1 + x), accurate near zero."""

def log2(x: Any, /) -> ndarray:
    """Logarithm to base 2; -inf at zero, NaN below."""

def logaddexp(a: Any, b: Any, /) -> ndarray:
    """log(exp(a) + exp(b)), without overflow."""

def logaddexp2(a: Any, b: Any, /) -> ndarray:
    """log2(2 ** a + 2 ** b), without overflow."""

def logical_and(a: Any, b: Any, /) -> ndarray:
    """Whether both are true (not zero)."""

def logical_not(x: Any, /) -> ndarray:
    """Whether x is false (zero)."""

def logical_or(a: Any, b: Any, /) -> ndarray:
    """Whether either is true (not zero)."""

def logical_xor(a: Any, b: Any, /) -> ndarray:
    """Whether exactly one is true (not zero)."""

def matmul(a: Any, b: Any, /) -> ndarray:
    """Matrix product of the last two axes; the axes before them broadcast."""

def max(x: Any, /, axis: Any = None, keepdims: builtins.bool = False) -> ndarray:
    """Largest element over the given axes, or all; NaN wins."""

def maximum(a: Any, b: Any, /) -> ndarray:
    """The larger; NaN wins."""

def mean(
    x: Any, /, axis: Any = None, dtype: Any = None, *, keepdims: builtins.bool = False
) -> ndarray:
    """Mean over the given axes, or all; integers become float32, float16 is added in float32."""

def median(x: Any, axis: Any = None, *, keepdims: builtins.bool = False) -> ndarray:
    """What half of the elements lie below, over the given axes, or all."""

def min(x: Any, /, axis: Any = None, keepdims: builtins.bool = False) -> ndarray:
    """Smallest element over the given axes, or all; NaN wins."""

def minimum(a: Any, b: Any, /) -> ndarray:
    """The smaller; NaN wins."""

def mod(a: Any, b: Any, /) -> ndarray:
    """Remainder with the sign of b; integers modulo zero give 0."""

def modf(x: Any, /) -> tuple[ndarray, ...]:
    """The fraction and the whole part, both with the sign of x."""

def multiply(a: Any, b: Any, /) -> ndarray:
    """Product."""

nan: float

def nan_to_num(
    x: Any, copy: builtins.bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None
) -> ndarray:
    """Numbers for NaN (0) and infinities (the largest there are). The result is always a copy."""

def nancumprod(x: Any, axis: int | None = None, dtype: Any = None) -> ndarray:
    """`cumprod`, where NaN counts as 1."""

def nancumsum(x: Any, axis: int | None = None, dtype: Any = None) -> ndarray:
    """`cumsum`, where NaN counts as 0."""

def nanmax(x: Any, /, axis: Any = None, keepdims: builtins.bool = False) -> ndarray:
    """Largest element that is not NaN over the given axes, or all; NaN where nothing is left."""

def nanmean(x: Any, /, axis: Any = None, keepdims: builtins.bool = False) -> ndarray:
    """Mean of what is not NaN over the given axes, or all; NaN where nothing is left."""

def nanmin(x: Any, /, axis: Any = None, keepdims: builtins.bool = False) -> ndarray:
    """Smallest element that is not NaN over the given axes, or all; NaN where nothing is left."""

def nanprod(x: Any, /, axis: Any = None, keepdims: builtins.bool = False) -> ndarray:
    """Product over the given axes, or all; NaN counts as 1."""

def nanstd(
    x: Any,
    axis: Any = None,
    dtype: Any = None,
    *,
    ddof: float = 0,
    correction: float | None = None,
    keepdims: builtins.bool = False,
) -> ndarray:
    """Square root of `nanvar`."""

def nansum(x: Any, /, axis: Any = None, keepdims: builtins.bool = False) -> ndarray:
    """Sum over the given axes, or all; NaN counts as 0."""

def nanvar(
    x: Any,
    /,
    axis: Any = None,
    dtype: Any = None,
    *,
    ddof: float = 0,
    correction: float | None = None,
    keepdims: builtins.bool = False,
) -> ndarray:
    """Variance of what is not NaN over the given axes, or all; NaN where too little is left."""

def ndim(x: Any) -> int:
    """The number of dimensions."""

def negative(x: Any, /) -> ndarray:
    """Sign reversed."""

newaxis: None

def nextafter(a: Any, b: Any, /) -> ndarray:
    """The number next to a on the way to b."""

def nonzero(x: Any) -> tuple[Any, ...]:
    """The positions of elements that are not zero, one int64 array per axis. Waits for x."""

def not_equal(a: Any, b: Any, /) -> ndarray:
    """a != b; NaN differs from everything."""

def ones(
    shape: Any, dtype: Any = "float32", device: Any = None, ctx: Any = None, order: str = "C"
) -> ndarray:
    """An array of ones."""

def ones_like(x: Any, dtype: Any = None) -> ndarray:
    """Ones of the shape, dtype and device of another array."""

def percentile(
    x: Any, q: Any, axis: Any = None, method: str = "linear", *, keepdims: builtins.bool = False
) -> ndarray:
    """What q percent of the elements lie below: see `quantile`."""

pi: float

def positive(x: Any, /) -> ndarray:
    """The same numbers in memory of their own."""

def pow(a: Any, b: Any, /) -> ndarray:
    """a to the power of b. Integers wrap as their products do; to a negative power they give 1,
    -1 or 0: what is left of the inverse without its fraction."""

def power(a: Any, b: Any, /) -> ndarray:
    """a to the power of b. Integers wrap as their products do; to a negative power they give 1,
    -1 or 0: what is left of the inverse without its fraction."""

def prod(
    x: Any, /, axis: Any = None, dtype: Any = None, *, keepdims: builtins.bool = False
) -> ndarray:
    """Product over the given axes, or all. Integers and bools are multiplied in int64."""

def ptp(x: Any, /, axis: Any = None, keepdims: builtins.bool = False) -> ndarray:
    """The distance from the smallest to the largest element, over the given axes, or all."""

def quantile(
    x: Any, q: Any, axis: Any = None, method: str = "linear", *, keepdims: builtins.bool = False
) -> ndarray:
    """What a share q (from 0 to 1) of the elements lies below, over the given axes, or all."""

def rad2deg(x: Any, /) -> ndarray:
    """Radians as degrees."""

def radians(x: Any, /) -> ndarray:
    """Degrees as radians."""

def reciprocal(x: Any, /) -> ndarray:
    """1 / x; integers become float32."""

def remainder(a: Any, b: Any, /) -> ndarray:
    """Remainder with the sign of b; integers modulo zero give 0."""

def reshape(x: Any, newshape: Any, order: str = "C") -> ndarray:
    """The same elements in another shape; one extent may be -1."""

def right_shift(a: Any, b: Any, /) -> ndarray:
    """The bits of a moved down by b places, the sign kept; 0 or -1 once all of them have left."""

def rint(x: Any, /) -> ndarray:
    """Nearest whole number, ties to even."""

def round(x: Any, decimals: int = 0) -> ndarray:
    """Rounded to so many decimals, ties to even; a negative number of them rounds to tens."""

def shape(x: Any) -> tuple[int, ...]:
    """The shape of an array or of anything that can be one."""

def sign(x: Any, /) -> ndarray:
    """-1, 0 or 1; NaN stays NaN."""

def signbit(x: Any, /) -> ndarray:
    """Whether x is negative, -0.0 and negative NaN included."""

def sin(x: Any, /) -> ndarray:
    """Sine of x in radians."""

def sinc(x: Any, /) -> ndarray:
    """sin(pi x) / (pi x), which is 1 at 0."""

def sinh(x: Any, /) -> ndarray:
    """Hyperbolic sine."""

def size(x: Any) -> int:
    """The number of elements."""

def spacing(x: Any, /) -> ndarray:
    """The distance from x to the next number away from zero."""

def split(x: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """Parts of an array along an axis, as views: equal ones, or between positions."""

def sqrt(x: Any, /) -> ndarray:
    """Square root; NaN for negative elements."""

def square(x: Any, /) -> ndarray:
    """Product with itself."""

def squeeze(x: Any, axis: Any = None) -> ndarray:
    """Without the given axes of length 1, or without all of them. Raises `ShapeError`."""

def stack(arrays: Any, axis: int = 0) -> ndarray:
    """The arrays side by side along a new axis."""

def std(
    x: Any,
    /,
    axis: Any = None,
    dtype: Any = None,
    *,
    ddof: float = 0,
    correction: float | None = None,
    keepdims: builtins.bool = False,
) -> ndarray:
    """Square root of the variance, over the given axes, or all: see `var`."""

def subtract(a: Any, b: Any, /) -> ndarray:
    """Difference."""

def sum(
    x: Any, /, axis: Any = None, dtype: Any = None, *, keepdims: builtins.bool = False
) -> ndarray:
    """Sum over the given axes, or all. Integers and bools are summed in int64."""

def swapaxes(x: Any, axis1: int, axis2: int) -> ndarray:
    """Exchange two axes."""

def take(x: Any, indices: Any, axis: Any = None, mode: str = "raise") -> ndarray:
    """The elements at these positions along an axis, or of the flattened array."""

def tan(x: Any, /) -> ndarray:
    """Tangent of x in radians."""

def tanh(x: Any, /) -> ndarray:
    """Hyperbolic tangent."""

def transpose(x: Any, /, axes: Any = None) -> ndarray:
    """The axes in another order, reversed by default."""

def trapezoid(y: Any, x: Any = None, dx: float = 1.0, axis: int = -1) -> ndarray:
    """The area below the points y at x (or dx apart) along an axis, by trapezoids."""

def trapz(y: Any, x: Any = None, dx: float = 1.0, axis: int = -1) -> ndarray:
    """The area below the points y at x (or dx apart) along an axis, by trapezoids."""

def true_divide(a: Any, b: Any, /) -> ndarray:
    """Quotient; integers become float32."""

def trunc(x: Any, /) -> ndarray:
    """The nearest whole number towards zero."""

uint16: DType
uint32: DType
uint64: DType
uint8: DType

def var(
    x: Any,
    /,
    axis: Any = None,
    dtype: Any = None,
    *,
    ddof: float = 0,
    correction: float | None = None,
    keepdims: builtins.bool = False,
) -> ndarray:
    """Mean squared distance from the mean, over the given axes, or all."""

def where(condition: Any, x: Any = None, y: Any = None) -> ndarray:
    """x where the condition holds, else y; with one argument, `nonzero(condition)`."""

def zeros(
    shape: Any, dtype: Any = "float32", device: Any = None, ctx: Any = None, order: str = "C"
) -> ndarray:
    """An array of zeros."""

def zeros_like(x: Any, dtype: Any = None) -> ndarray:
    """Zeros of the shape, dtype and device of another array."""

__all__ = [
    "DType",
    "abs",
    "absolute",
    "acos",
    "acosh",
    "add",
    "all",
    "allclose",
    "amax",
    "amin",
    "any",
    "arange",
    "arccos",
    "arccosh",
    "arcsin",
    "arcsinh",
    "arctan",
    "arctan2",
    "arctanh",
    "argmax",
    "argmin",
    "around",
    "array",
    "array_equal",
    "asarray",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "average",
    "bfloat16",
    "bitwise_and",
    "bitwise_count",
    "bitwise_invert",
    "bitwise_left_shift",
    "bitwise_not",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "bool",
    "bool_",
    "broadcast_to",
    "cbrt",
    "ceil",
    "clip",
    "concatenate",
    "copy",
    "copysign",
    "corrcoef",
    "cos",
    "cosh",
    "count_nonzero",
    "cov",
    "cumprod",
    "cumsum",
    "cumulative_prod",
    "cumulative_sum",
    "deg2rad",
    "degrees",
    "diff",
    "divide",
    "divmod",
    "dot",
    "e",
    "empty",
    "equal",
    "exp",
    "exp2",
    "expand_dims",
    "expm1",
    "eye",
    "fabs",
    "fix",
    "float16",
    "float32",
    "float64",
    "float_power",
    "floor",
    "floor_divide",
    "fmax",
    "fmin",
    "fmod",
    "frexp",
    "from_dlpack",
    "from_numpy",
    "full",
    "full_like",
    "gcd",
    "greater",
    "greater_equal",
    "heaviside",
    "hypot",
    "inf",
    "int16",
    "int32",
    "int64",
    "int8",
    "invert",
    "isclose",
    "isfinite",
    "isinf",
    "isnan",
    "isneginf",
    "isposinf",
    "lcm",
    "ldexp",
    "left_shift",
    "less",
    "less_equal",
    "linspace",
    "log",
    "log10",
    "log1p",
    "log2",
    "logaddexp",
    "logaddexp2",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "matmul",
    "max",
    "maximum",
    "mean",
    "median",
    "min",
    "minimum",
    "mod",
    "modf",
    "multiply",
    "nan",
    "nan_to_num",
    "nancumprod",
    "nancumsum",
    "nanmax",
    "nanmean",
    "nanmin",
    "nanprod",
    "nanstd",
    "nansum",
    "nanvar",
    "ndarray",
    "ndim",
    "negative",
    "newaxis",
    "nextafter",
    "nonzero",
    "not_equal",
    "ones",
    "ones_like",
    "percentile",
    "pi",
    "positive",
    "pow",
    "power",
    "prod",
    "ptp",
    "quantile",
    "rad2deg",
    "radians",
    "random",
    "reciprocal",
    "remainder",
    "reshape",
    "right_shift",
    "rint",
    "round",
    "shape",
    "sign",
    "signbit",
    "sin",
    "sinc",
    "sinh",
    "size",
    "spacing",
    "split",
    "sqrt",
    "square",
    "squeeze",
    "stack",
    "std",
    "subtract",
    "sum",
    "swapaxes",
    "take",
    "tan",
    "tanh",
    "transpose",
    "trapezoid",
    "trapz",
    "true_divide",
    "trunc",
    "uint16",
    "uint32",
    "uint64",
    "uint8",
    "var",
    "where",
    "zeros",
    "zeros_like",
]

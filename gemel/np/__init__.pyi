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

def add(a: Any, b: Any, /) -> ndarray:
    """Sum."""

def all(x: Any, /, axis: Any = None, keepdims: builtins.bool = False) -> ndarray:
    """Whether all elements are true (not zero)."""

def allclose(a: Any, b: Any, rtol: float = 1e-05, atol: float = 1e-08) -> builtins.bool:
    """Whether all elements are close: |a - b| <= atol + rtol * |b|. Waits for both."""

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

def argmax(x: Any, /, axis: Any = None, keepdims: builtins.bool = False) -> ndarray:
    """Position of the largest element (the first of equals; NaN is largest), int64."""

def argmin(x: Any, /, axis: Any = None, keepdims: builtins.bool = False) -> ndarray:
    """Position of the smallest element (the first of equals; NaN is smallest), int64."""

def array(value: Any, dtype: Any = None, device: Any = None, ctx: Any = None) -> ndarray:
    """An array with a copy of the elements: of an array, a NumPy array, a number or nested lists."""

def array_equal(a: Any, b: Any) -> builtins.bool:
    """Whether shapes and all elements are equal. Waits for both."""

def asarray(value: Any, dtype: Any = None, device: Any = None, ctx: Any = None) -> ndarray:
    """The array itself when it is one of that dtype and on that device, else `array(value)`."""

def bitwise_and(a: Any, b: Any, /) -> ndarray:
    """Bits set in both."""

def bitwise_or(a: Any, b: Any, /) -> ndarray:
    """Bits set in either."""

def bitwise_xor(a: Any, b: Any, /) -> ndarray:
    """Bits set in exactly one."""

bool: DType
bool_: DType

def broadcast_to(x: Any, /, shape: Any) -> ndarray:
    """Repeated along new axes and axes of length 1, until it has the given shape."""

def ceil(x: Any, /) -> ndarray:
    """Smallest whole number not below x."""

def clip(x: Any, a_min: Any = None, a_max: Any = None) -> ndarray:
    """x limited to [a_min, a_max]; None leaves that side open."""

def concatenate(arrays: Any, axis: int | None = 0) -> ndarray:
    """The arrays one after another along an axis; None flattens them first."""

def copy(x: Any, /) -> ndarray:
    """The same elements in memory of their own."""

def cos(x: Any, /) -> ndarray:
    """Cosine of x in radians."""

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

def expand_dims(x: Any, axis: Any) -> ndarray:
    """A new axis (or several) of length 1."""

def expm1(x: Any, /) -> ndarray:
    """exp(x) - 1, accurate near zero."""

def eye(
    n: int, m: int | None = None, dtype: Any = "float32", device: Any = None, ctx: Any = None
) -> ndarray:
    """Ones on the diagonal, zeros elsewhere."""

float16: DType
float32: DType
float64: DType

def floor(x: Any, /) -> ndarray:
    """Largest whole number not above x."""

def floor_divide(a: Any, b: Any, /) -> ndarray:
    """Quotient rounded down; integers divided by zero give 0."""

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

def greater(a: Any, b: Any, /) -> ndarray:
    """a > b."""

def greater_equal(a: Any, b: Any, /) -> ndarray:
    """a >= b."""

inf: float
int16: DType
int32: DType
int64: DType
int8: DType

def invert(x: Any, /) -> ndarray:
    """Every bit reversed; for bools, not."""

def isnan(x: Any, /) -> ndarray:
    """Where x is not a number."""

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

def log1p(x: Any, /) -> ndarray:
    """log(1 + x), accurate near zero."""

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

def mean(x: Any, /, axis: Any = None, keepdims: builtins.bool = False) -> ndarray:
    """Mean over the given axes, or all; integers become float32, float16 is added in float32."""

def min(x: Any, /, axis: Any = None, keepdims: builtins.bool = False) -> ndarray:
    """Smallest element over the given axes, or all; NaN wins."""

def minimum(a: Any, b: Any, /) -> ndarray:
    """The smaller; NaN wins."""

def mod(a: Any, b: Any, /) -> ndarray:
    """Remainder with the sign of b; integers modulo zero give 0."""

def multiply(a: Any, b: Any, /) -> ndarray:
    """Product."""

nan: float

def ndim(x: Any) -> int:
    """The number of dimensions."""

def negative(x: Any, /) -> ndarray:
    """Sign reversed."""

newaxis: None

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

pi: float

def power(a: Any, b: Any, /) -> ndarray:
    """a to the power of b. Integers wrap as their products do; to a negative power they give 1,
    -1 or 0: what is left of the inverse without its fraction."""

def prod(x: Any, /, axis: Any = None, keepdims: builtins.bool = False) -> ndarray:
    """Product over the given axes, or all. Integers and bools are multiplied in int64."""

def reciprocal(x: Any, /) -> ndarray:
    """1 / x; integers become float32."""

def remainder(a: Any, b: Any, /) -> ndarray:
    """Remainder with the sign of b; integers modulo zero give 0."""

def reshape(x: Any, newshape: Any, order: str = "C") -> ndarray:
    """The same elements in another shape; one extent may be -1."""

def rint(x: Any, /) -> ndarray:
    """Nearest whole number, ties to even."""

def shape(x: Any) -> tuple[int, ...]:
    """The shape of an array or of anything that can be one."""

def sign(x: Any, /) -> ndarray:
    """-1, 0 or 1; NaN stays NaN."""

def sin(x: Any, /) -> ndarray:
    """Sine of x in radians."""

def size(x: Any) -> int:
    """The number of elements."""

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

def std(x: Any, /, axis: Any = None, keepdims: builtins.bool = False) -> ndarray:
    """Standard deviation over the given axes, or all."""

def subtract(a: Any, b: Any, /) -> ndarray:
    """Difference."""

def sum(x: Any, /, axis: Any = None, keepdims: builtins.bool = False) -> ndarray:
    """Sum over the given axes, or all. Integers and bools are summed in int64."""

def swapaxes(x: Any, axis1: int, axis2: int) -> ndarray:
    """Exchange two axes."""

def take(x: Any, indices: Any, axis: Any = None, mode: str = "raise") -> ndarray:
    """The elements at these positions along an axis, or of the flattened array."""

def tanh(x: Any, /) -> ndarray:
    """Hyperbolic tangent."""

def transpose(x: Any, /, axes: Any = None) -> ndarray:
    """The axes in another order, reversed by default."""

def true_divide(a: Any, b: Any, /) -> ndarray:
    """Quotient; integers become float32."""

uint16: DType
uint32: DType
uint64: DType
uint8: DType

def var(x: Any, /, axis: Any = None, keepdims: builtins.bool = False) -> ndarray:
    """Variance (mean squared distance from the mean) over the given axes, or all."""

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
    "add",
    "all",
    "allclose",
    "any",
    "arange",
    "argmax",
    "argmin",
    "array",
    "array_equal",
    "asarray",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "bool",
    "bool_",
    "broadcast_to",
    "ceil",
    "clip",
    "concatenate",
    "copy",
    "cos",
    "divide",
    "divmod",
    "dot",
    "e",
    "empty",
    "equal",
    "exp",
    "expand_dims",
    "expm1",
    "eye",
    "float16",
    "float32",
    "float64",
    "floor",
    "floor_divide",
    "from_dlpack",
    "from_numpy",
    "full",
    "full_like",
    "greater",
    "greater_equal",
    "inf",
    "int16",
    "int32",
    "int64",
    "int8",
    "invert",
    "isnan",
    "less",
    "less_equal",
    "linspace",
    "log",
    "log1p",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "matmul",
    "max",
    "maximum",
    "mean",
    "min",
    "minimum",
    "mod",
    "multiply",
    "nan",
    "ndarray",
    "ndim",
    "negative",
    "newaxis",
    "nonzero",
    "not_equal",
    "ones",
    "ones_like",
    "pi",
    "power",
    "prod",
    "random",
    "reciprocal",
    "remainder",
    "reshape",
    "rint",
    "shape",
    "sign",
    "sin",
    "size",
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
    "tanh",
    "transpose",
    "true_divide",
    "uint16",
    "uint32",
    "uint64",
    "uint8",
    "var",
    "where",
    "zeros",
    "zeros_like",
]

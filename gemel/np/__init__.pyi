"""`np`: NumPy's functions on gemel's arrays.

Written by `make stubs`: change what is declared instead.
"""

import builtins
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from numpy import base_repr as base_repr
from numpy import binary_repr as binary_repr
from numpy import bytes_ as bytes_
from numpy import character as character
from numpy import complexfloating as complexfloating
from numpy import errstate as errstate
from numpy import flexible as flexible
from numpy import floating as floating
from numpy import format_float_positional as format_float_positional
from numpy import format_float_scientific as format_float_scientific
from numpy import generic as generic
from numpy import geterr as geterr
from numpy import inexact as inexact
from numpy import integer as integer
from numpy import min_scalar_type as min_scalar_type
from numpy import nditer as nditer
from numpy import nested_iters as nested_iters
from numpy import number as number
from numpy import object_ as object_
from numpy import poly1d as poly1d
from numpy import seterr as seterr
from numpy import signedinteger as signedinteger
from numpy import str_ as str_
from numpy import unsignedinteger as unsignedinteger
from numpy import void as void

from gemel.device import Device
from gemel.dtype import DType as DType
from gemel.dtype import DType as dtype
from gemel.ndarray import ndarray as ndarray
from gemel.np import fft as fft
from gemel.np import linalg as linalg
from gemel.np import random as random
from gemel.np.grids import broadcast as broadcast
from gemel.np.grids import c_ as c_
from gemel.np.grids import index_exp as index_exp
from gemel.np.grids import mgrid as mgrid
from gemel.np.grids import ogrid as ogrid
from gemel.np.grids import r_ as r_
from gemel.np.grids import s_ as s_
from gemel.np.standard import __array_namespace_info__ as __array_namespace_info__
from gemel.np.types import FloatInfo, IntegerInfo
from gemel.ops.applied import vectorize as vectorize
from gemel.ops.sorting import UniqueAll, UniqueCounts, UniqueInverse

False_: bool
Inf: float
Infinity: float
NAN: float
NINF: float
NZERO: float
NaN: float
PINF: float
PZERO: float
True_: bool
__array_api_version__: str

def abs(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """Absolute value."""

def absolute(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """Absolute value."""

def acos(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """The angle from 0 to pi whose cosine is x; NaN outside of [-1, 1]."""

def acosh(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """The number from 0 on whose hyperbolic cosine is x; NaN below 1."""

def add(
    a: Any,
    b: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """Sum."""

def all(
    x: Any,
    /,
    axis: Any = None,
    keepdims: builtins.bool = False,
    *,
    out: Any = None,
    where: Any = True,
) -> ndarray:
    """Whether all elements are true (not zero)."""

def allclose(
    a: Any, b: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: builtins.bool = False
) -> builtins.bool:
    """Whether all elements are close, as `isclose` says. Waits for both."""

def alltrue(
    x: Any,
    /,
    axis: Any = None,
    keepdims: builtins.bool = False,
    *,
    out: Any = None,
    where: Any = True,
) -> ndarray:
    """Whether all elements are true (not zero)."""

def amax(
    x: Any,
    /,
    axis: Any = None,
    keepdims: builtins.bool = False,
    *,
    out: Any = None,
    initial: Any = None,
    where: Any = True,
) -> ndarray:
    """Largest element over the given axes, or all; NaN wins."""

def amin(
    x: Any,
    /,
    axis: Any = None,
    keepdims: builtins.bool = False,
    *,
    out: Any = None,
    initial: Any = None,
    where: Any = True,
) -> ndarray:
    """Smallest element over the given axes, or all; NaN wins."""

def angle(z: Any, deg: builtins.bool = False) -> ndarray:
    """The angle of each element from the positive real axis, in radians or degrees."""

def any(
    x: Any,
    /,
    axis: Any = None,
    keepdims: builtins.bool = False,
    *,
    out: Any = None,
    where: Any = True,
) -> ndarray:
    """Whether any element is true (not zero)."""

def append(arr: Any, values: Any, axis: int | None = None) -> ndarray:
    """Concatenate two arrays along an axis, or flattened."""

def apply_along_axis(
    func1d: Callable[..., Any], axis: int, arr: Any, *args: Any, **kwargs: Any
) -> ndarray:
    """Replace each row along an axis by the result of a function."""

def apply_over_axes(func: Callable[..., Any], a: Any, axes: Any) -> ndarray:
    """Apply a function of (array, axis) over several axes in turn; each axis is kept."""

def arange(
    start: Any,
    stop: Any = None,
    step: Any = 1,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
) -> ndarray:
    """Evenly spaced numbers in [start, stop)."""

def arccos(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """The angle from 0 to pi whose cosine is x; NaN outside of [-1, 1]."""

def arccosh(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """The number from 0 on whose hyperbolic cosine is x; NaN below 1."""

def arcsin(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """The angle from -pi/2 to pi/2 whose sine is x; NaN outside of [-1, 1]."""

def arcsinh(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """The number whose hyperbolic sine is x."""

def arctan(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """The angle from -pi/2 to pi/2 whose tangent is x."""

def arctan2(
    a: Any,
    b: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """The angle from -pi to pi of the point with height a and abscissa b."""

def arctanh(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """The number whose hyperbolic tangent is x; NaN outside of [-1, 1]."""

def argmax(
    x: Any, /, axis: Any = None, keepdims: builtins.bool = False, *, out: Any = None
) -> ndarray:
    """Position of the largest element (the first of equals; NaN is largest), int64."""

def argmin(
    x: Any, /, axis: Any = None, keepdims: builtins.bool = False, *, out: Any = None
) -> ndarray:
    """Position of the smallest element (the first of equals; NaN is smallest), int64."""

def argpartition(
    a: Any, kth: Any, axis: int | None = -1, kind: str = "introselect", order: Any = None
) -> ndarray:
    """Positions along an axis, those of elements below the kth before its own, others behind."""

def argsort(
    a: Any,
    axis: int | None = -1,
    kind: Any = None,
    order: None = None,
    *,
    descending: builtins.bool = False,
    stable: builtins.bool = True,
) -> ndarray:
    """The positions that sort each row along an axis, or the flattened array; NaN is largest."""

def argwhere(a: Any) -> ndarray:
    """The positions of elements that are not zero, one row each. Waits for it."""

def around(a: Any, decimals: int = 0, out: Any = None) -> ndarray:
    """Round to `decimals` decimals, ties to even; negative `decimals` round to tens, hundreds,
    ..."""

def array(
    object: Any,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
    *,
    copy: builtins.bool | None = True,
    order: str | None = "K",
    subok: builtins.bool = False,
    ndmin: int = 0,
) -> ndarray:
    """Create an array with a copy of an array, a NumPy array, a number or nested lists."""

def array2string(a: Any, *values: Any, **options: Any) -> str:
    """The elements as text; the options are those of `numpy.array2string`: `precision`,
    `separator`, `formatter`, `threshold`, ..."""

def array_equal(a1: Any, a2: Any, equal_nan: builtins.bool = False) -> builtins.bool:
    """Whether shapes and all elements are equal. Waits for both."""

def array_equiv(a1: Any, a2: Any) -> builtins.bool:
    """Whether two arrays are equal after broadcasting. Waits for both."""

def array_repr(
    arr: Any,
    max_line_width: int | None = None,
    precision: int | None = None,
    suppress_small: builtins.bool | None = None,
) -> str:
    """The result of `repr`, with other print options."""

def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """Split along an axis into parts that are as equal as possible, or at positions; the parts are
    views."""

def array_str(
    a: Any,
    max_line_width: int | None = None,
    precision: int | None = None,
    suppress_small: builtins.bool | None = None,
) -> str:
    """The result of `str`, with other print options."""

def asanyarray(
    a: Any,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
    *,
    copy: builtins.bool | None = None,
    order: str | None = None,
) -> ndarray:
    """Convert to an array; one that has this dtype and device already is returned itself."""

def asarray(
    a: Any,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
    *,
    copy: builtins.bool | None = None,
    order: str | None = None,
) -> ndarray:
    """Convert to an array; one that has this dtype and device already is returned itself."""

def ascontiguousarray(a: Any, dtype: Any = None) -> ndarray:
    """The array with its elements in C order in memory, copied only if needed; never 0-d."""

def asin(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """The angle from -pi/2 to pi/2 whose sine is x; NaN outside of [-1, 1]."""

def asinh(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """The number whose hyperbolic sine is x."""

def astype(x: Any, dtype: Any, *, copy: builtins.bool = True, device: Any = None) -> ndarray:
    """Convert the elements to another dtype; without `copy`, an array of this dtype is returned
    itself."""

def atan(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """The angle from -pi/2 to pi/2 whose tangent is x."""

def atan2(
    a: Any,
    b: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """The angle from -pi to pi of the point with height a and abscissa b."""

def atanh(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """The number whose hyperbolic tangent is x; NaN outside of [-1, 1]."""

def atleast_1d(*arrays: Any) -> ndarray:
    """Each array, a 0-d one with an axis; a list of several."""

def atleast_2d(*arrays: Any) -> ndarray:
    """Each array with new leading axes until it has two; a list of several."""

def atleast_3d(*arrays: Any) -> ndarray:
    """Each array with new axes on both sides until it has three; a list of several."""

def average(
    a: Any,
    axis: Any = None,
    weights: Any = None,
    returned: builtins.bool = False,
    *,
    keepdims: builtins.bool = False,
) -> ndarray:
    """Weighted mean over the given axes, or all; with the sum of the weights, if `returned`."""

def bartlett(M: Any, dtype: Any = None) -> ndarray:
    """The Bartlett window: a triangle that is 0 at both ends."""

bfloat16: DType

def bincount(x: Any, /, weights: Any = None, minlength: int = 0) -> ndarray:
    """How often each number from 0 on occurs, or the sum of its weights. Waits for them."""

def bitwise_and(
    a: Any,
    b: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """Bits set in both."""

def bitwise_count(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """How many bits are set in the absolute value, uint8."""

def bitwise_invert(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """Every bit reversed; for bools, not."""

def bitwise_left_shift(
    a: Any,
    b: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """The bits of a moved up by b places; 0 once all of them have left."""

def bitwise_not(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """Every bit reversed; for bools, not."""

def bitwise_or(
    a: Any,
    b: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """Bits set in either."""

def bitwise_right_shift(
    a: Any,
    b: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """The bits of a moved down by b places, the sign kept; 0 or -1 once all of them have left."""

def bitwise_xor(
    a: Any,
    b: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """Bits set in exactly one."""

def blackman(M: Any, dtype: Any = None, device: Any = None, ctx: Any = None) -> ndarray:
    """The Blackman window: 0.42 - 0.5 cos(2 pi n / (M - 1)) + 0.08 cos(4 pi n / (M - 1))."""

def block(arrays: Any) -> ndarray:
    """Join arrays in nested lists: the innermost lists along the last axis, outer ones along
    earlier axes."""

bool: DType
bool_: DType

def broadcast_arrays(*args: Any) -> list[Any]:
    """Broadcast the arrays to their common shape; the results are views."""

def broadcast_shapes(*shapes: Any) -> tuple[int, ...]:
    """The shape arrays of these shapes broadcast to. Raises `ShapeError`."""

def broadcast_to(array: Any, shape: Any, subok: builtins.bool = False) -> ndarray:
    """Repeated along new axes and axes of length 1, until it has the given shape: as a view."""

byte: DType

def can_cast(from_: Any, to: Any, casting: str = "safe") -> builtins.bool:
    """Whether a dtype (or that of an array) may be converted to another."""

def cbrt(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """Cube root, with the sign of x."""

cdouble: DType

def ceil(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """Smallest whole number not below x."""

def choose(a: Any, choices: Any, out: Any = None, mode: str = "raise") -> ndarray:
    """At each position, the element of the choice with the number in `a`; all arrays broadcast."""

def clip(
    a: Any,
    min: Any = None,
    max: Any = None,
    out: Any = None,
    *,
    a_min: Any = None,
    a_max: Any = None,
) -> ndarray:
    """Limit a to [min, max], also called a_min and a_max; None leaves that side open."""

def column_stack(tup: Any) -> ndarray:
    """Stack arrays along axis 1; 1-d arrays are columns."""

def common_type(*arrays: Any) -> DType:
    """The floating or complex dtype that can hold the elements of all arrays; float32 for integers."""

complex128: DType
complex64: DType

def compress(condition: Any, a: Any, axis: int | None = None, out: Any = None) -> ndarray:
    """The slices along an axis where the 1-d condition holds, which may be shorter."""

def concat(
    arrays: Any,
    axis: int | None = 0,
    out: Any = None,
    *,
    dtype: Any = None,
    casting: str = "same_kind",
) -> ndarray:
    """The arrays one after another along an axis; None flattens them first."""

def concatenate(
    arrays: Any,
    axis: int | None = 0,
    out: Any = None,
    *,
    dtype: Any = None,
    casting: str = "same_kind",
) -> ndarray:
    """The arrays one after another along an axis; None flattens them first."""

def conj(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """The complex conjugate of each element."""

def conjugate(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """The complex conjugate of each element."""

def convolve(a: Any, v: Any, mode: str = "full") -> ndarray:
    """The discrete convolution of two 1-d arrays."""

def copy(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """A copy of the elements in new memory."""

def copysign(
    a: Any,
    b: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """The absolute value of a with the sign of b."""

def copyto(dst: Any, src: Any, casting: str = "same_kind", where: Any = True) -> None:
    """Write one array into another, with broadcasting; only where `where` holds."""

def corrcoef(
    x: Any,
    y: Any = None,
    rowvar: builtins.bool = True,
    bias: Any = None,
    ddof: Any = None,
    *,
    dtype: Any = None,
) -> ndarray:
    """The correlations of variables: rows of x (and y), or columns if not `rowvar`."""

def correlate(a: Any, v: Any, mode: str = "valid") -> ndarray:
    """The cross-correlation of two 1-d arrays: `convolve` without reversing the second."""

def cos(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """Cosine of x in radians."""

def cosh(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """Hyperbolic cosine."""

def count_nonzero(x: Any, /, axis: Any = None, keepdims: builtins.bool = False) -> ndarray:
    """The number of nonzero elements, over the given axes, or all."""

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

def cross(
    a: Any, b: Any, /, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: Any = None
) -> ndarray:
    """The cross product of vectors of three elements along an axis (or of two, as if with a 0)."""

csingle: DType

def cumprod(a: Any, axis: int | None = None, dtype: Any = None, out: Any = None) -> ndarray:
    """The products of all elements up to each one, along an axis or of the flattened array."""

def cumsum(a: Any, axis: int | None = None, dtype: Any = None, out: Any = None) -> ndarray:
    """The sums of all elements up to each one, along an axis or of the flattened array."""

def cumulative_prod(
    x: Any,
    *,
    axis: int | None = None,
    dtype: Any = None,
    out: Any = None,
    include_initial: builtins.bool = False,
) -> ndarray:
    """`cumprod` along an axis, which is optional only for 1-d arrays; starts with 1 if
    `include_initial`."""

def cumulative_sum(
    x: Any,
    *,
    axis: int | None = None,
    dtype: Any = None,
    out: Any = None,
    include_initial: builtins.bool = False,
) -> ndarray:
    """`cumsum` along an axis, which is optional only for 1-d arrays; starts with 0 if
    `include_initial`."""

def deg2rad(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """Degrees as radians."""

def degrees(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """Radians as degrees."""

def delete(arr: Any, obj: Any, axis: int | None = None) -> ndarray:
    """Remove the positions (or slice, or mask) `obj` along an axis, or from the flattened array."""

def diag(v: Any, k: int = 0) -> ndarray:
    """The diagonal of a matrix, or the matrix with this diagonal and zeros elsewhere."""

def diag_indices(n: int, ndim: int = 2) -> tuple[Any, ...]:
    """The positions of the main diagonal of an array with `ndim` axes of n."""

def diag_indices_from(arr: Any) -> tuple[Any, ...]:
    """The positions of the main diagonal of this array, whose axes have equal length."""

def diagflat(v: Any, k: int = 0) -> ndarray:
    """The matrix with all elements of an array on diagonal k."""

def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> ndarray:
    """The diagonal over two axes, as a last axis; `offset` counts to the right of the main one."""

def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> ndarray:
    """The differences of neighbours along an axis, n times. For bools, whether they differ."""

def digitize(x: Any, bins: Any, /, right: builtins.bool = False) -> ndarray:
    """The index of each element's bin, for ascending or descending edges."""

def divide(
    a: Any,
    b: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """Quotient; integers become float32."""

def divmod(
    a: Any,
    b: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> tuple[ndarray, ...]:
    """Quotient rounded down, and remainder."""

def dot(a: Any, b: Any, out: Any = None) -> ndarray:
    """`np.dot`: the product of a's last axis with b's second last (or only) one."""

double: DType

def dsplit(ary: Any, indices_or_sections: Any) -> list[Any]:
    """Parts along axis 2, as views. Raises `ShapeError` below three dimensions."""

def dstack(tup: Any) -> ndarray:
    """Stack arrays along axis 2."""

e: float

def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> ndarray:
    """The differences of neighbours in the flattened array, between `to_begin` and `to_end`."""

def einsum(
    subscripts: Any,
    *operands: Any,
    out: Any = None,
    optimize: Any = False,
    dtype: Any = None,
    order: str = "K",
    casting: str = "safe",
) -> ndarray:
    """Sums of products of elements, by labels of axes: ``einsum("ij,jk->ik", a, b)``."""

def einsum_path(subscripts: Any, *operands: Any, optimize: Any = "greedy") -> tuple[Any, str]:
    """The order in which `einsum` would combine its operands, and NumPy's description of the cost."""

def empty(
    shape: Any, dtype: Any = None, order: str = "C", device: Any = None, ctx: Any = None
) -> ndarray:
    """An array without set elements: zeros, so that no uninitialized memory is ever read."""

def empty_like(
    prototype: Any,
    dtype: Any = None,
    order: str = "K",
    subok: builtins.bool = True,
    shape: Any = None,
    *,
    device: Any = None,
    ctx: Any = None,
) -> ndarray:
    """An array like `empty`, with the shape, dtype and device of another array by default."""

def equal(
    a: Any,
    b: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """a == b."""

euler_gamma: float

def exp(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """Exponential."""

def exp2(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """2 to the power of x."""

def expand_dims(a: Any, axis: Any = 0) -> ndarray:
    """Add an axis (or several) of length 1."""

def expm1(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """exp(x) - 1, accurate near zero."""

def extract(condition: Any, arr: Any) -> ndarray:
    """The elements where the condition holds, as a 1-d array. Waits for the condition."""

def eye(
    N: int,
    M: int | None = None,
    k: int = 0,
    dtype: Any = None,
    order: str = "C",
    device: Any = None,
    ctx: Any = None,
) -> ndarray:
    """Ones on diagonal k of a matrix, zeros elsewhere."""

def fabs(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """Absolute value; integers become float32."""

def fill_diagonal(a: Any, val: Any, wrap: builtins.bool = False) -> None:
    """Write into the main diagonal of a matrix, or of an array with more axes."""

def finfo(type: Any) -> FloatInfo:
    """The limits of a floating dtype, or of an array's dtype; for complex dtypes, of each part."""

def fix(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """The nearest whole number towards zero."""

def flatnonzero(a: Any) -> ndarray:
    """The positions in the flattened array of elements that are not zero. Waits for it."""

def flip(m: Any, axis: Any = None) -> ndarray:
    """Reverse the given axes, or all; a view."""

def fliplr(m: Any) -> ndarray:
    """Reverse axis 1; a view."""

def flipud(m: Any) -> ndarray:
    """Reverse axis 0; a view."""

float16: DType
float32: DType
float64: DType

def float_power(
    a: Any,
    b: Any,
    /,
    out: Any = None,
    *,
    where: Any = True,
    casting: str = "same_kind",
    order: str = "K",
    dtype: Any = None,
    subok: builtins.bool = True,
) -> ndarray:
    """a to the power of b, in float64 or complex128."""

def floor(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """Largest whole number not above x."""

def floor_divide(
    a: Any,
    b: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """Quotient rounded down; integers divided by zero give 0."""

def fmax(
    a: Any,
    b: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """The larger element; a number wins over NaN."""

def fmin(
    a: Any,
    b: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """The smaller element; a number wins over NaN."""

def fmod(
    a: Any,
    b: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """Remainder with the sign of a; integers modulo zero give 0."""

def frexp(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> tuple[ndarray, ...]:
    """Mantissas from 0.5 to 1 and exponents (int32) with x = mantissa * 2 ** exponent."""

def from_dlpack(x: Any, /, *, device: Any = None, copy: builtins.bool | None = None) -> Any:
    """A gemel array that shares the memory of another library's array: writes to either are visible
    in both. Operations on it finish before their call returns."""

def from_numpy(
    value: Any, device: Device | None = None, zero_copy: builtins.bool = False, dtype: Any = None
) -> Any:
    """An array with a copy of a NumPy array's elements; long floats become float64."""

def frombuffer(
    buffer: Any,
    dtype: Any = None,
    count: int = -1,
    offset: int = 0,
    device: Any = None,
    ctx: Any = None,
) -> ndarray:
    """A 1-d array with a copy of the elements in a buffer of bytes."""

def fromfile(
    file: Any,
    dtype: Any = None,
    count: int = -1,
    sep: str = "",
    offset: int = 0,
    device: Any = None,
) -> ndarray:
    """The numbers in a binary file, or in a text file separated by `sep`. Raises
    `MissingFileError`."""

def fromfunction(
    function: Callable[..., Any], shape: Any, *, dtype: Any = None, **keywords: Any
) -> Any:
    """Call a function with the positions along each axis, one array per axis, and return its
    result."""

def fromiter(iter: Iterable[Any], dtype: Any, count: int = -1, device: Any = None) -> ndarray:
    """An array of the elements of an iterable: all of them, or the first `count`."""

def fromstring(
    string: str, dtype: Any = None, count: int = -1, *, sep: str, device: Any = None
) -> ndarray:
    """The numbers in a string, separated by `sep`."""

def full(
    shape: Any,
    fill_value: Any,
    dtype: Any = None,
    order: str = "C",
    device: Any = None,
    ctx: Any = None,
) -> ndarray:
    """An array filled with one number, whose dtype is the default."""

def full_like(
    a: Any,
    fill_value: Any,
    dtype: Any = None,
    order: str = "K",
    subok: builtins.bool = True,
    shape: Any = None,
    *,
    device: Any = None,
    ctx: Any = None,
) -> ndarray:
    """One number, with the shape, dtype and device of another array by default."""

def gcd(
    a: Any,
    b: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """Greatest common divisor."""

def genfromtxt(
    fname: Any, dtype: Any = None, *args: Any, device: Any = None, **kwargs: Any
) -> ndarray:
    """`loadtxt` that fills missing values with a number, by default NaN."""

def geomspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: builtins.bool = True,
    dtype: Any = None,
    axis: int = 0,
    device: Any = None,
    ctx: Any = None,
) -> ndarray:
    """A geometric sequence of numbers from start to stop."""

def get_printoptions() -> dict[str, Any]:
    """The current print options, by name."""

def gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    """The gradient along one or more axes, by central differences and one-sided ones at the ends."""

def greater(
    a: Any,
    b: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """a > b."""

def greater_equal(
    a: Any,
    b: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """a >= b."""

half: DType

def hamming(M: Any, dtype: Any = None, device: Any = None, ctx: Any = None) -> ndarray:
    """The Hamming window: 0.54 - 0.46 cos(2 pi n / (M - 1))."""

def hanning(M: Any, dtype: Any = None, device: Any = None, ctx: Any = None) -> ndarray:
    """The Hann window: 0.5 - 0.5 cos(2 pi n / (M - 1))."""

def heaviside(
    a: Any,
    b: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """0 where a is negative, 1 where it is positive, b where it is 0."""

def histogram(
    a: Any, bins: Any = 10, range: Any = None, density: builtins.bool = False, weights: Any = None
) -> tuple[Any, Any]:
    """The number of elements in each bin (or their weights, or a density), and the bins' edges."""

def histogram2d(
    x: Any, y: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None
) -> tuple[Any, ...]:
    """The number of points (x, y) in each cell of a grid, and the grid's edges. Waits for the
    points."""

def histogram_bin_edges(a: Any, bins: Any = 10, range: Any = None, weights: Any = None) -> ndarray:
    """The edges of bins: `bins` itself, or that many equal bins over a range or all elements."""

def histogramdd(
    sample: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None
) -> tuple[Any, ...]:
    """The number of points, one per row, in each cell of a grid, and its edges. Waits for the
    points."""

def hsplit(ary: Any, indices_or_sections: Any) -> list[Any]:
    """Parts along axis 1 (of a 1-d array, axis 0), as views."""

def hstack(tup: Any, *, dtype: Any = None, casting: str = "same_kind") -> ndarray:
    """Stack arrays along axis 1; 1-d arrays along their only axis."""

def hypot(
    a: Any,
    b: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """sqrt(a * a + b * b), without overflow on the way."""

def i0(x: Any, /) -> ndarray:
    """The modified Bessel function of the first kind and order 0; integers become float32."""

def identity(n: int, dtype: Any = None, device: Any = None, ctx: Any = None) -> ndarray:
    """Ones on the diagonal of a square matrix, zeros elsewhere."""

def iinfo(type: Any) -> IntegerInfo:
    """The limits of an integer dtype, or of an array's dtype. Raises `DTypeError` for other
    dtypes."""

def imag(val: Any) -> ndarray:
    """The imaginary part of each element, as a view; zeros for real numbers."""

def in1d(
    ar1: Any, ar2: Any, assume_unique: builtins.bool = False, invert: builtins.bool = False
) -> ndarray:
    """`isin` of the flattened array."""

def indices(
    dimensions: Sequence[int],
    dtype: Any = "int64",
    sparse: builtins.bool = False,
    device: Any = None,
    ctx: Any = None,
) -> Any:
    """The position of each element along each axis, in one array; if `sparse`, in a tuple."""

inf: float

def inner(a: Any, b: Any) -> ndarray:
    """The product over the last axes; numbers multiply."""

def insert(arr: Any, obj: Any, values: Any, axis: int | None = None) -> ndarray:
    """Insert `values` before the positions (or slice, or mask) `obj` along an axis."""

int16: DType
int32: DType
int64: DType
int8: DType
int_: DType
intc: DType

def interp(
    x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: float | None = None
) -> ndarray:
    """Linear interpolation between the points (xp, fp); xp must be ascending."""

def intersect1d(
    ar1: Any, ar2: Any, assume_unique: builtins.bool = False, return_indices: builtins.bool = False
) -> Any:
    """The elements in both arrays, in order. Waits for them."""

intp: DType

def invert(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """Every bit reversed; for bools, not."""

def isclose(
    a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: builtins.bool = False
) -> ndarray:
    """Where |a - b| <= atol + rtol * |b|, or both are the same infinity (or NaN: equal_nan)."""

def iscomplex(x: Any) -> ndarray:
    """Where the imaginary part is not zero."""

def iscomplexobj(x: Any) -> builtins.bool:
    """Whether an array has a complex dtype, or a number is complex."""

def isdtype(dtype: Any, kind: Any) -> builtins.bool:
    """Whether a dtype equals another, or is of a kind ("integral", ...), or of any in a tuple."""

def isfinite(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """Where x is neither infinite nor NaN."""

def isin(
    element: Any,
    test_elements: Any,
    assume_unique: builtins.bool = False,
    invert: builtins.bool = False,
    *,
    kind: Any = None,
) -> ndarray:
    """Whether each element is one of `test_elements`, or with `invert` none of them."""

def isinf(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """Where x is infinite."""

def isnan(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """Where x is not a number."""

def isneginf(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """Where x is -inf."""

def isposinf(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """Where x is inf."""

def isreal(x: Any) -> ndarray:
    """Where the imaginary part is zero."""

def isrealobj(x: Any) -> builtins.bool:
    """Whether an array has no complex dtype."""

def isscalar(element: Any) -> builtins.bool:
    """Whether something is a number or a string, not an array."""

def issubdtype(arg1: Any, arg2: Any) -> builtins.bool:
    """Whether a dtype equals another, or belongs to a family of NumPy's (``numpy.floating``)."""

def iterable(y: Any) -> builtins.bool:
    """Whether something can be iterated over; a 0-d array cannot."""

def ix_(*args: Any) -> tuple[Any, ...]:
    """Index arrays that select all combinations of positions: `x[np.ix_([0, 1], [2, 3])]`."""

def kaiser(M: Any, beta: float, dtype: Any = None) -> ndarray:
    """The Kaiser window: i0(beta sqrt(1 - (2 n / (M - 1) - 1)^2)) / i0(beta)."""

def kron(a: Any, b: Any) -> ndarray:
    """Kronecker's product: a, with each element replaced by its product with b."""

def lcm(
    a: Any,
    b: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """Least common multiple."""

def ldexp(
    x: Any,
    exponent: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """x times 2 ** exponent, exact where that is whole; floats, as MXNet has them, may be any."""

def left_shift(
    a: Any,
    b: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """The bits of a moved up by b places; 0 once all of them have left."""

def less(
    a: Any,
    b: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """a < b."""

def less_equal(
    a: Any,
    b: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """a <= b."""

def lexsort(keys: Any, axis: int = -1) -> ndarray:
    """The positions that sort by the last key, then by the key before it, and so on."""

def linspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: builtins.bool = True,
    retstep: builtins.bool = False,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
    axis: int = 0,
) -> Any:
    """`num` evenly spaced numbers from start to stop, including stop if `endpoint`."""

def load(
    file: Any,
    device: Any = None,
    *,
    mmap_mode: str | None = None,
    allow_pickle: builtins.bool = False,
) -> Any:
    """The array in a `.npy` file, or a dictionary of those in a `.npz` file; a path or open file."""

def loadtxt(
    fname: Any, dtype: Any = None, *args: Any, device: Any = None, **kwargs: Any
) -> ndarray:
    """Read the numbers of a text file, one row per line; the other arguments are NumPy's."""

def log(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """Natural logarithm; -inf at zero, NaN below."""

def log10(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """Logarithm to base 10; -inf at zero, NaN below."""

def log1p(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """log(1 + x), accurate near zero."""

def log2(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """Logarithm to base 2; -inf at zero, NaN below."""

def logaddexp(
    a: Any,
    b: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """log(exp(a) + exp(b)), without overflow."""

def logaddexp2(
    a: Any,
    b: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """log2(2 ** a + 2 ** b), without overflow."""

def logical_and(
    a: Any,
    b: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """Whether both are true (not zero)."""

def logical_not(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """Whether x is false (zero)."""

def logical_or(
    a: Any,
    b: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """Whether either is true (not zero)."""

def logical_xor(
    a: Any,
    b: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """Whether exactly one is true (not zero)."""

def logspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: builtins.bool = True,
    base: Any = 10.0,
    dtype: Any = None,
    axis: int = 0,
    device: Any = None,
    ctx: Any = None,
) -> ndarray:
    """A geometric sequence of numbers from base**start to base**stop."""

long: DType
longlong: DType

def mask_indices(n: int, mask_func: Callable[..., Any], k: Any = 0) -> tuple[Any, ...]:
    """The positions in a square matrix that a function like `triu` keeps."""

def matmul(
    a: Any,
    b: Any,
    /,
    *,
    out: Any = None,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """Matrix product of the last two axes; the axes before them broadcast."""

def matrix_transpose(x: Any) -> ndarray:
    """Exchange the last two axes; a view. Raises `ShapeError` for fewer than two."""

def matvec(
    x1: Any,
    x2: Any,
    /,
    *,
    out: Any = None,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """The products of matrices, in the last two axes, with vectors; the other axes broadcast."""

def max(
    x: Any,
    /,
    axis: Any = None,
    keepdims: builtins.bool = False,
    *,
    out: Any = None,
    initial: Any = None,
    where: Any = True,
) -> ndarray:
    """Largest element over the given axes, or all; NaN wins."""

def maximum(
    a: Any,
    b: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """The larger element; NaN wins."""

def may_share_memory(a: Any, b: Any, max_work: Any = None) -> builtins.bool:
    """Whether the memory ranges of two arrays overlap, so that they may share elements."""

def mean(
    x: Any,
    /,
    axis: Any = None,
    dtype: Any = None,
    *,
    keepdims: builtins.bool = False,
    out: Any = None,
    where: Any = True,
) -> ndarray:
    """Mean over the given axes, or all; integers become float32, float16 is added in float32."""

def median(
    a: Any,
    axis: Any = None,
    out: Any = None,
    overwrite_input: builtins.bool = False,
    keepdims: builtins.bool = False,
) -> ndarray:
    """The median over the given axes, or all; NaN of an empty array."""

def meshgrid(
    *xi: Any, indexing: str = "xy", sparse: builtins.bool = False, copy: builtins.bool = True
) -> list[Any]:
    """The coordinates of a grid given by 1-d arrays: one array per axis."""

def min(
    x: Any,
    /,
    axis: Any = None,
    keepdims: builtins.bool = False,
    *,
    out: Any = None,
    initial: Any = None,
    where: Any = True,
) -> ndarray:
    """Smallest element over the given axes, or all; NaN wins."""

def minimum(
    a: Any,
    b: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """The smaller element; NaN wins."""

def mod(
    a: Any,
    b: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """Remainder with the sign of b; integers modulo zero give 0."""

def modf(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> tuple[ndarray, ...]:
    """The fraction and the whole part, both with the sign of x."""

def moveaxis(a: Any, source: Any, destination: Any) -> ndarray:
    """Move axes to other positions; the others keep their order; a view."""

def msort(a: Any) -> ndarray:
    """Sort along the first axis: `sort` with `axis=0`."""

def multiply(
    a: Any,
    b: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """Product."""

nan: float

def nan_to_num(
    x: Any, copy: builtins.bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None
) -> ndarray:
    """Replace NaN by 0 and infinities by the largest finite numbers. The result is always a
    copy."""

def nanargmax(
    x: Any, /, axis: Any = None, keepdims: builtins.bool = False, *, out: Any = None
) -> ndarray:
    """Position of the largest element that is not NaN; `ValueError`, at the wait, where all are."""

def nanargmin(
    x: Any, /, axis: Any = None, keepdims: builtins.bool = False, *, out: Any = None
) -> ndarray:
    """Position of the smallest element that is not NaN; `ValueError`, at the wait, where all are."""

def nancumprod(a: Any, axis: int | None = None, dtype: Any = None, out: Any = None) -> ndarray:
    """Cumulative product along an axis, or of the flattened array; NaN counts as 1."""

def nancumsum(a: Any, axis: int | None = None, dtype: Any = None, out: Any = None) -> ndarray:
    """Cumulative sum along an axis, or of the flattened array; NaN counts as 0."""

def nanmax(
    x: Any,
    /,
    axis: Any = None,
    keepdims: builtins.bool = False,
    *,
    out: Any = None,
    initial: Any = None,
    where: Any = True,
) -> ndarray:
    """Largest element that is not NaN, over the given axes, or all; NaN if there are none."""

def nanmean(
    x: Any,
    /,
    axis: Any = None,
    dtype: Any = None,
    *,
    keepdims: builtins.bool = False,
    out: Any = None,
    where: Any = True,
) -> ndarray:
    """Mean of the elements that are not NaN, over the given axes, or all; NaN if there are none."""

def nanmedian(
    a: Any,
    axis: Any = None,
    out: Any = None,
    overwrite_input: builtins.bool = False,
    keepdims: builtins.bool = False,
) -> ndarray:
    """The median of the elements that are not NaN; NaN if there are none."""

def nanmin(
    x: Any,
    /,
    axis: Any = None,
    keepdims: builtins.bool = False,
    *,
    out: Any = None,
    initial: Any = None,
    where: Any = True,
) -> ndarray:
    """Smallest element that is not NaN, over the given axes, or all; NaN if there are none."""

def nanpercentile(
    a: Any,
    q: Any,
    axis: Any = None,
    out: Any = None,
    overwrite_input: builtins.bool = False,
    method: str = "linear",
    keepdims: builtins.bool = False,
    *,
    weights: Any = None,
    interpolation: str | None = None,
) -> ndarray:
    """The q-th percentile of the elements that are not NaN; see `nanquantile`."""

def nanprod(
    x: Any,
    /,
    axis: Any = None,
    dtype: Any = None,
    *,
    keepdims: builtins.bool = False,
    out: Any = None,
    initial: Any = None,
    where: Any = True,
) -> ndarray:
    """Product over the given axes, or all; NaN counts as 1."""

def nanquantile(
    a: Any,
    q: Any,
    axis: Any = None,
    out: Any = None,
    overwrite_input: builtins.bool = False,
    method: str = "linear",
    keepdims: builtins.bool = False,
    *,
    weights: Any = None,
    interpolation: str | None = None,
) -> ndarray:
    """The q-quantile of the elements that are not NaN, see `quantile`; NaN if there are none."""

def nanstd(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    ddof: float | None = None,
    *,
    correction: float = 0.0,
    keepdims: builtins.bool = False,
    where: Any = True,
    mean: Any = None,
) -> ndarray:
    """Standard deviation of the elements that are not NaN: the square root of `nanvar`."""

def nansum(
    x: Any,
    /,
    axis: Any = None,
    dtype: Any = None,
    *,
    keepdims: builtins.bool = False,
    out: Any = None,
    initial: Any = None,
    where: Any = True,
) -> ndarray:
    """Sum over the given axes, or all; NaN counts as 0."""

def nanvar(
    x: Any,
    /,
    axis: Any = None,
    dtype: Any = None,
    *,
    ddof: float | None = None,
    correction: float = 0.0,
    keepdims: builtins.bool = False,
    mean: Any = None,
    out: Any = None,
    where: Any = True,
) -> ndarray:
    """Variance of the elements that are not NaN, over the given axes, or all; NaN if too few are."""

def ndenumerate(arr: Any) -> Iterator[tuple[tuple[int, ...], Any]]:
    """All positions of an array with the numbers there. Waits for the array."""

def ndim(a: Any) -> int:
    """The number of dimensions."""

def ndindex(*shape: Any) -> Iterator[tuple[int, ...]]:
    """All positions of an array of this shape, in order."""

def negative(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """The negative of each element."""

newaxis: None

def nextafter(
    a: Any,
    b: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """The next representable number after a in the direction of b."""

def nonzero(a: Any) -> tuple[Any, ...]:
    """The positions of elements that are not zero, one int64 array per axis. Waits for it."""

def not_equal(
    a: Any,
    b: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """a != b; NaN differs from everything."""

def ones(
    shape: Any, dtype: Any = None, order: str = "C", device: Any = None, ctx: Any = None
) -> ndarray:
    """An array of ones."""

def ones_like(
    a: Any,
    dtype: Any = None,
    order: str = "K",
    subok: builtins.bool = True,
    shape: Any = None,
    *,
    device: Any = None,
    ctx: Any = None,
) -> ndarray:
    """Ones with the shape, dtype and device of another array by default."""

def outer(a: Any, b: Any, out: Any = None) -> ndarray:
    """The outer product of two flattened arrays: a matrix."""

def packbits(a: Any, /, axis: int | None = None, bitorder: str = "big") -> ndarray:
    """Pack each eight elements (nonzero is 1) into the bits of a byte. Waits for the elements."""

def pad(
    array: Any,
    pad_width: Any = 0,
    mode: Any = "constant",
    *,
    constant_values: Any = 0,
    end_values: Any = 0,
    stat_length: Any = None,
    reflect_type: str = "even",
    **options: Any,
) -> ndarray:
    """The array with elements before and after it along each axis."""

def partition(
    a: Any, kth: Any, axis: int | None = -1, kind: str = "introselect", order: Any = None
) -> ndarray:
    """Partition rows along an axis: the kth element in place, smaller ones before it."""

def percentile(
    a: Any,
    q: Any,
    axis: Any = None,
    out: Any = None,
    overwrite_input: builtins.bool = False,
    method: str = "linear",
    keepdims: builtins.bool = False,
    *,
    weights: Any = None,
    interpolation: str | None = None,
) -> ndarray:
    """The q-th percentile (q from 0 to 100): see `quantile`."""

def permute_dims(a: Any, axes: Any = None) -> ndarray:
    """The axes in another order, reversed by default: as a view. A number has none."""

pi: float

def piecewise(x: Any, condlist: Any, funclist: Sequence[Any], *args: Any, **kw: Any) -> ndarray:
    """At each position, the result of the function for the last condition that holds, else 0."""

def place(arr: Any, mask: Any, vals: Any) -> None:
    """Where the mask holds, write the values one after another, repeated as needed."""

def poly(seq_of_zeros: Any) -> ndarray:
    """The polynomial with these zeros and 1 before the highest power."""

def polyadd(a1: Any, a2: Any) -> ndarray:
    """The sum of two polynomials."""

def polyder(p: Any, m: int = 1) -> ndarray:
    """The derivative of a polynomial, m times."""

def polydiv(u: Any, v: Any) -> tuple[Any, ...]:
    """The quotient and remainder of two polynomials. Waits for them."""

def polyfit(
    x: Any,
    y: Any,
    deg: int,
    rcond: Any = None,
    full: builtins.bool = False,
    w: Any = None,
    cov: Any = False,
) -> Any:
    """The polynomial of degree `deg` nearest to the points in least squares. Waits for them."""

def polyint(p: Any, m: int = 1, k: Any = None) -> ndarray:
    """The integral of a polynomial, m times; `k` are the constants, one or one for each time."""

def polymul(a1: Any, a2: Any) -> ndarray:
    """The product of two polynomials. Waits for them, and leaves out their leading zeros."""

def polysub(a1: Any, a2: Any) -> ndarray:
    """The difference of two polynomials."""

def polyval(p: Any, x: Any) -> ndarray:
    """The polynomial's values at x, by Horner's rule."""

def positive(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """The same numbers, in new memory."""

def pow(
    a: Any,
    b: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """a to the power of b. Integers wrap as their products do."""

def power(
    a: Any,
    b: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """a to the power of b. Integers wrap as their products do."""

def printoptions(*values: Any, **options: Any) -> Any:
    """Set print options inside a ``with`` block; they are those of `set_printoptions`."""

def prod(
    x: Any,
    /,
    axis: Any = None,
    dtype: Any = None,
    *,
    keepdims: builtins.bool = False,
    out: Any = None,
    initial: Any = None,
    where: Any = True,
) -> ndarray:
    """Product over the given axes, or all. Integers and bools are multiplied in int64."""

def product(
    x: Any,
    /,
    axis: Any = None,
    dtype: Any = None,
    *,
    keepdims: builtins.bool = False,
    out: Any = None,
    initial: Any = None,
    where: Any = True,
) -> ndarray:
    """Product over the given axes, or all. Integers and bools are multiplied in int64."""

def promote_types(type1: Any, type2: Any) -> DType:
    """The dtype that can hold numbers of both; a floating dtype wins over an integer one."""

def ptp(
    x: Any, /, axis: Any = None, keepdims: builtins.bool = False, *, out: Any = None
) -> ndarray:
    """The range (maximum - minimum), over the given axes, or all."""

def put(a: Any, ind: Any, v: Any, mode: str = "raise") -> None:
    """Write values at positions of the flattened array; the values are repeated as needed."""

def put_along_axis(arr: Any, indices: Any, values: Any, axis: int | None = -1) -> None:
    """Write `values` into each row along an axis at that row's positions."""

def putmask(a: Any, mask: Any, values: Any) -> None:
    """Where the mask holds, write the value at the same position; values are repeated to a's size."""

def quantile(
    a: Any,
    q: Any,
    axis: Any = None,
    out: Any = None,
    overwrite_input: builtins.bool = False,
    method: str = "linear",
    keepdims: builtins.bool = False,
    *,
    weights: Any = None,
    interpolation: str | None = None,
) -> ndarray:
    """The q-quantile (q from 0 to 1) over the given axes, or all."""

def rad2deg(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """Radians as degrees."""

def radians(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """Degrees as radians."""

def ravel(a: Any, order: str = "C") -> ndarray:
    """All elements in one dimension, as a view where possible; "F" counts the first axis first."""

def ravel_multi_index(
    multi_index: Any, dims: Any, mode: Any = "raise", order: str = "C"
) -> ndarray:
    """Positions in the flattened array of what stands at positions along each axis."""

def real(val: Any) -> ndarray:
    """The real part of each element, as a view; of real numbers the array itself."""

def real_if_close(a: Any, tol: float = 100) -> ndarray:
    """The real parts if all imaginary parts are nearly zero, else the array. Waits for it."""

def reciprocal(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """1 / x; integers become float32."""

def remainder(
    a: Any,
    b: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """Remainder with the sign of b; integers modulo zero give 0."""

def repeat(a: Any, repeats: Any, axis: int | None = None) -> ndarray:
    """Each element several times along an axis, or of the flattened array."""

def require(a: Any, dtype: Any = None, requirements: str | Sequence[str] | None = None) -> ndarray:
    """The array in a dtype and, if "C" is among the requirements, with its elements in C order."""

def reshape(
    a: Any,
    shape: Any = None,
    order: str = "C",
    *,
    newshape: Any = None,
    copy: builtins.bool | None = None,
) -> ndarray:
    """The same elements in another shape, of which one extent may be -1; a view where possible."""

def resize(a: Any, new_shape: Any) -> ndarray:
    """An array of another shape, filled from the flattened array, which is repeated or
    truncated."""

def result_type(*arrays_and_dtypes: Any) -> DType:
    """The common dtype of arrays, dtypes and Python numbers; Python numbers adapt to the others."""

def right_shift(
    a: Any,
    b: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """The bits of a moved down by b places, the sign kept; 0 or -1 once all of them have left."""

def rint(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """Nearest whole number, ties to even."""

def roll(a: Any, shift: Any, axis: Any = None) -> ndarray:
    """Shift elements along axes, or in the flattened array, with wrap-around."""

def rollaxis(a: Any, axis: int, start: int = 0) -> ndarray:
    """Move an axis before the one at `start`; a view. `moveaxis` is easier to read."""

def roots(p: Any) -> ndarray:
    """The zeros of a polynomial: eigenvalues of its companion matrix. Waits for it."""

def rot90(m: Any, k: int = 1, axes: Sequence[int] = (0, 1)) -> ndarray:
    """Rotate k times by 90 degrees, from the first of two axes towards the second; a view."""

def round(a: Any, decimals: int = 0, out: Any = None) -> ndarray:
    """Round to `decimals` decimals, ties to even; negative `decimals` round to tens, hundreds,
    ..."""

def round_(a: Any, decimals: int = 0, out: Any = None) -> ndarray:
    """Round to `decimals` decimals, ties to even; negative `decimals` round to tens, hundreds,
    ..."""

def row_stack(tup: Any, *, dtype: Any = None, casting: str = "same_kind") -> ndarray:
    """Stack arrays along axis 0; 1-d arrays are rows."""

def save(file: Any, arr: Any, allow_pickle: builtins.bool = False) -> None:
    """Write an array into a `.npy` file: a path (the ending is added) or an open file, which may
    get several, one after the other."""

def savetxt(fname: Any, X: Any, *args: Any, **kwargs: Any) -> None:
    """Write an array of one or two dimensions as text; the other arguments are NumPy's."""

def savez(file: Any, *args: Any, **kwds: Any) -> None:
    """Write arrays into a `.npz` file, named by keywords; the others are named arr_0, arr_1, ..."""

def savez_compressed(file: Any, *args: Any, **kwds: Any) -> None:
    """`savez` into a compressed file."""

def searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None) -> ndarray:
    """Where elements would be put into a sorted row: before ("left") or behind equal ones."""

def select(condlist: Any, choicelist: Any, default: Any = 0) -> ndarray:
    """At each position, the element of the first choice whose condition holds, else `default`."""

def set_printoptions(
    precision: int | None = None,
    threshold: int | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    suppress: builtins.bool | None = None,
    **options: Any,
) -> None:
    """Set how arrays of NumPy and gemel are printed. More than `threshold` elements are summarised
    to `edgeitems` at each end of an axis, `suppress` writes small numbers as 0; further options,
    such as `floatmode`, are those of `numpy.set_printoptions`. None leaves an option unchanged."""

def setdiff1d(ar1: Any, ar2: Any, assume_unique: builtins.bool = False) -> ndarray:
    """The elements in the first array but not in the second, in order. Waits for them."""

def setxor1d(ar1: Any, ar2: Any, assume_unique: builtins.bool = False) -> ndarray:
    """The elements in exactly one of two arrays, in order. Waits for them."""

def shape(a: Any) -> tuple[int, ...]:
    """The shape of an array or of anything that can be one."""

def shares_memory(a: Any, b: Any, max_work: Any = None) -> builtins.bool:
    """Whether two arrays share an element, as one is a view of the other or both are views of a
    third."""

short: DType

def sign(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """-1, 0 or 1; NaN stays NaN."""

def signbit(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """Whether x is negative, -0.0 and negative NaN included."""

def sin(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """Sine of x in radians."""

def sinc(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """sin(pi x) / (pi x), which is 1 at 0."""

single: DType

def sinh(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """Hyperbolic sine."""

def size(a: Any, axis: Any = None) -> int:
    """The number of elements, or of positions along one or more axes."""

def sometrue(
    x: Any,
    /,
    axis: Any = None,
    keepdims: builtins.bool = False,
    *,
    out: Any = None,
    where: Any = True,
) -> ndarray:
    """Whether any element is true (not zero)."""

def sort(
    a: Any,
    axis: int | None = -1,
    kind: Any = None,
    order: None = None,
    *,
    descending: builtins.bool = False,
    stable: builtins.bool = True,
) -> ndarray:
    """Each row along an axis in order, or the flattened array; NaN is largest. Always stable."""

def spacing(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """The distance from x to the next number away from zero."""

def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """Parts of an array along an axis, as views: equal ones, or between positions."""

def sqrt(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """Square root; NaN for negative elements."""

def square(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """The square of each element."""

def squeeze(a: Any, axis: Any = None) -> ndarray:
    """Remove the given axes of length 1, or all of them. Raises `ShapeError` for an axis of another
    length."""

def stack(
    arrays: Any, axis: int = 0, out: Any = None, *, dtype: Any = None, casting: str = "same_kind"
) -> ndarray:
    """Stack arrays along a new axis. `dtype` and `casting` as in `concatenate`."""

def std(
    x: Any,
    /,
    axis: Any = None,
    dtype: Any = None,
    *,
    ddof: float | None = None,
    correction: float = 0.0,
    keepdims: builtins.bool = False,
    mean: Any = None,
    out: Any = None,
    where: Any = True,
) -> ndarray:
    """Square root of the variance, over the given axes, or all: see `var`."""

def subtract(
    a: Any,
    b: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """Difference."""

def sum(
    x: Any,
    /,
    axis: Any = None,
    dtype: Any = None,
    *,
    keepdims: builtins.bool = False,
    out: Any = None,
    initial: Any = None,
    where: Any = True,
) -> ndarray:
    """Sum over the given axes, or all. Integers and bools are summed in int64."""

def swapaxes(a: Any, axis1: int, axis2: int) -> ndarray:
    """Exchange two axes."""

def take(a: Any, indices: Any, axis: Any = None, mode: str = "raise", out: Any = None) -> ndarray:
    """Select the elements at these positions along an axis, or of the flattened array."""

def take_along_axis(arr: Any, indices: Any, axis: int | None = -1) -> ndarray:
    """From each row along an axis the elements at that row's positions, as `argsort` gives them."""

def tan(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """Tangent of x in radians."""

def tanh(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """Hyperbolic tangent."""

def tensordot(a: Any, b: Any, axes: Any = 2) -> ndarray:
    """The product over several axes: the last ones of a and the first ones of b, or the named ones."""

def tile(A: Any, reps: Any) -> ndarray:
    """Repeat the whole array several times along each axis."""

def trace(
    a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: Any = None
) -> ndarray:
    """The sum of a diagonal over two axes."""

def transpose(a: Any, axes: Any = None) -> ndarray:
    """The axes in another order, reversed by default: as a view. A number has none."""

def trapezoid(y: Any, x: Any = None, dx: float = 1.0, axis: int = -1) -> ndarray:
    """The integral of y over x (or spacing dx) along an axis, by the trapezoidal rule."""

def trapz(y: Any, x: Any = None, dx: float = 1.0, axis: int = -1) -> ndarray:
    """The integral of y over x (or spacing dx) along an axis, by the trapezoidal rule."""

def tri(
    N: int, M: int | None = None, k: int = 0, dtype: Any = None, device: Any = None, ctx: Any = None
) -> ndarray:
    """Ones on and below diagonal k, zeros above."""

def tril(x: Any, /, k: int = 0) -> ndarray:
    """The lower triangles: elements above diagonal k become zero."""

def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Any, ...]:
    """The rows and columns of the elements on and below diagonal k of a matrix."""

def tril_indices_from(arr: Any, k: int = 0) -> tuple[Any, ...]:
    """The rows and columns of the elements on and below diagonal k of this matrix."""

def trim_zeros(filt: Any, trim: str = "fb", axis: Any = None) -> ndarray:
    """Remove all-zero slices from the front ("f") and the back ("b") of some axes, or of all. Waits
    for the array."""

def triu(x: Any, /, k: int = 0) -> ndarray:
    """The upper triangles: elements below diagonal k become zero."""

def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Any, ...]:
    """The rows and columns of the elements on and above diagonal k of a matrix."""

def triu_indices_from(arr: Any, k: int = 0) -> tuple[Any, ...]:
    """The rows and columns of the elements on and above diagonal k of this matrix."""

def true_divide(
    a: Any,
    b: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """Quotient; integers become float32."""

def trunc(
    x: Any,
    /,
    *,
    out: Any = None,
    where: Any = True,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """The nearest whole number towards zero."""

ubyte: DType
uint: DType
uint16: DType
uint32: DType
uint64: DType
uint8: DType
uintc: DType
uintp: DType
ulong: DType
ulonglong: DType

def union1d(ar1: Any, ar2: Any) -> ndarray:
    """The elements in either of two arrays, in order. Waits for them."""

def unique(
    ar: Any,
    return_index: builtins.bool = False,
    return_inverse: builtins.bool = False,
    return_counts: builtins.bool = False,
    axis: int | None = None,
    *,
    equal_nan: builtins.bool = True,
    sorted: builtins.bool = True,
) -> Any:
    """The distinct elements (slices along an axis) in order. Waits for them."""

def unique_all(x: Any) -> UniqueAll:
    """The distinct elements, where each is first, where they stand in x, how many there are."""

def unique_counts(x: Any) -> UniqueCounts:
    """The distinct elements and how many of each there are. NaNs are distinct. Waits for x."""

def unique_inverse(x: Any) -> UniqueInverse:
    """The distinct elements and where they stand in x. NaNs are distinct. Waits for x."""

def unique_values(x: Any) -> ndarray:
    """The distinct elements in order. NaNs are distinct. Waits for x."""

def unpackbits(
    a: Any, /, axis: int | None = None, count: int | None = None, bitorder: str = "big"
) -> ndarray:
    """Unpack the bits of bytes, each into a number 0 or 1. Waits for the bytes."""

def unravel_index(indices: Any, shape: Any, order: str = "C") -> tuple[Any, ...]:
    """Positions along each axis of what stands at positions in the flattened array."""

def unstack(x: Any, axis: int = 0) -> tuple[Any, ...]:
    """The slices at each position of an axis, without that axis, as views; the inverse of
    `stack`."""

def unwrap(
    p: Any, discont: Any = None, axis: int = -1, *, period: Any = 6.283185307179586
) -> ndarray:
    """Remove jumps of angles along an axis: multiples of `period` are added where neighbours differ
    by more than half a period (or `discont`)."""

ushort: DType

def vander(x: Any, N: int | None = None, increasing: builtins.bool = False) -> ndarray:
    """The Vandermonde matrix: powers of the elements of x in columns, highest first unless
    `increasing`."""

def var(
    x: Any,
    /,
    axis: Any = None,
    dtype: Any = None,
    *,
    ddof: float | None = None,
    correction: float = 0.0,
    keepdims: builtins.bool = False,
    mean: Any = None,
    out: Any = None,
    where: Any = True,
) -> ndarray:
    """Mean squared distance from the mean, over the given axes, or all."""

def vdot(a: Any, b: Any) -> ndarray:
    """The dot product of two flattened arrays: a number. Complex elements of the first are
    conjugated."""

def vecdot(
    x1: Any,
    x2: Any,
    /,
    axis: int = -1,
    *,
    out: Any = None,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """The sum of products along an axis; the other axes broadcast. Complex numbers of the first
    are conjugated."""

def vecmat(
    x1: Any,
    x2: Any,
    /,
    *,
    out: Any = None,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """The products of vectors in the last axis, conjugated, with matrices in the last two; others
    broadcast."""

def vsplit(ary: Any, indices_or_sections: Any) -> list[Any]:
    """Parts along axis 0, as views. Raises `ShapeError` below two dimensions."""

def vstack(tup: Any, *, dtype: Any = None, casting: str = "same_kind") -> ndarray:
    """Stack arrays along axis 0; 1-d arrays are rows."""

def where(condition: Any, x: Any = None, y: Any = None) -> ndarray:
    """x where the condition holds, else y; with one argument, `nonzero(condition)`."""

def zeros(
    shape: Any, dtype: Any = None, order: str = "C", device: Any = None, ctx: Any = None
) -> ndarray:
    """An array of zeros."""

def zeros_like(
    a: Any,
    dtype: Any = None,
    order: str = "K",
    subok: builtins.bool = True,
    shape: Any = None,
    *,
    device: Any = None,
    ctx: Any = None,
) -> ndarray:
    """Zeros with the shape, dtype and device of another array by default."""

__all__ = [
    "DType",
    "False_",
    "Inf",
    "Infinity",
    "NAN",
    "NINF",
    "NZERO",
    "NaN",
    "PINF",
    "PZERO",
    "True_",
    "__array_api_version__",
    "__array_namespace_info__",
    "abs",
    "absolute",
    "acos",
    "acosh",
    "add",
    "all",
    "allclose",
    "alltrue",
    "amax",
    "amin",
    "angle",
    "any",
    "append",
    "apply_along_axis",
    "apply_over_axes",
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
    "argpartition",
    "argsort",
    "argwhere",
    "around",
    "array",
    "array2string",
    "array_equal",
    "array_equiv",
    "array_repr",
    "array_split",
    "array_str",
    "asanyarray",
    "asarray",
    "ascontiguousarray",
    "asin",
    "asinh",
    "astype",
    "atan",
    "atan2",
    "atanh",
    "atleast_1d",
    "atleast_2d",
    "atleast_3d",
    "average",
    "bartlett",
    "base_repr",
    "bfloat16",
    "binary_repr",
    "bincount",
    "bitwise_and",
    "bitwise_count",
    "bitwise_invert",
    "bitwise_left_shift",
    "bitwise_not",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "blackman",
    "block",
    "bool",
    "bool_",
    "broadcast",
    "broadcast_arrays",
    "broadcast_shapes",
    "broadcast_to",
    "byte",
    "bytes_",
    "c_",
    "can_cast",
    "cbrt",
    "cdouble",
    "ceil",
    "character",
    "choose",
    "clip",
    "column_stack",
    "common_type",
    "complex128",
    "complex64",
    "complexfloating",
    "compress",
    "concat",
    "concatenate",
    "conj",
    "conjugate",
    "convolve",
    "copy",
    "copysign",
    "copyto",
    "corrcoef",
    "correlate",
    "cos",
    "cosh",
    "count_nonzero",
    "cov",
    "cross",
    "csingle",
    "cumprod",
    "cumsum",
    "cumulative_prod",
    "cumulative_sum",
    "deg2rad",
    "degrees",
    "delete",
    "diag",
    "diag_indices",
    "diag_indices_from",
    "diagflat",
    "diagonal",
    "diff",
    "digitize",
    "divide",
    "divmod",
    "dot",
    "double",
    "dsplit",
    "dstack",
    "dtype",
    "e",
    "ediff1d",
    "einsum",
    "einsum_path",
    "empty",
    "empty_like",
    "equal",
    "errstate",
    "euler_gamma",
    "exp",
    "exp2",
    "expand_dims",
    "expm1",
    "extract",
    "eye",
    "fabs",
    "fft",
    "fill_diagonal",
    "finfo",
    "fix",
    "flatnonzero",
    "flexible",
    "flip",
    "fliplr",
    "flipud",
    "float16",
    "float32",
    "float64",
    "float_power",
    "floating",
    "floor",
    "floor_divide",
    "fmax",
    "fmin",
    "fmod",
    "format_float_positional",
    "format_float_scientific",
    "frexp",
    "from_dlpack",
    "from_numpy",
    "frombuffer",
    "fromfile",
    "fromfunction",
    "fromiter",
    "fromstring",
    "full",
    "full_like",
    "gcd",
    "generic",
    "genfromtxt",
    "geomspace",
    "get_printoptions",
    "geterr",
    "gradient",
    "greater",
    "greater_equal",
    "half",
    "hamming",
    "hanning",
    "heaviside",
    "histogram",
    "histogram2d",
    "histogram_bin_edges",
    "histogramdd",
    "hsplit",
    "hstack",
    "hypot",
    "i0",
    "identity",
    "iinfo",
    "imag",
    "in1d",
    "index_exp",
    "indices",
    "inexact",
    "inf",
    "inner",
    "insert",
    "int16",
    "int32",
    "int64",
    "int8",
    "int_",
    "intc",
    "integer",
    "interp",
    "intersect1d",
    "intp",
    "invert",
    "isclose",
    "iscomplex",
    "iscomplexobj",
    "isdtype",
    "isfinite",
    "isin",
    "isinf",
    "isnan",
    "isneginf",
    "isposinf",
    "isreal",
    "isrealobj",
    "isscalar",
    "issubdtype",
    "iterable",
    "ix_",
    "kaiser",
    "kron",
    "lcm",
    "ldexp",
    "left_shift",
    "less",
    "less_equal",
    "lexsort",
    "linalg",
    "linspace",
    "load",
    "loadtxt",
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
    "logspace",
    "long",
    "longlong",
    "mask_indices",
    "matmul",
    "matrix_transpose",
    "matvec",
    "max",
    "maximum",
    "may_share_memory",
    "mean",
    "median",
    "meshgrid",
    "mgrid",
    "min",
    "min_scalar_type",
    "minimum",
    "mod",
    "modf",
    "moveaxis",
    "msort",
    "multiply",
    "nan",
    "nan_to_num",
    "nanargmax",
    "nanargmin",
    "nancumprod",
    "nancumsum",
    "nanmax",
    "nanmean",
    "nanmedian",
    "nanmin",
    "nanpercentile",
    "nanprod",
    "nanquantile",
    "nanstd",
    "nansum",
    "nanvar",
    "ndarray",
    "ndenumerate",
    "ndim",
    "ndindex",
    "nditer",
    "negative",
    "nested_iters",
    "newaxis",
    "nextafter",
    "nonzero",
    "not_equal",
    "number",
    "object_",
    "ogrid",
    "ones",
    "ones_like",
    "outer",
    "packbits",
    "pad",
    "partition",
    "percentile",
    "permute_dims",
    "pi",
    "piecewise",
    "place",
    "poly",
    "poly1d",
    "polyadd",
    "polyder",
    "polydiv",
    "polyfit",
    "polyint",
    "polymul",
    "polysub",
    "polyval",
    "positive",
    "pow",
    "power",
    "printoptions",
    "prod",
    "product",
    "promote_types",
    "ptp",
    "put",
    "put_along_axis",
    "putmask",
    "quantile",
    "r_",
    "rad2deg",
    "radians",
    "random",
    "ravel",
    "ravel_multi_index",
    "real",
    "real_if_close",
    "reciprocal",
    "remainder",
    "repeat",
    "require",
    "reshape",
    "resize",
    "result_type",
    "right_shift",
    "rint",
    "roll",
    "rollaxis",
    "roots",
    "rot90",
    "round",
    "round_",
    "row_stack",
    "s_",
    "save",
    "savetxt",
    "savez",
    "savez_compressed",
    "searchsorted",
    "select",
    "set_printoptions",
    "setdiff1d",
    "seterr",
    "setxor1d",
    "shape",
    "shares_memory",
    "short",
    "sign",
    "signbit",
    "signedinteger",
    "sin",
    "sinc",
    "single",
    "sinh",
    "size",
    "sometrue",
    "sort",
    "spacing",
    "split",
    "sqrt",
    "square",
    "squeeze",
    "stack",
    "std",
    "str_",
    "subtract",
    "sum",
    "swapaxes",
    "take",
    "take_along_axis",
    "tan",
    "tanh",
    "tensordot",
    "tile",
    "trace",
    "transpose",
    "trapezoid",
    "trapz",
    "tri",
    "tril",
    "tril_indices",
    "tril_indices_from",
    "trim_zeros",
    "triu",
    "triu_indices",
    "triu_indices_from",
    "true_divide",
    "trunc",
    "ubyte",
    "uint",
    "uint16",
    "uint32",
    "uint64",
    "uint8",
    "uintc",
    "uintp",
    "ulong",
    "ulonglong",
    "union1d",
    "unique",
    "unique_all",
    "unique_counts",
    "unique_inverse",
    "unique_values",
    "unpackbits",
    "unravel_index",
    "unsignedinteger",
    "unstack",
    "unwrap",
    "ushort",
    "vander",
    "var",
    "vdot",
    "vecdot",
    "vecmat",
    "vectorize",
    "void",
    "vsplit",
    "vstack",
    "where",
    "zeros",
    "zeros_like",
]

"""`np`: NumPy's names on gemel's arrays."""

from __future__ import annotations

import builtins
from typing import Any

from gemel import errors
from gemel.device import as_device
from gemel.dtype import (
    DType,
    as_dtype,
    as_number,
    bfloat16,
    bool_,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from gemel.extent import NUMBER, WHOLE
from gemel.ndarray import array_like, default_dtype, from_dlpack, from_numpy, ndarray
from gemel.np import random
from gemel.ops.elementwise import (
    absolute,
    add,
    ceil,
    clip,
    cos,
    divide,
    exp,
    expm1,
    floor,
    floor_divide,
    log,
    log1p,
    maximum,
    minimum,
    multiply,
    negative,
    power,
    reciprocal,
    remainder,
    rint,
    sign,
    sin,
    sqrt,
    square,
    subtract,
    tanh,
)
from gemel.ops.elementwise import (
    full as _full,
)
from gemel.ops.elementwise import (
    iota as _iota,
)
from gemel.ops.elementwise import (
    where as _where,
)
from gemel.ops.indexing import nonzero as _nonzero
from gemel.ops.indexing import take
from gemel.ops.linalg import dot, matmul
from gemel.ops.logic import (
    bitwise_and,
    bitwise_or,
    bitwise_xor,
    equal,
    greater,
    greater_equal,
    invert,
    isnan,
    less,
    less_equal,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    not_equal,
)
from gemel.ops.reduction import all, any, argmax, argmin, max, mean, min, prod, std, sum, var
from gemel.ops.shape import (
    broadcast_to,
    expand_dims,
    squeeze,
    stack,
    swapaxes,
    transpose,
)
from gemel.ops.shape import (
    concatenate as _concatenate,
)
from gemel.ops.shape import (
    reshape as _reshape,
)
from gemel.ops.shape import (
    split as _split,
)

abs = absolute
true_divide = divide
mod = remainder
bool = bool_
pi = 3.141592653589793
e = 2.718281828459045
inf = float("inf")
nan = float("nan")
newaxis = None


# --- creation -------------------------------------------------------------------------------


def array(value: Any, dtype: Any = None, device: Any = None, ctx: Any = None) -> Any:
    """An array with a copy of the elements: of an array, a NumPy array, a number or nested lists.

    Python floats give float32, integers int64 (float32 after `npx.set_np()`), unless `dtype` says
    otherwise. Raises `ShapeError` for ragged lists and `DTypeError` for unknown dtypes.
    """
    place = as_device(device or ctx)
    if isinstance(value, ndarray):
        moved = value.to_device(place) if device or ctx else value
        if dtype is not None and as_dtype(dtype) is not value.dtype:
            return moved.astype(dtype)
        return moved if moved is not value else value.copy()
    found = array_like(value, dtype, place)
    return found if dtype is None else found.astype(dtype, copy=False)


def asarray(value: Any, dtype: Any = None, device: Any = None, ctx: Any = None) -> ndarray:
    """The array itself when it is one of that dtype and on that device, else `array(value)`."""
    device = device or ctx
    same = isinstance(value, ndarray) and (dtype is None or value.dtype is as_dtype(dtype))
    if same and (device is None or value.device == device):
        return value  # type: ignore[no-any-return]
    found: ndarray = array(value, dtype, device)
    return found


def full(
    shape: Any, fill_value: Any, dtype: Any = None, device: Any = None, ctx: Any = None
) -> Any:
    """An array filled with one number; its dtype decides where none is given."""
    extents = _extents(shape)
    if not isinstance(fill_value, NUMBER):
        fill_value = asarray(fill_value, dtype)
        return broadcast_to(fill_value, shape=extents).copy()
    chosen = as_dtype(dtype) if dtype is not None else default_dtype(fill_value)
    with as_device(device or ctx):
        return _full(fill_value, shape=extents, dtype=chosen)


def zeros(
    shape: Any, dtype: Any = "float32", device: Any = None, ctx: Any = None, order: str = "C"
) -> Any:
    """An array of zeros."""
    with as_device(device or ctx):
        return _full(0, shape=_extents(shape), dtype=as_dtype(dtype or float32))


def ones(
    shape: Any, dtype: Any = "float32", device: Any = None, ctx: Any = None, order: str = "C"
) -> Any:
    """An array of ones."""
    with as_device(device or ctx):
        return _full(1, shape=_extents(shape), dtype=as_dtype(dtype or float32))


def empty(shape: Any, dtype: Any = "float32", device: Any = None, ctx: Any = None) -> Any:
    """An array whose elements nobody has set; zeros, so that no garbage is ever read."""
    return zeros(shape, dtype, device, ctx)


def zeros_like(x: Any, dtype: Any = None) -> Any:
    """Zeros of the shape, dtype and device of another array."""
    return full_like(x, 0, dtype)


def ones_like(x: Any, dtype: Any = None) -> Any:
    """Ones of the shape, dtype and device of another array."""
    return full_like(x, 1, dtype)


def full_like(x: Any, fill_value: Any, dtype: Any = None) -> Any:
    """One number in the shape, dtype and device of another array."""
    with as_device(getattr(x, "device", None)):
        return _full(fill_value, shape=tuple(x.shape), dtype=as_dtype(dtype or x.dtype))


def arange(
    start: Any,
    stop: Any = None,
    step: Any = 1,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
) -> Any:
    """Numbers from start up to and without stop. MXNet's dtype is float32 after `npx.set_np()`."""
    if stop is None:
        start, stop = 0, start
    steps = (start - stop) // step
    count = builtins.max(0, -(steps if isinstance(steps, WHOLE) else int(steps)))
    whole = builtins.all(isinstance(n, WHOLE) for n in (start, stop, step))
    chosen = as_dtype(dtype) if dtype is not None else default_dtype(0) if whole else float32
    wide = as_number(chosen)
    with as_device(device or ctx):
        found = _iota(shape=(count,), axis=0, dtype=wide)
    if step != 1:
        found = found * step
    if start != 0:
        found = found + start
    return found.astype(chosen) if wide is not chosen else found


def linspace(
    start: float,
    stop: float,
    num: int = 50,
    endpoint: Any = True,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
) -> Any:
    """Evenly spaced numbers from start to stop."""
    gaps = builtins.max(num - 1 if endpoint else num, 1)
    with as_device(device or ctx):
        found = _iota(shape=(num,), axis=0, dtype=float64) * ((stop - start) / gaps) + start
    return found.astype(dtype or float32)


def eye(
    n: int, m: int | None = None, dtype: Any = "float32", device: Any = None, ctx: Any = None
) -> Any:
    """Ones on the diagonal, zeros elsewhere."""
    with as_device(device or ctx):
        rows = _iota(shape=(n, 1), axis=0, dtype=int64)
        columns = _iota(shape=(1, m or n), axis=1, dtype=int64)
    return equal(rows, columns).astype(dtype)


def _extents(shape: Any) -> tuple[int, ...]:
    return tuple(shape) if hasattr(shape, "__iter__") else (shape,)


# --- the operations, with NumPy's signatures ------------------------------------------------


def where(condition: Any, x: Any = None, y: Any = None) -> Any:
    """x where the condition holds, else y; with one argument, `nonzero(condition)`."""
    return nonzero(condition) if x is None else _where(condition, x, y)


def nonzero(x: Any) -> tuple[Any, ...]:
    """The positions of elements that are not zero, one int64 array per axis. Waits for x."""
    found = _nonzero(x)
    return found if isinstance(found, tuple) else (found,)


def reshape(x: Any, newshape: Any, order: str = "C") -> Any:
    """The same elements in another shape; one extent may be -1."""
    return _reshape(x, shape=_extents(newshape))


def concatenate(arrays: Any, axis: int | None = 0) -> Any:
    """The arrays one after another along an axis; None flattens them first."""
    parts = list(arrays)
    if axis is None:
        return _concatenate(*(_reshape(part, shape=(-1,)) for part in parts), axis=0)
    return _concatenate(*parts, axis=axis)


def split(x: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """Parts of an array along an axis, as views: equal ones, or between positions."""
    sections = indices_or_sections
    found = _split(
        x, sections=sections if isinstance(sections, WHOLE) else tuple(sections), axis=axis
    )
    return list(found) if isinstance(found, tuple) else [found]


def copy(x: Any) -> Any:
    """The same elements in memory of their own."""
    return x.copy()


def shape(x: Any) -> tuple[int, ...]:
    """The shape of an array or of anything that can be one."""
    return tuple(x.shape) if hasattr(x, "shape") else tuple(asarray(x).shape)


def ndim(x: Any) -> int:
    """The number of dimensions."""
    return len(shape(x))


def size(x: Any) -> int:
    """The number of elements."""
    from gemel.spec import product

    return product(shape(x))


def allclose(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8) -> builtins.bool:
    """Whether all elements are close: |a - b| <= atol + rtol * |b|. Waits for both."""
    near = less_equal(absolute(subtract(a, b)), add(multiply(absolute(b), rtol), atol))
    return builtins.bool(logical_or(near, equal(a, b)).all())


def array_equal(a: Any, b: Any) -> builtins.bool:
    """Whether shapes and all elements are equal. Waits for both."""
    return shape(a) == shape(b) and builtins.bool(equal(a, b).all())


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
    "bfloat16",
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
    "dot",
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
    "int8",
    "int16",
    "int32",
    "int64",
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
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "var",
    "where",
    "zeros",
    "zeros_like",
]


def __getattr__(name: str) -> Any:
    raise errors.unknown_attribute(__name__, name, __all__)


def __dir__() -> list[str]:
    return __all__

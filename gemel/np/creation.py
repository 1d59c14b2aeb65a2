"""Functions that create arrays from something other than arrays."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from functools import reduce
from typing import Any

from gemel.arrays.making import array_like, default_dtype
from gemel.device import as_device, beside, beside_arrays
from gemel.dtype import (
    MANNERS,
    DType,
    as_dtype,
    as_held,
    as_number,
    check_held,
    complex64,
    complex128,
    default_float,
    float64,
    int64,
    promote,
    uint64,
)
from gemel.errors import ArgumentError, ShapeError
from gemel.extent import NUMBER, WHOLE
from gemel.ir.above import above
from gemel.ir.graph import Entry, is_number
from gemel.ir.keywords import check_unrecorded
from gemel.ir.public import Array, function
from gemel.ir.reference import numpy
from gemel.ndarray import ndarray
from gemel.ops.elementwise import cast, distance, floor, iota, where
from gemel.ops.elementwise import copy as copied
from gemel.ops.elementwise import full as filled
from gemel.ops.shape import broadcast_to, listed, operand, reshape, transpose
from gemel.spec import extents, normalize_axis, whole


@function(public="np")
def array(
    object: Any,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
    *,
    copy: bool | None = True,
    order: str | None = "K",
    subok: bool = False,
    ndmin: int = 0,
) -> Array:
    """Create an array with a copy of an array, a NumPy array, a number or nested lists.

    Python floats give float32, integers int64 (float32 after `npx.set_np()`), unless `dtype` says
    otherwise. Raises `ShapeError` for ragged lists and `DTypeError` for unknown dtypes. With `copy`
    None or False this is `asarray`. The result has at least `ndmin` axes; new ones come first.
    Elements are in C order, whatever `order` is.
    """
    object = _made_array(object, dtype)
    if type(object) is ndarray and dtype is device is ctx is None and copy and not ndmin:
        return copied(object)
    if ndmin > 0 or not copy:
        found = (array if copy else asarray)(object, dtype, device, ctx, copy=copy)
        lead = (1,) * (ndmin - found.ndim)
        return reshape(found, shape=(*lead, *found.shape)) if lead else found
    place = as_device(device or ctx)
    if isinstance(object, (ndarray, Entry)):
        moved = object.to_device(place) if device or ctx else object
        if dtype is not None and as_dtype(dtype) is not object.dtype:
            return moved.astype(dtype)
        return moved if moved is not object else object.copy()
    made = array_like(object, dtype, place)
    if dtype is None and MANNERS["floating positions"] and isinstance(object, (list, tuple)):
        kind = made.dtype.kind  # lists of other libraries' numbers and arrays are treated alike
        wide = made.dtype is uint64 and MANNERS["integers"] is int64  # int64 would wrap around
        named = kind in "iuf" and not wide
        dtype = MANNERS["floats" if kind == "f" else "integers"] if named else None
    return made if dtype is None else made.astype(dtype, copy=False)


def _made_array(value: Any, dtype: Any) -> Any:
    """The value; a compiled function's number argument, or what is computed from it, as an array,
    as numbers are made arrays outside of compiled functions."""
    if not (isinstance(value, Entry) and is_number(value)):
        return value
    return filled(value, shape=(), dtype=value.dtype if dtype is None else as_dtype(dtype))


@function(public="np", aliases=("asanyarray",))
def asarray(
    a: Any,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
    *,
    copy: bool | None = None,
    order: str | None = None,
) -> ndarray:
    """Convert to an array; one that has this dtype and device already is returned itself.

    With `copy=True` the result is always a new array. With `copy=False` it never is: if a copy is
    required, as for everything but gemel arrays, the call raises `ValueError`.
    """
    device, a = device or ctx, _made_array(a, dtype)
    given = isinstance(a, (ndarray, Entry))
    same = given and (dtype is None or a.dtype is as_dtype(dtype))
    if not copy and same and (device is None or a.device == device):
        return a  # type: ignore[no-any-return]
    if copy is False:
        raise ArgumentError("asarray: copy=False, but making this array requires a copy")
    found: ndarray = array(a, dtype, device)
    return found


@function(public="np")
def astype(x: Any, dtype: Any, *, copy: bool = True, device: Any = None) -> Array:
    """Convert the elements to another dtype; without `copy`, an array of this dtype is returned
    itself.

    >>> np.astype(np.array([1.5, -1.5]), np.int64)
    """
    x = operand(x)
    return (x if device is None else x.to_device(device)).astype(dtype, copy=copy)


@function(public="np")
def ascontiguousarray(a: Any, dtype: Any = None) -> Array:
    """The array with its elements in C order in memory, copied only if needed; never 0-d."""
    if type(a) is ndarray and dtype is None:
        if not a._is_contiguous:
            return copied(a)
        if a.ndim:
            return a
    found = asarray(a, dtype)
    found = found if found.ndim else reshape(found, shape=(1,))
    return found if isinstance(found, Entry) or found._is_contiguous else found.copy()


@function(public="np")
def frombuffer(
    buffer: Any,
    dtype: Any = None,
    count: int = -1,
    offset: int = 0,
    device: Any = None,
    ctx: Any = None,
) -> Array:
    """A 1-d array with a copy of the elements in a buffer of bytes."""
    found = numpy().frombuffer(buffer, as_dtype(dtype or default_float()).name, count, offset)
    return array(found, dtype, device, ctx)


@function(public="np")
def full(
    shape: Any,
    fill_value: Any,
    dtype: Any = None,
    order: str = "C",
    device: Any = None,
    ctx: Any = None,
) -> Array:
    """An array filled with one number, whose dtype is the default."""
    extents = listed(shape)
    if not isinstance(fill_value, NUMBER):
        fill_value = asarray(fill_value, dtype)
        return broadcast_to(fill_value, shape=extents).copy()
    chosen = as_dtype(dtype) if dtype is not None else default_dtype(fill_value)
    fill_value = as_held("full", fill_value, chosen)
    with as_device(device or ctx):
        return filled(fill_value, shape=extents, dtype=chosen)


@function(public="np")
def zeros(
    shape: Any, dtype: Any = None, order: str = "C", device: Any = None, ctx: Any = None
) -> Array:
    """An array of zeros."""
    return _of_one_number("zeros", 0, shape, dtype, device or ctx)


@function(public="np")
def ones(
    shape: Any, dtype: Any = None, order: str = "C", device: Any = None, ctx: Any = None
) -> Array:
    """An array of ones."""
    return _of_one_number("ones", 1, shape, dtype, device or ctx)


def _of_one_number(name: str, number: int, shape: Any, dtype: Any, device: Any) -> Array:
    settings = {"shape": extents(name, listed(shape)), "dtype": as_dtype(dtype or default_float())}
    with as_device(device) if device is not None else nullcontext():
        return filled(number, **settings)


@function(public="np")
def empty(
    shape: Any, dtype: Any = None, order: str = "C", device: Any = None, ctx: Any = None
) -> Array:
    """An array without set elements: zeros, so that no uninitialized memory is ever read."""
    return zeros(shape, dtype, order, device, ctx)


@function(public="np")
def empty_like(
    prototype: Any,
    dtype: Any = None,
    order: str = "K",
    subok: bool = True,
    shape: Any = None,
    *,
    device: Any = None,
    ctx: Any = None,
) -> Array:
    """An array like `empty`, with the shape, dtype and device of another array by default."""
    return full_like(prototype, 0, dtype, shape=shape, device=device, ctx=ctx)


@function(public="np")
def zeros_like(
    a: Any,
    dtype: Any = None,
    order: str = "K",
    subok: bool = True,
    shape: Any = None,
    *,
    device: Any = None,
    ctx: Any = None,
) -> Array:
    """Zeros with the shape, dtype and device of another array by default."""
    return full_like(a, 0, dtype, shape=shape, device=device, ctx=ctx)


@function(public="np")
def ones_like(
    a: Any,
    dtype: Any = None,
    order: str = "K",
    subok: bool = True,
    shape: Any = None,
    *,
    device: Any = None,
    ctx: Any = None,
) -> Array:
    """Ones with the shape, dtype and device of another array by default."""
    return full_like(a, 1, dtype, shape=shape, device=device, ctx=ctx)


@function(public="np")
def full_like(
    a: Any,
    fill_value: Any,
    dtype: Any = None,
    order: str = "K",
    subok: bool = True,
    shape: Any = None,
    *,
    device: Any = None,
    ctx: Any = None,
) -> Array:
    """One number, with the shape, dtype and device of another array by default."""
    a = operand(a)
    extents = tuple(a.shape) if shape is None else listed(shape)
    chosen = as_dtype(dtype or a.dtype)
    if isinstance(fill_value, (list, tuple)):
        fill_value = asarray(fill_value, chosen)
    fill_value = as_held("full_like", fill_value, chosen)
    with as_device(device or ctx or getattr(a, "device", None)):
        return filled(fill_value, shape=extents, dtype=chosen)


@function(public="np")
def arange(
    start: Any,
    stop: Any = None,
    step: Any = 1,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
) -> Array:
    """Evenly spaced numbers in [start, stop).

    The default dtype is float32 after `npx.set_np()`, and that of start, stop and step if these are
    floating arrays.

    With an integer `dtype` the first two numbers are rounded, and all others have the same distance
    as these two.
    """
    if stop is None:
        start, stop = 0, start
    given = [n if isinstance(n, NUMBER) else above.as_array(n) for n in (start, stop, step)]
    for kind, value in zip(("start", "stop", "step"), given, strict=True):
        check_unrecorded("arange", kind, value)
    start, stop, step = (n.item() if hasattr(n, "item") else n for n in given)
    whole = all(isinstance(n, WHOLE) for n in (start, stop, step))
    if step == 0 or not (whole or math.isfinite((stop - start) / step)):
        raise ArgumentError(f"arange: from {start} to {stop} by {step} there are no numbers")
    count = max(0, -((start - stop) // step) if whole else math.ceil((stop - start) / step))
    if count == 0:
        start, step = 0, 1  # the given ones may not fit the dtype
    plain = default_dtype(0) if whole else _inexact(given)
    chosen = as_dtype(dtype) if dtype is not None else plain
    if count and not whole and chosen.kind in "iu":
        start, step = int(start), int(start + step) - int(start)
    if chosen.kind == "u" and step < 0:  # sums wrap, but a number must be one that the dtype holds
        check_held("arange", start + (count - 1) * step, chosen)
        step %= 2 ** (8 * chosen.itemsize)
    wide = as_number(chosen)
    with as_device(device or ctx):
        found = iota(shape=(count,), axis=0, dtype=wide)
    if step != 1:
        found = found * step
    if start != 0 or step < 0:  # for a negative step, adding 0 turns -0.0 into 0.0
        found = found + start
    return found.astype(chosen) if found.dtype is not chosen else found


@function(public="np")
def linspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
    axis: int = 0,
) -> Any:
    """`num` evenly spaced numbers from start to stop, including stop if `endpoint`.

    With `retstep` the result is (numbers, step); the step is NaN for fewer than two numbers.
    Integers are rounded down. If start or stop are arrays, each pair of elements gives one such
    sequence, along `axis` of the result. The dtype is by default that of such arrays if they are
    floating, otherwise float32.
    """
    start, stop = (above.as_array(end, (start, stop)) for end in (start, stop))
    found, step = _line("linspace", start, stop, num, endpoint, device or ctx)
    chosen = as_dtype(dtype or _inexact((start, stop), found.dtype))
    found = (found if chosen.is_inexact else floor(found)).astype(chosen)
    found = _first_at("linspace", found, axis)
    return (found, step) if retstep else found


def _line(
    name: str, start: Any, stop: Any, num: int, endpoint: bool, device: Any
) -> tuple[Any, Any]:
    """Evenly spaced 64-bit numbers along the first axis, and their distance."""
    if whole(name, "num", num) < 0:
        raise ShapeError(f"{name}: {num} is not a valid number of elements")
    start, stop = _end(start), _end(stop)
    gaps = num - 1 if endpoint else num
    step = (stop - start) / max(gaps, 1)
    with beside(device, (start, stop)):
        at = iota(shape=(num, *[1] * len(getattr(step, "shape", ()))), axis=0, dtype=float64)
    found = at * step + start
    if endpoint and num > 1:
        found = where(at == num - 1, stop, found)
    return found, step if gaps > 0 else step * math.nan


def _end(value: Any) -> Any:
    """The start or end of a row of numbers: a number, or an array of 64-bit numbers."""
    if is_number(value):
        return value
    value = operand(value)
    return cast(value, dtype=complex128 if value.dtype.is_complex else float64)


def _first_at(name: str, x: Any, axis: int) -> Any:
    """x with its first axis moved to `axis`."""
    place = normalize_axis(name, axis, x.ndim)
    order = (*range(1, place + 1), 0, *range(place + 1, x.ndim))
    return transpose(x, axes=order) if place else x


@function(public="np")
def logspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    base: Any = 10.0,
    dtype: Any = None,
    axis: int = 0,
    device: Any = None,
    ctx: Any = None,
) -> Array:
    """A geometric sequence of numbers from base**start to base**stop.

    If start or stop are arrays, each pair of elements gives one such sequence, along `axis` of the
    result.

    >>> np.logspace(0, 2, 3)
    """
    given = start, stop, base
    start, stop, base = ends = [above.as_array(each, given) for each in given]
    if not is_number(base):  # an array gives a row for each of its elements
        base = _end(base)
        start = _end(start) + base * 0
    exponents = _line("logspace", start, stop, num, endpoint, device or ctx)[0]
    found = (float(base) if isinstance(base, WHOLE) else base) ** exponents
    return _first_at("logspace", found, axis).astype(dtype or _inexact(ends, found.dtype))


def _inexact(given: Iterable[Any], found: DType = float64) -> DType:
    """The dtype of numbers computed from these: that of the floating arrays among them, or the
    default one; complex if the numbers were found to be."""
    own = [x.dtype for x in given if not is_number(x) and x.dtype.is_inexact]
    chosen = reduce(promote, own) if own else default_float()
    return promote(chosen, complex64) if found.is_complex else chosen


@function(public="np")
def geomspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    dtype: Any = None,
    axis: int = 0,
    device: Any = None,
    ctx: Any = None,
) -> Array:
    """A geometric sequence of numbers from start to stop.

    If start or stop are arrays, each pair of elements gives one such sequence, along `axis` of the
    result; NaN where there is none.

    >>> np.geomspace(1, 100, 3)
    """
    if isinstance(start, (int, float)) and isinstance(stop, (int, float)):
        if start == 0 or stop == 0 or (start < 0) != (stop < 0):
            raise ArgumentError(f"geomspace: from {start} to {stop} there is no geometric sequence")
        start, stop = float(start), float(stop)
    start, stop = (above.as_array(end, (start, stop)) for end in (start, stop))
    ratio = _end(stop) / _end(start)
    place = beside(device or ctx, (start, stop))
    part = linspace(0.0, 1.0, num, endpoint, dtype=float64, device=place)
    part = reshape(part, shape=(num, *[1] * len(getattr(ratio, "shape", ()))))
    found = _end(start) * ratio**part
    return _first_at("geomspace", found, axis).astype(dtype or _inexact((start, stop), found.dtype))


@function(public="np")
def eye(
    N: int,  # noqa: N803
    M: int | None = None,  # noqa: N803
    k: int = 0,
    dtype: Any = None,
    order: str = "C",
    device: Any = None,
    ctx: Any = None,
) -> Array:
    """Ones on diagonal k of a matrix, zeros elsewhere.

    >>> np.eye(2, 3, k=1)
    """
    with as_device(device or ctx):
        chosen = distance(*extents("eye", (N, N if M is None else M))) == whole("eye", "k", k)
        return cast(chosen, dtype=as_dtype(dtype or default_float()))


@function(public="np")
def identity(n: int, dtype: Any = None, device: Any = None, ctx: Any = None) -> Array:
    """Ones on the diagonal of a square matrix, zeros elsewhere."""
    return eye(n, dtype=dtype, device=device, ctx=ctx)


@function(public="np")
@beside_arrays
def vander(x: Any, N: int | None = None, increasing: bool = False) -> Array:  # noqa: N803
    """The Vandermonde matrix: powers of the elements of x in columns, highest first unless
    `increasing`."""
    x = operand(x)
    if x.ndim != 1:
        raise ShapeError(f"vander: an array of {x.ndim} dimensions; it must have one")
    with beside(None, (x,)):
        powers = iota(shape=(x.shape[0] if N is None else N,), axis=0, dtype=int64)
    powers = powers if increasing else powers[::-1]
    wide = x if x.dtype.is_floating or x.dtype.is_complex else x.astype(promote(x.dtype, int64))
    return (reshape(wide, shape=(-1, 1)) ** powers.astype(wide.dtype)).astype(wide.dtype)


@function(public="np")
def fromfunction(
    function: Callable[..., Any], shape: Any, *, dtype: Any = None, **keywords: Any
) -> Any:
    """Call a function with the positions along each axis, one array per axis, and return its
    result.

    >>> np.fromfunction(lambda i, j: i + j, (2, 3))
    """
    extents = listed(shape)
    chosen = as_dtype(dtype or default_float())
    along = (iota(shape=extents, axis=i, dtype=chosen) for i in range(len(extents)))
    return function(*along, **keywords)

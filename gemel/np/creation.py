"""Arrays made of anything but arrays."""

from __future__ import annotations

from typing import Any

from gemel.device import as_device
from gemel.dtype import as_dtype, as_number, float32, float64, int64
from gemel.extent import NUMBER, WHOLE
from gemel.ir.public import Array, function
from gemel.ndarray import array_like, default_dtype, ndarray
from gemel.ops.elementwise import full as filled
from gemel.ops.elementwise import iota
from gemel.ops.logic import equal
from gemel.ops.shape import broadcast_to, listed


@function(public="np")
def array(value: Any, dtype: Any = None, device: Any = None, ctx: Any = None) -> Array:
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


@function(public="np")
def asarray(value: Any, dtype: Any = None, device: Any = None, ctx: Any = None) -> ndarray:
    """The array itself when it is one of that dtype and on that device, else `array(value)`."""
    device = device or ctx
    same = isinstance(value, ndarray) and (dtype is None or value.dtype is as_dtype(dtype))
    if same and (device is None or value.device == device):
        return value  # type: ignore[no-any-return]
    found: ndarray = array(value, dtype, device)
    return found


@function(public="np")
def full(
    shape: Any, fill_value: Any, dtype: Any = None, device: Any = None, ctx: Any = None
) -> Array:
    """An array filled with one number; its dtype decides where none is given."""
    extents = listed(shape)
    if not isinstance(fill_value, NUMBER):
        fill_value = asarray(fill_value, dtype)
        return broadcast_to(fill_value, shape=extents).copy()
    chosen = as_dtype(dtype) if dtype is not None else default_dtype(fill_value)
    with as_device(device or ctx):
        return filled(fill_value, shape=extents, dtype=chosen)


@function(public="np")
def zeros(
    shape: Any, dtype: Any = "float32", device: Any = None, ctx: Any = None, order: str = "C"
) -> Array:
    """An array of zeros."""
    with as_device(device or ctx):
        return filled(0, shape=listed(shape), dtype=as_dtype(dtype or float32))


@function(public="np")
def ones(
    shape: Any, dtype: Any = "float32", device: Any = None, ctx: Any = None, order: str = "C"
) -> Array:
    """An array of ones."""
    with as_device(device or ctx):
        return filled(1, shape=listed(shape), dtype=as_dtype(dtype or float32))


@function(public="np")
def empty(shape: Any, dtype: Any = "float32", device: Any = None, ctx: Any = None) -> Array:
    """An array whose elements nobody has set; zeros, so that no garbage is ever read."""
    return zeros(shape, dtype, device, ctx)


@function(public="np")
def zeros_like(x: Any, dtype: Any = None) -> Array:
    """Zeros of the shape, dtype and device of another array."""
    return full_like(x, 0, dtype)


@function(public="np")
def ones_like(x: Any, dtype: Any = None) -> Array:
    """Ones of the shape, dtype and device of another array."""
    return full_like(x, 1, dtype)


@function(public="np")
def full_like(x: Any, fill_value: Any, dtype: Any = None) -> Array:
    """One number in the shape, dtype and device of another array."""
    with as_device(getattr(x, "device", None)):
        return filled(fill_value, shape=tuple(x.shape), dtype=as_dtype(dtype or x.dtype))


@function(public="np")
def arange(
    start: Any,
    stop: Any = None,
    step: Any = 1,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
) -> Array:
    """Numbers from start up to and without stop. MXNet's dtype is float32 after `npx.set_np()`."""
    if stop is None:
        start, stop = 0, start
    steps = (start - stop) // step
    count = max(0, -(steps if isinstance(steps, WHOLE) else int(steps)))
    whole = all(isinstance(n, WHOLE) for n in (start, stop, step))
    chosen = as_dtype(dtype) if dtype is not None else default_dtype(0) if whole else float32
    wide = as_number(chosen)
    with as_device(device or ctx):
        found = iota(shape=(count,), axis=0, dtype=wide)
    if step != 1:
        found = found * step
    if start != 0:
        found = found + start
    return found.astype(chosen) if wide is not chosen else found


@function(public="np")
def linspace(
    start: float,
    stop: float,
    num: int = 50,
    endpoint: Any = True,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
) -> Array:
    """Evenly spaced numbers from start to stop."""
    gaps = max(num - 1 if endpoint else num, 1)
    with as_device(device or ctx):
        found = iota(shape=(num,), axis=0, dtype=float64) * ((stop - start) / gaps) + start
    return found.astype(dtype or float32)


@function(public="np")
def eye(
    n: int, m: int | None = None, dtype: Any = "float32", device: Any = None, ctx: Any = None
) -> Array:
    """Ones on the diagonal, zeros elsewhere."""
    with as_device(device or ctx):
        rows = iota(shape=(n, 1), axis=0, dtype=int64)
        columns = iota(shape=(1, m or n), axis=1, dtype=int64)
    return equal(rows, columns).astype(dtype)

"""Operations that turn, repeat and join whole arrays, composed of views, joins and gathers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gemel.device import as_device, beside_arrays
from gemel.errors import ShapeError, own_errors, unknown_name
from gemel.extent import WHOLE
from gemel.ir.above import above
from gemel.ir.declare import composite
from gemel.ir.keywords import converted
from gemel.ir.public import Array, function
from gemel.ir.reference import numpy
from gemel.ops.assignment import contents
from gemel.ops.elementwise import copy as materialized
from gemel.ops.elementwise import full, iota
from gemel.ops.indexing import basic_index, gather
from gemel.ops.keys import canonical
from gemel.ops.sections import sections_of
from gemel.ops.shape import (
    broadcast_to,
    concatenate,
    expand_dims,
    listed,
    narrow,
    operand,
    operands,
    parted,
    reshape,
    stack,
    transpose,
)
from gemel.spec import (
    Spec,
    broadcast,
    extents,
    normalize_axes,
    normalize_axis,
    plain,
    product,
    whole,
    wholes,
)


@function(public="np")
def ravel(a: Any, order: str = "C") -> Array:
    """All elements in one dimension, as a view where possible; "F" counts the first axis first.

    "A" and "K" mean "C": the memory layout is not part of an array's value.
    """
    return operand(a).reshape(-1, order=order)


# --- order of elements and axes -------------------------------------------------------------


FORWARDS, BACKWARDS = slice(None), slice(None, None, -1)


@function(public="np")
def flip(m: Any, axis: Any = None) -> Array:
    """Reverse the given axes, or all; a view."""
    m, axis = operand(m), plain(axis)
    axes = normalize_axes("flip", axis, m.ndim)
    if not m.ndim and axis is not None and axis != ():  # a 0-d array has no axis: raise
        normalize_axis("flip", axis, 0)
    return m[tuple(BACKWARDS if a in axes else FORWARDS for a in range(m.ndim))]


@function(public="np")
def fliplr(m: Any) -> Array:
    """Reverse axis 1; a view."""
    return flip(m, 1)


@function(public="np")
def flipud(m: Any) -> Array:
    """Reverse axis 0; a view."""
    return flip(m, 0)


@function(public="np")
def rot90(m: Any, k: int = 1, axes: Sequence[int] = (0, 1)) -> Array:
    """Rotate k times by 90 degrees, from the first of two axes towards the second; a view."""
    m = operand(m)
    first, second = (normalize_axis("rot90", axis, m.ndim) for axis in axes)
    if first == second:
        raise ShapeError(f"rot90: axes {tuple(axes)} name an axis twice")
    turns = whole("rot90", "k", k) % 4
    if turns == 2:
        return flip(m, (first, second))
    order = list(range(m.ndim))
    order[first], order[second] = second, first
    if turns == 0:
        return flip(m, ())
    return (
        transpose(flip(m, second), axes=order)
        if turns == 1
        else flip(transpose(m, axes=order), second)
    )


@function(public="np")
def roll(a: Any, shift: Any, axis: Any = None) -> Array:
    """Shift elements along axes, or in the flattened array, with wrap-around.

    >>> np.roll(np.array([1, 2, 3]), 1)
    """
    a = operand(a)
    if axis is None:
        return reshape(
            roll(reshape(a, shape=(-1,)), sum(wholes("roll", "shift", shift)), 0), shape=a.shape
        )
    shifts, axes = wholes("roll", "shift", shift), listed(axis)
    many = max(len(shifts), len(axes)) if shifts and axes else 0
    if not {len(shifts), len(axes)} <= {1, many}:
        raise ShapeError(f"roll: {len(shifts)} shifts do not fit {len(axes)} axes")
    if many == 0:
        return materialized(a)
    for one, along in zip(shifts * (many // len(shifts)), axes * (many // len(axes)), strict=True):
        along = normalize_axis("roll", along, a.ndim)
        extent = a.shape[along]
        if extent == 0:
            continue
        head = one % extent
        parts = ((extent - head, head), (0, extent - head))
        found = (narrow(a, axis=along, start=start, length=count) for start, count in parts)
        a = concatenate(*found, axis=along)
    return a


def moved(name: str, ndim: int, source: Any, destination: Any) -> tuple[int, ...]:
    """The order of axes that moves those of `source` to `destination`. Raises `ShapeError`."""
    here = [normalize_axis(name, axis, ndim) for axis in listed(source)]
    there = [normalize_axis(name, axis, ndim) for axis in listed(destination)]
    if len(here) != len(there) or len({*here}) != len(here) or len({*there}) != len(there):
        raise ShapeError(
            f"{name}: {source} and {destination} must have the same number of axes, each named once"
        )
    order = [axis for axis in range(ndim) if axis not in here]
    for target, axis in sorted(zip(there, here, strict=True)):
        order.insert(target, axis)
    return tuple(order)


@function(public="np")
def moveaxis(a: Any, source: Any, destination: Any) -> Array:
    """Move axes to other positions; the others keep their order; a view.

    >>> np.moveaxis(np.ones((2, 3, 4)), 0, -1).shape
    """
    a = operand(a)
    return transpose(a, axes=moved("moveaxis", a.ndim, source, destination))


@function(public="np")
def rollaxis(a: Any, axis: int, start: int = 0) -> Array:
    """Move an axis before the one at `start`; a view. `moveaxis` is easier to read."""
    a = operand(a)
    axis = normalize_axis("rollaxis", axis, a.ndim)
    start = a.ndim if start == a.ndim else normalize_axis("rollaxis", start, a.ndim)
    return moveaxis(a, axis, start - 1 if axis < start else start)


@function(public="np")
def matrix_transpose(x: Any) -> Array:
    """Exchange the last two axes; a view. Raises `ShapeError` for fewer than two."""
    x = operand(x)
    if x.ndim < 2:
        raise ShapeError(f"matrix_transpose: an array of {x.ndim} dimensions is not a matrix")
    return transpose(x, axes=(*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


# --- repetition -----------------------------------------------------------------------------


@composite(public="np", method=True, mxnet="_np_repeat")
def repeat(x: Any, *, repeats: int, axis: int) -> Any:
    """Repeat each element several times along an axis."""
    if axis == x.ndim - 1 and 1 < repeats <= 8:  # too few copies for an inner loop over them
        wide = concatenate(*[expand_dims(x, axis + 1)] * repeats, axis=axis + 1)
    else:
        inner = (*x.shape[: axis + 1], repeats, *x.shape[axis + 1 :])
        wide = broadcast_to(expand_dims(x, axis + 1), shape=inner)
    return reshape(wide, shape=(*x.shape[:axis], x.shape[axis] * repeats, *x.shape[axis + 1 :]))


@repeat.facade
def _(a: Any, repeats: Any, axis: int | None = None) -> Array:
    """Each element several times along an axis, or of the flattened array.

    `repeats` is a number, or one for each position (which are waited for: they are its shape).
    """
    a = operand(a)
    if axis is None:
        a, axis = reshape(a, shape=(-1,)), 0
    axis = normalize_axis("repeat", axis, a.ndim)
    if not isinstance(repeats, WHOLE):
        counts = [
            *wholes(
                "repeat", "repeats", numpy().asarray(above.index_item(repeats, a)).ravel().tolist()
            )
        ]
        if len(counts) != 1:
            return _repeated_unevenly(a, counts, axis)
        repeats = counts[0]
    if repeats < 0:
        raise ShapeError(f"repeat: {repeats} is not a valid number of repetitions")
    return repeat(a, repeats=repeats, axis=axis)


def _repeated_unevenly(a: Any, counts: list[int], axis: int) -> Any:
    if len(counts) != a.shape[axis] or min(counts, default=0) < 0:
        raise ShapeError(
            f"repeat: {len(counts)} repetition counts; there must be one, not negative, for each "
            f"of the {a.shape[axis]} positions of axis {axis}"
        )
    return gather(a, numpy().repeat(numpy().arange(len(counts)), counts), axis=axis)


@function(public="np")
def tile(A: Any, reps: Any) -> Array:  # noqa: N803 -- NumPy's name
    """Repeat the whole array several times along each axis."""
    a, times = operand(A), tuple(listed(reps))
    ndim = max(a.ndim, len(times))
    times = (*[1] * (ndim - len(times)), *times)
    shape = (*[1] * (ndim - a.ndim), *a.shape)
    if any(n < 0 for n in times):
        raise ShapeError(f"tile: {list(times)} contains an invalid number of repetitions")
    pairs = list(zip(times, shape, strict=True))
    apart = reshape(a, shape=tuple(n for extent in shape for n in (1, extent)))
    wide = broadcast_to(apart, shape=tuple(n for pair in pairs for n in pair))
    return materialized(reshape(wide, shape=tuple(count * extent for count, extent in pairs)))


@function(public="np")
@beside_arrays
def resize(a: Any, new_shape: Any) -> Array:
    """An array of another shape, filled from the flattened array, which is repeated or
    truncated."""
    a, shape = reshape(operand(a), shape=(-1,)), extents("resize", listed(new_shape))
    count = product(shape)
    if a.size == 0:
        return full(0, shape=shape, dtype=a.dtype)
    return reshape(
        gather(a, iota(shape=(count,), axis=0, dtype="int64") % a.size, axis=0), shape=shape
    )


# --- joining and splitting ------------------------------------------------------------------


def _at_least(x: Any, ndim: int) -> Any:
    """x with new axes, in the places where NumPy adds them, until it has `ndim`."""
    if x.ndim >= ndim:
        return x
    if ndim < 3:
        return reshape(x, shape=(*[1] * (ndim - x.ndim), *x.shape))
    return reshape(x, shape=(1, *(x.shape or (1,)), 1) if x.ndim < 2 else (*x.shape, 1))


def _each_at_least(arrays: tuple[Any, ...], ndim: int) -> Any:
    found = [_at_least(x, ndim) for x in operands(arrays)]
    return found[0] if len(found) == 1 else found


@function(public="np")
def atleast_1d(*arrays: Any) -> Array:
    """Each array, a 0-d one with an axis; a list of several."""
    return _each_at_least(arrays, 1)


@function(public="np")
def atleast_2d(*arrays: Any) -> Array:
    """Each array with new leading axes until it has two; a list of several."""
    return _each_at_least(arrays, 2)


@function(public="np")
def atleast_3d(*arrays: Any) -> Array:
    """Each array with new axes on both sides until it has three; a list of several."""
    return _each_at_least(arrays, 3)


@function(public="np", aliases=("row_stack",))
@beside_arrays
def vstack(tup: Any, *, dtype: Any = None, casting: str = "same_kind") -> Array:
    """Stack arrays along axis 0; 1-d arrays are rows."""
    return _joined("vstack", tup, 2, 0, dtype, casting)


def _joined(name: str, arrays: Any, ndim: int, axis: int, dtype: Any, casting: str) -> Any:
    """Arrays joined along an axis after extending each to `ndim` axes; 1-d arrays along axis 0."""
    parts = [_at_least(x, ndim) for x in operands(arrays)]
    if dtype is not None:
        parts = [converted(name, x, dtype, casting) for x in parts]
    return concatenate(*parts, axis=0 if parts and parts[0].ndim == 1 else axis)


@function(public="np")
@beside_arrays
def hstack(tup: Any, *, dtype: Any = None, casting: str = "same_kind") -> Array:
    """Stack arrays along axis 1; 1-d arrays along their only axis."""
    return _joined("hstack", tup, 1, 1, dtype, casting)


@function(public="np")
@beside_arrays
def dstack(tup: Any) -> Array:
    """Stack arrays along axis 2."""
    return _joined("dstack", tup, 3, 2, None, "same_kind")


@function(public="np")
@beside_arrays
def column_stack(tup: Any) -> Array:
    """Stack arrays along axis 1; 1-d arrays are columns."""
    parts = [_at_least(x, 1) for x in operands(tup)]
    return concatenate(*(expand_dims(x, 1) if x.ndim == 1 else x for x in parts), axis=1)


@function(public="np")
@beside_arrays
def append(arr: Any, values: Any, axis: int | None = None) -> Array:
    """Concatenate two arrays along an axis, or flattened."""
    parts = operands((arr, values))
    if axis is not None:
        return concatenate(*parts, axis=axis)
    return concatenate(*(reshape(x, shape=(-1,)) for x in parts), axis=0)


@function(public="np")
@beside_arrays
def delete(arr: Any, obj: Any, axis: int | None = None) -> Array:
    """Remove the positions (or slice, or mask) `obj` along an axis, or from the flattened array.

    >>> np.delete(np.array([3, 1, 2]), 1)
    """
    arr, axis = _one_axis("delete", arr, axis)
    np, obj = numpy(), above.index_item(obj, arr)
    where_ = obj if isinstance(obj, (*WHOLE, slice, list)) else np.asarray(obj)
    with own_errors("delete"):
        kept = np.delete(np.arange(arr.shape[axis]), where_)
    return gather(arr, kept, axis=axis)


@function(public="np")
@beside_arrays
def insert(arr: Any, obj: Any, values: Any, axis: int | None = None) -> Array:
    """Insert `values` before the positions (or slice, or mask) `obj` along an axis.

    >>> np.insert(np.array([3, 1, 2]), 1, 7)
    """
    arr, axis = _one_axis("insert", arr, axis)
    np, extent, obj = numpy(), arr.shape[axis], above.index_item(obj, arr)
    values = contents("insert", values, arr)
    values = reshape(values, shape=(*[1] * (arr.ndim - values.ndim), *values.shape))
    places = np.arange(extent)[obj] if isinstance(obj, slice) else np.asarray(obj)
    if places.dtype == bool:
        places = np.flatnonzero(places)
    if places.ndim == 0:  # means a[:, 0] = values; a list means a[:, [0]] = values
        values = moveaxis(values, 0, axis)
    count = values.shape[axis] if places.size == 1 else len(places)
    places = places if places.size else places.astype("int64")
    added = np.arange(extent, extent + count)
    with own_errors("insert"):
        order = np.insert(np.arange(extent), places, added)
    block = broadcast_to(values, shape=(*arr.shape[:axis], count, *arr.shape[axis + 1 :]))
    return gather(concatenate(arr, block, axis=axis), order, axis=axis)


def _one_axis(name: str, x: Any, axis: int | None) -> tuple[Any, int]:
    """An array and one of its axes; if the axis is None, the flattened array and axis 0."""
    x = operand(x)
    if axis is None:
        return reshape(x, shape=(-1,)), 0
    return x, normalize_axis(name, axis, x.ndim)


@function(public="np")
def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """Split along an axis into parts that are as equal as possible, or at positions; the parts are
    views."""
    ary = operand(ary)
    axis = normalize_axis("array_split", axis, ary.ndim)
    cuts = sections_of("array_split", indices_or_sections)
    if isinstance(cuts, WHOLE):
        if not 0 < cuts < 2**31:
            raise ShapeError(f"array_split: {cuts} is not a valid number of parts")
        each, longer = divmod(int(ary.shape[axis]), int(cuts))
        cuts = tuple(part * each + min(part, longer) for part in range(1, cuts))
    return parted(ary, cuts, axis)


def _split_along(name: str, ary: Any, sections: Any, axis: int, least: int) -> list[Any]:
    ary = operand(ary)
    if ary.ndim < least:
        raise ShapeError(f"{name}: an array of {ary.ndim} dimensions; it needs at least {least}")
    return parted(ary, sections_of(name, sections), axis)


@function(public="np")
def vsplit(ary: Any, indices_or_sections: Any) -> list[Any]:
    """Parts along axis 0, as views. Raises `ShapeError` below two dimensions."""
    return _split_along("vsplit", ary, indices_or_sections, 0, 2)


@function(public="np")
def hsplit(ary: Any, indices_or_sections: Any) -> list[Any]:
    """Parts along axis 1 (of a 1-d array, axis 0), as views."""
    axis = 1 if operand(ary).ndim > 1 else 0
    return _split_along("hsplit", ary, indices_or_sections, axis, 1)


@function(public="np")
def dsplit(ary: Any, indices_or_sections: Any) -> list[Any]:
    """Parts along axis 2, as views. Raises `ShapeError` below three dimensions.

    >>> np.dsplit(np.ones((1, 2, 4)), 2)
    """
    return _split_along("dsplit", ary, indices_or_sections, 2, 3)


@function(public="np")
def unstack(x: Any, axis: int = 0) -> tuple[Any, ...]:
    """The slices at each position of an axis, without that axis, as views; the inverse of
    `stack`."""
    x = operand(x)
    axis = normalize_axis("unstack", axis, x.ndim)
    lead = (slice(None),) * axis
    count = int(x.shape[axis])
    return tuple(basic_index(x, key=canonical(x.shape, (*lead, i))) for i in range(count))


# --- broadcasting and grids -----------------------------------------------------------------


@function(public="np")
def broadcast_shapes(*shapes: Any) -> tuple[int, ...]:
    """The shape arrays of these shapes broadcast to. Raises `ShapeError`."""
    return broadcast(
        "broadcast_shapes",
        *(Spec(extents("broadcast_shapes", listed(s)), "bool") for s in shapes),
    )


@function(public="np")
def broadcast_arrays(*args: Any) -> list[Any]:
    """Broadcast the arrays to their common shape; the results are views."""
    arrays = operands(args)
    shape = broadcast("broadcast_arrays", *(Spec(x.shape, x.dtype) for x in arrays))
    return [broadcast_to(x, shape=shape) for x in arrays]


@function(public="np")
@beside_arrays
def meshgrid(*xi: Any, indexing: str = "xy", sparse: bool = False, copy: bool = True) -> list[Any]:
    """The coordinates of a grid given by 1-d arrays: one array per axis.

    "xy" exchanges the first two axes, "ij" does not; sparse arrays have length 1 along all other
    axes.
    """
    if indexing not in ("xy", "ij"):
        raise unknown_name("indexing of meshgrid", indexing, ("xy", "ij"))
    arrays = [reshape(operand(x), shape=(-1,)) for x in xi]
    ndim = len(arrays)
    places = list(range(ndim))
    if indexing == "xy" and ndim > 1:
        places[:2] = [1, 0]
    shapes = (
        [x.shape[0] if i == at else 1 for i in range(ndim)]
        for x, at in zip(arrays, places, strict=True)
    )
    found = [reshape(x, shape=tuple(shape)) for x, shape in zip(arrays, shapes, strict=True)]
    if not sparse:
        found = broadcast_arrays(*found) if found else []
    return [materialized(x) for x in found] if copy and not sparse else found


@function(public="np")
def indices(
    dimensions: Sequence[int],
    dtype: Any = "int64",
    sparse: bool = False,
    device: Any = None,
    ctx: Any = None,
) -> Any:
    """The position of each element along each axis, in one array; if `sparse`, in a tuple."""
    shape = extents("indices", listed(dimensions))
    axes = range(len(shape))
    lined = [shape if not sparse else [shape[i] if i == a else 1 for i in axes] for a in axes]
    with as_device(device or ctx):
        found = [iota(shape=tuple(s), axis=a, dtype=dtype) for a, s in enumerate(lined)]
        if sparse:
            return tuple(found)
        return stack(found) if found else full(0, shape=(0,), dtype=dtype)

"""Sorting, searching, and set operations. The core sorts; NumPy does most of the rest."""

from __future__ import annotations

from typing import Any, NamedTuple

from gemel import _core
from gemel.device import beside_arrays
from gemel.dtype import as_dtype, bool_, int64
from gemel.errors import ArgumentError, ShapeError, unknown_name
from gemel.ir.declare import op
from gemel.ir.public import Array, function
from gemel.ir.reference import numpy
from gemel.ops.elementwise import cast, full
from gemel.ops.indexing import boolean_index, gather
from gemel.ops.logic import logical_not
from gemel.ops.selection import add_along_axis, take_along_axis
from gemel.ops.shape import concatenate, operand, operands, reshape
from gemel.ranges import check_flag
from gemel.spec import Spec, normalize_axis, product, promote_specs, whole, wholes

# --- sorting --------------------------------------------------------------------------------


@op(public="np", method=True, mxnet="_npi_argsort")
def argsort(x: Any, *, axis: int = -1, descending: bool = False) -> Any:
    """The positions that sort each row along an axis, stably; NaN is largest."""
    np = numpy()
    if not descending:
        return np.argsort(x, axis, kind="stable")
    # Reversed before and after, so that equal elements keep their order.
    back = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
    return x.shape[axis] - 1 - np.flip(back, axis)


@argsort.spec
def _(x: Spec, *, axis: int, descending: bool) -> Spec:
    normalize_axis("argsort", axis, x.ndim)
    return Spec(x.shape, int64)


@op(public="np", mxnet="_npi_sort")
def sort(x: Any, *, axis: int = -1, descending: bool = False) -> Any:
    """Sort each row along an axis; NaN is largest."""
    found = numpy().sort(x, axis)
    return numpy().flip(found, axis) if descending else found


@sort.spec
def _(x: Spec, *, axis: int, descending: bool) -> Spec:
    normalize_axis("sort", axis, x.ndim)
    return Spec(x.shape, x.dtype)


@sort.step
def _(x: Spec, *, axis: int, descending: bool) -> Any:
    return _sorted_rows(x, axis, descending)


@argsort.step
def _(x: Spec, *, axis: int, descending: bool) -> Any:
    return _sorted_rows(x, axis, descending, positions=True)


def _sorted_rows(
    x: Spec, axis: int, descending: bool, positions: bool = False, first: int = -1
) -> Any:
    """How the core sorts; None if NumPy sorts: complex numbers, very long or many short rows."""
    place = normalize_axis("sort", axis, x.ndim)
    before, after = product(x.shape[:place]), product(x.shape[place + 1 :])
    short = not positions and before * after > 16 and x.shape[place] < 600  # NumPy uses SIMD
    if short or x.dtype.kind == "c" or x.shape[place] >= 2**32:
        return None
    return _core.SortedRows(before, x.shape[place], after, descending, positions, first)


@op()
def top_positions(x: Any, *, axis: int, descending: bool, count: int) -> Any:
    """The first `count` positions of `argsort` along an axis; the core finds few in one pass."""
    order = argsort.function(x, axis=axis, descending=descending)
    return numpy().moveaxis(numpy().moveaxis(order, axis, 0)[:count], 0, axis)


@top_positions.spec
def _(x: Spec, *, axis: int, descending: bool, count: int) -> Spec:
    place = normalize_axis("topk", axis, x.ndim)
    if not 0 <= count <= x.shape[place]:
        raise ShapeError(f"topk: k is {count}, but axis {axis} has {x.shape[place]} elements")
    return Spec((*x.shape[:place], count, *x.shape[place + 1 :]), int64)


@top_positions.step
def _(x: Spec, *, axis: int, descending: bool, count: int) -> Any:
    return _sorted_rows(x, axis, descending, positions=True, first=count)


@sort.gradient
def _(g: Any, y: Any, x: Any, *, axis: int, descending: bool) -> Any:
    places = argsort(argsort(x, axis=axis, descending=descending), axis=axis)
    return (take_along_axis(g, places, axis=axis % x.ndim),)


KINDS, PARTITIONS = ("quicksort", "mergesort", "heapsort", "stable"), ("introselect",)


def _rows(
    name: str, x: Any, axis: int | None, kind: Any, order: Any = None, kinds: Any = KINDS
) -> tuple[Any, int]:
    """The array and the axis to sort along; without one, flattened. Raises `UnknownNameError` for
    another kind, and `ArgumentError` for an `order`, which NumPy has for arrays with fields."""
    if kind is not None and kind not in kinds:
        raise unknown_name(f"kind of {name}", kind, kinds)
    if order is not None:
        raise ArgumentError(
            f"{name}: order is {order!r}, but arrays have no fields to sort by; leave it out"
        )
    x = operand(x)
    if axis is None:
        return reshape(x, shape=(-1,)), 0
    last = x.ndim - 1
    return x, last if axis == -1 and last >= 0 else normalize_axis(name, axis, x.ndim)


@sort.facade
def _(
    a: Any,
    axis: int | None = -1,
    kind: Any = None,
    order: None = None,
    *,
    descending: bool = False,
    stable: bool = True,
) -> Array:
    """Each row along an axis in order, or the flattened array; NaN is largest. Always stable."""
    a, axis = _rows("sort", a, axis, kind, order)
    return sort(a, axis=axis, descending=descending)


@argsort.facade
def _(
    a: Any,
    axis: int | None = -1,
    kind: Any = None,
    order: None = None,
    *,
    descending: bool = False,
    stable: bool = True,
) -> Array:
    """The positions that sort each row along an axis, or the flattened array; NaN is largest.

    Equal elements keep their order, whatever `kind` and `stable` say.
    """
    if axis in (0, -1) and not operand(a).ndim:
        axis = None  # NumPy allows these axes for a 0-d array
    a, axis = _rows("argsort", a, axis, kind, order)
    return argsort(a, axis=axis, descending=descending)


@op(public="np", method=True)
def argpartition(x: Any, *, kth: Any, axis: int) -> Any:
    """The positions that partition each row along an axis around its kth element."""
    return numpy().argpartition(x, kth, axis)


@argpartition.spec
def _(x: Spec, *, kth: Any, axis: int) -> Spec:
    extent = x.shape[normalize_axis("argpartition", axis, x.ndim)]
    some = type(x.size) is not int or x.size > 0  # for an empty array every kth is accepted
    for k in kth if some else ():
        if not -extent <= k < extent:
            raise ShapeError(f"argpartition: {x} has no element {k} along axis {axis}")
    return Spec(x.shape, int64)


@argpartition.facade
def _(
    a: Any, kth: Any, axis: int | None = -1, kind: str = "introselect", order: Any = None
) -> Array:
    """Positions along an axis, those of elements below the kth before its own, others behind.

    >>> np.argpartition(np.array([3, 1, 2]), 1)
    """
    a, axis = _rows("argpartition", a, axis, kind, order, PARTITIONS)
    return argpartition(a, kth=_places(kth), axis=axis)


def _places(kth: Any) -> tuple[int, ...]:
    """The positions given as one number, a list or an array, as a static parameter."""
    return wholes("argpartition", "kth", kth.tolist() if hasattr(kth, "tolist") else kth)


@function(public="np")
def partition(
    a: Any, kth: Any, axis: int | None = -1, kind: str = "introselect", order: Any = None
) -> Array:
    """Partition rows along an axis: the kth element in place, smaller ones before it.

    >>> np.partition(np.array([3, 1, 2]), 1)
    """
    a, axis = _rows("partition", a, axis, kind, order, PARTITIONS)
    return take_along_axis(a, argpartition(a, kth=_places(kth), axis=axis), axis=axis)


@function(public="npx")
def topk(
    data: Any,
    k: int = 1,
    axis: int | None = -1,
    ret_typ: str = "indices",
    is_ascend: bool = False,
    dtype: Any = "int64",
) -> Array | tuple[Any, ...]:
    """The k largest elements of each row along an axis (smallest with `is_ascend`), in order.

    `ret_typ`: their "indices" in `dtype`, their "value", "both" (values, then indices), or a
    "mask" that is one where they are. k of 0 means all.
    """
    check_flag("topk", "is_ascend", is_ascend)
    given, (data, axis) = operand(data).shape, _rows("topk", data, axis, None)
    extent = data.shape[axis]
    count = whole("topk", "k", k) or extent
    first = top_positions(data, axis=axis, descending=not is_ascend, count=count)
    if ret_typ == "indices":
        return cast(first, dtype=as_dtype(dtype))
    if ret_typ == "mask":
        ones = full(1, shape=first.shape, dtype=data.dtype)
        return reshape(add_along_axis(ones, first, axis=axis, extent=extent), shape=given)
    values = take_along_axis(data, first, axis=axis)
    if ret_typ == "value":
        return values
    if ret_typ == "both":
        return [values, cast(first, dtype=as_dtype(dtype))]
    raise unknown_name("ret_typ of topk", ret_typ, ("indices", "value", "both", "mask"))


# --- searching ------------------------------------------------------------------------------


@op(public="np", method=True)
def searchsorted(a: Any, v: Any, *, side: str) -> Any:
    """The positions at which to insert elements into a sorted 1-d array."""
    return numpy().searchsorted(a, v, side)


@searchsorted.spec
def _(a: Spec, v: Spec, *, side: str) -> Spec:
    if a.ndim != 1:
        raise ShapeError(f"searchsorted: {a} must have one dimension")
    if side not in ("left", "right"):
        raise unknown_name("side", side, ("left", "right"))
    return Spec(v.shape, int64)


@searchsorted.facade
def _(a: Any, v: Any, side: str = "left", sorter: Any = None) -> Array:
    """Where elements would be put into a sorted row: before ("left") or behind equal ones.

    `sorter` are the positions that sort the row, if it is not sorted itself.
    """
    a = operand(a, (v,))
    a = a if sorter is None else gather(a, sorter, axis=0)
    return searchsorted(a, operand(v, (a,)), side=side)


@op(public="np")
def digitize(x: Any, bins: Any, *, right: bool = False) -> Any:
    """The index of each element's bin, for ascending or descending edges.

    `right` says whether a bin holds its right edge instead of its left one.
    """
    return numpy().digitize(x, bins, right)


@digitize.spec
def _(x: Spec, bins: Spec, *, right: bool) -> Spec:
    if bins.ndim != 1:
        raise ShapeError(f"digitize: bins {bins} must have one dimension")
    return Spec(x.shape, int64)


# --- sets -----------------------------------------------------------------------------------


class UniqueAll(NamedTuple):
    """The result of `unique_all`."""

    values: Any
    indices: Any
    inverse_indices: Any
    counts: Any


class UniqueCounts(NamedTuple):
    """The result of `unique_counts`."""

    values: Any
    counts: Any


class UniqueInverse(NamedTuple):
    """The result of `unique_inverse`."""

    values: Any
    inverse_indices: Any


@op(dynamic=True, public="np", mxnet="_npi_unique", complex=True)
def unique(x: Any, *, more: bool = True, axis: Any = None, equal_nan: bool = True) -> Any:
    """The distinct elements; with `more` also first positions, inverse positions and counts.

    Its shape depends on values: the call waits for x, and it cannot be part of a trace.
    """
    axis = None if axis is None else normalize_axis("unique", axis, x.ndim)
    return numpy().unique(x, more, more, more, axis, equal_nan=equal_nan)


@unique.facade
def _(
    ar: Any,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
    sorted: bool = True,
) -> Any:
    """The distinct elements (slices along an axis) in order. Waits for them.

    Asked for more, a tuple: where each is first, where they stand in the array, and how many.
    """
    asked = (return_index, return_inverse, return_counts)
    if not any(asked):
        return _distinct(operand(ar), axis, equal_nan)
    values, *more = unique(operand(ar), axis=axis, equal_nan=equal_nan)
    return (values, *(found for found, wanted in zip(more, asked, strict=True) if wanted))


def _distinct(x: Any, axis: int | None = None, equal_nan: bool = True) -> Any:
    """The distinct elements only: after sorting, those that differ from the one before."""
    if axis is not None or x.dtype.kind == "c" or not isinstance(x, _core.Array):
        return unique(x, more=False, axis=axis, equal_nan=equal_nan)
    row = sort(reshape(x, shape=(-1,)), axis=0, descending=False)
    if row.size < 2:
        return row
    differs = row[:-1] != row[1:]
    if equal_nan and row.dtype.kind == "f":
        differs = differs & (row[:-1] == row[:-1])  # after a NaN there are only more NaNs
    return concatenate(row[:1], row[1:][differs], axis=0)


@function(public="np")
def unique_all(x: Any) -> UniqueAll:
    """The distinct elements, where each is first, where they stand in x, how many there are.

    NaNs are distinct. Waits for x.
    """
    return UniqueAll(*unique(operand(x), equal_nan=False))


@function(public="np")
def unique_counts(x: Any) -> UniqueCounts:
    """The distinct elements and how many of each there are. NaNs are distinct. Waits for x."""
    found = unique_all(x)
    return UniqueCounts(found.values, found.counts)


@function(public="np")
def unique_inverse(x: Any) -> UniqueInverse:
    """The distinct elements and where they stand in x. NaNs are distinct. Waits for x."""
    found = unique_all(x)
    return UniqueInverse(found.values, found.inverse_indices)


@function(public="np")
def unique_values(x: Any) -> Array:
    """The distinct elements in order. NaNs are distinct. Waits for x."""
    return _distinct(operand(x), equal_nan=False)


@op(public="np", complex=True)
def isin(element: Any, test_elements: Any) -> Any:
    """Whether each element is one of `test_elements`."""
    return numpy().isin(element, test_elements)


@isin.spec
def _(element: Spec, test_elements: Spec) -> Spec:
    return Spec(element.shape, bool_)


@isin.facade
def _(
    element: Any,
    test_elements: Any,
    assume_unique: bool = False,
    invert: bool = False,
    *,
    kind: Any = None,
) -> Array:
    """Whether each element is one of `test_elements`, or with `invert` none of them."""
    found = isin(*operands((element, test_elements)))
    return logical_not(found) if invert else found


@function(public="np")
@beside_arrays
def in1d(ar1: Any, ar2: Any, assume_unique: bool = False, invert: bool = False) -> Array:
    """`isin` of the flattened array.

    >>> np.in1d(np.array([[1, 2], [3, 4]]), [2, 4])
    """
    ar1 = reshape(operand(ar1), shape=(-1,))
    return isin.face(ar1, ar2, assume_unique=assume_unique, invert=invert)


@function(public="np")
def msort(a: Any) -> Array:
    """Sort along the first axis: `sort` with `axis=0`.

    >>> np.msort(np.array([[3, 1], [2, 4]]))
    """
    return sort(operand(a), axis=0)


def _as_sets(a: Any, b: Any, unique_already: bool) -> tuple[Any, Any]:
    """Two arrays flattened, in their common dtype, and without repetition."""
    rows = [reshape(x, shape=(-1,)) for x in operands((a, b))]
    dtype = promote_specs(*(Spec(x.shape, x.dtype) for x in rows))
    rows = [cast(x, dtype=dtype) for x in rows]
    return tuple(x if unique_already else _distinct(x) for x in rows)


@function(public="np")
@beside_arrays
def intersect1d(
    ar1: Any, ar2: Any, assume_unique: bool = False, return_indices: bool = False
) -> Any:
    """The elements in both arrays, in order. Waits for them.

    With `return_indices` also the first position of each in both arrays.
    """
    if return_indices:
        (a, first), (b, second) = (unique(row)[:2] for row in _as_sets(ar1, ar2, True))
        common, other = isin(a, b), isin(b, a)
        return tuple(map(boolean_index, (a, first, second), (common, common, other)))
    a, b = _as_sets(ar1, ar2, assume_unique)
    return sort(boolean_index(a, isin(a, b)))


@function(public="np")
@beside_arrays
def union1d(ar1: Any, ar2: Any) -> Array:
    """The elements in either of two arrays, in order. Waits for them."""
    return _distinct(concatenate(*_as_sets(ar1, ar2, True), axis=0))


@function(public="np")
@beside_arrays
def setdiff1d(ar1: Any, ar2: Any, assume_unique: bool = False) -> Array:
    """The elements in the first array but not in the second, in order. Waits for them."""
    a = reshape(operand(ar1), shape=(-1,)) if assume_unique else _distinct(operand(ar1))
    return boolean_index(a, logical_not(isin(*operands((a, ar2)))))  # a common dtype may round


@function(public="np")
@beside_arrays
def setxor1d(ar1: Any, ar2: Any, assume_unique: bool = False) -> Array:
    """The elements in exactly one of two arrays, in order. Waits for them."""
    a, b = _as_sets(ar1, ar2, assume_unique)
    alone = [boolean_index(x, logical_not(isin(x, y))) for x, y in ((a, b), (b, a))]
    return sort(concatenate(*alone, axis=0))

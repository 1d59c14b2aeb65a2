"""Indices and grids: open and dense meshes, joined rows, all positions of an array."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product as positions
from typing import Any

from gemel.device import beside, beside_arrays
from gemel.errors import ArgumentError, OperandError, ShapeError
from gemel.extent import NUMBER
from gemel.ir.public import Array, function
from gemel.np.creation import arange, asarray, linspace, ones
from gemel.np.queries import shape as shape_of
from gemel.ops.arrange import broadcast_shapes, meshgrid
from gemel.ops.logic import equal
from gemel.ops.selection import take_along_axis
from gemel.ops.shape import broadcast_to, concatenate, operand, operands, reshape, stack
from gemel.ops.sorting import argsort
from gemel.spec import normalize_axis


def _line(item: slice) -> Any:
    """The numbers start:stop:step; an imaginary step is their count, with stop included."""
    start = 0 if item.start is None else item.start
    if item.stop is None:
        raise ArgumentError("a slice of a grid needs a stop")
    if isinstance(item.step, complex):
        return linspace(start, item.stop, int(abs(item.step)))
    return arange(start, item.stop, 1 if item.step is None else item.step)


def _filled(key: Any) -> Any:
    if isinstance(key, slice):
        return _line(key)
    return stack(meshgrid(*map(_line, key), indexing="ij"))


def _open(key: Any) -> Any:
    if isinstance(key, slice):
        return _line(key)
    return tuple(meshgrid(*map(_line, key), indexing="ij", sparse=True))


def _pieces(key: Any) -> list[Any]:
    items = key if isinstance(key, tuple) else (key,)
    if any(isinstance(item, str) for item in items):
        raise OperandError(
            "r_ and c_ accept slices, numbers and arrays; otherwise use np.concatenate"
        )
    with beside(None, items):
        return operands([_line(item) if isinstance(item, slice) else item for item in items])


def _in_a_row(key: Any) -> Any:
    parts = [reshape(x, shape=(1,)) if x.ndim == 0 else x for x in _pieces(key)]
    return concatenate(*parts, axis=0)


def _in_columns(key: Any) -> Any:
    parts = [reshape(x, shape=(-1, 1)) if x.ndim < 2 else x for x in _pieces(key)]
    return concatenate(*parts, axis=-1)


@function(public="np")
class mgrid:  # noqa: N801 -- NumPy's name
    """A mesh: ``np.mgrid[0:2, 0:3]`` has the coordinates of all points of 2 by 3."""

    def __class_getitem__(cls, key: Any) -> Any:
        return _filled(key)


@function(public="np")
class ogrid:  # noqa: N801 -- NumPy's name
    """An open mesh: ``np.ogrid[0:2, 0:3]`` is a column and a row."""

    def __class_getitem__(cls, key: Any) -> Any:
        return _open(key)


@function(public="np")
class r_:  # noqa: N801 -- NumPy's name
    """Concatenate slices, numbers and arrays: ``np.r_[0:3, 5]``."""

    def __class_getitem__(cls, key: Any) -> Any:
        return _in_a_row(key)


@function(public="np")
class c_:  # noqa: N801 -- NumPy's name
    """Stack 1-d arrays as the columns of a matrix: ``np.c_[np.arange(3), np.arange(3)]``."""

    def __class_getitem__(cls, key: Any) -> Any:
        return _in_columns(key)


@function(public="np")
class s_:  # noqa: N801 -- NumPy's name
    """The index itself: ``x[np.s_[1:3, ::2]]``."""

    def __class_getitem__(cls, key: Any) -> Any:
        return key


@function(public="np")
class index_exp:  # noqa: N801 -- NumPy's name
    """The index as a tuple: ``x[np.index_exp[1:3]]``."""

    def __class_getitem__(cls, key: Any) -> Any:
        return key if isinstance(key, tuple) else (key,)


@function(public="np")
@beside_arrays
def ix_(*args: Any) -> tuple[Any, ...]:
    """Index arrays that select all combinations of positions: `x[np.ix_([0, 1], [2, 3])]`.

    A bool array stands for the positions of its true elements. Raises `ShapeError` unless every
    argument has one dimension.

    >>> np.ix_([0, 1], [2, 3])
    """
    found = []
    for place, given in enumerate(args):
        row = operand(given)
        if row.ndim != 1:
            raise ShapeError(f"ix_: {list(row.shape)}: its arguments must have one dimension")
        if row.dtype == "bool":
            (row,) = row.nonzero()
        elif not row.shape[0]:
            row = row.astype("int64")
        found.append(reshape(row, shape=tuple(-1 if i == place else 1 for i in range(len(args)))))
    return tuple(found)


@function(public="np")
def mask_indices(n: int, mask_func: Callable[..., Any], k: Any = 0) -> tuple[Any, ...]:
    """The positions in a square matrix that a function like `triu` keeps.

    >>> np.mask_indices(2, np.triu)
    """
    found: tuple[Any, ...] = mask_func(ones((n, n), "int64"), k).nonzero()
    return found


@function(public="np")
def ndindex(*shape: Any) -> Iterator[tuple[int, ...]]:
    """All positions of an array of this shape, in order.

    >>> list(np.ndindex(2, 2))
    """
    extents = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
    return positions(*map(range, extents))


@function(public="np")
def ndenumerate(arr: Any) -> Iterator[tuple[tuple[int, ...], Any]]:
    """All positions of an array with the numbers there. Waits for the array.

    >>> list(np.ndenumerate(np.array([[1, 2]])))
    """
    arr = asarray(arr)
    values = reshape(arr, shape=(-1,)).tolist()
    return zip(ndindex(*arr.shape), values, strict=True)


@function(public="np")
class broadcast:  # noqa: N801 -- NumPy's name
    """Broadcast arrays together: gives their common shape, and iterates over tuples of elements.

    >>> np.broadcast(np.ones((2, 1)), np.ones((3,))).shape
    """

    def __init__(self, *arrays: Any) -> None:
        self._arrays = operands(arrays)
        self.shape: tuple[int, ...] = broadcast_shapes(*(x.shape for x in self._arrays))
        self.nd = self.ndim = len(self.shape)
        self.numiter = len(arrays)
        self.size = 1
        for extent in self.shape:
            self.size *= extent

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        spread = (broadcast_to(x, shape=self.shape) for x in self._arrays)
        return zip(*(x.reshape(-1).tolist() for x in spread), strict=True)


@function(public="np")
@beside_arrays
def array_equiv(a1: Any, a2: Any) -> bool:
    """Whether two arrays are equal after broadcasting. Waits for both.

    >>> np.array_equiv([1, 1], [[1, 1], [1, 1]])
    """
    try:
        broadcast_shapes(shape_of(a1), shape_of(a2))
    except ValueError:
        return False
    return bool(equal(a1, a2).all())


@function(public="np")
@beside_arrays
def lexsort(keys: Any, axis: int = -1) -> Array:
    """The positions that sort by the last key, then by the key before it, and so on.

    >>> np.lexsort(([3, 1, 2], [0, 0, -1]))
    """
    rows = operands(keys)
    if not rows:
        raise ShapeError("lexsort: needs at least one key")
    axis = normalize_axis("lexsort", axis, rows[0].ndim)
    order = argsort(rows[0], axis=axis, descending=False)
    for row in rows[1:]:
        sorted_so_far = take_along_axis(row, order, axis=axis)
        places = argsort(sorted_so_far, axis=axis, descending=False)
        order = take_along_axis(order, places, axis=axis)
    return order


@function(public="np")
def iterable(y: Any) -> bool:
    """Whether something can be iterated over; a 0-d array cannot.

    >>> np.iterable([1, 2])
    """
    if isinstance(y, NUMBER):
        return False
    try:
        iter(y)
    except TypeError:
        return False
    return True


@function(public="np")
def require(a: Any, dtype: Any = None, requirements: str | Sequence[str] | None = None) -> Array:
    """The array in a dtype and, if "C" is among the requirements, with its elements in C order.

    All gemel arrays are writable and own their elements, so these requirements always hold. Raises
    `ValueError` for "F": gemel makes no arrays in Fortran order.

    >>> np.require(np.arange(3), "float32", "C")
    """
    wanted = {each[0].upper() for each in requirements or ()}
    found = asarray(a, dtype)
    if "F" in wanted and not getattr(found, "flags", {"F": False})["F"]:
        raise ArgumentError("require: gemel arrays have C order, not 'F'")
    dense = "C" not in wanted or getattr(found, "_is_contiguous", True)  # symbols have no strides
    return found if dense else found.copy()

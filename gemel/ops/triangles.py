"""Diagonals, and the triangles below or above them."""

from __future__ import annotations

from typing import Any

from gemel.device import as_device, beside_arrays
from gemel.dtype import as_dtype, default_float
from gemel.errors import OperandError, ShapeError
from gemel.extent import NUMBER
from gemel.ir.above import above
from gemel.ir.declare import composite
from gemel.ir.keywords import into
from gemel.ir.public import Array, function
from gemel.ir.reference import numpy
from gemel.ops.arrange import moved
from gemel.ops.assignment import contents
from gemel.ops.elementwise import cast, distance, full, iota, where
from gemel.ops.indexing import basic_index, place
from gemel.ops.reduction import sum
from gemel.ops.shape import operand, reshape, transpose
from gemel.ops.writing import repeated
from gemel.spec import Spec, extents, whole


def matrices(name: str, x: Spec) -> Spec:
    """The spec of an array whose last two axes are matrices. Raises `ShapeError`."""
    if x.ndim < 2:
        raise ShapeError(f"{name}: {x} has {x.ndim} dimensions; a matrix has two")
    return Spec(x.shape, x.dtype)


def squared(x: Spec) -> Spec:
    """For a 1-d array, the square matrix that repeats it in each row (as NumPy does); else x."""
    return Spec(x.shape * 2, x.dtype) if x.ndim == 1 else x


@composite(public="np", onnx="Trilu", mxnet="_npi_tril")
def tril(x: Any, *, k: int = 0) -> Any:
    """The lower triangles: elements above diagonal k become zero."""
    return where(distance(*(x.shape * 2)[-2:]) <= k, x, full(0, shape=(), dtype=x.dtype))


@composite(public="np", onnx="Trilu", mxnet="_npi_triu")
def triu(x: Any, *, k: int = 0) -> Any:
    """The upper triangles: elements below diagonal k become zero."""
    return where(distance(*(x.shape * 2)[-2:]) >= k, x, full(0, shape=(), dtype=x.dtype))


def _check_offset(name: str, k: Any) -> None:
    if not isinstance(k, NUMBER):
        raise OperandError(f"{name}: k is {k!r}; it must be a number")


@tril.spec
def _(x: Spec, *, k: int) -> Spec:
    _check_offset("tril", k)
    return matrices("tril", squared(x))


@triu.spec
def _(x: Spec, *, k: int) -> Spec:
    _check_offset("triu", k)
    return matrices("triu", squared(x))


@function(public="np")
def tri(
    N: int,  # noqa: N803 -- NumPy's name
    M: int | None = None,  # noqa: N803
    k: int = 0,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
) -> Array:
    """Ones on and below diagonal k, zeros above.

    >>> np.tri(3)
    """
    with as_device(device or ctx):
        chosen = distance(*extents("tri", (N, N if M is None else M))) <= whole("tri", "k", k)
        return cast(chosen, dtype=as_dtype(dtype or default_float()))


# --- diagonals ------------------------------------------------------------------------------


def diagonal_key(rows: int, columns: int, offset: int) -> tuple[Any, ...]:
    """The canonical key of a diagonal in a flattened matrix."""
    offset = whole("diagonal", "the offset", offset)
    start = offset if offset >= 0 else -offset * columns
    count = min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns)
    return ("slice", start if count > 0 else 0, max(count, 0), columns + 1)


@function(public="np", method=True)
def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
    """The diagonal over two axes, as a last axis; `offset` counts to the right of the main one.

    A view if the two axes are the last ones and contiguous.
    """
    a = operand(a)
    matrices("diagonal", Spec(a.shape, a.dtype))
    a = transpose(a, axes=moved("diagonal", a.ndim, (axis1, axis2), (a.ndim - 2, a.ndim - 1)))
    *lead, rows, columns = a.shape
    flat = reshape(a, shape=(*lead, rows * columns))
    whole = (("slice", 0, n, 1) for n in lead)
    return basic_index(flat, key=(*whole, diagonal_key(rows, columns, offset)))


@function(public="np")
def diag(v: Any, k: int = 0) -> Array:
    """The diagonal of a matrix, or the matrix with this diagonal and zeros elsewhere."""
    v = operand(v)
    if v.ndim == 2:
        return diagonal(v, k)
    if v.ndim != 1:
        raise ShapeError(f"diag: an array of {v.ndim} dimensions; it must have one or two")
    extent = v.shape[0] + abs(whole("diag", "k", k))
    flat = place(v, key=(diagonal_key(extent, extent, k),), shape=(extent * extent,))
    return reshape(flat, shape=(extent, extent))


@function(public="np")
def diagflat(v: Any, k: int = 0) -> Array:
    """The matrix with all elements of an array on diagonal k."""
    return diag(reshape(operand(v), shape=(-1,)), k)


@function(public="np", method=True)
def trace(
    a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: Any = None
) -> Array:
    """The sum of a diagonal over two axes."""
    found = diagonal(a, offset, axis1, axis2)
    return into("trace", out, sum(found, -1, dtype))


@function(public="np")
@beside_arrays
def fill_diagonal(a: Any, val: Any, wrap: bool = False) -> None:
    """Write into the main diagonal of a matrix, or of an array with more axes.

    Several values are repeated as needed. With `wrap` the diagonal of a tall matrix starts again
    after one row is skipped.

    >>> x = np.zeros((2, 2))
    >>> np.fill_diagonal(x, 5)
    >>> x
    """
    if not hasattr(a, "ndim"):
        raise OperandError(
            f"fill_diagonal: it fills a gemel array in place, not {type(a).__name__} {a!r}"
        )
    if a.ndim < 2 or a.ndim > 2 and len(set(a.shape)) > 1:
        raise ShapeError(
            f"fill_diagonal: {list(a.shape)} is neither a matrix nor has axes of equal length"
        )
    if wrap and a.ndim == 2:
        step = a.shape[1] + 1
        at = iota(shape=(-(-a.shape[0] * a.shape[1] // step),), axis=0, dtype="int64") * step
        places = (at // a.shape[1], at % a.shape[1])
    else:
        at = iota(shape=(min(a.shape),), axis=0, dtype="int64")
        places = (at,) * a.ndim
    values = reshape(contents("fill_diagonal", val, a), shape=(-1,))
    if values.shape[0] == 0:
        return
    a[places] = repeated(values, at.shape[0])


@function(public="np")
def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Any, ...]:
    """The rows and columns of the elements on and below diagonal k of a matrix."""
    return _positions("tril_indices", n, k, m)


@function(public="np")
def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Any, ...]:
    """The rows and columns of the elements on and above diagonal k of a matrix."""
    return _positions("triu_indices", n, k, m)


@function(public="np")
def diag_indices(n: int, ndim: int = 2) -> tuple[Any, ...]:
    """The positions of the main diagonal of an array with `ndim` axes of n."""
    return (iota(shape=(n,), axis=0, dtype="int64"),) * ndim


@function(public="np")
@beside_arrays
def tril_indices_from(arr: Any, k: int = 0) -> tuple[Any, ...]:
    """The rows and columns of the elements on and below diagonal k of this matrix."""
    rows, columns = _sides("tril_indices_from", arr)
    return tril_indices(rows, k, columns)


@function(public="np")
@beside_arrays
def triu_indices_from(arr: Any, k: int = 0) -> tuple[Any, ...]:
    """The rows and columns of the elements on and above diagonal k of this matrix."""
    rows, columns = _sides("triu_indices_from", arr)
    return triu_indices(rows, k, columns)


@function(public="np")
@beside_arrays
def diag_indices_from(arr: Any) -> tuple[Any, ...]:
    """The positions of the main diagonal of this array, whose axes have equal length."""
    arr = operand(arr)
    if len(set(arr.shape)) != 1 or len(arr.shape) < 2:
        raise ShapeError(
            f"diag_indices_from: the axes of {list(arr.shape)} do not all have the same length"
        )
    return diag_indices(arr.shape[0], len(arr.shape))


def _sides(name: str, arr: Any) -> tuple[int, int]:
    arr = operand(arr)
    if arr.ndim != 2:
        raise ShapeError(f"{name}: {list(arr.shape)} is not a matrix")
    return arr.shape[0], arr.shape[1]


def _positions(name: str, n: Any, k: Any, m: Any) -> tuple[Any, ...]:
    rows, k = whole(name, "n", n), whole(name, "k", k)
    columns = rows if m is None else whole(name, "m", m)
    lower = name.startswith("tril")
    chosen = numpy().tri(rows, columns, k if lower else k - 1, bool) == lower
    return tuple(above.from_numpy(found) for found in chosen.nonzero())

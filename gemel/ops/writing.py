"""Functions that write into a given array: `copyto`, `put`, `place`, `putmask`."""

from __future__ import annotations

from typing import Any

from gemel.device import beside_arrays
from gemel.errors import ArgumentError, ShapeError, unknown_name
from gemel.ir.graph import is_number
from gemel.ir.keywords import fits
from gemel.ir.public import function
from gemel.ops.assignment import contents
from gemel.ops.cumulative import cumsum
from gemel.ops.elementwise import cast, copy, iota, limit, subtract
from gemel.ops.elementwise import where as chosen
from gemel.ops.indexing import gather
from gemel.ops.shape import operand, reshape
from gemel.spec import Spec, product, promote_specs


@function(public="np")
@beside_arrays
def copyto(dst: Any, src: Any, casting: str = "same_kind", where: Any = True) -> None:
    """Write one array into another, with broadcasting; only where `where` holds.

    Raises `DTypeError` for what `casting` does not allow, `ShapeError` for what does not fit.

    >>> x = np.zeros((2, 2))
    >>> np.copyto(x, np.array([1.0, 2.0]))
    >>> x
    """
    given = operand(src, (dst,))
    dtype = given.dtype
    if is_number(src) and hasattr(dst, "dtype"):  # a number adapts to the array's dtype
        dtype = promote_specs(Spec((), dst.dtype), Spec((), dtype, weak=True))
    fits("copyto", dst, given.shape, dtype, casting)
    written = contents("copyto", src, dst)
    dst[...] = written if where is True else chosen(operand(where), written, dst)


@function(public="np")
@beside_arrays
def put(a: Any, ind: Any, v: Any, mode: str = "raise") -> None:
    """Write values at positions of the flattened array; the values are repeated as needed.

    `mode` is ``"raise"``, ``"clip"`` or ``"wrap"`` for positions out of range.

    >>> x = np.zeros((2, 2))
    >>> np.put(x, [0, 3], [5, 6])
    >>> x
    """
    if mode not in ("raise", "clip", "wrap"):
        raise unknown_name("mode of put", mode, ("raise", "clip", "wrap"))
    at, values = (reshape(x, shape=(-1,)) for x in (operand(ind), contents("put", v, a)))
    size = product(a.shape)
    if at.shape[0] == 0 or values.shape[0] == 0:
        return
    at = cast(at, dtype="int64")
    if mode != "raise":
        at = limit(at, 0, size - 1) if mode == "clip" else at % size
    row = copy(reshape(a, shape=(-1,)))
    row[at] = repeated(values, at.shape[0])
    a[...] = reshape(row, shape=tuple(a.shape))


def repeated(values: Any, count: Any) -> Any:
    """`count` values, repeated from the first one when they run out."""
    at = iota(shape=(count,), axis=0, dtype="int64") % values.shape[0]
    return gather(values, at, axis=0)


@function(public="np")
@beside_arrays
def putmask(a: Any, mask: Any, values: Any) -> None:
    """Where the mask holds, write the value at the same position; values are repeated to a's size.

    >>> x = np.arange(4)
    >>> np.putmask(x, x > 1, [7, 8])
    >>> x
    """
    mask, values = operand(mask), reshape(contents("putmask", values, a), shape=(-1,))
    if tuple(mask.shape) != tuple(a.shape):
        raise ShapeError(f"putmask: a mask of {list(mask.shape)} for {list(a.shape)}")
    if values.shape[0] == 0:
        return
    whole = reshape(repeated(values, product(a.shape)), shape=tuple(a.shape))
    a[...] = chosen(cast(mask, dtype="bool"), whole, a)


@function(public="np")
@beside_arrays
def place(arr: Any, mask: Any, vals: Any) -> None:
    """Where the mask holds, write the values one after another, repeated as needed.

    >>> x = np.arange(4)
    >>> np.place(x, x > 1, [7, 8])
    >>> x
    """
    mask, values = operand(mask), reshape(contents("place", vals, arr), shape=(-1,))
    if product(mask.shape) != product(arr.shape):
        raise ShapeError(f"place: a mask of {list(mask.shape)} for {list(arr.shape)}")
    if values.shape[0] == 0:
        raise ArgumentError("place: vals is empty")
    mask = reshape(cast(mask, dtype="bool"), shape=(-1,))
    number = subtract(cumsum(mask, axis=0), 1) % values.shape[0]
    written = reshape(gather(values, number, axis=0), shape=tuple(arr.shape))
    mask = reshape(mask, shape=tuple(arr.shape))
    arr[...] = chosen(mask, written, arr)


__all__ = ["copyto", "place", "put", "putmask", "repeated"]

"""`np.linalg`: linear algebra.

An operation or function is public here if its declaration says so (``public="np.linalg"``, see
`gemel.ir.public`). `linalg.pyi`, which `make stubs` writes, lists all of them for type checkers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from gemel.device import beside_arrays
from gemel.errors import ShapeError
from gemel.ir.keywords import into
from gemel.ir.public import NAMESPACES, Array, function, lookup, publish
from gemel.ops import arrange, linalg, products, triangles
from gemel.ops.shape import operands, reshape
from gemel.spec import normalize_axis

for _operation in (linalg.matmul, products.vecdot, products.tensordot, arrange.matrix_transpose):
    publish(_operation, _operation.__name__, "np.linalg")


@function(public="np.linalg")
def diagonal(x: Any, *, offset: int = 0) -> Array:
    """The diagonal of each matrix; `offset` counts to the right of the main one."""
    return triangles.diagonal(x, offset, -2, -1)


@function(public="np.linalg")
def trace(x: Any, *, offset: int = 0, dtype: Any = None) -> Array:
    """The sum of each matrix's diagonal."""
    return triangles.trace(x, offset, -2, -1, dtype)


@function(public="np.linalg")
@beside_arrays
def outer(x1: Any, x2: Any) -> Array:
    """Each element of one 1-d array with each of another. Raises `ShapeError` for other arrays."""
    a, b = operands((x1, x2))
    if a.ndim != 1 or b.ndim != 1:
        raise ShapeError(f"outer: {list(a.shape)} and {list(b.shape)} must have one dimension")
    return products.outer(a, b)


@function(public="np.linalg")
@beside_arrays
def cross(x1: Any, x2: Any, *, axis: int = -1) -> Array:
    """The cross product of vectors of three elements along an axis."""
    a, b = operands((x1, x2))
    lengths = [x.shape[normalize_axis("cross", axis, x.ndim)] for x in (a, b)]
    if not lengths[0] == lengths[1] == 3:
        raise ShapeError(
            f"cross: {list(a.shape)} and {list(b.shape)} must have 3 along axis {axis}"
        )
    return products.cross(a, b, axis=axis)


@function(public="np.linalg")
@beside_arrays
def multi_dot(arrays: Sequence[Any], *, out: Any = None) -> Array:
    """The product of several matrices, in the order with the fewest multiplications; the first and
    the last may be vectors."""
    found = operands(arrays)
    if len(found) < 2:
        raise ShapeError(f"multi_dot: {len(found)} arrays; it needs two or more")
    row, column = found[0].ndim == 1, found[-1].ndim == 1
    found[0] = reshape(found[0], shape=(1, -1)) if row else found[0]
    found[-1] = reshape(found[-1], shape=(-1, 1)) if column else found[-1]
    if any(x.ndim != 2 for x in found):
        raise ShapeError("multi_dot: all but the first and last array must have two dimensions")
    sizes = [int(found[0].shape[0]), *(int(x.shape[1]) for x in found)]

    @cache
    def best(first: int, last: int) -> tuple[int, int]:
        """The least multiplications for the product of first to last, and where to split it."""
        if first == last:
            return 0, first
        ways = (
            (
                best(first, k)[0]
                + best(k + 1, last)[0]
                + sizes[first] * sizes[k + 1] * sizes[last + 1],
                k,
            )
            for k in range(first, last)
        )
        return min(ways)

    def joined(first: int, last: int) -> Any:
        if first == last:
            return found[first]
        k = best(first, last)[1]
        return linalg.matmul(joined(first, k), joined(k + 1, last))

    total = joined(0, len(found) - 1)
    shape = (total.shape[0],) * (not row) + (total.shape[1],) * (not column)
    return into("multi_dot", out, reshape(total, shape=shape))


globals().update(NAMESPACES["np.linalg"])


def __getattr__(name: str) -> Any:
    return lookup(name, __name__, globals(), {}, numpys=("LinAlgError",))


def __dir__() -> list[str]:
    return __getattr__("__all__")  # type: ignore[no-any-return]

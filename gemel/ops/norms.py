"""Norms of vectors and matrices."""

from __future__ import annotations

from math import inf
from typing import Any

from gemel.errors import ShapeError, unknown_name
from gemel.ir.declare import composite
from gemel.ir.public import Array, function
from gemel.ops.arrange import moveaxis
from gemel.ops.decomposing import svdvals
from gemel.ops.elementwise import absolute, cast, divide, multiply, power, where
from gemel.ops.logic import equal, isnan, logical_and, logical_not, not_equal
from gemel.ops.reduction import any as some
from gemel.ops.reduction import averaged, floating, max, min, squared_size, sum, widened
from gemel.ops.shape import expand_dims, listed, operand, reshape
from gemel.ops.solving import inv_or_nan
from gemel.ops.variance import root
from gemel.spec import Spec, normalize_axes, normalize_axis


def largest(x: Any, *, axis: Any, keepdims: bool = False) -> Any:
    """The largest of some sizes, or 0 if there are none."""
    empty = any(x.shape[a] == 0 for a in normalize_axes("norm", axis, x.ndim))
    return (sum if empty else max)(x, axis=axis, keepdims=keepdims)


@composite(public="np.linalg", mxnet="_npi_norm")
def vector_norm(x: Any, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:
    """The norm of vectors along the given axes, or all: sum(|x|^ord)^(1/ord), also for +-inf and 0.

    At a vector of zeros the gradient is 0. So is it at elements that are 0 if ord is below 1.
    """
    x = floating(x)
    dtype, where_ = x.dtype.real, {"axis": axis, "keepdims": keepdims}
    x = widened(x)
    if ord is None or ord == 2:
        found = root(sum(squared_size(x), **where_))
    elif ord == inf or ord == -inf:
        found = (largest if ord > 0 else min)(absolute(x), **where_)
    elif ord == 0:
        found = sum(cast(not_equal(x, 0), dtype=dtype), **where_)
    elif ord == 1:
        found = sum(absolute(x), **where_)
    else:
        found = _power_norm(absolute(x), ord, where_)
    return cast(found, dtype=dtype)


def _power_norm(sizes: Any, ord: Any, where_: dict[str, Any]) -> Any:
    """sum(sizes^ord)^(1/ord). Powers with infinite slopes at 0 are not taken of 0."""
    if ord > 1:
        terms = power(sizes, ord)
    else:
        zero = equal(sizes, 0)
        terms = where(zero, 0 if ord > 0 else inf, power(where(zero, 1, sizes), ord))
    total = sum(terms, **where_)
    if ord < 0:
        return power(total, 1 / ord)
    none = equal(total, 0)
    return where(none, 0, power(where(none, 1, total), 1 / ord))


@vector_norm.spec
def _(x: Spec, *, axis: Any, keepdims: bool, ord: Any) -> Spec:
    if ord is not None and not isinstance(ord, (int, float)):
        raise unknown_name("order of a vector's norm", ord, ("a number", "inf", "-inf"))
    return averaged("vector_norm", x, axis, keepdims)


@function(public="np.linalg")
def matrix_norm(x: Any, *, keepdims: bool = False, ord: Any = "fro") -> Array:
    """The norm of matrices: Frobenius' ("fro"), of the rows or columns (+-inf, +-1), or of the
    singular values (+-2, and their sum "nuc")."""
    x = operand(x)
    if x.ndim < 2:
        raise ShapeError(f"matrix_norm: {list(x.shape)} has {x.ndim} dimensions; a matrix has two")
    if ord == "fro":
        return vector_norm(x, axis=(-2, -1), keepdims=keepdims)
    if ord in (1, -1, inf, -inf):
        lines = vector_norm(x, axis=-2 if ord in (1, -1) else -1, ord=1)
        found = (largest if ord > 0 else min)(lines, axis=-1)
    elif ord in (2, -2, "nuc"):
        values = svdvals(x)
        found = (sum if ord == "nuc" else largest if ord == 2 else min)(values, axis=-1)
    else:
        known = ("fro", "nuc", "1", "-1", "2", "-2", "inf", "-inf")
        raise unknown_name("order of a matrix's norm", ord, known)
    return reshape(found, shape=(*found.shape, 1, 1)) if keepdims else found


@function(public="np.linalg")
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Array:
    """The norm of vectors (one axis), of matrices (two), or by default of all elements.

    Without an order it is the square root of the sum of squares, of any axes.
    """
    x = operand(x)
    if ord is None:
        return vector_norm(x, axis=axis, keepdims=keepdims)
    axes = tuple(range(x.ndim)) if axis is None else listed(axis)
    if len(axes) == 1:
        return vector_norm(x, axis=axes[0], keepdims=keepdims, ord=ord)
    if len(axes) != 2:
        raise ShapeError(
            f"norm: {list(x.shape)}: order {ord!r} is for vectors or matrices; give axis"
        )
    rows, columns = (normalize_axis("norm", a, x.ndim) for a in axes)
    found = matrix_norm(moveaxis(x, (rows, columns), (-2, -1)), ord=ord)
    for place in sorted((rows, columns)) if keepdims else ():
        found = expand_dims(found, place)
    return found


@function(public="np.linalg")
def cond(x: Any, p: Any = None) -> Array:
    """The condition number of a matrix: its norm times that of its inverse.

    inf for a singular matrix; NaN for one with NaN.
    """
    x = operand(x)
    if any(n == 0 for n in x.shape[-2:]):
        raise ShapeError(
            f"cond: {list(x.shape)}: the condition number of an empty matrix is undefined"
        )
    if p in (None, 2, -2):
        values = svdvals(x)
        first, last = (-1, 0) if p == -2 else (0, -1)
        above, below = values[..., first], values[..., last]
        found = divide(above, below)
    else:
        found = multiply(matrix_norm(x, ord=p), matrix_norm(inv_or_nan(x), ord=p))
    known = logical_not(some(isnan(x), axis=(-2, -1)))
    return where(logical_and(isnan(found), known), inf, found)

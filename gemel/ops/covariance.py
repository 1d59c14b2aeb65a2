"""Covariances and correlations of variables."""

from __future__ import annotations

import builtins
from typing import Any

from gemel.device import beside_arrays
from gemel.errors import ShapeError
from gemel.ir.keywords import number
from gemel.ir.precision import as_written
from gemel.ir.public import Array, function
from gemel.ops.complexes import conjugated
from gemel.ops.elementwise import (
    absolute,
    cast,
    divide,
    full,
    limit,
    maximum,
    multiply,
    rint,
    sqrt,
    square,
    subtract,
)
from gemel.ops.linalg import matmul
from gemel.ops.random import required
from gemel.ops.reduction import floating, in_dtype, mean, sum, widened
from gemel.ops.shape import concatenate, operand, operands, reshape, transpose


@function(public="np")
@beside_arrays
@as_written
def cov(
    m: Any,
    y: Any = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: int | None = None,
    fweights: Any = None,
    aweights: Any = None,
    *,
    dtype: Any = None,
) -> Array:
    """The covariances of variables: rows of m (and y), or columns if not `rowvar`.

    Divided by the number of observations less `ddof` (1, or 0 if `bias`). `fweights` say how often
    an observation was made, `aweights` how much it counts.
    """
    x, own = _variables("cov", m, y, rowvar, dtype)
    lost = (0 if bias else 1) if ddof is None else number("cov", "ddof", ddof)
    weights = _weights(x, fweights, aweights)
    if weights is None:
        total: Any = x.shape[1]
        distance = subtract(x, mean(x, axis=1, keepdims=True))
        products = matmul(distance, transpose(conjugated(distance)))
        found = divide(products, builtins.max(total - lost, 0))
    else:
        total = sum(weights)
        center = divide(sum(multiply(x, weights), axis=1, keepdims=True), total)
        distance = subtract(x, center)
        products = matmul(multiply(distance, weights), transpose(conjugated(distance)))
        found = divide(products, maximum(_freedom(total, weights, aweights, lost), 0))
    return in_dtype(reshape(found, shape=()) if x.shape[0] == 1 else found, own)


def _variables(name: str, m: Any, y: Any, rowvar: bool, dtype: Any) -> tuple[Any, Any]:
    """One variable per row, in the dtype in which products are summed; and the result's dtype."""
    m, y = (operand(m), None) if y is None else operands((m, y))
    x = _rows_of(name, m, rowvar, dtype)
    if y is not None:  # a single row is one variable, whatever `rowvar` says
        row = rowvar or (y.ndim == 2 and y.shape[0] == 1)
        x = concatenate(x, _rows_of(name, y, row, dtype), axis=0)
    return widened(x), x.dtype


def _rows_of(name: str, m: Any, rowvar: bool, dtype: Any) -> Any:
    x = in_dtype(floating(m), dtype)
    if x.ndim > 2:
        raise ShapeError(
            f"{name}: {x.ndim} dimensions: it must have at most two, variables and observations"
        )
    if x.ndim < 2:
        return reshape(x, shape=(1, -1))
    return x if rowvar else transpose(x)


def _weights(x: Any, fweights: Any, aweights: Any) -> Any:
    """The weights of the observations, or None."""
    given = []
    for kind, weights in (("fweights", fweights), ("aweights", aweights)):
        if weights is None:
            continue
        each = cast(operand(weights, (x,)), dtype=x.dtype)
        if tuple(each.shape) != (x.shape[1],):
            raise ShapeError(
                f"cov: {kind} of shape {list(each.shape)} for {x.shape[1]} observations"
            )
        fits, rule = each >= 0, "0 or more"
        if kind == "fweights":
            fits, rule = fits & (rint(each) == each), "whole numbers of 0 or more"
        given.append(required(each, fits, message=f"cov: {kind} must be {rule}"))
    return (given[0] if len(given) == 1 else multiply(*given)) if given else None


def _freedom(total: Any, weights: Any, aweights: Any, ddof: float) -> Any:
    """The divisor of the weighted products."""
    if ddof == 0 or aweights is None:
        return subtract(total, ddof)
    inner = sum(multiply(weights, cast(operand(aweights, (weights,)), dtype=weights.dtype)))
    return subtract(total, divide(multiply(inner, ddof), total))


@function(public="np")
@beside_arrays
@as_written
def corrcoef(
    x: Any,
    y: Any = None,
    rowvar: bool = True,
    bias: Any = None,
    ddof: Any = None,
    *,
    dtype: Any = None,
) -> Array:
    """The correlations of variables: rows of x (and y), or columns if not `rowvar`.

    MXNet's `bias` and `ddof` have no effect.
    """
    variables, own = _variables("corrcoef", x, y, rowvar, dtype)
    distance = subtract(variables, mean(variables, axis=1, keepdims=True))
    size = absolute(distance) if distance.dtype.is_complex else distance
    unit = divide(distance, sqrt(sum(square(size), axis=1, keepdims=True)))
    found = matmul(unit, transpose(conjugated(unit)))
    found = found if found.dtype.is_complex else limit(found, -1.0, 1.0)
    if variables.shape[1] == 0:  # without observations the result is NaN; the products gave 0
        found = full(float("nan"), shape=found.shape, dtype=found.dtype)
    return in_dtype(reshape(found, shape=()) if variables.shape[0] == 1 else found, own)


__all__ = ["corrcoef", "cov"]

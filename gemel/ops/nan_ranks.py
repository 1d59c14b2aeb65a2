"""Order statistics that ignore NaN."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gemel.device import beside_arrays
from gemel.ir.declare import op
from gemel.ir.keywords import OUT, into
from gemel.ir.public import Array, function
from gemel.ir.reference import numpy
from gemel.ops.elementwise import add, cast, floor, maximum, minimum, multiply, subtract, where
from gemel.ops.logic import equal, isnan, logical_not
from gemel.ops.reduction import argmax, count, floating, mean, sum
from gemel.ops.selection import take_along_axis
from gemel.ops.shape import expand_dims, operand
from gemel.ops.sorting import sort
from gemel.ops.statistics import METHODS, RULES, placed, quantiles, weighted
from gemel.spec import Spec


def _between(rows: Any, weights: Any, shares: Sequence[float], method: str) -> list[Any]:
    """The quantiles of the elements of each row that are not NaN; NaN if all are NaN."""
    if weights is not None:
        return weighted(rows, where(isnan(rows), 0.0, weights), shares)[0]
    rows = sort(rows, axis=-1)  # NaN is last
    last = subtract(sum(cast(logical_not(isnan(rows)), dtype="float64"), axis=-1), 1)
    return [_at(rows, share, last, method) for share in shares]


def _at(rows: Any, share: float, last: Any, method: str) -> Any:
    end = maximum(last, 0)
    place = placed(method, end + 1, share)
    low = floor(maximum(minimum(place, end), 0))
    ends = (low, minimum(low + 1, end))
    first, second = (
        take_along_axis(rows, expand_dims(cast(each, dtype="int64"), -1), axis=rows.ndim - 1)[
            ..., 0
        ]
        for each in ends
    )
    weight = where(place < 0, 0.0, RULES[METHODS[method][2]](low, subtract(place, low)))
    weight = cast(weight, dtype=rows.dtype)
    between = add(multiply(first, 1 - weight), multiply(second, weight))
    found = where(equal(weight, 0), first, where(equal(weight, 1), second, between))
    return where(last < 0, float("nan"), found)


@function(public="np")
@beside_arrays
def nanquantile(
    a: Any,
    q: Any,
    axis: Any = None,
    out: Any = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: Any = None,
    interpolation: str | None = None,
) -> Array:
    """The q-quantile of the elements that are not NaN, see `quantile`; NaN if there are none.

    >>> np.nanquantile(np.array([1.0, float("nan"), 3.0]), 0.5)
    """
    found = quantiles(
        "nanquantile", a, (q, 1.0), axis, interpolation or method, keepdims, weights, _between
    )
    return into("nanquantile", out, found)


@function(public="np")
@beside_arrays
def nanpercentile(
    a: Any,
    q: Any,
    axis: Any = None,
    out: Any = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: Any = None,
    interpolation: str | None = None,
) -> Array:
    """The q-th percentile of the elements that are not NaN; see `nanquantile`.

    >>> np.nanpercentile(np.array([1.0, float("nan"), 3.0]), 50)
    """
    found = quantiles(
        "nanpercentile", a, (q, 100.0), axis, interpolation or method, keepdims, weights, _between
    )
    return into("nanpercentile", out, found)


@function(public="np")
@beside_arrays
def nanmedian(
    a: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, keepdims: bool = False
) -> Array:
    """The median of the elements that are not NaN; NaN if there are none.

    >>> np.nanmedian(np.array([[1.0, float("nan")], [3.0, 4.0]]), axis=1)
    """
    a = floating(operand(a))
    if not count(a, axis, "nanmedian"):
        return into("nanmedian", out, mean(a, axis=axis, keepdims=keepdims))
    found = quantiles("nanmedian", a, (0.5, 1.0), axis, "linear", keepdims, None, _between)
    return into("nanmedian", out, found)


@op(fails=True, public="np", common=OUT)
def nanargmax(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
    """Position of the largest element that is not NaN; `ValueError`, at the wait, where all are.

    >>> np.nanargmax(np.array([1.0, float("nan"), 3.0]))
    """
    return numpy().nanargmax(x, axis=axis, keepdims=keepdims)


@op(fails=True, public="np", common=OUT)
def nanargmin(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
    """Position of the smallest element that is not NaN; `ValueError`, at the wait, where all are.

    >>> np.nanargmin(np.array([1.0, float("nan"), 3.0]))
    """
    return numpy().nanargmin(x, axis=axis, keepdims=keepdims)


@nanargmax.spec
@nanargmin.spec
def _(x: Spec, *, axis: Any, keepdims: bool) -> Spec:
    return argmax.infer(x, axis=axis, keepdims=keepdims)[0]


__all__ = ["nanargmax", "nanargmin", "nanmedian", "nanpercentile", "nanquantile"]

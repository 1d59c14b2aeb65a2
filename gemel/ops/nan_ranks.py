"""Order statistics that leave NaN out."""

from __future__ import annotations

from typing import Any

from gemel.errors import ShapeError, unknown_name
from gemel.ir.declare import op
from gemel.ir.keywords import OUT, into
from gemel.ir.op import numpy
from gemel.ir.public import Array, function
from gemel.ops.elementwise import add, cast, floor, maximum, minimum, multiply, subtract, where
from gemel.ops.logic import equal, isnan, logical_not
from gemel.ops.reduction import argmax, count, floating, mean, sum
from gemel.ops.rounding import round
from gemel.ops.selection import take_along_axis
from gemel.ops.shape import operand, reshape, stack
from gemel.ops.sorting import sort
from gemel.ops.statistics import METHODS, as_rows, shares
from gemel.spec import Spec, normalize_axes


def _place(method: str, place: Any) -> tuple[Any, Any]:
    """The rank below a place between elements, and how much the next one counts."""
    low = floor(place)
    part = subtract(place, low)
    weights = {
        "linear": lambda: part,
        "lower": lambda: multiply(part, 0),
        "higher": lambda: where(part > 0, 1.0, 0.0),
        "midpoint": lambda: where(part > 0, 0.5, 0.0),
        "nearest": lambda: subtract(round(place), low),
    }
    return low, weights[method]()


def _quantile(name: str, x: Any, q: Any, axis: Any, method: str, keepdims: bool) -> Any:
    if method not in METHODS:
        raise unknown_name(f"method of {name}", method, tuple(METHODS))
    x = floating(operand(x))
    axes = normalize_axes(name, axis, x.ndim)
    rows, kept = as_rows(x, axes)
    if not rows.shape[-1]:
        raise ShapeError(f"{name}: {list(x.shape)}: nothing lies along axis {axis}")
    rows = sort(rows, axis=-1)  # NaN is last
    last = subtract(sum(cast(logical_not(isnan(rows)), dtype="float64"), axis=-1), 1)
    shape = tuple(1 if i in axes else n for i, n in enumerate(x.shape)) if keepdims else kept
    several = isinstance(q, list)
    found = [
        reshape(_between(rows, share, last, method), shape=shape)
        for share in (q if several else [q])
    ]
    return stack(found) if several else found[0]


def _between(rows: Any, share: float, last: Any, method: str) -> Any:
    low, weight = _place(method, multiply(maximum(last, 0), share))
    at = reshape(cast(low, dtype="int64"), shape=(*low.shape, 1))
    end = cast(reshape(maximum(last, 0), shape=at.shape), dtype="int64")
    ends = (at, minimum(add(at, 1), end))
    first, second = (
        reshape(take_along_axis(rows, each, axis=rows.ndim - 1), shape=low.shape) for each in ends
    )
    weight = cast(weight, dtype=rows.dtype)
    between = add(multiply(first, 1 - weight), multiply(second, weight))
    found = where(equal(weight, 0), first, where(equal(weight, 1), second, between))
    return where(last < 0, float("nan"), found)


@function(public="np")
def nanquantile(
    a: Any,
    q: Any,
    axis: Any = None,
    out: Any = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
) -> Array:
    """What a share q of the elements that are not NaN lies below: see `quantile`; NaN of none.

    >>> np.nanquantile(np.array([1.0, float("nan"), 3.0]), 0.5)
    """
    found = _quantile("nanquantile", a, shares("nanquantile", q, 1.0), axis, method, keepdims)
    return into("nanquantile", out, found)


@function(public="np")
def nanpercentile(
    a: Any,
    q: Any,
    axis: Any = None,
    out: Any = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
) -> Array:
    """What q percent of the elements that are not NaN lie below: see `nanquantile`.

    >>> np.nanpercentile(np.array([1.0, float("nan"), 3.0]), 50)
    """
    found = _quantile("nanpercentile", a, shares("nanpercentile", q, 100.0), axis, method, keepdims)
    return into("nanpercentile", out, found)


@function(public="np")
def nanmedian(
    a: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, keepdims: bool = False
) -> Array:
    """What half of the elements that are not NaN lie below; NaN where nothing is left.

    >>> np.nanmedian(np.array([[1.0, float("nan")], [3.0, 4.0]]), axis=1)
    """
    a = floating(operand(a))
    if not count(a, axis, "nanmedian"):
        return into("nanmedian", out, mean(a, axis=axis, keepdims=keepdims))
    return into("nanmedian", out, _quantile("nanmedian", a, 0.5, axis, "linear", keepdims))


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

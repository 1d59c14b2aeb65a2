"""What NumPy computes, composed of operations that files have.

These compositions give the same results, in other time and memory: a position in a sorted row is
the number of smaller elements, for each element by itself. An operation that fails for some values
(a position out of range) gives any result for them, as other operations of files do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gemel.dtype import DType, bool_, int64
from gemel.ir.graph import Graph, placeholder
from gemel.ir.methods import call
from gemel.ir.op import find
from gemel.ir.reference import numpy
from gemel.ops.assignment import ITEMS
from gemel.ops.control import iterate
from gemel.ops.elementwise import (
    absolute,
    cast,
    divide,
    floor_divide,
    full,
    iota,
    maximum,
    minimum,
    multiply,
    remainder,
    subtract,
    where,
)
from gemel.ops.indexing import gather
from gemel.ops.logic import (
    bitwise_and,
    equal,
    isnan,
    less,
    less_equal,
    logical_and,
    logical_not,
    logical_or,
    not_equal,
    right_shift,
)
from gemel.ops.reduction import any as any_of
from gemel.ops.reduction import argmax, argmin, sum
from gemel.ops.reduction import max as max_of
from gemel.ops.reduction import min as min_of
from gemel.ops.rounding import trunc
from gemel.ops.shape import broadcast_to, concatenate, expand_dims, reshape, transpose
from gemel.ops.sorting import argsort
from gemel.ops.windows import Moves
from gemel.spec import normalize_axes, product, promote_specs

#: The compositions by the names of operations: functions of entries and the parameters.
COMPOSED: dict[str, Callable[..., Any]] = {}


def composes(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare what operations are composed of."""

    def declare(function: Callable[..., Any]) -> Callable[..., Any]:
        COMPOSED.update(dict.fromkeys(names, function))
        return function

    return declare


# --- positions ------------------------------------------------------------------------------


def _missing(x: Any) -> Any:
    """Which elements are NaN; None if none can be."""
    return isnan(x) if x.dtype.is_floating else None


def _number_before(a: Any, v: Any, with_equal: bool) -> Any:
    """How many elements of a row are sorted before each element of v. NaN is last."""
    v = expand_dims(v, -1)
    before = (less_equal if with_equal else less)(a, v)
    last, others = _missing(v), _missing(a)
    if last is not None:
        if not with_equal and others is not None:
            last = logical_and(last, logical_not(others))
        before = logical_or(before, last)
    return sum(cast(before, dtype="int64"), axis=-1)


@composes("searchsorted")
def _(a: Any, v: Any, *, side: str) -> Any:
    return _number_before(a, v, side == "right")


@composes("digitize")
def _(x: Any, bins: Any, *, right: bool) -> Any:
    found = _number_before(bins, x, not right)
    ends = bins[:1], bins[-1:]  # without edges nothing is before an element
    descending = any_of(less(ends[1], ends[0]))
    return where(descending, bins.shape[0] - found, found)


@composes("isin")
def _(element: Any, test_elements: Any) -> Any:
    tests = reshape(test_elements, shape=(-1,))
    return any_of(equal(expand_dims(element, -1), tests), axis=-1)


@composes("nanargmax")
def _(x: Any, *, axis: Any, keepdims: bool) -> Any:
    x = where(isnan(x), -float("inf"), x) if x.dtype.is_floating else x
    return argmax(x, axis=axis, keepdims=keepdims)


@composes("nanargmin")
def _(x: Any, *, axis: Any, keepdims: bool) -> Any:
    x = where(isnan(x), float("inf"), x) if x.dtype.is_floating else x
    return argmin(x, axis=axis, keepdims=keepdims)


@composes("argpartition")
def _(x: Any, *, kth: Any, axis: int) -> Any:
    return argsort(x, axis=axis)


@composes("unravel_index")
def _(indices: Any, *, shape: Any, order: str) -> Any:
    left, found = cast(indices, dtype="int64"), {}
    axes = range(len(shape))
    first, *others = axes if order == "C" else reversed(axes)
    for axis in reversed(others):
        found[axis] = remainder(left, shape[axis])
        left = floor_divide(left, shape[axis])
    found[first] = left
    return tuple(found[axis] for axis in axes)


@composes("ravel_multi_index")
def _(*positions: Any, dims: Any, mode: Any, order: str) -> Any:
    modes = (mode,) * len(dims) if isinstance(mode, str) else mode
    rows = list(zip(positions, dims, modes, strict=True))
    found: Any = 0
    for position, extent, rule in rows if order == "C" else reversed(rows):
        place = INSIDE[rule](cast(position, dtype="int64"), extent)
        found = multiply(found, extent) + place
    return found


@composes("choice")
def _(*indices: Any, shape: Any, given: Any, key: Any) -> Any:
    """By the positions that the key selects, in order: the last that selects an element counts."""
    if any(index.dtype is bool_ for index in indices):
        return None  # how many elements a mask selects depends on its values
    arrays, extent = iter(indices), product(shape)
    places = _numbered(shape)[tuple(ITEMS[kind](arrays, *rest) for kind, *rest in key)]
    lead = max(len(given) - places.ndim, 0)
    numbers = broadcast_to(_numbered(given[lead:]), shape=places.shape)
    places, order = reshape(places, shape=(-1,)), _numbered((product(places.shape),))
    nowhere = full(-1, shape=(extent,), dtype="int64")
    last = call("combine_flat", nowhere, places, order, by="maximum")
    found = gather(reshape(numbers, shape=(-1,)), maximum(last, 0), axis=0)
    return reshape(where(last >= 0, found, -1), shape=shape)


def _numbered(shape: Any) -> Any:
    """The position of each element of an array of that shape, counted through all axes."""
    return reshape(iota(shape=(product(shape),), axis=0, dtype="int64"), shape=shape)


#: Positions in an axis of some extent, by what is done with those outside of it.
INSIDE: dict[str, Callable[[Any, Any], Any]] = {
    "raise": lambda position, extent: position,
    "clip": lambda position, extent: minimum(maximum(position, 0), extent - 1),
    "wrap": remainder,
}


# --- histograms -----------------------------------------------------------------------------


@composes("histogram_edges")
def _(x: Any, *, bins: int, limits: Any) -> Any:
    wide = cast(x, dtype="float64")
    if limits is None:
        low, high = (of(wide) for of in (min_of, max_of))
    else:  # in float64 too, as arrays of it
        low, high = (full(limit, shape=(), dtype="float64") for limit in limits)
    alike = equal(low, high)
    low, high = where(alike, low - 0.5, low), where(alike, high + 0.5, high)
    step = divide(subtract(high, low), bins)
    inner = multiply(iota(shape=(bins,), axis=0, dtype="float64"), step) + low
    edges = concatenate(inner, reshape(cast(high, dtype="float64"), shape=(1,)), axis=0)
    return cast(edges, dtype=x.dtype.floating)


@composes("histogram_counts")
def _(x: Any, edges: Any, weights: Any = None, *, density: bool) -> Any:
    if weights is not None:
        return None
    x = reshape(x, shape=(-1,))
    x = cast(x, dtype="uint8") if x.dtype is bool_ else x
    below = _number_before(x, edges[:-1], False), _number_before(x, edges[-1:], True)
    reached = concatenate(*below, axis=0)
    found = subtract(reached[1:], reached[:-1])
    if not density:
        return found
    found, ends = cast(found, dtype="float64"), cast(edges, dtype="float64")
    return divide(divide(found, subtract(ends[1:], ends[:-1])), sum(found))


# --- whole numbers --------------------------------------------------------------------------


@composes("bitwise_count")
def _(x: Any) -> Any:
    if x.dtype is bool_:
        return cast(x, dtype="uint8")
    bits = 8 * x.dtype.itemsize
    x = cast(absolute(x), dtype=f"uint{bits}")
    places = iota(shape=(bits,), axis=0, dtype=x.dtype)
    found = bitwise_and(right_shift(expand_dims(x, -1), places), 1)
    return cast(sum(cast(found, dtype="int32"), axis=-1), dtype="uint8")


@composes("gcd")
def _(a: Any, b: Any) -> Any:
    dtype, wide = _wide(a, b)
    return cast(_divisor(*(absolute(cast(x, dtype=wide)) for x in (a, b))), dtype=dtype)


@composes("lcm")
def _(a: Any, b: Any) -> Any:
    dtype, wide = _wide(a, b)
    a, b = (absolute(cast(x, dtype=wide)) for x in (a, b))
    found = _divisor(a, b)
    some = not_equal(found, 0)
    return cast(multiply(floor_divide(a, where(some, found, 1)), b), dtype=dtype)


def _wide(a: Any, b: Any) -> tuple[DType, DType]:
    """The dtype of a result, and the one in which it is computed."""
    dtype = promote_specs(a.spec, b.spec)
    return dtype, int64 if dtype.itemsize < 8 else dtype


def _divisor(a: Any, b: Any) -> Any:
    """The greatest common divisors by Euclid's algorithm, for all elements until the last is found:
    those of remainder 0 stay."""
    a, b = a + b * 0, b + a * 0  # of one shape
    one, two = placeholder(a.spec), placeholder(b.spec)
    left = not_equal(two, 0)
    rest = where(left, remainder(one, where(left, two, 1)), 0)
    step = Graph((one, two), (where(left, two, one), rest))
    condition = Graph((one, two), (any_of(left),))
    return iterate.node((a, b), {"condition": condition, "step": step}).entries[0]


# --- folds ----------------------------------------------------------------------------------


@composes("fold_along")
def _(x: Any, *, by: str, axis: Any, keepdims: bool) -> Any:
    dtype, start = find(by).infer(x.spec, x.spec)[0].dtype, getattr(numpy(), by).identity
    x = cast(x, dtype=dtype)
    for place in reversed(normalize_axes(by, axis, x.ndim)):
        if start is not None:  # the axis may be empty
            shape = (*x.shape[:place], 1, *x.shape[place + 1 :])
            x = concatenate(full(start, shape=shape, dtype=dtype), x, axis=place)
        last = (*[slice(None)] * place, slice(-1, None) if keepdims else -1)
        x = call("running", x, by=by, axis=place)[last]
    return x


# --- others ---------------------------------------------------------------------------------


@composes("windows")
def _(x: Any, *, kernel: Any, stride: Any, dilate: Any) -> Any:
    lead, axes = x.ndim - len(kernel), len(kernel)
    counts = Moves(kernel, stride, dilate).counts(x.shape[lead:])
    moves = zip(kernel, counts, stride, dilate, strict=True)
    for axis, (size, count, step, apart) in enumerate(moves):
        inside = iota(shape=(size, 1), axis=0, dtype="int64") * apart
        begins = iota(shape=(1, count), axis=1, dtype="int64") * step
        x = gather(x, inside + begins, axis=lead + 2 * axis)
    order = [*range(lead), *(lead + 2 * a for a in range(axes))]
    return transpose(x, axes=(*order, *(lead + 2 * a + 1 for a in range(axes))))


@composes("ldexp")
def _(x: Any, exponent: Any) -> Any:
    """In three steps: 2 ** exponent may overflow even if the product does not."""
    whole = trunc(exponent)
    third = trunc(whole * (1 / 3))
    two = full(2, shape=(), dtype=x.dtype.floating)
    step, rest = call("power", two, third), call("power", two, subtract(exponent, 2 * third))
    return x * step * step * rest


__all__ = ["COMPOSED", "composes"]

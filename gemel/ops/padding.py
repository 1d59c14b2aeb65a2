"""Padding: elements added before and after an array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gemel.errors import ShapeError, UnknownKeywordError, unknown_name
from gemel.extent import WHOLE, maximum
from gemel.ir.keywords import check_unrecorded
from gemel.ir.protocols import by_numpy
from gemel.ir.public import Array, function
from gemel.ir.reference import numpy
from gemel.lists import leaves
from gemel.ops.elementwise import cast, floor, full, iota, limit, rint, sign, where
from gemel.ops.indexing import assign, gather_inside, place
from gemel.ops.reduction import max, mean, min
from gemel.ops.shape import broadcast_to, concatenate, listed, operand, reshape
from gemel.ops.statistics import median
from gemel.spec import normalize_axis


def _mirrored(at: Any, extent: int, twice: int) -> Any:
    """Positions reflected at both ends; `twice` is 1 if the elements at the ends are repeated."""
    period = maximum(2 * extent - 2 + 2 * twice, 1)  # one element is its own mirror image
    at = at % period
    return where(at < extent, at, period - twice - at)


def _turned(x: Any, axis: int, at: Any, twice: int) -> Any:
    """The elements at positions of an axis continued by point reflection in its ends.

    So it continues with its slope; `twice` is 1 if the elements at the ends are repeated.
    """
    extent = x.shape[axis]
    half = maximum(extent - 1 + twice, 1)
    shape = tuple(-1 if a == axis else 1 for a in range(x.ndim))
    turns, within = at // half, at % half
    back = turns % 2 == 1
    values = gather_inside(x, where(back, extent - 1 - within, within), axis=axis)
    lead = (slice(None),) * axis
    first, last = (x[lead + (end,)] for end in (slice(0, 1), slice(-1, None)))
    turns, back = (reshape(each, shape=shape) for each in (turns, back))
    found = where(back, where(turns < 0, first, last) * 2 - values, values)
    # Of pairs of turns, each of which adds the distance between the ends.
    pairs = turns - where(back, sign(turns), 0)
    added = found + cast(pairs, dtype=x.dtype) * (last - first)
    return where(pairs == 0, found, added)  # 0 times what is not finite is NaN


#: Which element of an axis of n stands at a position outside of it, counted from its start.
BORDERS: dict[str, Callable[[Any, Any], Any]] = {
    "edge": lambda at, n: limit(at, 0, n - 1),
    "wrap": lambda at, n: at % n,
    "reflect": lambda at, n: _mirrored(at, n, 0),
    "symmetric": lambda at, n: _mirrored(at, n, 1),
}
#: `twice` of the modes with reflect_type "odd".
TURNED = {"reflect, odd": 0, "symmetric, odd": 1}
#: Modes whose borders hold a statistic of each row.
STATISTICS: dict[str, Callable[..., Any]] = {
    "maximum": max,
    "minimum": min,
    "mean": mean,
    "median": median,
}
MODES = ("constant", "empty", "linear_ramp", *BORDERS, *STATISTICS)


def per_side(name: str, kind: str, given: Any, ndim: int) -> tuple[tuple[Any, ...], ...]:
    """A pair (before, after) for each axis, broadcast as NumPy does. Raises `ShapeError`."""
    np = numpy()
    for each in leaves(given):
        check_unrecorded(name, kind, each)
    if isinstance(given, dict):
        sides = [(0, 0)] * ndim
        for axis, side in given.items():
            sides[normalize_axis(name, axis, ndim)] = (listed(side)[0], listed(side)[-1])
        return tuple(sides)
    try:
        spread = np.broadcast_to(np.asarray(given), (ndim, 2)).tolist()
    except ValueError:
        raise ShapeError(
            f"{name}: {kind} {given} must be one number, one (before, after) for all, or one for "
            f"each of {ndim} axes"
        ) from None
    return tuple(map(tuple, spread))


@function(public="np")
def pad(
    array: Any,
    pad_width: Any = 0,
    mode: Any = "constant",
    *,
    constant_values: Any = 0,
    end_values: Any = 0,
    stat_length: Any = None,
    reflect_type: str = "even",
    **options: Any,
) -> Array:
    """The array with elements before and after it along each axis.

    `mode` says which: "constant" ones ("empty": zeros), the "edge" again, the array mirrored
    ("reflect", and "symmetric" with the edge repeated; with the `reflect_type` "odd" each mirrored
    value is as far on the other side of the edge's) or once more ("wrap"), each row's "maximum",
    "minimum", "mean" or "median" (of `stat_length` elements at that end), or numbers that fall to
    `end_values` ("linear_ramp"). With a function NumPy does it. Raises `ShapeError` for negative
    widths and for empty axes, which nothing continues.
    """
    array = operand(array)
    if callable(mode):
        return by_numpy(numpy().pad, (array, pad_width, mode), options)
    if mode not in MODES:
        raise unknown_name("mode of pad", mode, MODES)
    rule = mode if reflect_type == "even" else f"{mode}, {reflect_type}"
    if options or rule not in (*MODES, *TURNED):
        wrong = ", ".join(options) or f"reflect_type={reflect_type!r}"
        raise UnknownKeywordError(f"pad: mode {mode!r} takes no {wrong}")
    sides = per_side("pad", "pad_width", pad_width, array.ndim)
    if not all(isinstance(n, WHOLE) and n >= 0 for side in sides for n in side):
        raise ShapeError(f"pad: pad_width {pad_width} must contain whole numbers of at least 0")
    with array.device:  # the borders are created there
        return _padded(
            array,
            sides,
            rule,
            (constant_values, end_values, stat_length),
        )


def _padded(x: Any, sides: Any, mode: str, settings: tuple[Any, Any, Any]) -> Any:
    """The array with its borders."""
    constant_values, end_values, stat_length = settings
    if mode in ("constant", "empty"):
        values = 0 if mode == "empty" else constant_values
        return _framed(x, sides, per_side("pad", "constant_values", values, x.ndim))
    ends = per_side("pad", "end_values", end_values, x.ndim)
    lengths = None if stat_length is None else per_side("pad", "stat_length", stat_length, x.ndim)
    for axis, (before, after) in enumerate(sides):
        if before == 0 and after == 0:
            continue
        extent = x.shape[axis]
        if extent == 0:
            raise ShapeError(
                f"pad: axis {axis} of {list(x.shape)} is empty, so it cannot be padded from its "
                "elements"
            )
        if mode in BORDERS or mode in TURNED:
            at = iota(shape=(before + extent + after,), axis=0, dtype="int64") - before
            if mode in TURNED:
                x = _turned(x, axis, at, TURNED[mode])
            else:
                x = gather_inside(x, BORDERS[mode](at, extent), axis=axis)
        elif mode == "linear_ramp":
            x = _ramped(x, axis, (before, after), ends[axis])
        else:
            counts = (extent, extent) if lengths is None else lengths[axis]
            first, last = _statistics(x, axis, STATISTICS[mode], counts)
            x = _continued(x, axis, first, before, last, after)
    return x


def _statistics(x: Any, axis: int, statistic: Any, counts: Any) -> list[Any]:
    """A number for each row: a statistic of `counts` elements at its beginning and its end."""
    lead, found = (slice(None),) * axis, []
    for side, count in enumerate(counts):
        if count < 1:
            raise ShapeError(f"pad: stat_length is {count}; it must be at least 1")
        within = (*lead, slice(None, count) if side == 0 else slice(-count, None))
        number = statistic(x[within], axis=axis, keepdims=True)
        number = number if x.dtype.is_inexact else rint(number)
        found.append(cast(number, dtype=x.dtype))
    return found


def _ramped(x: Any, axis: int, widths: Any, ends: Any) -> Any:
    """x between linear ramps from the end values to its edges."""
    lead, parts = (slice(None),) * axis, [x]
    for side, (width, end) in enumerate(zip(widths, ends, strict=True)):
        if width == 0:  # its steps would be divided by 0, and the gradient NaN
            continue
        last = (*lead, slice(0, 1) if side == 0 else slice(-1, None))
        edge = x[last]
        shape = tuple(width if a == axis else 1 for a in range(x.ndim))
        at = iota(shape=shape, axis=axis, dtype="float64")
        at = at if side == 0 else width - 1 - at  # counted from the outer end
        wide = cast(edge, dtype="complex128" if x.dtype.is_complex else "float64")
        ramp = at * ((wide - end) / width) + end
        ramp = cast(ramp if x.dtype.is_inexact else floor(ramp), dtype=x.dtype)
        parts = [ramp, *parts] if side == 0 else [*parts, ramp]
    return concatenate(*parts, axis=axis)


def _continued(x: Any, axis: int, first: Any, before: int, last: Any, after: int) -> Any:
    """x between `first` and `last`, repeated along an axis."""

    def block(value: Any, count: int) -> Any:
        return broadcast_to(value, shape=(*x.shape[:axis], count, *x.shape[axis + 1 :]))

    return concatenate(block(first, before), x, block(last, after), axis=axis)


def _framed(x: Any, sides: Any, values: Any) -> Any:
    """x between constants."""
    numbers = {repr(value): value for pair in values for value in pair}  # repr: -0.0 is not 0.0
    if len(numbers) == 1:
        shape = tuple(b + n + a for n, (b, a) in zip(x.shape, sides, strict=True))
        key = tuple(("slice", b, n, 1) for n, (b, _) in zip(x.shape, sides, strict=True))
        ((text, value),) = numbers.items()
        ground = full(value, shape=shape, dtype=x.dtype)
        plain = value == 0 and not text.startswith("-")
        return place(x, key=key, shape=shape) if plain else assign(ground, x, key=key)
    for axis, ((before, after), pair) in enumerate(zip(sides, values, strict=True)):
        first, last = (full(value, shape=(), dtype=x.dtype) for value in pair)
        x = _continued(x, axis, first, before, last, after)
    return x

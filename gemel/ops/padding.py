"""Borders: elements before and after an array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gemel.errors import ShapeError, unknown_name
from gemel.extent import WHOLE
from gemel.ir.op import numpy
from gemel.ir.public import Array, function
from gemel.ops.elementwise import cast, full, iota, limit, rint, where
from gemel.ops.indexing import assign, gather, place
from gemel.ops.reduction import max, mean, min
from gemel.ops.shape import broadcast_to, concatenate, listed, operand
from gemel.spec import normalize_axis


def _mirrored(at: Any, extent: int, twice: int) -> Any:
    """Positions that turn back at both ends; `twice` is 1 where the ends themselves come again."""
    period = 2 * extent - 2 + 2 * twice
    if period == 0:
        return at * 0
    at = at % period
    return where(at < extent, at, period - twice - at)


#: Where the elements beside an axis of n come from, for positions counted from its start.
BORDERS: dict[str, Callable[[Any, Any], Any]] = {
    "edge": lambda at, n: limit(at, 0, n - 1),
    "wrap": lambda at, n: at % n,
    "reflect": lambda at, n: _mirrored(at, n, 0),
    "symmetric": lambda at, n: _mirrored(at, n, 1),
}
#: Borders that hold one number for each row: what it is of the row.
STATISTICS = {"maximum": max, "minimum": min, "mean": mean}


def per_side(name: str, kind: str, given: Any, ndim: int) -> tuple[tuple[Any, ...], ...]:
    """A (before, after) for each axis, as NumPy spreads it. Raises `ShapeError`."""
    np = numpy()
    if isinstance(given, dict):
        sides = [(0, 0)] * ndim
        for axis, side in given.items():
            sides[normalize_axis(name, axis, ndim)] = (listed(side)[0], listed(side)[-1])
        return tuple(sides)
    try:
        spread = np.broadcast_to(np.asarray(given), (ndim, 2)).tolist()
    except ValueError:
        raise ShapeError(
            f"{name}: {kind} {given} must be one number, or (before, after) for all or each of "
            f"{ndim} axes"
        ) from None
    return tuple(map(tuple, spread))


@function(public="np")
def pad(x: Any, pad_width: Any = 0, mode: str = "constant", *, constant_values: Any = 0) -> Array:
    """The array with elements before and after it along each axis.

    `mode` says which: "constant" ones, the "edge" again, the array mirrored ("reflect", and
    "symmetric" with the edge repeated) or once more ("wrap"), each row's "maximum", "minimum" or
    "mean". Raises `ShapeError` for negative widths and for empty axes, which nothing continues.
    """
    x = operand(x)
    sides = per_side("pad", "pad_width", pad_width, x.ndim)
    if not all(isinstance(n, WHOLE) and n >= 0 for side in sides for n in side):
        raise ShapeError(f"pad: pad_width {pad_width} must hold whole numbers, none below 0")
    if mode == "constant":
        return _framed(x, sides, per_side("pad", "constant_values", constant_values, x.ndim))
    if mode not in BORDERS and mode not in STATISTICS:
        raise unknown_name("mode of pad", mode, ("constant", *BORDERS, *STATISTICS))
    for axis, (before, after) in enumerate(sides):
        if before == 0 and after == 0:
            continue
        extent = x.shape[axis]
        if extent == 0:
            raise ShapeError(f"pad: axis {axis} of {list(x.shape)} is empty, nothing continues it")
        if mode in BORDERS:
            at = iota(shape=(before + extent + after,), axis=0, dtype="int64") - before
            x = gather(x, BORDERS[mode](at, extent), axis=axis)
        else:
            found = STATISTICS[mode](x, axis=axis, keepdims=True)
            found = found if x.dtype.is_floating else rint(found)
            row = cast(found, dtype=x.dtype)
            x = _continued(x, axis, row, before, row, after)
    return x


def _continued(x: Any, axis: int, first: Any, before: int, last: Any, after: int) -> Any:
    """x between `first` and `last`, repeated along an axis."""

    def block(value: Any, count: int) -> Any:
        return broadcast_to(value, shape=(*x.shape[:axis], count, *x.shape[axis + 1 :]))

    return concatenate(block(first, before), x, block(last, after), axis=axis)


def _framed(x: Any, sides: Any, values: Any) -> Any:
    """x between constants."""
    numbers = {value for pair in values for value in pair}
    if len(numbers) == 1:
        shape = tuple(b + n + a for n, (b, a) in zip(x.shape, sides, strict=True))
        key = tuple(("slice", b, n, 1) for n, (b, _) in zip(x.shape, sides, strict=True))
        (value,) = numbers
        ground = full(value, shape=shape, dtype=x.dtype)
        return place(x, key=key, shape=shape) if value == 0 else assign(ground, x, key=key)
    for axis, ((before, after), pair) in enumerate(zip(sides, values, strict=True)):
        first, last = (full(value, shape=(), dtype=x.dtype) for value in pair)
        x = _continued(x, axis, first, before, last, after)
    return x

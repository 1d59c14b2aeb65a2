"""Depthwise convolutions, where each channel is convolved alone: a product would have one row."""

from __future__ import annotations

from functools import reduce
from typing import Any

from gemel.ops.elementwise import add, copy, multiply
from gemel.ops.reduction import sum
from gemel.ops.shape import reshape, transpose
from gemel.ops.windows import bordered_last, windows
from gemel.spec import product

#: Kernels of at most this many elements are unrolled into one multiplication for each.
PLACES = 25
#: Rows at least this wide fill vectors; with this many channels it pays to move the channels.
WIDE, MANY = 16, 32


def channels_alone(how: Any, weight: Any, x: Any, turned: bool) -> Any:
    """`Movement.times` for depthwise convolutions: a few multiplications summed in one kernel, or
    a sum over the elements of a larger kernel.

    Vectors run along rows or, where rows are short, along channels, which are moved last for that.
    """
    axes, kernel = len(how.pad), how.moves.kernel
    if product(kernel) <= PLACES:
        factors = reshape(weight, shape=(how.groups, -1, *[1] * axes))
        parts = [part * factors[:, i] for i, part in enumerate(how.each(x, turned))]
        return reduce(add, parts)
    if turned:
        key = (..., *[slice(None, None, -1)] * axes)
        weight = weight[key]
    if how.groups >= MANY and how.counts(x.shape[2:])[-1] < WIDE:
        return _along_channels(how, weight, x)
    factors = reshape(weight, shape=(how.groups, *kernel, *[1] * axes))
    return sum(multiply(how.under(x), factors), axis=tuple(range(2, 2 + axes)))


def _along_channels(how: Any, weight: Any, x: Any) -> Any:
    """The sums computed with the channels moved to the last axis, and moved back afterwards."""
    axes = len(how.pad)
    inside, places = range(2, 2 + axes), range(2 + axes, 2 + 2 * axes)
    first = (0, axes + 1, *range(1, axes + 1))
    whole = bordered_last(x, how.pad, how.pad, how.pad)
    seen = windows(transpose(whole, axes=first), **how.moves._asdict())
    seen = transpose(seen, axes=(0, *places, *inside, 1))
    factors = reshape(weight, shape=(how.groups, *how.moves.kernel))
    factors = copy(transpose(factors, axes=(*range(1, axes + 1), 0)))
    found = sum(multiply(seen, factors), axis=tuple(range(axes + 1, 2 * axes + 1)))
    return copy(transpose(found, axes=first))


__all__ = ["PLACES", "channels_alone"]

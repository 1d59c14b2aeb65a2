"""Depthwise convolutions, where each channel is convolved alone: a product would have one row."""

from __future__ import annotations

from functools import reduce
from typing import Any

from gemel.ops.elementwise import add, multiply
from gemel.ops.reduction import sum
from gemel.ops.shape import reshape, stack
from gemel.ops.windows import PLACES, seen_with_border
from gemel.spec import product


def channels_alone(how: Any, weight: Any, x: Any, turned: bool) -> Any:
    """`Movement.times` for depthwise convolutions: a sum over the elements of the kernel, or a few
    multiplications that are added up if windows share nothing from row to row."""
    axes, kernel = len(how.pad), how.moves.kernel
    if product(kernel) <= PLACES and not how.moves.roll:
        factors = reshape(weight, shape=(how.groups, -1, *[1] * axes))
        parts = [part * factors[:, i] for i, part in enumerate(how.each(x, turned))]
        return reduce(add, parts)
    if turned:
        key = (..., *[slice(None, None, -1)] * axes)
        weight = weight[key]
    factors = reshape(weight, shape=(how.groups, *kernel, *[1] * axes))
    seen = seen_with_border(x, how.moves, how.pad, how.pad, how.pad)
    return sum(multiply(seen, factors), axis=tuple(range(2, 2 + axes)))


def weights_alone(how: Any, x: Any, y: Any, shape: tuple[int, ...]) -> Any:
    """`Movement.weights` for depthwise convolutions: a sum for each element of the kernel."""
    axes = (0, *range(2, 2 + len(how.pad)))
    found = [sum(part * y, axis=axes) for part in how.each(x)]
    return reshape(stack(found, axis=1), shape=shape)


__all__ = ["channels_alone", "weights_alone"]

"""Depthwise convolutions, where each channel is convolved alone: a product would have one row."""

from __future__ import annotations

from functools import reduce
from typing import Any

from gemel.ops.elementwise import add, multiply
from gemel.ops.reduction import sum
from gemel.ops.shape import reshape
from gemel.ops.windows import bordered_windows
from gemel.spec import product

#: Kernels of at most this many elements are unrolled into one multiplication for each; but not
#: those that overlap from row to row and have at most so many rows, which share what they read
#: (`codegen.loops.rolling`).
PLACES, ROWS = 25, 9


def channels_alone(how: Any, weight: Any, x: Any, turned: bool) -> Any:
    """`Movement.times` for depthwise convolutions: a few multiplications summed in one kernel, or
    a sum over the elements of a larger kernel."""
    axes, kernel = len(how.pad), how.moves.kernel
    small, slide = product(kernel) <= PLACES, _slide(how.moves)
    if small and not slide:
        factors = reshape(weight, shape=(how.groups, -1, *[1] * axes))
        parts = [part * factors[:, i] for i, part in enumerate(how.each(x, turned))]
        return reduce(add, parts)
    if turned:
        key = (..., *[slice(None, None, -1)] * axes)
        weight = weight[key]
    factors = reshape(weight, shape=(how.groups, *kernel, *[1] * axes))
    # Small windows are read without a border in memory.
    seen = bordered_windows(x, **how.moves._asdict(), pad=how.pad) if small else how.under(x)
    return sum(multiply(seen, factors), axis=tuple(range(2, 2 + axes)))


def _slide(moves: Any) -> bool:
    """Whether windows have several rows and columns, move on by one or two, and overlap."""
    if len(moves.kernel) != 2 or min(moves.kernel) == 1 or moves.dilate[0] != 1:
        return False
    return max(moves.stride) <= 2 and bool(moves.stride[0] < moves.kernel[0] <= ROWS)


__all__ = ["PLACES", "channels_alone"]

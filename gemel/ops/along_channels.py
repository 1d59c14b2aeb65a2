"""Gradients of weights where results have short rows: vectors run along channels instead.

The windows of a few positions in a row are gathered four or eight elements at a time. With channels
last, the elements of a row of a window lie next to each other.
"""

from __future__ import annotations

from typing import Any

from gemel.ops.elementwise import copy
from gemel.ops.layouts import channels_first
from gemel.ops.shape import reshape, transpose
from gemel.ops.windows import bordered_last, windows
from gemel.spec import product

#: A row is short if it has at most SHORT positions; elements of a window's row that fill a vector.
SHORT, FILLED = 8, 16
#: With longer strides, rows of twice as many positions are short, if there are at most MOST in all.
MOST = 2048


def go_along_channels(how: Any, x: Any, y: Any) -> bool:
    """Whether a `Movement` computes its weights' gradient by `weights_along_channels`. Only sizes
    and dtypes decide. Moving channels last, and back in the result, has to pay off."""
    plain = x.dtype is y.dtype is x.dtype.compute and x.dtype.is_floating
    if not plain or how.groups > 1 or not how.moves.dilate == how.moves.ones:
        return False
    elements, places = how.moves.kernel[-1], product((y.shape[0], *y.shape[2:]))
    filled = elements > 1 and elements * x.shape[1] >= FILLED
    if not filled or not places >= y.shape[1]:
        return False
    longer = how.overlap_little and bool(places <= MOST) and x.shape[1] >= FILLED
    return bool(y.shape[-1] <= (2 * SHORT if longer else SHORT))


def weights_along_channels(how: Any, x: Any, y: Any, shape: tuple[int, ...]) -> Any:
    """The gradient of weights of this shape, as a product of y, a row for each filter, with the
    windows of x, a row for each position."""
    axes = len(how.pad)
    first = channels_first(bordered_last(x, how.pad, how.pad, how.pad), last=True)
    seen = windows(first, **how.moves._asdict())
    order = (0, *range(2 + axes, 2 + 2 * axes), *range(2, 2 + axes), 1)
    seen = transpose(seen, axes=order)
    every = (product(seen.shape[: 1 + axes]), product(seen.shape[1 + axes :]))
    found = how.product(how.rows(y, together=True), reshape(seen, shape=every))
    found = reshape(found, shape=(shape[0], *shape[2:], shape[1]))
    return copy(channels_first(found, last=True))


__all__ = ["go_along_channels", "weights_along_channels"]

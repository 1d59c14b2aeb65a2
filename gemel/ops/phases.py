"""The transpose of a convolution with strides, without adding windows up.

Each function gets a `movement.Movement`, which says how the kernel moves.
"""

from __future__ import annotations

import itertools
from typing import Any

from gemel.dtype import promote
from gemel.ops.elementwise import full
from gemel.ops.windows import Moves, apart, bordered, taking_turns, within
from gemel.ops.winograd import NEVER


def spaced(how: Any, y: Any, weight: Any, space: tuple[int, ...]) -> Any:
    """`grown` for windows of a single element: a product, with zeros between its elements."""
    still = how.moves._replace(stride=how.moves.ones)
    found = how._replace(moves=still).times(weight, y, turned=True)
    whole = space[-1] // how.moves.stride[-1]
    parts = [found[..., :whole], found[..., whole:]]
    parts = [part for part in parts if not part.shape[-1] == 0]
    return apart(*parts, steps=how.moves.stride, shape=tuple(space))


def phases(how: Any, y: Any, weight: Any, space: tuple[int, ...]) -> Any:
    """`grown` for strides longer than one. Elements of the image that are one stride apart form a
    phase. A phase only depends on every stride-th weight and is a convolution with strides of one.
    """
    kernel, stride = how.moves.kernel, how.moves.stride
    most = tuple(-(-k // s) for k, s in zip(kernel, stride, strict=True))
    counts = tuple(-(-n // s) for n, s in zip(space, stride, strict=True))
    # The last position of y that any phase reads, given the padding.
    ends = (((n * s + p - 1) // s) for n, s, p in zip(counts, stride, how.pad, strict=True))
    after = (end + 1 - n for end, n in zip(ends, y.shape[2:], strict=True))
    wide = bordered(y, [k - 1 for k in most], tuple(after))
    # A convolution with strides of one; each phase sets its own moves.
    alone = how._replace(pad=(0,) * len(stride), scheme=NEVER)
    parts = {}
    for phase in itertools.product(*map(range, stride)):
        first = tuple(r + p for r, p in zip(phase, how.pad, strict=True))
        own = (slice(a % s, None, s) for a, s in zip(first, stride, strict=True))
        key = (..., *own)
        weights = weight[key]
        lengths = tuple(map(int, weights.shape[2:]))
        if 0 in lengths:
            shape = (y.shape[0], how.groups * weight.shape[1], *counts)
            parts[phase] = full(0, shape=shape, dtype=promote(y.dtype, weight.dtype).name)
            continue
        still = Moves(lengths, *[how.moves.ones] * 2)
        spans = zip(first, stride, most, lengths, strict=True)
        start = tuple(a // s + m - k for a, s, m, k in spans)
        part = within(wide, start, still.reach(counts))
        parts[phase] = alone._replace(moves=still).times(weights, part, turned=True)
    return within(taking_turns(parts, stride), (0,) * len(stride), space)


__all__ = ["phases", "spaced"]

"""The transpose of a convolution with strides, without adding windows up.

Each function gets a `movement.Movement`, which says how the kernel moves.
"""

from __future__ import annotations

import itertools
from typing import Any

from gemel.dtype import promote
from gemel.ops.elementwise import copy, full
from gemel.ops.shape import reshape, swapaxes, transpose
from gemel.ops.volumes import are_planes
from gemel.ops.windows import Moves, apart, bordered, taking_turns, within
from gemel.ops.winograd import NEVER
from gemel.spec import product


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
    moved, parts = weights_kernel_first(how, weight), {}
    for phase in itertools.product(*map(range, stride)):
        first = tuple(r + p for r, p in zip(phase, how.pad, strict=True))
        own = tuple(slice(a % s, None, s) for a, s in zip(first, stride, strict=True))
        weights = moved[own]
        lengths = tuple(map(int, weights.shape[: len(stride)]))
        if 0 in lengths:
            shape = (y.shape[0], how.groups * weight.shape[1], *counts)
            parts[phase] = full(0, shape=shape, dtype=promote(y.dtype, weight.dtype).name)
            continue
        still = Moves(lengths, *[how.moves.ones] * 2)
        spans = zip(first, stride, most, lengths, strict=True)
        start = tuple(a // s + m - k for a, s, m, k in spans)
        part = within(wide, start, still.reach(counts))
        parts[phase] = phase_of(alone._replace(moves=still), weights, part)
    return within(taking_turns(parts, stride), (0,) * len(stride), space)


def is_one_product(how: Any, weight: Any) -> bool:
    """Whether `Movement.times` is one product of weights with windows."""
    return not (are_planes(how) or how.alone(weight.shape, weight.dtype))


def weights_kernel_first(how: Any, weight: Any) -> Any:
    """The weights as (*kernel, channels out, channels in / groups). For a product these are copied
    at once: a part of the kernel would be gathered from all over the weights."""
    found = transpose(weight, axes=(*range(2, 2 + len(how.pad)), 0, 1))
    return copy(found) if is_one_product(how, weight) else found


def phase_of(how: Any, part: Any, y: Any) -> Any:
    """The transpose of a convolution with strides of one, for a part of the kernel of weights that
    `weights_kernel_first` returned."""
    axes = len(how.pad)
    weight = transpose(part, axes=(axes, axes + 1, *range(axes)))
    if not is_one_product(how, weight):
        return how.times(weight, y, turned=True)
    groups, (given, taken) = len(how.split), part.shape[axes:]
    rows = reshape(part, shape=(product(part.shape[:axes]), *how.split, given // how.groups, taken))
    rows = transpose(rows, axes=(*range(1, 1 + groups), 0, 1 + groups, 2 + groups))
    matrix = reshape(rows, shape=(*how.split, product(rows.shape[groups:-1]), taken))
    return how.of_product(swapaxes(matrix, -1, -2), y, turned=True, kernel_first=True)


__all__ = ["phases", "spaced"]

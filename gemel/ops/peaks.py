"""The largest elements: over axes, and in the windows of images; their gradients go to the first.

The gradient of windows that overlap is computed for each element of the image: it asks the windows
that see it whether it is their first. Adding windows up would write them in full, nine times the
image for 3 x 3, and read and write the image once for each part of a window.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any

from gemel.extent import maximum
from gemel.ir.declare import composite
from gemel.ops.elementwise import add, cast, full, iota, where
from gemel.ops.reduction import in_dtype, kept, max, min, spread, widened
from gemel.ops.shape import reshape
from gemel.ops.windows import (
    Moves,
    added,
    bordered,
    seen_with_border,
    taking_turns,
    windows,
    within,
)
from gemel.spec import Spec, product

NAN = float("nan")
#: The gradient of the largest elements is computed for each element of an image if strides have
#: no more phases than this, and elements are in several windows, but no more than this.
PHASES, TERMS = 16, 16


@composite()
def peak(x: Any, *, axes: tuple[int, ...], keepdims: bool) -> Any:
    """The largest element over axes; NaN wins. The gradient goes to the first of equal ones, while
    that of `max` is shared among them.
    """
    return max(x, axis=axes, keepdims=keepdims)


def first_peak(x: Any, y: Any, axes: tuple[int, ...]) -> tuple[Any, Any, int]:
    """Where over axes the first element is that equals `peak`'s result y; each element's number;
    and the number of elements, which stands for none: NaN equals nothing.
    """
    largest, none = reshape(y, shape=kept(x.shape, axes)), product(x.shape[axis] for axis in axes)
    place: Any = 0
    for axis in axes:
        shape = tuple(n if i == axis else 1 for i, n in enumerate(x.shape))
        place = place * x.shape[axis] + iota(shape=shape, axis=axis, dtype="int32")
    return min(where(x == largest, place, none), axis=axes, keepdims=True), place, none


@peak.spec
def _(x: Spec, *, axes: tuple[int, ...], keepdims: bool) -> Spec:
    return max.infer(x, axis=axes, keepdims=keepdims)[0]


@peak.gradient
def _(g: Any, y: Any, x: Any, *, axes: tuple[int, ...], keepdims: bool) -> Any:
    return (at_first(g, y, x, axes),)


def at_first(g: Any, y: Any, x: Any, axes: tuple[int, ...]) -> Any:
    """The gradient of x."""
    first, place, none = first_peak(x, y, axes)
    # If no element is the first, all have the gradient NaN.
    others = cast(where(first == none, NAN, 0.0), dtype=x.dtype)
    return where(place == first, spread(g, x, axes), others)


@composite()
def peaks(x: Any, *, kernel: Any, stride: Any, before: Any, after: Any, most: Any) -> Any:
    """`peak` of all windows of images (N, C, *S) with a border; it has the lowest number."""
    seen = seen_with_border(x, plain(kernel, stride), before, after, most, lowest=True)
    return peak(seen, axes=tuple(range(2, 2 + len(kernel))), keepdims=False)


def plain(kernel: Any, stride: Any) -> Moves:
    """Windows without gaps inside."""
    return Moves(kernel, stride, (1,) * len(kernel))


@peaks.spec
def _(x: Spec, *, kernel: Any, stride: Any, before: Any, after: Any, most: Any) -> Spec:
    moves = plain(kernel, stride)
    wide = [n + a + b for n, a, b in zip(x.shape[2:], before, after, strict=True)]
    moves.check("peaks", x, wide)
    return Spec((*x.shape[:2], *moves.counts(wide)), x.dtype)


@peaks.gradient
def _(
    g: Any, y: Any, x: Any, *, kernel: Any, stride: Any, before: Any, after: Any, most: Any
) -> Any:
    moves, axes = plain(kernel, stride), tuple(range(2, 2 + len(kernel)))
    wide = bordered(x, before, after, True, most)
    seen = windows(wide, **moves._asdict())
    if product(stride) > PHASES or not 1 < product(overlap(moves)) <= TERMS:
        found = added(at_first(g, y, seen, axes), moves, wide.shape[2:])
        return (within(found, before, x.shape[2:]),)
    first, _, none = first_peak(seen, y, axes)
    return (returned(g, reshape(first, shape=g.shape), none, moves, before, x.shape[2:]),)


def overlap(moves: Moves) -> tuple[int, ...]:
    """How many windows see an element at most, along each axis."""
    return tuple(-(-k // s) for k, s in zip(moves.kernel, moves.stride, strict=True))


def returned(g: Any, first: Any, none: int, moves: Moves, pad: Any, shape: Any) -> Any:
    """The gradients g of windows, each at the window's element number `first`, added up in an image
    whose last axes have the given shape; NaN at all elements of a window if that is `none`. The
    first window begins `pad` elements before the image.

    Windows are not added; each element of the image asks those that see it, and its sum is rounded
    once. Elements that are `stride` apart, those of a phase, have the same numbers in the windows
    that see them.
    """
    counts = tuple(-(-n // s) for n, s in zip(shape, moves.stride, strict=True))
    before = tuple(n - 1 for n in overlap(moves))
    # The last phase asks for windows up to this one, which may be less far than there are windows.
    far = [(s - 1 + p) // s for s, p in zip(moves.stride, pad, strict=True)]
    ends = zip(counts, far, g.shape[2:], strict=True)
    after = tuple(maximum(n + more - count, 0) for n, more, count in ends)
    first = bordered(first, before, after, lowest=True)  # the lowest number is no place
    g = bordered(g, before, after)

    def term(start: tuple[int, ...], number: int) -> Any:
        asked, given = within(first, start, counts), within(g, start, counts)
        others = cast(where(asked == none, NAN, 0.0), dtype=g.dtype)
        return widened(where(asked == number, given, others))

    parts = {}
    for phase in itertools.product(*map(range, moves.stride)):
        place = [r + p for r, p in zip(phase, pad, strict=True)]
        terms = [term(*each) for each in askers(place, moves)]
        if terms:
            parts[phase] = in_dtype(reduce(add, terms), g.dtype)
        else:  # longer strides than kernels leave elements that no window sees
            parts[phase] = full(0, shape=(*g.shape[:2], *counts), dtype=g.dtype.name)
    return within(taking_turns(parts, moves.stride), (0,) * len(pad), shape)


def askers(phase: Sequence[int], moves: Moves) -> Iterator[tuple[tuple[int, ...], int]]:
    """For each window that sees the elements of a phase: where it lies among the windows, of which
    `overlap` - 1 come before the first, and the number that the element has in it.
    """
    most = overlap(moves)
    for back in itertools.product(*map(range, most)):
        place = [r % s + s * m for r, s, m in zip(phase, moves.stride, back, strict=True)]
        if all(p < k for p, k in zip(place, moves.kernel, strict=True)):
            number = 0
            for p, k in zip(place, moves.kernel, strict=True):
                number = number * k + p
            starts = zip(most, back, phase, moves.stride, strict=True)
            yield tuple(n - 1 - m + r // s for n, m, r, s in starts), number


__all__ = ["peak", "peaks"]

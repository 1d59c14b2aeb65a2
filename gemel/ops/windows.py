"""Windows that move over the last axes of an array, as views, and the sum of windows in place.

A window has `kernel` elements along each axis, `dilate` apart; the next begins `stride` further.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import reduce
from operator import add
from typing import Any, NamedTuple

from gemel.dtype import DType, as_dtype
from gemel.errors import DTypeError, ShapeError
from gemel.extent import Dim
from gemel.ir.declare import op
from gemel.ir.layout import Layout
from gemel.ir.reference import numpy
from gemel.ir.rules import Emitter
from gemel.ops.elementwise import copy
from gemel.ops.indexing import basic_index
from gemel.ops.shape import narrowed, transpose
from gemel.spec import Spec, extents, product, promote_specs, same_shape

#: Windows have at most so many elements, in at most so many rows, if kernels read each line once:
#: elements are unrolled, and the sums of as many rows of results are under way.
PLACES, ROWS = 25, 9


class Moves(NamedTuple):
    """How windows move along each of some axes."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilate: tuple[int, ...]

    def counts(self, shape: Any) -> tuple[int, ...]:
        """How many windows fit along each axis."""
        spans = zip(shape, self.kernel, self.stride, self.dilate, strict=True)
        return tuple((n - (k - 1) * d - 1) // s + 1 for n, k, s, d in spans)

    def reach(self, counts: Any) -> tuple[int, ...]:
        """How many elements along each axis this number of windows covers."""
        spans = zip(counts, self.kernel, self.stride, self.dilate, strict=True)
        return tuple((n - 1) * s + (k - 1) * d + 1 for n, k, s, d in spans)

    def spread(self, strides: Any) -> tuple[int, ...]:
        """The strides of the axes inside a window, then of the axes that count windows."""
        inside = (d * t for d, t in zip(self.dilate, strides, strict=True))
        return (*inside, *(s * t for s, t in zip(self.stride, strides, strict=True)))

    def check(self, name: str, given: Any, shape: Any) -> None:
        """Raises `ShapeError` unless there is a window; sizes must be positive."""
        if any(type(n) is not int or n < 1 for part in self for n in part):
            raise ShapeError(
                f"{name}: {given}: kernel {self.kernel}, stride {self.stride} and dilate "
                f"{self.dilate} must be positive whole numbers"
            )
        for axis, (extent, span) in enumerate(zip(shape, self.reach(self.ones), strict=True)):
            if not extent >= span:
                raise ShapeError(
                    f"{name}: {given}: a window spans {span} elements, but spatial axis {axis} "
                    f"has {extent} with its padding"
                )

    @property
    def ones(self) -> tuple[int, ...]:
        """One window along each axis."""
        return (1,) * len(self.kernel)

    @property
    def roll(self) -> bool:
        """Whether windows of two axes are small, move on by one or two, and overlap from row to
        row. Kernels then read each line once, and need no border in memory
        (`codegen.loops.rolling`)."""
        if len(self.kernel) != 2 or min(self.kernel) == 1 or self.dilate[0] != 1:
            return False
        small = product(self.kernel) <= PLACES and max(self.stride) <= 2
        return small and self.stride[0] < self.kernel[0] <= ROWS


# --- windows of an image --------------------------------------------------------------------


@op()
def windows(x: Any, *, kernel: Any, stride: Any, dilate: Any) -> Any:
    """All windows over the last axes: (..., *kernel, *counts), as a view."""
    np, axes = numpy(), len(kernel)
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilate, strict=True)]
    seen = np.lib.stride_tricks.sliding_window_view(x, spans, tuple(range(-axes, 0)))
    steps = (..., *(slice(None, None, step) for step in (*stride, *dilate)))
    inside = range(x.ndim, x.ndim + axes)
    return np.moveaxis(seen[steps], inside, [n - axes for n in inside])


@windows.spec
def _(x: Spec, *, kernel: Any, stride: Any, dilate: Any) -> Spec:
    moves, lead = Moves(kernel, stride, dilate), x.ndim - len(kernel)
    moves.check("windows", x, x.shape[lead:])
    return Spec((*x.shape[:lead], *kernel, *moves.counts(x.shape[lead:])), x.dtype)


@windows.view
def _(layout: Layout, result: Spec, *, kernel: Any, stride: Any, dilate: Any) -> Layout:
    lead = len(layout.shape) - len(kernel)
    strides = Moves(kernel, stride, dilate).spread(layout.strides[lead:])
    return Layout(result.shape, (*layout.strides[:lead], *strides), layout.offset)


@windows.gradient
def _(g: Any, y: Any, x: Any, *, kernel: Any, stride: Any, dilate: Any) -> Any:
    return (added(g, Moves(kernel, stride, dilate), x.shape[x.ndim - len(kernel) :]),)


@op()
def bordered_windows(
    x: Any, *, kernel: Any, stride: Any, dilate: Any, before: Any, after: Any, lowest: bool = False
) -> Any:
    """`windows` of an array with a border around its last axes, as `border` makes it. It is not
    made: kernels read its number instead."""
    wide = border.function(x, before=before, after=after, lowest=lowest)
    return windows.function(wide, kernel=kernel, stride=stride, dilate=dilate)


@bordered_windows.spec
def _(
    x: Spec, *, kernel: Any, stride: Any, dilate: Any, before: Any, after: Any, lowest: bool
) -> Spec:
    (wide,) = border.infer(x, before=before, after=after, lowest=lowest, most=None)
    return windows.infer(wide, kernel=kernel, stride=stride, dilate=dilate)[0]


@bordered_windows.element
def _(
    loop: Any,
    at: Any,
    x: Any,
    *,
    kernel: Any,
    stride: Any,
    dilate: Any,
    before: Any,
    after: Any,
    lowest: bool,
) -> Any:
    axes = len(kernel)
    lead, inside, counts = at[: -2 * axes], at[-2 * axes : -axes], at[-axes:]
    steps = zip(inside, counts, stride, dilate, before, strict=True)
    places = (count * s + (place * d + -b) for place, count, s, d, b in steps)
    return x.at_or(_number(x.dtype, lowest), *lead, *places)


@bordered_windows.gradient
def _(
    g: Any,
    y: Any,
    x: Any,
    *,
    kernel: Any,
    stride: Any,
    dilate: Any,
    before: Any,
    after: Any,
    lowest: bool,
) -> Any:
    shape = x.shape[x.ndim - len(kernel) :]
    whole = [a + n + b for a, n, b in zip(before, shape, after, strict=True)]
    return (within(added(g, Moves(kernel, stride, dilate), whole), before, shape),)


# --- sums of windows ------------------------------------------------------------------------


def added(x: Any, moves: Moves, shape: Any) -> Any:
    """The windows added at their places in an array whose last axes have the given shape."""
    kernel, axes = moves.kernel, len(moves.kernel)
    if kernel != moves.stride or moves.dilate != moves.ones:
        return fold(x, **moves._asdict(), shape=shape)
    # Each element is in one window only, so the elements are interleaved.
    parts = {}
    for place in itertools.product(*map(range, kernel)):
        key = (..., *place, *[slice(None)] * axes)
        parts[place] = x[key]
    found = taking_turns(parts, kernel)
    rest = [n - m for n, m in zip(shape, found.shape[found.ndim - axes :], strict=True)]
    return found if all(n == 0 for n in rest) else bordered(found, (0,) * axes, rest)


def taking_turns(parts: dict[tuple[int, ...], Any], steps: tuple[int, ...]) -> Any:
    """Arrays interleaved along the last axes, one axis for each of `steps`.

    `parts` has one array for each phase, in order.
    """
    return turns(*parts.values(), steps=tuple(steps))


@op()
def turns(*parts: Any, steps: Any) -> Any:
    """Arrays of one shape, interleaved along the last axes: one array for each phase of `steps`."""
    np, axes = numpy(), len(steps)
    shape = parts[0].shape
    whole = (n * s for n, s in zip(shape[len(shape) - axes :], steps, strict=True))
    found = np.empty((*shape[: len(shape) - axes], *whole), np.result_type(*parts))
    for phase, part in zip(itertools.product(*map(range, steps)), parts, strict=True):
        key = (..., *(slice(r, None, s) for r, s in zip(phase, steps, strict=True)))
        found[key] = part
    return found


@turns.spec
def _(*parts: Spec, steps: Any) -> Spec:
    shape, lead = parts[0].shape, parts[0].ndim - len(steps)
    if len(parts) != product(steps) or any(not same_shape(x.shape, shape) for x in parts):
        raise ShapeError(f"turns: {list(parts)} must be {product(steps)} arrays of the same shape")
    whole = (n * s for n, s in zip(shape[lead:], steps, strict=True))
    return Spec((*shape[:lead], *whole), promote_specs(*parts))


@turns.pieces
def _(layout: Layout, *parts: Spec, steps: Any) -> Iterator[tuple[Layout, int]]:
    lead = len(layout.shape) - len(steps)
    spread = (t * s for t, s in zip(layout.strides[lead:], steps, strict=True))
    strides = (*layout.strides[:lead], *spread)
    for number, phase in enumerate(itertools.product(*map(range, steps))):
        offset = layout.offset
        for r, t in zip(phase, layout.strides[lead:], strict=True):
            offset = offset + t * r
        yield Layout(parts[number].shape, strides, offset), number


@turns.holomorphic
def _(g: Any, y: Any, *parts: Any, steps: Any) -> Any:
    found = []
    for phase in itertools.product(*map(range, steps)):
        key = (..., *(slice(r, None, s) for r, s in zip(phase, steps, strict=True)))
        found.append(g[key])
    return found


@op()
def apart(*parts: Any, steps: Any, shape: Any) -> Any:
    """Zeros in last axes of the given shape, with the elements of an array `steps` apart.

    The array may be cut in two along its last axis: the elements of whole steps, and the rest.
    """
    np, axes = numpy(), len(steps)
    x = np.concatenate(parts, axis=-1)
    found = np.zeros((*x.shape[: x.ndim - axes], *shape), x.dtype)
    key = (..., *(slice(None, None, s) for s in steps))
    found[key] = x
    return found


@apart.spec
def _(*parts: Spec, steps: Any, shape: Any) -> Spec:
    x, lead = parts[0], parts[0].ndim - len(steps)
    counts = [-(-n // s) for n, s in zip(extents("apart", shape), steps, strict=True)]
    total = reduce(add, (part.shape[-1] for part in parts))
    if not same_shape((*x.shape[lead:-1], total), tuple(counts)):
        raise ShapeError(f"apart: {list(parts)} are not the {counts} elements {steps} apart")
    return Spec((*x.shape[:lead], *shape), x.dtype)


@apart.pieces
def _(layout: Layout, *parts: Spec, steps: Any, shape: Any) -> Iterator[tuple[Layout, Any]]:
    """Rows with elements interleave these with zeros; the other rows are zeros."""
    lead, (*others, step) = len(layout.shape) - len(steps), steps

    def lines(layout: Layout, phase: Any) -> Layout:
        for axis, (r, s) in enumerate(zip(phase, others, strict=True), start=lead):
            layout = every(layout, axis, r, s)
        return layout

    rows = lines(layout, [0] * len(others))
    whole = shape[-1] // step * step
    sides = (0, whole), (whole, shape[-1] - whole)
    for number, (start, length) in enumerate(each for each in sides if not each[1] == 0):
        side = narrowed(rows, len(layout.shape) - 1, start, length)
        for r in range(step if start == 0 and whole else int(length)):
            part = every(side, len(layout.shape) - 1, r, step)
            yield part, 0.0 if r else number
    for phase in itertools.product(*map(range, others)):
        if any(phase):
            yield lines(layout, phase), 0.0


def every(layout: Layout, axis: int, start: int, step: int) -> Layout:
    """Every `step`-th element of an axis, from `start` on."""
    shape, strides = list(layout.shape), list(layout.strides)
    offset = layout.offset + strides[axis] * start
    shape[axis] = -((start - shape[axis]) // step)
    strides[axis] = strides[axis] * step
    return Layout(tuple(shape), tuple(strides), offset)


@apart.holomorphic
def _(g: Any, y: Any, *parts: Any, steps: Any, shape: Any) -> Any:
    key = (..., *(slice(None, None, s) for s in steps))
    seen = g[key]
    whole = parts[0].shape[-1]
    found = [seen[..., :whole], seen[..., whole:]]
    return found[: len(parts)]


@op()
def fold(x: Any, *, kernel: Any, stride: Any, dilate: Any, shape: Any) -> Any:
    """The windows added at their places in an array whose last axes have the given shape.

    Sums are accumulated as `sum` does: float16 in float32.
    """
    np, moves, axes = numpy(), Moves(kernel, stride, dilate), len(kernel)
    lead = x.shape[: x.ndim - 2 * axes]
    total = np.zeros((*lead, *shape), as_dtype(x.dtype).accumulate.name)
    counts = x.shape[x.ndim - axes :]
    for place in itertools.product(*map(range, kernel)):
        spans = zip(place, moves.stride, moves.dilate, counts, strict=True)
        target = (..., *(slice(k * d, k * d + (n - 1) * s + 1, s) for k, s, d, n in spans))
        source = (..., *place, *[slice(None)] * axes)
        total[target] += x[source]
    return total.astype(x.dtype)


@fold.spec
def _(x: Spec, *, kernel: Any, stride: Any, dilate: Any, shape: Any) -> Spec:
    moves, axes = Moves(kernel, stride, dilate), len(kernel)
    lead = x.ndim - 2 * axes
    found = moves.counts(extents("fold", shape))
    if not x.dtype.is_inexact:
        raise DTypeError(f"fold: {x} must be floating; use astype('float32')")
    if not same_shape(x.shape[lead:], (*kernel, *found)):
        raise ShapeError(f"fold: {x} does not end in the windows {[*kernel, *found]} of {shape}")
    return Spec((*x.shape[:lead], *shape), x.dtype)


@fold.holomorphic
def _(g: Any, y: Any, x: Any, *, kernel: Any, stride: Any, dilate: Any, shape: Any) -> Any:
    return (windows(g, kernel=kernel, stride=stride, dilate=dilate),)


@fold.lower
def _(
    emit: Emitter, outputs: Any, inputs: Any, *, kernel: Any, stride: Any, dilate: Any, shape: Any
) -> None:
    """Each loop adds, from all windows, a part in which no two windows overlap."""
    (result,), (x,) = outputs, inputs
    axes = len(kernel)
    lead = len(x.shape) - 2 * axes
    wide: DType = result.dtype.accumulate
    total = result if wide is result.dtype else emit.temporary(wide, result.shape)
    emit.fill(total, 0)
    moves = Moves(kernel, stride, dilate)
    spread = moves.spread(total.strides[lead:])
    for starts in itertools.product(*map(_parts, kernel, stride, dilate)):
        source, offset = x, total.layout.offset
        for axis, (start, length) in enumerate(starts):
            source = source.narrow(lead + axis, start, length)
            offset = offset + start * spread[axis]
        target = total.at(Layout(source.shape, (*total.strides[:lead], *spread), offset))
        # The last axis of a window next to the last one that counts windows: with strides, places
        # of a row alternate between elements of a window, which kernels read from several rows.
        order = (*range(lead + axes - 1), *range(lead + axes, lead + 2 * axes - 1))
        order = (*order, lead + axes - 1, lead + 2 * axes - 1)
        source, target = (each.at(each.layout.ordered(order)) for each in (source, target))
        loop = emit.loop(source.shape)
        added = loop.load(target) + loop.cast(loop.load(source), wide)
        loop.store(target, added)
        loop.finish()
    if total is not result:
        emit.copy(total, result)


def _parts(kernel: int, stride: int, dilate: int) -> list[tuple[int, int]]:
    """(start, length) of parts of a window that do not overlap with the same part of others."""
    step = stride if dilate == 1 else 1
    return [(start, min(step, kernel - start)) for start in range(0, kernel, step)]


# --- padding --------------------------------------------------------------------------------


@op()
def border(x: Any, *, before: Any, after: Any, lowest: bool = False, most: Any = None) -> Any:
    """Last axes extended on both sides by zeros, or by the lowest number of the dtype.

    `most` are upper bounds of `after` that hold for all sizes.
    """
    np = numpy()
    widths = [(0, 0)] * (x.ndim - len(before)) + list(zip(before, after, strict=True))
    return np.pad(x, widths, constant_values=_number(as_dtype(x.dtype), lowest))


def _number(dtype: DType, lowest: bool) -> float:
    """The number that fills a border."""
    if not lowest or dtype.kind in "ub":
        return 0
    return -(2 ** (8 * dtype.itemsize - 1)) if dtype.kind == "i" else float("-inf")


@border.spec
def _(x: Spec, *, before: Any, after: Any, lowest: bool, most: Any) -> Spec:
    lead = x.ndim - len(before)
    if any(not isinstance(n, Dim) and n < 0 for n in (*before, *after)):
        raise ShapeError(f"border: {x}: padding {before}, {after} must not be negative")
    spans = zip(before, x.shape[lead:], after, strict=True)
    return Spec((*x.shape[:lead], *(a + n + b for a, n, b in spans)), x.dtype)


@border.holomorphic
def _(g: Any, y: Any, x: Any, *, before: Any, after: Any, lowest: bool, most: Any) -> Any:
    return (within(g, before, x.shape[x.ndim - len(before) :]),)


@border.pieces
def _(
    layout: Layout, x: Spec, *, before: Any, after: Any, lowest: bool, most: Any
) -> Iterator[tuple[Layout, Any]]:
    """The border, then x over it. The border after x is filled with its largest possible width, so
    that the same code serves all sizes."""
    number, lead = float(_number(x.dtype, lowest)), x.ndim - len(before)
    if most is None:
        yield layout, number
    for axis, first in enumerate(before, start=lead):
        last = 0 if most is None else most[axis - lead]
        if most is not None and first > 0:
            yield narrowed(layout, axis, 0, first), number
        if last > 0:
            yield narrowed(layout, axis, layout.shape[axis] - last, last), number
        layout = narrowed(layout, axis, first, x.shape[axis])
    yield layout, 0


def bordered(x: Any, before: Any, after: Any, lowest: bool = False, most: Any = None) -> Any:
    """x with a border around its last axes, unless all widths are 0."""
    if all(type(n) is int and n == 0 for n in (*before, *after)):
        return x
    widths = {"before": tuple(before), "after": tuple(after), "most": most}
    return border(x, lowest=lowest, **widths)


def seen_with_border(
    x: Any, moves: Moves, before: Any, after: Any, most: Any, lowest: bool = False
) -> Any:
    """All windows of an array with a border, which is made only if kernels need it in memory."""
    if moves.roll:
        sides = {"before": tuple(before), "after": tuple(after), "lowest": lowest}
        return bordered_windows(x, **moves._asdict(), **sides)
    return windows(bordered(x, before, after, lowest, most), **moves._asdict())


def bordered_last(x: Any, before: Any, after: Any, most: Any) -> Any:
    """Images (N, C, *S) with a border, if any, and with contiguous channels: (N, *S, C)."""
    last = transpose(x, axes=(0, *range(2, x.ndim), 1))
    found = bordered(last, (*before, 0), (*after, 0), most=(*most, 0))
    return copy(last) if found is last else found


def within(x: Any, start: Any, shape: Any) -> Any:
    """The part of the last axes that begins at `start` and has this shape, as a view."""
    lead = x.ndim - len(start)
    key = [("slice", 0, n, 1) for n in x.shape[:lead]]
    key += [("slice", a, n, 1) for a, n in zip(start, shape, strict=True)]
    if all(s[1] == 0 for s in key) and same_shape(x.shape[lead:], tuple(shape)):
        return x
    return basic_index(x, key=tuple(key))


__all__ = [
    "PLACES",
    "ROWS",
    "Moves",
    "added",
    "apart",
    "bordered",
    "bordered_last",
    "bordered_windows",
    "seen_with_border",
    "taking_turns",
    "windows",
    "within",
]

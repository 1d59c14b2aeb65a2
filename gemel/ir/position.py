"""Positions: where along an axis an element is, as a sum over loops.

An operation that says what its element at a position is (its `element` rule) is given one `At` for
each axis of its result, and reads its inputs at others made of them, or at computed numbers.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from gemel.ir.graph import Node
from gemel.ir.layout import Layout


class At:
    """The sum of loop index x step over the loops, an offset, and computed values x factor.

    `loop` is the loop whose index it is, where it was made as that and nothing was added.
    """

    __slots__ = ("loop", "offset", "steps", "values")

    def __init__(
        self, steps: tuple[Any, ...], offset: Any = 0, values: tuple[tuple[Any, Any], ...] = ()
    ) -> None:
        self.steps = steps
        self.offset = offset
        self.values = values
        self.loop: int | None = None

    def __add__(self, other: Any) -> At:
        if not isinstance(other, At):
            return At(self.steps, self.offset + other, self.values)
        steps = tuple(a + b for a, b in zip(self.steps, other.steps, strict=True))
        return At(steps, self.offset + other.offset, self.values + other.values)

    def __mul__(self, factor: Any) -> At:
        values = tuple((value, own * factor) for value, own in self.values)
        return At(tuple(step * factor for step in self.steps), self.offset * factor, values)


@cache
def along(loop: int | None, loops: int) -> At:
    """At the index of one of the loops; None: at 0. One object for each."""
    at = At(tuple(int(each == loop) for each in range(loops)))
    at.loop = loop
    return at


class _Strides:
    """A sum of an array's strides, each with a factor: what a view's rule makes of unknown ones."""

    __slots__ = ("factors",)

    def __init__(self, factors: dict[int, Any]) -> None:
        self.factors = factors

    def __add__(self, other: Any) -> _Strides:
        found = dict(self.factors)
        for axis, factor in other.factors.items():
            found[axis] = found.get(axis, 0) + factor
        return _Strides(found)

    def __mul__(self, factor: Any) -> _Strides:
        return _Strides({axis: own * factor for axis, own in self.factors.items()})

    __rmul__ = __mul__


def far(shape: tuple[int, ...]) -> Layout:
    """A layout of unknown strides: what a rule makes of it says where elements are."""
    strides = [_Strides({axis: 1}) for axis in range(len(shape))]
    return Layout(shape, strides, _Strides({}))  # type: ignore[arg-type]


def through(layout: Layout, ndim: int, position: tuple[At, ...], start: At) -> tuple[At, ...]:
    """Where the element at a position of a layout is, which a rule made of a `far` one.

    `start` is at 0, whatever the loops.
    """
    offset: Any = layout.offset
    strides: tuple[Any, ...] = layout.strides
    places = []
    for axis in range(ndim):
        at = start + offset.factors.get(axis, 0)
        for stride, outer in zip(strides, position, strict=True):
            if isinstance(stride, _Strides) and axis in stride.factors:
                at = at + outer * stride.factors[axis]
        places.append(at)
    return tuple(places)


def seen_through(node: Node, index: int, position: tuple[At, ...], start: At) -> tuple[At, ...]:
    """Where in its input a view's element at a position is, for the view's result `index`.

    Not for `reshape`, which looks at the strides.
    """
    assert node.op is not None
    source = node.inputs[0]
    found = node.op.rules["view"](far(source.shape), *node.specs, **node.params)
    layout = found[index] if isinstance(found, tuple) else found
    return through(layout, source.ndim, position, start)

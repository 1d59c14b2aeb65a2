"""Positions along an axis, as affine functions of loop indices.

An `element` rule says what the element of a result at some position is. It gets an `At` for each
axis of the result, and reads its inputs at positions computed from these: the element (i, j) of a
flip is ``x.at(i * -1 + (n - 1), j)``.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from gemel.ir.graph import Node
from gemel.ir.layout import Layout


class At:
    """offset + sum of steps[k] * (index of loop k) + sum of factor * value over `values`.

    `values` are numbers read from memory while the loops run, as the indices of a `take`. `loop` is
    k if the position is simply the index of loop k, as made by `along`.
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
    """The position that is the index of one of the loops; for None the constant position 0."""
    at = At(tuple(int(each == loop) for each in range(loops)))
    at.loop = loop
    return at


class _Strides:
    """A sum of factor * stride over an array's axes: the result of a view rule on unknown
    strides."""

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
    """A layout of symbolic strides.

    Applied to it, a `view` rule tells which axis of the source each axis of the view runs along.
    """
    strides = [_Strides({axis: 1}) for axis in range(len(shape))]
    return Layout(shape, strides, _Strides({}))  # type: ignore[arg-type]


def through(layout: Layout, ndim: int, position: tuple[At, ...], start: At) -> tuple[At, ...]:
    """The position in the source of a view's element, given the rule's result for `far`.

    `start` is the constant position 0 in the same loops.
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
    """The position in its input of an element of result `index` of a view.

    Not for `reshape`, whose rule compares strides and so cannot work on symbolic ones.
    """
    assert node.op is not None
    source = node.inputs[0]
    layouts = node.op.layouts(far(source.shape), node.specs, node.params)
    assert layouts is not None
    return through(layouts[index], source.ndim, position, start)

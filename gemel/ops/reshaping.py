"""MXNet's notations for shapes and slices: `npx.reshape` with its codes, `npx.slice` and others."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

from gemel.errors import ArgumentError, ShapeError
from gemel.ir.public import Array, function
from gemel.ops.elementwise import add, full, iota, multiply, where
from gemel.ops.logic import equal
from gemel.ops.selection import argwhere
from gemel.ops.shape import listed, operand
from gemel.ops.shape import reshape as plain_reshape
from gemel.ops.subscripts import getitem
from gemel.spec import product


@function(public="npx")
def reshape(a: Any, newshape: Any, reverse: bool = False, order: str = "C") -> Array:
    """The same elements in another shape, of which some extents are codes.

    -1 is inferred; -2 copies the extent at this position; -3 drops an extent of 1; -4 copies all
    remaining extents; -5 multiplies two extents; -6, followed by two numbers, splits an extent into
    two, one of which may be -1. With `reverse` both shapes are read from the right; then -6 comes
    after its two numbers. Raises `ShapeError`.

    >>> npx.reshape(np.ones((2, 3, 8)), (-2, -2, 2, -1)).shape
    """
    a = operand(a)
    if order != "C":
        raise ArgumentError(
            f"reshape: order {order!r}; npx.reshape supports only 'C'; use np.reshape for other "
            "orders"
        )
    wanted = list(listed(newshape))
    shape = list(a.shape)
    if reverse:
        found = _decoded(shape[::-1], wanted[::-1], a)[::-1]
    else:
        found = _decoded(shape, wanted, a)
    return plain_reshape(a, shape=tuple(found))


def _decoded(shape: list[Any], codes: Sequence[int], a: Any) -> list[Any]:
    """The extents that the codes stand for. A -1 is left for `reshape`, except next to an extent of
    0 that is kept: it is then computed from the other extents.
    """

    def refuse(why: str) -> ShapeError:
        return ShapeError(f"reshape: shape {list(a.shape)} to codes {list(codes)}: {why}")

    found: list[Any] = []
    kept: list[Any] = []  # extents of the array that are also in the result
    left: list[Any] = []  # its other extents
    numbers: list[int] = []
    source, rest = list(shape), list(codes)
    while rest:
        code = rest.pop(0)
        if code < -6:
            raise refuse(f"there is no code {code}")
        needs = {-2: 1, -3: 1, -5: 2, -6: 1}.get(code, 0)
        if len(source) < needs:
            raise refuse(f"nothing is left for {code}")
        kept += source if code == -4 else source[:needs]
        if code == -4:
            found += source
            source = []
        elif code == -3:
            if not source.pop(0) == 1:
                raise refuse("-3 drops only an extent of 1")
        elif code == -6:
            found += _divided(source.pop(0), rest[:2], refuse)
            rest = rest[2:]
        elif needs:
            found.append(product(source[:needs]))
            source = source[needs:]
        else:
            found.append(code)
            numbers.append(code)
            left += source[:1]
            source = source[1:]
    if numbers.count(-1) == 1 and any(type(n) is int and n == 0 for n in kept):
        known, size = -product(numbers), product((*left, *source))
        if known > 0 and size % known == 0:
            found[found.index(-1)] = size // known
    return found


def _divided(extent: Any, parts: list[int], refuse: Any) -> list[Any]:
    """The two extents, one of which may be given as -1, into which one extent is divided."""
    if len(parts) != 2 or any(part < -1 or part == 0 for part in parts) or parts == [-1, -1]:
        raise refuse(f"-6 needs two extents, one of which may be -1, not {parts}")
    known = parts[1] if parts[0] == -1 else parts[0]
    if -1 in parts:
        if extent % known != 0:
            raise refuse(f"{extent} is not a multiple of {known}")
        parts = [extent // known if part == -1 else part for part in parts]
    if not parts[0] * parts[1] == extent:
        raise refuse(f"{parts[0]} * {parts[1]} is not {extent}")
    return parts


@function(public="npx")
def shape_array(data: Any) -> Array:
    """The shape of an array, as one of int64.

    >>> npx.shape_array(np.ones((2, 3)))
    """
    shape = tuple(operand(data).shape)
    places = iota(shape=(len(shape),), axis=0, dtype="int64")
    found = full(0, shape=(len(shape),), dtype="int64")
    for axis, extent in enumerate(shape):
        found = add(found, multiply(where(equal(places, axis), 1, 0), extent))
    return found


@function(public="npx")
def slice(data: Any, begin: Any, end: Any, step: Any = None) -> Array:
    """The elements from `begin` to `end` along the first axes; None is an end of the axis.

    >>> npx.slice(np.arange(6).reshape(2, 3), (0, 1), (None, 3))
    """
    begins, ends = listed(begin), listed(end)
    steps = (None,) * len(begins) if step is None or step == () else listed(step)
    if not len(begins) == len(ends) == len(steps):
        raise ShapeError(
            f"slice: begin {begins}, end {ends} and step {steps} must have the same length"
        )
    bounds = zip(begins, ends, steps, strict=True)
    return getitem(operand(data), tuple(builtins.slice(*each) for each in bounds))


@function(public="npx")
def nonzero(a: Any) -> Array:
    """The positions of the nonzero elements, one row each. Waits for the array.

    >>> npx.nonzero(np.array([[1, 0], [0, 2]]))
    """
    return argwhere(a)

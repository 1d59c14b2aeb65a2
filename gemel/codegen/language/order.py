"""The order of loops: neighbours merged, and vectors along what is contiguous.

Loops over results and loops that are reduced come in the order of the axes. But their order is
free, except that of a scan and of positions among the values. So arrays that lie in another order
than their axes (`x.T`) are read as they lie.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gemel.codegen.language.program import (
    ACROSS,
    BROADCAST,
    CONTIGUOUS,
    INDEX,
    INPUT,
    PAIRED,
    REVERSED,
    STRIDED,
)

#: Strides along the dimensions of some loops, in elements.
Strides = tuple[int, ...]
#: The extent of a loop, and the stride of each operand along it.
Loop = tuple[int, list[Any]]


def merged(loops: Iterable[Loop]) -> list[Loop]:
    """The same loops; adjacent loops without a gap between them become one."""
    found: list[Loop] = []
    for extent, strides in loops:
        if found and _follow(found[-1][1], strides, extent):
            extent *= found.pop()[0]
        found.append((extent, strides))
    return found


def _follow(outer: Sequence[Any], inner: Sequence[Any], steps: Any) -> bool:
    """Whether each step along `outer` continues `steps` steps along `inner`, for all operands.
    What stands still along one of the two only does not; this asks nothing about sizes."""
    pairs = list(zip(outer, inner, strict=True))
    if any(_is_still(s) != _is_still(t) for s, t in pairs):
        return False
    return all(s == t * steps for s, t in pairs)


def _is_still(stride: Any) -> bool:
    return type(stride) is int and stride == 0


def ordered(
    rows: list[Loop], columns: list[Loop], roles: Sequence[str], fixed: bool
) -> tuple[list[Loop], list[Loop]]:
    """The loops over results and the reduced ones, in an order that suits how the inputs lie.

    `fixed`: those that are reduced stay in order, since positions along them matter.
    """
    inputs = [i for i, role in enumerate(roles) if role == INPUT]
    if not columns:
        return _moved(rows, inputs, len(rows) - 2), columns
    read = [i for i in inputs if _varies(columns, i)]
    if not fixed:
        columns = joined(columns)
        columns = _moved(columns, read, len(columns) - 1)
    return _moved(rows, _apart(read, columns[-1]), len(rows) - 1), columns


def suits_inner(rows: list[Loop], columns: list[Loop], roles: Sequence[str]) -> bool:
    """Whether vectors may lie along the last of the reduced loops: no fewer operands have gaps
    along the last loop over results."""
    moved = [i for i, role in enumerate(roles) if role != INDEX and _varies(columns, i)]
    return len(_apart(moved, columns[-1])) <= len(_apart(moved, rows[-1]))


def joined(loops: list[Loop]) -> list[Loop]:
    """The same loops in any order; those without a gap between them become one."""
    for a, (extent, outer) in enumerate(loops):
        for b, (steps, inner) in enumerate(loops):
            if a != b and _follow(outer, inner, steps):
                rest = [loop for i, loop in enumerate(loops) if i not in (a, b)]
                rest.insert(max(a, b) - 1, (extent * steps, inner))
                return joined(rest)
    return loops


def _moved(loops: list[Loop], operands: list[int], place: int) -> list[Loop]:
    """The loops, with the one along which most operands are contiguous that are not along the last,
    moved to a place."""
    last = loops[-1]
    apart = _apart(operands, last)
    lines = [sum(_is_line(loop, last, i) for i in apart) for loop in loops]
    best = max(range(place + 1), key=lambda d: (lines[d], d), default=place)
    rest = loops[:best] + loops[best + 1 :]
    return [*rest[:place], loops[best], *rest[place:]] if best < place else loops


def _is_line(loop: Loop, last: Loop, operand: int) -> bool:
    """Whether an operand is contiguous along a loop, but not as the elements of a window: windows
    overlap along the last loop, so vectors along that are better.

    Free sizes are not asked for their values: neither for windows nor for arrays are they needed.
    """
    (extent, strides), step = loop, last[1][operand]
    overlap = type(extent) is int and type(step) is int and extent > step
    return always(strides[operand], 1) and not overlap


def _apart(operands: Iterable[int], loop: Loop) -> list[int]:
    """Those of the operands whose elements do not lie side by side along a loop."""
    return [i for i in operands if not always(loop[1][i], 0, 1)]


def _varies(loops: list[Loop], operand: int) -> bool:
    """Whether an operand moves along any of the loops."""
    return any(not always(strides[operand], 0) for _, strides in loops)


def always(stride: Any, *values: int) -> bool:
    """Whether a stride has one of these values in all calls."""
    return type(stride) is int and stride in values


def place_class(place: Any, role: str, number: int, along: Any, above: Any) -> int:
    """The class of an operand along the vector's loop; `above` is the loop around that.

    It depends neither on extents nor on strides that an array happens to have at run time, so one
    kernel serves all such arrays.
    """
    stride = along[1][number]
    found = stride_class(stride)
    if found is not STRIDED or role == INDEX:
        return found
    if role == INPUT and above is not None and above[1][number] == 1:
        return ACROSS
    if type(stride) is not int or getattr(place.buffer, "strided", False):
        return STRIDED
    return REVERSED if stride == -1 else PAIRED if stride == 2 and role == INPUT else STRIDED


def stride_class(stride: int) -> int:
    """The class of a stride along the vector."""
    return BROADCAST if stride == 0 else CONTIGUOUS if stride == 1 else STRIDED


__all__ = [
    "Loop",
    "Strides",
    "always",
    "joined",
    "merged",
    "ordered",
    "place_class",
    "stride_class",
    "suits_inner",
]

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

#: A loop shorter than this fills no vector, and gaps up to this are cheap (`PAIRED`).
FEW_LINES, SMALL_GAP = 8, 4
#: Strides along the dimensions of some loops, in elements.
Strides = tuple[int, ...]
#: The extent of a loop, and the stride of each operand along it.
Loop = tuple[int, list[Any]]


def merged(loops: Iterable[Loop]) -> list[Loop]:
    """The same loops; adjacent loops without a gap between them become one."""
    found: list[Loop] = []
    for extent, strides in loops:
        if found and all(s == t * extent for s, t in zip(found[-1][1], strides, strict=True)):
            extent *= found.pop()[0]
        found.append((extent, strides))
    return found


def ordered(
    rows: list[Loop], columns: list[Loop], roles: Sequence[str], fixed: bool
) -> tuple[list[Loop], list[Loop]]:
    """The loops over results and the reduced ones, in an order that suits how the inputs lie.

    `fixed`: those that are reduced stay in order, since positions along them matter.
    """
    inputs = [i for i, role in enumerate(roles) if role == INPUT]
    if not columns:
        return _moved(rows, _contiguous(rows, _across(inputs, rows[-1])), len(rows) - 2), columns
    read = [i for i in inputs if _varies(columns, i)]
    if not fixed:
        columns = joined(columns)
        columns = _moved(
            columns, _contiguous(columns, _across(read, columns[-1])), len(columns) - 1
        )
    across = _across(_across(read, columns[-1]), rows[-1])
    return _moved(rows, _contiguous(rows, across), len(rows) - 1), columns


def suits_inner(rows: list[Loop], columns: list[Loop], roles: Sequence[str], last: bool) -> bool:
    """Whether vectors lie along the last of the reduced loops, instead of the last one over
    results: where fewer operands have gaps. If that is undecided, `last` says so."""
    moved = [i for i, role in enumerate(roles) if role != INDEX and _varies(columns, i)]
    inner, outer = len(_across(moved, columns[-1])), len(_across(moved, rows[-1]))
    better = inner < outer
    return better if inner != outer and _is_long(columns if better else rows) else last


def joined(loops: list[Loop]) -> list[Loop]:
    """The same loops in any order; those without a gap between them become one."""
    for a, (extent, outer) in enumerate(loops):
        for b, (steps, inner) in enumerate(loops):
            if a != b and all(s == t * steps for s, t in zip(outer, inner, strict=True)):
                rest = [loop for i, loop in enumerate(loops) if i not in (a, b)]
                rest.insert(max(a, b) - 1, (extent * steps, inner))
                return joined(rest)
    return loops


def _moved(loops: list[Loop], lines: list[int], place: int) -> list[Loop]:
    """The loops, with the one that has most `lines`, or the last of these, moved to a place."""
    best = max(range(place + 1), key=lambda d: (lines[d], d), default=place)
    rest = loops[:best] + loops[best + 1 :]
    return [*rest[:place], loops[best], *rest[place:]] if best < place else loops


def _contiguous(loops: list[Loop], operands: list[int]) -> list[int]:
    """How many of these operands are contiguous along each loop, if it is long enough."""
    return [
        sum(_is_one(strides[i]) for i in operands) * _is_long([(extent, strides)])
        for extent, strides in loops
    ]


def _is_long(loops: list[Loop]) -> bool:
    """Whether vectors along the last of the loops are not nearly empty, as along a window."""
    extent = loops[-1][0]
    return type(extent) is not int or extent >= FEW_LINES


def _across(operands: list[int], loop: Loop) -> list[int]:
    """Those of the operands that have large gaps along a loop."""
    strides = ((i, loop[1][i]) for i in operands)
    near = (-1, *range(SMALL_GAP + 1))
    return [i for i, n in strides if not (type(n) is int and n in near)]


def _varies(loops: list[Loop], operand: int) -> bool:
    """Whether an operand moves along any of the loops."""
    return any(not (type(n) is int and n == 0) for n in (strides[operand] for _, strides in loops))


def _is_one(stride: Any) -> bool:
    return type(stride) is int and stride == 1


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
    "joined",
    "merged",
    "ordered",
    "place_class",
    "stride_class",
    "suits_inner",
]

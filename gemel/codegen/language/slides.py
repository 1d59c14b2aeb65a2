"""Windows that slide along rows: what one row of results reads, the next row reads again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gemel.codegen.language.carry import Carry
from gemel.codegen.language.order import Loop
from gemel.codegen.language.program import (
    BROADCAST,
    CONTIGUOUS,
    INDEX,
    INPUT,
    OUTER,
    OUTPUT,
    Instruction,
    Operand,
    Schedule,
    is_window,
    operands_read,
)
from gemel.extent import same_for_all
from gemel.ops.windows import PLACES, ROWS

#: How many rows of results are computed at a time: the most that windows of this height allow. As
#: many sums are under way, so that none has to wait for the one before; and they fit in sixteen
#: registers, with what is loaded.
AT_ONCE = (7, 5)
#: Longer lines of a window are added up in blocks, which those loops do not do.
LONGEST = 63


def schedule_of(
    rows: list[Loop], columns: list[Loop], operands: Sequence[Operand], code: Sequence[Instruction]
) -> Schedule:
    """How a program with vectors along its last outer dimension is computed: row by row unless it
    has windows that slide.

    Such a program has one reduction, over the lines and columns of windows that move on by a line
    or a few from row to row. Small windows roll over the image (`loops.rolling`). Of larger ones
    that move on by one line and are multiplied by weights, some rows of results are computed at a
    time (`loops.sliding`).
    """
    plain = Schedule(OUTER)
    names = [step.name for step in code]
    if len(rows) < 2 or len(columns) != 2 or names.count("reduce") != 1:
        return plain
    if {"scan", "gather", "scatter_add", "check"}.intersection(names):
        return plain
    reduction = next(step for step in code if step.name == "reduce")
    (high, lines), (wide, across) = columns
    if type(high) is not int or type(wide) is not int or wide > LONGEST:
        return plain
    varying = {n: operand for n, operand in enumerate(operands) if operand.varies}
    windows = {n for n, operand in varying.items() if is_window(operand)}
    weights = {n for n, o in varying.items() if (o.role, o.stride_class) == (INPUT, BROADCAST)}
    down = rows[-2][1]
    step = _step([(down[n], lines[n]) for n in windows], high)
    writes = any(operand.role == OUTPUT for operand in varying.values())
    if not step or writes or isinstance(reduction.attribute, Carry):
        return plain
    indices = {n: operand for n, operand in varying.items() if operand.role == INDEX}
    ahead = [step * each for each in lines]
    known = {*windows, *(n for n in weights if same_for_all(down[n], 0))}
    known.update(n for n, o in indices.items() if _is_coordinate(n, o, down, ahead, across))
    chosen = {each.operand for each in code if each.name == "load_where"}
    small = high <= ROWS and high * wide <= PLACES
    if (
        small
        and chosen <= windows
        and _apart(code)
        and operands_read(code, reduction.arguments) <= known
    ):
        return plain._replace(rows=high, columns=wide, unroll=step)
    along = all(operands[n].stride_class == CONTIGUOUS for n in windows)
    if chosen or step > 1 or not (along and weights):
        return plain
    return plain._replace(rows=next((count for count in AT_ONCE if count <= high), 0))


def _step(windows: list[tuple[Any, Any]], high: int) -> int:
    """By how many of their lines all windows move on from row to row, given their strides along
    both, if they then overlap; else 0."""
    for step in range(1, high if windows else 0):
        if all(same_for_all(down, step * line) for down, line in windows):
            return step
    return 0


def _is_coordinate(
    number: int, index: Operand, down: Sequence[Any], ahead: Sequence[Any], across: Sequence[Any]
) -> bool:
    """Whether an index is that of a line of the image, or of a column."""
    if index.stride_class == BROADCAST:
        return same_for_all(down[number], ahead[number]) and same_for_all(across[number], 0)
    return same_for_all(down[number], 0) and same_for_all(ahead[number], 0)


def _apart(code: Sequence[Instruction]) -> bool:
    """Whether each condition for reading is one for a line or for a column alone."""
    conditions = {a for step in code if step.name == "load_where" for a in step.arguments}
    return all(len(operands_read(code, [condition])) == 1 for condition in conditions)


__all__ = ["schedule_of"]

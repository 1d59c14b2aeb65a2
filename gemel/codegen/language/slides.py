"""Windows that slide along rows: what one row of results reads, the next row reads again."""

from __future__ import annotations

from collections.abc import Sequence

from gemel.codegen.language.order import Loop
from gemel.codegen.language.program import (
    BROADCAST,
    CONTIGUOUS,
    INPUT,
    OUTPUT,
    Instruction,
    Operand,
)
from gemel.extent import same_for_all

#: How many rows of results are computed at a time: the most that windows of this height allow. As
#: many sums are under way, so that none has to wait for the one before; and they fit in sixteen
#: registers, with what is loaded.
AT_ONCE = (7, 5)
#: Longer lines of a window are added up in blocks, which those loops do not do.
LONGEST = 63


def rows_at_once(
    rows: list[Loop], columns: list[Loop], operands: Sequence[Operand], code: Sequence[Instruction]
) -> int:
    """How many rows of results should be computed at a time, see `loops.sliding`; 0 for one.

    The program must have one reduction, over the lines and columns of windows that move on by one
    of their lines from row to row, and read numbers that vary along them, such as weights.
    """
    names = [step.name for step in code]
    if len(rows) < 2 or len(columns) != 2 or names.count("reduce") != 1:
        return 0
    if {"scan", "gather", "scatter_add", "check"}.intersection(names):
        return 0
    kind = next(str(step.attribute) for step in code if step.name == "reduce")
    (high, lines), (wide, _) = columns
    if kind.startswith("arg") or type(high) is not int or type(wide) is not int or wide > LONGEST:
        return 0
    varying = [(n, o) for n, o in enumerate(operands) if o.varies]
    windows = [n for n, o in varying if is_window(o)]
    slide = all(same_for_all(rows[-2][1][n], lines[n]) for n in windows)
    weights = any(o.role == INPUT and o.stride_class == BROADCAST for _, o in varying)
    if not (windows and slide and weights) or any(o.role == OUTPUT for _, o in varying):
        return 0
    return next((count for count in AT_ONCE if count <= high), 0)


def is_window(operand: Operand) -> bool:
    """Whether windows are read from an operand of such a program."""
    return operand.varies and operand.role == INPUT and operand.stride_class == CONTIGUOUS


__all__ = ["is_window", "rows_at_once"]

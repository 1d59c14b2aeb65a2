"""The table, complete with all rules."""

from __future__ import annotations

from gemel.onnx.read import (
    elementwise,
    flow,
    folding,
    layers,
    movement,
    positions,
    quantized,
    recurrent,
    reductions,
    resizing,
    windows,
)
from gemel.onnx.read.table import FOLDS, INSIDE, OPERATORS

#: The modules whose rules are in the table.
MODULES = (
    *(elementwise, flow, folding, layers, movement, positions, quantized, recurrent),
    *(reductions, resizing, windows),
)

__all__ = ["FOLDS", "INSIDE", "MODULES", "OPERATORS"]

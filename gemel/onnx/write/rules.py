"""The table, complete with all rules."""

from __future__ import annotations

from gemel.onnx.write import elementwise, layers, nested, reductions, shapes
from gemel.onnx.write.table import CALLS, OPERATIONS

#: The modules whose rules are in the table.
MODULES = (elementwise, reductions, shapes, layers, nested)

__all__ = ["CALLS", "MODULES", "OPERATIONS"]

"""The one table of operations: one paragraph each, by family. Nothing else is here."""

from gemel.ops import (
    choice,
    control,
    cumulative,
    elementwise,
    exponents,
    indexing,
    linalg,
    logic,
    neural,
    random,
    reduction,
    rounding,
    shape,
    statistics,
    trigonometry,
    without_nan,
)

__all__ = [
    "choice",
    "control",
    "cumulative",
    "elementwise",
    "exponents",
    "indexing",
    "linalg",
    "logic",
    "neural",
    "random",
    "reduction",
    "rounding",
    "shape",
    "statistics",
    "trigonometry",
    "without_nan",
]

"""The one table of operations: one paragraph each, by family. Nothing else is here."""

from gemel.ops import (
    arrange,
    control,
    elementwise,
    indexing,
    linalg,
    logic,
    neural,
    norms,
    products,
    random,
    reduction,
    selection,
    shape,
    solving,
    sorting,
    triangles,
)

__all__ = [
    "arrange",
    "control",
    "elementwise",
    "indexing",
    "linalg",
    "logic",
    "neural",
    "norms",
    "products",
    "random",
    "reduction",
    "selection",
    "shape",
    "solving",
    "sorting",
    "triangles",
]

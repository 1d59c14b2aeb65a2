"""The one table of operations: one paragraph each, by family. Nothing else is here.

What every network computes with is imported at once, the other families when they are asked for.
"""

from gemel.ir.late import later
from gemel.ir.public import late_methods
from gemel.ops import (
    assignment,
    control,
    elementwise,
    indexing,
    linalg,
    logic,
    neural,
    random,
    reduction,
    shape,
)

later(
    "gemel.ops.applied",
    "gemel.ops.arrange",
    "gemel.ops.attention",
    "gemel.ops.choice",
    "gemel.ops.complexes",
    "gemel.ops.convolution",
    "gemel.ops.cumulative",
    "gemel.ops.exponents",
    "gemel.ops.fourier",
    "gemel.ops.keywords",
    "gemel.ops.lookup",
    "gemel.ops.loops",
    "gemel.ops.nan_ranks",
    "gemel.ops.normalization",
    "gemel.ops.norms",
    "gemel.ops.padding",
    "gemel.ops.pooling",
    "gemel.ops.polynomials",
    "gemel.ops.products",
    "gemel.ops.reshaping",
    "gemel.ops.rounding",
    "gemel.ops.selection",
    "gemel.ops.sequences",
    "gemel.ops.series",
    "gemel.ops.solving",
    "gemel.ops.sorting",
    "gemel.ops.statistics",
    "gemel.ops.triangles",
    "gemel.ops.trigonometry",
    "gemel.ops.windows",
    "gemel.ops.without_nan",
    "gemel.ops.writing",
)
late_methods(
    "argsort",
    "choose",
    "clip",
    "conj",
    "conjugate",
    "cumprod",
    "cumsum",
    "diagonal",
    "repeat",
    "round",
    "searchsorted",
    "trace",
)

__all__ = [
    "assignment",
    "control",
    "elementwise",
    "indexing",
    "linalg",
    "logic",
    "neural",
    "random",
    "reduction",
    "shape",
]

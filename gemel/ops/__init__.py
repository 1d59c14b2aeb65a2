"""The one table of operations: one paragraph each, by family. Nothing else is here.

What every network computes with is imported at once, the other families when they are asked for.
"""

from gemel.ir.late import later
from gemel.ir.public import late_methods
from gemel.ops import (
    activations,
    assignment,
    control,
    distribution,
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
    "gemel.ops.arrange",
    "gemel.ops.attention",
    "gemel.ops.boxes",
    "gemel.ops.choice",
    "gemel.ops.choices",
    "gemel.ops.complexes",
    "gemel.ops.convolution",
    "gemel.ops.cumulative",
    "gemel.ops.detection",
    "gemel.ops.distributions",
    "gemel.ops.exponents",
    "gemel.ops.fourier",
    "gemel.ops.images",
    "gemel.ops.lookup",
    "gemel.ops.loops",
    "gemel.ops.normalization",
    "gemel.ops.norms",
    "gemel.ops.padding",
    "gemel.ops.pooling",
    "gemel.ops.products",
    "gemel.ops.recurrent",
    "gemel.ops.regions",
    "gemel.ops.rounding",
    "gemel.ops.selection",
    "gemel.ops.sequences",
    "gemel.ops.solving",
    "gemel.ops.sorting",
    "gemel.ops.special",
    "gemel.ops.statistics",
    "gemel.ops.triangles",
    "gemel.ops.trigonometry",
    "gemel.ops.windows",
    "gemel.ops.without_nan",
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
    "activations",
    "assignment",
    "control",
    "distribution",
    "elementwise",
    "indexing",
    "linalg",
    "logic",
    "neural",
    "random",
    "reduction",
    "shape",
]

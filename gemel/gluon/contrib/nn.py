"""Layers of `gluon.nn` under the name they have in MXNet 1."""

from types import ModuleType
from typing import Any

from gemel.elsewhere import module_elsewhere
from gemel.gluon.nn import (
    Concurrent,
    Embedding,
    HybridConcurrent,
    Identity,
    PixelShuffle1D,
    PixelShuffle2D,
    PixelShuffle3D,
    SyncBatchNorm,
)


class SparseEmbedding(Embedding):
    """An `Embedding`, whose gradient MXNet keeps sparse; here it is dense."""

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        dtype: Any = "float32",
        weight_initializer: Any = None,
        **settings: Any,
    ) -> None:
        super().__init__(input_dim, output_dim, dtype, weight_initializer, True, **settings)


__all__ = [
    "Concurrent",
    "HybridConcurrent",
    "Identity",
    "PixelShuffle1D",
    "PixelShuffle2D",
    "PixelShuffle3D",
    "SparseEmbedding",
    "SyncBatchNorm",
]


def __getattr__(name: str) -> ModuleType:
    return module_elsewhere(__name__, name, __all__)

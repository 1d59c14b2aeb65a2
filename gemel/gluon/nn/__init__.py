"""Layers."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gemel.elsewhere import module_elsewhere
from gemel.gluon.block import Block
from gemel.gluon.hybrid import HybridBlock
from gemel.gluon.nn.activations import (
    ELU,
    GELU,
    SELU,
    Activation,
    LeakyReLU,
    PReLU,
    SiLU,
    Swish,
)
from gemel.gluon.nn.basic import (
    BatchNorm,
    BatchNormReLU,
    Dense,
    Dropout,
    Flatten,
    HybridLambda,
    Identity,
    Lambda,
)
from gemel.gluon.nn.containers import (
    Concatenate,
    Concurrent,
    HybridConcatenate,
    HybridConcurrent,
    HybridSequential,
    Sequential,
)

if TYPE_CHECKING:
    from gemel.gluon.nn.convolution import (
        Conv1D,
        Conv1DTranspose,
        Conv2D,
        Conv2DTranspose,
        Conv3D,
        Conv3DTranspose,
    )
    from gemel.gluon.nn.deformable import DeformableConvolution, ModulatedDeformableConvolution
    from gemel.gluon.nn.normalization import Embedding, GroupNorm, InstanceNorm, LayerNorm
    from gemel.gluon.nn.pooling import (
        AdaptiveAvgPool1D,
        AdaptiveAvgPool2D,
        AdaptiveAvgPool3D,
        AdaptiveMaxPool1D,
        AdaptiveMaxPool2D,
        AdaptiveMaxPool3D,
        AvgPool1D,
        AvgPool2D,
        AvgPool3D,
        GlobalAvgPool1D,
        GlobalAvgPool2D,
        GlobalAvgPool3D,
        GlobalMaxPool1D,
        GlobalMaxPool2D,
        GlobalMaxPool3D,
        MaxPool1D,
        MaxPool2D,
        MaxPool3D,
    )
    from gemel.gluon.nn.shuffle import (
        PixelShuffle1D,
        PixelShuffle2D,
        PixelShuffle3D,
        ReflectionPad2D,
    )
    from gemel.gluon.nn.synchronized import SyncBatchNorm
    from gemel.gluon.symbol_block import SymbolBlock

#: Layers that most programs do not use; their modules are imported when they are first used.
LATE = ("convolution", "deformable", "normalization", "pooling", "shuffle", "synchronized")

__all__ = [
    "ELU",
    "GELU",
    "SELU",
    "Activation",
    "AdaptiveAvgPool1D",
    "AdaptiveAvgPool2D",
    "AdaptiveAvgPool3D",
    "AdaptiveMaxPool1D",
    "AdaptiveMaxPool2D",
    "AdaptiveMaxPool3D",
    "AvgPool1D",
    "AvgPool2D",
    "AvgPool3D",
    "BatchNorm",
    "BatchNormReLU",
    "Block",
    "Concatenate",
    "Concurrent",
    "Conv1D",
    "Conv1DTranspose",
    "Conv2D",
    "Conv2DTranspose",
    "Conv3D",
    "Conv3DTranspose",
    "DeformableConvolution",
    "Dense",
    "Dropout",
    "Embedding",
    "Flatten",
    "GlobalAvgPool1D",
    "GlobalAvgPool2D",
    "GlobalAvgPool3D",
    "GlobalMaxPool1D",
    "GlobalMaxPool2D",
    "GlobalMaxPool3D",
    "GroupNorm",
    "HybridBlock",
    "HybridConcatenate",
    "HybridConcurrent",
    "HybridLambda",
    "HybridSequential",
    "Identity",
    "InstanceNorm",
    "Lambda",
    "LayerNorm",
    "LeakyReLU",
    "MaxPool1D",
    "MaxPool2D",
    "MaxPool3D",
    "ModulatedDeformableConvolution",
    "PReLU",
    "PixelShuffle1D",
    "PixelShuffle2D",
    "PixelShuffle3D",
    "ReflectionPad2D",
    "Sequential",
    "SiLU",
    "Swish",
    "SymbolBlock",
    "SyncBatchNorm",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        return module_elsewhere(__name__, name, __all__)
    if name == "SymbolBlock":
        return globals().setdefault(name, import_module("gemel.gluon.symbol_block").SymbolBlock)
    for module in LATE:
        found = getattr(import_module(f"{__name__}.{module}"), name, None)
        if found is not None:
            return globals().setdefault(name, found)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

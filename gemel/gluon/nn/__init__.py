"""Layers."""

from __future__ import annotations

from gemel.gluon.block import Block, HybridBlock
from gemel.gluon.nn.activations import Activation, LeakyReLU
from gemel.gluon.nn.basic import (
    BatchNorm,
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
from gemel.gluon.nn.convolution import (
    Conv1D,
    Conv1DTranspose,
    Conv2D,
    Conv2DTranspose,
    Conv3D,
    Conv3DTranspose,
)
from gemel.gluon.nn.pooling import (
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

__all__ = [
    "Activation",
    "AvgPool1D",
    "AvgPool2D",
    "AvgPool3D",
    "BatchNorm",
    "Block",
    "Concatenate",
    "Concurrent",
    "Conv1D",
    "Conv1DTranspose",
    "Conv2D",
    "Conv2DTranspose",
    "Conv3D",
    "Conv3DTranspose",
    "Dense",
    "Dropout",
    "Flatten",
    "GlobalAvgPool1D",
    "GlobalAvgPool2D",
    "GlobalAvgPool3D",
    "GlobalMaxPool1D",
    "GlobalMaxPool2D",
    "GlobalMaxPool3D",
    "HybridBlock",
    "HybridConcatenate",
    "HybridConcurrent",
    "HybridLambda",
    "HybridSequential",
    "Identity",
    "Lambda",
    "LeakyReLU",
    "MaxPool1D",
    "MaxPool2D",
    "MaxPool3D",
    "Sequential",
]

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

__all__ = [
    "Activation",
    "BatchNorm",
    "Block",
    "Concatenate",
    "Concurrent",
    "Dense",
    "Dropout",
    "Flatten",
    "HybridBlock",
    "HybridConcatenate",
    "HybridConcurrent",
    "HybridLambda",
    "HybridSequential",
    "Identity",
    "Lambda",
    "LeakyReLU",
    "Sequential",
]

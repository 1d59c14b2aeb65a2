"""Losses: one number for each example of a batch."""

from __future__ import annotations

from gemel.gluon.loss.base import Loss
from gemel.gluon.loss.classes import (
    CTCLoss,
    KLDivLoss,
    LogisticLoss,
    SigmoidBinaryCrossEntropyLoss,
    SoftmaxCrossEntropyLoss,
)
from gemel.gluon.loss.numbers import (
    HingeLoss,
    HuberLoss,
    L1Loss,
    L2Loss,
    PoissonNLLLoss,
    SquaredHingeLoss,
)
from gemel.gluon.loss.vectors import CosineEmbeddingLoss, SDMLLoss, TripletLoss

SoftmaxCELoss = SoftmaxCrossEntropyLoss
SigmoidBCELoss = SigmoidBinaryCrossEntropyLoss

__all__ = [
    "CTCLoss",
    "CosineEmbeddingLoss",
    "HingeLoss",
    "HuberLoss",
    "KLDivLoss",
    "L1Loss",
    "L2Loss",
    "LogisticLoss",
    "Loss",
    "PoissonNLLLoss",
    "SDMLLoss",
    "SigmoidBCELoss",
    "SigmoidBinaryCrossEntropyLoss",
    "SoftmaxCELoss",
    "SoftmaxCrossEntropyLoss",
    "SquaredHingeLoss",
    "TripletLoss",
]

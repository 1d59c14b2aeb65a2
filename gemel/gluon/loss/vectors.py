"""Losses of vectors: which are near each other, and which apart."""

from __future__ import annotations

from typing import Any

from gemel import np, npx
from gemel.errors import ShapeError
from gemel.gluon.block import Tensor
from gemel.gluon.inputs import of_arrays
from gemel.gluon.loss.base import Loss, tiny_of
from gemel.ranges import check_number

__all__ = [
    "CosineEmbeddingLoss",
    "SDMLLoss",
    "TripletLoss",
]


class TripletLoss(Loss):
    """max(0, margin + |positive - pred|^2 - |negative - pred|^2), the squares summed.

    Schroff, Kalenichenko and Philbin, FaceNet, CVPR 2015.
    """

    def __init__(
        self, margin: float = 1, weight: float | None = None, batch_axis: int = 0, **settings: Any
    ) -> None:
        super().__init__(weight, batch_axis, **settings)
        check_number(type(self).__name__, "margin", margin)
        self._margin = margin

    @of_arrays
    def forward(
        self, pred: Tensor, positive: Tensor, negative: Tensor, sample_weight: Tensor | None = None
    ) -> Tensor:
        """Three arrays with the same number of elements -> (batch,)."""
        positive, negative = self._like(positive, pred), self._like(negative, pred)
        nearer = np.square(positive - pred) - np.square(negative - pred)
        others = self._others(nearer)
        nearer = nearer.sum(axis=others) if others else nearer
        return self._weighted(npx.relu(nearer + self._margin), sample_weight)


class CosineEmbeddingLoss(Loss):
    """1 - cos(angle between two vectors) for the label 1, max(0, cos - margin) for -1."""

    def __init__(
        self, weight: float | None = None, batch_axis: int = 0, margin: float = 0, **settings: Any
    ) -> None:
        super().__init__(weight, batch_axis, **settings)
        check_number(type(self).__name__, "margin", margin)
        self._margin = margin

    @of_arrays
    def forward(
        self, input1: Tensor, input2: Tensor, label: Tensor, sample_weight: Tensor | None = None
    ) -> Tensor:
        """Two arrays (batch, size) and labels (batch,) -> (batch, 1)."""
        input1 = self._like(input1, input2)
        both, least = (input1, input2), max(tiny_of(input1), 1e-6)  # bounds the gradient at 0
        lengths = (np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), least) for x in both)
        one, other = (x / length for x, length in zip(both, lengths, strict=True))
        cosine = (one * other).sum(axis=-1).reshape(-1, 1)
        label = self._like(label, cosine)
        apart = np.where(label == -1, npx.relu(cosine - self._margin), 0.0)
        return self._weighted(np.where(label == 1, 1 - cosine, apart), sample_weight)


class SDMLLoss(Loss):
    """Smoothed deep metric learning: x1[i] belongs to x2[i] and to no other vector of the batch.

    The label's probability is 1 - `smoothing_parameter`; the rest is shared by the others.
    Bonadiman, Kumar and Mittal, Large scale question paraphrase retrieval with smoothed deep
    metric learning, 2019.
    """

    def __init__(
        self,
        smoothing_parameter: float = 0.3,
        weight: float | None = 1.0,
        batch_axis: int = 0,
        **settings: Any,
    ) -> None:
        super().__init__(weight, batch_axis, **settings)
        check_number("SDMLLoss", "smoothing_parameter", smoothing_parameter)
        self.smoothing_parameter = smoothing_parameter

    @of_arrays
    def forward(self, x1: Tensor, x2: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        """Two arrays (batch, size) -> (batch,)."""
        if x1.ndim != 2 or tuple(x1.shape) != tuple(x2.shape):
            raise ShapeError(
                f"{type(self).__name__}: x1 has shape {tuple(x1.shape)} and x2 {tuple(x2.shape)}; "
                "both must be (batch, size)"
            )
        apart = np.square(np.expand_dims(x1, 1) - np.expand_dims(x2, 0)).sum(axis=2)
        predicted = npx.log_softmax(-apart, axis=1)
        same = np.eye(x1.shape[0], dtype=x1.dtype)
        part = self.smoothing_parameter / max(x1.shape[0] - 1, 1)
        label = same * (1 - self.smoothing_parameter) + (1 - same) * part
        loss = (label * (np.log(label + tiny_of(label)) - predicted)).sum(axis=1)
        return self._weighted(loss, sample_weight)

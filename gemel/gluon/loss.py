"""Losses: one number for each example of a batch."""

from __future__ import annotations

from typing import Any

from gemel import np, npx
from gemel.errors import ShapeError
from gemel.gluon.block import Tensor
from gemel.gluon.hybrid import HybridBlock

__all__ = [
    "L1Loss",
    "L2Loss",
    "Loss",
    "SigmoidBCELoss",
    "SigmoidBinaryCrossEntropyLoss",
    "SoftmaxCELoss",
    "SoftmaxCrossEntropyLoss",
]


class Loss(HybridBlock):
    """Base class: `weight` multiplies the loss, `batch_axis` numbers the examples."""

    #: What belongs to this kind of loss, whatever its weight.
    _scale = 1.0

    def __init__(self, weight: float | None, batch_axis: int, **settings: Any) -> None:
        super().__init__(**settings)
        self._weight = weight
        self._batch_axis = batch_axis

    def __repr__(self) -> str:
        return f"{type(self).__name__}(batch_axis={self._batch_axis}, w={self._weight})"

    def _per_example(self, loss: Tensor, sample_weight: Tensor | None) -> Tensor:
        """Weighted, and averaged over every axis but the batch's: shape (batch,)."""
        if sample_weight is not None:
            loss = loss * sample_weight
        factor = self._scale if self._weight is None else self._scale * self._weight
        if factor != 1:
            loss = loss * factor
        batch = self._batch_axis % loss.ndim if loss.ndim else 0
        others = tuple(axis for axis in range(loss.ndim) if axis != batch)
        return loss.mean(axis=others) if others else loss

    def _like(self, label: Tensor, pred: Tensor) -> Tensor:
        """The label in the prediction's shape: (batch,) and (batch, 1) mean the same."""
        if tuple(label.shape) == tuple(pred.shape):
            return label
        if label.size != pred.size:
            raise ShapeError(
                f"{type(self).__name__}: the prediction has shape {tuple(pred.shape)} and the "
                f"label {tuple(label.shape)}; they must have the same number of elements"
            )
        return label.reshape(pred.shape)


class L2Loss(Loss):
    """Half the squared difference, averaged over each example: 0.5 * mean((label - pred)^2)."""

    _scale = 0.5

    def __init__(self, weight: float | None = 1.0, batch_axis: int = 0, **settings: Any) -> None:
        super().__init__(weight, batch_axis, **settings)

    def forward(self, pred: Tensor, label: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        """`pred` and `label` of one shape -> (batch,)."""
        loss = np.square(self._like(label, pred) - pred)
        return self._per_example(loss, sample_weight)


class L1Loss(Loss):
    """The absolute difference, averaged over each example: mean(|label - pred|)."""

    def __init__(self, weight: float | None = None, batch_axis: int = 0, **settings: Any) -> None:
        super().__init__(weight, batch_axis, **settings)

    def forward(self, pred: Tensor, label: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        """`pred` and `label` of one shape -> (batch,)."""
        loss = np.abs(self._like(label, pred) - pred)
        return self._per_example(loss, sample_weight)


class SoftmaxCrossEntropyLoss(Loss):
    """Softmax along `axis`, then the cross-entropy with the label.

    With `sparse_label` (the default) the label holds class numbers, in the prediction's shape
    without `axis`; else probabilities in its whole shape. With `from_logits` the prediction
    already holds log-probabilities. An average over the remaining axes gives (batch,).
    """

    def __init__(
        self,
        axis: int = -1,
        sparse_label: bool = True,
        from_logits: bool = False,
        weight: float | None = None,
        batch_axis: int = 0,
        **settings: Any,
    ) -> None:
        super().__init__(weight, batch_axis, **settings)
        self._axis = axis
        self._sparse_label = sparse_label
        self._from_logits = from_logits

    def forward(self, pred: Tensor, label: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        """(batch, ..., classes) and labels -> (batch,)."""
        if not self._from_logits:
            pred = npx.log_softmax(pred, axis=self._axis)
        # Weights are given per example with the class axis kept, as (batch, 1).
        keep = sample_weight is not None
        if self._sparse_label:
            if label.ndim == pred.ndim and label.shape[self._axis] == 1:
                label = label.squeeze(self._axis)
            loss = -npx.pick(pred, label, axis=self._axis, keepdims=keep)
        else:
            loss = -(pred * self._like(label, pred)).sum(axis=self._axis, keepdims=keep)
        return self._per_example(loss, sample_weight)


class SigmoidBinaryCrossEntropyLoss(Loss):
    """The cross-entropy of independent yes-or-no labels (0 or 1), averaged over each example.

    The prediction goes through a sigmoid, unless `from_sigmoid` says it has. `pos_weight`
    multiplies the loss of the labels that are 1.
    """

    def __init__(
        self,
        from_sigmoid: bool = False,
        weight: float | None = None,
        batch_axis: int = 0,
        **settings: Any,
    ) -> None:
        super().__init__(weight, batch_axis, **settings)
        self._from_sigmoid = from_sigmoid

    def forward(
        self,
        pred: Tensor,
        label: Tensor,
        sample_weight: Tensor | None = None,
        pos_weight: Tensor | None = None,
    ) -> Tensor:
        """`pred` and `label` of one shape -> (batch,)."""
        label = self._like(label, pred)
        if self._from_sigmoid:
            return self._per_example(_of_probability(pred, label, pos_weight), sample_weight)
        # log(1 + exp(-|x|)) cannot overflow.
        softplus = npx.activation(-np.abs(pred), act_type="softrelu")
        if pos_weight is None:
            loss = npx.relu(pred) - pred * label + softplus
        else:
            factor = 1 + label * (pos_weight - 1)
            loss = pred - pred * label + factor * (softplus + npx.relu(-pred))
        return self._per_example(loss, sample_weight)


def _of_probability(pred: Tensor, label: Tensor, pos_weight: Tensor | None) -> Tensor:
    tiny = 1e-12  # keeps the logarithms finite
    positive = np.log(pred + tiny) * label
    if pos_weight is not None:
        positive = positive * pos_weight
    return -(positive + np.log(1 - pred + tiny) * (1 - label))


SoftmaxCELoss = SoftmaxCrossEntropyLoss
SigmoidBCELoss = SigmoidBinaryCrossEntropyLoss

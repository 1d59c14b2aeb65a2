"""Losses of probabilities: logarithms of what a network thinks of the labels."""

from __future__ import annotations

from typing import Any

from gemel import np, npx
from gemel.errors import AxisError, ShapeError, unknown_name
from gemel.extent import seen
from gemel.gluon.block import Tensor
from gemel.gluon.inputs import of_arrays
from gemel.gluon.loss.base import Loss, Pointwise, tiny_of
from gemel.spec import whole

__all__ = [
    "CTCLoss",
    "KLDivLoss",
    "LogisticLoss",
    "SigmoidBinaryCrossEntropyLoss",
    "SoftmaxCrossEntropyLoss",
]


class LogisticLoss(Pointwise):
    """log(1 + exp(-pred * label)), averaged over each example.

    Labels are -1 and 1; with the `label_format` "binary" they are 0 and 1.
    """

    def __init__(
        self,
        weight: float | None = None,
        batch_axis: int = 0,
        label_format: str = "signed",
        **settings: Any,
    ) -> None:
        super().__init__(weight, batch_axis, **settings)
        if label_format not in ("signed", "binary"):
            raise unknown_name("label_format", label_format, ("signed", "binary"))
        self._label_format = label_format

    def elements(self, pred: Tensor, label: Tensor) -> Tensor:
        """The cross-entropy of the label and the sigmoid of the prediction."""
        return _of_logit(pred, (label + 1) / 2 if self._label_format == "signed" else label)


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

    @of_arrays
    def forward(
        self,
        pred: Tensor,
        label: Tensor,
        sample_weight: Tensor | None = None,
        pos_weight: Tensor | None = None,
    ) -> Tensor:
        """`pred` and `label` with the same number of elements -> (batch,)."""
        of = _of_probability if self._from_sigmoid else _of_logit
        loss = of(pred, self._like(label, pred), pos_weight)
        if tuple(loss.shape) != tuple(pred.shape):
            raise ShapeError(
                f"{type(self).__name__}: pos_weight must broadcast to the prediction's shape "
                f"{tuple(pred.shape)}; the loss would have shape {tuple(loss.shape)}"
            )
        return self._per_example(loss, sample_weight)


def _of_logit(pred: Tensor, label: Tensor, pos_weight: Tensor | None = None) -> Tensor:
    # log(1 + exp(-|pred|)) cannot overflow. With np.abs the gradient would be wrong at 0, where
    # the slopes of relu and abs do not fit together.
    above = npx.relu(pred)
    softplus = npx.activation(pred - 2 * above, act_type="softrelu")
    if pos_weight is None:
        return above - pred * label + softplus
    factor = 1 + label * (pos_weight - 1)
    return pred - pred * label + factor * (softplus + (above - pred))


def _of_probability(pred: Tensor, label: Tensor, pos_weight: Tensor | None = None) -> Tensor:
    tiny = tiny_of(pred)
    positive = np.log(pred + tiny) * label
    if pos_weight is not None:
        positive = positive * pos_weight
    return -(positive + np.log(1 - pred + tiny) * (1 - label))


class SoftmaxCrossEntropyLoss(Loss):
    """Softmax along `axis`, then the cross-entropy with the label.

    With `sparse_label` (the default) the label holds class numbers, in the prediction's shape
    without `axis`; else probabilities in its whole shape. With `from_logits` the prediction
    already holds log-probabilities. An average over the remaining axes gives (batch,). A class
    number out of range is an `IndexError`, raised when the loss is waited for; where there is a
    `sample_weight`, which may be 0 there, it means the nearest class.
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
        self._axis = whole(type(self).__name__, "axis", axis)
        self._sparse_label = sparse_label
        self._from_logits = from_logits

    @of_arrays
    def forward(self, pred: Tensor, label: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        """(batch, ..., classes) and labels -> (batch,)."""
        if not self._from_logits:
            pred = npx.log_softmax(pred, axis=self._axis)
        # Weights are per example and have the class axis, as in (batch, 1); so has `batch_axis`.
        keep = sample_weight is not None or pred.ndim > 2 or self._batch_axis != 0
        if self._sparse_label:
            if label.ndim == pred.ndim and label.shape[self._axis] == 1:
                label = label.squeeze(self._axis)
            mode = "raise" if sample_weight is None else "clip"  # with weight 0, any label will do
            try:
                loss = -npx.pick(pred, label, axis=self._axis, mode=mode, keepdims=keep)
            except AxisError:
                raise
            except ShapeError:
                raise ShapeError(self._misfit(pred, label)) from None
        else:
            loss = -(pred * self._like(label, pred)).sum(axis=self._axis, keepdims=keep)
        return self._per_example(loss, sample_weight) if keep else self._weighted(loss, None)

    def _misfit(self, pred: Tensor, label: Tensor) -> str:
        """What is wrong with class numbers of another shape, and how to mend it."""
        wanted, found = tuple(map(seen, pred.shape)), tuple(map(seen, label.shape))
        others = (axis for axis in range(pred.ndim) if axis != self._batch_axis % pred.ndim)
        axes = [axis for axis in others if wanted[:axis] + wanted[axis + 1 :] == found]
        if found == wanted:
            mend = "for probabilities of each class, pass sparse_label=False"
        elif axes:
            mend = f"if axis {axes[0]} is that of the classes, pass axis={axes[0]}"
        else:
            mend = "give one class number for each prediction"
        return (
            f"{type(self).__name__}: the prediction has shape {wanted} and the label {found}, "
            f"which must be that shape without axis {self._axis % pred.ndim}; {mend}"
        )


class KLDivLoss(Loss):
    """The Kullback-Leibler divergence sum(label * (log(label) - pred)) of predictions from labels.

    The prediction holds log-probabilities, unless `from_logits` is False: then log_softmax along
    `axis` makes them. The sum is over each example. Kullback and Leibler, 1951.
    """

    def __init__(
        self,
        from_logits: bool = True,
        axis: int = -1,
        weight: float | None = None,
        batch_axis: int = 0,
        **settings: Any,
    ) -> None:
        super().__init__(weight, batch_axis, **settings)
        self._from_logits = from_logits
        self._axis = whole(type(self).__name__, "axis", axis)

    @of_arrays
    def forward(self, pred: Tensor, label: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        """`pred` and `label` with the same number of elements -> (batch,)."""
        if not self._from_logits:
            pred = npx.log_softmax(pred, axis=self._axis)
        label = self._like(label, pred)
        loss = self._weighted(label * (np.log(label + tiny_of(label)) - pred), sample_weight)
        others = self._others(loss)
        return loss.sum(axis=others) if others else loss


class CTCLoss(Loss):
    """Connectionist temporal classification: -log of the label's probability over all alignments.

    `layout` is the layout of the predictions, "NTC" or "TNC" (batch, time, classes; the last class
    is the blank), `label_layout` that of the labels, "NT" or "TN". A label ends at the first -1,
    unless its length is given. Graves et al., Connectionist temporal classification, ICML 2006.
    """

    def __init__(
        self,
        layout: str = "NTC",
        label_layout: str = "NT",
        weight: float | None = None,
        **settings: Any,
    ) -> None:
        for given, known in ((layout, ("NTC", "TNC")), (label_layout, ("NT", "TN"))):
            if given not in known:
                raise unknown_name("layout of CTCLoss", given, known)
        super().__init__(weight, label_layout.find("N"), **settings)
        self._layout = layout
        self._label_layout = label_layout

    @of_arrays
    def forward(
        self,
        pred: Tensor,
        label: Tensor,
        pred_lengths: Tensor | None = None,
        label_lengths: Tensor | None = None,
        sample_weight: Tensor | None = None,
    ) -> Tensor:
        """Predictions before softmax, labels, and their lengths, both (batch,) -> (batch,)."""
        loss = npx.ctc_loss(
            pred.swapaxes(0, 1) if self._layout == "NTC" else pred,
            label.swapaxes(0, 1) if self._label_layout == "TN" else label,
            pred_lengths,
            label_lengths,
            use_data_lengths=pred_lengths is not None,
            use_label_lengths=label_lengths is not None,
            blank_label="last",
        )
        return self._weighted(loss, sample_weight)

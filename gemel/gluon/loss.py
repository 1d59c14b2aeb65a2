"""Losses: one number for each example of a batch."""

from __future__ import annotations

from math import pi
from numbers import Real
from typing import Any

from gemel import np, npx
from gemel.errors import ArgumentError, ShapeError, unknown_name
from gemel.gluon.block import Tensor
from gemel.gluon.hybrid import HybridBlock
from gemel.spec import normalize_axis

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


class Loss(HybridBlock):
    """Base class of losses: `weight` multiplies the loss, `batch_axis` is the axis of the examples.

    A subclass defines `forward(pred, label, ...)` or `hybrid_forward(F, pred, label, ...)`. A
    `sample_weight` given to a loss also multiplies it: an array that broadcasts to the loss before
    the average over each example; shape (batch, 1) weights each example. If it has as many elements
    as the loss, each weights one element, in any shape.
    """

    def __init__(self, weight: float | None = None, batch_axis: int = 0, **settings: Any) -> None:
        super().__init__(**settings)
        if not isinstance(weight, (Real, type(None))):
            raise TypeError(f"{type(self).__name__}: weight must be a number or None")
        self._weight = weight
        self._batch_axis = batch_axis

    def __init_subclass__(cls, **settings: Any) -> None:
        """A subclass may override either form, `forward` or `hybrid_forward`."""
        super().__init_subclass__(**settings)
        if "hybrid_forward" in vars(cls) and "forward" not in vars(cls):
            cls.forward = HybridBlock.forward  # type: ignore[method-assign]

    def hybrid_forward(self, F: Any, *arguments: Any, **parameters: Any) -> Any:  # noqa: N803
        """MXNet 1's form of `forward`, for a subclass that calls it."""
        for kind in type(self).__mro__:
            forward = vars(kind).get("forward", HybridBlock.forward)
            if forward is not HybridBlock.forward:
                return forward(self, *arguments, **parameters)
        return super().hybrid_forward(F, *arguments, **parameters)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(batch_axis={self._batch_axis}, w={self._weight})"

    def _weighted(self, loss: Tensor, sample_weight: Tensor | None) -> Tensor:
        if sample_weight is not None:
            loss = self._by_sample(loss, sample_weight)
        return loss if self._weight in (None, 1) else loss * self._weight

    def _by_sample(self, loss: Tensor, weight: Tensor) -> Tensor:
        shape = tuple(loss.shape)
        if not isinstance(weight, Real):
            weight = weight if hasattr(weight, "shape") else np.array(weight)
            if weight.size == loss.size:  # (batch,) and (batch, 1) mean the same
                weight = self._like(weight, loss)
        found = loss * weight
        # If the product were larger than the loss, each example would get the mean weight.
        if tuple(found.shape) != shape:
            raise ShapeError(
                f"{type(self).__name__}: sample_weight of shape {tuple(weight.shape)} must "
                f"broadcast to the loss of shape {shape}; (batch, 1) gives each example a weight"
            )
        return found

    def _others(self, loss: Tensor) -> tuple[int, ...]:
        """All axes except the batch axis. Raises `AxisError` if there is no such axis."""
        axes = range(loss.ndim)
        batch = normalize_axis(type(self).__name__, self._batch_axis, loss.ndim) if axes else 0
        return tuple(axis for axis in axes if axis != batch)

    def _per_example(self, loss: Tensor, sample_weight: Tensor | None) -> Tensor:
        """Apply the weight, then average over all axes except the batch axis: shape (batch,)."""
        loss = self._weighted(loss, sample_weight)
        others = self._others(loss)
        return loss.mean(axis=others) if others else loss

    def _like(self, label: Tensor, pred: Tensor) -> Tensor:
        """Reshape the label to the prediction's shape: (batch,) and (batch, 1) mean the same."""
        if tuple(label.shape) == tuple(pred.shape):
            return label
        if label.size != pred.size:
            raise ShapeError(
                f"{type(self).__name__}: the prediction has shape {tuple(pred.shape)} and the "
                f"label {tuple(label.shape)}; they must have the same number of elements"
            )
        return label.reshape(pred.shape)


class _Pointwise(Loss):
    """Base class of losses with a number per element, averaged over each example."""

    def forward(self, pred: Tensor, label: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        """`pred` and `label` with the same number of elements -> (batch,)."""
        return self._per_example(self.elements(pred, self._like(label, pred)), sample_weight)

    def elements(self, pred: Tensor, label: Tensor) -> Tensor:
        """The loss of each element."""
        raise NotImplementedError


def _tiny(array: Tensor) -> float:
    """A small number that keeps logarithms and quotients finite: 1e-12, or larger for float16."""
    return 1e-12 if array.dtype != "float16" else 6.2e-5


class L2Loss(_Pointwise):
    """Half the squared difference, averaged over each example: 0.5 * mean((label - pred)^2)."""

    def __init__(self, weight: float | None = 1.0, batch_axis: int = 0, **settings: Any) -> None:
        super().__init__(weight, batch_axis, **settings)

    def elements(self, pred: Tensor, label: Tensor) -> Tensor:
        """Half the squared difference."""
        return 0.5 * np.square(label - pred)


class L1Loss(_Pointwise):
    """The absolute difference, averaged over each example: mean(|label - pred|)."""

    def elements(self, pred: Tensor, label: Tensor) -> Tensor:
        """The absolute difference."""
        return np.abs(label - pred)


class HuberLoss(_Pointwise):
    """Quadratic where the difference is at most `rho`, linear beyond (smoothed L1 loss).

    Huber, Robust estimation of a location parameter, 1964.
    """

    def __init__(
        self, rho: float = 1, weight: float | None = None, batch_axis: int = 0, **settings: Any
    ) -> None:
        super().__init__(weight, batch_axis, **settings)
        if not rho > 0:
            raise ArgumentError(f"HuberLoss: rho must be a number above 0, not {rho!r}")
        self._rho = rho

    def elements(self, pred: Tensor, label: Tensor) -> Tensor:
        """0.5 / rho * difference^2, or |difference| - 0.5 * rho."""
        far = np.abs(label - pred)
        return np.where(far > self._rho, far - 0.5 * self._rho, 0.5 / self._rho * np.square(far))


class HingeLoss(_Pointwise):
    """max(0, margin - pred * label) for labels -1 and 1, averaged over each example."""

    def __init__(
        self, margin: float = 1, weight: float | None = None, batch_axis: int = 0, **settings: Any
    ) -> None:
        super().__init__(weight, batch_axis, **settings)
        self._margin = margin

    def elements(self, pred: Tensor, label: Tensor) -> Tensor:
        """How far the prediction is below the margin."""
        return npx.relu(self._margin - pred * label)


class SquaredHingeLoss(HingeLoss):
    """The square of the hinge loss, averaged over each example."""

    def elements(self, pred: Tensor, label: Tensor) -> Tensor:
        """The square of how far the prediction is below the margin."""
        return np.square(super().elements(pred, label))


class LogisticLoss(_Pointwise):
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
    tiny = _tiny(pred)
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
        self._axis = axis
        self._sparse_label = sparse_label
        self._from_logits = from_logits

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
            loss = -npx.pick(pred, label, axis=self._axis, mode=mode, keepdims=keep)
        else:
            loss = -(pred * self._like(label, pred)).sum(axis=self._axis, keepdims=keep)
        return self._per_example(loss, sample_weight) if keep else self._weighted(loss, None)


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
        self._axis = axis

    def forward(self, pred: Tensor, label: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        """`pred` and `label` with the same number of elements -> (batch,)."""
        if not self._from_logits:
            pred = npx.log_softmax(pred, axis=self._axis)
        label = self._like(label, pred)
        loss = self._weighted(label * (np.log(label + _tiny(label)) - pred), sample_weight)
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


class TripletLoss(Loss):
    """max(0, margin + |positive - pred|^2 - |negative - pred|^2), the squares summed.

    Schroff, Kalenichenko and Philbin, FaceNet, CVPR 2015.
    """

    def __init__(
        self, margin: float = 1, weight: float | None = None, batch_axis: int = 0, **settings: Any
    ) -> None:
        super().__init__(weight, batch_axis, **settings)
        self._margin = margin

    def forward(
        self, pred: Tensor, positive: Tensor, negative: Tensor, sample_weight: Tensor | None = None
    ) -> Tensor:
        """Three arrays with the same number of elements -> (batch,)."""
        positive, negative = self._like(positive, pred), self._like(negative, pred)
        nearer = np.square(positive - pred) - np.square(negative - pred)
        others = self._others(nearer)
        nearer = nearer.sum(axis=others) if others else nearer
        return self._weighted(npx.relu(nearer + self._margin), sample_weight)


class PoissonNLLLoss(Loss):
    """The negative log-likelihood of counts under Poisson distributions with the predicted mean.

    The prediction is the mean's logarithm, or with ``from_logits=False`` the mean. Leaves out
    log(target!), unless `compute_full`: then Stirling's approximation, where the target is above 1.
    """

    def __init__(
        self,
        weight: float | None = None,
        from_logits: bool = True,
        batch_axis: int = 0,
        compute_full: bool = False,
        **settings: Any,
    ) -> None:
        super().__init__(weight, batch_axis, **settings)
        self._from_logits = from_logits
        self._compute_full = compute_full

    def forward(
        self,
        pred: Tensor,
        target: Tensor,
        sample_weight: Tensor | None = None,
        epsilon: float = 1e-08,
    ) -> Tensor:
        """`pred` and `target` with the same number of elements -> the mean over all, shape ()."""
        target = self._like(target, pred)
        if self._from_logits:
            loss = np.exp(pred) - target * pred
        else:
            loss = pred - target * np.log(pred + epsilon)
        if self._compute_full:
            above = np.maximum(target, 1)
            stirling = above * np.log(above) - above + 0.5 * np.log(2 * pi * above)
            loss = loss + np.where(target > 1, stirling, 0.0)
        return self._weighted(loss, sample_weight).mean()


class CosineEmbeddingLoss(Loss):
    """1 - cos(angle between two vectors) for the label 1, max(0, cos - margin) for -1."""

    def __init__(
        self, weight: float | None = None, batch_axis: int = 0, margin: float = 0, **settings: Any
    ) -> None:
        super().__init__(weight, batch_axis, **settings)
        self._margin = margin

    def forward(
        self, input1: Tensor, input2: Tensor, label: Tensor, sample_weight: Tensor | None = None
    ) -> Tensor:
        """Two arrays (batch, size) and labels (batch,) -> (batch, 1)."""
        input1 = self._like(input1, input2)
        both, least = (input1, input2), max(_tiny(input1), 1e-6)  # bounds the gradient at 0
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
        self.smoothing_parameter = smoothing_parameter

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
        loss = (label * (np.log(label + _tiny(label)) - predicted)).sum(axis=1)
        return self._weighted(loss, sample_weight)


SoftmaxCELoss = SoftmaxCrossEntropyLoss
SigmoidBCELoss = SigmoidBinaryCrossEntropyLoss

"""Metrics for classes."""

from __future__ import annotations

from math import exp
from typing import Any

from gemel import autograd, np, npx
from gemel.errors import ShapeError, unknown_name
from gemel.gluon.metric.base import (
    EvalMetric,
    alias,
    check_label_shapes,
    pairs,
    register,
    settled,
)
from gemel.np import ndarray
from gemel.ranges import check_number, counted
from gemel.spec import normalize_axis, whole


@alias("acc")
class Accuracy(EvalMetric):
    """The fraction of predictions that equal the label.

    Predictions are class numbers in the labels' shape, or a score for each class along `axis`.
    """

    def __init__(
        self,
        axis: int = 1,
        name: str = "accuracy",
        output_names: list[str] | None = None,
        label_names: list[str] | None = None,
    ) -> None:
        super().__init__(name, output_names, label_names)
        self.axis = whole(type(self).__name__, "axis", axis)

    def measure(self, label: ndarray, pred: ndarray) -> tuple[Any, Any]:
        """The number of correct predictions."""
        if pred.shape != label.shape:
            pred = pred.argmax(axis=self.axis)
        pred, label = pred.astype("int32").ravel(), label.astype("int32").ravel()
        check_label_shapes(label, pred, shape=True)
        return (pred == label).sum(), label.size


@alias("top_k_accuracy", "top_k_acc")
class TopKAccuracy(EvalMetric):
    """The fraction of labels among the `top_k` classes with the highest scores; of equal scores the
    first class counts as higher, and NaN as higher than all others, as in `argmax`.
    """

    def __init__(
        self,
        top_k: int = 1,
        name: str = "top_k_accuracy",
        output_names: list[str] | None = None,
        label_names: list[str] | None = None,
    ) -> None:
        self.top_k = counted("TopKAccuracy (use Accuracy for 1)", "top_k", top_k, 2)
        super().__init__(f"{name}_{self.top_k}", output_names, label_names)

    def get_config(self) -> dict[str, Any]:
        """The settings, with the name that was given."""
        return {**super().get_config(), "name": self.name.removesuffix(f"_{self.top_k}")}

    def measure(self, label: ndarray, pred: ndarray) -> tuple[Any, Any]:
        """The number of labels that have fewer than `top_k` classes above them."""
        if pred.ndim != 2 or pred.shape[0] != label.size:
            raise ShapeError(
                f"TopKAccuracy: predictions of shape {pred.shape} for labels of shape "
                f"{label.shape} must be (examples, classes)"
            )
        label = label.astype("int64").reshape(-1, 1)
        own = npx.pick(pred, label, axis=1, mode="raise", keepdims=True)
        earlier = np.arange(pred.shape[1], device=pred.device) < label
        unknown = np.isnan(pred), np.isnan(own)
        equal = (pred == own) | (unknown[0] & unknown[1])
        above = (pred > own) | (unknown[0] & ~unknown[1]) | (equal & earlier)
        return (above.sum(axis=1) < self.top_k).sum(), label.size


@register
class BinaryAccuracy(EvalMetric):
    """The fraction of binary predictions (1 above `threshold`) that equal the label.

    `threshold` may be an array, with one for each class along the last axis.
    """

    def __init__(
        self,
        name: str = "binary_accuracy",
        output_names: list[str] | None = None,
        label_names: list[str] | None = None,
        threshold: float = 0.5,
    ) -> None:
        super().__init__(name, output_names, label_names)
        _check_threshold(self, threshold)
        self.threshold = threshold

    def measure(self, label: ndarray, pred: ndarray) -> tuple[Any, Any]:
        """The number of correct predictions."""
        label, pred = label.ravel(), _above(pred, self.threshold).ravel()
        check_label_shapes(label, pred, shape=True)
        return (pred == (label == 1)).sum(), label.size


def _check_threshold(metric: EvalMetric, threshold: Any) -> None:
    """Raises `ArgumentError` for what is neither a number nor an array of one for each class."""
    if not (hasattr(threshold, "shape") or isinstance(threshold, (list, tuple))):
        check_number(type(metric).__name__, "threshold", threshold)


def _above(pred: ndarray, threshold: Any) -> ndarray:
    """Where predictions are above a threshold, or an array of one for each class."""
    if isinstance(threshold, ndarray):
        threshold = threshold.as_np_ndarray().as_in_ctx(pred.device)
    return np.greater(pred, threshold)


class _Counting(EvalMetric):
    """Base class of scores computed from true and false positives and negatives.

    With two classes, the `average` "macro" is the mean of the batches' scores, and "micro" the
    score of all counts. With more classes or labels (`class_type` "multiclass" or "multilabel",
    along the last axis of the predictions), there are counts for each class: "macro" is the mean of
    the classes' scores, "micro" the score of the sum of their counts, and None returns all scores,
    as a NumPy array.
    """

    def __init__(
        self,
        name: str,
        output_names: list[str] | None,
        label_names: list[str] | None,
        class_type: str = "binary",
        threshold: float = 0.5,
        average: str | None = "macro",
    ) -> None:
        known = ("binary", "multiclass", "multilabel")
        if class_type not in known:
            raise unknown_name("class_type", class_type, known)
        if average not in ("macro", "micro", None):
            raise unknown_name("average", average, ("macro", "micro"))
        _check_threshold(self, threshold)
        self.class_type = class_type
        self.threshold = threshold
        self.average = average
        super().__init__(name, output_names, label_names)

    def score(self, counts: Any) -> Any:
        """The score of counts (4, ...): true and false positives, false and true negatives."""
        raise NotImplementedError

    def update(self, labels: Any, preds: Any) -> None:
        """Add a batch: labels, and scores of two classes or the probability of the second."""
        with autograd.pause():
            given = [pair for pair in pairs(labels, preds) if pair[1].size]
            counts: Any = sum(settled(self.counts(label, pred)) for label, pred in given)
            if not given:
                return
            if self.class_type == "binary" and self.average == "macro":
                self._add(self.score(counts), 1)
            else:
                self._add(counts, 1)

    def mean(self, total: Any, count: Any) -> Any:
        """The score, averaged as `average` says."""
        if self.class_type == "binary":
            return float(total) / count if self.average == "macro" else float(self.score(total))
        if self.average == "micro":
            return float(self.score(total.sum(axis=1)))
        scores = self.score(total)
        return float(scores.mean()) if self.average == "macro" else scores.asnumpy()

    def counts(self, label: ndarray, pred: ndarray) -> Any:
        """True and false positives, false and true negatives; for each class if there are more than
        two."""
        name, classes = type(self).__name__, pred.shape[-1]
        if self.class_type == "multiclass":
            if pred.ndim < 2:
                raise ShapeError(
                    f"{name}: predictions of shape {pred.shape} must be (examples, ..., classes)"
                )
            sound = _in_range(name, label, classes)
            label = npx.one_hot(label.ravel(), classes) * sound
            pred = npx.one_hot(pred.argmax(axis=-1).ravel(), classes)
        elif self.class_type == "multilabel":
            check_label_shapes(label, pred, shape=True)
            label = label.reshape(-1, classes)
            pred = _above(pred, self.threshold).reshape(-1, classes)
        else:
            if classes == 2 and pred.shape != label.shape:
                # The second is larger or, for probabilities, above another threshold than 0.5.
                pred = pred.astype("float64")
                pred = pred[..., 1] - pred[..., 0] > 2 * self.threshold - 1
            else:
                pred = _above(pred, self.threshold)
            rule = f"{name}: labels must be of two classes, 0 and 1"
            sound = npx.constraint_check(((label >= 0) & (label < 2)).all(), rule)
            label, pred = (label == 1).ravel() * sound, pred.ravel()
        check_label_shapes(label, pred, shape=True)
        yes, right = pred == 1, label == 1
        parts = (yes & right, yes & ~right, ~yes & right, ~yes & ~right)
        return np.stack([part.sum(axis=0) for part in parts]).astype("float64")


def _in_range(name: str, label: ndarray, classes: int) -> Any:
    """1 to multiply with, which is an error when it is waited for if there is another label."""
    rule = f"{name}: a label is out of range for {classes} classes"
    return npx.constraint_check(((label >= 0) & (label < classes)).all(), rule)


def _ratio(above: Any, below: Any) -> Any:
    """above / below, or 0 where this is undefined."""
    return np.where(below > 0, above / np.where(below > 0, below, 1), 0.0)


@register
class Fbeta(_Counting):
    """(1 + beta^2) * precision * recall / (beta^2 * precision + recall): recall counts `beta` times
    as much as precision. The counts' average is as `average` says (see `F1`).
    """

    def __init__(
        self,
        name: str = "fbeta",
        output_names: list[str] | None = None,
        label_names: list[str] | None = None,
        class_type: str = "binary",
        beta: float = 1,
        threshold: float = 0.5,
        average: str | None = "micro",
    ) -> None:
        check_number(type(self).__name__, "beta", beta)
        self.beta = beta
        super().__init__(name, output_names, label_names, class_type, threshold, average)

    def score(self, counts: Any) -> Any:
        """The score of these counts; 0 without true positives."""
        hit, false, missed, _ = counts
        square = self.beta**2
        return _ratio((1 + square) * hit, (1 + square) * hit + square * missed + false)


@register
class F1(Fbeta):
    """The harmonic mean of precision and recall.

    `average` is "macro", the mean of the batches' scores, or "micro", that of all examples. With
    the `class_type` "multiclass" or "multilabel" they are the mean over classes, and the score of
    all classes together; None gives the score of each. The probability of the second class above
    `threshold` means 1; with scores of both classes and the threshold 0.5, the higher one counts.
    For "multilabel" it may be an array with one threshold for each class.
    """

    def __init__(
        self,
        name: str = "f1",
        output_names: list[str] | None = None,
        label_names: list[str] | None = None,
        average: str | None = "macro",
        class_type: str = "binary",
        threshold: float = 0.5,
    ) -> None:
        super().__init__(name, output_names, label_names, class_type, 1, threshold, average)


@register
class MCC(_Counting):
    """Matthews' correlation coefficient of two classes: -1 to 1, 0 for chance (Matthews 1975)."""

    def __init__(
        self,
        name: str = "mcc",
        output_names: list[str] | None = None,
        label_names: list[str] | None = None,
        average: str = "macro",
    ) -> None:
        super().__init__(name, output_names, label_names, average=average)

    def score(self, counts: Any) -> Any:
        """The coefficient of these counts; sums that are 0 in its denominator count as 1."""
        hit, false, missed, rest = counts
        below: Any = 1.0
        for part in (hit + false, hit + missed, rest + false, rest + missed):
            below = below * np.where(part == 0, 1.0, part)
        return (hit * rest - false * missed) / np.sqrt(below)


@register
class PCC(EvalMetric):
    """Pearson's correlation of labels and predictions as vectors of classes: MCC of any number.

    Gorodkin, Comparing two K-category assignments by a K-category correlation coefficient, 2004.
    Class numbers as predictions are waited for, to know how many classes there are.
    """

    def __init__(
        self,
        name: str = "pcc",
        output_names: list[str] | None = None,
        label_names: list[str] | None = None,
        has_global_stats: bool = True,
    ) -> None:
        super().__init__(name, output_names, label_names, has_global_stats=has_global_stats)

    def measure(self, label: ndarray, pred: ndarray) -> tuple[Any, Any]:
        """The table of predicted and true classes."""
        label = label.astype("int64")
        if pred.shape != label.shape and pred.ndim > 1:
            classes = pred.shape[1]
            pred = pred.argmax(axis=1)
        else:
            check_label_shapes(label, pred, shape=True)
            pred = pred.astype("int64")
            classes = 1 + max(0, int(np.maximum(pred.max(), label.max())))
        sound = _in_range("PCC", label, classes) * _in_range("PCC", pred, classes)
        pred, label = pred.ravel(), label.ravel()
        check_label_shapes(label, pred, shape=True)
        kinds = [npx.one_hot(a, classes, dtype="float64") for a in (pred, label)]
        return np.matmul(kinds[0].T, kinds[1]) * sound, 1

    def _add(self, total: Any, count: Any) -> None:
        """Add a table; all are extended to the same classes."""
        known = [self.sum_metric, self.global_sum_metric, total]
        classes = max(size for table in known for size in getattr(table, "shape", (1,)))
        self.sum_metric, self.global_sum_metric, total = (_grown(t, classes) for t in known)
        super()._add(total, count)

    def mean(self, total: Any, count: Any) -> float:
        """The correlation of this table; NaN if all examples are of one class."""
        table = total.asnumpy()
        all_of_it, x, y = table.sum(), table.sum(axis=1), table.sum(axis=0)
        below = (x * (all_of_it - x)).sum() * (y * (all_of_it - y)).sum()
        above = (table.diagonal() * all_of_it - x * y).sum()
        return float(above / below**0.5) if below else float("nan")


def _grown(table: Any, classes: int) -> Any:
    """Extend a table to more classes."""
    more = classes - getattr(table, "shape", (classes,))[0]
    return np.pad(table, ((0, more), (0, more))) if more else table


@alias("ce")
class CrossEntropy(EvalMetric):
    """The mean of -log(probability of the label + eps).

    Predictions are probabilities along `axis`, or scores for softmax with `from_logits`. Labels
    that are `ignore_label` do not count.
    """

    default_name = "cross-entropy"

    def __init__(
        self,
        eps: float = 1e-12,
        name: str | None = None,
        output_names: list[str] | None = None,
        label_names: list[str] | None = None,
        ignore_label: int | None = None,
        axis: int = -1,
        from_logits: bool = False,
    ) -> None:
        super().__init__(name, output_names, label_names)
        check_number(type(self).__name__, "eps", eps)
        self.eps = eps
        self.ignore_label = ignore_label
        self.axis = whole(type(self).__name__, "axis", axis)
        self.from_logits = from_logits

    def measure(self, label: ndarray, pred: ndarray) -> tuple[Any, Any]:
        """The sum over the labels that count. Other labels out of range are an `IndexError`."""
        axis = normalize_axis(type(self).__name__, self.axis, pred.ndim)
        rows = (*pred.shape[:axis], *pred.shape[axis + 1 :])
        if label.size * pred.shape[axis] != pred.size:
            raise ShapeError(
                f"{type(self).__name__}: labels of shape {label.shape} for predictions of shape "
                f"{pred.shape} with classes along axis {axis}"
            )
        label = label.reshape(rows).astype("int64")
        counts = label != self.ignore_label if self.ignore_label is not None else None
        place = label if counts is None else np.where(counts, label, 0)
        if self.from_logits:
            pred = npx.softmax(pred, axis=axis)
        lost = self.surprise(npx.pick(pred, place, axis=axis, mode="raise").astype("float64"))
        if counts is None:
            return lost.sum(), label.size
        return np.where(counts, lost, 0.0).sum(), counts.sum()

    def surprise(self, probability: ndarray) -> ndarray:
        """-log of a probability, finite at 0."""
        return -np.log(probability + self.eps)


@alias("nll_loss")
class NegativeLogLikelihood(CrossEntropy):
    """The mean of -log(probability of the label + eps): the same as `CrossEntropy`."""

    default_name = "nll-loss"


@register
class Perplexity(CrossEntropy):
    """exp of the cross-entropy: the equivalent number of equally likely classes.

    Probabilities below 1e-10 count as 1e-10.
    """

    def __init__(
        self,
        ignore_label: int | None = None,
        axis: int = -1,
        name: str = "perplexity",
        output_names: list[str] | None = None,
        label_names: list[str] | None = None,
        from_logits: bool = False,
    ) -> None:
        super().__init__(1e-10, name, output_names, label_names, ignore_label, axis, from_logits)

    def surprise(self, probability: ndarray) -> ndarray:
        """-log of a probability, finite at 0."""
        return -np.log(np.maximum(probability, self.eps))

    def mean(self, total: Any, count: Any) -> float:
        """exp of the mean."""
        return exp(super().mean(total, count))

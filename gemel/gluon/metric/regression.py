"""Metrics for numbers."""

from __future__ import annotations

from typing import Any

from gemel import np
from gemel.errors import ShapeError, unknown_name
from gemel.gluon.metric.base import EvalMetric, alias, check_label_shapes, pairs, register, settled
from gemel.np import ndarray
from gemel.ranges import check_number


class _Difference(EvalMetric):
    """Base class: the mean, over batches, of a distance between predictions and labels."""

    def measure(self, label: ndarray, pred: ndarray) -> tuple[Any, Any]:
        """The distance of this batch. (batch,) and (batch, 1) mean the same."""
        label = label.reshape(-1, 1) if label.ndim == 1 else label
        pred = pred.reshape(-1, 1) if pred.ndim == 1 else pred
        if label.shape[0] != pred.shape[0]:
            raise ShapeError(
                f"{type(self).__name__}: labels of shape {label.shape} for predictions of shape "
                f"{pred.shape}"
            )
        return self.distance(label.astype("float64") - pred.astype("float64")), 1

    def distance(self, difference: ndarray) -> Any:
        """Compute the distance of this batch from the differences."""
        raise NotImplementedError


@register
class MAE(_Difference):
    """The mean over batches of the mean absolute difference."""

    default_name = "mae"

    def distance(self, difference: ndarray) -> Any:
        """mean(|difference|)."""
        return np.abs(difference).mean()


@register
class MSE(_Difference):
    """The mean over batches of the mean squared difference."""

    default_name = "mse"

    def distance(self, difference: ndarray) -> Any:
        """mean(difference ** 2)."""
        return np.square(difference).mean()


@register
class RMSE(MSE):
    """The mean over batches of the root of the mean squared difference."""

    default_name = "rmse"

    def distance(self, difference: ndarray) -> Any:
        """sqrt(mean(difference ** 2))."""
        return np.sqrt(super().distance(difference))


@register
class MeanPairwiseDistance(EvalMetric):
    """The mean over examples of the distance of two vectors, in the norm `p` of `linalg.norm`.

    An example with several axes is one vector, one without axes a vector of one number.
    """

    def __init__(
        self,
        name: str = "mpd",
        output_names: list[str] | None = None,
        label_names: list[str] | None = None,
        p: float = 2,
    ) -> None:
        super().__init__(name, output_names, label_names)
        self.p = p

    def measure(self, label: ndarray, pred: ndarray) -> tuple[Any, Any]:
        """The sum of the examples' distances."""
        check_label_shapes(label, pred, shape=True)
        apart = label.astype("float64") - pred.astype("float64")
        apart = apart.reshape(len(apart), -1)
        return np.linalg.norm(apart, self.p, axis=-1).sum(), len(apart)


@alias("cos_sim")
class MeanCosineSimilarity(EvalMetric):
    """The mean over examples of the cosine of the angle between two vectors."""

    def __init__(
        self,
        name: str = "cos_sim",
        output_names: list[str] | None = None,
        label_names: list[str] | None = None,
        eps: float = 1e-8,
    ) -> None:
        super().__init__(name, output_names, label_names)
        check_number(type(self).__name__, "eps", eps)
        self.eps = eps

    def measure(self, label: ndarray, pred: ndarray) -> tuple[Any, Any]:
        """The sum of the cosines along the last axis."""
        check_label_shapes(label, pred, shape=True)
        label, pred = label.astype("float64"), pred.astype("float64")
        lengths = np.sqrt(np.square(label).sum(axis=-1) * np.square(pred).sum(axis=-1))
        cosines = (label * pred).sum(axis=-1) / np.maximum(lengths, self.eps)
        return cosines.sum(), cosines.size


@alias("pearsonr")
class PearsonCorrelation(EvalMetric):
    """Pearson's correlation of labels and predictions.

    `average` is "macro", the mean of the batches' correlations, or "micro", that of all elements.
    """

    def __init__(
        self,
        name: str = "pearsonr",
        output_names: list[str] | None = None,
        label_names: list[str] | None = None,
        average: str = "macro",
    ) -> None:
        if average not in ("macro", "micro"):
            raise unknown_name("average", average, ("macro", "micro"))
        self.average = average
        super().__init__(name, output_names, label_names)

    def reset_local(self) -> None:
        """Reset everything except the global sum, which "micro" does not have."""
        super().reset_local()
        #: Over all elements: their number, means, and sums of products around the means.
        self._seen: tuple[Any, ...] = (0, 0.0, 0.0, 0.0, 0.0, 0.0)

    def measure(self, label: ndarray, pred: ndarray) -> tuple[Any, Any]:
        """The batch's correlation; for "micro" its size, means and sums around them."""
        check_label_shapes(label, pred, shape=True)
        x, y = (settled(array.ravel()) for array in (label, pred))
        own = (x.size, x.mean(), y.mean())
        x, y = x - own[1], y - own[2]
        sums = (np.square(x).sum(), np.square(y).sum(), (x * y).sum())
        return _correlation(*sums) if self.average == "macro" else (*own, *sums), 1

    def _add(self, total: Any, count: Any) -> None:
        """Add a batch; "micro" combines its sums with the previous ones (Chan et al. 1979)."""
        if self.average == "micro":
            (seen, mean_x, mean_y, *before), (size, own_x, own_y, *sums) = self._seen, total
            share, dx, dy = size / (seen + size), own_x - mean_x, own_y - mean_y
            moved = (dx * dx, dy * dy, dx * dy)
            joined = [a + b + d * seen * share for a, b, d in zip(before, sums, moved, strict=True)]
            self._seen = (seen + size, mean_x + dx * share, mean_y + dy * share, *joined)
            total = 0.0
        super()._add(total, count)

    def mean(self, total: Any, count: Any) -> float:
        """The mean of the batches' correlations, or the correlation of all elements."""
        if self.average == "micro":
            return float(_correlation(*self._seen[3:]))
        return super().mean(total, count)  # type: ignore[no-any-return] # it is a float


def _correlation(xx: Any, yy: Any, xy: Any) -> Any:
    return xy / np.sqrt(xx * yy)


@register
class Loss(EvalMetric):
    """The mean of the predictions, which are a loss; labels have no part in it."""

    default_name = "loss"

    def update(self, _: Any, preds: Any) -> None:
        """Add a batch's losses: an array, or several."""
        for _, pred in pairs(preds, preds):
            self._add(pred.astype("float64").sum(), pred.size)


@register
class Torch(Loss):
    """`Loss` under another name."""

    default_name = "torch"


@register
class Caffe(Loss):
    """`Loss` under another name."""

    default_name = "caffe"

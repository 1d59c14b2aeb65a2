"""Losses of numbers: one prediction and one label for each element."""

from __future__ import annotations

from math import pi
from typing import Any

from gemel import np, npx
from gemel.errors import ArgumentError
from gemel.gluon.block import Tensor
from gemel.gluon.inputs import of_arrays
from gemel.gluon.loss.base import Loss, Pointwise
from gemel.ranges import check_number, is_finite

__all__ = [
    "HingeLoss",
    "HuberLoss",
    "L1Loss",
    "L2Loss",
    "PoissonNLLLoss",
    "SquaredHingeLoss",
]


class L2Loss(Pointwise):
    """Half the squared difference, averaged over each example: 0.5 * mean((label - pred)^2)."""

    def __init__(self, weight: float | None = 1.0, batch_axis: int = 0, **settings: Any) -> None:
        super().__init__(weight, batch_axis, **settings)

    def elements(self, pred: Tensor, label: Tensor) -> Tensor:
        """Half the squared difference."""
        return 0.5 * np.square(label - pred)


class L1Loss(Pointwise):
    """The absolute difference, averaged over each example: mean(|label - pred|)."""

    def elements(self, pred: Tensor, label: Tensor) -> Tensor:
        """The absolute difference."""
        return np.abs(label - pred)


class HuberLoss(Pointwise):
    """Quadratic where the difference is at most `rho`, linear beyond (smoothed L1 loss).

    Huber, Robust estimation of a location parameter, 1964.
    """

    def __init__(
        self, rho: float = 1, weight: float | None = None, batch_axis: int = 0, **settings: Any
    ) -> None:
        super().__init__(weight, batch_axis, **settings)
        if not (is_finite(rho) and rho > 0):
            raise ArgumentError(f"HuberLoss: rho must be a number above 0, not {rho!r}")
        self._rho = rho

    def elements(self, pred: Tensor, label: Tensor) -> Tensor:
        """0.5 / rho * difference^2, or |difference| - 0.5 * rho."""
        far = np.abs(label - pred)
        return np.where(far > self._rho, far - 0.5 * self._rho, 0.5 / self._rho * np.square(far))


class HingeLoss(Pointwise):
    """max(0, margin - pred * label) for labels -1 and 1, averaged over each example."""

    def __init__(
        self, margin: float = 1, weight: float | None = None, batch_axis: int = 0, **settings: Any
    ) -> None:
        super().__init__(weight, batch_axis, **settings)
        check_number(type(self).__name__, "margin", margin)
        self._margin = margin

    def elements(self, pred: Tensor, label: Tensor) -> Tensor:
        """How far the prediction is below the margin."""
        return npx.relu(self._margin - pred * label)


class SquaredHingeLoss(HingeLoss):
    """The square of the hinge loss, averaged over each example."""

    def elements(self, pred: Tensor, label: Tensor) -> Tensor:
        """The square of how far the prediction is below the margin."""
        return np.square(super().elements(pred, label))


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

    @of_arrays
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

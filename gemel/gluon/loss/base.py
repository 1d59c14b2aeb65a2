"""What losses have in common: weights, and the average over each example."""

from __future__ import annotations

from numbers import Real
from typing import Any

from gemel import np
from gemel.errors import OperandError, ShapeError
from gemel.gluon.block import Tensor
from gemel.gluon.hybrid import HybridBlock
from gemel.gluon.inputs import of_arrays
from gemel.spec import normalize_axis, whole

__all__ = [
    "Loss",
    "Pointwise",
    "tiny_of",
]


class Loss(HybridBlock):
    """Base class of losses: `weight` multiplies the loss, `batch_axis` is the axis of the examples.

    The arguments may be arrays, lists, numbers and arrays of NumPy. A subclass defines
    `forward(pred, label, ...)` or `hybrid_forward(F, pred, label, ...)`. A `sample_weight` given to
    a loss also multiplies it: an array that broadcasts to the loss before the average over each
    example; shape (batch, 1) weights each example. If it has as many elements as the loss, each
    weights one element, in any shape.
    """

    def __init__(self, weight: float | None = None, batch_axis: int = 0, **settings: Any) -> None:
        super().__init__(**settings)
        if not isinstance(weight, (Real, type(None))):
            raise OperandError(
                f"{type(self).__name__}: weight must be a number or None, not {weight!r}"
            )
        self._weight = weight
        self._batch_axis = whole(type(self).__name__, "batch_axis", batch_axis)

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


class Pointwise(Loss):
    """Base class of losses with a number per element, averaged over each example."""

    @of_arrays
    def forward(self, pred: Tensor, label: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        """`pred` and `label` with the same number of elements -> (batch,)."""
        return self._per_example(self.elements(pred, self._like(label, pred)), sample_weight)

    def elements(self, pred: Tensor, label: Tensor) -> Tensor:
        """The loss of each element."""
        raise NotImplementedError


def tiny_of(array: Tensor) -> float:
    """A small number that keeps logarithms and quotients finite: 1e-12, or larger for float16."""
    return 1e-12 if array.dtype != "float16" else 6.2e-5

"""What all optimizers share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gemel import np

if TYPE_CHECKING:
    from gemel.np import ndarray

#: A number given when the program runs: in a trace a symbol, else a float.
Scalar = Any
#: An array, or in a trace the symbol that stands for it.
Tensor = Any


class Optimizer:
    """Base class: learning rate, weight decay, gradient scaling and clipping.

    `wd` adds wd * weight to the gradient. `rescale_grad` multiplies every gradient (besides the
    1 / batch size of `Trainer.step`); `clip_gradient` then limits each value to [-c, c].
    `lr_scheduler` is called with the number of steps done and gives the learning rate.
    """

    def __init__(
        self,
        learning_rate: float,
        wd: float = 0.0,
        rescale_grad: float = 1.0,
        clip_gradient: float | None = None,
        lr_scheduler: Any = None,
    ) -> None:
        self.lr = learning_rate
        self.wd = wd
        self.rescale_grad = rescale_grad
        self.clip_gradient = clip_gradient
        self.lr_scheduler = lr_scheduler
        #: Which Parameter, with its multipliers, an index means.
        self.param_dict: dict[Any, Any] = {}
        #: How many updates the most often updated parameter has had.
        self.num_update = 0
        self._all_index_update_counts: dict[int, dict[Any, int]] = {0: {}}
        self._index_update_count = self._all_index_update_counts[0]

    @property
    def learning_rate(self) -> float:
        """The learning rate of the next step."""
        if self.lr_scheduler is not None:
            return float(self.lr_scheduler(self.num_update))
        return self.lr

    def set_learning_rate(self, learning_rate: float) -> None:
        """Change the learning rate. Raises `ValueError` when a scheduler decides it."""
        if self.lr_scheduler is not None:
            raise ValueError("set_learning_rate: the lr_scheduler decides the learning rate")
        self.lr = learning_rate

    def _set_current_context(self, device_id: int) -> None:
        """Each device counts the updates of its copies of the parameters."""
        self._index_update_count = self._all_index_update_counts.setdefault(device_id, {})

    def _update_count(self, index: Any) -> None:
        """Count one more update of a parameter."""
        count = self._index_update_count.get(index, 0) + 1
        self._index_update_count[index] = count
        self.num_update = max(self.num_update, count)

    def create_states(self, weight: ndarray) -> list[ndarray]:
        """The arrays it keeps for one parameter, at the start."""
        return []

    def rate(self, learning_rate: float, step: int) -> float:
        """The step size at a parameter's update number `step` (from 1)."""
        return learning_rate

    def constants(self) -> tuple[Any, ...]:
        """Everything `update` reads besides its arguments: another value is another program."""
        return (self.clip_gradient,)

    def update(
        self,
        weight: Tensor,
        grad: Tensor,
        states: list[Tensor],
        *,
        learning_rate: Scalar,
        weight_decay: Scalar | None,
        rescale: Scalar,
    ) -> tuple[Tensor, list[Tensor]]:
        """The new weight and states. A pure function: it writes to none of its arguments.

        `learning_rate` is what `rate` gave; `weight_decay` is None when there is none.
        """
        raise NotImplementedError

    def scaled(
        self, weight: Tensor, grad: Tensor, weight_decay: Scalar | None, rescale: Scalar
    ) -> Tensor:
        """The gradient, rescaled, clipped, and with the weight decay added."""
        grad = grad * rescale
        if self.clip_gradient is not None:
            grad = np.clip(grad, -self.clip_gradient, self.clip_gradient)
        return grad if weight_decay is None else grad + weight_decay * weight

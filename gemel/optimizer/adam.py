"""Adam: steps scaled by running averages of the gradient and of its square."""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING, Any

from gemel import np
from gemel.optimizer.base import Optimizer, Scalar, Tensor

if TYPE_CHECKING:
    from gemel.np import ndarray


class Adam(Optimizer):
    """weight -= rate * mean / (sqrt(variance) + epsilon), the averages corrected for their start.

    Kingma and Ba, Adam: a method for stochastic optimization, ICLR 2015.
    """

    def __init__(
        self,
        learning_rate: float = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        **settings: Any,
    ) -> None:
        super().__init__(learning_rate, **settings)
        self.beta1 = beta1
        self.beta2 = beta2
        self.epsilon = epsilon

    def create_states(self, weight: ndarray) -> list[ndarray]:
        """The running means of the gradient and of its square."""
        return [np.zeros_like(weight), np.zeros_like(weight)]

    def rate(self, learning_rate: float, step: int) -> float:
        """The learning rate, corrected for averages that began at zero."""
        return learning_rate * sqrt(1 - self.beta2**step) / (1 - self.beta1**step)

    def constants(self) -> tuple[Any, ...]:
        """The betas and epsilon, besides the base's."""
        return (*super().constants(), self.beta1, self.beta2, self.epsilon)

    def averages(self, grad: Tensor, states: list[Tensor]) -> list[Tensor]:
        """The running means after one more gradient."""
        mean = self.beta1 * states[0] + (1 - self.beta1) * grad
        variance = self.beta2 * states[1] + (1 - self.beta2) * np.square(grad)
        return [mean, variance]

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
        """One step."""
        mean, variance = self.averages(self.scaled(weight, grad, weight_decay, rescale), states)
        step = learning_rate * mean / (np.sqrt(variance) + self.epsilon)
        return weight - step, [mean, variance]

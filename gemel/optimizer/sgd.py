"""Stochastic gradient descent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gemel import np
from gemel.optimizer.base import Optimizer, Scalar, Tensor

if TYPE_CHECKING:
    from gemel.np import ndarray


class SGD(Optimizer):
    """weight -= learning_rate * (grad + wd * weight), with `momentum` a running sum of such steps.

    Robbins and Monro, A stochastic approximation method, 1951; Polyak, Some methods of speeding up
    the convergence of iteration methods, 1964.
    """

    def __init__(self, learning_rate: float = 0.01, momentum: float = 0.0, **settings: Any) -> None:
        super().__init__(learning_rate, **settings)
        self.momentum = momentum

    def create_states(self, weight: ndarray) -> list[ndarray]:
        """The running step, if there is a momentum."""
        return [np.zeros_like(weight)] if self.momentum else []

    def constants(self) -> tuple[Any, ...]:
        """The momentum, besides the base's."""
        return (*super().constants(), self.momentum)

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
        """One step down the gradient."""
        step = learning_rate * self.scaled(weight, grad, weight_decay, rescale)
        if not states:
            return weight - step, []
        running = self.momentum * states[0] - step
        return weight + running, [running]


class NAG(SGD):
    """SGD whose gradient is taken where the momentum will carry the weight.

    Nesterov, A method for solving the convex programming problem with convergence rate O(1/k^2),
    1983.
    """

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
        """One step down the gradient, looking ahead."""
        step = learning_rate * self.scaled(weight, grad, weight_decay, rescale)
        if not states:
            return weight - step, []
        running = self.momentum * states[0] - step
        return weight + self.momentum * running - step, [running]

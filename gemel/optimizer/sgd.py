"""Steps down the gradient: with momentum, by sign, with noise, with delay compensation."""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING, Any

from gemel import np
from gemel.optimizer.base import Moved, Optimizer
from gemel.ranges import check_number

if TYPE_CHECKING:
    from gemel.np import ndarray


class SGD(Optimizer):
    """weight -= learning_rate * (grad + wd * weight), with `momentum` a running sum of such steps.

    Robbins and Monro, A stochastic approximation method, 1951; Polyak, Some methods of speeding up
    the convergence of iteration methods, 1964. `lazy_update` is accepted for old code: gradients
    are dense.
    """

    def __init__(
        self,
        learning_rate: float | None = None,
        momentum: float = 0.0,
        lazy_update: bool = True,
        **settings: Any,
    ) -> None:
        super().__init__(learning_rate, **settings)
        check_number(type(self).__name__, "momentum", momentum)
        self.momentum = momentum

    def create_states(self, weight: ndarray) -> list[ndarray]:
        """The running step, if there is momentum."""
        return [np.zeros_like(weight)] if self.momentum else []

    def advance(self, weight: Any, grad: Any, states: list[Any], rates: Any, decay: Any) -> Moved:
        """One step down the gradient."""
        step = rates[0] * decayed(weight, self._clipped(grad), decay)
        if not states:
            return weight - step, []
        running = self.momentum * states[0] - step
        return weight + self._ahead(running, step), [running]

    def _ahead(self, running: Any, step: Any) -> Any:
        """How far the weight moves, given the momentum and this step."""
        return running


class NAG(SGD):
    """SGD with Nesterov momentum: the gradient is taken at the point that momentum leads to.

    Nesterov, A method for solving the convex programming problem with convergence rate O(1/k^2),
    1983.
    """

    def _ahead(self, running: Any, step: Any) -> Any:
        return self.momentum * running - step


class Signum(SGD):
    """Steps of constant size: the sign of the gradient or, with momentum, of its running mean.

    `wd_lh` is a decoupled weight decay. Bernstein et al., signSGD: compressed optimisation for
    non-convex problems, ICML 2018; Loshchilov and Hutter for `wd_lh`.
    """

    def __init__(
        self,
        learning_rate: float | None = 0.01,
        momentum: float = 0.9,
        wd_lh: float = 0.0,
        **settings: Any,
    ) -> None:
        super().__init__(learning_rate, momentum, **settings)
        check_number("Signum", "wd_lh", wd_lh)
        self.wd_lh = wd_lh

    def advance(self, weight: Any, grad: Any, states: list[Any], rates: Any, decay: Any) -> Moved:
        """One step by the sign; without momentum it ignores the weight decay."""
        (rate,), grad = rates, self._clipped(grad)
        if not states:
            kept = weight if decay is None else (1 - rate * decay) * weight
            return kept - rate * np.sign(grad), []
        grad = decayed(weight, grad, decay)
        mean = self.momentum * states[0] + (1 - self.momentum) * grad
        return (1 - rate * self.wd_lh) * weight - rate * np.sign(mean), [mean]


class SGLD(Optimizer):
    """Stochastic gradient Langevin dynamics: half a step, and noise of variance learning_rate.

    Welling and Teh, Bayesian learning via stochastic gradient Langevin dynamics, ICML 2011;
    Patterson and Teh, Stochastic gradient Riemannian Langevin dynamics on the probability simplex,
    NIPS 2013.
    """

    def __init__(self, learning_rate: float | None = None, **settings: Any) -> None:
        super().__init__(learning_rate, **settings)
        if learning_rate is not None:
            check_number("SGLD", "learning_rate", learning_rate, 0)

    def rates(self, index: Any) -> tuple[float, ...]:
        """The learning rate, and the noise's standard deviation."""
        rate = self._get_lr(index)
        return rate, sqrt(rate)

    def advance(self, weight: Any, grad: Any, states: list[Any], rates: Any, decay: Any) -> Moved:
        """One step to a randomly drawn place."""
        rate, deviation = rates
        noise = np.random.normal(0, 1, size=weight.shape, dtype=weight.dtype)
        step = rate / 2 * decayed(weight, self._clipped(grad), decay)
        return weight - step + deviation * noise, []


class DCASGD(Optimizer):
    """Asynchronous SGD that compensates the gradient's delay by the weight's movement since then.

    Zheng et al., Asynchronous stochastic gradient descent with delay compensation, ICML 2017.
    """

    def __init__(
        self,
        learning_rate: float | None = None,
        momentum: float = 0.0,
        lamda: float = 0.04,
        **settings: Any,
    ) -> None:
        super().__init__(learning_rate, **settings)
        check_number(type(self).__name__, "momentum", momentum)
        check_number(type(self).__name__, "lamda", lamda)
        self.momentum = momentum
        self.lamda = lamda

    def create_states(self, weight: ndarray) -> list[ndarray]:
        """The weight before the last update, and the running step."""
        return [weight.copy(), *([np.zeros_like(weight)] if self.momentum else ())]

    def advance(self, weight: Any, grad: Any, states: list[Any], rates: Any, decay: Any) -> Moved:
        """One step down the compensated gradient."""
        previous, *running = states
        grad = self._clipped(grad)
        delay = self.lamda * np.square(grad) * (weight - previous)
        step = -rates[0] * (decayed(weight, grad, decay) + delay)
        running = [self.momentum * running[0] + step] if running else []
        return weight + (running[0] if running else step), [weight, *running]


class Test(Optimizer):
    """Adds the rescaled gradient, and keeps the weight as its state: to test what calls it."""

    __test__ = False  # so that pytest does not collect it

    def create_states(self, weight: ndarray) -> list[ndarray]:
        """Zeros."""
        return [np.zeros_like(weight)]

    def advance(self, weight: Any, grad: Any, states: list[Any], rates: Any, decay: Any) -> Moved:
        """weight + grad."""
        return weight + grad, [weight + grad]


def decayed(weight: Any, grad: Any, decay: Any) -> Any:
    """The gradient of the loss plus decay / 2 * sum(weight ** 2)."""
    return grad if decay is None else grad + decay * weight

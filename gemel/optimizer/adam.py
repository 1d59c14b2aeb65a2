"""Adam and its variants: steps scaled by running means of the gradient and of its square."""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING, Any

from gemel import np
from gemel.optimizer.base import Moved, Optimizer
from gemel.optimizer.sgd import decayed
from gemel.ranges import check_below_one, check_number

if TYPE_CHECKING:
    from gemel.np import ndarray


class Moments(Optimizer):
    """Base class: running means of the gradient, with `beta1`, and of its square, with `beta2`.

    Raises `ArgumentError` unless both are from 0 to below 1, and `epsilon` is not negative.
    """

    def __init__(
        self,
        learning_rate: float | None = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        **settings: Any,
    ) -> None:
        super().__init__(learning_rate, **settings)
        name = type(self).__name__
        check_below_one(name, "beta1", beta1)
        check_below_one(name, "beta2", beta2)
        check_number(name, "epsilon", epsilon, 0)
        self.beta1 = beta1
        self.beta2 = beta2
        self.epsilon = epsilon

    def create_states(self, weight: ndarray) -> list[ndarray]:
        """The running means of the gradient and of its square."""
        return [np.zeros_like(weight), np.zeros_like(weight)]

    def corrections(self, index: Any) -> tuple[float, float]:
        """1 - beta ** step for both means: the total weight of the gradients in a mean that began
        at 0."""
        step = self._index_update_count[index]
        return 1 - self.beta1**step, 1 - self.beta2**step

    def moments(self, grad: Any, states: list[Any]) -> list[Any]:
        """The running means after one more gradient."""
        mean = self.beta1 * states[0] + (1 - self.beta1) * grad
        return [mean, self.beta2 * states[1] + (1 - self.beta2) * np.square(grad)]


class Adam(Moments):
    """weight -= rate * mean / (sqrt(variance) + epsilon), with bias-corrected running averages.

    Kingma and Ba, Adam: a method for stochastic optimization, ICLR 2015. `lazy_update` is accepted
    for old code: gradients are dense.
    """

    #: Whether the averages are corrected for their start at zero.
    correct_bias = True

    def __init__(
        self,
        learning_rate: float | None = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        lazy_update: bool = True,
        **settings: Any,
    ) -> None:
        super().__init__(learning_rate, beta1, beta2, epsilon, **settings)

    def rates(self, index: Any) -> tuple[float, ...]:
        """The learning rate, corrected for averages that began at zero."""
        first, second = self.corrections(index)
        return (self._get_lr(index) * (sqrt(second) / first if self.correct_bias else 1),)

    def advance(self, weight: Any, grad: Any, states: list[Any], rates: Any, decay: Any) -> Moved:
        """One step."""
        mean, variance = self.moments(self._clipped(decayed(weight, grad, decay)), states)
        step = rates[0] * mean / (np.sqrt(variance) + self.epsilon)
        return weight - step, [mean, variance]


class AdamW(Adam):
    """Adam with decoupled weight decay.

    The decay is multiplied by the rate after the correction of the bias, as in MXNet 2. In the
    paper and in torch it is multiplied by the rate itself. With `correct_bias=False` the two agree.
    Loshchilov and Hutter, Decoupled weight decay regularization, ICLR 2019.
    """

    def __init__(
        self,
        learning_rate: float | None = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-6,
        correct_bias: bool = True,
        **settings: Any,
    ) -> None:
        super().__init__(learning_rate, beta1, beta2, epsilon, **settings)
        self.correct_bias = correct_bias

    def advance(self, weight: Any, grad: Any, states: list[Any], rates: Any, decay: Any) -> Moved:
        """One step with decoupled weight decay."""
        mean, variance = self.moments(self._clipped(grad), states)
        direction = mean / (np.sqrt(variance) + self.epsilon)
        return weight - rates[0] * decayed(weight, direction, decay), [mean, variance]


class AdaBelief(AdamW):
    """Adam that divides by the deviation of gradients from their running mean.

    Zhuang et al., AdaBelief optimizer: adapting stepsizes by the belief in observed gradients,
    NeurIPS 2020.
    """

    def advance(self, weight: Any, grad: Any, states: list[Any], rates: Any, decay: Any) -> Moved:
        """One step."""
        grad = decayed(weight, self._clipped(grad), decay)
        mean = self.beta1 * states[0] + (1 - self.beta1) * grad
        surprise = self.beta2 * states[1] + (1 - self.beta2) * np.square(grad - mean) + self.epsilon
        return weight - rates[0] * mean / (np.sqrt(surprise) + self.epsilon), [mean, surprise]


class Adamax(Moments):
    """Adam that divides by the largest recent gradient, which decays by `beta2`.

    Kingma and Ba, Adam: a method for stochastic optimization, ICLR 2015, section 7.
    """

    def __init__(
        self,
        learning_rate: float | None = 0.002,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        **settings: Any,
    ) -> None:
        super().__init__(learning_rate, beta1, beta2, epsilon, **settings)

    def rates(self, index: Any) -> tuple[float, ...]:
        """The learning rate, corrected for a mean that began at zero."""
        return (self._get_lr(index) / self.corrections(index)[0],)

    def advance(self, weight: Any, grad: Any, states: list[Any], rates: Any, decay: Any) -> Moved:
        """One step. Where all gradients were 0, epsilon keeps it from being 0 / 0."""
        grad = self._clipped(decayed(weight, grad, decay))
        mean = self.beta1 * states[0] + (1 - self.beta1) * grad
        largest = np.maximum(self.beta2 * states[1], np.abs(grad))
        return weight - rates[0] * mean / (largest + self.epsilon), [mean, largest]


class Nadam(Moments):
    """Adam with Nesterov momentum, which grows with the steps by `schedule_decay`.

    Dozat, Incorporating Nesterov momentum into Adam, ICLR workshop 2016.
    """

    def __init__(
        self,
        learning_rate: float | None = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        schedule_decay: float = 0.004,
        **settings: Any,
    ) -> None:
        super().__init__(learning_rate, beta1, beta2, epsilon, **settings)
        check_number("Nadam", "schedule_decay", schedule_decay, 0)
        self.schedule_decay = schedule_decay
        #: The products of the momenta since `begin_num_update`, computed as far as needed.
        self._products = [1.0]

    def _momentum(self, step: int) -> float:
        return float(self.beta1 * (1 - 0.5 * 0.96 ** (step * self.schedule_decay)))

    def rates(self, index: Any) -> tuple[float, ...]:
        """The learning rate, the factors of the gradient and of the mean, and the variance's
        correction."""
        step, products = self._index_update_count[index], self._products
        done = step - self.begin_num_update
        while len(products) <= done + 1:
            products.append(products[-1] * self._momentum(step - done + len(products)))
        gradient = (1 - self._momentum(step)) / (1 - products[done])
        mean = self._momentum(step + 1) / (1 - products[done + 1])
        return self._get_lr(index), gradient, mean, self.corrections(index)[1]

    def advance(self, weight: Any, grad: Any, states: list[Any], rates: Any, decay: Any) -> Moved:
        """One step, looking ahead."""
        rate, of_gradient, of_mean, full = rates
        grad = self._clipped(decayed(weight, grad, decay))
        mean, variance = self.moments(grad, states)
        step = rate * (of_gradient * grad + of_mean * mean)
        return weight - step / (np.sqrt(variance / full) + self.epsilon), [mean, variance]

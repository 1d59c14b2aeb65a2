"""Optimizers with a step size for each weight, computed from its past gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gemel import np
from gemel.optimizer.adam import Moments
from gemel.optimizer.base import Moved, Optimizer, limited
from gemel.optimizer.sgd import decayed
from gemel.ranges import check_number

if TYPE_CHECKING:
    from gemel.np import ndarray


class AdaGrad(Optimizer):
    """Divides by the root of the sum of all squared gradients. Weight decay is decoupled.

    Duchi, Hazan and Singer, Adaptive subgradient methods for online learning and stochastic
    optimization, JMLR 2011. `epsilon` is MXNet 2's name for `eps`.
    """

    def __init__(
        self,
        learning_rate: float | None = None,
        eps: float = 1e-7,
        epsilon: float | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(learning_rate, **settings)
        self.float_stable_eps = eps if epsilon is None else epsilon
        check_number(type(self).__name__, "eps", self.float_stable_eps, 0)

    def create_states(self, weight: ndarray) -> list[ndarray]:
        """The sum of the squared gradients."""
        return [np.zeros_like(weight)]

    def advance(self, weight: Any, grad: Any, states: list[Any], rates: Any, decay: Any) -> Moved:
        """One step."""
        grad = self._clipped(grad)
        history = states[0] + np.square(grad)
        direction = grad / np.sqrt(history + self.float_stable_eps)
        return weight - rates[0] * decayed(weight, direction, decay), [history]


class AdaDelta(Optimizer):
    """Steps as large as the running mean of earlier steps; `learning_rate` is not used.

    Zeiler, ADADELTA: an adaptive learning rate method, 2012.
    """

    def __init__(
        self,
        learning_rate: float | None = None,
        rho: float = 0.9,
        epsilon: float = 1e-5,
        **settings: Any,
    ) -> None:
        super().__init__(learning_rate, **settings)
        check_number(type(self).__name__, "rho", rho, 0, 1)
        check_number(type(self).__name__, "epsilon", epsilon, 0)
        self.rho = rho
        self.epsilon = epsilon

    def create_states(self, weight: ndarray) -> list[ndarray]:
        """The running means of squared gradients and of squared steps."""
        return [np.zeros_like(weight), np.zeros_like(weight)]

    def advance(self, weight: Any, grad: Any, states: list[Any], rates: Any, decay: Any) -> Moved:
        """One step."""
        grad = self._clipped(grad)
        of_grad = self.rho * states[0] + (1 - self.rho) * np.square(grad)
        step = np.sqrt(states[1] + self.epsilon) / np.sqrt(of_grad + self.epsilon) * grad
        of_step = self.rho * states[1] + (1 - self.rho) * np.square(step)
        return weight - decayed(weight, step, decay), [of_grad, of_step]


class RMSProp(Optimizer):
    """Divides by the root of the running mean of squared gradients, which decays by `gamma1`.

    Tieleman and Hinton, Lecture 6.5, Coursera 2012. If `centered`, the variance replaces the mean
    square, and steps have the momentum `gamma2`: Graves, Generating sequences with recurrent neural
    networks, 2013. `clip_weights` limits the weights afterwards. `rho` and `momentum` are MXNet 2's
    names for the gammas.
    """

    def __init__(
        self,
        learning_rate: float | None = 0.001,
        gamma1: float = 0.9,
        gamma2: float = 0.9,
        epsilon: float = 1e-8,
        centered: bool = False,
        clip_weights: float | None = None,
        rho: float | None = None,
        momentum: float | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(learning_rate, **settings)
        self.gamma1 = gamma1 if rho is None else rho
        self.gamma2 = gamma2 if momentum is None else momentum
        check_number(type(self).__name__, "gamma1", self.gamma1, 0, 1)
        check_number(type(self).__name__, "gamma2", self.gamma2)
        check_number(type(self).__name__, "epsilon", epsilon, 0)
        if clip_weights is not None:
            check_number(type(self).__name__, "clip_weights", clip_weights)
        self.epsilon = epsilon
        self.centered = centered
        self.clip_weights = clip_weights

    def create_states(self, weight: ndarray) -> list[ndarray]:
        """The running mean of squared gradients; if `centered`, also those of gradients and of
        steps."""
        return [np.zeros_like(weight) for _ in range(3 if self.centered else 1)]

    def advance(self, weight: Any, grad: Any, states: list[Any], rates: Any, decay: Any) -> Moved:
        """One step."""
        grad = self._clipped(decayed(weight, grad, decay))
        square = self.gamma1 * states[0] + (1 - self.gamma1) * np.square(grad)
        after, variance = [square], square
        if self.centered:
            mean = self.gamma1 * states[1] + (1 - self.gamma1) * grad
            # Where gradients hardly change, the difference is rounded, and may be below 0.
            after, variance = [square, mean], np.maximum(square - np.square(mean), 0)
        move = -rates[0] * grad / np.sqrt(variance + self.epsilon)
        if self.centered:
            move = self.gamma2 * states[2] + move
            after.append(move)
        return limited(weight + move, self.clip_weights), after


class Ftrl(Optimizer):
    """Follow the regularized leader: `lamda1` keeps weights with small gradients at 0.

    McMahan et al., Ad click prediction: a view from the trenches, KDD 2013.
    """

    def __init__(
        self,
        learning_rate: float | None = 0.1,
        lamda1: float = 0.01,
        beta: float = 1.0,
        **settings: Any,
    ) -> None:
        super().__init__(learning_rate, **settings)
        check_number(type(self).__name__, "lamda1", lamda1, 0)
        check_number(type(self).__name__, "beta", beta, 0)
        self.lamda1 = lamda1
        self.beta = beta

    def create_states(self, weight: ndarray) -> list[ndarray]:
        """z, a sum of gradients, and n, the sum of their squares."""
        return [np.zeros_like(weight), np.zeros_like(weight)]

    def rates(self, index: Any) -> tuple[float, ...]:
        """The learning rate, and a number to divide by: 1 if that is 0."""
        rate = self._get_lr(index)
        return rate, rate or 1.0

    def advance(self, weight: Any, grad: Any, states: list[Any], rates: Any, decay: Any) -> Moved:
        """The weight of the present leader."""
        (rate, some), grad = rates, self._clipped(grad)
        n = states[1] + np.square(grad)
        z = states[0] + grad - (np.sqrt(n) - np.sqrt(states[1])) * weight / some
        slope = (self.beta + np.sqrt(n)) / some
        leader = (np.sign(z) * self.lamda1 - z) / (slope if decay is None else slope + decay)
        found = np.where(np.abs(z) > self.lamda1, leader, 0.0)
        return _if_it_moves(rate, (weight, found), (states[0], z), (states[1], n))


class FTML(Moments):
    """Follow the moving leader: recent gradients count more.

    Zheng and Kwok, Follow the moving leader in deep learning, ICML 2017.
    """

    def __init__(
        self,
        learning_rate: float | None = None,
        beta1: float = 0.6,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        **settings: Any,
    ) -> None:
        super().__init__(learning_rate, beta1, beta2, epsilon, **settings)

    def create_states(self, weight: ndarray) -> list[ndarray]:
        """d, v and z of the paper."""
        return [np.zeros_like(weight) for _ in range(3)]

    def rates(self, index: Any) -> tuple[float, ...]:
        """The learning rate, the factor of the step's penalty, and the bias correction of the mean
        of squared gradients."""
        rate, (first, second) = self._get_lr(index), self.corrections(index)
        return rate, first / (rate or 1.0), second

    def advance(self, weight: Any, grad: Any, states: list[Any], rates: Any, decay: Any) -> Moved:
        """The weight of the present leader."""
        rate, cost, full = rates
        grad = self._clipped(decayed(weight, grad, decay))
        v = self.beta2 * states[1] + (1 - self.beta2) * np.square(grad)
        d = cost * (np.sqrt(v / full) + self.epsilon)
        sigma = d - self.beta1 * states[0]
        z = self.beta1 * states[2] + (1 - self.beta1) * grad - sigma * weight
        return _if_it_moves(rate, (weight, -z / d), *zip(states, (d, v, z), strict=True))


def _if_it_moves(rate: Any, *pairs: tuple[Any, Any]) -> Moved:
    """From pairs of old and new arrays, the weight first: the old ones if the rate is 0.

    These leaders depend on the rates of all steps, but not on those of steps that are not taken.
    """
    weight, *states = (np.where(rate == 0, old, new) for old, new in pairs)
    return weight, states

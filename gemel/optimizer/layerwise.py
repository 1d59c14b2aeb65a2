"""For large batches: a step size for each layer, from the norms of its weight and its step."""

from __future__ import annotations

from typing import Any

from gemel import np
from gemel.errors import ArgumentError
from gemel.optimizer.adam import Moments
from gemel.optimizer.base import Moved
from gemel.optimizer.sgd import SGD, decayed
from gemel.ranges import check_number


def _norm(array: Any) -> Any:
    return np.sqrt(np.square(array).sum())


def _ratio(above: Any, below: Any) -> Any:
    """above / below, or 1 if either is 0."""
    sound = np.logical_and(above > 0, below > 0)
    return np.where(sound, above / np.where(sound, below, 1.0), 1.0)


class LARS(SGD):
    """SGD whose steps are `eta` times the weight's norm, whatever the gradient's norm.

    Parameters named ..gamma, ..beta and ..bias take plain steps. With `momentum_correction` the
    running step follows a learning rate that changes (Goyal et al., Accurate, large minibatch SGD,
    2017). You, Gitman and Ginsburg, Large batch training of convolutional networks, 2017. `epsilon`
    is MXNet 2's name for `eps`.
    """

    needs_whole = True

    def __init__(
        self,
        learning_rate: float | None = None,
        momentum: float = 0.0,
        lazy_update: bool = True,
        eta: float = 0.001,
        eps: float = 0.0,
        momentum_correction: bool = True,
        epsilon: float | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(learning_rate, momentum, **settings)
        self.eta = eta
        self.eps = eps if epsilon is None else epsilon
        check_number(type(self).__name__, "eta", eta, 0)
        check_number(type(self).__name__, "eps", self.eps, 0)
        self.momentum_correction = momentum_correction

    def set_wd_mult(self, args_wd_mult: dict[Any, float]) -> None:
        """Multiply the weight decay of some parameters; by default only names in _weight decay."""
        names = self.idx2name.values()
        super().set_wd_mult({n: 0.0 for n in names if not n.endswith("_weight")} | {**args_wd_mult})

    def _is_plain(self, index: Any) -> bool:
        return self._name(index).endswith(("gamma", "beta", "bias"))

    def alike(self, index: Any) -> tuple[Any, ...]:
        """Two classes of parameters: those that take plain steps, and the others."""
        return (*super().alike(index), self._is_plain(index))

    def rates(self, index: Any) -> tuple[float, ...]:
        """The common learning rate, this parameter's factor, and whether the step is scaled."""
        return self.learning_rate, self._mults(index)[0], 0.0 if self._is_plain(index) else 1.0

    def advance(self, weight: Any, grad: Any, states: list[Any], rates: Any, decay: Any) -> Moved:
        """One step. With correction, the momentum sums steps before the learning rate scales
        them."""
        rate, mult, scaled = rates
        size, slope = _norm(weight), _norm(grad)
        below = slope + self.eps if decay is None else slope + decay * size + self.eps
        sound = np.logical_and(scaled * size > 0, slope > 0)
        trust = np.where(sound, self.eta * size / np.where(sound, below, 1.0), 1.0)
        step = mult * trust * decayed(weight, self._clipped(grad), decay)
        if not states:
            return weight - rate * step, []
        if self.momentum_correction:
            running = self.momentum * states[0] - step
            return weight + rate * running, [running]
        running = self.momentum * states[0] - rate * step
        return weight + running, [running]


class LAMB(Moments):
    """Adam's direction plus weight decay, with steps as large as the weight's norm.

    The weight's norm counts as at least `lower_bound` and at most `upper_bound`. You et al., Large
    batch optimization for deep learning: training BERT in 76 minutes, ICLR 2020.
    """

    needs_whole = True

    def __init__(
        self,
        learning_rate: float | None = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-6,
        lower_bound: float | None = None,
        upper_bound: float | None = None,
        bias_correction: bool = True,
        **settings: Any,
    ) -> None:
        super().__init__(learning_rate, beta1, beta2, epsilon, **settings)
        name = type(self).__name__
        for what, bound in (("lower_bound", lower_bound), ("upper_bound", upper_bound)):
            if bound is not None:
                check_number(name, what, bound)
        if lower_bound and upper_bound and lower_bound > upper_bound:
            raise ArgumentError(
                f"{name}: lower_bound={lower_bound!r} is above upper_bound={upper_bound!r}"
            )
        self.lower_bound = lower_bound
        self.upper_bound = upper_bound
        self.bias_correction = bias_correction

    def rates(self, index: Any) -> tuple[float, ...]:
        """The learning rate, and the bias corrections of the running means."""
        full = self.corrections(index) if self.bias_correction else (1.0, 1.0)
        return (self._get_lr(index), *full)

    def _size(self, weight: Any) -> Any:
        size = _norm(weight)
        if self.lower_bound:
            size = np.maximum(size, self.lower_bound)
        return np.minimum(size, self.upper_bound) if self.upper_bound else size

    def advance(self, weight: Any, grad: Any, states: list[Any], rates: Any, decay: Any) -> Moved:
        """One step in proportion to the weight's norm."""
        rate, first, second = rates
        mean, variance = self.moments(self._clipped(grad), states)
        direction = mean / first / (np.sqrt(variance / second) + self.epsilon)
        step = decayed(weight, direction, decay)
        return weight - rate * _ratio(self._size(weight), _norm(step)) * step, [mean, variance]


class LANS(LAMB):
    """LAMB of normalized gradients, with Nesterov's momentum.

    Zheng, Lin, Zha and Li, Accelerated large batch optimization of BERT pretraining in 54 minutes,
    2020.
    """

    needs_whole = True

    def __init__(
        self,
        learning_rate: float | None = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-6,
        lower_bound: float | None = None,
        upper_bound: float | None = None,
        **settings: Any,
    ) -> None:
        bounds = lower_bound, upper_bound
        super().__init__(learning_rate, beta1, beta2, epsilon, *bounds, **settings)

    def advance(self, weight: Any, grad: Any, states: list[Any], rates: Any, decay: Any) -> Moved:
        """One step in proportion to the weight's norm: one part along the mean, one along the
        gradient."""
        rate, first, second = rates
        slope = _norm(grad)
        grad = self._clipped(grad / np.where(slope > 0, slope, 1.0))
        mean, variance = self.moments(grad, states)
        below = np.sqrt(variance / second) + self.epsilon
        size, old = self._size(weight), weight
        for share, direction in ((self.beta1, mean / first), (1 - self.beta1, grad)):
            step = decayed(old, direction / below, decay)
            weight = weight - rate * share * _ratio(size, _norm(step)) * step
        return weight, [mean, variance]

"""Distributions derived from others: functions of samples, and smooth versions of discrete ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gemel import np, npx
from gemel.gluon.probability.base import (
    Distribution,
    NoFormulaError,
    OfOdds,
    Tensor,
    safe,
    softplus,
    supported,
)
from gemel.gluon.probability.discrete import OfEvents


class Transformation:
    """A function of samples, its inverse, and how it stretches: `log_det_jacobian`.

    `sign` is 1 where it rises and -1 where it falls; `event_dim` how many of the last axes it takes
    as one event.
    """

    bijective = True
    event_dim = 0
    sign: Any = 1

    def __call__(self, x: Any) -> Tensor:
        """The function."""
        raise NotImplementedError

    def inv(self, y: Any) -> Tensor:
        """Its inverse."""
        raise NoFormulaError(f"{type(self).__name__} has no inverse")

    def beyond(self, y: Any) -> Any:
        """Where y is not a result, or one of its limits."""
        return False

    def log_det_jacobian(self, x: Any, y: Any) -> Tensor:
        """The logarithm of the absolute determinant of its derivatives, where y = f(x)."""
        raise NoFormulaError(f"{type(self).__name__} has no density")


class ExpTransform(Transformation):
    """exp(x)."""

    def __call__(self, x: Any) -> Tensor:
        """exp(x)."""
        return np.exp(x)

    def inv(self, y: Any) -> Tensor:
        """log(y)."""
        return np.log(y)

    def beyond(self, y: Any) -> Any:
        """Numbers up to 0."""
        return y <= 0

    def log_det_jacobian(self, x: Any, y: Any) -> Tensor:
        """x."""
        return x


class AffineTransform(Transformation):
    """loc + scale * x."""

    def __init__(self, loc: Any, scale: Any, event_dim: int = 0) -> None:
        self.loc, self.scale, self.event_dim = loc, scale, event_dim

    @property
    def sign(self) -> Tensor:
        """That of scale."""
        return np.sign(self.scale)

    def __call__(self, x: Any) -> Tensor:
        """loc + scale * x."""
        return self.loc + self.scale * x

    def inv(self, y: Any) -> Tensor:
        """(y - loc) / scale."""
        return (y - self.loc) / self.scale

    def log_det_jacobian(self, x: Any, y: Any) -> Tensor:
        """log(abs(scale)) for each number of an event."""
        return _events(np.log(np.abs(self.scale)) + 0 * x, self.event_dim)


class PowerTransform(Transformation):
    """x ** exponent, of numbers above 0."""

    def __init__(self, exponent: Any) -> None:
        self.exponent = exponent

    @property
    def sign(self) -> Tensor:
        """That of the exponent."""
        return np.sign(self.exponent)

    def __call__(self, x: Any) -> Tensor:
        """x ** exponent."""
        return x**self.exponent

    def inv(self, y: Any) -> Tensor:
        """y ** (1 / exponent)."""
        return y ** (1 / self.exponent)

    def beyond(self, y: Any) -> Any:
        """Numbers up to 0."""
        return y <= 0

    def log_det_jacobian(self, x: Any, y: Any) -> Tensor:
        """log(abs(exponent * y / x))."""
        return np.log(np.abs(self.exponent * y / x))


class SigmoidTransform(Transformation):
    """1 / (1 + exp(-x))."""

    def __call__(self, x: Any) -> Tensor:
        """1 / (1 + exp(-x))."""
        return npx.sigmoid(x)

    def inv(self, y: Any) -> Tensor:
        """log(y / (1 - y))."""
        return np.log(y) - np.log1p(-1 * y)

    def beyond(self, y: Any) -> Any:
        """Numbers up to 0, and from 1."""
        return np.logical_or(y <= 0, y >= 1)

    def log_det_jacobian(self, x: Any, y: Any) -> Tensor:
        """-softplus(x) - softplus(-x)."""
        return -softplus(x) - softplus(-1 * x)


class AbsTransform(Transformation):
    """abs(x): two numbers become one."""

    bijective = False

    def __call__(self, x: Any) -> Tensor:
        """abs(x)."""
        return np.abs(x)


class SoftmaxTransform(Transformation):
    """The softmax of vectors; those that differ by a constant have the same result."""

    bijective = False
    event_dim = 1

    def __call__(self, x: Any) -> Tensor:
        """softmax(x)."""
        return npx.softmax(x, axis=-1)


class ComposeTransform(Transformation):
    """Several functions, the first one first."""

    def __init__(self, parts: Sequence[Transformation]) -> None:
        self.parts = list(parts)
        self.event_dim = max((part.event_dim for part in self.parts), default=0)
        self.bijective = all(part.bijective for part in self.parts)

    @property
    def sign(self) -> Any:
        """The product of their signs."""
        found: Any = 1
        for part in self.parts:
            found = found * part.sign
        return found

    def __call__(self, x: Any) -> Tensor:
        """The last function's result."""
        for part in self.parts:
            x = part(x)
        return x

    def inv(self, y: Any) -> Tensor:
        """Back through all of them."""
        for part in reversed(self.parts):
            y = part.inv(y)
        return y

    def beyond(self, y: Any) -> Any:
        """Where one of them has no such result."""
        found: Any = False
        for part in reversed(self.parts):
            found = np.logical_or(found, part.beyond(y))
            y = part.inv(y)
        return found

    def log_det_jacobian(self, x: Any, y: Any) -> Tensor:
        """The sum of theirs."""
        total: Any = 0.0
        for part in self.parts:
            after = part(x)
            found = part.log_det_jacobian(x, after)
            total, x = total + _events(found, self.event_dim - part.event_dim), after
        return total


class TransformedDistribution(Distribution):
    """The distribution of a function of another distribution's samples, or of several in turn.

    >>> from gemel.gluon.probability import ExpTransform, Normal, TransformedDistribution
    >>> TransformedDistribution(Normal(0.0, 1.0), ExpTransform()).log_prob(np.array([0.5, 1.0]))
    """

    def __init__(
        self, base_dist: Distribution, transforms: Transformation | Sequence[Transformation]
    ) -> None:
        super().__init__()
        single = isinstance(transforms, Transformation)
        self.base_dist, self.transform = (
            base_dist,
            ComposeTransform([transforms] if single else transforms),  # type: ignore[arg-type, list-item]
        )
        self.event_dim = max(base_dist.event_dim, self.transform.event_dim)
        self.has_grad = base_dist.has_grad

    @property
    def batch_shape(self) -> tuple[Any, ...]:
        """The shape of the batch, without the axes a function takes as one event."""
        shape = self.base_dist.batch_shape
        return shape[: len(shape) - (self.event_dim - self.base_dist.event_dim)]

    def sample(self, size: Any = None) -> Tensor:
        """See `Distribution.sample`."""
        return self.transform(self.base_dist.sample(size))

    def sample_n(self, size: Any = None) -> Tensor:
        """See `Distribution.sample_n`."""
        return self.transform(self.base_dist.sample_n(size))

    def log_prob(self, value: Any) -> Tensor:
        """See `Distribution.log_prob`."""
        value = np.asarray(value)
        beyond = np.logical_or(self.transform.beyond(value), np.zeros_like(value, dtype=bool))
        held = np.where(beyond, self.transform(np.full_like(value, 0.5)), value)
        x = self.transform.inv(held)
        inner = _events(self.base_dist.log_prob(x), self.event_dim - self.base_dist.event_dim)
        stretched = self.transform.log_det_jacobian(x, held)
        found = inner - _events(stretched, self.event_dim - self.transform.event_dim)
        return supported(_events(value, self.event_dim), _events(beyond, self.event_dim), found)

    def cdf(self, value: Any) -> Tensor:
        """See `Distribution.cdf`."""
        found = self.base_dist.cdf(self.transform.inv(value))
        return np.where(self.transform.sign > 0, found, 1 - found)

    def icdf(self, value: Any) -> Tensor:
        """See `Distribution.icdf`."""
        value = np.where(self.transform.sign > 0, value, 1 - value)
        return self.transform(self.base_dist.icdf(value))


class RelaxedBernoulli(OfOdds):
    """Numbers in (0, 1), nearer to 0 or 1 the lower the temperature T: a smooth Bernoulli.

    Maddison, Mnih, Teh: The Concrete Distribution (2017).
    """

    has_grad = True

    def __init__(self, T: Any, prob: Any = None, logit: Any = None, **options: Any) -> None:  # noqa: N803
        super().__init__(prob, logit, **options)
        self.T = T

    def sample(self, size: Any = None) -> Tensor:
        """See `Distribution.sample`."""
        return npx.sigmoid((self.logit + np.random.logistic(0.0, 1.0, self._shape(size))) / self.T)

    def log_prob(self, value: Any) -> Tensor:
        """See `Distribution.log_prob`."""
        value = np.asarray(value)
        beyond = np.logical_or(value <= 0, value >= 1)
        held = safe(value, beyond, self.logit, 0.5)
        high, low = np.log(held), np.log1p(-1 * held)
        apart = self.logit - self.T * (high - low)
        return supported(value, beyond, np.log(self.T) + apart - 2 * softplus(apart) - high - low)


class RelaxedOneHotCategorical(OfEvents):
    """Vectors above 0 of sum 1, nearer to one event the lower the temperature T.

    Jang, Gu, Poole: Categorical Reparameterization with Gumbel-Softmax (2017).
    """

    has_grad = True
    event_dim = 1

    def __init__(
        self,
        T: Any,  # noqa: N803 -- MXNet's name
        num_events: int,
        prob: Any = None,
        logit: Any = None,
        **options: Any,
    ) -> None:
        super().__init__(num_events, prob, logit, **options)
        self.T = T

    def sample(self, size: Any = None) -> Tensor:
        """See `Distribution.sample`."""
        lead = () if size is None else self._shape(size)
        noise = np.random.gumbel(0.0, 1.0, (*lead, *self.batch_shape, self.num_events))
        return npx.softmax((self.log_probs + noise) / self.T, axis=-1)

    def log_prob(self, value: Any) -> Tensor:
        """See `Distribution.log_prob`."""
        value = np.asarray(value)
        below = value <= 0
        held = safe(value, below, self.prob)
        beyond = np.logical_or(below.any(axis=-1), np.abs(held.sum(axis=-1) - 1) > 0.01)
        logs, count = np.log(held), self.num_events
        scores = self.log_probs - self.T * logs
        highest = scores.max(axis=-1, keepdims=True)
        total = np.log(np.exp(scores - highest).sum(axis=-1)) + highest[..., 0]
        norm = npx.gammaln(float(count)) + (count - 1) * np.log(self.T)
        found = norm + (scores - logs).sum(axis=-1) - count * total
        return supported(value.sum(axis=-1), beyond, found)

    def entropy(self) -> Tensor:
        """There is no closed form of it: raises `NoFormulaError`."""
        raise self._missing("entropy")


def _events(x: Any, count: int) -> Tensor:
    """The sum over the last `count` axes."""
    return x.sum(axis=tuple(range(-count, 0))) if count else x


__all__ = [
    "AbsTransform",
    "AffineTransform",
    "ComposeTransform",
    "ExpTransform",
    "PowerTransform",
    "RelaxedBernoulli",
    "RelaxedOneHotCategorical",
    "SigmoidTransform",
    "SoftmaxTransform",
    "Transformation",
    "TransformedDistribution",
]

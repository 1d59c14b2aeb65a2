"""The common part of distributions, and the constraints on their parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from functools import wraps
from types import MappingProxyType
from typing import Any

from gemel import np, npx
from gemel.device import beside
from gemel.errors import ArgumentError, GemelError
from gemel.ops.distribution import held
from gemel.ranges import FlagsChecked

#: Arrays, or symbols in a trace.
Tensor = Any


def named(**values: Any) -> Mapping[str, Any]:
    """A read-only table by names."""
    return MappingProxyType(values)


class NoFormulaError(GemelError, NotImplementedError):
    """Raised if a distribution has no closed form for a quantity."""


class Distribution(FlagsChecked):
    """A batch of distributions, one for each element of the parameters, which broadcast to
    `batch_shape`.

    `F` is accepted for compatibility with MXNet and ignored. With `validate_args` the parameters
    are checked: numbers at the call, arrays when a result computed from them is waited for; either
    raises `ValueError`.
    """

    #: Whether samples have gradients with respect to the parameters.
    has_grad = False
    #: Whether `enumerate_support` lists the possible samples.
    has_enumerate_support = False
    #: How many of the last axes of a sample belong to one event.
    event_dim = 0
    #: The parameters, and how many of their last axes belong to one event.
    parameters: Mapping[str, int] = MappingProxyType({})
    #: The constraints on the parameters, by the names in `gemel.ops.distribution.RULES`.
    arg_constraints: Mapping[str, str] = MappingProxyType({})

    def __init__(
        self,
        F: Any = None,  # noqa: N803 -- MXNet's name
        validate_args: bool | None = None,
        **given: Any,
    ) -> None:
        for name, value in given.items():
            rule = self.arg_constraints.get(name, "any")
            if isinstance(value, (list, tuple)):
                value = np.array(value)
            if validate_args:
                value = held(type(self).__name__, name.lstrip("_"), value, rule)
            setattr(self, name, value)

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        for name in ("sample", "sample_n"):
            if name in vars(cls):
                setattr(cls, name, _beside_parameters(vars(cls)[name]))

    # --- shapes -----------------------------------------------------------------------------

    @property
    def batch_shape(self) -> tuple[Any, ...]:
        """The shape the parameters broadcast to, without the axes of events."""
        shapes = [
            np.shape(self._given(name))[: np.ndim(self._given(name)) - events]
            for name, events in self.parameters.items()
            if self._given(name) is not None
        ]
        return _broadcast(shapes)

    def _given(self, name: str) -> Any:
        """A parameter as it was given; None if another one was given instead."""
        return getattr(self, name)

    def _shape(self, size: Any) -> tuple[Any, ...]:
        """The shape of samples: `size`, or that of the parameters."""
        if size is None:
            return self.batch_shape
        return (size,) if not hasattr(size, "__len__") else tuple(size)

    def _spread(self, value: Any) -> Tensor:
        """Broadcast to a number for each distribution of the batch."""
        return np.broadcast_to(value, self.batch_shape)

    def broadcast_to(self, batch_shape: Any) -> Any:
        """The same distribution with parameters broadcast to this shape."""
        found = copy(self)
        for name, events in self.parameters.items():
            value = self._given(name)
            if value is not None:
                own = np.shape(value)[np.ndim(value) - events :]
                setattr(found, name, np.broadcast_to(value, (*batch_shape, *own)))
        return found

    # --- defined by each distribution -------------------------------------------------------

    def _missing(self, what: str) -> NoFormulaError:
        return NoFormulaError(f"{type(self).__name__}.{what}: no closed form is implemented")

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the density, or of the probability, at `value`: -inf beyond the support,
        NaN at NaN."""
        raise self._missing("log_prob")

    def cdf(self, value: Any) -> Tensor:
        """The cumulative distribution function: the probability of a sample of at most `value`."""
        raise self._missing("cdf")

    def icdf(self, value: Any) -> Tensor:
        """The quantile: a sample lies below it with probability `value`."""
        raise self._missing("icdf")

    def sample(self, size: Any = None) -> Tensor:
        """Random numbers of shape `size`, or of the parameters' shape.

        For distributions over events (`event_dim`), `size` comes before the shapes of batch and
        event.
        """
        raise self._missing("sample")

    @property
    def mean(self) -> Tensor:
        """The mean of each distribution."""
        raise self._missing("mean")

    @property
    def variance(self) -> Tensor:
        """The variance of each distribution."""
        raise self._missing("variance")

    def entropy(self) -> Tensor:
        """The entropy, in nats."""
        raise self._missing("entropy")

    def enumerate_support(self) -> Tensor:
        """All possible samples, along a new first axis."""
        raise self._missing("enumerate_support")

    # --- common to all distributions --------------------------------------------------------

    def pdf(self, value: Any) -> Tensor:
        """The density, or the probability, at `value`."""
        return np.exp(self.log_prob(value))

    def sample_n(self, size: Any = None) -> Tensor:
        """Samples of shape `size` of each distribution: of shape size + batch (+ event)."""
        lead = () if size is None else (size,) if not hasattr(size, "__len__") else tuple(size)
        return self.sample(lead if self.event_dim else (*lead, *self.batch_shape))

    @property
    def stddev(self) -> Tensor:
        """The standard deviation of each distribution."""
        return np.sqrt(self.variance)

    def perplexity(self) -> Tensor:
        """e to the power of the entropy."""
        return np.exp(self.entropy())

    def __repr__(self) -> str:
        named = ", ".join(
            f"{n}: {np.shape(self._given(n))}"
            for n in self.parameters
            if self._given(n) is not None
        )
        return f"{type(self).__name__}({named})"


def _beside_parameters(sample: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Decorate `sample` to draw on the device of the parameters, instead of the current one."""

    @wraps(sample)
    def drawn(self: Distribution, size: Any = None) -> Tensor:
        with beside(None, (self._given(name) for name in self.parameters)):
            return sample(self, size)

    return drawn


class OfOdds(Distribution):
    """Given by probabilities or by their logits; the other of the two is computed when asked for.

    Raises `ArgumentError` unless exactly one of them is given.
    """

    arg_constraints = named(_prob="probability")
    parameters = named(_prob=0, _logit=0)

    def __init__(self, prob: Any, logit: Any, **given: Any) -> None:
        if (prob is None) == (logit is None):
            raise ArgumentError(f"{type(self).__name__}: give either prob or logit")
        super().__init__(**given, **({"_logit": logit} if prob is None else {"_prob": prob}))

    _prob: Any = None
    _logit: Any = None

    @property
    def prob(self) -> Tensor:
        """The probability of a success."""
        return npx.sigmoid(self._logit) if self._prob is None else self._prob

    @property
    def logit(self) -> Tensor:
        """The logarithm of its odds."""
        if self._logit is not None:
            return self._logit
        return np.log(self._prob) - np.log1p(-1.0 * self._prob)

    @property
    def _log_prob(self) -> Tensor:
        """The logarithm of the probability of success."""
        if self._prob is not None:
            return np.log(self._prob)
        return -softplus(-1.0 * self._logit)

    @property
    def _log_other(self) -> Tensor:
        """The logarithm of the probability of failure."""
        if self._prob is not None:
            return np.log1p(-1.0 * self._prob)
        return -softplus(self._logit)


def softplus(x: Any) -> Tensor:
    """log(1 + exp(x)), without overflow for large x."""
    return np.logaddexp(x, 0.0)


def times(count: Any, logarithm: Any) -> Tensor:
    """count * logarithm, but 0 if the count is 0, even for an infinite logarithm."""
    return np.where(count == 0, 0.0, count * np.where(count == 0, 0.0, logarithm))


def raised(exponent: Any, x: Any) -> Tensor:
    """The logarithm of x ** exponent: 0 for an exponent of 0, even if x is 0."""
    return exponent * np.log(np.where(exponent == 0, 1.0, x))


def safe(value: Any, beyond: Any, beside: Any, within: float = 1.0) -> Tensor:
    """The value, but one `within` the support where it is `beyond`, so that a formula and its
    gradients are finite there; in the precision of the parameter `beside` it."""
    return np.where(beyond, beside * 0 + within, value)


def supported(value: Any, beyond: Any, found: Any) -> Tensor:
    """The logarithm of a density: `found`, but -inf where the value is `beyond` the support, and
    NaN at NaN."""
    return np.where(np.isnan(value), np.nan, np.where(beyond, -np.inf, found))


def log_beta(a: Any, b: Any) -> Tensor:
    """The logarithm of the beta function."""
    return npx.gammaln(a) + npx.gammaln(b) - npx.gammaln(a + b)


def _broadcast(shapes: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    rank = max(map(len, shapes), default=0)
    rows = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    return tuple(next((n for n in column if n != 1), 1) for column in zip(*rows, strict=True))


__all__ = ["Distribution", "NoFormulaError", "OfOdds"]

"""Distributions of whole numbers: how often something happens."""

from __future__ import annotations

from typing import Any

from gemel import np, npx
from gemel.gluon.probability.base import Distribution, OfOdds, Tensor, named, safe, supported, times


class Bernoulli(OfOdds):
    """1 with the probability `prob`, else 0; or with the log odds `logit`."""

    has_enumerate_support = True

    def __init__(self, prob: Any = None, logit: Any = None, **options: Any) -> None:
        super().__init__(prob, logit, **options)

    def log_prob(self, value: Any) -> Tensor:
        """See `Distribution.log_prob`."""
        found = times(value, self._log_prob) + times(1 - value, self._log_other)
        return supported(value, np.logical_or(value < 0, value > 1), found)

    def sample(self, size: Any = None) -> Tensor:
        """See `Distribution.sample`. Zeros and ones."""
        return 1.0 * (np.random.uniform(0.0, 1.0, self._shape(size)) < self.prob)

    @property
    def mean(self) -> Tensor:
        """prob."""
        return self._spread(self.prob)

    @property
    def variance(self) -> Tensor:
        """prob * (1 - prob)."""
        return self._spread(self.prob * (1 - self.prob))

    def entropy(self) -> Tensor:
        """See `Distribution.entropy`."""
        one, other = times(self.prob, self._log_prob), times(1 - self.prob, self._log_other)
        return self._spread(-one - other)

    def enumerate_support(self) -> Tensor:
        """0 and 1, along a new first axis."""
        shape = self.batch_shape
        return np.stack([np.zeros(shape), np.ones(shape)])


class Geometric(OfOdds):
    """How many trials fail before one succeeds, each with the probability `prob`."""

    def __init__(self, prob: Any = None, logit: Any = None, **options: Any) -> None:
        super().__init__(prob, logit, **options)

    def log_prob(self, value: Any) -> Tensor:
        """See `Distribution.log_prob`."""
        found = times(value, self._log_other) + self._log_prob
        return supported(value, value < 0, found)

    def sample(self, size: Any = None) -> Tensor:
        """See `Distribution.sample`."""
        return np.random.geometric(self.prob, self._shape(size)).astype("float32") - 1

    @property
    def mean(self) -> Tensor:
        """1 / prob - 1."""
        return self._spread(1 / self.prob - 1)

    @property
    def variance(self) -> Tensor:
        """(1 / prob - 1) / prob."""
        return self._spread((1 / self.prob - 1) / self.prob)

    def entropy(self) -> Tensor:
        """See `Distribution.entropy`."""
        other = times(1 - self.prob, self._log_other)
        return self._spread(-(times(self.prob, self._log_prob) + other) / self.prob)


class NegativeBinomial(OfOdds):
    """How many trials fail before n have succeeded, each with the probability `prob`.

    As `np.random.negative_binomial` counts, so that `Geometric` is what it is for n = 1.
    """

    parameters = named(n=0, _prob=0, _logit=0)
    arg_constraints = named(n="positive", _prob="probability")
    n: Any

    def __init__(self, n: Any, prob: Any = None, logit: Any = None, **options: Any) -> None:
        super().__init__(prob, logit, n=n, **options)

    def log_prob(self, value: Any) -> Tensor:
        """See `Distribution.log_prob`."""
        beyond = value < 0
        held = safe(value, beyond, self.prob)
        ways = npx.gammaln(held + self.n) - npx.gammaln(held + 1.0) - npx.gammaln(self.n)
        found = ways + times(held, self._log_other) + self.n * self._log_prob
        return supported(value, beyond, found)

    def sample(self, size: Any = None) -> Tensor:
        """See `Distribution.sample`."""
        found = np.random.negative_binomial(self.n, self.prob, self._shape(size))
        return found.astype("float32")

    @property
    def mean(self) -> Tensor:
        """n * (1 - prob) / prob."""
        return self._spread(self.n * (1 - self.prob) / self.prob)

    @property
    def variance(self) -> Tensor:
        """n * (1 - prob) / prob ** 2."""
        return self._spread(self.n * (1 - self.prob) / self.prob**2)


class Binomial(OfOdds):
    """How many of n trials succeed, each with the probability `prob`."""

    parameters = named(n=0, _prob=0, _logit=0)
    arg_constraints = named(n="not negative", _prob="probability")
    n: Any

    def __init__(self, n: Any = 1, prob: Any = None, logit: Any = None, **options: Any) -> None:
        super().__init__(prob, logit, n=n, **options)

    def log_prob(self, value: Any) -> Tensor:
        """See `Distribution.log_prob`."""
        beyond = np.logical_or(value < 0, value > self.n)
        held = safe(value, beyond, self.prob, 0.0)
        left = self.n - held
        ways = npx.gammaln(self.n + 1.0) - npx.gammaln(held + 1.0) - npx.gammaln(left + 1.0)
        found = ways + times(held, self._log_prob) + times(left, self._log_other)
        return supported(value, beyond, found)

    def sample(self, size: Any = None) -> Tensor:
        """See `Distribution.sample`."""
        return np.random.binomial(self.n, self.prob, self._shape(size)).astype("float32")

    @property
    def mean(self) -> Tensor:
        """n * prob."""
        return self._spread(self.n * self.prob)

    @property
    def variance(self) -> Tensor:
        """n * prob * (1 - prob)."""
        return self._spread(self.n * self.prob * (1 - self.prob))


class Poisson(Distribution):
    """How many events there are where `rate` are expected."""

    parameters = named(rate=0)
    arg_constraints = named(rate="not negative")
    rate: Any

    def __init__(self, rate: Any = 1.0, **options: Any) -> None:
        super().__init__(rate=rate, **options)

    def log_prob(self, value: Any) -> Tensor:
        """See `Distribution.log_prob`."""
        beyond = value < 0
        held = safe(value, beyond, self.rate)
        found = times(held, np.log(self.rate)) - self.rate - npx.gammaln(held + 1.0)
        return supported(value, beyond, found)

    def sample(self, size: Any = None) -> Tensor:
        """See `Distribution.sample`."""
        return np.random.poisson(self.rate, self._shape(size)).astype("float32")

    @property
    def mean(self) -> Tensor:
        """rate."""
        return self._spread(self.rate)

    variance = mean


class OfEvents(Distribution):
    """One of `num_events` events, by their probabilities or logits along the last axis.

    Probabilities are divided by their sum. Raises `ArgumentError` unless exactly one is given.
    """

    parameters = named(_prob=1, _logit=1)
    _prob: Any = None
    _logit: Any = None
    num_events: int

    def __init__(
        self, num_events: int, prob: Any = None, logit: Any = None, **options: Any
    ) -> None:
        one = OfOdds(prob, logit, **options)
        super().__init__(_prob=one._prob, _logit=one._logit, num_events=num_events)

    @property
    def log_probs(self) -> Tensor:
        """The logarithms of the probabilities."""
        logit = np.log(self._prob) if self._logit is None else self._logit
        return npx.log_softmax(logit, axis=-1)

    @property
    def prob(self) -> Tensor:
        """The probabilities."""
        return np.exp(self.log_probs)

    @property
    def logit(self) -> Tensor:
        """The logarithms of the probabilities, or what was given."""
        return self.log_probs if self._logit is None else self._logit

    def _drawn(self, size: Any) -> Tensor:
        """The numbers of events: of shape size + batch."""
        lead = () if size is None else self._shape(size)
        shape = (*lead, *self.batch_shape, self.num_events)
        return np.argmax(self.log_probs + np.random.gumbel(0.0, 1.0, shape), axis=-1)

    def _of_counts(self, value: Any, total: int) -> tuple[Tensor, Tensor]:
        """How often each event occurs, without negative numbers, and the logarithm of the
        probability of one order in which they occur: -inf unless there are `total` events."""
        below = value < 0
        counts = safe(value, below, self.prob, 0.0)
        whole = counts.sum(axis=-1)
        # Shares of events, whose sum is rounded, are taken as they are for other distributions.
        beyond = np.logical_or(below.any(axis=-1), np.abs(whole - total) > 0.01)
        return counts, supported(whole, beyond, times(counts, self.log_probs).sum(axis=-1))

    def entropy(self) -> Tensor:
        """See `Distribution.entropy`."""
        return -times(self.prob, self.log_probs).sum(axis=-1)


class Categorical(OfEvents):
    """The numbers 0 to num_events - 1 with probabilities `prob`, or logits, along the last axis.

    A `size` of samples stands before the shape of the batch.
    """

    has_enumerate_support = True

    def log_prob(self, value: Any) -> Tensor:
        """See `Distribution.log_prob`."""
        value = np.asarray(value)
        chosen = np.expand_dims(value, -1) == np.arange(self.num_events)
        found = np.where(chosen, self.log_probs, 0.0).sum(axis=-1)
        return supported(value, np.logical_not(chosen.any(axis=-1)), found)

    def sample(self, size: Any = None) -> Tensor:
        """See `Distribution.sample`."""
        return self._drawn(size).astype("float32")

    def sample_n(self, size: Any = None) -> Tensor:
        """See `Distribution.sample_n`."""
        return self.sample(size)

    def enumerate_support(self) -> Tensor:
        """All events, along a new first axis."""
        shape = self.batch_shape
        column = np.arange(self.num_events).reshape(-1, *[1] * len(shape))
        return np.broadcast_to(column, (self.num_events, *shape))


class OneHotCategorical(OfEvents):
    """Vectors with a 1 where the event is and 0 elsewhere, or shares of events, of sum 1."""

    event_dim = 1

    def log_prob(self, value: Any) -> Tensor:
        """See `Distribution.log_prob`."""
        return self._of_counts(np.asarray(value), 1)[1]

    def sample(self, size: Any = None) -> Tensor:
        """See `Distribution.sample`."""
        return npx.one_hot(self._drawn(size), self.num_events)

    @property
    def mean(self) -> Tensor:
        """prob."""
        return self.prob

    @property
    def variance(self) -> Tensor:
        """prob * (1 - prob)."""
        return self.prob * (1 - self.prob)


class Multinomial(OfEvents):
    """How often each event occurs in `total_count` trials."""

    event_dim = 1

    def __init__(
        self,
        num_events: int,
        prob: Any = None,
        logit: Any = None,
        total_count: int = 1,
        **options: Any,
    ) -> None:
        super().__init__(num_events, prob, logit, **options)
        self.total_count = total_count

    def log_prob(self, value: Any) -> Tensor:
        """See `Distribution.log_prob`."""
        counts, found = self._of_counts(np.asarray(value), self.total_count)
        ways = npx.gammaln(self.total_count + 1.0) - npx.gammaln(counts + 1.0).sum(axis=-1)
        return ways + found

    def sample(self, size: Any = None) -> Tensor:
        """See `Distribution.sample`."""
        lead = () if size is None else self._shape(size)
        return npx.one_hot(self._drawn((self.total_count, *lead)), self.num_events).sum(axis=0)

    @property
    def mean(self) -> Tensor:
        """total_count * prob."""
        return self.total_count * self.prob

    @property
    def variance(self) -> Tensor:
        """total_count * prob * (1 - prob)."""
        return self.total_count * self.prob * (1 - self.prob)

    def entropy(self) -> Tensor:
        """There is no closed form of it: raises `NoFormulaError`."""
        raise self._missing("entropy")


__all__ = [
    "Bernoulli",
    "Binomial",
    "Categorical",
    "Geometric",
    "Multinomial",
    "NegativeBinomial",
    "OneHotCategorical",
    "Poisson",
]

"""Distributions of real numbers."""

from __future__ import annotations

from math import e, pi
from typing import Any

from gemel import np, npx
from gemel.gluon.probability.base import Distribution, Tensor, log_beta, named, supported

#: Euler's constant.
GAMMA = 0.5772156649015329
ROOT_2 = 2.0**0.5


class OfLocation(Distribution):
    """Shifted by `loc` and stretched by `scale`."""

    has_grad = True
    parameters = named(loc=0, scale=0)
    arg_constraints = named(scale="positive")

    def __init__(self, loc: Any = 0.0, scale: Any = 1.0, **options: Any) -> None:
        super().__init__(loc=loc, scale=scale, **options)

    loc: Any
    scale: Any

    def _unit(self, value: Any) -> Tensor:
        return (value - self.loc) / self.scale

    @property
    def mean(self) -> Tensor:
        """The mean: `loc`."""
        return self._spread(self.loc)


class Normal(OfLocation):
    """The normal distribution of mean `loc` and standard deviation `scale`.

    >>> gluon.probability.Normal(0.0, 2.0).log_prob(np.array([0.0, 1.0]))
    """

    def log_prob(self, value: Any) -> Tensor:
        """See `Distribution.log_prob`."""
        return -0.5 * self._unit(value) ** 2 - np.log(self.scale) - 0.5 * np.log(2 * pi)

    def cdf(self, value: Any) -> Tensor:
        """See `Distribution.cdf`."""
        return 0.5 * (1 + npx.erf(self._unit(value) / ROOT_2))

    def icdf(self, value: Any) -> Tensor:
        """See `Distribution.icdf`."""
        return self.loc + self.scale * ROOT_2 * npx.erfinv(2 * value - 1)

    def sample(self, size: Any = None) -> Tensor:
        """See `Distribution.sample`."""
        return self.loc + self.scale * np.random.normal(0.0, 1.0, self._shape(size))

    @property
    def variance(self) -> Tensor:
        """scale ** 2."""
        return self._spread(self.scale**2)

    def entropy(self) -> Tensor:
        """See `Distribution.entropy`."""
        return self._spread(0.5 * np.log(2 * pi * e) + np.log(self.scale))


class Laplace(OfLocation):
    """The density exp(-abs(x - loc) / scale) / (2 * scale)."""

    def log_prob(self, value: Any) -> Tensor:
        """See `Distribution.log_prob`."""
        return -np.abs(self._unit(value)) - np.log(2 * self.scale)

    def cdf(self, value: Any) -> Tensor:
        """See `Distribution.cdf`."""
        unit = self._unit(value)
        return 0.5 - 0.5 * np.sign(unit) * np.expm1(-np.abs(unit))

    def icdf(self, value: Any) -> Tensor:
        """See `Distribution.icdf`."""
        side = value - 0.5
        return self.loc - self.scale * np.sign(side) * np.log1p(-2 * np.abs(side))

    def sample(self, size: Any = None) -> Tensor:
        """See `Distribution.sample`."""
        return self.loc + self.scale * np.random.laplace(0.0, 1.0, self._shape(size))

    @property
    def variance(self) -> Tensor:
        """2 * scale ** 2."""
        return self._spread(2 * self.scale**2)

    def entropy(self) -> Tensor:
        """See `Distribution.entropy`."""
        return self._spread(1 + np.log(2 * self.scale))


class Cauchy(OfLocation):
    """The density 1 / (pi * scale * (1 + ((x - loc) / scale) ** 2)); it has no mean."""

    def log_prob(self, value: Any) -> Tensor:
        """See `Distribution.log_prob`."""
        return -np.log1p(self._unit(value) ** 2) - np.log(pi * self.scale)

    def cdf(self, value: Any) -> Tensor:
        """See `Distribution.cdf`."""
        return np.arctan(self._unit(value)) / pi + 0.5

    def icdf(self, value: Any) -> Tensor:
        """See `Distribution.icdf`."""
        return self.loc + self.scale * np.tan(pi * (value - 0.5))

    def sample(self, size: Any = None) -> Tensor:
        """See `Distribution.sample`."""
        return self.icdf(np.random.uniform(0.0, 1.0, self._shape(size)))

    @property
    def mean(self) -> Tensor:
        """NaN."""
        return self._spread(np.nan)

    variance = mean

    def entropy(self) -> Tensor:
        """See `Distribution.entropy`."""
        return self._spread(np.log(4 * pi * self.scale))


class Gumbel(OfLocation):
    """The distribution function exp(-exp(-(x - loc) / scale))."""

    def log_prob(self, value: Any) -> Tensor:
        """See `Distribution.log_prob`."""
        unit = self._unit(value)
        return -unit - np.exp(-unit) - np.log(self.scale)

    def cdf(self, value: Any) -> Tensor:
        """See `Distribution.cdf`."""
        return np.exp(-np.exp(-self._unit(value)))

    def icdf(self, value: Any) -> Tensor:
        """See `Distribution.icdf`."""
        return self.loc - self.scale * np.log(-np.log(value))

    def sample(self, size: Any = None) -> Tensor:
        """See `Distribution.sample`."""
        return self.loc + self.scale * np.random.gumbel(0.0, 1.0, self._shape(size))

    @property
    def mean(self) -> Tensor:
        """loc + scale * Euler's constant."""
        return self._spread(self.loc + GAMMA * self.scale)

    @property
    def variance(self) -> Tensor:
        """pi ** 2 / 6 * scale ** 2."""
        return self._spread(pi**2 / 6 * self.scale**2)

    def entropy(self) -> Tensor:
        """See `Distribution.entropy`."""
        return self._spread(np.log(self.scale) + (1 + GAMMA))


class StudentT(OfLocation):
    """Student's distribution of `df` degrees of freedom, shifted and stretched."""

    parameters = named(df=0, loc=0, scale=0)
    arg_constraints = named(df="positive", scale="positive")
    df: Any

    def __init__(self, df: Any, loc: Any = 0.0, scale: Any = 1.0, **options: Any) -> None:
        super().__init__(loc, scale, df=df, **options)

    def log_prob(self, value: Any) -> Tensor:
        """See `Distribution.log_prob`."""
        half, more = self.df / 2, (self.df + 1) / 2
        norm = npx.gammaln(more) - npx.gammaln(half) - 0.5 * np.log(pi * self.df)
        return norm - np.log(self.scale) - more * np.log1p(self._unit(value) ** 2 / self.df)

    def sample(self, size: Any = None) -> Tensor:
        """See `Distribution.sample`."""
        shape = self._shape(size)
        squares = 2 * np.random.gamma(np.broadcast_to(self.df / 2, shape), 1.0)
        normal = np.random.normal(0.0, 1.0, shape)
        return self.loc + self.scale * normal * np.sqrt(self.df / squares)

    @property
    def mean(self) -> Tensor:
        """loc; NaN for a df of 1 or less."""
        return np.where(self._spread(self.df) > 1, self._spread(self.loc), np.nan)

    @property
    def variance(self) -> Tensor:
        """scale ** 2 * df / (df - 2); infinite for a df of 2 or less, NaN for one of 1 or less."""
        df = self._spread(self.df)
        found = self.scale**2 * df / np.where(df > 2, df - 2, 1.0)
        return np.where(df > 2, found, np.where(df > 1, np.inf, np.nan))

    def entropy(self) -> Tensor:
        """See `Distribution.entropy`."""
        half, more = self.df / 2, (self.df + 1) / 2
        inner = more * (npx.digamma(more) - npx.digamma(half)) + 0.5 * np.log(self.df)
        return self._spread(inner + log_beta(half, 0.5) + np.log(self.scale))


class Uniform(Distribution):
    """Spread evenly over [low, high)."""

    has_grad = True
    parameters = named(low=0, high=0)
    low: Any
    high: Any

    def __init__(self, low: Any = 0.0, high: Any = 1.0, **options: Any) -> None:
        super().__init__(low=low, high=high, **options)

    def log_prob(self, value: Any) -> Tensor:
        """See `Distribution.log_prob`."""
        beyond = np.logical_or(value < self.low, value >= self.high)
        return supported(value, beyond, -np.log(self.high - self.low))

    def cdf(self, value: Any) -> Tensor:
        """See `Distribution.cdf`."""
        return np.clip((value - self.low) / (self.high - self.low), 0.0, 1.0)

    def icdf(self, value: Any) -> Tensor:
        """See `Distribution.icdf`."""
        return self.low + (self.high - self.low) * value

    def sample(self, size: Any = None) -> Tensor:
        """See `Distribution.sample`."""
        return self.icdf(np.random.uniform(0.0, 1.0, self._shape(size)))

    @property
    def mean(self) -> Tensor:
        """The middle."""
        return self._spread((self.low + self.high) / 2)

    @property
    def variance(self) -> Tensor:
        """(high - low) ** 2 / 12."""
        return self._spread((self.high - self.low) ** 2 / 12)

    def entropy(self) -> Tensor:
        """See `Distribution.entropy`."""
        return self._spread(np.log(self.high - self.low))


class OfScale(Distribution):
    """Numbers from 0 on, stretched by `scale`."""

    has_grad = True
    parameters = named(scale=0)
    arg_constraints = named(scale="positive")
    scale: Any

    def __init__(self, scale: Any = 1.0, **options: Any) -> None:
        super().__init__(scale=scale, **options)


class HalfNormal(OfScale):
    """Absolute values of normally distributed numbers of mean 0 and deviation `scale`."""

    def log_prob(self, value: Any) -> Tensor:
        """See `Distribution.log_prob`."""
        found = -0.5 * (value / self.scale) ** 2 + 0.5 * np.log(2 / pi) - np.log(self.scale)
        return supported(value, value < 0, found)

    def cdf(self, value: Any) -> Tensor:
        """See `Distribution.cdf`."""
        return npx.erf(np.maximum(value, 0.0) / self.scale / ROOT_2)

    def icdf(self, value: Any) -> Tensor:
        """See `Distribution.icdf`."""
        return self.scale * ROOT_2 * npx.erfinv(value)

    def sample(self, size: Any = None) -> Tensor:
        """See `Distribution.sample`."""
        return self.scale * np.abs(np.random.normal(0.0, 1.0, self._shape(size)))

    @property
    def mean(self) -> Tensor:
        """scale * sqrt(2 / pi)."""
        return self._spread(self.scale * (2 / pi) ** 0.5)

    @property
    def variance(self) -> Tensor:
        """scale ** 2 * (1 - 2 / pi)."""
        return self._spread(self.scale**2 * (1 - 2 / pi))

    def entropy(self) -> Tensor:
        """See `Distribution.entropy`."""
        return self._spread(0.5 * np.log(pi / 2) + 0.5 + np.log(self.scale))


class HalfCauchy(OfScale):
    """Absolute values of numbers of a Cauchy distribution about 0; it has no mean."""

    def log_prob(self, value: Any) -> Tensor:
        """See `Distribution.log_prob`."""
        found = np.log(2 / pi) - np.log(self.scale) - np.log1p((value / self.scale) ** 2)
        return supported(value, value < 0, found)

    def cdf(self, value: Any) -> Tensor:
        """See `Distribution.cdf`."""
        return 2 / pi * np.arctan(np.maximum(value, 0.0) / self.scale)

    def icdf(self, value: Any) -> Tensor:
        """See `Distribution.icdf`."""
        return self.scale * np.tan(pi / 2 * value)

    def sample(self, size: Any = None) -> Tensor:
        """See `Distribution.sample`."""
        return self.icdf(np.random.uniform(0.0, 1.0, self._shape(size)))

    @property
    def mean(self) -> Tensor:
        """NaN."""
        return self._spread(np.nan)

    variance = mean

    def entropy(self) -> Tensor:
        """See `Distribution.entropy`."""
        return self._spread(np.log(2 * pi * self.scale))


class Exponential(OfScale):
    """The density exp(-x / scale) / scale: waiting times of mean `scale`."""

    def log_prob(self, value: Any) -> Tensor:
        """See `Distribution.log_prob`."""
        return supported(value, value < 0, -1 * value / self.scale - np.log(self.scale))

    def cdf(self, value: Any) -> Tensor:
        """See `Distribution.cdf`."""
        return -np.expm1(-np.maximum(value, 0.0) / self.scale)

    def icdf(self, value: Any) -> Tensor:
        """See `Distribution.icdf`."""
        return -1 * self.scale * np.log1p(-1 * value)

    def sample(self, size: Any = None) -> Tensor:
        """See `Distribution.sample`."""
        return self.scale * np.random.exponential(1.0, self._shape(size))

    @property
    def mean(self) -> Tensor:
        """scale."""
        return self._spread(self.scale)

    @property
    def variance(self) -> Tensor:
        """scale ** 2."""
        return self._spread(self.scale**2)

    def entropy(self) -> Tensor:
        """See `Distribution.entropy`."""
        return self._spread(1 + np.log(self.scale))


__all__ = [
    "Cauchy",
    "Exponential",
    "Gumbel",
    "HalfCauchy",
    "HalfNormal",
    "Laplace",
    "Normal",
    "StudentT",
    "Uniform",
]

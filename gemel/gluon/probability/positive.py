"""Distributions of numbers above 0 that have a shape: gamma, beta, Weibull, Pareto and F."""

from __future__ import annotations

from typing import Any

from gemel import np, npx
from gemel.gluon.probability.base import (
    Distribution,
    Tensor,
    log_beta,
    named,
    raised,
    safe,
    supported,
)


class Gamma(Distribution):
    """A density like x ** (shape - 1) * exp(-x / scale)."""

    has_grad = True
    parameters = named(shape=0, scale=0)
    arg_constraints = named(shape="positive", scale="positive")
    shape: Any
    scale: Any

    def __init__(self, shape: Any, scale: Any = 1.0, **options: Any) -> None:
        super().__init__(shape=shape, scale=scale, **options)

    def log_prob(self, value: Any) -> Tensor:
        """See `Distribution.log_prob`."""
        beyond = value < 0
        held = safe(value, beyond, self.shape)
        norm = npx.gammaln(self.shape) + self.shape * np.log(self.scale)
        found = raised(self.shape - 1, held) - held / self.scale - norm
        return supported(value, beyond, found)

    def sample(self, size: Any = None) -> Tensor:
        """See `Distribution.sample`."""
        return self.scale * np.random.gamma(self.shape, 1.0, self._shape(size))

    @property
    def mean(self) -> Tensor:
        """shape * scale."""
        return self._spread(self.shape * self.scale)

    @property
    def variance(self) -> Tensor:
        """shape * scale ** 2."""
        return self._spread(self.shape * self.scale**2)

    def entropy(self) -> Tensor:
        """See `Distribution.entropy`."""
        a = self.shape
        inner = a + npx.gammaln(a) + (1 - a) * npx.digamma(a)
        return self._spread(inner + np.log(self.scale))


class Chi2(Gamma):
    """Sums of the squares of `df` standard normal numbers."""

    parameters = named(shape=0)
    arg_constraints = named(shape="positive")

    def __init__(self, df: Any, **options: Any) -> None:
        df = np.array(df) if isinstance(df, (list, tuple)) else df
        super().__init__(df / 2, 2.0, **options)

    @property
    def df(self) -> Tensor:
        """The degrees of freedom."""
        return self.shape * 2


class Beta(Distribution):
    """Numbers in (0, 1) with a density like x ** (alpha - 1) * (1 - x) ** (beta - 1)."""

    has_grad = True
    parameters = named(alpha=0, beta=0)
    arg_constraints = named(alpha="positive", beta="positive")
    alpha: Any
    beta: Any

    def __init__(self, alpha: Any, beta: Any, **options: Any) -> None:
        super().__init__(alpha=alpha, beta=beta, **options)

    def log_prob(self, value: Any) -> Tensor:
        """See `Distribution.log_prob`."""
        beyond = np.logical_or(value < 0, value > 1)
        held = safe(value, beyond, self.alpha, 0.5)
        low, high = raised(self.alpha - 1, held), raised(self.beta - 1, 1 - held)
        return supported(value, beyond, low + high - log_beta(self.alpha, self.beta))

    def sample(self, size: Any = None) -> Tensor:
        """See `Distribution.sample`."""
        shape = self._shape(size)
        one = np.random.gamma(self.alpha, 1.0, shape)
        return one / (one + np.random.gamma(self.beta, 1.0, shape))

    @property
    def mean(self) -> Tensor:
        """alpha / (alpha + beta)."""
        return self._spread(self.alpha / (self.alpha + self.beta))

    @property
    def variance(self) -> Tensor:
        """alpha * beta / ((alpha + beta) ** 2 * (alpha + beta + 1))."""
        total = self.alpha + self.beta
        return self._spread(self.alpha * self.beta / (total**2 * (total + 1)))

    def entropy(self) -> Tensor:
        """See `Distribution.entropy`."""
        a, b = self.alpha, self.beta
        inner = (a - 1) * npx.digamma(a) + (b - 1) * npx.digamma(b)
        return self._spread(log_beta(a, b) - inner + (a + b - 2) * npx.digamma(a + b))


class Weibull(Distribution):
    """The distribution function 1 - exp(-(x / scale) ** concentration)."""

    has_grad = True
    parameters = named(concentration=0, scale=0)
    arg_constraints = named(concentration="positive", scale="positive")
    concentration: Any
    scale: Any

    def __init__(self, concentration: Any, scale: Any = 1.0, **options: Any) -> None:
        super().__init__(concentration=concentration, scale=scale, **options)

    def log_prob(self, value: Any) -> Tensor:
        """See `Distribution.log_prob`."""
        k, beyond = self.concentration, value < 0
        unit = safe(value, beyond, k) / self.scale
        return supported(value, beyond, np.log(k / self.scale) + raised(k - 1, unit) - unit**k)

    def cdf(self, value: Any) -> Tensor:
        """See `Distribution.cdf`."""
        return -np.expm1(-((np.maximum(value, 0.0) / self.scale) ** self.concentration))

    def icdf(self, value: Any) -> Tensor:
        """See `Distribution.icdf`."""
        return self.scale * (-np.log1p(-1 * value)) ** (1 / self.concentration)

    def sample(self, size: Any = None) -> Tensor:
        """See `Distribution.sample`."""
        return self.scale * np.random.weibull(self.concentration, self._shape(size))

    def _moment(self, order: int) -> Tensor:
        return np.exp(npx.gammaln(1 + order / self.concentration))

    @property
    def mean(self) -> Tensor:
        """scale * gamma(1 + 1 / concentration)."""
        return self._spread(self.scale * self._moment(1))

    @property
    def variance(self) -> Tensor:
        """scale ** 2 * (gamma(1 + 2 / concentration) - gamma(1 + 1 / concentration) ** 2)."""
        return self._spread(self.scale**2 * (self._moment(2) - self._moment(1) ** 2))

    def entropy(self) -> Tensor:
        """See `Distribution.entropy`."""
        k = self.concentration
        return self._spread(np.euler_gamma * (1 - 1 / k) + np.log(self.scale / k) + 1)


class Pareto(Distribution):
    """Numbers from `scale` on, with a density like x ** -(alpha + 1)."""

    has_grad = True
    parameters = named(alpha=0, scale=0)
    arg_constraints = named(alpha="positive", scale="positive")
    alpha: Any
    scale: Any

    def __init__(self, alpha: Any, scale: Any = 1.0, **options: Any) -> None:
        super().__init__(alpha=alpha, scale=scale, **options)

    def log_prob(self, value: Any) -> Tensor:
        """See `Distribution.log_prob`."""
        beyond = value < self.scale
        found = np.log(self.alpha) + self.alpha * np.log(self.scale)
        found = found - (self.alpha + 1) * np.log(safe(value, beyond, self.alpha))
        return supported(value, beyond, found)

    def cdf(self, value: Any) -> Tensor:
        """See `Distribution.cdf`."""
        return 1 - (self.scale / np.maximum(value, self.scale)) ** self.alpha

    def icdf(self, value: Any) -> Tensor:
        """See `Distribution.icdf`."""
        return self.scale * np.exp(-np.log1p(-1 * value) / self.alpha)

    def sample(self, size: Any = None) -> Tensor:
        """See `Distribution.sample`."""
        return self.scale * (1 + np.random.pareto(self.alpha, self._shape(size)))

    @property
    def mean(self) -> Tensor:
        """alpha * scale / (alpha - 1), or infinite."""
        a = self._spread(self.alpha)
        return np.where(a > 1, a * self.scale / np.where(a > 1, a - 1, 1.0), np.inf)

    @property
    def variance(self) -> Tensor:
        """scale ** 2 * alpha / ((alpha - 1) ** 2 * (alpha - 2)), or infinite."""
        a = self._spread(self.alpha)
        below = (a - 1) ** 2 * np.where(a > 2, a - 2, 1.0)
        return np.where(a > 2, self.scale**2 * a / np.where(a > 2, below, 1.0), np.inf)

    def entropy(self) -> Tensor:
        """See `Distribution.entropy`."""
        return self._spread(np.log(self.scale / self.alpha) + 1 + 1 / self.alpha)


class FisherSnedecor(Distribution):
    """Quotients of two mean squares, of df1 and df2 standard normal numbers."""

    has_grad = True
    parameters = named(df1=0, df2=0)
    arg_constraints = named(df1="positive", df2="positive")
    df1: Any
    df2: Any

    def __init__(self, df1: Any, df2: Any, **options: Any) -> None:
        super().__init__(df1=df1, df2=df2, **options)

    def log_prob(self, value: Any) -> Tensor:
        """See `Distribution.log_prob`."""
        half, other, ratio = self.df1 / 2, self.df2 / 2, self.df1 / self.df2
        beyond = value < 0
        held = safe(value, beyond, half)
        found = half * np.log(ratio) + raised(half - 1, held)
        found = found - (half + other) * np.log1p(ratio * held) - log_beta(half, other)
        return supported(value, beyond, found)

    def sample(self, size: Any = None) -> Tensor:
        """See `Distribution.sample`."""
        shape = self._shape(size)
        above = np.random.gamma(self.df1 / 2, 1.0, shape) / self.df1
        return above / (np.random.gamma(self.df2 / 2, 1.0, shape) / self.df2)

    @property
    def mean(self) -> Tensor:
        """df2 / (df2 - 2); NaN for a df2 of 2 or less."""
        df = self._spread(self.df2)
        return np.where(df > 2, df / np.where(df > 2, df - 2, 1.0), np.nan)

    @property
    def variance(self) -> Tensor:
        """The variance; NaN for a df2 of 4 or less."""
        df = self._spread(self.df2)
        safe = np.where(df > 4, df, 5.0)
        below = self.df1 * (safe - 2) ** 2 * (safe - 4)
        return np.where(df > 4, 2 * safe**2 * (self.df1 + safe - 2) / below, np.nan)


__all__ = ["Beta", "Chi2", "FisherSnedecor", "Gamma", "Pareto", "Weibull"]

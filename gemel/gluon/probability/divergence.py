"""The difference between two distributions: the Kullback-Leibler divergence."""

from __future__ import annotations

from collections.abc import Callable
from math import pi
from typing import Any

from gemel import np, npx
from gemel.gluon.probability.base import Distribution, NoFormulaError, Tensor, log_beta, times
from gemel.gluon.probability.continuous import (
    Cauchy,
    Exponential,
    Gumbel,
    HalfNormal,
    Laplace,
    Normal,
    Uniform,
)
from gemel.gluon.probability.discrete import (
    Bernoulli,
    Binomial,
    Categorical,
    Geometric,
    OneHotCategorical,
    Poisson,
)
from gemel.gluon.probability.positive import Beta, Gamma, Pareto
from gemel.gluon.probability.vectors import Dirichlet, Independent, MultivariateNormal

Formula = Callable[[Any, Any], Any]
#: The closed forms, by the two classes of distributions.
FORMULAS: dict[tuple[type, type], Formula] = {}


def register_kl(p: type[Distribution], q: type[Distribution]) -> Callable[[Formula], Formula]:
    """Declare the divergence of distributions of two kinds: a function of one of each."""

    def declare(formula: Formula) -> Formula:
        FORMULAS[p, q] = formula
        return formula

    return declare


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """The Kullback-Leibler divergence of q from p: the mean of log(p(x) / q(x)) under p, in nats.

    Raises `NoFormulaError` where no closed form is known; `empirical_kl` estimates it then.

    >>> Normal = gluon.probability.Normal
    >>> gluon.probability.kl_divergence(Normal(0.0, 1.0), Normal(1.0, 2.0))
    """
    for one in type(p).__mro__:
        for other in type(q).__mro__:
            if (one, other) in FORMULAS:
                return FORMULAS[one, other](p, q)
    raise NoFormulaError(
        f"kl_divergence: no closed form is implemented from {type(p).__name__} to "
        f"{type(q).__name__}; use empirical_kl, or register one with register_kl"
    )


def empirical_kl(p: Distribution, q: Distribution, n_samples: int = 1) -> Tensor:
    """The divergence estimated from samples of p."""
    samples = p.sample_n(n_samples)
    return (p.log_prob(samples) - q.log_prob(samples)).mean(axis=0)


@register_kl(Normal, Normal)
def _(p: Normal, q: Normal) -> Tensor:
    ratio = (p.scale / q.scale) ** 2
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale) ** 2 - 1 - np.log(ratio))


@register_kl(HalfNormal, HalfNormal)
def _(p: HalfNormal, q: HalfNormal) -> Tensor:
    ratio = (p.scale / q.scale) ** 2
    return 0.5 * (ratio - 1 - np.log(ratio))


@register_kl(Laplace, Laplace)
def _(p: Laplace, q: Laplace) -> Tensor:
    apart, ratio = np.abs(p.loc - q.loc), p.scale / q.scale
    return apart / q.scale + ratio * np.exp(-apart / p.scale) - np.log(ratio) - 1


@register_kl(Cauchy, Cauchy)
def _(p: Cauchy, q: Cauchy) -> Tensor:
    above = (p.scale + q.scale) ** 2 + (p.loc - q.loc) ** 2
    return np.log(above / (4 * p.scale * q.scale))


@register_kl(Gumbel, Gumbel)
def _(p: Gumbel, q: Gumbel) -> Tensor:
    ratio, apart = p.scale / q.scale, (p.loc - q.loc) / q.scale
    moved = np.exp(npx.gammaln(1 + ratio) - apart)
    return moved + apart - np.log(ratio) - (1 + np.euler_gamma) + ratio * np.euler_gamma


@register_kl(Uniform, Uniform)
def _(p: Uniform, q: Uniform) -> Tensor:
    within = np.logical_and(q.low <= p.low, p.high <= q.high)
    return np.where(within, np.log((q.high - q.low) / (p.high - p.low)), np.inf)


@register_kl(Uniform, Normal)
def _(p: Uniform, q: Normal) -> Tensor:
    squares = p.variance + (p.mean - q.loc) ** 2
    return 0.5 * squares / q.scale**2 + np.log(q.scale) + 0.5 * np.log(2 * pi) - p.entropy()


@register_kl(Exponential, Exponential)
def _(p: Exponential, q: Exponential) -> Tensor:
    ratio = p.scale / q.scale
    return ratio - 1 - np.log(ratio)


@register_kl(Gamma, Gamma)
def _(p: Gamma, q: Gamma) -> Tensor:
    ratio = p.scale / q.scale
    norms = npx.gammaln(q.shape) - npx.gammaln(p.shape) - q.shape * np.log(ratio)
    return norms + (p.shape - q.shape) * npx.digamma(p.shape) + p.shape * (ratio - 1)


@register_kl(Beta, Beta)
def _(p: Beta, q: Beta) -> Tensor:
    total = npx.digamma(p.alpha + p.beta)
    low = (p.alpha - q.alpha) * (npx.digamma(p.alpha) - total)
    high = (p.beta - q.beta) * (npx.digamma(p.beta) - total)
    return log_beta(q.alpha, q.beta) - log_beta(p.alpha, p.beta) + low + high


@register_kl(Pareto, Pareto)
def _(p: Pareto, q: Pareto) -> Tensor:
    ratio = q.alpha / p.alpha
    found = q.alpha * np.log(p.scale / q.scale) - np.log(ratio) + ratio - 1
    return np.where(p.scale >= q.scale, found, np.inf)


@register_kl(Bernoulli, Bernoulli)
def _(p: Bernoulli, q: Bernoulli) -> Tensor:
    one = times(p.prob, p._log_prob - q._log_prob)
    return one + times(1 - p.prob, p._log_other - q._log_other)


@register_kl(Binomial, Binomial)
def _(p: Binomial, q: Binomial) -> Tensor:
    one = times(p.prob, p._log_prob - q._log_prob)
    found = p.n * (one + times(1 - p.prob, p._log_other - q._log_other))
    return np.where(p._spread(p.n) == q.n, found, np.where(p._spread(p.n) > q.n, np.inf, np.nan))


@register_kl(Geometric, Geometric)
def _(p: Geometric, q: Geometric) -> Tensor:
    return -p.entropy() - p.mean * q._log_other - q._log_prob


@register_kl(Poisson, Poisson)
def _(p: Poisson, q: Poisson) -> Tensor:
    return times(p.rate, np.log(p.rate) - np.log(q.rate)) - p.rate + q.rate


@register_kl(Categorical, Categorical)
@register_kl(OneHotCategorical, OneHotCategorical)
def _(p: Any, q: Any) -> Tensor:
    return times(p.prob, p.log_probs - q.log_probs).sum(axis=-1)


@register_kl(Dirichlet, Dirichlet)
def _(p: Dirichlet, q: Dirichlet) -> Tensor:
    total = p.alpha.sum(axis=-1, keepdims=True)
    inner = (p.alpha - q.alpha) * (npx.digamma(p.alpha) - npx.digamma(total))
    norms = npx.gammaln(q.alpha) - npx.gammaln(p.alpha)
    sums = npx.gammaln(total[..., 0]) - npx.gammaln(q.alpha.sum(axis=-1))
    return sums + (norms + inner).sum(axis=-1)


@register_kl(MultivariateNormal, MultivariateNormal)
def _(p: MultivariateNormal, q: MultivariateNormal) -> Tensor:
    factor = np.linalg.solve(q.scale_tril, p.scale_tril)
    squares = (factor**2).sum(axis=(-2, -1)) + (q.standard(p.loc - q.loc) ** 2).sum(axis=-1)
    return 0.5 * (squares - p.loc.shape[-1]) + q.half_log_det - p.half_log_det


@register_kl(Independent, Independent)
def _(p: Independent, q: Independent) -> Tensor:
    return p.summed(kl_divergence(p.base_dist, q.base_dist))


__all__ = ["empirical_kl", "kl_divergence", "register_kl"]

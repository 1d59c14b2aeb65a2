"""Distributions: samples, densities, moments, entropies and divergences.

They are written in terms of `np` and `npx`, so computations with them are recorded, differentiated
and hybridized like all others. The names and parameters are those of MXNet 2.

>>> normal = gluon.probability.Normal(loc=np.array([0.0, 1.0]), scale=2.0)
>>> normal.log_prob(np.array([0.0, 0.0]))
>>> normal.sample((3, 2)).shape
"""

from __future__ import annotations

from gemel.gluon.probability.base import Distribution, NoFormulaError
from gemel.gluon.probability.block import StochasticBlock, StochasticSequential
from gemel.gluon.probability.continuous import (
    Cauchy,
    Exponential,
    Gumbel,
    HalfCauchy,
    HalfNormal,
    Laplace,
    Normal,
    StudentT,
    Uniform,
)
from gemel.gluon.probability.discrete import (
    Bernoulli,
    Binomial,
    Categorical,
    Geometric,
    Multinomial,
    NegativeBinomial,
    OneHotCategorical,
    Poisson,
)
from gemel.gluon.probability.divergence import empirical_kl, kl_divergence, register_kl
from gemel.gluon.probability.positive import Beta, Chi2, FisherSnedecor, Gamma, Pareto, Weibull
from gemel.gluon.probability.transforms import (
    AbsTransform,
    AffineTransform,
    ComposeTransform,
    ExpTransform,
    PowerTransform,
    RelaxedBernoulli,
    RelaxedOneHotCategorical,
    SigmoidTransform,
    SoftmaxTransform,
    Transformation,
    TransformedDistribution,
)
from gemel.gluon.probability.vectors import Dirichlet, Independent, MultivariateNormal

__all__ = [
    "AbsTransform",
    "AffineTransform",
    "Bernoulli",
    "Beta",
    "Binomial",
    "Categorical",
    "Cauchy",
    "Chi2",
    "ComposeTransform",
    "Dirichlet",
    "Distribution",
    "ExpTransform",
    "Exponential",
    "FisherSnedecor",
    "Gamma",
    "Geometric",
    "Gumbel",
    "HalfCauchy",
    "HalfNormal",
    "Independent",
    "Laplace",
    "Multinomial",
    "MultivariateNormal",
    "NegativeBinomial",
    "NoFormulaError",
    "Normal",
    "OneHotCategorical",
    "Pareto",
    "Poisson",
    "PowerTransform",
    "RelaxedBernoulli",
    "RelaxedOneHotCategorical",
    "SigmoidTransform",
    "SoftmaxTransform",
    "StochasticBlock",
    "StochasticSequential",
    "StudentT",
    "Transformation",
    "TransformedDistribution",
    "Uniform",
    "Weibull",
    "empirical_kl",
    "kl_divergence",
    "register_kl",
]

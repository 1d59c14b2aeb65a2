"""The densities of distributions beyond their support, at its ends, and at NaN."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

from gemel import autograd, np
from gemel.gluon import probability as P  # noqa: N812

INF, NAN = numpy.inf, numpy.nan
HALVES = np.array([0.5, 0.5])
#: A distribution, values, and the logarithms of its density there.
BEYOND: list[tuple[Any, list[float], list[float]]] = [
    (P.Gamma(1.0, 2.0), [-1, 0, NAN], [-INF, -numpy.log(2), NAN]),
    (P.Gamma(2.0), [-1, 0, NAN], [-INF, -INF, NAN]),
    (P.Chi2(2.0), [-1, 0, NAN], [-INF, -numpy.log(2), NAN]),
    (P.Beta(1.0, 1.0), [-1, 0, 1, 2, NAN], [-INF, 0, 0, -INF, NAN]),
    (P.Weibull(1.0), [-1, 0, NAN], [-INF, 0, NAN]),
    (P.FisherSnedecor(2.0, 4.0), [-1, 0, NAN], [-INF, 0, NAN]),
    (P.Pareto(1.0), [-1, 1, NAN], [-INF, 0, NAN]),
    (P.Uniform(), [-1, 0, 1, NAN], [-INF, 0, -INF, NAN]),
    (P.Exponential(), [-1, 0, NAN], [-INF, 0, NAN]),
    (P.HalfNormal(1.0), [-1, NAN], [-INF, NAN]),
    (P.HalfCauchy(1.0), [-1, NAN], [-INF, NAN]),
    (P.Bernoulli(prob=0.5), [-1, 0, 1, 2, NAN], [-INF, *[-numpy.log(2)] * 2, -INF, NAN]),
    (P.Binomial(1, prob=0.5), [-1, 0, 1, 2, NAN], [-INF, *[-numpy.log(2)] * 2, -INF, NAN]),
    (P.Geometric(prob=0.5), [-1, 0, NAN], [-INF, -numpy.log(2), NAN]),
    (P.NegativeBinomial(1, prob=0.5), [-1, -0.5, 0, NAN], [-INF, -INF, -numpy.log(2), NAN]),
    (P.Poisson(1.0), [-1, 0, NAN], [-INF, -1, NAN]),
    (
        P.Categorical(2, prob=np.array([0.5, 0.5])),
        [-1, 0, 0.5, 2, NAN],
        [-INF, -numpy.log(2), -INF, -INF, NAN],
    ),
]


@pytest.mark.parametrize(("of", "values", "wanted"), BEYOND, ids=lambda x: type(x).__name__)
def test_densities_beyond_the_support(of: Any, values: list[float], wanted: list[float]) -> None:
    found = of.log_prob(np.array(values)).tolist()
    numpy.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_gradients_beyond_the_support_are_zero() -> None:
    for kind in (P.Gamma, P.Beta, P.Weibull, P.Pareto, P.FisherSnedecor):
        one, other, value = np.array([2.0]), np.array([3.0]), np.array([-1.0])
        for each in (one, other, value):
            each.attach_grad()
        with autograd.record():
            found = kind(one, other).log_prob(value)
        found.backward()
        assert [each.grad.item() for each in (one, other, value)] == [0, 0, 0]


def test_shares_beyond_the_support() -> None:
    rows = np.array([[0, 0.5, 0.5], [-1, 1, 1], [NAN, 0.5, 0.5]])
    found = P.Dirichlet(np.array([1.0, 1, 2])).log_prob(rows).tolist()
    numpy.testing.assert_allclose(found, [numpy.log(3), -INF, NAN], rtol=1e-5)

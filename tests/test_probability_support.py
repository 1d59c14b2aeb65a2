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


NORMAL, TO = P.Normal(0.0, 1.0), P.TransformedDistribution
HEIGHT = -0.5 * numpy.log(2 * numpy.pi)
BEYOND += [
    (TO(NORMAL, P.ExpTransform()), [-1, 0, 1, NAN], [-INF, -INF, HEIGHT, NAN]),
    (
        TO(NORMAL, [P.ExpTransform(), P.AffineTransform(2.0, 1.0)]),
        [1, 2, 3, NAN],
        [-INF, -INF, HEIGHT, NAN],
    ),
    (TO(NORMAL, P.AffineTransform(1.0, 1.0)), [1, NAN], [HEIGHT, NAN]),
    (
        TO(NORMAL, P.SigmoidTransform()),
        [-1, 0, 0.5, 1, 2, NAN],
        [-INF, -INF, HEIGHT + numpy.log(4), -INF, -INF, NAN],
    ),
    (TO(P.Exponential(), P.PowerTransform(2.0)), [-1, 1, NAN], [-INF, -1 - numpy.log(2), NAN]),
    (P.RelaxedBernoulli(1.0, prob=0.5), [-1, 0, 0.5, 1, NAN], [-INF, -INF, 0, -INF, NAN]),
]


@pytest.mark.parametrize(("of", "values", "wanted"), BEYOND, ids=lambda x: type(x).__name__)
def test_densities_beyond_the_support(of: Any, values: list[float], wanted: list[float]) -> None:
    found = of.log_prob(np.array(values)).tolist()
    numpy.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def log_normal(loc: Any, scale: Any) -> Any:
    return P.TransformedDistribution(P.Normal(loc, scale), P.ExpTransform())


def test_gradients_beyond_the_support_are_zero() -> None:
    for kind in (P.Gamma, P.Beta, P.Weibull, P.Pareto, P.FisherSnedecor, log_normal):
        one, other, value = np.array([2.0]), np.array([3.0]), np.array([-1.0])
        for each in (one, other, value):
            each.attach_grad()
        with autograd.record():
            found = kind(one, other).log_prob(value)
        found.backward()
        assert [each.grad.item() for each in (one, other, value)] == [0, 0, 0]


@pytest.mark.parametrize("dtype", ["float32", "int64", "float16"])
def test_counts_beyond_the_support(dtype: str) -> None:
    prob = np.array([[0.2, 0.3, 0.5], [0.2, 0.8, 0]])
    rows = np.array([[0, 1, 0], [0, 2, 0], [0, 0, 0], [1, -1, 1], [1, 1, 0]], dtype=dtype)
    hot = P.OneHotCategorical(3, prob=prob[0]).log_prob(rows).tolist()
    numpy.testing.assert_allclose(hot, [numpy.log(0.3), *[-INF] * 4], rtol=1e-3)
    two = P.Multinomial(3, prob=prob[1], total_count=2).log_prob(rows).tolist()
    wanted = [-INF, 2 * numpy.log(0.8), -INF, -INF, numpy.log(0.32)]
    numpy.testing.assert_allclose(two, wanted, rtol=1e-3)


def test_shares_of_events_and_counts_that_are_nan() -> None:
    rows = np.array([[0.5, 0.5], [0.1, 0.9], [NAN, 1]])
    found = P.OneHotCategorical(2, prob=np.array([0.25, 0.75])).log_prob(rows).tolist()
    shares = rows[:2].asnumpy() @ numpy.log([0.25, 0.75])
    numpy.testing.assert_allclose(found, [*shares, NAN], rtol=1e-5)
    many = P.Multinomial(2, prob=HALVES, total_count=2)
    assert numpy.isnan(many.log_prob(rows[2]).item())


def test_relaxed_shares_beyond_the_support() -> None:
    rows = np.array([[0.25, 0.75], [0, 1], [-1, 2], [0.75, 0.75], [NAN, 0.5]])
    found = P.RelaxedOneHotCategorical(1.0, 2, prob=HALVES).log_prob(rows).tolist()
    numpy.testing.assert_allclose(found, [0, -INF, -INF, -INF, NAN], atol=1e-6)


def test_shares_beyond_the_support() -> None:
    rows = np.array([[0, 0.5, 0.5], [-1, 1, 1], [NAN, 0.5, 0.5]])
    found = P.Dirichlet(np.array([1.0, 1, 2])).log_prob(rows).tolist()
    numpy.testing.assert_allclose(found, [numpy.log(3), -INF, NAN], rtol=1e-5)

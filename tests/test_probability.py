"""Distributions beside SciPy's: densities, moments, entropies, samples, divergences, gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest

import gemel
from gemel import autograd, gluon, np
from gemel.errors import ArgumentError, GemelError
from gemel.gluon import probability as P  # noqa: N812

stats = pytest.importorskip("scipy.stats")

#: Values at which distributions of different supports are compared.
REAL = numpy.array([-1.5, 0.2, 0.9, 3.0])
ABOVE = numpy.array([0.3, 0.9, 1.7, 4.0])
SHARE = numpy.array([0.1, 0.4, 0.7, 0.95])
COUNT = numpy.array([0.0, 1.0, 2.0, 5.0])
#: By name: the distribution, its parameters, SciPy's counterpart, the values to compare at.
CASES: dict[str, tuple[Any, dict[str, Any], Callable[..., Any], Any]] = {
    "Normal": (P.Normal, {"loc": 0.5, "scale": 1.5}, stats.norm, REAL),
    "Laplace": (P.Laplace, {"loc": 0.5, "scale": 1.5}, stats.laplace, REAL),
    "Cauchy": (P.Cauchy, {"loc": 0.5, "scale": 1.5}, stats.cauchy, REAL),
    "Gumbel": (P.Gumbel, {"loc": 0.5, "scale": 1.5}, stats.gumbel_r, REAL),
    "StudentT": (P.StudentT, {"df": 5.0, "loc": 0.5, "scale": 1.5}, stats.t, REAL),
    "Uniform": (
        P.Uniform,
        {"low": -1.0, "high": 2.0},
        lambda low, high: stats.uniform(low, high - low),
        REAL,
    ),
    "HalfNormal": (P.HalfNormal, {"scale": 1.5}, stats.halfnorm, ABOVE),
    "HalfCauchy": (P.HalfCauchy, {"scale": 1.5}, stats.halfcauchy, ABOVE),
    "Exponential": (P.Exponential, {"scale": 1.5}, stats.expon, ABOVE),
    "Gamma": (
        P.Gamma,
        {"shape": 2.5, "scale": 1.5},
        lambda shape, scale: stats.gamma(shape, scale=scale),
        ABOVE,
    ),
    "Chi2": (P.Chi2, {"df": 3.0}, stats.chi2, ABOVE),
    "Beta": (
        P.Beta,
        {"alpha": 2.0, "beta": 3.5},
        lambda alpha, beta: stats.beta(alpha, beta),
        SHARE,
    ),
    "Weibull": (
        P.Weibull,
        {"concentration": 1.7, "scale": 1.5},
        lambda concentration, scale: stats.weibull_min(concentration, scale=scale),
        ABOVE,
    ),
    "Pareto": (
        P.Pareto,
        {"alpha": 5.0, "scale": 0.25},
        lambda alpha, scale: stats.pareto(alpha, scale=scale),
        ABOVE,
    ),
    "FisherSnedecor": (
        P.FisherSnedecor,
        {"df1": 4.0, "df2": 9.0},
        lambda df1, df2: stats.f(df1, df2),
        ABOVE,
    ),
    "Bernoulli": (P.Bernoulli, {"prob": 0.3}, lambda prob: stats.bernoulli(prob), COUNT[:2]),
    "Geometric": (P.Geometric, {"prob": 0.3}, lambda prob: stats.geom(prob, loc=-1), COUNT),
    "Binomial": (P.Binomial, {"n": 6, "prob": 0.3}, lambda n, prob: stats.binom(n, prob), COUNT),
    "NegativeBinomial": (
        P.NegativeBinomial,
        {"n": 4, "prob": 0.3},
        lambda n, prob: stats.nbinom(n, prob),
        COUNT,
    ),
    "Poisson": (P.Poisson, {"rate": 2.5}, lambda rate: stats.poisson(rate), COUNT),
}


def built(name: str) -> tuple[Any, Any, Any]:
    kind, given, theirs, values = CASES[name]
    return (
        kind(**{n: np.array(v, dtype="float64") for n, v in given.items()}),
        theirs(**given),
        values,
    )


def close(found: Any, wanted: Any, rtol: float = 1e-6) -> None:
    numpy.testing.assert_allclose(numpy.asarray(found), wanted, rtol=rtol, atol=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_densities(name: str) -> None:
    ours, theirs, values = built(name)
    wanted = theirs.logpmf(values) if hasattr(theirs.dist, "pmf") else theirs.logpdf(values)
    close(ours.log_prob(np.array(values, dtype="float64")), wanted)
    close(ours.pdf(np.array(values, dtype="float64")), numpy.exp(wanted))


@pytest.mark.parametrize("name", CASES)
def test_moments_and_entropies(name: str) -> None:
    ours, theirs, _ = built(name)
    if "Cauchy" not in name:
        close(ours.mean, theirs.mean())
        close(ours.variance, theirs.var())
        close(ours.stddev, theirs.std())
    else:
        assert numpy.isnan(float(ours.mean))
    try:
        found = ours.entropy()
    except NotImplementedError as error:
        assert isinstance(error, GemelError) and type(ours).__name__ in str(error)
        return
    close(found, theirs.entropy())
    close(ours.perplexity(), numpy.exp(theirs.entropy()))


@pytest.mark.parametrize("name", CASES)
def test_distribution_functions(name: str) -> None:
    ours, theirs, values = built(name)
    try:
        found = ours.cdf(np.array(values, dtype="float64"))
    except P.NoFormulaError:
        return
    close(found, theirs.cdf(values))
    close(ours.icdf(np.array(SHARE, dtype="float64")), theirs.ppf(SHARE), rtol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_samples(name: str) -> None:
    np.random.seed(3)
    kind, given, theirs, _ = CASES[name]
    ours, other = kind(**given), theirs(**given)
    drawn = ours.sample((4000,)).asnumpy()
    assert drawn.shape == (4000,) and ours.sample().shape == () and ours.sample(7).shape == (7,)
    if hasattr(other.dist, "pmf"):
        assert abs(drawn.mean() - other.mean()) < 5 * other.std() / 4000**0.5
        assert abs(drawn.var() / other.var() - 1) < 0.2
    else:
        assert stats.kstest(drawn, other.cdf).pvalue > 1e-3


@pytest.mark.parametrize("name", CASES)
def test_a_batch(name: str) -> None:
    kind, given, _, values = CASES[name]
    first, *rest = given
    batch = kind(**{first: np.array([[given[first]] * 3] * 2), **{n: given[n] for n in rest}})
    one = kind(**given)
    assert batch.batch_shape == (2, 3) and one.batch_shape == ()
    assert batch.sample().shape == (2, 3) and batch.sample_n(5).shape == (5, 2, 3)
    assert batch.sample_n((5, 1)).shape == (5, 1, 2, 3) and batch.sample((4, 2, 3)).shape == (
        4,
        2,
        3,
    )
    assert batch.mean.shape == (2, 3) and batch.variance.shape == (2, 3)
    assert one.broadcast_to((2, 3)).batch_shape == (2, 3)
    close(
        batch.log_prob(float(values[1])),
        numpy.full((2, 3), float(one.log_prob(float(values[1])))),
        1e-5,
    )


@pytest.mark.parametrize("name", [name for name in CASES if CASES[name][0].has_grad])
def test_gradients_and_hybridized(name: str) -> None:
    kind, given, _, values = CASES[name]
    names = list(given)
    x = np.array(values[1:3], dtype="float64")

    def loss(*parameters: Any) -> Any:
        return kind(**dict(zip(names, parameters, strict=True))).log_prob(x).sum()

    inputs = [np.array(value, dtype="float64") for value in given.values()]
    slopes = []
    for function in (loss, gemel.compile(loss)):
        for one in inputs:
            one.attach_grad()
        with autograd.record():
            found = function(*inputs)
        found.backward()
        slopes.append([float(one.grad) for one in inputs])
    for place, value in enumerate(given.values()):
        step = 1e-6
        ends = []
        for side in (step, -step):
            moved = [float(v) for v in given.values()]
            moved[place] = value + side
            ends.append(float(loss(*[np.array(v, dtype="float64") for v in moved])))
        wanted = (ends[0] - ends[1]) / (2 * step)
        close(slopes[0][place], wanted, rtol=1e-4)
        close(slopes[1][place], wanted, rtol=1e-4)


@pytest.mark.parametrize("name", [name for name in CASES if CASES[name][0].has_grad])
def test_samples_have_gradients(name: str) -> None:
    kind, given, _, _ = CASES[name]
    inputs = {n: np.array(v, dtype="float64") for n, v in given.items()}
    for one in inputs.values():
        one.attach_grad()
    with autograd.record():
        found = kind(**inputs).sample((50,)).sum()
    found.backward()
    assert all(numpy.isfinite(float(one.grad)) and float(one.grad) != 0 for one in inputs.values())


def test_logits_and_probabilities() -> None:
    prob = numpy.array([0.2, 0.9])
    logit = numpy.log(prob / (1 - prob))
    for kind in (P.Bernoulli, P.Geometric):
        one, other = kind(prob=np.array(prob)), kind(logit=np.array(logit))
        close(one.logit, logit, 1e-5)
        close(other.prob, prob, 1e-5)
        close(other.log_prob(np.array([1.0, 0.0])), one.log_prob(np.array([1.0, 0.0])), 1e-5)
        close(other.entropy(), one.entropy(), 1e-5)
    assert float(P.Bernoulli(prob=1.0).log_prob(np.array(1.0))) == 0
    assert float(P.Bernoulli(prob=0.0).entropy()) == 0
    assert P.Bernoulli(prob=np.array(prob)).enumerate_support().tolist() == [[0, 0], [1, 1]]
    for given in ({}, {"prob": 0.5, "logit": 0.0}):
        with pytest.raises(ArgumentError, match="either prob or logit"):
            P.Bernoulli(**given)


def test_events() -> None:
    prob = numpy.array([[0.2, 0.3, 0.5], [0.1, 0.1, 0.8]])
    one = P.Categorical(3, prob=np.array(prob))
    close(one.log_prob(np.array([2, 0])), numpy.log([0.5, 0.1]), 1e-5)
    close(one.entropy(), stats.entropy(prob, axis=1), 1e-5)
    assert one.sample().shape == (2,) and one.sample((4, 5)).shape == (4, 5, 2)
    assert one.sample_n(4).shape == (4, 2)
    assert one.enumerate_support().shape == (3, 2)
    close(one.log_prob(one.enumerate_support()), numpy.log(prob).T, 1e-5)
    np.random.seed(0)
    counts = numpy.bincount(one.sample(4000).asnumpy()[:, 0].astype(int)) / 4000
    numpy.testing.assert_allclose(counts, prob[0], atol=0.03)
    hot = P.OneHotCategorical(3, logit=np.array(numpy.log(prob)))
    assert hot.sample(6).shape == (6, 2, 3) and (hot.sample(6).sum(axis=-1) == 1).all()
    close(hot.log_prob(np.array([0.0, 0.0, 1.0])), numpy.log(prob[:, 2]), 1e-5)
    many = P.Multinomial(3, prob=np.array(prob[0]), total_count=4)
    theirs = stats.multinomial(4, prob[0])
    close(many.log_prob(np.array([1.0, 1.0, 2.0])), theirs.logpmf([1, 1, 2]), 1e-5)
    close(many.mean, theirs.mean(), 1e-5)
    close(many.variance, numpy.diag(theirs.cov()), 1e-5)
    assert many.sample(7).shape == (7, 3) and (many.sample(7).sum(axis=-1) == 4).all()


def test_vectors() -> None:
    root = numpy.array([[1.0, 0, 0], [0.5, 1.2, 0], [-0.3, 0.2, 0.7]])
    loc, cov = numpy.array([0.5, -1.0, 2.0]), root @ root.T
    theirs, x = stats.multivariate_normal(loc, cov), numpy.array([[0.1, 0.2, 0.3], [1, 0, 2]])
    given = {"cov": cov, "precision": numpy.linalg.inv(cov), "scale_tril": root}
    for name, value in given.items():
        ours = P.MultivariateNormal(np.array(loc), **{name: np.array(value)})
        close(ours.log_prob(np.array(x)), theirs.logpdf(x), 1e-5)
        close(ours.entropy(), theirs.entropy(), 1e-5)
        close(ours.variance, numpy.diag(cov), 1e-5)
    np.random.seed(0)
    drawn = ours.sample(5000).asnumpy()
    numpy.testing.assert_allclose(numpy.cov(drawn.T), cov, atol=0.15)
    batch = P.MultivariateNormal(np.zeros((4, 3)), scale_tril=np.array(root))
    assert batch.sample((2,)).shape == (2, 4, 3) and batch.log_prob(np.zeros((2, 4, 3))).shape == (
        2,
        4,
    )
    with pytest.raises(ArgumentError, match="2 of cov"):
        P.MultivariateNormal(np.zeros(2), cov=np.eye(2), precision=np.eye(2))
    alpha = numpy.array([2.0, 3.0, 0.5])
    ours, theirs = P.Dirichlet(np.array(alpha)), stats.dirichlet(alpha)
    point = numpy.array([0.2, 0.3, 0.5])
    close(ours.log_prob(np.array(point)), theirs.logpdf(point), 1e-5)
    close(ours.entropy(), theirs.entropy(), 1e-5)
    close(ours.mean, theirs.mean(), 1e-5)
    close(ours.variance, theirs.var(), 1e-5)
    close(ours.sample((5,)).sum(axis=-1), numpy.ones(5), 1e-5)


def test_independent() -> None:
    base = P.Normal(np.zeros((4, 3)), np.ones((4, 3)) * 2)
    ours = P.Independent(base, 1)
    x = np.ones((4, 3))
    close(ours.log_prob(x), base.log_prob(x).sum(axis=1))
    close(ours.entropy(), base.entropy().sum(axis=1))
    assert ours.batch_shape == (4,) and ours.event_dim == 1 and ours.sample_n(2).shape == (2, 4, 3)
    with pytest.raises(ValueError, match="not have 3 batch axes"):
        P.Independent(base, 3)


PAIRS: dict[str, tuple[Any, Any]] = {
    "Normal": (P.Normal(0.0, 1.0), P.Normal(0.5, 1.5)),
    "HalfNormal": (P.HalfNormal(1.0), P.HalfNormal(1.5)),
    "Laplace": (P.Laplace(0.0, 1.0), P.Laplace(0.5, 1.5)),
    "Cauchy": (P.Cauchy(0.0, 1.0), P.Cauchy(0.5, 1.5)),
    "Gumbel": (P.Gumbel(0.0, 1.0), P.Gumbel(0.5, 1.5)),
    "Uniform": (P.Uniform(0.0, 1.0), P.Uniform(-0.5, 1.5)),
    "Uniform, Normal": (P.Uniform(0.0, 1.0), P.Normal(0.5, 1.5)),
    "Exponential": (P.Exponential(1.0), P.Exponential(1.5)),
    "Gamma": (P.Gamma(2.0, 1.0), P.Gamma(1.5, 1.5)),
    "Beta": (P.Beta(2.0, 1.5), P.Beta(1.5, 2.5)),
    "Pareto": (P.Pareto(3.0, 1.0), P.Pareto(2.0, 0.5)),
    "Bernoulli": (P.Bernoulli(0.3), P.Bernoulli(0.6)),
    "Binomial": (P.Binomial(5, 0.3), P.Binomial(5, 0.6)),
    "Geometric": (P.Geometric(0.3), P.Geometric(0.6)),
    "Poisson": (P.Poisson(2.0), P.Poisson(3.0)),
    "Categorical": (
        P.Categorical(3, prob=np.array([0.2, 0.3, 0.5])),
        P.Categorical(3, logit=np.array([0.2, 0.3, -0.5])),
    ),
    "OneHotCategorical": (
        P.OneHotCategorical(3, prob=np.array([0.2, 0.3, 0.5])),
        P.OneHotCategorical(3, logit=np.array([0.2, 0.3, -0.5])),
    ),
    "Dirichlet": (P.Dirichlet(np.array([2.0, 3.0])), P.Dirichlet(np.array([1.0, 1.5]))),
    "MultivariateNormal": (
        P.MultivariateNormal(np.array([0.0, 1.0]), cov=np.array([[1.0, 0.5], [0.5, 2.0]])),
        P.MultivariateNormal(np.array([0.5, 0.0]), cov=np.array([[2.0, 0.1], [0.1, 1.0]])),
    ),
    "Independent": (
        P.Independent(P.Normal(np.zeros(3), 1.0), 1),
        P.Independent(P.Normal(np.ones(3), 1.5), 1),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_divergences_are_the_means_of_samples(name: str) -> None:
    p, q = PAIRS[name]
    np.random.seed(1)
    exact = float(P.kl_divergence(p, q))
    samples = p.sample_n(20000)
    terms = (p.log_prob(samples) - q.log_prob(samples)).asnumpy()
    assert abs(exact - terms.mean()) < 5 * terms.std() / 20000**0.5 + 1e-5
    assert abs(float(P.kl_divergence(p, p))) < 1e-5
    assert abs(float(P.empirical_kl(p, q, 20000)) - exact) < 8 * terms.std() / 20000**0.5 + 1e-5


def test_divergences_that_are_infinite_or_unknown() -> None:
    assert float(P.kl_divergence(P.Uniform(0.0, 3.0), P.Uniform(0.0, 1.0))) == float("inf")
    with pytest.raises(NotImplementedError, match=r"Poisson.*register_kl"):
        P.kl_divergence(P.Normal(), P.Poisson())

    class Mine(P.Normal):
        """A distribution of the user's own."""

    assert float(P.kl_divergence(Mine(0.0, 1.0), P.Normal(0.0, 1.0))) == 0

    @P.register_kl(Mine, Mine)
    def _(p: Any, q: Any) -> float:
        return 7.0

    assert P.kl_divergence(Mine(), Mine()) == 7.0


def test_parameters_are_checked_where_asked() -> None:
    P.Normal(0.0, -1.0)
    with pytest.raises(ValueError, match="Normal: scale must be above 0"):
        P.Normal(0.0, -1.0, validate_args=True)
    with pytest.raises(ValueError, match="prob must be between 0 and 1"):
        P.Bernoulli(prob=1.5, validate_args=True)
    late = P.Normal(0.0, np.array([1.0, -1.0]), validate_args=True)
    with pytest.raises(ValueError, match="scale must be above 0"):
        late.log_prob(0.5).wait_to_read()


class Encoder(P.StochasticBlock):
    """The encoder of a variational network: draws a code, and adds the divergence to the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.loc, self.spread = gluon.nn.Dense(2), gluon.nn.Dense(2)
        self.runs = 0

    @P.StochasticBlock.collectLoss
    def forward(self, x: Any) -> Any:
        self.runs += 1
        code = P.Normal(self.loc(x), np.exp(self.spread(x)))
        self.add_loss(P.kl_divergence(code, P.Normal(0.0, 1.0)))
        return code.sample()


@pytest.mark.parametrize("hybrid", [False, True])
def test_a_variational_network_learns(hybrid: bool) -> None:
    np.random.seed(0)
    net = P.StochasticSequential(Encoder(), gluon.nn.Dense(4))
    net.initialize()
    if hybrid:
        net.hybridize()
    x = np.random.normal(size=(16, 4))
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.02})
    history = []
    for _ in range(60):
        with autograd.record():
            out = net(x)
            (divergence,) = net.losses
            loss = ((out - x) ** 2).sum(axis=1) + 0.1 * divergence.sum(axis=1)
        loss.backward()
        trainer.step(16)
        history.append(float(loss.mean()))
    assert sum(history[-10:]) < 0.8 * sum(history[:10])
    assert not hybrid or net[0].runs < 5  # losses that are kept in the block change no program


def test_a_block_without_the_decorator_is_refused() -> None:
    class Plain(P.StochasticBlock):
        def forward(self, x: Any) -> Any:
            return x

    with pytest.raises(ArgumentError, match="collectLoss"):
        Plain()(np.ones(2))
    assert repr(P.Normal(np.zeros(3), 1.0)) == "Normal(loc: (3,), scale: ())"


def test_transformed() -> None:
    x = numpy.array([0.3, 1.0, 2.5])
    lognormal = P.TransformedDistribution(P.Normal(0.5, 0.8), P.ExpTransform())
    theirs = stats.lognorm(0.8, scale=numpy.exp(0.5))
    given = np.array(x, dtype="float64")
    close(lognormal.log_prob(given), theirs.logpdf(x))
    close(lognormal.cdf(given), theirs.cdf(x))
    close(lognormal.icdf(np.array(SHARE, dtype="float64")), theirs.ppf(SHARE), 1e-5)
    turned = P.TransformedDistribution(P.Exponential(1.5), P.AffineTransform(1.0, -2.0))
    close(turned.log_prob(1 - given), stats.expon(1, 3).logpdf(1 + x), 1e-5)
    close(turned.cdf(1 - given), 1 - stats.expon(1, 3).cdf(1 + x), 1e-5)
    powers = P.TransformedDistribution(P.Exponential(1.0), [P.PowerTransform(0.5)])
    close(powers.log_prob(given), stats.weibull_min(2.0).logpdf(x), 1e-5)
    shares = P.TransformedDistribution(
        P.Normal(0.0, 1.0), [P.AffineTransform(0.5, 2.0), P.SigmoidTransform()]
    )
    s = numpy.array([0.2, 0.7])
    wanted = stats.norm(0.5, 2).logpdf(numpy.log(s / (1 - s))) - numpy.log(s * (1 - s))
    close(shares.log_prob(np.array(s, dtype="float64")), wanted, 1e-5)
    assert shares.sample((5,)).shape == (5,) and shares.sample_n(2).shape == (2,)
    folded = P.TransformedDistribution(P.Normal(np.zeros(3), 1.0), P.AbsTransform())
    assert (folded.sample() >= 0).all() and folded.batch_shape == (3,)
    with pytest.raises(P.NoFormulaError, match="AbsTransform"):
        folded.log_prob(np.ones(3))
    vectors = P.TransformedDistribution(P.Normal(np.zeros((2, 3)), 1.0), P.SoftmaxTransform())
    assert vectors.batch_shape == (2,) and vectors.sample_n(4).shape == (4, 2, 3)


def test_relaxed() -> None:
    np.random.seed(2)
    one = P.RelaxedBernoulli(0.5, prob=0.3)
    grid = (numpy.arange(20000) + 0.5) / 20000
    mass = one.pdf(np.array(grid, dtype="float64")).asnumpy()
    assert abs(mass.mean() - 1) < 0.01
    drawn = one.sample((4000,)).asnumpy()
    assert abs((drawn > 0.5).mean() - 0.3) < 0.03
    assert abs((mass * grid).mean() - drawn.mean()) < 0.02
    some = P.RelaxedOneHotCategorical(0.7, 3, prob=np.array([0.2, 0.3, 0.5]))
    rows = some.sample((5000,))
    close(rows.sum(axis=-1), numpy.ones(5000), 1e-5)
    first = numpy.bincount(rows.asnumpy().argmax(1), minlength=3) / 5000
    numpy.testing.assert_allclose(first, [0.2, 0.3, 0.5], atol=0.03)
    # The mean density over evenly spread points of the triangle is 1 / area, and its area is 1 / 2.
    points = numpy.random.default_rng(0).dirichlet([1, 1, 1], 200000)
    numpy.testing.assert_allclose(some.pdf(np.array(points)).asnumpy().mean() / 2, 1, atol=0.03)


def test_checked_in_a_program() -> None:
    def program(x: Any, scale: Any) -> Any:
        return P.Normal(0.0, scale, validate_args=True).log_prob(x)

    compiled, x = gemel.compile(program), np.ones(3)
    close(compiled(x, np.ones(3)), program(x, np.ones(3)))
    with pytest.raises(ValueError, match="scale must be above 0"):
        compiled(x, np.array([1.0, -1.0, 1.0])).wait_to_read()

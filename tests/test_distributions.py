"""Distributions against SciPy's, with fixed seeds; dtypes, shapes, gradients, bad parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest
from scipy import special, stats

import gemel
from gemel import autograd, np, npx
from gemel.errors import ArgumentError, DTypeError, ShapeError

COUNT = 50_000
LIFT = numpy.exp(0.3)

#: Continuous distributions: how to draw, and SciPy's distribution.
CONTINUOUS: dict[str, tuple[Callable[..., Any], Any]] = {
    "uniform": (lambda **k: np.random.uniform(-1, 3, **k), stats.uniform(-1, 4)),
    "normal": (lambda **k: np.random.normal(2, 0.5, **k), stats.norm(2, 0.5)),
    "standard_normal": (np.random.standard_normal, stats.norm()),
    "random": (np.random.random, stats.uniform()),
    "lognormal": (lambda **k: np.random.lognormal(0.3, 0.5, **k), stats.lognorm(0.5, 0, LIFT)),
    "exponential": (lambda **k: np.random.exponential(2.0, **k), stats.expon(0, 2)),
    "laplace": (lambda **k: np.random.laplace(1.0, 2.0, **k), stats.laplace(1, 2)),
    "logistic": (lambda **k: np.random.logistic(1.0, 2.0, **k), stats.logistic(1, 2)),
    "gumbel": (lambda **k: np.random.gumbel(1.0, 2.0, **k), stats.gumbel_r(1, 2)),
    "rayleigh": (lambda **k: np.random.rayleigh(2.0, **k), stats.rayleigh(0, 2)),
    "weibull": (lambda **k: np.random.weibull(1.7, **k), stats.weibull_min(1.7)),
    "pareto": (lambda **k: np.random.pareto(3.0, **k), stats.lomax(3.0)),
    "power": (lambda **k: np.random.power(2.5, **k), stats.powerlaw(2.5)),
    "cauchy": (lambda **k: np.random.cauchy(1.0, 2.0, **k), stats.cauchy(1, 2)),
    "standard_cauchy": (np.random.standard_cauchy, stats.cauchy()),
    "triangular": (lambda **k: np.random.triangular(-1, 0, 3, **k), stats.triang(0.25, -1, 4)),
    "gamma 0.3": (lambda **k: np.random.gamma(0.3, 2.0, **k), stats.gamma(0.3, 0, 2)),
    "gamma 1": (lambda **k: np.random.gamma(1.0, **k), stats.gamma(1)),
    "gamma 7.5": (lambda **k: np.random.gamma(7.5, 0.5, **k), stats.gamma(7.5, 0, 0.5)),
    "chisquare": (lambda **k: np.random.chisquare(3, **k), stats.chi2(3)),
    "beta": (lambda **k: np.random.beta(2.0, 3.0, **k), stats.beta(2, 3)),
    "beta small": (lambda **k: np.random.beta(0.4, 0.3, **k), stats.beta(0.4, 0.3)),
    "f": (lambda **k: np.random.f(3, 8, **k), stats.f(3, 8)),
    "standard_t": (lambda **k: np.random.standard_t(5, **k), stats.t(5)),
    "vonmises": (lambda **k: np.random.vonmises(0.5, 2.0, **k), stats.vonmises(2.0, 0.5)),
    "wald": (lambda **k: np.random.wald(1.0, 2.0, **k), stats.invgauss(0.5, 0, 2.0)),
}  # fmt: skip

#: Distributions of whole numbers, in the same form.
DISCRETE: dict[str, tuple[Callable[..., Any], Any]] = {
    "randint": (lambda **k: np.random.randint(2, 9, **k), stats.randint(2, 9)),
    "poisson": (lambda **k: np.random.poisson(3.5, **k), stats.poisson(3.5)),
    "poisson large": (lambda **k: np.random.poisson(60.0, **k), stats.poisson(60.0)),
    "binomial": (lambda **k: np.random.binomial(10, 0.3, **k), stats.binom(10, 0.3)),
    "geometric": (lambda **k: np.random.geometric(0.3, **k), stats.geom(0.3)),
    "negative_binomial": (
        lambda **k: np.random.negative_binomial(3, 0.4, **k), stats.nbinom(3, 0.4)
    ),
    "hypergeometric": (
        lambda **k: np.random.hypergeometric(8, 5, 6, **k), stats.hypergeom(13, 8, 6)
    ),
    "logseries": (lambda **k: np.random.logseries(0.6, **k), stats.logser(0.6)),
    "zipf": (lambda **k: np.random.zipf(3.0, **k), stats.zipf(3.0)),
    "bernoulli": (lambda **k: npx.random.bernoulli(0.3, **k), stats.bernoulli(0.3)),
    "bernoulli logit": (
        lambda **k: npx.random.bernoulli(logit=-1.0, **k), stats.bernoulli(special.expit(-1.0))
    ),
    "choice": (
        lambda **k: np.random.choice(4, p=[0.1, 0.2, 0.3, 0.4], **k),
        stats.rv_discrete(values=(range(4), (0.1, 0.2, 0.3, 0.4))),
    ),
    "categorical": (
        lambda **k: npx.categorical(np.array([0.1, 0.2, 0.3, 0.4]), **k),
        stats.rv_discrete(values=(range(4), (0.1, 0.2, 0.3, 0.4))),
    ),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous(name: str, dtype: str) -> None:
    draw, expected = CONTINUOUS[name]
    np.random.seed(17)
    x = draw(size=COUNT, dtype=dtype)
    assert x.dtype == dtype and x.shape == (COUNT,)
    found = x.asnumpy().astype("float64")
    assert numpy.isfinite(found).all()
    assert stats.kstest(found, expected.cdf).pvalue > 1e-4


@pytest.mark.parametrize("name", sorted({*CONTINUOUS} - {"uniform", "normal", "random"}))
def test_narrow_dtypes_are_rounded_at_the_end(name: str) -> None:
    draw, _ = CONTINUOUS[name]
    for dtype in ("float16", "bfloat16"):
        np.random.seed(18)
        narrow = draw(size=200, dtype=dtype)
        np.random.seed(18)
        expected = draw(size=200).astype(dtype)
        assert narrow.dtype == dtype
        assert narrow.astype("float32").tolist() == expected.astype("float32").tolist()


@pytest.mark.parametrize("name", DISCRETE)
def test_discrete(name: str) -> None:
    draw, expected = DISCRETE[name]
    np.random.seed(19)
    found = draw(size=COUNT).asnumpy()
    values = numpy.arange(int(found.min()), int(found.max()) + 1)
    counts = numpy.array([(found == value).sum() for value in values])
    mass = expected.pmf(values) * COUNT
    common = mass >= 10
    rest = [counts[~common].sum()], [max(COUNT - mass[common].sum(), 1e-9)]
    counts, mass = (
        (numpy.r_[counts[common], rest[0]], numpy.r_[mass[common], rest[1]])
        if rest[1][0] > 5
        else (counts[common], mass[common] * counts[common].sum() / mass[common].sum())
    )
    assert stats.chisquare(counts, mass * counts.sum() / mass.sum()).pvalue > 1e-4


@pytest.mark.parametrize("name", [*CONTINUOUS, *DISCRETE])
def test_the_seed_decides_imperatively_and_compiled(name: str) -> None:
    draw, _ = {**CONTINUOUS, **DISCRETE}[name]
    np.random.seed(5)
    expected = [draw(size=(3, 4)).asnumpy() for _ in range(2)]
    assert not numpy.array_equal(*expected)
    program = gemel.compile(lambda x: draw(size=(3, 4)) + x)
    np.random.seed(5)
    zero = np.zeros((), dtype=expected[0].dtype.name)
    for wanted in expected:
        numpy.testing.assert_allclose(program(zero).asnumpy(), wanted, rtol=2e-5, atol=1e-6)


def test_parameters_broadcast() -> None:
    scale = np.array([[1.0], [100.0]])
    x = np.random.exponential(scale, size=(2, 1000)).asnumpy()
    assert 0.8 < x[0].mean() < 1.2 and 80 < x[1].mean() < 120
    assert np.random.normal(np.zeros((2, 1)), np.ones(3)).shape == (2, 3)
    assert np.random.gamma([1.0, 2.0]).shape == (2,)
    assert np.random.poisson(np.array([1.0, 50.0]), size=(4, 2)).shape == (4, 2)
    assert np.random.uniform(numpy.zeros(3), 2.0).shape == (3,)
    assert np.random.binomial(np.array([5, 10]), 0.5).shape == (2,)
    low = np.array([0, 10, 20])
    assert ((np.random.randint(low, low + 3) - low) < 3).all().item()
    with pytest.raises(ShapeError):
        np.random.exponential(scale, size=(3,))


def test_shapes() -> None:
    assert np.random.rand(2, 3).shape == (2, 3)
    assert np.random.randn().shape == ()
    assert np.random.gamma(2.0).shape == ()
    assert np.random.gamma(2.0, size=0).shape == (0,)
    assert np.random.poisson(2.0, size=(2, 0)).shape == (2, 0)
    assert npx.random.uniform_n(np.zeros((2, 1)), np.ones(3), batch_shape=(5,)).shape == (5, 2, 3)
    assert npx.random.normal_n(0.0, np.ones(3), batch_shape=4).shape == (4, 3)
    assert npx.random.normal_n(np.zeros(2)).shape == (2,)
    out = np.zeros((2, 2))
    assert np.random.uniform(1, 2, size=(2, 2), out=out) is out
    assert (out >= 1).all().item()
    with pytest.raises(ShapeError):
        np.random.uniform(size=3, out=out)


@pytest.mark.parametrize(
    ("low", "high", "dtype"),
    [
        (2**63, 2**64, "uint64"),
        (2**64 - 3, 2**64, "uint64"),
        (2**63 - 2, 2**63 + 2, "uint64"),
        (-(2**63), 2 - 2**63, "int64"),
    ],
)
def test_bounds_of_64_bits(low: int, high: int, dtype: str) -> None:
    assert all(low <= n < high for n in np.random.randint(low, high, 20, dtype=dtype).tolist())
    if high < 2**64:
        ends = (np.array(end, dtype=dtype) for end in (low, high))
        assert all(low <= n < high for n in np.random.randint(*ends, 20, dtype=dtype).tolist())


def test_out_may_have_any_dtype_that_holds_the_numbers() -> None:
    for out in (np.zeros(50), np.zeros(50, dtype="int8"), np.zeros(50, dtype="complex64")):
        assert np.random.randint(2, 5, out=out) is out
        assert set(out.tolist()) == {2, 3, 4}
        assert np.random.choice(3, size=50, out=out) is out
        assert set(out.tolist()) == {0, 1, 2}
    with pytest.raises(ValueError, match=r"choice: .*uint8"):
        np.random.choice(257, out=np.zeros(3, dtype="uint8"))
    assert set(np.random.choice(256, out=np.zeros(9, dtype="uint8")).tolist()) <= set(range(256))
    with pytest.raises(DTypeError, match=r"normal: unsafe cast: .* out of dtype int32"):
        np.random.normal(out=np.zeros(3, dtype="int32"))


def test_devices() -> None:
    device = npx.cpu(1)
    for name in ("uniform", "normal", "exponential", "poisson", "standard_normal"):
        assert getattr(np.random, name)(size=2, device=device).device == device
        assert getattr(np.random, name)(size=2, ctx=device).device == device
    assert np.random.randint(3, size=2, ctx=device).device == device
    assert np.random.choice(5, 3, ctx=device).device == device


# --- gradients ------------------------------------------------------------------------------


def test_reparametrised_gradients() -> None:
    loc, scale = np.array([0.5, -1.0]), np.array([2.0, 0.7])
    for name in ("normal", "laplace", "logistic", "gumbel", "cauchy"):
        loc.attach_grad()
        scale.attach_grad()
        with autograd.record():
            y = getattr(np.random, name)(loc, scale, size=(3, 2), dtype="float64")
            y.sum().backward()
        numpy.testing.assert_allclose(loc.grad.asnumpy(), [3, 3])
        noise = (y.asnumpy() - loc.asnumpy()) / scale.asnumpy()
        numpy.testing.assert_allclose(scale.grad.asnumpy(), noise.sum(0), rtol=1e-5)


def test_gradients_of_uniform_bounds() -> None:
    low, high = np.array([0.0, 1.0]), np.array([2.0, 4.0])
    low.attach_grad()
    high.attach_grad()
    with autograd.record():
        y = np.random.uniform(low, high)
        y.backward()
    share = (y.asnumpy() - low.asnumpy()) / (high.asnumpy() - low.asnumpy())
    numpy.testing.assert_allclose(high.grad.asnumpy(), share, rtol=1e-5)
    numpy.testing.assert_allclose(low.grad.asnumpy(), 1 - share, rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "at"),
    [("exponential", 2.0), ("rayleigh", 2.0), ("weibull", 1.5), ("pareto", 3.0), ("power", 2.0)],
)
def test_gradients_of_one_parameter(name: str, at: float) -> None:
    """Against finite differences, which draw with the same seed at neighbouring parameters."""

    def drawn(value: Any) -> Any:
        np.random.seed(4)
        return getattr(np.random, name)(value, size=(50,), dtype="float64")

    a = np.array(at, dtype="float64")
    a.attach_grad()
    with autograd.record():
        y = drawn(a)
        y.sum().backward()
    near = 1e-6
    high, low = (drawn(np.array(at + d, dtype="float64")).sum().item() for d in (near, -near))
    numpy.testing.assert_allclose(a.grad.item(), (high - low) / (2 * near), rtol=1e-5)


@pytest.mark.parametrize("alpha", [0.05, 0.7, 1.0, 3.0, 40.0])
def test_implicit_gradient_of_gamma(alpha: float) -> None:
    """dx/dalpha = -(dP/dalpha) / p, with SciPy's distribution function P and its density p."""
    a, scale = np.array(alpha, dtype="float64"), np.array(2.0, dtype="float64")
    np.random.seed(3)
    a = np.full((40,), alpha, dtype="float64")
    a.attach_grad()
    scale.attach_grad()
    with autograd.record():
        y = np.random.gamma(a, scale, dtype="float64")
        y.sum().backward()
    x, near = y.asnumpy() / 2, 1e-6 * alpha
    moved = stats.gamma.cdf(x, alpha + near) - stats.gamma.cdf(x, alpha - near)
    slope = -moved / (2 * near) / stats.gamma.pdf(x, alpha) * 2
    keep = x > 1e-280
    found = a.grad.asnumpy()
    numpy.testing.assert_allclose(found[keep], slope[keep], rtol=2e-3)
    numpy.testing.assert_allclose(scale.grad.item(), x.sum())


def test_gradients_in_compiled_programs() -> None:
    scale = np.array([2.0, 3.0])
    scale.attach_grad()
    for function in (
        lambda s: np.random.normal(0.0, s),
        lambda s: np.random.exponential(s),
        lambda s: np.random.gamma(s, s),
    ):
        found = []
        for each in (function, gemel.compile(function)):
            np.random.seed(3)
            with autograd.record():
                each(scale).sum().backward()
            found.append(scale.grad.asnumpy())
        numpy.testing.assert_allclose(*found, rtol=1e-4)


# --- vectors and choices --------------------------------------------------------------------


def test_multinomial() -> None:
    np.random.seed(6)
    p = [0.2, 0.3, 0.5]
    x = np.random.multinomial(10, p, size=(1000,)).asnumpy()
    assert x.shape == (1000, 3) and (x.sum(1) == 10).all() and x.dtype == "int64"
    numpy.testing.assert_allclose(x.mean(0), [2, 3, 5], atol=0.2)
    assert np.random.multinomial(10, np.array(p)).shape == (3,)
    assert np.random.multinomial(10, np.array([p, p])).shape == (2, 3)
    with pytest.raises(ValueError, match="sum at most 1"):
        np.random.multinomial(10, np.array([0.5, 0.7])).asnumpy()
    with pytest.raises(ValueError, match="sum at most 1"):
        np.random.multinomial(10, np.array([-0.1, 0.7])).asnumpy()


def test_multivariate_normal() -> None:
    np.random.seed(6)
    mean, cov = np.array([1.0, -1.0]), np.array([[2.0, 0.6], [0.6, 0.5]])
    x = np.random.multivariate_normal(mean, cov, size=(20_000,)).asnumpy()
    numpy.testing.assert_allclose(x.mean(0), mean.asnumpy(), atol=0.05)
    numpy.testing.assert_allclose(numpy.cov(x.T), cov.asnumpy(), atol=0.06)
    assert np.random.multivariate_normal(np.zeros((3, 2)), cov).shape == (3, 2)
    mean.attach_grad()
    with autograd.record():
        np.random.multivariate_normal(mean, cov, size=4).sum().backward()
    assert mean.grad.tolist() == [4, 4]
    with pytest.raises(ShapeError):
        np.random.multivariate_normal(np.zeros(3), cov)


def test_dirichlet() -> None:
    np.random.seed(6)
    x = np.random.dirichlet(np.array([0.5, 1.0, 3.0]), size=5000).asnumpy()
    numpy.testing.assert_allclose(x.sum(1), 1, rtol=1e-5)
    numpy.testing.assert_allclose(x.mean(0), numpy.array([0.5, 1, 3]) / 4.5, atol=0.02)


def test_choice() -> None:
    np.random.seed(6)
    assert np.random.choice(5).shape == ()
    assert sorted(np.random.choice(5, 5, replace=False).tolist()) == [0, 1, 2, 3, 4]
    x = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    assert np.random.choice(x, 4).shape == (4, 2)
    assert np.random.choice(x, 4, axis=1).shape == (3, 4)
    assert set(np.random.choice([3, 7], 100).tolist()) == {3, 7}
    p = np.array([0.0, 0.9, 0.1])
    chosen = np.random.choice(3, (5000, 2), p=p).asnumpy()
    numpy.testing.assert_allclose(chosen.mean(), 1.1, atol=0.02)
    first = [np.random.choice(3, 2, replace=False, p=p).tolist() for _ in range(200)]
    assert all(sorted(each) == [1, 2] for each in first)
    assert 160 < sum(each[0] == 1 for each in first) < 198
    with pytest.raises(ValueError, match="cannot choose 4 of 3"):
        np.random.choice(3, 4, replace=False)
    with pytest.raises(ValueError, match="nothing to choose"):
        np.random.choice(0, 4)
    with pytest.raises(ValueError, match="their sum 1"):
        np.random.choice(2, 3, p=np.array([0.5, 0.6])).asnumpy()
    with pytest.raises(ShapeError):
        np.random.choice(2, 3, p=np.array([0.5, 0.25, 0.25]))


# --- bad parameters -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda s: np.random.normal(0, s, size=2), "normal: scale must be 0 or more"),
        (lambda s: np.random.exponential(s), "exponential: scale must be 0 or more"),
        (lambda s: np.random.gamma(s, 1.0), "gamma: shape must be above 0"),
        (lambda s: np.random.poisson(s), "poisson: lam must be 0 or more"),
        (lambda s: np.random.geometric(s), "geometric: p must be above 0 and at most 1"),
        (lambda s: npx.random.bernoulli(s), "bernoulli: prob must be between 0 and 1"),
        (lambda s: np.random.beta(1.0, s), "beta: b must be above 0"),
        (lambda s: np.random.triangular(0.0, s, 1.0), "triangular: left must be below right"),
    ],
)
def test_bad_parameters(call: Callable[[Any], Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        call(-1.0)
    found = call(np.array([-1.0, 0.5]))
    with pytest.raises(ValueError, match=match):
        found.asnumpy()
    program = gemel.compile(lambda x: call(x) * 2)
    program(np.array([0.5, 0.5])).asnumpy()
    with pytest.raises(ValueError, match=match):
        program(np.array([0.5, -1.0])).asnumpy()


def test_bad_arguments() -> None:
    with pytest.raises(DTypeError, match="must be floating"):
        np.random.gumbel(dtype="int32")
    with pytest.raises(DTypeError):
        np.random.randint(3, dtype="float32")
    with pytest.raises(ValueError, match="must be a whole number below"):
        np.random.randint(3, 3)
    with pytest.raises(ValueError, match="low must be below high"):
        np.random.randint(np.array([1, 2]), np.array([2, 2])).asnumpy()
    large = np.array([2**63], dtype="uint64")
    for low, high, dtype in (
        (300, [310], "int8"),
        (0, [129], "int8"),
        ([-1], 3, "uint8"),
        ([-1], 3, "uint64"),
        (0, large, "int32"),
    ):
        with pytest.raises(ArgumentError, match=f"randint: .*, and {dtype} must hold the numbers"):
            np.random.randint(low, high, dtype=dtype).asnumpy()
    assert np.random.randint([127], [128], dtype="int8").tolist() == [127]
    assert np.random.randint([255], 256, dtype="uint8").tolist() == [255]
    with pytest.raises(ArgumentError, match="the bound 18446744073709551616, next to a bound"):
        np.random.randint(np.array([3], dtype="uint64"), 2**64, dtype="uint64")
    with pytest.raises(TypeError, match="did you mean 'scale'"):
        np.random.normal(scal=2)
    with pytest.raises(TypeError, match="given twice"):
        np.random.normal(1.0, loc=2)
    with pytest.raises(TypeError, match="missing"):
        np.random.gamma()
    with pytest.raises(ValueError, match="either prob or logit"):
        npx.random.bernoulli()

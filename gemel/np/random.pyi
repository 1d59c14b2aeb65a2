"""`np.random`: random arrays. `seed` makes a whole run repeatable.

Written by `make stubs`: change what is declared instead.
"""

import builtins
from typing import Any

from gemel.ndarray import ndarray
from gemel.np.generator import Generator as Generator
from gemel.np.generator import RandomState as RandomState
from gemel.ops.random import initialization as initialization

def beta(
    a: Any,
    b: Any,
    size: Any = None,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
    out: Any = None,
) -> ndarray:
    """Numbers in [0, 1] with a density like x ** (a - 1) * (1 - x) ** (b - 1)."""

def binomial(
    n: Any,
    p: Any,
    size: Any = None,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
    out: Any = None,
) -> ndarray:
    """How many of n trials succeed, each with probability p."""

def cauchy(
    loc: Any = 0.0,
    scale: Any = 1.0,
    size: Any = None,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
    out: Any = None,
) -> ndarray:
    """Numbers with the density 1 / (pi * scale * (1 + ((x - loc) / scale) ** 2))."""

def chisquare(
    df: Any,
    size: Any = None,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
    out: Any = None,
) -> ndarray:
    """Sums of the squares of df standard normal numbers."""

def choice(
    a: Any,
    size: Any = None,
    replace: builtins.bool = True,
    p: Any = None,
    device: Any = None,
    ctx: Any = None,
    out: Any = None,
    axis: int = 0,
) -> ndarray:
    """Choose from the numbers 0 to a - 1, or from an array's slices along an axis, with
    probabilities p."""

def default_rng(seed: Any = None) -> Generator:
    """A generator with its own stream, from this seed or an unpredictable one; a generator given as
    `seed` is returned itself."""

def dirichlet(alpha: Any, size: Any = None, dtype: Any = None, device: Any = None) -> ndarray:
    """Rows of numbers from 0 to 1 whose sum is 1, with density like prod(x ** (alpha - 1))."""

def exponential(
    scale: Any = 1.0,
    size: Any = None,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
    out: Any = None,
) -> ndarray:
    """Exponentially distributed numbers of mean `scale`: -scale * log(u)."""

def f(
    dfnum: Any,
    dfden: Any,
    size: Any = None,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
    out: Any = None,
) -> ndarray:
    """Quotients of two mean squares, of dfnum and dfden standard normal numbers."""

def gamma(
    shape: Any,
    scale: Any = 1.0,
    size: Any = None,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
    out: Any = None,
) -> ndarray:
    """Numbers with a density like x ** (shape - 1) * exp(-x / scale)."""

def geometric(
    p: Any,
    size: Any = None,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
    out: Any = None,
) -> ndarray:
    """How many trials it takes until one succeeds, each with probability p."""

def get_state() -> tuple[int, int, int]:
    """The position of the stream: the seed, the number of the next call, and that of the next
    initial values; `set_state` restores it."""

def gumbel(
    loc: Any = 0.0,
    scale: Any = 1.0,
    size: Any = None,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
    out: Any = None,
) -> ndarray:
    """Numbers with the distribution function exp(-exp(-(x - loc) / scale))."""

def hypergeometric(
    ngood: Any,
    nbad: Any,
    nsample: Any,
    size: Any = None,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
    out: Any = None,
) -> ndarray:
    """How many good ones are among nsample taken from ngood and nbad."""

def laplace(
    loc: Any = 0.0,
    scale: Any = 1.0,
    size: Any = None,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
    out: Any = None,
) -> ndarray:
    """Numbers with the density exp(-abs(x - loc) / scale) / (2 * scale)."""

def logistic(
    loc: Any = 0.0,
    scale: Any = 1.0,
    size: Any = None,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
    out: Any = None,
) -> ndarray:
    """Numbers with the distribution function 1 / (1 + exp(-(x - loc) / scale))."""

def lognormal(
    mean: Any = 0.0,
    sigma: Any = 1.0,
    size: Any = None,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
    out: Any = None,
) -> ndarray:
    """Numbers whose logarithms are normally distributed with this mean and deviation."""

def logseries(
    p: Any,
    size: Any = None,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
    out: Any = None,
) -> ndarray:
    """Whole numbers k from 1 on with probabilities like p ** k / k."""

def multinomial(
    n: Any, pvals: Any, size: Any = None, device: Any = None, ctx: Any = None
) -> ndarray:
    """Draw how often each outcome occurs in n trials: rows of whole numbers with sum n."""

def multivariate_normal(
    mean: Any,
    cov: Any,
    size: Any = None,
    check_valid: str = "warn",
    tol: float = 1e-08,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
) -> ndarray:
    """Vectors of normally distributed numbers with this mean and covariance."""

def negative_binomial(
    n: Any,
    p: Any,
    size: Any = None,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
    out: Any = None,
) -> ndarray:
    """How many trials fail until n have succeeded, each with probability p."""

def normal(
    loc: Any = 0.0,
    scale: Any = 1.0,
    size: Any = None,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
    out: Any = None,
) -> ndarray:
    """Normally distributed numbers with mean `loc` and standard deviation `scale`."""

def pareto(
    a: Any,
    size: Any = None,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
    out: Any = None,
) -> ndarray:
    """Numbers with the density a / (1 + x) ** (a + 1): Lomax's, or Pareto's second kind."""

def permutation(x: Any) -> ndarray:
    """The numbers 0 to x - 1 in random order, or an array's rows in random order."""

def poisson(
    lam: Any = 1.0,
    size: Any = None,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
    out: Any = None,
) -> ndarray:
    """How many events there are where `lam` are expected."""

def power(
    a: Any,
    size: Any = None,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
    out: Any = None,
) -> ndarray:
    """Numbers in [0, 1] with the density a * x ** (a - 1)."""

def rand(*shape: int, dtype: Any = None, device: Any = None, ctx: Any = None) -> ndarray:
    """Numbers spread evenly over [0, 1), in the shape given."""

def randint(
    low: Any,
    high: Any = None,
    size: Any = None,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
    out: Any = None,
) -> ndarray:
    """Whole numbers from low (0 when only one bound is given) up to and without high."""

def randn(*shape: int, dtype: Any = None, device: Any = None, ctx: Any = None) -> ndarray:
    """Standard normal numbers, in the shape given."""

def random(
    size: Any = None, dtype: Any = None, device: Any = None, ctx: Any = None, out: Any = None
) -> ndarray:
    """Numbers spread evenly over [0, 1)."""

def random_sample(
    size: Any = None, dtype: Any = None, device: Any = None, ctx: Any = None, out: Any = None
) -> ndarray:
    """The same as `random`."""

def rayleigh(
    scale: Any = 1.0,
    size: Any = None,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
    out: Any = None,
) -> ndarray:
    """Lengths of vectors of two normally distributed numbers of deviation `scale`."""

def seed(seed: int | None = None, device: Any = "all", ctx: Any = "all") -> None:
    """Restart the stream: the same seed and the same calls give the same numbers."""

def set_state(state: Any) -> None:
    """Restore the stream to a state returned by `get_state`."""

def shuffle(x: Any) -> None:
    """Put an array's rows, or a list, in random order, in place."""

def standard_cauchy(
    size: Any = None, dtype: Any = None, device: Any = None, ctx: Any = None, out: Any = None
) -> ndarray:
    """Quotients of two standard normal numbers."""

def standard_exponential(
    size: Any = None, dtype: Any = None, device: Any = None, ctx: Any = None, out: Any = None
) -> ndarray:
    """Exponentially distributed numbers of mean 1."""

def standard_gamma(
    shape: Any,
    size: Any = None,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
    out: Any = None,
) -> ndarray:
    """Gamma distributed numbers of scale 1."""

def standard_normal(
    size: Any = None, dtype: Any = None, device: Any = None, ctx: Any = None, out: Any = None
) -> ndarray:
    """Normally distributed numbers of mean 0 and deviation 1."""

def standard_t(
    df: Any,
    size: Any = None,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
    out: Any = None,
) -> ndarray:
    """Student's distribution with df degrees of freedom."""

def triangular(
    left: Any,
    mode: Any,
    right: Any,
    size: Any = None,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
    out: Any = None,
) -> ndarray:
    """Numbers in [left, right] whose density rises to `mode` and falls behind it."""

def uniform(
    low: Any = 0.0,
    high: Any = 1.0,
    size: Any = None,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
    out: Any = None,
) -> ndarray:
    """Numbers spread evenly over [low, high)."""

def vonmises(
    mu: Any,
    kappa: Any,
    size: Any = None,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
    out: Any = None,
) -> ndarray:
    """Angles around mu with a density like exp(kappa * cos(x - mu))."""

def wald(
    mean: Any,
    scale: Any,
    size: Any = None,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
    out: Any = None,
) -> ndarray:
    """When a walk with drift reaches a place first: the inverse Gaussian distribution."""

def weibull(
    a: Any,
    size: Any = None,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
    out: Any = None,
) -> ndarray:
    """Numbers with the distribution function 1 - exp(-x ** a)."""

def zipf(
    a: Any,
    size: Any = None,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
    out: Any = None,
) -> ndarray:
    """Whole numbers k from 1 on with probabilities like k ** -a, for a above 1."""

__all__ = [
    "Generator",
    "RandomState",
    "beta",
    "binomial",
    "cauchy",
    "chisquare",
    "choice",
    "default_rng",
    "dirichlet",
    "exponential",
    "f",
    "gamma",
    "geometric",
    "get_state",
    "gumbel",
    "hypergeometric",
    "initialization",
    "laplace",
    "logistic",
    "lognormal",
    "logseries",
    "multinomial",
    "multivariate_normal",
    "negative_binomial",
    "normal",
    "pareto",
    "permutation",
    "poisson",
    "power",
    "rand",
    "randint",
    "randn",
    "random",
    "random_sample",
    "rayleigh",
    "seed",
    "set_state",
    "shuffle",
    "standard_cauchy",
    "standard_exponential",
    "standard_gamma",
    "standard_normal",
    "standard_t",
    "triangular",
    "uniform",
    "vonmises",
    "wald",
    "weibull",
    "zipf",
]

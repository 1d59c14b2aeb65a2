"""Distributions, drawn by inverting the distribution function, from others, or by NumPy.

Those composed of uniform and normal numbers are compiled with the surrounding program and have
gradients for their parameters. NumPy draws the others, with a key from the random stream.
"""

from __future__ import annotations

from typing import Any

from gemel.device import beside
from gemel.dtype import as_dtype, default_float, float64, int64, uint32, uint64
from gemel.errors import ArgumentError, ShapeError
from gemel.extent import NUMBER
from gemel.ir.declare import elementwise, op
from gemel.ir.philox import FIRST, GOLDEN, SECOND
from gemel.ir.public import Array, function
from gemel.ir.reference import numpy
from gemel.ops.distribution import (
    Draw,
    distribution,
    held,
    numbers_only,
    shape_of,
)
from gemel.ops.elementwise import (
    cast,
    ceil,
    exp,
    expm1,
    filled,
    log,
    log1p,
    maximum,
    sign,
    sqrt,
    where,
)
from gemel.ops.neural import softmax
from gemel.ops.random import bits, deviate, drawn, floating, required, uniform
from gemel.ops.reduction import in_dtype
from gemel.ops.shape import operand
from gemel.ops.trigonometry import tan
from gemel.spec import Spec, extents

# --- by the inverse of the distribution function --------------------------------------------


@distribution()
def standard_normal(draw: Draw) -> Any:
    """Normally distributed numbers of mean 0 and deviation 1.

    >>> np.random.standard_normal((2, 2)).shape
    """
    return draw.normal()


@distribution()
def random(draw: Draw) -> Any:
    """Numbers spread evenly over [0, 1).

    >>> np.random.random((2, 2)).shape
    """
    return drawn(uniform, 0.0, 1.0, shape=draw.shape, dtype=draw.wanted)


@distribution()
def random_sample(draw: Draw) -> Any:
    """The same as `random`.

    >>> np.random.random_sample((2, 2)).shape
    """
    return random.body(draw)


@distribution(sigma="not negative")
def lognormal(draw: Draw, mean: Any = 0.0, sigma: Any = 1.0) -> Any:
    """Numbers whose logarithms are normally distributed with this mean and deviation.

    >>> np.random.lognormal(0, 0.5, size=(2, 2)).shape
    """
    return exp(mean + sigma * draw.normal())


@distribution(scale="not negative")
def exponential(draw: Draw, scale: Any = 1.0) -> Any:
    """Exponentially distributed numbers of mean `scale`: -scale * log(u).

    >>> np.random.exponential(2.0, size=(2, 2)).shape
    """
    return draw.waiting() * scale


@distribution()
def standard_exponential(draw: Draw) -> Any:
    """Exponentially distributed numbers of mean 1.

    >>> np.random.standard_exponential((2, 2)).shape
    """
    return draw.waiting()


@distribution(scale="not negative")
def laplace(draw: Draw, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """Numbers with the density exp(-abs(x - loc) / scale) / (2 * scale).

    >>> np.random.laplace(size=(2, 2)).shape
    """
    side = draw.signed()
    return loc - scale * (sign(side) * log1p(-abs(side)))


@distribution(scale="not negative")
def logistic(draw: Draw, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """Numbers with the distribution function 1 / (1 + exp(-(x - loc) / scale)).

    >>> np.random.logistic(size=(2, 2)).shape
    """
    side = draw.signed()
    return loc + scale * (log1p(side) - log1p(-side))


@distribution(scale="not negative")
def gumbel(draw: Draw, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """Numbers with the distribution function exp(-exp(-(x - loc) / scale)).

    >>> np.random.gumbel(size=(2, 2)).shape
    """
    return loc - scale * log(draw.waiting())


@distribution(scale="not negative")
def rayleigh(draw: Draw, scale: Any = 1.0) -> Any:
    """Lengths of vectors of two normally distributed numbers of deviation `scale`.

    >>> np.random.rayleigh(size=(2, 2)).shape
    """
    return scale * sqrt(2.0 * draw.waiting())


@distribution(a="positive")
def weibull(draw: Draw, a: Any) -> Any:
    """Numbers with the distribution function 1 - exp(-x ** a).

    >>> np.random.weibull(2.0, size=(2, 2)).shape
    """
    return exp(log(draw.waiting()) / a)


@distribution(a="positive")
def pareto(draw: Draw, a: Any) -> Any:
    """Numbers with the density a / (1 + x) ** (a + 1): Lomax's, or Pareto's second kind.

    >>> np.random.pareto(3.0, size=(2, 2)).shape
    """
    return expm1(draw.waiting() / a)


@distribution(a="positive")
def power(draw: Draw, a: Any) -> Any:
    """Numbers in [0, 1] with the density a * x ** (a - 1).

    >>> np.random.power(2.0, size=(2, 2)).shape
    """
    return exp(log(draw.positive()) / a)


@distribution()
def standard_cauchy(draw: Draw) -> Any:
    """Quotients of two standard normal numbers.

    >>> np.random.standard_cauchy((2, 2)).shape
    """
    return tan(draw.signed() * 1.5707963267948966)


@distribution(scale="not negative")
def cauchy(draw: Draw, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """Numbers with the density 1 / (pi * scale * (1 + ((x - loc) / scale) ** 2)).

    >>> np.random.cauchy(size=(2, 2)).shape
    """
    return loc + scale * tan(draw.signed() * 1.5707963267948966)


@distribution()
def triangular(draw: Draw, left: Any, mode: Any, right: Any) -> Any:
    """Numbers in [left, right] whose density rises to `mode` and falls behind it.

    >>> np.random.triangular(0, 1, 4, size=(2, 2)).shape
    """
    ordered = (left <= mode) & (mode <= right) & (left < right)
    message = "triangular: left must be below right, and mode between them"
    if numbers_only(left, mode, right):
        if not ordered:
            raise ArgumentError(f"{message}, not {left}, {mode} and {right}")
    else:
        left = required(left + 0.0 * ordered, ordered, message=message)
    width, rise, u = right - left, mode - left, draw.uniform()
    falling = right - sqrt((1.0 - u) * width * (right - mode))
    return where(u * width < rise, left + sqrt(u * width * rise), falling)


@distribution(dtype=int64, kinds="iuf", p="chance")
def geometric(draw: Draw, p: Any) -> Any:
    """How many trials it takes until one succeeds, each with probability p.

    >>> np.random.geometric(0.5, size=(2, 2)).shape
    """
    p = cast(p, dtype=float64) if not isinstance(p, NUMBER) else p
    return maximum(ceil(-draw.waiting() / log1p(-_below_one(p))), 1.0)


def _below_one(p: Any) -> Any:
    """p, but for 1 the next smaller number, so that the logarithm of 1 - p is finite."""
    return min(p, 1 - 2.0**-53) if numbers_only(p) else where(p >= 1, 1 - 2.0**-53, p)


@distribution(public="npx.random", kinds="iuf", prob="probability")
def bernoulli(draw: Draw, prob: Any = None, logit: Any = None) -> Any:
    """1 with probability `prob`, or 1 / (1 + exp(-logit)), else 0.

    >>> npx.random.bernoulli(0.5, size=(2, 2)).shape
    """
    if (prob is None) == (logit is None):
        raise ArgumentError("bernoulli: give either prob or logit")
    if prob is not None:
        return draw.uniform() < prob
    side = draw.signed()
    return log1p(side) - log1p(-side) < logit


# --- the gamma family -----------------------------------------------------------------------

#: Rejection rounds. At most one number in 10**7 is still rejected after them; it is used anyway.
TRIES = 6


@elementwise(dtype=floating, random=True)
def log_gamma(
    xp: Any,
    alpha: Any,
    seed: Any = None,
    number: Any = None,
    *,
    shape: Any,
    dtype: Any = "float32",
    call: Any = None,
) -> Any:
    """Logarithms of gamma distributed numbers of shape alpha and scale 1.

    Marsaglia and Tsang, A simple method for generating gamma variables, 2000. The random bits of
    each element come from SplitMix64 (Steele, Lea, Flood 2014), seeded with its own 64 bits.
    """
    compute = alpha.dtype
    first, second = bits(xp, seed, number)
    state = (xp.cast(first, uint64) << 32) | xp.cast(second, uint64)

    def more(state: Any) -> tuple[Any, Any]:
        z = (state ^ (state >> 30)) * FIRST
        z = (z ^ (z >> 27)) * SECOND
        z = z ^ (z >> 31)
        return xp.cast(z >> 32, uint32), xp.cast(z, uint32)

    def open_fraction(random: Any) -> Any:
        return (xp.cast(random[0] >> 8, compute) + 0.5) * 2.0**-24

    d = xp.where(alpha < 1, alpha + 1, alpha) - 1 / 3
    c = 1 / xp.sqrt(9 * d)
    found, done = None, None
    for _ in range(TRIES):
        state = state + GOLDEN
        normal = deviate(xp, more(state), compute)
        state = state + GOLDEN
        root = 1 + c * normal
        v = xp.maximum(root * root * root, 1e-30)
        limit = 0.5 * normal * normal + d * (1 - v + xp.log(v))
        taken = (root > 0) & (xp.log(open_fraction(more(state))) < limit)
        found = v if found is None else xp.where(done, found, v)
        done = taken if done is None else (done | taken)
    # For alpha below 1, take a number of shape alpha + 1 times u ** (1 / alpha).
    less = xp.log(open_fraction(more(state + GOLDEN)))
    return xp.log(d * found) + xp.where(alpha < 1, less / alpha, 0)


@log_gamma.spec
def _(alpha: Spec, *_: Spec, shape: Any, dtype: Any, call: Any = None) -> Spec:
    return filled("gamma", Spec(extents("gamma", shape), dtype), alpha)


@log_gamma.gradient
def _(g: Any, y: Any, alpha: Any, *stream: Any, **_: Any) -> Any:
    return g * cast(gamma_slope(y, alpha), dtype=y.dtype), *[None] * len(stream)


@op()
def gamma_slope(y: Any, alpha: Any) -> Any:
    """The derivative of y, the logarithm of a gamma distributed number, with respect to alpha.

    The distribution function P of a sample stays constant: dP/dy * dy/dalpha + dP/dalpha = 0
    (Figurnov, Mohamed, Mnih: Implicit reparameterization gradients, NeurIPS 2018). P is computed
    as x ** alpha * exp(-x) * sum of x ** n / gamma(alpha + n + 1).
    """
    np = numpy()
    y, alpha = np.broadcast_arrays(np.asarray(y, "float64"), np.asarray(alpha, "float64"))
    x = np.exp(y)
    slope = -_digamma_of(alpha + 1)
    with np.errstate(all="ignore"):
        term, total = 1 / alpha, np.zeros_like(x)  # without x**alpha exp(-x) / gamma(alpha)
        for n in range(1, 100_000):
            added = term * (y + slope)
            total = total + added
            if n > 8 and (abs(added) <= 1e-16 * abs(total)).all() and (alpha + n > x).all():
                break
            term, slope = term * x / (alpha + n), slope - 1 / (alpha + n)
    return -total


def _digamma_of(x: Any) -> Any:
    """The derivative of the logarithm of the gamma function, for numbers above 0."""
    np = numpy()
    less = np.zeros_like(x)
    for _ in range(8):
        less, x = less + 1 / x, x + 1
    square = 1 / (x * x)
    series = square * (1 / 12 - square * (1 / 120 - square * (1 / 252 - square / 240)))
    return np.log(x) - 0.5 / x - series - less


@gamma_slope.spec
def _(y: Spec, alpha: Spec) -> Spec:
    return Spec(y.shape, float64)


def log_gammas(draw: Draw, alpha: Any) -> Any:
    """Logarithms of gamma distributed numbers, in the dtype the draw computes in."""
    return drawn(log_gamma, alpha, shape=draw.shape, dtype=draw.dtype)


@distribution(shape="positive", scale="not negative")
def gamma(draw: Draw, shape: Any, scale: Any = 1.0) -> Any:
    """Numbers with a density like x ** (shape - 1) * exp(-x / scale).

    A gradient goes to the scale, and to the shape: implicitly (Figurnov et al., NeurIPS 2018).

    >>> np.random.gamma(2.0, 3.0, size=(2, 2)).shape
    """
    return exp(log_gammas(draw, shape)) * scale


@distribution(shape="positive")
def standard_gamma(draw: Draw, shape: Any) -> Any:
    """Gamma distributed numbers of scale 1.

    >>> np.random.standard_gamma(2.0, size=(2, 2)).shape
    """
    return exp(log_gammas(draw, shape))


@distribution(df="positive")
def chisquare(draw: Draw, df: Any) -> Any:
    """Sums of the squares of df standard normal numbers.

    >>> np.random.chisquare(3, size=(2, 2)).shape
    """
    return exp(log_gammas(draw, df * 0.5)) * 2.0


@distribution(a="positive", b="positive")
def beta(draw: Draw, a: Any, b: Any) -> Any:
    """Numbers in [0, 1] with a density like x ** (a - 1) * (1 - x) ** (b - 1).

    >>> np.random.beta(2.0, 3.0, size=(2, 2)).shape
    """
    return 1.0 / (1.0 + exp(log_gammas(draw, b) - log_gammas(draw, a)))


@distribution(dfnum="positive", dfden="positive")
def f(draw: Draw, dfnum: Any, dfden: Any) -> Any:
    """Quotients of two mean squares, of dfnum and dfden standard normal numbers.

    >>> np.random.f(3, 8, size=(2, 2)).shape
    """
    above, below = log_gammas(draw, dfnum * 0.5), log_gammas(draw, dfden * 0.5)
    return exp(above - below) * (dfden / dfnum)


@distribution(df="positive")
def standard_t(draw: Draw, df: Any) -> Any:
    """Student's distribution with df degrees of freedom.

    >>> np.random.standard_t(5, size=(2, 2)).shape
    """
    half = df * 0.5
    return draw.normal() * exp(-0.5 * log_gammas(draw, half)) * (half**0.5)


@function(public="np.random")
def dirichlet(alpha: Any, size: Any = None, dtype: Any = None, device: Any = None) -> Array:
    """Rows of numbers from 0 to 1 whose sum is 1, with density like prod(x ** (alpha - 1)).

    >>> np.random.dirichlet(np.array([1.0, 2.0, 3.0]), size=4).shape
    """
    alpha = held("dirichlet", "alpha", operand(alpha), "positive")
    if not alpha.ndim:
        raise ShapeError("dirichlet: alpha must have an axis, along which the numbers sum to 1")
    lead = shape_of("dirichlet", size) if size is not None else tuple(alpha.shape[:-1])
    dtype = as_dtype(dtype or default_float())
    with beside(device, (alpha,)):
        draw = Draw((*lead, alpha.shape[-1]), dtype)
        return in_dtype(softmax(log_gammas(draw, alpha)), dtype)

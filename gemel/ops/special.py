"""The gamma function and its relatives, and the inverse of the error function."""

from __future__ import annotations

from math import factorial
from typing import Any

from gemel.dtype import float64
from gemel.ir.declare import elementwise
from gemel.ops.elementwise import exp, square
from gemel.ops.trigonometry import polynomial

#: How far arguments are shifted up before the series in 1 / x are used.
STEPS = 8
HALF_LOG_TAU = 0.9189385332046727
PI = 3.141592653589793


def _stirling(xp: Any, x: Any) -> Any:
    """The logarithm of gamma(x) for x of 8 or more (Abramowitz and Stegun 6.1.41)."""
    inverse = 1 / x
    series = polynomial(
        inverse * inverse,
        (-691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12),
    )
    return (x - 0.5) * xp.log(x) - x + HALF_LOG_TAU + series * inverse


def _rising(x: Any) -> Any:
    """x * (x + 1) * ... * (x + 7)."""
    found = x
    for step in range(1, STEPS):
        found = found * (x + step)
    return found


def _sine(xp: Any, x: Any) -> Any:
    """The sine of pi * x, which is exactly 0 at whole numbers."""
    part = x - 2 * xp.floor(x * 0.5)  # from 0 to 2
    near = xp.where(part > 1, part - 1, part)
    found = xp.sin(PI * xp.where(near > 0.5, 1 - near, near))
    return xp.where(part > 1, -found, found)


@elementwise(dtype="floating", public="npx", mxnet="_npx_gammaln")
def gammaln(xp: Any, x: Any) -> Any:
    """The logarithm of abs(gamma(x)); inf at 0 and the whole numbers below.

    Computed in float64: next to 1 and 2, where it is 0, the digits of two logarithms cancel.
    """
    given, x = x.dtype, xp.cast(x, float64)
    positive = xp.where(x < 0.5, 1 - x, x)
    small = positive < STEPS
    moved = xp.where(small, positive + STEPS, positive)
    found = _stirling(xp, moved) - xp.log(xp.where(small, _rising(positive), 1))
    found = xp.where(positive == xp.inf, xp.inf, found)
    mirrored = 1.1447298858494002 - xp.log(xp.absolute(_sine(xp, x))) - found
    return xp.cast(xp.where(x < 0.5, mirrored, found), given)


@gammaln.gradient
def _(g: Any, y: Any, x: Any) -> Any:
    return (g * digamma(x),)


@elementwise(dtype="floating", public="npx", mxnet="_npx_gamma")
def gamma(xp: Any, x: Any) -> Any:
    """The gamma function: (x - 1)! for whole numbers; NaN at 0 and those below.

    >>> npx.gamma(np.array([0.5, 1.0, 5.0]))
    """
    positive = xp.where(x < 0.5, 1 - x, x)
    small = positive < STEPS
    moved = xp.where(small, positive + STEPS, positive)
    found = xp.exp(_stirling(xp, moved)) / xp.where(small, _rising(positive), 1)
    found = xp.where(positive == xp.inf, xp.inf, found)
    sine = _sine(xp, x)
    mirrored = PI / (xp.where(sine == 0, xp.nan, sine) * found)
    return xp.where(x < 0.5, mirrored, found)


@gamma.gradient
def _(g: Any, y: Any, x: Any) -> Any:
    return (g * y * digamma(x),)


@elementwise(dtype="floating", public="npx", mxnet="_npx_digamma")
def digamma(xp: Any, x: Any) -> Any:
    """The derivative of `gammaln`; NaN at 0 and the whole numbers below."""
    positive = xp.where(x < 0.5, 1 - x, x)
    less: Any = 0
    for step in range(STEPS):
        less = less + 1 / (positive + step)
    inverse = 1 / (positive + STEPS)
    far = inverse * inverse
    series = polynomial(far, (-691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12)) * far
    found = xp.log(positive + STEPS) - 0.5 * inverse - series - less
    sine = _sine(xp, x)
    turned = PI * _sine(xp, x + 0.5) / xp.where(sine == 0, xp.nan, sine)
    return xp.where(x < 0.5, found - turned, found)


@digamma.gradient
def _(g: Any, y: Any, x: Any) -> Any:
    return (g * polygamma(x),)


#: The even Bernoulli numbers from the second on.
BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730)


@elementwise(dtype="floating")
def polygamma(xp: Any, x: Any, *, order: int = 1) -> Any:
    """The derivative of `digamma` of that order, from 1 on (Abramowitz and Stegun 6.4)."""
    positive = xp.where(x < 0.5, 1 - x, x)
    steps = STEPS + 2 * (order - 1)  # the series below grow with the order
    more: Any = 0
    for step in range(steps):
        more = more + (1 / (positive + step)) ** (order + 1)
    inverse = 1 / (positive + steps)
    far = inverse * inverse
    terms = [
        number * factorial(2 * k + order - 1) / factorial(2 * k)
        for k, number in enumerate(BERNOULLI, 1)
    ]
    series = polynomial(far, tuple(reversed(terms))) * far
    series = factorial(order - 1) + 0.5 * factorial(order) * inverse + series
    found = factorial(order) * more + series * inverse**order
    sine = _sine(xp, x)
    cotangent = _sine(xp, x + 0.5) / xp.where(sine == 0, xp.nan, sine)
    turned = polynomial(cotangent, _of_cotangent(order)) * PI ** (order + 1)
    sign = (-1) ** (order + 1)
    return xp.where(x < 0.5, sign * turned - found, sign * found)


def _of_cotangent(order: int) -> tuple[float, ...]:
    """The polynomial of cot(x) that is its derivative of that order, without (-1)^order."""
    powers = [0, 1]
    for _ in range(order):
        slope = [power * number for power, number in enumerate(powers)][1:]
        padded = [*slope, 0, 0]
        powers = [a + b for a, b in zip(padded, [0, 0, *slope], strict=True)]
    return tuple(reversed(powers))


@polygamma.gradient
def _(g: Any, y: Any, x: Any, order: int = 1) -> Any:
    return (g * polygamma(x, order=order + 1),)


#: Numerators and denominators, highest power first: for the middle, nearer the ends, the ends.
#: Wichura, Algorithm AS 241: The percentage points of the normal distribution (1988).
QUANTILES = (
    (
        (2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4,
         4.5921953931549871457e4, 1.3731693765509461125e4, 1.9715909503065514427e3,
         1.3314166789178437745e2, 3.3871328727963666080),
        (5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4,
         2.1213794301586595867e4, 5.3941960214247511077e3, 6.8718700749205790830e2,
         4.2313330701600911252e1, 1.0),
    ),
    (
        (7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1,
         1.27045825245236838258, 3.64784832476320460504, 5.76949722146069140550,
         4.63033784615654529590, 1.42343711074968357734),
        (1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2,
         1.48103976427480074590e-1, 6.89767334985100004550e-1, 1.67638483018380384940,
         2.05319162663775882187, 1.0),
    ),
    (
        (2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3,
         2.65321895265761230930e-2, 2.96560571828504891230e-1, 1.78482653991729133580,
         5.46378491116411436990, 6.65790464350110377720),
        (2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5,
         7.86869131145613259100e-4, 1.48753612908506148525e-2, 1.36929880922735805310e-1,
         5.99832206555887937690e-1, 1.0),
    ),
)  # fmt: skip


@elementwise(dtype="floating", public="npx", mxnet="_npx_erfinv")
def erfinv(xp: Any, x: Any) -> Any:
    """The inverse of `erf`: inf at 1, -inf at -1, NaN beyond.

    >>> npx.erfinv(np.array([-0.5, 0.0, 0.9]))
    """
    size = xp.absolute(x)
    known = xp.where(size < 1, size, 0)
    middle, towards, ends = QUANTILES
    q = known * 0.5
    r = xp.where(q < 0.425, 0.180625 - q * q, 0)
    inner = q * polynomial(r, middle[0]) / polynomial(r, middle[1])
    r = xp.sqrt(-xp.log((1 - known) * 0.5))
    near, far = xp.minimum(r, 5) - 1.6, xp.maximum(r, 5) - 5
    outer = xp.where(
        r < 5,
        polynomial(near, towards[0]) / polynomial(near, towards[1]),
        polynomial(far, ends[0]) / polynomial(far, ends[1]),
    )
    y = xp.where(q < 0.425, inner, outer) * 0.7071067811865476
    y = xp.where(size < 1, y, xp.where(size == 1, xp.inf, xp.nan))
    return xp.where(x < 0, -y, y)


@erfinv.gradient
def _(g: Any, y: Any, x: Any) -> Any:
    return (g * exp(square(y)) * 0.886226925452758,)

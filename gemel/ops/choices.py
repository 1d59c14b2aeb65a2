"""Random whole numbers, vectors, orders and choices.

NumPy draws from the distributions whose inverse takes many steps. Its key comes from gemel's
random stream, so the seed determines these numbers, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from operator import index
from typing import Any

from gemel.device import beside
from gemel.dtype import as_dtype, float32, float64, int64
from gemel.errors import ArgumentError, DTypeError, OperandError, ShapeError
from gemel.extent import NUMBER, WHOLE
from gemel.ir.declare import op
from gemel.ir.public import Array, function, publish
from gemel.ir.reference import numpy
from gemel.ops.cumulative import cumsum
from gemel.ops.distribution import (
    Distribution,
    Draw,
    check_bounds,
    delivered,
    distribution,
    dtype_for,
    held,
    normally,
    shape_of,
    size_for,
    uniformly,
)
from gemel.ops.elementwise import (
    cast,
    divide,
    log,
    maximum,
)
from gemel.ops.indexing import gather
from gemel.ops.random import drawn, randint, required, seed
from gemel.ops.reduction import argmax, sum
from gemel.ops.selection import take_along_axis
from gemel.ops.shape import expand_dims, operand, reshape
from gemel.ops.solving import cholesky
from gemel.ops.sorting import argsort, searchsorted
from gemel.spec import Spec, extents, is_several, normalize_axis, product
from gemel.spec import whole as whole_number

# --- distributions drawn by NumPy -----------------------------------------------------------


@contextmanager
def _named(kind: str) -> Iterator[None]:
    """Errors of NumPy's generator as those of the distribution."""
    try:
        yield
    except ValueError as error:
        raise ArgumentError(f"{kind}: {error}") from None
    except TypeError as error:
        raise DTypeError(f"{kind}: {error}") from None


@op(fails=True)
def by_numpy(key: Any, *parameters: Any, kind: str, shape: Any, dtype: Any) -> Any:
    """Numbers drawn by NumPy from its distribution `kind`, with two random words as the key."""
    np = numpy()
    generator = np.random.Generator(np.random.Philox(key=key.astype("uint64")))
    with _named(kind):
        found = getattr(generator, kind)(*parameters, size=tuple(map(int, shape)))
    return np.asarray(found).astype(as_dtype(dtype).twin.name)


@by_numpy.spec
def _(key: Spec, *parameters: Spec, kind: str, shape: Any, dtype: Any) -> Spec:
    return Spec(extents(kind, shape), dtype)


def numpys(draw: Draw, kind: str, *parameters: Any) -> Any:
    """Numbers drawn by NumPy, from a key of the stream."""
    key = drawn(randint, 0, 2**63 - 1, shape=(2,), dtype=int64)
    return by_numpy(key, *parameters, kind=kind, shape=draw.shape, dtype=draw.wanted)


@distribution(dtype=int64, kinds="iuf", lam="not negative")
def poisson(draw: Draw, lam: Any = 1.0) -> Any:
    """How many events there are where `lam` are expected.

    >>> np.random.poisson(3.0, size=(2, 2)).shape
    """
    return numpys(draw, "poisson", lam)


@distribution(dtype=int64, kinds="iuf", n="not negative", p="probability")
def binomial(draw: Draw, n: Any, p: Any) -> Any:
    """How many of n trials succeed, each with probability p.

    >>> np.random.binomial(10, 0.5, size=(2, 2)).shape
    """
    return numpys(draw, "binomial", n if isinstance(n, NUMBER) else cast(n, dtype=int64), p)


@distribution(dtype=int64, kinds="iuf", n="positive", p="chance")
def negative_binomial(draw: Draw, n: Any, p: Any) -> Any:
    """How many trials fail until n have succeeded, each with probability p.

    >>> np.random.negative_binomial(3, 0.5, size=(2, 2)).shape
    """
    return numpys(draw, "negative_binomial", n, p)


@distribution(
    dtype=int64, kinds="iuf", ngood="not negative", nbad="not negative", nsample="not negative"
)
def hypergeometric(draw: Draw, ngood: Any, nbad: Any, nsample: Any) -> Any:
    """How many good ones are among nsample taken from ngood and nbad.

    >>> np.random.hypergeometric(5, 5, 3, size=(2, 2)).shape
    """
    return numpys(draw, "hypergeometric", ngood, nbad, nsample)


@distribution(dtype=int64, kinds="iuf", p="probability")
def logseries(draw: Draw, p: Any) -> Any:
    """Whole numbers k from 1 on with probabilities like p ** k / k.

    >>> np.random.logseries(0.5, size=(2, 2)).shape
    """
    return numpys(draw, "logseries", p)


@distribution(dtype=int64, kinds="iuf", a="positive")
def zipf(draw: Draw, a: Any) -> Any:
    """Whole numbers k from 1 on with probabilities like k ** -a, for a above 1.

    >>> np.random.zipf(2.0, size=(2, 2)).shape
    """
    return numpys(draw, "zipf", a)


@distribution(kappa="not negative")
def vonmises(draw: Draw, mu: Any, kappa: Any) -> Any:
    """Angles around mu with a density like exp(kappa * cos(x - mu)).

    >>> np.random.vonmises(0.0, 4.0, size=(2, 2)).shape
    """
    return numpys(draw, "vonmises", mu, kappa)


@distribution(mean="positive", scale="positive")
def wald(draw: Draw, mean: Any, scale: Any) -> Any:
    """When a walk with drift reaches a place first: the inverse Gaussian distribution.

    >>> np.random.wald(1.0, 2.0, size=(2, 2)).shape
    """
    return numpys(draw, "wald", mean, scale)


@function(public="np.random")
def multinomial(n: Any, pvals: Any, size: Any = None, device: Any = None, ctx: Any = None) -> Array:
    """Draw how often each outcome occurs in n trials: rows of whole numbers with sum n.

    Raises `ValueError` when probabilities are negative or their sum is above 1: when the result is
    waited for. What the sum lacks to 1 goes to the last one, whatever is given for it.

    >>> np.random.multinomial(10, np.array([0.2, 0.3, 0.5]), size=4).shape
    """
    with beside(device or ctx, (pvals, n)):
        pvals = cast(operand(pvals), dtype=float64)
        if not pvals.ndim:
            raise ShapeError("multinomial: pvals must be rows of probabilities")
        # The tolerance allows for rounding in float32.
        inside = (pvals >= 0).all() & (sum(pvals, axis=-1) <= 1 + 1e-6).all()
        message = "multinomial: pvals must be 0 or more, and their sum at most 1"
        pvals = required(pvals, inside, message=message)
        pvals = pvals / maximum(sum(pvals, axis=-1, keepdims=True), 1.0)
        lead = shape_of("multinomial", size, [n]) if size is not None else tuple(pvals.shape[:-1])
        draw = Draw((*lead, pvals.shape[-1]), int64)
        key = drawn(randint, 0, 2**63 - 1, shape=(2,), dtype=int64)
        return outcomes(key, n if isinstance(n, NUMBER) else operand(n), pvals, shape=draw.shape)


@op(fails=True)
def outcomes(key: Any, n: Any, pvals: Any, *, shape: Any) -> Any:
    """How often each outcome occurs, drawn by NumPy."""
    np = numpy()
    generator = np.random.Generator(np.random.Philox(key=key.astype("uint64")))
    with _named("multinomial"):
        return generator.multinomial(n, pvals, size=tuple(map(int, shape[:-1])))


@outcomes.spec
def _(key: Spec, n: Spec, pvals: Spec, *, shape: Any) -> Spec:
    return Spec(extents("multinomial", shape), int64)


# --- vectors, permutations and choices ------------------------------------------------------


@function(public="np.random")
def multivariate_normal(
    mean: Any,
    cov: Any,
    size: Any = None,
    check_valid: str = "warn",
    tol: float = 1e-8,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
) -> Array:
    """Vectors of normally distributed numbers with this mean and covariance.

    The covariance must be positive definite, as Cholesky's decomposition asks: what is not gives
    NaN, or a `ValueError`. A gradient goes to both. mean (..., n) and cov (..., n, n) broadcast;
    `size` stands before their axes. `check_valid` and `tol` change nothing.

    >>> np.random.multivariate_normal(np.zeros(2), np.eye(2), size=3).shape
    """
    with beside(device or ctx, (mean, cov)):
        mean, cov = operand(mean), operand(cov)
        if mean.ndim < 1 or cov.ndim < 2 or not cov.shape[-1] == cov.shape[-2] == mean.shape[-1]:
            raise ShapeError(
                f"multivariate_normal: mean {list(mean.shape)} must be (..., n) and cov "
                f"{list(cov.shape)} (..., n, n)"
            )
        wanted = as_dtype(dtype or mean.dtype.floating)
        rows = [reshape(x, shape=x.shape) for x in (mean, cov[..., 0])]
        batch = shape_of("multivariate_normal", None, rows)
        draw = Draw((*(shape_of("", size) if size is not None else ()), *batch), wanted)
        turned = cholesky(cast(cov, dtype=draw.dtype)) @ expand_dims(draw.normal(), -1)
        return cast(mean + turned[..., 0], dtype=wanted)


@function(public="np.random")
def permutation(x: Any) -> Array:
    """The numbers 0 to x - 1 in random order, or an array's rows in random order.

    >>> np.random.permutation(4).shape
    """
    if not is_several(x):
        count = whole_number("permutation", "the count", x)
        return argsort(uniformly(size=(count,), dtype=float64))
    x = operand(x)
    with beside(None, (x,)):
        return gather(x, argsort(uniformly(size=(x.shape[0],), dtype=float64)), axis=0)


@function(public="np.random")
def shuffle(x: Any) -> None:
    """Put an array's rows, or a list, in random order, in place.

    >>> np.random.shuffle(np.arange(4))
    """
    if isinstance(x, list):
        x[:] = [x[place] for place in permutation(len(x)).tolist()]
    elif not getattr(x, "ndim", 0):
        raise OperandError(f"shuffle: {x!r} must be an array with rows, or a list")
    else:
        x[...] = permutation(x)


def permuted(x: Any, axis: int | None = None) -> Any:
    """An array with its elements in random order: each row along an axis in one of its own."""
    x = operand(x)
    if axis is None:
        return reshape(permutation(reshape(x, shape=(-1,))), shape=x.shape)
    axis = normalize_axis("permuted", axis, x.ndim)
    with beside(None, (x,)):
        order = argsort(uniformly(size=x.shape, dtype=float64), axis=axis)
    return take_along_axis(x, order, axis=axis)


@function(public="np.random")
def choice(
    a: Any,
    size: Any = None,
    replace: bool = True,
    p: Any = None,
    device: Any = None,
    ctx: Any = None,
    out: Any = None,
    axis: int = 0,
) -> Array:
    """Choose from the numbers 0 to a - 1, or from an array's slices along an axis, with
    probabilities p.

    Without `replace` none occurs twice. Raises `ValueError` if there are too few or none to choose
    from; when the result is waited for, also for probabilities that are negative or do not sum to
    1.

    >>> np.random.choice(5, size=(2, 2)).shape
    """
    size = size_for("choice", size, out)
    with beside(device or ctx, (a, p, out)):
        if not isinstance(a, WHOLE) and hasattr(a, "__index__") and not getattr(a, "ndim", 1):
            a = index(a)  # NumPy's integers, and 0-d arrays
        whole = isinstance(a, WHOLE)
        a = a if whole else operand(a)
        if not whole and not a.ndim:
            raise OperandError(f"choice: {a} must be a whole number or an array with an axis")
        count = a if whole else a.shape[normalize_axis("choice", axis, a.ndim)]
        shape = shape_of("choice", size) if size is not None else ()
        many = product(shape)
        if many > 0 and not count > 0:
            raise ArgumentError("choice: there is nothing to choose from")
        dtype = dtype_for(None, out, int64, "iu")
        if whole and many > 0:
            check_bounds("choice", 0, count, dtype)
        if p is not None:
            p = _shares(operand(p), count)
        if not replace:
            if many > count:
                raise ArgumentError(f"choice: cannot choose {many} of {count} without replacement")
            if p is not None:
                message = f"choice: fewer than {many} probabilities are not 0"
                p = required(p, (p > 0).sum() >= many, message=message)
            chosen = reshape(_without_replacement(count, p)[:many], shape=shape)
        elif p is None:
            chosen = drawn(randint, 0, count, shape=shape, dtype=int64)
        else:
            chosen = _by_shares(p, shape)
        if whole:
            return delivered("choice", cast(chosen, dtype=dtype), out)
        found = gather(a, chosen, axis=normalize_axis("choice", axis, a.ndim))
        return delivered("choice", found, out)


def _shares(p: Any, count: Any) -> Any:
    """Probabilities in float64. Checks that they are 0 or more and that their sum is 1."""
    if p.ndim != 1 or not p.shape[0] == count:
        raise ShapeError(f"choice: p {list(p.shape)} must have one probability for each of {count}")
    # In narrow dtypes the sum deviates from 1 by rounding.
    near = 1e-8 if p.dtype is float64 else 1e-2 if p.dtype.itemsize == 2 else 1e-4
    wide = cast(p, dtype=float64)
    total = sum(wide, axis=0)
    message = "choice: the probabilities p must be 0 or more, and their sum 1"
    return required(wide, (wide >= 0).all() & (abs(total - 1) < near), message=message) / total


def _without_replacement(count: Any, p: Any) -> Any:
    """All positions in the order in which they are chosen; those of probability 0 are last.

    Each position waits an exponentially distributed time of rate p; the shortest comes first.
    """
    waiting = Draw((count,), float64).waiting()
    return argsort(waiting if p is None else divide(waiting, p))


def _by_shares(p: Any, shape: tuple[int, ...]) -> Any:
    """Positions with the probabilities p."""
    edges = cumsum(p, axis=0)
    u = uniformly(size=shape, dtype=float64) * edges[-1]
    # The last edge is left out, so that rounding cannot give a position past the end.
    return searchsorted(edges[:-1], u, side="right")


# --- npx.random -----------------------------------------------------------------------------

publish(seed, "seed", "npx.random")


def _batched(
    drawing: Distribution, parameters: tuple[Any, Any], batch_shape: Any, more: Any
) -> Any:
    found = [p if isinstance(p, NUMBER) else operand(p) for p in parameters]
    lead = shape_of(drawing.__name__, batch_shape) if batch_shape is not None else ()
    return drawing(*found, (*lead, *shape_of(drawing.__name__, None, found)), **more)


@function(public="npx.random")
def uniform_n(
    low: Any = 0.0,
    high: Any = 1.0,
    batch_shape: Any = None,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
) -> Array:
    """Uniform numbers in the shape batch_shape, followed by that of the bounds together.

    >>> npx.random.uniform_n(np.zeros(2), 1.0, batch_shape=(3,)).shape
    """
    more = {"dtype": dtype, "device": device or ctx}
    return _batched(uniformly, (low, high), batch_shape, more)


@function(public="npx.random")
def normal_n(
    loc: Any = 0.0,
    scale: Any = 1.0,
    batch_shape: Any = None,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
) -> Array:
    """Normal numbers in the shape batch_shape, followed by that of the parameters together.

    >>> npx.random.normal_n(np.zeros(2), 1.0, batch_shape=(3,)).shape
    """
    more = {"dtype": dtype, "device": device or ctx}
    return _batched(normally, (loc, scale), batch_shape, more)


@function(public="npx")
def categorical(prob: Any = None, logit: Any = None, size: Any = None, dtype: Any = None) -> Array:
    """Positions along the last axis, drawn with these probabilities or their logarithms.

    The result has the shape size, followed by that of the probabilities without the last axis. By
    Gumbel's trick: the largest of log(p) + noise.

    >>> npx.categorical(np.array([[0.0, 1.0], [1.0, 0.0]]))
    """
    if (prob is None) == (logit is None):
        raise ArgumentError("categorical: give either prob or logit")
    if prob is not None:
        logit = log(held("categorical", "prob", operand(prob), "probability"))
    lead = shape_of("categorical", size) if size is not None else ()
    logit = operand(logit)
    with beside(None, (logit,)):
        noise = log(Draw((*lead, *logit.shape), float32).waiting())
    return cast(argmax(logit - noise, axis=-1), dtype=dtype or int64)

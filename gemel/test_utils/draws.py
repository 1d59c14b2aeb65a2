"""Random values for tests, and tests of random generators."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy

from gemel import np
from gemel.errors import GemelError
from gemel.test_utils.compare import plain

# --- random values --------------------------------------------------------------------------


def rand_shape_nd(num_dim: int, dim: int = 10, allow_zero_size: bool = False) -> tuple[int, ...]:
    """A random shape with `num_dim` axes of at most `dim` each."""
    return tuple(random.randint(0 if allow_zero_size else 1, dim) for _ in range(num_dim))


def rand_shape_2d(dim0: int = 10, dim1: int = 10, allow_zero_size: bool = False) -> Any:
    """A shape of two axes."""
    return tuple(rand_shape_nd(1, dim, allow_zero_size)[0] for dim in (dim0, dim1))


def rand_shape_3d(
    dim0: int = 10, dim1: int = 10, dim2: int = 10, allow_zero_size: bool = False
) -> Any:
    """A shape of three axes."""
    return tuple(rand_shape_nd(1, dim, allow_zero_size)[0] for dim in (dim0, dim1, dim2))


def rand_coord_2d(x_low: int, x_high: int, y_low: int, y_high: int) -> tuple[int, int]:
    """A random point below the high ends."""
    return random.randrange(x_low, x_high), random.randrange(y_low, y_high)


def random_arrays(*shapes: Any) -> Any:
    """NumPy arrays of normal numbers; a number for (); without a list for a single shape."""
    found = [numpy.random.randn(*shape).astype("float32") if shape else float(numpy.random.randn())
             for shape in shapes]  # fmt: skip
    return found[0] if len(found) == 1 else found


def random_uniform_arrays(
    *shapes: Any, low: float = 0.0, high: float = 1.0, dtype: Any = "float32"
) -> list[Any]:
    """NumPy arrays of uniform numbers."""
    return [numpy.random.uniform(low, high, shape).astype(dtype) for shape in shapes]


def random_sample(population: Iterable[Any], k: int) -> list[Any]:
    """Some of the elements without repetition, in random order."""
    return random.sample(list(population), k)


def rand_ndarray(
    shape: Any,
    stype: str = "default",
    density: Any = None,
    dtype: Any = None,
    modifier_func: Any = None,
    shuffle_csr_indices: bool = False,
    distribution: Any = None,
    ctx: Any = None,
    device: Any = None,
) -> Any:
    """An array of normal numbers."""
    if stype != "default":
        raise GemelError(f"rand_ndarray: gemel has no sparse arrays, {stype!r}; use 'default'")
    values = numpy.random.normal(size=shape)
    if modifier_func is not None:
        values = assign_each(values, modifier_func)
    return np.array(values, dtype=dtype or "float32", device=device or ctx)


def assign_each(the_input: Any, function: Callable[[Any], Any] | None) -> Any:
    """Apply a function to every element."""
    x = numpy.asarray(the_input)
    return numpy.array([function(n) for n in x.flat] if function else x).reshape(x.shape)


def assign_each2(input1: Any, input2: Any, function: Callable[[Any, Any], Any] | None) -> Any:
    """Apply a function to every pair of elements."""
    x, y = numpy.asarray(input1), numpy.asarray(input2)
    pairs = zip(x.flat, y.flat, strict=True)
    return numpy.array([function(*pair) for pair in pairs] if function else x).reshape(x.shape)


def create_vector(size: int, dtype: Any = "int64") -> Any:
    """0, 1, ..., size - 1."""
    return np.arange(0, size, dtype=dtype)


def create_2d_tensor(rows: int, columns: int, dtype: Any = "int64") -> Any:
    """A matrix whose elements are their row numbers."""
    return np.broadcast_to(create_vector(rows, dtype).reshape(-1, 1), (rows, columns))


def get_identity_mat(size: int) -> Any:
    """The identity matrix, as NumPy's float64."""
    return numpy.eye(size)


def new_orthonormal_matrix_2d(n: int) -> Any:
    """An orthogonal NumPy matrix."""
    return numpy.linalg.qr(numpy.random.normal(size=(n, n)))[0]


def new_matrix_with_real_eigvals_nd(shape: Sequence[int]) -> Any:
    """NumPy matrices with real eigenvalues between 1 and 2, so they are well conditioned."""
    return _with_eigenvalues(shape, numpy.linalg.inv)


def new_sym_matrix_with_real_eigvals_nd(shape: Sequence[int]) -> Any:
    """Symmetric NumPy matrices whose eigenvalues are between 1 and 2."""
    return _with_eigenvalues(shape, None)


def _with_eigenvalues(shape: Sequence[int], inverse: Any) -> Any:
    n = shape[-1]
    q = numpy.linalg.qr(numpy.random.normal(size=(*shape[:-2], n, n)))[0] if n else numpy.eye(0)
    values = numpy.linspace(1, 2, n)[:, None]
    if inverse is None:
        found = numpy.swapaxes(q, -1, -2) @ (values * q)
        return (found + numpy.swapaxes(found, -1, -2)) / 2
    q = q + 0.25 * numpy.tril(numpy.ones((n, n)), -1) @ q  # no longer orthogonal
    return inverse(q) @ (values * q)


def new_matrix_with_real_eigvals_2d(n: int) -> Any:
    """One matrix of `new_matrix_with_real_eigvals_nd`."""
    return new_matrix_with_real_eigvals_nd((n, n))


def new_sym_matrix_with_real_eigvals_2d(n: int) -> Any:
    """One matrix of `new_sym_matrix_with_real_eigvals_nd`."""
    return new_sym_matrix_with_real_eigvals_nd((n, n))


# --- generators -----------------------------------------------------------------------------


def gen_buckets_probs_with_ppf(ppf: Callable[[float], float], nbuckets: int) -> Any:
    """Intervals of equal probability between quantiles, and those probabilities."""
    ends = [ppf(i / nbuckets) for i in range(nbuckets + 1)]
    return list(zip(ends, ends[1:], strict=False)), [1 / nbuckets] * nbuckets


def mean_check(generator: Any, mu: float, sigma: float, nsamples: int = 1000000) -> bool:
    """Whether the mean of samples is within three of its standard deviations of `mu`."""
    found = numpy.mean(plain(generator(nsamples)), dtype="float64")
    return bool(abs(found - mu) < 3 * sigma / nsamples**0.5)


def var_check(generator: Any, sigma: float, nsamples: int = 1000000) -> bool:
    """Whether the variance of samples is within three deviations of a normal sample's."""
    found = numpy.var(plain(generator(nsamples)), dtype="float64", ddof=1)
    return bool(abs(found - sigma**2) < 3 * (2 * sigma**4 / (nsamples - 1)) ** 0.5)


def chi_square_check(
    generator: Any, buckets: Sequence[Any], probs: Sequence[float], nsamples: int = 1000000
) -> tuple[float, Any, Any]:
    """Pearson's test of samples against the probabilities of intervals or single values.

    Returns p, the number of samples in each bucket, and the expected numbers.
    """
    from scipy import stats  # type: ignore[import-untyped]

    if not isinstance(buckets, list) or len(buckets) != len(probs):
        raise ValueError(f"{len(probs)} probabilities for {len(buckets)} buckets, a list")
    samples = plain(generator(nsamples)).reshape(-1)
    if isinstance(buckets[0], (list, tuple)):
        edges = numpy.array([low for low, _ in buckets] + [buckets[-1][1]])
        observed = numpy.histogram(samples, edges)[0]
    else:
        observed = numpy.array([numpy.count_nonzero(samples == value) for value in buckets])
    expected = numpy.array(probs) * samples.size
    statistic = numpy.sum((observed - expected) ** 2 / expected)
    return float(stats.chi2.sf(statistic, len(buckets) - 1)), observed, expected


def verify_generator(
    generator: Any,
    buckets: Sequence[Any],
    probs: Sequence[float],
    nsamples: int = 1000000,
    nrepeat: int = 5,
    success_rate: float = 0.2,
    alpha: float = 0.05,
) -> list[float]:
    """The p of several `chi_square_check`; raises `AssertionError` if too few are above alpha."""
    found = [chi_square_check(generator, buckets, probs, nsamples) for _ in range(nrepeat)]
    passed = sum(p > alpha for p, _, _ in found)
    if passed < nrepeat * success_rate:
        lines = [f"p={p}, observed {o}, expected {e}" for p, o, e in found]
        raise AssertionError(f"{passed} of {nrepeat} samples pass:\n" + "\n".join(lines))
    return [p for p, _, _ in found]


__all__ = [
    "assign_each",
    "assign_each2",
    "chi_square_check",
    "create_2d_tensor",
    "create_vector",
    "gen_buckets_probs_with_ppf",
    "get_identity_mat",
    "mean_check",
    "new_matrix_with_real_eigvals_2d",
    "new_matrix_with_real_eigvals_nd",
    "new_orthonormal_matrix_2d",
    "new_sym_matrix_with_real_eigvals_2d",
    "new_sym_matrix_with_real_eigvals_nd",
    "rand_coord_2d",
    "rand_ndarray",
    "rand_shape_2d",
    "rand_shape_3d",
    "rand_shape_nd",
    "random_arrays",
    "random_sample",
    "random_uniform_arrays",
    "var_check",
    "verify_generator",
]

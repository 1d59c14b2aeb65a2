"""Distributions of vectors, and several numbers as one event."""

from __future__ import annotations

from math import pi
from typing import Any

from gemel import np, npx
from gemel.errors import ArgumentError, ShapeError
from gemel.gluon.probability.base import Distribution, Tensor, named, raised, safe, supported


class Dirichlet(Distribution):
    """Vectors of numbers from 0 to 1 whose sum is 1, with a density like prod(x ** (alpha - 1))."""

    has_grad = True
    event_dim = 1
    parameters = named(alpha=1)
    arg_constraints = named(alpha="positive")
    alpha: Any

    def __init__(self, alpha: Any, **options: Any) -> None:
        super().__init__(alpha=alpha, **options)

    def log_prob(self, value: Any) -> Tensor:
        """See `Distribution.log_prob`."""
        norm = npx.gammaln(self.alpha).sum(axis=-1) - npx.gammaln(self.alpha.sum(axis=-1))
        below = value < 0
        found = raised(self.alpha - 1, safe(value, below, self.alpha)).sum(axis=-1) - norm
        return supported(value.sum(axis=-1), below.any(axis=-1), found)

    def sample(self, size: Any = None) -> Tensor:
        """See `Distribution.sample`."""
        lead = () if size is None else self._shape(size)
        parts = np.random.gamma(self.alpha, 1.0, (*lead, *self.alpha.shape))
        return parts / parts.sum(axis=-1, keepdims=True)

    @property
    def mean(self) -> Tensor:
        """alpha / sum(alpha)."""
        return self.alpha / self.alpha.sum(axis=-1, keepdims=True)

    @property
    def variance(self) -> Tensor:
        """mean * (1 - mean) / (sum(alpha) + 1)."""
        return self.mean * (1 - self.mean) / (self.alpha.sum(axis=-1, keepdims=True) + 1)

    def entropy(self) -> Tensor:
        """See `Distribution.entropy`."""
        total, count = self.alpha.sum(axis=-1), self.alpha.shape[-1]
        norm = npx.gammaln(self.alpha).sum(axis=-1) - npx.gammaln(total)
        inner = ((self.alpha - 1) * npx.digamma(self.alpha)).sum(axis=-1)
        return norm + (total - count) * npx.digamma(total) - inner


class MultivariateNormal(Distribution):
    """Vectors of normally distributed numbers of mean `loc`.

    Their covariance is given by `cov`, by its inverse `precision`, or by its lower triangular
    factor `scale_tril` (Cholesky's). Raises `ArgumentError` unless exactly one is given.
    """

    has_grad = True
    event_dim = 1
    parameters = named(loc=1, scale_tril=2)
    loc: Any
    scale_tril: Any

    def __init__(
        self,
        loc: Any,
        cov: Any = None,
        precision: Any = None,
        scale_tril: Any = None,
        **options: Any,
    ) -> None:
        given = [cov is not None, precision is not None, scale_tril is not None]
        if sum(given) != 1:
            raise ArgumentError(
                f"MultivariateNormal: {sum(given)} of cov, precision and scale_tril are given; "
                "give one"
            )
        if scale_tril is None:
            cov = np.linalg.inv(np.asarray(precision)) if cov is None else np.asarray(cov)
            scale_tril = np.linalg.cholesky(cov)
        super().__init__(loc=np.asarray(loc), scale_tril=np.asarray(scale_tril), **options)

    @property
    def cov(self) -> Tensor:
        """The covariance."""
        return np.matmul(self.scale_tril, np.swapaxes(self.scale_tril, -1, -2))

    @property
    def precision(self) -> Tensor:
        """The inverse of the covariance."""
        return np.linalg.inv(self.cov)

    @property
    def half_log_det(self) -> Tensor:
        """Half of the logarithm of the covariance's determinant."""
        diagonal = np.diagonal(self.scale_tril, axis1=-2, axis2=-1)
        return np.log(diagonal).sum(axis=-1)

    def standard(self, difference: Any) -> Tensor:
        """Multiply vectors by the inverse of the factor."""
        shape = (*difference.shape[:-1], *self.scale_tril.shape[-2:])
        size = self.scale_tril.shape[-1]
        if len(difference.shape) - 1 < len(self.scale_tril.shape) - 2:
            shape = self.scale_tril.shape
            difference = np.broadcast_to(difference, (*shape[:-2], size))
        factor = np.broadcast_to(self.scale_tril, shape)
        return np.linalg.solve(factor, np.expand_dims(difference, -1))[..., 0]

    def log_prob(self, value: Any) -> Tensor:
        """See `Distribution.log_prob`."""
        squares = (self.standard(value - self.loc) ** 2).sum(axis=-1)
        return -0.5 * (squares + self.loc.shape[-1] * np.log(2 * pi)) - self.half_log_det

    def sample(self, size: Any = None) -> Tensor:
        """See `Distribution.sample`."""
        lead = () if size is None else self._shape(size)
        noise = np.random.normal(0.0, 1.0, (*lead, *self.batch_shape, self.loc.shape[-1], 1))
        return self.loc + np.matmul(self.scale_tril, noise)[..., 0]

    @property
    def mean(self) -> Tensor:
        """loc."""
        return np.broadcast_to(self.loc, (*self.batch_shape, self.loc.shape[-1]))

    @property
    def variance(self) -> Tensor:
        """The diagonal of the covariance."""
        squares = (self.scale_tril**2).sum(axis=-1)
        return np.broadcast_to(squares, (*self.batch_shape, self.loc.shape[-1]))

    def entropy(self) -> Tensor:
        """See `Distribution.entropy`."""
        return self._spread(0.5 * self.loc.shape[-1] * (1 + np.log(2 * pi)) + self.half_log_det)


class Independent(Distribution):
    """The last axes of a distribution's batch as parts of one event: their log densities add up."""

    def __init__(self, base_distribution: Distribution, reinterpreted_batch_ndims: int) -> None:
        super().__init__()
        self.base_dist = base_distribution
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims
        if not 0 <= reinterpreted_batch_ndims <= len(base_distribution.batch_shape):
            raise ShapeError(
                f"Independent: {base_distribution!r} does not have "
                f"{reinterpreted_batch_ndims} batch axes"
            )
        self.event_dim = base_distribution.event_dim + reinterpreted_batch_ndims
        self.has_grad = base_distribution.has_grad

    @property
    def batch_shape(self) -> tuple[Any, ...]:
        """The shape of the batch, without the axes that belong to events now."""
        shape = self.base_dist.batch_shape
        return shape[: len(shape) - self.reinterpreted_batch_ndims]

    def summed(self, x: Any) -> Tensor:
        """The sum over the axes that are now part of the event."""
        return x.sum(axis=tuple(range(-self.reinterpreted_batch_ndims, 0)))

    def log_prob(self, value: Any) -> Tensor:
        """See `Distribution.log_prob`."""
        return self.summed(self.base_dist.log_prob(value))

    def sample(self, size: Any = None) -> Tensor:
        """See `Distribution.sample`."""
        return self.base_dist.sample_n(size)

    @property
    def mean(self) -> Tensor:
        """The means."""
        return self.base_dist.mean

    @property
    def variance(self) -> Tensor:
        """The variances."""
        return self.base_dist.variance

    def entropy(self) -> Tensor:
        """See `Distribution.entropy`."""
        return self.summed(self.base_dist.entropy())


__all__ = ["Dirichlet", "Independent", "MultivariateNormal"]

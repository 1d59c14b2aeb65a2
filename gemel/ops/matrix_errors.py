"""Errors of linear algebra, for matrices whose inverse, factors or eigenvalues are not found."""

import numpy

from gemel.errors import GemelError, ShapeError


class MatrixError(GemelError, numpy.linalg.LinAlgError):
    """A matrix is singular, not positive definite, or what is asked of it does not converge."""


class MatrixShapeError(ShapeError, numpy.linalg.LinAlgError):
    """What is given holds no matrices, or none that are square where they must be."""

"""Errors of linear algebra, for matrices whose inverse, factors or eigenvalues are not found."""

import numpy

from gemel.errors import GemelError, ShapeError


class MatrixError(GemelError, numpy.linalg.LinAlgError):
    """A matrix is singular or not positive definite, or a computation does not converge."""


class MatrixShapeError(ShapeError, numpy.linalg.LinAlgError):
    """An array does not hold matrices, or not square ones where they must be square."""

"""The error of matrices that have no inverse, no factors or no eigenvalues to be found."""

import numpy

from gemel.errors import GemelError


class MatrixError(GemelError, numpy.linalg.LinAlgError):
    """A matrix is singular, not positive definite, or what is asked of it does not converge."""

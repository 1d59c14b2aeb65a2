"""`np.linalg`: linear algebra.

Written by `make stubs`: change what is declared instead.
"""

import builtins
from collections.abc import Sequence
from typing import Any

from numpy.linalg import LinAlgError as LinAlgError

from gemel.ndarray import ndarray
from gemel.ops.decomposing import EighResult, EigResult
from gemel.ops.solving import SlogdetResult

def cholesky(a: Any, /, *, upper: builtins.bool = False) -> ndarray:
    """The lower triangle whose product with its transpose is a, or the `upper` one."""

def cond(x: Any, p: Any = None) -> ndarray:
    """The condition number of a matrix: its norm times that of its inverse."""

def cross(x1: Any, x2: Any, *, axis: int = -1) -> ndarray:
    """The cross product of vectors of three elements along an axis."""

def det(x: Any, /) -> ndarray:
    """The determinant of each matrix."""

def diagonal(x: Any, *, offset: int = 0) -> ndarray:
    """The diagonal of each matrix; `offset` counts to the right of the main one."""

def eig(a: Any, /) -> EigResult:
    """The eigenvalues of square matrices, and eigenvectors in columns: both complex."""

def eigh(a: Any, UPLO: str = "L", upper: builtins.bool = False) -> EighResult:
    """Rising eigenvalues of symmetric matrices, and eigenvectors in columns."""

def eigvals(x: Any, /) -> ndarray:
    """The eigenvalues of square matrices, complex and in no order."""

def eigvalsh(a: Any, UPLO: str = "L", upper: builtins.bool = False) -> ndarray:
    """Rising eigenvalues of symmetric matrices, of which one triangle is read."""

def inv(x: Any, /) -> ndarray:
    """The inverse of each matrix."""

def lstsq(a: Any, b: Any, rcond: Any = None) -> tuple[Any, ...]:
    """The x for which the squares of b - a @ x are least, their sums, a's rank, singular values."""

def matmul(
    a: Any,
    b: Any,
    /,
    *,
    out: Any = None,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """Matrix product of the last two axes; the axes before them broadcast."""

def matrix_norm(x: Any, *, keepdims: builtins.bool = False, ord: Any = "fro") -> ndarray:
    """The norm of matrices: Frobenius' ("fro"), of the rows or columns (+-inf, +-1), or of the
    singular values (+-2, and their sum "nuc")."""

def matrix_power(a: Any, n: int) -> ndarray:
    """The matrices multiplied n times with themselves; negative powers are those of the inverse."""

def matrix_rank(
    A: Any, tol: Any = None, hermitian: builtins.bool = False, *, rtol: Any = None
) -> ndarray:
    """How many singular values of each matrix exceed `tol`, or `rtol` of the largest one."""

def matrix_transpose(x: Any) -> ndarray:
    """Exchange the last two axes; a view. Raises `ShapeError` for fewer than two."""

def multi_dot(arrays: Sequence[Any], *, out: Any = None) -> ndarray:
    """The product of several matrices, in the order with the fewest multiplications; the first and
    the last may be vectors."""

def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: builtins.bool = False) -> ndarray:
    """The norm of vectors (one axis), of matrices (two), or by default of all elements."""

def outer(x1: Any, x2: Any) -> ndarray:
    """Each element of one 1-d array with each of another. Raises `ShapeError` for other arrays."""

def pinv(
    a: Any, rcond: Any = None, hermitian: builtins.bool = False, *, rtol: Any = None
) -> ndarray:
    """The pseudo-inverse of each matrix (Moore and Penrose)."""

def qr(a: Any, mode: str = "reduced") -> Any:
    """An orthogonal matrix Q and an upper triangle R whose product is a; mode "r" gives R only."""

def slogdet(a: Any, /) -> SlogdetResult:
    """The sign of each matrix's determinant, and the logarithm of its size."""

def solve(a: Any, b: Any, /) -> ndarray:
    """The x for which a @ x is b; a 1-d b is one column."""

def svd(
    a: Any,
    full_matrices: builtins.bool = True,
    compute_uv: builtins.bool = True,
    hermitian: builtins.bool = False,
) -> Any:
    """Orthogonal U and Vh and falling numbers S, for which U * S @ Vh is a; or S only."""

def svdvals(x: Any, /) -> ndarray:
    """The singular values of each matrix, descending."""

def tensordot(a: Any, b: Any, axes: Any = 2) -> ndarray:
    """The product over several axes: the last ones of a and the first ones of b, or the named ones."""

def tensorinv(a: Any, ind: int = 2) -> ndarray:
    """The inverse under `tensordot` of an array whose first `ind` axes are as many as the rest."""

def tensorsolve(a: Any, b: Any, axes: Any = None) -> ndarray:
    """The x for which ``tensordot(a, x, x.ndim)`` is b; `axes` of a go to its end before."""

def trace(x: Any, *, offset: int = 0, dtype: Any = None) -> ndarray:
    """The sum of each matrix's diagonal."""

def vecdot(
    x1: Any,
    x2: Any,
    /,
    axis: int = -1,
    *,
    out: Any = None,
    casting: Any = "same_kind",
    order: Any = "K",
    dtype: Any = None,
    subok: Any = True,
) -> ndarray:
    """The sum of products along an axis; the other axes broadcast. Complex numbers of the first
    are conjugated."""

def vector_norm(
    x: Any, /, axis: Any = None, keepdims: builtins.bool = False, ord: Any = 2
) -> ndarray:
    """The norm of vectors along the given axes, or all: sum(|x|^ord)^(1/ord), also for +-inf and 0."""

__all__ = [
    "LinAlgError",
    "cholesky",
    "cond",
    "cross",
    "det",
    "diagonal",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "inv",
    "lstsq",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "multi_dot",
    "norm",
    "outer",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "svd",
    "svdvals",
    "tensordot",
    "tensorinv",
    "tensorsolve",
    "trace",
    "vecdot",
    "vector_norm",
]

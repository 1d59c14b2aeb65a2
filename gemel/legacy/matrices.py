"""MXNet 1's linear algebra on the last two axes, under the names of BLAS and LAPACK."""

# ruff: noqa: N803 -- MXNet's names of matrices
from __future__ import annotations

from typing import Any

from gemel import np
from gemel.errors import ShapeError
from gemel.legacy.arithmetic import MATRICES, gemm2
from gemel.legacy.declare import legacy


def _turned(matrix: Any, turn: bool) -> Any:
    return np.swapaxes(matrix, -1, -2) if turn else matrix


def _triangle(matrix: Any, lower: bool) -> Any:
    return np.tril(matrix) if lower else np.triu(matrix)


@legacy("_linalg_gemm", "linalg_gemm", inputs=3, axes=dict.fromkeys("ABC", MATRICES))
def gemm(
    A: Any,
    B: Any,
    C: Any,
    transpose_a: bool = False,
    transpose_b: bool = False,
    alpha: float = 1.0,
    beta: float = 1.0,
    axis: int = -2,
) -> Any:
    """alpha * A @ B + beta * C, of matrices with rows along `axis` and columns along the last."""
    return gemm2.function(A, B, transpose_a, transpose_b, alpha, axis) + C * beta


@legacy("_linalg_potrf", "linalg_potrf")
def potrf(A: Any) -> Any:
    """The Cholesky factor L of A = L @ L.T."""
    return np.linalg.cholesky(A)


@legacy("_linalg_potri", "linalg_potri")
def potri(A: Any) -> Any:
    """The inverse of A @ A.T, for a Cholesky factor A."""
    factor = np.tril(A)
    return np.linalg.inv(np.matmul(factor, _turned(factor, True)))


@legacy("_linalg_trsm", "linalg_trsm", inputs=2)
def trsm(
    A: Any,
    B: Any,
    transpose: bool = False,
    rightside: bool = False,
    lower: bool = True,
    alpha: float = 1.0,
) -> Any:
    """The solution X of A @ X = alpha * B (X @ A with `rightside`), for a triangular A."""
    matrix = _turned(_triangle(A, lower), transpose is not rightside)
    return _turned(np.linalg.solve(matrix, _turned(B * alpha, rightside)), rightside)


@legacy("_linalg_trmm", "linalg_trmm", inputs=2)
def trmm(
    A: Any,
    B: Any,
    transpose: bool = False,
    rightside: bool = False,
    lower: bool = True,
    alpha: float = 1.0,
) -> Any:
    """alpha * A @ B (B @ A with `rightside`), for a triangular A."""
    matrix = _turned(_triangle(A, lower), transpose)
    return np.matmul(*((B, matrix) if rightside else (matrix, B))) * alpha


@legacy("_linalg_syrk", "linalg_syrk", inputs=1)
def syrk(A: Any, transpose: bool = False, alpha: float = 1.0) -> Any:
    """alpha * A @ A.T, or A.T @ A."""
    return np.matmul(_turned(A, transpose), _turned(A, not transpose)) * alpha


@legacy("_linalg_gelqf", "linalg_gelqf", outputs=2)
def gelqf(A: Any) -> Any:
    """Q and L of A = L @ Q: orthonormal rows, and a lower triangular matrix."""
    q, r = np.linalg.qr(_turned(A, True))
    return [_turned(q, True), _turned(r, True)]


@legacy("_linalg_syevd", "linalg_syevd", outputs=2)
def syevd(A: Any) -> Any:
    """The eigenvectors of a symmetric matrix as rows, and its eigenvalues."""
    values, vectors = np.linalg.eigh(A)
    return [_turned(vectors, True), values]


@legacy("_linalg_sumlogdiag", "linalg_sumlogdiag")
def sumlogdiag(A: Any) -> Any:
    """The sum of the logarithms of each diagonal."""
    found = np.log(np.diagonal(A, 0, -2, -1)).sum(axis=-1)
    return found if found.shape else found.reshape(1)


@legacy("_linalg_extractdiag", "linalg_extractdiag", inputs=1)
def extractdiag(A: Any, offset: int = 0) -> Any:
    """A diagonal of each matrix."""
    return np.diagonal(A, offset, -2, -1)


@legacy("_linalg_makediag", "linalg_makediag", inputs=1, axes={"A": "..., d"})
def makediag(A: Any, offset: int = 0) -> Any:
    """Matrices with these diagonals and 0 elsewhere."""
    size = int(A.shape[-1]) + abs(offset)
    places = [(i + max(-offset, 0)) * size + i + max(offset, 0) for i in range(int(A.shape[-1]))]
    return _spread(A, places, size)


@legacy("_linalg_extracttrian", "linalg_extracttrian", inputs=1, axes={"A": MATRICES})
def extracttrian(A: Any, offset: int = 0, lower: bool = True) -> Any:
    """A triangle of each matrix as a row."""
    size = int(A.shape[-1])
    places = np.array(_triangular(size, offset, lower), dtype="int64")
    return np.take(A.reshape(*A.shape[:-2], size * size), places, axis=-1)


@legacy("_linalg_maketrian", "linalg_maketrian", inputs=1, axes={"A": "..., d"})
def maketrian(A: Any, offset: int = 0, lower: bool = True) -> Any:
    """Matrices with these triangles and 0 elsewhere."""
    size = next(n for n in range(1, 65536) if len(_triangular(n, offset, lower)) >= A.shape[-1])
    places = _triangular(size, offset, lower)
    if len(places) != A.shape[-1] or not places:
        raise ShapeError(
            f"linalg_maketrian: rows {list(A.shape)} do not fill triangles: with offset={offset}, "
            f"that of a {size} x {size} matrix has {len(places)} elements"
        )
    return _spread(A, places, size)


def _triangular(size: int, offset: int, lower: bool) -> list[int]:
    """The flat positions of a triangle's elements: by rows if lower, by columns if upper."""
    lower = offset < 0 if offset else lower
    if lower:
        return [row * size + column for row in range(size) for column in range(row + offset + 1)]
    every = ((row, column) for column in range(size) for row in range(size))
    return [row * size + column for row, column in every if column - row >= offset]


def _spread(rows: Any, places: list[int], size: int) -> Any:
    """Square matrices with the elements of the last axis at flat positions and 0 elsewhere."""
    chosen = [places.index(n) if n in places else len(places) for n in range(size * size)]
    wide = np.concatenate([rows, np.zeros_like(rows[..., :1])], axis=-1)
    found = np.take(wide, np.array(chosen, dtype="int64"), axis=-1)
    return found.reshape(*rows.shape[:-1], size, size)

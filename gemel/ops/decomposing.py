"""Decompositions of matrices: QR, singular values, eigenvalues, computed by NumPy (LAPACK).

The factors are only determined up to a sign or phase of each vector. The gradients are right for
functions that do not depend on that choice. Where two singular values or eigenvalues are equal,
their vectors are not determined either, and the gradients of these are infinite or NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from gemel.errors import unknown_name
from gemel.ir.declare import op
from gemel.ir.public import Array
from gemel.ir.reference import numpy
from gemel.ops.complexes import conj, imag, real
from gemel.ops.elementwise import distance, where
from gemel.ops.linalg import matmul
from gemel.ops.shape import concatenate, expand_dims, narrow, operand
from gemel.ops.solving import adjoint, by_lapack, computed, matrices, of_triangle, solve
from gemel.ops.triangles import triu
from gemel.spec import Spec


def _plus(a: Any, b: Any) -> Any:
    """The sum of two parts of a gradient, either of which may be None."""
    return b if a is None else a if b is None else a + b


def _diagonal(row: Any) -> Any:
    """Matrices with these numbers on their diagonals."""
    n = row.shape[-1]
    return where(distance(n, n) == 0, expand_dims(row, -2), 0)


def _phases(x: Any) -> Any:
    """Matrices with only the imaginary parts (times 1j) of x's diagonal, and zeros elsewhere."""
    n = x.shape[-1]
    return where(distance(n, n) == 0, imag(x) * 1j, 0)


def _over_gaps(inside: Any, row: Any) -> Any:
    """Each element at (i, j) divided by row[j] - row[i], and zeros on the diagonal."""
    n = row.shape[-1]
    apart = distance(n, n) != 0
    gaps = expand_dims(row, -2) - expand_dims(row, -1)
    return where(apart, inside / where(apart, gaps, 1), 0)


def _leading(u: Any, du: Any, count: Any) -> tuple[Any, Any]:
    """The first columns of a unitary matrix, and the gradient for them. It includes the gradient of
    the other columns, which must stay orthogonal to the first and so depend on them."""
    axis, more = u.ndim - 1, u.shape[-1] - count
    if u.shape[-1] == count:
        return u, du
    first, last = (narrow(u, axis=axis, start=i, length=n) for i, n in ((0, count), (count, more)))
    if du is None:
        return first, None
    own, beyond = (narrow(du, axis=axis, start=i, length=n) for i, n in ((0, count), (count, more)))
    return first, own - matmul(last, matmul(adjoint(beyond), first))


def _over_triangle(x: Any, upper: Any) -> Any:
    """x times the adjoint of the inverse of an upper triangular matrix."""
    return adjoint(solve(upper, adjoint(x)))


class QRResult(NamedTuple):
    """The result of `qr`."""

    Q: Any
    R: Any


class SVDResult(NamedTuple):
    """The result of `svd`."""

    U: Any
    S: Any
    Vh: Any


class EigResult(NamedTuple):
    """The result of `eig`."""

    eigenvalues: Any
    eigenvectors: Any


class EighResult(NamedTuple):
    """The result of `eigh`."""

    eigenvalues: Any
    eigenvectors: Any


@op(outputs=2, public="np.linalg", mxnet="_npi_qr", complex=True)
def qr(x: Any, *, complete: bool) -> Any:
    """The QR decomposition: an orthogonal and an upper triangular matrix with product x."""
    mode = "complete" if complete else "reduced"
    return by_lapack(lambda x: numpy().linalg.qr(x, mode), x)


@qr.spec
def _(x: Spec, *, complete: bool) -> tuple[Spec, Spec]:
    batch, rows, columns = matrices("qr", x)
    inner = rows if complete or rows <= columns else columns
    shapes = ((*batch, rows, inner), (*batch, inner, columns))
    return Spec(shapes[0], computed(x)), Spec(shapes[1], computed(x))


@qr.gradient
def _(g: Any, y: Any, x: Any, *, complete: bool) -> Any:
    # Walter and Lehmann, Algorithmic differentiation of linear algebra functions, 2010; Roberts and
    # Roberts, QR and LQ decomposition matrix backpropagation algorithms, 2020.
    (q, r), (dq, dr) = y, g
    rows, columns = x.shape[-2:]
    inner = rows if rows <= columns else columns
    q, dq = _leading(q, dq, inner)
    dr = r * 0 if dr is None else dr
    r, dr = (narrow(v, axis=x.ndim - 2, start=0, length=inner) for v in (r, dr))
    if not rows < columns:
        return (_of_square_r(q, r, dq, dr),)
    # The columns after the square part are Q times those of R.
    spans = ((0, rows), (rows, columns - rows))
    (_, rest), (r, _), (dr, slope) = (
        [narrow(v, axis=x.ndim - 1, start=start, length=length) for start, length in spans]
        for v in (x, r, dr)
    )
    ahead = _of_square_r(q, r, _plus(dq, matmul(rest, adjoint(slope))), dr)
    return (concatenate(ahead, matmul(q, slope), axis=-1),)


def _of_square_r(q: Any, r: Any, dq: Any, dr: Any) -> Any:
    """The gradient for q @ r, where r is square."""
    inside = matmul(dr, adjoint(r))
    inside = inside if dq is None else inside - matmul(adjoint(q), dq)
    turned = triu(inside) + adjoint(triu(inside, k=1))
    if inside.dtype.is_complex:  # the diagonal of R is real
        turned = turned - _phases(inside)
    return _over_triangle(_plus(matmul(q, turned), dq), r)


@qr.facade
def _(a: Any, mode: str = "reduced") -> Any:
    """An orthogonal matrix Q and an upper triangle R whose product is a; mode "r" gives R only."""
    if mode not in ("reduced", "complete", "r"):
        raise unknown_name("mode of qr", mode, ("reduced", "complete", "r"))
    found = QRResult(*qr(operand(a), complete=mode == "complete"))
    return found.R if mode == "r" else found


@op(fails=True, outputs=3, public="np.linalg", mxnet="_npi_svd", complex=True)
def svd(x: Any, *, full_matrices: bool) -> Any:
    """The singular value decomposition: orthogonal U and Vh, descending S, with U * S @ Vh equal to
    x."""
    return by_lapack(lambda x: numpy().linalg.svd(x, full_matrices), x)


@svd.spec
def _(x: Spec, *, full_matrices: bool) -> tuple[Spec, ...]:
    batch, rows, columns = matrices("svd", x)
    inner = rows if rows <= columns else columns
    left, right = (rows, columns) if full_matrices else (inner, inner)
    dtype = computed(x)
    return (
        Spec((*batch, rows, left), dtype),
        Spec((*batch, inner), dtype.real),
        Spec((*batch, right, columns), dtype),
    )


@svd.gradient
def _(g: Any, y: Any, x: Any, *, full_matrices: bool) -> Any:
    # Townsend, Differentiating the singular value decomposition, 2016; for complex numbers Wan and
    # Zhang, Automatic differentiation for complex valued SVD, 2019.
    (u, s, vh), (du, ds, dvh) = y, g
    rows, columns = x.shape[-2:]
    inner = s.shape[-1]
    u, du = _leading(u, du, inner)
    v, dv = _leading(adjoint(vh), None if dvh is None else adjoint(dvh), inner)
    vh, dvh = adjoint(v), None if dv is None else adjoint(dv)
    lines, row = expand_dims(s, -1), expand_dims(s, -2)
    inside, found = None if ds is None else _diagonal(ds), None
    if du is not None:
        turn = matmul(adjoint(u), du)
        inside = _plus(inside, _over_gaps(turn - adjoint(turn), s * s) * row)
        if x.dtype.is_complex:
            inside = _plus(inside, _phases(turn) / row)
        if inner < rows:
            found = matmul((du - matmul(u, turn)) / row, vh)
    if dvh is not None:
        turn = matmul(vh, adjoint(dvh))
        inside = _plus(inside, lines * _over_gaps(turn - adjoint(turn), s * s))
        if inner < columns:
            beyond = dvh - matmul(adjoint(turn), vh)
            found = _plus(found, matmul(u / row, beyond))
    return (_plus(found, matmul(matmul(u, inside), vh)),)


@svd.facade
def _(a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False) -> Any:
    """Orthogonal U and Vh and falling numbers S, for which U * S @ Vh is a; or S only.

    `hermitian` may say that a is its own adjoint; the way to the result is the same.
    """
    if not compute_uv:
        return svdvals(a)
    return SVDResult(*svd(operand(a), full_matrices=full_matrices))


@op(fails=True, public="np.linalg", complex=True)
def svdvals(x: Any) -> Any:
    """The singular values of each matrix, descending."""
    return by_lapack(lambda x: numpy().linalg.svd(x, compute_uv=False), x)


@svdvals.spec
def _(x: Spec) -> Spec:
    batch, rows, columns = matrices("svdvals", x)
    return Spec((*batch, rows if rows <= columns else columns), computed(x).real)


@svdvals.gradient
def _(g: Any, y: Any, x: Any) -> Any:
    u, _, vh = svd(x, full_matrices=False)
    return (matmul(u * expand_dims(g, -2), vh),)


@op(fails=True, outputs=2, public="np.linalg", mxnet="_npi_eigh", complex=True)
def eigh(x: Any, *, upper: bool) -> Any:
    """The eigenvalues of symmetric matrices, ascending, and their eigenvectors in columns."""
    return by_lapack(lambda x: numpy().linalg.eigh(x, "U" if upper else "L"), x)


@eigh.spec
def _(x: Spec, *, upper: bool) -> tuple[Spec, Spec]:
    batch, rows, _ = matrices("eigh", x, square=True)
    return Spec((*batch, rows), computed(x).real), Spec(x.shape, computed(x))


@eigh.gradient
def _(g: Any, y: Any, x: Any, *, upper: bool) -> Any:
    # Giles, An extended collection of matrix derivative results, 2008.
    (values, vectors), (dvalues, dvectors) = y, g
    inside = None if dvalues is None else _diagonal(dvalues)
    if dvectors is not None:
        inside = _plus(inside, _over_gaps(matmul(adjoint(vectors), dvectors), values))
    found = matmul(matmul(vectors, inside), adjoint(vectors))
    return (of_triangle(found, upper),)


@eigh.facade
def _(a: Any, UPLO: str = "L", upper: bool = False) -> EighResult:  # noqa: N803 -- NumPy's name
    """Rising eigenvalues of symmetric matrices, and eigenvectors in columns.

    Only the lower triangle ("L") or the upper one ("U", or `upper`) is read.
    """
    return EighResult(*eigh(operand(a), upper=upper or _upper("eigh", UPLO)))


def _eigen(function: Callable[..., Any], x: Any) -> Any:
    """The results of an eigenvalue function, always as complex numbers."""
    kind = (x[..., :1, :1] * 1j).dtype
    found = function(x)
    return tuple(e.astype(kind) for e in found) if isinstance(found, tuple) else found.astype(kind)


@op(fails=True, outputs=2, public="np.linalg", mxnet="_npi_eig", complex=True)
def eig(x: Any) -> Any:
    """The eigenvalues of square matrices, and eigenvectors in columns: both complex."""
    return by_lapack(lambda x: _eigen(numpy().linalg.eig, x), x)


@eig.spec
def _(x: Spec) -> tuple[Spec, Spec]:
    batch, rows, _ = matrices("eig", x, square=True)
    dtype = computed(x).complex
    return Spec((*batch, rows), dtype), Spec(x.shape, dtype)


@eig.gradient
def _(g: Any, y: Any, x: Any) -> Any:
    # Boeddeker and others, On the computation of complex-valued gradients, 2017.
    (values, vectors), (dvalues, dvectors) = y, g
    inside = None if dvalues is None else _diagonal(dvalues)
    if dvectors is not None:
        turn = matmul(adjoint(vectors), dvectors)
        n = turn.shape[-1]
        lengths = where(distance(n, n) == 0, real(turn), 0)  # the vectors keep the length 1
        turn = turn - matmul(matmul(adjoint(vectors), vectors), lengths)
        inside = _plus(inside, _over_gaps(turn, conj(values)))
    found = solve(adjoint(vectors), matmul(inside, adjoint(vectors)))
    return (found if x.dtype.is_complex else real(found),)


@eig.facade
def _(a: Any, /) -> EigResult:
    """The eigenvalues of square matrices, and eigenvectors in columns: both complex.

    They are in no order, and each vector has length 1.

    >>> np.linalg.eig(np.array([[0.0, 1.0], [-1.0, 0.0]])).eigenvalues
    """
    return EigResult(*eig(operand(a)))


@op(fails=True, public="np.linalg", mxnet="_npi_eigvals", complex=True)
def eigvals(x: Any) -> Any:
    """The eigenvalues of square matrices, complex and in no order."""
    return by_lapack(lambda x: _eigen(numpy().linalg.eigvals, x), x)


@eigvals.spec
def _(x: Spec) -> Spec:
    batch, rows, _ = matrices("eigvals", x, square=True)
    return Spec((*batch, rows), computed(x).complex)


@eigvals.gradient
def _(g: Any, y: Any, x: Any) -> Any:
    _, vectors = eig(x)
    found = solve(adjoint(vectors), expand_dims(g, -1) * adjoint(vectors))
    return (found if x.dtype.is_complex else real(found),)


def _upper(name: str, part: str) -> bool:
    if str(part).upper() not in ("L", "U"):
        raise unknown_name(f"UPLO of {name}", part, ("L", "U"))
    return str(part).upper() == "U"


@op(fails=True, public="np.linalg", mxnet="_npi_eigvalsh", complex=True)
def eigvalsh(x: Any, *, upper: bool) -> Any:
    """The eigenvalues of symmetric matrices, ascending."""
    return by_lapack(lambda x: numpy().linalg.eigvalsh(x, "U" if upper else "L"), x)


@eigvalsh.spec
def _(x: Spec, *, upper: bool) -> Spec:
    batch, rows, _ = matrices("eigvalsh", x, square=True)
    return Spec((*batch, rows), computed(x).real)


@eigvalsh.gradient
def _(g: Any, y: Any, x: Any, *, upper: bool) -> Any:
    _, vectors = eigh(x, upper=upper)
    return (of_triangle(matmul(vectors * expand_dims(g, -2), adjoint(vectors)), upper),)


@eigvalsh.facade
def _(a: Any, UPLO: str = "L", upper: bool = False) -> Array:  # noqa: N803
    """Rising eigenvalues of symmetric matrices, of which one triangle is read."""
    return eigvalsh(operand(a), upper=upper or _upper("eigvalsh", UPLO))

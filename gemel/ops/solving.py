"""Inverses, determinants and solutions of linear systems, computed by NumPy (LAPACK).

The last two axes are matrices, those before them a batch. Integers and float16 are computed in
float32. If a computation fails (as for a singular matrix), waiting for the result raises
`MatrixError`, a `numpy.linalg.LinAlgError`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from gemel import _core
from gemel.device import beside_arrays
from gemel.dtype import DType
from gemel.errors import ShapeError
from gemel.ir.declare import op
from gemel.ir.methods import call
from gemel.ir.public import Array, function
from gemel.ir.reference import numpy
from gemel.ops.arrange import matrix_transpose
from gemel.ops.complexes import conj, conjugated, imag
from gemel.ops.elementwise import multiply
from gemel.ops.linalg import matmul
from gemel.ops.shape import expand_dims, operand, operands, reshape
from gemel.ops.triangles import tril, triu
from gemel.spec import Spec, broadcast, normalize_axis, product, promote_specs, wholes


def by_lapack(function: Callable[..., Any], *arrays: Any) -> Any:
    """The results of a NumPy function on arrays cast for LAPACK, cast back to their precision."""
    dtype = computed(*(Spec(x.shape, x.dtype) for x in arrays))
    wide = dtype.compute.name
    try:
        found = function(*(x.astype(wide) for x in arrays))
    except numpy().linalg.LinAlgError as error:
        # Imported late: its base class is NumPy's error, and NumPy is only imported when needed.
        from gemel.ops.matrix_errors import MatrixError

        raise MatrixError(str(error)) from None

    def own(each: Any) -> Any:
        array = numpy().asarray(each)
        return array.astype((dtype.complex if array.dtype.kind == "c" else dtype.real).name)

    return tuple(map(own, found)) if isinstance(found, tuple) else own(found)


def computed(*specs: Spec) -> DType:
    """The dtype of a result: a floating or complex one."""
    dtype = promote_specs(*specs)
    return dtype.floating


def matrices(name: str, x: Spec, square: bool = False) -> tuple[Any, Any, Any]:
    """(batch, rows, columns) of the matrices in x. Raises `ShapeError`."""
    if x.ndim < 2:
        raise _no_matrix(f"{name}: {x} has {x.ndim} dimensions; a matrix has two")
    *batch, rows, columns = x.shape
    if square and not rows == columns:
        raise _no_matrix(f"{name}: {x} must hold square matrices; these are {rows} x {columns}")
    return tuple(batch), rows, columns


def _no_matrix(text: str) -> ShapeError:
    """The error for something that is not a matrix. Imported late, as its base class is NumPy's."""
    from gemel.ops.matrix_errors import MatrixShapeError

    return MatrixShapeError(text)


# --- operations with a gradient -------------------------------------------------------------


@op(fails=True, public="np.linalg", mxnet="_npi_inv")
def inv(x: Any) -> Any:
    """The inverse of each matrix."""
    return by_lapack(numpy().linalg.inv, x)


@op()
def inv_or_nan(x: Any) -> Any:
    """The inverse of each matrix, or NaN for a singular one."""
    return by_lapack(_inverses, x)


def _inverses(x: Any) -> Any:
    np = numpy()
    try:
        return np.linalg.inv(x)
    except np.linalg.LinAlgError:
        if x.ndim == 2:
            return np.full_like(x, np.nan)
        return np.stack([_inverses(each) for each in x])


@inv.spec
@inv_or_nan.spec
def _(x: Spec) -> Spec:
    matrices("inv", x, square=True)
    return Spec(x.shape, computed(x))


@inv.holomorphic
@inv_or_nan.holomorphic
def _(g: Any, y: Any, x: Any) -> Any:
    turned = matrix_transpose(y)
    return (-matmul(matmul(turned, g), turned),)


@op(fails=True, public="np.linalg", mxnet="_npi_solve")
def solve(a: Any, b: Any) -> Any:
    """The x for which a @ x is b; a 1-d b is one column."""
    return by_lapack(numpy().linalg.solve, a, b)


@solve.spec
def _(a: Spec, b: Spec) -> Spec:
    batch, rows, _ = matrices("solve", a, square=True)
    if b.ndim == 0 or not b.shape[-1 if b.ndim == 1 else -2] == rows:
        raise ShapeError(f"solve: b {b} must have the {rows} rows of a {a}")
    if b.ndim == 1:
        return Spec((*batch, rows), computed(a, b))
    lead = broadcast("solve", Spec(batch, a.dtype), Spec(b.shape[:-2], b.dtype))
    return Spec((*lead, rows, b.shape[-1]), computed(a, b))


@solve.holomorphic
def _(g: Any, y: Any, a: Any, b: Any) -> Any:
    if b.ndim == 1:
        g, y = expand_dims(g, -1), expand_dims(y, -1)
    db = solve(matrix_transpose(a), g)
    da = -matmul(db, matrix_transpose(y))
    return da, reshape(db, shape=db.shape[:-1]) if b.ndim == 1 else db


@op(public="np.linalg", mxnet="_npi_det")
def det(x: Any) -> Any:
    """The determinant of each matrix."""
    return by_lapack(numpy().linalg.det, x)


@det.spec
def _(x: Spec) -> Spec:
    return Spec(matrices("det", x, square=True)[0], computed(x))


@det.holomorphic
def _(g: Any, y: Any, x: Any) -> Any:
    return (multiply(_as_matrices(g * y), matrix_transpose(inv(x))),)


def adjoint(x: Any) -> Any:
    """Matrices transposed and, if they are complex, conjugated."""
    return matrix_transpose(conjugated(x))


def of_triangle(slope: Any, upper: bool) -> Any:
    """The gradient for a symmetric matrix of which only one triangle is read."""
    half = (slope + adjoint(slope)) / 2
    return triu(half) + triu(half, k=1) if upper else tril(half) + tril(half, k=-1)


def _as_matrices(x: Any) -> Any:
    """One number for each matrix, beside matrices."""
    return reshape(x, shape=(*x.shape, 1, 1))


@op(outputs=2, public="np.linalg", mxnet="_npi_slogdet", complex=True)
def slogdet(x: Any) -> Any:
    """The sign of each matrix's determinant, and the logarithm of its absolute value."""
    return by_lapack(numpy().linalg.slogdet, x)


@slogdet.spec
def _(x: Spec) -> tuple[Spec, Spec]:
    batch, dtype = matrices("slogdet", x, square=True)[0], computed(x)
    return Spec(batch, dtype), Spec(batch, dtype.real)


@slogdet.gradient
def _(g: Any, y: Any, x: Any) -> Any:
    slope = g[1]
    if g[0] is not None and x.dtype.is_complex:  # the sign is then a phase, which varies
        turn = imag(conj(y[0]) * g[0]) * 1j
        slope = turn if slope is None else slope + turn
    return (None if slope is None else multiply(_as_matrices(slope), adjoint(inv(x))),)


@op(fails=True, public="np.linalg", mxnet="_npi_cholesky", complex=True)
def cholesky(x: Any) -> Any:
    """The Cholesky factor: the lower triangular matrix whose product with its transpose is (x +
    x.T) / 2."""
    np = numpy()
    return by_lapack(lambda x: np.linalg.cholesky((x + np.swapaxes(x, -1, -2).conj()) / 2), x)


@cholesky.spec
def _(x: Spec) -> Spec:
    matrices("cholesky", x, square=True)
    return Spec(x.shape, computed(x))


@cholesky.gradient
def _(g: Any, y: Any, x: Any) -> Any:
    # Murray, Differentiation of the Cholesky decomposition, 2016.
    turned = adjoint(y)
    inside = tril(matmul(turned, g))
    inside = inside - (inside - tril(inside, k=-1)) / 2
    half = solve(turned, adjoint(solve(turned, adjoint(inside))))
    return ((half + adjoint(half)) / 2,)


@cholesky.facade
def _(a: Any, /, *, upper: bool = False) -> Array:
    """The lower triangle whose product with its transpose is a, or the `upper` one.

    a must be symmetric (of other arrays (a + a.T) / 2 is taken; of complex ones a.T is conjugated)
    and positive definite.

    >>> np.linalg.cholesky(np.array([[4.0, 2.0], [2.0, 5.0]]))
    """
    found = cholesky(operand(a))
    return adjoint(found) if upper else found


# --- operations without a gradient ----------------------------------------------------------


class SlogdetResult(NamedTuple):
    """The result of `slogdet`."""

    sign: Any
    logabsdet: Any


@slogdet.facade
def _(a: Any, /) -> SlogdetResult:
    """The sign of each matrix's determinant, and the logarithm of its size."""
    return SlogdetResult(*slogdet(operand(a)))


@op(fails=True, public="np.linalg", mxnet="_npi_pinv", complex=True)
def pinv(x: Any, rtol: Any, *, hermitian: bool) -> Any:
    """The pseudo-inverse of each matrix: singular values below `rtol` of the largest are zero."""
    np = numpy()

    def inverse(x: Any) -> Any:
        least = max(x.shape[-2:]) * np.finfo(x.dtype).eps
        return np.linalg.pinv(x, least if np.all(rtol < 0) else rtol, hermitian)

    return by_lapack(inverse, x)


@pinv.spec
def _(x: Spec, rtol: Spec, *, hermitian: bool) -> Spec:
    batch, rows, columns = matrices("pinv", x, square=hermitian)
    return Spec((*batch, columns, rows), computed(x))


@pinv.gradient
def _(g: Any, y: Any, x: Any, rtol: Any, *, hermitian: bool) -> Any:
    # Golub and Pereyra, The differentiation of pseudo-inverses and nonlinear least squares
    # problems whose variables separate, 1973.
    turned, back = adjoint(y), adjoint(g)
    left = matmul(turned, y)
    x = tril(x) + adjoint(tril(x, k=-1)) if hermitian else x
    beside = matmul(back - matmul(x, matmul(y, back)), matmul(y, turned))
    below = matmul(left, back - matmul(matmul(back, y), x))
    found = beside + below - matmul(matmul(turned, g), turned)
    return of_triangle(found, upper=False) if hermitian else found, None


@pinv.facade
def _(a: Any, rcond: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Array:
    """The pseudo-inverse of each matrix (Moore and Penrose).

    Singular values below `rtol` of the largest count as zero.
    """
    bound = rcond if rtol is None else rtol
    return pinv(operand(a), -1.0 if bound is None else bound, hermitian=hermitian)


@op(fails=True, public="np.linalg", complex=True)
def matrix_rank(x: Any, tol: Any, *, relative: bool, hermitian: bool) -> Any:
    """The number of singular values of each matrix that exceed a tolerance."""
    np = numpy()
    bound = {} if np.all(tol < 0) else {"rtol" if relative else "tol": tol}
    wide = x.astype(computed(Spec(x.shape, x.dtype)).compute.name)
    if not wide.size:  # an error before NumPy 2.3
        return np.zeros(x.shape[:-2], np.int64)
    return np.asarray(np.linalg.matrix_rank(wide, hermitian=hermitian, **bound)).astype(np.int64)


@matrix_rank.spec
def _(x: Spec, tol: Spec, *, relative: bool, hermitian: bool) -> Spec:
    if x.ndim < 2:
        return Spec((), "int64")
    return Spec(broadcast("matrix_rank", Spec(x.shape[:-2], x.dtype), tol), "int64")


@matrix_rank.facade
def _(A: Any, tol: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Array:  # noqa: N803
    """How many singular values of each matrix exceed `tol`, or `rtol` of the largest one."""
    bound = tol if rtol is None else rtol
    relative = rtol is not None
    bound = -1.0 if bound is None else bound
    return matrix_rank(operand(A), bound, relative=relative, hermitian=hermitian)


@op(dynamic=True, public="np.linalg", complex=True)
def lstsq(a: Any, b: Any, *, rcond: Any) -> Any:
    """The least-squares solution x of a @ x = b, with residual sums, a's rank and singular
    values."""
    return by_lapack(lambda a, b: numpy().linalg.lstsq(a, b, rcond), a, b)


@lstsq.facade
def _(a: Any, b: Any, rcond: Any = None) -> tuple[Any, ...]:
    """The x for which the squares of b - a @ x are least, their sums, a's rank, singular values.

    The sums are empty where a has not full rank: the call waits.
    """
    rcond = None if rcond == "warn" else rcond
    a, b = operands((a, b))
    if not _core.recording() or not any(getattr(each, "_is_tracked", False) for each in (a, b)):
        x, sums, rank, values = lstsq(a, b, rcond=rcond)
    else:
        x, sums, rank, values = lstsq(a.detach(), b.detach(), rcond=rcond)
        x, sums, values = found_by_lstsq(a, b, x, sums, values, rcond=rcond)
    return x, sums, rank.astype("int64"), values


@op(outputs=3, complex=True)
def found_by_lstsq(a: Any, b: Any, x: Any, sums: Any, values: Any, *, rcond: Any) -> Any:
    """What `lstsq` has found, with its gradient: the tape holds calls whose shapes are known."""
    return x, sums, values


@found_by_lstsq.spec
def _(a: Spec, b: Spec, x: Spec, sums: Spec, values: Spec, *, rcond: Any) -> tuple[Spec, ...]:
    return x, sums, values


@found_by_lstsq.gradient
def _(g: Any, y: Any, a: Any, b: Any, x: Any, sums: Any, values: Any, *, rcond: Any) -> Any:
    # Golub and Pereyra, as for `pinv`. The residual is orthogonal to what a @ x can be, so its
    # square varies as if x stayed the same.
    dx, dsums, dvalues = g
    is_vector, x = b.ndim == 1, y[0]
    if is_vector:
        dx, b, x = (each if each is None else expand_dims(each, -1) for each in (dx, b, x))
    rest, da, db = b - matmul(a, x), a * 0, b * 0
    if dx is not None:
        inverse = pinv(a, -1.0 if rcond is None else rcond, hermitian=False)
        turned = adjoint(inverse)
        db = matmul(turned, dx)
        beside = dx - matmul(inverse, matmul(a, dx))
        da = matmul(rest, adjoint(matmul(inverse, db))) - matmul(db, adjoint(x))
        da = da + matmul(matmul(turned, x), adjoint(beside))
    if dsums is not None and sums.shape[0] != 0:
        slope = 2 * rest * dsums
        da, db = da - matmul(slope, adjoint(x)), db + slope
    if dvalues is not None:
        u, _, vh = call("svd", a, full_matrices=False)
        da = da + matmul(u * dvalues, vh)
    return da, reshape(db, shape=(-1,)) if is_vector else db, None, None, None


@function(public="np.linalg")
def tensorinv(a: Any, ind: int = 2) -> Array:
    """The inverse under `tensordot` of an array whose first `ind` axes are as many as the rest.

    >>> np.linalg.tensorinv(np.eye(4).reshape(4, 2, 2), 1).shape
    """
    a = operand(a)
    if not 0 < ind < a.ndim:
        raise ShapeError(f"tensorinv: {list(a.shape)} needs axes before and after {ind}")
    rows, columns = a.shape[:ind], a.shape[ind:]
    return reshape(inv(reshape(a, shape=(product(rows), -1))), shape=(*columns, *rows))


@function(public="np.linalg")
@beside_arrays
def tensorsolve(a: Any, b: Any, axes: Any = None) -> Array:
    """The x for which ``tensordot(a, x, x.ndim)`` is b; `axes` of a go to its end before.

    >>> np.linalg.tensorsolve(np.eye(4).reshape(2, 2, 4), np.ones((2, 2)))
    """
    a, b = operands((a, b))
    if axes is not None:
        given = wholes("tensorsolve", "axes", axes)
        last = [normalize_axis("tensorsolve", axis, a.ndim) for axis in given]
        a = a.transpose([i for i in range(a.ndim) if i not in last] + last)
    shape = a.shape[b.ndim :]
    flat = reshape(a, shape=(product(a.shape[: b.ndim]), product(shape)))
    return reshape(solve(flat, reshape(b, shape=(-1,))), shape=shape)

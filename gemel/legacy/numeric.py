"""MXNet's NumPy-style operations whose settings in files differ from the functions' keywords."""

from __future__ import annotations

from typing import Any

from gemel import np, npx
from gemel.legacy.declare import Written, legacy, written


@legacy("_npi_norm")
def norm(
    data: Any,
    *,
    ord: Any = 2,  # noqa: A002 -- NumPy's name
    axis: Any = None,
    keepdims: bool = False,
    flag: int = -1,
) -> Any:
    """The norm of vectors or (without axes and flag) of a matrix."""
    if flag in (1, -2):  # the Frobenius norm: the 2-norm of all elements
        return np.linalg.vector_norm(data, axis=axis, keepdims=keepdims)
    if isinstance(axis, tuple) and len(axis) == 1:
        axis = axis[0]
    return np.linalg.norm(data, "nuc" if flag == 2 else ord, axis, keepdims)


# --- selection ------------------------------------------------------------------------------


@legacy("_npi_where_lscalar")
def where_lscalar(condition: Any, y: Any, *, scalar: float = 0.0) -> Any:
    """A number where the condition holds, else y."""
    return np.where(condition, scalar, y)


@legacy("_npi_where_rscalar")
def where_rscalar(condition: Any, x: Any, *, scalar: float = 0.0) -> Any:
    """x where the condition holds, else a number."""
    return np.where(condition, x, scalar)


@legacy("_npi_where_scalar2")
def where_scalars(condition: Any, *, x: float = 0.0, y: float = 0.0) -> Any:
    """One number where the condition holds, else another."""
    return np.where(condition, x, y).astype("float32")


# --- stacking -------------------------------------------------------------------------------


@legacy("_npi_hstack")
def hstack(*data: Any) -> Any:
    """The arrays side by side."""
    return np.hstack(data)


@legacy("_npi_vstack")
def vstack(*data: Any) -> Any:
    """The arrays one below the other."""
    return np.vstack(data)


@legacy("_npi_dstack")
def dstack(*data: Any) -> Any:
    """The arrays joined along the third axis."""
    return np.dstack(data)


@legacy("_npi_column_stack")
def column_stack(*data: Any) -> Any:
    """The arrays as columns."""
    return np.column_stack(data)


# --- statistics -----------------------------------------------------------------------------


@legacy("_npi_average", inputs=2)
def average(
    a: Any,
    weights: Any = None,
    *,
    axis: Any = None,
    returned: bool = False,
    weighted: bool = True,
) -> Any:
    """The mean, weighted if `weighted`."""
    return np.average(a, axis, weights if weighted else None, returned)


@legacy("_npi_percentile", inputs=2)
def percentile(
    a: Any,
    q: Any = None,
    *,
    axis: Any = None,
    interpolation: str = "linear",
    keepdims: bool = False,
    q_scalar: float | None = None,
) -> Any:
    """The `q`-th percentiles of the elements; `q_scalar` is a single number."""
    wanted = q_scalar if q is None else q
    return np.percentile(a, wanted, axis=axis, method=interpolation, keepdims=keepdims)


def _percentile(scale: float) -> Any:
    def rule(a: Any, axis: Any, keepdims: bool, q: Any = 50.0, **given: Any) -> Written | None:
        if not isinstance(q, (int, float)) or given["out"] is not None:
            return None
        if given.get("weights") is not None:
            return None
        return Written("_npi_percentile", (a,), settings(q * scale, axis, keepdims, **given))

    def settings(q: float, axis: Any, keepdims: bool, method: str = "linear", **_: Any) -> Any:
        axes = (axis,) if isinstance(axis, int) else axis
        return {"axis": axes, "interpolation": method, "keepdims": keepdims, "q_scalar": float(q)}

    return rule


written("median", "percentile")(_percentile(1.0))
written("quantile")(_percentile(100.0))


# --- matrices -------------------------------------------------------------------------------


@legacy("_linalg_det", "linalg_det", outputs=3, visible=1)
def det(A: Any) -> Any:  # noqa: N803 -- MXNet's name
    """The determinant of each matrix."""
    return np.linalg.det(A)


@legacy("_linalg_inverse", "linalg_inverse")
def inverse(A: Any) -> Any:  # noqa: N803
    """The inverse of each matrix."""
    return np.linalg.inv(A)


@legacy("_linalg_slogdet", "linalg_slogdet", outputs=2)
def slogdet(A: Any) -> Any:  # noqa: N803
    """The sign of each matrix's determinant, and the logarithm of its absolute value."""
    return tuple(np.linalg.slogdet(A))


@legacy("_npi_eigh", outputs=2)
def eigh(A: Any, *, UPLO: str = "L") -> Any:  # noqa: N803
    """The eigenvalues and the eigenvectors of each symmetric matrix."""
    return tuple(np.linalg.eigh(A, UPLO))


@legacy("diag")
def diag(data: Any, *, k: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """A vector as a diagonal, or the diagonal of a matrix."""
    if len(data.shape) == 1:
        return np.diag(data, k)
    return np.diagonal(data, k, axis1, axis2)


@legacy("_contrib_div_sqrt_dim", axes={"data": "..., d"})
def div_sqrt_dim(data: Any) -> Any:
    """The data divided by the square root of the length of its last axis."""
    return data / float(data.shape[-1]) ** 0.5


@legacy("softmax_cross_entropy")
def softmax_cross_entropy(data: Any, label: Any) -> Any:
    """The cross-entropy of softmax(data) and the classes in label, summed over the batch."""
    return -npx.pick(npx.log_softmax(data, axis=-1), label).sum(keepdims=True).reshape(1)

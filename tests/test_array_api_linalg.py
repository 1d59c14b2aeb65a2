"""The standard's linear algebra: names, shapes and dtypes of results, and the identities that
must hold for them."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
from array_api_draws import KINDS, arrays, promotable, same
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as drawn
from numpy_cases import examples

from gemel import np

linalg: Any = np.linalg
BATCHES = st.sampled_from([(), (), (2,), (0,), (2, 3)])
EXTENTS = st.integers(0, 4)
FLOATING = KINDS["any floating"]
NEAR = {"float32": 2e-3, "float64": 1e-9, "complex64": 2e-3, "complex128": 1e-9}


def close(found: Any, expected: Any, dtype: str, about: Any = "") -> None:
    """Check the dtype, and that the elements are near the expected ones."""
    assert found.dtype == dtype, about
    near = NEAR[dtype]
    numpy.testing.assert_allclose(
        found.asnumpy(), numpy.asarray(expected), near, near, err_msg=str(about)
    )


@st.composite
def matrices(draw: Any, rows: int, columns: int, names: list[str] = FLOATING) -> Any:
    """A batch of matrices with small numbers."""
    return draw(arrays(names, (*draw(BATCHES), rows, columns), small=True))


@st.composite
def invertible(draw: Any, names: list[str] = FLOATING) -> Any:
    """A batch of square matrices with dominant diagonals."""
    x = draw(matrices(n := draw(EXTENTS), n, names))
    return x + numpy.asarray(60 * numpy.eye(n), x.dtype)


def symmetric(x: Any, upper: bool) -> Any:
    """The symmetric or Hermitian matrix that one triangle of x describes."""
    half = numpy.triu(x, 1) if upper else numpy.tril(x, -1)
    both = half + numpy.conj(numpy.swapaxes(half, -1, -2))
    return both + numpy.eye(x.shape[-1], dtype=x.dtype) * numpy.real(x)


# --- products -------------------------------------------------------------------------------


@examples(30)
@given(st.data())
def test_matmul(data: Any) -> None:
    rows, inside, columns = (data.draw(EXTENTS) for _ in range(3))
    batch = data.draw(drawn.mutually_broadcastable_shapes(num_shapes=2, max_dims=2, max_side=2))
    shapes = [(*batch.input_shapes[0], rows, inside), (*batch.input_shapes[1], inside, columns)]
    if data.draw(st.booleans()):
        shapes[data.draw(st.integers(0, 1))] = (inside,)
    pair = data.draw(st.sampled_from(promotable(KINDS["numeric"])))
    a, b = (data.draw(arrays(name, s, small=True)) for name, s in zip(pair, shapes, strict=True))
    same("matmul", a, b, tolerance=1e-3, slack=1e-4)
    same("linalg.matmul", a, b, tolerance=1e-3, slack=1e-4)
    found, expected = np.asarray(a) @ np.asarray(b), a @ b
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)


@pytest.mark.parametrize(("a", "b"), [((), (2,)), ((2,), ()), ((2,), (3,)), ((2, 3), (2, 3))])
def test_shapes_without_a_product(a: Any, b: Any) -> None:
    with pytest.raises(ValueError, match="matmul"):
        np.matmul(np.ones(a), np.ones(b))


@examples(30)
@given(st.data())
def test_vecdot(data: Any) -> None:
    shapes = data.draw(drawn.mutually_broadcastable_shapes(num_shapes=2, max_dims=2, max_side=3))
    n = data.draw(EXTENTS)
    pair = data.draw(st.sampled_from(promotable(KINDS["numeric"])))
    a, b = (
        data.draw(arrays(name, (*s, n), small=True))
        for name, s in zip(pair, shapes.input_shapes, strict=True)
    )
    same("vecdot", a, b, tolerance=1e-3, slack=1e-4)
    axis = data.draw(st.integers(-min(a.ndim, b.ndim), -1))
    a, b = numpy.moveaxis(a, -1, axis), numpy.moveaxis(b, -1, axis)
    same("vecdot", a, b, axis=axis, tolerance=1e-3, slack=1e-4)
    same("linalg.vecdot", a, b, axis=axis, tolerance=1e-3, slack=1e-4)


@examples(30)
@given(st.data())
def test_tensordot(data: Any) -> None:
    inside = data.draw(st.lists(st.integers(0, 3), max_size=2))
    left = data.draw(st.lists(st.integers(0, 3), max_size=2))
    right = data.draw(st.lists(st.integers(0, 3), max_size=2))
    pair = data.draw(st.sampled_from(promotable(KINDS["numeric"])))
    a = data.draw(arrays(pair[0], (*left, *inside), small=True))
    b = data.draw(arrays(pair[1], (*inside, *right), small=True))
    same("tensordot", a, b, axes=len(inside), tolerance=1e-3, slack=1e-4)
    named = (tuple(range(-len(inside), 0)), tuple(range(len(inside))))
    same("linalg.tensordot", a, b, axes=named, tolerance=1e-3, slack=1e-4)


@examples(20)
@given(st.data())
def test_outer_and_cross(data: Any) -> None:
    pair = data.draw(st.sampled_from(promotable(KINDS["numeric"])))
    a, b = (data.draw(arrays(name, (data.draw(EXTENTS),), small=True)) for name in pair)
    same("linalg.outer", a, b, tolerance=1e-3, slack=1e-4)
    shapes = data.draw(drawn.mutually_broadcastable_shapes(num_shapes=2, max_dims=2, max_side=3))
    axis = data.draw(st.integers(-1 - min(map(len, shapes.input_shapes)), -1))
    given_ = [
        data.draw(arrays(name, (*s[: len(s) + axis + 1], 3, *s[len(s) + axis + 1 :]), small=True))
        for name, s in zip(pair, shapes.input_shapes, strict=True)
    ]
    same("linalg.cross", *given_, axis=axis, tolerance=1e-3, slack=1e-4)


# --- parts ----------------------------------------------------------------------------------


@examples(30)
@given(st.data())
def test_parts_of_matrices(data: Any) -> None:
    shape = data.draw(EXTENTS), data.draw(EXTENTS)
    x = data.draw(matrices(*shape, KINDS["all"]))
    offset = data.draw(st.integers(-5, 5))
    same("linalg.diagonal", x, offset=offset)
    same("matrix_transpose", x)
    same("linalg.matrix_transpose", x)
    own = np.asarray(x)
    assert own.mT.tolist() == own.__array_namespace__().matrix_transpose(own).tolist()
    if x.ndim == 2:
        assert own.T.tolist() == x.T.tolist()
    if x.dtype != bool:
        same("linalg.trace", x, offset=offset, tolerance=1e-3, slack=1e-4)
        wide = {"i": "int64", "u": "uint64", "f": "float64", "c": "complex128"}[x.dtype.kind]
        same("linalg.trace", x, offset=offset, dtype=numpy.dtype(wide), tolerance=1e-3, slack=1e-4)


# --- norms ----------------------------------------------------------------------------------


@examples(40)
@given(st.booleans(), st.data())
def test_vector_norm(keep: bool, data: Any) -> None:
    x = data.draw(
        arrays(FLOATING, drawn.array_shapes(min_dims=1, max_dims=3, max_side=3), small=True)
    )
    order = data.draw(st.sampled_from([2, 1, 0, -1, -2, 3, 0.5, float("inf"), -float("inf")]))
    one = st.integers(-x.ndim, x.ndim - 1)
    several = st.lists(one, min_size=1, max_size=x.ndim, unique_by=lambda axis: axis % x.ndim)
    axis = data.draw(st.one_of(st.none(), one, several.map(tuple)))
    if order in (-1, -2) and not numpy.all(numpy.abs(x) > 1e-3):
        return
    same("linalg.vector_norm", x, axis=axis, keepdims=keep, ord=order, tolerance=1e-3, slack=1e-4)


@examples(40)
@given(st.booleans(), st.data())
def test_matrix_norm(keep: bool, data: Any) -> None:
    x = data.draw(matrices(data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4))))
    order = data.draw(st.sampled_from(["fro", "nuc", 1, -1, 2, float("inf"), -float("inf")]))
    with numpy.errstate(all="ignore"):
        expected = numpy.linalg.matrix_norm(x, keepdims=keep, ord=order)
    found = linalg.matrix_norm(np.asarray(x), keepdims=keep, ord=order)
    real = {"complex64": "float32", "complex128": "float64"}.get(x.dtype.name, x.dtype.name)
    close(found, expected, real, (x, order))


# --- systems --------------------------------------------------------------------------------


@examples(25)
@given(invertible(), st.integers(-2, 4))
def test_inverses_and_determinants(x: Any, power: int) -> None:
    own, name = np.asarray(x), x.dtype.name
    close(linalg.inv(own), numpy.linalg.inv(x), name, x)
    found = linalg.det(own)
    assert (found.dtype, found.shape) == (name, x.shape[:-2])
    numpy.testing.assert_allclose(found.asnumpy(), numpy.linalg.det(x), NEAR[name])
    sign, size = linalg.slogdet(own)
    assert linalg.slogdet(own)._fields == ("sign", "logabsdet")
    close(sign, numpy.linalg.slogdet(x).sign, name)
    close(size, numpy.linalg.slogdet(x).logabsdet, numpy.abs(x).dtype.name)
    raised = linalg.matrix_power(own, power)
    expected = numpy.linalg.matrix_power(x, power)
    assert (raised.dtype, raised.shape) == (name, x.shape)
    numpy.testing.assert_allclose(raised.asnumpy(), expected, 1e-2, 1e-2)


@examples(30)
@given(invertible(), st.data())
def test_solve(a: Any, data: Any) -> None:
    n = a.shape[-1]
    rest = (n,) if data.draw(st.booleans()) else (*a.shape[:-2], n, data.draw(EXTENTS))
    b = data.draw(arrays(a.dtype.name, rest, small=True))
    found = linalg.solve(np.asarray(a), np.asarray(b))
    close(found, numpy.linalg.solve(a, b), a.dtype.name, (a, b))


@examples(25)
@given(matrices(3, 2) | matrices(2, 4) | matrices(0, 2) | matrices(3, 3))
def test_pseudo_inverse_and_rank(x: Any) -> None:
    own = np.asarray(x)
    found = linalg.matrix_rank(own)
    assert (found.dtype, found.shape) == (np.int64, x.shape[:-2])
    if x.size:  # NumPy 2.2 cannot compute the rank of an empty matrix
        same("linalg.matrix_rank", x, rtol=0.5)
    else:
        assert not found.asnumpy().any()
    inverse = linalg.pinv(own, rtol=0.25)
    expected = numpy.linalg.pinv(x, rtol=0.25)
    assert (inverse.dtype, inverse.shape) == (x.dtype, expected.shape)
    numpy.testing.assert_allclose(inverse.asnumpy(), expected, 1e-2, 1e-2)


# --- decompositions -------------------------------------------------------------------------


@examples(25)
@given(invertible(), st.booleans())
def test_cholesky(x: Any, upper: bool) -> None:
    whole = symmetric(x, False)
    found = linalg.cholesky(np.asarray(whole), upper=upper)
    close(found, numpy.linalg.cholesky(whole, upper=upper), x.dtype.name, whole)


@examples(25)
@given(matrices(3, 3) | matrices(2, 2) | matrices(0, 0))
def test_eigenvalues(x: Any) -> None:
    whole = symmetric(x, False)
    own, real = np.asarray(whole), numpy.abs(x).dtype.name
    found = linalg.eigh(own)
    assert found._fields == ("eigenvalues", "eigenvectors")
    close(found.eigenvalues, numpy.linalg.eigvalsh(whole), real, whole)
    close(linalg.eigvalsh(own), numpy.linalg.eigvalsh(whole), real, whole)
    vectors = found.eigenvectors
    close(own @ vectors, (vectors * found.eigenvalues[..., None, :]).asnumpy(), x.dtype.name, whole)


@examples(25)
@given(matrices(3, 2) | matrices(2, 4) | matrices(0, 2) | matrices(3, 3), st.booleans())
def test_orthogonal_factors(x: Any, whole: bool) -> None:
    own, name, real = np.asarray(x), x.dtype.name, numpy.abs(x).dtype.name
    rows, columns = x.shape[-2:]
    found = linalg.qr(own, mode="complete" if whole else "reduced")
    assert found._fields == ("Q", "R")
    inner = rows if whole else min(rows, columns)
    assert found.Q.shape == (*x.shape[:-2], rows, inner)
    assert found.R.shape == (*x.shape[:-2], inner, columns)
    close(found.Q @ found.R, x, name)
    values = linalg.svd(own, full_matrices=whole)
    assert values._fields == ("U", "S", "Vh")
    left, right = (rows, columns) if whole else (min(rows, columns),) * 2
    assert values.U.shape == (*x.shape[:-2], rows, left)
    assert values.Vh.shape == (*x.shape[:-2], right, columns)
    k = min(rows, columns)
    again = (values.U[..., :k] * values.S[..., None, :]) @ values.Vh[..., :k, :]
    close(again, x, name)
    close(values.S, numpy.linalg.svd(x, compute_uv=False), real)
    close(linalg.svdvals(own), numpy.linalg.svd(x, compute_uv=False), real)


# --- refused --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["inv", "det", "slogdet", "cholesky", "eigh", "eigvalsh"])
def test_matrices_that_must_be_square(name: str) -> None:
    for shape in ((2, 3), (3,), ()):
        with pytest.raises(ValueError, match=name):
            getattr(linalg, name)(np.ones(shape))


@pytest.mark.parametrize(("a", "b"), [((2, 2), (3,)), ((2, 2), ()), ((2, 3), (2,))])
def test_solve_refuses_shapes_that_do_not_match(a: Any, b: Any) -> None:
    with pytest.raises(ValueError, match="solve"):
        linalg.solve(np.ones(a), np.ones(b))


def test_outer_and_cross_refuse_other_shapes() -> None:
    with pytest.raises(ValueError, match="outer"):
        linalg.outer(np.ones((2, 2)), np.ones(2))
    with pytest.raises(ValueError, match="cross"):
        linalg.cross(np.ones((2, 2)), np.ones((2, 2)))

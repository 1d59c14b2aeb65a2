"""Products, norms and `np.linalg`: imperative = compiled = NumPy, with gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest
from numpy_twins import Cases, alike, check_gradients, same

import gemel
from gemel import np
from gemel.errors import DTypeError, GradientError, ShapeError, UnknownNameError


def numbers(*shape: int) -> Any:
    return numpy.random.default_rng(sum(shape)).uniform(-1.5, 1.5, shape)


A, B, C, V = numbers(3, 4), numbers(4, 5), numbers(5, 2), numbers(4)
BATCH, SQUARE, MANY = numbers(2, 3, 4), numbers(3, 3) + numpy.eye(3), numbers(2, 3, 3)
DEFINITE = SQUARE @ SQUARE.T + numpy.eye(3)

#: Equations of einsum and their operands.
EQUATIONS: dict[str, tuple[Any, ...]] = {
    "ij,jk->ik": (A, B),
    "ij,jk": (A, B),
    "ij,ij->i": (A, A + 1),
    "ij,ij": (A, A + 1),
    "ij->": (A,),
    "ij->ji": (A,),
    "ji": (A,),
    "ii": (SQUARE,),
    "ii->i": (SQUARE,),
    "iij->j": (numbers(3, 3, 2),),
    "iii->": (numbers(3, 3, 3),),
    "bij,bjk->bik": (BATCH, numbers(2, 4, 5)),
    "bhqd,bhkd->bhqk": (numbers(2, 2, 3, 4), numbers(2, 2, 5, 4)),
    "bij,jk->bki": (BATCH, B),
    "...ij,jk": (BATCH, B),
    "...ij,...jk->...ik": (numbers(2, 1, 3, 4), numbers(3, 4, 2)),
    "i...->...": (BATCH,),
    "i,j,k->kji": (V, V[:2], V[:3]),
    "i,i,i->": (V, V * 2, V + 1),
    "ab,bc,cd->da": (A, B, C),
    "ab,bc,cd,d->a": (A, B, C, V[:2]),
    "ij,ik,jk->": (SQUARE, SQUARE + 1, SQUARE * 2),
    "ijk,ilm,njm,nlk->": tuple(numbers(2, 2, 2) + i for i in range(4)),
    "ij,kl->jkil": (A, B),
    "ij,j->": (A, V),
    ",ij->ij": (numpy.array(2.0), A),
    " i j , j k -> i k ": (A, B),
}


@pytest.mark.parametrize("equation", EQUATIONS)
def test_einsum(equation: str) -> None:
    operands = EQUATIONS[equation]
    alike(lambda np, *x: np.einsum(equation, *x), operands, exact=False)
    if len(operands) > 2:
        alike(lambda np, *x: np.einsum(equation, *x, optimize=True), operands, exact=False)


@pytest.mark.parametrize("equation", EQUATIONS)
def test_gradients_of_einsum(equation: str) -> None:
    check_gradients(lambda np, *x: np.einsum(equation, *x), EQUATIONS[equation])


def test_einsum_by_numbers_and_of_integers() -> None:
    alike(lambda np, a, b: np.einsum(a, [0, 1], b, [1, 2], [0, 2]), (A, B), exact=False)
    alike(lambda np, a: np.einsum(a, [0, 0]), (SQUARE,), exact=False)
    whole = numpy.arange(12).reshape(3, 4)
    alike(lambda np, a: np.einsum("ij,kj->ik", a, a), (whole,))
    many, bools = numpy.array(2), numpy.ones(3, bool)
    alike(lambda np, a, b, c: np.einsum("i,i,->", a, b, c), (bools, bools, many))
    small = whole.astype("int8")
    alike(lambda np, a: np.einsum("ij,ij->j", a, a), (small,))
    with pytest.raises(DTypeError):
        np.einsum("i->", np.array(["a"]))


def test_einsum_in_another_dtype() -> None:
    """Operands are converted before they are multiplied, if `casting` ("safe") allows it."""
    small, wide = numpy.array([[100, 100]], "int8"), numpy.array([[1.0, 2.5], [3.0, 0.25]])
    alike(lambda np, a: np.einsum("ij,ij->i", a, a, dtype="int32"), (small,))
    alike(lambda np, a: np.einsum("ij->", a, dtype="float32", casting="same_kind"), (wide,))
    alike(
        lambda np, *x: np.einsum("ab,bc,c", *x, dtype="float64", optimize=True),
        (wide,) * 2 + (small[0],),
    )
    assert np.einsum("ij->", np.array(small), dtype="int64", order="C").dtype == "int64"
    for options in ({"dtype": "float32"}, {"out": np.zeros((), "float32")}):
        with pytest.raises(DTypeError, match="einsum: unsafe cast"):
            np.einsum("ij->", np.array(wide), **options)
    with pytest.raises(ValueError, match="order of einsum"):
        np.einsum("ij->", np.array(wide), order="Z")


def test_axes_of_one_broadcast_in_einsum() -> None:
    alike(lambda np, a, b: np.einsum("ij,ij->ij", a, b), (A, A[:, :1]), exact=False)
    alike(lambda np, a, b: np.einsum("ij,jk->ik", a, b), (A[:, :1], B), exact=False)


PRODUCTS: Cases = {
    "outer": (lambda np, a, b: np.outer(a, b), (A, V)),
    "inner": (lambda np, a, b: np.inner(a, b), (A, BATCH)),
    "inner of rows": (lambda np, a: np.inner(a, a), (V,)),
    "inner of numbers": (lambda np, a: np.inner(a, 3.0), (A,)),
    "vdot": (lambda np, a, b: np.vdot(a, b), (A, A + 1)),
    "vecdot": (lambda np, a, b: np.vecdot(a, b), (BATCH, A)),
    "tensordot": (lambda np, a, b: np.tensordot(a, b, 1), (BATCH, B)),
    "tensordot two": (lambda np, a, b: np.tensordot(a, b), (BATCH, numbers(3, 4, 2))),
    "tensordot none": (lambda np, a, b: np.tensordot(a, b, 0), (V, A)),
    "tensordot axes": (
        lambda np, a, b: np.tensordot(a, b, axes=([2, 0], [0, 1])), (BATCH, numbers(4, 2, 3))
    ),
    "tensordot axis": (lambda np, a, b: np.tensordot(a, b, (-1, 1)), (A, numbers(2, 4))),
    "kron": (lambda np, a, b: np.kron(a, b), (A, B)),
    "kron of fewer axes": (lambda np, a, b: np.kron(a, b), (V, A)),
    "cross": (lambda np, a, b: np.cross(a, b), (SQUARE, SQUARE[::-1] * 2)),
    "cross repeated": (lambda np, a, b: np.cross(a, b), (numbers(4, 3), numbers(3))),
    "cross axis": (lambda np, a, b: np.cross(a, b, axis=0), (A, A[::-1] + 1)),
    "cross axes": (lambda np, a, b: np.cross(a, b, axisa=0, axisc=0), (A, A.T + 1)),
    "matrix_power": (lambda np, a: np.linalg.matrix_power(a, 5), (SQUARE,)),
    "matrix_power 0": (lambda np, a: np.linalg.matrix_power(a, 0) * a, (MANY,)),
    "matrix_power -2": (lambda np, a: np.linalg.matrix_power(a, -2), (SQUARE,)),
    "multi_dot": (lambda np, a, b, c: np.linalg.multi_dot([a, b, c]), (A, B, C)),
    "multi_dot rows": (lambda np, v, b, w: np.linalg.multi_dot([v, b, w]), (V, B, C[:, 0])),
    "linalg.trace": (lambda np, a: np.linalg.trace(a, offset=1), (BATCH,)),
    "linalg.diagonal": (lambda np, a: np.linalg.diagonal(a, offset=-1), (BATCH,)),
    "linalg.outer": (lambda np, a: np.linalg.outer(a, a), (V,)),
    "linalg.cross": (lambda np, a, b: np.linalg.cross(a, b), (SQUARE, SQUARE[::-1] * 2)),
    "linalg.matmul": (lambda np, a, b: np.linalg.matmul(a, b), (BATCH, B)),
    "linalg.vecdot": (lambda np, a: np.linalg.vecdot(a, a), (BATCH,)),
    "linalg.tensordot": (lambda np, a, b: np.linalg.tensordot(a, b, axes=1), (A, B)),
    "linalg.matrix_transpose": (lambda np, a: np.linalg.matrix_transpose(a), (BATCH,)),
}  # fmt: skip

NORMS: Cases = {
    "norm": (lambda np, a: np.linalg.norm(a), (BATCH,)),
    "norm axis": (lambda np, a: np.linalg.norm(a, axis=1, keepdims=True), (BATCH,)),
    "norm axes": (lambda np, a: np.linalg.norm(a, axis=(0, 2)), (BATCH,)),
    **{
        f"norm {p} of rows": (lambda np, a, p=p: np.linalg.norm(a, p, axis=-1), (BATCH,))
        for p in (1, 2, 3, 0.5, numpy.inf, -numpy.inf, -1)
    },
    **{
        f"norm {p} of matrices": (
            lambda np, a, p=p: np.linalg.norm(a, p, axis=(2, 0), keepdims=True),
            (BATCH,),
        )
        for p in ("fro", 1, -1, numpy.inf, -numpy.inf)
    },
    "vector_norm": (lambda np, a: np.linalg.vector_norm(a, axis=(0, 1), ord=3), (BATCH,)),
    "vector_norm without an order": (
        lambda np, a: [np.linalg.vector_norm(a, axis=axis, ord=None) for axis in (None, 1, (2, 0))],
        (BATCH,),
    ),
    "matrix_norm": (lambda np, a: np.linalg.matrix_norm(a, keepdims=True), (BATCH,)),
}

SOLVED: Cases = {
    "inv": (lambda np, a: np.linalg.inv(a), (MANY,)),
    "det": (lambda np, a: np.linalg.det(a), (MANY,)),
    "slogdet": (lambda np, a: np.linalg.slogdet(a), (MANY,)),
    "solve": (lambda np, a, b: np.linalg.solve(a, b), (SQUARE, A)),
    "solve a row": (lambda np, a, b: np.linalg.solve(a, b), (MANY, V[:3])),
    "solve many": (lambda np, a, b: np.linalg.solve(a, b), (MANY, numbers(3, 1))),
    "cholesky": (lambda np, a: np.linalg.cholesky(a @ np.matrix_transpose(a)), (SQUARE,)),
    "tensorinv": (lambda np, a: np.linalg.tensorinv(a, 1), (numbers(6, 2, 3),)),
    "tensorsolve": (
        lambda np, a, b: np.linalg.tensorsolve(a, b), (numbers(2, 3, 6) , numbers(2, 3))
    ),
    "cond": (lambda np, a: np.linalg.cond(a, 1), (SQUARE,)),
}  # fmt: skip

#: Functions without a gradient.
DECOMPOSED: Cases = {
    "upper": (lambda np, a: np.linalg.cholesky(a, upper=True), (DEFINITE,)),
    "qr": (lambda np, a: np.linalg.qr(a), (BATCH,)),
    "qr complete": (lambda np, a: np.linalg.qr(a, mode="complete"), (A.T,)),
    "qr r": (lambda np, a: np.linalg.qr(a, "r"), (A,)),
    "svd": (lambda np, a: np.linalg.svd(a), (BATCH,)),
    "svd thin": (lambda np, a: np.linalg.svd(a, full_matrices=False), (A,)),
    "svd values": (lambda np, a: np.linalg.svd(a, compute_uv=False), (A,)),
    "svdvals": (lambda np, a: np.linalg.svdvals(a), (A,)),
    "eigh": (lambda np, a: np.linalg.eigh(a), (DEFINITE,)),
    "eigh upper": (lambda np, a: np.linalg.eigh(a, UPLO="U"), (SQUARE,)),
    "eigvalsh": (lambda np, a: np.linalg.eigvalsh(a), (DEFINITE,)),
    "pinv": (lambda np, a: [np.linalg.pinv(a), np.linalg.pinv(a, rtol=0.5)], (BATCH,)),
    "matrix_rank": (
        lambda np, a: [np.linalg.matrix_rank(a), np.linalg.matrix_rank(a, tol=1.0)], (MANY,)
    ),
    "norm 2": (lambda np, a: [np.linalg.norm(a, p) for p in (2, -2, "nuc")], (A,)),
    "cond 2": (lambda np, a: [np.linalg.cond(a), np.linalg.cond(a, -2)], (MANY,)),
}  # fmt: skip

DIFFERENTIABLE = {**PRODUCTS, **NORMS, **SOLVED}
ALL = {**DIFFERENTIABLE, **DECOMPOSED}


@pytest.mark.parametrize("name", ALL)
def test_imperative_compiled_and_numpy_alike(name: str) -> None:
    alike(*ALL[name], exact=False)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients(name: str) -> None:
    check_gradients(*DIFFERENTIABLE[name])


TWICE = ("inv", "det", "slogdet", "solve", "cholesky", "norm", "norm 3 of rows", "multi_dot")


@pytest.mark.parametrize("name", TWICE)
def test_gradients_of_gradients(name: str) -> None:
    """The gradient's derivative along a direction, against finite differences of gradients."""
    program, arrays = DIFFERENTIABLE[name]
    rest = list(map(np.array, arrays[1:]))
    direction = numpy.random.default_rng(1).standard_normal(arrays[0].shape)

    def slope(values: Any) -> tuple[Any, Any]:
        x = np.array(values)
        x.attach_grad()
        with gemel.autograd.record():
            found = program(np, x, *rest)
            y = sum((one * one).sum() for one in (found if isinstance(found, tuple) else (found,)))
            (g,) = gemel.autograd.grad([y], [x], create_graph=True)
            total = (g * np.array(direction)).sum()
        total.backward()
        return g.asnumpy(), x.grad.asnumpy()

    first, second = slope(arrays[0])
    step = 1e-5 * direction
    ends = [slope(arrays[0] + sign * step)[0] for sign in (1, -1)]
    numpy.testing.assert_allclose(second, (ends[0] - ends[1]) / 2e-5, rtol=1e-4, atol=1e-5)
    assert abs(first).max() > 0


def test_lstsq() -> None:
    found, wanted = np.linalg.lstsq(A.T, V), numpy.linalg.lstsq(A.T, V)
    for a, b in zip(found, wanted, strict=True):
        numpy.testing.assert_allclose(a.asnumpy(), b)


def of_lstsq(np: Any, a: Any, b: Any) -> Any:
    """A number that depends on the solution, on the residuals, if any, and on the values."""
    x, sums, _, values = np.linalg.lstsq(a, b)
    return (np.sin(x) * x).sum() + (sums * sums).sum() + (values**3).sum()


@pytest.mark.parametrize(
    "shapes", [((5, 3), (5, 2)), ((5, 3), (5,)), ((3, 5), (3, 2)), ((4, 4), (4, 1))]
)
def test_gradients_of_lstsq(shapes: Any) -> None:
    """The first against differences of values, the second against differences of the first."""
    draw = numpy.random.default_rng(4)
    starts = [draw.standard_normal(shape) for shape in shapes]
    ways = [draw.standard_normal(shape) for shape in shapes]

    def slopes(move: float) -> tuple[Any, float, Any]:
        arrays = [np.array(x + move * way) for x, way in zip(starts, ways, strict=True)]
        for array in arrays:
            array.attach_grad()
        with gemel.autograd.record():
            y = of_lstsq(np, *arrays)
            found = gemel.autograd.grad(y, arrays, create_graph=True)
            slope = sum((g * np.array(way)).sum() for g, way in zip(found, ways, strict=True))
        slope.backward()
        second = sum((x.grad.asnumpy() * way).sum() for x, way in zip(arrays, ways, strict=True))
        return y.item(), slope.item(), second

    low, (_, slope, second), high = (slopes(move) for move in (-1e-6, 0.0, 1e-6))
    numpy.testing.assert_allclose(slope, (high[0] - low[0]) / 2e-6, rtol=1e-6)
    numpy.testing.assert_allclose(second, (high[1] - low[1]) / 2e-6, rtol=1e-6)


def test_operations_without_a_gradient_say_so() -> None:
    x = np.array(A)
    x.attach_grad()
    with gemel.autograd.record(), pytest.raises(GradientError, match="i0 has no gradient"):
        np.i0(x).backward()


def test_the_norm_of_nothing_but_zeros_has_a_gradient() -> None:
    x = np.zeros((2, 3))
    x.attach_grad()
    with gemel.autograd.record():
        y = np.linalg.norm(x, axis=1).sum()
    y.backward()
    assert x.grad.tolist() == [[0, 0, 0], [0, 0, 0]]


def test_results_have_names() -> None:
    assert np.linalg.eigh(np.array(DEFINITE)).eigenvectors.shape == (3, 3)
    assert np.linalg.slogdet(np.array(MANY)).logabsdet.shape == (2,)
    assert np.linalg.qr(np.array(A)).R.shape == (3, 4)
    assert np.linalg.svd(np.array(A)).Vh.shape == (4, 4)


@pytest.mark.parametrize("dtype", ["float16", "int32", "bool"])
def test_dtypes(dtype: str) -> None:
    """float16 stays float16; integers and bools become float32."""
    x = np.array(numpy.eye(3).astype(dtype))
    wanted = dtype if dtype == "float16" else "float32"
    for found in (np.linalg.inv(x), np.linalg.svdvals(x), np.linalg.norm(x), np.linalg.solve(x, x)):
        assert found.dtype == wanted
    same(np.linalg.det(x), numpy.ones((), wanted))
    assert np.kron(x, x).dtype == np.outer(x, x).dtype == np.tensordot(x, x).dtype == dtype


def test_failures_are_raised_at_the_wait() -> None:
    found = np.linalg.inv(np.zeros((2, 2))) + 1
    with pytest.raises(numpy.linalg.LinAlgError, match="Singular"):
        found.wait_to_read()
    with pytest.raises(numpy.linalg.LinAlgError, match="positive definite"):
        gemel.compile(np.linalg.cholesky)(-np.eye(2)).wait_to_read()


BAD: list[tuple[Callable[[Any], Any], type[Exception], str]] = [
    (lambda x: np.linalg.inv(x), ShapeError, "square matrices"),
    (lambda x: np.linalg.det(x[0]), ShapeError, "a matrix has two"),
    (lambda x: np.linalg.solve(x[:, :3], x[0]), ShapeError, "must have the 3 rows"),
    (lambda x: np.linalg.qr(x, "full"), UnknownNameError, "mode of qr"),
    (lambda x: np.linalg.eigh(x[:, :3], "M"), UnknownNameError, "UPLO"),
    (lambda x: np.linalg.eigh(x[:, :3], 1), UnknownNameError, "UPLO"),
    (lambda x: np.linalg.norm(x, "nic"), UnknownNameError, "order of a matrix's norm"),
    (lambda x: np.linalg.norm(x[0], "fro"), UnknownNameError, "order of a vector's norm"),
    (lambda x: np.linalg.norm(x[None], 2), ShapeError, "is for vectors or matrices"),
    (lambda x: np.linalg.matrix_power(x, 2), ShapeError, "not contain square matrices"),
    (lambda x: np.linalg.multi_dot([x]), ShapeError, "multi_dot"),
    (lambda x: np.linalg.outer(x, x), ShapeError, "must have one dimension"),
    (lambda x: np.linalg.cross(x, x), ShapeError, "must have 3"),
    (lambda x: np.linalg.nrom, AttributeError, "did you mean 'norm'"),
    (lambda x: np.cross(x, x), ShapeError, "must have 2 or 3"),
    (lambda x: np.vecdot(x, x[:, :2]), ShapeError, "vecdot"),
    (lambda x: np.tensordot(x, x, 1), ShapeError, "tensordot"),
    (lambda x: np.einsum("ij,jk", x), ShapeError, "it has 2 operands, but 1 were given"),
    (lambda x: np.einsum("ijk", x), ShapeError, "labels 3 axes of an operand with 2"),
    (lambda x: np.einsum("ij->ik", x), ShapeError, "has a label that no operand has"),
    (lambda x: np.einsum("ij,ij->i", x, x[:, :2]), ShapeError, "axis 'j' has 4 and 2"),
    (lambda x: np.einsum("ii", x), ShapeError, "'i'"),
    (lambda x: np.einsum("i1", x), ShapeError, "labels must be letters"),
]


@pytest.mark.parametrize(("call", "kind", "message"), BAD, ids=lambda v: getattr(v, "__name__", v))
def test_errors_at_the_call(call: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        call(np.array(A))

"""Complex numbers: imperative = compiled = NumPy in values and dtypes, with gradients."""

from __future__ import annotations

import math
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy_cases import examples
from numpy_twins import Cases, alike, check_gradients
from test_codegen import RUNNABLE as TARGETS
from test_codegen import apply

import gemel
from gemel import autograd, np, npx
from gemel.dtype import DTYPES, as_dtype
from gemel.errors import DTypeError, GradientError, NoKernelError

INF = math.inf
RANDOM = numpy.random.default_rng(11)


def numbers(*shape: int) -> Any:
    return RANDOM.standard_normal(shape) + 1j * RANDOM.standard_normal(shape)


def reals(*shape: int) -> Any:
    return RANDOM.standard_normal(shape)


Z, W, R = numbers(3), numbers(2, 1), reals(3)
SQUARE, MATRIX, MANY = numbers(3, 3), numbers(2, 3), numbers(2, 3, 3)
DEFINITE = SQUARE @ SQUARE.conj().T + 3 * numpy.eye(3)
MASK = numpy.array([True, False, True])

ARITHMETIC: Cases = {
    "add": (lambda np, a, b: a + b, (Z, W)),
    "multiply": (lambda np, a, b: a * b - b, (Z, W)),
    "multiply real": (lambda np, a, b: a * b, (R, Z)),
    "divide": (lambda np, a, b: a / b, (Z, R)),
    "divide real": (lambda np, a, b: a / b, (R, Z)),
    "numbers": (lambda np, a: (2 - 1j) / (a + 1j) * 3 - 1.5, (R,)),
    "power": (lambda np, a, b: a**b, (Z, W)),
    "power of real": (lambda np, a, b: a**b, (R, Z)),
    "power 2": (lambda np, a: a**2, (Z,)),
    "negative": (lambda np, a: -a, (Z,)),
    "square": (lambda np, a: np.square(a) + np.reciprocal(a), (Z,)),
    "absolute": (lambda np, a: np.absolute(a), (MATRIX,)),
    "sign": (lambda np, a: np.sign(a), (Z,)),
    "real": (lambda np, a: np.real(a * 1j), (Z,)),
    "imag": (lambda np, a: np.imag(a), (Z,)),
    "conj": (lambda np, a: np.conj(a) * a.conjugate(), (Z,)),
    "angle": (lambda np, a: np.angle(a), (Z,)),
    "parts": (lambda np, a: a.real * 2 + a.imag, (MATRIX,)),
    "from real": (lambda np, a: np.exp(1j * a), (R,)),
}
FUNCTIONS: Cases = {
    name: (lambda np, a, name=name: getattr(np, name)(a), (Z,))
    for name in (
        *("sqrt", "exp", "expm1", "log", "log1p", "log2", "log10", "exp2", "sinc"),
        *("sin", "cos", "tan", "arcsin", "arccos", "arctan"),
        *("sinh", "cosh", "tanh", "arcsinh", "arccosh", "arctanh"),
    )
}
WHOLE: Cases = {
    "sum": (lambda np, a: a.sum(axis=0), (MATRIX,)),
    "prod": (lambda np, a: a.prod(), (Z,)),
    "prod with 0": (lambda np, a: a.prod(axis=1), (MATRIX * [[0, 1, 1], [1, 1, 1]],)),
    "mean": (lambda np, a: a.mean(axis=1), (MATRIX,)),
    "var": (lambda np, a: a.var(axis=0), (MATRIX,)),
    "std": (lambda np, a: a.std(ddof=1), (MATRIX,)),
    "cumsum": (lambda np, a: np.cumsum(a, axis=1), (MATRIX,)),
    "cumprod": (lambda np, a: np.cumprod(a), (Z,)),
    "matmul": (lambda np, a, b: a @ b, (MATRIX, SQUARE)),
    "matmul real": (lambda np, a, b: a @ b, (MATRIX.real.copy(), SQUARE)),
    "dot": (lambda np, a, b: np.dot(a, b), (Z, Z * 2)),
    "vdot": (lambda np, a, b: np.vdot(a, b), (Z, SQUARE[0])),
    "vecdot": (lambda np, a, b: np.vecdot(a, b), (MATRIX, Z)),
    "outer": (lambda np, a, b: np.outer(a, b), (Z, R)),
    "tensordot": (lambda np, a, b: np.tensordot(a, b, 1), (MATRIX, SQUARE)),
    "einsum": (lambda np, a, b: np.einsum("ij,jk->ik", a, b), (MATRIX, SQUARE)),
    "einsum diagonal": (lambda np, a: np.einsum("ii->i", a), (SQUARE,)),
    "cov": (lambda np, a: np.cov(a), (MATRIX,)),
    "nanmean": (lambda np, a: [np.nanmean(a), np.nanvar(a)], (MATRIX,)),
    "trace": (lambda np, a: np.trace(a), (SQUARE,)),
    "cross": (lambda np, a, b: np.cross(a, b), (Z, MATRIX)),
    "kron": (lambda np, a, b: np.kron(a, b), (Z, R)),
}
MOVED: Cases = {
    "views": (lambda np, a: a.T[1:, ::-1] * a[0, 0], (MATRIX,)),
    "where": (lambda np, a, b: np.where(MASK, a, b), (Z, R)),
    "take": (lambda np, a: np.take(a, numpy.array([2, 0, 2]), axis=1), (MATRIX,)),
    "positions": (lambda np, a: a[:, numpy.array([2, 0, 2])] * 1j, (MATRIX,)),
    "take_along_axis": (lambda np, a: np.take_along_axis(a, numpy.array([[0], [2]]), 1), (MATRIX,)),
    "where alike": (lambda np, a, b: np.where(MASK, a, b), (Z, MATRIX)),
    "concatenate": (lambda np, a, b: np.concatenate([a, b]), (Z, R)),
    "stack": (lambda np, a: np.stack([a, a * 2], 1), (Z,)),
    "split": (lambda np, a: np.split(a, 3, axis=1), (MATRIX,)),
    "repeat": (lambda np, a: np.repeat(a, 2), (Z,)),
    "tile": (lambda np, a: np.tile(a, (2, 1)), (Z,)),
    "roll": (lambda np, a: np.roll(a, 1), (Z,)),
    "flip": (lambda np, a: np.flip(a), (MATRIX,)),
    "pad": (lambda np, a: np.pad(a, 1), (MATRIX,)),
    "diff": (lambda np, a: np.diff(a), (MATRIX,)),
    "tril": (lambda np, a: np.tril(a) + np.triu(a, 1), (SQUARE,)),
    "broadcast": (lambda np, a: np.broadcast_to(a, (2, 3)) * 1, (Z,)),
}
LINEAR: Cases = {
    "det": (lambda np, a: np.linalg.det(a), (MANY,)),
    "slogdet": (lambda np, a: np.linalg.slogdet(a), (MANY,)),
    "inv": (lambda np, a: np.linalg.inv(a), (MANY,)),
    "solve": (lambda np, a, b: np.linalg.solve(a, b), (SQUARE, MATRIX.T)),
    "cholesky": (
        lambda np, a: np.linalg.cholesky(a @ np.conj(np.matrix_transpose(a))), (SQUARE,)
    ),
    "norm": (lambda np, a: np.linalg.norm(a), (MATRIX,)),
    "norm 3": (lambda np, a: np.linalg.norm(a, 3), (Z,)),
    "matrix_norm": (lambda np, a: np.linalg.matrix_norm(a, ord=1), (MATRIX,)),
    "matrix_power": (lambda np, a: np.linalg.matrix_power(a, 3), (SQUARE,)),
}  # fmt: skip
#: Functions without a gradient.
OTHERS: Cases = {
    "equal": (lambda np, a: [a == a[0], a != a[0], a == 1j], (Z,)),
    "logical": (lambda np, a: [np.logical_not(a), np.logical_and(a, 1), a.any(), a.all()], (Z,)),
    "is": (
        lambda np, a: [f(a) for f in (np.isnan, np.isfinite, np.isinf, np.iscomplex, np.isreal)],
        (numpy.array([1, 1j, numpy.nan, complex(1, numpy.inf), complex(1e200, 1e308)]),),
    ),
    "isclose": (lambda np, a: np.isclose(a, a + 1e-9j), (Z,)),
    "round": (lambda np, a: [np.round(a, 1), np.rint(a * 3)], (Z,)),
    "round infinities": (
        lambda np, a: [np.round(a, 2), np.around(a), np.round(a, -1), a.round(1)],
        (numpy.array([complex(INF, 1.26), complex(1.26, -INF), complex(-INF, math.nan), 9 - 15j]),),
    ),
    "bool": (lambda np, a: a.astype("bool"), (Z,)),
    "eigh": (lambda np, a: np.linalg.eigvalsh(a), (DEFINITE,)),
    "svdvals": (lambda np, a: [np.linalg.svdvals(a), np.linalg.cond(a)], (SQUARE,)),
    "pinv": (lambda np, a: np.linalg.pinv(a), (MATRIX,)),
    "rank": (lambda np, a: np.linalg.matrix_rank(a), (MANY,)),
    "empty": (lambda np, a: [a * 2, a.sum(axis=0), a.T, np.exp(a)], (numpy.zeros((0, 3), "c16"),)),
    "0-d": (lambda np, a: [a * 2j, np.sqrt(a), a.real, abs(a)], (numpy.array(1 - 2j),)),
}
DIFFERENTIABLE = {**ARITHMETIC, **FUNCTIONS, **WHOLE, **MOVED, **LINEAR}
ALL = {**DIFFERENTIABLE, **OTHERS}


@pytest.mark.parametrize("name", ALL)
def test_imperative_compiled_and_numpy_alike(name: str) -> None:
    alike(*ALL[name], exact=False)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients(name: str) -> None:
    check_gradients(*DIFFERENTIABLE[name])


@pytest.mark.parametrize("name", ["multiply", "exp", "matmul", "absolute", "var", "where", "inv"])
def test_compiled_gradients(name: str) -> None:
    program, arrays = DIFFERENTIABLE[name]

    def loss(*values: Any) -> Any:
        return (np.absolute(program(np, *values)) ** 2).sum()

    found = []
    for function in (loss, gemel.compile(loss)):
        variables = list(map(np.array, arrays))
        for variable in variables:
            variable.attach_grad()
        for _ in range(3):  # call by call, then by a plan
            with autograd.record():
                y = function(*variables)
            y.backward()
        found.append([variable.grad.asnumpy() for variable in variables])
    for a, b in zip(*found, strict=True):
        numpy.testing.assert_allclose(a, b, rtol=1e-10)


def test_convolutions() -> None:
    """The result of each window is (z * w).sum(); the gradient conjugates w."""
    z, w = (np.array(numbers(*shape)) for shape in ((1, 1, 4), (1, 1, 2)))
    z.attach_grad()
    with autograd.record():
        y = npx.convolution(z, w, kernel=(2,), num_filter=1, no_bias=True)
        total = y.real.sum()
    total.backward()
    (first, second), values = w.asnumpy()[0, 0], z.asnumpy()[0, 0]
    numpy.testing.assert_allclose(y.asnumpy()[0, 0], first * values[:-1] + second * values[1:])
    sums = [first, first + second, first + second, second]
    numpy.testing.assert_allclose(z.grad.asnumpy()[0, 0], numpy.conj(sums))


def test_gradients_of_gradients() -> None:
    z = np.array(Z)
    z.attach_grad()
    with autograd.record():
        y = (np.absolute(z) ** 4).sum()
        (g,) = autograd.grad([y], [z], create_graph=True)
        total = (np.absolute(g) ** 2).sum()
    total.backward()
    size = abs(Z) ** 2
    numpy.testing.assert_allclose(g.asnumpy(), 4 * size * Z)
    numpy.testing.assert_allclose(z.grad.asnumpy(), 96 * size**2 * Z)


def test_a_complex_head_needs_its_gradient() -> None:
    z = np.array(Z)
    z.attach_grad()
    with autograd.record():
        y = z * 2j
    with pytest.raises(GradientError, match="complex, so it cannot be a loss"):
        y.backward(retain_graph=True)
    y.backward(np.ones((3,), dtype="complex128"))
    assert z.grad.tolist() == [-2j] * 3


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_conditions(dtype: str) -> None:
    condition = np.array([1j, 0, -1], dtype=dtype)
    for a in (np.ones(3), np.array([1, 2, 3]), condition):
        expected = numpy.where(condition.asnumpy(), a.asnumpy(), 5)
        for choose in (np.where, gemel.compile(np.where)):
            assert choose(condition, a, 5).tolist() == expected.tolist()
    assert np.select([condition], [np.ones(3)], 2).tolist() == [1, 2, 1]


# --- dtypes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["complex64", "complex128"])
def test_a_dtype_is_numpys(name: str) -> None:
    dtype = as_dtype(name)
    assert dtype == numpy.dtype(name) and hash(dtype) == hash(numpy.dtype(name))
    assert dtype.dtype == numpy.dtype(name) and getattr(np, name) is dtype
    assert np.isdtype(dtype, "complex floating") and not np.isdtype(dtype, "real floating")
    assert np.finfo(dtype).eps == numpy.finfo(name).eps
    assert np.array(1j, dtype=name).item() == 1j
    assert pickle.loads(pickle.dumps(np.array(Z, dtype=name))).tolist() == Z.astype(name).tolist()


def test_results_of_creation_functions() -> None:
    assert np.array([1j, 2]).dtype == np.array(1j).dtype == np.asarray([[1.5, 1j]]).dtype
    assert np.array([1j, 2]).dtype == "complex64" and as_dtype(complex) == "complex128"
    assert np.array(Z).dtype == "complex128"
    assert np.zeros((2,), dtype="complex64").tolist() == [0j, 0j]
    assert np.ones((2,), dtype=np.complex128).tolist() == [1 + 0j] * 2
    assert np.full((2,), 1 + 2j).tolist() == [1 + 2j] * 2
    assert np.full_like(np.array(Z), 3).tolist() == [3 + 0j] * 3
    assert np.eye(2, dtype="complex64").tolist() == [[1, 0], [0, 1]]
    assert np.arange(3, dtype="complex64").tolist() == [0, 1, 2]
    assert np.linspace(0, 1j, 3).tolist() == [0, 0.5j, 1j]
    assert np.empty_like(np.array(Z)).dtype == "complex128"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_numbers_and_dtypes_that_meet(dtype: Any) -> None:
    x = np.ones((2,), dtype=dtype)
    wide = dtype.name in ("float64", "complex128")
    assert (x + 1j).dtype == (1j * x).dtype == ("complex128" if wide else "complex64")
    assert (x + np.array([1j])).dtype == ("complex128" if wide else "complex64")
    assert x.astype("complex64").tolist() == [1 + 0j] * 2
    assert np.result_type(x, 1j) == (x + 1j).dtype


def test_elements_outside() -> None:
    z = np.array([1 + 2j, 3])
    assert repr(z) == "array([1.+2.j, 3.+0.j])"
    assert repr(np.array(Z[:1].round(1))).endswith("dtype=complex128)")
    assert complex(z[0]) == 1 + 2j and z[1].item() == 3 + 0j and bool(z[0])
    with pytest.raises(TypeError):
        float(z[0])
    assert memoryview(z).format == "Zf" and numpy.asarray(z).dtype == "complex64"
    shared = numpy.from_dlpack(z)
    shared[0] = 5j
    assert z[0].item() == 5j and np.from_dlpack(shared).tolist() == z.tolist()
    assert np.iscomplexobj(z) and not np.isrealobj(z) and np.isrealobj(np.ones((2,)))


def test_files(tmp_path: Any) -> None:
    arrays = {name: np.array(Z, dtype=name) for name in ("complex64", "complex128")}
    npx.save(str(tmp_path / "arrays"), arrays)
    for name, found in npx.load(str(tmp_path / "arrays")).items():
        assert found.dtype == name and found.tolist() == arrays[name].tolist()


# --- writing --------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_writes(dtype: str) -> None:
    x, wanted = np.array(MATRIX, dtype=dtype), MATRIX.astype(dtype)
    for target in (x, wanted):
        row = target[0]
        row[...] = 1j
        target[1:, ::2] = target[:1, 1:]
        target += 1
        target *= 2 - 1j
        target[:, 2] = 7
    x[np.array([1, 0]), 0] = np.array([1.0, 2.0])
    wanted[[1, 0], 0] = [1, 2]
    x[x == x[1, 1]] = 3j
    wanted[wanted == wanted[1, 1]] = 3j
    x.real = x.real + 1
    x.imag = 2.0
    wanted.real += 1
    wanted.imag = 2
    assert x.dtype == dtype
    numpy.testing.assert_allclose(x.asnumpy(), wanted)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_parts_are_views(dtype: str) -> None:
    x, wanted = np.array(MATRIX, dtype=dtype), MATRIX.astype(dtype)
    for target in (x, wanted):
        target.real[0] = 5
        target[1:].imag[:, ::2] += 2
        target.T.real[...] *= target.T.imag
        target[0].imag[:] = target[1].real
    numpy.testing.assert_array_equal(x.asnumpy(), wanted)
    part = x[:, 1:].imag
    assert part.dtype == wanted.real.dtype and part.sum().item() == pytest.approx(
        wanted[:, 1:].imag.sum(), rel=1e-6
    )
    assert np.shares_memory(x, x) and np.real(x[:0]).shape == (0, 3)
    assert np.imag(np.array([1.0, numpy.inf])).tolist() == [0, 0]
    assert np.real(np.ones((2,), dtype="int32")).dtype == "int32"


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_digits_of_written_numbers_are_kept(dtype: str) -> None:
    number: Any = 0.1j if dtype == "complex128" else 0.1
    x = np.zeros((2,), dtype=dtype)
    for write in (
        lambda: x.__setitem__(slice(None), [number, number]),
        lambda: x.__setitem__(0, number),
        lambda: x.__setitem__(np.array([0, 1]), [number, number]),
        lambda: x.__setitem__(np.array([0]), number),
        lambda: x.__iadd__(number),
    ):
        x[...] = 0
        write()
        assert x[0].item() == number


def test_recorded_and_traced_writes() -> None:
    def program(x: Any) -> Any:
        y = x * 1j
        y[1] = x[0] * 2
        y[0] = 1.5
        return np.absolute(y) ** 2

    found = []
    for function in (program, gemel.compile(program)):
        z = np.array(Z)
        z.attach_grad()
        with autograd.record():
            y = function(z).sum()
        y.backward()
        found.append((y.item(), z.grad.tolist()))
    assert found[0] == found[1]
    numpy.testing.assert_allclose(found[0][1], [8 * Z[0], 0, 2 * Z[2]])


def test_on_a_simulated_gpu() -> None:
    """In a process of its own, since devices are made when the first one is needed."""
    program = (
        "from gemel import np, gpu\n"
        "z = np.array([1j, 2]).as_in_ctx(gpu(0))\n"
        "z += 1j; z[1] = 5; w = (z * 2j).T + np.zeros((2,), dtype='complex64', ctx=gpu(0))\n"
        "print(w.device == gpu(0), w.tolist())"
    )
    environment = {**os.environ, "GEMEL_SIMULATED_GPUS": "1"}
    run = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert run.stdout == "True [(-4+0j), 10j]\n"


def test_a_program_with_complex_numbers_has_no_image() -> None:
    x = np.ones((2,))
    with pytest.raises(NoKernelError, match="add is computed by NumPy"):
        gemel.compile(lambda a: a + 1j).image(x)
    assert gemel.compile(lambda a: (a, 2j * 1j))(x)[1].item() == -2
    assert gemel.compile(lambda a, s: a * s)(x, 2j).tolist() == [2j, 2j]


def test_real_arrays_refuse_complex_values() -> None:
    x, z = np.zeros((3,)), np.array(Z)
    for write in (
        lambda: x.__setitem__(0, 1j),
        lambda: x.__setitem__(slice(None), z),
        lambda: x.__setitem__(np.array([0]), z[:1]),
        lambda: x.__iadd__(z),
        lambda: z.astype("float64"),
        lambda: np.full((2,), 1j, dtype="float64") + np.zeros((), dtype="complex128"),
        lambda: gemel.compile(lambda a, b: a.__setitem__(0, b[0]))(x, z),
    ):
        with pytest.raises(DTypeError, match="complex"):
            write()
    assert x.tolist() == [0, 0, 0]


def test_numbers_real_dtypes_cannot_hold() -> None:
    for make in (
        lambda: np.array([1j], dtype="float32"),
        lambda: np.array(1j, dtype="int32"),
        lambda: np.array([True, 1j], dtype="float64"),
        lambda: np.full((2,), 1j, dtype="int64"),
        lambda: np.float32(1j),
    ):
        with pytest.raises(DTypeError, match="complex"):
            make()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("size", [1, 7, 100])
def test_kernels_of_every_target_move_them(target: str, dtype: str, size: int) -> None:
    mask = RANDOM.random(size) < 0.5
    a, b = (numbers(size).astype(dtype) for _ in range(2))
    found = apply(lambda xp, c, x, y: xp.where(c, x, y), target, mask, a, b)
    assert found.tolist() == numpy.where(mask, a, b).tolist()


REFUSED: dict[str, Callable[[Any], Any]] = {
    "floor_divide": lambda z: z // 2,
    "remainder": lambda z: z % 2,
    "less": lambda z: z < z,
    "greater_equal": lambda z: z >= 1j,
    "bitwise_and": lambda z: z & 1,
    "floor": np.floor,
    "maximum": lambda z: np.maximum(z, 1),
    "max": lambda z: z.max(),
    "argmin": np.argmin,
    "sort": np.sort,
    "argsort": np.argsort,
    "arctan2": lambda z: np.arctan2(z, z),
    "softmax": npx.softmax,
    "relu": npx.relu,
    "clip": lambda z: np.clip(z, 0, 1),
}


@pytest.mark.parametrize("name", REFUSED)
def test_operations_of_real_numbers_refuse_complex_ones(name: str) -> None:
    told = "limit" if name == "clip" else name
    with pytest.raises(DTypeError, match=rf"{told}: .*complex128\[3\].*complex numbers"):
        REFUSED[name](np.array(Z))
    with pytest.raises(DTypeError, match=f"{told}: .*complex numbers"):
        gemel.compile(lambda z: REFUSED[name](z * 1j))(np.array(Z))


# --- eigenvalues of any matrix --------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_eig(dtype: str) -> None:
    values = MANY if dtype.startswith("c") else MANY.real
    a = np.array(values, dtype=dtype)
    near = 1e-4 if dtype in ("float32", "complex64") else 1e-10
    found = np.linalg.eig(a)
    assert found.eigenvalues.dtype == found.eigenvectors.dtype == numpy.result_type(dtype, "c8")
    left = np.matmul(a, found.eigenvectors)
    right = found.eigenvectors * np.expand_dims(found.eigenvalues, -2)
    numpy.testing.assert_allclose(left.asnumpy(), right.asnumpy(), atol=near)
    numpy.testing.assert_allclose(
        numpy.sort_complex(np.linalg.eigvals(a).asnumpy()),
        numpy.sort_complex(found.eigenvalues.asnumpy()),
        atol=near,
    )
    compiled = gemel.compile(np.linalg.eigvals)(a)
    assert compiled.tolist() == np.linalg.eigvals(a).tolist()


def test_decompositions() -> None:
    a = np.array(MANY)
    q, r = np.linalg.qr(a)
    numpy.testing.assert_allclose((q @ r).asnumpy(), MANY, atol=1e-12)
    u, s, vh = np.linalg.svd(a)
    assert s.dtype == "float64"
    numpy.testing.assert_allclose(((u * np.expand_dims(s, -2)) @ vh).asnumpy(), MANY, atol=1e-12)
    values, vectors = np.linalg.eigh(np.array(DEFINITE))
    assert values.dtype == "float64"
    back = (vectors * values) @ np.conj(vectors.T)
    numpy.testing.assert_allclose(back.asnumpy(), DEFINITE, atol=1e-12)
    upper = np.linalg.cholesky(np.array(DEFINITE), upper=True)
    numpy.testing.assert_allclose((np.conj(upper.T) @ upper).asnumpy(), DEFINITE, atol=1e-12)


# --- any numbers ----------------------------------------------------------------------------

PAIRS = {
    "add": lambda np, a, b: a + b,
    "multiply": lambda np, a, b: a * b,
    "divide": lambda np, a, b: a / b,
    "equal": lambda np, a, b: a == b,
    "where": lambda np, a, b: np.where(a == b, a, b),
    "joined": lambda np, a, b: np.concatenate([a, b])[::-1],
}


@examples(60)
@given(
    name=st.sampled_from(sorted(PAIRS)),
    a=st.lists(st.complex_numbers(width=64), min_size=1, max_size=5),
    b=st.lists(st.complex_numbers(width=64), min_size=1, max_size=5),
    dtypes=st.tuples(*[st.sampled_from(["complex64", "complex128"])] * 2),
)
def test_any_numbers(
    name: str, a: list[complex], b: list[complex], dtypes: tuple[str, str]
) -> None:
    count = min(len(a), len(b))
    x, y = (numpy.array(v[:count], dtype=d) for v, d in zip((a, b), dtypes, strict=True))
    with numpy.errstate(all="ignore"):
        wanted = PAIRS[name](numpy, x, y)
    found = PAIRS[name](np, np.array(x), np.array(y)).asnumpy()
    assert found.dtype == wanted.dtype
    numpy.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("function", [lambda z: z * 1, lambda z: z / 1], ids=["times", "by"])
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_times_one_is_computed(function: Any, dtype: str) -> None:
    """One is 1+0j: an infinity times it has a NaN, and zeros change their signs."""
    x = numpy.array([complex(math.inf, 0), complex(-0.0, -0.0), complex(1, -0.0)], dtype)
    with numpy.errstate(all="ignore"):
        wanted = function(x)
    for found in (function(np.array(x)), gemel.compile(function)(np.array(x))):
        parts = found.asnumpy().view(wanted.real.dtype)
        numpy.testing.assert_array_equal(parts, wanted.view(wanted.real.dtype))
        numpy.testing.assert_array_equal(
            numpy.signbit(parts), numpy.signbit(wanted.view(wanted.real.dtype))
        )


@examples(40)
@given(
    shape=st.lists(st.integers(0, 4), min_size=1, max_size=3),
    data=st.data(),
    dtype=st.sampled_from(["complex64", "complex128"]),
)
def test_moved_as_they_are(shape: list[int], data: Any, dtype: str) -> None:
    """Views, copies and gathers keep every bit, also of NaN with a sign and a payload."""
    size = int(numpy.prod(shape))
    raw = RANDOM.integers(0, 2**32, size * (2 if dtype == "complex64" else 4), "uint32")
    x = raw.view(dtype).reshape(shape)
    steps = data.draw(st.lists(st.sampled_from([1, 2, -1, -2]), min_size=len(shape)))
    key = tuple(slice(None, None, step) for step in steps[: len(shape)])
    order = data.draw(st.permutations(range(len(shape))))
    found = np.array(x)[key].transpose(*order)
    wanted = x[key].transpose(order)
    for each in (
        found,
        found.copy(),
        gemel.compile(lambda v: v[key].transpose(*order))(np.array(x)),
    ):
        assert each.asnumpy().tobytes() == wanted.tobytes()
    if 0 not in shape:
        rows = RANDOM.integers(0, wanted.shape[0], 3)
        assert found[np.array(rows)].asnumpy().tobytes() == wanted[rows].tobytes()

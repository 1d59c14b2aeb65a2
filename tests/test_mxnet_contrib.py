"""MXNet's `contrib`, its random numbers, and the errors its programs catch."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy
import pytest

import gemel
from gemel import autograd, gluon, nd, np, npx
from gemel.base import MXNetError


def drawn(*shape: int, seed: int = 0) -> Any:
    return numpy.random.default_rng(seed).normal(size=shape).astype("float32")


# --- operations -------------------------------------------------------------------------------


def correlated(one: Any, two: Any, size: int, most: int, steps: tuple[int, int], pad: int,
               multiply: bool) -> Any:  # fmt: skip
    """The sums of the paper's formula, pixel by pixel."""
    edges = ((0, 0), (0, 0), (pad, pad), (pad, pad))
    one, two = numpy.pad(one, edges), numpy.pad(two, edges)
    border, reach = most + size // 2, most // steps[1]
    high, wide = (math.ceil((n - 2 * border) / steps[0]) for n in one.shape[2:])
    shifts = [*product(range(-reach, reach + 1), repeat=2)]
    found = numpy.zeros((one.shape[0], len(shifts), high, wide))
    for channel, (down, right) in enumerate(shifts):
        for row, column, i, j in product(range(high), range(wide), range(size), range(size)):
            y, x = row * steps[0] + most + i, column * steps[0] + most + j
            a, b = one[:, :, y, x], two[:, :, y + down * steps[1], x + right * steps[1]]
            found[:, channel, row, column] += (a * b if multiply else abs(a - b)).sum(axis=1)
    return found / (size * size * one.shape[1])


@pytest.mark.parametrize("multiply", [True, False])
@pytest.mark.parametrize(
    ("size", "most", "steps", "pad"),
    [(1, 2, (1, 1), 2), (3, 2, (2, 2), 3), (1, 3, (2, 2), 4), (3, 1, (1, 1), 2)],
)
def test_correlation(
    size: int, most: int, steps: tuple[int, int], pad: int, multiply: bool
) -> None:
    one, two = drawn(2, 3, 6, 7), drawn(2, 3, 6, 7, seed=1)
    found = nd.Correlation(
        nd.array(one), nd.array(two), kernel_size=size, max_displacement=most, stride1=steps[0],
        stride2=steps[1], pad_size=pad, is_multiply=multiply,
    )  # fmt: skip
    want = correlated(one, two, size, most, steps, pad, multiply)
    numpy.testing.assert_allclose(found.asnumpy(), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("linear", [True, False])
def test_the_gradient_of_a_hinge(linear: bool) -> None:
    x, label = nd.array(drawn(3, 4)), nd.array([2, 0, 3])
    x.attach_grad()
    with autograd.record():
        y = nd.SVMOutput(x, label, margin=0.5, regularization_coefficient=0.7, use_linear=linear)
    y.backward()
    numpy.testing.assert_array_equal(y.asnumpy(), x.asnumpy())
    sign = -numpy.ones((3, 4))
    sign[range(3), [2, 0, 3]] = 1
    short = numpy.maximum(0.5 - sign * x.asnumpy(), 0)
    want = -0.7 * sign * ((short > 0) if linear else 2 * short)
    numpy.testing.assert_allclose(x.grad.asnumpy(), want, rtol=1e-5, atol=1e-6)


def test_fourier_transforms_in_turns() -> None:
    x = drawn(2, 3, 4)
    found = nd.contrib.fft(nd.array(x)).asnumpy()
    want = numpy.fft.fft(x)
    numpy.testing.assert_allclose(found[..., ::2], want.real, rtol=1e-4, atol=1e-5)
    numpy.testing.assert_allclose(found[..., 1::2], want.imag, rtol=1e-4, atol=1e-5)
    numpy.testing.assert_allclose(nd.contrib.ifft(nd.array(found)).asnumpy(), x * 4, rtol=1e-4)


def test_questions() -> None:
    x = nd.array([1.0, numpy.nan, numpy.inf])
    assert nd.contrib.isnan(x).asnumpy().tolist() == [0, 1, 0]
    assert nd.contrib.isinf(x).asnumpy().tolist() == [0, 0, 1]
    assert nd.contrib.isfinite(x).asnumpy().tolist() == [1, 0, 0]
    assert nd.contrib.allclose(x, x).asnumpy().tolist() == [1]
    assert nd.contrib.allclose(x, x, equal_nan=False).asnumpy().tolist() == [0]


def test_elements_put_and_dtypes_joined() -> None:
    found = nd.fill_element_0index(nd.zeros((2, 3)), nd.array([5, 7]), nd.array([2, 0]))
    assert found.asnumpy().tolist() == [[0, 0, 5], [7, 0, 0]]
    half, single = nd.ones((2,), dtype="float16"), nd.ones((2,))
    wide = nd.amp_multicast(half, single, num_outputs=2)
    narrow = nd.amp_multicast(half, single, num_outputs=2, cast_narrow=True)
    assert {x.dtype for x in wide} == {numpy.dtype("float32")}
    assert {x.dtype for x in narrow} == {numpy.dtype("float16")}
    assert nd.cast_storage(single, "default").asnumpy().tolist() == [1, 1]
    with pytest.raises(MXNetError, match="sparse"):
        nd.cast_storage(single, "csr")


def test_deformable_convolutions_by_their_old_names() -> None:
    image, still = nd.array(drawn(1, 2, 5, 5)), nd.zeros((1, 18, 3, 3))
    weight = nd.array(drawn(3, 2, 3, 3, seed=1))
    want = nd.Convolution(image, weight, kernel=(3, 3), num_filter=3, no_bias=True)
    found = nd.contrib.DeformableConvolution(
        image, still, weight, kernel=(3, 3), num_filter=3, no_bias=True
    )
    numpy.testing.assert_allclose(found.asnumpy(), want.asnumpy(), rtol=1e-4, atol=1e-5)


# --- random numbers ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("uniform", {"low": 1.0, "high": 3.0}), ("normal", {"loc": 2.0, "scale": 0.5}),
        ("poisson", {"lam": 4.0}), ("exponential", {"scale": 2.0}),
        ("gamma", {"alpha": 2.0, "beta": 1.5}), ("negative_binomial", {"k": 4, "p": 0.5}),
        ("generalized_negative_binomial", {"mu": 3.0, "alpha": 0.5}),
        ("randint", {"low": 0, "high": 9}),
    ],
)  # fmt: skip
def test_random_numbers_by_shape(name: str, settings: dict[str, Any]) -> None:
    means = {
        "uniform": 2.0, "normal": 2.0, "poisson": 4.0, "exponential": 2.0, "gamma": 3.0,
        "negative_binomial": 4.0, "generalized_negative_binomial": 3.0, "randint": 4.0,
    }  # fmt: skip
    gemel.random.seed(5)
    found = getattr(gemel.random, name)(**settings, shape=(200, 100))
    assert found.shape == (200, 100)
    assert float(found.asnumpy().mean()) == pytest.approx(means[name], rel=0.05)
    gemel.random.seed(5)
    again = getattr(gemel.random, name)(**settings, shape=(200, 100))
    numpy.testing.assert_array_equal(found.asnumpy(), again.asnumpy())


def test_random_numbers_by_size_are_numpys() -> None:
    assert type(gemel.random.normal(0, 1, size=(2,))) is type(np.ones(2))
    assert gemel.random.permutation(3).shape == (3,)
    with pytest.raises(AttributeError, match="did you mean"):
        _ = gemel.random.unifrom


DENSITIES: dict[str, tuple[list[float], Callable[..., float]]] = {
    "uniform": ([0.0, 5.0], lambda x, a, b: 1 / (b - a)),
    "normal": (
        [1.0, 2.0],
        lambda x, m, s: math.exp(-((x - m) ** 2) / (2 * s * s)) / (s * math.sqrt(2 * math.pi)),
    ),
    "gamma": (
        [2.0, 1.5], lambda x, a, b: b**a * x ** (a - 1) * math.exp(-b * x) / math.gamma(a)
    ),
    "exponential": ([1.5], lambda x, rate: rate * math.exp(-rate * x)),
    "poisson": ([2.5], lambda x, rate: rate**x * math.exp(-rate) / math.factorial(int(x))),
    "negative_binomial": (
        [4.0, 0.3], lambda x, k, p: math.comb(int(x + k) - 1, int(x)) * p**k * (1 - p) ** x
    ),
    "generalized_negative_binomial": (
        [3.0, 0.5],
        lambda x, mu, alpha: math.comb(int(x + 1 / alpha) - 1, int(x))
        * (1 / (mu * alpha + 1)) ** (1 / alpha)
        * (mu * alpha / (mu * alpha + 1)) ** x,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DENSITIES)
def test_densities(name: str) -> None:
    settings, formula = DENSITIES[name]
    places = [[1.0, 2.0, 4.0], [3.0, 1.0, 2.0]]
    given = [nd.array([each, each]) for each in settings]
    want = [[formula(x, *settings) for x in row] for row in places]
    density = getattr(nd, f"random_pdf_{name}")
    found = density(nd.array(places), *given)
    numpy.testing.assert_allclose(found.asnumpy(), want, rtol=1e-4)
    found = density(nd.array(places), *given, is_log=True)
    numpy.testing.assert_allclose(found.asnumpy(), numpy.log(want), rtol=1e-4, atol=1e-5)


def test_the_density_of_shares() -> None:
    alpha, rows = [2.0, 3.0, 4.0], [[0.2, 0.3, 0.5], [0.1, 0.1, 0.8]]
    whole = math.gamma(9) / math.prod(map(math.gamma, alpha))
    want = [whole * math.prod(x ** (a - 1) for x, a in zip(r, alpha, strict=True)) for r in rows]
    found = nd.random_pdf_dirichlet(nd.array([rows]), nd.array([alpha]))
    numpy.testing.assert_allclose(found.asnumpy(), [want], rtol=1e-4)


def test_words_of_a_text() -> None:
    gemel.random.seed(1)
    true = nd.array([3])
    drawn, of_true, of_drawn = nd.contrib.rand_zipfian(true, 5000, 10)
    counts = numpy.bincount(drawn.asnumpy().astype(int), minlength=10)
    chances = numpy.log1p(1 / numpy.arange(1, 11)) / math.log(11)
    numpy.testing.assert_allclose(counts / 5000, chances, atol=0.03)
    assert float(of_true.asnumpy()[0]) == pytest.approx(chances[3] * 5000, rel=1e-6)
    assert of_drawn.shape == (5000,)


# --- errors -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "python"),
    [
        (lambda: np.ones(3)[5], IndexError),
        (lambda: np.take(np.ones(3), np.array([7])).tolist(), IndexError),
        (lambda: np.random.normal(0, -1, (2,)), ValueError),
        (lambda: bool(np.ones(3)), ValueError),
        (lambda: np.linalg.inv(np.zeros((2, 2))).tolist(), numpy.linalg.LinAlgError),
        (lambda: np.linalg.cholesky(-np.eye(2)).tolist(), numpy.linalg.LinAlgError),
        (lambda: npx.waitall() or np.random.gamma(-1.0, 1.0, size=2), ValueError),
    ],
)
def test_errors_are_mxnets_and_pythons(call: Callable[[], Any], python: type[Exception]) -> None:
    with pytest.raises(MXNetError) as caught:
        call()
    assert isinstance(caught.value, python)


# --- NumPy's names ----------------------------------------------------------------------------


def test_numpys_iterators() -> None:
    x = np.arange(6).reshape(2, 3)
    assert [int(each) for each in np.nditer(x)] == [*range(6)]
    found = np.nditer([x, None])
    for one, other in found:
        other[...] = one * 2
    assert found.operands[1].tolist() == [[0, 2, 4], [6, 8, 10]]
    assert np.poly1d([1, 2])(3) == 5
    assert np.min_scalar_type(300) == np.uint16


def test_dtypes_in_common() -> None:
    whole, double = np.ones(2, dtype="int32"), np.ones(2, dtype="float64")
    assert np.common_type(whole) == np.float32
    assert np.common_type(whole, double) == np.float64
    assert np.common_type(whole, np.ones(1, dtype="complex64")) == np.complex64
    with pytest.raises(TypeError, match="bools"):
        np.common_type(np.ones(2, dtype="bool"))
    near = np.array([2 + 1e-15j, 3], dtype="complex128")
    assert np.real_if_close(near).dtype == np.float64
    assert np.real_if_close(near, tol=1e-20).dtype == np.complex128
    assert np.real_if_close(whole) is whole


def test_numbers_and_empty_rows() -> None:
    assert np.sum(2j).item() == np.mean(2j).item() == np.prod(2j).item() == 2j
    x = np.arange(6).reshape(2, 3)
    assert np.roll(x, 1, axis=()).tolist() == x.tolist()
    assert np.roll(x, (), axis=()).tolist() == x.tolist()
    empty = np.arange(0, 5, -1, dtype="uint8")
    assert empty.shape == (0,) and empty.dtype == np.uint8
    assert np.arange(-5, -7, dtype="uint8").shape == (0,)


def test_exponents_with_fractions() -> None:
    x, n = np.array([5.0, 3.0, 1.0]), np.array([0.0, 1.5, -2.0])
    x.attach_grad()
    n.attach_grad()
    with autograd.record():
        y = np.ldexp(x, n)
    y.backward()
    power = 2 ** n.asnumpy()
    numpy.testing.assert_allclose(y, x.asnumpy() * power, rtol=1e-6)
    numpy.testing.assert_allclose(x.grad, power, rtol=1e-6)
    numpy.testing.assert_allclose(n.grad, x.asnumpy() * power * math.log(2), rtol=1e-6)
    assert np.ldexp(5, np.arange(4.0)).tolist() == [5, 10, 20, 40]


# --- shapes at the edge -----------------------------------------------------------------------


class Positive(gluon.HybridBlock):
    """The sum of squares of a layer's positive results."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = gluon.nn.Dense(3)

    def forward(self, x: Any) -> Any:
        y = self.layer(x)
        return (y[y > 0] ** 2).sum()


def test_blocks_whose_shapes_depend_on_values_run_in_parts() -> None:
    net, x = Positive(), np.array(drawn(4, 5))
    net.initialize()
    want = net(x)
    net.hybridize()
    x.attach_grad()
    with pytest.warns(UserWarning, match="not compiled as a whole"), autograd.record():
        y = net(x)
    y.backward()
    first = x.grad.copy()
    assert float(y) == pytest.approx(float(want), rel=1e-6) and float(abs(first).sum()) > 0
    with autograd.record():  # the second call does not warn
        y = net(x)
    y.backward()
    numpy.testing.assert_allclose(x.grad, first, rtol=1e-6)
    for function in (np.unique, np.flatnonzero, lambda z: z[z > 0]):
        each = gluon.nn.HybridLambda(function)
        each.hybridize()
        with pytest.warns(UserWarning, match="depends on values"):
            numpy.testing.assert_array_equal(each(x), function(x))


def test_a_compiled_function_says_that_it_cannot() -> None:
    with pytest.raises(MXNetError, match="depends on values"):
        gemel.compile(np.unique)(np.ones(3))


@pytest.mark.parametrize("function", [np.tril, np.triu])
@pytest.mark.parametrize("k", [-1, 0, 2])
def test_triangles_of_a_row(function: Any, k: int) -> None:
    row = drawn(4)
    x = np.array(row)
    x.attach_grad()
    with autograd.record():
        y = function(x, k=k)
    y.backward()
    want = getattr(numpy, function.__name__)(row, k)
    numpy.testing.assert_array_equal(y, want)
    numpy.testing.assert_array_equal(
        x.grad, getattr(numpy, function.__name__)([[1] * 4] * 4, k).sum(0)
    )


@pytest.mark.parametrize("shape", [(0,), (2, 0)])
def test_softmax_of_nothing(shape: tuple[int, ...]) -> None:
    for function in (npx.softmax, npx.log_softmax, npx.softmin):
        assert function(np.ones(shape)).shape == shape
    with pytest.raises(MXNetError, match="batch_flatten"):
        npx.batch_flatten(np.array(1.0))


def test_the_gradient_of_whole_quotients_is_zero() -> None:
    a, b = np.array([7.0, -7.0]), np.array([2.0, 2.0])
    a.attach_grad()
    b.attach_grad()
    with autograd.record():
        y = np.floor_divide(a, b) * a
    y.backward()
    assert y.tolist() == [21.0, 28.0]
    assert a.grad.tolist() == [3.0, -4.0] and b.grad.tolist() == [0.0, 0.0]

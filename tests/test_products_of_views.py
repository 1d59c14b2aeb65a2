"""Matrix products whose batch axes are repeated, stepped or too many to be merged."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy
import pytest

import gemel
from gemel import autograd, np, npx


def view(chance: random.Random, shape: tuple[int, ...], dtype: str) -> Any:
    """A view of this shape: stepped, transposed, or repeated along some axes."""
    source = numpy.random.default_rng(chance.randint(0, 1 << 30))
    wide = [1 if chance.random() < 0.3 else n * chance.choice((1, 1, 2)) for n in shape[:-2]]
    matrix = [n * chance.choice((1, 1, 2)) for n in shape[-2:]]
    whole = np.array(source.integers(-9, 9, (*wide, *matrix)), dtype=dtype)
    if len(shape) > 1 and chance.random() < 0.3:
        whole = np.swapaxes(np.swapaxes(whole, -1, -2).copy(), -1, -2)
    key = tuple(slice(None, None, max(1, w // n)) for w, n in zip(whole.shape, shape, strict=True))
    return np.broadcast_to(whole[key], shape)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_random_views(dtype: str) -> None:
    product = gemel.compile(np.matmul)
    chance = random.Random(dtype)
    for _ in range(120):
        batch = [chance.choice((1, 2, 3)) for _ in range(chance.randint(0, 4))]
        m, n, k = (chance.choice((1, 2, 5, 17)) for _ in "mnk")
        lead = [[1 if chance.random() < 0.3 else b for b in batch] for _ in "ab"]
        a, b = view(chance, (*lead[0], m, k), dtype), view(chance, (*lead[1], k, n), dtype)
        a = a[..., 0, :].reshape(-1)[:k] if chance.random() < 0.1 else a
        b = b[..., 0].reshape(-1)[:k] if chance.random() < 0.1 else b
        wanted = numpy.matmul(a.asnumpy(), b.asnumpy())
        for found in (np.matmul(a, b), product(a, b)):
            numpy.testing.assert_array_equal(found.asnumpy(), wanted, str((a.shape, b.shape)))


def test_a_repeated_matrix_that_is_copied() -> None:
    one = np.broadcast_to(np.array([[1.0]]), (9, 127))
    many = np.broadcast_to(np.arange(127 * 9.0).reshape(127, 9), (2, 3, 127, 9))
    wanted = numpy.matmul(one.asnumpy(), many.asnumpy())
    numpy.testing.assert_allclose(np.matmul(one, many).asnumpy(), wanted, rtol=1e-6)


def test_gradients_of_sums_over_all_but_one_axis() -> None:
    """The heads of their gradients are repeated along all other axes."""
    source = numpy.random.default_rng(0)
    a, b, w = (source.normal(size=s) for s in ((2, 3, 4, 5), (2, 3, 5, 6), (2,)))

    def loss(a: Any, b: Any, w: Any) -> Any:
        return (np.matmul(a, b).sum(axis=(1, 2, 3)) * w).sum()

    head = numpy.broadcast_to(w[:, None, None, None], (2, 3, 4, 6))
    wanted = head @ b.swapaxes(-1, -2), a.swapaxes(-1, -2) @ head
    for function in (loss, gemel.compile(loss)):
        given = [np.array(x, dtype="float64") for x in (a, b, w)]
        for x in given:
            x.attach_grad()
        with autograd.record():
            found = function(*given)
        found.backward()
        for x, right in zip(given, wanted, strict=False):
            numpy.testing.assert_allclose(x.grad.asnumpy(), right, rtol=1e-12)


def test_a_vector_and_more_batch_axes_than_kernels_have() -> None:
    b = np.arange(4**3 * 6.0).reshape(4, 4, 4, 2, 3)[::2, ::2, ::2]
    for vector, wanted in (
        (np.array([1.0, 2.0]), lambda v: numpy.matmul(v, b.asnumpy())),
        (np.array([1.0, 2.0, 3.0]), lambda v: numpy.matmul(b.asnumpy(), v)),
    ):
        product = np.matmul(vector, b) if vector.size == 2 else np.matmul(b, vector)
        numpy.testing.assert_array_equal(product.asnumpy(), wanted(vector.asnumpy()))


def test_epilogues_of_products_broadcast_over_any_batch_axes() -> None:
    """The product's batch axes cannot be merged then, whatever the layout of the factors."""
    chance = random.Random(5)
    for _ in range(60):
        batch = [chance.choice((1, 2, 3)) for _ in range(chance.randint(1, 5))]
        m, n, k = (chance.choice((1, 2, 5)) for _ in "mnk")

        def some(*matrix: int, batch: list[int] = batch) -> Any:
            lead = [1 if chance.random() < 0.4 else b for b in batch]
            lead = lead[chance.choice((0, 0, chance.randint(0, len(lead)))) :]
            return view(chance, (*lead, *matrix), "float64")

        def ones(*extents: int) -> tuple[int, ...]:
            return tuple(1 if chance.random() < 0.3 else extent for extent in extents)

        axis = chance.choice((None, 0, -1, -2))
        follow = [some(*ones(m, n)) for _ in range(chance.randint(1, 3))]

        def function(a: Any, b: Any, *others: Any, axis: Any = axis) -> Any:
            found = (a + 1) @ (b * 2)
            for other in others:
                found = found * other + other
            return found, found.sum() if axis is None else found.sum(axis=axis)

        given = [some(m, k), some(k, n), *follow]
        plain = [each.asnumpy() for each in given]
        shapes = str([each.shape for each in given])
        wanted = function(*plain)
        for found, right in zip(gemel.compile(function)(*given), wanted, strict=True):
            numpy.testing.assert_array_equal(found.asnumpy(), right, shapes)


@pytest.mark.parametrize("kept", list(itertools.product((False, True), repeat=3)))
def test_every_subset_of_batch_axes_is_repeated(kept: tuple[bool, ...]) -> None:
    """A factor and the epilogue each repeat any subset of the axes; gradients of both factors."""
    source = numpy.random.default_rng(3)
    batch = (2, 3, 4)

    def some(axes: tuple[bool, ...], *matrix: int) -> Any:
        lead = [extent if there else 1 for there, extent in zip(axes, batch, strict=True)]
        return source.integers(-5, 5, (*lead, *matrix)).astype("float64")

    def loss(a: Any, b: Any, m: Any) -> Any:
        return (a @ b) * m

    for others in itertools.product((False, True), repeat=3):
        plain = some(others, 5, 6), some((True, True, True), 6, 7), some(kept, 1, 7)
        given = [np.array(x, dtype="float64") for x in plain]
        for x in given:
            x.attach_grad()
        with autograd.record():
            found = gemel.compile(loss)(*given)
        found.backward()
        numpy.testing.assert_array_equal(found.asnumpy(), loss(*plain))
        a, b, m = plain
        head = numpy.broadcast_to(m, found.shape)
        full = head @ b.swapaxes(-1, -2)
        along = tuple(i for i, there in enumerate(others) if not there)
        numpy.testing.assert_array_equal(given[0].grad.asnumpy(), full.sum(along, keepdims=True))
        right = numpy.broadcast_to(a, (*batch, 5, 6)).swapaxes(-1, -2) @ head
        numpy.testing.assert_array_equal(given[1].grad.asnumpy(), right)


def test_a_factor_that_is_read_again_after_the_product() -> None:
    a = np.arange(3 * 16.0).reshape(3, 1, 4, 4)
    b = np.arange(2 * 4 * 16.0).reshape(2, 1, 4, 4, 4)
    m = np.arange(3.0).reshape(3, 1, 1, 1) + 1

    def function(a: Any, b: Any, m: Any) -> Any:
        return (a @ b) * m + a - b

    wanted = function(*(x.asnumpy() for x in (a, b, m)))
    numpy.testing.assert_array_equal(gemel.compile(function)(a, b, m).asnumpy(), wanted)


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("shape", [(), (20,), (20, 1), (1, 20), (3, 20, 1), (3, 1, 1)], ids=str)
def test_a_repeated_factor_stands_beside_its_product(shape: tuple[int, ...], which: int) -> None:
    """The repeated factor is also an operand of the epilogue, where its strides along rows and
    columns may be the same. Checks the forward pass, recorded too, and the gradient."""
    source = numpy.random.default_rng(8)
    whole = (*shape[:-2], 20, 20)
    given = [source.integers(-3, 4, each).astype("float32") for each in ((20, 20), shape)]

    def loss(w: Any, s: Any) -> Any:
        some = np if type(w) is not numpy.ndarray else numpy
        repeated = some.broadcast_to(s, whole)
        product = some.matmul(*((repeated, w), (w, repeated))[which])
        return product * repeated + repeated

    arrays = [np.array(each) for each in given]
    wanted = loss(*given)
    compiled = gemel.compile(loss)
    for function in (loss, compiled):
        for each in arrays:
            each.attach_grad()
        numpy.testing.assert_array_equal(function(*arrays).asnumpy(), wanted)
        with autograd.record():
            found = function(*arrays)
        found.backward()
        numpy.testing.assert_array_equal(found.asnumpy(), wanted)
        w, s = given[0], numpy.broadcast_to(given[1], whole)
        turned, right = (w.T, s.swapaxes(-1, -2)), (s @ w, w @ s)[which]
        # The loss is the sum of P * s + s, so the head of P's gradient is s.
        through = (s @ turned[0], turned[0] @ s)[which] + right + 1
        own = (turned[1] @ s, s @ turned[1])[which]
        own = own.sum(tuple(range(own.ndim - 2)))
        lead = tuple(range(through.ndim - len(shape)))
        through = through.sum(lead)
        ones = tuple(i for i, n in enumerate(shape) if n == 1)
        through = through.sum(ones, keepdims=True)
        numpy.testing.assert_array_equal(arrays[0].grad.asnumpy(), own)
        numpy.testing.assert_array_equal(arrays[1].grad.asnumpy(), through)


@pytest.mark.parametrize("shape", [(2, 1, 4, 1, 64), (1, 3, 1, 1, 64), (1, 3, 1, 1, 1)])
def test_attention_with_a_mask_of_some_batch_axes(shape: tuple[int, ...]) -> None:
    source = numpy.random.default_rng(0)
    q, k, v = (np.array(source.normal(size=(2, 3, 4, 64, 16))) for _ in "qkv")
    mask = np.array(source.random(shape) < 0.7)
    wanted = npx.attention(q, k, v, mask)
    found = gemel.compile(npx.attention)(q, k, v, mask)
    numpy.testing.assert_allclose(found.asnumpy(), wanted.asnumpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((17, 33), (33,)),
        ((17, 33), (33, 1)),
        ((3, 17, 33), (3, 33, 1)),
        ((2, 3, 17, 33), (3, 33, 1)),
        ((2, 1, 2, 5, 9), (1, 3, 1, 9, 1)),  # more batch axes than a kernel supports
        ((2, 3, 4, 5, 9), (9,)),
        ((5, 0), (0, 1)),
        ((17, 33), (33, 3)),
        ((2, 17, 33), (33, 4)),
        ((2, 1, 2, 9, 5), (1, 3, 1, 5, 2)),
        ((4, 33), (33, 4)),
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_few_columns_are_rows_of_both_transposed(left: Any, right: Any, dtype: str) -> None:
    generator = numpy.random.default_rng(5)
    a, b = (generator.integers(-5, 5, shape).astype(dtype) for shape in (left, right))
    standing = np.array(numpy.ascontiguousarray(a.swapaxes(-1, -2))).swapaxes(-1, -2)
    function = gemel.compile(lambda a, b, c: (np.matmul(a, b) * 2 + c, np.matmul(a, b)))
    expected = a @ b
    c = numpy.arange(expected.shape[-1]).astype(dtype)
    for given in (np.array(a), standing):
        ends, plain = function(given, np.array(b), np.array(c))
        numpy.testing.assert_array_equal(plain.asnumpy(), expected)
        numpy.testing.assert_array_equal(ends.asnumpy(), expected * 2 + c)
        numpy.testing.assert_array_equal(np.matmul(given, np.array(b)).asnumpy(), expected)


@pytest.mark.parametrize("n", [1024, 1100])
def test_rows_have_the_same_bits_alone_and_among_others(n: int) -> None:
    """Whether few rows read a large factor where it lies or many read panels: k has one order."""
    x, y = np.random.normal(size=(40, 1100)), np.random.normal(size=(1100, n))
    whole = (x @ y).asnumpy()
    for rows in (1, 2, 7, 20, 32):
        assert (x[:rows] @ y).asnumpy().tobytes() == whole[:rows].tobytes()

"""Matrix products whose batch axes are repeated, stepped or too many to be merged."""

from __future__ import annotations

import random
from typing import Any

import numpy
import pytest

import gemel
from gemel import autograd, np


def view(chance: random.Random, shape: tuple[int, ...], dtype: str) -> Any:
    """An array of a shape that is a view: stepped, turned, or repeated along some axes."""
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
    """Their heads are repeated along all other axes."""
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

"""Gradients of matrix decompositions, checked by finite differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest

import gemel
from gemel import autograd, np

L = np.linalg


def symmetric(x: Any) -> Any:
    """A symmetric (or Hermitian) matrix made from a square one."""
    return x + np.conj(x.swapaxes(-1, -2)) + np.eye(x.shape[-1], dtype="float64") * 3


def weighed(*factors: Any) -> Any:
    """A real number that depends on the magnitudes of elements only, not on phases or signs."""
    total: Any = 0
    for order, factor in enumerate(factors, 1):
        flat = np.abs(factor.reshape(-1)) ** 2
        total = total + (flat * np.sin(np.arange(order, order + flat.size) ** 2.0)).sum()
    return total


def projector(rows: Any) -> Any:
    """A matrix that is the same for all orthonormal bases of a row space."""
    return np.conj(rows.T) @ rows


#: Name: (function, shape). The results do not depend on the phases of vectors.
CASES: dict[str, tuple[Callable[[Any], Any], tuple[int, ...]]] = {
    "qr": (lambda x: weighed(*L.qr(x)), (3, 3)),
    "qr tall": (lambda x: weighed(*L.qr(x)), (2, 4, 3)),
    "qr wide": (lambda x: weighed(*L.qr(x)), (2, 4)),
    "qr wide: q": (lambda x: weighed(L.qr(x).Q), (2, 4)),
    "qr: q": (lambda x: weighed(L.qr(x)[0]), (4, 2)),
    "qr: r": (lambda x: weighed(L.qr(x, mode="r")), (4, 2)),
    "qr complete: r": (lambda x: weighed(L.qr(x, mode="complete").R), (4, 2)),
    "qr complete": (lambda x: weighed(*L.qr(x, mode="complete")), (2, 3)),
    "svd": (lambda x: weighed(*L.svd(x)), (2, 3, 3)),
    "svd tall": (lambda x: weighed(*L.svd(x, full_matrices=False)), (4, 2)),
    "svd wide": (lambda x: weighed(*L.svd(x, full_matrices=False)), (2, 4)),
    "svd: u": (lambda x: weighed(L.svd(x, full_matrices=False).U), (4, 3)),
    "svd: vh": (lambda x: weighed(L.svd(x, full_matrices=False).Vh), (3, 4)),
    "svd full: s and u": (lambda x: weighed(*L.svd(x)[:2]), (2, 4)),
    "svd full: spaces": (lambda x: weighed(projector(L.svd(x).Vh[2:])), (2, 4)),
    "qr full: spaces": (lambda x: weighed(projector(L.qr(x, "complete").Q[:, 2:].T)), (4, 2)),
    "svd: product": (lambda x: weighed(L.svd(x)[0] @ L.svd(x)[2]), (3, 3)),
    "svdvals": (lambda x: weighed(L.svdvals(x)), (2, 4, 3)),
    "nuclear": (lambda x: L.matrix_norm(x, ord="nuc"), (3, 4)),
    "eigh": (lambda x: weighed(*L.eigh(symmetric(x))), (2, 3, 3)),
    "eigh upper": (lambda x: weighed(*L.eigh(symmetric(x), "U")), (3, 3)),
    "eigh: vectors": (lambda x: weighed(L.eigh(symmetric(x))[1]), (3, 3)),
    "eigvalsh": (lambda x: weighed(L.eigvalsh(symmetric(x))), (2, 3, 3)),
    "eig": (lambda x: weighed(*L.eig(x)), (3, 3)),
    "eig: vectors": (lambda x: weighed(L.eig(x)[1]), (2, 3, 3)),
    "eigvals": (lambda x: weighed(L.eigvals(x)), (3, 3)),
    "pinv tall": (lambda x: weighed(L.pinv(x)), (4, 2)),
    "pinv wide": (lambda x: weighed(L.pinv(x)), (2, 2, 3)),
    "pinv": (lambda x: weighed(L.pinv(x, rtol=0.0)), (3, 3)),
}


def slopes(function: Callable[[Any], Any], x: Any) -> Any:
    """The gradient by central differences; for complex numbers, that of both parts."""
    found = numpy.zeros_like(x)
    step = 1e-6
    for at in numpy.ndindex(x.shape):
        for way in (1, 1j) if x.dtype.kind == "c" else (1,):
            moved = numpy.zeros_like(x)
            moved[at] = way * step
            ends = [float(function(np.array(end)).sum()) for end in (x + moved, x - moved)]
            found[at] += way * (ends[0] - ends[1]) / (2 * step)
    return found


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_gradients(name: str, dtype: str) -> None:
    function, shape = CASES[name]
    generator = numpy.random.default_rng(sum(map(ord, name)))
    start = generator.normal(size=shape)
    if dtype == "complex128":
        start = start + 1j * generator.normal(size=shape)
    expected = slopes(function, start)
    assert numpy.abs(expected).max() > 1e-3
    for way in (function, gemel.compile(function)):
        x = np.array(start)
        x.attach_grad()
        with autograd.record():
            y = way(x).sum()
        y.backward()
        assert x.grad.dtype == dtype
        numpy.testing.assert_allclose(x.grad.asnumpy(), expected, 2e-6, 2e-6)


def test_second_gradient() -> None:
    """The largest singular value of a diagonal matrix, whose derivatives perturbation gives."""
    x = np.array([[2.0, 0.0], [0.0, 1.0]], dtype="float64")
    x.attach_grad()
    with autograd.record():
        slope = autograd.grad(L.svdvals(x)[0], x, create_graph=True)
        y = (slope * np.array([[0.0, 1.0], [0.0, 0.0]])).sum()
    y.backward()
    # d2 s0 / dx01 dx = (s0 E01 + s1 E10) / (s0 s0 - s1 s1)
    numpy.testing.assert_allclose(x.grad.asnumpy(), [[0, 2 / 3], [1 / 3, 0]], atol=1e-12)

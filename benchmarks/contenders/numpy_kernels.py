"""NumPy: a contender for the operations it has, and the reference for results in `sweep`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any

import numpy

from benchmarks.cases import Single
from benchmarks.shapes import Shape, places

Array = numpy.ndarray
matmul = numpy.matmul
square = numpy.square
copy = numpy.copy


def transpose(x: Array, *, axes: list[int]) -> Array:
    return numpy.ascontiguousarray(x.transpose(axes))


def take(table: Array, rows: Array) -> Array:
    return numpy.take(table, rows, axis=0)


def reduce(x: Array, *, how: str, axis: int) -> Array:
    found: Array = getattr(numpy, how)(x, axis=axis)
    return found


def softmax(x: Array) -> Array:
    raised = numpy.exp(x - x.max(-1, keepdims=True))
    found: Array = raised / raised.sum(-1, keepdims=True)
    return found


def attention(q: Array, k: Array, v: Array) -> Array:
    return numpy.matmul(softmax(q @ k.swapaxes(-1, -2) * numpy.float32(q.shape[-1] ** -0.5)), v)


def met(x: Array, w: Array, counts: Any, stride: int) -> Iterator[tuple[Any, Any]]:
    """For each position in the kernel: its index, and that of the elements of x it multiplies."""
    for at in product(*map(range, w.shape[2:])):
        parts = (slice(i, i + stride * n, stride) for i, n in zip(at, counts, strict=True))
        yield (..., *at), (..., *parts)


def bordered(x: Array, pad: int) -> Array:
    return numpy.pad(x, ((0, 0), (0, 0), *[(pad, pad)] * (x.ndim - 2)))


def conv(x: Array, w: Array, *, stride: int, pad: int, groups: int) -> Array:
    """A convolution as one product for each position in the kernel; one group only."""
    counts = places(x.shape, w.shape, stride, pad)
    result = numpy.zeros((w.shape[0], len(x), *counts), "float32")
    x = bordered(x, pad)
    for at, part in met(x, w, counts, stride):
        result += numpy.tensordot(w[at], x[part], (1, 1))
    return result.swapaxes(0, 1)


def conv_gradients(
    x: Array, w: Array, g: Array, *, stride: int, pad: int, groups: int
) -> list[Array]:
    """The gradients of `conv`, from the gradient `g` with respect to its result."""
    space = tuple(range(2, x.ndim))
    x = bordered(x, pad)
    of_x, of_w = numpy.zeros_like(x), numpy.zeros_like(w)
    for at, part in met(x, w, g.shape[2:], stride):
        of_x[part] += numpy.tensordot(w[at], g, (0, 1)).swapaxes(0, 1)
        of_w[at] = numpy.tensordot(g, x[part], ((0, *space),) * 2)
    return [of_x[(..., *(slice(pad, x.shape[axis] - pad) for axis in space))], of_w]


def case(shape: Shape, threads: int) -> Single | None:
    """The function of a kind or of its gradients; None if there is none here."""
    name = shape.kind + "_gradients" * shape.gradients
    if name not in globals():
        return None
    arrays = [each for part in shape.operands() for each in part]
    if shape.gradients:
        arrays.append(shape.head())
    function = partial(globals()[name], **shape.settings)
    return Single(lambda _: function(*arrays), lambda found: found if shape.gradients else [found])

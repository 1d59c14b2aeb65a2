"""Adaptive pooling: images of any size in a given number of parts."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy
import pytest

import gemel
from gemel import autograd, np, npx
from gemel.errors import DTypeError, GemelError, ShapeError
from gemel.gluon import nn

CASES = [
    ((2, 3, 10), (4,)),
    ((2, 3, 7), (10,)),
    ((2, 3, 10, 7), (4, 3)),
    ((2, 3, 8, 6), (4, 3)),
    ((1, 2, 3, 3), (5, 7)),
    ((2, 2, 5, 6, 7), (2, 4, 3)),
    ((2, 3, 11, 1), (1, 1)),
    ((2, 3, 5, 4), (None, 3)),
    ((0, 3, 5, 4), (2, 3)),
]


def windows(shape: tuple[int, ...], sizes: tuple[int, ...]) -> list[tuple[Any, Any]]:
    """The index of each part, and the slices that it consists of."""
    spans = [
        [slice(i * n // m, -(-(i + 1) * n // m)) for i in range(m)]
        for n, m in zip(shape[2:], sizes, strict=True)
    ]
    places = product(*map(range, sizes))
    return [(p, tuple(s[i] for s, i in zip(spans, p, strict=True))) for p in places]


def reference(x: Any, sizes: tuple[int, ...], kind: str) -> Any:
    """Every part by itself."""
    found = numpy.zeros((*x.shape[:2], *sizes), x.dtype)
    axes = tuple(range(2, x.ndim))
    for place, window in windows(x.shape, sizes):
        part = x[(..., *window)]
        found[(..., *place)] = part.mean(axes) if kind == "avg" else part.max(axes)
    return found


def gradient(x: Any, g: Any, sizes: tuple[int, ...], kind: str) -> Any:
    """The gradient for distinct elements."""
    found = numpy.zeros_like(x)
    axes = tuple(range(2, x.ndim))
    for place, window in windows(x.shape, sizes):
        part, own = x[(..., *window)], g[(..., *place)].reshape(*x.shape[:2], *[1] * len(sizes))
        if kind == "avg":
            found[(..., *window)] += own / numpy.prod(part.shape[2:])
        else:
            found[(..., *window)] += own * (part == part.max(axes, keepdims=True))
    return found


@pytest.mark.parametrize("kind", ["avg", "max"])
@pytest.mark.parametrize(("shape", "size"), CASES, ids=str)
def test_each_part(shape: tuple[int, ...], size: tuple[Any, ...], kind: str) -> None:
    sizes = tuple(n if m is None else m for n, m in zip(shape[2:], size, strict=True))
    draw = numpy.random.default_rng(0)
    x, g = draw.standard_normal(shape), draw.standard_normal((*shape[:2], *sizes))
    data = np.array(x, dtype="float64")
    data.attach_grad()
    for call in (npx.adaptive_pooling, gemel.compile(npx.adaptive_pooling)):
        with autograd.record():
            found = call(data, size, pool_type=kind)
        found.backward(np.array(g, dtype="float64"))
        numpy.testing.assert_allclose(found.asnumpy(), reference(x, sizes, kind), rtol=1e-12)
        wanted = gradient(x, g, sizes, kind)
        numpy.testing.assert_allclose(data.grad.asnumpy(), wanted, rtol=1e-10, atol=1e-12)


def test_one_network_for_images_of_many_sizes() -> None:
    net = nn.HybridSequential()
    net.add(nn.AdaptiveAvgPool2D((3, 2)), nn.AdaptiveMaxPool2D(2))
    net.initialize()
    net.hybridize()
    for size in (5, 6, 7, 12, 13, 40, 5):
        x = numpy.random.default_rng(size).standard_normal((2, 3, size, size + 1)).astype("float32")
        wanted = reference(reference(x, (3, 2), "avg"), (2, 2), "max")
        numpy.testing.assert_allclose(net(np.array(x)).asnumpy(), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["avg", "max"])
@pytest.mark.parametrize("size", [1, (1, None), (None, 1), (1, 3)], ids=str)
def test_one_part_of_any_size(size: Any, kind: str) -> None:
    pooled = gemel.compile(lambda x: npx.adaptive_pooling(x, size, kind))
    for image in ((9, 10), (12, 16), (31, 22), (13, 40)):
        sizes = (size, size) if size == 1 else size
        sizes = tuple(n if m is None else m for n, m in zip(image, sizes, strict=True))
        x = numpy.random.default_rng(0).standard_normal((2, 5, *image)).astype("float32")
        wanted = reference(x, sizes, kind)
        numpy.testing.assert_allclose(pooled(np.array(x)).asnumpy(), wanted, rtol=1e-4, atol=1e-6)
    assert pooled.traces == 1


def test_layouts_and_dtypes() -> None:
    x = numpy.random.default_rng(0).integers(-90, 90, (2, 7, 5, 3)).astype("int8")
    found = npx.adaptive_pooling(np.array(x, dtype="int8"), (3, 2), "max", layout="NHWC")
    assert found.dtype == "int8"
    wanted = reference(x.transpose(0, 3, 1, 2), (3, 2), "max").transpose(0, 2, 3, 1)
    numpy.testing.assert_array_equal(found.asnumpy(), wanted)
    half = npx.adaptive_pooling(np.ones((1, 1, 4100), dtype="float16"), 1)
    assert half.dtype == "float16" and half.item() == 1  # added up in float32


def test_parts_in_an_array() -> None:
    sizes, x = numpy.array([2, 3]), np.ones((1, 1, 4, 5))
    assert npx.adaptive_pooling(x, sizes).shape == (1, 1, 2, 3)
    assert nn.AdaptiveMaxPool2D(sizes)(x).shape == (1, 1, 2, 3)


def test_nan_and_equal_elements() -> None:
    x = np.array([[[1.0, 3.0, 3.0, numpy.nan, 2.0]]])
    x.attach_grad()
    with autograd.record():
        y = npx.adaptive_pooling(x, 2, pool_type="max")
    y.backward()
    numpy.testing.assert_array_equal(y.asnumpy(), [[[3, numpy.nan]]])
    numpy.testing.assert_array_equal(x.grad.asnumpy(), [[[0, 1, *[numpy.nan] * 3]]])


WRONG = {
    "size": (lambda x: npx.adaptive_pooling(x, (1, 2, 3)), ShapeError, "2 of them"),
    "zero": (lambda x: npx.adaptive_pooling(x, 0), ShapeError, "positive"),
    "text": (lambda x: npx.adaptive_pooling(x, "2"), GemelError, "output_size"),
    "half": (lambda x: npx.adaptive_pooling(x, 2.5), GemelError, "output_size"),
    "kind": (lambda x: npx.adaptive_pooling(x, 2, pool_type="mean"), GemelError, "avg"),
    "axes": (lambda x: npx.adaptive_pooling(x[0, 0], 2), ShapeError, "3 to 5"),
    "empty": (lambda x: npx.adaptive_pooling(x[:, :, :0], 2), ShapeError, "empty"),
    "bool": (lambda x: npx.adaptive_pooling(x, True), ShapeError, "output_size True"),
    "layout": (
        lambda x: npx.adaptive_pooling(x, -1, layout="NHWC"),
        ShapeError,
        r"\[1, 1, 4, 5\]: output_size -1",
    ),
    "layer": (lambda x: nn.AdaptiveAvgPool2D((1, 2, 3)), ShapeError, "2 of them"),
    "zero parts": (lambda x: nn.AdaptiveMaxPool2D(0), ShapeError, "AdaptiveMaxPool2D: .*positive"),
    "half a part": (lambda x: nn.AdaptiveAvgPool1D(2.5), ShapeError, r"output_size 2\.5"),
    "a name": (lambda x: nn.AdaptiveAvgPool3D("ab"), ShapeError, "output_size 'ab'"),
    "complex": (
        lambda x: npx.adaptive_pooling(x.astype("complex64"), 2, "max"),
        DTypeError,
        "complex",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_errors(name: str) -> None:
    call, error, said = WRONG[name]
    with pytest.raises(error, match=said):
        call(np.ones((1, 1, 4, 5)))

"""Channels last: the same results, and no conversion of the layout between layers."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

import gemel
from gemel import autograd, np, npx, sym
from gemel.gluon import nn

LAYOUTS = {1: ("NCW", "NWC"), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}


def last(x: Any) -> Any:
    """An array (N, C, *space) as (N, *space, C), also in memory."""
    return np.array(numpy.ascontiguousarray(numpy.moveaxis(x, 1, -1)))


def first(x: Any) -> Any:
    return numpy.moveaxis(x.asnumpy(), -1, 1)


def close(found: Any, wanted: Any) -> None:
    numpy.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["max", "avg", "sum", "lp"])
@pytest.mark.parametrize("convention", ["valid", "full", "same"])
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_pooling(kind: str, convention: str, axes: int) -> None:
    """Each kind and convention, with padding, and the gradient."""
    drawn = numpy.random.default_rng(axes).random((2, 3, *(7, 6, 5)[:axes])).astype("float32")
    how: dict[str, Any] = {"kernel": (3, 2, 2)[:axes], "stride": (2, 1, 2)[:axes]}
    how |= {"pad": (1, 0, 1)[:axes], "pool_type": kind, "pooling_convention": convention}
    x, turned = np.array(drawn), last(drawn)
    for counted in (True, False):
        for each in (x, turned):
            each.attach_grad()
        with autograd.record():
            y = npx.pooling(x, count_include_pad=counted, **how)
            found = npx.pooling(turned, count_include_pad=counted, layout=LAYOUTS[axes][1], **how)
            square = (y * y).sum() + (found * found).sum()
        square.backward()
        close(first(found), y.asnumpy())
        close(first(turned.grad), x.grad.asnumpy())


def test_pooling_is_one_kernel() -> None:
    """No kernel before or after it changes the layout."""
    x = np.array(numpy.random.default_rng(0).random((2, 8, 8, 5)), dtype="float32")
    program = gemel.compile(lambda x: npx.pooling(x, kernel=(2, 2), stride=(2, 2), layout="NHWC"))
    close(program(x).asnumpy(), x.asnumpy().reshape(2, 4, 2, 4, 2, 5).max((2, 4)))
    assert program.plan_summary(x).endswith(": 1 kernel, 0 bytes of workspace")


def block(layout: str) -> Any:
    """Two convolutions with what usually follows, and a shortcut from the input."""
    axis = layout.index("C") - 4

    def chain(x: Any, weight: Any, scale: Any) -> Any:
        shape = [1, 1, 1, 1]
        shape[axis] = -1
        how: dict[str, Any] = {"kernel": (3, 3), "pad": (1, 1), "no_bias": True, "layout": layout}
        y = npx.relu(npx.convolution(x, weight, **how) * scale.reshape(shape))
        return npx.relu(npx.convolution(y, weight, **how) * scale.reshape(shape) + x)

    return chain


@pytest.mark.parametrize(("channels", "size", "steps"), [(16, 20, 10), (64, 28, 32)])
def test_no_conversions_between_neighbours(channels: int, size: int, steps: int) -> None:
    """Images (N, H, W, C) take the same number of kernels, plus one that transposes the weights;
    or `steps` and one more: with channels first, the product of the last convolution may compute
    what follows, while a kernel of its own has to write channels last."""
    generator = numpy.random.default_rng(1)
    x = generator.standard_normal((1, channels, size, size)).astype("float32")
    weight = generator.standard_normal((channels, channels, 3, 3)).astype("float32") / channels
    scale = np.array(generator.random(channels), dtype="float32")
    kernels, results = [], []
    for layout, arrays in (
        ("NCHW", (np.array(x), np.array(weight), scale)),
        ("NHWC", (last(x), last(weight), scale)),
    ):
        program = gemel.compile(block(layout))
        results.append(program(*arrays))
        kernels.append(int(program.plan_summary(*arrays).split(": ")[1].split()[0]))
    close(first(results[1]), results[0].asnumpy())
    assert kernels[0] <= steps
    assert kernels[1] <= steps + 1


def test_a_network() -> None:
    """Convolution, normalization and pooling of both layouts: results and gradients."""

    def network(layout: str) -> Any:
        net = nn.HybridSequential()
        axis = layout.index("C")
        net.add(
            nn.Conv2D(8, 3, 2, 1, layout=layout, in_channels=3),
            nn.BatchNorm(axis=axis, in_channels=8),
            nn.Activation("relu"),
            nn.MaxPool2D(3, 2, 1, layout=layout),
            nn.Conv2D(6, 3, 1, 1, layout=layout, in_channels=8),
            nn.AvgPool2D(2, 2, layout=layout),
            nn.GlobalAvgPool2D(layout=layout),
        )
        net.initialize()
        net.hybridize()
        return net

    x = numpy.random.default_rng(2).standard_normal((4, 3, 21, 18)).astype("float32")
    nets = [network(layout) for layout in ("NCHW", "NHWC")]
    pairs = list(zip(*(net.collect_params().values() for net in nets), strict=True))
    for one, other in pairs:
        value = one.data().asnumpy()
        other.set_data(last(value) if value.ndim == 4 else np.array(value))
    outputs = []
    for net, image in zip(nets, (np.array(x), last(x)), strict=True):
        with autograd.record():
            y = net(image)
            loss = (y * y).sum()
        loss.backward()
        outputs.append(y)
    close(first(outputs[1]), outputs[0].asnumpy())
    for one, other in pairs:
        if one.grad_req != "null":
            found = other.grad()
            close(first(found) if found.ndim == 4 else found.asnumpy(), one.grad().asnumpy())


@pytest.mark.parametrize("name", ["Convolution", "Deconvolution"])
def test_symbols_infer_weights_with_the_channels_last(name: str) -> None:
    kernel = {"kernel": (2, 3), "num_filter": 6, "num_group": 2}
    node = getattr(sym, name)(sym.var("data"), name="c", layout="NHWC", no_bias=True, **kernel)
    shapes, results, _ = node.infer_shape(data=(5, 7, 8, 4))
    assert shapes[1] == ((6, 2, 3, 2) if name == "Convolution" else (4, 2, 3, 3))
    assert results == [(5, 6, 6, 6) if name == "Convolution" else (5, 8, 10, 6)]

"""Convolution and pooling as layers: parameters, shapes found by the first input, training."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

from gemel import autograd, gluon, init, np, npx
from gemel.errors import ShapeError, UnknownNameError
from gemel.gluon import nn

#: Layer, shapes of input, weight and result, and its representation.
LAYERS: list[tuple[Any, tuple[int, ...], tuple[int, ...], tuple[int, ...], str]] = [
    (lambda: nn.Conv1D(6, 3, strides=2), (2, 4, 9), (6, 4, 3), (2, 6, 4),
     "Conv1D(4 -> 6, kernel_size=(3,), stride=(2,))"),
    (lambda: nn.Conv2D(6, (3, 2), padding=1, groups=2, activation="relu"), (2, 4, 5, 5),
     (6, 2, 3, 2), (2, 6, 5, 6),
     "Conv2D(4 -> 6, kernel_size=(3, 2), stride=(1, 1), padding=(1, 1), groups=2, "
     "Activation(relu))"),
    (lambda: nn.Conv3D(2, 2, dilation=2, use_bias=False), (1, 3, 4, 4, 4), (2, 3, 2, 2, 2),
     (1, 2, 2, 2, 2),
     "Conv3D(3 -> 2, kernel_size=(2, 2, 2), stride=(1, 1, 1), dilation=(2, 2, 2), bias=False)"),
    (lambda: nn.Conv1DTranspose(3, 4, 2, 1), (2, 5, 6), (5, 3, 4), (2, 3, 12),
     "Conv1DTranspose(5 -> 3, kernel_size=(4,), stride=(2,), padding=(1,))"),
    (lambda: nn.Conv2DTranspose(4, 3, 2, 1, 1, groups=2), (2, 6, 3, 4), (6, 2, 3, 3), (2, 4, 6, 8),
     "Conv2DTranspose(6 -> 4, kernel_size=(3, 3), stride=(2, 2), padding=(1, 1), "
     "output_padding=(1, 1), groups=2)"),
    (lambda: nn.Conv3DTranspose(2, 2), (1, 3, 2, 2, 2), (3, 2, 2, 2, 2), (1, 2, 3, 3, 3),
     "Conv3DTranspose(3 -> 2, kernel_size=(2, 2, 2), stride=(1, 1, 1))"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "given", "weight", "result", "shown"), LAYERS, ids=lambda v: "")
def test_convolutions(make: Any, given: Any, weight: Any, result: Any, shown: str) -> None:
    net = make()
    assert "(-1 -> " in repr(net)
    net.initialize()
    x = np.random.normal(size=given)
    y = net(x)
    assert y.shape == result
    assert net.weight.shape == weight
    assert repr(net) == shown
    assert (net.bias is None) == ("bias=False" in shown)
    net.hybridize()
    numpy.testing.assert_allclose(net(x).asnumpy(), y.asnumpy(), rtol=1e-5, atol=1e-5)
    known = type(net)(4, 1, in_channels=2)
    known.initialize()
    assert known.weight.data().shape[:2] == ((2, 4) if "Transpose" in shown else (4, 2))


#: Pooling layer, shapes of input and result.
POOLS: list[tuple[Any, tuple[int, ...], tuple[int, ...]]] = [
    (lambda: nn.MaxPool1D(), (2, 3, 7), (2, 3, 3)),
    (lambda: nn.MaxPool2D(3, strides=2, padding=1), (2, 3, 7, 8), (2, 3, 4, 4)),
    (lambda: nn.MaxPool3D((1, 2, 2)), (2, 3, 2, 4, 4), (2, 3, 2, 2, 2)),
    (lambda: nn.AvgPool1D(2, 2, ceil_mode=True), (2, 3, 7), (2, 3, 4)),
    (lambda: nn.AvgPool2D(2, count_include_pad=False, padding=1), (2, 3, 4, 4), (2, 3, 3, 3)),
    (lambda: nn.AvgPool3D(), (2, 3, 2, 4, 4), (2, 3, 1, 2, 2)),
    (lambda: nn.GlobalMaxPool1D(), (2, 3, 7), (2, 3, 1)),
    (lambda: nn.GlobalMaxPool2D(), (2, 3, 4, 5), (2, 3, 1, 1)),
    (lambda: nn.GlobalMaxPool3D(), (2, 3, 2, 4, 5), (2, 3, 1, 1, 1)),
    (lambda: nn.GlobalAvgPool1D(), (2, 3, 7), (2, 3, 1)),
    (lambda: nn.GlobalAvgPool2D(), (2, 3, 4, 5), (2, 3, 1, 1)),
    (lambda: nn.GlobalAvgPool3D(), (2, 3, 2, 4, 5), (2, 3, 1, 1, 1)),
    (lambda: nn.AdaptiveMaxPool1D(3), (2, 3, 7), (2, 3, 3)),
    (lambda: nn.AdaptiveAvgPool2D((7, None)), (2, 3, 4, 5), (2, 3, 7, 5)),
    (lambda: nn.AdaptiveAvgPool3D(2), (2, 3, 2, 4, 5), (2, 3, 2, 2, 2)),
]


@pytest.mark.parametrize(("make", "given", "result"), POOLS, ids=lambda v: "")
def test_pools(make: Any, given: Any, result: Any) -> None:
    net = make()
    x = np.ones(given)
    y = net(x)
    assert y.shape == result
    assert (y.asnumpy() == 1).all(), "the mean of ones is 1, as padding does not count"
    assert type(net).__name__ in repr(net)
    net.hybridize()
    assert net(x).tolist() == y.tolist()


def test_what_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="NCHW"):
        nn.Conv2D(3, 3, layout="NHCW")
    with pytest.raises(ShapeError, match="2 numbers"):
        nn.MaxPool2D((2, 2, 2))
    net = nn.Conv2D(3, 3, in_channels=2)
    net.initialize()
    with pytest.raises(ShapeError, match="has 4 channels"):
        net(np.ones((1, 4, 5, 5)))


def lenet() -> nn.HybridSequential:
    """A smaller LeNet-5."""
    net = nn.HybridSequential()
    net.add(
        nn.Conv2D(4, 5, padding=2, activation="relu"),
        nn.MaxPool2D(2, 2),
        nn.Conv2D(6, 3, activation="sigmoid"),
        nn.AvgPool2D(2, 2),
        nn.Flatten(),
        nn.Dense(10),
    )
    return net


def losses(hybrid: bool) -> tuple[list[float], Any]:
    """The losses of some training steps, and the network."""
    np.random.seed(4)
    net = lenet()
    net.initialize(init.Xavier())
    if hybrid:
        net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.3})
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    x = np.array(numpy.random.default_rng(0).standard_normal((8, 1, 12, 12)), dtype="float32")
    labels = np.array(numpy.arange(8) % 3)
    found = []
    for _ in range(8):
        with autograd.record():
            each = loss(net(x), labels)
        each.backward()
        trainer.step(8)
        found.append(float(each.mean()))
    return found, net


def test_lenet_learns_the_same_hybridized() -> None:
    plain, _ = losses(hybrid=False)
    compiled, net = losses(hybrid=True)
    numpy.testing.assert_allclose(compiled, plain, rtol=1e-4)
    assert plain[-1] < 0.8 * plain[0]
    x = np.array(numpy.random.default_rng(1).standard_normal((5, 1, 12, 12)), dtype="float32")
    expected = x
    for layer in net:
        expected = layer(expected)
    numpy.testing.assert_allclose(net(x).asnumpy(), expected.asnumpy(), rtol=1e-4, atol=1e-5)


def test_image_sizes_through_one_hybridized_net() -> None:
    net = nn.HybridSequential()
    net.add(
        nn.Conv2D(3, 3, padding=1),
        nn.BatchNorm(),
        nn.MaxPool2D(2),
        nn.Conv2DTranspose(2, 2, 2),
        nn.GlobalAvgPool2D(),
    )
    net.initialize()
    net(np.ones((2, 1, 8, 8)))
    expected, sizes = [], [(2, 1, 8, 8), (3, 1, 8, 8), (4, 1, 10, 12), (2, 1, 9, 6)]
    inputs = [np.random.normal(size=size) for size in sizes]
    expected = [net(x).asnumpy() for x in inputs]
    net.hybridize()
    for x, wanted in zip(inputs, expected, strict=True):
        numpy.testing.assert_allclose(net(x).asnumpy(), wanted, rtol=1e-4, atol=1e-5)


def test_the_book_s_way_to_write_it() -> None:
    """As in D2L's LeNet from scratch."""
    x, weight, bias = np.ones((2, 1, 6, 6)), np.ones((20, 1, 3, 3)), np.zeros(20)
    conv = npx.convolution(data=x, weight=weight, bias=bias, kernel=(3, 3), num_filter=20)
    pool = npx.pooling(data=npx.relu(conv), pool_type="avg", kernel=(2, 2), stride=(2, 2))
    assert pool.tolist() == np.full((2, 20, 2, 2), 9.0).tolist()


def test_old_names_in_hybrid_forward() -> None:
    class Old(nn.HybridBlock):
        def hybrid_forward(self, F: Any, x: Any) -> Any:
            weight = F.np.ones((2, 1, 3, 3))
            y = F.Convolution(x, weight, no_bias=True, kernel=(3, 3), num_filter=2)
            return F.Pooling(y, global_pool=True, pool_type="avg")

    net = Old()
    for _ in range(2):
        assert net(np.ones((1, 1, 4, 4))).tolist() == [[[[9]], [[9]]]]
        net.hybridize()


@pytest.mark.parametrize(
    ("make", "factors"),
    [
        (lambda: nn.PixelShuffle1D(3), (3,)),
        (lambda: nn.PixelShuffle2D((2, 3)), (2, 3)),
        (lambda: nn.PixelShuffle3D(2), (2, 2, 2)),
    ],
    ids=lambda v: "",
)
def test_pixel_shuffles(make: Any, factors: Any) -> None:
    """Each position of the result comes from the right channel."""
    space = (2, 3, 2)[: len(factors)]
    x = numpy.arange(2 * 2 * numpy.prod(factors) * numpy.prod(space), dtype="float32")
    x = x.reshape(2, -1, *space)
    wide = [n * f for n, f in zip(space, factors, strict=True)]
    expected = numpy.zeros((2, 2, *wide), "float32")
    for channel, *place in numpy.ndindex(2, *wide):
        pairs = [divmod(i, f) for i, f in zip(place, factors, strict=True)]
        inside = numpy.ravel_multi_index([rest for _, rest in pairs], factors)
        source = channel * int(numpy.prod(factors)) + int(inside)
        outside = (whole for whole, _ in pairs)
        expected[(slice(None), channel, *place)] = x[(slice(None), source, *outside)]
    net = make()
    for _ in range(2):
        assert net(np.array(x)).tolist() == expected.tolist()
        net.hybridize()

"""Every layer in every way to run it: imperatively, hybridized, cast, saved and copied."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy
import pytest

from gemel import autograd, gluon, np, npx
from gemel.gluon import nn

Make = Callable[[], Any]

#: Layers, and the shape of an example; an Embedding takes whole numbers.
LAYERS: list[tuple[Make, tuple[int, ...]]] = [
    (lambda: nn.Dense(5, activation="relu"), (3, 4)),
    (lambda: nn.Dense(5, flatten=False, use_bias=False), (3, 4)),
    (lambda: nn.Conv1D(6, 3, 2, 1, groups=3), (3, 8)),
    (lambda: nn.Conv2D(4, (3, 2), activation="tanh"), (3, 6, 5)),
    (lambda: nn.Conv2D(4, 3, layout="NHWC"), (6, 5, 3)),
    (lambda: nn.Conv3D(4, 2, dilation=2), (3, 4, 4, 4)),
    (lambda: nn.Conv1DTranspose(4, 3, 2, 1, 1), (3, 4)),
    (lambda: nn.Conv2DTranspose(4, 2, 2), (3, 4, 4)),
    (lambda: nn.Conv3DTranspose(4, 2), (3, 2, 2, 2)),
    (lambda: nn.MaxPool1D(), (3, 7)),
    (lambda: nn.MaxPool2D(3, 2, 1, ceil_mode=True), (3, 6, 7)),
    (lambda: nn.MaxPool3D(layout="NDHWC"), (4, 4, 4, 3)),
    (lambda: nn.AvgPool1D(3, 1, 1, count_include_pad=False), (3, 7)),
    (lambda: nn.AvgPool2D(), (3, 6, 7)),
    (lambda: nn.AvgPool3D(), (3, 4, 4, 4)),
    (lambda: nn.GlobalMaxPool1D(), (3, 7)),
    (lambda: nn.GlobalMaxPool2D(), (3, 4, 4)),
    (lambda: nn.GlobalMaxPool3D(), (3, 2, 2, 2)),
    (lambda: nn.GlobalAvgPool1D(), (3, 7)),
    (lambda: nn.GlobalAvgPool2D("NHWC"), (4, 4, 3)),
    (lambda: nn.GlobalAvgPool3D(), (3, 2, 2, 2)),
    (lambda: nn.AdaptiveMaxPool1D(3), (3, 7)),
    (lambda: nn.AdaptiveMaxPool2D((2, 3), layout="NHWC"), (4, 5, 3)),
    (lambda: nn.AdaptiveMaxPool3D(2), (3, 3, 4, 3)),
    (lambda: nn.AdaptiveAvgPool1D(9), (3, 7)),
    (lambda: nn.AdaptiveAvgPool2D(2), (3, 4, 5)),
    (lambda: nn.AdaptiveAvgPool3D((2, None, 1)), (3, 3, 4, 3)),
    (lambda: nn.ReflectionPad2D(2), (3, 4, 5)),
    (lambda: nn.Flatten(), (3, 4)),
    (lambda: nn.Embedding(9, 4), (3,)),
    (lambda: nn.Dropout(0.5, axes=(1,)), (3, 4)),
    (lambda: nn.BatchNorm(), (3, 4)),
    (lambda: nn.BatchNorm(axis=-1, scale=False, center=False), (3, 4)),
    (lambda: nn.BatchNorm(use_global_stats=True), (3, 4)),
    (lambda: nn.BatchNormReLU(), (3, 4)),
    (lambda: nn.LayerNorm(), (3, 4)),
    (lambda: nn.GroupNorm(2), (4, 3)),
    (lambda: nn.InstanceNorm(), (4, 3, 3)),
    (lambda: nn.Activation("softrelu"), (4,)),
    (lambda: nn.LeakyReLU(0.1), (4,)),
    (lambda: nn.PReLU(), (4,)),
    (lambda: nn.ELU(0.5), (4,)),
    (lambda: nn.SELU(), (4,)),
    (lambda: nn.GELU(), (4,)),
    (lambda: nn.GELU("tanh"), (4,)),
    (lambda: nn.SiLU(), (4,)),
    (lambda: nn.Swish(2.0), (4,)),
    (lambda: nn.PixelShuffle1D(2), (4, 3)),
    (lambda: nn.PixelShuffle2D(2), (4, 3, 2)),
    (lambda: nn.PixelShuffle3D((1, 2, 2)), (4, 1, 2, 2)),
    (lambda: nn.Identity(), (4,)),
    (lambda: nn.HybridLambda("tanh"), (4,)),
    (lambda: side_by_side(), (3, 4)),
    (lambda: one_after_the_other(), (3, 4)),
]


def side_by_side() -> nn.HybridConcatenate:
    net = nn.HybridConcatenate(axis=-1)
    net.add(nn.Dense(2), nn.Dense(3))
    return net


def one_after_the_other() -> nn.HybridSequential:
    net = nn.HybridSequential()
    shared = nn.Dense(4, in_units=4)
    net.add(nn.Dense(4), nn.BatchNorm(), shared, nn.Dense(4, params=shared.params), shared)
    return net


def named(value: Any) -> str:
    return type(value()).__name__ if callable(value) else ""


EACH = pytest.mark.parametrize(("make", "shape"), LAYERS, ids=named)


def given(make: Make, shape: tuple[int, ...], batch: int, dtype: str = "float32") -> Any:
    draw = numpy.random.default_rng(batch)
    if isinstance(make(), nn.Embedding):
        return np.array(draw.integers(0, 9, (batch, *shape)))
    return np.array(draw.standard_normal((batch, *shape)).astype("float32")).astype(dtype)


def close(found: Any, expected: Any, tolerance: float = 1e-5) -> None:
    assert found.shape == expected.shape
    a, b = found.astype("float64").asnumpy(), expected.astype("float64").asnumpy()
    numpy.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def made(make: Make, shape: tuple[int, ...]) -> Any:
    np.random.seed(3)
    net = make()
    net.initialize("normal")
    net(given(make, shape, 2))
    return net


@EACH
def test_imperative_is_hybridized(make: Make, shape: Any) -> None:
    """Also for other batch sizes, the last of them one example; the gradients are equal too."""
    net, other = made(make, shape), made(make, shape)
    other.hybridize()
    for batch in (2, 3, 1):
        x = given(make, shape, batch)
        close(other(x), net(x))
    trained = [p for p in net.collect_params().values() if p.grad_req != "null"]
    if trained and not isinstance(net, nn.Dropout):
        for each in (net, other):
            with autograd.record():
                y = each(given(make, shape, 4))
                loss = (y * y).sum()
            loss.backward()
        pairs = zip(net.collect_params().values(), other.collect_params().values(), strict=True)
        for a, b in pairs:
            close(b.data(), a.data())
            if a.grad_req != "null":
                close(b.grad(), a.grad(), 1e-4)


@EACH
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("float64", 1e-4), ("float16", 2e-2), ("bfloat16", 0.1)]
)
def test_cast(make: Make, shape: Any, dtype: str, tolerance: float) -> None:
    net = made(make, shape)
    x = given(make, shape, 3)
    expected = net(x)
    net.cast(dtype)
    assert {str(p.dtype) for p in net.collect_params().values()} <= {dtype, "float32"}
    given_cast = given(make, shape, 3, dtype)
    for _ in range(2):
        found = net(given_cast)
        assert str(found.dtype) == dtype
        close(found, expected, tolerance)
        net.hybridize()


@EACH
def test_saved_copied_and_pickled(make: Make, shape: Any, tmp_path: Any) -> None:
    net = made(make, shape)
    x = given(make, shape, 3)
    expected = net(x)
    net.save_parameters(str(tmp_path / "p"), deduplicate=True)
    fresh = make()  # its shapes are not known yet
    fresh.load_parameters(str(tmp_path / "p"))
    close(fresh(x), expected)
    net.hybridize()
    net(x)
    for other in (copy.copy(net), copy.deepcopy(net), fresh):
        close(other(x), expected)
    if not isinstance(net, nn.HybridLambda):
        close(pickle.loads(pickle.dumps(net))(x), expected)


@EACH
def test_exported(make: Make, shape: Any, tmp_path: Any) -> None:
    """Written as MXNet's files, read back, and called with another batch size too."""
    net, x = made(make, shape), given(make, shape, 3)
    net.hybridize()
    expected = net(x)
    net.export(str(tmp_path / "net"))
    weights = tmp_path / "net-0000.params"
    read = gluon.SymbolBlock.imports(
        str(tmp_path / "net-symbol.json"), ["data"], str(weights) if weights.exists() else None
    )
    close(read(x), expected)
    close(read(x[:1]), expected[:1])


@EACH
def test_shapes_without_computing(make: Make, shape: Any, capsys: Any) -> None:
    net, x = make(), given(make, shape, 2)
    net.infer_shape(x)
    assert all(p.is_shape_known for p in net.collect_params().values())
    net.summary(x)
    assert str(made(make, shape)(x).shape) in capsys.readouterr().out
    assert repr(net)


@EACH
def test_no_examples_views_and_another_device(make: Make, shape: Any) -> None:
    net, x = made(make, shape), given(make, shape, 6)
    assert net(x[:0]).shape == (0, *net(x).shape[1:])
    close(net(x[::2]), net(x[::2].copy()))
    place = npx.cpu(1)
    elsewhere = make()
    elsewhere.initialize("normal", ctx=place)
    for _ in range(2):
        with autograd.record():
            y = elsewhere(x.as_in_ctx(place))
            loss = (y * y).sum()
        if any(p.grad_req != "null" for p in elsewhere.collect_params().values()):
            loss.backward()
        assert y.ctx == loss.ctx == place
        elsewhere.hybridize()

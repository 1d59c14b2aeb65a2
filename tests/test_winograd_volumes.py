"""Convolutions of volumes by Winograd's scheme."""

from __future__ import annotations

import itertools
from typing import Any

import numpy
import pytest
from programs import run
from test_winograd import UNITS, arrays, check_ways, drawn

import gemel
from gemel import autograd, gluon, np, npx
from gemel.ops.winograd_costs import Sizes

#: Volumes, channels, filters, planes of the kernel, the space, and the padding along its axes.
CASES = [
    (1, 2, 3, 3, (4, 5, 6), (1, 1, 1)),
    (2, 3, 2, 2, (5, 4, 7), (1, 0, 2)),
    (3, 1, 4, 3, (3, 3, 3), (0, 1, 0)),
    (2, 17, 5, 4, (6, 8, 3), (2, 1, 1)),
    (1, 4, 33, 7, (7, 6, 6), (3, 1, 1)),
    (1, 1, 1, 5, (5, 3, 3), (0, 0, 0)),
    (2, 2, 2, 3, (1, 9, 1), (1, 1, 1)),
    (1, 2, 2, 3, (2, 4, 4), (4, 3, 3)),  # more padding than the kernel reaches over
]


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Choose the scheme wherever it is possible, even for small sizes."""
    monkeypatch.setenv("GEMEL_WINOGRAD", "always")


def convolution(x: Any, w: Any, pad: Any = (1, 1, 1), **settings: Any) -> Any:
    return npx.convolution(x, w, kernel=tuple(w.shape[2:]), pad=pad, no_bias=True, **settings)


def by_numpy(x: Any, w: Any, pad: Any) -> tuple[Any, Any, Any]:
    """The result in float64, and its gradients for a head of ones."""
    widths = ((0, 0), (0, 0), *((p, p) for p in pad))
    wide, kernel = numpy.pad(x.astype("float64"), widths), w.shape[2:]
    seen = numpy.lib.stride_tricks.sliding_window_view(wide, kernel, (2, 3, 4))
    y = numpy.einsum("ncdhwijk,ocijk->nodhw", seen, w.astype("float64"))
    grown = numpy.zeros_like(wide)
    for place in itertools.product(*map(range, kernel)):
        key = tuple(slice(a, a + n) for a, n in zip(place, y.shape[2:], strict=True))
        grown[(slice(None), slice(None), *key)] += w[(..., *place)].sum(0)[:, None, None, None]
    inner = tuple(slice(p, p + n) for p, n in zip(pad, x.shape[2:], strict=True))
    dw = numpy.broadcast_to(seen.sum((0, 2, 3, 4)), w.shape)
    return y, grown[(slice(None), slice(None), *inner)], dw


@pytest.mark.parametrize("case", CASES, ids=str)
def test_values_and_gradients(case: Any, always: None) -> None:
    volumes, channels, filters, places, space, pad = case
    x, w = drawn((volumes, channels, *space), (filters, channels, places, 3, 3))
    wanted, dx, dw = by_numpy(x, w, pad)
    most = UNITS * (places * channels + 10) * abs(w).sum((1, 2, 3, 4)).max() * abs(x).max()
    net = gluon.nn.Conv3D(
        filters, (places, 3, 3), padding=pad, use_bias=False, in_channels=channels
    )
    net.initialize()
    net.weight.set_data(np.array(w))
    net.hybridize()
    check_ways(net, lambda x, w: convolution(x, w, pad), (x, w), wanted, most, (dx, dw))


@pytest.mark.parametrize(
    ("volumes", "channels", "space", "together", "strips"),
    [(6, 8, (4, 16, 16), 6, 1), (2, 16, (16, 28, 28), 1, 1), (1, 32, (8, 40, 40), 1, 4)],
)
def test_rounds_and_strips(
    volumes: int, channels: int, space: Any, together: int, strips: int, always: None
) -> None:
    """Planes too large for the caches: the rounds are a loop, with operations after it."""
    sizes = Sizes(volumes, channels, channels, *space[1:], deep=space[0] + 2, places=3)
    assert (sizes.together, sizes.strips) == (together, strips)
    x, w = drawn((volumes, channels, *space), (channels, channels, 3, 3, 3))
    wanted, dx, dw = by_numpy(x, w, (1, 1, 1))
    given = arrays(x, w)
    with autograd.record():
        y = gemel.compile(lambda x, w: convolution(x, w) + 1)(*given)
    y.backward()
    found = y - 1, given[0].grad, given[1].grad
    for one, other in zip(found, (wanted, dx, dw), strict=True):
        scale = abs(other).max()
        numpy.testing.assert_allclose(one.asnumpy() / scale, other / scale, atol=2e-5)


def test_transposed_convolutions(always: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their image is that of the convolution's gradient: channels exchanged, kernels reversed."""
    x, w = drawn((2, 3, 4, 5, 6), (3, 4, 3, 3, 3))
    found = []
    for scheme in ("always", "never"):
        monkeypatch.setenv("GEMEL_WINOGRAD", scheme)
        given = arrays(x, w)
        with autograd.record():
            y = npx.deconvolution(
                *given, kernel=(3, 3, 3), pad=(1, 1, 1), num_filter=4, no_bias=True
            )
        y.backward()
        found.append([y.asnumpy(), given[0].grad.asnumpy(), given[1].grad.asnumpy()])
    for one, other in zip(*found, strict=True):
        numpy.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def test_gradients_of_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = drawn((2, 2, 4, 5, 3), (3, 2, 3, 3, 3))
    found = []
    for scheme in ("always", "never"):
        monkeypatch.setenv("GEMEL_WINOGRAD", scheme)
        given = arrays(x, w)
        with autograd.record():
            y = np.tanh(convolution(*given))
            (dx, dw) = autograd.grad(y, given, create_graph=True)
            total = (dx**2).sum() + (dw**2).sum()
        total.backward()
        found.append([each.grad.asnumpy() for each in given])
    for one, other in zip(*found, strict=True):
        numpy.testing.assert_allclose(one, other, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("value", [numpy.inf, numpy.nan])
def test_values_that_are_not_finite_stay_in_their_planes(value: float, always: None) -> None:
    x, w = drawn((2, 2, 6, 7, 5), (3, 2, 3, 3, 3))
    plain = convolution(np.array(x), np.array(w)).asnumpy()
    x[0, 1, 2, 3, 2] = value
    found = convolution(np.array(x), np.array(w)).asnumpy()
    assert not numpy.isfinite(found[0, :, 1:4, 3, 2]).any()
    assert (found[1] == plain[1]).all()
    assert (found[0, :, [0, 4, 5]] == plain[0, :, [0, 4, 5]]).all()


@pytest.mark.parametrize(("volumes", "filters"), [(0, 2), (2, 0)])
def test_nothing(volumes: int, filters: int, always: None) -> None:
    given = arrays(*drawn((volumes, 3, 4, 5, 4), (filters, 3, 3, 3, 3)))
    with autograd.record():
        y = convolution(*given)
    y.backward()
    assert y.shape == (volumes, filters, 4, 5, 4)
    assert not any(each.grad.asnumpy().any() for each in given)


def test_other_sizes_of_one_program(always: None) -> None:
    program = gemel.compile(convolution)
    for space in ((4, 4, 4), (5, 4, 6), (4, 7, 4), (3, 3, 3)):
        x, w = drawn((2, 3, *space), (2, 3, 3, 3, 3))
        found = program(np.array(x), np.array(w)).asnumpy()
        numpy.testing.assert_allclose(found, by_numpy(x, w, (1, 1, 1))[0], rtol=1e-4, atol=1e-4)


NETWORK = """
from hashlib import sha256
from gemel import _core, autograd, np
from gemel.gluon import nn

np.random.seed(1)
bits = sha256()
for volumes, channels, space in ((2, 16, (16, 28, 28)), (1, 32, (8, 40, 40)), (4, 8, (4, 9, 9))):
    net = nn.Conv3D(channels, 3, padding=1)
    net.initialize()
    net.hybridize()
    x = np.random.normal(0, 1, (volumes, channels, *space))
    x.attach_grad()
    with autograd.record():
        y = net(x)
    y.backward()
    for array in (y, x.grad, net.weight.grad()):
        bits.update(_core.to_bytes(array))
tell(bits=bits.hexdigest())
"""


def test_the_same_bits_whoever_computes_them() -> None:
    settings = {"GEMEL_WORKERS": "0"}, {"GEMEL_WORKERS": "3"}, {"GEMEL_ENGINE": "serial"}
    found = [run(NETWORK, GEMEL_WINOGRAD="always", **each)["bits"] for each in settings]
    assert len(set(found)) == 1
    assert run(NETWORK, GEMEL_WINOGRAD="never")["bits"] not in found


@pytest.mark.parametrize(
    ("taken", "given", "space", "pays", "weights_pay"),
    [
        (64, 64, (8, 14, 14), True, True),
        (16, 16, (16, 28, 28), True, True),
        (3, 16, (16, 56, 56), False, False),  # as fast directly
        (256, 256, (4, 7, 7), False, False),  # to spread the weights takes longest
    ],
)
def test_where_it_pays(taken: int, given: int, space: Any, pays: bool, weights_pay: bool) -> None:
    sizes = Sizes(1, taken, given, *space[1:], deep=space[0] + 2, places=3)
    assert (sizes.pays, sizes.weights_pay) == (pays, weights_pay)

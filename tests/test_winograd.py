"""Convolutions by Winograd's scheme: values, gradients, bits, errors, and where it is chosen."""

from __future__ import annotations

import itertools
from typing import Any

import numpy
import pytest
from programs import run

import gemel
from gemel import autograd, gluon, np, npx
from gemel.errors import UnknownNameError
from gemel.ops.movement import Movement
from gemel.ops.windows import Moves
from gemel.ops.winograd_costs import PLANES, Sizes

#: The error allowed in float32, as a share of what is added up: this, times (channels + 10).
UNITS = 8 * 2.0**-23


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Choose the scheme wherever it is possible, even for small sizes."""
    monkeypatch.setenv("GEMEL_WINOGRAD", "always")


def convolution(x: Any, w: Any, pad: int = 1, **settings: Any) -> Any:
    return npx.convolution(x, w, kernel=(3, 3), pad=(pad, pad), no_bias=True, **settings)


def drawn(*shapes: tuple[int, ...], seed: int = 0) -> list[Any]:
    chance = numpy.random.default_rng(seed)
    return [chance.normal(size=shape).astype("float32") for shape in shapes]


def arrays(*values: Any, dtype: str = "float32") -> list[Any]:
    found = [np.array(value, dtype=dtype) for value in values]
    for each in found:
        each.attach_grad()
    return found


def room(x: Any, w: Any, pad: int) -> Any:
    """The bound of docs/internals/numbers.md for each element of the result."""
    wide = numpy.pad(abs(x), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    seen = numpy.lib.stride_tricks.sliding_window_view(wide, (3, 3), (2, 3))
    most = seen.max((-1, -2)).astype("float64")
    weights = abs(w).sum((2, 3), dtype="float64")
    return UNITS * (x.shape[1] + 10) * numpy.einsum("nchw,kc->nkhw", most, weights)


#: Images, channels, filters, rows, columns, padding.
CASES = [
    *((1, 2, 3, n, n, pad) for n, pad in itertools.product(range(1, 10), range(3)) if n + pad > 2),
    (1, 1, 1, 3, 3, 0),
    (2, 3, 5, 4, 7, 1),
    (3, 33, 8, 9, 6, 2),
    (2, 17, 33, 5, 8, 0),
    (3, 1, 2, 1, 9, 1),
    (1, 31, 32, 2, 3, 2),
    (2, 4, 4, 3, 3, 4),  # more padding than the kernel reaches over
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_values_and_gradients(case: Any, always: None) -> None:
    images, channels, filters, rows, columns, pad = case
    x, w = drawn((images, channels, rows, columns), (filters, channels, 3, 3))
    wanted, dx, dw = by_numpy(x, w, pad)
    net = gluon.nn.Conv2D(filters, 3, padding=pad, use_bias=False, in_channels=channels)
    net.initialize()
    net.weight.set_data(np.array(w))
    net.hybridize()
    check_ways(net, lambda x, w: convolution(x, w, pad), (x, w), wanted, room(x, w, pad), (dx, dw))


def check_ways(
    net: Any, convolution: Any, values: Any, wanted: Any, room: Any, gradients: Any
) -> None:
    """A function and a layer give the wanted result, its gradients, and the same bits."""
    ways = {
        "imperative": convolution,
        "compiled": gemel.compile(convolution),
        "hybridized": lambda x, w: net(x),
    }
    bits = []
    for name, way in ways.items():
        given = arrays(*values)
        with autograd.record():
            y = way(*given)
        y.backward()
        found = given[0].grad, net.weight.grad() if name == "hybridized" else given[1].grad
        assert (abs(y.asnumpy() - wanted) <= room).all()
        for one, other in zip(found, gradients, strict=True):
            numpy.testing.assert_allclose(one.asnumpy(), other, rtol=1e-4, atol=1e-4)
        bits.append(y.asnumpy())
    assert all((one == bits[0]).all() for one in bits)


def by_numpy(x: Any, w: Any, pad: int) -> tuple[Any, Any, Any]:
    """The result in float64, and its gradients for a head of ones."""
    wide = numpy.pad(x.astype("float64"), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    seen = numpy.lib.stride_tricks.sliding_window_view(wide, (3, 3), (2, 3))
    y = numpy.einsum("nchwij,kcij->nkhw", seen, w.astype("float64"))
    rows, columns = y.shape[2:]
    grown = numpy.zeros_like(wide)
    for i, j in itertools.product(range(3), range(3)):
        grown[:, :, i : i + rows, j : j + columns] += w[:, :, i, j].sum(0)[:, None, None]
    inner = grown[:, :, pad : pad + x.shape[2], pad : pad + x.shape[3]]
    return y, inner, numpy.broadcast_to(seen.sum((0, 2, 3)), w.shape)


@pytest.mark.parametrize(("images", "together"), [(6, 2), (3, 1), (2, 2)])
def test_rounds_of_some_images(images: int, together: int, always: None) -> None:
    """Planes too large for the caches: the rounds are a loop, with operations after it."""
    assert Sizes(images, 32, 32, 40, 40).together == together
    x, w = drawn((images, 32, 40, 40), (32, 32, 3, 3))
    whole = gemel.compile(lambda x, w: npx.relu(convolution(x, w) + 1))
    y = whole(*arrays(x, w)).asnumpy()
    assert (abs(y - numpy.maximum(by_numpy(x, w, 1)[0] + 1, 0)) <= room(x, w, 1)).all()
    assert (y == npx.relu(convolution(*arrays(x, w)) + 1).asnumpy()).all()


@pytest.mark.parametrize(("images", "filters"), [(0, 2), (2, 0)])
def test_nothing(images: int, filters: int, always: None) -> None:
    for way in (convolution, gemel.compile(convolution)):
        given = arrays(*drawn((images, 3, 5, 4), (filters, 3, 3, 3)))
        with autograd.record():
            y = way(*given)
        y.backward()
        assert y.shape == (images, filters, 5, 4)
        assert not any(each.grad.asnumpy().any() for each in given)


#: In rounds of two images, in strips of one image, and all at once; forward and backward.
NETWORK = """
from hashlib import sha256
import gemel
from gemel import _core, autograd, np
from gemel.gluon import nn

np.random.seed(1)
bits = sha256()
for images, channels, size in ((6, 32, 40), (2, 64, 56), (4, 40, 9)):
    net = nn.HybridSequential()
    net.add(nn.Conv2D(channels, 3, padding=1, activation="relu"), nn.Conv2D(channels, 3))
    net.initialize()
    net.hybridize()
    x = np.random.normal(0, 1, (images, channels, size, size))
    x.attach_grad()
    with autograd.record():
        y = net(x)
    y.backward()
    for array in (y, x.grad, *(p.grad() for p in net.collect_params().values())):
        bits.update(_core.to_bytes(array))
tell(bits=bits.hexdigest())
"""


def test_the_same_bits_whoever_computes_them() -> None:
    found = [
        run(NETWORK, GEMEL_WINOGRAD="always", **environment)["bits"]
        for environment in (
            {"GEMEL_WORKERS": "0"},
            {"GEMEL_WORKERS": "3"},
            {"GEMEL_ENGINE": "serial"},
        )
    ]
    assert len(set(found)) == 1
    assert run(NETWORK, GEMEL_WINOGRAD="never")["bits"] not in found


@pytest.mark.parametrize("of", [0, 1], ids=["images", "weights"])
def test_gradients_of_gradients(of: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = drawn((2, 3, 5, 6), (4, 3, 3, 3))
    found = []
    for scheme in ("never", "always"):
        monkeypatch.setenv("GEMEL_WINOGRAD", scheme)
        given = arrays(x, w)
        with autograd.record():
            y = convolution(*given)
            (gradient,) = autograd.grad((y * y).sum(), [given[of]], create_graph=True)
            total = (gradient * gradient).sum()
        total.backward()
        found.append([each.grad.asnumpy() for each in given])
    for one, other in zip(*found, strict=True):
        numpy.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-3 * abs(other).max())


def test_other_sizes_of_one_program(always: None) -> None:
    """Where the scheme is chosen, free sizes become fixed: each has a plan of its own."""
    compiled = gemel.compile(convolution)
    (w,) = drawn((5, 3, 3, 3))
    for images, size in ((2, 7), (3, 7), (3, 8), (2, 7), (1, 4)):
        (x,) = drawn((images, 3, size, size), seed=size)
        found = compiled(*arrays(x, w)).asnumpy()
        assert (abs(found - by_numpy(x, w, 1)[0]) <= room(x, w, 1)).all()
        assert (found == convolution(*arrays(x, w)).asnumpy()).all()


@pytest.mark.parametrize("channels", [1, 33, 300])
@pytest.mark.parametrize("kind", ["normal", "positive", "far apart"])
def test_the_error_s_bound(channels: int, kind: str, always: None) -> None:
    x, w = drawn((2, channels, 11, 12), (7, channels, 3, 3), seed=channels)
    x = {"normal": x, "positive": abs(x), "far apart": x**9}[kind]
    found = convolution(*arrays(x, w)).asnumpy()
    off = abs(found - by_numpy(x, w, 1)[0])
    assert (off <= room(x, w, 1)).all()
    assert off.max() > 0


def test_closer_than_windows_of_many_channels(monkeypatch: pytest.MonkeyPatch) -> None:
    """As docs/internals/numbers.md says of usual data."""
    x, w = drawn((2, 128, 14, 14), (32, 128, 3, 3))
    wanted, size = by_numpy(x, w, 1)[0], by_numpy(abs(x), abs(w), 1)[0]
    off = {}
    for scheme in ("never", "always"):
        monkeypatch.setenv("GEMEL_WINOGRAD", scheme)
        off[scheme] = (abs(convolution(*arrays(x, w)).asnumpy() - wanted) / size).max()
    assert off["always"] < off["never"] < 3 * 2.0**-23


@pytest.mark.parametrize("place", [(4, 4), (4, 3), (0, 7), (7, 5)], ids=str)
@pytest.mark.parametrize("value", [numpy.inf, numpy.nan])
def test_values_that_are_not_finite_stay_in_their_windows(
    place: tuple[int, int], value: float, always: None
) -> None:
    x, w = drawn((1, 2, 8, 8), (3, 2, 3, 3))
    x[(0, 1, *place)] = value
    found = convolution(*arrays(x, w)).asnumpy()
    assert (numpy.isfinite(found) == numpy.isfinite(by_numpy(x, w, 1)[0])).all()


# --- where it is chosen ---------------------------------------------------------------------


def scheme_chosen(
    x: tuple[int, ...], w: tuple[int, ...], dtype: str = "float32", scheme: str = "auto", **how: Any
) -> bool:
    given = {"stride": (1, 1), "dilate": (1, 1), "pad": (1, 1), "groups": 1, **how}
    moves = Moves(tuple(w[2:]), given["stride"], given["dilate"])
    movement = Movement(moves, given["pad"], given["groups"], scheme)
    return movement.in_tiles(np.zeros(w, dtype=dtype), np.zeros(x, dtype=dtype), False)


LARGE, WEIGHTS = (4, 64, 28, 28), (64, 64, 3, 3)


@pytest.mark.parametrize(
    "other",
    [
        {"dtype": "float64"},
        {"dtype": "float16"},
        {"dtype": "bfloat16"},
        {"stride": (2, 2)},
        {"stride": (1, 2)},
        {"dilate": (2, 2)},
        {"w": (64, 64, 1, 1), "pad": (0, 0)},
        {"w": (64, 64, 3, 1)},
        {"w": (64, 64, 5, 5)},
        {"w": (64, 32, 3, 3), "groups": 2},
        {"scheme": "never"},
    ],
    ids=str,
)
def test_what_it_is_not_for(other: dict[str, Any]) -> None:
    assert scheme_chosen(LARGE, WEIGHTS)
    given = {"x": LARGE, "w": WEIGHTS, "scheme": "always", **other}
    assert not scheme_chosen(**given)


@pytest.mark.parametrize(
    ("sizes", "pays"),
    [
        ((16, 64, 64, 56, 56), True),
        ((16, 128, 128, 28, 28), True),
        ((16, 256, 256, 14, 14), True),
        ((16, 512, 512, 7, 7), True),
        ((1, 64, 64, 56, 56), True),
        ((1, 512, 512, 7, 7), False),  # the weights' planes cost more than they save
        ((16, 3, 64, 224, 224), False),  # few channels do not repay the planes
        ((16, 16, 16, 32, 32), False),
        ((64, 64, 64, 1, 1), False),  # a whole tile for one element
    ],
)
def test_where_it_pays(sizes: tuple[int, ...], pays: bool) -> None:
    assert Sizes(*sizes).pays is pays


@pytest.mark.parametrize(("rows", "strips"), [(40, 2), (41, 3), (58, 29), (3, 1)])
def test_strips_of_an_image(rows: int, strips: int, always: None) -> None:
    """Planes of one image too large for the caches: a loop over strips, inside one over images."""
    columns = 65 if rows > 3 else 3
    assert Sizes(1, 64, 64, rows, columns).strips == strips
    x, w = drawn((2, 64, rows, columns), (64, 64, 3, 3))
    given = arrays(x, w)
    y = convolution(*given).asnumpy()
    assert (abs(y - by_numpy(x, w, 1)[0]) <= room(x, w, 1)).all()
    assert (y == gemel.compile(convolution)(*given).asnumpy()).all()


# --- the gradient of the weights ------------------------------------------------------------


def gradient_of_weights(x: Any, y: Any, pad: int) -> Any:
    """In float64: the sums of windows times the gradient y of the result."""
    wide = numpy.pad(x.astype("float64"), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    seen = numpy.lib.stride_tricks.sliding_window_view(wide, (3, 3), (2, 3))
    return numpy.einsum("nchwij,nkhw->kcij", seen, y.astype("float64"))


def found_gradient(x: Any, y: Any, pad: int, compiled: bool = False) -> Any:
    given, head = arrays(x, drawn((y.shape[1], x.shape[1], 3, 3))[0]), np.array(y)
    function = gemel.compile(convolution) if compiled else convolution
    with autograd.record():
        result = function(*given, pad)
    result.backward(head)
    return given[1].grad.asnumpy()


def room_of_weights(x: Any, y: Any, pad: int) -> Any:
    """The bound of docs/internals/numbers.md for each weight."""
    images, _, rows, columns = y.shape
    high, wide = (rows + 1) // 2, (columns + 1) // 2
    after = [2 * t + 2 - n - pad for t, n in zip((high, wide), x.shape[2:], strict=True)]
    around = numpy.pad(abs(x), ((0, 0), (0, 0), (pad, after[0]), (pad, after[1])))
    seen = numpy.lib.stride_tricks.sliding_window_view(around, (4, 4), (2, 3))[:, :, ::2, ::2]
    whole = numpy.pad(abs(y), ((0, 0), (0, 0), (0, rows % 2), (0, columns % 2)))
    sums = whole.reshape(*y.shape[:2], high, 2, wide, 2).sum((3, 5), dtype="float64")
    most = seen.max((-1, -2)).astype("float64")
    bound = UNITS * (images * high * wide + 10) * numpy.einsum("nchw,nkhw->kc", most, sums)
    return bound[:, :, None, None]


@pytest.mark.parametrize(
    ("images", "channels", "rows", "columns", "pad"),
    [
        (2, 3, 6, 6, 1),
        (3, 5, 7, 5, 1),
        (1, 4, 9, 8, 0),
        (2, 3, 5, 6, 2),
        (6, 32, 40, 40, 1),  # two images in each of three rounds
        (1, 64, 41, 65, 1),  # strips of one image
        (3, 64, 40, 65, 1),  # strips of each image
    ],
)
@pytest.mark.parametrize("compiled", [False, True])
def test_gradients_of_weights(
    images: int, channels: int, rows: int, columns: int, pad: int, compiled: bool, always: None
) -> None:
    (x,) = drawn((images, channels, rows, columns), seed=rows)
    (y,) = drawn((images, 7, rows + 2 * pad - 2, columns + 2 * pad - 2), seed=columns)
    off = abs(found_gradient(x, y, pad, compiled) - gradient_of_weights(x, y, pad))
    assert (off <= room_of_weights(x, y, pad)).all()
    assert off.max() > 0


@pytest.mark.parametrize("kind", ["normal", "positive", "far apart"])
def test_the_bound_for_weights(kind: str, always: None) -> None:
    x, y = drawn((3, 5, 20, 21), (3, 4, 20, 21))
    x = {"normal": x, "positive": abs(x), "far apart": x**9}[kind]
    off = abs(found_gradient(x, y, 1) - gradient_of_weights(x, y, 1))
    assert (off <= room_of_weights(x, y, 1)).all()


@pytest.mark.parametrize("value", [numpy.inf, numpy.nan])
def test_values_that_are_not_finite_stay_in_their_channels(value: float, always: None) -> None:
    x, y = drawn((1, 3, 8, 8), (1, 4, 8, 8))
    x[0, 1, 4, 4] = value
    found = numpy.isfinite(found_gradient(x, y, 1))
    assert not found[:, 1].any() and found[:, [0, 2]].all()
    x[0, 1, 4, 4], y[0, 2, 3, 5] = 1, value
    found = numpy.isfinite(found_gradient(x, y, 1))
    assert not found[2].any() and found[[0, 1, 3]].all()


@pytest.mark.parametrize(
    ("sizes", "pays"),
    [
        ((16, 64, 64, 56, 56), True),
        ((16, 256, 256, 14, 14), True),
        ((8, 512, 512, 7, 7), True),
        ((1, 64, 64, 224, 224), True),
        ((4, 32, 32, 32, 32), True),
        ((1, 512, 512, 7, 7), False),  # the sums take more time than they save
        ((8, 3, 32, 64, 64), False),
        ((16, 8, 8, 28, 28), False),
    ],
)
def test_where_gradients_of_weights_pay(sizes: tuple[int, ...], pays: bool) -> None:
    assert Sizes(*sizes).weights_pay is pays


def test_rounds_divide_the_images() -> None:
    for images in range(1, 40):
        sizes = Sizes(images, 24, 40, 17, 9)
        assert images % sizes.together == 0
        assert sizes.together * sizes.planes <= PLANES or sizes.together == 1


def test_the_choice_is_part_of_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan made for one choice never serves calls with another."""
    x, w = drawn((2, 40, 6, 6), (8, 40, 3, 3))
    found = {}
    for scheme in ("always", "never", "always", "auto"):
        monkeypatch.setenv("GEMEL_WINOGRAD", scheme)
        bits = convolution(*arrays(x, w)).asnumpy().tobytes()
        assert found.setdefault(scheme, bits) == bits
    assert found["always"] != found["never"] == found["auto"]
    monkeypatch.setenv("GEMEL_WINOGRAD", "perhaps")
    with pytest.raises(UnknownNameError, match="auto, never, always"):
        convolution(*arrays(x, w))

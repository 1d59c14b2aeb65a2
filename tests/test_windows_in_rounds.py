"""Convolutions with longer strides: windows written out or added up, at once or in rounds."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
import windows_reference as reference
from slow import drawn

import gemel
from gemel import autograd, np, npx
from gemel.ops import along_channels, movement, movement_costs
from gemel.ops.movement import Movement
from gemel.ops.windows import Moves

STEPS = {"stride": (2, 2), "dilate": (1, 1), "pad": (1, 1)}


def how(kernel: int = 3, pad: int = 1, groups: int = 1) -> Movement:
    """A square kernel with stride 2."""
    return Movement(Moves((kernel, kernel), (2, 2), (1, 1)), (pad, pad), groups)


def close(found: Any, wanted: Any, tolerance: float = 1e-4) -> None:
    numpy.testing.assert_allclose(found.asnumpy(), wanted, rtol=tolerance, atol=tolerance)


def gradients(x: Any, weight: Any, g: Any) -> tuple[Any, Any, Any]:
    """The result of a convolution with stride 2, and its gradients."""
    x.attach_grad()
    weight.attach_grad()
    with autograd.record():
        y = npx.convolution(x, weight, no_bias=True, **STEPS)
    y.backward(g)
    return y, x.grad, weight.grad


#: Limits in bytes: each image is a round of its own, two images are one round, or all are one.
@pytest.mark.parametrize("held", [1, 40_000, 1 << 30])
@pytest.mark.parametrize("size", [7, 8])
def test_rounds_change_nothing_else(held: int, size: int, monkeypatch: Any) -> None:
    x, weight = drawn(4, 6, size, size), drawn(5, 6, 3, 3, seed=1)
    counts = how().counts((size, size))
    g = drawn(4, 5, *counts, seed=2)
    wanted = reference.convolution(
        x.astype("float64"), weight.astype("float64"), None, (2, 2), (1, 1), (1, 1), 1
    )
    plain = [np.array(each, dtype="float64") for each in (x, weight, g)]
    slow = gradients(*plain)
    monkeypatch.setattr(movement_costs, "PLANES", held)
    for name in ("WRITTEN", "ROUND"):
        monkeypatch.setattr(movement, name, held)
    monkeypatch.setattr(movement_costs, "MOVED", -1000)  # never use phases
    monkeypatch.setattr(along_channels, "SHORT", 0)

    def both(x: Any, weight: Any, g: Any) -> Any:
        steps = how()
        back = steps.grown(g, weight, tuple(x.shape[2:]))
        return steps.shrunk(x, weight), back, steps.weights(x, g, weight.shape)

    found = gemel.compile(both)(*(np.array(each, dtype="float32") for each in (x, weight, g)))
    close(found[0], wanted)
    for fast, exact in zip(found, slow, strict=True):
        close(fast, exact.asnumpy())


@pytest.mark.parametrize("dtype", ["float16", "float64"])
@pytest.mark.parametrize("groups", [1, 2])
def test_pieces_of_rounds_have_gradients(dtype: str, groups: int, monkeypatch: Any) -> None:
    """What is computed in rounds is an operation whose gradients are convolutions."""
    monkeypatch.setattr(movement_costs, "PLANES", 1)
    monkeypatch.setattr(movement, "ROUND", 1)
    y, weight = drawn(4, 4, 3, 3), drawn(4, 2, 3, 3, seed=1)
    x = drawn(4, 2 * groups, 5, 5, seed=2)
    settings = {**how(groups=groups).moves._asdict(), "pad": (1, 1), "groups": groups}
    y, weight, x = (np.array(each * 0.25, dtype=dtype) for each in (y, weight, x))
    for each in (y, weight, x):
        each.attach_grad()
    with autograd.record():
        image = movement.summed_windows(y, weight, space=(5, 5), **settings)
        own = movement.weights_in_rounds(x, y, **settings)
        # <x, grown(y, w)> = <weights(x, y), w>, so their gradients are equal, too.
        first, second = (x * image).sum(), (own * weight).sum()
    tolerance = 0.05 if dtype == "float16" else 1e-9
    close(first, second.asnumpy(), tolerance)
    found = [
        [gradient.asnumpy() for gradient in autograd.grad(head, [x, y, weight], retain_graph=True)]
        for head in (first, second)
    ]
    for ours, theirs in zip(*found, strict=True):
        numpy.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("images", [0, 1, 3])
def test_other_numbers_of_images_through_one_program(images: int) -> None:
    weight = drawn(40, 16, 3, 3)
    program = gemel.compile(lambda x, w: npx.convolution(x, w, no_bias=True, **STEPS))
    for count in (2, images, 2):
        x = drawn(4, 16, 9, 12, seed=3)[:count]
        wanted = reference.convolution(x, weight, None, (2, 2), (1, 1), (1, 1), 1)
        close(program(np.array(x), np.array(weight)), wanted)


#: Images, channels, size, filters, kernel, stride; whether the weights' gradient has short rows.
SHORT_ROWS = [
    (4, 16, 15, 6, 3, 2, True),
    (4, 16, 18, 6, 3, 2, True),
    (4, 16, 32, 6, 3, 2, True),
    (4, 16, 34, 6, 3, 2, False),
    (9, 16, 32, 6, 3, 2, False),
    (9, 16, 16, 6, 3, 2, True),
    (4, 12, 32, 6, 3, 2, False),
    (2, 16, 8, 32, 3, 2, True),
    (2, 16, 8, 33, 3, 2, False),
    (4, 16, 8, 6, 5, 1, True),
    (4, 16, 9, 6, 5, 1, False),
    (4, 16, 8, 6, 1, 1, False),
    (4, 3, 8, 6, 5, 1, False),
]


@pytest.mark.parametrize("case", SHORT_ROWS, ids=str)
def test_weights_along_channels(case: Any, monkeypatch: Any) -> None:
    images, channels, size, filters, kernel, stride, short = case
    moves = Moves((kernel, kernel), (stride, stride), (1, 1))
    steps = Movement(moves, (kernel // 2, kernel // 2), 1)
    x = drawn(images, channels, size, size)
    y = drawn(images, filters, *steps.counts((size, size)), seed=1)
    shape = (filters, channels, kernel, kernel)
    pair = [np.array(each, dtype="float64") for each in (x, y)]
    assert along_channels.go_along_channels(steps, *pair) == short
    found = steps.weights(*pair, shape)
    monkeypatch.setattr(along_channels, "SHORT", 0)
    close(found, steps.weights(*pair, shape).asnumpy(), 1e-9)

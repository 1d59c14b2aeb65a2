"""`tape.views.window`: the operations that lead from an array to a view of it, and back."""

from __future__ import annotations

import random
from typing import Any

import numpy
import pytest

from gemel import autograd, np
from gemel.tape.views import Region, repeats, window

SEEDS = 1500


def apply(op: Any, inputs: tuple[Any, ...], parameters: dict[str, Any]) -> Any:
    """An operation of a window on NumPy arrays."""
    x, *values = inputs
    if op.name == "transpose":
        return x.transpose(parameters["axes"])
    if op.name == "reshape":
        return x.reshape(parameters["shape"])
    if op.name == "broadcast_to":
        return numpy.broadcast_to(x, parameters["shape"])
    key = tuple(item[1] if item[0] == "int" else _slice(*item[1:]) for item in parameters["key"])
    if op.name == "basic_index":
        return x[key]
    assert op.name == "assign"
    x = x.copy()
    x[key] = values[0]
    return x


def _slice(start: int, length: int, step: int) -> slice:
    end = start + step * length
    return slice(start, None if end < 0 else end, step)


def region(array: Any, root: Any) -> Region:
    begin, first = (each.__array_interface__["data"][0] for each in (array, root))
    return array.shape, tuple(s // 8 for s in array.strides), (begin - first) // 8


def shown(root: Any, where: Region) -> Any:
    """The view of an array's memory."""
    shape, strides, offset = where
    rest = root.reshape(-1)[offset:]
    return numpy.lib.stride_tricks.as_strided(rest, shape, tuple(8 * s for s in strides))


def viewed(base: Any, own: random.Random) -> Any:
    """A view of the array, by some reshapes, transpositions and slices."""
    view = base
    for _ in range(own.randint(1, 5)):
        kind = own.randrange(4)
        if kind == 0:
            view = _reshaped(view, own)
        elif kind == 1:
            view = view.transpose(own.sample(range(view.ndim), view.ndim))
        elif kind == 2:
            view = view[(*(_item(n, own) for n in view.shape), ...)]
        else:
            view = numpy.broadcast_to(view, (own.choice([1, 1, 2]), *view.shape))
    return view


def _reshaped(view: Any, own: random.Random) -> Any:
    """The array in another shape; itself if that is no view of it."""
    factors, left = [], view.size
    while left > 1 and len(factors) < 4:
        factors.append(own.choice([d for d in range(1, left + 1) if left % d == 0]))
        left //= factors[-1]
    own.shuffle(factors)
    if not view.size:
        return view
    found = view.reshape(*factors, left)
    return found if numpy.shares_memory(found, view) else view


def _item(n: int, own: random.Random) -> Any:
    kind = own.random()
    if kind < 0.2 and n:
        return own.randrange(n)
    if kind < 0.6:
        return slice(None)
    ends = own.choice([None, 0, 1, -1]), own.choice([None, -1, n, 2])
    return slice(*ends, own.choice([1, 1, 2, 3, -1, -2]))


def test_windows_lead_to_the_view_and_back() -> None:
    missing = 0
    for seed in range(SEEDS):
        own = random.Random(seed)
        shape = [own.choice([1, 2, 3, 4, 6, 8]) for _ in range(own.randint(1, 4))]
        root = numpy.arange(float(numpy.prod(shape))).reshape(shape)
        base = root.transpose(own.sample(range(len(shape)), len(shape)))
        view = viewed(base, own)
        if not view.size:
            continue
        where, there = region(base, root), region(view, root)
        found = window(where, there)
        if found is None:
            missing += 1
            continue
        steps, core = found
        numpy.testing.assert_array_equal(steps.take(base.copy(), apply), view)
        if not repeats(there):
            value = numpy.random.default_rng(seed).random(view.shape)
            written = root.copy()
            shown(written, there)[...] = value
            put = steps.put(base.copy(), value, core, apply)
            numpy.testing.assert_array_equal(put, shown(written, where))
    assert missing <= SEEDS // 500, "these are gathered, element by element"


DENSE: dict[str, Any] = {
    "heads": lambda x: x.reshape(4, 6, 3, 2, 8).transpose(2, 0, 3, 1, 4)[1],
    "a part of joined rows": lambda x: x.reshape(24, 48)[:, 16:32],
    "every third": lambda x: x.reshape(24, 48)[:, ::5],
    "one of each pair": lambda x: x.reshape(12, 2, 48)[:, 1],
    "patches": lambda x: x.reshape(4, 3, 2, 8, 6)[:, :, 0, ::2].swapaxes(0, 1),
    "steps that do not divide": lambda x: x.reshape(8, 3, 48)[1::3, :, 1::7],
    "turned": lambda x: x.T.reshape(2, 24, 6, 4)[1, ::-1],
}


@pytest.mark.parametrize("kind", DENSE)
def test_parts_of_a_reshaped_array_need_no_gather(kind: str) -> None:
    root = numpy.arange(4.0 * 6 * 48).reshape(4, 6, 48)
    view = DENSE[kind](root)
    if numpy.shares_memory(view, root):
        assert window(region(root, root), region(view, root)) is not None
    x = np.array(root)
    x.attach_grad()
    with autograd.record():
        loss = (DENSE[kind](x * 1) ** 2).sum()
    loss.backward()
    expected = numpy.zeros_like(root)
    places = DENSE[kind](numpy.arange(root.size).reshape(root.shape)).reshape(-1)
    expected.reshape(-1)[places] = 2 * root.reshape(-1)[places]
    numpy.testing.assert_allclose(x.grad.asnumpy(), expected)

"""What gradients keep of a forward computation is the least possible."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import inf
from random import Random
from typing import Any

import numpy
import pytest

import gemel
from gemel import autograd, np, npx
from gemel.ir.graph import Entry, placeholder
from gemel.ir.trace import Trace
from gemel.passes.gradient import gradient
from gemel.passes.saved import _Cut
from gemel.spec import Spec
from gemel.tracing.programs import Halves

ROWS, COLUMNS = 6, 40


def saved(
    function: Callable[..., Any], *shapes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> list[tuple[str, tuple[int, ...]]]:
    """Dtypes and shapes of what a function's gradients read, except the incoming gradients."""
    found: list[Halves] = []
    before = Halves.__init__

    def noted(self: Halves, *arguments: Any) -> None:
        before(self, *arguments)
        found.append(self)

    monkeypatch.setattr(Halves, "__init__", noted)
    draw = numpy.random.default_rng(0)
    arrays = [np.array(draw.standard_normal(shape).astype("float32")) for shape in shapes]
    for each in arrays:
        each.attach_grad()
    compiled = gemel.compile(function)
    with autograd.record(), autograd.train_mode():
        result = compiled(*arrays)
    result.backward()
    made = [each.grad.asnumpy() for each in arrays]
    with autograd.record(), autograd.train_mode():
        result = function(*arrays)
    result.backward()
    for one, other in zip(made, arrays, strict=True):
        numpy.testing.assert_allclose(one, other.grad.asnumpy(), rtol=1e-5, atol=1e-5)
    (halves,) = found
    return sorted((e.dtype.name, tuple(map(int, e.shape))) for e in halves.saved)


WIDE, NARROW = (ROWS, COLUMNS), (ROWS, 1)


def light(x: Any) -> Any:
    y = np.where(x > 0, x * x * 0.5 + x, -x * 0.3) * 2 - 1
    return np.clip(y, -3, 3) * y


CASES = {
    "what takes a few steps is made again": (light, [WIDE], [("float32", WIDE)]),
    "what takes a root or a series is not": (
        lambda x: np.exp(x) * 2,
        [WIDE],
        [("float32", WIDE)],
    ),
    "a mask is less than what it is of": (
        lambda x, y: npx.relu(x + y).sum(),
        [WIDE, WIDE],
        [("bool", WIDE)],
    ),
    "a mask is made again of what is kept": (
        lambda x: (npx.relu(x * 2) * x).sum(),
        [WIDE],
        [("float32", WIDE)],
    ),
    "but not by a series": (
        lambda x: npx.relu(x * 2 + np.sin(x)).sum(),
        [WIDE],
        [("bool", WIDE), ("float32", WIDE)],
    ),
    "of rows two numbers": (
        lambda x, g, b: npx.layer_norm(x, g, b),
        [WIDE, (COLUMNS,), (COLUMNS,)],
        [("float32", (COLUMNS,)), ("float32", NARROW), ("float32", NARROW), ("float32", WIDE)],
    ),
    "a factor is there anyway": (
        lambda x, w: np.matmul(npx.relu(x * 2 + 1), w).sum(),
        [WIDE, (COLUMNS, 8)],
        [("float32", (COLUMNS, 8)), ("float32", WIDE)],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_gradients_read(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, shapes, wanted = CASES[name]
    assert saved(function, *shapes, monkeypatch=monkeypatch) == sorted(wanted)


@pytest.mark.parametrize("seed", range(40))
def test_it_is_the_smallest_cut(seed: int) -> None:
    random = Random(seed)
    with Trace():
        x = placeholder(Spec((8, 4), "float32"))
        entries: list[Entry] = [x]
        for _ in range(6):
            entries.append(_step(random, entries))
        results = [entries[-1].sum(axis=1), random.choice(entries)]
        heads = [placeholder(entry.spec) for entry in results]
        cut = _Cut(results, gradient(results, heads, [x]), heads)
    found = cut.run()
    assert sum(map(cut._saving, found)) + _computed(cut, set(found)) == _least(cut)


def _step(random: Random, entries: list[Entry]) -> Entry:
    """One more operation on some of the entries so far."""
    a, b = random.choice(entries), random.choice(entries)
    unary: list[Callable[[Entry], Any]] = [
        np.exp,
        np.abs,
        npx.relu,
        lambda x: x * x,
        lambda x: x - x.mean(axis=1, keepdims=True),
    ]
    binary: list[Callable[[Entry, Entry], Any]] = [np.maximum, lambda x, y: x * y]
    if random.random() < 0.5:
        found: Entry = random.choice(unary)(a)
    else:
        found = random.choice(binary)(a, b)
    return found


def _computed(cut: _Cut, kept: set[Entry]) -> float:
    """The cost of recomputing the wanted entries from the kept ones."""
    done: set[Entry] = set()
    pending = list(cut.wanted)
    total = 0.0
    while pending:
        entry = pending.pop()
        if entry in kept or entry in done or entry.node.is_constant:
            continue
        done.add(entry)
        total += cut._again(entry)
        pending += entry.node.inputs if total < inf else ()
    return total


def _least(cut: _Cut) -> float:
    """The lowest cost over all choices of entries to keep."""
    choices = [entry for entry in cut.numbers if cut._saving(entry) < inf]
    found = inf
    for chosen in product((False, True), repeat=len(choices)):
        kept = {entry for entry, choose in zip(choices, chosen, strict=True) if choose}
        cost = sum(map(cut._saving, kept))
        if cost < found:
            found = min(found, cost + _computed(cut, kept))
    return found

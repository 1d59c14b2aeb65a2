"""Loops as one step of a plan: imperative, written out, as a loop, and by NumPy, with gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy
import pytest

import gemel
from gemel import autograd, np, npx
from gemel.ops import rounds


@pytest.fixture
def written_out(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """What makes all loops from now on be written out."""
    yield lambda: monkeypatch.setattr(rounds, "LEAST", 10**6)


def by_numpy(body: Any, data: Any, states: Any) -> Any:
    """foreach over lists of NumPy arrays."""
    outputs = []
    for index in range(len(data[0])):
        output, states = body([x[index] for x in data], states)
        outputs.append(output)
    return [numpy.stack(each) for each in zip(*outputs, strict=True)], states


REFERENCE = SimpleNamespace(np=numpy, foreach=by_numpy)
GEMEL = SimpleNamespace(np=np, foreach=npx.foreach)


def gathered(xp: Any, found: Any) -> Any:
    """One number from all that a loop gives, each part weighted differently."""
    outputs, states = found
    total: Any = 0.0
    for weight, x in enumerate([*outputs, *states], start=1):
        if "int" not in str(x.dtype) and "bool" not in str(x.dtype):
            total = total + (x * x * weight + x).sum()
    return total


# --- bodies: (xp, data, states, free) -> a number --------------------------------------------


def plain(xp: Any, x: Any, s: Any, w: Any) -> Any:
    return xp.foreach(lambda d, c: ([d[0] * w + c[0]], [xp.np.tanh(d[0] + c[0] * w)]), [x], [s])


def a_state_as_output(xp: Any, x: Any, s: Any, w: Any) -> Any:
    def body(d: Any, c: Any) -> Any:
        new = c[0] * w + d[0]
        return [new, c[0], d[0]], [new]

    return xp.foreach(body, [x], [s])


def swapped_states(xp: Any, x: Any, s: Any, w: Any) -> Any:
    return xp.foreach(lambda d, c: ([c[0] - d[0]], [c[1], c[0], c[0] * w]), [x], [s, s * 2, s * 3])


def unused(xp: Any, x: Any, s: Any, w: Any) -> Any:
    """A state nobody reads, data nobody reads, an output that is the same in all rounds."""
    return xp.foreach(lambda d, c: ([w * 1.0, d[0] * 2], [c[0], w * 3.0]), [x, x * 2], [s, s])


def product(xp: Any, x: Any, s: Any, w: Any) -> Any:
    """A product with a state, one with the data, and one with a transposed weight."""
    wide = xp.np.stack([w, w * 0.5, w - 1.0])

    def body(d: Any, c: Any) -> Any:
        row = d[0].reshape((1, 3))
        new = xp.np.tanh(xp.np.matmul(c[0], wide) + xp.np.matmul(row, wide.T) + w)
        return [xp.np.matmul(new, wide)], [new]

    return xp.foreach(body, [x], [xp.np.stack([s, s + 1.0])])


def nested(xp: Any, x: Any, s: Any, w: Any) -> Any:
    def outer(d: Any, c: Any) -> Any:
        inner_data = xp.np.stack([d[0], d[0] * 2, c[0], w, w + 1])
        found, last = xp.foreach(
            lambda e, t: ([e[0] * t[0] * w], [xp.np.sin(t[0]) + d[0]]), [inner_data], [c[0]]
        )
        return [found[0].sum(axis=0)], [last[0] * 0.5]

    return xp.foreach(outer, [x], [s])


def closure_of_closure(xp: Any, x: Any, s: Any, w: Any) -> Any:
    """What is computed before the loop, and what is inside but always the same."""
    before = xp.np.exp(w * 0.1)

    def body(d: Any, c: Any) -> Any:
        return [d[0] * xp.np.cos(before) + (w * w).sum()], [c[0] * xp.np.sin(before) + d[0].sum()]

    return xp.foreach(body, [x], [s])


def turned_data(xp: Any, x: Any, s: Any, w: Any) -> Any:
    """Views of data: backwards, every second element, a broadcast row."""
    both = xp.np.concatenate([x, x * 3.0])
    data = [x[::-1], both[::2], xp.np.broadcast_to(w, x.shape)]
    return xp.foreach(lambda d, c: ([d[0] * d[1]], [c[0] * d[2] + d[1]]), data, [s])


def other_dtypes(xp: Any, x: Any, s: Any, w: Any) -> Any:
    count = xp.np.zeros((), dtype="int32")
    half = x.astype("float32")

    def body(d: Any, c: Any) -> Any:
        more = (d[1] > 0).astype("int32").sum().astype("int32")
        return [d[1] * c[0].astype("float32"), d[0] > 0], [c[0] + d[1] * w, c[1] + more]

    return xp.foreach(body, [x, half], [s, count])


def written_in_place(xp: Any, x: Any, s: Any, w: Any) -> Any:
    def body(d: Any, c: Any) -> Any:
        made = d[0] * 2
        made[1] = c[0][0]
        made[:1] += w[:1]
        return [made], [made + c[0]]

    return xp.foreach(body, [x], [s])


def sums(xp: Any, x: Any, s: Any, w: Any) -> Any:
    """Gradients that are summed over axes, or have to be added up in the loop."""

    def body(d: Any, c: Any) -> Any:
        scaled = d[0].reshape((3, 1)) * w.reshape((1, 3)) + xp.np.maximum(w, 0.1)
        return [scaled], [c[0] + scaled.mean(axis=0) * w.T]

    return xp.foreach(body, [x], [s])


BODIES = [
    plain, a_state_as_output, swapped_states, unused, product, nested, closure_of_closure,
    turned_data, other_dtypes, written_in_place, sums,
]  # fmt: skip


def inputs(length: int, seed: int = 0) -> list[Any]:
    random = numpy.random.default_rng(seed)
    return [random.uniform(-1, 1, shape) for shape in ((length, 3), (3,), (3,))]


def trained(function: Any, values: list[Any]) -> list[Any]:
    """The result and the gradients of all inputs."""
    arrays = [np.array(x, dtype="float64") for x in values]
    for x in arrays:
        x.attach_grad()
    with autograd.record():
        y = function(*arrays)
    y.backward()
    return [y.asnumpy(), *(x.grad.asnumpy() for x in arrays)]


def has_loop(program: Any, *arrays: Any) -> bool:
    return program.graph(*arrays).count("loop") > 0


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_all_ways_agree(body: Any, written_out: Any) -> None:
    def function(*arrays: Any) -> Any:
        return gathered(np, body(GEMEL, *arrays))

    whole = gemel.compile(function)
    for length in (5, 1, 9, 2, 4):
        values = inputs(length, length)
        expected = trained(function, values)
        reference = gathered(numpy, body(REFERENCE, *values))
        numpy.testing.assert_allclose(expected[0], reference, rtol=1e-6)
        plain_call = whole(*[np.array(x, dtype="float64") for x in values])
        numpy.testing.assert_allclose(plain_call.asnumpy(), expected[0], rtol=1e-6)
        for found, right in zip(trained(whole, values), expected, strict=True):
            numpy.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-9)
    arrays = [np.array(x, dtype="float64") for x in inputs(5)]
    assert has_loop(whole, *arrays)
    assert whole.traces <= 6  # with and without recording, for each short length one
    written_out()
    other = gemel.compile(function)
    for found, right in zip(trained(other, inputs(5)), trained(function, inputs(5)), strict=True):
        numpy.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-9)
    assert not has_loop(other, *arrays)

"""Dropped memory is freed: small arrays, replaced parameters, keys, histories, workspaces."""

from __future__ import annotations

import gc
from typing import Any

import numpy
import pytest
from programs import TIMES, run

import gemel
from gemel import _core, autograd, gluon, np, npx

kept_by_sanitizers = pytest.mark.unsanitized("sanitizers keep freed memory to tell who uses it")

#: Resident memory in MB, after dropped memory was returned to the system.
RESIDENT = """
import gc
import gemel
from gemel import _core, np, npx
def resident():
    npx.waitall()
    gc.collect()
    return int(open("/proc/self/statm").read().split()[1]) * 4 / 1024
"""


@kept_by_sanitizers
def test_small_arrays_of_several_sizes_give_their_memory_back() -> None:
    """Memory that one size gave back is used by another size."""
    found = run(
        RESIDENT
        + """
np.zeros((10,)).wait_to_read()
before = resident()
most = 0
for n in (3000, 4000, 5000, 6000, 7000):
    arrays = [np.zeros((n,)) for _ in range(3000)]
    most = max(most, resident() - before)
    del arrays
tell(most=most, kept=resident() - before)
"""
    )
    assert found["most"] > 30, "the arrays take memory while they exist"
    assert found["most"] < 130 and found["kept"] < 20, found


@pytest.mark.slow
@kept_by_sanitizers
def test_a_million_mixed_arrays_give_their_memory_back() -> None:
    found = run(
        RESIDENT
        + f"COUNT = {5000 * TIMES}\n"
        + """
import random
chance = random.Random(5)
np.zeros((10,)).wait_to_read()
before = resident()
kept = []
for number in range(COUNT):
    kept.append(np.zeros((chance.choice((16, 40, 300, 1000, 3000, 8000)),)))
    if len(kept) > 20_000:
        position = chance.randrange(len(kept))
        kept[position] = kept[-1]
        kept.pop()
kept.clear()
tell(kept=resident() - before)
"""
    )
    assert found["kept"] < 20, found


# engine.md 20
@pytest.mark.parametrize("workers", ["0", "1", "3"])
def test_the_bound_on_running_memory_counts_workspaces(workers: str) -> None:
    found = run(
        """
        import gemel
        from gemel import _core, np, npx
        def f(a):
            b = np.dot(a, a)
            c = np.dot(b, a)
            return np.sum(np.dot(c, b))
        g = gemel.compile(f)
        a = np.ones((1000, 1000))
        for _ in range(2):
            g(a).wait_to_read()
        def peak(count):
            _core.reset_peak()
            kept = [g(a) for _ in range(count)]
            npx.waitall()
            return _core.counters()["peak_bytes"] / 2**20
        tell(one=peak(1), many=peak(8))
        """,
        GEMEL_QUEUE_BYTES=str(16 << 20),
        GEMEL_WORKERS=workers,
    )
    assert found["many"] < found["one"] + 8, found


def in_use() -> float:
    """The memory of living arrays and plans, in MB."""
    npx.waitall()
    gc.collect()
    return _core.counters()["bytes_in_use"] / 2**20


@pytest.mark.parametrize("trained", [False, True])
def test_replaced_parameters_are_freed(trained: bool) -> None:
    """Also if compiled functions have used them and are not called with them again."""

    def used() -> tuple[Any, Any]:
        net = gluon.nn.Dense(1000, in_units=1000, use_bias=False)
        net.initialize()
        function = gemel.compile(lambda v, net=net: np.dot(v, net.weight.data()))
        x = np.ones((2, 1000))
        for _ in range(2):
            if trained:
                with gemel.autograd.record():
                    loss = function(x).sum()
                loss.backward()
            function(x).wait_to_read()
        return net, function

    before = in_use()
    kept = [used() for _ in range(4)]
    full = in_use() - before
    for net, _ in kept:
        net.cast("float16")
    assert in_use() - before < 0.6 * full
    for net, _ in kept:
        net.cast("float32")
        net.cast("float16")
    assert in_use() - before < 0.6 * full


FAKE = """
class Operation(_core.OpBase):
    def _prepare(self, inputs, keywords):
        return None
    def _call(self, inputs, keywords):
        return keywords["factor"]
operation = Operation("fake", False, ("factor",))
x = np.ones((2,))
def call(first, count):
    for number in range(first, first + count):
        assert operation(x, factor=KIND(number)) == KIND(number)
"""


@kept_by_sanitizers
@pytest.mark.parametrize("kind", ["int", "float", "str", "(lambda n: (n, n + 1))"])
def test_keyword_values_are_not_kept_for_ever(kind: str) -> None:
    found = run(
        RESIDENT
        + f"KIND = {kind}"
        + FAKE
        + """
call(0, 70_000)
before = resident()
call(70_000, 100_000)
tell(grown=resident() - before)
"""
    )
    assert found["grown"] < 3, found


@kept_by_sanitizers
@pytest.mark.parametrize("drained", [True, False])
def test_traces_forget_arrays_that_are_gone(drained: bool) -> None:
    """A long trace holds the records it was asked for, but nothing for each dropped array."""
    found = run(
        RESIDENT
        + f"DRAINED = {drained}\n"
        + """
x = np.ones((2,))
def issue(count):
    for number in range(count):
        x + number
        if DRAINED and number % 1000 == 0:
            _core.trace_take()
_core.trace_start(1000)
issue(20_000)
before = resident()
issue(150_000)
tell(grown=resident() - before)
_core.trace_stop()
"""
    )
    assert found["grown"] < 4, found


def test_first_gradients_lay_out_no_windows() -> None:
    """A convolution's gradient is compiled at once: its operations, one by one, would store all
    windows of the picture, 80 times its size. Others forget what they no longer need."""
    x = np.ones((2, 8, 64, 64))
    weight = np.ones((4, 8, 9, 9))
    for each in (x, weight):
        each.attach_grad()
    with autograd.record():
        y = npx.convolution(x, weight, kernel=(9, 9), pad=(4, 4), num_filter=4, no_bias=True)
        y = npx.leaky_relu(y, act_type="gelu")
    npx.waitall()
    _core.reset_peak()
    before = _core.counters()["peak_bytes"]  # what is held now, with the slabs of small blocks
    y.backward()
    npx.waitall()
    assert _core.counters()["peak_bytes"] - before < 12 * x.nbytes
    inside = numpy.zeros((64,))
    inside[:] = 9
    inside[:4], inside[-4:] = range(5, 9), range(8, 4, -1)
    places = numpy.outer(inside, inside)  # windows that read a place; gelu's slope is 1 here
    numpy.testing.assert_allclose(x.grad[0, 0].asnumpy(), 4 * places, rtol=1e-5)

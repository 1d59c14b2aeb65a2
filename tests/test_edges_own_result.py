"""Callbacks that wait for an array that cannot be ready before they have ended. They get an error;
without it they would wait for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from gates import reader

from gemel import _core, np, npx
from gemel.np import ndarray

OUTPUT = ((4,), "float32")


def pending() -> Any:
    """An array that is not computed yet."""
    a = np.ones((700, 700))
    return np.dot(np.dot(a, a), a)[0, :4] * 0 + 1


def issued(function: Callable[[Any], Any], held: list[Any], x: Any = None) -> Any:
    """The result of a callback, which finds it in `held`, since the callback runs later."""
    x = np.ones(4) if x is None else x
    with reader(x):
        x *= 1
        held.append(npx.callback(function, x, outputs=OUTPUT))
    return held[0]


def chained(result: Any) -> Any:
    """An array that depends on the result indirectly: by plans, copies and another callback."""
    found = result
    for step in range(5):
        found = np.concatenate([found, found])[:4] + step
    return npx.callback(lambda v: v + 1, found, outputs=OUTPUT)


def overwritten(result: Any) -> Any:
    """Another array that the result is written into."""
    target = np.zeros(4)
    target[1:3] = result[1:3]
    return target


WAYS: dict[str, Callable[[Any], Any]] = {
    "itself": lambda result: result,
    "a view": lambda result: result[1:].reshape(3, 1),
    "derived": lambda result: result * 2 + 1,
    "chained": chained,
    "overwritten": overwritten,
}
READS: dict[str, Callable[[Any], Any]] = {
    "asnumpy": lambda array: array.asnumpy(),
    "item": lambda array: array.sum().item(),
    "wait_to_read": lambda array: array.wait_to_read(),
    "bool": lambda array: bool(array[1:2].sum() > 0),
}


# engine.md 45
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("read", READS)
def test_a_callback_that_waits_for_its_own_result_fails(way: str, read: str) -> None:
    held: list[ndarray] = []

    def selfish(v: Any) -> Any:
        READS[read](WAYS[way](held[0]))
        return v

    result = issued(selfish, held)
    with pytest.raises(RuntimeError, match=r"selfish: waits inside of it .*its result") as caught:
        result.asnumpy()
    assert "compute with the arrays it is given" in str(caught.value)


def test_the_whole_stack_counts() -> None:
    """A callback runs while another one waits for it, and waits for that one's result."""
    held: list[ndarray] = []

    def outer(v: Any) -> Any:
        inner = npx.callback(lambda w: w + held[0].asnumpy(), pending(), outputs=OUTPUT)
        return v + inner.asnumpy()

    result = issued(outer, held)
    with pytest.raises(RuntimeError, match="outer: waits inside of it"):
        result.asnumpy()


@pytest.mark.parametrize("queued", [False, True])
def test_writes_to_what_a_callback_reads(queued: bool) -> None:
    x = np.ones(4)

    def writes(v: Any) -> Any:
        x[:] = 3
        return v + x.asnumpy()

    result = issued(writes, [], x) if queued else npx.callback(writes, x, outputs=OUTPUT)
    with pytest.raises(RuntimeError, match=r"writes: waits inside of it .* an array it reads"):
        result.asnumpy()
    assert x.tolist() == [3.0] * 4


def test_a_callback_may_wait_for_independent_arrays() -> None:
    """Also while other threads use the same arrays, and for operations issued after it."""
    x, stop = pending(), threading.Event()
    seen: list[list[float]] = []

    def reads(v: Any) -> Any:
        seen.append((x * 2).tolist())
        other = npx.callback(lambda w: w * 3, pending(), outputs=OUTPUT)
        seen.append(other.tolist())
        own = np.zeros(4)
        own[:] = x + 1
        seen.append(own.tolist())
        return v

    def meanwhile() -> None:
        while not stop.is_set():
            (x + 1).wait_to_read()

    thread = threading.Thread(target=meanwhile)
    thread.start()
    try:
        for _ in range(20):
            seen.clear()
            result = npx.callback(reads, x, outputs=OUTPUT)
            behind = result * 2
            assert behind.tolist() == [2.0] * 4
            assert seen == [[2.0] * 4, [3.0] * 4, [2.0] * 4]
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("workers", [0, 1])
def test_with_few_workers(workers: int) -> None:
    _core.set_workers(workers)
    try:
        held: list[Any] = []
        result = issued(lambda v: v + (held[0] * 2).asnumpy(), held)
        with pytest.raises(RuntimeError, match="waits inside of it"):
            result.asnumpy()
    finally:
        _core.set_workers(-1)

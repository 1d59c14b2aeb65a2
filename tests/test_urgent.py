"""What waits while graphs and plans are made: garbage collection, and the writing of files."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import gemel
from gemel import np
from gemel.gluon import nn
from gemel.process.urgent import NEVER, urgent
from gemel.runtime import cache


def runs() -> bool:
    """Whether garbage collection is enabled."""
    return gc.isenabled() and 0 < gc.get_threshold()[0] < NEVER


@pytest.fixture(autouse=True)
def enabled() -> Iterator[None]:
    """The collector is enabled before each test, and must be after it."""
    before = gc.get_threshold()
    gc.enable()
    assert runs()
    yield
    assert gc.isenabled()
    assert gc.get_threshold() == before


def test_it_waits_while_a_function_is_traced() -> None:
    seen = []

    def function(x: Any) -> Any:
        seen.append(runs())
        return x + 1

    assert gemel.compile(function)(np.ones(2)).tolist() == [2, 2]
    assert seen == [False]


def test_it_goes_on_after_an_error() -> None:
    class Failing(nn.HybridBlock):
        def forward(self, x: Any) -> Any:
            raise RuntimeError("no")

    net = Failing()
    net.hybridize()
    with pytest.raises(RuntimeError, match="no"):
        net(np.ones(2))


def test_a_collector_stopped_by_the_user_stays_stopped() -> None:
    gc.disable()
    try:
        with urgent:
            assert not runs()
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_collector_settings_made_while_tracing_take_effect() -> None:
    def stopping(x: Any) -> Any:
        gc.disable()
        return x + 1

    def setting(x: Any) -> Any:
        gc.set_threshold(0)
        return x + 2

    before = gc.get_threshold()
    try:
        gemel.compile(stopping)(np.ones(2))
        assert not gc.isenabled()
        gemel.compile(setting)(np.ones(2))
        assert gc.get_threshold()[0] == 0
    finally:
        gc.enable()
        gc.set_threshold(*before)


def test_the_outermost_block_decides() -> None:
    with urgent:
        with urgent:
            pass
        assert not runs()


def test_what_can_wait_is_done_after_the_outermost_block() -> None:
    done: list[int] = []
    urgent.afterwards(lambda: done.append(0))
    assert done == [0]
    with urgent:
        urgent.afterwards(lambda: done.append(1))
        with urgent:
            urgent.afterwards(lambda: done.append(2))
        other = threading.Thread(target=lambda: urgent.afterwards(lambda: done.append(3)))
        other.start()
        other.join()
        assert done == [0, 3]
    assert done == [0, 3, 1, 2]
    with pytest.raises(RuntimeError, match="no"), urgent:
        urgent.afterwards(lambda: done.append(4))
        raise RuntimeError("no")
    assert done == [0, 3, 1, 2, 4] and runs()


def test_files_are_written_once_the_plan_runs(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEMEL_CACHE", str(tmp_path))
    cache.clear()
    x = np.ones((3, 5))
    earlier = {*tmp_path.rglob("*.*")}
    with urgent:
        wanted = gemel.compile(lambda x: np.tanh(x).sum() + 3)(x).item()
        assert {*tmp_path.rglob("*.*")} == earlier
    made = {*tmp_path.rglob("*.*")} - earlier
    assert ".kernel" in {path.suffix for path in made}
    cache.clear()
    before = cache.counters["compiled"]
    assert gemel.compile(lambda x: np.tanh(x).sum() + 3)(x).item() == wanted
    assert cache.counters["compiled"] == before


def test_threads_leave_it_running() -> None:
    started, others_done = threading.Event(), threading.Event()

    def inner() -> None:
        with urgent:
            started.set()
            others_done.wait(10)

    thread = threading.Thread(target=inner)
    with urgent:
        thread.start()
        started.wait(10)
    assert runs()
    others_done.set()
    thread.join()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.parametrize("mine", [False, True])
def test_a_child_is_as_its_thread_was(mine: bool) -> None:
    started, done = threading.Event(), threading.Event()

    def other() -> None:
        with urgent:
            started.set()
            done.wait(10)

    thread = threading.Thread(target=other)
    if mine:
        urgent.__enter__()
    else:
        thread.start()
        started.wait(10)
    try:
        child = os.fork()
        if child == 0:
            os._exit(runs() == mine)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        done.set()
        if mine:
            urgent.__exit__()
        else:
            thread.join()

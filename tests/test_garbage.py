"""The garbage collector waits while graphs are made, and is as it was before afterwards."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import gemel
from gemel import np
from gemel.garbage import uncollected
from gemel.gluon import nn


@pytest.fixture(autouse=True)
def enabled() -> Iterator[None]:
    """The collector runs before each test, and after it."""
    gc.enable()
    yield
    assert gc.isenabled()


def test_it_waits_while_a_function_is_traced() -> None:
    seen = []

    def function(x: Any) -> Any:
        seen.append(gc.isenabled())
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


def test_who_has_stopped_it_finds_it_stopped() -> None:
    gc.disable()
    try:
        with uncollected:
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_the_outermost_block_decides() -> None:
    with uncollected:
        with uncollected:
            pass
        assert not gc.isenabled()


def test_threads_leave_it_running() -> None:
    started, others_done = threading.Event(), threading.Event()

    def inner() -> None:
        with uncollected:
            started.set()
            others_done.wait(10)

    thread = threading.Thread(target=inner)
    with uncollected:
        thread.start()
        started.wait(10)
    assert gc.isenabled()
    others_done.set()
    thread.join()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.parametrize("mine", [False, True])
def test_a_child_is_as_its_thread_was(mine: bool) -> None:
    started, done = threading.Event(), threading.Event()

    def other() -> None:
        with uncollected:
            started.set()
            done.wait(10)

    thread = threading.Thread(target=other)
    if mine:
        uncollected.__enter__()
    else:
        thread.start()
        started.wait(10)
    try:
        child = os.fork()
        if child == 0:
            os._exit(gc.isenabled() == mine)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        done.set()
        if mine:
            uncollected.__exit__()
        else:
            thread.join()

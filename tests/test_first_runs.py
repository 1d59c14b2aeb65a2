"""Threads that run a network for the first time at the same moment."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from gemel import gluon, np


@pytest.fixture(autouse=True)
def often() -> Iterator[None]:
    """Threads take turns a hundred times as often as usual."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(5e-5)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("hybridized", [False, True])
def test_shapes_and_values_are_found_once(hybridized: bool) -> None:
    x = np.ones((3, 5))
    for _ in range(40):
        net = gluon.nn.HybridSequential()
        net.add(gluon.nn.Dense(4), gluon.nn.Dense(2))
        net.initialize()
        if hybridized:
            net.hybridize()
        ready, found = threading.Barrier(3), []

        def run(net: Any = net, ready: Any = ready, found: list[Any] = found) -> None:
            ready.wait()
            found.append(net(x).asnumpy().tolist())

        threads = [threading.Thread(target=run) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 3
        assert found[0] == found[1] == found[2]

"""How a worker's thread handles requests: a world of one worker, with a fake wire."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

import numpy
import pytest

from gemel import _core, np
from gemel.errors import WorkersError
from gemel.kvstore import world as worlds
from gemel.kvstore.waiting import Scratch, wait_until
from gemel.kvstore.ways import Table
from gemel.kvstore.world import World

COUNT = 40_000


class Alone:
    """The wire of a worker without others."""

    rank = 0
    machines = (0,)
    has_sockets = False

    def send(self, rank: int, message: bytes) -> None:
        raise AssertionError("there is nobody")

    def received(self, patience: float = 0.0) -> list[tuple[int, bytes]]:
        return []

    def gathered(self, row: Any) -> Any:
        return row[None]

    def summed(self, row: Any, way: str, lengths: Any) -> Any:
        return row

    def broadcast(self, row: Any) -> Any:
        return row


@pytest.fixture
def world() -> Iterator[World]:
    made = World(Alone(), 20.0)
    yield made
    made.close()


class Late:
    """An array whose values come when the test says so."""

    def __init__(self) -> None:
        self._desk = _core.Desk()
        given = np.ones((COUNT,))
        (self.array,) = self._desk.issue(1, "late", [given], [(given._code, (COUNT,))])
        self._errand = self._desk.take(5.0)

    def come(self, value: float) -> None:
        numpy.frombuffer(self._errand.outputs[0], "float32")[:] = value
        self._errand.end()


def issued(world: World, key: str, array: Any) -> Any:
    return world.issue(1, key, "sum", [array])


def test_expensive_sums_leave_as_soon_as_they_are_ready(world: World) -> None:
    late = Late()
    first = issued(world, "key 0", np.full((COUNT,), 3.0))
    second = issued(world, "key 1", late.array)
    assert first.asnumpy()[0] == 3  # although the other value is not there yet
    late.come(5)
    assert second.asnumpy()[-1] == 5 and world.done["groups"] == 2


def test_cheap_sums_leave_together(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worlds, "HOLD", 20.0)
    for turn in range(3):
        world._pace = 1e-12
        late, groups = Late(), world.done["groups"]
        first = issued(world, "key 0", np.full((COUNT,), 3.0 + turn))
        second = issued(world, "key 1", late.array)
        time.sleep(0.1)
        assert world.done["groups"] == groups
        late.come(5)
        assert second.asnumpy()[-1] == 5 and first.asnumpy()[0] == 3 + turn
        assert world.done["groups"] == groups + 1


def test_sums_measured_as_slow_are_not_held_back(world: World) -> None:
    """Whatever the pace is: a worker that is late for a sum has not waited for the network."""
    world.ways.table = Table({"gather": [(4 * COUNT, 1e-2), (8 * COUNT, 2e-2)]})
    world._pace = 1e-12
    late = Late()
    first = issued(world, "key 0", np.full((COUNT,), 3.0))
    second = issued(world, "key 1", late.array)
    assert first.asnumpy()[0] == 3
    late.come(5)
    assert second.asnumpy()[0] == 5 and world.done["groups"] == 2


def test_the_sums_of_the_next_step_are_not_waited_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worlds, "HOLD", 20.0)
    world._pace = 1e-12
    late = Late()
    first = issued(world, "key 0", np.full((COUNT,), 3.0))
    again = issued(world, "key 0", late.array)  # the key's second round
    assert first.asnumpy()[0] == 3
    late.come(5)
    assert again.asnumpy()[0] == 5


def test_keys_need_not_be_pushed_equally_often(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key may miss some steps; and a sum does not wait for sums of the next step."""
    for _ in range(3):
        issued(world, "key 0", np.ones((COUNT,))).wait_to_read()
    monkeypatch.setattr(worlds, "HOLD", 20.0)
    world._pace = 1e-12
    late, later = Late(), Late()
    sums = [issued(world, "key 1", late.array), issued(world, "key 0", np.ones((COUNT,)))]
    groups = world.done["groups"]
    after = issued(world, "key 1", later.array)
    late.come(4)
    assert [total.asnumpy()[0] for total in sums] == [4, 1]
    assert world.done["groups"] == groups + 1
    later.come(5)
    assert after.asnumpy()[0] == 5


def test_a_sum_another_depends_on_is_not_held_for_ever(world: World) -> None:
    world._pace = 1e-12
    first = issued(world, "key 0", np.full((COUNT,), 3.0))
    second = issued(world, "key 1", first * 2)
    begun = time.monotonic()
    assert second.asnumpy()[0] == 6 and time.monotonic() - begun < 10


def test_the_speed_of_the_network_is_measured(world: World) -> None:
    issued(world, "key 0", np.ones((8,))).wait_to_read()
    assert world._pace == math.inf  # so few bytes say nothing about the speed
    issued(world, "key 1", np.ones((COUNT,))).wait_to_read()
    assert 0 < world._pace < math.inf


def test_held_sums_fail_with_all_others(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worlds, "HOLD", 20.0)
    world._pace = 1e-12
    late = Late()
    first = issued(world, "key 0", np.ones((COUNT,)))
    second = issued(world, "key 1", late.array)
    time.sleep(0.1)
    world._break("the wire was cut")
    late.come(1)
    for array in (first, second):
        with pytest.raises(WorkersError, match="the wire was cut"):
            array.wait_to_read()


# ---- waiting


def test_pauses_grow() -> None:
    pauses: list[float] = []
    answers = iter([False] * 20 + [True])
    wait_until(lambda: next(answers), pauses.append)
    assert pauses[:3] == [0, 0, 0] and len(pauses) == 20
    assert pauses[3:] == sorted(pauses[3:]) and 0 < pauses[3] < pauses[-1] <= 1e-3


def test_ready_values_are_not_waited_for() -> None:
    pauses: list[float] = []
    wait_until(lambda: True, pauses.append)
    assert pauses == []


def test_scratch_memory_is_the_same_each_time_and_grows() -> None:
    scratch = Scratch()
    large = scratch.take(100)
    large[:] = 7
    assert scratch.take(40).tolist() == [7] * 40 and scratch.take(0).size == 0
    assert scratch.take(1000).size == 1000

"""Schedules that run: real bytes over paced links, and what the clock says."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import numpy
import pytest

from gemel import topology
from gemel.errors import ShapeError, TopologyError


def arrays(ranks: int, size: int, dtype: str = "float32") -> list[Any]:
    generator = numpy.random.default_rng(ranks)
    return [generator.standard_normal(size).astype(dtype) for _ in range(ranks)]


@pytest.mark.parametrize("name", ["pcie4", "p3", "2xpcie4-25gbe"])
def test_running_gives_the_bits_of_the_list_of_steps(name: str) -> None:
    """With floats, so that another order of additions would show."""
    where = topology.named(name)
    given = arrays(len(where.gpus), 1001)
    for schedule in topology.candidates(where):
        if len(schedule) > 600:
            continue
        expected = topology.all_reduce(schedule, given)
        found = topology.run(schedule, where, given).arrays
        for one, other in zip(found, expected, strict=True):
            numpy.testing.assert_array_equal(one, other, err_msg=schedule.name)
    numpy.testing.assert_array_equal(given, arrays(len(where.gpus), 1001))


@pytest.mark.parametrize("name", ["pcie4-one-switch", "p3", "2xpcie4-25gbe"])
def test_bytes_move_at_the_links_rates(name: str) -> None:
    """The clock agrees with the simulator, except that threads that wake late add time.

    Other programs may delay threads here, too. Each try is slower than the one before, so that a
    delay is a smaller share of it.
    """
    where = topology.named(name)
    planner = topology.Planner(where)
    given = arrays(len(where.gpus), 200_000)
    schedules = {s.name: s for s in topology.candidates(where)}
    chosen = {planner.choose(8e5).schedule.name, "one device", "pieces", "ring"}
    for schedule in (schedules[name] for name in sorted(chosen)):
        expected = topology.simulate(schedule, where, 8e5).seconds
        ratios = []
        for seconds in (0.4, 0.8, 1.6, 3.2):
            found = topology.run(schedule, where, given, slowdown=seconds / expected)
            ratios.append(found.seconds / expected)
            if ratios[-1] < 1.2:
                break
        assert 0.85 < ratios[-1] < 1.2, (schedule.name, ratios)


def test_the_planners_arithmetic_holds_on_the_clock() -> None:
    """The simulator's 60 ms and 15 ms, at least a hundred times slower, of a tenth of the bytes."""
    where = topology.named("pcie4-one-switch")
    given = arrays(4, 4_000_000)
    for schedule, expected in ((topology.one_device, 6), (topology.pieces, 1.5)):
        times = []
        for slowdown in (100, 200, 400, 800):
            found = topology.run(schedule(where), where, given, slowdown=slowdown)
            times.append(found.seconds * 1e3)
            if times[-1] < expected * 1.2:
                break
        assert expected * 0.95 < times[-1] < expected * 1.2, times


def test_nothing_to_send() -> None:
    where = topology.pcie()
    for size in (0, 1, 3):
        for schedule in (topology.ring(where), topology.tree(where, 4), topology.cpu(where)):
            found = topology.run(schedule, where, [numpy.ones((size, 1), "int16")] * 4).arrays
            assert [one.tolist() for one in found] == [[[4]] * size] * 4
    alone = topology.fleet(1)
    found = topology.run(topology.ring(alone), alone, [numpy.arange(3)])
    assert found.arrays[0].tolist() == [0, 1, 2]
    assert found.seconds < 1


def test_several_threads_may_run_schedules() -> None:
    where, found = topology.pcie(), []
    schedule, given = topology.ring(where), arrays(4, 999)

    def work() -> None:
        found.append(topology.run(schedule, where, given).arrays[3])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = topology.all_reduce(schedule, given)[3]
    assert len(found) == 4
    assert all((one == expected).all() for one in found)


def test_a_forked_process_may_run_schedules() -> None:
    where = topology.pcie()
    schedule, given = topology.ring(where), arrays(4, 50)
    expected = topology.run(schedule, where, given).arrays[0]
    child = os.fork()
    if child == 0:
        found = topology.run(schedule, where, given).arrays[0]
        os._exit(0 if (found == expected).all() else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_ctrl_c_ends_a_run() -> None:
    where, before = topology.pcie(), threading.active_count()
    here = threading.get_ident()
    timer = threading.Timer(0.2, signal.pthread_kill, [here, signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        topology.run(topology.ring(where), where, arrays(4, 100), slowdown=1e7, limit=20)
    timer.join()
    assert threading.active_count() == before


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pcie4", "pcie4-one-switch", "p3", "2xpcie4-25gbe"])
@pytest.mark.parametrize("size", [4_000, 4_000_000])
def test_the_choice_is_near_the_fastest_by_the_clock(name: str, size: int) -> None:
    """Candidates run for about a second each; the best of five, as threads may wake late."""
    where = topology.named(name)
    planner = topology.Planner(where)
    given, choice = arrays(len(where.gpus), size // 4), planner.choose(size)
    slowdown = 1.0 / choice.seconds
    near = [e.schedule for e in planner.estimates if e.seconds(size) < 2 * choice.seconds]
    ratios = []
    for _ in range(5):
        times = {s.name: topology.run(s, where, given, slowdown).seconds for s in near}
        mine = times[choice.schedule.name]
        ratios.append(max(mine / min(times.values()) / 1.1, mine / choice.seconds / 1.2))
        if ratios[-1] <= 1:
            break
    assert min(ratios) <= 1, (choice.schedule.name, times)


class Broken:
    """An element that cannot be added."""

    def __add__(self, other: Any) -> Any:
        raise ZeroDivisionError("broken")

    __radd__ = __add__


def test_an_error_in_a_step_ends_the_run() -> None:
    where, before = topology.pcie(), threading.active_count()
    given = [numpy.array([Broken(), 1, 2, 3], "object") for _ in range(4)]
    with pytest.raises(ZeroDivisionError, match="broken"):
        topology.run(topology.ring(where), where, given)
    assert threading.active_count() == before


def test_a_run_has_a_limit() -> None:
    where, before = topology.pcie(), threading.active_count()
    with pytest.raises(TopologyError, match=r"24 of 24 steps of ring had not ended after 0\.05 s"):
        topology.run(topology.ring(where), where, arrays(4, 100), slowdown=1e7, limit=0.05)
    assert threading.active_count() == before


def test_what_cannot_run() -> None:
    where = topology.pcie()
    ring = topology.ring(where)
    for wrong in (0, -1, numpy.nan, numpy.inf, "2"):
        with pytest.raises(TopologyError, match="it must be positive"):
            topology.run(ring, where, arrays(4, 2), slowdown=wrong)
    with pytest.raises(TopologyError, match="3 arrays for 4 ranks"):
        topology.run(ring, where, arrays(3, 2))
    with pytest.raises(ShapeError):
        topology.run(ring, where, [*arrays(3, 2), numpy.zeros(5)])
    many = topology.fleet(40)
    with pytest.raises(TopologyError, match=r"1560 channels.*Simulate it instead"):
        topology.run(topology.pieces(many), many, arrays(40, 2))

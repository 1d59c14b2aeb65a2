"""The simulator, compared with known arithmetic and with a slow, independent simulator."""

from __future__ import annotations

import heapq
import random
from typing import Any

import numpy
import pytest
from test_topology_schedules import drawn, waits

from gemel import topology
from gemel.errors import UnknownNameError
from gemel.links import Link, Node, Topology
from gemel.topology.simulator import fair_rates, paths_of


def milliseconds(schedule: Any, where: Topology, nbytes: float) -> float:
    return topology.simulate(schedule, where, nbytes).seconds * 1e3


# --- arithmetic that is known


def test_four_gpus_behind_one_pcie_switch() -> None:
    """160 MB at 16 GB/s take 10 ms; a link carries full bandwidth in both directions at once.

    One device: three tensors come in through its link, then three go out. The CPU: four and four.
    Pieces: three quarters of a tensor come in everywhere at once, then go out.
    """
    where = topology.named("pcie4-one-switch")
    bare = where.without_latency()
    for schedule, expected in (
        (topology.one_device, 60), (topology.cpu, 80), (topology.pieces, 15),
    ):  # fmt: skip
        assert milliseconds(schedule(bare), bare, 160e6) == pytest.approx(expected, rel=1e-12)
        assert milliseconds(schedule(where), where, 160e6) == pytest.approx(expected, rel=1e-3)


def test_the_rings_of_eight_v100() -> None:
    """Rings over three links of 18 GB/s: the usual figure is 2 * 160 MB / 54 GB/s = 5.93 ms.

    It ignores that each GPU has an eighth already: 7/8 of it is 5.19 ms.
    """
    p3 = topology.p3()
    expected = 2 * 7 / 8 * 160e6 / 54e9 * 1e3
    bare = p3.without_latency()
    assert milliseconds(topology.ring(bare), bare, 160e6) == pytest.approx(expected, rel=1e-9)
    found = milliseconds(topology.ring(p3), p3, 160e6)
    assert found == pytest.approx(expected + 14 * 0.002, rel=1e-9)  # 14 rounds of 2 us
    assert round(expected * 8 / 7) == 6
    both = milliseconds(topology.ring(bare, both_ways=True), bare, 160e6)
    assert both == pytest.approx(expected / 2, rel=1e-9)


def test_machines_on_a_network() -> None:
    """Two machines with four GPUs each: a tensor crosses once each way, in two halves."""
    where = topology.named("2xpcie4-10gbe").without_latency()
    expected = 1e9 / 1.25e9 * 1e3
    inside = 2 * 3 / 4 * 1e9 / 16e9 * 1e3
    found = milliseconds(topology.hierarchical(where, "ring", "pieces"), where, 1e9)
    assert found == pytest.approx(expected + inside, rel=1e-9)
    # One device: its machine's link carries four tensors each way, one after the other.
    assert milliseconds(topology.one_device(where), where, 1e9) == pytest.approx(8 * expected)


def test_nothing_takes_no_time() -> None:
    p3 = topology.p3()
    for schedule in topology.candidates(p3):
        assert topology.simulate(schedule, p3, 0).seconds == 0
    alone = topology.fleet(1)
    for schedule in topology.candidates(alone):
        assert topology.simulate(schedule, alone, 1e6).seconds == 0
        assert topology.simulate(schedule, alone, 1e6).busiest == 0


def test_a_step_takes_latency_then_its_bytes() -> None:
    nodes = [Node("a", "gpu"), Node("b", "gpu"), Node("hub", "switch")]
    links = [Link("a", "hub", 1.0, 5.0, 2.0), Link("hub", "b", 4.0, 7.0)]
    where = Topology("line", nodes, links)
    found = topology.simulate(topology.one_device(where, "b"), where, 1000)
    # 12 us, then 1000 bytes at 1 GB/s, and 2 us for the message; the same on the way back.
    assert found.seconds == pytest.approx(2 * 15e-6)
    assert found.carried.tolist() == [3000] * 4
    assert found.busiest == pytest.approx(3 / 30)
    assert found.finished.tolist() == pytest.approx([15e-6, 30e-6])


def test_a_place_that_is_not_there() -> None:
    with pytest.raises(UnknownNameError, match="'gpu4'"):
        topology.simulate(topology.ring(topology.p3()), topology.pcie(), 1e6)


# --- against a simulator without arrays


def slow_rates(routes: list[list[int]], capacity: list[float]) -> list[float]:
    """Progressive filling: all rates grow until a link is full, whose flows then stop growing."""
    rates, growing = [0.0] * len(routes), set(range(len(routes)))
    left = list(capacity)
    while growing:
        count = [sum(link in routes[flow] for flow in growing) for link in range(len(left))]
        step = min(left[i] / n for i, n in enumerate(count) if n)
        for flow in growing:
            rates[flow] += step
        left = [room - step * n for room, n in zip(left, count, strict=True)]
        full = {i for i, n in enumerate(count) if n and left[i] <= 1e-9 * capacity[i]}
        growing = {flow for flow in growing if not full & set(routes[flow])}
    return rates


@pytest.mark.parametrize("seed", range(30))
def test_rates_are_max_min_fair(seed: int) -> None:
    draw = random.Random(seed)
    capacity = [draw.choice([1.0, 2.0, 3.5, 10.0]) * 1e9 for _ in range(8)]
    routes = [draw.sample(range(8), draw.randrange(1, 4)) for _ in range(draw.randrange(1, 25))]
    padded = numpy.array([route + [8] * (3 - len(route)) for route in routes])
    found = fair_rates(padded, numpy.array([*capacity, numpy.inf]))
    numpy.testing.assert_allclose(found, slow_rates(routes, capacity), rtol=1e-9)


def slow_simulation(schedule: Any, where: Topology, nbytes: float) -> list[float]:
    """When each step ends, computed one event at a time."""
    routes = topology.Routes(where)
    paths = paths_of(schedule, routes)
    beyond, capacity = len(routes.capacity) - 1, routes.capacity[:-1].tolist()
    links = [[i for i in row if i != beyond] for row in paths.links.tolist()]
    size = (schedule.sent() * nbytes + paths.overhead * paths.width).tolist()
    waiting, now = dict(enumerate(waits(schedule))), 0.0
    ends: dict[int, float] = {}
    arriving: list[tuple[float, int]] = []
    flowing: dict[int, float] = {}
    while len(ends) < len(schedule):
        for step in [s for s, before in waiting.items() if before <= ends.keys()]:
            del waiting[step]
            heapq.heappush(arriving, (now + paths.latency[step], step))
        rates = dict(zip(flowing, slow_rates([links[s] for s in flowing], capacity), strict=True))
        times = [now + left / rates[step] for step, left in flowing.items()]
        moment = min(times + [arriving[0][0]] if arriving else times)
        flowing = {s: left - rates[s] * (moment - now) for s, left in flowing.items()}
        now = moment
        for step in [s for s, left in flowing.items() if left <= 1e-6 * size[s]]:
            del flowing[step]
            ends[step] = now
        while arriving and arriving[0][0] <= now + 1e-15:
            step = heapq.heappop(arriving)[1]
            flowing[step] = size[step]
    return [ends[step] for step in range(len(schedule))]


@pytest.mark.parametrize("seed", range(12))
def test_random_steps_take_as_long_as_in_the_slow_simulator(seed: int) -> None:
    draw = random.Random(seed)
    nodes = [Node(name, "gpu") for name in "abcd"] + [Node("x", "switch"), Node("y", "switch")]
    pairs = [("a", "x"), ("b", "x"), ("c", "y"), ("d", "y"), ("x", "y"), ("a", "c")]
    links = [
        Link(*pair, draw.choice([1.0, 2.0, 5.0]), draw.choice([0.0, 1.0, 3.0]), draw.choice([0, 1]))
        for pair in pairs
    ]
    where, schedule = Topology("drawn", nodes, links), drawn(seed)
    found = topology.simulate(schedule, where, 5e4).finished
    numpy.testing.assert_allclose(found, slow_simulation(schedule, where, 5e4), rtol=1e-5)


@pytest.mark.parametrize("name", ["pcie4", "p3", "2xpcie4-25gbe"])
def test_schedules_take_as_long_as_in_the_slow_simulator(name: str) -> None:
    where = topology.named(name)
    for schedule in topology.candidates(where):
        if len(schedule) < 150:
            found = topology.simulate(schedule, where, 1e6)
            expected = max(slow_simulation(schedule, where, 1e6))
            assert found.seconds == pytest.approx(expected, rel=1e-5), schedule.name


def test_no_link_carries_more_than_it_can() -> None:
    where = topology.named("2xp3-100gbe")
    for schedule in topology.candidates(where):
        found = topology.simulate(schedule, where, 1e7)
        assert (found.carried <= found.capacity * found.seconds * (1 + 1e-9)).all()
        assert 0 < found.busiest <= 1 + 1e-9
        assert found.finished.max() == found.seconds


def test_flows_shorter_than_the_precision_of_the_clock_end() -> None:
    far = Link("gpu0", "gpu1", 1e6, latency=1e8)
    where = Topology("far", [Node("gpu0", "gpu"), Node("gpu1", "gpu")], [far])
    assert topology.simulate(topology.one_device(where), where, 5.0).seconds == 200

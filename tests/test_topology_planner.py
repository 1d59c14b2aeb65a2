"""The planner: its choices against the fastest ones, its predictions against simulations."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from gemel import topology
from gemel.errors import NoRouteError, TopologyError
from gemel.links import Link, Node, Topology
from gemel.topology.units import read_bytes, show_bytes, show_seconds

#: 1 KB to 256 MB, by factors of two.
SIZES = [1e3 * 2**power for power in range(18)] + [256e6]
#: One topology of each kind for quick runs; `make slow` tests all of them.
SOME = ("pcie4", "pcie4-one-switch", "p3", "dgx2", "2xpcie4-25gbe", "2xp3-100gbe", "4xpcie4-10gbe")


def held_against_simulation(name: str, sizes: list[float]) -> None:
    """The choice is within 10 % of the fastest, the prediction within 20 % of the simulation."""
    planner = topology.Planner(topology.named(name))
    for size in sizes:
        choice = planner.choose(size)
        times = {
            estimate.schedule.name: topology.simulate(
                estimate.schedule, planner.routes, size
            ).seconds
            for estimate in planner.estimates
        }
        mine, best = times[choice.schedule.name], min(times, key=lambda one: times[one])
        assert mine <= 1.1 * times[best], (name, size, choice.schedule.name, best)
        assert choice.seconds == pytest.approx(mine, rel=0.2), (name, size, choice.schedule.name)


@pytest.mark.parametrize("name", SOME)
def test_the_choice_is_near_the_fastest(name: str) -> None:
    held_against_simulation(name, SIZES[::4] + SIZES[-1:])


@pytest.mark.slow
@pytest.mark.parametrize("name", topology.NAMES)
def test_the_choice_is_near_the_fastest_everywhere(name: str) -> None:
    held_against_simulation(name, SIZES[1::2])


@pytest.mark.parametrize("name", ["p3", "2xpcie4-one-switch-100gbe", "2xp3-10gbe"])
def test_the_choice_is_near_the_fastest_where_it_changes(name: str) -> None:
    """There two estimates are nearly equal, so their errors matter most."""
    changes = [size for size, _ in topology.Planner(topology.named(name)).ranges()[1:]]
    assert changes
    held_against_simulation(name, [size * near for size in changes for near in (0.99, 1.005)])


def test_the_estimate_of_a_ring_is_the_closed_form() -> None:
    where = topology.fleet(8)
    (ring,) = topology.Planner(where, [topology.ring(where)]).estimates
    for size in (1e3, 1e6, 1e9):
        round_ = 20e-6 + 1e-6 + size / 8 / (25e9 / 8)  # latency, the message, its bytes
        assert ring.seconds(size) == pytest.approx(14 * round_)
    cost = ring.cost(8e3)
    assert cost.latency == pytest.approx(14 * 20e-6)
    assert cost.busiest == "m0 -> rack0 (3.125 GB/s)"


def test_small_and_large_tensors_use_different_schedules() -> None:
    planner = topology.Planner(topology.named("4xp3-25gbe"))
    assert planner.choose(256).schedule.name == "cpu"
    assert planner.choose(1e8).schedule.name.startswith("hierarchical")
    assert planner.choose(0).seconds == 0
    ranges = planner.ranges()
    assert len(ranges) >= 2
    for (size, schedule), (_, before) in zip(ranges[1:], ranges, strict=False):
        assert planner.choose(size).schedule is schedule
        assert planner.choose(size * 0.98).schedule is before


def test_of_nearly_equal_schedules_the_simplest_is_chosen() -> None:
    """On one switch pieces and rings send the same bytes, but pieces need no more messages."""
    where = topology.named("pcie4-one-switch").without_latency()
    planner = topology.Planner(where)
    times = {e.schedule.name: e.seconds(1e8) for e in planner.estimates}
    assert times["pieces"] == pytest.approx(times["ring both ways"])
    assert len(planner.choose(1e8).schedule) == 24


def test_schedules_without_a_route_are_left_out() -> None:
    """Four GPUs in a ring of direct links, without a host: neighbours reach each other only."""
    nodes = [Node(f"g{number}", "gpu") for number in range(4)]
    around = [Link(f"g{number}", f"g{(number + 1) % 4}", 10.0) for number in range(4)]
    where = Topology("around", nodes, around)
    names = [schedule.name for schedule in topology.candidates(where)]
    assert names == ["ring", "ring both ways"]
    assert topology.Planner(where).choose(1e6).schedule.name == "ring both ways"
    with pytest.raises(NoRouteError, match="no route"):
        topology.Planner(where, [topology.pieces(where)])
    # Without a ring either, the first GPU may still reach all others.
    star = Topology("star", nodes, [Link("g0", f"g{number}", 10.0) for number in (1, 2, 3)])
    assert "one device" in [schedule.name for schedule in topology.candidates(star)]
    line = Topology("line", nodes, around[:3])
    for make in (topology.candidates, topology.Planner):
        with pytest.raises(NoRouteError, match="line: there is no route from"):
            make(line)


def test_what_cannot_be_planned() -> None:
    planner = topology.Planner(topology.pcie())
    for wrong in (-1, math.nan, math.inf, "1MB", None):
        with pytest.raises(TopologyError, match="give a finite number, 0 or more"):
            planner.choose(wrong)
        with pytest.raises(TopologyError, match="give a finite number, 0 or more"):
            topology.simulate(planner.choose(1).schedule, planner.topology, wrong)
    with pytest.raises(TopologyError, match="no schedule to choose"):
        topology.Planner(topology.pcie(), [])


# --- buckets


def last_end(planner: topology.Planner, sizes: list[float], ready: list[float]) -> float:
    """The end of the best way to cut a list into buckets, found by trying all of them."""
    best = math.inf
    for cuts in itertools.product((False, True), repeat=len(sizes) - 1):
        end, nbytes = 0.0, 0.0
        for size, time, cut in zip(sizes, ready, (*cuts, True), strict=True):
            nbytes += size
            if cut:
                end = max(end, time) + min(e.seconds(nbytes) for e in planner.estimates)
                nbytes = 0.0
        best = min(best, end)
    return best


@pytest.mark.parametrize("seed", range(8))
def test_buckets_are_cut_in_the_best_way(seed: int) -> None:
    planner, draw = topology.Planner(topology.named("2xpcie4-25gbe")), random.Random(seed)
    sizes = [10 ** draw.uniform(2.5, 7) for _ in range(9)]
    ready = sorted(draw.uniform(0, 3e-3) for _ in sizes)
    found = planner.buckets(sizes, ready)
    assert found[-1].end == pytest.approx(last_end(planner, sizes, ready), rel=0.02)
    members = [place for bucket in found for place in range(bucket.first, bucket.last + 1)]
    assert members == list(range(9))
    for bucket in found:
        assert bucket.nbytes == pytest.approx(sum(sizes[bucket.first : bucket.last + 1]))
        assert bucket.begin >= ready[bucket.last]
        assert bucket.end == bucket.begin + planner.choose(bucket.nbytes).seconds
    assert all(a.end <= b.begin for a, b in zip(found, found[1:], strict=False))


def test_small_tensors_share_a_bucket_and_large_ones_do_not_wait() -> None:
    planner = topology.Planner(topology.named("4xp3-25gbe"))
    assert len(planner.buckets([2e3] * 300)) == 1
    slow = planner.buckets([1e8] * 4, [0.1, 0.2, 0.3, 0.4])
    assert [(bucket.first, bucket.last) for bucket in slow] == [(i, i) for i in range(4)]
    # A layer's bias is sent with its weights, not by itself.
    layers = [4e3, 4e6] * 5
    ready = [0.01 * (1 + i // 2) for i in range(10)]
    assert [bucket.last for bucket in planner.buckets(layers, ready)] == [1, 3, 5, 7, 9]


def test_lists_of_buckets_at_the_edges() -> None:
    planner = topology.Planner(topology.pcie())
    assert planner.buckets([]) == []
    (one,) = planner.buckets([0.0, 0.0])
    assert (one.first, one.last, one.end) == (0, 1, 0.0)
    with pytest.raises(TopologyError, match="2 sizes and 1 times"):
        planner.buckets([1, 2], [0.0])
    with pytest.raises(TopologyError, match="in the order in which they are ready"):
        planner.buckets([1, 2], [1.0, 0.5])
    for wrong in (-1, "1MB"):
        with pytest.raises(TopologyError, match=f"{wrong!r} bytes"):
            planner.buckets([wrong])
    for late in (math.nan, math.inf, "1 s"):
        with pytest.raises(TopologyError, match=r"a time of .*; give finite numbers"):
            planner.buckets([3], [late])


# --- what it says


def test_it_says_why_and_draws() -> None:
    text = topology.Planner(topology.p3()).explain([1e3, 160e6])
    table = text.split("\n\n")[1].splitlines()
    assert len(table) == 3
    assert table[1].split()[:4] == ["1", "KB", "servers", "10.2"]
    assert "98 % latency, most bytes over cpu0 -> cpu1 (20 GB/s)" in table[1]
    assert "ring both ways" in table[2] and "ring: 1.99 times" in table[2]
    assert "gpu0 -> gpu3 -> gpu2 -> gpu1 -> gpu5 -> gpu6 -> gpu7 -> gpu4 -> gpu0" in text
    assert "up to 87 KB: servers; beyond: ring both ways." in text


def test_trees_and_hierarchies_are_drawn() -> None:
    where = topology.pcie()
    tree = topology.tree(where)
    assert tree.drawing.splitlines()[:4] == ["gpu0", "   gpu2", "      gpu1", "      gpu3"]
    text = topology.Planner(where, [tree]).explain([1e6])
    assert "tree, 8 chunks is the fastest for all of these sizes." in text
    assert "\n    gpu0\n       gpu2\n" in text
    two = topology.hierarchical(topology.named("2xp3-25gbe"))
    assert "inside every machine: m0.gpu0 -> m0.gpu3" in two.drawing
    assert "between: each of 8 shards in direct messages between the 2 GPUs" in two.drawing


def test_units() -> None:
    assert [read_bytes(text) for text in ("160MB", "64 kb", "1e6", "0", "1.5 GB")] == [
        160e6, 64e3, 1e6, 0, 1.5e9,
    ]  # fmt: skip
    for wrong in ("", "MB", "1.2.3", "160 parsecs", "-1MB", "nan"):
        with pytest.raises(TopologyError, match="is not a number of bytes"):
            read_bytes(wrong)
    assert [show_bytes(n) for n in (0, 999, 1e3, 1.024e6, 256e6)] == [
        "0 B", "999 B", "1 KB", "1.02 MB", "256 MB",
    ]  # fmt: skip
    assert [show_seconds(t) for t in (0, 4e-6, 5.21e-3, 0.1, 63.9)] == [
        "0 us", "4 us", "5.21 ms", "100 ms", "63.9 s",
    ]  # fmt: skip

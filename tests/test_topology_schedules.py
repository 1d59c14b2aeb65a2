"""Schedules: each gives every rank the sum, in whatever order its steps run."""

from __future__ import annotations

import random
from typing import Any

import numpy
import pytest

from gemel import topology
from gemel.errors import ArgumentError, ShapeError, TopologyError, UnknownNameError
from gemel.topology.schedule import Progress, Schedule, joined, rounds, steps
from gemel.topology.schedules.tree import two_trees

SIZES = (0, 1, 3, 7, 64, 1000)
#: Topologies that have no name: odd numbers of devices, one, two.
OTHERS = [topology.fleet(count, per_rack=3) for count in (1, 2, 3, 5, 6, 9, 11)]
EVERY = [topology.named(name) for name in topology.NAMES] + OTHERS


def given(ranks: int, size: int, dtype: str = "int64") -> list[Any]:
    generator = numpy.random.default_rng(ranks + size)
    return [generator.integers(-99, 99, size).astype(dtype) for _ in range(ranks)]


@pytest.mark.parametrize("where", EVERY, ids=lambda found: found.name.replace(" ", "_"))
def test_every_rank_gets_the_sum(where: topology.Topology) -> None:
    for schedule in topology.candidates(where):
        for size in SIZES:
            arrays = given(len(where.gpus), size)
            before = [array.copy() for array in arrays]
            for found in topology.all_reduce(schedule, arrays):
                numpy.testing.assert_array_equal(found, sum(before), err_msg=schedule.name)
            numpy.testing.assert_array_equal(arrays, before)  # the inputs stay as they are


@pytest.mark.parametrize("name", ["pcie4", "p3", "2xpcie4-25gbe"])
def test_all_orders_of_the_steps_give_the_same(name: str) -> None:
    """Ready steps run in a random order, so that only `Progress` holds steps back."""
    where, draw = topology.named(name), random.Random(3)
    for schedule in topology.candidates(where):
        if len(schedule) > 500:
            continue
        arrays = given(len(where.gpus), 77)
        order, progress = [], Progress(schedule)
        ready = progress.ready().tolist()
        while ready:
            step = ready.pop(draw.randrange(len(ready)))
            order.append(step)
            ready += progress.finish(numpy.array([step])).tolist()
        assert sorted(order) == list(range(len(schedule)))
        rows = type(schedule.steps)(*(column[order] for column in schedule.steps))
        other = Schedule(schedule.name, schedule.places, schedule.ranks, schedule.shares, rows)
        for found in topology.all_reduce(other, arrays):
            numpy.testing.assert_array_equal(found, sum(arrays), err_msg=schedule.name)


def waits(schedule: Schedule) -> list[set[int]]:
    """Which earlier steps each step waits for: the rule, applied to every pair."""
    rows = [list(map(int, row)) for row in zip(*schedule.steps, strict=True)]
    found: list[set[int]] = []
    for later, (source, target, first, count, add, channel) in enumerate(rows):
        before = set()
        for earlier, (other, place, begin, many, added, way) in enumerate(rows[:later]):
            shared = first < begin + many and begin < first + count
            wrote = shared and place == source
            read = shared and other == target
            both = shared and place == target and not (add and added)
            if wrote or read or both or (other, place, way) == (source, target, channel):
                before.add(earlier)
        found.append(before)
    return found


def drawn(seed: int) -> Schedule:
    """Random steps with ranges of pieces; they need not compute a sum."""
    draw = random.Random(seed)
    rows = []
    for _ in range(draw.randrange(1, 40)):
        source, target = draw.sample(range(4), 2)
        first = draw.randrange(5)
        count = draw.randrange(1, 6 - first)
        channel = draw.randrange(2)
        rows.append(
            steps(source, target, first, count=count, add=draw.random() < 0.6, channel=channel)
        )
    return Schedule("drawn", tuple("abcd"), 4, numpy.full(5, 0.2), joined(rows))


@pytest.mark.parametrize("seed", range(40))
def test_steps_wait_for_what_the_rule_says(seed: int) -> None:
    """A step is ready once all steps that it waits for by the rule have ended, not before."""
    schedule, draw = drawn(seed), random.Random(seed)
    expected, progress = waits(schedule), Progress(schedule)
    done: set[int] = set()
    ready = set(progress.ready().tolist())
    while len(done) < len(schedule):
        may = {s for s in range(len(schedule)) if s not in done and expected[s] <= done}
        assert ready == may
        some = draw.sample(sorted(ready), draw.randrange(1, len(ready) + 1))
        done.update(some)
        ready -= set(some)
        new = progress.finish(numpy.array(some)).tolist()
        assert len(set(new)) == len(new)
        ready.update(new)
    assert not ready


def test_rounds_of_the_schedules() -> None:
    p3 = topology.p3()
    assert {s.name: int(rounds(s).max()) + 1 for s in topology.candidates(p3)} == {
        "one device": 2, "cpu": 2, "pieces": 2, "servers": 2,
        "ring": 14, "ring both ways": 14,  # 2 (n - 1)
        "tree": 6, "tree, 4 chunks": 9, "tree, 16 chunks": 21, "tree, 64 chunks": 69,
    }  # fmt: skip


def test_a_ring_sends_the_least_there_can_be() -> None:
    """Each rank sends 2 (n - 1)/n tensors: Patarasu and Yuan, 2009."""
    for count in (2, 3, 8):
        schedule = topology.ring(topology.fleet(count))
        sent = numpy.bincount(schedule.steps.source, schedule.sent(), count)
        numpy.testing.assert_allclose(sent, 2 * (count - 1) / count)
        assert len(schedule) == 2 * (count - 1) * count


@pytest.mark.parametrize("size", range(2, 40))
def test_two_trees_share_the_work(size: int) -> None:
    """Nodes have at most two children in each tree; hardly any is an inner node of both."""
    inside = []
    for parents in two_trees(size):
        assert parents.count(-1) == 1
        children = [parents.count(number) for number in range(size)]
        assert max(children) <= 2
        for number in range(size):
            depth, above = 0, number
            while parents[above] >= 0:
                above, depth = parents[above], depth + 1
            assert depth <= int(numpy.log2(size)) + 1
        inside.append({number for number, count in enumerate(children) if count})
    assert len(inside[0] & inside[1]) <= 1 + size % 2


def test_machines_send_a_tensor_once_between_each_other() -> None:
    where = topology.named("4xp3-25gbe")
    schedule = topology.hierarchical(where)
    found = topology.simulate(schedule, where, 8e6)
    wires = [i for i, link in enumerate(where.links) if "GbE" in link.kind]
    overhead = 6 * 16 * 1e-6 * 25e9 / 8  # of the messages of 16 tracks, there and back
    for wire in wires:
        assert found.carried[2 * wire] == pytest.approx(2 * 3 / 4 * 8e6 + overhead)


# --- arrays


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "complex64", "bool"])
def test_dtypes_and_shapes_stay(dtype: str) -> None:
    where = topology.pcie()
    arrays = [array.reshape(3, 5) for array in given(4, 15, dtype)]
    for schedule in topology.candidates(where):
        for found in topology.all_reduce(schedule, arrays):
            assert found.dtype == dtype
            assert found.shape == (3, 5)
    numpy.testing.assert_allclose(found, arrays[0] + arrays[1] + arrays[2] + arrays[3], rtol=1e-2)


def test_arrays_that_lie_otherwise_in_memory() -> None:
    where = topology.pcie()
    arrays = [numpy.arange(24.0).reshape(4, 6).T[::2] for _ in range(4)]
    for found in topology.all_reduce(topology.ring(where), arrays):
        numpy.testing.assert_array_equal(found, 4 * arrays[0])
    scalars = topology.all_reduce(topology.ring(where), [numpy.array(i) for i in range(4)])
    assert [found[()] for found in scalars] == [6] * 4


def test_arrays_that_do_not_fit_are_refused() -> None:
    schedule = topology.ring(topology.pcie())
    with pytest.raises(TopologyError, match="3 arrays for 4 ranks"):
        topology.all_reduce(schedule, [numpy.zeros(2)] * 3)
    with pytest.raises(ShapeError, match="the ranks have arrays of"):
        topology.all_reduce(schedule, [numpy.zeros(2)] * 3 + [numpy.zeros(3)])
    with pytest.raises(ShapeError, match="float32"):
        topology.all_reduce(schedule, [numpy.zeros(2)] * 3 + [numpy.zeros(2, "float32")])
    with pytest.raises(ArgumentError, match="rank 3 has a list, which is not an array"):
        topology.all_reduce(schedule, [*[numpy.zeros(2)] * 3, [0.0, 0.0]])


# --- what is refused


def test_schedules_that_cannot_be() -> None:
    one = steps(0, 1, 0, add=True)
    whole, places = numpy.ones(1), ("a", "b")
    for name, value in (
        ("source", 2), ("target", 0), ("source", -1), ("first", 1), ("first", -1), ("pieces", 2),
        ("pieces", 0),
    ):  # fmt: skip
        wrong = one._replace(**{name: numpy.array([value])})
        with pytest.raises(TopologyError, match="a step names a place or a piece"):
            Schedule("wrong", places, 2, whole, wrong)
    with pytest.raises(TopologyError, match="do not add up to 1"):
        Schedule("wrong", places, 2, whole / 2, one)
    with pytest.raises(TopologyError, match="3 ranks, 2 places"):
        Schedule("wrong", places, 3, whole, one)
    assert Schedule("right", places, 2, whole, one).line(0) == "a sends piece 0 to b, added"


def test_topologies_that_lack_the_places() -> None:
    fleet = topology.fleet(4)
    for wrong in (topology.cpu, topology.servers):
        with pytest.raises(TopologyError, match="no host"):
            wrong(fleet)
    with pytest.raises(TopologyError, match="at least two machines"):
        topology.hierarchical(topology.p3())
    with pytest.raises(TopologyError, match=r"\[1, 3\] GPUs"):
        topology.hierarchical(topology.fleet(4, per_rack=3))
    with pytest.raises(TopologyError, match="'star' inside"):
        topology.hierarchical(topology.named("2xp3-25gbe"), "star")
    with pytest.raises(UnknownNameError):
        topology.one_device(topology.p3(), "gpu9")
    with pytest.raises(UnknownNameError):
        topology.servers(topology.p3(), ["cpu7"])
    with pytest.raises(TopologyError, match="cannot sum at pcie0, a switch named 1 times"):
        topology.one_device(topology.p3(), "pcie0")
    with pytest.raises(TopologyError, match="named 2 times"):
        topology.servers(topology.p3(), ["cpu0", "cpu0"])
    with pytest.raises(TopologyError, match="it must name all 8 exactly once"):
        topology.tree(topology.p3(), along=["gpu0"])
    nothing = topology.Topology("nothing", [], [])
    some = topology.Ring((), 1.0)
    for use in (
        topology.Planner, topology.candidates, topology.one_device, topology.pieces, topology.ring,
        topology.tree, topology.chain, lambda where: topology.ring(where, along=[some]),
        lambda where: topology.rings(where, []),
    ):  # fmt: skip
        with pytest.raises(TopologyError, match="no GPU"):
            use(nothing)


@pytest.mark.parametrize("chunks", [0, -1, 1.5, "2"])
@pytest.mark.parametrize("make", [topology.chain, topology.tree])
def test_numbers_of_chunks_that_cannot_be(make: Any, chunks: Any) -> None:
    with pytest.raises(TopologyError, match=f"{chunks!r} chunks; give a whole number, 1 or more"):
        make(topology.p3(), chunks)
    assert len(make(topology.p3(), numpy.int64(2)).shares) in (2, 4)

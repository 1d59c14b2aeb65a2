"""Ways to sum over several workers: which keep the order of ranks, which is chosen, and why."""

from __future__ import annotations

import math
import queue
import threading
from collections.abc import Callable
from typing import Any

import numpy
import pytest
from test_workers import Queues, Wire, request

from gemel import np, topology
from gemel.errors import UnknownNameError, WorkersError
from gemel.kvstore import measuring
from gemel.kvstore.agreement import Agreement
from gemel.kvstore.measuring import SIZES, measure
from gemel.kvstore.passing import Passing
from gemel.kvstore.ways import Table, Ways, links_of, ways_of
from gemel.kvstore.world import World


class Messages:
    """Messages between threads of this process, in order between any two of them."""

    def __init__(self, boxes: dict[tuple[int, int], queue.SimpleQueue[Any]], rank: int) -> None:
        self.boxes, self.rank = boxes, rank

    def start_send(self, rank: int, array: Any) -> Any:
        self.boxes[self.rank, rank].put(array.copy())

    def start_receive(self, rank: int, array: Any) -> Any:
        return rank, array

    def finish(self, begun: Any) -> None:
        for rank, array in filter(None, begun):
            array[...] = self.boxes[rank, self.rank].get(timeout=20)


def at_once(work: Callable[[int], Any], size: int) -> list[Any]:
    found: dict[int, Any] = {}
    threads = [
        threading.Thread(target=lambda r=rank: found.__setitem__(r, work(r)), daemon=True)
        for rank in range(size)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(found) == size, "a worker did not end"
    return [found[rank] for rank in range(size)]


def passed(schedule: Any, rows: list[Any], lengths: list[int]) -> list[Any]:
    size = len(rows)
    boxes = {(a, b): queue.SimpleQueue[Any]() for a in range(size) for b in range(size)}

    def work(rank: int) -> Any:
        row = rows[rank].copy()
        return Passing(schedule, rank).summed(row, lengths, Messages(boxes, rank))

    return at_once(work, size)


def in_order(rows: list[Any]) -> Any:
    total = rows[0].copy()
    for row in rows[1:]:
        total += row
    return total


def drawn(size: int, count: int) -> list[Any]:
    draw = numpy.random.default_rng(size)
    return [draw.normal(size=count).astype("float32") for _ in range(size)]


MACHINES = [(0,), (0, 0), (0, 0, 0), (0, 0, 2, 2), (0,) * 5, (0, 0, 0, 3, 3, 3), (0, 1, 0, 1)]


@pytest.mark.parametrize("machines", MACHINES)
def test_a_rank_does_its_part_of_every_schedule(machines: tuple[int, ...]) -> None:
    """All ranks get the same bits; ways that keep the order get those of a loop over the ranks."""
    rows = drawn(len(machines), 1003)
    expected, exact = in_order(rows), 0
    for way in ways_of(machines).values():
        if way.schedule is None:
            continue
        found = passed(way.schedule, rows, [1003])
        assert all((one == found[0]).all() for one in found), way.name
        numpy.testing.assert_allclose(found[0], expected, rtol=1e-5, atol=1e-6)
        same = bool((found[0] == expected).all())
        assert same or not way.in_order, way.name
        exact += same
        if len(machines) > 3 and not way.in_order:
            assert not same, f"{way.name} keeps the order of ranks after all"
    assert exact or len(machines) == 1


def test_which_schedules_keep_the_order_of_ranks() -> None:
    four, two = links_of((0,) * 4), links_of((0,) * 2)
    kept = {s.name for s in topology.candidates(four) if topology.keeps_order(s)}
    assert kept == {"one device", "pieces"}
    assert topology.keeps_order(topology.chain(four, 3))
    assert all(map(topology.keeps_order, topology.candidates(two)))
    last = topology.one_device(four, "rank 3")  # parts are sorted where they meet
    assert topology.keeps_order(last)


@pytest.mark.parametrize("name", ["ring", "tree", "chain", "direct"])
def test_bits_do_not_depend_on_what_travels_together(name: str) -> None:
    schedule = ways_of((0,) * 4)[name].schedule
    lengths = [1, 0, 500, 7, 333]
    rows = drawn(4, sum(lengths))
    together = passed(schedule, rows, lengths)
    begin = 0
    for length in lengths:
        part = slice(begin, begin + length)
        alone = passed(schedule, [row[part] for row in rows], [length])
        for one, other in zip(together, alone, strict=True):
            numpy.testing.assert_array_equal(one[part], other)
        begin += length


def test_integers_and_nothing_at_all() -> None:
    ring = topology.ring(links_of((0,) * 3))
    for count in (0, 1, 2):
        rows = [numpy.full(count, 100 + rank, "int8") for rank in range(3)]
        assert [r.tolist() for r in passed(ring, rows, [count])] == [[47] * count] * 3  # 303 - 256


# ---- what is measured


class Clocked:
    """A wire of one process, on which each way takes its time on a made-up clock."""

    rank = 0

    def __init__(self, costs: dict[str, tuple[float, float]]) -> None:
        self.costs, self.now, self.tried = costs, 0.0, set[tuple[str, int]]()

    def gathered(self, row: Any) -> Any:
        return row[None]

    def broadcast(self, row: Any) -> Any:
        return row

    def summed(self, row: Any, way: str, lengths: Any) -> Any:
        assert lengths == [row.size]
        fixed, each = self.costs[way]
        self.now += fixed + each * row.nbytes
        self.tried.add((way, row.nbytes))
        return row

    def measured(self, limit: float) -> Table:
        return measure(self, list(self.costs), limit, lambda: self.now)


QUICK_SMALL, QUICK_LARGE = (1e-5, 4e-9), (1e-4, 1e-9)


def test_times_are_interpolated_between_measurements() -> None:
    wire = Clocked({"gather": QUICK_SMALL, "pieces": QUICK_LARGE})
    table = wire.measured(10.0)
    assert {name: [size for size, _ in points] for name, points in table.measured.items()} == {
        "gather": list(SIZES), "pieces": list(SIZES)
    }  # fmt: skip
    for size in (4096, 100_000, 1e6, 16e6):
        assert table.seconds("gather", size) == pytest.approx(1e-5 + 4e-9 * size, rel=1e-6)
    assert table.seconds("gather", 1) == pytest.approx(1e-5 + 4e-9 * 4096)
    assert table.seconds("ring", 1) is None
    ways = Ways((0,) * 4)
    ways.table = table
    crossing = 9e-5 / 3e-9  # 30 KB
    assert ways.choose("ranks", 0.8 * crossing) == "gather"
    assert ways.choose("ranks", 1.2 * crossing) == "pieces"


def test_measuring_takes_no_longer_than_allowed() -> None:
    costs = {"gather": (1e-3, 1e-7), "pieces": (1e-3, 1e-7), "chain": (1e-1, 1e-7)}
    wire = Clocked(costs)
    table = wire.measured(1.8)
    assert wire.now < 1.8
    assert table.reach("gather") == table.reach("pieces") == 1 << 20  # 4 MB would take 1.7 s
    assert table.reach("chain") == SIZES[0]  # a hundred times as slow
    assert Clocked(costs).measured(0.0).measured == {}
    ways = Ways((0,) * 4)
    ways.table = Table({"gather": [(4096.0, 1.0)], "pieces": [(4096.0, 2.0), (32768.0, 2.0)]})
    assert ways.choose("ranks", 4000) == "gather"
    row = next(line for line in ways.explain("ranks").splitlines() if line.startswith("gather"))
    assert row.split()[1:5] == ["kept", "1", "s", "-"]
    assert ways.choose("ranks", 5000) == "pieces"  # gather was not measured there


def test_ways_that_do_not_keep_the_order_are_taken_only_if_allowed() -> None:
    ways = Ways((0,) * 4)
    names = [name for name, way in ways.known.items() if way.in_order]
    assert names == ["gather", "pieces", "chain", "direct"]
    assert ways.choose("ranks", 1000) == "gather"  # nothing has been measured
    assert ways.choose("ranks", 100_000) == "pieces"
    times = {name: [(4096.0, 1e-3)] for name in ways.known} | {"ring": [(4096.0, 1e-4)]}
    ways.table = Table({**times, "mpi": [(4096.0, 0.97e-4)]})
    assert ways.choose("any", 4096) == "mpi"
    assert ways.choose("ranks", 4096) == "gather"
    assert Ways((0, 0)).known["ring"].in_order  # two ranks have only one order
    nearly = {"gather": [(4096.0, 1.15e-4)], "chain": [(4096.0, 1e-4)]}
    slow = Ways((0,) * 4)
    slow.table = Table(nearly)
    assert slow.choose("ranks", 4096) == "gather"  # gather keeps the interpreter free
    slow.table = Table({**nearly, "gather": [(4096.0, 1.4e-4)]})
    assert slow.choose("ranks", 4096) == "chain"
    said = ways.explain("any")
    assert "4 workers on 1 machine" in said and said.endswith(
        "to repeat this run's bits: schedule mpi"
    )
    assert "chosen by 'ranks'" in ways.explain("ranks")
    row = next(line for line in said.splitlines() if line.startswith("ring"))
    assert row.split()[1:4] == ["-", "100", "us"]


def test_rules() -> None:
    ways = Ways((0,) * 3)
    ways.set_rule(1, "gather:1000, ring:5000 ,mpi")
    sizes = {"gather": 1000, "ring": 5000, "mpi": 5001}
    assert {ways.choose(ways.rule(1), size): size for size in sizes.values()} == sizes
    assert ways.rule(2) == "ranks"
    assert ways.repeatable("gather:4096,ring") == "gather:4096,ring"
    with pytest.raises(UnknownNameError, match=r"'rinf'.*ring"):
        ways.check("rinf")
    with pytest.raises(UnknownNameError, match=r"unknown schedule None"):
        ways.check(None)  # type: ignore[arg-type]
    for wrong in (
        "gather,ring",
        "gather:10",
        "gather:-1,ring",
        "gather:x,ring",
        "any,ring",
        "ring:5,ranks",
    ):
        with pytest.raises(WorkersError, match="as in gather:65536,ring"):
            ways.check(wrong)
    with pytest.raises(UnknownNameError):
        ways.check("hierarchical")  # all workers are on one machine
    assert Ways((0, 0, 2, 2)).check("hierarchical") == "hierarchical"


def test_one_worker_accepts_the_ways_of_several() -> None:
    """Nothing is sent, so a job need not change its settings to run alone."""
    ways = Ways((0,))
    several = set(ways_of((0, 0, 1, 1), sockets=True))
    for name in several - set(ways.known):
        for rule in (name, f"gather:4096,{name}", f"{name}:4096,pieces"):
            ways.set_rule(1, rule)
            assert ways.rule(1) == rule and ways.group(request("w", bytes=1 << 20)) != name
        assert ways.choose(name, 1 << 20) == "gather"
        assert f"chosen by {name!r}" in ways.explain(name)
    with pytest.raises(UnknownNameError, match=r"'rinf'; did you mean 'ring'"):
        ways.check("rinf")
    with pytest.raises(WorkersError, match="as in gather:65536,ring"):
        ways.check("ring,gather")


def test_requests_with_the_same_way_are_sent_together() -> None:
    ways, agreed = Ways((0,) * 3), Agreement(1, 10.0)
    ways.set_rule(1, "gather:100,ring:5000,mpi")
    for name, size in zip("abcdef", (8, 200, 100, 300, 6000, 6000), strict=True):
        agreed.announce(0, request(name, bytes=size), 0.0)
    agreed.announce(0, request("g", store=2), 0.0)
    went = []
    while found := agreed.next(ways.group):
        way = ways.way(ways.group(found[0]), sum(one.bytes for one in found))
        went.append((way.name, [one.name for one in found]))
    named = [(way, "".join(name.split("'")[1] for name in names)) for way, names in went]
    assert named == [("gather", "ac"), ("ring", "bd"), ("mpi", "e"), ("mpi", "f"), ("gather", "g")]


class Slow(Wire):
    """A wire on which gathering is slow for worker 2, and a chain is fast for all."""

    def summed(self, row: Any, way: str, lengths: Any) -> Any:
        if way not in ("chain", "gather") or (way == "gather" and self.rank == 2):
            threading.Event().wait(0.01)
        return super().summed(row, way, lengths)


def test_all_workers_have_the_same_measurements_and_choices(monkeypatch: Any) -> None:
    monkeypatch.setattr(measuring, "SIZES", (4096,))
    monkeypatch.setenv("GEMEL_MEASURE_SECONDS", "20")
    queues = Queues(3)
    worlds = [World(Slow(queues, rank), 60.0) for rank in range(3)]
    for one in [world.issue(0, "the measurement", "measure") for world in worlds]:
        one.wait_to_read()
    tables = [world.ways.table.measured for world in worlds]
    assert tables[0] == tables[1] == tables[2] and len(tables[0]) == len(worlds[0].ways.known)
    assert min(tables[0], key=lambda name: tables[0][name][0][1]) == "chain"
    totals = [world.issue(1, "key 1", "sum", [np.ones(9)]) for world in worlds]
    assert [total.tolist() for total in totals] == [[3.0] * 9] * 3
    assert [dict(world.went) for world in worlds] == [{"chain": 1}] * 3
    closing = [threading.Thread(target=world.close) for world in worlds]
    for thread in closing:
        thread.start()
    for thread in closing:
        thread.join(30)
        assert not thread.is_alive()


class LateTo(Wire):
    """A wire of 10 ms. A worker is late to some tries, and then everything is already there."""

    tries = 0

    def summed(self, row: Any, way: str, lengths: Any) -> Any:
        self.tries += 1
        if way == "gather":
            threading.Event().wait(0.0 if self.tries % 3 == self.rank else 0.01)
        return super().summed(row, way, lengths)

    def gathered(self, row: Any) -> Any:
        return numpy.stack([row] * 2) if row.dtype == "float32" else super().gathered(row)


def test_late_workers_do_not_make_the_network_look_fast(monkeypatch: Any) -> None:
    """Each worker is late to one try, but in every try some worker sees the wire's time."""
    monkeypatch.setattr(measuring, "SIZES", (4096,))
    queues = Queues(2)
    wires = [LateTo(queues, rank) for rank in range(2)]
    tables: list[Any] = [None, None]

    def run(rank: int) -> None:
        tables[rank] = measuring.measure(wires[rank], ["gather"], 20.0)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    for table in tables:
        assert table.seconds("gather", 4096) >= 0.01
        assert 0.005 < table.waiting("gather", 4096) <= table.seconds("gather", 4096)


def test_sockets_are_first_where_there_are_some() -> None:
    assert next(iter(ways_of((0, 1), sockets=True))) == "lines" and "lines" not in ways_of((0, 1))
    ways = Ways((0, 1), sockets=True)
    alike = [(4096.0, 1e-4), (float(1 << 20), 1e-2)]
    ways.table = Table({"lines": alike, "gather": alike})
    assert ways.choose("ranks", 1 << 19) == "lines"
    assert ways.waiting("ranks", 1 << 20) == 1e-2 and Ways((0, 1)).waiting("ranks", 8) is None


def test_buckets_follow_from_what_carries_them() -> None:
    """This thread's sockets carry agreed sums; sums sent by themselves have their own row."""
    ways = Ways((0, 1), sockets=True)
    quick, slow = ([(4096.0, each), (float(1 << 20), 250 * each)] for each in (1e-5, 3e-5))
    ways.table = Table({"lines": quick, "gather": slow, "courier": slow})
    assert ways.choose("ranks", 1 << 20) == "lines"
    assert ways.bucket("ranks", 1 << 20) is None  # the courier is more than twice as slow
    assert ways.bucket("lines", 1 << 20) == (1 << 20) / 5
    waits = {"lines": quick, "gather": slow, "courier": [(4096.0, 0.0), (float(1 << 20), 2.7e-3)]}
    ways.table = Table({"lines": quick, "gather": slow, "courier": quick}, waits)
    assert ways.bucket("ranks", 1 << 20) == (1 << 20) / 3
    assert ways.blocks("ranks", 1 << 20) == 3
    waits["courier"] = [(4096.0, 0.0), (float(1 << 20), 1.9e-3)]
    assert ways.bucket("ranks", 1 << 20) == math.inf  # another bucket takes as much of the core


def test_a_worker_that_dies_while_all_measure() -> None:
    queues = Queues(2)
    worlds = [World(Wire(queues, rank), 0.5) for rank in range(2)]
    queues.dead = {1}
    for one in [world.issue(0, "the measurement", "measure") for world in worlds]:
        with pytest.raises(WorkersError, match=r"the measurement: all workers had come.*0\.5 s"):
            one.wait_to_read()

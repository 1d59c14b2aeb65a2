"""Gradients of simulated GPUs over a topology's links: sums, bytes, times, failures."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy
import pytest

from gemel import autograd, cpu, device, gluon, gpu, init, kvstore, np, npx, topology
from gemel.errors import DeviceError, GemelError, ShapeError, TopologyError, UnknownNameError
from gemel.gluon import nn
from gemel.links import Link, Node, Topology
from gemel.topology.moving import Mover

LOSS = gluon.loss.SoftmaxCrossEntropyLoss()


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    yield
    npx.waitall()
    device.simulate(0)


def simulated(name: str, factor: float = 1.0) -> tuple[Topology, list[Any]]:
    where = device.topology(name).slower(factor)
    device.simulate(where)
    return where, [gpu(number) for number in range(device.num_gpus())]


def rows(count: int, size: int, dtype: str = "float32") -> list[Any]:
    draw = numpy.random.default_rng(count)
    return [(8 * draw.normal(size=size)).astype(dtype) for _ in range(count)]


def totals(store: Any, values: list[Any], places: list[Any]) -> list[Any]:
    return [found.asnumpy() for (found,) in store.totals(["w"], [values], places)]


MACHINES = ["pcie4", "pcie4-one-switch", "p3", "2xpcie4-25gbe"]


def trained(places: list[Any], **settings: Any) -> list[Any]:
    np.random.seed(3)
    net = nn.HybridSequential()
    net.add(nn.Dense(40, activation="relu", in_units=12), nn.Dense(5, in_units=40))
    net.initialize(init.Xavier(), ctx=places)
    net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.01}, **settings)
    draw = numpy.random.RandomState(0)
    for _ in range(4):
        x = np.array(draw.normal(size=(32, 12)), dtype="float32")
        y = np.array(draw.randint(0, 5, size=(32,)))
        parts = [gluon.utils.split_and_load(whole, places) for whole in (x, y)]
        with autograd.record():
            losses = [LOSS(net(a), b) for a, b in zip(*parts, strict=True)]
        autograd.backward(losses)
        trainer.step(32)
    found = []
    for parameter in net.collect_params().values():
        replicas = [array.asnumpy() for array in parameter.list_data()]
        assert all((replica == replicas[0]).all() for replica in replicas)
        found.append(replicas[0])
    return found


@pytest.mark.parametrize("name", MACHINES)
def test_training_over_a_topology_is_that_over_a_link_each(name: str) -> None:
    """To 1e-5, because schedules add in other orders; a second run has the same bits."""
    _, places = simulated(name)
    store = kvstore.create("device")
    over = trained(places, kvstore=store)
    assert store.carried()
    again = trained(places, kvstore="device")
    device.simulate(len(places), 100, 0)
    alone = trained(places, kvstore=kvstore.create("device"))
    for one, other, link in zip(over, again, alone, strict=True):
        assert (one == other).all()
        numpy.testing.assert_allclose(one, link, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", MACHINES)
def test_sums_have_the_bits_of_the_planners_schedule(name: str) -> None:
    where, places = simulated(name)
    store, planner = kvstore.create("device"), topology.Planner(where)
    before: dict[Any, float] = {}
    for size in (1, 1_000, 100_000):
        given = rows(len(places), size)
        schedule = planner.choose(4 * size).schedule
        values = [np.array(row, device=place) for row, place in zip(given, places, strict=True)]
        found = totals(store, values, places)
        for one, expected in zip(found, topology.all_reduce(schedule, given), strict=True):
            numpy.testing.assert_array_equal(one, expected, err_msg=schedule.name)
        simulation = topology.simulate(schedule, where, 4 * size)
        carried = store.carried()
        for number, nbytes in enumerate(simulation.carried):
            link = where.links[number // 2]
            ends = (link.one, link.other) if number % 2 == 0 else (link.other, link.one)
            assert carried.get(ends, 0.0) - before.get(ends, 0.0) == pytest.approx(nbytes)
        before = carried


@pytest.mark.parametrize("name", ["pcie4-one-switch", "p3"])
def test_a_sum_takes_the_links_time(name: str) -> None:
    """Never less; in the best run hardly more, if the links are slow beside this machine."""
    where, places = simulated(name, 2000)
    seconds = topology.Planner(where).choose(8e5).seconds
    assert seconds > 0.02
    values = [np.ones((200_000,), device=place) for place in places]
    store, taken = kvstore.create("device"), []
    for _ in range(5):
        npx.waitall()
        begin = time.perf_counter()
        store.totals(["w"], [values], places)
        npx.waitall()
        taken.append(time.perf_counter() - begin)
        if taken[-1] < 1.5 * seconds:
            break
    assert min(taken) >= 0.99 * seconds
    assert min(taken) < 3 * seconds, taken


def test_gpus_in_a_ring_sum_along_it() -> None:
    """GPUs forward no messages, so other schedules have no routes there."""
    nodes = [Node(f"g{number}", "gpu") for number in range(4)]
    around = [Link(f"g{number}", f"g{(number + 1) % 4}", 10.0) for number in range(4)]
    device.simulate(Topology("around", nodes, around))
    places = [gpu(number) for number in range(4)]
    store = kvstore.create("device")
    values = [np.full((3,), number, device=place) for number, place in enumerate(places)]
    assert [one.tolist() for one in totals(store, values, places)] == [[6.0] * 3] * 4
    assert len(store.carried()) == 8


def test_a_store_that_adds_up_on_the_cpu_sends_everything_there() -> None:
    where, places = simulated("pcie4")
    values = [np.ones((1000,), device=place) for place in places]
    store = kvstore.create("local")
    assert [one.sum() for one in totals(store, values, places)] == [4000] * 4
    assert store.carried()["pcie0", "cpu0"] == store.carried()["cpu0", "pcie1"] == 8000
    assert kvstore.create("local").carried() == {}
    assert "p3" not in store.explain() and where.name in store.explain()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int32", "int8", "uint64"])
def test_dtypes_and_shapes(dtype: str) -> None:
    _, places = simulated("pcie4")
    store = kvstore.create("device")
    for shape in ((), (0, 3), (1,), (3, 5, 2)):
        values = [
            np.full(shape, 1 + rank, dtype=dtype, device=place) for rank, place in enumerate(places)
        ]
        (found,), *others = store.totals(["w"], [values], places)
        assert str(found.dtype) == dtype and found.shape == shape and found.device == gpu(0)
        assert (found.astype("float64").asnumpy() == 10).all()
        assert [one.device for (one,) in others] == places[1:]
    square = [np.arange(12, device=place).reshape(3, 4)[:, 1] + 0.0 for place in places]
    views = [np.arange(12.0, device=place).reshape(3, 4)[:, 1] for place in places]
    assert (totals(store, views, places)[2] == 4 * square[0].asnumpy()).all()


@pytest.mark.parametrize("size", [0, 7, 1001])
def test_a_mover_runs_every_schedule(size: int) -> None:
    where = device.topology("2xpcie4-25gbe")
    mover = Mover(where)
    given = rows(8, size)
    for schedule in [*topology.candidates(where), topology.chain(where)]:
        for found, expected in zip(
            mover.move(schedule, given), topology.all_reduce(schedule, given), strict=True
        ):
            numpy.testing.assert_array_equal(found, expected, err_msg=schedule.name)
    assert (given[0] == rows(8, size)[0]).all()


def test_some_of_the_gpus_in_any_order() -> None:
    _, places = simulated("p3")
    store = kvstore.create("device")
    for some in ([5, 2, 7], [1, 0], [3]):
        chosen = [gpu(number) for number in some]
        values = [np.full((50,), 10.0**n, device=gpu(number)) for n, number in enumerate(some)]
        found = store.totals(["w"], [values], chosen)
        assert [one.device for (one,) in found] == chosen
        assert all((one.asnumpy() == sum(10.0**n for n in range(len(some)))).all()
                   for (one,) in found)  # fmt: skip
    # If one gradient is stale, or one is on the CPU, sums work as without a topology.
    values = [np.full((5,), 1.0, device=place) for place in places[:3]]
    assert [one.tolist() for (one,) in store.totals(["w"], [values], places[:4])] == [[3] * 5] * 4
    mixed = [np.ones((5,)), np.ones((5,), device=gpu(1))]
    assert [one.tolist() for (one,) in store.totals(["w"], [mixed], [cpu(), gpu(1)])] == [
        [2] * 5
    ] * 2
    with pytest.raises(ShapeError, match="different shapes"):
        store.totals(["w"], [[np.ones((n,), device=gpu(n)) for n in (1, 2)]], [gpu(1), gpu(2)])


def test_compressed_gradients_and_updates_on_the_store() -> None:
    _, places = simulated("pcie4")
    values = [np.full((4,), 1.0, device=place) for place in places]
    store = kvstore.create("device")
    store.set_gradient_compression({"type": "fp16"})
    assert [one.tolist() for (one,) in store.totals(["w"], [values], places)] == [[4.0] * 4] * 4
    assert store.carried() == {}
    over = trained(places, kvstore="device", update_on_kvstore=True)
    for one, other in zip(over, trained(places, kvstore="device"), strict=True):
        numpy.testing.assert_allclose(one, other, rtol=0, atol=1e-5)


def test_a_gradient_that_fails() -> None:
    _, places = simulated("pcie4")
    store = kvstore.create("device")
    values = [np.ones((4,), device=place) for place in places]
    bad = np.take(np.ones((4,), device=gpu(2)), np.array([9] * 4, device=gpu(2)), mode="raise")
    for (found,) in store.totals(["w"], [[*values[:2], bad, values[3]]], places):
        with pytest.raises(IndexError, match="out of bounds"):
            found.wait_to_read()
    with pytest.raises(IndexError):
        bad.wait_to_read()
    assert totals(store, values, places)[3].tolist() == [4.0] * 4


def test_sums_arrive_after_their_store_is_gone() -> None:
    _, places = simulated("pcie4", 1e4)
    store, before = kvstore.create("device"), threading.active_count()
    values = [np.ones((1000,), device=place) for place in places]
    found = [store.totals([key], [values], places)[0][0] for key in "ab"]
    del store
    gc.collect()
    assert [one.tolist() for one in found] == [[4.0] * 1000] * 2
    until = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < until:
        time.sleep(0.01)
    assert threading.active_count() <= before


def test_several_threads() -> None:
    _, places = simulated("pcie4")
    store, found = kvstore.create("device"), []

    def work(number: int) -> None:
        values = [np.full((100,), float(number), device=place) for place in places]
        found.append(totals(store, values, places)[0].tolist() == [4.0 * number] * 100)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert found == [True] * 4


def test_a_forked_process() -> None:
    _, places = simulated("pcie4")
    store = kvstore.create("device")
    values = [np.ones((10,), device=place) for place in places]
    assert totals(store, values, places)[0].tolist() == [4.0] * 10
    child = os.fork()
    if child == 0:
        os._exit(0 if totals(store, values, places)[1].tolist() == [4.0] * 10 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert totals(store, values, places)[2].tolist() == [4.0] * 10


@pytest.mark.parametrize("engine", ["threaded", "serial"])
def test_the_exit_with_sums_on_their_way(engine: str) -> None:
    program = """if True:
        from gemel import device, gpu, kvstore, np
        device.simulate(device.topology("pcie4").slower(3000))
        places = [gpu(n) for n in range(4)]
        values = [np.ones((20_000,), device=place) for place in places]
        store = kvstore.create("device")
        found = store.totals(["a", "b"], [values, values], places)
        print("issued", flush=True)
    """
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60,
        env={**os.environ, "GEMEL_ENGINE": engine},
    )  # fmt: skip
    assert (ended.returncode, ended.stdout) == (0, "issued\n"), ended.stderr


# ---- topologies that are simulated


def test_what_becomes_of_a_topology() -> None:
    where = device.topology("p3")
    device.simulate(where)
    assert device.num_gpus() == 8 and device.topology() is where
    assert device.simulated_topology() is where
    device.simulate(2)
    assert device.num_gpus() == 2 and device.topology().name == "simulated"
    assert device.simulated_topology() is None


def test_the_way_to_the_host() -> None:
    assert device.topology("p3").to_host("gpu0") == (16.0, 4.0)
    nodes = [Node("a", "gpu"), Node("b", "gpu"), *(Node(f"c{n}", "host") for n in range(2))]
    links = [Link("a", "b", 100.0), Link("a", "c0", 5.0, 1.0), Link("a", "c1", 7.0, 2.0)]
    mine = Topology("mine", nodes, links)
    assert mine.to_host("a") == (7.0, 2.0) and mine.to_host("b") is None
    device.simulate(mine)  # b gets the default link
    assert np.ones((3,), device=gpu(1)).tolist() == [1, 1, 1]


def test_slower_and_fewer() -> None:
    slow = device.topology("2xpcie4-25gbe").slower(4)
    link = next(link for link in slow.links if link.overhead)
    assert (link.bandwidth, link.latency, link.overhead) == (3.125 / 4, 40.0, 4.0)
    some = device.topology("p3").only(["gpu3", "gpu1"])
    assert some.gpus == ("gpu1", "gpu3") and len(some.hosts) == 2
    assert {frozenset(ln[:2]) for ln in some.links if ln.kind == "NVLink"} == {frozenset(some.gpus)}
    with pytest.raises(UnknownNameError, match="gpu9"):
        some.only(["gpu9"])
    for wrong in (0, -1, float("nan"), float("inf")):
        with pytest.raises(TopologyError, match="more than 0"):
            slow.slower(wrong)


def test_topologies_that_cannot_be_simulated() -> None:
    with pytest.raises(DeviceError, match="dgx2 has 16 GPUs; it must have 1 to 8"):
        device.simulate(device.topology("dgx2"))
    with pytest.raises(DeviceError, match=r"own speeds.*slower\(\)"):
        device.simulate(device.topology("p3"), 12)
    with pytest.raises(DeviceError, match="has 0 GPUs"):
        device.simulate(Topology("none", [Node("a", "host")], []))
    nodes = [Node("a", "gpu"), Node("b", "gpu")]
    device.simulate(Topology("apart", nodes, []))
    with pytest.raises(GemelError, match="no route from b to a"):
        totals(kvstore.create("device"), [np.ones(2, device=gpu(n)) for n in range(2)],
               [gpu(0), gpu(1)])  # fmt: skip

"""Topologies: what they consist of, what is refused, how messages are routed, their names."""

from __future__ import annotations

import doctest
import importlib
import math
import threading
from functools import partial
from typing import Any

import numpy
import pytest

import gemel
from gemel import device, topology
from gemel.errors import TopologyError, UnknownNameError
from gemel.links import Link, Node, Topology


def three(**changes: Any) -> Topology:
    """Two GPUs on a switch."""
    nodes = [Node("gpu0", "gpu"), Node("gpu1", "gpu"), Node("hub", "switch")]
    links = [Link("gpu0", "hub", 10.0, 1.0), Link("hub", "gpu1", 20.0, 2.0)._replace(**changes)]
    return Topology("three", nodes, links)


RING = topology.ring(topology.p3())


# --- what a topology is


@pytest.mark.parametrize("name", topology.NAMES)
def test_named_topologies_have_routes_between_all_gpus_and_hosts(name: str) -> None:
    found = topology.named(name)
    assert found.name == name
    numbers = numpy.array([found.number(one) for one in found.gpus + found.hosts])
    pairs = numpy.array(numpy.meshgrid(numbers, numbers)).reshape(2, -1)
    paths = topology.Routes(found).between(*pairs[:, pairs[0] != pairs[1]])
    assert (paths.latency > 0).all()
    assert (paths.width >= 1.25e9).all()


def test_the_figures_of_named_machines() -> None:
    p3 = topology.named("p3")
    wires = {frozenset((link.one, link.other)): link for link in p3.links}
    for gpu in p3.gpus:
        nvlinks = [link for ends, link in wires.items() if gpu in ends and "NVLink" in link.kind]
        assert sum(link.bandwidth for link in nvlinks) == 6 * 18  # six links each
        assert len(nvlinks) == 4
    assert [len(topology.named(n).gpus) for n in ("pcie4", "p3", "dgx2", "4xdgx2-10gbe")] == [
        4, 8, 16, 64,
    ]  # fmt: skip
    assert len(topology.named("pcie4").links) == len(topology.named("pcie4-one-switch").links) + 1
    network = [link for link in topology.named("2xp3-25gbe").links if "GbE" in link.kind]
    assert [link.bandwidth for link in network] == [25 / 8] * 2


def test_a_device_knows_topologies() -> None:
    assert device.topology("p3").gpus == topology.named("p3").gpus
    assert gemel.topology is topology
    with pytest.raises(UnknownNameError, match="did you mean 'dgx2'"):
        device.topology("dgx22")
    with pytest.raises(UnknownNameError, match="unknown topology 3"):
        topology.named(3)  # type: ignore[arg-type]
    with pytest.raises(UnknownNameError, match="unknown topology '0xp3-25gbe'"):
        device.topology("0xp3-25gbe")
    assert len(device.topology("3xpcie4-100gbe").machines) == 3


def test_machines_are_grouped() -> None:
    cluster = topology.named("2xpcie4-10gbe")
    assert cluster.machines == tuple(
        tuple(f"m{machine}.gpu{gpu}" for gpu in range(4)) for machine in range(2)
    )
    fleet = topology.fleet(95, per_rack=40)
    assert [len(rack) for rack in fleet.machines] == [40, 40, 15]


def test_it_shows_itself() -> None:
    assert repr(three()) == "<topology three: 2 GPUs, 1 switch, 2 links>"
    assert three(kind="wire").drawing().splitlines() == [
        "three: 2 GPUs, 1 switch, 2 links",
        "  gpu0  link 10 GB/s: hub",
        "  gpu1  wire 20 GB/s: hub",
        "  hub   link 10 GB/s: gpu0; wire 20 GB/s: gpu1",
    ]
    assert "m0 ... m39 (40)" in topology.fleet(40).drawing()
    assert repr(Topology("none", [], [])) == "<topology none: nothing, 0 links>"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bandwidth": 0}, "bandwidth of 0 GB/s; it must be positive"),
        ({"bandwidth": -1}, "bandwidth of -1 GB/s"),
        ({"bandwidth": math.nan}, "bandwidth of nan"),
        ({"bandwidth": math.inf}, "bandwidth of inf GB/s; it must be positive and finite"),
        ({"bandwidth": "3"}, "bandwidth of '3' GB/s"),
        ({"bandwidth": 1e300}, "finite: 1e-12 to 1e\\+12"),
        ({"bandwidth": 5e-324}, "bandwidth of 5e-324 GB/s"),
        ({"latency": 1e300}, "latency 1e\\+300 us; .*: 0 to 1e\\+12"),
        ({"latency": "3"}, "latency '3' us"),
        ({"latency": -1}, "latency -1 us; it must be finite and not negative"),
        ({"overhead": math.nan}, "overhead nan us"),
        ({"other": "hub"}, "connects a node with itself"),
        ({"other": "gpu0"}, "exists already"),
    ],
)
def test_links_no_machine_has_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        three(**change)


def test_unknown_nodes_and_kinds_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="unknown node of the topology three 'gpu2'"):
        three(other="gpu2")
    with pytest.raises(UnknownNameError, match="did you mean 'switch'"):
        Topology("wrong", [Node("a", "swich")], [])
    with pytest.raises(TopologyError, match="2 nodes are called 'a'"):
        Topology("twice", [Node("a", "gpu"), Node("a", "gpu")], [])
    with pytest.raises(UnknownNameError):
        topology.Routes(three()).route("gpu0", "gpu7")
    with pytest.raises(UnknownNameError, match="unknown node of the topology three 'gpu7'"):
        three().to_host("gpu7")


def test_what_is_no_node_or_link_is_refused() -> None:
    with pytest.raises(TopologyError, match="'gpu0' among the nodes is no Node"):
        Topology("wrong", ["gpu0"], [])  # type: ignore[list-item]
    with pytest.raises(TopologyError, match="None among the links is no Link"):
        Topology("wrong", [Node("a", "gpu")], None)  # type: ignore[arg-type]


@pytest.mark.parametrize("bandwidths", [(1e-12, 1e12), (1e12, 1e12), (1e-12, 1e-12)])
def test_the_slowest_and_the_fastest_links_are_planned(bandwidths: tuple[float, float]) -> None:
    """Sums of times end, and are finite."""
    links = [Link(f"gpu{i}", "host", width, 1e12, 1e12) for i, width in enumerate(bandwidths)]
    nodes = [Node("gpu0", "gpu"), Node("gpu1", "gpu"), Node("host", "host")]
    made = Topology("extreme", nodes, links)
    choice = topology.Planner(made).choose(1e6)
    found = topology.simulate(choice.schedule, made, 1e6).seconds
    assert 2e6 < found < 1e12 and found == pytest.approx(choice.seconds, rel=0.2)


def test_wrong_machines_are_refused() -> None:
    with pytest.raises(TopologyError, match="3 switches"):
        topology.pcie(3)
    with pytest.raises(UnknownNameError, match="unknown network '40gbe'"):
        topology.cluster(topology.p3(), 2, "40gbe")
    with pytest.raises(TopologyError, match="0 hosts"):
        topology.cluster(three(), 2)
    with pytest.raises(TopologyError, match="0 times p3"):
        topology.cluster(topology.p3(), 0)
    with pytest.raises(TopologyError, match="0 machines"):
        topology.fleet(0)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: topology.cluster(5, 2), "cluster: 5 is no topology"),
        (lambda: topology.cluster(topology.p3(), 1.5), "cluster: 1.5 machines; give a whole"),
        (lambda: topology.cluster(topology.p3(), "2"), "cluster: '2' machines; give a whole"),
        (lambda: topology.cluster(topology.p3(), 200), "at most 128 machines"),
        (lambda: topology.cluster(topology.p3(), 2, []), "unknown network"),
        (lambda: topology.fleet("a"), "fleet: 'a' machines; give a whole number"),
        (lambda: topology.fleet(4, per_rack=1.5), "fleet: 1.5 machines in a rack"),
        (lambda: topology.growth(1e6, [2, "a"]), "growth: 'a' machines"),
        (lambda: topology.growth(1e6, 2.5), "growth: 2.5 machines"),
        (lambda: topology.Planner(5), "planner: 5 is no topology"),
        (lambda: topology.Planner(topology.p3()).explain(5), "explain takes a list"),
        (lambda: topology.p3().slower("a"), "'a' times slower"),
        (lambda: topology.p3().to_host("gpu9"), "'gpu9'; did you mean"),
        (lambda: topology.ring(topology.p3(), along=[]), "ring: no ring along p3"),
        (lambda: topology.servers(topology.p3(), []), "servers: places is empty"),
        (lambda: topology.simulate(None, topology.p3(), 1e6), "None is no schedule"),
        (lambda: topology.simulate(RING, None, 1e6), "None is no topology"),
        (lambda: topology.Estimate("ring", topology.p3()), "'ring' is no schedule"),
        (lambda: topology.Estimate(RING, "p3"), "'p3' is no topology"),
        (lambda: topology.Planner(topology.p3(), [3]), "3 is no schedule"),
        (lambda: topology.Planner(topology.p3(), RING), "is no list of schedules"),
        (lambda: topology.Planner(topology.p3()).ranges("a"), "a tensor of 'a' bytes"),
        (lambda: topology.Planner(topology.p3()).ranges(0, 1), "give two numbers above 0"),
        (lambda: topology.Planner(topology.p3()).ranges(5, 1), "give two numbers above 0"),
        (lambda: topology.Planner(topology.p3()).buckets(5), "the sizes are 5; give a list"),
        (lambda: topology.Planner(topology.p3()).buckets([1e3], 5), "the times are 5; give a"),
        (lambda: topology.Routes(None), "routes: None is no topology"),
        (lambda: topology.all_reduce(None, []), "None is no schedule"),
        (lambda: topology.all_reduce(RING, 5), "ring: 5 is no list of arrays"),
        (lambda: topology.run(None, topology.p3(), []), "None is no schedule"),
        (lambda: topology.keeps_order(topology.p3()), "is no schedule"),
        (lambda: topology.candidates("p3"), "'p3' is no topology"),
        (lambda: topology.rings(topology.p3(), ["gpu9"]), "'gpu9'; did you mean"),
        *(
            (partial(make, "p3"), "'p3' is no topology")
            for make in (topology.chain, topology.cpu, topology.hierarchical, topology.one_device)
            + (topology.pieces, topology.ring, topology.servers, topology.tree)
        ),
    ],
)
def test_wrong_arguments_are_typed_errors(call: Any, said: str) -> None:
    with pytest.raises((TopologyError, UnknownNameError), match=said):
        call()


@pytest.mark.parametrize("module", ["execution", "growth", "planner", "rings", "simulator"])
def test_examples_in_docstrings(module: str) -> None:
    found = doctest.testmod(importlib.import_module(f"gemel.topology.{module}"))
    assert found.attempted and not found.failed


# --- routes


def test_routes_add_latency_and_keep_the_narrowest_bandwidth() -> None:
    found = topology.Routes(three()).route("gpu0", "gpu1")
    assert found.nodes == ("gpu0", "hub", "gpu1")
    assert found.width == 10e9
    assert found.latency == pytest.approx(3e-6)
    here = topology.Routes(three()).route("gpu0", "gpu0")
    assert here == (("gpu0",), 0.0, math.inf)


def test_routes_are_short_then_wide_and_avoid_gpus() -> None:
    routes = topology.Routes(topology.p3())
    assert routes.route("gpu0", "gpu3").nodes == ("gpu0", "gpu3")
    # No NVLink joins them, and GPUs forward nothing, so the route goes through both sockets.
    assert routes.route("gpu0", "gpu5").nodes == (
        "gpu0", "pcie0", "cpu0", "cpu1", "pcie2", "gpu5",
    )  # fmt: skip
    # Both routes have two links, but the NVSwitch is wider than the PCIe switch.
    assert topology.Routes(topology.dgx2()).route("gpu0", "gpu1").nodes[1] == "nvswitch"


def test_unreachable_nodes_are_an_error() -> None:
    nodes = [Node(name, "gpu") for name in ("a", "b", "c")]
    line = Topology("line", nodes, [Link("a", "b", 1.0), Link("b", "c", 1.0)])
    assert topology.Routes(line).route("a", "b").width == 1e9
    with pytest.raises(TopologyError, match=r"no route from a to c .*GPUs do not"):
        topology.Routes(line).route("a", "c")
    with pytest.raises(TopologyError, match="no route from"):
        topology.simulate(topology.pieces(line), line, 1e6)
    alone = Topology("alone", nodes[:2], [])
    with pytest.raises(TopologyError, match="no route"):
        topology.Planner(alone)


def test_threads_may_ask_for_routes_of_one_topology_each() -> None:
    p3, found = topology.p3(), []
    threads = [
        threading.Thread(target=lambda: found.append(topology.Planner(p3).choose(1e6).seconds))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3
    assert len(set(found)) == 1


# --- rings


def test_the_rings_of_a_p3_share_no_link() -> None:
    p3 = topology.p3()
    found = topology.rings(p3, p3.gpus)
    assert [ring.bandwidth for ring in found] == [36.0, 18.0]  # together three links of 18 GB/s
    wires = [
        frozenset(pair)
        for ring in found
        for pair in zip(ring.order, ring.order[1:] + ring.order[:1], strict=True)
    ]
    assert len(set(wires)) == len(wires) == len(p3.links) - 13  # all NVLinks, each once
    assert all(sorted(ring.order) == sorted(p3.gpus) for ring in found)


def test_rings_connect_near_neighbours() -> None:
    two = topology.named("2xp3-25gbe")
    (ring,) = topology.rings(two, two.gpus)
    assert [name[:2] for name in ring.order] == ["m0"] * 8 + ["m1"] * 8
    assert ring.bandwidth == 25 / 8
    assert str(ring).endswith("-> m0.gpu0   (3.125 GB/s)")
    one = topology.named("pcie4")
    assert topology.rings(one, ["gpu2"]) == [topology.Ring(("gpu2",), 0.0)]
    # Both neighbours' flows cross the link to the other switch, one in each direction.
    assert topology.rings(one, one.gpus)[0].bandwidth == 16

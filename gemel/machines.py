"""Named topologies: machines with several GPUs, and clusters of them.

The sources of the figures are in docs/topology.md. Bandwidths are in GB/s in each direction.
Latencies are round figures for a message that a program sends, not for a bare wire.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any

from gemel.errors import TopologyError, suggestion, unknown_name
from gemel.links import Link, Node, Topology

#: GB/s in each direction, microseconds of latency and of overhead, and a name for readers.
PCIE = (16.0, 2.0, 0.0, "PCIe")
SOCKETS = (20.0, 1.0, 0.0, "UPI")
NVLINK = (18.0, 2.0, 0.0, "NVLink")
NVLINKS = (36.0, 2.0, 0.0, "2 NVLinks")
NVSWITCH = (108.0, 1.0, 0.0, "6 NVLinks")

#: The cost of a message on an Ethernet link: microseconds of latency, and of occupying the link.
ETHERNET = (10.0, 1.0)
#: Networks by name: gigabits per second.
NETWORKS = {"10gbe": 10.0, "25gbe": 25.0, "100gbe": 100.0}

#: Planning takes a minute for a cluster of so many machines, and some for a fleet of so many, and
#: the time grows with the square of the number.
MOST_IN_CLUSTER, MOST_IN_FLEET = 128, 4096

#: Which pairs of GPUs of a p3.16xlarge are joined by one NVLink, and which by two.
CUBE_SINGLE = ((0, 1), (0, 2), (1, 3), (2, 6), (3, 7), (4, 5), (4, 6), (5, 7))
CUBE_DOUBLE = ((0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7))


def pcie(switches: int = 2) -> Topology:
    """Four GPUs behind one or two PCIe switches on one CPU."""
    if switches not in (1, 2):
        raise TopologyError(f"pcie: {switches} switches; the four GPUs need 1 or 2")
    nodes, links = _tree(gpus=4, switches=switches, sockets=1)
    return Topology("pcie4" if switches == 2 else "pcie4-one-switch", nodes, links)


def star(gpus: int, bandwidth: float, latency: float) -> Topology:
    """GPUs with one link each to one CPU, like the simulated GPUs; in GB/s and microseconds.

    A copy from one to another takes both links.
    """
    names = [f"gpu{number}" for number in range(gpus)]
    nodes = [*(Node(name, "gpu") for name in names), Node("cpu0", "host")]
    return Topology("simulated", nodes, [Link(n, "cpu0", bandwidth, latency) for n in names])


def p3() -> Topology:
    """AWS's p3.16xlarge: eight V100 joined as a cube mesh, each by six NVLinks to four others."""
    nodes, links = _tree(gpus=8, switches=4, sockets=2)
    links += [Link(f"gpu{a}", f"gpu{b}", *NVLINK) for a, b in CUBE_SINGLE]
    links += [Link(f"gpu{a}", f"gpu{b}", *NVLINKS) for a, b in CUBE_DOUBLE]
    return Topology("p3", nodes, links)


def dgx2() -> Topology:
    """NVIDIA's DGX-2: sixteen V100, each joined to all others through NVSwitches."""
    nodes, links = _tree(gpus=16, switches=4, sockets=2)
    nodes.append(Node("nvswitch", "switch"))
    links += [Link(f"gpu{gpu}", "nvswitch", *NVSWITCH) for gpu in range(16)]
    return Topology("dgx2", nodes, links)


def cluster(machine: Topology, count: int, network: str = "25gbe") -> Topology:
    """`count` identical machines, the first host of each on one switch. Nodes are named `m0.gpu3`.

    `network` is "10gbe", "25gbe" or "100gbe". Raises `TopologyError` for a machine without a host
    and for other than 1 to `MOST_IN_CLUSTER` machines, `UnknownNameError` for another network.
    """
    checked_topology("cluster", machine)
    _check_network(network)
    count = whole("cluster", "machines", count)
    if count < 1 or not machine.hosts:
        raise TopologyError(
            f"cluster: {count} times {machine.name}, which has {len(machine.hosts)} hosts; there "
            "must be at least one machine, and a host for the network"
        )
    if count > MOST_IN_CLUSTER:
        raise TopologyError(
            f"cluster: {count} times {machine.name}; at most {MOST_IN_CLUSTER} machines can be "
            "planned with their GPUs; for more, `fleet` counts each as one device"
        )
    nodes, links = [Node("network", "switch", -1)], []
    for number in range(count):
        nodes += [Node(f"m{number}.{node.name}", node.kind, number) for node in machine.nodes]
        for link in machine.links:
            ends = f"m{number}.{link.one}", f"m{number}.{link.other}"
            links.append(link._replace(one=ends[0], other=ends[1]))
        links.append(_ethernet(f"m{number}.{machine.hosts[0]}", "network", NETWORKS[network]))
    return Topology(f"{count}x{machine.name}-{network}", nodes, links)


def fleet(
    machines: int, per_rack: int = 40, network: str = "25gbe", uplink: float = 400.0
) -> Topology:
    """Many machines in racks; each machine is one device, which has already summed its own GPUs'
    gradients.

    A rack's switch is joined to the core by `uplink` gigabits per second; the latency is that of
    the machines' own links. Every rack is a `machine` of the topology: its devices are near.
    """
    _check_network(network)
    machines = whole("fleet", "machines", machines)
    per_rack = whole("fleet", "machines in a rack", per_rack)
    if machines < 1 or per_rack < 1:
        raise TopologyError(
            f"fleet: {machines} machines, {per_rack} in a rack; both must be at least 1"
        )
    if machines > MOST_IN_FLEET:
        raise TopologyError(f"fleet: {machines} machines; give at most {MOST_IN_FLEET}")
    racks = -(-machines // per_rack)
    nodes = [Node(f"m{number}", "gpu", number // per_rack) for number in range(machines)]
    nodes += [Node(f"rack{rack}", "switch", rack) for rack in range(racks)]
    speed = NETWORKS[network]
    links = [
        _ethernet(f"m{number}", f"rack{number // per_rack}", speed) for number in range(machines)
    ]
    if racks > 1:
        nodes.append(Node("core", "switch", -1))
        links += [
            Link(f"rack{rack}", "core", uplink / 8, 0.0, 0.0, f"{uplink:g} Gb/s uplink")
            for rack in range(racks)
        ]
    return Topology(f"{machines} machines on {network}", nodes, links)


#: Single machines by name.
MACHINES: dict[str, Callable[[], Topology]] = {
    "pcie4": pcie,
    "pcie4-one-switch": lambda: pcie(1),
    "p3": p3,
    "dgx2": dgx2,
}
#: All named topologies: the machines, and two and four of each on each network.
NAMES = tuple(MACHINES) + tuple(
    f"{count}x{machine}-{network}"
    for machine in MACHINES
    for count in (2, 4)
    for network in NETWORKS
)


def named(name: str) -> Topology:
    """Return the topology with that name: a machine (`p3`) or a cluster (`2xp3-25gbe`).

    Raises `UnknownNameError`, which suggests the nearest name, and `TopologyError` for more than
    `MOST_IN_CLUSTER` machines.
    """
    if not isinstance(name, str):
        raise unknown_name("topology", name, MACHINES)
    if name in MACHINES:
        return MACHINES[name]()
    found = re.fullmatch(r"([1-9]\d{0,18})x(.+)-([^-]+)", name)
    if found and found[2] in MACHINES and found[3] in NETWORKS:
        return cluster(MACHINES[found[2]](), int(found[1]), found[3])
    hint = suggestion(name, NAMES)
    raise (
        unknown_name("topology", name, MACHINES)
        if not hint
        else unknown_name("topology", name, NAMES)
    )


def checked_topology(name: str, given: object) -> Topology:
    """The argument of a function. Raises `TopologyError` unless it is a topology."""
    if isinstance(given, Topology):
        return given
    raise TopologyError(
        f"{name}: {given!r} is no topology; give one such as named('p3'), or describe another with "
        "gemel.links.Topology"
    )


def whole(name: str, what: str, number: Any) -> int:
    """A number of machines. Raises `TopologyError` unless it is whole."""
    if hasattr(number, "__index__"):
        return operator.index(number)
    raise TopologyError(f"{name}: {number!r} {what}; give a whole number")


def _check_network(network: object) -> None:
    if not isinstance(network, str) or network not in NETWORKS:
        raise unknown_name("network", network, NETWORKS)


def _ethernet(one: str, other: str, gigabits: float) -> Link:
    return Link(one, other, gigabits / 8, *ETHERNET, f"{gigabits:g} GbE")


def _tree(gpus: int, switches: int, sockets: int) -> tuple[list[Node], list[Link]]:
    """GPUs behind PCIe switches, switches on sockets, sockets joined."""
    nodes = [Node(f"gpu{gpu}", "gpu") for gpu in range(gpus)]
    nodes += [Node(f"pcie{switch}", "switch") for switch in range(switches)]
    nodes += [Node(f"cpu{socket}", "host") for socket in range(sockets)]
    links = [Link(f"gpu{gpu}", f"pcie{gpu * switches // gpus}", *PCIE) for gpu in range(gpus)]
    links += [
        Link(f"pcie{switch}", f"cpu{switch * sockets // switches}", *PCIE)
        for switch in range(switches)
    ]
    links += [Link(f"cpu{socket}", f"cpu{socket + 1}", *SOCKETS) for socket in range(sockets - 1)]
    return nodes, links

"""Topologies: GPUs, hosts and switches, and the links between them.

A topology is only a description; `gemel.topology` computes with it. `gemel.device.topology` returns
named ones; `Topology` describes any other.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple, TypeVar

from gemel.errors import TopologyError, unknown_name
from gemel.ranges import is_finite

T = TypeVar("T")

#: The least and the largest bandwidth in GB/s, and the largest latency in us. Nobody needs others,
#: and near the limits of floats the sums of times are wrong or have no end.
SLOWEST, FASTEST = 1e-12, 1e12
LATEST = 1e12
#: The kinds of nodes. Switches and hosts forward messages to other nodes, GPUs do not.
KINDS = ("gpu", "host", "switch")


class Node(NamedTuple):
    """A GPU, a host's CPU or a switch. Nodes with the same `machine` number are in one machine."""

    name: str
    kind: str
    machine: int = 0


class Link(NamedTuple):
    """A link between two nodes, which carries `bandwidth` GB/s in each direction at the same time.

    The first byte of a message takes `latency` microseconds. Each message occupies the link for
    `overhead` microseconds besides its bytes. `kind` is only descriptive.
    """

    one: str
    other: str
    bandwidth: float
    latency: float = 0.0
    overhead: float = 0.0
    kind: str = "link"

    def __str__(self) -> str:
        return f"{self.kind} {self.one} - {self.other}"


class Topology:
    """Nodes and the links between them.

    Raises `TopologyError` for an invalid description: two nodes with the same name, a link from a
    node to itself, two links between the same nodes, a bandwidth that is not positive (from 1e-12
    to 1e12 GB/s), a negative latency (at most 1e12 us), or what is no `Node` or `Link`;
    `UnknownNameError` for a link to an unknown node.
    """

    def __init__(self, name: str, nodes: Iterable[Node], links: Iterable[Link]) -> None:
        self.name = name
        self.nodes = _all("nodes", nodes, Node)
        self.links = _all("links", links, Link)
        self.numbers = {node.name: number for number, node in enumerate(self.nodes)}
        self._check_nodes()
        self._check_links()

    @property
    def gpus(self) -> tuple[str, ...]:
        """The names of the GPUs, in order: their positions are the ranks of a schedule."""
        return self._of("gpu")

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names of its hosts."""
        return self._of("host")

    @property
    def machines(self) -> tuple[tuple[str, ...], ...]:
        """The GPUs of each machine."""
        found: dict[int, list[str]] = {}
        for node in self.nodes:
            if node.kind == "gpu":
                found.setdefault(node.machine, []).append(node.name)
        return tuple(map(tuple, found.values()))

    def number(self, name: str) -> int:
        """Which node has that name. Raises `UnknownNameError`."""
        if name not in self.numbers:
            raise unknown_name(f"node of the topology {self.name}", name, self.numbers)
        return self.numbers[name]

    def without_latency(self) -> Topology:
        """A copy without latencies, in which only bytes take time."""
        links = [link._replace(latency=0.0, overhead=0.0) for link in self.links]
        return Topology(f"{self.name} without latency", self.nodes, links)

    def slower(self, factor: float) -> Topology:
        """A copy whose links are `factor` times slower, which makes communication easier to
        observe.

        Raises `TopologyError` for a factor that is not positive.
        """
        if not (is_finite(factor) and factor > 0):
            raise TopologyError(
                f"topology {self.name}: {factor!r} times slower; the factor must be more than 0"
            )
        links = [
            link._replace(
                bandwidth=link.bandwidth / factor,
                latency=link.latency * factor,
                overhead=link.overhead * factor,
            )
            for link in self.links
        ]
        return Topology(f"{self.name}, {factor:g} times slower", self.nodes, links)

    def only(self, gpus: Iterable[str]) -> Topology:
        """A copy with only these GPUs and their links. Raises `UnknownNameError`."""
        kept = {self.nodes[self.number(name)].name for name in gpus}
        nodes = [node for node in self.nodes if node.kind != "gpu" or node.name in kept]
        there = {node.name for node in nodes}
        links = [link for link in self.links if link.one in there and link.other in there]
        return Topology(self.name, nodes, links)

    def to_host(self, gpu: str) -> tuple[float, float] | None:
        """The bandwidth (GB/s) and latency (us) from a GPU to the nearest host; None if there is
        none.

        The route has the fewest links, of these the widest, and passes no other GPU. Raises
        `UnknownNameError`.
        """
        best = {self.nodes[self.number(gpu)].name: (math.inf, 0.0)}
        front = list(best)
        while front:
            found: dict[str, tuple[float, float]] = {}
            for link in self.links:
                for here, there in ((link.one, link.other), (link.other, link.one)):
                    if here in front and there not in best:
                        width, latency = best[here]
                        way = min(width, link.bandwidth), latency + link.latency
                        if there not in found or way[0] > found[there][0]:
                            found[there] = way
            best.update(found)
            kinds = {name: self.nodes[self.numbers[name]].kind for name in found}
            hosts = [way for name, way in found.items() if kinds[name] == "host"]
            if hosts:
                return max(hosts)
            front = [name for name, kind in kinds.items() if kind == "switch"]
        return None

    def drawing(self) -> str:
        """Each node on a line, with its links: `gpu0  NVLink 18 GB/s: gpu1 gpu2; ...`."""
        ends: dict[str, dict[str, list[str]]] = {node.name: {} for node in self.nodes}
        for link in self.links:
            wire = f"{link.kind} {link.bandwidth:g} GB/s"
            ends[link.one].setdefault(wire, []).append(link.other)
            ends[link.other].setdefault(wire, []).append(link.one)
        width = max(map(len, ends), default=0)
        lines = [str(self)]
        for name, wires in ends.items():
            text = "; ".join(f"{wire}: {_several(others)}" for wire, others in wires.items())
            lines.append(f"  {name:<{width}}  {text}")
        return "\n".join(lines)

    def __str__(self) -> str:
        count = Counter(node.kind for node in self.nodes)
        parts = [(count["gpu"], "GPU"), (count["host"], "host"), (count["switch"], "switch")]
        text = ", ".join(f"{n} {word}{_plural(word, n)}" for n, word in parts if n)
        return f"{self.name}: {text or 'nothing'}, {len(self.links)} links"

    def __repr__(self) -> str:
        return f"<topology {self}>"

    def _of(self, kind: str) -> tuple[str, ...]:
        return tuple(node.name for node in self.nodes if node.kind == kind)

    def _check_nodes(self) -> None:
        for name, times in Counter(node.name for node in self.nodes).items():
            if times > 1:
                raise TopologyError(f"topology {self.name}: {times} nodes are called {name!r}")
        for node in self.nodes:
            if node.kind not in KINDS:
                raise unknown_name(f"kind of node ({node.name})", node.kind, KINDS)

    def _check_links(self) -> None:
        """Raise `TopologyError` for links to themselves, given twice, or of no valid speed."""
        pairs = set()
        for link in self.links:
            where = f"topology {self.name}: {link}"
            ends = frozenset((self.number(link.one), self.number(link.other)))
            if len(ends) < 2:
                raise TopologyError(f"{where} connects a node with itself")
            if ends in pairs:
                raise TopologyError(
                    f"{where} exists already; use one link with the bandwidth of both"
                )
            pairs.add(ends)
            if not (is_finite(link.bandwidth) and SLOWEST <= link.bandwidth <= FASTEST):
                raise TopologyError(
                    f"{where} has a bandwidth of {link.bandwidth!r} GB/s; it must be positive and "
                    f"finite: {SLOWEST:g} to {FASTEST:g}"
                )
            for word, value in (("latency", link.latency), ("overhead", link.overhead)):
                if not (is_finite(value) and 0 <= value <= LATEST):
                    raise TopologyError(
                        f"{where} has {word} {value!r} us; it must be finite and not negative: 0 "
                        f"to {LATEST:g}"
                    )


def _all(name: str, given: Iterable[T], kind: type[T]) -> tuple[T, ...]:
    """These as a tuple. Raises `TopologyError` unless all are of this kind."""
    found = tuple(given) if isinstance(given, Iterable) else (given,)
    for one in found:
        if not isinstance(one, kind):
            raise TopologyError(
                f"Topology: {one!r} among the {name} is no {kind.__name__}; give a list of "
                f"gemel.links.{kind.__name__}"
            )
    return found


def _plural(word: str, count: int) -> str:
    return "" if count == 1 else "es" if word.endswith("ch") else "s"


def _several(names: list[str]) -> str:
    """Names; of many, only the first and the last."""
    return " ".join(names) if len(names) <= 16 else f"{names[0]} ... {names[-1]} ({len(names)})"

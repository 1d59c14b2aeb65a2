"""Finding rings: orders of GPUs in which neighbours have fast links.

If GPUs are connected directly, rings that share no link are taken one after the other, the widest
first, until there are no more (as in Wang et al., Blink: fast and generic collectives for
distributed ML, MLSys 2020, and NVIDIA's NCCL). Otherwise there is one ring, which goes from each
GPU to the nearest remaining one of its machine, and then to the next machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy

from gemel.errors import TopologyError
from gemel.links import Topology
from gemel.machines import checked_topology
from gemel.topology.routes import Routes

#: With more GPUs than this, there is no search for rings over direct links.
_MOST = 16


class Ring(NamedTuple):
    """Names of GPUs, each of which sends to the next and the last to the first; GB/s."""

    order: tuple[str, ...]
    bandwidth: float

    def __str__(self) -> str:
        way = self.order if len(self.order) <= 24 else (*self.order[:3], "...", self.order[-1])
        return f"{' -> '.join(way)} -> {self.order[0]}   ({self.bandwidth:g} GB/s)"


def rings(topology: Topology, names: Sequence[str]) -> list[Ring]:
    r"""Rings through all the named GPUs that share no direct link; at least one. Raises
    `TopologyError` if none is named, `UnknownNameError`, and `NoRouteError`.

    >>> from gemel import topology
    >>> p3 = topology.named("p3")
    >>> print(*topology.rings(p3, p3.gpus), sep="\n")
    gpu0 -> gpu3 -> gpu2 -> gpu1 -> gpu5 -> gpu6 -> gpu7 -> gpu4 -> gpu0   (36 GB/s)
    gpu0 -> gpu1 -> gpu3 -> gpu7 -> gpu5 -> gpu4 -> gpu6 -> gpu2 -> gpu0   (18 GB/s)
    """
    checked_topology("rings", topology)
    if not names:
        raise TopologyError(f"rings: no GPU of {topology.name} was named; give one or more")
    for name in names:
        topology.number(name)
    inside = set(names)
    wires = {
        frozenset((link.one, link.other)): link.bandwidth
        for link in topology.links
        if link.one in inside and link.other in inside
    }
    found: list[Ring] = []
    while 3 <= len(names) <= _MOST:
        ring = _widest(names, wires)
        if ring is None:
            break
        found.append(ring)
        for pair in _pairs(ring.order):
            wires[pair] -= ring.bandwidth
    return found or [_nearest(topology, names)]


def _widest(names: Sequence[str], wires: dict[frozenset[str], float]) -> Ring | None:
    """The ring over direct links whose narrowest link is the widest; None if there is none."""
    for bandwidth in sorted({width for width in wires.values() if width > 0}, reverse=True):
        near: dict[str, list[str]] = {name: [] for name in names}
        for a in names:
            near[a] = [b for b in names if wires.get(frozenset((a, b)), 0) >= bandwidth and a != b]
        order = next(_cycles([names[0]], near), None)
        if order is not None:
            return Ring(tuple(order), bandwidth)
    return None


def _cycles(way: list[str], near: dict[str, list[str]]) -> Iterator[list[str]]:
    """All rings that begin with this path."""
    if len(way) == len(near):
        if way[0] in near[way[-1]]:
            yield list(way)
        return
    for name in near[way[-1]]:
        if name not in way:
            yield from _cycles([*way, name], near)


def _pairs(order: Sequence[str]) -> list[frozenset[str]]:
    return [frozenset(pair) for pair in zip(order, (*order[1:], order[0]), strict=True)]


def _nearest(topology: Topology, names: Sequence[str]) -> Ring:
    """The ring from each GPU to a remaining one of its machine, then to the next machine."""
    machine = {node.name: node.machine for node in topology.nodes}
    groups: dict[int, list[int]] = {}
    for name in names:
        groups.setdefault(machine[name], []).append(topology.number(name))
    routes = Routes(topology)
    numbers = numpy.array([n for group in groups.values() for n in _chain(routes, group)])
    order = tuple(topology.nodes[number].name for number in numbers)
    if len(order) == 1:
        return Ring(order, 0.0)
    paths = routes.between(numbers, numpy.roll(numbers, -1))
    flows = numpy.bincount(paths.links.ravel(), minlength=len(routes.capacity))[:-1]
    used = flows > 0
    return Ring(order, float((routes.capacity[:-1][used] / flows[used]).min() / 1e9))


def _chain(routes: Routes, group: Sequence[int]) -> list[int]:
    """The GPUs of a machine, each followed by the one with the fewest links, then the widest
    route."""
    nodes = numpy.array(group)
    source, target = numpy.repeat(nodes, len(nodes)), numpy.tile(nodes, len(nodes))
    paths = routes.between(source, target)
    links = (paths.links < len(routes.capacity) - 1).sum(axis=1).reshape(len(nodes), -1)
    width = paths.width.reshape(links.shape)
    order, left = [0], numpy.arange(1, len(nodes))
    while len(left):
        rank = numpy.lexsort((left, -width[order[-1], left], links[order[-1], left]))
        order.append(int(left[rank[0]]))
        left = numpy.delete(left, rank[0])
    return [group[place] for place in order]

"""Routes: the links a message takes from one node to another.

A route has the fewest links; of those the widest, then the first. Switches and hosts forward
messages, GPUs do not. Every link is two directed links: number 2i leads from its first end to the
other, 2i + 1 back.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy
from numpy.typing import NDArray

from gemel.errors import NoRouteError
from gemel.links import Topology
from gemel.machines import checked_topology

Array = NDArray[Any]
#: How many sources are searched together, to bound the memory.
_ROWS = 256


class Paths(NamedTuple):
    """The routes of several messages.

    `links` (messages, longest route) has the numbers of directed links; shorter routes are padded
    with a number after the last link. `latency` and `overhead` are in seconds; `width` is the
    bandwidth of the narrowest link, in bytes per second.
    """

    links: Array
    latency: Array
    width: Array
    overhead: Array


class Route(NamedTuple):
    """One route: the nodes passed, seconds of latency, bytes per second."""

    nodes: tuple[str, ...]
    latency: float
    width: float


class Routes:
    """All routes of a topology, computed when they are needed.

    `capacity` has the bytes per second of each directed link, and one more entry, which is
    infinite.
    """

    def __init__(self, topology: Topology) -> None:
        self.topology = checked_topology("routes", topology)
        numbers = topology.numbers
        ends = [(numbers[link.one], numbers[link.other]) for link in topology.links]
        both = numpy.array([pair for a, b in ends for pair in ((a, b), (b, a))], "int32")
        self._tail, self._head = both.reshape(-1, 2).T
        twice = [link for link in topology.links for _ in range(2)]
        self.capacity = _column([link.bandwidth * 1e9 for link in twice], numpy.inf)
        self._latency = _column([link.latency * 1e-6 for link in twice], 0)
        self._overhead = _column([link.overhead * 1e-6 for link in twice], 0)
        self._forwards = numpy.array([node.kind != "gpu" for node in topology.nodes], "bool")
        self._arrivals = numpy.zeros((0, len(topology.nodes)), "int32")
        self._rows = numpy.full(len(topology.nodes), -1, "int32")

    def between(self, sources: Array, targets: Array) -> Paths:
        """The routes between nodes, given by number. Raises `NoRouteError` if there is none."""
        self._find(numpy.unique(sources))
        rows, node, columns = self._rows[sources], targets.copy(), []
        while (moving := node != sources).any():
            link = self._arrivals[rows, node]
            if (missing := moving & (link < 0)).any():
                lost = numpy.flatnonzero(missing)[0]
                names = [self.topology.nodes[ends[lost]].name for ends in (sources, targets)]
                raise NoRouteError(
                    f"topology {self.topology.name}: there is no route from {names[0]} to "
                    f"{names[1]} (switches and hosts forward messages, GPUs do not)"
                )
            columns.append(numpy.where(moving, link, len(self.capacity) - 1))
            node = numpy.where(moving, self._tail[link], node)
        links = numpy.stack(columns, axis=1) if columns else numpy.zeros((len(node), 0), "int32")
        # Column by column: NumPy reduces many short rows slowly.
        latency, overhead = numpy.zeros(len(node)), numpy.zeros(len(node))
        width = numpy.full(len(node), numpy.inf)
        for column in columns:
            latency += self._latency[column]
            numpy.minimum(width, self.capacity[column], out=width)
            numpy.maximum(overhead, self._overhead[column], out=overhead)
        return Paths(links, latency, width, overhead)

    def route(self, source: str, target: str) -> Route:
        """The route between two nodes. Raises `UnknownNameError` and `NoRouteError`."""
        ends = [numpy.array([self.topology.number(name)]) for name in (source, target)]
        paths = self.between(*ends)
        names = [self.topology.nodes[self._tail[link]].name for link in paths.links[0][::-1]]
        return Route((*names, target), float(paths.latency[0]), float(paths.width[0]))

    def _find(self, sources: Array) -> None:
        """Compute the routes from nodes whose routes are not known yet."""
        missing = sources[self._rows[sources] < 0]
        for begin in range(0, len(missing), _ROWS):
            some = missing[begin : begin + _ROWS]
            self._rows[some] = len(self._arrivals) + numpy.arange(len(some))
            self._arrivals = numpy.concatenate([self._arrivals, self._search(some)])

    def _search(self, sources: Array) -> Array:
        """The link by which the route from each source arrives at each node; -1 if there is
        none."""
        rows, count = numpy.arange(len(sources)), len(self.topology.nodes)
        found = numpy.full((len(sources), count), -1, "int32")
        hops, width = found.copy(), numpy.zeros(found.shape)
        hops[rows, sources], width[rows, sources] = 0, numpy.inf
        order = numpy.argsort(self._head, kind="stable")
        heads, starts, times = numpy.unique(
            self._head[order], return_index=True, return_counts=True
        )
        if not len(heads):
            return found
        tail, capacity = self._tail[order], self.capacity[order]
        for level in range(count):
            leaving = (hops == level) & (self._forwards | (level == 0))
            wide = numpy.where(leaving[:, tail], numpy.minimum(width[:, tail], capacity), 0)
            best = numpy.maximum.reduceat(wide, starts, axis=1)
            new = (best > 0) & (hops[:, heads] < 0)
            if not new.any():
                break
            first = numpy.where(wide == numpy.repeat(best, times, axis=1), order, len(order))
            link = numpy.minimum.reduceat(first, starts, axis=1)
            row, column = numpy.nonzero(new)
            hops[row, heads[column]] = level + 1
            width[row, heads[column]] = best[new]
            found[row, heads[column]] = link[new]
        return found


def routes_of(given: Topology | Routes) -> Routes:
    """The routes of a topology, or those given. Raises `TopologyError` for anything else."""
    return given if isinstance(given, Routes) else Routes(given)


def _column(values: list[float], beyond: float) -> Array:
    return numpy.array([*values, beyond], "float64")

"""Rings: each GPU sends to the next, and each piece goes around twice.

First each station adds to a piece (reduce-scatter), then the sums go around (all-gather). Every
link carries 2 (n - 1)/n tensors, which is the minimum: Patarasu and Yuan, Bandwidth optimal
all-reduce algorithms for clusters of workstations, JPDC 69(2), 2009.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy

from gemel.errors import TopologyError
from gemel.links import Topology
from gemel.topology.rings import Ring, rings
from gemel.topology.schedule import Schedule, Steps, joined, numbered, ranks_of, steps


def ring(
    topology: Topology, both_ways: bool = False, along: Sequence[Ring] | None = None
) -> Schedule:
    """Rings through all GPUs at the same time; the share of each is proportional to its bandwidth.

    By default they are those of `rings`. Links are used in one direction only, as is usual;
    `both_ways` also runs every ring backwards, with half of its share. Raises `TopologyError` if
    there is no GPU, or no ring.
    """
    places = ranks_of(topology)
    found = rings(topology, places) if along is None else along
    if not found:
        raise TopologyError(f"ring: no ring along {topology.name}; give one of all GPUs, or None")
    ways = [(one, one.order) for one in found]
    if both_ways:
        ways = [way for one in found for way in ((one, one.order), (one, one.order[::-1]))]
    size = len(places)
    numbers = [numbered(topology, places, order) for _, order in ways]
    rows = []
    for channel, order in enumerate(numbers):
        rows.append(reduce_scatter(order, channel * size, channel=channel))
        rows.append(all_gather(order, channel * size, channel=channel))
    name = "ring both ways" if both_ways else "ring"
    text = "\n".join(f"{one}{', both ways' if both_ways else ''}" for one in found)
    shares = ring_shares([one for one, _ in ways], size)
    return Schedule(name, places, size, shares, joined(rows), text)


def ring_shares(found: Sequence[Ring], pieces: int) -> numpy.ndarray:
    """The shares of the pieces: equal inside each ring, whose total is proportional to its
    bandwidth."""
    speeds = numpy.array([one.bandwidth for one in found])
    parts = speeds / speeds.sum() if speeds.sum() else numpy.full(len(speeds), 1 / len(speeds))
    return numpy.repeat(parts / pieces, pieces)


def reduce_scatter(order: Sequence[int], first: int, count: int = 1, channel: int = 0) -> Steps:
    """Station i ends with the sum of the `count` pieces i + 1, modulo the number of stations."""
    turn, station = _grid(len(order))
    return _sent(order, station, station - turn, first, count, channel, add=True)


def all_gather(order: Sequence[int], first: int, count: int = 1, channel: int = 0) -> Steps:
    """Station i starts with pieces i + 1; all end with all pieces."""
    turn, station = _grid(len(order))
    return _sent(order, station, station + 1 - turn, first, count, channel, add=False)


def _grid(size: int) -> tuple[numpy.ndarray, numpy.ndarray]:
    turn, station = numpy.meshgrid(numpy.arange(size - 1), numpy.arange(size), indexing="ij")
    return turn, station


def _sent(
    order: Sequence[int],
    station: numpy.ndarray,
    piece: numpy.ndarray,
    first: int,
    count: int,
    channel: int,
    *,
    add: bool,
) -> Steps:
    size, places = len(order), numpy.array(order)
    source, target = places[station], places[(station + 1) % size]
    begin = first + piece % size * count
    return steps(source, target, begin, count=count, add=add, channel=channel)

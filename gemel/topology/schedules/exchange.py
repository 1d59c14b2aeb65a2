"""Exchange: each piece is summed at its holder, and sent back from there.

With one holder this is a parameter server. With several, the keys are split between servers (Li et
al., Scaling distributed machine learning with the parameter server, OSDI 2014). With all ranks as
holders it is a reduce-scatter and an all-gather, each in one round of direct messages.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy

from gemel.errors import TopologyError
from gemel.links import Topology
from gemel.topology.schedule import Schedule, Steps, joined, ranks_of, steps


def exchange(name: str, topology: Topology, holders: Sequence[str], drawing: str) -> Schedule:
    """All GPUs send each holder its piece, and receive the sum from it.

    Raises `UnknownNameError`, and `TopologyError` for a topology without GPUs, or a holder that is
    a switch or named twice.
    """
    ranks = ranks_of(topology)
    for holder in holders:
        kind = topology.nodes[topology.number(holder)].kind
        if kind == "switch" or list(holders).count(holder) > 1:
            raise TopologyError(
                f"{name}: cannot sum at {holder}, a {kind} named {holders.count(holder)} times; "
                "give GPUs or hosts, each once"
            )
    helpers = tuple(holder for holder in holders if holder not in ranks)
    places = ranks + helpers
    numbers = [places.index(holder) for holder in holders]
    rows = joined([gathered(range(len(ranks)), numbers), returned(range(len(ranks)), numbers)])
    shares = numpy.full(len(holders), 1 / len(holders))
    return Schedule(name, places, len(ranks), shares, rows, drawing)


def gathered(
    members: Sequence[int], holders: Sequence[int], first: int = 0, count: int = 1
) -> Steps:
    """Every member sends each holder its pieces: holder i the `count` pieces i."""
    source, target, piece = _pairs(members, holders, first, count)
    return steps(source, target, piece, count=count, add=True)


def returned(
    members: Sequence[int], holders: Sequence[int], first: int = 0, count: int = 1
) -> Steps:
    """Every holder sends its `count` pieces to all members."""
    source, target, piece = _pairs(members, holders, first, count)
    return steps(target, source, piece, count=count, add=False)


def _pairs(
    members: Sequence[int], holders: Sequence[int], first: int, count: int
) -> tuple[numpy.ndarray, numpy.ndarray, numpy.ndarray]:
    member, number = numpy.meshgrid(numpy.array(members), numpy.arange(len(holders)), indexing="ij")
    holder = numpy.array(holders)[number]
    apart = member != holder
    return member[apart], holder[apart], first + number[apart] * count

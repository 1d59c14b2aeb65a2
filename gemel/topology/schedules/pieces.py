"""Parallel pieces: every GPU sums one piece of the tensor, all at the same time."""

from __future__ import annotations

from gemel.links import Topology
from gemel.topology.schedule import Schedule, ranks_of
from gemel.topology.schedules.exchange import exchange


def pieces(topology: Topology) -> Schedule:
    """Each of the n GPUs sums one piece: every link carries (n - 1)/n tensors each way, twice.

    There are two rounds, but n (n - 1) messages in each. Raises `TopologyError` if there is no
    GPU.
    """
    ranks = ranks_of(topology)
    drawing = f"piece i of {len(ranks)}: all GPUs -> GPU i -> all GPUs"
    return exchange("pieces", topology, ranks, drawing)

"""Gather at one device: a GPU sums the tensors of all GPUs and sends the result back."""

from __future__ import annotations

from gemel.links import Topology
from gemel.topology.schedule import Schedule, ranks_of
from gemel.topology.schedules.exchange import exchange


def one_device(topology: Topology, device: str | None = None) -> Schedule:
    """All tensors are summed at `device`, by default the first GPU.

    Its link carries n - 1 tensors each way. Raises `UnknownNameError`, and `TopologyError` if there
    is no GPU.
    """
    place = ranks_of(topology)[0] if device is None else device
    return exchange("one device", topology, [place], f"all GPUs -> {place} -> all GPUs")

"""Gather at the CPU: a host adds up what all GPUs have, and sends it back."""

from __future__ import annotations

from gemel.errors import TopologyError
from gemel.links import Topology
from gemel.topology.schedule import Schedule
from gemel.topology.schedules.exchange import exchange


def cpu(topology: Topology, host: str | None = None) -> Schedule:
    """Everything meets at `host`, the first one unless it is named.

    Its link carries n tensors each way: none is there already. Raises `TopologyError` where there
    is no host, `UnknownNameError`.
    """
    if host is None and not topology.hosts:
        raise TopologyError(f"cpu: the topology {topology.name} has no host")
    place = topology.hosts[0] if host is None else host
    return exchange("cpu", topology, [place], f"all GPUs -> {place} -> all GPUs")

"""Gather at the CPU: a host sums the tensors of all GPUs and sends the result back."""

from __future__ import annotations

from gemel.errors import TopologyError
from gemel.links import Topology
from gemel.machines import checked_topology
from gemel.topology.schedule import Schedule
from gemel.topology.schedules.exchange import exchange


def cpu(topology: Topology, host: str | None = None) -> Schedule:
    """All tensors are summed at `host`, by default the first one.

    Its link carries n tensors each way, because the host has none of its own. Raises
    `TopologyError` if there is no host, and `UnknownNameError`.
    """
    if host is None and not checked_topology("cpu", topology).hosts:
        raise TopologyError(f"cpu: the topology {topology.name} has no host")
    place = topology.hosts[0] if host is None else host
    return exchange("cpu", topology, [place], f"all GPUs -> {place} -> all GPUs")

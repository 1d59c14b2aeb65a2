"""Several servers: the keys are split between the hosts, and each sums its own."""

from __future__ import annotations

from collections.abc import Sequence

from gemel.errors import TopologyError
from gemel.links import Topology
from gemel.machines import checked_topology
from gemel.topology.schedule import Schedule
from gemel.topology.schedules.exchange import exchange


def servers(topology: Topology, places: Sequence[str] | None = None) -> Schedule:
    """Each of the `places`, by default all hosts, holds an equal part of the keys.

    Raises `TopologyError` if there is no place, and `UnknownNameError`.
    """
    hosts = checked_topology("servers", topology).hosts
    chosen = hosts if places is None else tuple(places)
    if not chosen:
        raise TopologyError(
            f"servers: the topology {topology.name} has no host that could be a server"
            if places is None
            else "servers: places is empty; name at least one host, or leave it out for all hosts"
        )
    text = " ".join(chosen) if len(chosen) <= 8 else f"{len(chosen)} servers"
    drawing = f"each server has 1/{len(chosen)} of the keys: all GPUs -> {text} -> all GPUs"
    return exchange("servers", topology, chosen, drawing)

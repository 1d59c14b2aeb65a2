"""Several servers: the keys are split between the hosts, each adds up its own."""

from __future__ import annotations

from collections.abc import Sequence

from gemel.errors import TopologyError
from gemel.links import Topology
from gemel.topology.schedule import Schedule
from gemel.topology.schedules.exchange import exchange


def servers(topology: Topology, places: Sequence[str] | None = None) -> Schedule:
    """Each of the `places`, all hosts unless they are named, holds an equal part of the keys.

    Raises `TopologyError` where there is no place, `UnknownNameError`.
    """
    chosen = topology.hosts if places is None else tuple(places)
    if not chosen:
        raise TopologyError(
            f"servers: the topology {topology.name} has no host that could be a server"
        )
    text = " ".join(chosen) if len(chosen) <= 8 else f"{len(chosen)} servers"
    drawing = f"each server has 1/{len(chosen)} of the keys: all GPUs -> {text} -> all GPUs"
    return exchange("servers", topology, chosen, drawing)

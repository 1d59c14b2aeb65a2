"""All schedules; `candidates` are those that fit a topology."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from gemel.errors import NoRouteError
from gemel.links import Topology
from gemel.topology.routes import Routes
from gemel.topology.schedule import Schedule, ranks_of
from gemel.topology.schedules.chain import chain
from gemel.topology.schedules.cpu import cpu
from gemel.topology.schedules.hierarchical import WAYS, hierarchical
from gemel.topology.schedules.one_device import one_device
from gemel.topology.schedules.pieces import pieces
from gemel.topology.schedules.ring import ring
from gemel.topology.schedules.servers import servers
from gemel.topology.schedules.tree import tree
from gemel.topology.simulator import paths_of

#: The numbers of chunks a tree may use: few for small tensors, many for large ones.
CHUNKS = (1, 4, 16, 64)


def candidates(topology: Topology) -> list[Schedule]:
    """The schedules a planner chooses among: those that the topology has the places and routes for.

    Raises `TopologyError` for a topology without GPUs, and `NoRouteError` if no schedule is left.
    """
    ranks_of(topology)
    routes = Routes(topology)
    found: list[Schedule] = []
    lost: NoRouteError | None = None
    for make in _makers(topology):
        try:
            schedule = make(topology)
            paths_of(schedule, routes)
        except NoRouteError as error:
            lost = lost or error
        else:
            found.append(schedule)
    if not found and lost is not None:
        raise lost
    return found


def _makers(topology: Topology) -> list[Callable[[Topology], Schedule]]:
    """The functions that make the schedules for which the topology has the places."""
    makers: list[Callable[[Topology], Schedule]] = [one_device, pieces, ring]
    makers.append(partial(ring, both_ways=True))
    makers += [partial(tree, chunks=chunks) for chunks in CHUNKS]
    if topology.hosts:
        makers.append(cpu)
    if len(topology.hosts) > 1:
        makers.append(servers)
    groups = topology.machines
    if len(groups) > 1 and len(groups[0]) > 1 and len(set(map(len, groups))) == 1:
        makers += [partial(hierarchical, inside=a, between=b) for a in WAYS for b in WAYS]
    return makers


__all__ = [
    "candidates",
    "chain",
    "cpu",
    "hierarchical",
    "one_device",
    "pieces",
    "ring",
    "servers",
    "tree",
]

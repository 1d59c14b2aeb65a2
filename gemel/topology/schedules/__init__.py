"""All schedules; `candidates` are those that fit a topology."""

from __future__ import annotations

from gemel.errors import TopologyError
from gemel.links import Topology
from gemel.topology.schedule import Schedule
from gemel.topology.schedules.chain import chain
from gemel.topology.schedules.cpu import cpu
from gemel.topology.schedules.hierarchical import WAYS, hierarchical
from gemel.topology.schedules.one_device import one_device
from gemel.topology.schedules.pieces import pieces
from gemel.topology.schedules.ring import ring
from gemel.topology.schedules.servers import servers
from gemel.topology.schedules.tree import tree

#: The numbers of chunks a tree may use: few for small tensors, many for large ones.
CHUNKS = (1, 4, 16, 64)


def candidates(topology: Topology) -> list[Schedule]:
    """The schedules a planner chooses among: those that the topology has the places for.

    Raises `TopologyError` for a topology without GPUs.
    """
    if not topology.gpus:
        raise TopologyError(f"the topology {topology.name} has no GPU, so there is nothing to sum")
    found = [one_device(topology), pieces(topology), ring(topology), ring(topology, both_ways=True)]
    found += [tree(topology, chunks) for chunks in CHUNKS]
    if topology.hosts:
        found.append(cpu(topology))
    if len(topology.hosts) > 1:
        found.append(servers(topology))
    groups = topology.machines
    if len(groups) > 1 and len(groups[0]) > 1 and len(set(map(len, groups))) == 1:
        found += [hierarchical(topology, inside, between) for inside in WAYS for between in WAYS]
    return found


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

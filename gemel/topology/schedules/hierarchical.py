"""Hierarchical: first inside each machine, then between machines, then inside again.

Inside, each GPU ends with one shard of the machine's sum. Each shard is summed between the machines
by the GPUs that have it. Then the shards are shared inside. The slow links between machines carry a
tensor once, not once for each GPU. Thakur, Rabenseifner and Gropp, Optimization of collective
communication operations in MPICH, IJHPCA 19(1), 2005, section 5, and Cho et al., BlueConnect, MLSys
2019, divide an all-reduce like this.
"""

from __future__ import annotations

from gemel.errors import TopologyError
from gemel.links import Topology
from gemel.machines import checked_topology
from gemel.topology.rings import Ring, rings
from gemel.topology.schedule import Schedule, Steps, joined
from gemel.topology.schedules.exchange import gathered, returned
from gemel.topology.schedules.ring import all_gather, reduce_scatter, ring_shares

#: How pieces are sent, inside and between machines: around a ring, or directly to their holders.
WAYS = ("ring", "pieces")


def hierarchical(topology: Topology, inside: str = "ring", between: str = "pieces") -> Schedule:
    """Reduce-scatter inside, all-reduce of the shards between, all-gather inside.

    `inside` and `between` are "ring" or "pieces". Raises `TopologyError` for machines with
    different numbers of GPUs or fewer than two machines, and for other words.
    """
    groups = checked_topology("hierarchical", topology).machines
    if len(groups) < 2 or len(set(map(len, groups))) > 1:
        raise TopologyError(
            f"hierarchical: {topology.name} has machines with {sorted(map(len, groups))} GPUs; "
            "it needs at least two machines with the same number of GPUs each"
        )
    if inside not in WAYS or between not in WAYS:
        raise TopologyError(f"hierarchical: {inside!r} inside, {between!r} between; give {WAYS}")
    found = [rings(topology, group) for group in groups]
    tracks = [list(column) for column in zip(*found, strict=False)]
    if inside == "pieces":
        tracks = tracks[:1]
    places, size, many = topology.gpus, len(groups[0]), len(groups)
    number = {name: place for place, name in enumerate(places)}
    first, middle, last = [], [], []
    for channel, track in enumerate(tracks):
        orders = [[number[name] for name in one.order] for one in track]
        base = channel * size * many
        for order in orders:
            begin, end = _inside(order, base, many, channel, inside)
            first.append(begin)
            last.append(end)
        for shard in range(size):
            holders = [order[shard - 1] for order in orders]
            middle.append(_between(holders, base + shard * many, channel, between))
    shares = ring_shares([track[0] for track in tracks], size * many)
    name = f"hierarchical, {inside} and {between}"
    rows = joined([*first, *middle, *last])
    return Schedule(name, places, len(places), shares, rows, _drawing(tracks, inside, between))


def _inside(
    order: list[int], first: int, count: int, channel: int, way: str
) -> tuple[Steps, Steps]:
    """The steps before and after the exchange between machines, when station i has shard i + 1."""
    if way == "ring":
        parts = reduce_scatter, all_gather
        return parts[0](order, first, count, channel), parts[1](order, first, count, channel)
    holders = [order[shard - 1] for shard in range(len(order))]
    return gathered(order, holders, first, count), returned(order, holders, first, count)


def _between(holders: list[int], first: int, channel: int, way: str) -> Steps:
    """The holders of a shard sum it, in as many pieces as there are holders."""
    if way == "ring":
        ways = reduce_scatter(holders, first, 1, channel), all_gather(holders, first, 1, channel)
        return joined(ways)
    return joined([gathered(holders, holders, first), returned(holders, holders, first)])


def _drawing(tracks: list[list[Ring]], inside: str, between: str) -> str:
    lines = [str(track[0]) for track in tracks] if inside == "ring" else ["direct messages"]
    shown = "\n".join(f"inside every machine: {line}" for line in lines)
    machines, size = len(tracks[0]), len(tracks[0][0].order)
    how = "around a ring of" if between == "ring" else "in direct messages between"
    return f"{shown}\nbetween: each of {size} shards {how} the {machines} GPUs that have it"

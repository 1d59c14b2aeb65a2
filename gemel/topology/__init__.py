"""`topology`: how gradients are summed over given links, how long it takes, and what is fastest.

`schedule`, `schedules`, `rings`, `order`
    Who sends what to whom, as data; the known ways, and the order in which they add.
`simulator`, `estimate`, `routes`, `units`
    How long a schedule takes, simulated or estimated, over the routes of its messages.
`planner`, `explaining`, `growth`
    Which schedule is the fastest, why, and on how many machines.
`execution`, `running`, `moving`
    Schedules on real arrays: without a clock, over paced links, along the simulator's clock.
`command`
    `python -m gemel topology`.
"""

from __future__ import annotations

from gemel.links import Link, Node, Topology
from gemel.machines import NAMES, cluster, dgx2, fleet, named, p3, pcie
from gemel.topology.estimate import Cost, Estimate
from gemel.topology.execution import all_reduce
from gemel.topology.growth import Crossing, Growth, crossings, growth
from gemel.topology.order import keeps_order
from gemel.topology.planner import Bucket, Choice, Planner
from gemel.topology.rings import Ring, rings
from gemel.topology.routes import Route, Routes
from gemel.topology.running import Run, run
from gemel.topology.schedule import Schedule, Steps, joined, steps
from gemel.topology.schedules import (
    candidates,
    chain,
    cpu,
    hierarchical,
    one_device,
    pieces,
    ring,
    servers,
    tree,
)
from gemel.topology.simulator import Simulation, simulate

__all__ = [
    "NAMES",
    "Bucket",
    "Choice",
    "Cost",
    "Crossing",
    "Estimate",
    "Growth",
    "Link",
    "Node",
    "Planner",
    "Ring",
    "Route",
    "Routes",
    "Run",
    "Schedule",
    "Simulation",
    "Steps",
    "Topology",
    "all_reduce",
    "candidates",
    "chain",
    "cluster",
    "cpu",
    "crossings",
    "dgx2",
    "fleet",
    "growth",
    "hierarchical",
    "joined",
    "keeps_order",
    "named",
    "one_device",
    "p3",
    "pcie",
    "pieces",
    "ring",
    "rings",
    "run",
    "servers",
    "simulate",
    "steps",
    "tree",
]

"""`topology`: how gradients meet over given links, how long that takes, and what is best."""

from __future__ import annotations

from gemel.links import Link, Node, Topology
from gemel.machines import NAMES, cluster, dgx2, fleet, named, p3, pcie
from gemel.topology.execution import all_reduce
from gemel.topology.rings import Ring, rings
from gemel.topology.routes import Route, Routes
from gemel.topology.schedule import Schedule, Steps, joined, steps
from gemel.topology.schedules import (
    candidates,
    cpu,
    hierarchical,
    one_device,
    pieces,
    ring,
    servers,
    tree,
)
from gemel.topology.simulator import Simulation, simulate

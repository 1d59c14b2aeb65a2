"""Passes: pure functions from graph to graph, and the pipeline they form."""

from __future__ import annotations

from collections.abc import Callable

from gemel.config import VERIFY
from gemel.ir.graph import Graph
from gemel.ir.trace import Trace
from gemel.ir.verify import verify
from gemel.passes.backward import shared
from gemel.passes.fuse import fuse
from gemel.passes.gradient import gradient
from gemel.passes.hoist import hoist
from gemel.passes.join import add_up, unite
from gemel.passes.simplify import drop, expand, fold, merge, turn

Pass = Callable[[Graph], Graph]

#: What every graph goes through before it becomes a plan, in this order.
PIPELINE: tuple[Pass, ...] = (
    expand,  # composites become what they are written in
    hoist,  # rounds of loops do only what they must
    fold,  # numbers are computed
    drop,  # steps that change nothing go
    turn,  # products are computed in the layout they are wanted in
    unite,  # parts that come together again are joined
    add_up,  # products that are added up become one
    merge,  # equal steps become one
    fuse,  # steps that can share a kernel do
)


def optimize(graph: Graph, passes: tuple[Pass, ...] = PIPELINE) -> Graph:
    """The graph after all passes, verified after each under GEMEL_VERIFY=1."""
    check = VERIFY.read()
    with Trace():
        for step in passes:
            graph = step(graph)
            if check:
                verify(graph, after=step.__name__)
    return graph


__all__ = [
    "PIPELINE",
    "add_up",
    "drop",
    "expand",
    "fold",
    "fuse",
    "gradient",
    "hoist",
    "merge",
    "optimize",
    "shared",
    "turn",
    "unite",
]

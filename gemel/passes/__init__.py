"""Passes: pure functions from graph to graph, and the pipeline they form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gemel.config import VERIFY
from gemel.errors import GemelError
from gemel.ir.graph import Graph
from gemel.ir.trace import Trace
from gemel.ir.verify import verify
from gemel.passes.backward import shared
from gemel.passes.fuse import fuse
from gemel.passes.gradient import gradient
from gemel.passes.hoist import hoist
from gemel.passes.join import add_up, unite
from gemel.passes.precision import mixed
from gemel.passes.recompute import fuse_sums, recompute
from gemel.passes.simplify import drop, expand, fold, merge, transpose_products

Pass = Callable[[Graph], Graph]

#: What every graph goes through before it becomes a plan, in this order.
PIPELINE: tuple[Pass, ...] = (
    expand,  # composites become what they are written in
    hoist,  # rounds of loops do only what they must
    fold,  # numbers are computed
    drop,  # steps that change nothing go
    transpose_products,  # products are computed in the layout they are wanted in
    unite,  # parts that come together again are joined
    add_up,  # products that are added up become one
    merge,  # equal steps become one
    fuse,  # steps that can share a kernel do
    recompute,  # arrays that cost less to compute again are not kept
    fuse_sums,  # sums that read the same array do so together
)


def optimize(graph: Graph, passes: Sequence[Pass] = PIPELINE) -> Graph:
    """The graph after all passes, verified after each under GEMEL_VERIFY=1."""
    check = VERIFY.read()
    with Trace():
        for step in passes:
            made = step(graph)
            if step not in PIPELINE:
                _check(step, graph, made)
            graph = made
            if check:
                verify(graph, after=name_of(step))
    return graph


def name_of(step: Pass) -> str:
    """What a pass is called."""
    return getattr(step, "__name__", None) or repr(step)


def pipeline(folds: bool = True, others: Sequence[Pass] = ()) -> tuple[Pass, ...]:
    """The passes, without arithmetic at compile time unless it `folds`, and with those from outside
    before operations are fused. Raises `TypeError` for what is no list of functions.
    """
    if not isinstance(others, (list, tuple)) or not all(map(callable, others)):
        raise TypeError("compile: passes= is a list of functions from graph to graph")
    if folds and not others:
        return PIPELINE
    own = [step for step in PIPELINE if folds or step is not fold]
    place = own.index(fuse)
    return (*own[:place], *others, *own[place:])


def _check(step: Pass, before: Graph, after: Any) -> None:
    """A pass from outside keeps what goes in and comes out. Raises `GemelError` otherwise."""
    name = f"compile: the pass {name_of(step)}"
    if not isinstance(after, Graph):
        raise GemelError(f"{name} gives {after!r}, which is no Graph")
    if list(map(id, after.inputs)) != list(map(id, before.inputs)):
        raise GemelError(f"{name} changes the graph's inputs; a pass keeps them, in their order")
    for what in ("outputs", "updates"):
        old, new = (_specs(getattr(graph, what)) for graph in (before, after))
        if old != new:
            raise GemelError(f"{name} makes {what} {new} of {old}; a pass keeps their specs")


def _specs(results: Any) -> list[Any]:
    """Specs of outputs, or which input is updated and by what."""
    return [(r[0], r[1].spec) if isinstance(r, tuple) else r.spec for r in results]


__all__ = [
    "PIPELINE",
    "add_up",
    "drop",
    "expand",
    "fold",
    "fuse",
    "fuse_sums",
    "gradient",
    "hoist",
    "merge",
    "mixed",
    "optimize",
    "pipeline",
    "recompute",
    "shared",
    "transpose_products",
    "unite",
]

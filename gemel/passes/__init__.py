"""Passes: pure functions from graph to graph, and the pipeline they form.

What goes in is a traced graph, of composite operations on arrays of free or known sizes. What comes
out computes the same, and each of its nodes is a view, a `fused` node (which becomes one kernel, or
a few) or an operation that is lowered by its own rule. `runtime.lower` makes a plan of that.

`simplify`, `hoist`, `join`, `sink`, `parts`, `fuse`, `recompute`, `direct`
    The passes of the `PIPELINE`, which is below.
`gradient`, `loop_gradient`, `saved`
    The gradient is a function on entries and not in the pipeline: its graph is made first, and then
    goes through the pipeline like any other. `saved` chooses what a forward pass keeps for it.
`arrange`
    The order in which a plan computes the nodes of an optimized graph.
`precision`, `bind`, `split`, `rows`
    Mixed precision, sizes put in for free extents, graphs cut into several.
`domain`, `risk`, `order`, `sizes`
    What passes ask of graphs: the loops of nodes, their failures, their order, their bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gemel.config import VERIFY
from gemel.errors import GemelError, OperandError
from gemel.ir.graph import Entry, Graph
from gemel.ir.trace import Trace
from gemel.ir.verify import verify
from gemel.passes.direct import direct
from gemel.passes.fuse import fuse
from gemel.passes.gradient import gradient
from gemel.passes.hoist import hoist
from gemel.passes.join import add_up, unite
from gemel.passes.loop_gradient import share_loops
from gemel.passes.parts import in_parts
from gemel.passes.precision import mixed
from gemel.passes.recompute import fuse_sums, recompute
from gemel.passes.simplify import drop, expand, fold, merge, transpose_products
from gemel.passes.sink import sink

Pass = Callable[[Graph], Graph]

#: What every graph goes through before it becomes a plan, in this order.
PIPELINE: tuple[Pass, ...] = (
    expand,  # composites are replaced by their bodies
    hoist,  # loop-invariant code motion
    fold,  # constant folding, of Python numbers
    drop,  # identities are removed: x * 1
    transpose_products,  # (a @ b).T becomes b.T @ a.T
    unite,  # parts written side by side become a concatenation
    add_up,  # a @ b + c @ d becomes one product
    sink,  # f(reshape(x)) becomes reshape(f(x))
    merge,  # common subexpression elimination
    in_parts,  # long reductions are divided, so that several cores share them
    fuse,  # operations are grouped into kernels
    recompute,  # rematerialization across kernels
    fuse_sums,  # reductions that read the same array share a kernel
)

#: What is done before that for GPUs, and what is not: their blocks share long sums.
FOR_GPUS: tuple[Pass, ...] = (direct,)
NOT_FOR_GPUS: tuple[Pass, ...] = (in_parts,)


def optimize(graph: Graph, passes: Sequence[Pass] = PIPELINE) -> Graph:
    """The graph after all passes, verified after each under GEMEL_VERIFY=1."""
    check = VERIFY.read()
    with Trace():
        for step in passes:
            made = step(graph)
            if step not in (*FOR_GPUS, *PIPELINE):
                _check(step, graph, made)
            graph = made
            if check:
                verify(graph, after=name_of(step))
    return graph


def name_of(step: Pass) -> str:
    """The name of a pass, for messages."""
    return getattr(step, "__name__", None) or repr(step)


def pipeline(folds: bool = True, others: Sequence[Pass] = ()) -> tuple[Pass, ...]:
    """The pipeline, without constant folding if not `folds`, with a user's passes before `fuse`.

    What they write is expanded: they may use any function of `np` and `npx`.

    Raises `OperandError` if `others` is not a list of functions.
    """
    if not isinstance(others, (list, tuple)) or not all(map(callable, others)):
        raise OperandError("compile: passes= must be a list of functions from graph to graph")
    if folds and not others:
        return PIPELINE
    own = [step for step in PIPELINE if folds or step is not fold]
    place = own.index(fuse)
    return (*own[:place], *others, expand, *own[place:])


def _check(step: Pass, before: Graph, after: Any) -> None:
    """Raises `GemelError` if a user's pass changes a graph's inputs or the specs of its results, or
    leaves a graph that breaks a rule."""
    name = f"compile: the pass {name_of(step)}"
    if not isinstance(after, Graph):
        raise GemelError(f"{name} returned {after!r}, which is not a Graph")
    if list(map(id, after.inputs)) != list(map(id, before.inputs)):
        raise GemelError(
            f"{name} changed the graph's inputs; a pass must keep them, in their order"
        )
    for what in ("outputs", "updates"):
        wrong = [r for r in getattr(after, what) if not _is_result(what, r)]
        if wrong:
            one = "an entry" if what == "outputs" else "the index of an input and an entry"
            raise GemelError(f"{name} returned a graph whose {what} have {wrong[0]!r}, not {one}")
        old, new = (_specs(getattr(graph, what)) for graph in (before, after))
        if old != new:
            raise GemelError(
                f"{name} changed {what} from {old} to {new}; a pass must keep shapes and dtypes"
            )
    verify(after, after=f"the pass {name_of(step)}")


def _is_result(what: str, result: Any) -> bool:
    """Whether this can be one of a graph's outputs or updates."""
    if what == "outputs":
        return isinstance(result, Entry)
    return (
        isinstance(result, tuple)
        and list(map(type, result[:1])) == [int]
        and isinstance(result[1], Entry)
        and len(result) == 2
    )


def _specs(results: Any) -> list[Any]:
    """The specs of outputs, or the index and spec of updates."""
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
    "in_parts",
    "merge",
    "mixed",
    "optimize",
    "pipeline",
    "recompute",
    "share_loops",
    "sink",
    "transpose_products",
    "unite",
]

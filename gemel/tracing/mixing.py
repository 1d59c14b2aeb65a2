"""Mixed precision for what has been traced so far, in a function that takes gradients itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gemel.ir.graph import Entry, Graph
from gemel.ir.trace import Trace
from gemel.passes import mixed
from gemel.tracing.nested import flatten_results, unflatten


def mixed_so_far(trace: Trace, value: Any) -> Any:
    """A function's result, and what it has written, computed in the mixed precision in force.

    Gradients taken afterwards are those of this computation. `value` may be nested.
    """
    leaves: list[Any] = []
    structure = flatten_results(value, leaves)
    leaves = [trace.state.current(leaf) if isinstance(leaf, Entry) else leaf for leaf in leaves]
    written = [entry for _, entry in trace.state.updates.values()]
    entries = [leaf for leaf in leaves if isinstance(leaf, Entry)]
    every = list(dict.fromkeys([*entries, *written, *trace.state.contents.values()]))
    new = dict(zip(every, mixed(Graph((), every)).outputs, strict=True))
    trace.state.replace(new)
    results: Iterator[Any] = (new[e] if isinstance(e, Entry) else e for e in leaves)
    return unflatten(structure, results)


__all__ = ["mixed_so_far"]

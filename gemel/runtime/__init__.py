"""From an optimized graph to a plan that the engine runs.

`lower` (with `emission`, `rounds`, `rule_nest`, `overwriting`, `reuse`)
    A graph becomes a list of items: kernel launches, loops, branches, each given its memory.
`concurrent`, `kept`, `sites`
    Which items run side by side, which values outlive a run, what a failure reaches.
`image`, `items`
    The items as bytes, from which the core makes a `Plan`; docs/internals/plan-image.md.
`plans`, `cache`, `files`, `backend`
    Plans and kernels, read from memory or disk or made, for the device they run on.
`prepare`, `single`, `creation`, `callback`
    Imperative calls that the core has not seen: their kernels and plans, or NumPy.
`chain`, `relay`, `stages`
    Programs of several plans, with NumPy's work between them.
`plan_text`
    A plan as C, to be read.

`features`
    MXNet's `Features` and `feature_list`: what a build of it can do.
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    if name not in ("Feature", "Features", "feature_list"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from gemel.runtime import features

    return getattr(features, name)

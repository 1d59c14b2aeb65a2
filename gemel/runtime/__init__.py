"""Plans: compiled graphs, the kernels they use, and the face of the engine.

`Features` and `feature_list` are MXNet's: what a build of it can do.
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    if name not in ("Feature", "Features", "feature_list"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from gemel.runtime import features

    return getattr(features, name)

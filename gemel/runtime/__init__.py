"""Plans: compiled graphs, the kernels they use, and the face of the engine.

`Features` and `feature_list` are MXNet's: what a build of it can do.
"""

from __future__ import annotations

from gemel.runtime.features import Feature, Features, feature_list

__all__ = ["Feature", "Features", "feature_list"]

"""The loop nests that `lower` rules of operations write (`Lowering.loop`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gemel.codegen.language.launch import Launch
from gemel.codegen.language.nest import Nest

if TYPE_CHECKING:
    from gemel.runtime.emission import Emission


class RuleNest(Nest):
    """A loop nest of a `lower` rule; `finish` adds its launch to the plan."""

    def __init__(
        self,
        emission: Emission,
        shape: tuple[int, ...],
        failure: Any,
        parallel: bool,
        reduced: frozenset[int],
    ) -> None:
        super().__init__(shape, reduced)
        self.emission = emission
        self.failure = failure
        self.parallel = parallel

    def finish(self) -> Launch:
        """Add the launch to the plan and return it."""
        launch = super().finish()
        self.emission.launch(launch)
        return launch


__all__ = ["RuleNest"]

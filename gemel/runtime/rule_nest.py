"""Nests that the `lower` rules of operations write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gemel.codegen.nest import Launch, Nest

if TYPE_CHECKING:
    from gemel.runtime.lower import Lowering


class RuleNest(Nest):
    """A nest that a `lower` rule writes; `finish` hands it to the plan."""

    def __init__(
        self,
        lowering: Lowering,
        shape: tuple[int, ...],
        failure: Any,
        parallel: bool,
        reduced: frozenset[int],
    ) -> None:
        super().__init__(shape, reduced)
        self.lowering = lowering
        self.failure = failure
        self.parallel = parallel

    def finish(self) -> Launch:
        """The launch, which is a step of the plan now."""
        launch = super().finish()
        self.lowering._launch(launch)
        return launch


__all__ = ["RuleNest"]

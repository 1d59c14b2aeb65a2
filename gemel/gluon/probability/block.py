"""Blocks that draw random numbers and add to the loss: the parts of variational networks."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from gemel.errors import ArgumentError
from gemel.gluon.hybrid import HybridBlock


class StochasticBlock(HybridBlock):
    """A block whose forward adds its own losses by `self.add_loss(x)`.

    Decorate its `forward` with `StochasticBlock.collectLoss`. After a call `losses` has the losses
    that this call added, hybridized or not. Raises `ArgumentError` for a forward without the
    decorator.
    """

    _set_by_calls = ("_added", "_losses")

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._losses: list[Any] = []
        self._added: list[Any] = []

    def add_loss(self, loss: Any) -> None:
        """Add a loss to this call."""
        self._added.append(loss)

    @staticmethod
    def collectLoss(forward: Callable[..., Any]) -> Callable[..., Any]:  # noqa: N802 -- MXNet's
        """Decorate a forward that calls `add_loss`."""

        @wraps(forward)
        def collecting(self: Any, *inputs: Any, **keywords: Any) -> Any:
            self._added = []
            found = forward(self, *inputs, **keywords)
            added, self._added = self._added, []
            return found, added

        collecting.collects = True  # type: ignore[attr-defined]
        return collecting

    def __call__(self, *inputs: Any, **keywords: Any) -> Any:
        """The result of `forward` without the losses."""
        if not getattr(type(self).forward, "collects", False):
            raise ArgumentError(
                f"{type(self).__name__}: decorate forward with @StochasticBlock.collectLoss"
            )
        found, added = super().__call__(*inputs, **keywords)
        self._losses = list(added)
        return found

    @property
    def losses(self) -> list[Any]:
        """The losses that the last call added."""
        return self._losses


class StochasticSequential(StochasticBlock):
    """Blocks run one after another; it also has the losses of its blocks."""

    def __init__(self, *blocks: Any, **settings: Any) -> None:
        super().__init__(**settings)
        self.add(*blocks)

    def add(self, *blocks: Any) -> None:
        """Append blocks."""
        for block in blocks:
            self.register_child(block)

    @StochasticBlock.collectLoss
    def forward(self, x: Any, *rest: Any) -> Any:
        """Run the blocks one after the other."""
        for block in self._children.values():
            x = block(x, *rest)
            rest = ()
            for loss in getattr(block, "losses", ()):
                self.add_loss(loss)
        return x

    def __len__(self) -> int:
        return len(self._children)

    def __getitem__(self, place: int) -> Any:
        return list(self._children.values())[place]


__all__ = ["StochasticBlock", "StochasticSequential"]

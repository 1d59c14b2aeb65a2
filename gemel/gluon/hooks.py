"""Hooks: functions called before or after a block's forward."""

from __future__ import annotations

from itertools import count
from typing import Any

_numbers = count()


class HookHandle:
    """A registered hook; `detach()` removes it, as leaving a ``with`` block over it does."""

    def __init__(self, hooks: dict[int, Any], hook: Any) -> None:
        self._hooks = hooks
        self.id = next(_numbers)
        hooks[self.id] = hook

    def detach(self) -> None:
        """Remove the hook."""
        self._hooks.pop(self.id, None)

    def __enter__(self) -> HookHandle:
        return self

    def __exit__(self, *error: object) -> None:
        self.detach()

"""Hooks: functions called before or after a block's forward."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

_numbers = count()


class HookHandle:
    """A registered hook; `detach()` removes it, as leaving a ``with`` block over it does.

    `changed` is called when it is there, and when it has gone.
    """

    def __init__(self, hooks: dict[int, Any], hook: Any, changed: Callable[[], None]) -> None:
        self._hooks = hooks
        self._changed = changed
        self.id = next(_numbers)
        hooks[self.id] = hook
        changed()

    def detach(self) -> None:
        """Remove the hook."""
        if self._hooks.pop(self.id, None) is not None:
            self._changed()

    def __enter__(self) -> HookHandle:
        return self

    def __exit__(self, *error: object) -> None:
        self.detach()

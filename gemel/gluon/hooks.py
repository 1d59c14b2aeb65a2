"""Hooks: functions that are called before or after a block's forward."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

from gemel.errors import check_function

_numbers = count()


class HookHandle:
    """A registered hook; `detach()` removes it, and so does leaving a ``with`` block over it.

    `changed` is called after the hook is added, and after it is removed.
    """

    def __init__(self, hooks: dict[int, Any], hook: Any, changed: Callable[[], None]) -> None:
        check_function("a hook of a block", hook)
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

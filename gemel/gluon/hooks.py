"""Hooks: functions called before or after a block's forward."""

from __future__ import annotations

from typing import Any


class HookHandle:
    """A registered hook; `detach()` removes it, as leaving a ``with`` block over it does."""

    def __init__(self, hooks: list[Any], hook: Any) -> None:
        self._hooks = hooks
        self._hook = hook
        hooks.append(hook)

    def detach(self) -> None:
        """Remove the hook."""
        if self._hook in self._hooks:
            self._hooks.remove(self._hook)

    def __enter__(self) -> HookHandle:
        return self

    def __exit__(self, *error: object) -> None:
        self.detach()

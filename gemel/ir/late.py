"""Families of operations that most programs never use: imported when a name of theirs is asked for.

So `import gemel` stays as quick as if they did not exist.
"""

from __future__ import annotations

from importlib import import_module

_waiting: list[str] = []


def later(*modules: str) -> None:
    """Say that these modules declare more of what is public."""
    _waiting.extend(modules)


def load() -> None:
    """Import what has not been asked for yet. A second thread waits for the first."""
    for module in tuple(_waiting):
        import_module(module)
    _waiting.clear()


__all__ = ["later", "load"]

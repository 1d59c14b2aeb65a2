"""Lazy imports: families of operations that most programs never use do not slow `import gemel`.

`gemel.ops` names their modules with `later`. Code that does not find a public name calls `load`
and looks again.
"""

from __future__ import annotations

from importlib import import_module

_waiting: list[str] = []


def later(*modules: str) -> None:
    """Note modules that declare further operations."""
    _waiting.extend(modules)


def load() -> None:
    """Import all modules noted so far."""
    # Python locks a module while it is imported: a second thread here waits for the first.
    for module in tuple(_waiting):
        import_module(module)
    _waiting.clear()


__all__ = ["later", "load"]

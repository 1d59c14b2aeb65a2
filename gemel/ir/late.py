"""Lazy imports: families of operations that most programs never use do not slow `import gemel`.

`gemel.ops` names their modules with `later`. Code that does not find a public name calls `load`
and looks again. The modules are imported in the order they were named, until the name is there, so
a network that uses `npx.convolution` does not wait for Fourier transforms.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module

_waiting: list[str] = []


def later(*modules: str) -> None:
    """Note modules that declare further operations."""
    _waiting.extend(modules)


def load(found: Callable[[], bool] | None = None) -> None:
    """Import the modules noted so far: all of them, or one after another until `found()`."""
    for module in tuple(_waiting):
        # What was found may come from a module that another thread is importing, and may not be
        # complete yet. Python locks a module while it is imported, so importing it waits.
        if found is not None and found() and module not in sys.modules:
            continue
        import_module(module)
        with suppress(ValueError):  # another thread has removed it
            _waiting.remove(module)


__all__ = ["later", "load"]

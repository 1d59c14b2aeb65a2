"""What a fork waits for: that the engine is idle, and that nobody compiles.

Both are waited for before Python takes the import lock, since a callback may import.
"""

from __future__ import annotations

import os
import threading

from gemel import _core

#: Held while a kernel is compiled: a child must not find LLVM, or the imports of what compiles, in
#: the middle of their work.
compiling = threading.RLock()


def _hold() -> None:
    _core.drain_for_fork()  # first: what is pending may have something to compile
    compiling.acquire()


def _go_on() -> None:
    try:
        compiling.release()
    finally:
        _core.reopen()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_hold, after_in_parent=_go_on, after_in_child=_go_on)

__all__ = ["compiling"]

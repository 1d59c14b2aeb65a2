"""What a fork waits for: that the engine is idle, and that nobody compiles. An exit, too.

A fork waits for both before Python takes the import lock, since a callback may import.
"""

from __future__ import annotations

import atexit
import os
import threading

#: Held while a kernel is compiled: a child must not find LLVM, or the imports of what compiles, in
#: the middle of their work; nor must it be taken apart there when the program ends.
compiling = threading.RLock()
#: Seconds an exit waits for a compilation, which takes some hundredths.
PATIENCE = 5.0

# Hooks run last in, first out: this one after the core's, which waits for what is pending.
atexit.register(compiling.acquire, timeout=PATIENCE)

from gemel import _core  # noqa: E402


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

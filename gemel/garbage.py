"""Python's garbage collector, which waits while graphs and plans are made.

Making them makes many objects and drops few of them: looking through them again and again is a
fifth of the time a large network's first call takes, and finds nothing. They are looked through
once, after it.
"""

from __future__ import annotations

import gc
import os
import threading


class _Uncollected(threading.local):
    """A block in which no garbage is looked for; blocks in it, too, belong to the outermost one."""

    def __init__(self) -> None:
        self.depth = 0  # of blocks on this thread
        self.was_enabled = False

    def __enter__(self) -> None:
        if not self.depth:
            self.was_enabled = gc.isenabled()
            if self.was_enabled:
                _holders.append(threading.get_ident())
                gc.disable()
        self.depth += 1

    def __exit__(self, *error: object) -> None:
        self.depth -= 1
        if not self.depth and self.was_enabled:
            _holders.remove(threading.get_ident())
            gc.enable()


#: The threads whose blocks have stopped the collector.
_holders: list[int] = []
uncollected = _Uncollected()


def _alone() -> None:
    """The child of a fork has one thread: what others have stopped goes on."""
    mine = threading.get_ident()
    if _holders and mine not in _holders:
        gc.enable()
    _holders[:] = [thread for thread in _holders if thread == mine]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_alone)

__all__ = ["uncollected"]

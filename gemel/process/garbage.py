"""Python's garbage collector, which waits while graphs and plans are made.

Making them makes many objects and drops few of them: looking through them again and again is a
fifth of the time a large network's first call takes, and finds nothing. They are looked through
once, after it.
"""

from __future__ import annotations

import gc
import os
import threading

#: Objects made before any garbage is looked for: never. The collector itself stays as it was, on
#: or off, for what a traced function says of that holds after it.
NEVER = 2**31 - 1


class _Uncollected(threading.local):
    """A block in which no garbage is looked for; blocks in it, too, belong to the outermost one."""

    def __init__(self) -> None:
        self.depth = 0  # of blocks on this thread

    def __enter__(self) -> None:
        if not self.depth and gc.get_threshold()[0] != NEVER:
            _thresholds[threading.get_ident()] = gc.get_threshold()
            gc.set_threshold(NEVER)
        self.depth += 1

    def __exit__(self, *error: object) -> None:
        self.depth -= 1
        if not self.depth:
            _restore(_thresholds.pop(threading.get_ident(), None))


def _restore(thresholds: tuple[int, int, int] | None) -> None:
    """What a thread found, unless somebody has set something else since."""
    if thresholds and gc.get_threshold()[0] == NEVER:
        gc.set_threshold(*thresholds)


#: What the collector's thresholds were, by the thread whose block has replaced them.
_thresholds: dict[int, tuple[int, int, int]] = {}
uncollected = _Uncollected()


def _alone() -> None:
    """The child of a fork has one thread: what others have stopped goes on."""
    mine = threading.get_ident()
    for thread in [thread for thread in _thresholds if thread != mine]:
        _restore(_thresholds.pop(thread))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_alone)

__all__ = ["uncollected"]

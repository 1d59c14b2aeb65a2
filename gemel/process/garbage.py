"""Python's garbage collector, which pauses while graphs and plans are made.

Making them creates many objects and frees few. Scanning these again and again takes a fifth of the
time of a large network's first call, and finds nothing. They are scanned once, afterwards.
"""

from __future__ import annotations

import gc
import os
import threading

#: A threshold that is never reached. The collector itself stays enabled or disabled, because what a
#: traced function does to it has to remain in effect.
NEVER = 2**31 - 1


class _Uncollected(threading.local):
    """A block without garbage collection; in nested blocks only the outermost one counts."""

    def __init__(self) -> None:
        self.depth = 0  # of nested blocks on this thread

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
    """Restore a thread's thresholds, unless they have been changed meanwhile."""
    if thresholds and gc.get_threshold()[0] == NEVER:
        gc.set_threshold(*thresholds)


#: The collector's original thresholds, by the thread whose block has replaced them.
_thresholds: dict[int, tuple[int, int, int]] = {}
uncollected = _Uncollected()


def _alone() -> None:
    """In the child of a fork only this thread exists: end the pauses of the others."""
    mine = threading.get_ident()
    for thread in [thread for thread in _thresholds if thread != mine]:
        _restore(_thresholds.pop(thread))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_alone)

__all__ = ["uncollected"]

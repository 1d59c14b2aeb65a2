"""What is put off while graphs and plans are made, because somebody waits for their results.

Python's garbage collector is paused: making them allocates many objects and frees few. Scanning
them again and again takes a fifth of the time of a large network's first call, and finds nothing.
They are scanned once, afterwards. Files for later processes are written afterwards, too.
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable

#: The number of new objects that starts a collection: never. The collector is not switched off,
#: so that a traced function may switch it on or off, with lasting effect.
NEVER = 2**31 - 1


class _Urgent(threading.local):
    """A block in which what can wait is put off; blocks inside of it belong to the outermost
    one."""

    def __init__(self) -> None:
        self.depth = 0  # the number of nested blocks on this thread
        self._waiting: list[Callable[[], object]] = []

    def __enter__(self) -> None:
        if not self.depth and gc.get_threshold()[0] != NEVER:
            _thresholds[threading.get_ident()] = gc.get_threshold()
            gc.set_threshold(NEVER)
        self.depth += 1

    def __exit__(self, *error: object) -> None:
        self.depth -= 1
        if self.depth:
            return
        _restore(_thresholds.pop(threading.get_ident(), None))
        waiting, self._waiting = self._waiting, []
        for work in waiting:
            work()

    def afterwards(self, work: Callable[[], object]) -> None:
        """Do something after the outermost block, in the order in which it was put off; outside of
        blocks at once."""
        if self.depth:
            self._waiting.append(work)
        else:
            work()


def _restore(thresholds: tuple[int, int, int] | None) -> None:
    """Restore the thresholds that a thread found, unless others have been set since."""
    if thresholds and gc.get_threshold()[0] == NEVER:
        gc.set_threshold(*thresholds)


#: The collector's thresholds before they were replaced, by the thread whose block replaced them.
_thresholds: dict[int, tuple[int, int, int]] = {}
urgent = _Urgent()


def _alone() -> None:
    """A forked child has only one thread: end the pauses of all other threads."""
    mine = threading.get_ident()
    for thread in [thread for thread in _thresholds if thread != mine]:
        _restore(_thresholds.pop(thread))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_alone)

__all__ = ["urgent"]

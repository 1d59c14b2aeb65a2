"""What a fork waits for: that the engine is idle, and nobody compiles or imports. An exit, too.

A fork waits before Python takes the import lock, since a callback may import.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")
R = TypeVar("R")

#: Held while a plan or a kernel is made: a child must not find LLVM, or the imports of what
#: compiles, in the middle of their work; nor must it be taken apart there when the program ends.
compiling = threading.RLock()
#: Seconds an exit waits for what is being made or imported, which takes some hundredths.
PATIENCE = 5.0
#: What is imported when it is first needed, maybe by a thread.
LATE = ("gemel", "llvmlite", "numpy")


def _importing() -> bool:
    """Whether something of LATE is being imported."""
    late = [module for name, module in list(sys.modules.items()) if name.partition(".")[0] in LATE]
    specs = (getattr(module, "__spec__", None) for module in late)
    return any(getattr(spec, "_initializing", False) for spec in specs)


def _settle(timeout: float) -> None:
    """Wait until nothing is made or imported. Nothing is made from then on.

    A thread in the middle of an import may crash when the interpreter ends (CPython frees the lock
    it waits for), and leaves a child that imports the same waiting for ever.
    """
    compiling.acquire(timeout=timeout)
    until = time.monotonic() + PATIENCE
    while _importing() and time.monotonic() < until:
        time.sleep(0.001)


def on_threads(work: Callable[[T], R], tasks: Sequence[T], threads: int) -> list[R]:
    """What `work` gives for each task, some at a time; it raises what the first failing one does.

    To be called with `compiling` held, which is what a fork and an exit wait for.
    """
    found: list[Any] = [None] * len(tasks)
    failed: list[BaseException] = []
    waiting = list(enumerate(tasks))[::-1]

    def run() -> None:
        while waiting and not failed:
            try:
                number, task = waiting.pop()
            except IndexError:  # another thread has taken the last
                return
            try:
                found[number] = work(task)
            except BaseException as error:
                failed.append(error)

    helpers: list[threading.Thread] = []
    for _ in range(min(threads, len(tasks)) - 1):
        try:
            helper = threading.Thread(target=run)
            helper.start()
            helpers.append(helper)
        except RuntimeError:  # none is to be had, as when the program ends
            break
    run()
    for helper in helpers:
        helper.join()
    if failed:
        raise failed[0]
    return found


# Hooks run last in, first out: this one after the core's, which waits for what is pending.
atexit.register(_settle, PATIENCE)

from gemel import _core  # noqa: E402


def _hold() -> None:
    _core.drain_for_fork()  # first: what is pending may have something to compile
    _settle(timeout=-1)  # however long it takes


def _go_on() -> None:
    try:
        compiling.release()
    finally:
        _core.reopen()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_hold, after_in_parent=_go_on, after_in_child=_go_on)

__all__ = ["compiling"]

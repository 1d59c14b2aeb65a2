"""What a fork waits for: that the engine is idle, and nobody compiles or imports. An exit, too.

A fork waits before Python takes the import lock, since a callback may import.
"""

from __future__ import annotations

import _imp
import atexit
import os
import sys
import threading
import time
from collections.abc import Callable
from heapq import heappop, heappush
from importlib import _bootstrap
from typing import Any, Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")

#: Held while a plan or a kernel is made: a child must not find LLVM, or the imports of what
#: compiles, in the middle of their work; nor must it be taken apart there when the program ends.
compiling = threading.RLock()
#: Seconds an exit waits for what is being made or imported, which takes some hundredths.
PATIENCE = 5.0
#: What gemel imports when it is first needed, maybe by a thread. The program's own modules are not
#: here: importing one may be the whole run of a program.
LATE = sys.stdlib_module_names.union(("gemel", "llvmlite", "numpy"))


def _taken(lock: Any) -> bool:
    """Whether another thread has the lock of a module, or is about to take or free it."""
    if lock.owner is not None:
        return bool(lock.owner != threading.get_ident())
    if not lock.lock.acquire(blocking=False):
        return True
    lock.lock.release()
    return False


def _importing() -> bool:
    """Whether another thread looks for a module, or imports something of LATE.

    Python's import system has a lock for each module, from before it is looked for until it is
    there, and one that is held while it is looked for. A fork takes the latter, but its holder
    would then go on to import before the fork is made.
    """
    table: dict[str, Callable[[], Any]] = vars(_bootstrap).get("_module_locks", {})
    found = [(name, lock()) for name, lock in list(table.items())]
    locks = {name: lock for name, lock in found if lock is not None}
    mine = any(lock.owner == threading.get_ident() for lock in locks.values())
    if _imp.lock_held() and not mine:
        return True
    return any(_taken(lock) for name, lock in locks.items() if name.partition(".")[0] in LATE)


def _settle(timeout: float) -> None:
    """Wait until nothing is made or imported. Nothing is made from then on.

    A thread in the middle of an import may crash when the interpreter ends (CPython frees the lock
    it waits for), and leaves a child that imports the same waiting for ever.
    """
    compiling.acquire(timeout=timeout)
    until = time.monotonic() + PATIENCE
    while _importing() and time.monotonic() < until:
        time.sleep(0.001)


class Helpers(Generic[T, R]):
    """Threads that do what they are given, one task each, while who gives it goes on.

    To be used in a `with` block, with `compiling` held, which is what a fork and an exit wait for:
    no thread is left behind it. The first task is left to whoever waits for it, since giving it
    away takes longer than a small one. Of those that wait the longest is done first, so that no
    thread is left alone with a long one at the end.
    """

    def __init__(self, work: Callable[[T], R], threads: int) -> None:
        self._work, self._most = work, threads
        self._threads: list[threading.Thread] = []
        self._changed = threading.Condition()
        self._waiting: list[tuple[int, int, T]] = []
        self._found: list[Any] = []
        self._failed: list[BaseException] = []
        self._closed = False

    def __enter__(self) -> Helpers[T, R]:
        return self

    def __exit__(self, *error: object) -> None:
        self._waiting.clear()
        self._close()

    def give(self, task: T, length: int = 0) -> None:
        """A task to be done by somebody, some time; its length only orders it among others."""
        with self._changed:
            heappush(self._waiting, (-length, len(self._found), task))
            self._found.append(None)
            self._changed.notify()
        if len(self._threads) < min(self._most, len(self._waiting) - 1):
            self._start()

    def results(self) -> list[R]:
        """What all tasks gave, in order; it raises what one that failed has raised."""
        self._close()
        if self._failed:
            raise self._failed[0]
        return self._found

    def _start(self) -> None:
        helper = threading.Thread(target=self._run)
        try:
            helper.start()
        except RuntimeError:  # none is to be had, as when the program ends
            self._most = len(self._threads)
        else:
            self._threads.append(helper)

    def _close(self) -> None:
        """Nothing more is given; whoever closes does what is left."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._run()
        while self._threads:
            self._threads.pop().join()

    def _next(self) -> tuple[int, T] | None:
        """The task that was given first; None where there will be no more."""
        with self._changed:
            while not self._waiting and not self._closed:
                self._changed.wait()
            if not self._waiting or self._failed:
                return None
            return heappop(self._waiting)[1:]

    def _run(self) -> None:
        while (found := self._next()) is not None:
            number, task = found
            try:
                self._found[number] = self._work(task)
            except BaseException as error:
                self._failed.append(error)


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

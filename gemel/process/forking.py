"""Forks and exits: both wait until the engine is idle, and no thread compiles or imports.

A fork waits before Python takes the import lock, because a callback may import modules.
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

#: Held while a plan or a kernel is made: a forked child must not find LLVM, or an import of the
#: compiling code, half done; nor may the end of the program tear these down in the middle.
compiling = threading.RLock()
#: What else forks and exits wait for, as threads of the core: called while `compiling` is held,
#: perhaps by a signal's handler in the middle of a compilation.
awaited: list[Callable[[], object]] = []
#: How many seconds an exit waits for compilations and imports, which take some hundredths.
PATIENCE = 5.0
#: What gemel imports when it is first needed, perhaps in a thread. The program's own modules are
#: not included: importing one may be the whole run of a program.
LATE = sys.stdlib_module_names.union(("gemel", "llvmlite", "numpy"))


def _taken(lock: Any) -> bool:
    """Whether another thread holds the lock of a module, or is about to acquire or release it."""
    if lock.owner is not None:
        return bool(lock.owner != threading.get_ident())
    if not lock.lock.acquire(blocking=False):
        return True
    lock.lock.release()
    return False


def _importing() -> bool:
    """Whether another thread is looking for a module, or is importing one of LATE.

    Python's import system has a lock for each module, held from before the module is looked for
    until it is imported, and a global one, held while a module is looked for. A fork takes the
    global lock, but its holder would then continue its import before the fork is made.
    """
    table: dict[str, Callable[[], Any]] = vars(_bootstrap).get("_module_locks", {})
    found = [(name, lock()) for name, lock in list(table.items())]
    locks = {name: lock for name, lock in found if lock is not None}
    mine = any(lock.owner == threading.get_ident() for lock in locks.values())
    if _imp.lock_held() and not mine:
        return True
    return any(_taken(lock) for name, lock in locks.items() if name.partition(".")[0] in LATE)


def _settle(timeout: float) -> None:
    """Wait until no thread compiles or imports, and keep others from compiling from then on.

    A thread in the middle of an import may crash when the interpreter ends (CPython frees the lock
    that it waits for). In a forked child, an import of the same module would wait forever.
    """
    if compiling.acquire(timeout=timeout):
        for wait in list(awaited):
            wait()
    until = time.monotonic() + PATIENCE
    while _importing() and time.monotonic() < until:
        time.sleep(0.001)


class Helpers(Generic[T, R]):
    """Threads that run tasks, one at a time each, while the thread that gives them continues.

    To be used in a `with` block, with `compiling` held, for which forks and exits wait: no thread
    outlives the block. The first task is left to the thread that waits for the results, because
    handing it over takes longer than a small task. The longest waiting task is started first, so
    that no thread is left alone with a long one at the end.
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
        """Give a task, to be run by any thread; its length only orders it among other tasks."""
        with self._changed:
            heappush(self._waiting, (-length, len(self._found), task))
            self._found.append(None)
            self._changed.notify()
        if len(self._threads) < min(self._most, len(self._waiting) - 1):
            self._start()

    def results(self) -> list[R]:
        """The results of all tasks, in order. Raises the error of a task that failed."""
        self._close()
        if self._failed:
            raise self._failed[0]
        return self._found

    def _start(self) -> None:
        helper = threading.Thread(target=self._run)
        try:
            helper.start()
        except RuntimeError:  # no thread can be started, for example when the program ends
            self._most = len(self._threads)
        else:
            self._threads.append(helper)

    def _close(self) -> None:
        """Accept no more tasks; the calling thread runs those that are left."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._run()
        while self._threads:
            self._threads.pop().join()

    def _next(self) -> tuple[int, T] | None:
        """The next task, the longest first; None if there will be no more."""
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


# Hooks run last in, first out: this one after the core's, which waits for pending operations.
atexit.register(_settle, PATIENCE)

from gemel._core import drain_for_fork, reopen, unseen_failures  # noqa: E402


def _hold() -> None:
    drain_for_fork()  # first, because pending operations may have something to compile
    _settle(timeout=-1)  # however long it takes


def _go_on() -> None:
    try:
        compiling.release()
    finally:
        reopen()


def _begin() -> None:
    _go_on()
    unseen_failures()  # those from before the fork are the parent's to report


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_hold, after_in_parent=_go_on, after_in_child=_begin)

__all__ = ["awaited", "compiling"]

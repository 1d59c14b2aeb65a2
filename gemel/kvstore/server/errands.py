"""Engine operations that the connections perform, and that end when an answer has arrived.

When an operation is ready, the engine puts it on a desk (`gemel._core.Desk`). A thread takes it
from there and passes it to the function that performs it. The operation ends when that function, on
any thread, says so.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from gemel import _core
from gemel.errors import KVStoreError
from gemel.spec import Spec

#: Seconds between two checks whether there is still work to do.
PAUSE = 0.5


class Errands:
    """Operations whose functions receive an errand, and end it at once or later."""

    def __init__(self) -> None:
        self._desk = _core.Desk()
        self._lock = threading.Condition()
        #: The function of each operation that has been issued and has not begun.
        self._begun: dict[int, Callable[[Any], None]] = {}
        self._count = 0
        self._process = os.getpid()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._work, name="kvstore errands", daemon=True)
        self._thread.start()

    def issue(
        self, name: str, begin: Callable[[Any], None], inputs: Sequence[Any], result: Spec
    ) -> Any:
        """Issue an operation over `inputs`, which are CPU arrays. Returns its result, which `begin`
        fills.

        `begin` must not wait. If an input has failed, the errand it receives has a `failure`.
        """
        if os.getpid() != self._process:
            raise KVStoreError(
                "kvstore: this process was forked from a worker and is not a worker; use the "
                "store in the worker"
            )
        with self._lock:
            self._count += 1
            number = self._count
            self._begun[number] = begin
        described = [(result.dtype.code, tuple(result.shape))]
        (made,) = self._desk.issue(number, name, inputs, described)
        return made

    def _work(self) -> None:
        while not self._closed.is_set():
            errand = self._desk.take(PAUSE)
            if errand is None:
                continue
            begin = self._begun[errand.number]
            try:
                begin(errand)
            except Exception as error:
                end(errand, error)
            with self._lock:
                del self._begun[errand.number], errand, begin
                self._lock.notify_all()

    def finish(self, until: float) -> bool:
        """Wait until everything issued has begun; returns whether that happened in time."""
        with self._lock:
            return self._lock.wait_for(lambda: not self._begun, until - time.monotonic())

    def close(self) -> None:
        """Make the operations fail that have not begun."""
        self._closed.set()
        self._desk.close("KVStoreError", "kvstore: the store was closed")
        if threading.current_thread() is not self._thread:
            self._thread.join(2 * PAUSE)


class Turns:
    """Errands that begin in the order in which they were issued, whatever order they are taken in.

    The errands of a key need this: a pull that came after later pushes would ask for a value that
    the server no longer has.
    """

    def __init__(self) -> None:
        self._issued = 0
        self._begun = 0
        #: Errands that were taken before their turn.
        self._early: dict[int, tuple[Callable[[Any], None], Any]] = {}

    def next(self, begin: Callable[[Any], None]) -> Callable[[Any], None]:
        """The function that begins the errand to be issued now; the caller prevents concurrent
        issues."""
        turn = self._issued
        self._issued += 1

        def in_turn(errand: Any) -> None:
            self._early[turn] = begin, errand
            while self._begun in self._early:
                first, taken = self._early.pop(self._begun)
                self._begun += 1
                try:
                    first(taken)
                except Exception as error:
                    end(taken, error)

        return in_turn


def end(errand: Any, failure: BaseException | None = None) -> None:
    """End an errand, with an error if there is one."""
    if errand.failure is None:
        errand.end(None if failure is None else (type(failure).__name__, str(failure)))


__all__ = ["Errands", "Turns", "end"]

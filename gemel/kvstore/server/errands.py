"""What the engine has the connections do: operations that end when an answer has come.

The engine lays an operation whose turn has come on a desk (`gemel._core.Desk`); a thread takes it
from there and hands it to whom it belongs. The operation ends when that says so, on any thread.
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

#: Seconds between two looks whether there is still something to do.
PAUSE = 0.5


class Errands:
    """Operations done by functions that are given an errand, and end it now or later."""

    def __init__(self) -> None:
        self._desk = _core.Desk()
        self._lock = threading.Condition()
        #: What will do each operation that has been issued and not been begun.
        self._begun: dict[int, Callable[[Any], None]] = {}
        self._count = 0
        self._process = os.getpid()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._work, name="kvstore errands", daemon=True)
        self._thread.start()

    def issue(
        self, name: str, begin: Callable[[Any], None], inputs: Sequence[Any], result: Spec
    ) -> Any:
        """Issue an operation over `inputs`, CPU arrays; its result, which `begin` has to fill.

        `begin` must not wait. Where an input has failed it is given an errand with a `failure`.
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
        """Wait until everything issued has begun; whether that came to be."""
        with self._lock:
            return self._lock.wait_for(lambda: not self._begun, until - time.monotonic())

    def close(self) -> None:
        """What has not begun fails."""
        self._closed.set()
        self._desk.close("KVStoreError", "kvstore: the store was closed")
        if threading.current_thread() is not self._thread:
            self._thread.join(2 * PAUSE)


class Turns:
    """Errands that begin in the order in which they were issued, in whichever they are taken.

    A key's are so: a pull that is handed over after the next pushes asks for a value that is gone.
    """

    def __init__(self) -> None:
        self._issued = 0
        self._begun = 0
        #: What was taken before its turn.
        self._early: dict[int, tuple[Callable[[Any], None], Any]] = {}

    def next(self, begin: Callable[[Any], None]) -> Callable[[Any], None]:
        """What begins the errand that is issued now; the caller lets no other thread issue."""
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
    """End an errand, or have it fail."""
    if errand.failure is None:
        errand.end(None if failure is None else (type(failure).__name__, str(failure)))


__all__ = ["Errands", "Turns", "end"]

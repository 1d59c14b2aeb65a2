"""Recordings share the one trace of the core: each is given everything it was open for."""

from __future__ import annotations

import threading
import time

from gemel import _core
from gemel.device import CPUS, GPUS
from gemel.profiler.annotations import Notes, Slice, board, labels
from gemel.profiler.records import Trace, Wait


class Recording:
    """What happened while it was open; it may be opened again, and then goes on."""

    def __init__(self) -> None:
        self.since = 0  # the moment it was opened last, in nanoseconds
        self.until: int | None = None  # the moment it was closed
        self.trace = Trace()
        self.notes = Notes()

    def slices(self) -> list[Slice]:
        """The program's stretches of time, with the scopes that had not ended at its end."""
        end = time.perf_counter_ns() if self.until is None else self.until
        return [*self.notes.slices, *board.open_scopes(end)]

    def labels(self) -> dict[int, str]:
        """The scopes of the operations, by number."""
        return labels(self.trace.operations, self.slices())


class Recorder:
    """Turns the core's trace on while any recording is open and hands out what is taken from it."""

    def __init__(self) -> None:
        self.capacity = 1_000_000
        self._open: list[Recording] = []
        self._lock = threading.Lock()
        self._settling: list[_Settling] = []

    def is_open(self, recording: Recording) -> bool:
        """Whether a recording goes on."""
        return recording in self._open

    def open(self, recording: Recording) -> None:
        """Give a recording all that is issued from here on. Nothing if it is open."""
        with self._lock:
            if self.is_open(recording):
                return
            if not self._open:
                _core.trace_take()  # nobody has been listening
                _core.trace_start(self.capacity)
            recording.since, recording.until = time.perf_counter_ns(), None
            self._open.append(recording)
            self._listen()

    def close(self, recording: Recording) -> None:
        """End a recording when what was issued is done. Nothing if it is closed."""
        if not self.is_open(recording):
            return
        try:
            self.collect()
        finally:
            with self._lock:
                recording.until = time.perf_counter_ns()
                self._open = [other for other in self._open if other is not recording]
                self._listen()
                if not self._open:
                    _core.trace_stop()

    def collect(self) -> None:
        """Wait for what was issued, leaving failures where they are, and hand it out."""
        if self._open:
            self.settle()
            self._take()

    def settle(self) -> None:
        """Wait for what was issued: no wait of the program's."""
        settling = _Settling()
        self._settling.append(settling)
        try:
            for device in (*CPUS, *GPUS):
                _core.wait_device(device.code)
        finally:
            settling.finished = time.perf_counter_ns()

    def clear(self, recording: Recording) -> None:
        """Make a recording forget what it holds; open or not, it stays so."""
        with self._lock:
            recording.trace = Trace()
            recording.notes = Notes()
            self._listen()

    def _take(self) -> None:
        with self._lock:
            taken = Trace()
            taken.add(_core.trace_take())
            # Waits of the profiler itself are none of the program's.
            taken.waits = [w for w in taken.waits if not any(s.made(w) for s in self._settling)]
            for recording in self._open:
                recording.trace.extend(taken, recording.since)
            self._settling = [s for s in self._settling if s.finished is None]

    def _listen(self) -> None:
        board.readers = [recording.notes for recording in self._open]


class _Settling:
    """A stretch of time in which the profiler made a thread wait."""

    def __init__(self) -> None:
        self.thread = _core.trace_thread()
        self.started = time.perf_counter_ns()
        self.finished: int | None = None

    def made(self, wait: Wait) -> bool:
        """Whether a wait is the profiler's."""
        if wait.thread != self.thread or wait.started < self.started:
            return False
        return self.finished is None or wait.finished <= self.finished


__all__ = ["Recorder", "Recording"]

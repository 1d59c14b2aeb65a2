"""Recordings share the core's single trace: each receives everything from the time it is open."""

from __future__ import annotations

import threading
import time

from gemel import _core
from gemel.device import CPUS, GPUS
from gemel.profiler.annotations import Notes, Slice, board, labels
from gemel.profiler.records import Trace, Wait


class Recording:
    """What happened while it was open; it may be opened again, and then continues."""

    def __init__(self) -> None:
        self.since = 0  # when it was opened last, in nanoseconds
        self.until: int | None = None  # when it was closed
        self.trace = Trace()
        self.notes = Notes()

    def slices(self) -> list[Slice]:
        """The program's spans of time, including scopes that had not ended when it was closed."""
        end = time.perf_counter_ns() if self.until is None else self.until
        return [*self.notes.slices, *board.open_scopes(end)]

    def labels(self) -> dict[int, str]:
        """The scopes of the operations, by number."""
        return labels(self.trace.operations, self.slices())


class Recorder:
    """Turns the core's trace on while any recording is open, and distributes its contents."""

    def __init__(self) -> None:
        self.capacity = 1_000_000
        self._open: list[Recording] = []
        self.lock = threading.Lock()
        self._settling: list[_Settling] = []

    def is_open(self, recording: Recording) -> bool:
        """Whether a recording is open."""
        return recording in self._open

    def open(self, recording: Recording) -> None:
        """Pass everything issued from now on to a recording; does nothing if it is open."""
        with self.lock:
            if self.is_open(recording):
                return
            if not self._open:
                _core.trace_take()  # discard what nobody has recorded
                _core.trace_start(self.capacity)
            recording.since, recording.until = time.perf_counter_ns(), None
            self._open.append(recording)
            self._listen()

    def close(self, recording: Recording) -> None:
        """Close a recording when what was issued is done; does nothing if it is closed."""
        if not self.is_open(recording):
            return
        try:
            self.collect()
        finally:
            with self.lock:
                if self.is_open(recording):  # no other thread has closed it meanwhile
                    recording.until = time.perf_counter_ns()
                    self._open.remove(recording)
                    self._listen()
                if not self._open:
                    _core.trace_stop()

    def collect(self) -> None:
        """Wait for what was issued, without raising its errors, and distribute the trace."""
        if self._open:
            self.settle()
            self._take()

    def settle(self) -> None:
        """Wait for what was issued; this does not count as a wait of the program."""
        settling = _Settling()
        with self.lock:
            self._settling.append(settling)
        try:
            for device in (*CPUS, *GPUS):
                _core.wait_device(device.code)
        finally:
            settling.finished = time.perf_counter_ns()

    def clear(self, recording: Recording) -> None:
        """Delete the contents of a recording; it stays open or closed."""
        with self.lock:
            recording.trace = Trace()
            recording.notes = Notes()
            self._listen()

    def _take(self) -> None:
        with self.lock:
            taken = Trace()
            taken.add(_core.trace_take())
            # The profiler's own waits do not count as the program's.
            taken.waits = [w for w in taken.waits if not any(s.made(w) for s in self._settling)]
            for recording in self._open:
                recording.trace.extend(taken, recording.since)
            self._settling = [s for s in self._settling if s.finished is None]

    def _listen(self) -> None:
        board.readers = [recording.notes for recording in self._open]


class _Settling:
    """A span of time in which the profiler made a thread wait."""

    def __init__(self) -> None:
        self.thread = _core.trace_thread()
        self.started = time.perf_counter_ns()
        self.finished: int | None = None

    def made(self, wait: Wait) -> bool:
        """Whether a wait is the profiler's own."""
        if wait.thread != self.thread or wait.started < self.started:
            return False
        return self.finished is None or wait.finished <= self.finished


__all__ = ["Recorder", "Recording"]

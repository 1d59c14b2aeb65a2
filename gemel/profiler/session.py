"""Recordings share the core's single trace: each receives everything from the time it is open."""

from __future__ import annotations

import threading
import time

from gemel import _core
from gemel.profiler.annotations import Notes, Slice, board, labels
from gemel.profiler.records import Trace


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
            _core.trace_settle()
            self._take()

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
            for recording in self._open:
                recording.trace.extend(taken, recording.since)

    def _listen(self) -> None:
        board.readers = [recording.notes for recording in self._open]


__all__ = ["Recorder", "Recording"]

"""Samples of what the program does in Python: reading data, transforming them, or anything else.

While the profiler runs, a thread looks every few milliseconds at the stack of the thread that
started it. Garbage collections, which stop all of Python, report themselves: the stack would blame
the line that allocated last.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from types import FrameType
from typing import NamedTuple

import gemel
from gemel import _core

#: Seconds between two samples; longer while Python computes without a pause.
INTERVAL = 0.002
HERE = os.path.dirname(gemel.__file__)
DATA = os.path.join(HERE, "gluon", "data") + os.sep
DATASET = os.path.join(DATA, "dataset.py")
TRANSFORMS = os.path.join(DATA, "vision", "transforms")
LIBRARY = os.path.dirname(os.__file__)
GENERATOR = 0x20  # a flag of code objects
#: Where a sample of a garbage collection is.
COLLECTOR = "Python's garbage collector"


class Sample(NamedTuple):
    """What the program did during some time, which ends at `time`."""

    time: int
    duration: int
    kind: str  # data, transforms, python
    where: str  # the innermost line of the program itself


class Span(NamedTuple):
    """A span of time in which samples were taken."""

    started: int
    finished: int
    processor: int  # nanoseconds of CPU time the process used
    settled: int  # when the profiler's wait for the engine then ended


class Sampler:
    """Takes samples of the thread that starts it, between `start` and `stop`."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []
        self.spans: list[Span] = []
        self.thread = 0  # the trace's number of the thread
        self._ident = 0
        self._began: tuple[int, int] | None = None
        self._end = threading.Event()
        self._looker: threading.Thread | None = None
        self._collecting = 0  # when the garbage collection that runs began
        self._collected = 0  # nanoseconds of garbage collections since the last sample

    def start(self) -> None:
        """Start sampling; does nothing if it has started."""
        if self._began is not None:
            return
        self.thread, self._ident = _core.trace_thread(), threading.get_ident()
        self._began = time.perf_counter_ns(), time.process_time_ns()
        self._end.clear()
        self._collecting = self._collected = 0
        gc.callbacks.append(self._collects)
        self._looker = threading.Thread(target=self._look, name="gemel-sampler", daemon=True)
        self._looker.start()

    def stop(self) -> None:
        """Stop sampling; does nothing if it has not started."""
        if self._began is None:
            return
        self.spans.append(self.span())
        self._began = None
        if self._collects in gc.callbacks:  # unless the program has emptied the list
            gc.callbacks.remove(self._collects)
        self._end.set()
        if self._looker is not None:
            self._looker.join()

    def settled(self) -> None:
        """Record that the engine has finished what was issued before `stop`."""
        self.spans[-1] = self.spans[-1]._replace(settled=time.perf_counter_ns())

    def span(self) -> Span:
        """The span of time up to now."""
        now = time.perf_counter_ns()
        assert self._began is not None
        return Span(self._began[0], now, time.process_time_ns() - self._began[1], now)

    @property
    def is_running(self) -> bool:
        """Whether samples are being taken."""
        return self._began is not None

    def _look(self) -> None:
        last = time.perf_counter_ns()
        while not self._end.wait(INTERVAL):
            frame = sys._current_frames().get(self._ident)
            now = time.perf_counter_ns()
            collected = max(min(self._taken(now), now - last), 0)
            if collected:
                self.samples.append(Sample(now, collected, "python", COLLECTOR))
            if frame is not None:
                self.samples.append(Sample(now, now - last - collected, *classified(frame)))
            last = now

    def _taken(self, now: int) -> int:
        """How long garbage collections took since the last sample."""
        found, self._collected = self._collected, 0
        if self._collecting:  # Python changes threads before it says that a collection has ended
            found, self._collecting = found + now - self._collecting, now
        return found

    def _collects(self, phase: str, _: dict[str, int]) -> None:
        """Python calls this at the beginning and the end of a garbage collection."""
        now = time.perf_counter_ns()
        if phase == "start":
            self._collecting = now
        elif self._collecting:
            self._collected += now - self._collecting  # less than 0 if a sample has come between
            self._collecting = 0


def classified(frame: FrameType | None) -> tuple[str, str]:
    """The kind of work that a stack does, and its innermost line outside gemel and the library."""
    kind, where, inner = "python", "", ""
    while frame is not None:
        code = frame.f_code
        file, name = code.co_filename, code.co_name
        ours = file.startswith(HERE + os.sep)
        if not where and not ours and not file.startswith((LIBRARY, "<frozen")):
            where = f"{file}:{frame.f_lineno}"
        if kind == "python":
            if file.startswith(TRANSFORMS):
                kind = "transforms"
            elif file.startswith(DATA):
                transforms = "_function" in getattr(frame.f_locals.get("self"), "__dict__", ())
                kind = "transforms" if transforms and inner not in ("", "__getitem__") else "data"
            elif _reads(frame, ours):
                kind = "data"
        inner = name
        frame = frame.f_back
    return kind, where


def _reads(frame: FrameType, ours: bool) -> bool:
    """Whether a frame of the program produces the next element of a loop, so is a data reader."""
    caller = frame.f_back
    if ours or caller is None or caller.f_code.co_filename.startswith(LIBRARY):
        return False
    return bool(frame.f_code.co_flags & GENERATOR) or frame.f_code.co_name == "__next__"


__all__ = ["COLLECTOR", "Sample", "Sampler", "Span", "classified"]

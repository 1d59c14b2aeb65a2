"""Samples of what the program does in Python: reading data, transforming them, or anything else.

A thread looks at the stack of the thread that started the profiler every few milliseconds, and
only while the profiler runs.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from types import FrameType
from typing import NamedTuple

import gemel
from gemel import _core

#: Seconds between two samples; more while Python computes without a pause.
INTERVAL = 0.002
HERE = os.path.dirname(gemel.__file__)
DATA = os.path.join(HERE, "gluon", "data") + os.sep
DATASET = os.path.join(DATA, "dataset.py")
TRANSFORMS = os.path.join(DATA, "vision", "transforms")
LIBRARY = os.path.dirname(os.__file__)
GENERATOR = 0x20  # of a code's flags


class Sample(NamedTuple):
    """What the program did for some time, up to a moment."""

    time: int
    duration: int
    kind: str  # data, transforms, python
    where: str  # the innermost line that is the program's own


class Span(NamedTuple):
    """A stretch of time in which samples were taken."""

    started: int
    finished: int
    processor: int  # nanoseconds of processor time the process used
    settled: int  # until when the profiler then waited for the engine


class Sampler:
    """Takes samples of the thread that starts it, between `start` and `stop`."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []
        self.spans: list[Span] = []
        self.thread = 0  # as the trace numbers them
        self._ident = 0
        self._began: tuple[int, int] | None = None
        self._end = threading.Event()
        self._looker: threading.Thread | None = None

    def start(self) -> None:
        """Begin. Nothing if it has begun."""
        if self._began is not None:
            return
        self.thread, self._ident = _core.trace_thread(), threading.get_ident()
        self._began = time.perf_counter_ns(), time.process_time_ns()
        self._end.clear()
        self._looker = threading.Thread(target=self._look, name="gemel-sampler", daemon=True)
        self._looker.start()

    def stop(self) -> None:
        """End. Nothing if it has not begun."""
        if self._began is None:
            return
        self.spans.append(self.span())
        self._began = None
        self._end.set()
        if self._looker is not None:
            self._looker.join()

    def settled(self) -> None:
        """The engine has done what was issued before `stop`."""
        self.spans[-1] = self.spans[-1]._replace(settled=time.perf_counter_ns())

    def span(self) -> Span:
        """The stretch of time up to now."""
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
            if frame is not None:
                self.samples.append(Sample(now, now - last, *classified(frame)))
            last = now


def classified(frame: FrameType | None) -> tuple[str, str]:
    """What a stack is busy with, and its innermost line outside gemel and Python's library."""
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
    """Whether a frame of the program gives the next element to a loop: a reader of its own."""
    caller = frame.f_back
    if ours or caller is None or caller.f_code.co_filename.startswith(LIBRARY):
        return False
    return bool(frame.f_code.co_flags & GENERATOR) or frame.f_code.co_name == "__next__"


__all__ = ["Sample", "Sampler", "Span", "classified"]

"""`profiler`: what the engine did and when, and what the program waited for, drawn or counted.

    profiler.set_state("run")
    ...
    print(profiler.dumps())          # operations by time
    print(profiler.steps())          # inside compiled programs: their steps by time
    print(profiler.sync_points())    # lines that made the program wait
    print(profiler.report())         # where the time went, the bottleneck, and a remedy
    profiler.dump()                  # a trace for Perfetto

    with profiler.graph() as g:
        step()
    g.save("step.svg")               # the operations of a step, drawn

The names are those of MXNet's profiler.

`session`, `records`, `sampling`, `annotations`
    Recordings: what the core notes, what Python does meanwhile, what a program adds.
`table`, `steps`, `sync`, `report`, `perfetto`
    What is made of them: tables, reports, a file.
`graph`, `svg`
    The operations as a graph, and its drawing.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gemel import _core
from gemel.arrays.archives import appear, checked_path
from gemel.config import LARGEST
from gemel.errors import ArgumentError, unknown_name
from gemel.profiler import table
from gemel.profiler.annotations import (
    Counter,
    Domain,
    Event,
    Frame,
    Marker,
    Task,
    scope,
)
from gemel.profiler.graph import StepGraph
from gemel.profiler.perfetto import trace_events
from gemel.profiler.records import Edge, Operation, Trace, Wait
from gemel.profiler.report import Report
from gemel.profiler.report import report as _report
from gemel.profiler.sampling import Sampler
from gemel.profiler.session import Recorder, Recording
from gemel.profiler.steps import StepReport, StepRow
from gemel.profiler.steps import steps as _steps
from gemel.profiler.sync import SyncPoint, SyncReport
from gemel.profiler.sync import sync_points as _sync_points
from gemel.ranges import check_flag

#: MXNet's switches for what is recorded. They are accepted, but everything is always recorded.
_SWITCHES = (
    "profile_all",
    "profile_symbolic",
    "profile_imperative",
    "profile_memory",
    "profile_api",
    "aggregate_stats",
    "continuous_dump",
)
#: The other settings; MXNet's `profile_process` and `dump_period` do nothing here.
_OTHERS = ("filename", "capacity", "profile_process", "dump_period")


class _Profiler:
    """The only profiler: its settings, and what it has recorded."""

    def __init__(self) -> None:
        self.filename = "profile.json"
        self.running = False  # also while it is paused
        self.lock = threading.Lock()  # never held while waiting for the engine
        self.recorder = Recorder()
        self.recording = Recording()
        self.sampler = Sampler()

    def begin(self) -> None:
        """Start recording, or continue."""
        self.recorder.open(self.recording)
        self.sampler.start()

    def end(self) -> None:
        """Stop recording; waits for the operations that were issued."""
        with self.lock:
            recording, sampler = self.recording, self.sampler
            stopped = sampler.is_running
            sampler.stop()
        if stopped:
            _core.trace_settle()
            sampler.settled()
        self.recorder.close(recording)

    def restart(self) -> None:
        """Start a new recording in place of the current one."""
        self.running = False  # so no thread resumes the current one meanwhile
        self.end()
        with self.lock:
            self.running = True
            # If one is open, another thread has just started it: it is new, too.
            if not self.recorder.is_open(self.recording):
                self.sampler.stop()  # another thread may have continued it before it was closed
                self.recording, self.sampler = Recording(), Sampler()
            self.begin()

    def collect(self) -> Trace:
        """Everything recorded so far."""
        self.recorder.collect()
        return self.recording.trace


_profiler = _Profiler()


def _begin_in_child() -> None:
    """A forked child lacks the threads that held the locks at the fork."""
    _profiler.lock, _profiler.recorder.lock = threading.Lock(), threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_in_child)


def set_config(**settings: Any) -> None:
    """Set `filename`, the file that `dump` writes (profile.json), and `capacity`, the maximum
    number of recorded operations (1,000,000).

    MXNet's switches (`profile_all`, `aggregate_stats`, ...) are accepted: everything is always
    recorded. Raises `UnknownNameError` for any other setting, `ArgumentError` for a filename that
    is no path and a capacity that is not a whole number, and `OperandError` for a switch that is
    neither true nor false. Then nothing is set.
    """
    for name in settings:
        if name in _SWITCHES:
            check_flag("profiler", name, settings[name])
        elif name not in _OTHERS:
            raise unknown_name("setting of the profiler", name, (*_OTHERS, *_SWITCHES))
    filename = checked_path("profiler", "filename", settings.get("filename", _profiler.filename))
    capacity = settings.get("capacity", _profiler.recorder.capacity)
    whole = isinstance(capacity, int) and not isinstance(capacity, bool)
    if not whole or not 0 <= capacity <= LARGEST:
        raise ArgumentError(
            f"profiler: capacity={capacity!r} is not a valid number of operations; give a whole "
            "number from 0 to 2**63 - 1"
        )
    _profiler.filename, _profiler.recorder.capacity = filename, capacity


def set_state(state: str = "stop", profile_process: str = "worker") -> None:
    """Start a new recording ("run"), or end it when everything issued is done ("stop").

    `profile_process` is accepted for old code, here and below: only this process is recorded, not
    parameter servers.
    """
    if state not in ("run", "stop"):
        raise unknown_name("state of the profiler", state, ("run", "stop"))
    if state == "run":
        _profiler.restart()
    else:
        _profiler.running = False
        _profiler.end()


def pause(profile_process: str = "worker") -> None:
    """Record nothing until `resume`."""
    _profiler.end()


def resume(profile_process: str = "worker") -> None:
    """Continue recording."""
    with _profiler.lock:
        if _profiler.running:
            _profiler.begin()


def dump(finished: bool = True, profile_process: str = "worker") -> str:
    """Write the recording as a Perfetto trace and return the file's name. `finished` also ends the
    recording. Raises `MissingFileError` if the file's folder is missing."""
    check_flag("dump", "finished", finished)
    if finished:
        set_state("stop")
    trace, recording = _profiler.collect(), _profiler.recording
    events = trace_events(trace, recording.notes, recording.slices(), recording.labels())
    appear(_profiler.filename, [json.dumps(events).encode()])
    return _profiler.filename


def dumps(
    reset: bool = False,
    format: str = "table",
    sort_by: str = "total",
    ascending: bool | None = None,
) -> str:
    """The operations by time, as a table or as JSON. `reset` clears the recording afterwards.

    `sort_by` is total, times, mean, maximum, minimum (MXNet's count, avg, max, min), bytes or name:
    descending by default, names ascending; `ascending` overrides this. Raises `UnknownNameError`.
    """
    check_flag("dumps", "reset", reset)
    if format not in ("table", "json"):
        raise unknown_name("format of the table", format, ("table", "json"))
    trace = _profiler.collect()
    if format == "table":
        found = table.text(trace, sort_by, ascending)
    else:
        found = json.dumps([row._asdict() for row in table.rows(trace, sort_by, ascending)])
    if reset:
        _profiler.recorder.clear(_profiler.recording)
    return found


def steps() -> StepReport:
    """The time inside compiled programs: for each step its operations, number of runs and duration.

    Single operations that have their own plan (a product, a sum) are included. Times are wall time.
    A step is a kernel; a kernel shared by several threads counts once. Steps of a program that
    compute the same share a row, which has the runs of all of them: two in ten calls are 20.
    """
    return _steps(_profiler.collect())


def sync_points() -> SyncReport:
    """The lines that made the program wait for the engine, with the time and what they waited
    for."""
    return _sync_points(_profiler.collect())


def report() -> Report:
    """The shares of wall time for data, transforms, Python issue, compute, copies and sync points;
    the bottleneck, and one remedy.

    The report is about the thread that started the recording. Its Python code is sampled every few
    milliseconds, so less than a tenth of a second is too short for a meaningful report.
    """
    return _report(_profiler.collect(), _profiler.sampler)


def recording() -> Trace:
    """Everything recorded so far, as records."""
    return _profiler.collect().labelled(_profiler.recording.labels())


@contextmanager
def graph() -> Iterator[StepGraph]:
    """Record the operations of a `with` block as a graph, which is complete after the block.

    The end of the block waits for the operations. A running recording also keeps them.
    """
    found = StepGraph()
    block = Recording()
    _profiler.recorder.open(block)
    try:
        yield found
    finally:
        _profiler.recorder.close(block)
        found.fill(block.trace, block.labels())


__all__ = [
    "Counter",
    "Domain",
    "Edge",
    "Event",
    "Frame",
    "Marker",
    "Operation",
    "Report",
    "StepGraph",
    "StepReport",
    "StepRow",
    "SyncPoint",
    "SyncReport",
    "Task",
    "Trace",
    "Wait",
    "dump",
    "dumps",
    "graph",
    "pause",
    "recording",
    "report",
    "resume",
    "scope",
    "set_config",
    "set_state",
    "steps",
    "sync_points",
]

"""The trace as a file that Perfetto (and Chrome) opens: the Trace Event Format.

One process holds a track per thread and lane: a slice for every operation where it ran, arrows from
each operation to those that had to wait for it, the waits of the program's threads, and counters of
the queue and the memory. Source: "Trace Event Format", Google, 2016.
"""

from __future__ import annotations

import os
from typing import Any

from gemel.profiler.annotations import Notes
from gemel.profiler.records import Operation, Trace, device_name

Events = list[dict[str, Any]]

#: Program threads have tracks of their own below the engine's, numbered from here.
PROGRAM = 1000


def trace_events(trace: Trace, notes: Notes) -> dict[str, Any]:
    """The document: {"traceEvents": [...], ...}."""
    writer = _Writer(trace, notes)
    events = [
        *writer.names(),
        *writer.operations(),
        *writer.issues(),
        *writer.arrows(),
        *writer.waits(),
        *writer.counters(),
        *writer.annotations(),
    ]
    other = {"producer": "gemel", "dropped operations": trace.dropped}
    return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": other}


class _Writer:
    def __init__(self, trace: Trace, notes: Notes) -> None:
        self.trace = trace
        self.notes = notes
        moments = [s.started for s in notes.slices] + [m.time for m in notes.marks]
        moments += [r.time for r in notes.readings]
        begin = trace.start()
        self.begin = min([begin, *moments]) if begin else min(moments, default=0)
        self.process = os.getpid()
        self.done = trace.finished()

    def at(self, nanoseconds: int) -> float:
        """Microseconds since the start."""
        return (nanoseconds - self.begin) / 1000

    def event(self, phase: str, name: str, track: int, time: int, **more: Any) -> dict[str, Any]:
        return {
            "ph": phase,
            "name": name,
            "pid": self.process,
            "tid": track,
            "ts": self.at(time),
            **more,
        }

    def names(self) -> Events:
        """What the process and its tracks are called, in the order they are shown."""
        tracks = [(number, name) for number, name in sorted(self.trace.threads.items())]
        issuing = sorted({o.issue_thread for o in self.trace.operations})
        tracks += [(PROGRAM + n, f"issue: {self.trace.threads.get(n, n)}") for n in issuing]
        tracks += [(t, f"tasks of thread {t}") for t in self._program_threads()]
        events = [self._metadata("process_name", 0, name="gemel")]
        for order, (track, name) in enumerate(tracks):
            events.append(self._metadata("thread_name", track, name=name))
            events.append(self._metadata("thread_sort_index", track, sort_index=order))
        return events

    def _metadata(self, kind: str, track: int, **given: Any) -> dict[str, Any]:
        return {"ph": "M", "name": kind, "pid": self.process, "tid": track, "args": given}

    def _program_threads(self) -> list[int]:
        threads = {s.thread for s in self.notes.slices} | {m.thread for m in self.notes.marks}
        return sorted(2 * PROGRAM + thread for thread in threads)

    def operations(self) -> Events:
        """A slice for every operation, on the track of the thread that ran it."""
        ready = self.trace.ready()
        return [self._slice(operation, ready[operation.number]) for operation in self.done]

    def _slice(self, operation: Operation, ready: int) -> dict[str, Any]:
        told = {
            "number": operation.number,
            "specs": operation.detail,
            "bytes": operation.bytes,
            "device": device_name(operation.device),
            "issued at": operation.where,
            "inline": operation.inlined,
            "failed": operation.failed,
            "estimated us": operation.microseconds,
            "queued us": max(operation.started - ready, 0) / 1000,
            "waited for others us": (ready - operation.issued) / 1000,
        }
        return self.event(
            "X",
            operation.name,
            operation.thread,
            operation.started,
            dur=operation.duration / 1000,
            cat="copy" if operation.copies else "operation",
            args=told,
        )

    def issues(self) -> Events:
        """The moments of issue, on a track of the thread that issued."""
        return [
            self.event(
                "i",
                f"issue {o.name}",
                PROGRAM + o.issue_thread,
                o.issued,
                s="t",
                args={"number": o.number, "at": o.where},
            )
            for o in self.trace.operations
        ]

    def arrows(self) -> Events:
        """From inside the slice of each operation to the slice of one that had to come later."""
        known = {operation.number: operation for operation in self.done}
        events = []
        for number, edge in enumerate(self.trace.edges):
            before, after = known.get(edge.before), known.get(edge.after)
            if before is None or after is None:
                continue
            same = {"id": number, "cat": "dependency"}
            leave = max(before.finished - 1, before.started)
            events.append(self.event("s", edge.kind, before.thread, leave, **same))
            events.append(self.event("f", edge.kind, after.thread, after.started, bp="e", **same))
        return events

    def waits(self) -> Events:
        """A slice for every call that blocked, on the issue track of its thread."""
        known = self.trace.by_number()
        events = []
        for wait in self.trace.waits:
            waited = known.get(wait.operation)
            what = f"{waited.name} #{waited.number}" if waited else wait.kind
            told = {"kind": wait.kind, "at": f"{wait.file}:{wait.line}"}
            events.append(
                self.event(
                    "X",
                    f"wait for {what}",
                    PROGRAM + wait.thread,
                    wait.started,
                    dur=wait.duration / 1000,
                    cat="wait",
                    args=told,
                )
            )
        return events

    def counters(self) -> Events:
        """The queue's depth and the memory held."""
        events = []
        for sample in sorted(self.trace.samples):
            depth, held = {"operations": sample.pending}, {"bytes": sample.bytes}
            events.append(self.event("C", "queue depth", 0, sample.time, args=depth))
            events.append(self.event("C", "memory", 0, sample.time, args=held))
        return events

    def annotations(self) -> Events:
        """The program's own slices, marks and counters."""
        events = []
        for note in self.notes.slices:
            category = ".".join(filter(None, (note.kind, note.domain)))
            length = (note.finished - note.started) / 1000
            track = 2 * PROGRAM + note.thread
            events.append(self.event("X", note.name, track, note.started, dur=length, cat=category))
        for mark in self.notes.marks:
            track = 2 * PROGRAM + mark.thread
            events.append(self.event("i", mark.name, track, mark.time, s=mark.reach))
        for reading in sorted(self.notes.readings, key=lambda r: r.time):
            name = ".".join(filter(None, (reading.domain, reading.name)))
            shown = {"value": reading.value}
            events.append(self.event("C", name, 0, reading.time, args=shown))
        return events


__all__ = ["trace_events"]

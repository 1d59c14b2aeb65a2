"""The trace as a file that Perfetto and Chrome can open, in the Trace Event Format.

A process has a track per thread and lane. There is a slice for every operation where it ran, an
arrow from each operation to those that had to wait for it, the waits of the program's threads, and
counters of the queue and the memory. Source: "Trace Event Format", Google, 2016.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from gemel.profiler.annotations import Notes, Slice
from gemel.profiler.records import Operation, Trace, Wait, device_name

Events = list[dict[str, Any]]


def trace_events(
    trace: Trace,
    notes: Notes,
    slices: Iterable[Slice] = (),
    labels: Mapping[int, str] | None = None,
) -> dict[str, Any]:
    """Return the document: {"traceEvents": [...], ...}.

    `slices` are the program's spans of time; `labels` are the scopes of the operations, by number.
    """
    writer = _Writer(trace, notes, slices, labels or {})
    events = [
        *writer.names(),
        *writer.operations(),
        *writer.steps(),
        *writer.issues(),
        *writer.arrows(),
        *writer.spans(),
        *writer.counters(),
        *writer.annotations(),
    ]
    other = {"producer": "gemel", "dropped operations": trace.dropped}
    return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": other}


class _Span(NamedTuple):
    """A wait or an annotation, drawn as a slice on the program's track of its thread."""

    started: int
    finished: int
    name: str
    category: str
    details: dict[str, Any]


class _Writer:
    def __init__(
        self, trace: Trace, notes: Notes, slices: Iterable[Slice], labels: Mapping[int, str]
    ) -> None:
        self.trace = trace
        self.notes = notes
        self.labels = labels
        self.done = trace.finished()
        known = trace.by_number()
        spans: dict[int, list[_Span]] = {}
        for wait in trace.waits:
            spans.setdefault(wait.thread, []).append(_wait(wait, known))
        for note in slices:
            spans.setdefault(note.thread, []).append(_stretch(note))
        self.rows = {thread: _nested(found) for thread, found in spans.items()}
        self.tracks = self._tracks()
        moments = [span.started for found in spans.values() for span in found]
        moments += [m.time for m in notes.marks] + [r.time for r in notes.readings]
        moments += [o.issued for o in trace.operations] + [s.time for s in trace.samples]
        self.begin = min(moments, default=0)
        self.process = os.getpid()

    def _tracks(self) -> dict[tuple[int, int], int]:
        """The program's tracks of each thread, by thread and row; they follow those of the
        engine."""
        threads = {o.issue_thread for o in self.trace.operations} | self.rows.keys()
        threads |= {mark.thread for mark in self.notes.marks}
        rows = [(n, row) for n in sorted(threads) for row in range(len(self.rows.get(n, [0])))]
        ran = {*self.trace.threads, *(o.thread for o in self.trace.operations)}
        return {key: max(ran, default=0) + 1 + place for place, key in enumerate(rows)}

    def at(self, nanoseconds: int) -> float:
        """Microseconds since the start of the trace."""
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
        """The names of the process and its tracks, in the order in which they are shown."""
        called = self.trace.threads
        ran = {*called, *(o.thread for o in self.trace.operations)}
        tracks = [(number, called.get(number, f"thread {number}")) for number in sorted(ran)]
        for (thread, row), track in self.tracks.items():
            name = called.get(thread, f"thread {thread}")
            tracks.append((track, f"issue: {name}" + (f" ({row + 1})" if row else "")))
        events = [self._metadata("process_name", 0, name="gemel")]
        for order, (track, name) in enumerate(tracks):
            events.append(self._metadata("thread_name", track, name=name))
            events.append(self._metadata("thread_sort_index", track, sort_index=order))
        return events

    def _metadata(self, kind: str, track: int, **given: Any) -> dict[str, Any]:
        return {"ph": "M", "name": kind, "pid": self.process, "tid": track, "args": given}

    def operations(self) -> Events:
        """A slice for every operation, on the track of the thread that ran it."""
        ready = self.trace.ready()
        return [self._slice(operation, ready[operation.number]) for operation in self.done]

    def _slice(self, operation: Operation, ready: int) -> dict[str, Any]:
        """The event of an operation whose inputs were ready at `ready`."""
        details = {
            "number": operation.number,
            "specs": operation.detail,
            "bytes": operation.bytes,
            "device": device_name(operation.device),
            "lane": operation.lane,
            "issued us": self.at(operation.issued),
            "issued at": operation.where,
            "inline": operation.inlined,
            "failed": operation.failed,
            "estimated us": operation.microseconds,
            "queued us": max(operation.started - ready, 0) / 1000,
            "waited for others us": (ready - operation.issued) / 1000,
        }
        if operation.number in self.labels:
            details["scope"] = self.labels[operation.number]
        return self.event(
            "X",
            operation.name,
            operation.thread,
            operation.started,
            dur=operation.duration / 1000,
            cat="copy" if operation.copies else "operation",
            args=details,
        )

    def steps(self) -> Events:
        """The steps of compiled programs, as slices inside those of their operations."""
        return [
            self.event(
                "X",
                step.label,
                step.thread,
                step.started,
                dur=step.duration / 1000,
                cat="step",
                args={"operation": step.operation},
            )
            for step in self.trace.steps
        ]

    def issues(self) -> Events:
        """The times of issue, on a track of the issuing thread."""
        return [
            self.event(
                "i",
                f"issue {o.name}",
                self.tracks[o.issue_thread, 0],
                o.issued,
                s="t",
                args={"number": o.number, "at": o.where},
            )
            for o in self.trace.operations
        ]

    def arrows(self) -> Events:
        """Arrows from the slice of each operation to the slice of an operation that had to wait for
        it."""
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

    def spans(self) -> Events:
        """Waits, scopes and tasks, on the program's tracks of their threads."""
        return [
            self.event(
                "X",
                span.name,
                self.tracks[thread, place],
                span.started,
                dur=(span.finished - span.started) / 1000,
                cat=span.category,
                args=span.details,
            )
            for thread, rows in self.rows.items()
            for place, row in enumerate(rows)
            for span in row
        ]

    def counters(self) -> Events:
        """The queue's depth and the memory in use."""
        events = []
        for sample in sorted(self.trace.samples):
            depth, held = {"operations": sample.pending}, {"bytes": sample.bytes}
            events.append(self.event("C", "queue depth", 0, sample.time, args=depth))
            events.append(self.event("C", "memory", 0, sample.time, args=held))
        return events

    def annotations(self) -> Events:
        """The program's own marks and counters."""
        events = []
        for mark in self.notes.marks:
            track = self.tracks[mark.thread, 0]
            events.append(self.event("i", mark.name, track, mark.time, s=mark.reach))
        for reading in sorted(self.notes.readings, key=lambda r: r.time):
            name = ".".join(filter(None, (reading.domain, reading.name)))
            shown = {"value": reading.value}
            events.append(self.event("C", name, 0, reading.time, args=shown))
        return events


def _wait(wait: Wait, known: Mapping[int, Operation]) -> _Span:
    waited = known.get(wait.operation)
    what = f"{waited.name} #{waited.number}" if waited else wait.kind
    details = {"kind": wait.kind, "at": f"{wait.file}:{wait.line}"}
    return _Span(wait.started, wait.finished, f"wait for {what}", "wait", details)


def _stretch(note: Slice) -> _Span:
    category = ".".join(filter(None, (note.kind, note.domain)))
    return _Span(note.started, note.finished, note.name, category, {})


def _nested(spans: list[_Span]) -> list[list[_Span]]:
    """Group spans into rows in which two spans only overlap if one contains the other.

    The slices of a track have to nest. Tasks need not: one may begin inside another and outlast it.
    """
    rows: list[list[_Span]] = []
    ends: list[list[int]] = []  # for each row the ends of its open spans, the innermost last
    for span in sorted(spans, key=lambda s: (s.started, -s.finished)):
        for row, unfinished in zip(rows, ends, strict=True):
            while unfinished and unfinished[-1] <= span.started:
                unfinished.pop()
            if not unfinished or span.finished <= unfinished[-1]:
                row.append(span)
                unfinished.append(span.finished)
                break
        else:
            rows.append([span])
            ends.append([span.finished])
    return rows


__all__ = ["trace_events"]

"""The sync-point report: which lines made the program wait for the engine."""

from __future__ import annotations

import linecache
from collections import Counter
from typing import NamedTuple

from gemel.profiler.records import Trace

#: The names of the kinds of waits.
KINDS = {
    "array": "an array",
    "export": "an array given to outside",
    "all": "everything",
    "device": "a device",
    "queue": "room in the queue",
}


class SyncPoint(NamedTuple):
    """A line that blocked; times in microseconds."""

    file: str
    line: int
    kind: str
    times: int
    total: float
    longest: float
    waited_for: tuple[tuple[str, int], ...]  # operations' names, and how often

    @property
    def source(self) -> str:
        """The text of the line, if it can be read."""
        return linecache.getline(self.file, self.line).strip()


class SyncReport(list[SyncPoint]):
    """The lines that blocked, longest total first; prints as a report."""

    def __str__(self) -> str:
        if not self:
            return "no line waited for the engine"
        total = sum(point.total for point in self)
        count = "1 line" if len(self) == 1 else f"{len(self)} lines"
        lines = [
            f"{count} waited for the engine, {total / 1000:.3f} ms in all. Each keeps "
            "the program from issuing ahead:",
            "move it out of the loop, read less often, or keep the value in an array.",
        ]
        for point in self:
            names = ", ".join(f"{name} x{n}" if n > 1 else name for name, n in point.waited_for)
            lines += [
                "",
                f"{point.file}:{point.line}: {_times(point.times)}, {point.total / 1000:.3f} ms, "
                f"longest {point.longest / 1000:.3f} ms",
            ]
            lines += [f"    {point.source}"] if point.source else []
            lines += [f"    waited for {KINDS[point.kind]}{': ' + names if names else ''}"]
        return "\n".join(lines)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def sync_points(trace: Trace) -> SyncReport:
    """The report on a trace."""
    known = {operation.number: operation.name for operation in trace.operations}
    groups: dict[tuple[str, int, str], list[tuple[float, str]]] = {}
    for wait in trace.waits:
        key = wait.file, wait.line, wait.kind
        groups.setdefault(key, []).append((wait.duration / 1000, known.get(wait.operation, "")))
    found = []
    for (file, line, kind), members in groups.items():
        spans = [span for span, _ in members]
        names = Counter(name for _, name in members if name)
        waited = tuple(names.most_common())
        found.append(SyncPoint(file, line, kind, len(spans), sum(spans), max(spans), waited))
    return SyncReport(sorted(found, key=lambda point: -point.total))


__all__ = ["SyncPoint", "SyncReport", "sync_points"]

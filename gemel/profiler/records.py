"""The contents of the core's trace, as typed records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from gemel import _core
from gemel.device import from_code

#: The value of `lane_link` in the core for a lane without copies.
NO_LINK = -2


class Operation(NamedTuple):
    """One operation of the engine. Times are nanoseconds of `time.perf_counter_ns`."""

    number: int  # in order of issue
    name: str
    detail: str  # its specs
    device: int
    lane: int
    thread: int  # which ran it
    issue_thread: int
    issued: int
    started: int
    finished: int
    bytes: int  # of its results
    inlined: bool  # run by the call that issued it
    failed: bool
    microseconds: float  # as estimated beforehand
    file: str
    line: int
    label: str = ""  # the scopes it was issued in, the outermost first: "forward/dense"

    @property
    def duration(self) -> int:
        """The nanoseconds it ran."""
        return max(self.finished - self.started, 0)

    @property
    def copies(self) -> bool:
        """Whether it copies data from one device to another."""
        return _core.lane_link(self.lane) != NO_LINK

    @property
    def where(self) -> str:
        """The line that issued it."""
        return f"{self.file}:{self.line}" if self.file else "?"


class Step(NamedTuple):
    """A step of a compiled program, run by an operation. Times are as for `Operation`."""

    operation: int
    label: str  # what it computes: operations, and the specs of the results
    thread: int
    started: int
    finished: int

    @property
    def duration(self) -> int:
        """The nanoseconds it ran."""
        return self.finished - self.started


class Edge(NamedTuple):
    """`after` had to wait for `before`, and the reason: "read after write", ..."""

    before: int
    after: int
    kind: str


class Wait(NamedTuple):
    """A call that blocked."""

    thread: int
    started: int
    finished: int
    kind: str  # array, export, all, device, queue
    operation: int  # the one whose result was waited for; 0: several
    file: str
    line: int

    @property
    def duration(self) -> int:
        """The nanoseconds it blocked."""
        return self.finished - self.started


class Sample(NamedTuple):
    """The number of queued or running operations, and the bytes of memory in use."""

    time: int
    pending: int
    bytes: int


class Trace:
    """Everything recorded, from one or several calls of `trace_take`."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.steps: list[Step] = []
        self.edges: list[Edge] = []
        self.waits: list[Wait] = []
        self.samples: list[Sample] = []
        self.threads: dict[int, str] = {}
        self.dropped = 0

    def add(self, taken: dict[str, Any]) -> None:
        """Append the result of the core's `trace_take`."""
        self.operations += [Operation(*row) for row in taken["operations"]]
        self.steps += map(Step._make, taken["steps"])
        self.edges += map(Edge._make, taken["edges"])
        self.waits += map(Wait._make, taken["waits"])
        self.samples += map(Sample._make, taken["counters"])
        self.threads.update(taken["threads"])
        self.dropped += taken["dropped"]

    def extend(self, other: Trace, since: int = 0) -> None:
        """Append the later part of another trace, from time `since` on, with the edges that lead
        there."""
        kept = [operation for operation in other.operations if operation.issued >= since]
        inside = {operation.number for operation in kept}
        self.operations += kept
        self.steps += [step for step in other.steps if step.operation in inside]
        self.edges += [edge for edge in other.edges if edge.after in inside]
        self.waits += [wait for wait in other.waits if wait.started >= since]
        self.samples += [sample for sample in other.samples if sample.time >= since]
        self.threads.update(other.threads)
        self.dropped += other.dropped

    def labelled(self, labels: Mapping[int, str]) -> Trace:
        """The same trace with the scopes of its operations, which `labels` has by number."""
        found = Trace()
        found.extend(self)
        found.operations = [o._replace(label=labels.get(o.number, "")) for o in self.operations]
        return found

    def by_number(self) -> dict[int, Operation]:
        """The operations by their number."""
        return {operation.number: operation for operation in self.operations}

    def finished(self) -> list[Operation]:
        """The operations that have run to their end."""
        return [operation for operation in self.operations if operation.finished]

    def ready(self) -> dict[int, int]:
        """When each operation could have started: it was issued, and its predecessors had
        finished."""
        times = {operation.number: operation.issued for operation in self.operations}
        ends = {operation.number: operation.finished for operation in self.operations}
        for edge in self.edges:
            if edge.after in times and edge.before in ends:
                times[edge.after] = max(times[edge.after], ends[edge.before])
        return times

    def start(self) -> int:
        """The earliest time in the trace."""
        moments = [o.issued for o in self.operations]
        moments += [w.started for w in self.waits] + [s.time for s in self.samples]
        return min(moments, default=0)


def link_device(lane: int) -> int | None:
    """The GPU at the end of the link of a copy lane; None for copies between CPUs."""
    link = _core.lane_link(lane)
    return link if link >= 0 else None


def device_name(code: int) -> str:
    """The name of a device of the core."""
    return str(from_code(code))


def kibibytes(count: int) -> str:
    """Bytes as text."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"


__all__ = [
    "Edge",
    "Operation",
    "Sample",
    "Step",
    "Trace",
    "Wait",
    "device_name",
    "kibibytes",
    "link_device",
]

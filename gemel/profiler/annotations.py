"""Annotations that a program adds to its own trace: scopes, tasks, counters, markers."""

from __future__ import annotations

import reprlib
import time
from collections.abc import Iterable
from math import isfinite
from typing import Any, NamedTuple, SupportsFloat

from gemel import _core
from gemel.errors import ArgumentError, unknown_name
from gemel.profiler.records import Operation


class Slice(NamedTuple):
    """A named span of time on one of the program's threads."""

    name: str
    kind: str  # scope, task, frame, event
    domain: str
    thread: int  # the trace's number of the thread
    started: int
    finished: int


class Mark(NamedTuple):
    """A named point in time."""

    name: str
    domain: str
    reach: str
    thread: int
    time: int


class Reading(NamedTuple):
    """The value of a counter from this time on."""

    name: str
    domain: str
    time: int
    value: float


class Notes:
    """All annotations made during one recording."""

    def __init__(self) -> None:
        self.slices: list[Slice] = []
        self.marks: list[Mark] = []
        self.readings: list[Reading] = []


class Board:
    """Passes annotations on to every recording in progress."""

    def __init__(self) -> None:
        self.readers: list[Notes] = []
        self.scopes: dict[scope, tuple[int, int]] = {}  # the open ones: thread and start

    def slice(self, found: Slice) -> None:
        """A span of time has ended."""
        for notes in self.readers:
            notes.slices.append(found)

    def mark(self, found: Mark) -> None:
        """A point in time was marked."""
        for notes in self.readers:
            notes.marks.append(found)

    def reading(self, found: Reading) -> None:
        """A counter changed."""
        for notes in self.readers:
            notes.readings.append(found)

    def open_scopes(self, end: int) -> list[Slice]:
        """The scopes that are open at time `end`, as if they ended then."""
        return [
            Slice(found.name, found.kind, found.domain, thread, started, end)
            for found, (thread, started) in tuple(self.scopes.items())
            if started < end
        ]


board = Board()


def labels(operations: Iterable[Operation], slices: Iterable[Slice]) -> dict[int, str]:
    """The scopes in which each operation was issued, by the operation's number."""
    issued: dict[int, list[Operation]] = {}
    for operation in sorted(operations, key=lambda o: o.issued):
        issued.setdefault(operation.issue_thread, []).append(operation)
    scopes: dict[int, list[Slice]] = {}
    for found in sorted(slices, key=lambda s: (-s.started, s.finished)):  # the outermost last
        if found.kind == scope.kind:
            scopes.setdefault(found.thread, []).append(found)
    names = {}
    for thread, later in scopes.items():
        active: list[Slice] = []
        for operation in issued.get(thread, ()):
            while later and later[-1].started <= operation.issued:
                active.append(later.pop())
            active = [s for s in active if s.finished >= operation.issued]
            if active:
                names[operation.number] = "/".join(s.name for s in active)
    return names


class Domain:
    """A prefix for the names of annotations: `Domain("loader").new_task("read")`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __str__(self) -> str:
        return self.name

    def new_task(self, name: str) -> Task:
        """A task of this domain."""
        return Task(name, self)

    def new_frame(self, name: str) -> Frame:
        """A frame of this domain."""
        return Frame(name, self)

    def new_counter(self, name: str, value: float | None = None) -> Counter:
        """A counter of this domain."""
        return Counter(name, self, value)

    def new_marker(self, name: str) -> Marker:
        """A marker of this domain."""
        return Marker(name, self)


class Task:
    """A named span of the program, from `start()` to `stop()` or a `with` block."""

    kind = "task"

    def __init__(self, name: Any, domain: Any = None) -> None:
        if isinstance(name, Domain):  # MXNet's order: Task(domain, name)
            name, domain = domain, name
        self.name = str(name)
        self.domain = "" if domain is None else str(domain)
        self._began: tuple[int, int] | None = None  # the thread, the time

    def start(self) -> None:
        """Start the span; a stopped task may start again."""
        self._began = _core.trace_thread(), time.perf_counter_ns()

    def stop(self) -> None:
        """End the span and add it to the trace if the profiler runs. Without `start` this does
        nothing."""
        began, self._began = self._began, None
        if began is not None and board.readers:
            now = time.perf_counter_ns()
            board.slice(Slice(self.name, self.kind, self.domain, *began, now))

    def __enter__(self) -> Task:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


class Frame(Task):
    """A repeated task, such as a batch or an image."""

    kind = "frame"


class Event(Task):
    """A task without a domain."""

    kind = "event"


class scope(Task):  # noqa: N801 -- used as a function
    """Give the operations of a block a common name: `with profiler.scope("forward"): ...`.

    Operations that this thread issues in the block carry the name, also in graphs. Scopes may be
    nested.
    """

    kind = "scope"

    def start(self) -> None:
        """Start: operations issued from now on carry the name."""
        super().start()
        if self._began is not None:
            board.scopes[self] = self._began

    def stop(self) -> None:
        """End the scope and add it to the trace if the profiler runs."""
        board.scopes.pop(self, None)
        super().stop()


class Counter:
    """A number over time."""

    def __init__(self, name: Any, domain: Any = None, value: float | None = None) -> None:
        if isinstance(name, Domain):
            name, domain = domain, name
        self.name = str(name)
        self.domain = "" if domain is None else str(domain)
        self.value: float = 0
        if value is not None:
            self.set_value(value)

    def set_value(self, value: SupportsFloat) -> None:
        """Set the counter to a number. NaN and infinities are not drawn: the trace's format has
        none. Raises `ArgumentError` for what is no number, or one that float64 does not hold."""
        self.value = _number(self.name, value)
        if board.readers and isfinite(self.value):
            board.reading(Reading(self.name, self.domain, time.perf_counter_ns(), self.value))

    def increment(self, delta: float = 1) -> None:
        """Add to the number."""
        self.set_value(self.value + _number(self.name, delta))

    def decrement(self, delta: float = 1) -> None:
        """Subtract from the number."""
        self.set_value(self.value - _number(self.name, delta))

    def __iadd__(self, delta: float) -> Counter:
        self.increment(delta)
        return self

    def __isub__(self, delta: float) -> Counter:
        self.decrement(delta)
        return self


def _number(counter: str, value: Any) -> float:
    """The Python number of a value: of one, of NumPy's scalars, of arrays of one element."""
    try:
        if hasattr(value, "__float__"):
            number = float(value)
            return value if isinstance(value, (int, float)) else number
    except (OverflowError, TypeError):  # an integer above float64's largest; several elements
        pass
    raise ArgumentError(f"Counter {counter!r}: {reprlib.repr(value)} is no number of float64")


#: MXNet's names for the scope of a mark, and the trace format's.
REACHES = {"global": "g", "process": "p", "thread": "t", "task": "t", "marker": "t"}


class Marker:
    """A named point in time."""

    def __init__(self, name: Any, domain: Any = None) -> None:
        if isinstance(name, Domain):
            name, domain = domain, name
        self.name = str(name)
        self.domain = "" if domain is None else str(domain)

    def mark(self, scope: str = "process") -> None:
        """Add the current time to the trace. Raises `UnknownNameError` for an unknown scope."""
        if not isinstance(scope, str) or scope not in REACHES:
            raise unknown_name("scope of a marker", scope, REACHES)
        if board.readers:
            thread, now = _core.trace_thread(), time.perf_counter_ns()
            board.mark(Mark(self.name, self.domain, REACHES[scope], thread, now))


__all__ = [
    "Counter",
    "Domain",
    "Event",
    "Frame",
    "Marker",
    "Notes",
    "Slice",
    "Task",
    "board",
    "labels",
    "scope",
]

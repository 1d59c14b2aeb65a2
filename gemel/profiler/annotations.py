"""What a program puts into its own trace: scopes, tasks, counters, markers."""

from __future__ import annotations

import threading
import time
from typing import Any, NamedTuple

from gemel.errors import unknown_name


class Slice(NamedTuple):
    """A stretch of time with a name, on one of the program's threads."""

    name: str
    kind: str  # scope, task, frame, event
    domain: str
    thread: int  # the system's number
    started: int
    finished: int


class Mark(NamedTuple):
    """A moment with a name."""

    name: str
    domain: str
    reach: str
    thread: int
    time: int


class Reading(NamedTuple):
    """What a counter showed from a moment on."""

    name: str
    domain: str
    time: int
    value: float


class Notes:
    """Everything annotated while the profiler ran."""

    def __init__(self) -> None:
        self.active = False
        self.slices: list[Slice] = []
        self.marks: list[Mark] = []
        self.readings: list[Reading] = []

    def clear(self) -> None:
        """Forget all of it."""
        self.slices, self.marks, self.readings = [], [], []


notes = Notes()


class Domain:
    """A name that belongs before other names: `Domain("loader").new_task("read")`."""

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
    """A stretch of the program from `start()` to `stop()`, or a `with` block."""

    kind = "task"

    def __init__(self, name: Any, domain: Any = None) -> None:
        if isinstance(name, Domain):  # MXNet's order: Task(domain, name)
            name, domain = domain, name
        self.name = str(name)
        self.domain = "" if domain is None else str(domain)
        self._started: int | None = None

    def start(self) -> None:
        """Begin; a task may begin again after it has stopped."""
        self._started = time.perf_counter_ns()

    def stop(self) -> None:
        """End, and put it into the trace when the profiler runs. Without `start` nothing is."""
        started, self._started = self._started, None
        if started is None or not notes.active:
            return
        thread = threading.get_native_id()
        now = time.perf_counter_ns()
        notes.slices.append(Slice(self.name, self.kind, self.domain, thread, started, now))

    def __enter__(self) -> Task:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


class Frame(Task):
    """A task that comes again and again: a batch, an image."""

    kind = "frame"


class Event(Task):
    """A task without a domain."""

    kind = "event"


class scope(Task):  # noqa: N801 -- used as a function
    """A block whose operations belong together: `with profiler.scope("forward"): ...`."""

    kind = "scope"


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

    def set_value(self, value: float) -> None:
        """Show another number from now on."""
        self.value = value
        if notes.active:
            now = time.perf_counter_ns()
            notes.readings.append(Reading(self.name, self.domain, now, value))

    def increment(self, delta: float = 1) -> None:
        """Add to the number."""
        self.set_value(self.value + delta)

    def decrement(self, delta: float = 1) -> None:
        """Take from the number."""
        self.set_value(self.value - delta)

    def __iadd__(self, delta: float) -> Counter:
        self.increment(delta)
        return self

    def __isub__(self, delta: float) -> Counter:
        self.decrement(delta)
        return self


#: MXNet's names of how far a mark reaches, and the trace format's.
REACHES = {"global": "g", "process": "p", "thread": "t", "task": "t", "marker": "t"}


class Marker:
    """Moments with a name."""

    def __init__(self, name: Any, domain: Any = None) -> None:
        if isinstance(name, Domain):
            name, domain = domain, name
        self.name = str(name)
        self.domain = "" if domain is None else str(domain)

    def mark(self, scope: str = "process") -> None:
        """Put this moment into the trace. Raises `UnknownNameError` for an unknown scope."""
        if scope not in REACHES:
            raise unknown_name("scope of a marker", scope, REACHES)
        if notes.active:
            thread, now = threading.get_native_id(), time.perf_counter_ns()
            notes.marks.append(Mark(self.name, self.domain, REACHES[scope], thread, now))


__all__ = ["Counter", "Domain", "Event", "Frame", "Marker", "Notes", "Task", "notes", "scope"]

"""A recorded step of several devices as it would run if each had a core of its own.

A simulated GPU computes on a core of this machine, and four of them on two cores cannot show what
four GPUs gain. But the engine's trace says which operations a step consists of, what each waits
for, how long the engine reckons that it takes, and how many bytes each copy carries. Here each
device does one operation at a time and each direction of each link one copy, as engine.md 23 and 24
say, and what could start first goes first.
"""

from __future__ import annotations

from collections import defaultdict
from heapq import heappop, heappush
from typing import NamedTuple

from gemel.device import CPU_COUNT, from_code
from gemel.profiler import Operation, Trace
from gemel.profiler.records import link_device


class Link(NamedTuple):
    """What a copy takes: a latency in microseconds, and its bytes at so many gigabytes a second."""

    gigabytes_per_second: float
    microseconds: float

    def takes(self, size: int) -> float:
        """Microseconds for so many bytes."""
        return self.microseconds + size / self.gigabytes_per_second / 1e3


#: A link nobody has to wait for.
FREE = Link(float("inf"), 0)


class Step(NamedTuple):
    """A replayed step; times in microseconds from its beginning."""

    operations: list[Operation]
    times: dict[int, tuple[float, float]]
    whole: float
    busy: dict[int, float]  # by GPU: how long it computed
    moved: dict[tuple[int, bool], int]  # bytes by GPU and direction; True: towards it
    waited: dict[int, dict[str, float]]  # by GPU: how long it was idle, and for what
    kept: dict[int, int]  # by GPU: the most bytes of activations at one moment

    @property
    def idle(self) -> float:
        """The share of all devices' time in which they computed nothing."""
        return 1 - sum(self.busy.values()) / (len(self.busy) * self.whole)


def replay(trace: Trace, gpus: int, link: Link) -> Step:
    """The operations of a trace, on so many GPUs behind links like this."""
    operations = sorted(trace.finished(), key=lambda o: o.number)
    before = _before(operations, trace)
    times = _run(operations, before, link)
    whole = max((end for _, end in times.values()), default=0.0)
    busy = {CPU_COUNT + number: 0.0 for number in range(gpus)}
    moved: dict[tuple[int, bool], int] = defaultdict(int)
    for o in operations:
        if o.copies:
            gpu = link_device(o.lane)
            if gpu is not None:
                moved[gpu, o.device == gpu] += o.bytes
        elif o.device in busy:
            begin, end = times[o.number]
            busy[o.device] += end - begin
    waited = {gpu: _waited(gpu, operations, before, times, whole) for gpu in busy}
    kept = {gpu: _kept(gpu, operations, trace, times) for gpu in busy}
    return Step(operations, times, whole, busy, moved, waited, kept)


def _meets(o: Operation) -> bool:
    """Whether it waits for the same operation of other devices."""
    return o.name.startswith("RowDense ")


def _before(operations: list[Operation], trace: Trace) -> dict[int, set[int]]:
    """What each operation waits for; of those that meet, what all of them do."""
    known = {o.number for o in operations}
    before: dict[int, set[int]] = {o.number: set() for o in operations}
    for edge in trace.edges:
        if edge.after in known and edge.before in known:
            before[edge.after].add(edge.before)
    meetings: dict[str, list[int]] = defaultdict(list)
    for o in operations:
        if _meets(o):
            meetings[o.name].append(o.number)
    for numbers in meetings.values():
        together = set().union(*(before[number] for number in numbers))
        before.update(dict.fromkeys(numbers, together))
    return before


def _takes(o: Operation, link: Link) -> float:
    if o.copies:
        return link.takes(o.bytes) if link_device(o.lane) is not None else 0.0
    return 0.0 if _meets(o) else o.microseconds


def _run(
    operations: list[Operation], before: dict[int, set[int]], link: Link
) -> dict[int, tuple[float, float]]:
    """When each operation begins and ends."""
    found = {o.number: o for o in operations}
    after: dict[int, list[int]] = defaultdict(list)
    missing = {number: len(numbers) for number, numbers in before.items()}
    for number, numbers in before.items():
        for other in numbers:
            after[other].append(number)
    queues: dict[int, list[int]] = defaultdict(list)
    free: dict[int, bool] = defaultdict(lambda: True)
    ends: list[tuple[float, int]] = []
    times: dict[int, tuple[float, float]] = {}

    def start(number: int, now: float) -> None:
        times[number] = now, now + _takes(found[number], link)
        heappush(ends, (times[number][1], number))

    def ready(number: int, now: float) -> None:
        lane = found[number].lane
        if found[number].device < CPU_COUNT and not found[number].copies:
            start(number, now)  # the CPU has cores enough
        elif free[lane]:
            free[lane] = False
            start(number, now)
        else:
            heappush(queues[lane], number)

    for number, count in missing.items():
        if not count:
            ready(number, 0.0)
    while ends:
        now, number = heappop(ends)
        lane = found[number].lane
        for other in after[number]:
            missing[other] -= 1
            if not missing[other]:
                ready(other, now)
        if queues[lane]:
            start(heappop(queues[lane]), now)
        else:
            free[lane] = True
    return times


def _waited(
    gpu: int,
    operations: list[Operation],
    before: dict[int, set[int]],
    times: dict[int, tuple[float, float]],
    whole: float,
) -> dict[str, float]:
    """How long a GPU was idle for a link, for other devices, and at the end of the step."""
    copies = {o.number for o in operations if o.copies}
    own = sorted(
        (times[o.number], o.number) for o in operations if o.device == gpu and not o.copies
    )
    found = {"links": 0.0, "other devices": 0.0}
    clock = 0.0
    for (begin, end), number in own:
        gap = begin - clock
        if gap > 0:
            last = max(before[number], key=lambda n: times[n][1], default=None)
            travels = last is not None and last in copies
            on_the_way = min(gap, times[last][1] - times[last][0]) if travels else 0.0
            found["links"] += on_the_way
            found["other devices"] += gap - on_the_way
        clock = max(clock, end)
    found["other devices"] += whole - clock
    return found


def _kept(
    gpu: int, operations: list[Operation], trace: Trace, times: dict[int, tuple[float, float]]
) -> int:
    """The most bytes of results of forward, and of what has arrived, that were still to be read."""
    last: dict[int, float] = {}
    for edge in trace.edges:
        if edge.kind == "read after write" and edge.after in times:
            last[edge.before] = max(last.get(edge.before, 0.0), times[edge.after][1])
    changes = []
    for o in operations:
        other = o.name in ("backward", "update", "full") or (o.name == "copy" and not o.copies)
        if o.device == gpu and not other and o.number in last:
            changes += [(times[o.number][0], o.bytes), (last[o.number], -o.bytes)]
    now = most = 0
    for _, change in sorted(changes):
        now += change
        most = max(most, now)
    return most


def named(code: int) -> str:
    """How a device is called, shortly."""
    place = from_code(code)
    return f"{place.device_type}({place.device_id})"

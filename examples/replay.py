"""Replay a recorded training step as if each simulated GPU had a core of its own.

`three_splits.py` imports this module. A simulated GPU computes on a core of this machine, so four
of them on two cores cannot show what four GPUs gain. But the engine's trace says which operations a
step consists of, what each operation waits for, how long the engine estimates it to take, and how
many bytes each copy carries.

The replay schedules these operations again. Each GPU runs one operation at a time, and each
direction of each link carries one copy at a time (docs/internals/engine.md, rules 23 and 24). If
several are ready, the one issued first goes first.
"""

from __future__ import annotations

from collections import defaultdict
from heapq import heappop, heappush
from typing import NamedTuple

from gemel.device import CPU_COUNT, from_code
from gemel.profiler import Operation, Trace
from gemel.profiler.records import link_device


class Link(NamedTuple):
    """The speed of a link: a copy takes the latency plus its bytes divided by the bandwidth."""

    gigabytes_per_second: float
    microseconds: float

    def takes(self, size: int) -> float:
        """The time to copy `size` bytes, in microseconds."""
        return self.microseconds + size / self.gigabytes_per_second / 1e3


#: A link whose copies take no time.
FREE = Link(float("inf"), 0)


class Step(NamedTuple):
    """A replayed step. All times are in microseconds, counted from its start."""

    operations: list[Operation]
    times: dict[int, tuple[float, float]]  # start and end, by the operation's number
    whole: float  # the time of the whole step
    busy: dict[int, float]  # by GPU: how long it computed
    moved: dict[tuple[int, bool], int]  # bytes by GPU and direction; True: to the GPU
    waited: dict[int, dict[str, float]]  # by GPU: how long it was idle, and what it waited for
    kept: dict[int, int]  # by GPU: the largest number of bytes of activations at one moment

    @property
    def idle(self) -> float:
        """The share of the time of all GPUs in which they computed nothing."""
        return 1 - sum(self.busy.values()) / (len(self.busy) * self.whole)


def replay(trace: Trace, gpus: int, link: Link) -> Step:
    """Replay the operations of a trace on `gpus` GPUs, each behind a link like `link`."""
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
    """Whether an operation is the all-reduce of a `RowDense`, where all devices meet."""
    return o.name.startswith("RowDense ")


def _before(operations: list[Operation], trace: Trace) -> dict[int, set[int]]:
    """The operations that each operation waits for, all by their numbers.

    The operations of a meeting each wait for whatever any of them waits for.
    """
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
    """When each operation starts and ends, by its number."""
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
            start(number, now)  # the CPU is taken to have a core for every operation
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
    """How long a GPU was idle: because of copies over links, and because of other devices.

    The time from its last operation to the end of the step counts as waiting for other devices.
    """
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
    """The largest number of bytes that a GPU kept at one moment for operations still to come.

    Results of the forward pass and arrived copies count, from when they are written until the last
    operation that reads them ends.
    """
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
    """The name of a device, such as gpu(0)."""
    place = from_code(code)
    return f"{place.device_type}({place.device_id})"

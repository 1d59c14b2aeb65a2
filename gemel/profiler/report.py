"""Where the time went: shares of the wall time, the bottleneck, and one remedy.

The program's thread is always in one of three states: reading or transforming data, running other
Python code, or blocked. The loss through blocking is the time that would be saved if Python and the
engine ran side by side: the wall time minus the longer of the two. This is the share of the sync
points. The rest of the blocked time belongs to the engine, which computes or copies.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from heapq import heappop, heappush
from typing import NamedTuple

from gemel import _core, config
from gemel.profiler.records import Operation, Trace, kibibytes
from gemel.profiler.sampling import COLLECTOR, Sampler
from gemel.profiler.sync import sync_points

#: Sync points are named as the bottleneck if they cost this fraction of the time, and this fraction
#: of the largest share, because they are the easiest to remove.
LOSS, OF_LARGEST = 0.15, 0.4
#: The memory limit is named if operations waited for memory for this fraction of the time. The
#: limit on results computed ahead, which good programs reach too, only counts while the cores are
#: less busy than this.
HELD, IDLE = 0.25, 0.6

REMEDIES = {
    "data": "read in workers: DataLoader(num_workers=...) reads while the network computes{place}",
    "transforms": "transform whole batches, or use workers (DataLoader(num_workers=...)){place}",
    "Python issue": "Python takes longer than the {tiny} it issues{place}: hybridize() the network "
    "and the loss (gemel.compile a function), or use larger batches",
    "sync points": "do not wait in every step{line}: keep the value in an array and read it "
    "(item(), asnumpy()) after the epoch",
    "memory limit": "raise {limit}, or use smaller batches: operations that could have run waited "
    "for memory",
    "copies": "keep arrays on the device that uses them: copy once, before the loop",
    "compute": "the engine is busy{longest}: only less work or more cores help",
    COLLECTOR: "Python takes longer than the {tiny} it issues{place}: gc.freeze() once everything "
    "is built keeps what stays out of it, gc.disable() prevents it during the loop",
}

Interval = tuple[int, int]


class Report(NamedTuple):
    """Where the time went; prints as a text. Times are in milliseconds."""

    wall: float
    #: Fractions of the wall time: data, transforms, Python issue, compute, copies, sync points.
    shares: dict[str, float]
    #: The name of the largest share, or "memory limit"; "" if no operations were recorded, and no
    #: reading of data.
    bottleneck: str
    remedy: str
    #: The fraction of the time in which operations waited for memory, and of the cores' time used.
    held: float
    used: float

    def __str__(self) -> str:
        if not self.shares:
            return "nothing was recorded: profiler.set_state('run') begins"
        lines = [f"{self.wall:.1f} ms of wall time, {self.used:.0%} of the cores' time used"]
        lines += [f"  {name:<12} {share:6.1%}" for name, share in self.shares.items()]
        lines += [f"  operations waited for memory {self.held:.1%} of the time"] * (
            self.held > 0.01
        )
        if not self.bottleneck:
            return "\n".join([*lines, "bottleneck: none, as no operations were recorded"])
        return "\n".join([*lines, f"bottleneck: {self.bottleneck}", f"remedy: {self.remedy}"])


def report(trace: Trace, sampler: Sampler) -> Report:
    """The report on a recording and the samples taken during it."""
    spans = [*sampler.spans, *([sampler.span()] if sampler.is_running else [])]
    wall = sum(span.settled - span.started for span in spans)
    if not wall:
        return Report(0, {}, "", "", 0, 0)
    found = _Times(trace, sampler, wall, [(s.finished, s.settled) for s in spans])
    limit, ahead = config.QUEUE_BYTES.read(), config.AHEAD_BYTES.read()
    crowded, waited = held_by_memory(trace.finished(), limit, ahead)
    used = sum(span.processor for span in spans) / (wall * _core.cores())
    shares = {name: value / wall for name, value in found.parts().items()}
    held = (crowded + waited) / wall
    if not trace.operations and all(sample.kind == "python" for sample in sampler.samples):
        return Report(wall / 1e6, shares, "", "", min(held, 1.0), used)
    name = max(shares, key=lambda name: shares[name])
    loss = shares["sync points"]
    engine = name in ("compute", "copies", "Python issue")
    if crowded > HELD * wall or (waited > HELD * wall and used < IDLE):
        name = "memory limit"
    elif engine and loss >= LOSS and loss >= OF_LARGEST * shares[name]:
        name = "sync points"
    variable, size = (
        (config.QUEUE_BYTES, limit) if crowded > waited else (config.AHEAD_BYTES, ahead)
    )
    remedy = found.remedy(name, f"{variable.name} (now {kibibytes(size)})")
    return Report(wall / 1e6, shares, name, remedy, min(held, 1.0), used)


class _Times:
    """What the program's thread and the engine did, in nanoseconds."""

    def __init__(self, trace: Trace, sampler: Sampler, wall: int, settling: list[Interval]) -> None:
        self.trace = trace
        self.samples = sampler.samples
        self.wall = wall
        own = [w for w in trace.waits if w.thread == sampler.thread]
        waits = merged([(w.started, w.finished) for w in own] + settling)
        operations = trace.finished()
        inline = [o for o in operations if o.inlined and o.issue_thread == sampler.thread]
        engine = [o for o in operations if not (o.inlined and o.issue_thread == sampler.thread)]
        self.copies = merged([(o.started, o.finished) for o in engine if o.copies])
        self.busy = merged([(o.started, o.finished) for o in engine if not o.copies])
        # Samples taken inside waits for the engine count as data only if a reader waits.
        self.data = self._sampled("data")
        self.transforms = self._sampled("transforms")
        reading = [s.time for s in self.samples if s.kind != "python"]
        self.blocked = _length([w for w in waits if not _holds(w, reading)])
        self.inlined = sum(o.duration for o in inline)

    def _sampled(self, kind: str) -> int:
        total = sum(s.duration for s in self.samples)
        share = sum(s.duration for s in self.samples if s.kind == kind)
        return share if total <= self.wall else int(share * self.wall / total)

    def parts(self) -> dict[str, int]:
        """The parts of the wall time."""
        blocked = min(self.blocked, self.wall)
        host = self.wall - blocked
        data = min(self.data, host)
        transforms = min(self.transforms, host - data)
        # Work done by the calls themselves is not Python's.
        issue = host - data - transforms
        inlined = min(self.inlined, issue)
        longest = max(host, _length(self.busy), _length(self.copies))
        lost = min(blocked, self.wall - longest) if longest < self.wall else 0
        only_copies = max(_length(merged([*self.busy, *self.copies])) - _length(self.busy), 0)
        copies = min(only_copies, blocked - lost)
        return {
            "data": data,
            "transforms": transforms,
            "Python issue": issue - inlined,
            "compute": blocked - lost - copies + inlined,
            "copies": copies,
            "sync points": lost,
        }

    def remedy(self, name: str, limit: str) -> str:
        """What to do about a bottleneck."""
        operations = self.trace.finished()
        mean = sum(o.duration for o in operations) / 1e3 / (len(operations) or 1)
        points = [p for p in sync_points(self.trace) if p.kind != "queue"][:1]
        place = _most("; most of it at", self._places(name))
        collects = name == "Python issue" and COLLECTOR in place
        return REMEDIES[COLLECTOR if collects else name].format(
            limit=limit,
            tiny=f"{len(operations)} operations of {mean:.1f} us each",
            line="".join(f" ({p.file}:{p.line}, {p.times} times)" for p in points),
            place=place,
            longest=_most(", most of it for", [(o.name, o.duration) for o in operations]),
        )

    def _places(self, name: str) -> list[tuple[str, int]]:
        """The program's lines where samples found it busy with this, and the duration of each."""
        kind = "python" if name == "Python issue" else name
        return [(s.where, s.duration) for s in self.samples if s.kind == kind and s.where]


def _most(said: str, amounts: list[tuple[str, int]]) -> str:
    """The item with the largest sum, and its share."""
    found = Counter[str]()
    for name, amount in amounts:
        found[name] += amount
    return "".join(
        f"{said} {name} ({amount / (found.total() or 1):.0%})"
        for name, amount in found.most_common(1)
    )


def merged(intervals: list[Interval]) -> list[Interval]:
    """Merge intervals: the same times as intervals in order that do not overlap."""
    found: list[Interval] = []
    for begin, end in sorted(intervals):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        elif end > begin:
            found.append((begin, end))
    return found


def _length(intervals: list[Interval]) -> int:
    return sum(end - begin for begin, end in intervals)


def _holds(interval: Interval, moments: list[int]) -> bool:
    """Whether any of these sorted times lies in an interval."""
    place = bisect_left(moments, interval[0])
    return place < len(moments) and moments[place] <= interval[1]


def held_by_memory(operations: list[Operation], running: int, ahead: int) -> tuple[int, int]:
    """How long operations that could have started waited for memory: because running operations
    used `running` bytes (0: no limit), or because results ahead of older operations used `ahead`
    bytes.
    """
    trace = Trace()
    trace.operations = operations
    ready = trace.ready()
    events = []
    for o in operations:
        events += [(ready[o.number], 0, o), (o.started, 1, o), (o.finished, 2, o)]
    events.sort(key=lambda event: (event[0], event[1], event[2].number))
    unfinished = [o.number for o in sorted(operations, key=lambda o: o.number)]
    oldest, done, started = 0, set[int](), set[int]()
    largest: list[tuple[int, int]] = []  # waiting operations, the largest need first
    taken = results = held = held_ahead = 0
    sizes = {o.number: o.bytes for o in operations}
    for place, (now, step, o) in enumerate(events):
        if step == 0:
            heappush(largest, (-o.bytes, o.number))
        elif step == 1:
            started.add(o.number)
            taken += o.bytes
        else:
            taken -= o.bytes
            done.add(o.number)
            results += o.bytes
            while oldest < len(unfinished) and unfinished[oldest] in done:
                results -= sizes[unfinished[oldest]]
                oldest += 1
        while largest and largest[0][1] in started:
            heappop(largest)
        following = events[place + 1][0] if place + 1 < len(events) else now
        if not largest or not largest[0][0]:
            continue
        if running and taken > 0 and taken - largest[0][0] > running:
            held += following - now
        elif results > ahead:
            held_ahead += following - now
    return held, held_ahead


__all__ = ["Report", "held_by_memory", "merged", "report"]

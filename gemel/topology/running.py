"""Running a schedule: bytes really move, over links that are paced at a topology's rates.

A thread runs each step and copies its bytes slice by slice. A slice arrives when all links of its
route have had the time for it and for the earlier slices, so steps that share a link take turns.
Times are wall-clock times. `slowdown` makes links slower and latencies longer by a factor, and
divides the measured time by it: a thread wakes up about 0.1 ms late, which is more than a fast
link's latency.
"""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy
from numpy.typing import NDArray

from gemel.errors import TopologyError
from gemel.links import Topology
from gemel.ranges import is_finite
from gemel.topology.execution import filled
from gemel.topology.routes import Paths, Routes, routes_of
from gemel.topology.schedule import Progress, Schedule, checked_schedule
from gemel.topology.simulator import paths_of

Array = NDArray[Any]
#: A slice should take this many seconds; the least and the most slices of a step. With several
#: slices, links are shared in turns and not message by message.
_SLICE_SECONDS, _FEWEST, _MOST = 0.002, 4, 64
#: The most threads.
_THREADS = 512


class Run(NamedTuple):
    """The result on each rank, and the duration in seconds of the topology."""

    arrays: list[Array]
    seconds: float


def run(
    schedule: Schedule,
    topology: Topology | Routes,
    arrays: Sequence[Array],
    slowdown: float = 1.0,
    limit: float = 60.0,
) -> Run:
    """Run a schedule on the arrays of all ranks, over links paced at the topology's rates.

    The sums have the bits of `all_reduce`: additions keep the order of the steps. The given arrays
    do not change. `limit` is in seconds of wall time.

    Raises `TopologyError` if the limit has passed, naming the unfinished steps, for a schedule with
    more steps at a time than threads (512), or for a slowdown that is not positive or not finite.
    """
    if not is_finite(slowdown) or slowdown <= 0:
        raise TopologyError(f"run: a slowdown of {slowdown!r}; it must be positive and finite")
    routes = routes_of(topology)
    rows = checked_schedule(schedule).steps
    ends = rows.source.tolist(), rows.target.tolist(), rows.channel.tolist()
    channels = len(set(zip(*ends, strict=True)))
    if channels > _THREADS:
        raise TopologyError(
            f"run: schedule {schedule.name} has {channels} channels, each of which needs a "
            f"thread; at most {_THREADS} are possible. Simulate it instead"
        )
    buffers = filled(schedule, arrays)
    work = _Work(schedule, buffers, _Links(routes, slowdown), paths_of(schedule, routes))
    seconds = work.done(channels, limit)
    shape = numpy.shape(arrays[0])
    found = [flat.reshape(shape) for flat in buffers[: schedule.ranks]]
    return Run(found, seconds / slowdown)


class _Links:
    """Directed links, each of which remembers until when it is busy."""

    def __init__(self, routes: Routes, slowdown: float) -> None:
        self.slowdown = slowdown
        self._rates = (routes.capacity / slowdown).tolist()
        self._free = [0.0] * len(self._rates)
        self._lock = threading.Lock()

    def arrival(self, links: Sequence[int], begin: float, nbytes: float) -> float:
        """When a slice arrives that is sent at `begin`."""
        with self._lock:
            for link in links:
                self._free[link] = max(self._free[link], begin) + nbytes / self._rates[link]
            return max(self._free[link] for link in links)


class _Work:
    """The steps of one run, executed by threads."""

    def __init__(
        self, schedule: Schedule, buffers: list[Array], links: _Links, paths: Paths
    ) -> None:
        self._schedule, self._buffers, self._links, self._paths = schedule, buffers, links, paths
        self._bounds = schedule.bounds(buffers[0].size).tolist()
        self._columns = [column.tolist() for column in schedule.steps]
        self._progress, self._lock = Progress(schedule), threading.Lock()
        self._ready: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._arrived = [threading.Event() for _ in range(len(schedule))]
        self._earlier = earlier_additions(schedule)
        self._left = len(schedule)
        self._ended, self._stop = threading.Event(), threading.Event()
        self._failure: BaseException | None = None

    def done(self, threads: int, limit: float) -> float:
        """Run all steps; returns the seconds of wall time."""
        workers = [threading.Thread(target=self._serve, daemon=True) for _ in range(threads)]
        for worker in workers:
            worker.start()
        begin = time.monotonic()
        for step in self._progress.ready().tolist():
            self._ready.put(step)
        try:
            if self._left:
                self._ended.wait(limit)
        finally:  # this also ends the threads after Ctrl-C
            seconds = time.monotonic() - begin
            late = [step for step, event in enumerate(self._arrived) if not event.is_set()]
            self._stop.set()
            for _ in workers:
                self._ready.put(None)
            for worker in workers:
                worker.join()
        if self._failure is not None:
            raise self._failure
        if late:
            raise TopologyError(
                f"run: {len(late)} of {len(self._schedule)} steps of {self._schedule.name} had not "
                f"ended after {limit} s; the first: {self._schedule.line(late[0])}"
            )
        return seconds

    def _serve(self) -> None:
        while (step := self._ready.get()) is not None:
            try:
                if not self._move(step):
                    return
            except BaseException as error:  # raised on the thread that waits
                self._failure = error
                self._ended.set()
                return
            self._arrived[step].set()
            with self._lock:
                self._left -= 1
                ready = self._progress.finish(numpy.array([step]))
                last = self._left == 0
            for other in ready.tolist():
                self._ready.put(other)
            if last:
                self._ended.set()

    def _move(self, step: int) -> bool:
        """Copy the bytes of a step to its target; returns False if the run was stopped."""
        source, target, first, count, add, _ = (column[step] for column in self._columns)
        begin, end = self._bounds[first], self._bounds[first + count]
        if begin == end:
            return True
        sent = self._buffers[source][begin:end]
        arrived = numpy.empty_like(sent) if add else self._buffers[target][begin:end]
        if not self._travel(step, sent, arrived):
            return False
        if add:
            for other in self._earlier[step]:
                while not self._arrived[other].wait(0.05):
                    if self._stop.is_set():
                        return False
            self._buffers[target][begin:end] += arrived
        return True

    def _travel(self, step: int, sent: Array, arrived: Array) -> bool:
        slowdown, width = self._links.slowdown, float(self._paths.width[step])
        beyond = len(self._links._rates) - 1
        links = [link for link in self._paths.links[step].tolist() if link != beyond]
        clock = time.monotonic() + float(self._paths.latency[step]) * slowdown
        extra = float(self._paths.overhead[step]) * width
        slices = math.ceil((sent.nbytes + extra) * slowdown / width / _SLICE_SECONDS)
        slices = min(max(slices, _FEWEST), _MOST, sent.size)
        if self._stop.wait(max(0.0, clock - time.monotonic())):
            return False
        for number in range(slices):
            part = slice(sent.size * number // slices, sent.size * (number + 1) // slices)
            nbytes = sent[part].nbytes + extra / slices
            clock = self._links.arrival(links, clock, nbytes)
            if self._stop.wait(max(0.0, clock - time.monotonic())):
                return False
            arrived[part] = sent[part]
        return True


def earlier_additions(schedule: Schedule) -> list[list[int]]:
    """For each step, the additions to its pieces just before it, with no read in between."""
    rows = [column.tolist() for column in schedule.steps]
    latest: dict[tuple[int, int], int] = {}
    found: list[list[int]] = []
    for step, (source, target, first, count, add, _) in enumerate(zip(*rows, strict=True)):
        before = set()
        for piece in range(first, first + count):
            latest.pop((source, piece), None)
            if add and (target, piece) in latest:
                before.add(latest[target, piece])
            if add:
                latest[target, piece] = step
            else:
                latest.pop((target, piece), None)
        found.append(sorted(before))
    return found

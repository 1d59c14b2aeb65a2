"""The Python side of the courier, the core's thread that runs the schedules of `step_schedules`:
its commands and reports."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from gemel import _core, np, npx
from gemel.kvstore.agreement import workers_have
from gemel.kvstore.step_schedules import Bucket

#: The engine's priority for starting a request, which takes no time and lets others begin.
URGENT = 1 << 20
#: How many seconds a worker that has lost another one, or found one late, waits to hear more.
REASON = 0.2
#: The tag of measurements; no step has it (`gemel.kvstore.step_schedules`).
MEASURED = 0


class State(NamedTuple):
    """The state of the courier."""

    #: Why it has stopped; empty while it works.
    problem: str
    #: How many sums are in progress.
    open: int
    #: How long ago the oldest sum in progress started here, its name, and the ranks it waits for.
    waiting: float
    name: str
    missing: list[int]
    #: How many sums have ended well, and the total seconds they were open.
    sums: int
    seconds: float
    #: CPU seconds of the courier's thread.
    worked: float


class Trouble(NamedTuple):
    """Why the courier cannot go on."""

    text: str
    #: The workers that it has waited for longer than its limit.
    late: Sequence[int] = ()
    #: Whether to give up now, or first ask rank 0, which may know where these workers are.
    final: bool = True


def state_of(courier: _core.Courier) -> State:
    """The present state of a courier."""
    return State(*courier.state)


class BucketSender:
    """Sends one worker's buckets through the courier.

    `limit` is how many seconds it waits for other workers.
    """

    def __init__(self, courier: _core.Courier, rank: int, limit: float) -> None:
        self._courier = courier
        self._desk = courier.desk
        self._rank, self._limit = rank, limit
        self._lock = threading.Lock()
        self._sent = {"requests": 0, "groups": 0, "bytes": 0}
        #: How many sums the engine has, measurements included.
        self._begun = 0
        self._troubled = math.inf
        #: The counters at the start of counting, after the measurements.
        self._before = state_of(courier)

    def issue(self, bucket: Bucket, arrays: Sequence[Any], specs: Any) -> tuple[Any, ...]:
        """Issue the sums of a bucket that all workers have; it is sent when all its arrays are
        ready."""
        with self._lock:
            self._sent["requests"] += len(arrays)
            self._sent["groups"] += 1
            self._sent["bytes"] += bucket.bytes
        return self._issued(bucket, arrays, specs)

    def _issued(self, bucket: Bucket, arrays: Sequence[Any], specs: Any) -> tuple[Any, ...]:
        tag, name, item, priority, *_ = bucket
        number = self._courier.number(tag, name, item, priority)
        with npx.priority(URGENT):
            made: tuple[Any, ...] = self._desk.issue(number, name, arrays, specs)
        with self._lock:
            self._begun += 1
        return made

    def summed(self, row: Any) -> Any:
        """Sum the rows of all workers right now, to measure how long it takes.

        This is not counted in the statistics, and the workers need not agree on it first.
        """
        array = np.array(row, dtype=row.dtype.name)
        bucket = Bucket(MEASURED, "the measurement", row.itemsize, 0, 0, 1, row.nbytes)
        (total,) = self._issued(bucket, [array], [(array._code, tuple(array.shape))])
        found = total.asnumpy()
        self._before = state_of(self._courier)
        return found

    def worked(self) -> float:
        """CPU seconds that the courier's thread has used for the sums that have ended."""
        return state_of(self._courier).worked

    def add_to(self, found: dict[str, float]) -> None:
        """Add its counters to those of `MpiStore.statistics`."""
        state = state_of(self._courier)
        for name, count in self._sent.items():
            found[name] += count
        found["seconds"] += state.seconds - self._before.seconds
        found["processor seconds"] = state.worked - self._before.worked
        if count := self._sent["groups"]:
            found["by lines"] = found.get("by lines", 0.0) + count

    def waiting(self) -> Callable[[], bool]:
        """A function that says whether one of the sums issued so far has not arrived; its arrays
        may not even be ready."""
        begun = self._begun
        return lambda: state_of(self._courier).sums < begun

    @property
    def brought(self) -> int:
        """How many sums this worker has issued through the courier."""
        return self._sent["groups"]

    def trouble(self, now: float, left: Callable[[Sequence[int], float], str]) -> Trouble | None:
        """Return why the courier cannot go on, or None.

        `left(ranks, brought)` says which of these workers has ended, and how. It ignores those that
        issued at least `brought` sums before they ended, because their data is still on its way.
        """
        state = state_of(self._courier)
        self._troubled = min(self._troubled, now) if state.problem else math.inf
        if now - self._troubled >= REASON:
            return Trouble(state.problem)
        if not state.name:
            return None
        if ended := left(state.missing, self.brought):
            return Trouble(f"{ended} while worker {self._rank} waits for it at {state.name}")
        if state.waiting <= self._limit:
            return None
        late = state.missing or [self._rank]
        text = f"{workers_have(late)} not arrived at {state.name} for {self._limit:g} s"
        return Trouble(text, late, self._rank == 0 or state.waiting > self._limit + REASON)

    def close(self, reason: str) -> None:
        """Make all sums fail that have not arrived or are still to come."""
        self._courier.close("WorkersError", reason)


__all__ = ["URGENT", "BucketSender", "State", "Trouble", "state_of"]

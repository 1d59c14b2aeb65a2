"""The communication thread of a worker, and the requests of its stores.

A request is an engine operation that this thread completes: it reads the arrays to be sent as soon
as they are ready, while everything else continues. Rank 0 decides what is done next
(`gemel.kvstore.agreement`) and by which algorithm (`gemel.kvstore.ways`). By default sums are in
the order of the ranks, whatever is sent together, so all workers and all runs have the same bits.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from gemel import _core, config, npx
from gemel.dtype import uint8
from gemel.errors import GemelError, WorkersError
from gemel.kvstore.agreement import GENERAL, Agreement, Request, parsed
from gemel.kvstore.courier import URGENT, BucketSender
from gemel.kvstore.measuring import Carried, measure
from gemel.kvstore.waiting import ALONE, LONGEST, Scratch
from gemel.kvstore.ways import CHEAP, GROUP, Ways

if TYPE_CHECKING:
    from gemel.kvstore.wire import Wire

#: Seconds between two polls for messages. While requests are open, the pause doubles from EAGER to
#: PATIENT; otherwise it is IDLE. A poll takes about 50 us of backward's core. Once backward is over
#: and all wait for the sums, polling costs nothing: for KEENNESS seconds the pause is KEEN.
EAGER, PATIENT, IDLE = 1e-4, 1e-3, 1e-1
KEEN, KEENNESS = 3e-5, 5e-3
#: Seconds between two checks whether a worker has been waited for too long.
MINDING = 0.05
#: The most seconds for which sums that are too cheap to start early (`gemel.kvstore.ways.CHEAP`),
#: or whose waiting is less than the cost of a group, wait for other sums of their step.
HOLD = 5e-2
#: The least bytes of a group that updates the pace, and the factor by which old paces fade.
TELLING, FORGETTING = 64 << 10, 1.02
#: How many seconds a worker that has failed waits at exit for the others to hear of it.
FAREWELL = 10.0


class _Task(NamedTuple):
    """A request that has started on this worker."""

    request: Request
    errand: Any
    since: float


class _Doing(NamedTuple):
    """Requests that all workers are executing now."""

    tasks: list[_Task]
    since: float

    @property
    def names(self) -> str:
        """The names of at most three of them."""
        return ", ".join(task.request.name for task in self.tasks[:3])


class World:
    """One worker's view of the job. `limit` is how many seconds workers wait for each other."""

    def __init__(self, wire: Wire, limit: float) -> None:
        self.rank, self.size = wire.rank, len(wire.machines)
        self.limit = limit
        #: Why the job has failed; empty while it works.
        self.broken = ""
        #: Counters: requests, groups of them sent together, their bytes and seconds.
        self.done = {"requests": 0, "groups": 0, "bytes": 0, "seconds": 0.0}
        #: The number of groups by way.
        self.went: Counter[str] = Counter()
        self.ways = Ways(wire.machines, wire.has_sockets)
        self._wire = wire
        courier = wire.courier if wire.has_sockets else None
        #: The courier, for sums that need no agreement.
        self.sender = BucketSender(courier, self.rank, limit) if courier is not None else None
        self.process = os.getpid()
        self._desk = _core.Desk()
        self._agreement = Agreement(self.size, limit)
        self._lock = threading.Lock()
        self._issued: dict[int, Request] = {}
        self._turns: dict[Any, int] = {}
        self._numbers = 0
        #: How many requests the engine has.
        self._begun = 0
        self._stores = 0
        #: Requests that have started here and are not done.
        self._open: dict[Any, _Task] = {}
        self._doing: _Doing | None = None
        self._ended = threading.Event()
        self._patience = IDLE
        self._row = Scratch()
        self._mind_at = 0.0
        #: Open requests that are not announced yet, because more will follow at once.
        self._held: list[Request] = []
        #: A cache: the sums of this step still to come, with the state for which this was computed.
        self._rest: tuple[tuple[object, ...], list[Request]] = ((), [])
        #: The least seconds of waiting per byte seen so far.
        self._pace = math.inf
        threads = [threading.Thread(target=f, daemon=True) for f in (self._run, self._watch)]
        self._thread = threads[0]
        for thread in threads:
            thread.start()

    # ---- used by the stores

    def number_store(self) -> int:
        """A number for a new store; it is the same on all workers, which create stores in order."""
        with self._lock:
            self._stores += 1
            return self._stores

    def issue(
        self,
        store: int,
        name: str,
        kind: str,
        arrays: Sequence[Any] = (),
        result: tuple[int, Sequence[int]] | None = None,
        priority: int = 0,
        note: str = "",
    ) -> Any:
        """Issue a request. Returns the array of its result, which is like the given array unless
        `result` describes another.

        Kinds are ``sum``, ``gather`` (one row per worker), ``broadcast`` (rank 0's array),
        ``meet``, ``measure`` and ``end``. Raises `WorkersError`, see `check`.
        """
        self.check(name)
        array = arrays[0] if arrays else None
        shape = () if array is None else tuple(array.shape)
        if kind == "end" and self.sender is not None:
            shape = (self.sender.brought,)
        dtype = "uint8" if array is None else array.dtype.name
        size = 0 if array is None else array.nbytes
        with self._lock:
            key = (store, kind in GENERAL, name)
            turn = self._turns[key] = self._turns.get(key, 0) + 1
            self._numbers += 1
            number = self._numbers
            request = Request(store, name, turn, kind, dtype, shape, size, priority, note)
            self._issued[number] = request
        if result is None:
            result = (array._code, shape) if array is not None else (uint8.code, (1,))
        with npx.priority(URGENT):
            (made,) = self._desk.issue(number, f"kvstore {kind}, {name}", arrays, [result])
        with self._lock:
            self._begun += 1
        return made

    def check(self, name: str) -> None:
        """Raise `WorkersError` in a forked process, or if the job can no longer continue.

        An optimizer leaves a parameter unchanged if its sum has failed. Without this check, a
        program that only looks at its own losses would go on training without learning anything.
        """
        if os.getpid() != self.process:
            raise WorkersError(
                f"kvstore: {name}: this process was forked from worker {self.rank} and is not a "
                "worker; use the store in the worker"
            )
        if self.broken:
            raise WorkersError(self.broken)

    def statistics(self) -> dict[str, float]:
        """The counters of all stores: see `MpiStore.statistics`."""
        went = {f"by {name}": float(count) for name, count in self.went.items()}
        found: dict[str, float] = {**self.done, **went}
        if self.sender is not None:
            self.sender.add_to(found)
        return found

    def close(self) -> None:
        """At exit, wait until all workers are here, or one has failed. Ctrl-C ends the job."""
        if os.getpid() != self.process:
            return
        try:
            self._leave(getattr(sys, "last_type", None))
        except BaseException:
            self._give_up(f"worker {self.rank} was interrupted while it waited at its end")
            raise

    def _leave(self, reason: type[BaseException] | None) -> None:
        """Do what is issued, as others count on it, unless the program ends early; then wait."""
        begun, waits = self._begun, bool if self.sender is None else self.sender.waiting()
        while not (reason or self.broken) and (self.done["requests"] < begun or waits()):
            time.sleep(PATIENT)
        note = "" if reason is None else f"with {reason.__name__}"
        last = None
        with contextlib.suppress(WorkersError):  # the job has failed already
            last = self.issue(0, "the end", "end", note=note)
        self._ended.wait(None if reason is None else FAREWELL)
        self._end("kvstore: the program has ended")
        if last is not None:
            with contextlib.suppress(GemelError):
                last.wait_to_read()  # read the error here, so that it is not reported as unseen
        self._thread.join(1.0)

    def _end(self, reason: str) -> None:
        """Make all present and future requests fail: with the first error, or for this reason."""
        self._desk.close("WorkersError", self.broken or reason)
        if self.sender is not None:
            self.sender.close(self.broken or reason)

    # ---- the thread

    def _run(self) -> None:
        try:
            while not self._ended.is_set():
                self._round()
        except Exception as error:
            doing = self._doing
            what = f" with {doing.names}" if doing is not None else ""
            text = f"{type(error).__name__}: {error}"
            self._give_up(f"worker {self.rank} could not go on{what}: {text}")

    def _round(self) -> None:
        """Handle new requests and messages, and do one group of requests if there is one."""
        listening = self._wire.has_sockets and self._only_others_are_late()
        new = self._taken(0.0 if listening else self._patience)
        messages = self._wire.received(PATIENT if listening and not new else 0.0)
        now = time.monotonic()
        if not new and not messages and now < self._mind_at:
            self._patience = self._next_patience(False)
            return
        busy = bool(new or messages)
        if new and self.rank != 0:
            self._tell(0, {"ready": [list(request) for request in new]})
        for request in new:
            self._hear_of(0, request)
        for rank, message in messages:
            self._hear(rank, json.loads(message))
        if self.rank == 0 and not self.broken:
            group = self._agreement.next(self.ways.group)
            if group:
                busy = True
                places = [request.place for request in group]
                total = sum(request.bytes for request in group)
                way = self.ways.way(self.ways.group(group[0]), total).name
                for rank in range(1, self.size):
                    self._tell(rank, {"go": places, "way": way})
                self._do(places, way)
            elif problem := self._agreement.overdue(now):
                self._break(problem)
        elif self.rank != 0:
            self._mind_silence(now)
        if self.sender is not None and not self.broken:
            trouble = self.sender.trouble(now, self._agreement.left)
            if trouble is not None and not trouble.final:
                self._tell(0, {"late": [trouble.text, trouble.late]})
            elif trouble is not None:
                self._give_up(trouble.text + self._agreement.instead(trouble.late))
        # Poll again at once: rank 0 may have another group, for which no message will come.
        self._mind_at = 0.0 if busy else now + MINDING
        self._patience = self._next_patience(busy)

    def _next_patience(self, busy: bool) -> float:
        if not self._open:
            return IDLE
        if len(self._held) == len(self._open):  # whatever starts here is noticed at once
            return IDLE
        last = next(reversed(self._open.values()))
        if time.monotonic() - last.since < KEENNESS and self._backward_is_over(last.request):
            return KEEN
        return EAGER if busy else min(max(EAGER, 2 * self._patience), PATIENT)

    def _only_others_are_late(self) -> bool:
        """Whether only a message of another worker can be next, because nothing here will start
        first."""
        if not self._open or self._held:
            return False
        last = next(reversed(self._open.values())).request
        return last.kind != "sum" or self._backward_is_over(last)

    def _taken(self, patience: float) -> list[Request]:
        """The requests that have started here, or [] while it is better to wait for more of
        them."""
        errand = self._desk.take(patience)
        while errand is not None:
            with self._lock:
                request = self._issued.pop(errand.number)
            if errand.failure is not None:
                self._give_up(f"worker {self.rank}: {request.name}: {errand.failure}")
            else:
                self._open[request.place] = _Task(request, errand, time.monotonic())
                self._held.append(request)
            errand = self._desk.take(0.0)
        if self._held and self._more_will_follow():
            return []
        new, self._held = self._held, []
        return new

    def _more_will_follow(self) -> bool:
        """Whether to hold small requests back for other issued sums of this step."""
        first = self._held[0]
        if any(request.kind != "sum" for request in self._held):
            return False
        task = self._open.get(first.place)
        if task is None or time.monotonic() - task.since > HOLD:
            return False  # the others may be waiting for it
        coming = self._rest_of_step(first.store)
        held = sum(request.bytes for request in self._held)
        total = held + sum(request.bytes for request in coming)
        wait = self._waiting
        return bool(coming) and (wait(first, total) < CHEAP or wait(first, held) < GROUP)

    def _waiting(self, request: Request, nbytes: int) -> float:
        """Estimate the seconds of waiting for so many bytes like these: the larger of two
        estimates.

        Each can be too small: a worker that comes late finds all data there and does not wait, and
        a measurement on a busy machine may show little more than the time of a small message.
        """
        measured = self.ways.waiting(self.ways.rule(request.store), nbytes)
        return max(nbytes * self._pace, measured or 0.0)

    def _rest_of_step(self, store: int) -> list[Request]:
        """The sums of a step that are issued but not started, up to the first repeated name."""
        doing = self._doing
        # While the store and the count of issued requests are equal, the list can only get shorter.
        state = store, self._numbers, len(self._issued), len(self._open), doing is None
        if state == self._rest[0]:
            return self._rest[1]
        names = {task.request.name for task in self._open.values()}
        names.update(task.request.name for task in (doing.tasks if doing else ()))
        found = []
        with self._lock:
            for request in self._issued.values():
                if (request.store, request.kind) != (store, "sum"):
                    continue
                if request.name in names:
                    break
                names.add(request.name)
                found.append(request)
        self._rest = state, found
        return found

    def _backward_is_over(self, request: Request) -> bool:
        """Whether all sums of the step have started; the next step waits for them."""
        return request.kind == "sum" and not self._rest_of_step(request.store)

    def _hear_of(self, rank: int, request: Request) -> None:
        if self.rank != 0:
            return
        problem = self._agreement.announce(rank, request, time.monotonic())
        if problem:
            self._break(problem)
        if request.kind == "end":  # others may wait for this worker's sums without agreement
            for other in range(1, self.size):
                self._tell(other, {"left": [rank, list(request)]})

    def _hear(self, rank: int, message: dict[str, Any]) -> None:
        for fields in message.get("ready", ()):
            self._hear_of(rank, parsed(fields))
        if "left" in message:
            ended, fields = message["left"]
            self._agreement.leave(ended, parsed(fields))
        if "go" in message:
            self._do([tuple(place) for place in message["go"]], message["way"])
        if "late" in message:
            text, late = message["late"]
            self._break(text + self._agreement.instead(late))
        if "stop" in message:
            self._break(message["stop"])

    def _tell(self, rank: int, message: dict[str, Any]) -> None:
        self._wire.send(rank, json.dumps(message).encode())

    def _mind_silence(self, now: float) -> None:
        """On ranks other than 0: end the job if rank 0 does not answer."""
        allowed = 1.25 * self.limit + 1
        for task in self._open.values():
            if now - task.since > allowed and task.request.kind != "end":
                self._break(f"worker 0 has not answered to {task.request.name} for {allowed:g} s")
                return

    # ---- running requests

    def _do(self, places: list[Any], way: str) -> None:
        """Execute these requests, of one kind and dtype, at the same time as all other workers."""
        import numpy

        if self.broken:
            return
        worked = time.thread_time()
        doing = self._doing = _Doing([self._open.pop(place) for place in places], time.monotonic())
        inputs = [numpy.asarray(part) for task in doing.tasks for part in task.errand.inputs]
        # A copy, because the data being sent must stay valid if a timeout ends the request.
        row = self._row.take(sum(part.size for part in inputs))
        if inputs:
            numpy.concatenate(inputs, out=row)
        over = self._backward_is_over(doing.tasks[0].request)
        self._wire.pause = ALONE if over else LONGEST
        found = self._exchanged([task.request for task in doing.tasks], row, way)
        if self._no_longer_doing() is None:
            return  # a timeout has ended it
        self.done["requests"] += len(doing.tasks)
        self.done["groups"] += 1
        self.done["bytes"] += row.size
        seconds = time.monotonic() - doing.since
        self.done["seconds"] += seconds
        if doing.tasks[0].request.kind == "sum" and row.size >= TELLING:
            waited = max(seconds - (time.thread_time() - worked), 1e-9)
            self._pace = min(FORGETTING * self._pace, waited / row.size)
        start = 0
        for task in doing.tasks:
            size = task.request.bytes
            if found is not None:
                target = numpy.asarray(task.errand.outputs[0]).reshape(len(found), size)
                target[...] = found[:, start : start + size]
            start += size
            task.errand.end()
        if doing.tasks[0].request.kind == "end":
            self._ended.set()

    def _no_longer_doing(self) -> _Doing | None:
        with self._lock:
            doing, self._doing = self._doing, None
        return doing

    def _exchanged(self, requests: Sequence[Request], row: Any, way: str) -> Any:
        """The results of these requests over all workers, as rows of bytes; None if they have
        none."""
        request = requests[0]
        if request.kind == "sum":
            self.went[way] += 1
            whole = row.view(request.dtype)
            lengths = [one.bytes // whole.itemsize for one in requests]
            return self._wire.summed(whole, way, lengths).view("uint8")[None]
        if request.kind == "measure":
            self._measure()
        if request.kind == "gather":
            return self._wire.gathered(row)
        if request.kind == "broadcast":
            return self._wire.broadcast(row)[None]
        return None

    def _measure(self) -> None:
        import numpy

        begin = time.monotonic()
        limit = config.MEASURE_SECONDS.read() if self.size > 1 else 0.0
        wire = Carried(self._wire, list(self.ways.known), self.sender)
        self.ways.table = measure(wire, wire.names, limit, worked=wire.worked)
        passed = numpy.array([time.monotonic() - begin])
        self.ways.seconds = float(self._wire.broadcast(passed)[0])

    # ---- failures

    def _give_up(self, problem: str) -> None:
        """Report a failure of this worker, which ends the job."""
        if self.rank != 0:
            self._tell(0, {"stop": problem})
        self._break(problem)

    def _break(self, problem: str) -> None:
        """Make all open requests fail here and, through rank 0, on all workers."""
        with self._lock:
            if self.broken:
                return
            self.broken = f"kvstore: {problem}"
        doing = self._no_longer_doing()
        self._end(self.broken)
        tasks = [*self._open.values(), *(doing.tasks if doing else ())]
        self._open.clear()
        for task in tasks:
            task.errand.end(("WorkersError", self.broken))
        if self.rank == 0:
            for rank in range(1, self.size):
                self._tell(rank, {"stop": problem})
        self._ended.set()

    def _watch(self) -> None:
        """End the job if an operation that all have begun takes too long: a worker died during
        it."""
        while not self._ended.wait(min(1.0, self.limit / 10)):
            doing, now = self._doing, time.monotonic()
            if doing is not None and doing.tasks[0].request.kind == "measure" and self.sender:
                trouble = self.sender.trouble(now, self._agreement.left)
                if trouble is not None and trouble.final:
                    self._give_up(trouble.text)
            if doing is not None and now - doing.since > self.limit:
                self._break(
                    f"{doing.names}: all workers had come, but for {self.limit:g} s what they send "
                    f"has not arrived at worker {self.rank}: one may have died meanwhile"
                )


__all__ = ["World"]

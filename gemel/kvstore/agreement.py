"""Agreement on the order of collective operations: rank 0 decides.

A collective operation works only if all workers start the same one, but their gradients become
ready at different times and in different orders. So each worker tells rank 0 which requests it has.
Rank 0 announces a request that all workers have, by priority, and all of them run it. This module
is only the state of the protocol: it sends nothing and reads no clock.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

#: Small requests are sent together, up to this many bytes, to pay the latency once.
BUCKET_BYTES = 4 << 20
#: By how many pushes of a key a worker must be ahead of another one, which is as far ahead of it
#: with another key, and for how many seconds: then they do not come in another order, but differ.
AHEAD, APART = 3, 1.0


class Request(NamedTuple):
    """A collective operation that a worker is ready to do.

    `name` is the name that users know (``"key 'w'"``), `store` the number of the store, and `turn`
    counts the requests with this name. `note` is a text with everything else that must be the same
    on all workers. In a request ``end``, `note` says how the worker ended, and `shape` how many
    sums without agreement it has issued.
    """

    store: int
    name: str
    turn: int
    kind: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int
    priority: int
    note: str

    @property
    def place(self) -> Place:
        """The key by which workers recognize the same request."""
        return self.store, self.kind in GENERAL, self.name, self.turn

    @property
    def contents(self) -> tuple[Any, ...]:
        """The attributes that must be equal on all workers."""
        return self.kind, self.dtype, self.shape, self.note

    def __str__(self) -> str:
        if self.kind in GENERAL and self.note:
            return self.note
        extents = ", ".join(map(str, self.shape))
        note = f", {self.note}" if self.note else ""
        return f"{self.kind} of {self.dtype} ({extents}){note}"


Place = tuple[int, bool, str, int]
#: Requests without a key.
GENERAL = ("meet", "measure", "end")


class _Pending:
    """A request, and the workers that have announced it."""

    def __init__(self, first: Request, rank: int, number: int, now: float) -> None:
        self.request = first
        self.began = now
        self.number = number
        self.first = rank
        self.came: set[int] = set()


class Agreement:
    """The state of the agreement on rank 0. Times are seconds of any clock."""

    def __init__(self, size: int, limit: float) -> None:
        self._size = size
        self._limit = limit
        self._pending: dict[Place, _Pending] = {}
        self._left: dict[int, Request] = {}
        self._count = 0

    def announce(self, rank: int, request: Request, now: float) -> str | None:
        """Register the request of a worker. Returns a description of what is wrong with it, or
        None."""
        if request.kind == "end":
            self.leave(rank, request)
        pending = self._pending.get(request.place)
        if pending is None:
            self._count += 1
            pending = _Pending(request, rank, self._count, now)
            self._pending[request.place] = pending
        first = pending.request
        if request.contents != first.contents and request.kind != "end":
            return (
                f"the workers disagree about {request.name}: worker {rank} has a {request}, "
                f"worker {pending.first} a {first}"
            )
        pending.came.add(rank)
        return self._abandoned()

    def _abandoned(self) -> str | None:
        """Return an error text if a worker has ended while another one waits for it, else None."""
        for rank in sorted(self._left):
            for pending in self._pending.values():
                if pending.request.kind != "end" and rank not in pending.came:
                    waiting = min(pending.came)
                    return (
                        f"{self.left([rank])} while worker {waiting} waits for it at "
                        f"{pending.request.name}"
                    )
        return None

    def leave(self, rank: int, end: Request) -> None:
        """Note that a worker has ended."""
        self._left[rank] = end

    def left(self, ranks: Sequence[int], brought: float = math.inf) -> str:
        """Name the lowest of these ranks that has ended, and how it ended; empty if none has.

        The data of a worker that has ended may still be on its way. So only those workers count
        that issued fewer than `brought` sums without agreement before they ended.
        """
        ended = (rank for rank in ranks if rank in self._left)
        rank = min((one for one in ended if sum(self._left[one].shape) < brought), default=None)
        if rank is None:
            return ""
        note = self._left[rank].note
        return f"worker {rank} has ended" + (f" ({note})" if note else "")

    def next(self, group: Callable[[Request], str] = lambda request: "") -> list[Request]:
        """Return the requests to do next, which all workers have announced; [] if there are none.

        The request with the highest priority goes first; among equals, the one announced first.
        Small requests of the same kind, dtype and `group` go with it, in the same order.
        """
        ready = [p for p in self._pending.values() if len(p.came) == self._size]
        if not ready:
            return []
        ready.sort(key=lambda pending: (-pending.request.priority, pending.number))
        chosen: list[Request] = []
        first = ("", "", "")
        total = 0
        for pending in ready:
            request = pending.request
            alike = request.kind, request.dtype, group(request)
            if chosen and alike != first:
                continue
            if chosen and total + request.bytes > BUCKET_BYTES:
                continue
            first = alike if not chosen else first
            chosen.append(request)
            total += request.bytes
        for request in chosen:
            del self._pending[request.place]
        return chosen

    def overdue(self, now: float) -> str | None:
        """Return an error text if a worker is late by more than the limit, or two workers go on
        with different keys, else None."""
        waiting = [p for p in self._pending.values() if p.request.kind != "end"]
        late = [p for p in waiting if now - p.began > self._limit]
        if not late:
            return self._apart([p for p in waiting if now - p.began > APART])
        pending = min(late, key=lambda pending: pending.number)
        missing = [rank for rank in range(self._size) if rank not in pending.came]
        return (
            f"{workers_have(missing)} not arrived at {pending.request.name} for {self._limit:g} "
            f"s; {workers_have(sorted(pending.came))} arrived{self.instead(missing)}"
        )

    def _apart(self, waiting: Sequence[_Pending]) -> str | None:
        """Return an error text if two workers are each ahead of the other by a different key."""
        turns: Counter[tuple[int, int, int, str]] = Counter()
        for pending in waiting:
            one = pending.request
            missing = min(rank for rank in range(self._size) if rank not in pending.came)
            place = min(pending.came), missing, one.store, one.name
            turns[place] += 1
            if turns[place] < AHEAD:
                continue
            for other in waiting:
                their = other.request
                back = missing, place[0], one.store, their.name
                if turns[back] >= AHEAD and missing in other.came:
                    return (
                        f"the workers disagree about what they sum: worker {place[0]} has a {one} "
                        f"for {one.name} {turns[place]} times, but not {their.name}; worker "
                        f"{missing} a {their} for {their.name} {turns[back]} times, but not "
                        f"{one.name}"
                    )
        return None

    def instead(self, ranks: Sequence[int]) -> str:
        """Say of each of these workers where it waits for others, with at most three requests;
        nothing about those that have announced none."""
        text = ""
        for rank in ranks:
            found = [p.request.name for p in self._pending.values() if rank in p.came]
            if found:
                text += f"; worker {rank} has arrived at {', '.join(found[:3])} instead"
        return text


def parsed(fields: Sequence[Any]) -> Request:
    """A request from another worker's message."""
    request = Request(*fields)
    return request._replace(shape=tuple(request.shape))


def workers_have(ranks: Sequence[int]) -> str:
    """The subject of a sentence about workers, and its verb."""
    numbers = ", ".join(map(str, ranks))
    return f"worker {numbers} has" if len(ranks) == 1 else f"workers {numbers} have"


__all__ = ["Agreement", "Request", "parsed", "workers_have"]

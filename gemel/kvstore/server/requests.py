"""What a worker has asked of one server, in the order in which it leaves."""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from gemel.kvstore.server.protocol import Kind, Message

#: Rounds after which a server keeps the value.
ROUNDS_KEPT = 2

#: Called once with the answer: a message, or the error in its place. On a thread of the connection.
Answer = Callable[[Message | BaseException], None]


@dataclass(order=True)
class Request:
    """One message, and what to do with its answer."""

    order: tuple[int, int]
    message: Message = field(compare=False)
    answer: Answer = field(compare=False)
    what: str = field(compare=False)
    limit: float = field(compare=False)
    until: float = field(default=0.0, compare=False)

    def begin(self) -> None:
        """Its time begins: its answer must be there within `limit` seconds."""
        self.until = time.monotonic() + self.limit


class Requests:
    """Requests by priority, those of one key in the order in which they were made.

    A request stays until it is answered: after a new connection all of them are sent again, and the
    server knows by their sequence numbers what it has. It keeps the values after the last two
    rounds, so a push that would let a third one end waits until older values have come. Safe for
    several threads.
    """

    def __init__(self, room: int) -> None:
        self._room = room
        self._free = threading.Condition()
        self._queue: list[Request] = []
        self._open: dict[int, Request] = {}
        #: The lowest priority of a key's requests that are still queued, and how many there are.
        self._queued: dict[int, tuple[int, int]] = {}
        #: By key the rounds whose values have been asked for, by tag, and what waits for these.
        self._asked: dict[int, dict[int, int]] = {}
        self._held: dict[int, list[Request]] = {}
        self._bytes = 0
        self._tags = 0

    def __len__(self) -> int:
        return len(self._open)

    def add(self, message: Message, answer: Answer, what: str, priority: int, limit: float) -> bool:
        """Queue a request, once there is room for its bytes; False if that took too long."""
        until = time.monotonic() + limit
        with self._free:
            while self._bytes and self._bytes + message.size > self._room:
                if not self._free.wait(until - time.monotonic()):
                    return False
            lowest, count = self._queued.get(message.key, (priority, 0))
            priority = min(priority, lowest)
            self._queued[message.key] = priority, count + 1
            self._tags += 1
            message = replace(message, tag=self._tags)
            order = (-priority, self._tags)
            request = Request(order, message, answer, what, limit)
            request.begin()
            self._open[self._tags] = request
            if message.kind == Kind.PULL:
                self._asked.setdefault(message.key, {})[self._tags] = message.sequence
            self._bytes += message.size
            heapq.heappush(self._queue, request)
        return True

    def next(self) -> Request | None:
        """The request to send now."""
        with self._free:
            while self._queue:
                request = heapq.heappop(self._queue)
                if self._must_wait(request):
                    request.until = inf  # what it waits for has its own time
                    self._held.setdefault(request.message.key, []).append(request)
                    continue
                lowest, count = self._queued.pop(request.message.key)
                if count > 1:
                    self._queued[request.message.key] = lowest, count - 1
                if request.message.tag in self._open:
                    return request
        return None

    def _must_wait(self, request: Request) -> bool:
        """Whether a request cannot be sent yet: it is such a push, or comes after one."""
        message = request.message
        if message.tag not in self._open:
            return False
        if message.key in self._held:
            first = self._held[message.key][0].message
            return message.kind != Kind.PULL or message.sequence >= first.sequence
        asked = self._asked.get(message.key)
        oldest = message.sequence - ROUNDS_KEPT
        return message.kind == Kind.PUSH and asked is not None and min(asked.values()) <= oldest

    def again(self) -> None:
        """Queue all that is not answered: the connection is a new one."""
        with self._free:
            for held in self._held.values():
                for request in held:
                    request.begin()
            self._held.clear()
            self._queue = list(self._open.values())
            heapq.heapify(self._queue)
            self._queued = {}
            for request in self._queue:
                key, priority = request.message.key, -request.order[0]
                lowest, count = self._queued.get(key, (priority, 0))
                self._queued[key] = min(priority, lowest), count + 1

    def answered(self, tag: int) -> Request | None:
        """The request with that number, which is done; None for one that nobody waits for."""
        with self._free:
            request = self._open.pop(tag, None)
            if request is not None:
                self._bytes -= request.message.size
                self._has_come(request.message)
                self._free.notify_all()
        return request

    def _has_come(self, message: Message) -> None:
        """An answer is there: what waited for it is queued again."""
        asked = self._asked.get(message.key, {})
        if asked.pop(message.tag, None) is None:
            return
        if not asked:
            del self._asked[message.key]
        for request in self._held.pop(message.key, ()):
            request.begin()
            heapq.heappush(self._queue, request)

    def expired(self) -> list[Request]:
        """The requests whose time is over."""
        now = time.monotonic()
        with self._free:
            late = [request for request in self._open.values() if request.until < now]
        return [request for request in late if self.answered(request.message.tag)]

    def drain(self) -> list[Request]:
        """All requests; nobody will answer them."""
        with self._free:
            tags = list(self._open)
        return [request for tag in tags if (request := self.answered(tag))]

    def wait(self, until: float) -> bool:
        """Wait until every request has its answer; whether that came to be."""
        with self._free:
            return self._free.wait_for(lambda: not self._open, until - time.monotonic())


def describe(kind: Any, key: str) -> str:
    """What a request is called in errors: "push of key '3'"."""
    verb = kind.name.lower()
    return f"{verb} of key {key.partition(':')[2]!r}" if key else verb


__all__ = ["Answer", "Request", "Requests", "describe"]

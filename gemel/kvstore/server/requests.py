"""The requests of a worker to one server, in the order in which they are sent."""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from gemel.kvstore.server.protocol import Kind, Message

#: How many of the last rounds' values a server keeps.
ROUNDS_KEPT = 2

#: Called once, on a thread of the connection, with the answer: a message, or an error.
Answer = Callable[[Message | BaseException], None]


@dataclass(order=True)
class Request:
    """One message, and the function that receives its answer."""

    order: tuple[int, int]
    message: Message = field(compare=False)
    answer: Answer = field(compare=False)
    what: str = field(compare=False)
    limit: float = field(compare=False)
    until: float = field(default=0.0, compare=False)

    def begin(self) -> None:
        """Start the clock: the answer must arrive within `limit` seconds."""
        self.until = time.monotonic() + self.limit


class Requests:
    """Requests by priority; those of one key stay in the order in which they were made.

    A request stays until it is answered. After a reconnection all of them are sent again, and the
    server recognizes by the sequence numbers which it has received already. The server keeps the
    values of the last two rounds, so a push that could end a third one waits until the answers with
    older values have arrived. The methods may be called from several threads.
    """

    def __init__(self, room: int) -> None:
        self._room = room
        self._free = threading.Condition()
        self._queue: list[Request] = []
        self._open: dict[int, Request] = {}
        #: For each key, the lowest priority of its queued requests, and their number.
        self._queued: dict[int, tuple[int, int]] = {}
        #: For each key, the rounds whose values were requested, by tag; and the requests that wait.
        self._asked: dict[int, dict[int, int]] = {}
        self._held: dict[int, list[Request]] = {}
        self._bytes = 0
        self._tags = 0

    def __len__(self) -> int:
        return len(self._open)

    def add(self, message: Message, answer: Answer, what: str, priority: int, limit: float) -> bool:
        """Queue a request once there is room for its bytes; returns False if that took too long."""
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
        """The request to send now, or None."""
        with self._free:
            while self._queue:
                request = heapq.heappop(self._queue)
                if self._must_wait(request):
                    request.until = inf  # the request it waits for has its own time limit
                    self._held.setdefault(request.message.key, []).append(request)
                    continue
                lowest, count = self._queued.pop(request.message.key)
                if count > 1:
                    self._queued[request.message.key] = lowest, count - 1
                if request.message.tag in self._open:
                    return request
        return None

    def _must_wait(self, request: Request) -> bool:
        """Whether a request must wait: it is a push that could end a third round, or comes after
        one."""
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
        """Queue all unanswered requests again, for a new connection."""
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
        """Remove and return the request with this tag; None if there is none."""
        with self._free:
            request = self._open.pop(tag, None)
            if request is not None:
                self._bytes -= request.message.size
                self._has_come(request.message)
                self._free.notify_all()
        return request

    def _has_come(self, message: Message) -> None:
        """An answer has arrived: queue the requests that waited for it."""
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
        """Remove and return all requests, because nobody will answer them."""
        with self._free:
            tags = list(self._open)
        return [request for tag in tags if (request := self.answered(tag))]

    def wait(self, until: float) -> bool:
        """Wait until every request is answered; returns whether that happened in time."""
        with self._free:
            return self._free.wait_for(lambda: not self._open, until - time.monotonic())


def describe(kind: Any, key: str) -> str:
    """The name of a request in errors: "push of key '3'"."""
    verb = kind.name.lower()
    return f"{verb} of key {key.partition(':')[2]!r}" if key else verb


__all__ = ["Answer", "Request", "Requests", "describe"]

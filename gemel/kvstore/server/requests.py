"""What a worker has asked of one server, in the order in which it leaves."""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from gemel.kvstore.server.protocol import Message

#: Called once with the answer: a message, or the error in its place. On a thread of the connection.
Answer = Callable[[Message | BaseException], None]


@dataclass(order=True)
class Request:
    """One message, and what to do with its answer."""

    order: tuple[int, int]
    message: Message = field(compare=False)
    answer: Answer = field(compare=False)
    what: str = field(compare=False)
    until: float = field(compare=False)


class Requests:
    """Requests by priority, those of one key in the order in which they were made.

    A request stays until it is answered: after a new connection all of them are sent again, and the
    server knows by their sequence numbers what it has. Safe for several threads.
    """

    def __init__(self, room: int) -> None:
        self._room = room
        self._free = threading.Condition()
        self._queue: list[Request] = []
        self._open: dict[int, Request] = {}
        #: The lowest priority of a key's requests that are still queued, and how many there are.
        self._queued: dict[int, tuple[int, int]] = {}
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
            request = Request(order, message, answer, what, time.monotonic() + limit)
            self._open[self._tags] = request
            self._bytes += message.size
            heapq.heappush(self._queue, request)
        return True

    def next(self) -> Request | None:
        """The request to send now."""
        with self._free:
            while self._queue:
                request = heapq.heappop(self._queue)
                lowest, count = self._queued.pop(request.message.key)
                if count > 1:
                    self._queued[request.message.key] = lowest, count - 1
                if request.message.tag in self._open:
                    return request
        return None

    def again(self) -> None:
        """Queue all that is not answered: the connection is a new one."""
        with self._free:
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
                self._free.notify_all()
        return request

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

"""A worker's connection to one server, on a thread of its own.

The thread connects, proves that it knows the secret, sends queued requests, receives the answers,
and sends heartbeats. When the connection breaks, it opens another one and repeats the requests that
were not answered.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import selectors
import socket
import sys
import threading
import time
from typing import Any

from gemel.errors import (
    KVStoreError,
    ProtocolError,
    RankTakenError,
    SecretError,
    ServerLostError,
    WaitLimitError,
)
from gemel.kvstore.agreement import workers_have
from gemel.kvstore.server.errors import ANSWERED
from gemel.kvstore.server.protocol import (
    NONCE_BYTES,
    Decoder,
    Kind,
    Message,
    encode,
    proof,
    proves,
    text_message,
    tune,
)
from gemel.kvstore.server.requests import Answer, Requests, describe
from gemel.kvstore.server.settings import WorkerSettings

#: Shortest and longest pause in seconds between two attempts to connect. Between these limits it is
#: an eighth of the time spent so far, so a worker loses at most that much after its server is up.
FIRST_PAUSE = 0.02
LONGEST_PAUSE = 0.5
#: Seconds an attempt may take. TCP retries after 1 s, 3 s and 7 s, so once a broken link works
#: again a new attempt is faster than an old one.
TRY = 0.5
#: Seconds a server may take to greet; it may be busy.
GREETING = 5.0
#: Refusals after which it makes sense to try again.
_PASSING = (RankTakenError,)


class Connection:
    """Requests to server `number`. `run` distinguishes this process from others with its rank."""

    def __init__(self, settings: WorkerSettings, number: int, run: str) -> None:
        self.settings = settings
        self._number = number
        self.address = settings.servers[number]
        self.name = f"server {number} ({self.address[0]}:{self.address[1]})"
        self.welcome: dict[str, Any] = {}
        self.error: KVStoreError | None = None
        #: For the tag of each request, the workers that it waits for, as the server said last.
        self._missing: dict[int, list[int]] = {}
        self._run = run
        self._process = os.getpid()
        self._requests = Requests(settings.limits.room)
        self._ready = threading.Event()
        self._closing = threading.Event()
        self._wake, self._woken = socket.socketpair()
        self._wake.setblocking(False)
        self._woken.setblocking(False)
        self._thread = threading.Thread(target=self._work, name=f"kvstore {number}", daemon=True)
        self._thread.start()

    def ready(self) -> None:
        """Wait until it is connected. Raises the reason why it cannot be."""
        self._ready.wait(self.settings.limits.reach + 10)
        if self.error is not None:
            raise self.error

    def send(self, message: Message, answer: Answer, key: str = "", priority: int = 0) -> None:
        """Queue a message; `answer` is called once, on the connection's thread or on this one."""
        if os.getpid() != self._process:
            answer(
                KVStoreError(
                    "kvstore: the store was created before a fork, and only the parent process may "
                    "use it"
                )
            )
            return
        what = describe(message.kind, key)
        if self.error is not None:
            answer(self.error)
            return
        if not self._requests.add(message, answer, what, priority, self.settings.limits.wait):
            answer(
                self._late(what, sorted({rank for each in self._missing.values() for rank in each}))
            )
            return
        self._fail_late()
        self._nudge()

    def finish(self, until: float) -> bool:
        """Wait until every request is answered; returns whether that happened in time."""
        return self._requests.wait(until)

    def close(self) -> None:
        """Close the connection; requests without an answer fail."""
        self._closing.set()
        self._nudge()
        if threading.current_thread() is not self._thread:
            self._thread.join(2)

    def _nudge(self) -> None:
        with contextlib.suppress(OSError):  # the thread is already awake, or has ended
            self._wake.send(b"x")

    # ---- failures

    def _fail_expired(self) -> None:
        """Make the requests fail whose time is over."""
        for request in self._requests.expired():
            missing = self._missing.get(request.message.tag, [])
            request.answer(self._late(request.what, missing))

    def _late(self, what: str, missing: list[int]) -> KVStoreError:
        """The error for a request without an answer, for which workers are `missing`."""
        who = f"kvstore: worker {self.settings.rank}: {what}: {self.name}"
        limit = f"{self.settings.limits.wait:g} s (GEMEL_WAIT_SECONDS)"
        if not self._ready.is_set():
            return ServerLostError(f"{who} could not be reached within {limit}")
        if missing:
            return WaitLimitError(
                f"{who} did not answer within {limit}, since {workers_have(missing)} not "
                "arrived; every rank must make the same calls, and the limit must be longer "
                "than any of them takes"
            )
        return WaitLimitError(
            f"{who} did not answer within {limit}, and did not report a missing worker; the "
            "server or the network is slow or gone"
        )

    def _fail_late(self) -> None:
        """Make the requests fail that were queued while the connection failed."""
        if self.error is not None:
            self._fail(self.error)

    def _fail(self, error: KVStoreError) -> None:
        for request in self._requests.drain():
            request.answer(error)

    # ---- the thread

    def _work(self) -> None:
        try:
            while not self._closing.is_set():
                with self._connected() as channel:
                    self._requests.again()
                    self._ready.set()
                    self._serve(channel)
                self._ready.clear()
            self.error = self.error or KVStoreError("kvstore: the store is closed")
        except KVStoreError as error:
            self.error = error
        except Exception as error:
            self.error = KVStoreError(f"kvstore: {self.name}: {type(error).__name__}: {error}")
        self._ready.set()
        self._fail(self.error)

    def _connected(self) -> socket.socket:
        """Open a connection on which both sides have proved that they know the secret."""
        limit = self.settings.limits.reach
        begun = time.monotonic()
        last = "no answer"
        while True:
            tried = time.monotonic() - begun
            left, pause = limit - tried, min(max(FIRST_PAUSE, tried / 8), LONGEST_PAUSE)
            channel = None
            try:
                channel = socket.create_connection(self.address, max(0.05, min(left, TRY)))
                channel.settimeout(max(TRY, min(left, GREETING)))
                tune(channel)
                self.welcome = self._greeted(channel)
                channel.setblocking(False)
                return channel
            except (OSError, *_PASSING) as error:
                if channel is not None:
                    channel.close()
                last = str(error)
                if left <= pause or self._closing.is_set():
                    if isinstance(error, _PASSING):
                        raise
                    raise ServerLostError(
                        f"kvstore: worker {self.settings.rank}: {self.name} could not be reached "
                        f"within {limit:g} s (GEMEL_REACH_SECONDS): {last}"
                    ) from None
            except BaseException:
                if channel is not None:
                    channel.close()
                raise
            self._closing.wait(pause)
            self._fail_expired()

    def _greeted(self, channel: socket.socket) -> dict[str, Any]:
        secret, mine = self.settings.secret, secrets.token_hex(NONCE_BYTES)
        decoder = Decoder(1 << 16)
        challenge = _received(channel, decoder, Kind.CHALLENGE).values().get("challenge")
        greeting = {
            "rank": self.settings.rank,
            "workers": self.settings.workers,
            "place": [self._number, len(self.settings.servers)],
            "run": self._run,
            "challenge": mine,
            "again": bool(self.welcome),
        }
        shown = proof(secret, "worker", str(challenge), greeting)
        for part in encode(text_message(Kind.HELLO, {**greeting, "proof": shown})):
            channel.sendall(part)
        welcome = _received(channel, decoder, Kind.WELCOME).values()
        if not proves(welcome.get("proof"), proof(secret, "server", mine, {})):
            raise SecretError(f"kvstore: {self.name} does not know the secret of this job")
        return welcome

    def _serve(self, channel: socket.socket) -> None:
        """Send and receive until the connection breaks, is silent, or is closed."""
        limits = self.settings.limits
        decoder = Decoder()
        sending: list[memoryview] = []
        heard = spoke = time.monotonic()
        pause = min(limits.silent / 4, limits.wait / 4, 1.0)
        with selectors.DefaultSelector() as selector:
            selector.register(self._woken, selectors.EVENT_READ)
            selector.register(channel, selectors.EVENT_READ)
            while not self._closing.is_set():
                now = time.monotonic()
                if not sending and (request := self._requests.next()) is not None:
                    sending = [memoryview(part) for part in encode(request.message) if len(part)]
                if not sending and now - spoke > pause:
                    sending = [memoryview(encode(Message(Kind.HEARTBEAT))[0])]
                events = selectors.EVENT_READ | (selectors.EVENT_WRITE if sending else 0)
                selector.modify(channel, events)
                ready = {key.fileobj: mask for key, mask in selector.select(pause)}
                if self._woken in ready:
                    _emptied(self._woken)
                try:
                    if ready.get(channel, 0) & selectors.EVENT_READ:
                        heard = time.monotonic()
                        self._receive(channel, decoder)
                    if sending and ready.get(channel, 0) & selectors.EVENT_WRITE:
                        sending = _sent(channel, sending)
                        spoke = time.monotonic()
                        heard = spoke if sending else heard  # the server is still reading
                except OSError:
                    return
                self._fail_expired()
                if time.monotonic() - heard > limits.silent:
                    return

    def _receive(self, channel: socket.socket, decoder: Decoder) -> None:
        """Receive what has arrived. Raises `ConnectionError` at the end of the connection."""
        for _ in range(16):
            try:
                count = channel.recv_into(decoder.buffer())
            except BlockingIOError:
                return
            if not count:
                raise ConnectionError("the server has closed the connection")
            message = decoder.filled(count)
            if message is not None and message.kind != Kind.HEARTBEAT:
                self._take(message)

    def _take(self, message: Message) -> None:
        found: Message | BaseException = message
        if message.kind == Kind.DONE and not message.tag:
            values = message.values()
            if "said" in values:  # for the user, at once
                print(f"gemel: {values['said']}", file=sys.stderr, flush=True)
                return
            said = values.get("missing", {})
            self._missing = {int(tag): [int(rank) for rank in ranks] for tag, ranks in said.items()}
            return
        if message.kind == Kind.ERROR:
            found = _error(message)
            if not message.tag:
                raise found
        request = self._requests.answered(message.tag)
        if request is not None:
            request.answer(found)


def _received(channel: socket.socket, decoder: Decoder, kind: Kind) -> Message:
    """The next message, which must be of this kind."""
    while True:
        count = channel.recv_into(decoder.buffer())
        if not count:
            raise ConnectionError("the server has closed the connection")
        message = decoder.filled(count)
        if message is None:
            continue
        if message.kind == Kind.ERROR:
            raise _error(message)
        if message.kind != kind:
            raise ProtocolError(f"kvstore: {message.kind.name} arrived instead of {kind.name}")
        return message


def _error(message: Message) -> KVStoreError:
    values = message.values()
    return ANSWERED.get(str(values.get("type")), KVStoreError)(str(values.get("message")))


def _emptied(channel: socket.socket) -> None:
    try:
        while channel.recv(4096):
            pass
    except BlockingIOError:
        pass


def _sent(channel: socket.socket, parts: list[memoryview]) -> list[memoryview]:
    """Send as much as possible now; returns the rest of the parts."""
    try:
        count = channel.sendmsg(parts)
    except BlockingIOError:
        return parts
    left = []
    for part in parts:
        if count < len(part):
            left.append(part[count:])
        count = max(0, count - len(part))
    return left


__all__ = ["Connection"]

"""A parameter server: one thread, which reads messages, updates the state and answers."""

from __future__ import annotations

import asyncio
import errno
import time
from typing import TYPE_CHECKING, Any

from gemel.errors import (
    KVStoreError,
    LeftOutError,
    PortTakenError,
    ProtocolError,
    RankTakenError,
    SecretError,
    WorkerLostError,
    WorldError,
)
from gemel.kvstore.server.journal import Journal
from gemel.kvstore.server.optimizer_states import most_bytes
from gemel.kvstore.server.protocol import (
    Kind,
    Message,
    proof,
    proves,
    text_message,
)
from gemel.kvstore.server.session import Connection
from gemel.kvstore.server.state import State

if TYPE_CHECKING:
    from collections.abc import Callable

    from gemel.kvstore.server.settings import ServerSettings

#: The most strangers at a time.
MOST_STRANGERS = 256
#: Seconds in which a worker may connect again before others are told that it is lost.
SOON = 0.5
#: The kinds of messages by which workers change the state. What changes it goes into the journal.
_CHANGES = frozenset(
    (Kind.DECLARE, Kind.INIT, Kind.PUSH, Kind.OPTIMIZER, Kind.ACTIVATE, Kind.LEAVE, Kind.RESTORE)
)
#: The kinds of messages that are accepted from a worker, once it is known.
_ACCEPTED = _CHANGES | {Kind.HEARTBEAT, Kind.PULL, Kind.COMPARE, Kind.STATE}


class Server:
    """Serves one job: `await run()` until all its workers have finished, or `stop()`."""

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self.state = State(settings.workers)
        self.port = settings.port
        self._journal: Journal | None = None
        self._connections: dict[int, Connection] = {}
        self._strangers: set[Connection] = set()
        self._waiting: dict[int, list[tuple[Connection, Message]]] = {}
        #: Pushes, by key, from workers that are too far ahead; they are taken when the others catch
        #: up, or worker 0 has given the value.
        self._early: dict[int, list[tuple[Connection, Message]]] = {}
        self._taking = False
        #: When each rank was last heard, and which ranks have ever been heard.
        self._heard: dict[int, float] = {}
        self._came: set[int] = set()
        self._lost: set[int] = set()
        #: The ranks that the others were told to be lost.
        self._missed: set[int] = set()
        self._stopped = asyncio.Event()
        self.error: BaseException | None = None

    async def run(self, ready: Callable[[int], Any] = lambda port: None) -> None:
        """Serve; `ready` is called with the port. Raises `PortTakenError`, `JournalError`."""
        settings = self.settings
        if settings.folder is not None:
            self._journal = Journal(settings.folder, settings.log_bytes, settings.durable)
            self.state = self._journal.load(settings.workers)
            if not self._journal.is_new_job:
                self._came = {rank for e in self.state.entries.values() for rank in e.last}
        try:
            await self._serve(ready)
        finally:
            if self._journal is not None:
                self._journal.close()
        if self.error is not None:
            raise self.error

    async def _serve(self, ready: Callable[[int], Any]) -> None:
        """Listen until the server is stopped. Raises `PortTakenError`."""
        settings = self.settings
        loop = asyncio.get_running_loop()
        try:
            listener = await loop.create_server(
                lambda: Connection(self), settings.host, settings.port, reuse_address=True
            )
        except OSError as error:
            where = f"{settings.host}:{settings.port}"
            if error.errno == errno.EADDRINUSE:
                raise PortTakenError(
                    f"server: {where} is taken by another process; choose another --port"
                ) from None
            raise KVStoreError(f"server: cannot listen on {where}: {error}") from None
        self.port = listener.sockets[0].getsockname()[1]
        watch = asyncio.create_task(self._watch())
        try:
            ready(self.port)
            await self._stopped.wait()
        finally:
            watch.cancel()
            listener.close()
            for connection in [*self._connections.values(), *self._strangers]:
                connection.close()

    def stop(self, error: BaseException | None = None) -> None:
        """Make `run` end, with an error if there is one."""
        self.error = self.error or error
        self._stopped.set()

    # ---- workers

    def admit(self, connection: Connection) -> bool:
        """Whether to accept one more stranger."""
        if len(self._strangers) >= MOST_STRANGERS:
            return False
        self._strangers.add(connection)
        return True

    def greet(self, connection: Connection, hello: Message) -> None:
        """Check the greeting of a worker: who it is, and whether it knows the secret."""
        greeting = hello.values()
        given = greeting.pop("proof", None)
        wanted = proof(self.settings.secret, "worker", connection.challenge, greeting)
        if not proves(given, wanted):
            raise SecretError("server: this worker does not know the secret of this job")
        rank, run = greeting.get("rank"), greeting.get("run")
        if not isinstance(rank, int) or not isinstance(run, str) or isinstance(rank, bool):
            raise ProtocolError("HELLO: rank and run are missing")
        workers = self.settings.workers
        if greeting.get("workers") != workers or not 0 <= rank < workers:
            raise WorldError(
                f"kvstore: worker {rank} of {greeting.get('workers')} connected to a server of a "
                f"job with {workers} workers"
            )
        if rank in self.state.gone and greeting.get("again"):
            raise LeftOutError(
                f"kvstore: worker {rank} was left out: it was silent for too long, and the "
                "others continued; restart it to join"
            )
        if self.state.take_place(rank, greeting.get("place")):
            self._write(Journal.snapshot, self.state)
        self._take_place(connection, rank, run)
        welcome = {
            "proof": proof(self.settings.secret, "server", str(greeting.get("challenge")), {}),
            "pushed": self.state.pushed(rank),
            "newest": self.state.newest(),
            "gone": rank in self.state.gone,
        }
        connection.send(text_message(Kind.WELCOME, welcome))

    def _take_place(self, connection: Connection, rank: int, run: str) -> None:
        """Let a connection represent a rank from now on, unless another one does."""
        known = self._connections.get(rank)
        if known is not None and known is not connection:
            silent = time.monotonic() - self._heard.get(rank, 0)
            if known.run != run and silent <= self.settings.limits.silent:
                raise RankTakenError(
                    f"kvstore: there is already a worker {rank}; give each worker its own "
                    "GEMEL_RANK, and create one store in each process"
                )
            known.close()
        self._strangers.discard(connection)
        connection.rank, connection.run = rank, run
        self._connections[rank] = connection
        self._came.add(rank)
        self._lost.discard(rank)
        if rank in self._missed:
            self._missed.discard(rank)
            self._say(f"worker {rank} is here again")
        self.hear(rank)

    def hear(self, rank: int) -> None:
        """Record that something has arrived from a worker."""
        self._heard[rank] = time.monotonic()

    def leave(self, connection: Connection) -> None:
        """A connection has ended; the worker may come back."""
        self._strangers.discard(connection)
        if connection.rank >= 0 and self._connections.get(connection.rank) is connection:
            del self._connections[connection.rank]
            if connection.rank in self.state.live and not self._stopped.is_set():
                asyncio.get_running_loop().call_later(SOON, self._tell_lost, connection.rank)

    def _tell_lost(self, rank: int) -> None:
        """Say that a worker is gone: the others fail only after the time for another one."""
        limits = self.settings.limits
        if rank in self._connections or rank not in self.state.live or self._stopped.is_set():
            return
        what = f"waiting up to {limits.silent + limits.replace:g} s for its replacement"
        if self.settings.rule == "leave_out":
            what = f"it is left out after {limits.silent:g} s"
        self._missed.add(rank)
        self._say(f"worker {rank} is lost: its connection has ended; {what}")

    def _say(self, text: str) -> None:
        """Let one worker print a text. The first server speaks for all."""
        if self._connections and self.state.place is not None and self.state.place[0] == 0:
            first = self._connections[min(self._connections)]
            first.send(text_message(Kind.DONE, {"said": text}))

    async def _watch(self) -> None:
        """Find silent workers, and treat them according to the rule."""
        limits = self.settings.limits
        pause = min(limits.silent, limits.replace) / 8
        last = time.monotonic()
        self._heard = dict.fromkeys(range(self.settings.workers), last)
        while True:
            await asyncio.sleep(pause)
            now = time.monotonic()
            late = now - last - pause
            if late > pause:  # suspended: messages sent meanwhile are unread
                self._heard = {rank: heard + late for rank, heard in self._heard.items()}
            last = now
            for rank in self.state.live:
                self._judge(rank, now - self._heard[rank])

    def _judge(self, rank: int, silent: float) -> None:
        limits = self.settings.limits
        leaving = self.settings.rule == "leave_out"
        limit = limits.silent if leaving and rank in self._came else limits.silent + limits.replace
        if silent <= limit or rank in self._lost:
            return
        if leaving:
            why = {"silent": round(silent, 3)}
            self.change(rank, text_message(Kind.LEFT_OUT, why))
            connection = self._connections.pop(rank, None)
            if connection is not None:
                connection.close()
        else:
            self._lost.add(rank)
        for key in list(self._waiting):
            self._answer_waiting(key)
        self._take_early(list(self._early))

    # ---- messages

    def change(self, rank: int, message: Message) -> bool:
        """Apply a message to the state, and write it to the journal."""
        begun = time.monotonic()
        try:
            changed = self.state.apply(rank, message)
        except KVStoreError:
            raise
        except Exception as error:  # the state may have changed in part; the journal has the whole
            problem = KVStoreError(
                f"server: {message.kind.name} of worker {rank}: {type(error).__name__}: {error}"
            )
            self.stop(problem)
            raise problem from error
        if changed:
            self._write(Journal.append, rank, message, time.monotonic() - begun)
            if self._journal is not None and self._journal.is_full:
                self._write(Journal.snapshot, self.state)
        return changed

    def _write(self, what: Callable[..., None], *given: Any) -> None:
        """Write to the journal, if there is one. Raises `KVStoreError` and ends if that fails."""
        if self._journal is None:
            return
        try:
            what(self._journal, *given)
        except OSError as error:
            self.stop(KVStoreError(f"server: its journal cannot be written: {error}"))
            raise KVStoreError("server: its journal cannot be written") from error

    def check(self, rank: int, message: Message) -> None:
        """Refuse arrays that are larger than their key, before memory is allocated for them."""
        if message.kind in (Kind.INIT, Kind.PUSH):
            self.state.entry(rank, message.key).fits(rank, message)
        elif message.kind == Kind.RESTORE:
            entry = self.state.entry(rank, message.key)
            if message.dtype != "uint8" or message.length > most_bytes(entry.shape):
                raise ProtocolError(f"RESTORE: {message.length} bytes of states for {entry}")
        elif message.kind == Kind.VALUE:
            raise ProtocolError("VALUE is not a message to a server")

    def take(self, connection: Connection, message: Message) -> None:
        """Handle a message of a known worker."""
        rank = connection.rank
        if message.kind == Kind.HEARTBEAT:
            connection.send(Message(Kind.HEARTBEAT))
            missing = self._missing(connection)
            if missing:  # the worker includes it in the error if its time runs out
                connection.send(text_message(Kind.DONE, {"missing": missing}))
            return
        try:
            if message.kind not in _ACCEPTED:
                raise ProtocolError(f"{message.kind.name} is not a message to a server")
            if message.kind in (Kind.PULL, Kind.STATE):
                self._pull(connection, message)
                return
            if self._is_early(rank, message):
                self._early.setdefault(message.key, []).append((connection, message))
                return
            changed = self.change(rank, message)
        except KVStoreError as error:
            connection.refuse(error, message.tag)
            return
        connection.send(text_message(Kind.DONE, self._done(rank, message), tag=message.tag))
        if changed:
            self._answer(message)
            self._end()

    def _done(self, rank: int, message: Message) -> dict[str, Any]:
        if message.kind == Kind.DECLARE:
            entry = self.state.entries[message.key]
            return {"pushed": entry.last.get(rank, 0), "known": entry.value is not None}
        if message.kind == Kind.ACTIVATE:
            newest = self.state.newest()
            return {"joined": newest <= message.sequence, "newest": newest}
        return {}

    def _pull(self, connection: Connection, message: Message) -> None:
        answer = self.state.answer(connection.rank, message)
        if answer is not None:
            connection.send(answer)
            return
        self._waiting.setdefault(message.key, []).append((connection, message))
        self._answer_waiting(message.key)

    def _answer(self, message: Message) -> None:
        """Answer the waiting requests that this message makes ready."""
        everywhere = message.kind in (Kind.LEAVE, Kind.ACTIVATE)
        for key in list(self._waiting) if everywhere else [message.key]:
            self._answer_waiting(key)
        self._take_early(list(self._early) if everywhere else [message.key])

    def _is_early(self, rank: int, message: Message) -> bool:
        """Whether a push has to wait for other workers (`Entry.is_early`), or new states for the
        end of the round that their worker pushed last."""
        if message.kind not in (Kind.PUSH, Kind.RESTORE) or rank in self.state.gone:
            return False
        if message.kind == Kind.RESTORE:
            entry = self.state.entry(rank, message.key)
            return entry.rounds and entry.version < message.sequence
        return self.state.entry(rank, message.key).is_early(message.sequence)

    def _take_early(self, keys: list[int]) -> None:
        """Take the pushes of these keys that need not wait any more, in the order of arrival."""
        if self._taking:  # an outer call is doing this
            return
        self._taking = True
        try:
            while (found := self._first_early(keys)) is not None:
                connection, message = found
                if not connection.closed:  # else the worker sends it again later
                    self.take(connection, message)
        finally:
            self._taking = False

    def _first_early(self, keys: list[int]) -> tuple[Connection, Message] | None:
        """Remove and return the next of these pushes that need not wait any more."""
        for key in keys:
            for number, (connection, message) in enumerate(self._early.get(key, [])):
                if connection.closed or not self._is_early(connection.rank, message):
                    del self._early[key][number]
                    return connection, message
        return None

    def _answer_waiting(self, key: int) -> None:
        waiting = self._waiting.pop(key, [])
        still = []
        for connection, message in waiting:
            if connection.closed:
                continue
            try:
                answer = self.state.answer(connection.rank, message)
                if answer is None:
                    self._refuse_lost(message)
            except KVStoreError as error:
                connection.refuse(error, message.tag)
                continue
            if answer is None:
                still.append((connection, message))
            else:
                connection.send(answer)
        if still:
            self._waiting[key] = still

    def _missing(self, connection: Connection) -> dict[str, list[int]]:
        """For each unanswered message of a worker, the ranks that it waits for."""
        held = (
            pair for each in (self._waiting, self._early) for row in each.values() for pair in row
        )
        found = {
            str(message.tag): self.state.missing(message.key, message.sequence)
            for other, message in held
            if other is connection
        }
        return {tag: ranks for tag, ranks in found.items() if ranks}

    def _refuse_lost(self, message: Message) -> None:
        """Raises `WorkerLostError` if the worker that is waited for will not come."""
        missing = self.state.missing(message.key, message.sequence)
        lost = [rank for rank in missing if rank in self._lost or rank in self.state.gone]
        if lost:
            limits = self.settings.limits
            why = f"it was silent for {limits.silent:g} s"
            if lost[0] in self.state.finished:
                why = "its program has ended"
            elif lost[0] in self._lost:
                why += f" and was not replaced within {limits.replace:g} s"
            raise WorkerLostError(
                f"kvstore: worker {lost[0]} is missing in round {message.sequence} of "
                f"{self.state.entries[message.key]}: {why}"
            )

    def _end(self) -> None:
        """End the job if no worker is left and at least one has finished."""
        if not self.state.live and self.state.finished:
            asyncio.get_running_loop().call_later(0.2, self._end_now)

    def _end_now(self) -> None:
        if not self.state.live:
            self.stop()


def serve(settings: ServerSettings, ready: Callable[[int], Any] = lambda port: None) -> None:
    """Serve until the job's workers have finished. Raises a `KVStoreError`."""

    async def main() -> None:
        await Server(settings).run(ready)

    asyncio.run(main())


__all__ = ["Server", "serve"]

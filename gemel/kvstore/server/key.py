"""What a worker knows about a key: its pieces, the number of its pushes, and its errors."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from gemel.errors import KeyShapeError
from gemel.kvstore.server.errands import Turns, end
from gemel.kvstore.server.protocol import Kind, Message, array_message
from gemel.kvstore.server.split import Piece, key_number
from gemel.runtime import callback

if TYPE_CHECKING:
    import numpy

    from gemel.kvstore.server.connection import Connection
    from gemel.kvstore.server.protocol import Numbers

    Values = numpy.ndarray[Any, Any]


def contents(value: Any) -> Values:
    """The elements of an array, in a dtype that can be sent."""
    found: Values = callback.as_twin(value).asnumpy()
    return found


class Meeting(NamedTuple):
    """A key for a meeting of the workers; no key of a program is equal to it."""

    name: str


@dataclass
class Key:
    """A key and the connections to the servers that keep its pieces.

    `pushes` counts the issued pushes, of which `joined` were those of an earlier process with this
    rank; its optimizer counts `ahead` more, from a file of states. `flag` is the array that becomes
    ready when the last of them has been passed to the connections. `share` is the number of
    workers' pushes in the value pulled last. `error` is the reason why the key can no longer be
    pushed, `missed` the reason why a pull failed. A thread that counts and issues a push or a pull
    holds `order`, and `turns` begins them in order.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    pieces: list[Piece]
    rounds: bool
    staleness: int
    barrier: bool = False
    pushes: int = 0
    ahead: int = 0
    joined: int = 0
    workers: int = 1
    flag: Any = None
    share: int = 0
    error: BaseException | None = None
    missed: BaseException | None = None
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    order: threading.Lock = field(default_factory=threading.Lock, repr=False)
    turns: Turns = field(default_factory=Turns, repr=False)
    #: The fetches that wait for a value.
    waiting: set[Any] = field(default_factory=set, repr=False)

    def fail(self, error: BaseException) -> None:
        """Record that the key can no longer be pushed or pulled, and make waiting fetches fail."""
        with self.lock:
            self.error = self.error or error
            waiting, self.waiting = self.waiting, set()
        for fetch in waiting:
            fetch.fail(error)

    @property
    def itemsize(self) -> int:
        """The bytes of an element."""
        import numpy

        return numpy.dtype(self.dtype).itemsize

    def __str__(self) -> str:
        return f"key {self.name.partition(':')[2]!r}"

    def extents(self, piece: Piece) -> tuple[int, ...]:
        """The shape of a piece: a row of elements, or the key's own shape if it is the whole
        key."""
        return self.shape if len(self.pieces) == 1 else (piece.end - piece.begin,)

    def number(self, piece: Piece) -> int:
        """The number of a piece in messages."""
        return key_number(self.name, piece.number)

    def describe(self, piece: Piece) -> dict[str, Any]:
        """The fields of a piece that a server has to know."""
        return {
            "name": self.name,
            "piece": piece.number,
            "shape": list(self.extents(piece)),
            "dtype": self.dtype,
            "rounds": self.rounds,
            "staleness": self.staleness,
            "barrier": self.barrier,
        }

    def messages(
        self, kind: Kind, array: Values, sequence: int = 0, numbers: Numbers = (0.0, 0.0, 0.0)
    ) -> list[tuple[Piece, Message]]:
        """Split an array into a message for each piece. The array must not change any more."""
        flat = array.reshape(-1)
        return [
            (
                piece,
                array_message(
                    kind,
                    flat[piece.begin : piece.end].reshape(self.extents(piece)),
                    key=self.number(piece),
                    sequence=sequence,
                    numbers=numbers,
                ),
            )
            for piece in self.pieces
        ]

    def fits(self, rank: int, array: Any) -> None:
        """Raises `KeyShapeError` for an array of another shape or dtype."""
        dtype = array.dtype.twin.name
        if (tuple(array.shape), dtype) != (self.shape, self.dtype):
            raise KeyShapeError(
                f"kvstore: worker {rank}: {self} is {self.dtype}{list(self.shape)}, but an array "
                f"of {dtype}{list(array.shape)} was given"
            )


class Fetch:
    """Fills an errand's result with the value of a key, from the answers of several servers."""

    def __init__(self, key: Key, errand: Any) -> None:
        import numpy

        self._key = key
        self._errand = errand
        self._left = len(key.pieces)
        self._lock = threading.Lock()
        self._flat = numpy.frombuffer(errand.outputs[0], key.dtype)

    def ask(self, connections: list[Connection], sequence: int, priority: int) -> None:
        """Ask for the value after the worker's push number `sequence`."""
        key = self._key
        with key.lock:
            key.waiting.add(self)
        if key.error is not None:
            self.fail(key.error)
            return
        for piece in key.pieces:
            message = Message(Kind.PULL, key=key.number(piece), sequence=sequence)

            def answer(found: Message | BaseException, piece: Piece = piece) -> None:
                self._take(piece, found)

            connections[piece.server].send(message, answer, key.name, priority)

    def _take(self, piece: Piece, found: Message | BaseException) -> None:
        key = self._key
        wanted = key.extents(piece), key.dtype
        if not isinstance(found, Message):
            self.fail(key.error or found)
        elif found.kind != Kind.VALUE or (found.shape, found.dtype) != wanted:
            self.fail(KeyShapeError(f"kvstore: a server sent {found} for {key}"))
        else:
            with self._lock:
                if self._left <= 0:
                    return
                self._flat[piece.begin : piece.end] = found.array().reshape(-1)
                key.share = int(found.numbers[0])
                self._left -= 1
                whole = self._left == 0
            if whole:
                with key.lock:
                    key.waiting.discard(self)
                end(self._errand)

    def fail(self, failure: BaseException) -> None:
        """Fail, because the value is not available."""
        with self._key.lock:
            self._key.waiting.discard(self)
            self._key.missed = failure
        with self._lock:
            over = self._left <= 0
            self._left = 0
        if not over:
            end(self._errand, failure)


__all__ = ["Fetch", "Key", "Meeting", "contents"]

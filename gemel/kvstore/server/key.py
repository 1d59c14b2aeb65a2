"""What a worker knows of one key: its pieces, how often it has pushed, what went wrong."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gemel.kvstore.server.errors import KeyShapeError
from gemel.kvstore.server.protocol import Kind, Message, array_message
from gemel.kvstore.server.split import Piece, key_number

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy

    from gemel.kvstore.server.connection import Connection
    from gemel.kvstore.server.protocol import Numbers

    Values = numpy.ndarray[Any, Any]


@dataclass
class Key:
    """A key and the connections to the servers that keep its pieces.

    `pushes` counts the pushes issued; `flag` is the array that is there when the last of them has
    been handed to the connections. `share` is how many workers' pushes the value last pulled has.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    pieces: list[Piece]
    rounds: bool
    staleness: int
    barrier: bool = False
    pushes: int = 0
    flag: Any = None
    share: int = 0
    error: BaseException | None = None
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __str__(self) -> str:
        return f"key {self.name.partition(':')[2]!r}"

    def extents(self, piece: Piece) -> tuple[int, ...]:
        """The shape of a piece: rows of elements, unless it is all."""
        return self.shape if len(self.pieces) == 1 else (piece.end - piece.begin,)

    def number(self, piece: Piece) -> int:
        """What a piece is called in messages."""
        return key_number(self.name, piece.number)

    def describe(self, piece: Piece) -> dict[str, Any]:
        """What a server has to know of a piece."""
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
        """An array as a message for each piece. The array must not change any more."""
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
                f"kvstore: worker {rank}: {self} is {self.dtype}{list(self.shape)}, and an array "
                f"of {dtype}{list(array.shape)} was given for it"
            )


class Fetch:
    """The value of a key, put together from the answers of several servers.

    `done` is called when it is whole, or when it has failed; `failure` says why.
    """

    def __init__(self, key: Key, done: Callable[[], None]) -> None:
        import numpy

        self.value: Values = numpy.empty(key.shape, key.dtype)
        self.failure: BaseException | None = None
        self._key = key
        self._left = len(key.pieces)
        self._lock = threading.Lock()
        self._done = done
        self._begun = False

    def ask(self, connections: list[Connection], sequence: int, priority: int) -> None:
        """Ask for the value after the worker's push number `sequence`."""
        self._begun = True
        key = self._key
        if key.error is not None:
            self.fail(key.error)
            return
        for piece in key.pieces:
            message = Message(Kind.PULL, key=key.number(piece), sequence=sequence)

            def answer(found: Message | BaseException, piece: Piece = piece) -> None:
                self._take(piece, found)

            connections[piece.server].send(message, answer, key.name, priority)

    def _take(self, piece: Piece, found: Message | BaseException) -> None:
        if not isinstance(found, Message):
            self.fail(found)
            return
        wanted = self._key.extents(piece), self._key.dtype
        if found.kind != Kind.VALUE or (found.shape, found.dtype) != wanted:
            self.fail(KeyShapeError(f"kvstore: a server sent {found} for {self._key}"))
            return
        self.value.reshape(-1)[piece.begin : piece.end] = found.array().reshape(-1)
        self._key.share = int(found.numbers[0])
        with self._lock:
            self._left -= 1
            whole = self._left == 0
        if whole:
            self._done()

    def fail(self, error: BaseException) -> None:
        """It cannot be had."""
        self.failure = self.failure or error
        self._done()

    def abandon(self) -> None:
        """Nobody will ask: what it waited for has failed."""
        if not self._begun:
            self._done()


__all__ = ["Fetch", "Key"]

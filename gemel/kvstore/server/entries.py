"""A server's data for one key: its value, the previous round's, and the pushes of open rounds."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any

from gemel.errors import KeyShapeError, ProtocolError, WorldError
from gemel.kvstore.server.protocol import DTYPES, MOST_BYTES, MOST_DIMENSIONS
from gemel.kvstore.server.split import MOST_NAME, key_number

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy

    from gemel.kvstore.server.protocol import Message, Numbers

    Values = numpy.ndarray[Any, Any]

#: How many rounds ahead of the current one pushes are accepted; later ones have to wait.
MOST_AHEAD = 64


@dataclass
class Entry:
    """One piece of a key.

    `version` counts rounds (or updates, if there are no rounds). `pending` has the pushes of the
    open rounds, by round and rank; `last` the number of pushes of each rank; `start` the round
    after which a rank that joined takes part; `share` the number of pushes in the last round.
    """

    name: str
    piece: int
    shape: tuple[int, ...]
    dtype: str
    rounds: bool
    staleness: int
    barrier: bool
    value: Values | None = None
    previous: Values | None = None
    version: int = 0
    share: int = 0
    previous_share: int = 0
    last: dict[int, int] = field(default_factory=dict)
    start: dict[int, int] = field(default_factory=dict)
    pending: dict[int, dict[int, tuple[Values, Numbers]]] = field(default_factory=dict)

    def describe(self) -> dict[str, Any]:
        """The fields that workers send when they declare this entry."""
        return {
            "name": self.name,
            "piece": self.piece,
            "shape": list(self.shape),
            "dtype": self.dtype,
            "rounds": self.rounds,
            "staleness": self.staleness,
            "barrier": self.barrier,
        }

    def __str__(self) -> str:
        part = f", piece {self.piece}" if self.piece else ""
        return f"key {self.name.partition(':')[2]!r}{part} ({self.dtype}{list(self.shape)})"

    def agree(self, rank: int, other: Entry) -> None:
        """Raises `KeyShapeError` if a worker's declaration differs."""
        if self.describe() == other.describe():
            return
        if (self.shape, self.dtype) == (other.shape, other.dtype):
            raise WorldError(f"kvstore: worker {rank} declares {self} for another kind of store")
        raise KeyShapeError(
            f"kvstore: worker {rank} has {other.dtype}{list(other.shape)} for {self}; a key must "
            "have the same shape and dtype on all workers"
        )

    def fits(self, rank: int, message: Message) -> None:
        """Raises `KeyShapeError` if the array has another shape or dtype."""
        if (message.shape, message.dtype) != (self.shape, self.dtype):
            raise KeyShapeError(
                f"kvstore: worker {rank} sent {message.dtype}{list(message.shape)} for {self}"
            )

    def takes_steps(self, rank: int) -> None:
        """Raises `KeyShapeError` for a key of whole numbers, which an optimizer cannot update."""
        if not self.dtype.startswith("float") and not self.barrier:
            raise KeyShapeError(
                f"kvstore: worker {rank} pushes {self}, but an optimizer cannot update "
                f"{self.dtype}; use astype('float32'), or another store for such keys"
            )

    def follows(self, rank: int, sequence: int) -> bool:
        """Whether a push is the rank's next one; False for one that has been received before."""
        last = self.last.get(rank, 0)
        if sequence <= last:
            return False
        if sequence != last + 1 or self.is_early(sequence):
            raise WorldError(
                f"kvstore: worker {rank} sent push {sequence} of {self} after push {last}, in "
                f"round {self.version + 1}"
            )
        return True

    def is_early(self, sequence: int) -> bool:
        """Whether a push has to wait: its round is so far ahead that others have to end first, or,
        without rounds, there is no value yet that it could update."""
        if self.rounds:
            return sequence > self.version + MOST_AHEAD
        return self.value is None

    def begin_anew(self, workers: int) -> None:
        """Continue from the value with this many workers; the next round has no pushes yet."""
        done = self.version if self.rounds else max(self.last.values(), default=0)
        self.last = dict.fromkeys(range(workers), done)
        self.start, self.pending = {}, {}

    def needed(self, number: int, workers: int, gone: set[int]) -> list[int]:
        """The ranks whose pushes this round waits for."""
        return [
            rank for rank in range(workers) if rank not in gone and self.start.get(rank, 0) < number
        ]

    def join(self, rank: int, number: int, live: list[int]) -> None:
        """Let a rank take part after round `number`, or at once if this key has no such rounds.

        A key with rounds is at most two rounds behind `number`: one because its server may be
        behind another server, and one because the rank asks for a later round in order not to be
        late.
        """
        if not self.rounds:
            number = max((self.last.get(other, 0) for other in live), default=0)
        elif self.barrier or self.version < number - 2:
            number = self.version
        self.start[rank] = self.last[rank] = number


def declared(number: int, values: Mapping[str, Any]) -> Entry:
    """The entry that a worker declares. Raises `ProtocolError` for invalid fields."""
    name, piece, shape = values.get("name"), values.get("piece"), values.get("shape")
    dtype, staleness = values.get("dtype"), values.get("staleness")
    named = isinstance(name, str) and len(name) <= MOST_NAME and _whole(piece, 1 << 16)
    if not named or key_number(str(name), int(piece or 0)) != number:
        raise ProtocolError(f"DECLARE: {name!r}, piece {piece!r} does not have number {number}")
    sized = isinstance(shape, list) and len(shape) <= MOST_DIMENSIONS
    if not sized or not all(_whole(extent, MOST_BYTES) for extent in shape or []):
        raise ProtocolError(f"DECLARE: {name}: {shape!r} is not a shape")
    if dtype not in DTYPES or prod(shape or []) * 8 > 2 * MOST_BYTES:
        raise ProtocolError(f"DECLARE: {name}: {dtype!r}{shape} cannot be sent")
    flags = values.get("rounds"), values.get("barrier")
    if not _whole(staleness, 1 << 32) or not all(isinstance(flag, bool) for flag in flags):
        raise ProtocolError(f"DECLARE: {name}: rounds, barrier or staleness are missing")
    return Entry(
        str(name),
        int(piece or 0),
        tuple(shape or []),
        str(dtype),
        bool(flags[0]),
        int(staleness or 0),
        bool(flags[1]),
    )


def _whole(value: object, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most


__all__ = ["Entry", "declared"]

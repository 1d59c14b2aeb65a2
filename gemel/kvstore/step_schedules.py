"""Fixed schedules for the sums of a training step, agreed on once.

The first time a store sums some keys, rank 0 decides what is sent when (`gemel.kvstore.agreement`),
and all workers exchange a digest of the keys, their order and how they are split. If the digests
are equal, the step gets a schedule. From its second run on, each sum is sent as soon as its
gradients are ready, under a tag that is the same on all workers, without any agreement. A thread of
the core, the *courier* (`src/program/courier.h`), does the rest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from gemel import np

if TYPE_CHECKING:
    from gemel.kvstore.world import World

#: How many different steps of a store get a schedule; the others are agreed on each time.
MOST_SCHEDULES = 32
#: The name of the request with which workers compare their digests.
STEP = "the contents of a step"
#: A piece smaller than this fraction of the wanted bucket size (1/8) never ends a bucket.
SMALL = 8
#: The dtypes that a courier can sum, and the bytes of an element.
ITEMS = {"float32": 4, "float64": 8}


class Piece(NamedTuple):
    """An array that is summed in a step: all of a key, or some of its rows."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int
    priority: int


class Bucket(NamedTuple):
    """Pieces `start` to `end - 1` of a step, which are sent together when all are ready."""

    tag: int
    name: str
    item: int
    priority: int
    start: int
    end: int
    bytes: int


class StepSchedule:
    """The schedule of a step: the buckets in which its pieces are sent."""

    def __init__(self, buckets: Sequence[Bucket], world: World) -> None:
        self.buckets = buckets
        self._world = world
        self._specs: list[list[tuple[int, tuple[int, ...]]]] = []

    def sums(self, arrays: Sequence[Any]) -> list[Any]:
        """Issue the sums over all workers of the pieces of a step."""
        parts = [arrays[bucket.start : bucket.end] for bucket in self.buckets]
        if not self._specs:
            self._specs = [[(one._code, tuple(one.shape)) for one in part] for part in parts]
        sender = self._world.sender
        assert sender is not None
        self._world.check(self.buckets[0].name)
        found: list[Any] = []
        for bucket, part, specs in zip(self.buckets, parts, self._specs, strict=True):
            found += sender.issue(bucket, part, specs)
        return found


class StepSchedules:
    """The schedules of a store's steps."""

    def __init__(self, world: World, store: int) -> None:
        self._world, self._store = world, store
        self._known: dict[Hashable, StepSchedule | None] = {}
        #: The comparison in progress: the step, the answers to come, and the step's buckets.
        self._asked: tuple[Hashable, Any, list[Bucket]] | None = None
        #: Whether the workers have ever summed different keys.
        self._apart = world.sender is None

    def clear(self) -> None:
        """Drop all schedules. All workers must call it at the same point."""
        self._hear()
        self._known.clear()

    def find(self, key: Hashable) -> StepSchedule | None:
        """Return the schedule of a step; None if it has none or has not been compared yet.

        Waits for the answers of the last comparison if they may decide it.
        """
        if key not in self._known:
            self._hear()
        return self._known.get(key)

    def unknown(self, key: Hashable) -> bool:
        """Whether to compare a step with the other workers."""
        return not self._apart and key not in self._known and len(self._known) < MOST_SCHEDULES

    def ask(self, key: Hashable, pieces: Sequence[Piece], most: float | None) -> None:
        """Start to compare the pieces of a step with the other workers; its schedule comes later.

        Pieces are grouped into buckets of `most` bytes. If `most` is None, the step needs no
        schedule.
        """
        text = repr((self._store, most, [piece[:4] for piece in pieces]))
        digest = hashlib.sha256(text.encode()).digest()
        mine = np.array(list(digest), dtype="uint8")
        result = mine._code, (self._world.size, len(digest))
        rows = self._world.issue(self._store, STEP, "gather", [mine], result)
        wanted = most is not None and all(piece.dtype in ITEMS for piece in pieces)
        buckets = buckets_of(digest, pieces, most or 0.0) if wanted else []
        self._asked = key, rows, buckets

    def _hear(self) -> None:
        if self._asked is None:
            return
        (key, answers, buckets), self._asked = self._asked, None
        rows = answers.asnumpy()
        if (rows != rows[0]).any():
            self._apart = True
            return
        self._known[key] = StepSchedule(buckets, self._world) if buckets else None


def buckets_of(digest: bytes, pieces: Sequence[Piece], most: float) -> list[Bucket]:
    """Group pieces that are sent together, in their order, into buckets of about `most` bytes.

    A bucket ends when it has half of that. It also ends, unless it is too small (`SMALL`), before a
    large piece and before the last array, because no later computation hides the time of that one.
    """
    found: list[Bucket] = []
    start, total = 0, 0
    for number, piece in enumerate(pieces):
        after = pieces[number + 1] if number + 1 < len(pieces) else None
        total += piece.bytes
        end = after is None or after.dtype != piece.dtype or 2 * total >= most
        if after is not None and not end and SMALL * total >= most:
            end = 2 * after.bytes >= most or after.priority == pieces[-1].priority
        if end:
            found.append(_bucket(digest, pieces, start, number + 1))
            start, total = number + 1, 0
    return found


def _bucket(digest: bytes, pieces: Sequence[Piece], start: int, end: int) -> Bucket:
    tag = hashlib.sha256(digest + b"%d" % start).digest()[:8]
    some = pieces[start:end]
    return Bucket(
        int.from_bytes(tag, "big"),
        ", ".join(piece.name for piece in some[:3]),
        ITEMS[some[0].dtype],
        max(piece.priority for piece in some),
        start,
        end,
        sum(piece.bytes for piece in some),
    )


__all__ = ["Bucket", "Piece", "StepSchedule", "StepSchedules", "buckets_of"]

"""Runs one rank's part of an all-reduce schedule: its sends, receives and additions.

Partial sums are added with the lowest rank first, so a schedule that keeps the order of ranks
(`gemel.topology.keeps_order`) gives the same bits as a loop over the ranks. With other schedules
each request is split into pieces on its own. Then the bits of an element depend on its position in
its own array, and not on what else is sent with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from gemel.topology.order import Orders
from gemel.topology.schedule import Schedule, rounds

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]


class Messages(Protocol):
    """Sends and receives bytes between ranks; messages between the same two ranks stay in order."""

    def start_send(self, rank: int, array: Array) -> Any:
        """Begin to send an array, which must not change until `finish`."""

    def start_receive(self, rank: int, array: Array) -> Any:
        """Begin to fill an array."""

    def finish(self, begun: Sequence[Any]) -> None:
        """Wait for all sends and receives."""


class _Step(NamedTuple):
    """A message of this rank: pieces `first` to `end - 1`, and the lowest rank in each."""

    rank: int
    first: int
    end: int
    add: bool
    lowest: list[int]


class Passing:
    """One rank's part of a schedule whose places are the ranks."""

    def __init__(self, schedule: Schedule, rank: int) -> None:
        self.schedule = schedule
        orders = Orders(schedule)
        self.in_order = orders.in_order
        self._rank = rank
        rows = schedule.steps
        number = rounds(schedule)
        ends = rows.source.tolist(), rows.target.tolist()
        self._rounds: list[tuple[list[_Step], list[_Step]]] = [
            ([], []) for _ in range(int(number.max(initial=-1)) + 1)
        ]
        for step, (source, target) in enumerate(zip(*ends, strict=True)):
            if rank in (source, target):
                first, count, add = (int(c[step]) for c in (rows.first, rows.pieces, rows.add))
                other = target if rank == source else source
                made = _Step(other, first, first + count, bool(add), orders.lowest[step])
                self._rounds[number[step]][rank == source].append(made)

    def summed(self, row: Array, lengths: Sequence[int], messages: Messages) -> Array:
        """The sum of the rows of all ranks, as one array; `lengths` are those of its requests.

        All ranks must call this with the same lengths. The given row is overwritten.
        """
        schedule = self.schedule
        if self.in_order or len(lengths) < 2:
            return self._done(row, schedule.bounds(row.size).tolist(), messages)
        import numpy

        parts, bounds = _by_piece(schedule, lengths)
        found = self._done(numpy.concatenate([row[part] for part in parts]), bounds, messages)
        begin = 0
        for part in parts:
            size = part.stop - part.start
            row[part] = found[begin : begin + size]
            begin += size
        return row

    def _done(self, row: Array, bounds: list[int], messages: Messages) -> Array:
        """Pass the parts of a row between the workers, round by round, until all have all sums."""
        import numpy

        sums = _Sums(row, bounds, self._rank)
        for receives, sends in self._rounds:
            begun, arrived = [], []
            for step in receives:
                place = row[bounds[step.first] : bounds[step.end]]
                if step.add:
                    place = numpy.empty_like(place)
                    arrived.append((step, place))
                begun.append(messages.start_receive(step.rank, place))
            for step in sends:
                sums.settle(range(step.first, step.end))
                part = row[bounds[step.first] : bounds[step.end]]
                begun.append(messages.start_send(step.rank, part))
            messages.finish(begun)
            for step in receives:
                if not step.add:
                    sums.replace(step)
            for step, part in arrived:
                sums.add(step, part)
        sums.settle(range(len(bounds) - 1))
        return row


class _Sums:
    """The row of a rank, and the received parts that are still to be added to its pieces."""

    def __init__(self, row: Array, bounds: list[int], rank: int) -> None:
        self._row, self._bounds = row, bounds
        #: For each piece, the lowest rank whose data is in the row.
        self._lowest = [rank] * (len(bounds) - 1)
        self._waiting: dict[int, list[tuple[int, Array]]] = {}

    def add(self, step: _Step, part: Array) -> None:
        """Record pieces that were received."""
        bounds = self._bounds
        for piece, lowest in enumerate(step.lowest, step.first):
            begin = bounds[piece] - bounds[step.first]
            size = bounds[piece + 1] - bounds[piece]
            found = lowest, part[begin : begin + size]
            self._waiting.setdefault(piece, []).append(found)

    def replace(self, step: _Step) -> None:
        """Record that pieces of the row were overwritten with a sum."""
        self._lowest[step.first : step.end] = step.lowest

    def settle(self, pieces: Sequence[int]) -> None:
        """Add the received parts of these pieces, the lowest rank first."""
        for piece in pieces:
            parts = self._waiting.pop(piece, None)
            if parts is None:
                continue
            here = self._row[self._bounds[piece] : self._bounds[piece + 1]]
            parts.append((self._lowest[piece], here.copy()))
            parts.sort(key=lambda part: part[0])
            self._lowest[piece] = parts[0][0]
            here[...] = parts[0][1]
            for _, part in parts[1:]:
                here += part


def _by_piece(schedule: Schedule, lengths: Sequence[int]) -> tuple[list[slice], list[int]]:
    """Reorder a row of several requests by pieces: its slices, and where each piece then begins."""
    cuts, start = [], 0
    for length in lengths:
        cuts.append([start + bound for bound in schedule.bounds(length).tolist()])
        start += length
    parts, bounds = [], [0]
    for piece in range(len(schedule.shares)):
        parts += [slice(cut[piece], cut[piece + 1]) for cut in cuts]
        bounds.append(bounds[-1] + sum(cut[piece + 1] - cut[piece] for cut in cuts))
    return parts, bounds


__all__ = ["Messages", "Passing"]

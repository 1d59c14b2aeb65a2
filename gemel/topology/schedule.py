"""Schedules as data: who sends what to whom.

A schedule divides a tensor into pieces and lists steps: "rank a sends pieces p to rank b, which
adds them to its own (or replaces its own)". As in a program, the order of the list defines what a
step waits for: the earlier steps that wrote what it reads, those that read or wrote what it writes,
and the previous step from a to b over the same channel. Additions to a piece may come in any order.
All orders that respect this give the same result as running the list from top to bottom.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy
from numpy.typing import NDArray

from gemel.errors import ArgumentError, ShapeError, TopologyError
from gemel.links import Topology
from gemel.machines import checked_topology
from gemel.spec import is_several

Array = NDArray[Any]
#: How a step uses a piece.
_READ, _ADD, _COPY = range(3)


class Steps(NamedTuple):
    """Steps as columns: `source` sends pieces `first` to `first + count - 1` to `target`.

    `add` says that the target adds them instead of copying. Steps of one `channel` between the same
    two places run one after the other.
    """

    source: Array
    target: Array
    first: Array
    pieces: Array
    add: Array
    channel: Array


def steps(
    source: Any, target: Any, first: Any, *, count: Any = 1, add: bool, channel: Any = 0
) -> Steps:
    """Make steps from arrays that broadcast against each other; their order is kept."""
    columns = numpy.broadcast_arrays(source, target, first, count, add, channel)
    kinds = ("int32", "int32", "int32", "int32", "bool", "int32")
    return Steps(*(c.ravel().astype(kind) for c, kind in zip(columns, kinds, strict=True)))


def joined(parts: Iterable[Steps]) -> Steps:
    """Concatenate lists of steps."""
    found = list(parts) if hasattr(parts, "__iter__") else [parts]
    if not all(isinstance(part, Steps) for part in found):
        raise TopologyError(f"joined: {parts!r} is not a list of Steps")
    found = found or [steps([], [], [], add=True)]
    return Steps(*(numpy.concatenate(columns) for columns in zip(*found, strict=True)))


@dataclass(frozen=True)
class Schedule:
    """The steps of an all-reduce: afterwards every rank has the sum over all ranks.

    `places` are the nodes of a topology that take part. The first `ranks` of them have a tensor
    each and get the sum; the others (hosts) only help, and start with zeros. `shares` are the
    fractions of the tensor in each piece; they add up to 1. `drawing` illustrates the schedule.
    """

    name: str
    places: tuple[str, ...]
    ranks: int
    shares: Array
    steps: Steps
    drawing: str = ""

    def __post_init__(self) -> None:
        rows, pieces = self.steps, len(self.shares)
        if not self.ranks or self.ranks > len(self.places) or not pieces:
            raise TopologyError(
                f"schedule {self.name}: {self.ranks} ranks, {len(self.places)} places, {pieces} "
                "pieces; there must be a rank and a piece, and a place for each rank"
            )
        if (self.shares < 0).any() or abs(self.shares.sum() - 1) > 1e-9:
            raise TopologyError(f"schedule {self.name}: its pieces do not add up to 1")
        ends = numpy.concatenate([rows.source, rows.target])
        inside = (ends >= 0) & (ends < len(self.places))
        fits = (rows.first >= 0) & (rows.pieces >= 1) & (rows.first + rows.pieces <= pieces)
        if not inside.all() or not fits.all() or (rows.source == rows.target).any():
            raise TopologyError(
                f"schedule {self.name}: a step names a place or a piece that does not exist, or "
                "sends from a place to itself"
            )

    def __len__(self) -> int:
        return len(self.steps.source)

    def __repr__(self) -> str:
        return (
            f"<schedule {self.name}: {self.ranks} ranks, {len(self.shares)} pieces, "
            f"{len(self)} steps>"
        )

    def sent(self) -> Array:
        """The fraction of the tensor that each step sends."""
        ends = numpy.concatenate([[0.0], numpy.cumsum(self.shares)])
        found: Array = ends[self.steps.first + self.steps.pieces] - ends[self.steps.first]
        return found

    def bounds(self, elements: int) -> Array:
        """Where each piece of a tensor with this many elements begins, and the end of the last
        one."""
        ends = numpy.rint(numpy.cumsum(self.shares) * elements).astype("int64")
        ends[-1] = elements
        return numpy.concatenate([[0], ends])

    def line(self, step: int) -> str:
        """A step in words: `gpu0 sends pieces 4 to 7 to gpu1, added`."""
        source, target, first, count, add, _ = (column[step] for column in self.steps)
        pieces = f"piece {first}" if count == 1 else f"pieces {first} to {first + count - 1}"
        how = "added" if add else "copied"
        return f"{self.places[source]} sends {pieces} to {self.places[target]}, {how}"


class Progress:
    """Tracks which steps may start as other steps end.

    The uses of a piece at a place form phases: consecutive reads are one, consecutive additions are
    one, and each copy is its own. A phase opens when the previous one has ended.
    """

    def __init__(self, schedule: Schedule) -> None:
        rows, size = schedule.steps, len(schedule)
        self._offset = numpy.concatenate([[0], numpy.cumsum(rows.pieces, dtype="int64")])
        cell, owner, kind, use = self._uses(rows, len(schedule.shares))
        begins = numpy.ones(len(use), "bool")
        begins[1:] = (cell[1:] != cell[:-1]) | (kind[1:] != kind[:-1]) | (kind[1:] == _COPY)
        phase = numpy.cumsum(begins, dtype="int32") - 1
        # For each use, in the order of steps, its phase; all reads come before all writes.
        self._phase = numpy.empty(len(use), "int32")
        self._phase[use] = phase
        self._owner = owner
        self._begin = numpy.append(numpy.flatnonzero(begins), len(use))
        self._left = numpy.diff(self._begin)
        cells = cell[self._begin[:-1]]
        # Whether the next phase belongs to the same piece at the same place.
        self._goes_on = numpy.zeros(len(cells), "bool")
        self._goes_on[:-1] = cells[1:] == cells[:-1]
        waits = numpy.zeros(len(cells), "bool")
        waits[1:] = self._goes_on[:-1]
        self._blockers = numpy.bincount(owner[waits[phase]], minlength=size)
        self._follower = _followers(rows, len(schedule.places))
        self._blockers[self._follower[self._follower >= 0]] += 1
        self._marks = numpy.empty(max(size, len(cells)), "int64")

    def ready(self) -> Array:
        """The steps that wait for nothing at the start."""
        return numpy.flatnonzero(self._blockers == 0)

    def finish(self, done: Array) -> Array:
        """The steps that may start now that these have ended."""
        begin, count = self._offset[done], self._offset[done + 1] - self._offset[done]
        reads = ranges(begin, count)
        phases = self._phase[numpy.concatenate([reads, reads + self._offset[-1]])]
        numpy.subtract.at(self._left, phases, 1)
        opened = self._once(phases[(self._left[phases] == 0) & self._goes_on[phases]]) + 1
        begin = self._begin[opened]
        freed = self._owner[ranges(begin, self._begin[opened + 1] - begin)]
        after = self._follower[done]
        freed = numpy.concatenate([freed, after[after >= 0]])
        numpy.subtract.at(self._blockers, freed, 1)
        return self._once(freed[self._blockers[freed] == 0])

    def _uses(self, rows: Steps, pieces: int) -> tuple[Array, Array, Array, Array]:
        """All uses of pieces at places, sorted by place and piece, then by step.

        Returns for each use its cell (place and piece), step, kind, and number in the order of
        steps.
        """
        owner = numpy.repeat(numpy.arange(len(rows.add), dtype="int64"), rows.pieces)
        piece = ranges(rows.first, rows.pieces)
        low = len(rows.add).bit_length() + 2
        write = numpy.where(rows.add, _ADD, _COPY)[owner]
        keys = [
            (ends[owner] * numpy.int64(pieces) + piece << low) + (owner << 2) + kind
            for ends, kind in ((rows.source, _READ), (rows.target, write))
        ]
        key = numpy.sort(numpy.concatenate(keys))
        cell, owner, kind = key >> low, (key & (1 << low) - 1) >> 2, key & 3
        if self._offset[-1] == len(rows.add):  # each step has one piece, as in most schedules
            use = owner
        else:
            use = self._offset[owner] + cell % pieces - rows.first[owner]
        return cell, owner, kind, use + (kind != _READ) * self._offset[-1]

    def _once(self, values: Array) -> Array:
        """The values without repetitions; of equal ones the last position is kept."""
        numbers = numpy.arange(len(values))
        self._marks[values] = numbers
        found: Array = values[self._marks[values] == numbers]
        return found


def rounds(schedule: Schedule) -> Array:
    """The round of each step, if every step takes one round and there is no contention."""
    found = numpy.zeros(len(schedule), "int32")
    progress, number = Progress(schedule), 0
    ready = progress.ready()
    while len(ready):
        found[ready] = number
        ready, number = progress.finish(ready), number + 1
    return found


def ranges(begin: Array, count: Array) -> Array:
    """The numbers of several ranges, concatenated."""
    if len(count) and (count == 1).all():
        return numpy.asarray(begin)
    ends = numpy.cumsum(count)
    total = int(ends[-1]) if len(ends) else 0
    return numpy.repeat(begin - ends + count, count) + numpy.arange(total)


def _followers(rows: Steps, places: int) -> Array:
    """For each step, the next one between the same places over the same channel, or -1."""
    channels = int(rows.channel.max(initial=0)) + 1
    key = (rows.source.astype("int64") * places + rows.target) * channels + rows.channel
    order = numpy.argsort(key, kind="stable")
    same = key[order][1:] == key[order][:-1]
    found = numpy.full(len(key), -1, "int64")
    found[order[:-1][same]] = order[1:][same]
    return found


def checked_schedule(given: object) -> Schedule:
    """The argument of a function. Raises `TopologyError` unless it is a schedule."""
    if isinstance(given, Schedule):
        return given
    raise TopologyError(
        f"{given!r} is no schedule; give one such as topology.ring(topology.named('p3'))"
    )


def ranks_of(topology: Topology) -> tuple[str, ...]:
    """The GPUs, which are the ranks of a schedule. Raises `TopologyError` if there is none."""
    if not checked_topology("schedule", topology).gpus:
        raise TopologyError(f"the topology {topology.name} has no GPU, so there is nothing to sum")
    return topology.gpus


def check_chunks(name: str, chunks: int) -> None:
    """Raise `TopologyError` unless a tensor can be cut into this many chunks."""
    if not isinstance(chunks, (int, numpy.integer)) or chunks < 1:
        raise TopologyError(f"{name}: {chunks!r} chunks; give a whole number, 1 or more")


def numbered(topology: Topology, places: Sequence[str], order: Sequence[str]) -> list[int]:
    """The numbers of places in an order. Raises `TopologyError` unless it has each exactly once."""
    if sorted(order) != sorted(places):
        raise TopologyError(
            f"an order of {len(order)} GPUs of {topology.name}: it must name all {len(places)} "
            "exactly once"
        )
    number = {name: place for place, name in enumerate(places)}
    return [number[name] for name in order]


def check_places(schedule: Schedule, given: Sequence[Any]) -> None:
    """Check that there is one (`TopologyError`) array (`ArgumentError`) per rank, all alike
    (`ShapeError`)."""
    checked_schedule(schedule)
    if not is_several(given):
        raise TopologyError(
            f"schedule {schedule.name}: {given!r} is no list of arrays; give one for each of its "
            f"{schedule.ranks} ranks"
        )
    if len(given) != schedule.ranks:
        raise TopologyError(
            f"schedule {schedule.name}: {len(given)} arrays for {schedule.ranks} ranks"
        )
    for rank, array in enumerate(given):
        if not (hasattr(array, "shape") and hasattr(array, "dtype")):
            raise ArgumentError(
                f"schedule {schedule.name}: rank {rank} has a {type(array).__name__}, which is not "
                "an array; numpy.array makes one"
            )
    kinds = {(array.shape, str(array.dtype)) for array in given}
    if len(kinds) > 1:
        raise ShapeError(f"schedule {schedule.name}: the ranks have arrays of {sorted(kinds)}")

"""The order in which a schedule adds, which decides the bits of floating-point sums.

Where several parts of a sum meet, a place may add them in the order of the lowest rank in each,
including its own part. Some schedules then add every element like a loop over the ranks, ((0 + 1) +
2) + ..., whatever the pieces are; others start elsewhere. `keeps_order` finds out by running the
steps with descriptions of parts instead of numbers.
"""

from __future__ import annotations

from typing import NamedTuple

from gemel.topology.schedule import Schedule, checked_schedule


class Part(NamedTuple):
    """Part of a sum: `lowest` is the first rank in it.

    `end` is one more than the last rank, if the part is a single rank's or the sum of the ranks
    from 0 in order; otherwise -1.
    """

    lowest: int
    end: int


class Orders:
    """The part that each step of a schedule sends; `in_order` says whether all sums keep the
    order."""

    def __init__(self, schedule: Schedule) -> None:
        self._own: dict[tuple[int, int], list[Part]] = {
            (place, piece): [Part(place, place + 1)]
            for place in range(checked_schedule(schedule).ranks)
            for piece in range(len(schedule.shares))
        }
        #: For each step, the lowest rank in each of its pieces.
        self.lowest: list[list[int]] = []
        columns = [column.tolist() for column in schedule.steps]
        for source, target, first, count, add, _ in zip(*columns, strict=True):
            carried = [self._at(source, piece) for piece in range(first, first + count)]
            self.lowest.append([part.lowest for part in carried])
            for piece, part in enumerate(carried, first):
                here = self._own.setdefault((target, piece), []) if add else []
                here.append(part)
                self._own[target, piece] = here
        whole = Part(0, schedule.ranks)
        self.in_order = all(
            self._at(rank, piece) == whole
            for rank in range(schedule.ranks)
            for piece in range(len(schedule.shares))
        )

    def _at(self, place: int, piece: int) -> Part:
        """A place's part of a piece, after adding what it has received."""
        parts = sorted(self._own.get((place, piece), []))
        total = parts[0] if parts else Part(place, -1)
        for part in parts[1:]:
            follows = total.lowest == 0 and part == Part(total.end, total.end + 1)
            total = Part(total.lowest, part.end if follows else -1)
        self._own[place, piece] = [total]
        return total


def keeps_order(schedule: Schedule) -> bool:
    """Whether every element is summed in the order of the ranks, for any number of elements.

    >>> from gemel import topology
    >>> pcie = topology.named("pcie4")
    >>> [topology.keeps_order(make(pcie)) for make in (topology.pieces, topology.ring)]
    [True, False]
    """
    return Orders(schedule).in_order

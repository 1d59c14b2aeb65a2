"""In which order a schedule adds up: what decides the bits of sums of floats.

Where several parts of a sum meet, whoever runs a schedule may add them in the order of the lowest
rank in each, its own part among them. Then some schedules add every element as a loop over the
ranks would, ((0 + 1) + 2) + ..., whatever the pieces are; others begin elsewhere or in the middle.
`keeps_order` finds out by doing the steps with names of parts instead of numbers.
"""

from __future__ import annotations

from typing import NamedTuple

from gemel.topology.schedule import Schedule


class Part(NamedTuple):
    """Part of a sum: `lowest` is the first rank in it.

    `end` is the rank after the last one, if the part is one rank's or the sum from rank 0 on in
    their order; otherwise -1.
    """

    lowest: int
    end: int


class Orders:
    """What each step of a schedule carries; `in_order` tells whether all sums keep the order."""

    def __init__(self, schedule: Schedule) -> None:
        self._own: dict[tuple[int, int], list[Part]] = {
            (place, piece): [Part(place, place + 1)]
            for place in range(schedule.ranks)
            for piece in range(len(schedule.shares))
        }
        #: For each step the lowest rank in each of its pieces.
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
        """What a place has of a piece, added up."""
        parts = sorted(self._own.get((place, piece), []))
        total = parts[0] if parts else Part(place, -1)
        for part in parts[1:]:
            follows = total.lowest == 0 and part == Part(total.end, total.end + 1)
            total = Part(total.lowest, part.end if follows else -1)
        self._own[place, piece] = [total]
        return total


def keeps_order(schedule: Schedule) -> bool:
    """Whether every element is added up in the order of the ranks, for any number of elements.

    >>> from gemel import topology
    >>> pcie = topology.named("pcie4")
    >>> [topology.keeps_order(make(pcie)) for make in (topology.pieces, topology.ring)]
    [True, False]
    """
    return Orders(schedule).in_order

"""Running several plans in a row: `Chain` and `Relay` are lists of stages over slots for values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from gemel.ir.graph import Entry


class Stage(NamedTuple):
    """A callable, and the slots of its arguments and results."""

    call: Callable[..., Any]
    arguments: list[int]
    results: list[int]


class Slots:
    """The stages of a program, and a slot for the value of each entry; inputs come first."""

    def __init__(self, given: Iterable[Entry]) -> None:
        self.stages: list[Stage] = []
        self._places = {entry: slot for slot, entry in enumerate(given)}
        self._count = len(self._places)
        self._constants: list[tuple[int, Any]] = []

    def new(self) -> int:
        """A new slot for a value that belongs to no entry."""
        self._count += 1
        return self._count - 1

    def of(self, entry: Entry) -> int:
        """The slot of an entry, a new one if it has none yet."""
        if entry not in self._places:
            self._places[entry] = self.new()
            if entry.node.is_constant:
                self._constants.append((self._places[entry], entry.node.value))
        return self._places[entry]

    def all_of(self, entries: Iterable[Entry]) -> list[int]:
        """The slots of several entries."""
        return [self.of(entry) for entry in entries]

    def run(self, values: Sequence[Any]) -> list[Any]:
        """Call all stages in order. Returns the contents of the slots."""
        known = [*values, *[None] * (self._count - len(values))]
        for slot, value in self._constants:
            known[slot] = value
        for call, arguments, slots in self.stages:
            found = call(*[known[slot] for slot in arguments])
            for slot, value in zip(slots, found, strict=True):
                known[slot] = value
        return known


def arrays_first(entries: Iterable[Entry]) -> list[Entry]:
    """Entries in the order plans take them: arrays, then numbers."""
    return sorted(entries, key=lambda entry: entry.spec.weak)


__all__ = ["Slots", "Stage", "arrays_first"]

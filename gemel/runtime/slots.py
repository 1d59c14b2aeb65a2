"""Programs made of several plans: what is called in turn, and where its arguments stand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from gemel.ir.graph import Entry


class Stage(NamedTuple):
    """What is called, and from and to which slots its arguments and results go."""

    call: Callable[..., Any]
    arguments: list[int]
    results: list[int]


class Slots:
    """The stages of a program, and the slots in which the values of its entries stand in a call.

    What it is given has the first slots, in order.
    """

    def __init__(self, given: Iterable[Entry]) -> None:
        self.stages: list[Stage] = []
        self._places = {entry: slot for slot, entry in enumerate(given)}
        self._count = len(self._places)
        self._constants: list[tuple[int, Any]] = []

    def new(self) -> int:
        """A slot for what is no entry's value."""
        self._count += 1
        return self._count - 1

    def of(self, entry: Entry) -> int:
        """Where an entry's value stands; from now on, if it had no slot."""
        if entry not in self._places:
            self._places[entry] = self.new()
            if entry.node.is_constant:
                self._constants.append((self._places[entry], entry.node.value))
        return self._places[entry]

    def all_of(self, entries: Iterable[Entry]) -> list[int]:
        """Where the values of several stand."""
        return [self.of(entry) for entry in entries]

    def run(self, values: Sequence[Any]) -> list[Any]:
        """What stands in the slots when all stages have been called in order with what is given."""
        known = [*values, *[None] * (self._count - len(values))]
        for slot, value in self._constants:
            known[slot] = value
        for call, arguments, slots in self.stages:
            found = call(*[known[slot] for slot in arguments])
            for slot, value in zip(slots, found, strict=True):
                known[slot] = value
        return known


def arrays_first(entries: Iterable[Entry]) -> list[Entry]:
    """Entries in the order in which plans take them: arrays, then numbers."""
    return sorted(entries, key=lambda entry: entry.spec.weak)


__all__ = ["Slots", "Stage", "arrays_first"]

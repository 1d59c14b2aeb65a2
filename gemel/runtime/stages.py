"""A graph as several calls in a row, which are called like its one plan.

There are two reasons not to make one plan of a graph, and a class for each: operations without a
kernel, which NumPy computes between plans (`runtime.relay.Relay`); and results that are sent before
the others are computed (`runtime.chain.Chain`). Both cut the graph (`passes.split`) and make a list
of stages, which pass values on in numbered slots. For example, ``exp(sort(x + 1))``, whose sort has
no kernel::

    slots       0: x        1: x + 1        2: sorted       3: the result
    stages      plan(0) -> 1        NumPy's sort(1) -> 2        plan(2) -> 3
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from gemel.ir.graph import Entry, Graph

#: Makes the plan of a graph whose operations all have kernels; that of `Chain` also takes `early`.
Planner = Callable[..., Any]


class Stage(NamedTuple):
    """A callable, and the slots of its arguments and results."""

    call: Callable[..., Any]
    arguments: list[int]
    results: list[int]


class Stages:
    """The stages of a graph, and a slot for the value of each entry; inputs come first."""

    def __init__(self, name: str, inputs: Iterable[Entry], plan: Planner) -> None:
        self.name = name
        self.plan = plan
        self.stages: list[Stage] = []
        #: The slots of the results.
        self.outputs: list[int] = []
        self._slots = {entry: slot for slot, entry in enumerate(inputs)}
        self._count = len(self._slots)
        self._constants: list[tuple[int, Any]] = []

    def new_slot(self) -> int:
        """A new slot for a value that belongs to no entry."""
        self._count += 1
        return self._count - 1

    def slot(self, entry: Entry) -> int:
        """The slot of an entry, a new one if it has none yet."""
        if entry not in self._slots:
            self._slots[entry] = self.new_slot()
            if entry.node.is_constant:
                self._constants.append((self._slots[entry], entry.node.value))
        return self._slots[entry]

    def slots(self, entries: Iterable[Entry]) -> list[int]:
        """The slots of several entries."""
        return [self.slot(entry) for entry in entries]

    def add_plan(
        self,
        inner: Mapping[Entry, Entry],
        outputs: Iterable[Entry],
        results: list[int],
        updates: Iterable[tuple[Entry, Entry]] = (),
        **settings: Any,
    ) -> None:
        """Add the plan of a part of the graph; its outputs go to the slots `results`.

        `inner` maps each entry of the whole graph that the part reads to the part's own input.
        `updates` are the entries of the whole that it overwrites, each with its new value.
        """
        inputs = arrays_first(inner)
        places = {entry: place for place, entry in enumerate(inputs)}
        written = [(places[target], value) for target, value in updates]
        graph = Graph((inner[entry] for entry in inputs), outputs, written, self.name)
        self.stages.append(Stage(self.plan(graph, **settings), self.slots(inputs), results))

    def run(self, values: Sequence[Any]) -> list[Any]:
        """Call all stages in order. Returns the results."""
        known = [*values, *[None] * (self._count - len(values))]
        for slot, value in self._constants:
            known[slot] = value
        for call, arguments, slots in self.stages:
            results = call(*[known[slot] for slot in arguments])
            for slot, value in zip(slots, results, strict=True):
                known[slot] = value
        return [known[slot] for slot in self.outputs]


def arrays_first(entries: Iterable[Entry]) -> list[Entry]:
    """Entries in the order plans take them: arrays, then numbers."""
    return sorted(entries, key=lambda entry: entry.spec.weak)


__all__ = ["Planner", "Stages", "arrays_first"]

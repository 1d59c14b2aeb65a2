"""Several plans that do together what one plan does, results coming one after another."""

from __future__ import annotations

from typing import Any

from gemel.ir.graph import Entry, Graph, placeholder
from gemel.passes.split import Piece, split
from gemel.runtime.backend import Backend
from gemel.runtime.plans import plan_of


class Chain:
    """The plans of a graph's pieces. Called like the graph's plan: arrays first, then numbers."""

    def __init__(self, graph: Graph, backend: Backend, keeps: bool = True) -> None:
        self.backend = backend
        self.keeps = keeps
        whole, pieces = split(graph)
        self.slots = {entry: slot for slot, entry in enumerate(whole.inputs)}
        self.updates: dict[Entry, list[Entry]] = {}
        for index, entry in whole.updates:
            self.updates.setdefault(entry, []).append(whole.inputs[index])
        self.targets = sorted({index for index, _ in whole.updates})
        #: What is needed beside where it is written: a gradient another one is computed from.
        self.read = {*whole.outputs, *(entry for piece in pieces for entry in piece.inputs)}
        self.stages = [self._stage(piece) for piece in pieces]
        self.outputs = [self.slots[entry] for entry in whole.outputs]

    def _stage(self, piece: Piece) -> tuple[Any, list[int], list[int]]:
        """A plan, and from and to which slots its arguments and results go."""
        inner = dict(zip(piece.inputs, piece.graph.inputs, strict=True))
        updates, made, results = [], [], []
        for entry, result in zip(piece.outputs, piece.graph.outputs, strict=True):
            for target in self.updates.get(entry, ()):
                inner.setdefault(target, placeholder(target.spec))
                updates.append((target, result))
            if entry not in self.updates or entry in self.read:
                made.append(entry)
                results.append(result)
        given = sorted(inner, key=lambda entry: entry.spec.weak)
        places = {entry: position for position, entry in enumerate(given)}
        graph = Graph(
            (inner[entry] for entry in given),
            results,
            ((places[target], result) for target, result in updates),
            "backward",
        )
        arguments = [self.slots[entry] for entry in given]
        for entry in made:
            self.slots[entry] = len(self.slots)
        return (
            plan_of(graph, self.backend, self.keeps),
            arguments,
            [self.slots[entry] for entry in made],
        )

    def _apart(self, values: tuple[Any, ...]) -> list[Any]:
        """The arguments, copied where they share memory with what an early piece overwrites."""
        written = {values[slot]._storage for slot in self.targets}
        return [
            value.copy()
            if slot not in self.targets and getattr(value, "_storage", None) in written
            else value
            for slot, value in enumerate(values)
        ]

    def __call__(self, *values: Any) -> list[Any]:
        """Issue all of them; the results of the whole graph."""
        known = [*self._apart(values), *[None] * (len(self.slots) - len(values))]
        for plan, arguments, slots in self.stages:
            found = plan(*[known[slot] for slot in arguments])
            for slot, value in zip(slots, found, strict=True):
                known[slot] = value
        return [known[slot] for slot in self.outputs]


__all__ = ["Chain"]

"""Chain: a graph as several plans in a row, so that early results can be sent off early.

Used for the gradients of training on several devices or machines: the gradient of the last layer is
on its way while those of the layers before it are computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gemel.ir.graph import Entry, Graph, placeholder
from gemel.ir.trace import Trace
from gemel.ops.shape import concatenate
from gemel.passes.rows import bounds_of, in_rows
from gemel.passes.split import Piece, split
from gemel.runtime.backend import Backend
from gemel.runtime.plans import plan_of
from gemel.runtime.slots import Slots, Stage, arrays_first


class Chain:
    """The plans of a graph's pieces. Called like the graph's plan: arrays first, then numbers.

    `blocks[i]` is the number of row blocks in which the new value of input i is to be computed. If
    that was possible `early` has (i, number of blocks), and the blocks are further results, behind
    the others: each is ready while the next is computed. Input i is written after that.
    """

    def __init__(
        self, graph: Graph, backend: Backend, atomic: bool = True, blocks: Sequence[int] = ()
    ) -> None:
        self.backend = backend
        self.atomic = atomic
        counts = {index: count for index, count in enumerate(blocks) if count > 1}
        whole, pieces = split(graph, counts)
        self.slots = Slots(whole.inputs)
        self.stages = self.slots.stages
        self.updates: dict[Entry, list[Entry]] = {}
        for index, entry in whole.updates:
            self.updates.setdefault(entry, []).append(whole.inputs[index])
        self.targets = sorted({index for index, _ in whole.updates})
        #: Updates that are also read: outputs, and gradients others are computed from.
        self.read = {*whole.outputs, *(entry for piece in pieces for entry in piece.inputs)}
        self.early: list[tuple[int, int]] = []
        outputs: list[int] = []
        for piece in pieces:
            outputs += self._in_blocks(piece, counts) or self._as_one(piece)
        self.outputs = [*self.slots.all_of(whole.outputs), *outputs]

    def _as_one(self, piece: Piece) -> list[int]:
        self.stages.append(self._stage(piece))
        return []

    def _in_blocks(self, piece: Piece, counts: dict[int, int]) -> list[int]:
        """Add stages that compute an update in blocks. Returns the blocks' slots, or []."""
        updated = [entry for entry in piece.outputs if entry in self.updates]
        if len(updated) != 1 or len(self.updates[updated[0]]) > 1 or updated[0] in self.read:
            return []
        (entry,) = updated
        (target,) = self.updates[entry]
        count = counts.get(self.slots.of(target), 1)  # the inputs have the first slots
        if count == 1 or not entry.ndim:
            return []
        results = dict(zip(piece.outputs, piece.graph.outputs, strict=True))
        last = results.pop(entry)
        whole = Graph(piece.graph.inputs, (*results.values(), last), (), "backward")
        cut = in_rows(whole, bounds_of(entry.shape[0], count))
        if cut is None:
            return []
        made = self.slots.all_of(results)
        blocks = [self.slots.new() for _ in cut.outputs[len(results) :]]
        self._add_blocks(piece, cut, [*made, *blocks], blocks)
        self._add_join(target, cut.outputs[len(results) :], blocks)
        self.early.append((self.slots.of(target), len(blocks)))
        return blocks

    def _add_blocks(self, piece: Piece, cut: Graph, slots: list[int], blocks: list[int]) -> None:
        """Add the stage that computes the blocks, one after another."""
        inner = dict(zip(piece.inputs, cut.inputs, strict=True))
        given = arrays_first(inner)
        graph = Graph((inner[entry] for entry in given), cut.outputs, (), "backward")
        early = range(len(slots) - len(blocks), len(slots))
        plan = plan_of(graph, self.backend, self.atomic, early=early)
        self.stages.append(Stage(plan, self.slots.all_of(given), slots))

    def _add_join(self, target: Entry, parts: Sequence[Entry], blocks: list[int]) -> None:
        """Add the stage that writes the blocks into the updated input."""
        given = [placeholder(part.spec) for part in parts]
        with Trace():
            whole = concatenate(*given, axis=0)
        graph = Graph((placeholder(target.spec), *given), (), [(0, whole)], "gradient")
        plan = plan_of(graph, self.backend, self.atomic)
        self.stages.append(Stage(plan, [self.slots.of(target), *blocks], []))

    def _stage(self, piece: Piece) -> Stage:
        inner = dict(zip(piece.inputs, piece.graph.inputs, strict=True))
        updates, made, results = [], [], []
        for entry, result in zip(piece.outputs, piece.graph.outputs, strict=True):
            for target in self.updates.get(entry, ()):
                inner.setdefault(target, placeholder(target.spec))
                updates.append((target, result))
            if entry not in self.updates or entry in self.read:
                made.append(entry)
                results.append(result)
        given = arrays_first(inner)
        places = {entry: position for position, entry in enumerate(given)}
        graph = Graph(
            (inner[entry] for entry in given),
            results,
            ((places[target], result) for target, result in updates),
            "backward",
        )
        plan = plan_of(graph, self.backend, self.atomic)
        return Stage(plan, self.slots.all_of(given), self.slots.all_of(made))

    def _apart(self, values: tuple[Any, ...]) -> list[Any]:
        """The arguments; those that share memory with an updated input are copied."""
        written = {values[slot]._storage for slot in self.targets}
        return [
            value.copy()
            if slot not in self.targets and getattr(value, "_storage", None) in written
            else value
            for slot, value in enumerate(values)
        ]

    def __call__(self, *values: Any) -> list[Any]:
        """Issue all of them; the results of the whole graph."""
        known = self.slots.run(self._apart(values))
        return [known[slot] for slot in self.outputs]


__all__ = ["Chain"]

"""Chain: a graph as several plans in a row, so that early results can be sent early.

Used for the gradients of training on several devices or machines: the gradient of the last layer is
on its way while those of the layers before it are computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from gemel.ir.graph import Entry, Graph, placeholder
from gemel.ir.trace import Trace
from gemel.ops.shape import concatenate
from gemel.passes.rows import bounds_of, in_rows
from gemel.passes.split import Piece, split
from gemel.runtime.backend import Backend
from gemel.runtime.plans import plan_of
from gemel.runtime.stages import Stage, Stages


class Chain(Stages):
    """The plans of a graph's pieces. Called like the graph's plan: arrays first, then numbers.

    `blocks[i]` is the number of row blocks in which to compute the new value of input i. If that is
    possible, `early` has (i, number of blocks), and the blocks are additional results after the
    others. Each block is ready while the next is computed; input i is written after the last.
    """

    def __init__(
        self, graph: Graph, backend: Backend, atomic: bool = True, blocks: Sequence[int] = ()
    ) -> None:
        counts = {index: count for index, count in enumerate(blocks) if count > 1}
        whole, pieces = split(graph, counts)
        plan = partial(plan_of, backend=backend, atomic=atomic)
        super().__init__("backward", whole.inputs, plan)
        self.updates: dict[Entry, list[Entry]] = {}
        for index, entry in whole.updates:
            self.updates.setdefault(entry, []).append(whole.inputs[index])
        self.targets = sorted({index for index, _ in whole.updates})
        #: Updates that are also outputs, or that other pieces read.
        self.read = {*whole.outputs, *(entry for piece in pieces for entry in piece.inputs)}
        self.early: list[tuple[int, int]] = []
        further: list[int] = []
        for piece in pieces:
            cut = self._add_in_blocks(piece, counts)
            if not cut:
                self._add_whole(piece)
            further += cut
        self.outputs = [*self.slots(whole.outputs), *further]

    def _add_in_blocks(self, piece: Piece, counts: dict[int, int]) -> list[int]:
        """Add stages that compute an update in blocks, one after another.

        Returns the blocks' slots, or [] if that is not possible.
        """
        updated = [entry for entry in piece.outputs if entry in self.updates]
        if len(updated) != 1 or len(self.updates[updated[0]]) > 1 or updated[0] in self.read:
            return []
        (entry,) = updated
        (target,) = self.updates[entry]
        count = counts.get(self.slot(target), 1)  # the inputs have the first slots
        if count == 1 or not entry.ndim:
            return []
        results = dict(zip(piece.outputs, piece.graph.outputs, strict=True))
        last = results.pop(entry)
        whole = Graph(piece.graph.inputs, (*results.values(), last), (), self.name)
        cut = in_rows(whole, bounds_of(entry.shape[0], count))
        if cut is None:
            return []
        parts = cut.outputs[len(results) :]
        blocks = [self.new_slot() for _ in parts]
        inner = dict(zip(piece.inputs, cut.inputs, strict=True))
        early = range(len(results), len(cut.outputs))
        self.add_plan(inner, cut.outputs, [*self.slots(results), *blocks], early=early)
        self._add_join(target, parts, blocks)
        self.early.append((self.slot(target), len(blocks)))
        return blocks

    def _add_join(self, target: Entry, parts: Sequence[Entry], blocks: list[int]) -> None:
        """Add the stage that writes the blocks into the updated input."""
        stands = [placeholder(part.spec) for part in parts]
        with Trace():
            whole = concatenate(*stands, axis=0)
        graph = Graph((placeholder(target.spec), *stands), (), [(0, whole)], "gradient")
        self.stages.append(Stage(self.plan(graph), [self.slot(target), *blocks], []))

    def _add_whole(self, piece: Piece) -> None:
        """Add the stage that computes a piece, and writes the updates in it."""
        inner = dict(zip(piece.inputs, piece.graph.inputs, strict=True))
        updates, left, results = [], [], []
        for entry, result in zip(piece.outputs, piece.graph.outputs, strict=True):
            for target in self.updates.get(entry, ()):
                inner.setdefault(target, placeholder(target.spec))
                updates.append((target, result))
            if entry not in self.updates or entry in self.read:
                left.append(entry)
                results.append(result)
        self.add_plan(inner, results, self.slots(left), updates)

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
        """Issue all stages; return the results of the whole graph."""
        return self.run(self._apart(values))


__all__ = ["Chain"]

"""hoist: loop-invariant code motion out of `loop` nodes (scans)."""

from __future__ import annotations

from typing import Any

from gemel.ir.graph import Entry, Graph, Node, constant, inline, placeholder, rewrite
from gemel.ir.loops import LoopSpec
from gemel.ops import linalg
from gemel.ops.rounds import loop
from gemel.passes.fuse import cheap
from gemel.passes.saved import replaced
from gemel.passes.simplify import drop, expand


def hoist(graph: Graph) -> Graph:
    """Rewrite loops so that a round does only what depends on the round.

    - Outputs that are not read, or that equal the data, are removed.
    - What is the same in all rounds is computed before the loop.
    - ``x_t @ w``, with x_t an element of the data and w the same in all rounds, becomes one product
      of all elements with w before the loop: the input projection of a recurrent network.
    """
    if all(node.op is not loop for node in graph.walk()):
        return graph
    read = {entry for node in graph.walk() for entry in node.inputs} | set(graph.results)

    def rule(node: Node, inputs: tuple[Entry, ...]) -> tuple[Entry, ...] | None:
        return _Rewritten(node, inputs, read).run() if node.op is loop else None

    return rewrite(graph, rule)


class _Rewritten:
    """One loop being rewritten. The inputs of a round are `data`, `states` and `shared` (the same
    in all rounds); `given` has the entry outside of the loop that each of them gets."""

    def __init__(self, node: Node, inputs: tuple[Entry, ...], read: set[Entry]) -> None:
        self.node = node
        spec = LoopSpec.of(node)
        spec = self.spec = spec._replace(step=drop(hoist(expand(spec.step))))
        self.given = dict(zip(spec.step.inputs, inputs, strict=True))
        self.data, self.states, self.shared = map(list, (spec.elements, spec.carried, spec.shared))
        self.condition = spec.asked
        #: The old outputs that are read. Each is data of the loop (`there`) or a new output.
        self.wanted = {i: e for i, e in enumerate(spec.outputs) if node.entries[i] in read}
        all_rounds = self.condition is None  # else outputs are zeros for rounds that are not run
        self.there = {e: self.given[e] for e in self.data} if all_rounds else {}
        own = [e for e in dict.fromkeys(self.wanted.values()) if e not in self.there]
        self.places = {entry: place for place, entry in enumerate(own)}
        self.results = [*own, *spec.after]

    def run(self) -> tuple[Entry, ...]:
        """The results of the new loop, in the places of the old one's."""
        self._before()
        if self.condition is None:  # with a condition this might multiply for rounds not run
            self._products()
        nodes = Graph((), self.results).walk()
        used = {entry for node in nodes for entry in node.inputs} | set(self.results)
        self.data = [e for e in self.data if e in used or e is self.condition]
        self.shared = [entry for entry in self.shared if entry in used]
        found = self._loop() if self.results else ()
        results = {entry: found[place] for entry, place in self.places.items()}
        results |= self.there
        count = len(self.node.entries) - len(self.states)
        nobody = constant(0)
        outputs = (results[self.wanted[i]] if i in self.wanted else nobody for i in range(count))
        return (*outputs, *found[len(self.places) :])

    def _loop(self) -> tuple[Entry, ...]:
        """The results of the new loop, in its own order."""
        spec = LoopSpec.made(
            (self.data, self.states, self.shared),
            self.results,
            length=self.spec.length,
            reverse=self.spec.reverse,
            asked=self.condition,
        )
        found = loop.node(tuple(self.given[e] for e in spec.step.inputs), spec.parameters)
        found.origin = self.node.origin
        return found.entries

    def _moving(self) -> dict[Node, None]:
        """The nodes whose values may differ from round to round."""
        moving = dict.fromkeys(entry.node for entry in (*self.data, *self.states))
        for node in Graph((), self.results).walk():
            if any(entry.node in moving for entry in node.inputs):
                moving[node] = None
        return moving

    def _before(self) -> None:
        """Compute values that are the same in all rounds before the loop, and pass them to the
        rounds."""
        moving = self._moving()
        if self.condition is not None:
            # What may fail stays inside: it must fail only if its round is run.
            risky = dict.fromkeys(moving)
            for node in Graph((), self.results).walk():
                if node.fails or any(entry.node in risky for entry in node.inputs):
                    risky[node] = None
            moving = risky
        read = [e for node in moving for e in node.inputs] + self.results
        invariant = dict.fromkeys(
            e
            for e in read
            if e.node not in moving and e.node.op is not None and not e.spec.weak
            if not cheap(e.node)
        )
        if not invariant:
            return
        outside = inline(Graph(self.shared, invariant), [self.given[e] for e in self.shared])
        stands = {entry: placeholder(entry.spec) for entry in invariant}
        self.given.update(zip(stands.values(), outside, strict=True))
        self.shared += stands.values()
        self.results = replaced(self.results, stands)

    def _products(self) -> None:
        """Replace products of data elements with an invariant matrix by one before the loop."""
        moving, stands = self._moving(), dict[Entry, Entry]()
        for node in Graph((), self.results).walk():
            if node.op is not linalg.matmul or not _hoistable(node, self.data):
                continue
            x, factor = node.inputs
            if factor.node not in moving and factor in self.given:
                stand = placeholder(node.specs[0])
                self.given[stand] = linalg.matmul(self.given[x], self.given[factor])
                self.data.append(stand)
                stands[node.entries[0]] = stand
        if stands:
            self.results = replaced(self.results, stands)


def _hoistable(node: Node, data: list[Entry]) -> bool:
    x, factor = node.inputs
    return any(x is each for each in data) and x.ndim in (1, 2) and factor.ndim == 2


__all__: list[Any] = ["hoist"]

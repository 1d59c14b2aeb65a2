"""Which values the forward pass saves for the backward pass: a minimum cut.

The backward pass needs some forward values. Each can be saved (written and read again), or be
recomputed from others that are. Saving the input of ``relu(x + 1) * 2`` or its boolean mask, say,
serves its gradient equally well, but the mask is four times smaller. As in AOTAutograd's min-cut
partitioner of PyTorch, the values are nodes of a flow network, saving one costs its bytes, and the
cheapest set that separates the inputs from the backward pass is saved.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf

from gemel.ir.graph import Entry, Node, copy_into, walk
from gemel.ir.op_kinds import Elementwise, Reduction
from gemel.passes.domain import is_mover, is_view, seen_by
from gemel.passes.fuse import cheap
from gemel.passes.sizes import bytes_of, elements_of

#: Picoseconds to read a byte, and to compute an element by a light operation.
READ, STEP = 8, 8
#: To store a byte and read it later. A store takes twice a load: its cache line is loaded first.
STORED = 3 * READ


def saved(
    results: Sequence[Entry], gradients: Sequence[Entry], heads: Iterable[Entry]
) -> list[Entry]:
    """The entries that the computation of `results` saves for that of `gradients`.

    What depends on no head could be computed in either pass. The cut between the inputs and the
    first nodes that depend on a head is weighed by the time to store and read an entry, or to
    compute it twice. After Chen et al., Training deep nets with sublinear memory cost, 2016, and
    He and Yu, Transcending runtime-memory tradeoffs in checkpointing by being fusion aware, 2023.
    """
    return _Cut(results, gradients, heads).run()


#: The source of the flow. Entry number n is two vertices, 2 n where it is computed and 2 n + 1
#: where it is read; the capacity of the edge between them is the cost of saving the entry.
_SOURCE = -1


class _Cut:
    """A flow network of entries, and its minimum cut, found by the maximum flow."""

    def __init__(
        self, results: Sequence[Entry], gradients: Sequence[Entry], heads: Iterable[Entry]
    ) -> None:
        self.forward = set(walk(results))
        self.numbers: dict[Entry, int] = {}
        #: The residual capacities between vertices.
        self.residual: dict[int, dict[int, float]] = {_SOURCE: {}}
        #: The entries the backward pass reads, and whether it needs them as arrays in memory.
        self.wanted: dict[Entry, bool] = {}
        self._find_wanted(gradients, {entry.node for entry in heads})
        read = (e for n in self.forward if not _is_loop(n) for e in n.inputs)
        #: The entries that are stored in memory anyway.
        self.there = {*results, *read}

    def _find_wanted(self, gradients: Sequence[Entry], behind: set[Node]) -> None:
        """Set `wanted`: what nodes that depend on a head read, and does not depend on one."""
        found: dict[Entry, bool] = {}
        for node in walk(gradients):
            own = node.op is not None and node not in self.forward and not _is_loop(node)
            if own or any(entry.node in behind for entry in node.inputs):
                behind.add(node)
                for entry in map(seen_by, node.inputs):
                    found[entry] = found.get(entry, False) or not _is_loop(node)
        found |= dict.fromkeys(map(seen_by, gradients), True)
        before = (e for e in found if e.node not in behind and not e.node.is_constant)
        self.wanted = {entry: found[entry] for entry in before}

    def run(self) -> list[Entry]:
        """The entries of the minimum cut nearest to the backward pass."""
        for entry in self.wanted:
            self._add(entry)
        ends = [2 * self.numbers[entry] + 1 for entry in self.wanted]
        for end in ends:
            while self._augment(end):
                pass
        behind = {vertex for end in ends for vertex in self._reaching(end)}
        return [e for e, n in self.numbers.items() if 2 * n + 1 in behind and 2 * n not in behind]

    def _add(self, wanted: Entry) -> None:
        """Add an entry and all it can be recomputed from to the network."""
        pending = [] if wanted in self.numbers else [wanted]
        self._number(wanted)
        while pending:
            entry = pending.pop()
            vertex = 2 * self._number(entry)
            again = self._again(entry)
            self._connect(vertex, vertex + 1, self._saving(entry))
            self._connect(_SOURCE, vertex, again)
            for source in entry.node.inputs if again < inf else ():
                if source.node.is_constant:
                    continue
                if source not in self.numbers:
                    pending.append(source)
                self._connect(2 * self._number(source) + 1, vertex, inf)

    def _number(self, entry: Entry) -> int:
        return self.numbers.setdefault(entry, len(self.numbers))

    def _connect(self, start: int, end: int, capacity: float) -> None:
        self.residual.setdefault(start, {})[end] = capacity
        self.residual.setdefault(end, {}).setdefault(start, 0)

    def _saving(self, entry: Entry) -> float:
        """The cost of having an entry in memory and reading it."""
        if _is_free(entry):
            return inf
        there = entry.node.op is None or entry in self.there
        return bytes_of(entry) * (READ if there else STORED)

    def _again(self, entry: Entry) -> float:
        """The cost of recomputing an entry where it is read; infinite if that is not allowed."""
        node = entry.node
        if _is_free(entry):
            return 0
        if node.op is None or node.op.random or node.fails:
            return inf
        # An entry that is wanted as an array would have to be stored by the backward pass, too.
        if self.wanted.get(entry):
            return inf
        if node not in self.forward:  # then it is computed only once
            return 0
        light = isinstance(node.op, Elementwise) and node.op.is_light
        return elements_of(entry.shape) * STEP if light else inf

    def _reaching(self, end: int) -> dict[int, int]:
        """The vertices from which more could flow to `end`, each with the next on its path.

        The search stops when it finds the source.
        """
        found = {end: end}
        pending = [end]
        while pending and _SOURCE not in found:
            vertex = pending.pop()
            for before in self.residual[vertex]:
                if before not in found and self.residual[before][vertex] > 0:
                    found[before] = vertex
                    pending.append(before)
        return found

    def _augment(self, end: int) -> bool:
        """Augment the flow from the source to a vertex; False if there is no path left."""
        following = self._reaching(end)
        if _SOURCE not in following:
            return False
        path = [_SOURCE]
        while path[-1] != end:
            path.append(following[path[-1]])
        steps = list(zip(path, path[1:], strict=False))
        amount = min(self.residual[a][b] for a, b in steps)
        for a, b in steps:
            self.residual[a][b] -= amount
            self.residual[b][a] += amount
        return True


def _is_free(entry: Entry) -> bool:
    """Whether recomputing an entry costs nothing: a view, or computed from numbers alone."""
    node = entry.node
    if node.op is None or node.op.random or node.fails:
        return False
    return is_view(node) or cheap(node) or entry.spec.weak


def _is_loop(node: Node) -> bool:
    """Whether a node can be fused into the loops of others, so that its inputs may be, too."""
    return isinstance(node.op, (Elementwise, Reduction)) or (is_view(node) and not is_mover(node))


def replaced(results: Sequence[Entry], stands: dict[Entry, Entry]) -> list[Entry]:
    """The results, computed from `stands` in place of the entries that are its keys."""
    known = dict(stands)
    for node in walk(results, stands):
        if node.op is not None:
            copy_into(known, node)
    return [known.get(entry, entry) for entry in results]


__all__ = ["replaced", "saved"]

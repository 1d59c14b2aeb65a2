"""What a gradient reads of the forward computation: saved, or made again where that takes less."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf

from gemel.ir.graph import Entry, Node, copy_node, walk
from gemel.ir.op_kinds import Elementwise, Reduction
from gemel.passes.domain import is_mover, is_view, seen_by
from gemel.passes.fuse import cheap
from gemel.passes.sizes import bytes_of, elements_of

#: Picoseconds to read a byte from a cache, and for an element of a light operation.
READ, STEP = 8, 8
#: A store takes twice what a load does: its line of memory comes before it goes.
STORED = 3 * READ


def saved(
    results: Sequence[Entry], gradients: Sequence[Entry], heads: Iterable[Entry]
) -> list[Entry]:
    """The entries that the computation of `results` saves for that of `gradients`.

    What depends on no head could be computed on either side. A smallest cut between the inputs and
    the first steps that do depend on one decides, weighed by what it takes to store and to read an
    entry, and to compute one a second time. So an activation's mask is saved instead of what it was
    taken of, and what a few light steps make of saved arrays is made again (as Chen et al.,
    Training deep nets with sublinear memory cost, 2016; the cut is that of Horace He's and Shangdi
    Yu's partitioner, Transcending runtime-memory tradeoffs in checkpointing, MLSys 2023).
    """
    return _Cut(results, gradients, heads).run()


#: Where flow comes from. Entry number n has the places 2 n, where it is computed, and 2 n + 1,
#: where it is read; what may flow from one to the other is what it takes to save the entry.
_SOURCE = -1


class _Cut:
    """A network of entries, and the smallest cut through it, by the largest flow."""

    def __init__(
        self, results: Sequence[Entry], gradients: Sequence[Entry], heads: Iterable[Entry]
    ) -> None:
        self.forward = set(walk(results))
        self.numbers: dict[Entry, int] = {}
        #: How much more may flow between two places.
        self.room: dict[int, dict[int, float]] = {_SOURCE: {}}
        #: What has to be there for the gradients, and whether as an array.
        self.wanted: dict[Entry, bool] = {}
        self._find_wanted(gradients, {entry.node for entry in heads})
        read = (e for n in self.forward if not _is_loop(n) for e in n.inputs)
        #: In memory anyway.
        self.there = {*results, *read}

    def _find_wanted(self, gradients: Sequence[Entry], behind: set[Node]) -> None:
        """What is read by steps behind a head, and by others for their sake, that lies before."""
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
        """The entries at which it is cut: those nearest to who reads them."""
        for entry in self.wanted:
            self._add(entry)
        ends = [2 * self.numbers[entry] + 1 for entry in self.wanted]
        for end in ends:
            while self._push(end):
                pass
        behind = {place for end in ends for place in self._leading_to(end)}
        return [e for e, n in self.numbers.items() if 2 * n + 1 in behind and 2 * n not in behind]

    def _add(self, wanted: Entry) -> None:
        """The part of the network that leads to an entry."""
        pending = [] if wanted in self.numbers else [wanted]
        self._number(wanted)
        while pending:
            entry = pending.pop()
            place = 2 * self._number(entry)
            again = self._again(entry)
            self._join(place, place + 1, self._saving(entry))
            self._join(_SOURCE, place, again)
            for source in entry.node.inputs if again < inf else ():
                if source.node.is_constant:
                    continue
                if source not in self.numbers:
                    pending.append(source)
                self._join(2 * self._number(source) + 1, place, inf)

    def _number(self, entry: Entry) -> int:
        return self.numbers.setdefault(entry, len(self.numbers))

    def _join(self, start: int, end: int, width: float) -> None:
        self.room.setdefault(start, {})[end] = width
        self.room.setdefault(end, {}).setdefault(start, 0)

    def _saving(self, entry: Entry) -> float:
        """What it takes to have an entry in memory, and to read it from there."""
        if _is_free(entry):
            return inf
        there = entry.node.op is None or entry in self.there
        return bytes_of(entry) * (READ if there else STORED)

    def _again(self, entry: Entry) -> float:
        """What it takes to compute an entry where it is read."""
        node = entry.node
        if _is_free(entry):
            return 0
        if node.op is None or node.op.random or node.fails:
            return inf
        # One that is wanted as an array would have to be stored there, too.
        if self.wanted.get(entry):
            return inf
        if node not in self.forward:  # that is the first time
            return 0
        light = isinstance(node.op, Elementwise) and node.op.is_light
        return elements_of(entry.shape) * STEP if light else inf

    def _leading_to(self, end: int) -> dict[int, int]:
        """The places from which more could flow to this one, and where it would go from each.

        If the source is one it is the last that is looked for.
        """
        found = {end: end}
        pending = [end]
        while pending and _SOURCE not in found:
            place = pending.pop()
            for before in self.room[place]:
                if before not in found and self.room[before][place] > 0:
                    found[before] = place
                    pending.append(before)
        return found

    def _push(self, end: int) -> bool:
        """Let more flow from the source to a place; whether there was a way."""
        ways = self._leading_to(end)
        if _SOURCE not in ways:
            return False
        path = [_SOURCE]
        while path[-1] != end:
            path.append(ways[path[-1]])
        steps = list(zip(path, path[1:], strict=False))
        amount = min(self.room[a][b] for a, b in steps)
        for a, b in steps:
            self.room[a][b] -= amount
            self.room[b][a] += amount
        return True


def _is_free(entry: Entry) -> bool:
    """Whether there is nothing to an entry: a view, a number, or what is made of numbers alone."""
    node = entry.node
    if node.op is None or node.op.random or node.fails:
        return False
    return is_view(node) or cheap(node) or entry.spec.weak


def _is_loop(node: Node) -> bool:
    """Whether a step can be done in the loops of others, which read no arrays then."""
    return isinstance(node.op, (Elementwise, Reduction)) or (is_view(node) and not is_mover(node))


def replaced(results: Sequence[Entry], stands: dict[Entry, Entry]) -> list[Entry]:
    """The results with entries replaced by inputs that stand for them."""
    known = dict(stands)
    for node in walk(results, stands):
        if node.op is None:
            continue
        new = copy_node(node, tuple(known.get(e, e) for e in node.inputs))
        for old, entry in zip(node.entries, new.entries, strict=True):
            known.setdefault(old, entry)
    return [known.get(entry, entry) for entry in results]


__all__ = ["replaced", "saved"]

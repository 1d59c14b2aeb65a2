"""Which items of a plan run side by side.

Two items depend on each other if both touch a buffer and one writes it. Between two points that all
items wait for, the items fall into independent lists; if these are long enough to be worth a second
thread they become a `Concurrent`. So do the parts of a loop whose rounds are independent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from gemel.codegen.language.launch import Place
from gemel.ir.graph import Node
from gemel.runtime.image import OUTPUT

#: How many nanoseconds a second thread must save to be worth waking.
WORTH = 20_000
#: How many items a search continues past its last gain: while it is below `WORTH`, and above it.
FAR, REACH = 256, 64


class Branch:
    """A condition and two lists of items, of which one runs."""

    __slots__ = ("node", "otherwise", "place", "then", "time")

    def __init__(
        self, place: Place, then: list[Any], otherwise: list[Any], node: Node, time: int
    ) -> None:
        self.place = place
        self.then = then
        self.otherwise = otherwise
        self.node = node
        self.time = time

    @property
    def fails(self) -> bool:
        """Whether one of its items may fail."""
        return any(item.fails for item in (*self.then, *self.otherwise))

    @property
    def fills_cores(self) -> bool:
        """Whether one of its items fills all cores."""
        return any(item.fills_cores for item in flat([*self.then, *self.otherwise]))

    @property
    def cost(self) -> int:
        """Nanoseconds the longer list takes."""
        longest: int = max(sum(item.cost for item in side) for side in (self.then, self.otherwise))
        return longest

    def touches(self) -> Iterator[tuple[Any, bool]]:
        """The buffers its items and its condition use, and whether they are written."""
        yield self.place.buffer.root, False
        for item in (*self.then, *self.otherwise):
            yield from item.touches()


class Concurrent:
    """Independent lists of items: none touches what another one writes.

    It is an item itself, as part of a loop's body or of another list.
    """

    __slots__ = ("parts",)

    def __init__(self, parts: list[list[Any]]) -> None:
        self.parts = parts

    @property
    def fails(self) -> bool:
        """Whether one of its items may fail."""
        return any(item.fails for item in flat([self]))

    @property
    def fills_cores(self) -> bool:
        """Whether one of its items fills all cores."""
        return any(item.fills_cores for item in flat([self]))

    @property
    def cost(self) -> int:
        """The nanoseconds that all lists take on one core."""
        total: int = sum(item.cost for item in flat([self]))
        return total

    def touches(self) -> Iterator[tuple[Any, bool]]:
        """The buffers its items use, and whether they are written."""
        for item in flat([self]):
            yield from item.touches()


def side_by_side(items: Sequence[Any]) -> list[Any]:
    """The items, with stretches that split into long independent lists as `Concurrent`s.

    An item that fills all cores by itself is in none of these.
    """
    search = _Search(items)
    arranged: list[Any] = []
    alone = [place for place, item in enumerate(items) if item.fills_cores]
    start = 0
    for end in sorted({*_knots(search.needs), *alone, *(place + 1 for place in alone)}):
        arranged += search.arranged(start, end)
        start = end
    return arranged


def behind(items: Sequence[Any], outputs: Collection[int]) -> list[list[int]]:
    """For each item, the outputs among `outputs` that are ready after it: no later item uses
    them."""
    last: dict[int, int] = {}
    for position, item in enumerate(items if outputs else ()):
        for buffer, _ in item.touches():
            if buffer.space == OUTPUT and buffer.index in outputs:
                last[buffer.index] = position
    ready: list[list[int]] = [[] for _ in items]
    for output, position in last.items():
        ready[position].append(output)
    return ready


class _Search:
    """A search for stretches of items that are worth running side by side."""

    def __init__(self, items: Sequence[Any]) -> None:
        self.items = items
        self.costs = [item.cost for item in items]
        self.needs = _needs(items)
        users = Counter(other for before in self.needs for other in before)
        #: Items that several others need: independent lists begin after such an item.
        self.forks = {item for item, count in users.items() if count > 1}

    def arranged(self, start: int, end: int) -> list[Any]:
        """The items from start to end, arranged greedily from the first one on.

        A stretch is replaced by one that begins inside of it and saves more.
        """
        arranged: list[Any] = []
        best = self._best(start, end)
        while start < end:
            if best[0] < WORTH:
                arranged.append(self.items[start])
                start += 1
                best = self._best(start, end) if start - 1 in self.forks else (0, start, start)
                continue
            _, first, last = self._rival(best, end)
            parts = [[self.items[p] for p in part] for part in self._lists(first, last)]
            arranged += [*self.arranged(start, first), Concurrent(parts)]
            start = last
            best = self._best(start, end)
        return arranged

    def _rival(self, best: tuple[int, int, int], end: int) -> tuple[int, int, int]:
        """The stretch that saves most: the given one, or one that begins inside of it."""
        while True:
            _, start, last = best
            later = (p + 1 for p in range(start, min(last, start + REACH)) if p in self.forks)
            rival = max((self._best(p, end) for p in later), default=best)
            if rival[0] <= best[0]:
                return best
            best = rival

    def _best(self, start: int, end: int) -> tuple[int, int, int]:
        """The best stretch of items from `start` on: (nanoseconds saved, start, end)."""
        lists = DisjointSets(start)
        won, last = 0, start
        total = longest = 0
        for position in range(start, end):
            if position - last > (REACH if won >= WORTH else FAR):
                break
            cost = self.costs[position]
            total += cost
            longest = max(longest, lists.add(position, self.needs[position], cost))
            if total - longest > won:
                won, last = total - longest, position + 1
        return won, start, last

    def _lists(self, start: int, end: int) -> list[list[int]]:
        """The independent lists that the items from start to end fall into."""
        lists = DisjointSets(start)
        for position in range(start, end):
            lists.add(position, self.needs[position], 0)
        groups: dict[int, list[int]] = {}
        for position in range(start, end):
            groups.setdefault(lists.root(position), []).append(position)
        return list(groups.values())


def flat(items: Sequence[Any]) -> Iterator[Any]:
    """All items, in the order of appearance, without the `Concurrent`s around them."""
    for item in items:
        if isinstance(item, Concurrent):
            for part in item.parts:
                yield from flat(part)
        else:
            yield item


def _needs(items: Sequence[Any]) -> list[set[int]]:
    """For each item the earlier ones it must wait for: both touch a buffer, and one writes it."""
    writer: dict[Any, int] = {}
    readers: dict[Any, list[int]] = {}
    needs: list[set[int]] = []
    for position, item in enumerate(items):
        before: set[int] = set()
        touched = list(item.touches())
        for buffer, written in touched:
            if buffer in writer:
                before.add(writer[buffer])
            if written:
                before.update(readers.get(buffer, ()))
        for buffer, written in touched:
            if written:
                writer[buffer], readers[buffer] = position, []
            else:
                readers.setdefault(buffer, []).append(position)
        needs.append(before - {position})
    return needs


def _knots(needs: Sequence[set[int]]) -> Iterator[int]:
    """Positions, ascending, between which to search: around each item that splits the dependencies.

    Such an item depends, directly or not, on all before it, and all after it depend on it. That is
    so if each earlier item is needed by one up to it, and each later one needs one from it on.
    """
    count = len(needs)
    user = [count] * count  # the first item that needs each
    needed = [count] * (count + 1)  # the last need of each item; the minimum from there on
    for position in range(count - 1, -1, -1):
        for other in needs[position]:
            user[other] = position
        needed[position] = min(needed[position + 1], max(needs[position], default=-1))
    waiting = 0
    for position in range(count):
        if waiting <= position <= needed[position + 1]:
            yield position
            yield position + 1
        waiting = max(waiting, user[position])
    yield count


class DisjointSets:
    """Items from a first one on, united where one needs another: a disjoint-set forest."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.parents: dict[int, int] = {}
        self.costs: dict[int, int] = {}

    def root(self, item: int) -> int:
        """The representative of the list an item is in."""
        while self.parents[item] != item:
            self.parents[item] = item = self.parents[self.parents[item]]
        return item

    def add(self, item: int, needs: set[int], cost: int) -> int:
        """Add an item and unite the lists it needs. Returns the cost of the list it is in."""
        self.parents[item] = item
        for root in {self.root(other) for other in needs if other >= self.first}:
            self.parents[root] = item
            cost += self.costs[root]
        self.costs[item] = cost
        return cost

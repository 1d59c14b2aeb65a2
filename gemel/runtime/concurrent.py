"""The items of a plan, and which of them can run side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from gemel.codegen.nest import Place
from gemel.ir.graph import Node
from gemel.runtime.image import OUTPUT

#: What all lists but the longest must cost, in nanoseconds, to be worth another thread's coming.
WORTH = 20_000
#: How many items further on a search goes: while too little is won, and once it is enough.
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
        """Whether one of its items may."""
        return any(item.fails for item in (*self.then, *self.otherwise))

    @property
    def cost(self) -> int:
        """Nanoseconds the longer list takes."""
        found: int = max(sum(item.cost for item in side) for side in (self.then, self.otherwise))
        return found

    def touches(self) -> Iterator[tuple[Any, bool]]:
        """The buffers its items and its condition use, and whether they are written."""
        yield self.place.buffer.root, False
        for item in (*self.then, *self.otherwise):
            yield from item.touches()


class Concurrent:
    """Lists of items of which none touches what another writes."""

    __slots__ = ("parts",)

    def __init__(self, parts: list[list[Any]]) -> None:
        self.parts = parts


def side_by_side(items: Sequence[Any]) -> list[Any]:
    """The items, stretches of them that are independent lists worth it put into a `Concurrent`."""
    search = _Search(items)
    found: list[Any] = []
    start = 0
    for end in _knots(search.needs):
        found += search.arranged(start, end)
        start = end
    return found


def behind(items: Sequence[Any], outputs: Collection[int]) -> list[list[int]]:
    """Behind each item those of a plan's outputs that no item after it touches."""
    last: dict[int, int] = {}
    for position, item in enumerate(items if outputs else ()):
        for buffer, _ in item.touches():
            if buffer.space == OUTPUT and buffer.index in outputs:
                last[buffer.index] = position
    found: list[list[int]] = [[] for _ in items]
    for output, position in last.items():
        found[position].append(output)
    return found


class _Search:
    """A search for stretches of these items that are worth it side by side."""

    def __init__(self, items: Sequence[Any]) -> None:
        self.items = items
        self.costs = [item.cost for item in items]
        self.needs = _needs(items)
        users = Counter(other for before in self.needs for other in before)
        #: Behind each of these independent lists may begin; elsewhere they may as well earlier.
        self.forks = {item for item, count in users.items() if count > 1}

    def arranged(self, start: int, end: int) -> list[Any]:
        """The items from start to end, from the first one on in stretches or by themselves.

        A stretch is left for one that begins in it and wins more.
        """
        found: list[Any] = []
        best = self._best(start, end)
        while start < end:
            if best[0] < WORTH:
                found.append(self.items[start])
                start += 1
                best = self._best(start, end) if start - 1 in self.forks else (0, start, start)
                continue
            _, first, last = self._rival(best, end)
            parts = [[self.items[p] for p in part] for part in self._lists(first, last)]
            found += [*self.arranged(start, first), Concurrent(parts)]
            start = last
            best = self._best(start, end)
        return found

    def _rival(self, best: tuple[int, int, int], end: int) -> tuple[int, int, int]:
        """What wins most of a stretch and those that begin in it, soon behind one another."""
        while True:
            _, start, last = best
            later = (p + 1 for p in range(start, min(last, start + REACH)) if p in self.forks)
            rival = max((self._best(p, end) for p in later), default=best)
            if rival[0] <= best[0]:
                return best
            best = rival

    def _best(self, start: int, end: int) -> tuple[int, int, int]:
        """What running items from `start` on side by side wins, at most: (won, start, end)."""
        lists = Lists(start)
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
        """The independent lists the items from start to end are."""
        lists = Lists(start)
        for position in range(start, end):
            lists.add(position, self.needs[position], 0)
        found: dict[int, list[int]] = {}
        for position in range(start, end):
            found.setdefault(lists.root(position), []).append(position)
        return list(found.values())


def flat(items: Sequence[Any]) -> Iterator[Any]:
    """All items, in the order of appearance."""
    for item in items:
        if isinstance(item, Concurrent):
            for part in item.parts:
                yield from part
        else:
            yield item


def _needs(items: Sequence[Any]) -> list[set[int]]:
    """For each item those before it that must have been done: they share a buffer one writes."""
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
    """Positions, ascending, at which stretches end: behind and before items all others wait for.

    Such an item needs, at some remove, all before it, and all after it need it. That is so when
    each before it is needed by one not behind it, and each after it needs one not before it.
    """
    count = len(needs)
    user = [count] * count  # the first item that needs each
    needed = [count] * (count + 1)  # what each and all behind it have before them, at the least
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


class Lists:
    """Items from a first one on, joined where one needs another (a forest of disjoint sets)."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.above: dict[int, int] = {}
        self.costs: dict[int, int] = {}

    def root(self, item: int) -> int:
        """The item that stands for the list this one is in."""
        while self.above[item] != item:
            self.above[item] = item = self.above[self.above[item]]
        return item

    def add(self, item: int, needs: set[int], cost: int) -> int:
        """The cost of the list the item is then in."""
        self.above[item] = item
        for root in {self.root(other) for other in needs if other >= self.first}:
            self.above[root] = item
            cost += self.costs[root]
        self.costs[item] = cost
        return cost

"""order: the units a graph is computed in, and an order of them that survives joining them.

Every unit has a level above those of all units it reads. A path from one unit to another climbs, so
a search for one never looks above where it is to end, and only what has to move is moved.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gemel.ir.graph import Node

#: How many uses a search looks at. Where it has to give up, units stay apart: that costs a kernel
#: where two long stretches of a graph have nothing to do with each other, and time nowhere.
REACH = 128


class Unit:
    """Nodes that are computed together, and its place in the order."""

    __slots__ = ("level", "nodes")

    def __init__(self, nodes: list[Node]) -> None:
        self.nodes = nodes
        self.level = 0


class Order:
    """The units of the nodes given so far."""

    def __init__(self) -> None:
        self.unit: dict[Node, Unit] = {}
        self._readers: dict[Node, list[Node]] = {}

    def add(self, unit: Unit) -> None:
        """A unit of a node that nothing given so far reads."""
        (node,) = unit.nodes
        unit.level = self._above(unit.nodes, {unit})
        self.unit[node] = unit
        for entry in node.inputs:
            if entry.node.op is not None:
                self._readers.setdefault(entry.node, []).append(node)

    def read(self, node: Node) -> Iterable[Unit]:
        """The units a node reads."""
        return (self.unit[entry.node] for entry in node.inputs if entry.node.op is not None)

    def joined(self, units: Sequence[Unit]) -> dict[Unit, int] | None:
        """What `join` is to be told: the level of the first unit once the others are in it, and of
        all that has to move.

        None when a path leaves the units and comes back, or might.
        """
        members = set(units)
        most = max(units, key=lambda unit: len(unit.nodes))  # the longest to go through
        others = (node for unit in units if unit is not most for node in unit.nodes)
        level = max(most.level, self._above(others, members))
        levels = {units[0]: level}
        pending = [(unit, level) for unit in units if unit.level < level]
        looked = 0
        while pending:
            unit, below = pending.pop()
            for reader in self._outside(unit, members):
                looked += 1
                if reader in members or looked > REACH:
                    return None
                if levels.get(reader, reader.level) <= below:
                    levels[reader] = below + 1
                    pending.append((reader, below + 1))
        return levels

    def join(self, units: Sequence[Unit], levels: dict[Unit, int]) -> None:
        """The first unit takes in the nodes of the others, the latest ones last."""
        first, *others = units
        for unit in others:
            for node in unit.nodes:
                self.unit[node] = first
            first.nodes += unit.nodes
        for unit, level in levels.items():
            unit.level = level

    def _above(self, nodes: Iterable[Node], members: set[Unit]) -> int:
        """The least level for nodes in one unit with `members`."""
        read = (unit for node in nodes for unit in self.read(node) if unit not in members)
        return max((unit.level + 1 for unit in read), default=0)

    def _outside(self, unit: Unit, members: set[Unit]) -> Iterable[Unit]:
        """The units that read a unit; of a member those which are no members."""
        apart = members if unit in members else {unit}
        for node in unit.nodes:
            for reader in self._readers.get(node, ()):
                other = self.unit[reader]
                if other not in apart:
                    yield other

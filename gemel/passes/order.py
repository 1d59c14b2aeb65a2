"""A topological order of groups of nodes that is kept up to date while groups are joined.

Fusion may join groups A and B only if no path leaves A, passes another group and enters B: that
group would have to run both after and before the joined one. Every group ("unit") has a level above
the levels of all it reads. Paths climb, so a search for one stops at the level of its goal, and
joining only has to lift the units above (as in Pearce and Kelly, 2006).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gemel.ir.graph import Node

#: How many edges a search follows before it gives up and the units stay apart. That is rare, costs
#: one kernel more, and keeps fusion linear in the size of the graph.
REACH = 128


class Unit:
    """Nodes that are computed together, and their level."""

    __slots__ = ("level", "nodes")

    def __init__(self, nodes: list[Node]) -> None:
        self.nodes = nodes
        self.level = 0


class Order:
    """The units of the nodes added so far."""

    def __init__(self) -> None:
        self.unit: dict[Node, Unit] = {}
        self._readers: dict[Node, list[Node]] = {}

    def add(self, unit: Unit) -> None:
        """Add the unit of one node, which no node added so far may read."""
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
        """The new levels if these units are joined, for `join`: of the first, and of those lifted.

        None if a path leaves the units and comes back (or the search gave up).
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
        """Move the nodes of the other units into the first one, and set the levels."""
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
        """The other units that read a unit; for a member of the join, only those that are not
        members."""
        apart = members if unit in members else {unit}
        for node in unit.nodes:
            for reader in self._readers.get(node, ()):
                other = self.unit[reader]
                if other not in apart:
                    yield other

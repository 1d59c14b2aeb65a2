"""The graph of what the engine ran: operations, what each one waited for, and on which device."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from typing import Any

from gemel.arrays.archives import appear, checked_path
from gemel.errors import ArgumentError, unknown_name
from gemel.profiler.records import Edge, Operation, Trace, device_name

DATA = "read after write"


class StepGraph:
    """Operations as nodes, dependencies as edges. Filled at the end of `profiler.graph()`."""

    def __init__(self) -> None:
        self.nodes: list[Operation] = []
        self.edges: list[Edge] = []

    def fill(self, trace: Trace, labels: Mapping[int, str]) -> None:
        """Fill the graph with recorded operations; dependencies on earlier operations are left out.

        `labels` are the scopes of the operations, by number.
        """
        found = sorted(trace.finished(), key=lambda operation: operation.number)
        self.nodes = [node._replace(label=labels.get(node.number, "")) for node in found]
        known = {operation.number for operation in self.nodes}
        inside = [e for e in trace.edges if e.before in known and e.after in known]
        self.edges = list(dict.fromkeys(inside))

    # --- questions --------------------------------------------------------------------------

    def node(self, number: int) -> Operation:
        """The operation with that number. Raises `ArgumentError` if the graph has none."""
        for node in self.nodes:
            if node.number == number:
                return node
        raise ArgumentError(f"graph: none of its {len(self.nodes)} operations is number {number!r}")

    def named(self, name: str) -> list[Operation]:
        """The operations of that name, in order of issue."""
        return [node for node in self.nodes if node.name == name]

    def devices(self) -> dict[str, list[Operation]]:
        """The operations by the device they ran for."""
        found: dict[str, list[Operation]] = {}
        for node in sorted(self.nodes, key=lambda node: node.device):
            found.setdefault(device_name(node.device), []).append(node)
        return found

    def copies(self) -> list[Operation]:
        """The copies from one device to another."""
        return [node for node in self.nodes if node.copies]

    def before(self, node: Operation, data_only: bool = True) -> list[Operation]:
        """The operations that a node waited for directly."""
        own = self._own(node)
        numbers = {e.before for e in self._edges(data_only) if e.after == own.number}
        return [other for other in self.nodes if other.number in numbers]

    def ancestors(self, node: Operation, data_only: bool = True) -> list[Operation]:
        """Every operation that had to be finished before the node could start."""
        arriving = _grouped((e.after, e.before) for e in self._edges(data_only))
        found: set[int] = set()
        pending = [self._own(node).number]
        while pending:
            for number in arriving.get(pending.pop(), ()):
                if number not in found:
                    found.add(number)
                    pending.append(number)
        return [other for other in self.nodes if other.number in found]

    def reduced_edges(self, data_only: bool = True) -> list[Edge]:
        """The edges without those implied by others, as for a drawing."""
        edges = self._edges(data_only)
        leaving = _grouped((e.before, e.after) for e in edges)
        bit = {node.number: 1 << place for place, node in enumerate(self.nodes)}
        reach: dict[int, int] = {}  # one bit for every node that can be reached
        beyond: dict[int, int] = {}  # the nodes reached by two edges or more
        for node in reversed(self.nodes):
            direct = further = 0
            for number in leaving.get(node.number, ()):
                direct |= bit[number]
                further |= reach[number]
            reach[node.number] = direct | further
            beyond[node.number] = further
        found: dict[tuple[int, int], Edge] = {}
        for edge in edges:
            if not bit[edge.after] & beyond[edge.before]:
                found.setdefault((edge.before, edge.after), edge)
        return list(found.values())

    def critical_path(self) -> list[Operation]:
        """The chain of dependent operations that took the longest."""
        arriving = _grouped((e.after, e.before) for e in self._edges(False))
        best: dict[int, tuple[int, int]] = {}  # number -> (nanoseconds up to its end, predecessor)
        for node in self.nodes:
            choices = [(best[n][0], n) for n in arriving.get(node.number, ())]
            length, previous = max(choices, default=(0, 0))
            best[node.number] = length + node.duration, previous
        number = max(best, key=lambda n: best[n][0], default=0)
        known = {node.number: node for node in self.nodes}
        path = []
        while number:
            path.append(known[number])
            number = best[number][1]
        return path[::-1]

    def _own(self, node: Any) -> Operation:
        """The argument of a question. Raises `ArgumentError` unless it is a node of this graph."""
        if not isinstance(node, Operation):
            raise ArgumentError(f"graph: {node!r} is no operation; `node` finds one by its number")
        return self.node(node.number)

    def _edges(self, data_only: bool) -> list[Edge]:
        return [e for e in self.edges if e.kind == DATA] if data_only else self.edges

    # --- pictures ---------------------------------------------------------------------------

    def to_svg(self) -> str:
        """The drawing: a column per device, copies between them."""
        from gemel.profiler.svg import draw

        return draw(self)

    def to_json(self) -> str:
        """Nodes and edges as JSON."""
        nodes = [{**node._asdict(), "device": device_name(node.device)} for node in self.nodes]
        return json.dumps({"nodes": nodes, "edges": [e._asdict() for e in self.edges]}, indent=1)

    def save(self, path: Any) -> None:
        """Write the graph: `.svg` for the drawing, `.json` for the data. Other endings are
        errors."""
        path = checked_path("graph", "path", path)
        ending = os.path.splitext(path)[1]
        writers = {".svg": self.to_svg, ".json": self.to_json}
        if ending not in writers:
            raise unknown_name("ending of a graph's file", ending, writers)
        appear(path, [writers[ending]().encode()])

    def _repr_svg_(self) -> str:
        return self.to_svg()

    def __repr__(self) -> str:
        devices = ", ".join(self.devices())
        return f"<graph of {len(self.nodes)} operations, {len(self.edges)} edges on {devices}>"


def _grouped(pairs: Iterable[tuple[int, int]]) -> dict[int, set[int]]:
    found: dict[int, set[int]] = {}
    for key, value in pairs:
        found.setdefault(key, set()).add(value)
    return found


__all__ = ["StepGraph"]

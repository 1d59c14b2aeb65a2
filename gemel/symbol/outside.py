"""What an exported program computes from closed-over arrays alone: values that its file holds.

w = np.ones(3)

def forward(x):
    y = w * 2           # known when the file is written: the file holds these three numbers
    y -= x              # not known
    return y
"""

from __future__ import annotations

from gemel.ir.closed import ClosedOver
from gemel.ir.current import suspended
from gemel.ir.free import is_free
from gemel.ir.graph import Entry, Graph, Node, captured


class Outside:
    """Which nodes of a trace depend on closed-over arrays alone, and their values."""

    def __init__(self, closed: ClosedOver) -> None:
        self._closed = closed
        #: For each node seen so far: whether its value is known, and whether arrays decide it.
        self._found: dict[Node, tuple[bool, bool]] = {}
        #: The constants that replace the results of nodes.
        self._constants: dict[Node, tuple[Entry, ...]] = {}

    def decides(self, node: Node) -> bool:
        """Whether closed-over arrays, and numbers beside them, decide what a node computes.

        Not if only numbers do: files have operations for `np.arange(3)`.
        """
        stack = [node]
        while stack:
            each = stack[-1]
            missing = [e.node for e in each.inputs if e.node not in self._found]
            if each in self._found:
                stack.pop()
            elif missing:
                stack += missing
            else:
                self._found[stack.pop()] = self._look(each)
        return self._found[node] == (True, True)

    def _look(self, node: Node) -> tuple[bool, bool]:
        if node.op is None:
            return node.is_constant, node.is_constant and not node.is_number
        sizes = [spec.shape for spec in node.specs], list(node.params.values())
        graphs = any(isinstance(value, Graph) for value in node.params.values())
        fixed = not (node.op.random or node.op.updates or graphs or is_free(sizes))
        inputs = [self._found[entry.node] for entry in node.inputs]
        return fixed and all(known for known, _ in inputs), any(by for _, by in inputs)

    def constants(self, node: Node) -> tuple[Entry, ...] | None:
        """The results of an operation as constants, if closed-over arrays decide them."""
        if node.op is None or not self.decides(node):
            return None
        if node not in self._constants:
            with suspended():
                values = [self._closed.known(entry) for entry in node.entries]
            self._constants[node] = tuple(map(captured, values))
        return self._constants[node]


__all__ = ["Outside"]

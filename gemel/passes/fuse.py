"""fuse: operations that can share a kernel become one `fused` node with a body.

A group is either a loop nest (elementwise operations and reductions over one domain) or a matrix
product with elementwise operations on its result. All in a group are lost by the same failures.
"""

from __future__ import annotations

from typing import Any

from gemel.ir.graph import Entry, Graph, Node, copy_node, placeholder, substitute_results
from gemel.ir.interpret import interpret
from gemel.ir.op import Elementwise, Op, Reduction, op
from gemel.ops import linalg
from gemel.passes.domain import Domain
from gemel.passes.risk import exposures
from gemel.spec import Spec


@op()
def fused(*inputs: Any, body: Any) -> Any:
    """The outputs of a small graph, computed by one kernel."""
    return tuple(interpret(body, *inputs))


@fused.spec
def _(*inputs: Spec, body: Graph) -> tuple[Spec, ...]:
    return tuple(entry.spec for entry in body.outputs)


#: A body longer than this is cut: registers run out and compiling slows down.
LARGEST_BODY = 48
#: A product's epilogue longer than this is a loop of its own.
LARGEST_EPILOGUE = 16


class Group:
    """Nodes that will share a kernel."""

    __slots__ = ("contraction", "domain", "exposure", "nodes", "number")

    def __init__(self, number: int, node: Node, exposure: int) -> None:
        self.number = number
        self.exposure = exposure
        self.nodes = [node]
        self.contraction = node.op is linalg.matmul
        self.domain = Domain.of(node)

    def admits(self, node: Node) -> bool:
        """Whether the node could join, as far as shapes are concerned; if so it has joined."""
        limit = LARGEST_EPILOGUE if self.contraction else LARGEST_BODY
        if len(self.nodes) >= limit:
            return False
        if self.contraction and not _epilogue(node, self):
            return False
        return self.domain.add(node)


def _epilogue(node: Node, group: Group) -> bool:
    """Whether a node works on each element of a product's result, where it lies."""
    if not isinstance(node.op, Elementwise) or positional(node.op):
        return False
    product = group.nodes[0].specs[0]
    return node.specs[0].shape == product.shape and product.ndim >= 2


def positional(op: Op) -> bool:
    """Whether an operation's elements depend on where they are."""
    return op.random or op.name == "iota"


def cheap(node: Node) -> bool:
    """Whether computing a node again costs less than keeping its result."""
    if not isinstance(node.op, Elementwise) or node.op.random:
        return False
    return not node.inputs or node.specs[0].weak or all(e.node.is_number for e in node.inputs)


def fusible(node: Node) -> bool:
    """Whether a node is computed by a loop nest."""
    return isinstance(node.op, (Elementwise, Reduction))


def fuse(graph: Graph) -> Graph:
    """Every elementwise operation, reduction and matrix product in a `fused` node."""
    return _Fusion(graph).run()


class _Fusion:
    """One run of the pass: groups first, then the graph built from them."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes = [node for node in graph.walk() if node.op is not None]
        self.order = {node: position for position, node in enumerate(self.nodes)}
        self.group: dict[Node, Group] = {}
        self.exposures = exposures(graph)
        self.groups: list[Group] = []
        self.below: dict[Node, int] = {}  # bit set of the groups a node depends on
        self.results = {entry.node for entry in graph.results}
        self.users: dict[Node, list[Node]] = {}
        for node in self.nodes:
            for entry in node.inputs:
                self.users.setdefault(entry.node, []).append(node)

    def run(self) -> Graph:
        for node in self.nodes:
            self.below[node] = self._dependencies(node)
            if cheap(node) and node not in self.results:
                continue
            if fusible(node) or Domain.is_alignment(node):
                self._place(node)
            elif node.op is linalg.matmul:
                self._open(node)
        return self._rebuild()

    # --- grouping ---------------------------------------------------------------------------

    def _dependencies(self, node: Node) -> int:
        found = 0
        for entry in node.inputs:
            found |= self._with_own(entry.node)
        return found

    def _with_own(self, node: Node) -> int:
        group = self.group.get(node)
        own = 1 << group.number if group else 0
        return self.below.get(node, 0) | own

    def _place(self, node: Node) -> None:
        """Into the group of an input where possible, else a new one (views: none)."""
        candidates = self._candidates(node)
        if self._end_product(node, candidates):
            return
        joined: Group | None = None
        for group in candidates:
            if joined is not None:
                self._merge(joined, group)
            elif not self._cyclic(node, group) and self._shares(node, group):
                group.nodes.append(node)
                self.group[node] = joined = group
                self._renew()
        if joined is None and fusible(node):
            self._open(node)

    def _shares(self, node: Node, group: Group) -> bool:
        """Whether a node could share a group's kernel; if so the group counts it in."""
        return self.exposures[node] == group.exposure and group.admits(node)

    def _end_product(self, node: Node, candidates: list[Group]) -> bool:
        """Make a node, and the small groups only it uses, the end of a product it works on.

        So a mask made from another array is applied where a product's result is written, instead
        of in a pass of its own over it.
        """
        products = [group for group in candidates if group.contraction]
        helpers = [group for group in candidates if not group.contraction]
        if len(products) != 1 or not helpers or not _epilogue(node, products[0]):
            return False
        (product,) = products
        exposed = {self.exposures[node], *(group.exposure for group in candidates)}
        if len(exposed) > 1:
            return False
        added = [n for group in helpers for n in group.nodes]
        if len(product.nodes) + len(added) >= LARGEST_EPILOGUE:
            return False
        if not all(self._serves(group, product, node) for group in helpers):
            return False
        if any(self._cyclic(n, product) for n in added):
            return False
        if not all(
            product.domain.add(n) for n in (*sorted(added, key=self.order.__getitem__), node)
        ):
            return False
        product.nodes += [*sorted(added, key=self.order.__getitem__), node]
        for n in (*added, node):
            self.group[n] = product
        for group in helpers:
            group.nodes = []
        self._renew()
        return True

    def _serves(self, helper: Group, product: Group, node: Node) -> bool:
        """Whether a group does nothing but prepare what `node` does with a product's result."""
        members = {*helper.nodes, node}
        bit = 1 << helper.number
        if any(not _epilogue(n, product) or n in self.results for n in helper.nodes):
            return False
        if any(user not in members for n in helper.nodes for user in self.users.get(n, ())):
            return False
        feeding = (e.node for m in product.nodes for e in m.inputs)
        return not any(self._with_own(n) & bit for n in feeding)

    def _merge(self, first: Group, second: Group) -> None:
        """Make one group of two, where shapes and dependencies allow it."""
        if first.contraction or second.contraction or first.exposure != second.exposure:
            return
        if len(first.nodes) + len(second.nodes) > LARGEST_BODY:
            return
        members = {*first.nodes, *second.nodes}
        bits = 1 << first.number | 1 << second.number
        outside = (e.node for m in members for e in m.inputs if e.node not in members)
        if any(self.below.get(node, 0) & bits for node in outside):
            return  # a path leaves the groups and comes back
        nodes = sorted(members, key=self.order.__getitem__)
        domain = Domain.of_all(nodes)
        if domain is None:
            return
        first.nodes, first.domain = nodes, domain
        for node in second.nodes:
            self.group[node] = first
        second.nodes = []
        self._renew()

    def _candidates(self, node: Node) -> list[Group]:
        found: dict[int, Group] = {}
        for entry in node.inputs:
            group = self.group.get(entry.node)
            if group is not None:
                found[group.number] = group
        # Loop nests first: they take more; a product's result has to be written anyway.
        return sorted(found.values(), key=lambda g: (g.contraction, -g.number))

    def _cyclic(self, node: Node, group: Group) -> bool:
        """Whether another input of the node needs the group's results."""
        bit = 1 << group.number
        others = (e.node for e in node.inputs if self.group.get(e.node) is not group)
        return any(self.below.get(other, 0) & bit for other in others)

    def _open(self, node: Node) -> None:
        group = Group(len(self.groups), node, self.exposures[node])
        self.groups.append(group)
        self.group[node] = group

    def _renew(self) -> None:
        """Dependencies after a group has grown: members depend on all the group depends on."""
        changed = True
        while changed:
            changed = False
            shared: dict[int, int] = {}
            for node, bits in self.below.items():
                group = self.group.get(node)
                if group is not None:
                    shared[group.number] = shared.get(group.number, 0) | bits & ~(1 << group.number)
            for node in self.below:
                bits = self._dependencies(node)
                group = self.group.get(node)
                if group is not None:
                    bits |= shared[group.number]
                if bits != self.below[node]:
                    self.below[node] = bits
                    changed = True

    # --- rebuilding -------------------------------------------------------------------------

    def _rebuild(self) -> Graph:
        replaced: dict[Entry, Entry] = {}
        done: set[Any] = set()
        users = self._users()

        def emit(node: Node) -> None:
            stack = [node]
            while stack:
                current = stack[-1]
                unit = self.group.get(current, current)
                waiting = [n for n in self._needs(unit) if self.group.get(n, n) not in done]
                if waiting:
                    stack.extend(waiting)
                    continue
                stack.pop()
                if unit not in done:
                    done.add(unit)
                    self._emit(unit, replaced, users)

        for entry in self.graph.results:
            if entry.node.op is not None:
                emit(entry.node)
        return substitute_results(self.graph, replaced)

    def _users(self) -> dict[Entry, set[Any]]:
        """Which groups (or nodes of their own, or None for the outside) use each entry."""
        users: dict[Entry, set[Any]] = {}
        for node in self.nodes:
            for entry in node.inputs:
                users.setdefault(entry, set()).add(self.group.get(node, node))
        for entry in self.graph.results:
            users.setdefault(entry, set()).add(None)
        return users

    def _members(self, unit: Any) -> list[Node]:
        return unit.nodes if isinstance(unit, Group) else [unit]

    def _needs(self, unit: Any) -> list[Node]:
        """The nodes outside a unit that must be computed before it."""
        members = self._members(unit)
        inside = set(members)
        arrays = {e.node for m in members if m.op is linalg.matmul for e in m.inputs}
        found: dict[Node, None] = {}
        pending = [e.node for m in members for e in m.inputs]
        while pending:
            node = pending.pop()
            if node.op is None or node in inside or node in found:
                continue
            if self._copied(node):
                pending += [e.node for e in node.inputs]
                if isinstance(unit, Group) and node not in arrays:
                    continue
            found[node] = None
        return list(found)

    def _copied(self, node: Node) -> bool:
        return cheap(node) and node not in self.group

    def _emit(self, unit: Any, replaced: dict[Entry, Entry], users: dict[Entry, set[Any]]) -> None:
        if not isinstance(unit, Group):
            new = copy_node(unit, tuple(replaced.get(e, e) for e in unit.inputs))
            if fusible(unit):  # a cheap value that a view or product needs as an array
                new = _wrapped([unit], [unit.entries[0]], replaced, self)
            replaced.update(zip(unit.entries, new.entries, strict=True))
            return
        kept = [
            entry
            for node in unit.nodes
            for entry in node.entries
            if users.get(entry, set()) - {unit}
        ]
        node = _wrapped(unit.nodes, kept, replaced, self)
        replaced.update(zip(kept, node.entries, strict=True))


def _wrapped(
    nodes: list[Node], kept: list[Entry], replaced: dict[Entry, Entry], fusion: _Fusion
) -> Node:
    """A fused node whose body computes `nodes` and gives `kept`."""
    inside: dict[Entry, Entry] = {}
    arguments: dict[Entry, Entry] = {}

    def bring(entry: Entry, copied: bool) -> Entry:
        if entry in inside:
            return inside[entry]
        node = entry.node
        if node.is_number:
            inside[entry] = entry
        elif copied and node.op is not None and fusion._copied(node):
            new = copy_node(node, tuple(bring(e, True) for e in node.inputs))
            inside.update(zip(node.entries, new.entries, strict=True))
        else:
            inside[entry] = placeholder(entry.spec)
            arguments[entry] = inside[entry]
        return inside[entry]

    for node in nodes:
        copied = node.op is not linalg.matmul  # which reads its operands from memory
        new = copy_node(node, tuple(bring(entry, copied) for entry in node.inputs))
        inside.update(zip(node.entries, new.entries, strict=True))
    body = Graph(arguments.values(), (inside[entry] for entry in kept), name="body")
    outer = tuple(replaced.get(entry, entry) for entry in arguments)
    return Node(fused, outer, {"body": body}, tuple(entry.spec for entry in kept))

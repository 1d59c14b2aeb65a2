"""fuse: operations that can share a kernel become one `fused` node with a body.

A group is either a loop nest (elementwise operations and reductions over one domain) or a matrix
product with elementwise operations on its result. All in a group are lost by the same failures.
"""

from __future__ import annotations

from typing import Any

from gemel.ir.declare import op
from gemel.ir.graph import Entry, Graph, Node, copy_node, placeholder, substitute_results
from gemel.ir.interpret import interpret
from gemel.ir.op import Op
from gemel.ir.op_kinds import Contraction, Elementwise, Reduction
from gemel.ops.elementwise import copy
from gemel.passes.domain import (
    Domain,
    in_pieces,
    is_mover,
    is_product,
    is_view,
    reads_rows,
    seen_by,
)
from gemel.passes.order import Order, Unit
from gemel.passes.risk import exposures
from gemel.passes.sizes import elements_of
from gemel.spec import Spec, same_shape


@op(complex=True)
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
#: What reads more arrays than this is not computed in another order than theirs.
MOST_READ = 3


class Group(Unit):
    """Nodes that will share a kernel; those in `moved` are computed where movers read them."""

    __slots__ = ("contraction", "domain", "exposure", "moved", "number")

    def __init__(self, number: int, node: Node, exposure: int) -> None:
        super().__init__([node])
        self.number = number
        self.exposure = exposure
        self.contraction = isinstance(node.op, Contraction)
        self.domain: Domain | None = None  # until there is more than one node
        self.moved: set[Node] = set()

    @property
    def loops(self) -> Domain:
        """The loops its nodes share."""
        if self.domain is None:
            self.domain = Domain.of(self.nodes[0])
        return self.domain

    def admits(self, node: Node) -> bool:
        """Whether there is room for a node, and a product could do it where it writes."""
        if self.contraction:
            return len(self.nodes) < LARGEST_EPILOGUE and _epilogue(node, self)
        if len(self.nodes) >= LARGEST_BODY or self.can_fail and can_fail(node):
            return False
        if self.pieces:
            return _follows(node, self.pieces)
        return not is_mover(node) or reads_rows(node, self.loops)

    @property
    def pieces(self) -> Node | None:
        """The node whose result is put together of parts; all others then have its shape."""
        for node in self.nodes:
            if in_pieces(node) and node not in self.moved:
                return node
        return None

    @property
    def can_fail(self) -> bool:
        """Whether one of its nodes may fail: a kernel has one thing to say of that."""
        return any(map(can_fail, self.nodes))

    def take(self, node: Node) -> bool:
        """Whether a node fits the loops; if so it has its place in them."""
        if not self.loops.add(node):
            return False
        if self.contraction or self.loops.writes_once(node):
            return True
        for entry in node.entries:
            del self.loops.placements[entry]
        return False


def _epilogue(node: Node, group: Group) -> bool:
    """Whether a node works on each element of a product's result, where it lies."""
    ops = (node.op, *(entry.node.op for entry in node.inputs))
    if not isinstance(node.op, Elementwise) or any(op and positional(op) for op in ops):
        return False
    if node.fails:
        return False
    product = group.nodes[0].specs[0]
    return node.specs[0].shape == product.shape and product.ndim >= 2


def can_fail(node: Node) -> bool:
    """Whether values may be such that a node has no result."""
    if node.op is fused:
        return any(map(can_fail, node.params["body"].walk()))
    return node.fails


def positional(op: Op) -> bool:
    """Whether an operation's elements depend on where they are."""
    return op.random or op.positional


def cheap(node: Node) -> bool:
    """Whether computing a node again costs less than keeping its result."""
    if not isinstance(node.op, Elementwise) or node.op.random or not node.has_kernel:
        return False
    return all(e.spec.weak for e in node.inputs)  # of numbers alone


def fusible(node: Node) -> bool:
    """Whether a node is computed by a loop nest."""
    kind = isinstance(node.op, (Elementwise, Reduction))
    return (kind or (is_mover(node) and not is_view(node))) and node.has_kernel


def _follows(node: Node, whole: Node) -> bool:
    """Whether a node can be computed where the parts of a result of its shape are written."""
    same = len(node.specs) == 1 and same_shape(node.specs[0].shape, whole.specs[0].shape)
    return isinstance(node.op, Elementwise) and same and not node.fails


def _longer(node: Node, entry: Entry, group: Group) -> bool:
    """Whether a node reads an entry at many more positions than a group has elements.

    Each would be computed again and again.
    """
    shapes = (node.specs[0].shape, entry.shape, group.nodes[-1].specs[0].shape)
    result, read, made = map(elements_of, shapes)
    return max(result, read) > 2 * made


def _apart(first: Group, second: Group, domain: Domain) -> bool:
    """Whether what a group reads elsewhere is not computed in the other's loops, but for rows."""
    return all(
        node not in ours.moved and reads_rows(node, domain)
        for ours, other in ((first, second), (second, first))
        for node in ours.nodes
        if is_mover(node) or node in ours.moved
        if any(entry.node in other.nodes for entry in node.inputs)
    )


def fuse(graph: Graph) -> Graph:
    """Every elementwise operation, reduction and matrix product in a `fused` node."""
    return _Fusion(_settled(graph)).run()


def _settled(graph: Graph) -> Graph:
    """Results that are views of what is computed are copied: a kernel may write them at once."""
    views = {e for e in graph.results if is_mover(e.node) and is_view(e.node)}
    made = {e: copy.apply((e,), {})[0] for e in views if e.node.inputs[0].node.op is not None}
    outputs = [made.get(entry, entry) for entry in graph.outputs]
    updates = [(index, made.get(entry, entry)) for index, entry in graph.updates]
    return Graph(graph.inputs, outputs, updates, graph.name) if made else graph


class _Fusion:
    """One run of the pass: groups first, then the graph built from them.

    A group grows by what reads it: each node joins the group of an input, and brings the groups of
    its other inputs along. `order` knows which of that would make a group wait for itself.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes = [node for node in graph.walk() if node.op is not None]
        self.position = {node: position for position, node in enumerate(self.nodes)}
        self.exposures = exposures(graph)
        self.order = Order()
        self.results = {entry.node for entry in graph.results}
        #: Loops can write where what they update lies; a product, which is put together in its
        #: result, cannot: that would have to be moved there.
        self.updating = _updating(graph)
        #: What every kernel that needs it computes.
        self.copied = {n for n in self.nodes if cheap(n) and n not in self.results}
        self.fusible = set(filter(fusible, self.nodes))
        self.readers = graph.readers()

    def run(self) -> Graph:
        for node in self.nodes:
            self.order.add(self._unit(node))
            if node not in self.copied and (node in self.fusible or Domain.is_alignment(node)):
                self._place(node)
                self._bring(node)
        return self._rebuild()

    # --- grouping ---------------------------------------------------------------------------

    def _unit(self, node: Node) -> Unit:
        """A group where there is a kernel to be shared."""
        if node not in self.copied and (node in self.fusible or is_product(node)):
            return Group(self.position[node], node, self.exposures[node])
        return Unit([node])

    def _place(self, node: Node) -> None:
        """Into the group of an input where possible."""
        candidates = self._candidates(node)
        if self._end_product(node, candidates):
            return
        joined: Group | None = None
        for group in candidates:
            if joined is not None:
                self._merge(joined, group)
            elif self._join(group, node):
                joined = group

    def _join(self, group: Group, node: Node) -> bool:
        """Let a node share a group's kernel, where shapes, failures and dependencies allow it."""
        if self.exposures[node] != group.exposure or not group.admits(node):
            return False
        if group.contraction and node in self.updating:
            return False
        units = (group, self.order.unit[node])
        levels = self.order.joined(units)
        if levels is None or not group.take(node):
            return False
        self.order.join(units, levels)
        return True

    def _end_product(self, node: Node, candidates: list[Group]) -> bool:
        """Make a node, and the small groups only it uses, the end of a product it works on.

        So a mask made from another array is applied where a product's result is written, instead
        of in a pass of its own over it.
        """
        products = [group for group in candidates if group.contraction]
        helpers = [group for group in candidates if not group.contraction]
        if len(products) != 1 or not helpers or not _epilogue(node, products[0]):
            return False
        if node in self.updating:
            return False
        (product,) = products
        exposed = {self.exposures[node], *(group.exposure for group in candidates)}
        added = sorted(
            (*(n for group in helpers for n in group.nodes), node), key=self.position.__getitem__
        )
        if len(exposed) > 1 or len(product.nodes) + len(added) > LARGEST_EPILOGUE:
            return False
        if not all(self._serves(group, product, node) for group in helpers):
            return False
        units = (product, *helpers, self.order.unit[node])
        levels = self.order.joined(units)
        if levels is None or not all(product.take(n) for n in added):
            return False
        self.order.join(units, levels)
        return True

    def _serves(self, helper: Group, product: Group, node: Node) -> bool:
        """Whether a group does nothing but prepare what `node` does with a product's result."""
        members = {*helper.nodes, node}
        if any(not _epilogue(n, product) or n in self.results for n in helper.nodes):
            return False
        return all(user in members for n in helper.nodes for user in self._users(n))

    def _merge(self, first: Group, second: Group) -> None:
        """Make one group of two, where shapes and dependencies allow it."""
        if first.contraction or second.contraction or first.exposure != second.exposure:
            return
        if len(first.nodes) + len(second.nodes) > LARGEST_BODY:
            return
        if first.can_fail and second.can_fail:
            return
        whole = first.pieces or second.pieces
        if whole and not all(n is whole or _follows(n, whole) for n in first.nodes + second.nodes):
            return
        levels = self.order.joined((first, second))
        if levels is None:
            return
        moved = first.moved | second.moved
        domain = self._common([*first.nodes, *second.nodes], moved)
        if domain is None or not _apart(first, second, domain):
            return
        placed = {*first.nodes, *second.nodes} - moved
        if not all(domain.writes_once(n) for n in placed if self._is_kept(n, placed)):
            return
        self.order.join((first, second), levels)
        first.nodes.sort(key=self.position.__getitem__)
        first.domain, first.moved = domain, moved

    def _common(self, nodes: list[Node], moved: set[Node]) -> Domain | None:
        """The loops of all these nodes but the moved ones, if they can share any."""
        found = (n for n in nodes if n not in moved)
        return Domain.of_all(sorted(found, key=self.position.__getitem__))

    # --- what is read elsewhere ---------------------------------------------------------------

    def _bring(self, node: Node) -> None:
        """Into a node's group what only it reads, through views or where its rule says.

        Its elements are computed where they are read, and never kept.
        """
        for entry in node.inputs:
            reader = self.order.unit[node]
            views = self._views(entry)
            source = (views[-1].inputs[0] if views else entry).node
            if source.op is None or not (views or is_mover(node)) or not isinstance(reader, Group):
                continue
            group = self.order.unit[source]
            if not isinstance(group, Group) or group is reader or not self._is_brief(group, node):
                continue
            if self._only_for(group, views[-1] if views else node) and not reader.contraction:
                self._take_in(reader, views, group, node, entry)

    def _views(self, entry: Entry) -> list[Node]:
        """The views an entry is of what is computed, the last one first, each read once."""
        found: list[Node] = []
        node = entry.node
        while is_view(node) and is_mover(node):
            if node in self.results or len(self._users(node)) != 1:
                return []
            found.append(node)
            node = node.inputs[0].node
        return found

    def _is_brief(self, group: Group, node: Node) -> bool:
        """Whether computing a group's values where they are read is worth it."""
        if group.contraction or group.pieces or group.loops.reduced is not None:
            return False
        read = {entry for node in group.nodes for entry in node.inputs}
        own = {entry for node in group.nodes for entry in node.entries}
        arrays = [e for e in read - own if not e.node.is_number and not e.spec.weak]
        return len(arrays) <= MOST_READ or in_pieces(node)

    def _is_kept(self, node: Node, members: set[Node]) -> bool:
        """Whether a node's results are wanted by others than these nodes."""
        return node in self.results or any(user not in members for user in self._users(node))

    def _users(self, node: Node) -> list[Node]:
        """Who reads a node's results, each as often as it does."""
        return [user for entry in node.entries for user in self.readers.get(entry, ())]

    def _only_for(self, group: Group, reader: Node) -> bool:
        """Whether nobody but `reader` wants what a group computes."""
        members = {*group.nodes, reader}
        return not any(self._is_kept(node, members) for node in group.nodes)

    def _take_in(
        self, reader: Group, views: list[Node], group: Group, node: Node, entry: Entry
    ) -> None:
        """Have a group's values computed in another group, where `node` reads an entry of them."""
        units = (reader, *(self.order.unit[view] for view in views), group)
        count = sum(len(unit.nodes) for unit in units)
        if group.exposure != reader.exposure or count > LARGEST_BODY:
            return
        # What may fail is computed as a whole: a position nobody reads may be the one out of range.
        if group.can_fail or (_longer(node, entry, group) and not in_pieces(node)):
            return
        if any(entry.node in reader.nodes for n in group.nodes for entry in n.inputs):
            return
        levels = self.order.joined(units)
        moved = {*reader.moved, *views, *group.nodes}
        domain = self._common(list(reader.nodes), moved)
        if levels is None or domain is None:
            return
        self.order.join(units, levels)
        reader.nodes.sort(key=self.position.__getitem__)
        reader.moved, reader.domain = moved, domain

    def _candidates(self, node: Node) -> list[Group]:
        found = {unit for unit in self.order.read(node) if isinstance(unit, Group)}
        # Loop nests first: they take more; a product's result has to be written anyway.
        return sorted(found, key=lambda group: (group.contraction, -group.number))

    # --- rebuilding -------------------------------------------------------------------------

    def _rebuild(self) -> Graph:
        replaced: dict[Entry, Entry] = {}
        users = self._units()
        arrays = {e.node for n in self.nodes if self._reads_arrays(n) for e in n.inputs}
        units = [self.order.unit[n] for n in self.nodes if n in arrays or n not in self.copied]
        for unit in sorted(dict.fromkeys(units), key=lambda unit: unit.level):
            self._emit(unit, replaced, users)
        return substitute_results(self.graph, replaced)

    def _reads_arrays(self, node: Node) -> bool:
        """Whether a node reads its inputs from memory: the operands of a product, of a `take`."""
        if isinstance(self.order.unit[node], Group):
            return isinstance(node.op, Contraction)
        return node not in self.copied

    def _units(self) -> dict[Entry, set[Unit | None]]:
        """Which units (None: the outside) use each entry."""
        unit = self.order.unit
        users: dict[Entry, set[Unit | None]] = {
            entry: {unit[node] for node in nodes} for entry, nodes in self.readers.items()
        }
        for entry in self.graph.results:
            users.setdefault(entry, set()).add(None)
        return users

    def _emit(
        self, unit: Unit, replaced: dict[Entry, Entry], users: dict[Entry, set[Unit | None]]
    ) -> None:
        if isinstance(unit, Group):
            made = [entry for node in unit.nodes for entry in node.entries]
            kept = [entry for entry in made if users.get(entry, set()) - {unit}]
            node = _wrapped(unit.nodes, kept, replaced, self)
        else:
            (single,) = unit.nodes
            kept = list(single.entries)
            if single in self.fusible:  # a cheap value that a view or product needs as an array
                node = _wrapped(unit.nodes, kept, replaced, self)
            else:
                node = copy_node(single, tuple(replaced.get(e, e) for e in single.inputs))
        replaced.update(zip(kept, node.entries, strict=True))


def _updating(graph: Graph) -> set[Node]:
    """The elementwise operations that make a new value of an input out of the one it has."""
    found: set[Node] = set()
    for position, entry in graph.updates:
        pending, own = [entry], dict[Node, None]()
        while pending:
            node = seen_by(pending.pop()).node
            if isinstance(node.op, Elementwise) and node not in own:
                own[node] = None
                pending += node.inputs
        read = {seen_by(entry) for node in own for entry in node.inputs}
        if graph.inputs[position] in read:
            found.update(own)
    return found


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
        elif copied and node in fusion.copied:
            new = copy_node(node, tuple(bring(e, True) for e in node.inputs))
            inside.update(zip(node.entries, new.entries, strict=True))
        else:
            inside[entry] = placeholder(entry.spec)
            arguments[entry] = inside[entry]
        return inside[entry]

    for node in nodes:
        copied = not isinstance(node.op, Contraction)  # which reads its operands from memory
        new = copy_node(node, tuple(bring(entry, copied) for entry in node.inputs))
        inside.update(zip(node.entries, new.entries, strict=True))
    body = Graph(arguments.values(), (inside[entry] for entry in kept), name="body")
    outer = tuple(replaced.get(entry, entry) for entry in arguments)
    origin = next((node.origin for node in nodes if can_fail(node)), "")
    specs = tuple(entry.spec for entry in kept)
    return Node(fused, outer, {"body": body}, specs, origin=origin)

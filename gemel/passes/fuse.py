"""fuse: operations that can share a kernel become one `fused` node with a body.

A group is either a loop nest (elementwise operations and reductions over one `Domain`) or a matrix
product with elementwise operations on its result (its epilogue). ``relu(x @ w + b)`` becomes one
node, and so does a softmax. Fusing is greedy, in graph order: a node joins the group of one of its
inputs and unites it with the groups of the others, where

- one loop nest serves all (`Domain`);
- no path leaves the group and comes back (`Order`);
- all nodes depend on the same failures (`risk.exposures`): a kernel fails as a whole.

Values that are read at other positions (by a transposition, a `take`) can still be computed inside
the reader, once for each position that is read (`moved`).
"""

from __future__ import annotations

from typing import Any

from gemel.ir.declare import op
from gemel.ir.graph import Entry, Graph, Node, copy_into, copy_node, placeholder, substitute_results
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


#: Nodes in a group, at most: in longer bodies registers run out, and compiling slows down.
LARGEST_BODY = 48
#: A product's epilogue longer than this is a loop of its own.
LARGEST_EPILOGUE = 16
#: So many operations are not repeated more than so many times.
SEVERAL, MANY_TIMES = 4, 32
#: A group that reads more arrays than this is not computed inside of a reader, out of order.
MOST_READ = 3


class Group(Unit):
    """Nodes that will share a kernel. Those in `moved` are computed where movers read them."""

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
        """Whether the group has room for a node, and its kind of kernel can compute it."""
        if self.contraction:
            return len(self.nodes) < LARGEST_EPILOGUE and in_epilogue(node, self.nodes[0])
        if len(self.nodes) >= LARGEST_BODY or self.can_fail and can_fail(node):
            return False
        if self.pieces:
            return _follows(node, self.pieces)
        return not is_mover(node) or reads_rows(node, self.loops)

    @property
    def pieces(self) -> Node | None:
        """The node whose result consists of parts, if there is one; all others then have its
        shape."""
        for node in self.nodes:
            if in_pieces(node) and node not in self.moved:
                return node
        return None

    @property
    def can_fail(self) -> bool:
        """Whether one of its nodes may fail. A kernel reports one kind of failure only."""
        return any(map(can_fail, self.nodes))

    def take(self, node: Node) -> bool:
        """Place a node in the loops; False (and no change) if it does not fit."""
        if not self.loops.add(node):
            return False
        if self.contraction or self.loops.writes_once(node):
            return True
        for entry in node.entries:
            del self.loops.placements[entry]
        return False


def in_epilogue(node: Node, product: Node) -> bool:
    """Whether a node can be in the epilogue of a product: elementwise on all of its result."""
    ops = (node.op, *(entry.node.op for entry in node.inputs))
    if not isinstance(node.op, Elementwise) or any(op and positional(op) for op in ops):
        return False
    if node.fails:
        return False
    (result, *_) = product.specs
    return node.specs[0].shape == result.shape and result.ndim >= 2


def can_fail(node: Node) -> bool:
    """Whether a node, or one in its fused body, can fail depending on values."""
    if node.op is fused:
        return any(map(can_fail, node.params["body"].walk()))
    return node.fails


def positional(op: Op) -> bool:
    """Whether an operation's elements depend on their positions."""
    return op.random or op.positional


def cheap(node: Node) -> bool:
    """Whether recomputing a node costs less than storing its result: it is made of numbers."""
    if not isinstance(node.op, Elementwise) or node.op.random or not node.has_kernel:
        return False
    return all(e.spec.weak for e in node.inputs)


def fusible(node: Node) -> bool:
    """Whether a node is computed by a loop nest."""
    kind = isinstance(node.op, (Elementwise, Reduction))
    return (kind or (is_mover(node) and not is_view(node))) and node.has_kernel


def _follows(node: Node, whole: Node) -> bool:
    """Whether a node can be computed in the kernels that write the parts of `whole`."""
    same = len(node.specs) == 1 and same_shape(node.specs[0].shape, whole.specs[0].shape)
    return isinstance(node.op, Elementwise) and same and not node.fails


def _longer(node: Node, entry: Entry, group: Group) -> bool:
    """Whether a node reads an entry at many more positions than its group has elements.

    Then computing it where it is read would compute each element many times.
    """
    shapes = (node.specs[0].shape, entry.shape, group.nodes[-1].specs[0].shape)
    result, read, made = map(elements_of, shapes)
    return max(result, read) > 2 * made


def _repeats(nodes: list[Node], domain: Domain) -> bool:
    """Whether loops would do much again and again: several operations whose results do not run
    along a long dimension, as those by which a normalization prepares numbers of its channels.
    What runs along no reduced dimension is computed before or after these loops."""
    if len(nodes) < SEVERAL:
        return False
    own = {d for n in nodes for e in n.entries for d in domain.running(e)}
    others = {*range(len(domain.shape))} - own
    if domain.reduced and not own & domain.reduced:
        others -= domain.reduced
    return elements_of([domain.shape[d] for d in others]) > MANY_TIMES


def _apart(first: Group, second: Group, domain: Domain) -> bool:
    """Whether movers of each group read nothing of the other group, except within rows."""
    return all(
        node not in ours.moved and reads_rows(node, domain)
        for ours, other in ((first, second), (second, first))
        for node in ours.nodes
        if is_mover(node) or node in ours.moved
        if any(entry.node in other.nodes for entry in node.inputs)
    )


def fuse(graph: Graph) -> Graph:
    """Put every elementwise operation, reduction and matrix product into a `fused` node."""
    return _Fusion(_with_views_copied(graph)).run()


def _with_views_copied(graph: Graph) -> Graph:
    """Copy results that are views of computed values: the copy fuses with what computes them."""
    views = {e for e in graph.results if is_mover(e.node) and is_view(e.node)}
    made = {e: copy.apply((e,), {})[0] for e in views if e.node.inputs[0].node.op is not None}
    outputs = [made.get(entry, entry) for entry in graph.outputs]
    updates = [(index, made.get(entry, entry)) for index, entry in graph.updates]
    return Graph(graph.inputs, outputs, updates, graph.name) if made else graph


class _Fusion:
    """One run of the pass: first the groups, then the graph built from them."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes = [node for node in graph.walk() if node.op is not None]
        self.position = {node: position for position, node in enumerate(self.nodes)}
        self.exposures = exposures(graph)
        self.order = Order()
        self.results = {entry.node for entry in graph.results}
        #: Nodes kept out of epilogues: loops can overwrite the array they update in place, but a
        #: product accumulates in its result, which would have to be copied to that array.
        self.updating = _updating(graph)
        #: Nodes that are copied into every kernel that needs them.
        self.copied = {n for n in self.nodes if cheap(n) and n not in self.results}
        self.fusible = set(filter(fusible, self.nodes))
        self.readers = graph.readers()

    def run(self) -> Graph:
        for node in self.nodes:
            self.order.add(self._unit(node))
            if node not in self.copied and (node in self.fusible or Domain.is_alignment(node)):
                self._place(node)
                self._inline_inputs(node)
        return self._rebuild()

    # --- grouping ---------------------------------------------------------------------------

    def _unit(self, node: Node) -> Unit:
        """The unit of one node: a `Group` if it has a kernel that others can join."""
        if node not in self.copied and (node in self.fusible or is_product(node)):
            return Group(self.position[node], node, self.exposures[node])
        return Unit([node])

    def _place(self, node: Node) -> None:
        """Let a node join the group of an input, and unite it with those of the other inputs."""
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
        """Put a node and the groups that only prepare its other operands into a product's epilogue.

        So a mask made from another array is applied as the product's result is written, instead of
        by a second kernel over the result.
        """
        products = [group for group in candidates if group.contraction]
        helpers = [group for group in candidates if not group.contraction]
        if len(products) != 1 or not helpers or not in_epilogue(node, products[0].nodes[0]):
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
        """Whether a group only prepares operands of `node`, and fits the product's epilogue."""
        members = {*helper.nodes, node}
        if any(not in_epilogue(n, product.nodes[0]) or n in self.results for n in helper.nodes):
            return False
        return all(user in members for n in helper.nodes for user in self._users(n))

    def _merge(self, first: Group, second: Group) -> None:
        """Unite two groups, where shapes, failures and dependencies allow it."""
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
        if any(_repeats([n for n in g.nodes if n not in moved], domain) for g in (first, second)):
            return
        placed = {*first.nodes, *second.nodes} - moved
        if not all(domain.writes_once(n) for n in placed if self._is_read_outside(n, placed)):
            return
        self.order.join((first, second), levels)
        first.nodes.sort(key=self.position.__getitem__)
        first.domain, first.moved = domain, moved

    def _common(self, nodes: list[Node], moved: set[Node]) -> Domain | None:
        """The loops that all these nodes except the moved ones can share, or None."""
        found = (n for n in nodes if n not in moved)
        return Domain.of_all(sorted(found, key=self.position.__getitem__))

    # --- what is read at other positions ------------------------------------------------------

    def _inline_inputs(self, node: Node) -> None:
        """Take groups that only this node reads, through views or by its rule, into its own group.

        Their elements are then computed at the positions that are read, and never stored.
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
                self._inline(reader, views, group, node, entry)

    def _views(self, entry: Entry) -> list[Node]:
        """The chain of views that leads to an entry, the last first; empty if one is read twice."""
        found: list[Node] = []
        node = entry.node
        while is_view(node) and is_mover(node):
            if node in self.results or len(self._users(node)) != 1:
                return []
            found.append(node)
            node = node.inputs[0].node
        return found

    def _is_brief(self, group: Group, node: Node) -> bool:
        """Whether a group is cheap enough to be computed at the positions a reader needs."""
        if group.contraction or group.pieces or group.loops.reduced is not None:
            return False
        read = {entry for node in group.nodes for entry in node.inputs}
        own = {entry for node in group.nodes for entry in node.entries}
        arrays = [e for e in read - own if not e.node.is_number and not e.spec.weak]
        return len(arrays) <= MOST_READ or in_pieces(node)

    def _is_read_outside(self, node: Node, members: set[Node]) -> bool:
        """Whether anything but these nodes uses a node's results."""
        return node in self.results or any(user not in members for user in self._users(node))

    def _users(self, node: Node) -> list[Node]:
        """The nodes that read a node's results; one that does so twice is listed twice."""
        return [user for entry in node.entries for user in self.readers.get(entry, ())]

    def _only_for(self, group: Group, reader: Node) -> bool:
        """Whether nothing but `reader` uses what a group computes."""
        members = {*group.nodes, reader}
        return not any(self._is_read_outside(node, members) for node in group.nodes)

    def _inline(
        self, reader: Group, views: list[Node], group: Group, node: Node, entry: Entry
    ) -> None:
        """Compute a group inside of another one, at the positions where `node` reads `entry`."""
        units = (reader, *(self.order.unit[view] for view in views), group)
        count = sum(len(unit.nodes) for unit in units)
        if group.exposure != reader.exposure or count > LARGEST_BODY:
            return
        # What may fail is computed as a whole: nothing may read the element that is out of range.
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
        # Loop nests first: they can take more, and a product's result is written anyway.
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
        """Whether a node needs its inputs as arrays in memory: a product, or one that is not
        fused."""
        if isinstance(self.order.unit[node], Group):
            return isinstance(node.op, Contraction)
        return node not in self.copied

    def _units(self) -> dict[Entry, set[Unit | None]]:
        """The units that use each entry; None stands for the caller, who wants the results."""
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
        results = [entry for node in unit.nodes for entry in node.entries]
        if isinstance(unit, Group):
            results = [entry for entry in results if users.get(entry, set()) - {unit}]
        elif unit.nodes[0] not in self.fusible:
            copy_into(replaced, unit.nodes[0])
            return
        # A unit that is no group but fusible is a cheap value that a view or product needs as an
        # array.
        node = _wrapped(unit.nodes, results, replaced, self)
        replaced.update(zip(results, node.entries, strict=True))


def _updating(graph: Graph) -> set[Node]:
    """The elementwise operations by which an updated input's new value depends on its old one."""
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
    nodes: list[Node], results: list[Entry], replaced: dict[Entry, Entry], fusion: _Fusion
) -> Node:
    """A fused node whose body computes `nodes` and returns `results`."""
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
    body = Graph(arguments.values(), (inside[entry] for entry in results), name="body")
    outer = tuple(replaced.get(entry, entry) for entry in arguments)
    origin = next((node.origin for node in nodes if can_fail(node)), "")
    specs = tuple(entry.spec for entry in results)
    return Node(fused, outer, {"body": body}, specs, origin=origin)

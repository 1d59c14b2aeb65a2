"""recompute and fuse_sums, after `fuse`: reduce the memory traffic between kernels.

`recompute` drops arrays that the kernels reading them can compute themselves (rematerialization),
in loops or in the epilogue of a matrix product. `fuse_sums` merges kernels that read the same large
array. It looks only at fused nodes that are plain loops: elementwise operations and reductions.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from math import inf
from typing import NamedTuple

from gemel.extent import same_for_all
from gemel.ir.free import trial
from gemel.ir.graph import (
    Entry,
    Graph,
    Node,
    copy_into,
    copy_node,
    inline,
    placeholder,
    substitute_results,
)
from gemel.ir.op_kinds import Elementwise, Reduction
from gemel.passes.domain import Domain, is_product, is_view
from gemel.passes.fuse import LARGEST_BODY, LARGEST_EPILOGUE, can_fail, fused, in_epilogue
from gemel.passes.risk import exposures
from gemel.passes.sizes import bytes_of, elements_of
from gemel.spec import same_shape_for_all

#: The most operations by which an array is recomputed.
MOST_STEPS = 8
#: An array this many times smaller than another counts as one number per row of it: recomputing
#: the larger one may read it from memory.
SMALL = 16


def recompute(graph: Graph) -> Graph:
    """Recompute arrays that one kernel stores for others, where that moves fewer bytes.

    Layer normalization, say, does not store the standardized values for the gradient of its scale:
    the kernel of that gradient reads the input and two numbers for each row instead. A store counts
    as two loads, since the cache line it writes to is loaded first. Random numbers, operations that
    can fail, and values that are read at other positions are never recomputed.
    """
    return _Recomputing(graph).run()


def _is_plain(node: Node) -> bool:
    """Whether a node is loops around elementwise operations and reductions that cannot fail."""
    if node.op is not fused or can_fail(node):
        return False
    return all(
        isinstance(n.op, (Elementwise, Reduction)) or Domain.is_alignment(n) for n in _steps(node)
    )


def _ends_product(node: Node) -> bool:
    """Whether a node is a matrix product with an epilogue that cannot fail."""
    return node.op is fused and not can_fail(node) and any(map(is_product, _steps(node)))


def _before_product(nodes: list[Node]) -> set[Node]:
    """The operations among these, those of a body, that its product depends on, and the product."""
    found: set[Node] = set()
    for node in reversed(nodes):
        if is_product(node) or any(e.node is node for n in found for e in n.inputs):
            found.add(node)
    return found


def _is_epilogue(nodes: list[Node], before: int) -> bool:
    """Whether all but `before` operations of a body follow its product, in its epilogue."""
    needed = _before_product(nodes)
    (product,) = filter(is_product, nodes)
    with trial(n for node in nodes for spec in node.specs for n in spec.shape) as asked:
        fits = all(n in needed or in_epilogue(n, product) for n in nodes)
    return fits and len(needed) == before and not asked


def _is_step(node: Node) -> bool:
    """Whether a node computes an element from those at the same position alone."""
    return isinstance(node.op, Elementwise) or Domain.is_alignment(node)


def _steps(node: Node) -> list[Node]:
    """The operations in the body of a fused node."""
    body: Graph = node.params["body"]
    return [n for n in body.walk() if n.op is not None]


def _domain(nodes: list[Node]) -> Domain | None:
    """The loops of a body; None if it has no common ones for all sizes."""
    with trial(n for node in nodes for spec in node.specs for n in spec.shape) as asked:
        domain = Domain.of_all(nodes)
    return domain if not asked else None


class _Formula:
    """How an output of a fused node can be recomputed elsewhere.

    `steps` are the operations. They read inputs and other outputs of the node (`read`), and further
    values of its body with one number per row, which the node then has to store (`rows`; products
    have no `domain`, and so no `rows`). If more than that is needed, it is not `possible`.
    """

    def __init__(
        self, node: Node, output: Entry, domain: Domain | None, dropped: Container[Entry]
    ) -> None:
        self.output, self.domain = output, domain
        self.steps: list[Node] = []
        self.rows: list[Entry] = []
        self.read: list[Entry] = []
        self.possible = True
        body: Graph = node.params["body"]
        self.outside = dict(zip(body.inputs, node.inputs, strict=True))
        pairs = zip(body.outputs, node.entries, strict=True)
        self.outside |= {each: e for each, e in pairs if each is not output and e not in dropped}
        self._least = bytes_of(output)
        self._visit(output, set())

    def _visit(self, entry: Entry, done: set[Entry]) -> None:
        """Collect what an entry is computed from, up to what can be read from memory."""
        if entry in done or not self.possible:
            return
        done.add(entry)
        node = entry.node
        if entry in self.outside:
            self.read.append(entry)
        elif node.op is None:
            return
        elif self._is_of_rows(entry):
            self.rows.append(entry)
        elif not _is_step(node) or node.op.random or len(self.steps) == MOST_STEPS:
            self.possible = False
        else:
            for each in node.inputs:
                self._visit(each, done)
            self.steps.append(node)

    def _is_of_rows(self, entry: Entry) -> bool:
        """Whether an entry of the body is one number per row, which its kernel could store."""
        few = bytes_of(entry) * SMALL < self._least and not entry.spec.weak
        return few and self.domain is not None and self.domain.writes_once(entry.node)

    def written_in(self, known: dict[Entry, Entry]) -> Entry:
        """The output, recomputed from `known` values of what it reads."""
        found = dict(known)
        for node in self.steps:
            copy_into(found, node)
        return found[self.output]


class _Recomputing:
    """One run of the pass: which arrays are dropped, then the graph without them."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes = [node for node in graph.walk() if node.op is not None]
        self.results = set(graph.results)
        self.users = {e: list(dict.fromkeys(n)) for e, n in graph.readers().items()}
        self.plain = set(filter(_is_plain, self.nodes))
        ends = (n for n in self.nodes if n in self.plain or _ends_product(n))
        #: The operations of the nodes that may recompute what they read.
        self.lengths = {node: len(_steps(node)) for node in ends}
        #: The formulas of arrays that are no longer stored; the arrays these read must be stored.
        self.dropped: dict[Entry, _Formula] = {}
        self.needed: set[Entry] = set()

    def run(self) -> Graph:
        for node in self.nodes:
            if any(e in self.dropped for e in node.inputs):
                continue
            if node in self.plain or (len(node.entries) > 1 and node in self.lengths):
                self._look(node)
        return self._rebuilt() if self.dropped else self.graph

    def _look(self, node: Node) -> None:
        """Drop the results of a node that cost less to recompute."""
        domain: Domain | None = None
        for entry, output in zip(node.entries, node.params["body"].outputs, strict=True):
            users = self.users.get(entry, [])
            if not users or entry in self.results or not self.lengths.keys() >= set(users):
                continue
            if node in self.plain:
                domain = domain or _domain(_steps(node))
                if domain is None:
                    return
            formula = _Formula(node, output, domain, self.dropped)
            if formula.possible and self._pays(entry, formula, users):
                self.dropped[entry] = formula
                self.needed.update(formula.outside[each] for each in formula.read)
                for user in users:
                    self.lengths[user] += len(formula.steps)

    def _pays(self, entry: Entry, formula: _Formula, users: Sequence[Node]) -> bool:
        """Whether all readers of an array can recompute it, and fewer bytes move if they do."""
        read = [formula.outside[each] for each in formula.read]
        more = sum(bytes_of(e) for user in users for e in read if e not in set(user.inputs))
        if entry in self.needed or more >= (2 + len(users)) * bytes_of(entry):
            return False
        if not self.plain.issuperset(users) and self._waiting(read, users) > bytes_of(entry):
            return False
        # A reader that broadcasts it would recompute each element many times.
        if any(
            elements_of(e.shape) > elements_of(entry.shape)
            for u in self.plain.intersection(users)
            for e in u.inputs + u.entries
        ):
            return False
        return all(self._fits(user, entry, formula) for user in users)

    def _waiting(self, read: Iterable[Entry], users: Sequence[Node]) -> int:
        """The bytes of arrays that would stay in memory only for these readers to read them.

        Before such a product there may be others with large results, as in a residual block.
        """
        there = {*self.results, *(e for user in users for e in user.inputs)}
        return sum(bytes_of(e) for e in read if e.node.op is not None and e not in there)

    def _fits(self, user: Node, entry: Entry, formula: _Formula) -> bool:
        """Whether the loops of a reader, or the epilogue of its product, can compute the array."""
        most = LARGEST_BODY if user in self.plain else LARGEST_EPILOGUE
        if self.lengths[user] + len(formula.steps) > most:
            return False
        body, _ = _computing(user, {entry: formula})
        nodes = [node for node in body.walk() if node.op is not None]
        if user not in self.plain:
            return not formula.rows and _is_epilogue(nodes, len(_before_product(_steps(user))))
        domain = _domain(nodes)
        return domain is not None and all(domain.writes_once(e.node) for e in body.outputs)

    def _rebuilt(self) -> Graph:
        """The graph without the dropped arrays, which their readers recompute."""
        replaced: dict[Entry, Entry] = {}
        for node in self.nodes:
            given = {e: self.dropped[e] for e in node.inputs if e in self.dropped}
            own = {e: self.dropped[e] for e in node.entries if e in self.dropped}
            if given:
                body, inputs = _computing(node, given)
                names = list(node.entries)
            elif own:
                body, names = _without(node, own)
                inputs = list(node.inputs)
            else:
                copy_into(replaced, node)
                continue
            if names:
                new = _kernel(body, [replaced.get(e, e) for e in inputs])
                replaced.update(zip(names, new.entries, strict=True))
        return substitute_results(self.graph, replaced)


def _kernel(body: Graph, inputs: Sequence[Entry]) -> Node:
    """A fused node of this body."""
    specs = tuple(entry.spec for entry in body.outputs)
    return Node(fused, tuple(inputs), {"body": body}, specs)


def _computing(user: Node, given: dict[Entry, _Formula]) -> tuple[Graph, list[Entry]]:
    """The body of a reader that recomputes these inputs, and its new inputs.

    Values of `rows` are named by their entries in the body that computes them.
    """
    own: Graph = user.params["body"]
    inside = dict(zip(user.inputs, own.inputs, strict=True))
    arguments = {e: p for e, p in inside.items() if e not in given}
    found: dict[Entry, Entry] = {}
    for entry, formula in given.items():
        read = {each: formula.outside[each] for each in formula.read} | {r: r for r in formula.rows}
        for outside in read.values():
            arguments.setdefault(outside, placeholder(outside.spec))
        known = {each: arguments[outside] for each, outside in read.items()}
        found[inside[entry]] = formula.written_in(known)
    outputs = inline(own, [found.get(p, p) for p in own.inputs])
    return Graph(arguments.values(), outputs, name="body"), list(arguments)


def _without(node: Node, dropped: dict[Entry, _Formula]) -> tuple[Graph, list[Entry]]:
    """A node's body that stores rows instead of the dropped results, and its results' names."""
    own: Graph = node.params["body"]
    pairs = {e: p for e, p in zip(node.entries, own.outputs, strict=True) if e not in dropped}
    pairs |= {row: row for formula in dropped.values() for row in formula.rows}
    return Graph(own.inputs, pairs.values(), name="body"), list(pairs)


def fuse_sums(graph: Graph) -> Graph:
    """Merge reductions over the same loops that read the same array: it is then read once.

    Only nodes at the same depth of the graph are merged, so none depends on another. Nodes that
    lead only to results count as the deepest.
    """
    nodes = [node for node in graph.walk() if node.op is not None]
    sums = [node for node in nodes if _sums(node) and _is_plain(node)]
    if len(sums) < 2:
        return graph
    order = _order(graph, nodes)
    groups = _groups(sums, order, exposures(graph, can_fail))
    firsts = {group.nodes[0]: group for group in groups if len(group.nodes) > 1}
    if not firsts:
        return graph
    later = {node for group in firsts.values() for node in group.nodes[1:]}
    replaced: dict[Entry, Entry] = {}
    for node in sorted(nodes, key=order.__getitem__):
        if node in later:
            continue
        group = firsts.get(node) or _Merged([node], node)
        new = copy_node(group.kernel, tuple(replaced.get(e, e) for e in group.kernel.inputs))
        before = [entry for each in group.nodes for entry in each.entries]
        replaced.update(zip(before, new.entries, strict=True))
    return substitute_results(graph, replaced)


class _Merged(NamedTuple):
    """Reductions, and one kernel that computes them all."""

    nodes: list[Node]
    kernel: Node


def _order(graph: Graph, nodes: Sequence[Node]) -> dict[Node, float]:
    """The depth of each node in the graph; infinite for `_ends`."""
    found: dict[Node, float] = {}
    for node in nodes:
        found[node] = 1 + max((found.get(entry.node, 0) for entry in node.inputs), default=0)
    return found | dict.fromkeys(_ends(graph, nodes), inf)


def _ends(graph: Graph, nodes: Sequence[Node]) -> set[Node]:
    """The nodes whose results nothing reads but views."""
    readers = graph.readers()
    found: set[Node] = set()
    for node in reversed(nodes):
        read = [user for entry in node.entries for user in readers.get(entry, ())]
        if all(is_view(user) and user in found for user in read):
            found.add(node)
    return found


def _groups(
    sums: Sequence[Node], order: dict[Node, float], risks: dict[Node, int]
) -> Iterable[_Merged]:
    """The reductions in groups that can be one kernel and depend on the same failures."""
    found: dict[Node, _Merged] = {}  # by the first of each
    firsts: dict[tuple[Entry, float, int], Node] = {}
    for node in sums:
        most = max(elements_of(entry.shape) for entry in node.inputs)
        large = [entry for entry in node.inputs if elements_of(entry.shape) == most]
        keys = [(entry, order[node], risks[node]) for entry in large]
        first = next((firsts[key] for key in keys if key in firsts), None)
        others = [] if first is None else found[first].nodes
        kernel = _unite([*others, node]) if others else None
        if first is None or kernel is None:
            first, others, kernel = node, [], node
        found[first] = _Merged([*others, node], kernel)
        firsts |= dict.fromkeys(keys, first)
    return found.values()


def _sums(node: Node) -> bool:
    """Whether a kernel writes far less than it reads."""
    if node.op is not fused or not node.inputs:
        return False
    most = max(map(bytes_of, node.inputs))
    return all(bytes_of(entry) * SMALL <= most for entry in node.entries)


def _reduces(domain: Domain, body: Graph) -> bool:
    """Whether all results are reduced: one number for each row."""
    reduced = domain.reduced or frozenset()
    return bool(reduced) and not any(
        place in reduced and not same_for_all(extent, 1)  # 1: kept by `keepdims`
        for entry in body.outputs
        for place, extent in zip(domain.placements[entry], entry.shape, strict=True)
    )


def _unite(nodes: Sequence[Node]) -> Node | None:
    """One fused node that computes all of these; None if they have no common loops."""
    arguments: dict[Entry, Entry] = {}
    outputs: list[Entry] = []
    for node in nodes:
        given = [arguments.setdefault(e, placeholder(e.spec)) for e in node.inputs]
        outputs += inline(node.params["body"], given)
    body = Graph(arguments.values(), outputs, name="body")
    made = _kernel(body, list(arguments))
    whole = _domain(_steps(made))
    if whole is None or len(_steps(made)) > LARGEST_BODY or not _reduces(whole, body):
        return None
    shape, reduced = whole.shape, whole.reduced
    own = [_domain(_steps(node)) for node in nodes]
    same = (d and same_shape_for_all(d.shape, shape) and d.reduced == reduced for d in own)
    return made if all(same) else None


__all__ = ["fuse_sums", "recompute"]

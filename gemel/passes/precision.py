"""mixed: under a mixed precision, products are computed in two-byte dtypes.

The graph stays in float32, as it was traced: its inputs, its results and everything between
products. Only a product reads its factors rounded; where it can, it returns its sums unrounded.
Decision 0108 has the reasons.
"""

from __future__ import annotations

from typing import Any

from gemel.dtype import DType, bfloat16, float16, float32
from gemel.ir.graph import Entry, Graph, Node, copy_node, placeholder, rewrite
from gemel.ir.loops import LoopSpec
from gemel.ir.op_kinds import Composite
from gemel.ir.precision import LOW, WIDEST
from gemel.ir.trace import Trace
from gemel.ops import shape
from gemel.ops.elementwise import cast
from gemel.ops.rounds import loop
from gemel.passes.simplify import frozen


def mixed(graph: Graph) -> Graph:
    """The graph, with nodes that carry a precision computed in that precision.

    Inputs, outputs and updates keep their specs. Nodes without a precision stay as they are.
    """
    if not _carries_any(graph):
        return graph
    with Trace():
        mixing = _Mixing()
        return _rounded_once(mixing.of(graph), mixing.casts)


def _carries_any(graph: Graph) -> bool:
    nodes = graph.walk()
    inner = (value for node in nodes for value in node.params.values() if isinstance(value, Graph))
    return any(node.precision is not None for node in nodes) or any(map(_carries_any, inner))


class _Mixing:
    """One run of the pass over a graph."""

    def __init__(self) -> None:
        #: The entries that were rounded for products, and the rounded entries.
        self.casts: dict[Entry, Entry] = {}
        self._low: dict[tuple[Entry, DType], Entry] = {}
        #: Composites whose bodies contain no products, by all that this depends on.
        self._plain: set[Any] = set()

    def of(self, graph: Graph) -> Graph:
        """The graph, with products of rounded factors."""
        return rewrite(graph, self._rule)

    def _rule(self, node: Node, inputs: tuple[Entry, ...]) -> tuple[Entry, ...] | None:
        inner = {name: mixed(v) for name, v in node.params.items() if isinstance(v, Graph)}
        if any(node.params[name] is not graph for name, graph in inner.items()):
            if node.op is loop:
                return self._looped(node, inputs, LoopSpec(**{**node.params, **inner}))
            made = copy_node(node, inputs)
            made.params = {**node.params, **inner}
            return made.entries
        if node.precision is None:
            return None
        if node.precision.of(node) == LOW:
            return self._computed_low(node, inputs)
        return self._opened(node, inputs) if self._opens(node) else None

    # --- products -----------------------------------------------------------------------------

    def _computed_low(self, node: Node, inputs: tuple[Entry, ...]) -> tuple[Entry, ...] | None:
        """The node's results, computed from rounded inputs, in the dtypes they had before."""
        assert node.op is not None
        dtype = node.precision.dtype
        given = [e.dtype for e in inputs if e.dtype.is_floating and not e.spec.weak]
        if float32 not in given or any(each not in (float32, dtype) for each in given):
            return None
        rounded = tuple(
            self._in_low(e, dtype) if e.dtype is float32 and not e.spec.weak else e for e in inputs
        )
        op = node.op.rules.unrounded or node.op
        made = op.node(rounded, node.params)
        made.name, made.origin, made.part = node.name, node.origin, node.part
        pairs = zip(made.entries, node.specs, strict=True)
        return tuple(
            entry if entry.dtype is spec.dtype else _cast(entry, spec.dtype)
            for entry, spec in pairs
        )

    def _in_low(self, entry: Entry, dtype: DType) -> Entry:
        """A float32 entry, rounded. Of a view, the viewed entry is rounded instead."""
        known = self._low.get((entry, dtype))
        if known is None:
            known = self._low[entry, dtype] = self._rounded(entry, dtype)
        return known

    def _rounded(self, entry: Entry, dtype: DType) -> Entry:
        node = entry.node
        if node.op is cast and node.inputs[0].dtype is dtype:
            return node.inputs[0]
        if _shows_all(node):
            assert node.op is not None
            made = node.op.node((self._in_low(node.inputs[0], dtype),), node.params)
            made.origin = node.origin
            return made.entries[entry.index]
        found = self.casts[entry] = _cast(entry, dtype)
        return found

    # --- loops --------------------------------------------------------------------------------

    def _looped(self, node: Node, inputs: tuple[Entry, ...], spec: LoopSpec) -> tuple[Entry, ...]:
        """A loop in which values that each round would round are rounded once, before the loop.

        Its gradient is then one product over all rounds, as it is without rounding.
        """
        elements, shared = dict.fromkeys(spec.elements), dict.fromkeys(spec.shared)
        given = dict(zip(spec.step.inputs, inputs, strict=True))

        def lifted(inner: Node, own: tuple[Entry, ...]) -> tuple[Entry, ...] | None:
            group = next((each for each in (elements, shared) if own and own[0] in each), None)
            if inner.op is not cast or group is None or own[0].dtype is not float32:
                return None
            if inner.specs[0].dtype not in (bfloat16, float16):
                return None
            stand = placeholder(inner.specs[0])
            group[stand], given[stand] = None, self._in_low(given[own[0]], stand.dtype)
            return (stand,)

        made = rewrite(spec.step, lifted)
        read = {e for each in made.walk() for e in each.inputs} | {*made.outputs, spec.asked}
        parts = [[entry for entry in group if entry in read] for group in (elements, shared)]
        lower = LoopSpec.made(
            (parts[0], spec.carried, parts[1]),
            made.outputs,
            length=spec.length,
            reverse=spec.reverse,
            asked=spec.asked,
            name=spec.step.name,
        )
        found = copy_node(node, tuple(given[entry] for entry in lower.step.inputs))
        found.params = lower.parameters
        return found.entries

    # --- composites ---------------------------------------------------------------------------

    def _opens(self, node: Node) -> bool:
        """Whether a node may be replaced by its body: no precision was declared for the node
        itself."""
        op = node.op
        if not isinstance(op, Composite) or op.declared_precision or node.precision.asks(node):
            return False
        return not op.updates

    def _opened(self, node: Node, inputs: tuple[Entry, ...]) -> tuple[Entry, ...] | None:
        """The body of a composite if it contains products, else None."""
        key = node.op, frozen(node.params), tuple((e.ndim, e.dtype.code) for e in inputs)
        if key in self._plain:
            return None
        body = _body(node, inputs)
        if not self._multiplies(body):
            self._plain.add(key)
            return None
        return self.of(body).outputs

    def _multiplies(self, graph: Graph) -> bool:
        """Whether a graph, or the body of a composite in it, contains a product."""
        for node in graph.walk():
            if node.precision is None or node.op is None:
                continue
            if node.precision.of(node) == LOW:
                return True
            if self._opens(node) and self._multiplies(_body(node, node.inputs)):
                return True
        return False


def _body(node: Node, inputs: tuple[Entry, ...]) -> Graph:
    """The body of a composite; its nodes carry the composite's precision."""
    assert isinstance(node.op, Composite)
    trace = Trace()
    trace.line, trace.part = node.origin, node.part or node.op.name
    trace.precision = node.precision
    with trace:
        return Graph(inputs, node.op.written_out(inputs, node.params))


def _shows_all(node: Node) -> bool:
    """Whether a node shows all elements of its input in another order or shape, or repeated."""
    op = node.op
    return (
        op is not None
        and op.rules.view is not None
        and (bool(op.alignment) or op is shape.transpose)
    )


def _cast(entry: Entry, dtype: DType) -> Entry:
    found: Entry = cast.node((entry,), {"dtype": dtype}).entries[0]
    return found


def _rounded_once(graph: Graph, casts: dict[Entry, Entry]) -> Graph:
    """Let other nodes, too, read the rounded values that products read, so that only these are
    stored.

    This applies to results of operations that compute little. Operations that compute in float32 on
    purpose, and the graph's inputs and results, are left alone.
    """
    readers, results = graph.readers(), set(graph.results)
    chosen = {
        entry: low
        for entry, low in casts.items()
        if entry not in results and len(readers.get(entry, ())) > 1 and _computes_little(entry.node)
    }
    if not chosen:
        return graph
    cut = {low.node for low in chosen.values()}

    def rule(node: Node, inputs: tuple[Entry, ...]) -> tuple[Entry, ...] | None:
        if node in cut:
            return (inputs[0].node.inputs[0],)
        if chosen.keys().isdisjoint(node.entries):
            return None
        made = copy_node(node, inputs).entries
        pairs = zip(node.entries, made, strict=True)
        return tuple(
            _cast(_cast(new, chosen[old].dtype), new.dtype) if old in chosen else new
            for old, new in pairs
        )

    return rewrite(graph, rule)


def _computes_little(node: Node) -> bool:
    if node.op is None or node.precision is None:
        return False
    return bool(node.precision.of(node) == WIDEST)


__all__ = ["mixed"]

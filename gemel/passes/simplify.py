"""Small passes: expand composites, fold constants, drop what changes nothing, merge duplicates."""

from __future__ import annotations

from typing import Any

from gemel.extent import Dim
from gemel.ir.graph import Entry, Graph, Node, constant, copy_node, inline, rewrite
from gemel.ir.layout import dense
from gemel.ir.op_kinds import Composite, Elementwise
from gemel.ir.trace import Trace
from gemel.ops import linalg, shape
from gemel.ops.elementwise import full
from gemel.ops.shape import axis_order
from gemel.passes.domain import is_view
from gemel.spec import Spec, same_shape_for_all

# --- expand ---------------------------------------------------------------------------------


def expand(graph: Graph) -> Graph:
    """Composites become their bodies; products of dtypes without a kernel become several."""
    return _Expansion().of(graph)


def inline_light_composites(graph: Graph) -> Graph:
    """Composites of elementwise operations and reductions become their bodies.

    Composites that contract, draw random numbers, overwrite or have a `planned` rule stay.
    """
    return _Expansion(whole=False).of(graph)


class _Expansion:
    """One run of the pass. The body is traced once for equal calls and copied for the others."""

    def __init__(self, whole: bool = True) -> None:
        self.whole = whole
        self.bodies: dict[Any, Graph] = {}

    def of(self, graph: Graph) -> Graph:
        """The graph without composites."""
        return rewrite(graph, self.rule)

    def rule(self, node: Node, inputs: tuple[Entry, ...]) -> tuple[Entry, ...] | None:
        """The entries that replace a node, or None."""
        if not self.whole and not _opens(node):
            return None
        if isinstance(node.op, Composite):
            key = _call_key(node, inputs)
            if key is None:
                return self._body(node, inputs).outputs
            if key in self.bodies:
                return inline(self.bodies[key], inputs)
            self.bodies[key] = self._body(node, inputs)
            return self.bodies[key].outputs
        if node.op not in (linalg.matmul, linalg.wide_matmul):
            return None
        wide = node.op is linalg.wide_matmul
        with part_of(node):
            found = (linalg.decompose_wide if wide else linalg.decompose)(*inputs)
        return None if found is None else (found,)

    def _body(self, node: Node, inputs: tuple[Entry, ...]) -> Graph:
        """The body of a composite, with composites in it expanded."""
        assert isinstance(node.op, Composite)
        with part_of(node):
            return self.of(Graph(inputs, node.op.in_plan(inputs, node.params)))


def _opens(node: Node) -> bool:
    """Whether a node is a composite that plans compute by its body, and that has no effects."""
    op = node.op
    if not isinstance(op, Composite) or op.rules.planned is not None:
        return False
    return not (op.contracts or op.random or op.updates)


def part_of(node: Node) -> Trace:
    """A trace for the body of a node, labelled with the node's line and operation."""
    assert node.op is not None
    trace = Trace()
    trace.line, trace.part = node.origin, node.part or node.op.name
    return trace


def _call_key(node: Node, inputs: tuple[Entry, ...]) -> Any:
    """A key of what a composite's body depends on: specs and parameters.

    None where it may depend on more: on the values of numbers, or on two inputs being the same.
    """
    assert node.op is not None
    if node.op.random or node.op.updates or len(set(inputs)) < len(inputs):
        return None
    if any(entry.node.is_constant or entry.spec.weak for entry in inputs):
        return None
    specs = tuple([(frozen(entry.shape), entry.dtype.code) for entry in inputs])
    return node.op, specs, frozen(node.params), node.origin, node.part


# --- fold -----------------------------------------------------------------------------------


def fold(graph: Graph) -> Graph:
    """Operations on numbers become their results."""
    return rewrite(graph, _folded)


def _folded(node: Node, inputs: tuple[Entry, ...]) -> tuple[Entry, ...] | None:
    op = node.op
    if op is None or not node.specs[0].weak:
        return None
    numbers = [entry.node.value for entry in inputs if entry.node.is_number]
    if len(numbers) != len(inputs) or any(isinstance(number, Dim) for number in numbers):
        return None
    found = op.on_numbers(tuple(entry.spec for entry in inputs), node.params, numbers)
    return None if found is None else tuple(map(constant, found))


# --- drop -----------------------------------------------------------------------------------


def drop(graph: Graph) -> Graph:
    """Operations that change nothing become their input: x * 1, a cast to the same dtype. A view of
    one number repeated becomes that number repeated, which no kernel needs to have in memory."""
    return rewrite(graph, _dropped)


def _dropped(node: Node, inputs: tuple[Entry, ...]) -> tuple[Entry, ...] | None:
    op = node.op
    if isinstance(op, Elementwise):
        unchanged = op.unchanged is not None and op.unchanged(*inputs)
        return (inputs[0],) if unchanged and inputs[0].spec == node.specs[0] else None
    if not is_view(node):
        return None
    if _sees_all(node, inputs[0].spec):
        return (inputs[0],)
    return _filled(node, inputs[0].node)


def _filled(node: Node, source: Node) -> tuple[Entry, ...] | None:
    """The results of a view of an array that is filled with a number; None for other arrays."""
    alike = all(spec.dtype is source.specs[0].dtype for spec in node.specs)
    if source.op is not full or not source.inputs[0].spec.weak or not alike:
        return None
    given = [{"shape": spec.shape, "dtype": spec.dtype.name} for spec in node.specs]
    return tuple(full.apply(source.inputs, parameters)[0] for parameters in given)


def _sees_all(node: Node, spec: Spec) -> bool:
    """Whether a view shows an array unchanged, whatever the sizes."""
    assert node.op is not None
    (seen, *others) = node.specs
    same = seen.dtype is spec.dtype and same_shape_for_all(seen.shape, spec.shape)
    if others or not same:
        return False
    whole = dense(spec.shape)
    layouts = node.op.layouts(whole, node.specs, node.params)
    return layouts is not None and layouts[0].is_same_for_all(whole)


# --- transpose_products ---------------------------------------------------------------------


def transpose_products(graph: Graph) -> Graph:
    """(a @ b).T becomes b.T @ a.T: kernels read operands in any order, a result would be moved.

    So the gradient of a weight used as `x @ weight.T` is computed in the weight's layout.
    """
    uses = graph.uses()

    def transposed(node: Node, inputs: tuple[Entry, ...]) -> tuple[Entry, ...] | None:
        if node.op is not shape.transpose or not _swaps_last_two(node):
            return None
        product, original = inputs[0].node, node.inputs[0]
        if product.op is not linalg.matmul or uses[original] > 1:
            return None
        a, b = product.inputs
        if a.ndim < 2 or b.ndim < 2:
            return None
        return (linalg.matmul(transposed_last(b), transposed_last(a)),)

    return drop(rewrite(graph, transposed))


def _swaps_last_two(node: Node) -> bool:
    ndim = node.inputs[0].ndim
    order = axis_order(ndim, node.params["axes"])
    return ndim >= 2 and order == (*range(ndim - 2), ndim - 1, ndim - 2)


def transposed_last(entry: Entry) -> Entry:
    """An entry with its last two axes swapped; the source if it is such a transposition."""
    node = entry.node
    if node.op is shape.transpose and _swaps_last_two(node):
        return node.inputs[0]
    found: Entry = shape.swapaxes(entry, -1, -2)
    return found


# --- merge ----------------------------------------------------------------------------------


def merge(graph: Graph) -> Graph:
    """Equal operations on equal inputs become one, except random ones.

    Dead code needs no pass: what the outputs do not need is not part of a graph.
    """
    found: dict[Any, tuple[Entry, ...]] = {}
    numbers: dict[Any, Entry] = {}

    def shared(entry: Entry) -> Entry:
        if not entry.node.is_number:
            return entry
        value = entry.node.value
        return numbers.setdefault((type(value), repr(value)), entry)

    def merged(node: Node, inputs: tuple[Entry, ...]) -> tuple[Entry, ...] | None:
        assert node.op is not None
        if node.op.random or node.op.updates:
            return None
        inputs = tuple([shared(entry) for entry in inputs])
        key = node.op, inputs, frozen(node.params)
        if key not in found:
            changed = any(a is not b for a, b in zip(inputs, node.inputs, strict=True))
            found[key] = copy_node(node, inputs).entries if changed else node.entries
        return found[key]

    return rewrite(graph, merged)


def frozen(value: Any) -> Any:
    """A parameter as a hashable key that tells 2, 2.0 and True apart, and 0.0 from -0.0."""
    if type(value) is int or value is None:
        return value
    if isinstance(value, dict):
        return tuple([(name, frozen(item)) for name, item in value.items()])
    if isinstance(value, tuple):
        for item in value:
            if type(item) is not int:
                return tuple([frozen(item) for item in value])
        return value
    if isinstance(value, Dim):
        return "dim", value.form
    if isinstance(value, Graph):
        return Graph, id(value)
    return type(value), repr(value) if isinstance(value, (float, complex)) else value

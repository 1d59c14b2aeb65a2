"""gradient: reverse-mode differentiation. The gradient of a graph is another graph.

Given outputs, the gradients that arrive at them ("heads", the cotangents of JAX) and inputs, it
walks the nodes backwards. Each node's rule turns the gradients of its outputs into nodes for those
of its inputs; gradients that arrive at one entry by several ways are added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from gemel.errors import GradientError
from gemel.extent import seen
from gemel.ir.current import current_trace
from gemel.ir.graph import Entry, Graph, Node, copy_node, walk
from gemel.ir.methods import call
from gemel.ir.op import Op, find
from gemel.ir.op_kinds import Composite
from gemel.ops.elementwise import add, cast, full
from gemel.ops.reduction import sum
from gemel.ops.shape import reshape


def gradient(
    outputs: Sequence[Entry], heads: Sequence[Entry], inputs: Sequence[Entry]
) -> tuple[Entry, ...]:
    """The gradients of `inputs`, given those (`heads`) of `outputs`; zeros where none arrives.

    They are partial derivatives: if one input is computed from another, the way through it does not
    count for the other. Each has its input's shape and dtype. Raises `GradientError` naming an
    operation on the way that has no gradient.
    """
    nodes = walk(outputs, inputs)
    return _through(nodes, dependents(nodes, inputs), outputs, heads, inputs)


def total_gradient(
    outputs: Sequence[Entry],
    heads: Sequence[Entry],
    inputs: Sequence[Entry],
    passed: Callable[[Node], bool],
) -> tuple[Entry, ...]:
    """As `gradient`, but total derivatives: an input may be computed from another one.

    Nodes that are not `passed` count as constants.
    """
    nodes = walk(outputs)
    needed = dependents(filter(passed, nodes), inputs)
    return _through(nodes, needed, outputs, heads, inputs)


def _through(
    nodes: Sequence[Node],
    needed: set[Entry],
    outputs: Sequence[Entry],
    heads: Sequence[Entry],
    inputs: Sequence[Entry],
) -> tuple[Entry, ...]:
    """The gradients that arrive at the inputs through `needed` entries of these ordered nodes."""
    arrived: dict[Entry, Entry] = {}
    for entry, head in zip(outputs, heads, strict=True):
        accumulate(arrived, entry, head)
    for node in reversed(nodes):
        if node.op is None or not any(entry in needed for entry in node.inputs):
            continue
        pass_back(node, arrived, needed)
    return tuple(arrived[entry] if entry in arrived else zeros(entry) for entry in inputs)


def dependents(nodes: Iterable[Node], inputs: Iterable[Entry]) -> set[Entry]:
    """The inputs, and all floating entries of `nodes` that depend on one of them."""
    needed = set(inputs)
    for node in nodes:
        if any(entry in needed for entry in node.inputs):
            needed.update(entry for entry in node.entries if entry.dtype.is_inexact)
    return needed


def dependencies(outputs: Sequence[Entry], ends: Callable[[Node], bool]) -> dict[Entry, int]:
    """The floating entries a gradient of the outputs can reach, as bit sets of those outputs.

    Bit i is set if a gradient of output i reaches the entry. None passes a node that `ends` them.
    """
    found: dict[Entry, int] = {}
    for position, entry in enumerate(outputs):
        if entry.dtype.is_inexact:
            found[entry] = found.get(entry, 0) | 1 << position
    for node in reversed(walk(outputs)):
        bits = 0
        for entry in node.entries:
            bits |= found.get(entry, 0)
        if bits and not ends(node):
            for entry in node.inputs:
                if entry.dtype.is_inexact:
                    found[entry] = found.get(entry, 0) | bits
    return found


def with_heads(
    backward: Graph, arguments: Sequence[Entry | None], heads: Sequence[Entry]
) -> tuple[Entry | None, ...]:
    """The outputs of a gradient graph, where arguments of `heads` may be None: no gradient arrived.

    A gradient is linear in its heads, so what depends only on missing ones is missing, too, and is
    None. Zeros instead would give NaN when multiplied by a derivative that is not finite.
    """
    pairs = list(zip(backward.inputs, arguments, strict=True))
    found: dict[Entry, Entry] = {entry: given for entry, given in pairs if given is not None}
    missing = {entry for entry, given in pairs if given is None}
    led = {entry for entry in heads if entry not in missing}
    for node in backward.walk():
        if node.op is None:
            continue
        from_some = any(entry in led for entry in node.inputs)
        if not from_some and any(entry in missing for entry in node.inputs):
            missing.update(node.entries)
            continue
        inputs = [zeros(e) if e in missing else found.get(e, e) for e in node.inputs]
        if from_some:
            led.update(node.entries)
        found.update(zip(node.entries, copy_node(node, tuple(inputs)).entries, strict=True))
    return tuple(None if e in missing else found.get(e, e) for e in backward.outputs)


def pass_back(node: Node, arrived: dict[Entry, Entry], needed: set[Entry]) -> None:
    """Apply a node's rule to the gradients of its outputs, and add the results to its inputs'."""
    gs = tuple(arrived.get(entry) for entry in node.entries)
    if all(g is None for g in gs):
        return
    with _part_of(node):
        for entry, g in zip(node.inputs, rule(node, gs, needed), strict=True):
            if g is not None and entry in needed:
                accumulate(arrived, entry, like(g, entry))


@contextmanager
def _part_of(node: Node) -> Iterator[None]:
    """A `with` block whose nodes are labelled as the gradient of a node's operation."""
    trace = current_trace()
    if trace is None or trace.part or node.op is None:
        yield
        return
    trace.part = f"{node.part or node.op.name} backward"
    try:
        yield
    finally:
        trace.part = ""


def rule(
    node: Node, gs: tuple[Entry | None, ...], needed: set[Entry] | None = None
) -> Sequence[Any]:
    """One gradient (or None) per input, by the operation's own rule, else by that of its body.

    Gradients of inputs that are not `needed` may be None.
    """
    op = node.op
    assert op is not None
    if op.rules.backward is not None:
        inexact = [e.dtype.is_inexact and not e.spec.weak for e in node.inputs]
        known = [needed is None or entry in needed for entry in node.inputs]
        wanted = [a and b for a, b in zip(inexact, known, strict=True)]
        found: Sequence[Any] = op.rules.backward(node, gs, wanted)
        return found
    declared = op.rules.gradient
    if declared is not None and not _is_beyond(op, gs):
        # The gradient of a holomorphic function is g times the conjugate of its derivative; its
        # rule says g times the derivative.
        gs = tuple(map(conjugate, gs)) if op.is_holomorphic else gs
        several = len(node.entries) > 1
        g: Any = gs if several else gs[0]
        y: Any = node.entries if several else node.entries[0]
        # Rules do not take the number of a random call.
        parameters = {name: value for name, value in node.params.items() if name != "call"}
        given = _checked(op, declared(g, y, *node.inputs, **parameters), node.inputs)
        return [conjugate(each) for each in given] if op.is_holomorphic else given
    if isinstance(op, Composite):
        body = op.written_out(node.inputs, node.params)
        pairs = [(y, g) for y, g in zip(body, gs, strict=True) if g is not None]
        distinct = tuple(dict.fromkeys(node.inputs))
        parts = gradient([y for y, _ in pairs], [g for _, g in pairs], distinct)
        once = dict(zip(distinct, parts, strict=True))
        # An entry that is an input twice gets its whole gradient at its first place.
        return [once.pop(entry, None) for entry in node.inputs]
    if not any(entry.dtype.is_inexact for entry in node.entries):
        return (None,) * len(node.inputs)
    raise GradientError(f"{op.name} has no gradient; if you need none, use detach() on its input")


def _checked(op: Op, found: Any, inputs: tuple[Entry, ...]) -> Sequence[Any]:
    """What a gradient's rule has returned: one entry or None for each input.

    Raises `GradientError` for anything else. Optional inputs may be missing in this call.
    """
    most = max(len(inputs), op.arity)
    several = isinstance(found, (tuple, list)) and len(inputs) <= len(found) <= most
    if not several or not all(g is None or isinstance(g, Entry) for g in found):
        raise GradientError(
            f"{op.name}: its gradient rule must return a tuple with an array or None for each of "
            f"the {len(inputs)} inputs, not {found!r}"
        )
    for g, x in zip(found, inputs, strict=False):
        if g is not None and x.dtype.is_inexact and not _sums_to(g.shape, x.shape):
            raise GradientError(
                f"{op.name}: its gradient rule has returned {g.spec} for an input of {x.spec}; "
                "their shapes must be equal"
            )
    return found[: len(inputs)]  # type: ignore[no-any-return]


def _sums_to(shape: Sequence[Any], whole: Sequence[Any]) -> bool:
    """Whether a gradient of this shape, summed over axes added by broadcasting, has the other.

    Free extents are compared as they were seen: a guard would make the program one for fewer sizes.
    """
    lead = len(shape) - len(whole)
    pairs = zip(shape[max(lead, 0) :], whole, strict=False)
    return lead >= 0 and all(seen(m) in (1, seen(n)) for n, m in pairs)


def _is_beyond(op: Op, gs: tuple[Entry | None, ...]) -> bool:
    """Whether a gradient arrived at results of a composite that its rule does not cover."""
    return isinstance(op, Composite) and any(g is not None for g in gs[op.ruled :])


def accumulate(arrived: dict[Entry, Entry], entry: Entry, g: Entry) -> None:
    """Add a gradient to those that have arrived at an entry."""
    arrived[entry] = add(arrived[entry], g) if entry in arrived else g


def like(g: Entry, entry: Entry) -> Entry:
    """A gradient in its input's dtype and shape: summed over axes added by broadcasting, real if
    the input is real.
    """
    g = unbroadcast(g, entry)
    if g.dtype.is_complex and not entry.dtype.is_complex:
        g = call("real", g)
    return g if g.dtype is entry.dtype else cast(g, dtype=entry.dtype)


def unbroadcast(g: Entry, entry: Entry) -> Entry:
    """g, summed over the axes along which `entry` was broadcast."""
    shape = entry.shape
    lead = g.ndim - len(shape)
    repeated = [a for a, n in enumerate(shape, start=lead) if n == 1 and not g.shape[a] == 1]
    axes = (*range(lead), *repeated)
    if axes:
        g = sum(g, axis=axes, keepdims=True)
    return reshape(g, shape=shape) if lead > 0 else g


def conjugate(g: Any) -> Any:
    """The conjugate of a gradient; the gradient itself if it is real, and None if it is None."""
    if g is None or not isinstance(g, Entry) or not g.dtype.is_complex:
        return g
    conj = find("conj")
    return g.node.inputs[0] if g.node.op is conj else conj(g)


def zeros(entry: Entry) -> Entry:
    """Zeros of an entry's shape and dtype."""
    found: Entry = full.apply((0,), {"shape": entry.shape, "dtype": entry.dtype})[0]
    return found

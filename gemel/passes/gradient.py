"""gradient: reverse-mode differentiation. The gradient of a graph is another graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from gemel.errors import GradientError
from gemel.ir.graph import Entry, Graph, Node, copy_node, walk
from gemel.ir.methods import call
from gemel.ir.op import Op, find
from gemel.ir.op_kinds import Composite
from gemel.ir.trace import current_trace
from gemel.ops.elementwise import add, cast, full
from gemel.ops.reduction import sum
from gemel.ops.shape import reshape


def gradient(
    outputs: Sequence[Entry], heads: Sequence[Entry], inputs: Sequence[Entry]
) -> tuple[Entry, ...]:
    """The gradients of `inputs`, given those (`heads`) of `outputs`; zeros where none arrives.

    They are partial ones: what the inputs are computed from does not matter. Each has exactly its
    input's shape and dtype. Raises `GradientError` naming an operation that lies on the way and has
    no gradient.
    """
    nodes = walk(outputs, inputs)
    return _through(nodes, dependents(nodes, inputs), outputs, heads, inputs)


def total_gradient(
    outputs: Sequence[Entry],
    heads: Sequence[Entry],
    inputs: Sequence[Entry],
    passed: Callable[[Node], bool],
) -> tuple[Entry, ...]:
    """As `gradient`, but total ones: an input may be computed from another one.

    Other nodes than `passed` ones are taken to depend on no input.
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
    """What arrives at the inputs, by way of the `needed` entries of nodes in their order."""
    arrived: dict[Entry, Entry] = {}
    for entry, head in zip(outputs, heads, strict=True):
        accumulate(arrived, entry, head)
    for node in reversed(nodes):
        if node.op is None or not any(entry in needed for entry in node.inputs):
            continue
        pass_back(node, arrived, needed)
    return tuple(arrived[entry] if entry in arrived else zeros(entry) for entry in inputs)


def dependents(nodes: Iterable[Node], inputs: Iterable[Entry]) -> set[Entry]:
    """The floating entries that depend on one of `inputs`."""
    needed = set(inputs)
    for node in nodes:
        if any(entry in needed for entry in node.inputs):
            needed.update(entry for entry in node.entries if entry.dtype.is_inexact)
    return needed


def dependencies(outputs: Sequence[Entry], ends: Callable[[Node], bool]) -> dict[Entry, int]:
    """The floating entries that floating outputs depend on, by way of such entries, and of no node
    that `ends` gradients; with a bit for each output that does.
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
    """The outputs of a gradient's graph on these arguments, None for `heads` nothing arrived at.

    A gradient is linear in its heads: what depends on no others than these is none either. Zeros
    would not do: times a derivative that is not finite they give NaN.
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
    """Send what has arrived at a node's outputs on to its inputs."""
    gs = tuple(arrived.get(entry) for entry in node.entries)
    if all(g is None for g in gs):
        return
    with _part_of(node):
        for entry, g in zip(node.inputs, rule(node, gs, needed), strict=True):
            if g is not None and entry in needed:
                accumulate(arrived, entry, like(g, entry))


@contextmanager
def _part_of(node: Node) -> Iterator[None]:
    """A block whose nodes are parts of the gradient of a node's operation."""
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
    """One gradient (or None) per input, by the operation's own rule or its body's.

    Others than those of `needed` inputs may be left out.
    """
    op = node.op
    assert op is not None
    if "backward" in op.rules:
        inexact = [e.dtype.is_inexact and not e.spec.weak for e in node.inputs]
        known = [needed is None or entry in needed for entry in node.inputs]
        wanted = [a and b for a, b in zip(inexact, known, strict=True)]
        found: Sequence[Any] = op.rules["backward"](node, gs, wanted)
        return found
    declared = op.rules.get("gradient")
    if declared is not None and not _is_beyond(op, gs):
        # The gradient of a holomorphic function is g times the conjugate of its derivative; its
        # rule says g times the derivative.
        gs = tuple(map(conjugate, gs)) if op.is_holomorphic else gs
        several = len(node.entries) > 1
        g: Any = gs if several else gs[0]
        y: Any = node.entries if several else node.entries[0]
        parameters = {k: v for k, v in node.params.items() if k not in ("call",)}
        given: Sequence[Any] = declared(g, y, *node.inputs, **parameters)
        given = given[: len(node.inputs)]  # optional inputs that are not given have none
        return [conjugate(each) for each in given] if op.is_holomorphic else given
    if isinstance(op, Composite):
        body = op.written_out(node.inputs, node.params)
        pairs = [(y, g) for y, g in zip(body, gs, strict=True) if g is not None]
        distinct = tuple(dict.fromkeys(node.inputs))
        parts = gradient([y for y, _ in pairs], [g for _, g in pairs], distinct)
        once = dict(zip(distinct, parts, strict=True))
        return [once.pop(entry, None) for entry in node.inputs]  # what is given twice has it once
    if not any(entry.dtype.is_inexact for entry in node.entries):
        return (None,) * len(node.inputs)
    raise GradientError(f"{op.name} has no gradient; use detach() on its input if none is wanted")


def _is_beyond(op: Op, gs: tuple[Entry | None, ...]) -> bool:
    """Whether something arrived at results of a composite that its rule says nothing of."""
    return isinstance(op, Composite) and any(g is not None for g in gs[op.ruled :])


def accumulate(arrived: dict[Entry, Entry], entry: Entry, g: Entry) -> None:
    """Add a gradient to what has arrived at an entry."""
    arrived[entry] = add(arrived[entry], g) if entry in arrived else g


def like(g: Entry, entry: Entry) -> Entry:
    """A gradient in its input's dtype and shape: summed over the axes broadcasting added.

    That of real numbers is real.
    """
    g = unbroadcast(g, entry)
    if g.dtype.is_complex and not entry.dtype.is_complex:
        g = call("real", g)
    return g if g.dtype is entry.dtype else cast(g, dtype=entry.dtype)


def unbroadcast(g: Entry, entry: Entry) -> Entry:
    """g, summed over the axes along which `entry` was repeated to meet it."""
    shape = entry.shape
    lead = g.ndim - len(shape)
    repeated = [a for a, n in enumerate(shape, start=lead) if n == 1 and not g.shape[a] == 1]
    axes = (*range(lead), *repeated)
    if axes:
        g = sum(g, axis=axes, keepdims=True)
    return reshape(g, shape=shape) if lead > 0 else g


def conjugate(g: Any) -> Any:
    """The conjugate of a gradient; itself where it is real or there is none."""
    if g is None or not isinstance(g, Entry) or not g.dtype.is_complex:
        return g
    conj = find("conj")
    return g.node.inputs[0] if g.node.op is conj else conj(g)


def zeros(entry: Entry) -> Entry:
    """The gradient nothing arrived at."""
    found: Entry = full.apply((0,), {"shape": entry.shape, "dtype": entry.dtype})[0]
    return found

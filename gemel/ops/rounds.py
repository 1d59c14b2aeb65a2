"""A loop as one operation: a graph that is computed for each element of the first axis of arrays.

`npx.foreach` in a trace becomes one where that is worth it; decision 0043 has the rules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from gemel.errors import ShapeError
from gemel.ir.above import above
from gemel.ir.declare import op
from gemel.ir.graph import Entry, Graph, Node, constant, placeholder
from gemel.ir.interpret import interpret
from gemel.ir.op import numpy
from gemel.ir.trace import Trace
from gemel.ops.control import closed
from gemel.spec import Spec

#: Fewer rounds are written out: their kernels can be fused across rounds, and do not move values.
LEAST = 4


@op(fails=True)  # what the graph does may fail
def loop(*inputs: Any, step: Any, length: int, data: int, states: int, reverse: bool) -> Any:
    """`length` rounds of a graph: (stacked outputs, last states).

    The inputs are `data` arrays, of which round r gets element r of the first axis (or `length` - 1
    - r if `reverse`), `states` that go from round to round, and what all rounds are given alike.
    `step` takes an element of each, and gives a round's outputs, then the next states. Outputs are
    stacked where their elements of the data are.
    """
    carried, others = list(inputs[data : data + states]), inputs[data + states :]
    count = len(step.outputs) - states
    rounds: list[Any] = []
    for place in reversed(range(length)) if reverse else range(length):
        elements = [array[place] for array in inputs[:data]]
        found = interpret(step, *elements, *carried, *others)
        rounds.append(found[:count])
        carried = found[count:]
    if reverse:
        rounds.reverse()
    return (*(numpy().stack(each) for each in zip(*rounds, strict=True)), *carried)


@loop.spec
def _(
    *inputs: Spec, step: Any, length: int, data: int, states: int, reverse: bool
) -> tuple[Spec, ...]:
    given = [element(x) for x in inputs[:data]] + list(inputs[data:])
    taken = [entry.spec for entry in step.inputs]
    if given != taken or any(not x.shape[0] == length for x in inputs[:data]):
        raise ShapeError(f"loop: a round takes {taken}, {length} of them are given {list(inputs)}")
    made = [entry.spec for entry in step.outputs]
    count = len(made) - states
    if made[count:] != given[data : data + states]:
        raise ShapeError(f"loop: a round makes {made[count:]} of {given[data : data + states]}")
    stacked = (Spec((length, *x.shape), x.dtype) for x in made[:count])
    return (*stacked, *made[count:])


@loop.lower
def _(emit: Any, outputs: Any, inputs: Any, **settings: Any) -> None:
    emit.rounds(outputs, inputs, **settings)


def element(x: Spec) -> Spec:
    """What a round gets of an array."""
    return Spec(x.shape[1:], x.dtype)


# --- recording ------------------------------------------------------------------------------


class _Round(NamedTuple):
    """One round as it was traced: what stands for elements and states, and what it makes."""

    stands: tuple[Entry, ...]
    results: tuple[Entry, ...]
    nodes: list[Node]  # all that is not from outside, each after its inputs


def record(
    trace: Trace, body: Callable[..., Any], arrays: list[Any], first: list[Any], reverse: bool
) -> tuple[Any, ...] | None:
    """body(elements, states) -> (outputs, states), all lists, as one operation: its outputs and
    the last states; None where the rounds have to be written out.

    The body is traced twice. What is not alike, draws random numbers, writes to what is not its
    own, changes a state's spec or needs NumPy is no loop.
    """
    length = arrays[0].shape[0]
    if trace.writes_out or not length >= LEAST:
        return None
    data, states = ([above.as_entry(x) for x in each] for each in (arrays, first))
    if any(entry.spec.weak for entry in (*data, *states)):
        return None
    specs = [*(element(entry.spec) for entry in data), *(entry.spec for entry in states)]
    rounds = [_traced(trace, body, specs, len(data)) for _ in range(2)]
    if rounds[0] is None or rounds[1] is None or not _alike(rounds[0], rounds[1]):
        return None
    stands, results, nodes = rounds[0]
    inside: dict[Node, None] = dict.fromkeys(entry.node for entry in stands)
    for node in nodes:
        if any(entry.node in inside for entry in node.inputs):
            inside[node] = None
    if not all(node.has_kernel for node in inside if node.op is not None):
        return None
    read = dict.fromkeys((*(e for node in inside for e in node.inputs), *results))
    free = [e for e in read if e.node not in inside and not e.node.is_number]
    step = closed(results, (*stands, *free), "step")
    settings = {"length": length, "data": len(data), "states": len(states), "reverse": reverse}
    return loop.apply((*data, *states, *free), {"step": step, **settings})


def _traced(trace: Trace, body: Callable[..., Any], specs: list[Spec], data: int) -> _Round | None:
    """One round; None where it does what a loop cannot do."""
    began = constant(0).node.place
    stands = tuple(map(placeholder, specs))
    kept = trace.contents, trace._holders, trace.updates, trace.random_calls
    trace.contents, trace._holders, trace.updates = (dict(each) for each in kept[:3])
    try:
        outputs, after = body(list(stands[:data]), list(stands[data:]))
        results = tuple(above.as_entry(value) for value in (*outputs, *after))
        written = [h for h, value in trace.contents.items() if kept[0].get(h) is not value]
        own = all(h.node.place > began and h not in {*stands} for h in written)
        updates = [[id(entry) for _, entry in each.values()] for each in (trace.updates, kept[2])]
        same = updates[0] == updates[1] and trace.random_calls == kept[3]
    finally:
        trace.contents, trace._holders, trace.updates, trace.random_calls = kept
    states = [entry.spec for entry in results[len(outputs) :]]
    if not own or not same or any(entry.spec.weak for entry in results) or states != specs[data:]:
        return None
    return _Round(stands, results, _made(results, began))


def _made(results: tuple[Entry, ...], began: int) -> list[Node]:
    """The nodes made since `began` that results need, each after its inputs."""
    found: set[Node] = set()
    pending = [entry.node for entry in results]
    while pending:
        node = pending.pop()
        if node.place > began and node not in found:
            found.add(node)
            pending += (entry.node for entry in node.inputs)
    return sorted(found, key=lambda node: node.place)


def _alike(first: _Round, second: _Round) -> bool:
    """Whether two rounds are the same steps on the same values."""
    same = dict(zip(second.stands, first.stands, strict=True))
    return _same_steps(first, second, same)


def _same_steps(first: _Round, second: _Round, same: dict[Entry, Entry]) -> bool:
    """`same`: what values of the second are in the first; those from outside are themselves."""
    if len(first.nodes) != len(second.nodes) or len(first.results) != len(second.results):
        return False
    for node, other in zip(first.nodes, second.nodes, strict=True):
        if other.entries[0] in same or other is node:
            equal = same.get(other.entries[0], node.entries[0]) is node.entries[0]
        elif node.is_number and other.is_number:
            equal = (type(node.value), repr(node.value)) == (type(other.value), repr(other.value))
        elif node.is_constant and other.is_constant:
            equal = node.value is other.value
        else:
            inputs = [same.get(entry, entry) for entry in other.inputs]
            equal = node.op is not None and node.op is other.op
            equal = equal and list(map(id, inputs)) == list(map(id, node.inputs))
            equal = equal and _same_settings(node.params, other.params)
        if not equal or node.specs != other.specs:
            return False
        same.update(zip(other.entries, node.entries, strict=True))
    pairs = zip(first.results, second.results, strict=True)
    return all(same.get(b, b) is a for a, b in pairs)


def _same_settings(some: dict[str, Any], others: dict[str, Any]) -> bool:
    """Whether parameters are equal, graphs among them by what they compute."""
    if some.keys() != others.keys():
        return False
    for value, other in zip(some.values(), others.values(), strict=True):
        if isinstance(value, Graph) and isinstance(other, Graph):
            sides = [_Round(g.inputs, g.outputs, [*_inputs(g), *g.walk()]) for g in (value, other)]
            if len(value.inputs) != len(other.inputs) or not _alike(*sides):
                return False
        elif type(value) is not type(other) or repr(value) != repr(other):
            return False
    return True


def _inputs(graph: Graph) -> list[Node]:
    return [entry.node for entry in graph.inputs]


__all__ = ["LEAST", "loop", "record"]

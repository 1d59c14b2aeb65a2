"""A loop as one operation: a graph that is computed for each element of the first axis of arrays,
or as long as a condition holds.

`npx.foreach` and `npx.while_loop` in a trace become one where that is worth it; decisions 0043 and
0055 have the rules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from gemel.dtype import bool_
from gemel.errors import ShapeError
from gemel.ir.above import above
from gemel.ir.current import current_trace
from gemel.ir.declare import op
from gemel.ir.graph import Entry, Graph, Node, constant, placeholder, walk
from gemel.ir.interpret import interpret
from gemel.ir.loops import LoopSpec
from gemel.ir.op import numpy
from gemel.ir.rules import Emitter
from gemel.ir.state import Saved
from gemel.ir.trace import Trace
from gemel.ops.control import closed
from gemel.ops.shape import reshape
from gemel.spec import Spec

#: Fewer rounds are written out: their kernels can be fused across rounds, and do not move values.
LEAST = 4


@op(fails=True)  # what the graph does may fail
def loop(
    *inputs: Any, step: Any, length: int, data: int, states: int, reverse: bool, condition: int
) -> Any:
    """`length` rounds of a graph: (stacked outputs, last states).

    The inputs are `data` arrays, of which round r gets element r of the first axis (or `length` - 1
    - r if `reverse`), `states` that go from round to round, and what all rounds are given alike.
    `step` takes an element of each, and gives a round's outputs, then the next states. Outputs are
    stacked where their elements of the data are.

    Input number `condition` of the step, unless that is -1, is a bool: a round is done only where
    it holds. Else its outputs are zeros, and the states stay as they are. So a condition that is a
    state ends the loop.
    """
    carried, others = list(inputs[data : data + states]), inputs[data + states :]
    count = len(step.outputs) - states
    rounds: list[Any] = []
    for place in reversed(range(length)) if reverse else range(length):
        given = [*(array[place] for array in inputs[:data]), *carried, *others]
        if condition >= 0 and not given[condition]:
            rounds.append([numpy().zeros(e.shape, e.dtype) for e in step.outputs[:count]])
            continue
        found = interpret(step, *given)
        rounds.append(found[:count])
        carried = found[count:]
    if reverse:
        rounds.reverse()
    return (*(numpy().stack(each) for each in zip(*rounds, strict=True)), *carried)


@loop.spec
def _(
    *inputs: Spec, step: Any, length: int, data: int, states: int, reverse: bool, condition: int
) -> tuple[Spec, ...]:
    given = [element(x) for x in inputs[:data]] + list(inputs[data:])
    taken = [entry.spec for entry in step.inputs]
    if given != taken or any(not x.shape[0] == length for x in inputs[:data]):
        raise ShapeError(
            f"loop: a round takes {taken}, but {length} rounds are given {list(inputs)}"
        )
    if condition >= 0 and taken[condition] != Spec((), bool_):
        raise ShapeError(f"loop: the condition {taken[condition]} must be one bool")
    made = [entry.spec for entry in step.outputs]
    count = len(made) - states
    if made[count:] != given[data : data + states]:
        raise ShapeError(f"loop: a round returns {made[count:]} for {given[data : data + states]}")
    stacked = (Spec((length, *x.shape), x.dtype) for x in made[:count])
    return (*stacked, *made[count:])


@loop.lower
def _(emit: Emitter, outputs: Any, inputs: Any, **settings: Any) -> None:
    emit.rounds(outputs, inputs, LoopSpec(**settings))


def element(x: Spec) -> Spec:
    """What a round gets of an array."""
    return Spec(x.shape[1:], x.dtype)


def repeated(
    body: Callable[[list[Entry], list[Entry], list[Entry]], tuple[list[Entry], list[Entry]]],
    data: Sequence[Entry],
    states: Sequence[Entry] = (),
    alike: Sequence[Entry] = (),
) -> tuple[list[Entry], list[Entry]]:
    """A loop an operation is written with: (outputs stacked, last states).

    `body` makes a round's outputs and next states of (elements of data, states, what is alike), and
    reads nothing else.
    """
    groups = [[element(x.spec) for x in data], [x.spec for x in states], [x.spec for x in alike]]
    elements, carried, shared = [[placeholder(spec) for spec in group] for group in groups]
    with current_trace() or Trace():
        outputs, after = body(elements, carried, shared)
    stands, results = (elements, carried, shared), (*outputs, *after)
    spec = LoopSpec.made(stands, results, length=data[0].shape[0])
    found = loop.apply((*data, *states, *alike), spec.parameters)
    return list(found[: len(outputs)]), list(found[len(outputs) :])


# --- tracing --------------------------------------------------------------------------------


#: A round as it is recorded: of lists of elements and states it makes lists of outputs and states.
Body = Callable[[list[Any], list[Any]], tuple[list[Any], list[Any]]]


class Round(NamedTuple):
    """One round as it was traced: what stands for elements and states, and what it makes."""

    stands: tuple[Entry, ...]
    elements: list[Entry]  # those of the round it is where it is written out, if known
    results: tuple[Entry, ...]
    nodes: list[Node]  # all that is not from outside, each after its inputs
    alone: bool  # it draws no random numbers, and writes only to what it has made


def is_whole(trace: Trace, length: int) -> bool:
    """Whether so many rounds may be one operation of a trace."""
    return not trace.writes_out and length >= LEAST


class TracedLoop:
    """A loop of a trace, given the arrays its rounds get elements of, and the first states.

    Its body is traced twice, on what stands for an element and for states. A body that does not do
    the same again, draws random numbers, writes to what is not its own, changes a state's spec or
    needs NumPy is no loop: what stood for elements and states becomes those of the first rounds,
    and the others are written out behind these.
    """

    #: Which input of a round says whether it is done; -1: all are.
    condition = -1

    def __init__(
        self,
        trace: Trace,
        body: Body,
        arrays: list[Any],
        first: list[Any],
        length: int,
        reverse: bool = False,
    ) -> None:
        self.trace = trace
        self.body = body
        self.data = [above.as_entry(x) for x in arrays]
        self.states = [above.as_entry(x) for x in first]
        self.length = length
        self.reverse = reverse
        #: How many rounds have been written out.
        self.begun = 0

    def run(self) -> tuple[Entry, ...] | None:
        """Its outputs and last states; None where it is written out, from round `begun` on."""
        weak = any(entry.spec.weak for entry in (*self.data, *self.states))
        if weak or not is_whole(self.trace, self.length):
            return None
        before = self.trace.state.save()
        rounds: list[Round] = []
        for _ in range(2):
            found = self._traced(len(rounds))
            if found is not None:
                rounds.append(found)
            if found is None or not self._repeats(found):
                self._write_out(rounds)
                return None
        if not _alike(*rounds):
            self._write_out(rounds)
            return None
        self.trace.state.restore(before)
        return self._whole(rounds[0])

    def _elements(self, place: int) -> list[Entry]:
        return [entry[place] for entry in self.data]

    def _traced(self, place: int) -> Round | None:
        """One round; None where it writes to elements or states, as if it were never traced."""
        # As they are before the round; from the end on, the length would be fixed by this.
        elements = [] if self.reverse else self._elements(place)
        trace, began = self.trace, constant(0).node.serial
        stands = tuple(
            placeholder(spec)
            for spec in (*(element(e.spec) for e in self.data), *(e.spec for e in self.states))
        )
        before, count = trace.state.save(), len(self.data)
        outputs, after = self.body(list(stands[:count]), list(stands[count:]))
        results = tuple(above.as_entry(value) for value in (*outputs, *after))
        if any(stand in trace.state.contents for stand in stands) or self._leaves(before, began):
            trace.state.restore(before)
            return None
        alone = trace.state.is_alone(before, began)
        return Round(stands, elements, results, _made(results, began), alone)

    def _leaves(self, before: Saved, began: int) -> bool:
        """Whether a round that is written out must not have been traced outside of it."""
        return False

    def _repeats(self, found: Round) -> bool:
        """Whether a round may be done again and again."""
        states = found.results[len(found.results) - len(self.states) :]
        same = [entry.spec for entry in states] == [entry.spec for entry in self.states]
        weak = any(entry.spec.weak for entry in found.results)
        kernels = all(node.has_kernel for node in found.nodes if node.op is not None)
        return found.alone and same and not weak and kernels

    def _write_out(self, rounds: list[Round]) -> None:
        """What stood for elements and states becomes them."""
        states: Sequence[Entry] = self.states
        for place, found in enumerate(rounds):
            values = found.elements or self._elements(int(self.length) - 1 - place)
            values += [reshape.node((e,), {"shape": e.shape}).entries[0] for e in states]
            for stand, value in zip(found.stands, values, strict=True):
                node = value.node
                stand.node.op, stand.node.inputs, stand.node.params = (
                    node.op,
                    node.inputs,
                    node.params,
                )
            states = found.results[len(found.results) - len(states) :]
        self.begun = len(rounds)

    def _whole(self, found: Round) -> tuple[Entry, ...]:
        """The loop as one operation."""
        stands, results = found.stands, found.results
        inside: dict[Node, None] = dict.fromkeys(entry.node for entry in stands)
        for node in found.nodes:
            # What may fail does so only in a round that is done.
            risky = self.condition >= 0 and node.fails
            if risky or any(entry.node in inside for entry in node.inputs):
                inside[node] = None
        read = dict.fromkeys((*(e for node in inside for e in node.inputs), *results))
        free = [e for e in read if e.node not in inside and not e.node.is_number]
        step = closed(results, (*stands, *free), "step")
        counts = self.length, len(self.data), len(self.states)
        spec = LoopSpec(step, *counts, reverse=self.reverse, condition=self.condition)
        return loop.apply((*self.data, *self.states, *free), spec.parameters)


class Conditional(TracedLoop):
    """A loop over no arrays whose last state is a condition: no round is done where it is false.

    Where it is written out each round is behind its condition: `written` are the first ones, whose
    body has been called already.
    """

    def __init__(self, trace: Trace, body: Body, first: list[Any], length: int) -> None:
        super().__init__(trace, body, [], first, length)
        self.condition = len(self.states) - 1
        self.written: list[Round] = []
        #: Whether the last round is left to do: nothing may ask for the condition after it.
        self.leaves_last = False

    def _leaves(self, before: Saved, began: int) -> bool:
        """Whether it writes to what is from outside: no round behind a condition may."""
        return not self.trace.state.writes_inside(before, began)

    def _write_out(self, rounds: list[Round]) -> None:
        self.written = rounds

    def _whole(self, found: Round) -> tuple[Entry, ...]:
        own = set(walk(found.results[:-1]))
        self.leaves_last = any(node.fails for node in found.nodes if node not in own)
        self.length -= self.leaves_last
        return super()._whole(found)


def _made(results: tuple[Entry, ...], began: int) -> list[Node]:
    """The nodes made since `began` that results need, each after its inputs."""
    found: set[Node] = set()
    pending = [entry.node for entry in results]
    while pending:
        node = pending.pop()
        if node.serial > began and node not in found:
            found.add(node)
            pending += (entry.node for entry in node.inputs)
    return sorted(found, key=lambda node: node.serial)


def _alike(first: Round, second: Round) -> bool:
    """Whether two rounds are the same steps on the same values."""
    same = dict(zip(second.stands, first.stands, strict=True))
    return _same_steps(first, second, same)


def _same_steps(first: Round, second: Round, same: dict[Entry, Entry]) -> bool:
    """`same`: what values of the second are in the first; those from outside are themselves."""
    if len(first.nodes) != len(second.nodes) or len(first.results) != len(second.results):
        return False
    for node, other in zip(first.nodes, second.nodes, strict=True):
        if other.entries[0] in same or other is node:
            equal = same.get(other.entries[0], node.entries[0]) is node.entries[0]
        elif node.is_number and other.is_number:
            equal = (type(node.value), repr(node.value)) == (type(other.value), repr(other.value))
        elif node.is_constant and other.is_constant:
            equal = node.value is other.value or _same_memory(node.value, other.value)
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


def _same_memory(one: Any, other: Any) -> bool:
    """Whether two arrays are the same elements, as two views of one array are."""
    if one._storage != other._storage or one.dtype is not other.dtype:
        return False
    return bool((one.offset, one.shape, one.strides) == (other.offset, other.shape, other.strides))


def _same_settings(some: dict[str, Any], others: dict[str, Any]) -> bool:
    """Whether parameters are equal, graphs among them by what they compute."""
    if some.keys() != others.keys():
        return False
    for value, other in zip(some.values(), others.values(), strict=True):
        if isinstance(value, Graph) and isinstance(other, Graph):
            sides = [
                Round(g.inputs, [], g.outputs, [*_inputs(g), *g.walk()], True)
                for g in (value, other)
            ]
            if len(value.inputs) != len(other.inputs) or not _alike(*sides):
                return False
        elif type(value) is not type(other) or repr(value) != repr(other):
            return False
    return True


def _inputs(graph: Graph) -> list[Node]:
    return [entry.node for entry in graph.inputs]


__all__ = ["LEAST", "Conditional", "Round", "TracedLoop", "is_whole", "loop", "repeated"]

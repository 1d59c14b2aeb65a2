"""A loop as one operation: a graph that runs for each element of the first axis of arrays, or as
long as a condition holds.

`npx.foreach` and `npx.while_loop` in a trace become such a loop if it pays off; decisions 0043 and
0055 have the rules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from gemel.dtype import bool_, int64
from gemel.errors import ShapeError
from gemel.ir.above import above
from gemel.ir.current import current_trace
from gemel.ir.declare import op
from gemel.ir.graph import Entry, Graph, Node, constant, placeholder, walk
from gemel.ir.interpret import interpret
from gemel.ir.loops import LoopSpec
from gemel.ir.reference import numpy
from gemel.ir.rules import Emitter
from gemel.ir.state import Savepoint
from gemel.ir.trace import Trace
from gemel.ops.control import closed, drawn_from
from gemel.ops.elementwise import add, iota, minimum, multiply, subtract
from gemel.ops.random import stream_taken
from gemel.ops.shape import reshape
from gemel.spec import Spec


@op(fails=True)  # because an operation of the graph may fail
def loop(
    *inputs: Any, step: Any, length: int, data: int, states: int, reverse: bool, condition: int
) -> Any:
    """`length` rounds of a graph: (stacked outputs, last states).

    The inputs are `data` arrays, of which round r gets element r of the first axis (or element
    `length` - 1 - r if `reverse`); `states`, which pass from round to round; and inputs that all
    rounds share.
    `step` takes an element of each array, the states and the shared inputs. It gives a round's
    outputs, then the next states. Outputs are stacked in the order of the data.

    Unless `condition` is -1, the step's input of that number is a bool, and a round only runs if it
    holds. Otherwise the round's outputs are zeros, and the states stay as they are. So a condition
    that is a state ends the loop.
    """
    carried, shared = list(inputs[data : data + states]), inputs[data + states :]
    count = len(step.outputs) - states
    rounds: list[Any] = []
    for place in reversed(range(length)) if reverse else range(length):
        given = [*(array[place] for array in inputs[:data]), *carried, *shared]
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
    """The spec of what one round gets from an array."""
    return Spec(x.shape[1:], x.dtype)


def repeated(
    body: Callable[[list[Entry], list[Entry], list[Entry]], tuple[list[Entry], list[Entry]]],
    data: Sequence[Entry],
    states: Sequence[Entry] = (),
    shared: Sequence[Entry] = (),
) -> tuple[list[Entry], list[Entry]]:
    """A loop in the definition of an operation: (outputs stacked, last states).

    `body` computes a round's outputs and next states from (elements of data, states, shared), and
    must read nothing else.
    """
    elements = [placeholder(element(x.spec)) for x in data]
    carried, same = ([placeholder(x.spec) for x in group] for group in (states, shared))
    with current_trace() or Trace():
        outputs, after = body(elements, carried, same)
    groups, results = (elements, carried, same), (*outputs, *after)
    spec = LoopSpec.made(groups, results, length=data[0].shape[0])
    found = loop.apply((*data, *states, *shared), spec.parameters)
    return list(found[: len(outputs)]), list(found[len(outputs) :])


# --- tracing --------------------------------------------------------------------------------


#: The function of a round: from lists of elements and states to lists of outputs and states.
Body = Callable[[list[Any], list[Any]], tuple[list[Any], list[Any]]]


class Round(NamedTuple):
    """One traced round: the placeholders of elements and states, and the results."""

    stands: tuple[Entry, ...]
    elements: list[Entry]  # the elements that this round gets in an unrolled loop, if known
    results: tuple[Entry, ...]
    nodes: list[Node]  # the nodes created in the round, each after its inputs
    alone: bool  # it only writes to arrays it has created
    draws: int = 0  # the number of random calls


def is_whole(trace: Trace, length: int) -> bool:
    """Whether a loop of this length may be one operation of the trace."""
    return trace.least_rounds is not None and length >= trace.least_rounds


class TracedLoop:
    """A loop of a trace, over the first axis of arrays, with the first states.

    Its body is traced twice, on placeholders for elements and states. The loop is unrolled if the
    body does not do the same the second time, writes to arrays from outside, changes a state's spec
    or needs NumPy. The placeholders then become the elements and states of the first rounds, and
    the other rounds are traced after these. If rounds draw random numbers, their length is fixed,
    because the number of calls of a program is.
    """

    #: The number of the input that says whether a round runs; -1 if all do.
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
        #: How many rounds have been unrolled.
        self.begun = 0

    def run(self) -> tuple[Entry, ...] | None:
        """The outputs and last states; None if the caller must unroll it, from round `begun` on."""
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
        """One round; None, with the trace undone, if it writes to elements or states."""
        # Taken before the round, unless this would ask for the length of the loop.
        known = not self.reverse and (self.trace.least_rounds or 0) > place
        elements = self._elements(place) if known else []
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
        alone = trace.state.writes_inside(before, began)
        draws = trace.state.random_calls - before.random_calls
        return Round(stands, elements, results, _made(results, began), alone, draws)

    def _leaves(self, before: Savepoint, began: int) -> bool:
        """Whether the traced round must not be used if the loop is unrolled."""
        return False

    def _repeats(self, found: Round) -> bool:
        """Whether a traced round can be the body of a loop."""
        states = found.results[len(found.results) - len(self.states) :]
        same = [entry.spec for entry in states] == [entry.spec for entry in self.states]
        weak = any(entry.spec.weak for entry in found.results)
        kernels = all(node.has_kernel for node in found.nodes if node.op is not None)
        may_draw = self.condition < 0 and self.trace.notes is None
        return found.alone and same and not weak and kernels and (may_draw or not found.draws)

    def _write_out(self, rounds: list[Round]) -> None:
        """Turn the placeholders into the elements and states of the first rounds."""
        states: Sequence[Entry] = self.states
        for place, found in enumerate(rounds):
            place = int(self.length) - 1 - place if self.reverse else place
            values = found.elements or self._elements(place)
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
        stands, results, inside = found.stands, found.results, self._inside(found)
        read = dict.fromkeys((*(e for node in inside for e in node.inputs), *results))
        free = [e for e in read if e.node not in inside and not e.node.is_number]
        elements, carried = stands[: len(self.data)], stands[len(self.data) :]
        data, shared = list(self.data), list(free)
        step = closed(results, (*elements, *carried, *free), "step")
        if found.draws:
            first = self.trace.state.random_calls
            stream = self._calls_taken(found.draws)
            seed, number = (placeholder(Spec((), int64)) for _ in stream)
            calls = range(first, first + found.draws)
            streams = {call: (seed, add(number, call - first)) for call in calls}
            # In the step alone: what all rounds share may be random, too, with calls of its own.
            given, count = step.inputs, len(elements)
            inputs = (*given[:count], number, *given[count:], seed)
            step = Graph(inputs, drawn_from(step, streams.__getitem__).outputs, name="step")
            data, shared = [*data, stream[1]], [*shared, stream[0]]
        counts = self.length, len(data), len(self.states)
        spec = LoopSpec(step, *counts, reverse=self.reverse, condition=self.condition)
        return loop.apply((*data, *self.states, *shared), spec.parameters)

    def _inside(self, found: Round) -> dict[Node, None]:
        """The nodes of a round that each round computes anew; others are computed before the loop,
        as they depend on no element or state."""
        inside: dict[Node, None] = dict.fromkeys(entry.node for entry in found.stands)
        for node in found.nodes:
            # A node that may fail must only run in rounds that run.
            risky = self.condition >= 0 and node.fails
            draws = node.op is not None and node.op.random
            if risky or draws or any(entry.node in inside for entry in node.inputs):
                inside[node] = None
        if self.trace.notes is not None:
            others = (node for node in found.nodes if node not in inside)
            self.trace.notes.taken_out((e for node in others for e in node.entries), found.stands)
        return inside

    def _calls_taken(self, draws: int) -> tuple[Entry, Entry]:
        """Take the random calls of all rounds, `draws` in each: the seed of a program, and for each
        element of the data the number of the first call of its round."""
        first, self.length = self.trace.state.random_calls, int(self.length)
        self.trace.state.random_calls += draws * self.length
        seed, number = stream_taken.apply((), {"call": first})
        # The program takes all these numbers: it uses the last one.
        _, last = stream_taken.apply((), {"call": first + draws * self.length - 1})
        place = iota(shape=(self.length,), axis=0, dtype="int64")
        place = subtract(self.length - 1, place) if self.reverse else place
        return seed, minimum(add(number, multiply(place, draws)), last)


class Conditional(TracedLoop):
    """A loop without arrays whose last state is a condition: a round only runs if it is true.

    If it is unrolled, each round depends on its condition; `written` are the rounds whose body has
    been traced already.
    """

    def __init__(self, trace: Trace, body: Body, first: list[Any], length: int) -> None:
        super().__init__(trace, body, [], first, length)
        self.condition = len(self.states) - 1
        self.written: list[Round] = []
        #: Whether the last round is left to the caller: the condition after it could fail.
        self.leaves_last = False

    def _leaves(self, before: Savepoint, began: int) -> bool:
        """Whether the round writes to arrays from outside, which no conditional round may do."""
        return not self.trace.state.writes_inside(before, began)

    def _write_out(self, rounds: list[Round]) -> None:
        self.written = rounds

    def _whole(self, found: Round) -> tuple[Entry, ...]:
        own = set(walk(found.results[:-1]))
        self.leaves_last = any(node.fails for node in found.nodes if node not in own)
        self.length -= self.leaves_last
        return super()._whole(found)


def _made(results: tuple[Entry, ...], began: int) -> list[Node]:
    """The nodes created since `began` that the results need, each after its inputs.

    Without parameters and arrays from outside, which become inputs of the trace in the round that
    is the first to read them.
    """
    found: set[Node] = set()
    pending = [entry.node for entry in results]
    while pending:
        node = pending.pop()
        outside = node.op is None and not node.is_number
        if node.serial > began and node not in found and not outside:
            found.add(node)
            pending += (entry.node for entry in node.inputs)
    return sorted(found, key=lambda node: node.serial)


def _alike(first: Round, second: Round) -> bool:
    """Whether two rounds are the same steps on the same values."""
    same = dict(zip(second.stands, first.stands, strict=True))
    return _same_steps(first, second, same)


def _same_steps(first: Round, second: Round, same: dict[Entry, Entry]) -> bool:
    """`_alike`; `same` maps values of the second round to the first's. Others must be identical."""
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
            equal = equal and _same_settings(_with_call(node, first.draws), other.params)
        if not equal or node.specs != other.specs:
            return False
        same.update(zip(other.entries, node.entries, strict=True))
    pairs = zip(first.results, second.results, strict=True)
    return all(same.get(b, b) is a for a, b in pairs)


def _with_call(node: Node, draws: int) -> dict[str, Any]:
    """The parameters that a node of the first round has in the second one."""
    call = node.params.get("call")
    if node.op is None or not node.op.random or call is None:
        return node.params
    return {**node.params, "call": call + draws}


def _same_memory(one: Any, other: Any) -> bool:
    """Whether two arrays are the same view of the same memory."""
    if one._storage != other._storage or one.dtype is not other.dtype:
        return False
    return bool((one.offset, one.shape, one.strides) == (other.offset, other.shape, other.strides))


def _same_settings(some: dict[str, Any], others: dict[str, Any]) -> bool:
    """Whether parameters are equal; graphs are compared by what they compute."""
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


__all__ = ["Conditional", "Round", "TracedLoop", "is_whole", "loop", "repeated"]

"""Kinds of recorded calls: an operation on inputs of certain specs, and its gradient.

All calls of one kind share a `Pullback`: the gradient rule run once on placeholders, as a graph of
ordinary operations from the gradients of the outputs to those of the inputs. For ``sin(x)`` on
float32[3] it is ``g * cos(x)`` with the inputs g and x. The backward pass runs a pullback operation
by operation, or makes it part of a larger graph and compiles that. The pullback also says what has
to be kept of a call: here the input x (`Kind.reads`).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

from gemel import _core
from gemel.errors import GradientError
from gemel.ir.graph import Entry, Graph, Node, copy_into, placeholder, rewrite, walk
from gemel.ir.interpret import NumpyLane, spec_of
from gemel.ir.op import Op
from gemel.ir.op_kinds import Composite, Elementwise
from gemel.ir.reference import numpy
from gemel.ir.text import call_text
from gemel.ir.trace import Trace
from gemel.ops.elementwise import full
from gemel.passes.gradient import like, rule
from gemel.passes.sizes import bytes_of
from gemel.process.urgent import urgent
from gemel.runtime.backend import Backend, backend_for
from gemel.runtime.files import digest
from gemel.runtime.plans import plan_of
from gemel.runtime.prepare import tagged
from gemel.spec import Spec
from gemel.tape.clock_cache import ClockCache

#: An input or output of a call: ("input", 0).
Port = tuple[str, int]


_numbers = itertools.count(10)


class Kind:
    """A kind of calls. Subclasses say how the gradient is computed."""

    #: Whether its forward computation is a compiled function: then gradients are compiled at once.
    compiled = False

    def __init__(self, name: str, inputs: tuple[Spec, ...], outputs: tuple[Spec, ...]) -> None:
        self.name = name
        self.number = -next(_numbers)
        self.used = False
        self.inputs = inputs
        self.outputs = outputs
        self.floating = tuple(spec.dtype.is_inexact for spec in outputs)
        self._pullbacks: dict[Any, Pullback] = {}

    def stand_ins(self, create_graph: bool) -> dict[Port, Entry]:
        """Placeholders for all that the gradient may read."""
        found = {("input", i): placeholder(spec) for i, spec in enumerate(self.inputs)}
        found |= {("output", i): placeholder(spec) for i, spec in enumerate(self.outputs)}
        return found

    def gradients(
        self, gs: tuple[Entry | None, ...], given: dict[Port, Entry], create_graph: bool
    ) -> Sequence[Entry | None]:
        """The gradients of the inputs as entries, from those of the outputs.

        With `create_graph` they will be differentiated in turn.
        """
        raise NotImplementedError

    def pullback(
        self, arrived: tuple[bool, ...], wanted: tuple[bool, ...], create_graph: bool = False
    ) -> Pullback:
        """The gradients of the wanted inputs, where gradients of these outputs have arrived."""
        key = (arrived, wanted, create_graph)
        found = self._pullbacks.get(key)
        if found is None:
            with urgent:
                found = self._pullbacks[key] = Pullback(self, *key)
        return found

    def reads(self, wanted: tuple[bool, ...]) -> tuple[Port, ...]:
        """What a call has to save for the gradients of the wanted inputs."""
        return self.pullback(self.floating, wanted).reads


class OperationKind(Kind):
    """Calls of an operation with the same parameters on inputs of the same specs."""

    def __init__(
        self,
        op: Op,
        parameters: dict[str, Any],
        inputs: tuple[Spec, ...],
        outputs: tuple[Spec, ...],
    ) -> None:
        super().__init__(op.name, inputs, outputs)
        self.op = op
        self.parameters = parameters
        # A hash, so that a kind that was evicted from `_kinds` gets the same number again.
        text = call_text(op, (inputs, outputs), parameters)
        if text is not None:
            self.number = int.from_bytes(digest(text.encode())[:8], "little") >> 1

    def gradients(
        self, gs: tuple[Entry | None, ...], given: dict[Port, Entry], create_graph: bool
    ) -> Sequence[Entry | None]:
        """The gradients by the operation's rule, in the shapes and dtypes of the inputs."""
        inputs = tuple(given["input", i] for i in range(len(self.inputs)))
        outputs = tuple(given["output", i] for i in range(len(self.outputs)))
        call: Any = SimpleNamespace(
            op=self.op, inputs=inputs, entries=outputs, params=self.parameters
        )
        if self.op.rules.backward is not None:
            # What such a rule reads depends on which gradients arrive, but what a call keeps must
            # not depend on that. So zeros replace the gradients that do not arrive.
            gs = tuple(map(self._filled, gs, outputs))
        found = rule(call, gs)
        pairs = zip(found, inputs, strict=True)
        return [None if g is None or not x.dtype.is_inexact else like(g, x) for g, x in pairs]

    def reads(self, wanted: tuple[bool, ...]) -> tuple[Port, ...]:
        """What a call has to save. Raises `GradientError` if the operation's rule does, or if it
        has none, unless users cannot call it: a gradient, which need not be differentiated, may
        consist of it.
        """
        try:
            return super().reads(wanted)
        except GradientError:
            if self.op.public or self.op.differentiable:
                raise
            return ()

    @staticmethod
    def _filled(g: Entry | None, y: Entry) -> Entry | None:
        """The gradient, or zeros if none arrived at a floating output."""
        if g is not None or not y.dtype.is_inexact:
            return g
        zeros: Entry = full(0, shape=y.shape, dtype=y.dtype)
        return zeros


def without_updates(graph: Graph) -> Graph:
    """A graph whose operations overwrite none of their inputs, to run again what has run before."""

    def body(node: Node, inputs: tuple[Entry, ...]) -> tuple[Entry, ...] | None:
        if not (isinstance(node.op, Composite) and node.op.updates):
            return None
        return node.op.written_out(inputs, node.params)

    return rewrite(Graph(graph.inputs, graph.outputs, name=graph.name), body)


#: The kinds of recent calls.
_kinds = ClockCache(8192)


def kind_of_call(
    op: Op, inputs: tuple[Any, ...], parameters: dict[str, Any], outputs: tuple[Any, ...]
) -> Kind:
    """The kind of a call on these arrays and numbers."""
    described = [
        (value.shape, value._code) if isinstance(value, _core.Array) else type(value)
        for value in inputs
    ]
    key = (op, tagged(tuple(parameters.values())), *described)
    found = _kinds.find(key)
    if found is None:
        specs = tuple(map(spec_of, inputs)), tuple(map(spec_of, outputs))
        found = _kinds.keep(key, OperationKind(op, parameters, *specs))
    return found  # type: ignore[no-any-return]


def kind_of_specs(op: Op, inputs: tuple[Spec, ...], parameters: dict[str, Any]) -> Kind:
    """The kind of a call on arrays of these specs."""
    described = [(spec.shape, spec.dtype.code) for spec in inputs]
    key = (op, tagged(tuple(parameters.values())), *described)
    found = _kinds.find(key)
    if found is None:
        outputs = op.infer(*inputs, **parameters)
        found = _kinds.keep(key, OperationKind(op, parameters, inputs, outputs))
    return found  # type: ignore[no-any-return]


# --- pullbacks ------------------------------------------------------------------------------


class Operation(NamedTuple):
    """An operation on numbers. `inputs` are positions in the list of all values so far."""

    op: Op
    parameters: dict[str, Any]
    inputs: tuple[int, ...]


#: A pullback is compiled if one of its operations has a result of so many bytes that has more than
#: all it is given and gives: all windows of a picture take many times the memory of the picture.
SPREAD_BYTES = 1 << 20


class Pullback:
    """The gradient of a kind of call, as a graph and as a list of operations.

    `graph` takes the gradients that arrived, the kept arrays listed in `arrays` and the numbers
    `numbers` computes; it gives the gradients of the inputs listed in `targets`. What is computed
    from Python numbers alone (the 2 * n of a gradient) is done in Python, not in the graph.
    """

    def __init__(
        self, kind: Kind, arrived: tuple[bool, ...], wanted: tuple[bool, ...], create_graph: bool
    ) -> None:
        with Trace():
            gs = tuple(
                placeholder(spec) if there else None
                for spec, there in zip(kind.outputs, arrived, strict=True)
            )
            given = kind.stand_ins(create_graph)
            found = kind.gradients(gs, given, create_graph)
        pairs = [(i, g) for i, (g, want) in enumerate(zip(found, wanted, strict=True)) if want]
        self.targets = tuple(i for i, g in pairs if g is not None)
        results = [g for _, g in pairs if g is not None]
        nodes = walk(results)
        read = set(nodes)
        self.reads = tuple(port for port, e in given.items() if e.node in read)
        self.arrays = tuple(port for port in self.reads if not given[port].spec.weak)
        weak = [given[port] for port in self.reads if given[port].spec.weak]
        self._numbers = tuple(i for side, i in self.reads if given[side, i].spec.weak)
        hoisted = self._hoist(nodes, weak)
        arrays = [*(g for g in gs if g is not None), *(given[port] for port in self.arrays)]
        self.graph = _substituted(nodes, arrays, hoisted, results)
        self._steps, self._constants, self._results = _listed(self.graph)
        #: Whether a plan takes much less memory than `run`.
        self.spreads = _spreads(self.graph)
        self._plans: dict[Backend, Any] = {}

    def _hoist(self, nodes: list[Node], weak: list[Entry]) -> list[Entry]:
        """The numbers that operations on arrays read. Also stores how Python computes them."""
        numbers = [node for node in nodes if node.is_number]
        self._constant_numbers = [node.value for node in numbers]
        slots = {entry: slot for slot, entry in enumerate(weak)}
        slots |= {node.entries[0]: slot for slot, node in enumerate(numbers, start=len(weak))}
        self._arithmetic: list[Operation] = []
        read: dict[Entry, None] = {}
        for node in nodes:
            if node.op is None:
                continue
            if node.specs[0].weak:
                inputs = tuple(slots[entry] for entry in node.inputs)
                self._arithmetic.append(Operation(node.op, node.params, inputs))
                slots.update(zip(node.entries, itertools.count(len(slots)), strict=False))
            else:
                read.update((e, None) for e in node.inputs if e in slots and not e.node.is_number)
        self._hoisted = tuple(slots[entry] for entry in read)
        return list(read)

    @property
    def takes_numbers(self) -> bool:
        """Whether `graph` takes numbers."""
        return bool(self._hoisted)

    def numbers(self, call: Any) -> list[Any]:
        """The numbers `graph` takes, computed from the numbers the call was given."""
        if not self._hoisted:
            return []
        given = (call.kept(("input", index)) for index in self._numbers)
        values = [*given, *self._constant_numbers]
        for op, parameters, inputs in self._arithmetic:
            values += _computed(op, parameters, [values[i] for i in inputs])
        return [values[slot] for slot in self._hoisted]

    def run(self, values: list[Any]) -> list[Any]:
        """The outputs of `graph` for these inputs, operation by operation."""
        found = [*values, *self._constants]
        _core.run_operations(self._steps, found)
        return [found[slot] for slot in self._results]

    def compiled(self, values: list[Any]) -> Sequence[Any]:
        """The same by a plan."""
        backend = backend_for(values)
        if backend not in self._plans:
            with urgent:
                self._plans[backend] = plan_of(self.graph, backend, atomic=False)
        found: Sequence[Any] = self._plans[backend](*values)
        return found


def _computed(op: Op, parameters: dict[str, Any], values: list[Any]) -> Sequence[Any]:
    """The results of an elementwise operation on Python numbers."""
    specs = tuple(map(spec_of, values))
    found: Sequence[Any] | None = op.on_numbers(specs, parameters, values)
    if found is None and isinstance(op, Elementwise):  # 1 / 0, log(-1)
        np = numpy()
        with np.errstate(all="ignore"):
            arrays = [np.float64(value) for value in values]
            results = op.body(NumpyLane((), (0, 0)), *arrays, **parameters)
            found = [each.item() for each in (results if op.outputs > 1 else (results,))]
    return found or ()


def _substituted(
    nodes: list[Node], arrays: list[Entry], hoisted: list[Entry], results: list[Entry]
) -> Graph:
    """The operations on arrays as a separate graph, with numbers as inputs."""
    numbers = {entry: placeholder(entry.spec) for entry in hoisted}
    replaced = dict(numbers)
    for node in nodes:
        if node.op is None or node.specs[0].weak:
            continue
        copy_into(replaced, node)
    outputs = (replaced.get(entry, entry) for entry in results)
    return Graph((*arrays, *numbers.values()), outputs, name="backward")


#: What `_core.run_operations` takes.
_Operations = tuple[
    "tuple[Op, tuple[str, ...], tuple[Any, ...], tuple[int, ...], tuple[int, ...]]", ...
]


def _listed(graph: Graph) -> tuple[_Operations, list[Any], list[int]]:
    """A graph's operations and constants as lists, and the positions of its outputs."""
    nodes = graph.walk()
    slots = {entry: position for position, entry in enumerate(graph.inputs)}
    constants = []
    for node in nodes:
        if node.is_constant:
            slots[node.entries[0]] = len(slots)
            constants.append(node.value)
    steps = []
    for node in nodes:
        if node.op is not None:
            inputs = tuple(slots[entry] for entry in node.inputs)
            steps.append((node.op, tuple(node.params), tuple(node.params.values()), inputs))
            for entry in node.entries:
                slots[entry] = len(slots)
    results = [slots[entry] for entry in graph.outputs]
    return _with_ends(steps, results), constants, results


def _with_ends(steps: list[tuple[Any, ...]], results: list[int]) -> _Operations:
    """Operations, each with the positions of the values that it is the last to read."""
    read = set(results)
    found: list[Any] = []
    for step in reversed(steps):
        over = set(step[3]) - read
        read |= over
        found.append((*step, tuple(over)))
    return tuple(reversed(found))


def _spreads(graph: Graph) -> bool:
    """Whether a result inside of a graph is larger than all its inputs and outputs together."""
    inside = {e for node in graph.walk() if node.op is not None for e in node.entries}
    largest = max((bytes_of(entry) for entry in inside.difference(graph.outputs)), default=0)
    return largest >= SPREAD_BYTES and largest > sum(map(bytes_of, (*graph.inputs, *graph.outputs)))


__all__ = ["Kind", "Port", "Pullback", "kind_of_call", "kind_of_specs", "without_updates"]

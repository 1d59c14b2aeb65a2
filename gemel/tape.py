"""The tape: recorded calls, and the gradient graph made from them.

While recording, every call on a tracked array is put on the tape with the arrays its gradient rule
will read. A `Step` is the part of the tape some heads depend on; it becomes one gradient graph, is
compiled and run. A tape of the same structure finds its plan again, whatever the numbers in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gemel.errors import GradientError
from gemel.ir.graph import Entry, Graph, placeholder, walk
from gemel.ir.op import HOOKS, Op
from gemel.ir.trace import Trace
from gemel.ops.elementwise import full
from gemel.passes.gradient import like, rule
from gemel.runtime.chain import Chain
from gemel.runtime.plans import plan_of
from gemel.runtime.prepare import spec_of, tagged
from gemel.spec import Spec


class Leaf:
    """A variable: where a gradient ends. `request` is "write", "add" or "null"."""

    __slots__ = ("gradient", "request", "spec")

    def __init__(self, spec: Spec, gradient: Any, request: str) -> None:
        self.spec = spec
        self.gradient = gradient
        self.request = request

    @property
    def key(self) -> Any:
        """What gradients that arrive here are collected under."""
        return id(self)


class Cut:
    """Where a part of the tape ends inside it: a result of a call that is not in the part."""

    __slots__ = ("source", "spec")

    gradient = None
    request = "write"

    def __init__(self, source: tuple[Any, int], spec: Spec) -> None:
        self.source = source
        self.spec = spec

    @property
    def key(self) -> Any:
        """What gradients that arrive here are collected under."""
        return id(self.source[0]), self.source[1]


def key_of(source: Any) -> Any:
    """What gradients that arrive at a Leaf or at (call, output index) are collected under."""
    return (id(source[0]), source[1]) if isinstance(source, tuple) else id(source)


class Saved:
    """An array a gradient rule will read, and the version it had."""

    __slots__ = ("array", "version")

    def __init__(self, array: Any) -> None:
        # An alias: the array itself may hold the call that holds this.
        self.array = array._as_strided(array.shape, array.strides, array.offset)
        self.version = array.version

    def read(self, name: str) -> Any:
        """The array. Raises `GradientError` when it has been overwritten since."""
        if self.array.version != self.version:
            raise GradientError(
                f"backward: an array of {name} ({spec_of(self.array)}) was overwritten in place "
                "after it was used and before backward; write to a new array instead"
            )
        return self.array


_serial = [0]


def next_serial() -> int:
    """The number of the next recorded call."""
    _serial[0] += 1
    return _serial[0]


class Call:
    """One recorded call: where its inputs came from, and what its gradient rule reads."""

    __slots__ = (
        "freed",
        "inputs",
        "numbers",
        "op",
        "outputs",
        "parameters",
        "saved",
        "serial",
        "sources",
    )

    def __init__(
        self, op: Any, sources: tuple[Any, ...], inputs: tuple[Spec, ...], outputs: tuple[Spec, ...]
    ) -> None:
        self.serial = next_serial()
        self.op = op
        self.sources = sources  # per input: a Leaf, (Call, output index) or None
        self.inputs = inputs
        self.outputs = outputs
        self.parameters: dict[str, Any] = {}
        self.saved: dict[tuple[str, int], Saved] = {}
        self.numbers: dict[int, Any] = {}
        self.freed = False

    @property
    def key(self) -> Any:
        """What decides the structure of this call's gradient, but for its inputs' sources."""
        return (
            self.op.name,
            id(self.op),
            tagged(tuple(self.parameters.values())),
            tuple((s.shape, s.dtype.code, s.weak) for s in (*self.inputs, *self.outputs)),
        )

    def backward(
        self, gs: tuple[Entry | None, ...], given: dict[tuple[str, int], Entry]
    ) -> Sequence[Any]:
        """Entries for the gradients of the inputs, from those of the outputs."""
        inputs = tuple(self._entry(given, "input", i, s) for i, s in enumerate(self.inputs))
        outputs = tuple(self._entry(given, "output", i, s) for i, s in enumerate(self.outputs))
        return call_rule(self.op, gs, outputs, inputs, self.parameters)

    @staticmethod
    def _entry(given: dict[tuple[str, int], Entry], side: str, index: int, spec: Spec) -> Entry:
        known = given.get((side, index))
        return placeholder(spec) if known is None else known

    def free(self) -> None:
        """Give back what was saved."""
        self.freed = True
        self.saved = {}


def call_rule(
    op: Op,
    gs: tuple[Entry | None, ...],
    outputs: tuple[Entry, ...],
    inputs: tuple[Entry, ...],
    parameters: dict[str, Any],
) -> Sequence[Any]:
    """An operation's gradient rule on loose entries, results in its inputs' shapes and dtypes."""

    class Stand:  # what `rule` reads of a node
        pass

    stand: Any = Stand()
    stand.op, stand.inputs, stand.entries, stand.params = op, inputs, outputs, parameters
    found = rule(stand, gs)
    pairs = zip(found, inputs, strict=True)
    return [None if g is None or not x.dtype.is_floating else like(g, x) for g, x in pairs]


_needs: dict[Any, tuple[tuple[str, int], ...]] = {}


def needed(
    op: Op, inputs: tuple[Spec, ...], outputs: tuple[Spec, ...], parameters: dict[str, Any]
) -> Any:
    """Which inputs and outputs an operation's gradient rule reads, found by tracing it once."""
    key = (op.name, len(inputs), tuple(s.weak for s in inputs), tagged(tuple(parameters.values())))
    found = _needs.get(key)
    if found is None:
        with Trace():
            ins = tuple(placeholder(spec) for spec in inputs)
            outs = tuple(placeholder(spec) for spec in outputs)
            gs = tuple(placeholder(spec) if spec.dtype.is_floating else None for spec in outputs)
            results = call_rule(op, gs, outs, ins, parameters)
        read = set(walk([g for g in results if g is not None]))
        sides = [("input", i, e) for i, e in enumerate(ins)] + [
            ("output", i, e) for i, e in enumerate(outs)
        ]
        found = _needs[key] = tuple((side, i) for side, i, e in sides if e.node in read)
    return found


def record_call(
    op: Op, inputs: tuple[Any, ...], parameters: dict[str, Any], outputs: tuple[Any, ...]
) -> None:
    """Put a call on the tape: its outputs remember it."""
    sources = tuple(source_of(value) for value in inputs)
    input_specs = tuple(spec_of(value) for value in inputs)
    output_specs = tuple(spec_of(value) for value in outputs)
    call = Call(op, sources, input_specs, output_specs)
    call.parameters = parameters
    for side, index in needed(op, input_specs, output_specs, parameters):
        value = (inputs if side == "input" else outputs)[index]
        if isinstance(value, (bool, int, float)):
            call.numbers[index] = value
        else:
            call.saved[side, index] = Saved(value)
    for index, value in enumerate(outputs):
        if value.dtype.is_floating:
            value._tape = (call, index)


def source_of(value: Any) -> Any:
    """Where a value's gradient goes on to: a Leaf, (Call, index), or None."""
    return getattr(value, "_tape", None)


def tracked(*values: Any) -> bool:
    """Whether any of these is a variable or was computed from one."""
    return any(source_of(value) is not None for value in values)


HOOKS["record"] = record_call


# --- from tape to gradients -----------------------------------------------------------------


class Step:
    """The part of the tape that some heads depend on, ready to become a gradient graph."""

    def __init__(self, heads: list[Any], grads: list[Any]) -> None:
        self.sources = [source_of(head) for head in heads]
        self.specs = [spec_of(head) for head in heads]
        self.devices = [head.device for head in heads]
        self.grads = [
            g.astype(h.dtype, copy=False) if g is not None else None
            for h, g in zip(heads, grads, strict=True)
        ]
        self.calls = _reached(self.sources)
        self.leaves = self._leaves()

    @classmethod
    def part(cls, heads: list[tuple[Any, Spec, Any]], calls: list[Any]) -> Step:
        """Some calls of a step, from results of them (source, spec, gradient) on."""
        step = cls.__new__(cls)
        step.sources = [source for source, _, _ in heads]
        step.specs = [spec for _, spec, _ in heads]
        step.grads = [g.astype(spec.dtype, copy=False) for _, spec, g in heads]
        step.calls = calls
        return step

    def heads(self) -> Iterable[tuple[Any, Spec, Any, Any]]:
        """Source, spec, gradient (or None) and device of each head."""
        return zip(self.sources, self.specs, self.grads, self.devices, strict=True)

    def _leaves(self) -> list[Leaf]:
        found: dict[int, Leaf] = {}
        for source in (*self.sources, *(s for call in self.calls for s in call.sources)):
            if isinstance(source, Leaf):
                found.setdefault(id(source), source)
        return list(found.values())

    def arguments(self) -> list[Any]:
        """The arrays and numbers the gradient graph takes, in the order of `inputs`."""
        found = [g for g in self.grads if g is not None]
        for call in self.calls:
            found += [saved.read(call.op.name) for saved in call.saved.values()]
            found += list(call.numbers.values())
        return found

    def structure(self, leaves: Sequence[Leaf | Cut]) -> Any:
        """What two tapes with the same gradient graph have in common."""
        numbered = {id(call): position for position, call in enumerate(self.calls)}
        targets = {leaf.key: position for position, leaf in enumerate(leaves)}

        def place(source: Any) -> Any:
            if isinstance(source, tuple) and id(source[0]) in numbered:
                return numbered[id(source[0])], source[1]
            return targets.get(key_of(source), -1) if source is not None else None

        calls = tuple(
            (call.key, tuple(map(place, call.sources)), tuple(call.saved), tuple(call.numbers))
            for call in self.calls
        )
        heads = tuple((place(s), g is None) for s, g in zip(self.sources, self.grads, strict=True))
        requests = tuple((leaf.spec.shape, leaf.spec.dtype.code, leaf.request) for leaf in leaves)
        return calls, heads, requests

    def graph(self, leaves: Sequence[Leaf | Cut]) -> tuple[list[Entry], list[Entry]]:
        """The inputs of the gradient graph and the gradients of the leaves."""
        inputs: list[Entry] = []
        arrived: dict[Any, Entry] = {}
        for source, spec, g in zip(self.sources, self.specs, self.grads, strict=True):
            head = (
                placeholder(spec) if g is not None else full(1, shape=spec.shape, dtype=spec.dtype)
            )
            if g is not None:
                inputs.append(head)
            _arrive(arrived, source, head)
        given = [self._given(call, inputs) for call in self.calls]
        for call, entries in zip(reversed(self.calls), reversed(given), strict=True):
            gs = tuple(arrived.get((id(call), index)) for index in range(len(call.outputs)))
            if all(g is None for g in gs):
                continue
            for source, g in zip(call.sources, call.backward(gs, entries), strict=True):
                if source is not None and g is not None:
                    _arrive(arrived, source, g)
        for leaf in leaves:
            if leaf.key not in arrived:
                arrived[leaf.key] = full(0, shape=leaf.spec.shape, dtype=leaf.spec.dtype)
        return inputs, [arrived[leaf.key] for leaf in leaves]

    def _given(self, call: Any, inputs: list[Entry]) -> dict[tuple[str, int], Entry]:
        entries = {key: placeholder(spec_of(saved.array)) for key, saved in call.saved.items()}
        for index, number in call.numbers.items():
            entries["input", index] = placeholder(spec_of(number))
        inputs += entries.values()
        return entries

    def free(self) -> None:
        """Give back what the calls of this step saved."""
        for call in self.calls:
            call.free()


def _reached(sources: Iterable[Any]) -> list[Any]:
    """The calls that lead to these sources, each after those that lead to it.

    In the order in which `ir.graph.walk` finds the same calls in a graph, so that what arrives at a
    value is added up in one order by the tape and by a compiled gradient.
    """
    order: list[Any] = []
    seen: set[int] = set()
    stack = [(source[0], False) for source in reversed(list(sources)) if isinstance(source, tuple)]
    while stack:
        call, ready = stack.pop()
        if ready:
            order.append(call)
            continue
        if call.serial in seen:
            continue
        if call.freed:
            raise GradientError(
                "backward: this part of the tape was freed by an earlier backward; "
                "pass retain_graph=True there, or record again"
            )
        seen.add(call.serial)
        stack.append((call, True))
        stack += [(s[0], False) for s in reversed(call.sources) if isinstance(s, tuple)]
    return order


def _arrive(arrived: dict[Any, Entry], source: Any, g: Entry) -> None:
    key = key_of(source)
    arrived[key] = arrived[key] + g if key in arrived else g


#: Plans by the structure of the tape; forgotten all at once when there are too many.
_plans: dict[Any, Any] = {}
PLANS = 512


def in_pieces(leaves: Sequence[Leaf | Cut]) -> bool:
    """Whether a backward runs as several operations: where its gradients travel over links."""
    return any(leaf.gradient is not None and leaf.gradient.device.linked for leaf in leaves)


def _plan(step: Step, leaves: Sequence[Leaf | Cut], in_place: bool) -> Any:
    key = (step.structure(leaves), in_place, in_pieces(leaves))
    plan = _plans.get(key)
    if plan is None:
        if len(_plans) >= PLANS:
            _plans.clear()
        plan = _plans[key] = _compiled(step, leaves, in_place)
    return plan


def _compiled(step: Step, leaves: Sequence[Leaf | Cut], in_place: bool) -> Any:
    with Trace():
        inputs, found = step.graph(leaves)
        targets = [placeholder(leaf.spec) for leaf in leaves] if in_place else []
        updates = []
        for position, (leaf, target) in enumerate(zip(leaves, targets, strict=False)):
            new = target + found[position] if leaf.request == "add" else found[position]
            updates.append((position, new))
    graph = Graph((*targets, *inputs), () if in_place else found, updates, "backward")
    arrays = [e for e in graph.inputs if not e.spec.weak]
    numbers = [e for e in graph.inputs if e.spec.weak]
    # Targets come first among the arrays, so updates keep their positions.
    order = Graph((*arrays, *numbers), graph.outputs, graph.updates, "backward")
    random = any(node.op is not None and node.op.random for node in order.walk())
    pieces = in_pieces(leaves) and not random
    # A gradient that could not be computed must not pass for the one of the batch before.
    plan = Chain(order, keeps=False) if pieces else plan_of(order, keeps=False)
    return plan, [e.spec.weak for e in graph.inputs]


def _ordered(values: list[Any], weak: list[bool]) -> list[Any]:
    """Arrays first, then numbers, as plans take them."""
    arrays = [v for v, w in zip(values, weak, strict=True) if not w]
    return arrays + [v for v, w in zip(values, weak, strict=True) if w]


def run_into_gradients(step: Step, leaves: Sequence[Leaf]) -> None:
    """Run a step's gradient graph, writing (or adding) into the leaves' gradients."""
    plan, weak = _plan(step, leaves, in_place=True)
    values = [leaf.gradient for leaf in leaves] + step.arguments()
    plan(*_ordered(values, weak))


def run_fresh(step: Step, leaves: Sequence[Leaf | Cut]) -> list[Any]:
    """Run a step's gradient graph; the leaves' gradients as new arrays."""
    plan, weak = _plan(step, leaves, in_place=False)
    return list(plan(*_ordered(step.arguments(), weak)))

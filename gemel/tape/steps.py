"""Steps: the parts of the tape that some heads depend on.

A step is what one call of `backward()` processes: the recorded calls in order, the heads and the
targets. It can be turned into one gradient graph (`Step.graph`); steps with the same `structure`
have the same graph. `reverse` runs steps, `step_plans` compiles them.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

from gemel import _core
from gemel.errors import GradientError
from gemel.ir.graph import Entry, inline, placeholder
from gemel.ir.interpret import spec_of
from gemel.ops.elementwise import full
from gemel.ops.shape import transpose
from gemel.runtime.files import digest
from gemel.spec import Spec
from gemel.tape.function import FunctionCall
from gemel.tape.kinds import Pullback
from gemel.tape.recording import Leaf, key_of, source_of
from gemel.tape.views import inverse


class Target:
    """A source whose gradient is wanted. A `Leaf` is itself a target, with the same attributes."""

    __slots__ = ("key", "leaf", "source", "spec")

    def __init__(self, source: Any, spec: Spec, leaf: Leaf | None) -> None:
        self.source = source
        self.key = key_of(source)
        self.spec = spec
        self.leaf = leaf  # the variable that receives the gradient, if any

    @property
    def words(self) -> tuple[int, ...]:
        """Its part in the key of the gradient graph (`Step.structure`)."""
        return self.leaf.words if self.leaf is not None else (0, *_words(self.spec))


class Head(NamedTuple):
    """An array the backward pass starts from, and its gradient (None for ones)."""

    source: Any
    spec: Spec
    gradient: Any
    device: Any


class Step:
    """Calls of the tape in order, and the heads where the backward pass starts."""

    def __init__(self, heads: list[Head], calls: list[Any]) -> None:
        self.heads = heads
        self.calls = calls
        #: For each call, the sources that its gradients go to.
        self.sources = [call.sources for call in calls]
        # This runs in each training step, and lists take half the time of generators.
        if [call for call in calls if call.reached is not None]:
            self._follow()
        if [call for call in self.calls if call.freed]:
            raise GradientError(
                "backward: this part of the tape was freed by an earlier backward; "
                "pass retain_graph=True there, or record again"
            )
        self.has_functions = any(isinstance(call, FunctionCall) for call in calls)

    @classmethod
    def of(cls, heads: list[Any], grads: list[Any]) -> Step:
        """The step that computed some arrays, given their gradients (None for ones)."""
        found = []
        for head, g in zip(heads, grads, strict=True):
            g = None if g is None else g.astype(head.dtype, copy=False)
            found.append(Head(source_of(head), spec_of(head), g, head.device))
        return cls(found, _core.calls_before([head.source for head in found]))

    def _follow(self) -> None:
        """Drop calls and sources that matter only to outputs the heads do not depend on."""
        asked: dict[int, int] = {}  # a bit for each output of a call
        for head in self.heads:
            _ask(asked, head.source)
        found = []
        for call in reversed(self.calls):
            bits = asked.get(id(call), 0)
            if bits:
                sources = call.sources
                if call.reached is not None:
                    pairs = zip_longest(sources, call.reached[: len(sources)], fillvalue=0)
                    sources = tuple([s if reached & bits else None for s, reached in pairs])
                for source in sources:
                    _ask(asked, source)
                found.append((call, sources))
        self.calls = [call for call, _ in reversed(found)]
        self.sources = [sources for _, sources in reversed(found)]

    def by_device(self) -> list[Step]:
        """A step for each device of the heads, so that devices compute in parallel; or itself."""
        devices = dict.fromkeys([head.device for head in self.heads])
        if len(devices) < 2 or self.has_functions:
            return [self]
        groups = [[head for head in self.heads if head.device is device] for device in devices]
        return [Step(heads, _core.calls_before([h.source for h in heads])) for heads in groups]

    def targets(self) -> list[Target | Leaf]:
        """The variables that the step depends on."""
        sources = [head.source for head in self.heads]
        sources += [source for each in self.sources for source in each]
        leaves = dict.fromkeys([source for source in sources if isinstance(source, Leaf)])
        found: list[Target | Leaf] = [*leaves]
        asked: set[Any] = set()
        for call in self.calls:
            if call.variables:
                asked = asked or set(map(key_of, filter(None, sources)))
                pairs = [((call, index), leaf) for index, leaf in call.variables.items()]
                found += [Target(s, leaf.spec, leaf) for s, leaf in pairs if key_of(s) in asked]
        return found

    def wanted(self, targets: Sequence[Target | Leaf]) -> list[tuple[bool, ...]]:
        """For each call and each input, whether the input's gradient leads to a target."""
        return _core.leading(self.calls, self.sources, [target.source for target in targets])

    def free(self) -> None:
        """Release what the calls of this step saved."""
        for call in self.calls:
            call.free()

    # --- steps as graphs ----------------------------------------------------------------------

    def structure(self, targets: Sequence[Target | Leaf], wanted: list[tuple[bool, ...]]) -> bytes:
        """A digest that two steps share if they have the same gradient graph."""
        words = [len(targets), len(self.heads)]
        for target in targets:
            words += target.words
        for head in self.heads:
            words += (head.gradient is None, *_words(head.spec))
        ends, heads = [target.source for target in targets], [head.source for head in self.heads]
        walked = _core.step_words(self.calls, self.sources, wanted, ends, heads)
        return digest(array("q", words).tobytes() + walked)

    def graph(
        self, targets: Sequence[Target | Leaf], wanted: list[tuple[bool, ...]]
    ) -> tuple[list[Entry], list[Entry], list[tuple[int, Pullback]]]:
        """The gradient graph: its inputs, the gradients of the targets, and the pullbacks it reads.

        The inputs are the given gradients of heads, then, for each call from the last to the first,
        what its pullback reads. The third result has (position of the call, pullback) for these.
        """
        inputs: list[Entry] = []
        arrived: dict[Any, Entry] = {}
        for source, spec, g, _ in self.heads:
            if g is None:
                arrive(arrived, source, full(1, shape=spec.shape, dtype=spec.dtype))
            else:
                inputs.append(placeholder(spec))
                arrive(arrived, source, inputs[-1])
        reads = []
        for position, call, gs, pullback in backwards(self.calls, wanted, arrived):
            reads.append((position, pullback))
            given = pullback.graph.inputs[len(gs) :]
            orders = [_core.turned(call.kept(port).array) for port in pullback.arrays]
            own = [_lying(entry.spec, order) for entry, order in zip_longest(given, orders)]
            inputs += own
            pairs = zip_longest(own, orders)
            seen = [e if order is None else transpose(e, axes=inverse(order)) for e, order in pairs]
            found = inline(pullback.graph, (*gs, *seen))
            for index, g in zip(pullback.targets, found, strict=True):
                arrive(arrived, call.sources[index], g)
        for target in targets:
            if target.key not in arrived:
                arrived[target.key] = full(0, shape=target.spec.shape, dtype=target.spec.dtype)
        return inputs, [arrived[target.key] for target in targets], reads


def _lying(spec: Spec, order: tuple[int, ...] | None) -> Entry:
    """A placeholder for an array with this spec in the order of its memory."""
    if order is None:
        return placeholder(spec)
    return placeholder(Spec((spec.shape[axis] for axis in order), spec.dtype))


def _ask(asked: dict[int, int], source: Any) -> None:
    """Note that a source is needed, if it is the output of a call."""
    if isinstance(source, tuple):
        call, index = source
        asked[id(call)] = asked.get(id(call), 0) | 1 << index


def _words(spec: Spec) -> tuple[int, ...]:
    return spec.dtype.code, spec.ndim, *spec.shape


def backwards(
    calls: list[Any],
    wanted: list[tuple[bool, ...]],
    arrived: dict[Any, Any],
    create_graph: bool = False,
) -> Iterator[tuple[int, Any, list[Any], Pullback]]:
    """The calls that gradients reach, last first: (position, call, gradients arrived, pullback)."""
    for position in range(len(calls) - 1, -1, -1):
        call, mask = calls[position], wanted[position]
        if True not in mask:
            continue
        key = id(call)
        if len(call.kind.outputs) == 1:  # most of them, and this is quicker
            g = arrived.get((key, 0))
            if g is not None:
                yield position, call, [g], call.kind.pullback(ONE, mask, create_graph)
            continue
        found = [arrived.get((key, index)) for index in range(len(call.kind.outputs))]
        present = tuple([g is not None for g in found])
        if True in present:
            gs = [g for g in found if g is not None]
            yield position, call, gs, call.kind.pullback(present, mask, create_graph)


#: Which gradients have arrived at a call with one output.
ONE = (True,)


def arrive(arrived: dict[Any, Any], source: Any, g: Any) -> None:
    """Add a gradient to those that have arrived at a source."""
    key = key_of(source)
    before = arrived.get(key)
    arrived[key] = g if before is None else before + g


__all__ = ["Head", "Step", "Target", "arrive", "backwards"]

"""Gradients that a compiled function takes itself (`autograd.grad` inside of it), and aliasing.

In imperative code an array is one variable, under whatever names it is read: as two arguments, or
as a parameter and a closed-over array. In a program each name is a separate input, so ::

    @gemel.compile
    def f(x, y):
        return autograd.grad(loss(x, y), x)

must add the gradient through y when it is called as f(a, a). So a trace notes which inputs were
the same variable ("tied"), and the program is only valid for calls where the same inputs are tied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gemel.errors import GradientError
from gemel.ir.graph import Entry, Node
from gemel.ir.interpret import spec_of
from gemel.ir.trace import Trace
from gemel.ops.elementwise import add
from gemel.passes.gradient import dependencies, total_gradient
from gemel.tape.recording import current_source, key_of
from gemel.tape.steps import Step
from gemel.tape.views import overlap

# --- while tracing --------------------------------------------------------------------------


def whole_gradient(
    trace: Trace, ends: Sequence[Entry], grads: Sequence[Entry], wanted: Sequence[Entry]
) -> tuple[Entry, ...]:
    """The total gradients of entries in a trace, through all inputs that are the same variables.

    Operations use their inputs as they were then, even if these were overwritten since. An array
    that was overwritten while recording was off is the same variable as before.
    """
    arrays = trace.inputs.arrays()
    wanted = [trace.recording.origin(entry) for entry in wanted]
    others = [_others(entry, arrays) for entry in wanted]
    _note(trace, ends, [entry for entry in wanted if entry in arrays], arrays)
    every = list(dict.fromkeys([*wanted, *(each for group in others for each in group)]))
    totals = []
    with trace.state.as_made():
        parts = total_gradient(ends, grads, every, trace.recording.was_on)
        arrived = dict(zip(every, parts, strict=True))
        for entry, group in zip(wanted, others, strict=True):
            whole = arrived[entry]
            for other in group:
                whole = add(whole, arrived[other])
            totals.append(whole)
    return tuple(totals)


def _others(entry: Entry, arrays: dict[Entry, Any]) -> list[Entry]:
    """The other inputs that are the same variable as `entry`."""
    if entry not in arrays:
        return []
    known = variable_of(arrays[entry])
    same = (other for other, array in arrays.items() if variable_of(array) == known)
    return [other for other in same if other is not entry]


def _note(
    trace: Trace, ends: Sequence[Entry], wanted: Iterable[Entry], arrays: dict[Entry, Any]
) -> None:
    """Note which inputs the ends depend on, whose gradients were taken for `wanted` inputs."""

    def stops(node: Node) -> bool:
        return not trace.recording.was_on(node) or node.op is None or not node.op.recorded

    read = [entry for entry in dependencies(ends, stops) if entry in arrays]
    for entry in wanted:
        trace.recording.gradient_reads.setdefault(entry, {}).update(dict.fromkeys(read))


# --- when the program runs ------------------------------------------------------------------


class InnerGradients:
    """The inputs a program takes gradients for, and which inputs were the same variables."""

    def __init__(self, trace: Trace, inputs: Sequence[Entry], arrays: Callable[[], Any]) -> None:
        places = {entry: position for position, entry in enumerate(inputs)}
        #: Positions (one, other): a gradient is taken for `one` of something that reads `other`.
        self.pairs = [
            (places[entry], places[other])
            for entry, read in trace.recording.gradient_reads.items()
            for other in read
            if other is not entry and entry in places and other in places
        ]
        self.ties = self._ties(arrays()) if self.pairs else []

    def _ties(self, arrays: Sequence[Any]) -> list[bool]:
        variables = list(map(variable_of, arrays))
        return [variables[one] == variables[other] for one, other in self.pairs]

    def holds(self, arrays: Callable[[], Sequence[Any]]) -> bool:
        """Whether the same inputs are tied as when it was traced."""
        return not self.pairs or self._ties(arrays()) == self.ties

    def check(self, name: str, arrays: Sequence[Any]) -> None:
        """Raises `GradientError` if, in imperative code, the gradient would also come through an
        input that is a view of the variable, or was computed from it while recording.
        """
        for (one, other), tied in zip(self.pairs, self.ties, strict=True):
            if not tied and _leads_to(arrays[other], arrays[one]):
                array, origin = spec_of(arrays[other]), spec_of(arrays[one])
                raise GradientError(
                    f"grad: {name} takes a gradient for {origin} but also reads {array}, a view "
                    "of the same array or computed from it outside of the function; take views "
                    "and compute inside the function, or pass a copy or x.detach()"
                )

    @property
    def is_tied(self) -> bool:
        """Whether two inputs were the same variable."""
        return True in self.ties

    def is_decided_by(self, written: Sequence[int], argument_count: int) -> bool:
        """Whether the check of written arrays for shared memory implies that no inputs are tied.

        The first `argument_count` inputs are arguments, the others the program's own arrays.
        """
        count = argument_count
        known = (one in written or min(one, other) >= count for one, other in self.pairs)
        return not self.is_tied and all(known)


def variable_of(array: Any) -> Any:
    """A key that two arrays share if they are the same variable."""
    source = current_source(array)
    if source is not None:
        return key_of(source)
    history = array._history
    if history is None:
        return id(array)
    return id(history), array.shape, array._element_strides, array.offset


def is_computed(array: Any) -> bool:
    """Whether an array was computed from variables while recording."""
    return isinstance(current_source(array), tuple)


def _leads_to(array: Any, origin: Any) -> bool:
    """Whether an array overlaps another one, or was computed from it while recording."""
    history = array._history
    if history is not None and history is origin._history:
        return overlap(array, origin)
    if not is_computed(array):
        return False
    step = Step.of([array], [None])
    variable = variable_of(origin)
    sources = (source for each in step.sources for source in each if source is not None)
    return any(key_of(source) == variable for source in sources)


__all__ = ["InnerGradients", "is_computed", "variable_of", "whole_gradient"]

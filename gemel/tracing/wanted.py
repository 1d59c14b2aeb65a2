"""Gradients a program takes itself: which inputs they are for, and which of these are the same.

Imperatively an array is one variable, by whatever name it is read: as an argument, as another one,
as an array the function closes over, as a parameter's. In a program each of these is an input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gemel._core import Array
from gemel.errors import GradientError
from gemel.ir.graph import Entry, Node
from gemel.ir.interpret import spec_of
from gemel.ir.trace import Trace
from gemel.ops.elementwise import add
from gemel.passes.gradient import leading_to, total_gradient
from gemel.tape.recording import current_source, key_of
from gemel.tape.steps import Step
from gemel.tape.views import meet

# --- while tracing --------------------------------------------------------------------------


def whole_gradient(
    trace: Trace, ends: Sequence[Entry], grads: Sequence[Entry], wanted: Sequence[Entry]
) -> tuple[Entry, ...]:
    """Total gradients of entries in a trace, by way of all inputs that are the same variable.

    What operations read is what it was then, though it may have been overwritten.
    """
    arrays = trace.arrays()
    others = [_others(entry, arrays) for entry in wanted]
    _note(trace, ends, [entry for entry in wanted if entry in arrays], arrays)
    every = list(dict.fromkeys([*wanted, *(each for group in others for each in group)]))
    found = []
    with trace.as_made():
        parts = total_gradient(ends, grads, every, trace.was_recorded)
        arrived = dict(zip(every, parts, strict=True))
        for entry, group in zip(wanted, others, strict=True):
            whole = arrived[entry]
            for other in group:
                whole = add(whole, arrived[other])
            found.append(whole)
    return tuple(found)


def _others(entry: Entry, arrays: dict[Entry, Any]) -> list[Entry]:
    """The other inputs that are the same variable as one."""
    if entry not in arrays:
        return []
    known = variable_of(arrays[entry])
    same = (each for each, array in arrays.items() if variable_of(array) == known)
    return [each for each in same if each is not entry]


def _note(
    trace: Trace, ends: Sequence[Entry], wanted: Iterable[Entry], arrays: dict[Entry, Any]
) -> None:
    """Note what the gradients of inputs have been taken of: of which inputs."""

    def stops(node: Node) -> bool:
        return not trace.was_recorded(node) or node.op is None or not node.op.recorded

    read = [entry for entry in leading_to(ends, stops) if entry in arrays]
    for entry in wanted:
        trace.wanted.setdefault(entry, {}).update(dict.fromkeys(read))


# --- when it runs ---------------------------------------------------------------------------


class Wanted:
    """What a program takes gradients for, and which of its arrays were the same when traced."""

    def __init__(self, trace: Trace, inputs: Sequence[Entry], arrays: Callable[[], Any]) -> None:
        places = {entry: position for position, entry in enumerate(inputs)}
        #: For each input a gradient is taken for: another one that what it is taken of depends on.
        self.pairs = [
            (places[entry], places[other])
            for entry, read in trace.wanted.items()
            for other in read
            if other is not entry and entry in places and other in places
        ]
        self.ties = self._ties(arrays()) if self.pairs else []

    def _ties(self, arrays: Sequence[Any]) -> list[bool]:
        variables = list(map(variable_of, arrays))
        return [variables[one] == variables[other] for one, other in self.pairs]

    def holds(self, arrays: Callable[[], Sequence[Any]]) -> bool:
        """Whether the same arrays are the same variables as when it was traced."""
        return not self.pairs or self._ties(arrays()) == self.ties

    def check(self, name: str, arrays: Sequence[Any]) -> None:
        """Raises `GradientError` where a gradient would go on outside of the program.

        Imperatively it reaches a variable by way of its views, too, and of what has been computed
        from it while recording.
        """
        for (one, other), tied in zip(self.pairs, self.ties, strict=True):
            if not tied and _leads_to(arrays[other], arrays[one]):
                array, origin = spec_of(arrays[other]), spec_of(arrays[one])
                raise GradientError(
                    f"grad: {name} takes a gradient for {origin} and reads {array}, which "
                    "shows a part of the same array, or was computed from it, outside of the "
                    "function; take views and compute inside, or give a copy or x.detach()"
                )

    @property
    def is_tied(self) -> bool:
        """Whether any of its arrays are the same variable."""
        return True in self.ties

    def is_decided_by(self, written: Sequence[int], given: int) -> bool:
        """Whether no arrays are the same variable where what is written shares memory with nothing:
        of `given` arguments, behind which are arrays of the program's own.
        """
        known = (one in written or min(one, other) >= given for one, other in self.pairs)
        return not self.is_tied and all(known)


def are_apart(arguments: Sequence[Any], storages: frozenset[int]) -> bool:
    """Whether arrays share no memory, nor any with these storages, and are no results of what was
    recorded.
    """
    found = set(storages)  # without comprehensions: it is done before every call
    count = len(found)
    for argument in arguments:
        if isinstance(argument, Array):
            found.add(argument._storage)
            count += 1
            if argument._is_tracked and is_computed(argument):
                return False
    return len(found) == count


def variable_of(array: Any) -> Any:
    """The same for arrays that are the same variable."""
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
    """Whether an array shows a part of the same contents as another one, or was computed from it.

    Views made of the two inside of the function may be the same part of those.
    """
    history = array._history
    if history is not None and history is origin._history:
        return meet(array, origin)
    if not is_computed(array):
        return False
    step = Step.of([array], [None])
    variable = variable_of(origin)
    sources = (source for each in step.sources for source in each if source is not None)
    return any(key_of(source) == variable for source in sources)


__all__ = ["Wanted", "is_computed", "variable_of", "whole_gradient"]

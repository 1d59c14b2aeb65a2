"""Backward through Python: the tape cut at the calls of `autograd.Function`.

Between two of them the tape becomes a gradient graph, as the whole tape does where there are none.
"""

from __future__ import annotations

from typing import Any

from gemel import _core
from gemel.function import FunctionCall
from gemel.ops.elementwise import copy, full
from gemel.tape import Cut, Leaf, Step, key_of, run_fresh


def is_cut(step: Step) -> bool:
    """Whether a function written in Python is among the calls of a step."""
    return any(isinstance(call, FunctionCall) for call in step.calls)


class Arrived:
    """The gradients that have arrived so far, by where they arrived."""

    def __init__(self) -> None:
        self.found: dict[Any, Any] = {}

    def add(self, source: Any, gradient: Any) -> None:
        """One more gradient for a variable or a result of a call."""
        key = key_of(source)
        self.found[key] = self.found[key] + gradient if key in self.found else gradient

    def of(self, call: Any, index: int) -> Any:
        """The gradient of a call's result, or None."""
        return self.found.get((id(call), index))


def gradients(step: Step, leaves: list[Leaf]) -> list[Any]:
    """The gradients of the leaves as new arrays; None where none arrives."""
    recording = _core.set_recording(False)
    try:
        arrived = Arrived()
        for source, spec, g, device in step.heads():
            arrived.add(source, _filled(1, spec, device) if g is None else g)
        end = len(step.calls)
        while end > 0:
            call = step.calls[end - 1]
            begin = end - 1
            if isinstance(call, FunctionCall):
                _through_function(call, arrived)
            else:
                while begin > 0 and not isinstance(step.calls[begin - 1], FunctionCall):
                    begin -= 1
                _through_graph(step.calls[begin:end], arrived)
            end = begin
        return [arrived.found.get(leaf.key) for leaf in leaves]
    finally:
        _core.set_recording(recording)


def write(leaves: list[Leaf], found: list[Any]) -> None:
    """Leave the gradients where backward leaves them, all of them now that all are known."""
    recording = _core.set_recording(False)
    try:
        for leaf, gradient in zip(leaves, found, strict=True):
            if leaf.request == "add" and gradient is not None:
                leaf.gradient += gradient
            elif leaf.request == "write":
                copy.into(leaf.gradient, 0 if gradient is None else gradient)
    finally:
        _core.set_recording(recording)


def fresh(leaves: list[Leaf], found: list[Any]) -> list[Any]:
    """The gradients as `grad` gives them: zeros where none arrived."""
    return [
        _filled(0, leaf.spec, leaf.gradient.device) if g is None else g
        for leaf, g in zip(leaves, found, strict=True)
    ]


def _filled(value: int, spec: Any, device: Any) -> Any:
    with device:
        return full(value, shape=tuple(spec.shape), dtype=spec.dtype)


def _through_function(call: FunctionCall, arrived: Arrived) -> None:
    given = [arrived.of(call, index) for index in range(len(call.outputs))]
    if all(g is None for g in given):
        return
    known = zip(given, call.outputs, call.devices, strict=True)
    filled = [_filled(0, spec, device) if g is None else g for g, spec, device in known]
    for source, g in zip(call.sources, call.backward(tuple(filled)), strict=True):
        if source is not None and g is not None:
            arrived.add(source, g)


def _through_graph(calls: list[Any], arrived: Arrived) -> None:
    heads = [
        ((call, index), spec, arrived.of(call, index))
        for call in calls
        for index, spec in enumerate(call.outputs)
        if arrived.of(call, index) is not None
    ]
    if not heads:
        return
    inside = {id(call) for call in calls}
    ends: dict[Any, Any] = {}
    for call in calls:
        for source, spec in zip(call.sources, call.inputs, strict=True):
            if source is None or (isinstance(source, tuple) and id(source[0]) in inside):
                continue
            end = source if isinstance(source, Leaf) else Cut(source, spec)
            ends.setdefault(key_of(source), end)
    part = Step.part(heads, calls)
    for key, g in zip(ends, run_fresh(part, list(ends.values())), strict=True):
        source = ends[key].source if isinstance(ends[key], Cut) else ends[key]
        arrived.add(source, g)


__all__ = ["fresh", "gradients", "is_cut", "write"]

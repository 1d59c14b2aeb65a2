"""Relay: a program with operations that have no kernel, as plans with NumPy's work between them.

Every part is an operation of the engine and runs when its inputs are ready. Nothing waits, except
for a condition that decides which of several such programs runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from gemel.device import current_device
from gemel.ir.graph import Graph, Node, placeholder
from gemel.ir.interpret import reference
from gemel.ir.op import Op
from gemel.passes.split import Piece, cut
from gemel.runtime import callback
from gemel.runtime.stages import Planner, Stage, Stages, arrays_first
from gemel.spec import Spec


def core_step(op: Op, specs: Sequence[Spec], parameters: dict[str, Any]) -> Any:
    """How the C++ core itself does this work on dense arrays of the host (`Op.step`), or None."""
    rule = op.rules.step
    return None if rule is None else rule(*specs, **parameters)


def by_numpy(
    op: Op, parameters: dict[str, Any], specs: Sequence[Spec], *inputs: Any
) -> tuple[Any, ...]:
    """Issue an operation without a kernel on arrays and numbers; return results with these specs.

    By its `issue` rule, by the core's own code, or by its NumPy reference.
    """
    if op.rules.issue is not None:
        return (op.rules.issue(*inputs, **parameters),)
    arrays = [value for value in inputs if hasattr(value, "device")]
    known = [Spec(array.shape, array.dtype) for array in arrays]
    linked = any(array.device.linked for array in arrays)
    if not linked and core_step(op, known, parameters) is not None:
        return (op(*[a if a._is_contiguous else a.copy() for a in arrays], **parameters),)

    def run(*contents: Any) -> Any:
        left = iter(contents)
        values = [next(left) if hasattr(value, "device") else value for value in inputs]
        return reference(op, *values, **parameters)

    return callback.issue(op.name, run, arrays, specs)


def on_current_device(plan: Any, *numbers: Any) -> Any:
    """Call a plan without array arguments, which would determine the device, on the current
    one."""
    if isinstance(plan, Relay):
        return plan(*numbers)
    return plan(*numbers, device=current_device().code)


class Relay(Stages):
    """A graph with known extents as plans and operations. Called like a plan: arrays first.

    Updates are written at the end, all at once, so that until then everything reads the old values.
    A run uses at least `random` call numbers.
    """

    def __init__(self, graph: Graph, plan: Planner, random: int = 0) -> None:
        whole, parts = cut(graph, random)
        inputs = arrays_first(whole.inputs)
        super().__init__(graph.name, inputs, partial(_placed, plan))
        self.shapes = [entry.shape for entry in inputs if not entry.spec.weak]
        for part in parts:
            self._add(part, plan)
        self.outputs = self.slots(whole.outputs[: len(graph.outputs)])
        if whole.updates:
            self._add_updates(whole)

    def _add(self, part: Piece | Node, plan: Planner) -> None:
        """Add one part: an operation that NumPy does, or a plan."""
        if isinstance(part, Node):
            assert part.op is not None
            rule = part.op.rules.control
            call: Callable[..., Any]
            if rule is None:
                call = partial(by_numpy, part.op, part.params, part.specs)
            else:
                call = partial(rule, _Programs(part.op.name, plan), **part.params)
            self.stages.append(Stage(call, self.slots(part.inputs), self.slots(part.entries)))
            return
        inner = dict(zip(part.inputs, part.graph.inputs, strict=True))
        self.add_plan(inner, part.graph.outputs, self.slots(part.outputs))

    def _add_updates(self, whole: Graph) -> None:
        """Add the plan that writes the updates."""
        pairs = [(whole.inputs[index], entry) for index, entry in whole.updates]
        targets, values = zip(*pairs, strict=True)
        inner = {entry: placeholder(entry.spec) for entry in dict.fromkeys((*targets, *values))}
        self.add_plan(inner, (), [], [(target, inner[value]) for target, value in pairs])

    def bound(self, *arrays: Any) -> tuple[float, int]:
        """As `Plan.bound`: (cost, workspace), which are not known here. `TypeError` for other
        shapes."""
        if [array.shape for array in arrays] != self.shapes:
            raise TypeError(f"{self.name}: it was made for shapes {self.shapes}")
        return 0.0, 0

    def __call__(self, *values: Any) -> tuple[Any, ...]:
        """Issue all parts; return the results."""
        arrays = (value for value in values if hasattr(value, "device"))
        with next((array.device for array in arrays), None) or current_device():
            return tuple(self.run(values))


class _Programs:
    """Runs graphs that are parameters of an operation; each is compiled when it first runs."""

    def __init__(self, name: str, plan: Planner) -> None:
        self.name = name
        self._plan = plan
        self._known: dict[Graph, tuple[Relay, list[int]]] = {}

    def __call__(self, graph: Graph, *values: Any) -> tuple[Any, ...]:
        if graph not in self._known:
            order = sorted(range(len(values)), key=lambda i: graph.inputs[i].spec.weak)
            self._known[graph] = Relay(graph, self._plan), order
        program, order = self._known[graph]
        return program(*[values[i] for i in order])


def _placed(plan: Planner, graph: Graph) -> Any:
    """The plan of a part; one that takes no arrays runs on the current device."""
    part = plan(graph)
    if all(entry.spec.weak for entry in graph.inputs):
        return partial(on_current_device, part)
    return part


__all__ = ["Relay", "by_numpy", "core_step"]

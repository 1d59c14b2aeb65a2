"""The backward pass: by a plan if the step has one (`step_plans`), or else call by call.

Call by call means that each gradient is computed by the operations' own kernels. This is used for
steps that are not worth a plan yet, for steps with calls of `autograd.Function`, and for gradients
with ``create_graph=True``, where the operations of the backward pass are recorded themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from gemel import _core
from gemel.ops.elementwise import copy, full
from gemel.tape.function import FunctionCall
from gemel.tape.recording import Leaf, key_of, recording
from gemel.tape.step_plans import plan_for_step
from gemel.tape.steps import Head, Step, Target, arrive, backwards


def into_gradients(step: Step, targets: Sequence[Target | Leaf]) -> None:
    """Write or add the gradients of the targets into the arrays of their variables (`x.grad`)."""
    leaves = [target.leaf for target in targets if target.leaf is not None]
    plan = None if step.has_functions else plan_for_step(step, targets, in_place=True)
    if plan is not None:
        found = plan.plan(*[leaf.gradient for leaf in leaves], *plan.arguments(step))
        for position, blocks in plan.blocks(found):
            leaves[position].blocks = leaves[position].state, blocks
        return
    # All are computed before the first is written, so that an error changes none.
    found = recording(False, gradients, step, targets)
    recording(False, _write, leaves, found)


def _write(leaves: list[Leaf], found: list[Any]) -> None:
    for leaf, gradient in zip(leaves, found, strict=True):
        if leaf.request == "write":
            copy.into(leaf.gradient, 0 if gradient is None else gradient)
        elif gradient is not None:
            leaf.gradient += gradient


def fresh(
    step: Step, targets: Sequence[Target | Leaf], devices: list[Any], create_graph: bool
) -> list[Any]:
    """The gradients of the targets as new arrays; with `create_graph` they are recorded."""
    plan = (
        None if create_graph or step.has_functions else plan_for_step(step, targets, in_place=False)
    )
    if plan is not None:
        return list(plan.plan(*plan.arguments(step)))
    return recording(create_graph, _apart, step, targets, devices, create_graph)  # type: ignore[no-any-return]


def _apart(
    step: Step, targets: Sequence[Target | Leaf], devices: list[Any], create_graph: bool
) -> list[Any]:
    """Gradients that share no memory with each other or with the given heads."""
    found = gradients(step, targets, create_graph)
    taken = {head.gradient._storage for head in step.heads if head.gradient is not None}
    for position, (target, g, device) in enumerate(zip(targets, found, devices, strict=True)):
        if g is None:
            found[position] = _filled(0, target.spec, device)
        elif g._storage in taken or not g._is_contiguous:
            found[position] = copy(g)
        taken.add(found[position]._storage)
    return found


def gradients(
    step: Step, targets: Sequence[Target | Leaf], create_graph: bool = False
) -> list[Any]:
    """The gradients of the targets, call by call; None for targets that no gradient reaches.

    In a step with `autograd.Function` calls, the runs of calls between them may have plans.
    """
    arrived: dict[Any, Any] = {}
    for head in step.heads:
        given = head.gradient
        given = _filled(1, head.spec, head.device) if given is None else given
        arrive(arrived, head.source, given)
    wanted = step.wanted(targets)
    ends = {target.key for target in targets}
    plans = step.has_functions and not create_graph
    end = len(step.calls)
    while end > 0:
        begin = end - 1
        if isinstance(step.calls[begin], FunctionCall):
            if True in wanted[begin]:
                _through_function(step.calls[begin], arrived, create_graph)
        else:
            while begin > 0 and not isinstance(step.calls[begin - 1], FunctionCall):
                begin -= 1
            calls, masks = step.calls[begin:end], wanted[begin:end]
            if not (plans and _by_plan(calls, masks, ends, arrived)):
                _one_by_one(calls, masks, ends, arrived, create_graph)
        end = begin
    return [arrived.get(target.key) for target in targets]


def _filled(value: int, spec: Any, device: Any) -> Any:
    with device:
        return full(value, shape=tuple(spec.shape), dtype=spec.dtype)


def _through_function(call: FunctionCall, arrived: dict[Any, Any], create_graph: bool) -> None:
    given = [arrived.get((id(call), index)) for index in range(len(call.outputs))]
    if all(g is None for g in given):
        return
    known = zip(given, call.outputs, call.devices, strict=True)
    filled = tuple(_filled(0, spec, device) if g is None else g for g, spec, device in known)
    for source, g in zip(call.sources, call.backward(filled, create_graph), strict=True):
        if source is not None and g is not None:
            arrive(arrived, source, g)


def _one_by_one(
    calls: list[Any],
    wanted: list[tuple[bool, ...]],
    ends: set[Any],
    arrived: dict[Any, Any],
    create_graph: bool,
) -> None:
    device = None
    with ExitStack() as stack:
        for _, call, gs, pullback in backwards(calls, wanted, arrived, create_graph):
            if gs[0].device is not device:
                device = stack.enter_context(gs[0].device)
            ports = pullback.arrays
            kept = map(call.tracked, ports) if create_graph else call.arrays(ports)
            run = pullback.compiled if pullback.spreads and not create_graph else pullback.run
            found = run([*gs, *kept, *pullback.numbers(call)])
            for index, g in zip(pullback.targets, found, strict=True):
                arrive(arrived, call.sources[index], g)
            for index in range(len(call.kind.outputs)):
                if (id(call), index) not in ends:
                    arrived.pop((id(call), index), None)


def _by_plan(
    calls: list[Any], wanted: list[tuple[bool, ...]], ends: set[Any], arrived: dict[Any, Any]
) -> bool:
    """Propagate gradients through some calls by a plan; False if they have none."""
    heads, targets = [], {}
    inside = {id(call) for call in calls}
    for call, mask in zip(calls, wanted, strict=True):
        for index, spec in enumerate(call.kind.outputs):
            key = id(call), index
            if key in arrived:
                g = arrived[key]
                heads.append(Head((call, index), spec, g, g.device))
            if key in ends:
                targets[key] = Target((call, index), spec, None)
        for source, spec, want in zip(call.sources, call.kind.inputs, mask, strict=True):
            if want and not (isinstance(source, tuple) and id(source[0]) in inside):
                targets[key_of(source)] = Target(source, spec, None)
    part = Step(heads, calls)
    plan = plan_for_step(part, list(targets.values()), in_place=False)
    arguments = plan.arguments(part) if plan is not None else []
    if plan is None or len({a.device for a in arguments if isinstance(a, _core.Array)}) > 1:
        return False  # consecutive calls may be on different devices
    for target, g in zip(targets.values(), plan.plan(*arguments), strict=True):
        if isinstance(target.source, tuple) and id(target.source[0]) in inside:
            arrived[target.key] = g  # includes what had arrived before, as that was a head
        else:
            arrive(arrived, target.source, g)
    return True


__all__ = ["fresh", "into_gradients"]

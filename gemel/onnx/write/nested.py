"""Operations with bodies: choices, and loops as far as values say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gemel.dtype import DType, bool_, int64
from gemel.ir.graph import Graph as Inner
from gemel.ir.graph import placeholder
from gemel.ir.loops import LoopSpec
from gemel.ir.op import find
from gemel.onnx.write.graph import Graph, may_be_empty
from gemel.onnx.write.table import Call, Written, exports
from gemel.spec import Spec, normalize_axis

SCALAR = Spec((), bool_)
#: What scans combine elements with.
COMBINES = {
    **{"cumprod": "multiply", "cummax": "maximum", "cummin": "minimum"},
    **{"logcumsumexp": "logaddexp"},
}


@exports("branch")
def _(
    graph: Graph, call: Call, condition: str, *inputs: str, then: Inner, otherwise: Inner
) -> Written:
    sides = [_side(graph, side, inputs) for side in (then, otherwise)]
    condition = graph.reshape(condition, call.inputs[0].shape, ())
    return graph.several(
        "If", len(call.results), condition, then_branch=sides[0], else_branch=sides[1]
    )


def _side(graph: Graph, side: Inner, inputs: Sequence[str]) -> Any:
    with graph.inside() as nodes:
        found = graph.inlined(side, inputs)
        return graph.body(nodes, (), _results(graph, found, side))


def _results(graph: Graph, found: Sequence[str], inner: Inner) -> list[tuple[str, Spec]]:
    """The results of a body under names of their own, with specs."""
    specs = (entry.spec for entry in inner.outputs)
    return [(graph.node("Identity", name), s) for name, s in zip(found, specs, strict=True)]


@exports("iterate")
def _(graph: Graph, call: Call, *inputs: str, condition: Inner, step: Inner) -> Written:
    count = len(step.outputs)
    shared, specs = inputs[count:], call.inputs[:count]
    first = _holds(graph, condition, inputs)
    with graph.inside() as nodes:
        formal = [(graph.named("round"), Spec((), int64)), (graph.named("more"), SCALAR)]
        states = [(graph.named("state"), spec) for spec in specs]
        found = graph.inlined(step, [*(name for name, _ in states), *shared])
        more = graph.node("Identity", _holds(graph, condition, [*found, *shared]))
        results = _results(graph, found, step)
        body = graph.body(nodes, [*formal, *states], [(more, SCALAR), *results])
    return graph.several("Loop", count, "", first, *inputs[:count], body=body)


def _holds(graph: Graph, condition: Inner, inputs: Sequence[str]) -> str:
    (found,) = graph.inlined(condition, inputs)
    return graph.reshape(found, condition.outputs[0].shape, ())


@exports("loop")
def _(graph: Graph, call: Call, *inputs: str, **parameters: Any) -> Written:
    loop = LoopSpec(**parameters)
    first, last = loop.data, loop.data + loop.states
    rounds, outputs = graph.number(loop.length), len(loop.outputs)
    with graph.inside() as nodes:
        count, more = graph.named("round"), graph.named("more")
        place = count
        if loop.reverse:
            place = graph.node("Sub", graph.node("Sub", rounds, graph.constant(1)), count)
        states = [graph.named("state") for _ in range(loop.states)]
        elements = [graph.node("Gather", x, place, axis=0) for x in inputs[:first]]
        found = _round_of(graph, loop, [*elements, *states, *inputs[last:]], states)
        given = zip(states, call.inputs[first:last], strict=True)
        formal = [(count, Spec((), int64)), (more, SCALAR), *given]
        made = [*found[outputs:], *found[:outputs]]
        body = graph.body(nodes, formal, [(graph.node("Identity", more), SCALAR), *made])
    results = graph.several(
        "Loop", len(made), rounds, graph.constant(True, bool_), *inputs[first:last], body=body
    )
    stacked = [
        _in_order(graph, name, entry.spec, loop)
        for name, entry in zip(results[loop.states :], loop.outputs, strict=True)
    ]
    return (*stacked, *results[: loop.states])


def _round_of(
    graph: Graph, loop: LoopSpec, given: Sequence[str], states: Sequence[str]
) -> list[tuple[str, Spec]]:
    """What a round returns, with specs; outputs have one axis, because onnx's evaluator stacks no
    others."""
    specs = [Spec((entry.spec.size,), entry.dtype) for entry in loop.outputs]
    specs += [entry.spec for entry in loop.after]

    def made(names: Sequence[str]) -> list[tuple[str, Spec]]:
        sources = [entry.shape for entry in loop.step.outputs]
        found = zip(names, sources, specs, strict=True)
        return [(graph.node("Identity", graph.reshape(n, s, spec.shape)), spec)
                for n, s, spec in found]  # fmt: skip

    if loop.condition < 0:
        return made(graph.inlined(loop.step, given))
    with graph.inside() as nodes:
        runs = graph.body(nodes, (), made(graph.inlined(loop.step, given)))
    with graph.inside() as nodes:
        zeros = [graph.expand(graph.constant(0, e.dtype), (), e.shape) for e in loop.outputs]
        rests = graph.body(nodes, (), made([*zeros, *states]))
    chosen = graph.several(
        "If", len(specs), given[loop.condition], then_branch=runs, else_branch=rests
    )
    return list(zip(chosen, specs, strict=True))


def _in_order(graph: Graph, stacked: str, spec: Spec, loop: LoopSpec) -> str:
    """An output of all rounds in the order of the data, with the axes of a round's output."""
    if loop.reverse:
        ends = (graph.constant([each]) for each in (-1, -(1 << 62), 0, -1))
        stacked = graph.node("Slice", stacked, *ends)
    return graph.reshape(stacked, (loop.length, spec.size), (loop.length, *spec.shape))


@exports("cumprod", "cummax", "cummin", "logcumsumexp")
def _(graph: Graph, call: Call, x: str, *, axis: int) -> Written:
    wide = call.result.dtype.accumulate
    x = graph.cast(x, call.inputs[0].dtype, wide)
    found = _so_far(graph, call, x, wide, COMBINES[call.name], axis)
    return graph.cast(found, wide, call.result.dtype)


@exports("running")
def _(graph: Graph, call: Call, x: str, *, by: str, axis: int) -> Written:
    dtype = call.result.dtype
    return _so_far(graph, call, graph.cast(x, call.inputs[0].dtype, dtype), dtype, by, axis)


def _so_far(graph: Graph, call: Call, x: str, dtype: DType, by: str, axis: int) -> str:
    """The first element, and what a function of two makes of the last result and each further
    one."""
    shape = call.result.shape
    place, lined = normalize_axis(call.name, axis, len(shape)), len(shape) == 1
    if lined:  # onnx's evaluator stacks no numbers
        shape, x = (*shape, 1), graph.node("Unsqueeze", x, graph.constant([1]))
    extent, row = shape[place], Spec((*shape[:place], *shape[place + 1 :]), dtype)
    empty = may_be_empty(extent)
    if empty:  # not all that run files can stack no rows
        ends = [int(axis == place) for axis in range(len(shape))]
        x = graph.padded(x, (0,) * len(shape), ends, graph.constant(0, dtype))
    others = [axis for axis in range(len(shape)) if axis != place]
    x = graph.node("Transpose", x, perm=[place, *others]) if place else x
    state = graph.expand(graph.constant(0, dtype), (), row.shape)
    rounds = graph.number(extent + 1 if empty else extent)
    more, body = graph.constant(True, bool_), _round(graph, by, row, x)
    _, found = graph.several("Loop", 2, rounds, more, state, body=body)
    if place:
        order = [*range(1, place + 1), 0, *range(place + 1, len(shape))]
        found = graph.node("Transpose", found, perm=order)
    if empty:
        begin, end = graph.constant([0]), graph.sizes((extent,))
        found = graph.node("Slice", found, begin, end, graph.constant([place]))
    return graph.node("Squeeze", found, graph.constant([1])) if lined else found


def _round(graph: Graph, by: str, row: Spec, x: str) -> Any:
    """The body of a loop over elements: the next result from the last one, but in the first
    round."""
    inputs = first, state, element = placeholder(SCALAR), placeholder(row), placeholder(row)
    combined = find(by).node((state, element), {}).entries[0]
    chosen = find("where").node((first, element, combined), {}).entries
    with graph.inside() as nodes:
        count, more, before = (graph.named(hint) for hint in ("round", "more", "state"))
        begins = graph.node("Equal", count, graph.constant(0))
        given = begins, before, graph.node("Gather", x, count, axis=0)
        (found,) = graph.inlined(Inner(inputs, chosen), given)
        results = [(graph.node("Identity", found), row) for _ in range(2)]
        formal = [(count, Spec((), int64)), (more, SCALAR), (before, row)]
        return graph.body(nodes, formal, [(graph.node("Identity", more), SCALAR), *results])

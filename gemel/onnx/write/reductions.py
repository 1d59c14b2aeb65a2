"""Sums, means and extremes along axes; matrix products."""

from __future__ import annotations

from typing import Any

from gemel.dtype import DType, bool_
from gemel.onnx.write.graph import Graph
from gemel.onnx.write.table import Call, Written, exports
from gemel.spec import normalize_axes, normalize_axis, promote_specs

REDUCTIONS = {
    "sum": "ReduceSum",
    "prod": "ReduceProd",
    "max": "ReduceMax",
    "min": "ReduceMin",
    "mean": "ReduceMean",
    "logsumexp": "ReduceLogSumExp",
}


@exports(*REDUCTIONS)
def _(graph: Graph, call: Call, x: str, *, axis: Any, keepdims: bool) -> Written:
    spec, dtype = call.inputs[0], call.result.dtype
    if spec.dtype is bool_ and call.name in ("max", "min"):
        return _counted(graph, call, x, axis, keepdims, every=call.name == "min")
    return _reduced(graph, call, graph.cast(x, spec.dtype, dtype), axis, keepdims)


def _reduced(graph: Graph, call: Call, x: str, axis: Any, keepdims: bool, kind: str = "") -> str:
    axes = normalize_axes(call.name, axis, call.inputs[0].ndim)
    if not axes:
        return x
    places = graph.constant(list(axes))
    return graph.node(kind or REDUCTIONS[call.name], x, places, keepdims=int(keepdims))


@exports("any", "all")
def _(graph: Graph, call: Call, x: str, *, axis: Any, keepdims: bool) -> Written:
    x = graph.cast(x, call.inputs[0].dtype, bool_)
    return _counted(graph, call, x, axis, keepdims, every=call.name == "all")


def _counted(graph: Graph, call: Call, x: str, axis: Any, keepdims: bool, every: bool) -> str:
    """Whether any element is true or, with `every`, none is false; found by counting."""
    x = graph.node("Not", x) if every else x
    number = graph.cast(x, bool_, "int64")
    total = _reduced(graph, call, number, axis, keepdims, "ReduceSum")
    found = graph.node("Greater", total, graph.constant(0))
    return graph.node("Not", found) if every else found


@exports("argmax", "argmin")
def _(graph: Graph, call: Call, x: str, *, axis: Any, keepdims: bool) -> Written:
    spec = call.inputs[0]
    kind = {"argmax": "ArgMax", "argmin": "ArgMin"}[call.name]
    x = graph.cast(x, bool_, "int32") if spec.dtype is bool_ else x
    if axis is not None and spec.ndim:
        place = normalize_axis(call.name, axis, spec.ndim)
        return graph.node(kind, x, axis=place, keepdims=int(keepdims))
    flat = graph.node("Reshape", x, graph.constant([-1]))
    found = graph.node(kind, flat, axis=0, keepdims=0)
    return graph.reshape(found, (), (1,) * spec.ndim) if keepdims else found


@exports("cumsum")
def _(graph: Graph, call: Call, x: str, *, axis: int) -> Written:
    place = normalize_axis("cumsum", axis, call.inputs[0].ndim)
    x = graph.cast(x, call.inputs[0].dtype, call.result.dtype)
    return graph.node("CumSum", x, graph.constant(place))


@exports("matmul")
def _(graph: Graph, call: Call, a: str, b: str) -> Written:
    dtype = call.result.dtype
    of_bools = dtype is bool_
    wide: Any = DType("int32") if of_bools or dtype.itemsize < 4 and dtype.kind in "iu" else dtype
    one, two = (graph.cast(x, s.dtype, wide) for x, s in zip((a, b), call.inputs, strict=True))
    found = graph.node("MatMul", one, two)
    if of_bools:
        return graph.node("Greater", found, graph.constant(0, wide))
    return graph.cast(found, wide, dtype)


@exports("wide_matmul")
def _(graph: Graph, call: Call, a: str, b: str) -> Written:
    pairs = zip((a, b), call.inputs, strict=True)
    one, two = (graph.cast(x, s.dtype, call.result.dtype) for x, s in pairs)
    return graph.node("MatMul", one, two)


@exports("einsum")
def _(graph: Graph, call: Call, *inputs: str, equation: str, path: Any) -> Written:
    dtype = call.result.dtype
    if dtype is bool_ or promote_specs(*call.inputs) is not dtype:
        return None
    pairs = zip(inputs, call.inputs, strict=True)
    return graph.node(
        "Einsum", *[graph.cast(x, s.dtype, dtype) for x, s in pairs], equation=equation
    )


@exports("det")
def _(graph: Graph, call: Call, x: str) -> Written:
    return graph.node("Det", graph.cast(x, call.inputs[0].dtype, call.result.dtype))

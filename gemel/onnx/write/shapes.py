"""Operations that move elements: shapes, axes, parts, positions."""

from __future__ import annotations

import math
from typing import Any

from gemel.dtype import DType, bool_
from gemel.extent import Dim, same_for_all
from gemel.onnx.write.graph import AFTER_ALL, BEFORE_ALL, Graph
from gemel.onnx.write.table import Call, Written, exports
from gemel.spec import normalize_axis


@exports("reshape")
def _(graph: Graph, call: Call, x: str, *, shape: Any) -> Written:
    return graph.reshape(x, call.inputs[0].shape, call.result.shape)


@exports("transpose")
def _(graph: Graph, call: Call, x: str, *, axes: Any) -> Written:
    ndim = call.result.ndim
    if ndim < 2:
        return x
    order = range(ndim)[::-1] if axes is None else [axis % ndim for axis in axes]
    return graph.node("Transpose", x, perm=list(order))


@exports("broadcast_to")
def _(graph: Graph, call: Call, x: str, *, shape: Any) -> Written:
    return graph.expand(x, call.inputs[0].shape, call.result.shape)


@exports("concatenate")
def _(graph: Graph, call: Call, *parts: str, axis: int) -> Written:
    dtype = call.result.dtype
    pairs = zip(parts, call.inputs, strict=True)
    return graph.node("Concat", *[graph.cast(x, s.dtype, dtype) for x, s in pairs], axis=axis)


@exports("split")
def _(graph: Graph, call: Call, x: str, *, sections: Any, axis: int) -> Written:
    lengths = [spec.shape[axis] for spec in call.results]
    if len(lengths) == 1:
        return x
    return graph.several("Split", len(lengths), x, graph.sizes(lengths), axis=axis)


@exports("narrow")
def _(graph: Graph, call: Call, x: str, *, axis: int, start: int, length: int) -> Written:
    return _sliced(graph, x, {axis: (start, length, 1)})


@exports("tril", "triu")
def _(graph: Graph, call: Call, x: str, *, k: int) -> Written:
    if call.inputs[0].ndim < 2:
        return None
    upper = call.name == "triu"
    k = k if isinstance(k, Dim) else math.ceil(k) if upper else math.floor(k)
    return graph.node("Trilu", x, graph.number(k), upper=int(upper))


# --- basic keys -----------------------------------------------------------------------------


@exports("basic_index")
def _(graph: Graph, call: Call, x: str, *, key: Any) -> Written:
    shape = call.inputs[0].shape
    items = [item for item in key if item[0] != "new"]
    for axis in range(len(items) - 1, -1, -1):  # so that earlier axes keep their numbers
        if items[axis][0] == "int":
            x = graph.node("Gather", x, graph.number(items[axis][1]), axis=axis)
    left = [(n, item[1:]) for n, item in zip(shape, items, strict=True) if item[0] == "slice"]
    given = [s for item, s in zip(key, call.slices, strict=False) if item[0] == "slice"]
    known = {axis: each for axis, each in enumerate(given) if _is_known(each)}
    x = _sliced_as_given(graph, x, {a: s for a, s in known.items() if s not in ALL})
    parts = {axis: part for axis, (n, part) in enumerate(left) if not _is_whole(n, part)}
    x = _sliced(graph, x, {axis: part for axis, part in parts.items() if axis not in known})
    kept = [item for item in key if item[0] != "int"]
    new = [place for place, item in enumerate(kept) if item[0] == "new"]
    return graph.node("Unsqueeze", x, graph.constant(new)) if new else x


def _is_whole(extent: int, part: tuple[int, int, int]) -> bool:
    """Whether a slice covers the whole axis."""
    start, length, step = part
    return type(start) is int and start == 0 and step == 1 and same_for_all(length, extent)


#: Slices that select all elements of any axis.
ALL = slice(None), slice(0, None), slice(None, None, 1), slice(0, None, 1)


def _is_known(given: slice | None) -> bool:
    """Whether a slice of the function has numbers alone."""
    return given is not None and not any(
        isinstance(each, Dim) for each in (given.start, given.stop, given.step)
    )


def _sliced_as_given(graph: Graph, x: str, slices: dict[int, Any]) -> str:
    """Slice some axes as the function did, which is right for any size: a canonical slice is right
    for sizes similar to those seen.

    A backward slice is a forward one of the turned axis, where -2 is 1, and 1 is -2. ONNX would
    begin a slice at the first element if it begins before that.
    """
    if not slices:
        return x
    spans = []
    for given in slices.values():
        step = 1 if given.step is None else given.step.__index__()
        ends = [None if each is None else each.__index__() for each in (given.start, given.stop)]
        begin, end = ends if step > 0 else [None if each is None else -1 - each for each in ends]
        spans.append((begin or 0, AFTER_ALL if end is None else end, step))
    x = _turned(graph, x, [axis for axis, (*_, by) in zip(slices, spans, strict=True) if by < 0])
    starts, ends, steps = ([*each] for each in zip(*spans, strict=True))
    numbers = starts, ends, list(slices), [abs(step) for step in steps]
    return graph.node("Slice", x, *map(graph.constant, numbers))


def _turned(graph: Graph, x: str, axes: list[int]) -> str:
    """Some axes turned around."""
    if not axes:
        return x
    last, first = graph.constant([-1] * len(axes)), graph.constant([BEFORE_ALL] * len(axes))
    return graph.node("Slice", x, last, first, graph.constant(axes), last)


def _sliced(graph: Graph, x: str, parts: dict[int, tuple[int, int, int]]) -> str:
    """Slice some axes by (start, length, step)."""
    if not parts:
        return x
    back = [axis for axis, (_, _, step) in parts.items() if step < 0]
    # A negative end would count from the other side, so backward slices are cut forward, then
    # turned.
    spans = [
        (start, start + length * step, step)
        if step > 0
        else (start + (length - 1) * step, start + 1, -step)
        for start, length, step in parts.values()
    ]
    starts, ends, steps = zip(*spans, strict=True)
    places, by = graph.constant(list(parts)), graph.constant(steps)
    x = graph.node("Slice", x, graph.sizes(starts), graph.sizes(ends), places, by)
    return _turned(graph, x, back)


@exports("place")
def _(graph: Graph, call: Call, x: str, *, key: Any, shape: Any) -> Written:
    return _placed(graph, x, call.inputs[0].dtype, key, call.result.shape)


def _placed(graph: Graph, x: str, dtype: DType, key: Any, shape: Any) -> str | None:
    """Zeros with x where a key selects; None for a key with steps."""
    new = [place for place, item in enumerate(i for i in key if i[0] != "int") if item[0] == "new"]
    items = [item for item in key if item[0] != "new"]
    taken = [axis for axis, item in enumerate(items) if item[0] == "int"]
    spans = [(*item[1:], 1, 1)[:3] for item in items]
    if any(step != 1 for _, _, step in spans):
        return None
    x = graph.node("Squeeze", x, graph.constant(new)) if new else x
    x = graph.node("Unsqueeze", x, graph.constant(taken)) if taken else x
    before = [start for start, _, _ in spans]
    after = [n - start - length for n, (start, length, _) in zip(shape, spans, strict=True)]
    return graph.padded(x, before, after, graph.constant(0, dtype))


@exports("assign")
def _(graph: Graph, call: Call, x: str, value: str, *, key: Any) -> Written:
    whole, part = call.inputs
    dtype = call.result.dtype
    selected = tuple(1 if item[0] == "new" else item[2] for item in key if item[0] != "int")
    value = graph.expand(graph.cast(value, part.dtype, dtype), part.shape, selected)
    values = _placed(graph, value, dtype, key, whole.shape)
    if values is None:
        return None
    ones = graph.expand(graph.constant(True, bool_), (), selected)
    chosen = _placed(graph, ones, bool_, key, whole.shape)
    assert chosen is not None
    return graph.node("Where", chosen, values, x)


@exports("border")
def _(
    graph: Graph, call: Call, x: str, *, before: Any, after: Any, lowest: bool, most: Any
) -> Written:
    dtype, lead = call.result.dtype, (0,) * (call.result.ndim - len(before))
    least: Any = (
        float("-inf") if dtype.is_floating else -(2**dtype.digits) if dtype.kind == "i" else 0
    )
    value = graph.constant(least if lowest else 0, dtype)
    return graph.padded(x, (*lead, *before), (*lead, *after), value)


# --- positions ------------------------------------------------------------------------------


def _positions(graph: Graph, indices: str, dtype: DType) -> str:
    """Convert positions to a dtype that ONNX accepts."""
    return indices if dtype.name in ("int32", "int64") else graph.cast(indices, dtype, "int64")


@exports("gather", "gather_inside")
def _(graph: Graph, call: Call, x: str, indices: str, *, axis: int) -> Written:
    return graph.node("Gather", x, _positions(graph, indices, call.inputs[1].dtype), axis=axis)


@exports("points")
def _(graph: Graph, call: Call, x: str, *indices: str, axis: int, **named: Any) -> Written:
    ndim, end = call.inputs[0].ndim, axis + len(indices)
    chosen = call.result.shape[axis : call.result.ndim - ndim + end]
    parts = []
    for index, spec in zip(indices, call.inputs[1:], strict=True):
        place = graph.expand(graph.cast(index, spec.dtype, "int64"), spec.shape, chosen)
        parts.append(graph.node("Unsqueeze", place, graph.constant([-1])))
    order = [*range(axis, end), *range(axis), *range(end, ndim)]
    found = graph.node("GatherND", _moved(graph, x, order), graph.node("Concat", *parts, axis=-1))
    lead = range(len(chosen), len(chosen) + axis)
    after = range(lead.stop, call.result.ndim)
    return _moved(graph, found, [*lead, *range(len(chosen)), *after])


def _moved(graph: Graph, x: str, order: list[int]) -> str:
    return x if order == sorted(order) else graph.node("Transpose", x, perm=order)


@exports("take_along_axis")
def _(graph: Graph, call: Call, x: str, indices: str, *, axis: int) -> Written:
    places = _positions(graph, indices, call.inputs[1].dtype)
    return graph.node("GatherElements", x, places, axis=axis)


@exports("pick", "pick_inside")
def _(graph: Graph, call: Call, x: str, index: str, *, axis: int, keepdims: bool) -> Written:
    place = normalize_axis(call.name, axis, call.inputs[0].ndim)
    extent = call.inputs[0].shape[place]
    index = graph.cast(index, call.inputs[1].dtype, "int64")
    last = graph.number(extent - 1)
    if call.name == "pick":
        index = graph.node("Clip", index, graph.constant(0), last)
    axes = graph.constant([place])
    found = graph.node("GatherElements", x, graph.node("Unsqueeze", index, axes), axis=place)
    return found if keepdims else graph.node("Squeeze", found, axes)


@exports("sort", "argsort", "top_positions")
def _(
    graph: Graph, call: Call, x: str, *, axis: int, descending: bool, count: int | None = None
) -> Written:
    spec = call.inputs[0]
    if not spec.ndim:
        return x if call.name == "sort" else graph.constant(0)
    place = normalize_axis(call.name, axis, spec.ndim)
    most = graph.sizes((spec.shape[place] if count is None else count,))
    ranked = DType("int32") if spec.dtype.kind == "b" else spec.dtype  # ONNX does not rank bools
    x = graph.cast(x, spec.dtype, ranked)
    values, places = graph.several("TopK", 2, x, most, axis=place, largest=int(descending))
    return graph.cast(values, ranked, spec.dtype) if call.name == "sort" else places


@exports("ranked")
def _(graph: Graph, call: Call, x: str, *, ranks: Any) -> Written:
    spec = call.inputs[0]
    last, ranked = spec.ndim - 1, DType("int32") if spec.dtype.kind == "b" else spec.dtype
    x = graph.cast(x, spec.dtype, ranked)
    _, places = graph.several("TopK", 2, x, graph.sizes(spec.shape[-1:]), axis=last, largest=0)
    taken = graph.sizes(ranks)
    return graph.node("Gather", places, taken, axis=last)


@exports("with_rows_put")
def _(graph: Graph, call: Call, x: str, indices: str, values: str, *, axis: int) -> Written:
    _, places, given = call.inputs
    values = graph.cast(values, given.dtype, call.result.dtype)
    values = graph.expand(values, given.shape, places.shape)
    at = _positions(graph, indices, places.dtype)
    return graph.node("ScatterElements", x, at, values, axis=axis)


#: How ONNX calls what combines elements with those written to them.
COMBINED = {"add": "add", "multiply": "mul", "maximum": "max", "minimum": "min"}


@exports("combine_flat", "extremes_flat")
def _(graph: Graph, call: Call, x: str, positions: str, values: str, *, by: str) -> Written:
    whole, places, given = call.inputs
    if by not in COMBINED or whole.dtype is bool_ or whole.dtype.is_complex:
        return None
    values = graph.cast(values, given.dtype, whole.dtype)
    values = graph.expand(values, given.shape, places.shape)
    at = _positions(graph, positions, places.dtype)
    return graph.node("ScatterElements", x, at, values, axis=0, reduction=COMBINED[by])


@exports("add_along_axis")
def _(graph: Graph, call: Call, g: str, indices: str, *, axis: int, extent: int) -> Written:
    zeros = graph.expand(graph.constant(0, call.result.dtype), (), call.result.shape)
    at = _positions(graph, indices, call.inputs[1].dtype)
    return graph.node("ScatterElements", zeros, at, g, axis=axis, reduction="add")


@exports("scatter")
def _(graph: Graph, call: Call, g: str, indices: str, *, axis: int, shape: Any) -> Written:
    if axis:
        return None
    zeros = graph.expand(graph.constant(0, call.result.dtype), (), call.result.shape)
    at = _positions(graph, indices, call.inputs[1].dtype)
    lined = graph.node("Unsqueeze", at, graph.constant([-1]))
    return graph.node("ScatterND", zeros, lined, g, reduction="add")

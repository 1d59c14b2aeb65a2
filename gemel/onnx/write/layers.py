"""Layers: windows, normalization, products with weights, recurrent networks."""

from __future__ import annotations

from typing import Any

from gemel.dtype import DType
from gemel.errors import ExportError
from gemel.onnx.write.graph import Graph
from gemel.onnx.write.table import Call, Written, exports, exports_call
from gemel.spec import normalize_axis, product, promote_specs

# --- products with weights --------------------------------------------------------------------


@exports_call("fully_connected")
def _(
    graph: Graph, call: Call, x: Any, weight: Any, bias: Any, no_bias: bool, flatten: bool, **_: Any
) -> Written:
    inputs = [x, weight] if bias is None or no_bias else [x, weight, bias]
    dtype = call.result.dtype
    if any(each.spec.dtype is not dtype for each in inputs):
        return None
    ndim, shape = x.spec.ndim, x.spec.shape
    rows = x
    if flatten and ndim > 2:
        rows = graph.reshape(x, shape, (shape[0], product(shape[1:])))
    if ndim == 2 or (flatten and ndim > 2):
        return graph.node("Gemm", rows, *inputs[1:], transB=1)
    found = graph.node("MatMul", x, graph.node("Transpose", weight, perm=[1, 0]))
    return graph.node("Add", found, bias) if len(inputs) == 3 else found


@exports_call("embedding")
def _(graph: Graph, call: Call, data: Any, weight: Any, dtype: Any, **_: Any) -> Written:
    positions = data.spec.dtype
    if positions.name not in ("int32", "int64"):
        positions = DType("int64")
    rows = graph.cast(data, data.spec.dtype, positions)
    found = graph.node("Gather", weight, rows, axis=0)
    return graph.cast(found, weight.spec.dtype, call.result.dtype)


@exports_call("attention")
def _(graph: Graph, call: Call, **_: Any) -> Written:
    """Write the parts: they are the same for all sizes, although the choice of parts depends on
    them."""
    return None


# --- windows ----------------------------------------------------------------------------------


@exports("convolution", "deconvolution")
def _(
    graph: Graph,
    call: Call,
    *inputs: str,
    kernel: Any,
    stride: Any,
    dilate: Any,
    pad: Any,
    groups: int,
    adjust: Any = None,
    scheme: str = "",
) -> Written:
    dtype = call.result.dtype
    given = [graph.cast(x, s.dtype, dtype) for x, s in zip(inputs, call.inputs, strict=True)]
    return graph.node(
        "Conv" if call.name == "convolution" else "ConvTranspose",
        *given,
        kernel_shape=list(kernel),
        strides=list(stride),
        dilations=list(dilate),
        pads=[*pad, *pad],
        group=groups,
        output_padding=list(adjust) if adjust and any(adjust) else None,
    )


POOLS = {"max": "MaxPool", "avg": "AveragePool", "sum": "AveragePool", "lp": "LpPool"}
#: The spatial axes that ONNX Runtime and others pool along at most.
LARGEST = 3
WHOLE = {"max": "GlobalMaxPool", "avg": "GlobalAveragePool", "lp": "GlobalLpPool"}


@exports("pooling")
def _(
    graph: Graph,
    call: Call,
    x: str,
    *,
    kernel: Any,
    stride: Any,
    pad: Any,
    kind: str,
    convention: str,
    padded: bool,
    p: int,
) -> Written:
    spec, dtype = call.inputs[0], call.result.dtype
    x, power = graph.cast(x, spec.dtype, dtype), p if kind == "lp" else None
    if not kernel:
        if kind != "sum":
            return graph.node(WHOLE[kind], x, p=power)
        return graph.node("ReduceSum", x, graph.constant(list(range(2, spec.ndim))), keepdims=1)
    if convention == "same":
        return None
    counts = call.result.shape[2:]
    moved = len(kernel) > LARGEST
    if moved:
        # (N, 1, *space, C), see `ops.pooling.beside`: the channels become channels again.
        order = [0, len(kernel) + 1, *range(2, len(kernel) + 1), 1]
        channels = graph.constant([len(kernel) + 1])
        x = graph.node("Squeeze", graph.node("Transpose", x, perm=order), channels)
        kernel, stride, pad, counts = kernel[:-1], stride[:-1], pad[:-1], counts[:-1]
    found = _pooled(graph, x, dtype, kernel, stride, pad, counts, kind, convention, padded, power)
    if moved:
        found = graph.node("Transpose", graph.node("Unsqueeze", found, channels), perm=order)
    return found


def _pooled(
    graph: Graph,
    x: str,
    dtype: DType,
    kernel: Any,
    stride: Any,
    pad: Any,
    counts: Any,
    kind: str,
    convention: str,
    padded: bool,
    power: int | None,
) -> str:
    """Pool x, in `counts` places along each spatial axis."""
    averages, ceil = kind in ("avg", "sum"), convention == "full"
    longer = ceil and kind in ("sum", "lp")
    # Windows may begin after the image: gemel leaves them out, ONNX Runtime and others do not all.
    spans = zip(kernel, stride, pad, strict=True)
    more_places = ceil and any(k - s < before for k, s, before in spans)
    if longer or (averages and ceil and padded):
        # Pad with explicit zeros, either to make the last window complete, or because only real
        # padding may count, and not what the last window would cover after it.
        after = [a + s - 1 for a, s in zip(pad, stride, strict=True)] if longer else pad
        x = graph.padded(x, (0, 0, *pad), (0, 0, *after), graph.constant(0, dtype))
        pad, padded = (0,) * len(pad), False
    found = graph.node(
        POOLS[kind],
        x,
        kernel_shape=list(kernel),
        strides=list(stride),
        pads=[*pad, *pad],
        ceil_mode=1 if ceil and not longer else None,
        count_include_pad=int(padded or kind == "sum") if averages else None,
        p=power,
    )
    if more_places:
        found = _places(graph, found, counts)
    if kind != "sum":
        return found
    return graph.node("Mul", found, graph.constant(product(kernel), dtype))


def _places(graph: Graph, x: str, counts: Any) -> str:
    """Keep the first windows along each spatial axis, and drop those that begin after the image."""
    axes = graph.constant(list(range(2, 2 + len(counts))))
    return graph.node("Slice", x, graph.constant([0] * len(counts)), graph.sizes(counts), axes)


# --- normalization ----------------------------------------------------------------------------


@exports_call("batch_norm")
def _(
    graph: Graph,
    call: Call,
    x: Any,
    gamma: Any,
    beta: Any,
    running_mean: Any,
    running_var: Any,
    eps: float,
    fix_gamma: bool,
    output_mean_var: bool,
    axis: int,
    **_: Any,
) -> Written:
    if output_mean_var or normalize_axis("batch_norm", axis, x.spec.ndim) != 1:
        return None
    channels = gamma.spec.shape
    if fix_gamma:
        gamma = graph.constant([1] * int(channels[0]), gamma.spec.dtype)
    given = (gamma, beta, running_mean, running_var)
    return graph.node("BatchNormalization", x, *given, epsilon=float(eps))


@exports("layer_norm")
def _(graph: Graph, call: Call, x: str, gamma: str, beta: str, *, axis: int, eps: float) -> Written:
    dtype = call.result.dtype
    last = normalize_axis("layer_norm", axis, call.inputs[0].ndim) == call.inputs[0].ndim - 1
    if not last or any(spec.dtype is not dtype for spec in call.inputs):
        return None
    return graph.node("LayerNormalization", x, gamma, beta, axis=-1, epsilon=eps)


@exports("instance_norm")
def _(graph: Graph, call: Call, x: str, gamma: str, beta: str, *, eps: float) -> Written:
    if call.inputs[0].ndim < 3 or promote_specs(*call.inputs) is not call.result.dtype:
        return None
    return graph.node("InstanceNormalization", x, gamma, beta, epsilon=eps)


@exports("softmax", "log_softmax")
def _(graph: Graph, call: Call, x: str, *, axis: int) -> Written:
    x = graph.cast(x, call.inputs[0].dtype, call.result.dtype)
    kind = {"softmax": "Softmax", "log_softmax": "LogSoftmax"}[call.name]
    return graph.node(kind, x, axis=axis) if call.inputs[0].ndim else None


# --- recurrent networks -----------------------------------------------------------------------

#: For each mode, ONNX's operator, and its order of the gates as positions in gemel's order.
RECURRENT: dict[str, tuple[str, tuple[int, ...]]] = {
    "lstm": ("LSTM", (0, 3, 1, 2)),
    "gru": ("GRU", (1, 0, 2)),
    "rnn_tanh": ("RNN", (0,)),
    "rnn_relu": ("RNN", (0,)),
}


@exports_call("rnn")
def _(
    graph: Graph, call: Call, data: Any, weights: Any, states: Any, lengths: Any, how: Any
) -> Written:
    if how.projection or how.low is not None or how.high is not None:
        raise ExportError(
            "onnx.export: rnn with a projection_size or with limits of the state: ONNX has neither"
        )
    x, last = str(data), []
    given = _Layer(graph, how, graph.cast(lengths, DType("int64"), "int32") if lengths else "")
    layers = len(weights) // how.directions
    parts = [graph.constant([how.directions] * layers)]
    begins = [
        graph.several("Split", layers, s, *parts, axis=0) if layers > 1 else (s,) for s in states
    ]
    for layer in range(layers):
        own = weights[layer * how.directions : (layer + 1) * how.directions]
        x, *ends = given.written(x, own, [begin[layer] for begin in begins])
        last.append(ends)
    if layers == 1:
        return (x, *last[0])
    joined = [graph.node("Concat", *[ends[i] for ends in last], axis=0) for i in range(len(states))]
    return (x, *joined)


class _Layer:
    """One layer of a recurrent network, in one or two directions."""

    def __init__(self, graph: Graph, how: Any, lengths: str) -> None:
        self.graph, self.how, self.lengths = graph, how, lengths
        self.kind, self.order = RECURRENT[how.mode]

    def written(self, x: str, weights: Any, begins: list[str]) -> tuple[str, ...]:
        """The outputs (time, batch, directions * size), and the last states."""
        graph, how = self.graph, self.how
        into = self._side_by_side([self._ordered(w.input) for w in weights])
        hidden = self._side_by_side([self._ordered(w.hidden) for w in weights])
        biases = [
            graph.node("Concat", self._ordered(w.input_bias), self._ordered(w.hidden_bias), axis=0)
            for w in weights
        ]
        activations = ["Relu" if how.mode == "rnn_relu" else "Tanh"] * how.directions
        found = graph.several(
            self.kind,
            1 + len(begins),
            *(x, into, hidden, self._side_by_side(biases), self.lengths, *begins),
            hidden_size=how.size,
            direction="bidirectional" if how.directions == 2 else "forward",
            activations=activations if self.kind == "RNN" else None,
            linear_before_reset=1 if self.kind == "GRU" else None,
        )
        # from (time, directions, batch, size) to (time, batch, directions * size)
        if how.directions == 1:
            return graph.node("Squeeze", found[0], graph.constant([1])), *found[1:]
        turned = graph.node("Transpose", found[0], perm=[0, 2, 1, 3])
        return graph.node("Reshape", turned, graph.constant([0, 0, -1])), *found[1:]

    def _ordered(self, weight: str) -> str:
        """A weight with its gates in ONNX's order."""
        if len(self.order) == 1:
            return weight
        size = self.how.size
        rows = [row for gate in self.order for row in range(gate * size, (gate + 1) * size)]
        return self.graph.node("Gather", weight, self.graph.constant(rows), axis=0)

    def _side_by_side(self, parts: list[str]) -> str:
        """Stack the arrays of the directions along a new first axis."""
        graph = self.graph
        lined = [graph.node("Unsqueeze", each, graph.constant([0])) for each in parts]
        return lined[0] if len(lined) == 1 else graph.node("Concat", *lined, axis=0)

"""ONNX Runtime: plain `run`, and `run` with inputs and outputs bound beforehand."""

from __future__ import annotations

from typing import Any

import numpy
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from benchmarks.cases import Calls, Case
from benchmarks.workloads import Workload, gates, inputs, parameters, steps_of


def model(workload: Workload) -> bytes:
    """The MLP as an ONNX model: Gemm and Relu nodes."""
    nodes, initializers = [], []
    value = "x"
    layers = parameters(workload)
    for index, (weight, bias) in enumerate(layers):
        initializers += [
            numpy_helper.from_array(weight, f"weight{index}"),
            numpy_helper.from_array(bias, f"bias{index}"),
        ]
        last = index == len(layers) - 1
        product = "y" if last else f"product{index}"
        operands = [value, f"weight{index}", f"bias{index}"]
        nodes.append(helper.make_node("Gemm", operands, [product], transB=1))
        value = product
        if not last:
            value = f"hidden{index}"
            nodes.append(helper.make_node("Relu", [product], [value]))
    shape_in, shape_out = (workload.batch, workload.sizes[0]), (workload.batch, workload.sizes[-1])
    return made("mlp", nodes, initializers, shape_in, shape_out)


def made(
    name: str, nodes: list[Any], initializers: list[Any], shape_in: Any, shape_out: Any
) -> bytes:
    """An ONNX model with the input x and the output y, both float32."""
    graph = helper.make_graph(
        nodes,
        name,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape_in)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape_out)],
        initializers,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.checker.check_model(model)
    data: bytes = model.SerializeToString()
    return data


def lstm_model(workload: Workload) -> bytes:
    """An LSTM node; ONNX has the gates in the order input, output, forget, cell."""
    size = workload.sizes[1]
    order = [row for gate in (0, 3, 1, 2) for row in range(gate * size, (gate + 1) * size)]
    first, second, *biases = (weights[order] for weights in gates(workload))
    values = {"w": first, "r": second, "b": numpy.concatenate(biases)}
    shape = (workload.count, workload.batch)
    return made(
        "lstm",
        [helper.make_node("LSTM", ["x", *values], ["y"], hidden_size=size)],
        [numpy_helper.from_array(value[None], name) for name, value in values.items()],
        (*shape, workload.sizes[0]),
        (shape[0], 1, shape[1], size),
    )


def session_of(model: bytes, workload: Workload) -> onnxruntime.InferenceSession:
    """A session that uses the workload's number of threads."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = workload.threads
    options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def mlp(name: str, workload: Workload) -> Case:
    """`name` chooses plain or bound."""
    session = session_of(model(workload), workload)
    if name == "onnxruntime":
        run = session.run
        feeds = [{"x": x} for x in inputs(workload)]
        return Calls(lambda feed: run(None, feed), feeds, lambda result: result[0])
    run_bound = session.run_with_iobinding

    def call(binding: Any) -> Any:
        run_bound(binding)
        return binding

    bindings = [bind(session, x, workload) for x in inputs(workload)]
    return Calls(call, bindings, lambda binding: binding.get_outputs()[0].numpy())


def bind(session: Any, x: numpy.ndarray, workload: Workload) -> Any:
    """A binding of the input `x` and of an output buffer of its own."""
    binding = session.io_binding()
    source = onnxruntime.OrtValue.ortvalue_from_numpy(x)
    shape = (workload.batch, workload.sizes[-1])
    target = onnxruntime.OrtValue.ortvalue_from_numpy(numpy.zeros(shape, numpy.float32))
    binding.bind_ortvalue_input("x", source)
    binding.bind_ortvalue_output("y", target)
    return binding


def lstm(name: str, workload: Workload) -> Case:
    """Inference over whole sequences."""
    session = session_of(lstm_model(workload), workload)
    feeds = [{"x": x} for x in steps_of(workload)]
    return Calls(lambda feed: session.run(None, feed), feeds, lambda result: result[0])

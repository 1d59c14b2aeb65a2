"""ONNX Runtime: plain `run`, and with inputs and outputs bound beforehand."""

from __future__ import annotations

from typing import Any

import numpy
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from benchmarks.cases import Calls, Case
from benchmarks.workloads import Workload, inputs, parameters


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
    graph = helper.make_graph(
        nodes,
        "mlp",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape_in)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape_out)],
        initializers,
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    made.ir_version = 8
    onnx.checker.check_model(made)
    data: bytes = made.SerializeToString()
    return data


def session_of(workload: Workload) -> onnxruntime.InferenceSession:
    """A session with the workload's number of threads."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = workload.threads
    options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(
        model(workload), options, providers=["CPUExecutionProvider"]
    )


def mlp(name: str, workload: Workload) -> Case:
    """`name` chooses plain or bound."""
    session = session_of(workload)
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
    """A binding of input `x` and an output buffer of its own."""
    binding = session.io_binding()
    source = onnxruntime.OrtValue.ortvalue_from_numpy(x)
    shape = (workload.batch, workload.sizes[-1])
    target = onnxruntime.OrtValue.ortvalue_from_numpy(numpy.zeros(shape, numpy.float32))
    binding.bind_ortvalue_input("x", source)
    binding.bind_ortvalue_output("y", target)
    return binding

"""ONNX models of one operation each, with its parameters, for ONNX Runtime and OpenVINO."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.shapes import Shape

#: Constant inputs of operations, by their names in the models.
Constants = dict[str, numpy.ndarray]
Nodes = list[Any]
node = helper.make_node


def conv(names: list[str], shape: Shape) -> tuple[Nodes, Constants]:
    count = len(shape.sizes[0]) - 2
    stride, pad, groups = (shape.settings[name] for name in ("stride", "pad", "groups"))
    moves = {"strides": [stride] * count, "pads": [pad] * 2 * count, "group": groups}
    return [node("Conv", names, ["y"], **moves)], {}


def simple(kind: str, **settings: Any) -> Callable[[list[str], Shape], tuple[Nodes, Constants]]:
    """An operation that takes the arrays unchanged."""
    return lambda names, shape: ([node(kind, names, ["y"], **settings)], {})


matmul = simple("MatMul")
pool = simple("MaxPool", kernel_shape=[2, 2], strides=[2, 2])
softmax = simple("Softmax", axis=-1)
take = simple("Gather", axis=0)


def square(names: list[str], shape: Shape) -> tuple[Nodes, Constants]:
    return [node("Mul", names * 2, ["y"])], {}


def transpose(names: list[str], shape: Shape) -> tuple[Nodes, Constants]:
    return [node("Transpose", names, ["y"], perm=shape.settings["axes"])], {}


def weighed(q: str, k: str, v: str, result: str, size: int) -> tuple[Nodes, Constants]:
    """Attention with keys that are already transposed."""
    nodes = [
        node("Mul", [q, "factor"], ["cooled"]),
        node("MatMul", ["cooled", k], ["scores"]),
        node("Softmax", ["scores"], ["shares"], axis=-1),
        node("MatMul", ["shares", v], [result]),
    ]
    return nodes, {"factor": numpy.array(size**-0.5, "float32")}


def attention(names: list[str], shape: Shape) -> tuple[Nodes, Constants]:
    axes = len(shape.sizes[1])
    turned = node("Transpose", ["x1"], ["keys"], perm=[*range(axes - 2), axes - 1, axes - 2])
    nodes, constants = weighed("x0", "keys", "x2", "y", shape.sizes[0][-1])
    return [turned, *nodes], constants


def encoder(names: list[str], shape: Shape) -> tuple[Nodes, Constants]:
    """What torch's TransformerEncoderLayer computes, with the weights in torch's order."""
    batch, time, width = shape.sizes[0]
    heads = shape.settings["heads"]
    size = width // heads

    def dense(x: str, index: int, result: str) -> Nodes:
        turned = node("Transpose", [f"w{index}"], [f"turned{index}"], perm=[1, 0])
        product = node("MatMul", [x, f"turned{index}"], [f"product{index}"])
        return [turned, product, node("Add", [f"product{index}", f"w{index + 1}"], [result])]

    def norm(x: str, index: int, result: str) -> Any:
        names = [x, f"w{index}", f"w{index + 1}"]
        return node("LayerNormalization", names, [result], axis=-1, epsilon=1e-5)

    nodes = [
        *dense("x0", 0, "whole"),
        node("Split", ["whole"], ["q", "k", "v"], axis=-1, num_outputs=3),
    ]
    for name, axes in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        nodes.append(node("Reshape", [name, "apart"], [f"{name}_apart"]))
        nodes.append(node("Transpose", [f"{name}_apart"], [f"{name}_heads"], perm=axes))
    products, constants = weighed("q_heads", "k_heads", "v_heads", "seen", size)
    nodes += [
        *products,
        node("Transpose", ["seen"], ["beside"], perm=[0, 2, 1, 3]),
        node("Reshape", ["beside", "together"], ["joined"]),
        *dense("joined", 2, "out"),
        node("Add", ["x0", "out"], ["added"]),
        norm("added", 8, "middle"),
        *dense("middle", 4, "wide"),
        node("Gelu", ["wide"], ["hidden"]),
        *dense("hidden", 6, "narrow"),
        node("Add", ["middle", "narrow"], ["last"]),
        norm("last", 10, "y"),
    ]
    constants["apart"] = numpy.array([batch, time, heads, size])
    constants["together"] = numpy.array([batch, time, width])
    return nodes, constants


def model(shape: Shape, data: list[Any], weights: list[Any]) -> bytes | None:
    """The model of an operation as bytes; None for gradients, and for kinds without a model."""
    if shape.gradients or shape.kind not in globals():
        return None
    inputs = [f"x{i}" for i in range(len(data))]
    stay = {f"w{i}": weight for i, weight in enumerate(weights)}
    nodes, constants = globals()[shape.kind]([*inputs, *stay], shape)
    initializers = {**stay, **constants}.items()
    graph = helper.make_graph(
        nodes,
        shape.kind,
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
            for name, x in zip(inputs, data, strict=True)
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape.result)],
        [numpy_helper.from_array(value, name) for name, value in initializers],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    made.ir_version = 9
    onnx.checker.check_model(made)
    text: bytes = made.SerializeToString()
    return text

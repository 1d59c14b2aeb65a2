"""OpenVINO: a model of one operation in float32, with its tensors set beforehand."""

from __future__ import annotations

import openvino

from benchmarks.cases import Single
from benchmarks.contenders.onnx_models import model
from benchmarks.shapes import Shape


def case(shape: Shape, threads: int) -> Single | None:
    """The model of a kind; None for gradients, and for kinds without a model."""
    data, weights = shape.operands()
    text = model(shape, data, weights)
    if text is None:
        return None
    core = openvino.Core()
    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
    }
    request = core.compile_model(core.read_model(text), "CPU", settings).create_infer_request()
    for index, x in enumerate(data):
        request.set_input_tensor(index, openvino.Tensor(x))
    return Single(lambda _: request.infer(), lambda _: [request.get_output_tensor().data])

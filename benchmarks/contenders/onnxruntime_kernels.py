"""ONNX Runtime: a model of one operation, with inputs and outputs bound beforehand."""

from __future__ import annotations

import numpy
import onnxruntime

from benchmarks.cases import Single
from benchmarks.contenders.onnx_models import model
from benchmarks.shapes import Shape


def case(shape: Shape, threads: int) -> Single | None:
    """The model of a kind; None for gradients, and for kinds without a model."""
    data, weights = shape.operands()
    text = model(shape, data, weights)
    if text is None:
        return None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(text, options, providers=["CPUExecutionProvider"])
    value = onnxruntime.OrtValue.ortvalue_from_numpy
    binding = session.io_binding()
    for index, x in enumerate(data):
        binding.bind_ortvalue_input(f"x{index}", value(x))
    binding.bind_ortvalue_output("y", value(numpy.zeros(shape.result, "float32")))
    return Single(
        lambda _: session.run_with_iobinding(binding),
        lambda _: [binding.get_outputs()[0].numpy()],
    )

"""ONNX Runtime from process start to a first inference.

Usage: start_onnx.py prepare|run FOLDER VARIANT.
"""

import time

started = time.perf_counter()

import sys  # noqa: E402

import numpy  # noqa: E402
import onnxruntime  # noqa: E402

imported = time.perf_counter()


def prepare() -> None:
    """Write the model in its optimised form."""
    from pathlib import Path

    sys.path.append(str(Path(__file__).resolve().parent.parent.parent))
    from benchmarks.contenders.onnx_contender import model
    from benchmarks.workloads import MLP

    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = "mlp.onnx"
    onnxruntime.InferenceSession(model(MLP), options, providers=["CPUExecutionProvider"])


def main() -> None:
    """Load the model, infer, and print the time stamps."""
    import json

    with open("sizes.json") as file:
        sizes = json.load(file)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession("mlp.onnx", options, providers=["CPUExecutionProvider"])
    x = numpy.fromfile("numbers.bin", numpy.float32, sizes[0]).reshape(1, -1)
    values = session.run(None, {"x": x})[0].ravel().tolist()
    inferred = time.perf_counter()
    stamps = {"started": started, "imported": imported, "inferred": inferred}
    print(json.dumps({**stamps, "values": values, "heavy": ["numpy"]}))


if sys.argv[1] == "run":
    main()
else:
    prepare()

"""The contenders: each one's name, the module that builds it, and the packages it needs."""

from __future__ import annotations

import importlib
from typing import NamedTuple

from benchmarks.cases import Case
from benchmarks.workloads import Workload


class Contender(NamedTuple):
    """One way of running a workload."""

    name: str
    module: str
    requires: tuple[str, ...]
    ours: bool = False
    slow_start: bool = False  # compiles for seconds, so quick runs leave it out


ALL = (
    Contender("gemel", "gemel_contender", ("gemel",), ours=True),
    Contender("gemel hybridized", "gemel_contender", ("gemel",), ours=True),
    Contender("gemel step compiled", "gemel_contender", ("gemel",), ours=True),
    Contender("numpy", "numpy_contender", ("numpy",)),
    Contender("torch", "torch_contender", ("torch",)),
    Contender("torch script", "torch_contender", ("torch",)),
    Contender("torch compile", "torch_contender", ("torch",), slow_start=True),
    Contender("onnxruntime", "onnx_contender", ("onnxruntime", "onnx")),
    Contender("onnxruntime bound", "onnx_contender", ("onnxruntime", "onnx")),
    Contender("openvino", "openvino_kernels", ("openvino", "onnx")),
    Contender("jax", "jax_contender", ("jax",)),
)

BY_NAME = {contender.name: contender for contender in ALL}

# The contenders that take part in each workload.
TAKING_PART = {
    "mlp": tuple(each.name for each in ALL if each.name not in ("openvino", "gemel step compiled")),
    "add": ("gemel", "numpy", "torch", "jax"),
    "dot": ("gemel", "numpy", "torch", "jax"),
    "train": ("gemel", "gemel hybridized", "gemel step compiled", "torch", "torch compile", "jax"),
    "lstm": ("gemel", "gemel hybridized", "torch", "onnxruntime"),
    "lstm_train": ("gemel", "gemel hybridized", "gemel step compiled", "torch"),
    "resnet": (
        "gemel",
        "gemel hybridized",
        "torch",
        "torch script",
        "torch compile",
        "onnxruntime",
        "jax",
    ),
    "resnet_train": ("gemel", "gemel hybridized", "torch", "torch compile", "jax"),
    "op": ("gemel", "torch", "torch compile", "jax"),
    "net": ("gemel", "gemel hybridized", "torch", "torch compile", "jax"),
    "chain": ("gemel", "torch", "jax"),
    "norms": ("gemel hybridized", "torch", "torch compile", "jax"),
    "rnn": ("gemel", "torch", "jax"),
    "picture": ("gemel hybridized", "torch", "torch compile", "jax"),
    "batches": ("gemel", "gemel hybridized", "torch", "torch compile", "jax"),
}


def build(name: str, workload: Workload) -> Case:
    """The case of contender `name` on `workload`. Imports its library."""
    contender = BY_NAME[name]
    residual = workload.kind.startswith("resnet")
    file = f"{contender.requires[0]}_residual" if residual else contender.module
    module = importlib.import_module(f"benchmarks.contenders.{file}")
    case: Case = getattr(module, workload.kind)(name, workload)
    return case

"""Networks as ONNX files, and ONNX files as networks (``pip install gemel[onnx]``).

`export` and `load` are gemel's; the others have MXNet's names.
"""

from __future__ import annotations

from gemel.onnx.mxnet import export_model, get_model_metadata, import_model, import_to_gluon
from gemel.onnx.read.network import load
from gemel.onnx.write.model import export

__all__ = [
    "export",
    "export_model",
    "get_model_metadata",
    "import_model",
    "import_to_gluon",
    "load",
]

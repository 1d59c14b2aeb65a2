"""Networks as ONNX files, and ONNX files as networks (``pip install gemel[onnx]``)."""

from __future__ import annotations

from gemel.onnx.read.network import load
from gemel.onnx.write.model import export

__all__ = ["export", "load"]

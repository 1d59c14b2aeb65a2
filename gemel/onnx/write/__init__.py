"""Writing programs as ONNX."""

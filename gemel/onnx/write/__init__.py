"""Programs written as ONNX."""

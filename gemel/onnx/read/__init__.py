"""Reading ONNX files as networks."""

"""Files of ONNX as networks."""

"""ONNX models become networks."""

"""Import of ONNX models as networks."""

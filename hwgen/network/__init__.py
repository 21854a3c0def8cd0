"""WHAT to compute: the graph, ONNX import, quantisation, built-in networks and the golden model."""

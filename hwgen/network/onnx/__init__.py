"""Importer of quantised ONNX models, which become networks of integer layers."""

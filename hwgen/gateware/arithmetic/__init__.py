"""Arithmetic circuits whose constants (biases, scales, tables) are written at run time.

The engine and layers with run-time weights use them.
"""

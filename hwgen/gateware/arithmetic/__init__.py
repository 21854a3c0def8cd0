"""Arithmetic with parameters that are written at run time, for the engine and for layers with run-time weights."""

"""Arithmetic with parameters that are written at run time, shared by the engine and by layers that load weights."""

"""Weights that are loaded at run time: the memories that take them, and what brings them there."""

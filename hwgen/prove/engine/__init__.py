"""Obligations of engines: memory side, compute core, and the wires between them."""

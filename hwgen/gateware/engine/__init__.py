"""Programmable engine: one circuit that runs networks from off-chip memory, by programs of jobs (descriptors)."""

"""Programmable engine: one circuit that runs networks from off-chip memory, job by job (docs/reference/engine.md)."""

"""Compiler that translates a quantised network into a program of jobs for the engine (docs/reference/engine.md)."""

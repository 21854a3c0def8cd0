"""The compiler of the engine: from a network to a program, and what a program does (docs/reference/engine.md)."""

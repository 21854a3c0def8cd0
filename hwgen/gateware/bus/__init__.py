"""Connections between an accelerator and the buses of a board: streams of whole bytes, and registers."""

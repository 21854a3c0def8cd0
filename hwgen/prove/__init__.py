"""Proofs of emitted Verilog: obligations that components state, and methods that discharge them for all time."""

"""Proofs of emitted Verilog: methods that discharge the obligations that components state, for all time."""

"""Proofs of emitted Verilog: methods that prove or refute the obligations that components state."""

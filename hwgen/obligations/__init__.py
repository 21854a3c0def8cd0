"""Proof obligations of emitted Verilog modules, and the observers (Verilog monitors) that they are made of."""

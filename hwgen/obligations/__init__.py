"""Proof obligations (properties to prove) of emitted Verilog modules, and the observers (Verilog monitors) in them."""

"""Obligations of bus wrappers: AXI interfaces, registers, the bus shell, and the wires of the top module."""

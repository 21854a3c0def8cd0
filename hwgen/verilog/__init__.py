"""Writer that turns any Amaranth component into readable Verilog.

docs/explanation/verilog-writer.md gives the reason.
"""

from hwgen.verilog.writer import convert

__all__ = ["convert"]

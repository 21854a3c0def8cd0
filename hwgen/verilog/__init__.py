"""The Verilog writer: readable Verilog of any Amaranth component (docs/verilog.md says why it exists)."""

from hwgen.verilog.writer import convert

__all__ = ["convert"]

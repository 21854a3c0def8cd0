"""Verilog writer: readable Verilog of any Amaranth component (docs/explanation/verilog-writer.md gives the reason)."""

from hwgen.verilog.writer import convert

__all__ = ["convert"]

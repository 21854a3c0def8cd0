"""Ports of Amaranth memories with signal names of the caller's choice.

``Memory.read_port`` names signals after the variable that the port is assigned to. These names would reach users'
Verilog.
"""

from __future__ import annotations

from typing import Any

from amaranth.lib import memory
from amaranth.utils import ceil_log2

__all__ = ["read_port", "write_port"]


def read_port(storage: memory.Memory, name: str = "read", *, domain: str = "sync") -> memory.ReadPort:
    """Add a read port to a memory, and return it, with signals ``NAME__addr``, ``NAME__data`` and ``NAME__en``."""
    shape: Any = storage.shape
    signature = memory.ReadPort.Signature(addr_width=ceil_log2(storage.depth), shape=shape)
    return memory.ReadPort(signature, memory=storage, domain=domain, path=(name,))


def write_port(storage: memory.Memory, name: str = "write", *, granularity: int | None = None) -> memory.WritePort:
    """Add a write port to a memory, and return it, with signals ``NAME__addr``, ``NAME__data`` and ``NAME__en``."""
    shape: Any = storage.shape
    signature = memory.WritePort.Signature(addr_width=ceil_log2(storage.depth), shape=shape, granularity=granularity)
    return memory.WritePort(signature, memory=storage, domain="sync", path=(name,))

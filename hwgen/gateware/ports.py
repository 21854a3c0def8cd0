"""Ports of memories, with names that don't depend on Python's variables.

``Memory.read_port`` names a port's signals after the variable that it is assigned to, and users find them in Verilog.
"""

from __future__ import annotations

from typing import Any

from amaranth.lib import memory
from amaranth.utils import ceil_log2

__all__ = ["read_port", "write_port"]


def read_port(storage: memory.Memory, name: str = "read", *, domain: str = "sync") -> memory.ReadPort:
    """Add a read port to a memory; its signals are ``NAME__addr``, ``NAME__data`` and ``NAME__en``."""
    shape: Any = storage.shape
    signature = memory.ReadPort.Signature(addr_width=ceil_log2(storage.depth), shape=shape)
    return memory.ReadPort(signature, memory=storage, domain=domain, path=(name,))


def write_port(storage: memory.Memory, name: str = "write", *, granularity: int | None = None) -> memory.WritePort:
    """Add a write port to a memory; its signals are ``NAME__addr``, ``NAME__data`` and ``NAME__en``."""
    shape: Any = storage.shape
    signature = memory.WritePort.Signature(addr_width=ceil_log2(storage.depth), shape=shape, granularity=granularity)
    return memory.WritePort(signature, memory=storage, domain="sync", path=(name,))

"""RAMs of a device family, and ports of Amaranth memories with signal names of the caller's choice.

``Memory.read_port`` names signals after the variable that the port is assigned to. These names would reach users'
Verilog.
"""

from __future__ import annotations

from typing import Any

from amaranth.lib import memory
from amaranth.utils import ceil_log2

from hwgen.devices import Device


def ram(device: Device, shape: Any, depth: int, where: str | None = None) -> memory.Memory:
    """Return an Amaranth memory of ``depth`` zeroed words, in RAM of kind ``where``: ``lut``, ``block`` or ``ultra``.

    If ``where`` is ``None``, the depth decides.
    """
    return memory.Memory(shape=shape, depth=depth, init=[], attrs=device.memories.ram_style(depth, where))


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

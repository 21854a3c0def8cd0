"""Device families: what each FPGA family offers, in one file per family.

A `Device` states what is true of every device of its family. A new family is a module of this package and a line of
`FAMILIES`.
"""

from __future__ import annotations

from hwgen.devices.device import Capacity, Device, MultiplierSlice
from hwgen.devices.logic import Logic
from hwgen.devices.memory import LutRow, Memories
from hwgen.devices.xilinx7 import XILINX7

__all__ = [
    "DEFAULT",
    "FAMILIES",
    "Capacity",
    "Device",
    "Logic",
    "LutRow",
    "Memories",
    "MultiplierSlice",
    "family_of",
]

FAMILIES: dict[str, Device] = {family.name: family for family in (XILINX7,)}
"""Registered families by name."""

DEFAULT = XILINX7
"""Family of a board whose part no family knows."""


def family_of(part: str) -> Device | None:
    """Return the family that has a part, such as ``xc7z020clg400-1`` (in any case); ``None`` if no family has it."""
    return next((family for family in FAMILIES.values() if family.device_of(part)), None)

"""Device families: resources and synthesis rules of each FPGA family, in one module per family.

A `Device` describes everything that all devices of its family share. A new family needs a module in this package and an
entry in `FAMILIES`.
"""

from __future__ import annotations

from hwgen.devices.device import Capacity, Device, MultiplierSlice
from hwgen.devices.ecp5 import ECP5
from hwgen.devices.generic import GENERIC
from hwgen.devices.logic import Logic
from hwgen.devices.memory import LutRow, Memories
from hwgen.devices.ultrascale_plus import ULTRASCALE_PLUS
from hwgen.devices.xilinx7 import XILINX7

__all__ = [
    "DEFAULT",
    "FAMILIES",
    "GENERIC",
    "Capacity",
    "Device",
    "Logic",
    "LutRow",
    "Memories",
    "MultiplierSlice",
    "family_of",
]

FAMILIES: dict[str, Device] = {family.name: family for family in (XILINX7, ULTRASCALE_PLUS, ECP5)}
"""Device families that hwgen knows, by name."""

DEFAULT = XILINX7
"""Device family that circuits are made for where there is no board."""


def family_of(part: str) -> Device | None:
    """Return the device family of a part number such as ``xc7z020clg400-1``, in any case; ``None`` if there is none."""
    return next((family for family in FAMILIES.values() if family.device_of(part)), None)
